// rms_norm_rope on the CPU. Each head is normalized, scaled and rotated while it is in the L1 cache. All heads of a
// token share its tables of cos and sin. Formulas and errors: rms_norm.cpp, rope_kernels.cpp.
//
// - float16 and bfloat16: x * inverse * scale and the rotation are float32, and the result is rounded once.
// - float32: the same kernels. Only products and sums are rounded, so the result has the same bits as rms_norm followed
//   by rope_qk.
// - float64, and 16-bit types with intermediate_rounding: rms_norm's kernel writes a block of heads into the L1 cache,
//   and rope's kernel rotates them from there into the output. The result has the same bits as rms_norm followed by
//   rope_qk. The stash type is float64 for float64 without intermediate_rounding, otherwise float32.
#include "csrc/cpu/rms_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "csrc/cpu/normalized_heads.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rope_table.h"

namespace npu_rope {
namespace {

// Heads of a block that is normalized before it is rotated. The sums of squares of all of them are computed before the
// first root, so that the roots do not delay the sums. Eight heads of 128 floats are 4 KiB, an eighth of an L1 cache of
// 32 KiB.
constexpr int64_t kHeadsPerBlock = 8;
static_assert(kHeadsPerBlock % RmsNormRopeKernels::kRootPadding == 0, "invert_roots() pads the arrays of a block");

// The data of a checked call for its norm and for its tables: a TableSource of rotation.h.
struct NormAndTables : rope_table::ComputedTableSource {
    explicit NormAndTables(const RowFormat& rows) : format(rows), normalizer(format), double_row(format) {}
    NormAndTables(const NormAndTables&) = delete;

    const RowFormat format;
    const RowNormalizer normalizer;
    const RmsNormRopeKernels& kernels = active_rms_norm_rope_kernels();
    const DoubleRow double_row;           // for the rows that float32 cannot normalize
    const char* scale[2] = {};            // of q and of k
    std::vector<float> ordered_scale[2];  // the same for normalized_heads::Pass; empty: heads are computed by blocks
};

using Job = rotation::Job<NormAndTables>;
using rotation::Heads;

// Prefetches a head of the next block. After a token's last head, this is a head of the next token in most layouts.
void prefetch_head(const char* x, int64_t bytes) {
    constexpr int64_t kCacheLineBytes = 64;
    for (int64_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(x + at);
}

// Stores the normalized heads of a block, then rotates them. `block` has memory for kHeadsPerBlock heads.
void normalize_then_rotate_blocks(const Job& job, rope_table::ComputedTokenTable& table, char* block, int side,
                                  const Heads& heads, bool stream) {
    const NormAndTables& source = job.source;
    const RowFormat& format = source.format;
    const int64_t D = format.n, step = heads.x_stride * job.item_bytes;
    for (int64_t first = 0; first < heads.count; first += kHeadsPerBlock) {
        const int64_t count = std::min(kHeadsPerBlock, heads.count - first);
        const char* x = heads.x + first * step;
        const bool in_floats = computes_in_floats(format);
        double sums[kHeadsPerBlock];
        float inverses[kHeadsPerBlock];
        if (in_floats) sum_squares_in_floats(format, x, count, step, sums);
        const bool all_fit =
            in_floats && normalized_heads::invert_roots(source.kernels, sums, count, D, format.epsilon, inverses);
        for (int64_t h = 0; h < count; ++h) {
            const char* head = x + h * step;
            char* y = block + h * D * job.item_bytes;
            prefetch_head(head + kHeadsPerBlock * step, D * job.item_bytes);
            const RowNormalizer::Prefetch none{x, x};  // without effect: x is in the caches
            if (all_fit)
                source.normalizer.write_by_inverse(head, inverses[h], {source.scale[side]}, y, StoreMode::kPlain, none);
            else
                source.normalizer.write(head, in_floats ? sums[h] / static_cast<double>(D) + format.epsilon : 0,
                                        {source.scale[side]}, y, StoreMode::kPlain, none);
        }
        const Heads normalized{block, heads.y + first * heads.y_stride * job.item_bytes, count, D, heads.y_stride};
        rotation::rotate_heads(job.kernels, job.call, job.call.dtype, table, normalized, /*in_place=*/false, stream);
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

// Normalizes and rotates each head in one pass. `block` is for heads that need another.
void normalize_and_rotate_heads(const Job& job, rope_table::ComputedTokenTable& table, char* block, int side,
                                const Heads& heads, bool stream) {
    const NormAndTables& source = job.source;
    const int32_t dtype = job.call.dtype;
    normalized_heads::Pass pass(source.kernels, source.format, job.call, source.ordered_scale[side].data(),
                                table.in_order_of(dtype), heads, stream);
    pass.run([&](const char* x, char* y) {
        if (dtype == NPU_ROPE_FLOAT32)
            return normalize_then_rotate_blocks(job, table, block, side, {x, y, 1, heads.x_stride, heads.y_stride},
                                                stream);
        const float inverse = rescale(source.format, source.double_row, x, block);
        pass.rotate(block, y, 1, &inverse);
    });
}

}  // namespace

namespace rotation {

template <>
struct RotateHeads<NormAndTables> {
    static int64_t block_bytes(const Job<NormAndTables>& job) {
        return kHeadsPerBlock * job.call.shape.D * job.item_bytes;
    }
    static void run(const Job<NormAndTables>& job, rope_table::ComputedTokenTable& table, char* block, int side,
                    const Heads& heads, bool /*in_place*/, bool stream) {
        job.source.ordered_scale[side].empty() ? normalize_then_rotate_blocks(job, table, block, side, heads, stream)
                                               : normalize_and_rotate_heads(job, table, block, side, heads, stream);
    }
};

}  // namespace rotation

Check run_rms_norm_rope_cpu(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                            bool intermediate_rounding, int32_t angle_policy) {
    RotationCall call;
    if (Check c = check_rms_norm_rope(t, params, epsilon, angle_policy, &call.shape); !c.ok()) return c;
    const int32_t dtype = t.rope.x[0]->dtype;
    const bool is_float64 = dtype == NPU_ROPE_FLOAT64;
    const int32_t stash = is_float64 && !intermediate_rounding ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;
    const double epsilon_f32 = static_cast<double>(static_cast<float>(epsilon));  // epsilon is a float32 attribute
    NormAndTables source(row_format(call.shape.D, dtype, dtype, stash, epsilon_f32));
    if (Check c = rope_table::fill_call(t.rope, *params, /*forward=*/1, angle_policy, &source, &call); !c.ok())
        return c;
    const bool in_one_pass = dtype == NPU_ROPE_FLOAT32 || (!is_float64 && !intermediate_rounding);
    // RmsNormRopeKernels of the same instruction set read the tables of these kernels.
    const RopeKernels& kernels = active_rope_kernels();
    for (int side = 0; side < 2; ++side) {
        source.scale[side] = static_cast<const char*>(t.scale[side]->data);
        if (!in_one_pass) continue;
        std::vector<float> scale = widened<float>(*t.scale[side], source.format.kernels);
        source.ordered_scale[side] = normalized_heads::ordered_scale(std::move(scale), call, kernels);
    }
    rotate_all(source, call, kernels);
    return {};
}

}  // namespace npu_rope
