// aclnnRotaryPositionEmbedding and its gradient: y = x * cos + rotate(x) * sin, in float32 and rounded once
// (hicann/ops-transformer posembedding/rotary_position_embedding/op_kernel).
#include <initializer_list>
#include <utility>

#include "cann/opapi/rotation.h"

namespace simulated_cann {
namespace {

constexpr int64_t kHalfMode = 0, kInterleaveMode = 1;  // the modes of Ascend910B and Ascend910_93
constexpr int64_t kHeadSizeEnd = 896;                  // the document has D < 896
// The documents require less than this for the batch and for the heads in mode half, and for batch * heads in mode
// interleave.
constexpr int64_t kBatchOrHeadsEnd = 1000;
constexpr int64_t kMostGradientHeads = 1024;  // limit of batch * heads if the gradients of cos and sin are computed

// The dimensions of x that are the batch, the sequence and the heads.
struct Layout {
    size_t batch, sequence, heads;
};
constexpr Layout kLayouts[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}};  // BSND, BNSD, SBND

// Whether the document lists the shape of the tables for this layout of x, and x is within its limits.
bool fits_layout(const Layout& layout, int64_t mode, const std::vector<int64_t>& x, const std::vector<int64_t>& table) {
    const int64_t batch = x[layout.batch], heads = x[layout.heads];
    if (table[layout.sequence] != x[layout.sequence]) return false;
    if (mode == kInterleaveMode)
        return table[layout.batch] == 1 && table[layout.heads] == 1 && batch * heads < kBatchOrHeadsEnd;
    if (batch >= kBatchOrHeadsEnd || heads >= kBatchOrHeadsEnd) return false;
    if (table[layout.heads] == 1) return table[layout.batch] == 1 || table[layout.batch] == batch;
    return table[layout.heads] == heads && table[layout.batch] == batch;
}

// Both tilings require 4 dimensions.
void require_ranks(FirstPhase* call, std::initializer_list<std::pair<const char*, const Operand*>> operands) {
    for (const auto& [name, operand] : operands)
        call->require_inner(kAclnnTilingError, operand->shape.size() == 4, name, "have 4 dimensions",
                            std::to_string(operand->shape.size()));
}

// Checks mode, cos and sin by the rules of the documents and of the tilings that both functions share.
void require_tables(FirstPhase* call, const char* x_name, const Operand& x, const Operand& cos, const Operand& sin,
                    int64_t mode) {
    call->require_inner(kAclnnTilingError, mode == kHalfMode || mode == kInterleaveMode, "mode", "be 0 or 1",
                        std::to_string(mode));
    call->require_inner(kAclnnTilingError, cos.shape == sin.shape, "sin",
                        "have the shape " + shape_text(cos.shape) + " of cos", shape_text(sin.shape));
    if (!call->is_valid()) return;
    const int64_t head_size = x.shape.back();
    call->require_inner(kAclnnTilingError, head_size > 0 && head_size < kHeadSizeEnd && head_size % 2 == 0,
                        std::string("the last dimension of ") + x_name, "be even and less than 896",
                        std::to_string(head_size));
    bool fits = cos.shape.back() == head_size, fits_any_layout = false;
    for (const Layout& layout : kLayouts)
        fits_any_layout = fits_any_layout || fits_layout(layout, mode, x.shape, cos.shape);
    fits = fits && fits_any_layout;
    call->require_inner(kAclnnTilingError, fits, "cos",
                        "have a documented shape for the shape " + shape_text(x.shape) + " of " + x_name + " in mode " +
                            std::to_string(mode),
                        shape_text(cos.shape));
}

// The tiling of mode half refuses BNSD where other operators are faster: rope_rotate_half_tiling.cpp,
// CheckBnsdBlockSkip. This function assumes BNSD if x and cos differ in the first and in the second dimension.
bool is_slow_bnsd(const Operand& x, const Operand& cos) {
    const bool is_one_row = cos.shape[0] == 1 && cos.shape[1] == 1 && cos.shape[2] == 1;
    if (is_one_row || x.shape[0] == cos.shape[0] || x.shape[1] == cos.shape[1]) return false;
    const int64_t broadcast = x.shape[0] * x.shape[1], tokens = x.shape[2], head_size = x.shape[3];
    const bool is_aligned = head_size / 2 * dtype_bytes(x.dtype) % 32 == 0;
    if (is_aligned) return broadcast > 8 * tokens;
    const int64_t cores = soc_kernel_cores(), tokens_per_core = (tokens + cores - 1) / cores;
    return 2 * broadcast > tokens_per_core && head_size < 80;
}

// hicann/ops-transformer posembedding/rotary_position_embedding/docs/aclnnRotaryPositionEmbedding.md and
// op_host/rope_rotate_half_tiling.cpp, rope_interleaved_tiling.cpp. An empty x has no limits.
aclError prepare_rotary(const aclTensor* x_tensor, const aclTensor* cos_tensor, const aclTensor* sin_tensor,
                        int64_t mode, const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnRotaryPositionEmbedding");
    call.refuse_310p();
    const Operand x = call.input("x", x_tensor, kRopeTypes, kAnyRank);
    const Operand cos = call.input("cos", cos_tensor, kRopeTypes, kAnyRank);
    const Operand sin = call.input("sin", sin_tensor, kRopeTypes, kAnyRank);
    const Operand out = call.output("out", out_tensor, kRopeTypes, kAnyRank);
    call.require_dtype("cos", cos, x.dtype);
    call.require_dtype("sin", sin, x.dtype);
    call.require_dtype("out", out, x.dtype);
    call.require_contiguous("out", out);
    const bool is_empty = x.count() == 0;
    if (!is_empty) require_ranks(&call, {{"x", &x}, {"cos", &cos}, {"sin", &sin}});
    call.require_inner(kAclnnTilingError, out.shape == x.shape, "out", "have the shape " + shape_text(x.shape),
                       shape_text(out.shape));
    if (!is_empty) require_tables(&call, "x", x, cos, sin, mode);
    if (call.is_valid() && !is_empty && mode == kHalfMode)
        call.require_inner(kAclnnTilingError, !is_slow_bnsd(x, cos), "x",
                           "have a smaller batch * heads or a longer sequence in layout BNSD", shape_text(x.shape));
    const Pairing pairing = mode == kInterleaveMode ? Pairing::kNeighbours : Pairing::kHalves;
    auto body = [=] {
        if (is_empty) return;
        const std::vector<int64_t> rows = table_rows(x.shape, cos.shape);
        set_values(out, rotated(pairing, values_of<float>(x), rows, values_of<float>(cos), values_of<float>(sin),
                                x.shape.back())
                            .sum());
    };
    return call.finish(body, bytes, executor);
}

struct RotaryGradient {
    Operand dy, cos, sin, dx, dcos, dsin;
    std::optional<Operand> x;
    Pairing pairing = Pairing::kHalves;
};

void write_gradients(const RotaryGradient& in) {
    const int64_t size = in.dy.shape.back();
    const std::vector<float> dy = values_of<float>(in.dy), cos = values_of<float>(in.cos),
                             sin = values_of<float>(in.sin);
    const std::vector<float> x = in.x ? values_of<float>(*in.x) : std::vector<float>();
    const std::vector<int64_t> rows = table_rows(in.dy.shape, in.cos.shape);
    std::vector<float> dx(dy.size()), dcos(cos.size()), dsin(sin.size());
    for (size_t row = 0; row < rows.size(); ++row) {
        const size_t first = row * static_cast<size_t>(size), table = static_cast<size_t>(rows[row] * size);
        const float *dy_row = &dy[first], *cos_row = &cos[table], *sin_row = &sin[table];
        for (int64_t i = 0; i < size / 2; ++i) {
            const auto [a, b] = rotated_pair(in.pairing, i, size);
            dx[first + static_cast<size_t>(a)] = cos_row[a] * dy_row[a] + sin_row[b] * dy_row[b];
            dx[first + static_cast<size_t>(b)] = cos_row[b] * dy_row[b] - sin_row[a] * dy_row[a];
            if (!in.x) continue;
            const float* x_row = &x[first];
            float *dcos_row = &dcos[table], *dsin_row = &dsin[table];
            dcos_row[a] += dy_row[a] * x_row[a];
            dcos_row[b] += dy_row[b] * x_row[b];
            dsin_row[a] -= dy_row[a] * x_row[b];
            dsin_row[b] += dy_row[b] * x_row[a];
        }
    }
    set_values(in.dx, dx);
    if (!in.x) return;
    set_values(in.dcos, dcos);
    set_values(in.dsin, dsin);
}

// Whether the tiling of mode half recognizes the layout of these shapes (rope_half_grad_tiling.cpp,
// RopeHalfGradSelectLayout). The tiling recognizes B1SD only if the batch is smaller than the sequence.
bool has_gradient_layout(const std::vector<int64_t>& x, const std::vector<int64_t>& table) {
    const bool same_first = x[0] == table[0], same_second = x[1] == table[1], same_third = x[2] == table[2];
    if (same_first && same_second && same_third) return true;
    if (same_second && table[2] == 1 && ((x[0] != 1 && table[0] == 1) || same_first)) return true;
    if (table[1] == 1 && same_third && ((x[0] != 1 && table[0] == 1) || (same_first && x[0] < x[2]))) return true;
    return same_first && x[1] != 1 && table[1] == 1 && table[2] == 1;
}

// hicann/ops-transformer posembedding/rotary_position_embedding_grad/docs/aclnnRotaryPositionEmbeddingGrad.md and
// op_host/rope_half_grad_tiling.cpp. Without x, the gradients of cos and sin are not written. The tiling does not run
// if all outputs are empty (hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp,
// NnopbaseExecutorMatchCache).
aclError prepare_rotary_gradient(const aclTensor* dy_tensor, const aclTensor* cos_tensor, const aclTensor* sin_tensor,
                                 const aclTensor* x_tensor, int64_t mode, const aclTensor* dx_tensor,
                                 const aclTensor* dcos_tensor, const aclTensor* dsin_tensor, uint64_t* bytes,
                                 aclOpExecutor** executor) {
    FirstPhase call("aclnnRotaryPositionEmbeddingGrad");
    call.refuse_310p();
    RotaryGradient in;
    in.dy = call.input("dy", dy_tensor, kRopeTypes, kAnyRank);
    in.cos = call.input("cos", cos_tensor, kRopeTypes, kAnyRank);
    in.sin = call.input("sin", sin_tensor, kRopeTypes, kAnyRank);
    in.x = call.optional_input("x", x_tensor, kRopeTypes, kAnyRank);
    in.dx = call.output("dx_out", dx_tensor, kRopeTypes, kAnyRank);
    in.dcos = call.output("dcos_out", dcos_tensor, kRopeTypes, kAnyRank);
    in.dsin = call.output("dsin_out", dsin_tensor, kRopeTypes, kAnyRank);
    call.require_dtype("cos", in.cos, in.dy.dtype);
    call.require_dtype("sin", in.sin, in.dy.dtype);
    if (in.x) call.require_dtype("x", *in.x, in.dy.dtype);
    const struct {
        const char* name;
        const Operand &out, &like;
    } outputs[] = {{"dx_out", in.dx, in.dy}, {"dcos_out", in.dcos, in.cos}, {"dsin_out", in.dsin, in.sin}};
    bool all_are_empty = true;
    for (const auto& [name, out, like] : outputs) {
        call.require_dtype(name, out, in.dy.dtype);
        call.require_contiguous(name, out);
        all_are_empty = all_are_empty && out.count() == 0;
    }
    if (call.is_valid() && all_are_empty) return call.finish([] {}, bytes, executor);
    require_ranks(&call, {{"dy", &in.dy}, {"cos", &in.cos}, {"sin", &in.sin}});
    for (const auto& [name, out, like] : outputs)
        call.require_inner(kAclnnTilingError, out.shape == like.shape, name, "have the shape " + shape_text(like.shape),
                           shape_text(out.shape));
    if (in.x)
        call.require_inner(kAclnnTilingError, in.x->shape == in.dy.shape, "x",
                           "have the shape " + shape_text(in.dy.shape), shape_text(in.x->shape));
    call.require_inner(kAclnnTilingError, in.dy.count() > 0, "dy", "have elements", shape_text(in.dy.shape));
    require_tables(&call, "dy", in.dy, in.cos, in.sin, mode);
    if (call.is_valid() && mode == kHalfMode) {
        call.require_inner(kAclnnTilingError, has_gradient_layout(in.dy.shape, in.cos.shape), "cos",
                           "have a shape that the tiling knows for the shape " + shape_text(in.dy.shape),
                           shape_text(in.cos.shape));
        // The document limits batch * heads. If several layouts fit, the smallest product counts.
        int64_t heads = INT64_MAX;
        for (const Layout& layout : kLayouts)
            if (fits_layout(layout, mode, in.dy.shape, in.cos.shape))
                heads = std::min(heads, in.dy.shape[layout.batch] * in.dy.shape[layout.heads]);
        call.require_inner(kAclnnTilingError, !in.x || heads <= kMostGradientHeads, "batch * heads",
                           "be at most 1024 for the gradients of cos and sin", std::to_string(heads));
    }
    in.pairing = mode == kInterleaveMode ? Pairing::kNeighbours : Pairing::kHalves;
    return call.finish([in] { write_gradients(in); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos,
                                                                   const aclTensor* sin, int64_t mode, aclTensor* out,
                                                                   uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_rotary(x, cos, sin, mode, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRotaryPositionEmbedding)

NPU_CANN_API aclError aclnnRotaryPositionEmbeddingGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* cos,
                                                                       const aclTensor* sin, const aclTensor* x,
                                                                       int64_t mode, const aclTensor* dx,
                                                                       const aclTensor* dcos, const aclTensor* dsin,
                                                                       uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_rotary_gradient(dy, cos, sin, x, mode, dx, dcos, dsin, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRotaryPositionEmbeddingGrad)
