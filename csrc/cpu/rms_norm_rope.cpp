// rms_norm_rope on the CPU. Each head is normalized, scaled and rotated while it is in the L1 cache. All heads of a
// token share its tables of cos and sin. Formulas and errors: rms_norm.cpp, rope_kernels.cpp.
//
// - float16 and bfloat16: x * inverse * scale and the rotation are float32, and the result is rounded once.
// - float32, float64 and calls with intermediate_rounding: rms_norm's kernel writes a block of heads into the L1 cache,
//   and rope's kernel rotates them from there into the output. The result has the same bits as rms_norm followed by
//   rope_qk. The stash type is float64 for float64 without intermediate_rounding, otherwise float32.
#include "csrc/cpu/rms_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "csrc/cpu/rms_norm_rope_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rope_table.h"

namespace npu_rope {
namespace {

// Heads of a block. The mean squares of all of them are computed before the first square root, so that the roots do not
// delay the sums. Eight heads of 128 floats are 4 KiB, an eighth of an L1 cache of 32 KiB.
constexpr int64_t kHeadsPerBlock = 8;

// The data of a checked call for its norm and for its tables: a TableSource of rotation.h.
struct NormAndTables : rope_table::ComputedTableSource {
    NormAndTables(const RowFormat& rows, bool rounds_once)
        : format(rows),
          normalizer(format),
          double_row(format),
          rounds_once(rounds_once),
          kernels(active_rms_norm_rope_kernels()) {}
    NormAndTables(const NormAndTables&) = delete;

