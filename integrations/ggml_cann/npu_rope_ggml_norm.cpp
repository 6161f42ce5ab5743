// Converts ggml's RMS_NORM nodes, with an addition before them and a multiplication after them, to calls of
// aclnnNpuRmsNorm and aclnnNpuAddRmsNorm. All tensors are float32: ggml has this operation for no other type
// (ggml-cpu/ops.cpp, ggml_compute_forward_rms_norm).
#include <cstring>

#include "aclnn_npu_add_rms_norm.h"
#include "aclnn_npu_rms_norm.h"
#include "npu_rope_ggml_nodes.h"

namespace npu_rope_ggml {
namespace {

constexpr float kMaxEpsilon = 18446744073709551616.0f;  // 2^64, limit of the operators on an NPU
constexpr int64_t kLastAxis = -1, kFloat32Stash = 1;

bool is_float32_with_rows(const ggml_tensor& t) { return t.type == kFloat32 && has_contiguous_rows(t); }

// Checks the multiplication after a norm: the weight's dimensions have the norm's sizes or the size 1.
Reason check_mul(const ggml_tensor& norm, const ggml_tensor& mul) {
    const ggml_tensor& weight = weight_of(norm, mul);
    if (&weight == &norm) return "the nodes are not connected as the form requires";
    if (!is_float32_with_rows(weight) || !is_float32_with_rows(mul))
        return "the weight or the product is not float32 with contiguous rows";
    if (!has_same_shape(mul, norm)) return "the multiplication changes the norm's shape";
    for (int d = 0; d < kDims; ++d)
        if (weight.ne[d] != 1 && weight.ne[d] != norm.ne[d]) return "the weight repeats inside a dimension";
    return nullptr;
}

Reason check_add(const ggml_tensor& add, const ggml_tensor& norm) {
    const ggml_tensor *x = add.src[0], *residual = add.src[1];
    if (norm.src[0] != &add) return "the nodes are not connected as the form requires";
    if (!is_float32_with_rows(*x) || !is_float32_with_rows(*residual) || !is_float32_with_rows(add))
        return "the addition's tensors are not float32 with contiguous rows";
    if (!has_same_shape(*x, *residual) || !has_same_shape(*x, add)) return "the addition broadcasts a tensor";
    return nullptr;
}

// Checks the memory of the results of an addition and the norm after it.
Reason check_memory(const ggml_tensor& add, const ggml_tensor& out, const ggml_tensor* weight) {
    bool is_allowed = !shares_memory(add, out);
    for (const ggml_tensor* result : {&add, &out}) {
        is_allowed = is_allowed && may_write(*result, *add.src[0]) && may_write(*result, *add.src[1]);
        if (weight) is_allowed = is_allowed && !shares_memory(*result, *weight);
    }
    return is_allowed ? nullptr : "a result shares memory with a source";
}

aclTensor* make_scale(Call* call, const ggml_tensor* weight, const npu_rope_ggml_target& target) {
    return weight ? call->tensor(*weight) : call->tensor(kFloat32, const_cast<void*>(target.one), {1}, {1});
}

// Launches the norm, and its multiplication by the weight unless the weight is NULL.
int launch_norm(const ggml_tensor& norm, const ggml_tensor* weight, const ggml_tensor& result,
                const npu_rope_ggml_target& target, Message why) {
    Call call(target, why);
    const aclTensor* x = call.tensor(*norm.src[0]);
    const aclTensor* scale = make_scale(&call, weight, target);
    const aclTensor* out = call.tensor(result);
    const aclIntArray* strides = call.strides();
    if (!call.is_complete()) return NPU_ROPE_GGML_FAILED;
    const int status = aclnnNpuRmsNormGetWorkspaceSize(x, scale, kLastAxis, double{epsilon_of(norm)}, kFloat32Stash,
                                                       strides, out, &call.workspace_bytes, &call.executor);
    return call.run("aclnnNpuRmsNorm", status, aclnnNpuRmsNorm);
}

int launch_add_norm(const ggml_tensor& add, const ggml_tensor& norm, const ggml_tensor* weight,
                    const ggml_tensor& result, const npu_rope_ggml_target& target, Message why) {
    Call call(target, why);
    const aclTensor *x = call.tensor(*add.src[0]), *residual = call.tensor(*add.src[1]);
    const aclTensor* scale = make_scale(&call, weight, target);
    const aclTensor *out = call.tensor(result), *sum = call.tensor(add);
    const aclIntArray* strides = call.strides();
    if (!call.is_complete()) return NPU_ROPE_GGML_FAILED;
    const int status =
        aclnnNpuAddRmsNormGetWorkspaceSize(x, residual, scale, kLastAxis, double{epsilon_of(norm)}, kFloat32Stash,
                                           strides, out, sum, &call.workspace_bytes, &call.executor);
    return call.run("aclnnNpuAddRmsNorm", status, aclnnNpuAddRmsNorm);
}

}  // namespace

const ggml_tensor& weight_of(const ggml_tensor& norm, const ggml_tensor& mul) {
    return mul.src[0] == &norm ? *mul.src[1] : *mul.src[0];
}

float epsilon_of(const ggml_tensor& norm) {
    float epsilon = 0;
    std::memcpy(&epsilon, norm.op_params, sizeof epsilon);
    return epsilon;
}

Reason check_rms_norm(const ggml_tensor& node) {
    const ggml_tensor* x = node.src[0];
    if (!x) return "the node has no x";
    if (x->type != kFloat32 || node.type != kFloat32) return "the tensors of a norm are not float32";
    if (!has_same_shape(*x, node)) return "x and the result have different shapes";
    if (!has_contiguous_rows(*x) || !has_contiguous_rows(node)) return "a row's elements are not contiguous";
    const float epsilon = epsilon_of(node);
    if (!(epsilon >= 0 && epsilon <= kMaxEpsilon)) return "epsilon is not in [0, 2^64]";
    return nullptr;
}

int launch_rms_norm(const ggml_tensor& node, const npu_rope_ggml_target& target, Message why) {
    return launch_norm(node, nullptr, node, target, why);
}

Reason check_rms_norm_mul(Nodes nodes, bool) {
    const ggml_tensor &norm = *nodes[0], &mul = *nodes[1];
    if (Reason reason = check_rms_norm(norm)) return reason;
    if (Reason reason = check_mul(norm, mul)) return reason;
    if (!may_write(mul, *norm.src[0]) || shares_memory(mul, weight_of(norm, mul)))
        return "a result shares memory with a source";
    return nullptr;
}

int launch_rms_norm_mul(Nodes nodes, const npu_rope_ggml_target& target, Message why) {
    return launch_norm(*nodes[0], &weight_of(*nodes[0], *nodes[1]), *nodes[1], target, why);
}

Reason check_add_rms_norm(Nodes nodes, bool) {
    const ggml_tensor &add = *nodes[0], &norm = *nodes[1];
    if (Reason reason = check_rms_norm(norm)) return reason;
    if (Reason reason = check_add(add, norm)) return reason;
    return check_memory(add, norm, nullptr);
}

int launch_add_rms_norm(Nodes nodes, const npu_rope_ggml_target& target, Message why) {
    return launch_add_norm(*nodes[0], *nodes[1], nullptr, *nodes[1], target, why);
}

Reason check_add_rms_norm_mul(Nodes nodes, bool) {
    const ggml_tensor &add = *nodes[0], &norm = *nodes[1], &mul = *nodes[2];
    if (Reason reason = check_rms_norm(norm)) return reason;
    if (Reason reason = check_add(add, norm)) return reason;
    if (Reason reason = check_mul(norm, mul)) return reason;
    const ggml_tensor& weight = weight_of(norm, mul);
    if (&weight == &add) return "the weight is the sum";
    return check_memory(add, mul, &weight);
}

int launch_add_rms_norm_mul(Nodes nodes, const npu_rope_ggml_target& target, Message why) {
    return launch_add_norm(*nodes[0], *nodes[1], &weight_of(*nodes[1], *nodes[2]), *nodes[2], target, why);
}

}  // namespace npu_rope_ggml
