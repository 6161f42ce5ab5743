// rms_norm_rope on the CPU: a token's heads are normalized, scaled and rotated while they are in the cache, by one
// table for all heads. Formulas and errors: rms_norm.cpp, rope_table.h.
//
// float16 and bfloat16 stay float32 from the square to the single rounding at the end. With intermediate_rounding, and
// for float32 and float64, whose steps all round to their own type, rms_norm's kernel writes a few heads into the
// first cache and rope's kernel rotates them from there. The result therefore has the bits of the two operators.
#include "csrc/cpu/rms_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "csrc/cpu/rms_norm_rope_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rope_table.h"

namespace npu_rope {
namespace {

// Number of heads that are summed and normalized before they are rotated, so that no sum waits for another's root. With
// 128 floats each, they take an eighth of a first cache.
constexpr int64_t kHeadsPerBlock = 8;

// Parameters and kernels that normalize and rotate the heads of a checked call.
struct Normalized : rope_table::Angles {
    Normalized(const NormRow& row, bool one_rounding)
        : rms(row), normalizer(rms), wide(rms), one_rounding(one_rounding), kernels(active_rms_norm_rope_kernels()) {}
    Normalized(const Normalized&) = delete;

    const NormRow rms;
    const RowNormalizer normalizer;
    const WideRow wide;
    const bool one_rounding;  // all of it in float32
    const RmsNormRopeKernels& kernels;
    const char* scale[2] = {};  // of each side
};

using Job = rotation::Job<Normalized>;
using rotation::Heads;

// Buffer for contiguous heads, kept between calls.
char* block_of_heads(int64_t bytes) {
    thread_local std::vector<double> kept;  // aligned for any type
    const size_t count = static_cast<size_t>(bytes) / sizeof(double) + 1;
    if (kept.size() < count) kept.resize(count);
    return reinterpret_cast<char*>(kept.data());
}

// Prefetches a head of the next block, which need not exist. In most layouts the next token's first heads follow a
// token's last ones.
void fetch(const char* x, int64_t bytes) {
    constexpr int64_t kLine = 64;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(x + at);
}

void turn_by_blocks(const Job& job, const rope_table::TokenTable& table, int side, const Heads& heads, bool stream) {
    const Normalized& n = job.tables;
    const int64_t D = n.rms.n, step = heads.x_stride * job.item_bytes;
    char* block = block_of_heads(kHeadsPerBlock * D * job.item_bytes);
    for (int64_t first = 0; first < heads.count; first += kHeadsPerBlock) {
        const int64_t count = std::min(kHeadsPerBlock, heads.count - first);
        const char* x = heads.x + first * step;
        double mean[kHeadsPerBlock];
        for (int64_t h = 0; h < count; ++h) mean[h] = n.normalizer.mean_square(x + h * step);
        for (int64_t h = 0; h < count; ++h) {
            fetch(x + (h + kHeadsPerBlock) * step, D * job.item_bytes);
            n.normalizer.write(x + h * step, mean[h], n.scale[side], block + h * D * job.item_bytes, Storing::kPlain,
                               {x, x});
        }
        const Heads made{block, heads.y + first * heads.y_stride * job.item_bytes, count, D, heads.y_stride};
        rotation::rotate_heads(job, table, made, false, stream);
    }
}

// Multiplies a row of 16-bit numbers, whose squares float32 cannot hold, by a power of two. The product is exact except
// for numbers too small to change any result beside the largest. Returns the inverse of its root mean square.
float rescale(const NormRow& row, const WideRow& wide, const char* x, char* to) {
    double values[kSumBlock], peak = 0;
    for_each_block(row.n, [&](int64_t at, int64_t count) {
        row.kernels.widen[row.x_dtype](x + at * row.x_bytes, values, count);
        for (int64_t i = 0; i < count; ++i) peak = std::max(peak, std::fabs(values[i]));
    });
    const double power = peak > 0 && std::isfinite(peak) ? std::ldexp(1.0, kPeak - std::ilogb(peak)) : 1;
    for_each_block(row.n, [&](int64_t at, int64_t count) {
        wide.read(x, power, at, count, values);
        row.kernels.narrow[row.x_dtype](values, to + at * row.x_bytes, count);
    });
    return static_cast<float>(wide.scale_of(x).inverse / power);
}

void turn_in_floats(const Job& job, const rope_table::TokenTable& table, int side, const Heads& heads, bool stream) {
    const Normalized& n = job.tables;
    const Rotation& c = job.call;
    const int64_t item = job.item_bytes, offset = c.offset * item;
    char* rescaled = block_of_heads(n.rms.n * item);
    NormalizedHead head;
    head.scale = n.scale[side] + offset;
    head.before = c.offset;
    head.after = n.rms.n - c.offset - 2 * c.pairs;
    head.pairs = static_cast<int>(c.pairs);
    head.cos_table = static_cast<const float*>(table.cos_table());
    head.sin_table = static_cast<const float*>(table.sin_table());
    head.stream = stream;
    const auto turn = n.kernels.turn[c.pairing][c.dtype];
    for (int64_t first = 0; first < heads.count; first += kHeadsPerBlock) {
        const int64_t end = std::min(first + kHeadsPerBlock, heads.count);
        double mean[kHeadsPerBlock];
        auto x_of = [&](int64_t h) { return heads.x + h * heads.x_stride * item; };
        for (int64_t h = first; h < end; ++h) mean[h - first] = mean_square_in_floats(n.rms, x_of(h));
        for (int64_t h = first; h < end; ++h) {
            fetch(x_of(h + kHeadsPerBlock), n.rms.n * item);
            const bool fits = fits_floats(mean[h - first]);
            head.inverse =
                fits ? static_cast<float>(1 / std::sqrt(mean[h - first])) : rescale(n.rms, n.wide, x_of(h), rescaled);
            head.x = (fits ? x_of(h) : rescaled) + offset;
            head.y = heads.y + h * heads.y_stride * item + offset;
            turn(head);
        }
    }
}

}  // namespace

namespace rotation {

template <>
struct Turn<Normalized> {
    static void run(const Job<Normalized>& job, const rope_table::TokenTable& table, int side, const Heads& heads, bool,
                    bool stream) {
        job.tables.one_rounding ? turn_in_floats(job, table, side, heads, stream)
                                : turn_by_blocks(job, table, side, heads, stream);
    }
};

}  // namespace rotation

Check run_rms_norm_rope_cpu(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                            bool intermediate_rounding, int32_t angle) {
    Rotation call;
    if (Check c = check_rms_norm_rope(t, params, epsilon, angle, &call.shape); !c.ok()) return c;
    const int32_t dtype = t.rope.x[0]->dtype;
    const bool wide = dtype == NPU_ROPE_FLOAT64, narrow = dtype != NPU_ROPE_FLOAT64 && dtype != NPU_ROPE_FLOAT32;
    const int32_t stash = wide && !intermediate_rounding ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;
    const double kept = static_cast<double>(static_cast<float>(epsilon));
    Normalized made_of(norm_row(call.shape.D, dtype, dtype, stash, kept), narrow && !intermediate_rounding);
    for (int side = 0; side < 2; ++side) made_of.scale[side] = static_cast<const char*>(t.scale[side]->data);
    if (Check c = rope_table::describe(t.rope, *params, 1, angle, &made_of, &call); !c.ok()) return c;
    rotate_all(made_of, call);
    return {};
}

}  // namespace npu_rope
