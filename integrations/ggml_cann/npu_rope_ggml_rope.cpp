// Converts ggml's rope nodes to calls of aclnnNpuRope, aclnnNpuRopeSetRows and aclnnNpuRmsNormRope.
//
// ggml's dimensions have the reverse order: ne = [D, N, S, B] is [B, S, N, D] here. Each token has one position; in
// modes with sections it has four, in four planes. Source of the places in op_params: ggml's rope (specs/, ggml.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "aclnn_npu_rms_norm_rope.h"
#include "aclnn_npu_rope.h"
#include "aclnn_npu_rope_set_rows.h"
#include "npu_rope_ggml_nodes.h"

namespace npu_rope_ggml {
namespace {

// Values of rope's mode.
enum Mode { kNormal = 0, kNeox = 2, kMrope = 8, kVision = 24, kImrope = 40 };

constexpr int64_t kMaxHeadSize = 1024;   // limit of the operator on an NPU
constexpr float kFrequencyLimit = 9e8f;  // the operator's limit is 1e9; this leaves room for rounding

// The parameters in ggml's op_params.
struct Params {
    int32_t n_dims, mode, n_ctx_orig, sections[4], n_offs;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;

    explicit Params(const ggml_tensor& node) {
        const int32_t* p = node.op_params;
        n_dims = p[1], mode = p[2], n_ctx_orig = p[4];
        float* const floats[] = {&freq_base, &freq_scale, &ext_factor, &attn_factor, &beta_fast, &beta_slow};
        for (int i = 0; i < 6; ++i) std::memcpy(floats[i], p + 5 + i, sizeof(float));
        for (int i = 0; i < 4; ++i) sections[i] = has_sections() ? p[11 + i] : 0;
        n_offs = p[15];
    }
    bool has_sections() const { return (mode & kMrope) != 0; }
    bool has_frequencies() const {
        return freq_base > 0 && freq_scale > 0 && std::isfinite(freq_base) && std::isfinite(freq_scale) &&
               std::isfinite(ext_factor) && std::isfinite(attn_factor) && max_frequency() < kFrequencyLimit;
    }
    // An upper bound of the radians per position of all pairs, without freq_factors.
    float max_frequency() const { return std::max(1.0f, freq_scale) * std::max(1.0f, 1 / freq_base); }
    bool has_yarn() const { return ext_factor != 0; }
    bool has_ramp() const {
        const bool has_limits =
            freq_base != 1 && beta_fast > 0 && beta_slow > 0 && std::isfinite(beta_fast) && std::isfinite(beta_slow);
        return has_limits && (n_ctx_orig > 0 || has_ramp_of_one_token());
    }
    // Whether ggml's YaRN ramp for a context of 0 tokens is that for 1 token: it ends at the first pair. In ggml.c,
    // ggml_rope_yarn_corr_dims gives the limits 0 and minus infinity for 0 tokens, and 0 and a number <= 0 for 1 token,
    // if 2 pi beta >= 1 and freq_base > 1.
    bool has_ramp_of_one_token() const {
        constexpr float kTwoPi = 6.2831853f;
        return freq_base > 1 && beta_fast * kTwoPi >= 1 && beta_slow * kTwoPi >= 1;
    }
    int32_t context() const { return has_yarn() && n_ctx_orig == 0 ? 1 : n_ctx_orig; }
    // Whether the sections name time, height or width, and fit a head of this size.
    bool has_valid_sections(int64_t head_size) const {
        int64_t sum = 0;
        for (int32_t section : sections) {
            if (section < 0) return false;
            sum += section;
        }
        return sections[0] + int64_t{sections[1]} + sections[2] > 0 && sum <= head_size;
    }
    bool is_known() const {
        return mode == kNormal || mode == kNeox || mode == kMrope || mode == kVision || mode == kImrope;
    }
};

// Checks the tensors of a rope node.
Reason check_tensors(const ggml_tensor& node, bool has_bfloat16) {
    const ggml_tensor *x = node.src[0], *positions = node.src[1];
    if (!x || !positions) return "the node has no x or no positions";
    if (x->type != node.type) return "x and the result have different types";
    if (x->type == kBfloat16 && !has_bfloat16) return "this chip has no bfloat16";
    if (x->type != kFloat32 && x->type != kFloat16 && x->type != kBfloat16) return "x is not a floating point tensor";
    if (positions->type != kInt32 || !is_dense(*positions) || !is_vector(*positions))
        return "positions are not a contiguous vector of 32-bit integers";
    if (!has_same_shape(*x, node)) return "x and the result have different shapes";
    if (!has_contiguous_rows(*x) || !has_contiguous_rows(node)) return "a head's elements are not contiguous";
    return nullptr;
}

// The attributes of an aclnn call, from n_dims to n_offs.
#define NPU_ROPE_GGML_ATTRIBUTES(p, sections, forward)                                                          \
    (p).n_dims, (p).mode, (p).context(), double{(p).freq_base}, double{(p).freq_scale}, double{(p).ext_factor}, \
        double{(p).attn_factor}, double{(p).beta_fast}, double{(p).beta_slow}, sections, forward, (p).n_offs

// Whether the result may be written while the sources of the rope node other than x are read.
bool is_apart_from_arguments(const ggml_tensor& result, const ggml_tensor& rope) {
    return !shares_memory(result, *rope.src[1]) && (!rope.src[2] || !shares_memory(result, *rope.src[2]));
}

}  // namespace

Reason check_rope(const ggml_tensor& node, bool has_bfloat16) {
    if (Reason reason = check_tensors(node, has_bfloat16)) return reason;
    const ggml_tensor &x = *node.src[0], &positions = *node.src[1], *factors = node.src[2];
    const Params p(node);
    if (!p.is_known()) return "the node's mode is not known";
    const int64_t planes = p.has_sections() ? 4 : 1;
    if (positions.ne[0] % planes != 0 || positions.ne[0] / planes != x.ne[2])
        return "the number of positions does not fit the tokens";
    const int64_t pairs = p.mode == kVision ? p.n_dims : p.n_dims / 2;
    if (p.n_dims <= 0 || p.n_dims % 2 || p.n_offs < 0 || p.n_offs % 2 || p.n_offs + 2 * pairs > x.ne[0])
        return "the dimensions to rotate are not pairs inside a head";
    if (x.ne[0] > kMaxHeadSize) return "a head has more than 1024 elements";
    if (p.n_ctx_orig < 0) return "n_ctx_orig is negative";
    if (!p.has_frequencies()) return "freq_base, freq_scale or a factor is not a number of the allowed range";
    if (p.has_yarn() && !p.has_ramp()) return "YaRN's ramp is not defined";
    if (p.has_sections() && !p.has_valid_sections(x.ne[0])) return "the sections name no axis or do not fit a head";
    if (p.mode == kVision && 2 * int64_t{p.n_dims} != x.ne[0]) return "in mode vision the whole head must rotate";
    if (factors && (factors->type != kFloat32 || !is_dense(*factors) || !is_vector(*factors) || factors->ne[0] < pairs))
        return "freq_factors do not have a contiguous float32 for each pair";
    return nullptr;
}

int launch_rope(const ggml_tensor& node, const npu_rope_ggml_target& target, Message why) {
    const Params p(node);
    Call call(target, why);
    const aclTensor* x = call.tensor(*node.src[0]);
    const aclTensor* positions = call.tensor(*node.src[1], 1);
    const aclTensor* factors = call.vector(node.src[2]);
    const aclTensor* out = call.tensor(node);
    const aclIntArray* sections = call.array({p.sections, p.sections + 4});
    const aclIntArray* strides = call.strides();
    if (!call.is_complete()) return NPU_ROPE_GGML_FAILED;
    const int status =
        aclnnNpuRopeGetWorkspaceSize(x, positions, factors, NPU_ROPE_GGML_ATTRIBUTES(p, sections, has_op(node, "ROPE")),
                                     strides, out, &call.workspace_bytes, &call.executor);
    return call.run("aclnnNpuRope", status, aclnnNpuRope);
}

Reason check_rope_set_rows(Nodes nodes, bool has_bfloat16) {
    const ggml_tensor &rope = *nodes[0], &view = *nodes[1], &cache = *nodes[2];
    if (Reason reason = check_rope(rope, has_bfloat16)) return reason;
    const ggml_tensor *x = rope.src[0], *rows = cache.src[1];
    if (view.src[0] != &rope || cache.src[0] != &view) return "the nodes are not connected as the form requires";
    const int64_t width = rope.ne[0] * rope.ne[1], tokens = rope.ne[2] * rope.ne[3];
    const bool joins_heads = view.ne[0] == width && view.ne[1] == tokens && view.ne[2] == 1 && view.ne[3] == 1;
    if (!joins_heads || view.data != rope.data || !is_dense(rope) || !is_dense(view))
        return "the view does not join the heads of each token";
    if (rows->type != kInt64 || !is_dense(*rows) || !is_vector(*rows) || rows->ne[0] != tokens)
        return "the rows' indices are not contiguous 64-bit integers, one for each token";
    const bool narrows = x->type == kFloat32 && (cache.type == kFloat16 || (cache.type == kBfloat16 && has_bfloat16));
    if (cache.type != x->type && !narrows)
        return "the cache does not have x's type (or a narrower type if x is float32)";
    if (cache.ne[0] != width || cache.ne[2] != 1 || cache.ne[3] != 1 || !has_contiguous_rows(cache))
        return "the cache is not a matrix whose rows are contiguous";
    if (shares_memory(cache, *x) || shares_memory(cache, *rows) || !is_apart_from_arguments(cache, rope))
        return "a result shares memory with a source";
    return nullptr;
}

int launch_rope_set_rows(Nodes nodes, const npu_rope_ggml_target& target, Message why) {
    const ggml_tensor &rope = *nodes[0], &cache = *nodes[2], &rows = *cache.src[1];
    const int64_t D = rope.ne[0], N = rope.ne[1], S = rope.ne[2], B = rope.ne[3];
    const Params p(rope);
    Call call(target, why);
    const aclTensor* x = call.tensor(*rope.src[0]);
    const aclTensor* positions = call.tensor(*rope.src[1], 1);
    const aclTensor* row_of_token = call.tensor(rows.type, rows.data, {B, S}, {S, 1});
    const aclTensor* factors = call.vector(rope.src[2]);
    const auto pitch = static_cast<int64_t>(cache.nb[1] / cache.nb[0]);
    aclTensor* cache_rows = call.tensor(cache.type, cache.data, {cache.ne[1], N, D}, {pitch, D, 1});
    const aclIntArray* sections = call.array({p.sections, p.sections + 4});
    const aclIntArray* strides = call.strides();
    if (!call.is_complete()) return NPU_ROPE_GGML_FAILED;
    const int status = aclnnNpuRopeSetRowsGetWorkspaceSize(x, positions, row_of_token, factors, cache_rows,
                                                           NPU_ROPE_GGML_ATTRIBUTES(p, sections, true), strides,
                                                           &call.workspace_bytes, &call.executor);
    return call.run("aclnnNpuRopeSetRows", status, aclnnNpuRopeSetRows);
}

Reason check_rms_norm_mul_rope(Nodes nodes, bool has_bfloat16) {
    const ggml_tensor &norm = *nodes[0], &mul = *nodes[1], &rope = *nodes[2];
    if (Reason reason = check_rms_norm(norm)) return reason;
    if (Reason reason = check_rope(rope, has_bfloat16)) return reason;
    const ggml_tensor& weight = weight_of(norm, mul);
    if (rope.src[0] != &mul || &weight == &norm) return "the nodes are not connected as the form requires";
    if (!has_same_shape(*norm.src[0], rope)) return "the norm and the rotation have different shapes";
    if (rope.type != kFloat32 || weight.type != kFloat32 || mul.type != kFloat32)
        return "the tensors of a norm are not float32";
    const int64_t D = rope.ne[0];
    const bool has_one_row = weight.ne[0] == D && weight.ne[1] == 1 && weight.ne[2] == 1 && weight.ne[3] == 1;
    if (!has_one_row || !is_dense(weight))
        return "the weight does not have a contiguous number for each element of a head";
    // The operator normalizes two tensors; here they are the first and the second half of the heads.
    if (rope.ne[1] < 2) return "a token has only one head";
    if (!may_write(rope, *norm.src[0]) || shares_memory(rope, weight) || !is_apart_from_arguments(rope, rope))
        return "a result shares memory with a source";
    return nullptr;
}

int launch_rms_norm_mul_rope(Nodes nodes, const npu_rope_ggml_target& target, Message why) {
    const ggml_tensor &norm = *nodes[0], &rope = *nodes[2];
    const Params p(rope);
    Call call(target, why);
    const int64_t first_heads = rope.ne[1] / 2;
    const auto half = [&](const ggml_tensor& t, bool second) {
        ggml_tensor heads = t;
        heads.ne[1] = second ? t.ne[1] - first_heads : first_heads;
        if (second) heads.data = static_cast<char*>(t.data) + first_heads * static_cast<int64_t>(t.nb[1]);
        return call.tensor(heads);
    };
    const aclTensor *q = half(*norm.src[0], false), *k = half(*norm.src[0], true);
    const aclTensor* weight = call.vector(&weight_of(norm, *nodes[1]));
    const aclTensor* positions = call.tensor(*rope.src[1], 1);
    const aclTensor* factors = call.vector(rope.src[2]);
    const aclTensor *q_out = half(rope, false), *k_out = half(rope, true);
    const aclIntArray* sections = call.array({p.sections, p.sections + 4});
    const aclIntArray* strides = call.strides();
    if (!call.is_complete()) return NPU_ROPE_GGML_FAILED;
    const int status = aclnnNpuRmsNormRopeGetWorkspaceSize(
        q, k, weight, weight, positions, nullptr, factors, nullptr, NPU_ROPE_GGML_ATTRIBUTES(p, sections, true),
        strides, double{epsilon_of(norm)}, false, q_out, k_out, &call.workspace_bytes, &call.executor);
    return call.run("aclnnNpuRmsNormRope", status, aclnnNpuRmsNormRope);
}

}  // namespace npu_rope_ggml
