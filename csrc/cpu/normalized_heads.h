// Normalize, scale and rotate heads of a token in one pass over memory, for rms_norm_rope and qkv_norm_rope_cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "csrc/cpu/rms_norm_rope_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace normalized_heads {

constexpr int64_t kMaxHeadsPerBlock = 32;

// Returns the number of heads of a block. The squares of all of them are summed before the first root, so that the
// roots do not delay the sums. With each head, the head at the same place in the next block is prefetched. After a
// token's last block, this is a head of the next token in most layouts. In measurements with an L1 cache of 32 KiB,
// blocks of 8 KiB are the fastest.
inline int64_t heads_per_block(int64_t head_bytes) {
    constexpr int64_t kBlockBytes = int64_t{8} << 10;
    return std::clamp<int64_t>(kBlockBytes / head_bytes, 1, kMaxHeadsPerBlock);
}

// Computes the inverse root mean squares of a block of `count` rows from the sums of the squares of their n elements.
// Returns whether fits_floats() is true for all of them. The arrays have kMaxHeadsPerBlock elements, or a multiple of
// kRootPadding that is at least count.
inline bool invert_roots(const RmsNormRopeKernels& kernels, double* sums, int64_t count, int64_t n, double epsilon,
                         float* inverses) {
    constexpr int64_t kPadding = RmsNormRopeKernels::kRootPadding;
    const int64_t padded = (count + kPadding - 1) / kPadding * kPadding;
    const auto elements = static_cast<double>(n);
    std::fill(sums + count, sums + padded, elements);  // fits_floats() is true for a mean square of 1
    return kernels.invert_roots(sums, padded, elements, epsilon, inverses);
}

// Returns a head's scale as the kernels read it. For bfloat16, the elements at the window are in the order kEvenOdd:
// those of each half of a window whose pairs are half apart, else those of the whole window. NaNs become NaNs of
// bfloat16.
inline std::vector<float> ordered_scale(std::vector<float> scale, const RotationCall& call,
                                        const RopeKernels& kernels) {
    if (call.dtype != NPU_ROPE_BFLOAT16) return scale;
    kernels.widen[NPU_ROPE_FLOAT32](scale.data(), scale.data(), static_cast<int64_t>(scale.size()));
    std::vector<float> ordered = scale;
    const float* from = scale.data() + call.offset;
    float* to = ordered.data() + call.offset;
    const int pairs = static_cast<int>(call.pairs);
    if (call.pairing == kHalfApart)
        kernels.reorder(kEvenOdd, pairs, from, from + pairs, to, to + pairs);
    else
        kernels.reorder(kEvenOdd, 2 * pairs, from, from, to, to);
    return ordered;
}

// Normalizes and rotates heads of a token with the kernel of rms_norm_rope. Heads are float32 or narrower.
class Pass {
public:
    // scale: as ordered_scale() returns it. tables: in the order of the call's dtype.
    Pass(const RmsNormRopeKernels& kernels, const RowFormat& format, const RotationCall& call, const float* scale,
         const TablePair& tables, const rotation::Heads& heads, bool stream)
        : kernels_(kernels),
          format_(format),
          heads_(heads),
          heads_per_block_(heads_per_block(format.n * format.x_bytes)),
          rotate_(kernels.rotate[call.pairing][call.dtype]),
          offset_bytes_(call.offset * format.x_bytes) {
        job_.x_stride = heads.x_stride;
        job_.y_stride = heads.y_stride;
        job_.scale = scale + call.offset;
        job_.elements_before = call.offset;
        job_.elements_after = format.n - call.offset - 2 * call.pairs;
        job_.pairs = static_cast<int>(call.pairs);
        job_.cos_table = static_cast<const float*>(tables.cos);
        job_.sin_table = static_cast<const float*>(tables.sin);
        job_.prefetch_distance = heads_per_block_ * heads.x_stride * format.x_bytes;
        job_.stream = stream;
    }

    // Computes all heads. Calls compute_other(x, y) for a head that float32 cannot normalize (fits_floats()).
    template <typename F>
    void run(F compute_other) {
        const int64_t x_step = heads_.x_stride * format_.x_bytes, y_step = heads_.y_stride * format_.x_bytes;
        const double n = static_cast<double>(format_.n);
        for (int64_t first = 0; first < heads_.count; first += heads_per_block_) {
            const int64_t count = std::min(heads_per_block_, heads_.count - first);
            const char* x = heads_.x + first * x_step;
            char* y = heads_.y + first * y_step;
            double sums[kMaxHeadsPerBlock];
            float inverses[kMaxHeadsPerBlock];
            sum_squares_in_floats(format_, x, count, x_step, sums);
            if (invert_roots(kernels_, sums, count, format_.n, format_.epsilon, inverses)) {
                rotate(x, y, count, inverses);
                continue;
            }
            for (int64_t h = 0; h < count; ++h, x += x_step, y += y_step)
                fits_floats(sums[h] / n + format_.epsilon) ? rotate(x, y, 1, inverses + h) : compute_other(x, y);
        }
    }

    // Multiplies heads by these inverse root mean squares and by the scale, and rotates them.
    void rotate(const char* x, char* y, int64_t count, const float* inverses) {
        job_.x = x + offset_bytes_;
        job_.y = y + offset_bytes_;
        job_.heads = count;
        job_.inverses = inverses;
        rotate_(job_);
    }

private:
    const RmsNormRopeKernels& kernels_;
    const RowFormat& format_;
    const rotation::Heads& heads_;
    const int64_t heads_per_block_;
    void (*rotate_)(const NormRopeJob&);
    const int64_t offset_bytes_;
    NormRopeJob job_;
};

}  // namespace normalized_heads
}  // namespace npu_rope