    const RowFormat format;
    const RowNormalizer normalizer;
    const DoubleRow double_row;  // for the rows that float32 cannot normalize
    const bool rounds_once;      // the normalized head is not rounded before its rotation
    const RmsNormRopeKernels& kernels;
    const char* scale[2] = {};  // of q and of k
};

using Job = rotation::Job<NormAndTables>;
using rotation::Heads;

// Buffer for contiguous heads, kept between calls.
char* block_of_heads(int64_t bytes) {
    thread_local std::vector<double> buffer;  // aligned for any type
    const size_t count = static_cast<size_t>(bytes) / sizeof(double) + 1;
    if (buffer.size() < count) buffer.resize(count);
    return reinterpret_cast<char*>(buffer.data());
}

// Prefetches a head of the next block. After a token's last head, this is a head of the next token in most layouts.
void prefetch_head(const char* x, int64_t bytes) {
    constexpr int64_t kCacheLineBytes = 64;
    for (int64_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(x + at);
}

// Stores the normalized heads of a block, then rotates them.
void normalize_then_rotate_blocks(const Job& job, const rope_table::ComputedTokenTable& table, int side,
                                  const Heads& heads, bool stream) {
    const NormAndTables& source = job.source;
    const int64_t D = source.format.n, step = heads.x_stride * job.item_bytes;
    char* block = block_of_heads(kHeadsPerBlock * D * job.item_bytes);
    for (int64_t first = 0; first < heads.count; first += kHeadsPerBlock) {
        const int64_t count = std::min(kHeadsPerBlock, heads.count - first);
        const char* x = heads.x + first * step;
        double mean_squares_plus_epsilon[kHeadsPerBlock];
        for (int64_t h = 0; h < count; ++h)
            mean_squares_plus_epsilon[h] = source.normalizer.mean_square_plus_epsilon(x + h * step);
        for (int64_t h = 0; h < count; ++h) {
            prefetch_head(x + (h + kHeadsPerBlock) * step, D * job.item_bytes);
            source.normalizer.write(x + h * step, mean_squares_plus_epsilon[h], source.scale[side],
                                    block + h * D * job.item_bytes, StoreMode::kPlain,
                                    /*prefetch, without effect: x is in the caches*/ {x, x});
        }
        const Heads normalized{block, heads.y + first * heads.y_stride * job.item_bytes, count, D, heads.y_stride};
        rotation::rotate_heads(job, table, normalized, /*in_place=*/false, stream);
    }
}

// Handles a row that fails fits_floats(): bfloat16 numbers with very small or very large squares, zeros with an epsilon
// below 2^-100, infinity or NaN. Writes x times a power of two to `product` and returns the inverse root mean square of
// the product. The product is exact, except for elements whose normalized values are subnormal.
float rescale(const RowFormat& format, const DoubleRow& double_row, const char* x, char* product) {
    double values[kSumBlock], peak = 0;
    for_each_block(format.n, [&](int64_t at, int64_t count) {
        format.kernels.widen[format.x_dtype](x + at * format.x_bytes, values, count);
        for (int64_t i = 0; i < count; ++i) peak = std::max(peak, std::fabs(values[i]));
    });
    const double power = peak > 0 && std::isfinite(peak) ? std::ldexp(1.0, kPeakExponent - std::ilogb(peak)) : 1;
    for_each_block(format.n, [&](int64_t at, int64_t count) {
        double_row.read(x, power, at, count, values);
        format.kernels.narrow[format.x_dtype](values, product + at * format.x_bytes, count);
    });
    return static_cast<float>(double_row.factors_of(x).inverse / power);
}

// Normalizes and rotates each head in one kernel, which rounds once.
void normalize_and_rotate_heads(const Job& job, const rope_table::ComputedTokenTable& table, int side,
                                const Heads& heads, bool stream) {
    const NormAndTables& source = job.source;
    const RotationCall& call = job.call;
    const int64_t item_bytes = job.item_bytes, offset = call.offset * item_bytes;
    char* rescaled = block_of_heads(source.format.n * item_bytes);
    NormRopeJob head;
    head.scale = source.scale[side] + offset;
    head.elements_before = call.offset;
    head.elements_after = source.format.n - call.offset - 2 * call.pairs;
    head.pairs = static_cast<int>(call.pairs);
    head.cos_table = static_cast<const float*>(table.cos_table());
    head.sin_table = static_cast<const float*>(table.sin_table());
    head.stream = stream;
    const auto rotate = source.kernels.rotate[call.pairing][call.dtype];
    for (int64_t first = 0; first < heads.count; first += kHeadsPerBlock) {
        const int64_t end = std::min(first + kHeadsPerBlock, heads.count);
        double mean_squares_plus_epsilon[kHeadsPerBlock];
        auto x_of = [&](int64_t h) { return heads.x + h * heads.x_stride * item_bytes; };
        for (int64_t h = first; h < end; ++h)
            mean_squares_plus_epsilon[h - first] = mean_square_plus_epsilon_in_floats(source.format, x_of(h));
        for (int64_t h = first; h < end; ++h) {
            prefetch_head(x_of(h + kHeadsPerBlock), source.format.n * item_bytes);
            const double mean_square_plus_epsilon = mean_squares_plus_epsilon[h - first];
            const bool fits = fits_floats(mean_square_plus_epsilon);
            head.inverse = fits ? static_cast<float>(1 / std::sqrt(mean_square_plus_epsilon))
                                : rescale(source.format, source.double_row, x_of(h), rescaled);
            head.x = (fits ? x_of(h) : rescaled) + offset;
            head.y = heads.y + h * heads.y_stride * item_bytes + offset;
            rotate(head);
        }
    }
}

}  // namespace

namespace rotation {

template <>
struct RotateHeads<NormAndTables> {
    static void run(const Job<NormAndTables>& job, const rope_table::ComputedTokenTable& table, int side,
                    const Heads& heads, bool /*in_place*/, bool stream) {
        job.source.rounds_once ? normalize_and_rotate_heads(job, table, side, heads, stream)
                               : normalize_then_rotate_blocks(job, table, side, heads, stream);
    }
};

}  // namespace rotation

Check run_rms_norm_rope_cpu(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                            bool intermediate_rounding, int32_t angle_policy) {
    RotationCall call;
    if (Check c = check_rms_norm_rope(t, params, epsilon, angle_policy, &call.shape); !c.ok()) return c;
    const int32_t dtype = t.rope.x[0]->dtype;
    const bool is_float64 = dtype == NPU_ROPE_FLOAT64, is_16_bits = !is_float64 && dtype != NPU_ROPE_FLOAT32;
    const int32_t stash = is_float64 && !intermediate_rounding ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;
    const double epsilon_f32 = static_cast<double>(static_cast<float>(epsilon));  // epsilon is a float32 attribute
    NormAndTables source(row_format(call.shape.D, dtype, dtype, stash, epsilon_f32),
                         is_16_bits && !intermediate_rounding);
    for (int side = 0; side < 2; ++side) source.scale[side] = static_cast<const char*>(t.scale[side]->data);
    if (Check c = rope_table::fill_call(t.rope, *params, /*forward=*/1, angle_policy, &source, &call); !c.ok())
        return c;
    rotate_all(source, call);
    return {};
}

}  // namespace npu_rope
