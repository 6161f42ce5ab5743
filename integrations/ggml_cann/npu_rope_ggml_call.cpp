#include "npu_rope_ggml_call.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace npu_rope_ggml {
namespace {

size_t item_bytes(int type) {
    if (type == kInt64) return 8;
    return type == kFloat32 || type == kInt32 ? 4 : 2;
}

aclDataType acl_type(int type) {
    switch (type) {
        case kFloat32:
            return ACL_FLOAT;
        case kFloat16:
            return ACL_FLOAT16;
        case kBfloat16:
            return ACL_BF16;
        case kInt64:
            return ACL_INT64;
        default:
            return ACL_INT32;
    }
}

uintptr_t first_byte(const ggml_tensor& t) { return reinterpret_cast<uintptr_t>(t.data); }

// The address after the tensor's last byte.
uintptr_t end_byte(const ggml_tensor& t) {
    uintptr_t end = first_byte(t) + item_bytes(t.type);
    for (int d = 0; d < kDims; ++d) end += static_cast<uintptr_t>(t.ne[d] - 1) * t.nb[d];
    return end;
}

// Whether the product of the sizes and the bytes from the first to the last element are numbers of 63 bits.
bool has_valid_sizes(const ggml_tensor& t) {
    int64_t elements = 1, bytes = 8;
    for (int d = 0; d < kDims; ++d) {
        int64_t reach;
        if (t.ne[d] < 0 || __builtin_mul_overflow(elements, t.ne[d], &elements)) return false;
        if (__builtin_mul_overflow(t.ne[d], t.nb[d], &reach) || __builtin_add_overflow(bytes, reach, &bytes))
            return false;
    }
    return true;
}

// Whether each stride steps over all dimensions with smaller strides, so that no two elements share memory.
bool is_nested(const ggml_tensor& t) {
    int order[kDims] = {0, 1, 2, 3};
    std::sort(order, order + kDims, [&](int a, int b) { return t.nb[a] < t.nb[b]; });
    size_t bytes = item_bytes(t.type);
    for (int d : order) {
        if (t.ne[d] <= 1) continue;
        if (t.nb[d] < bytes) return false;
        bytes += static_cast<size_t>(t.ne[d] - 1) * t.nb[d];
    }
    return true;
}

bool is_same_memory(const ggml_tensor& a, const ggml_tensor& b) {
    if (a.data != b.data || a.type != b.type || !has_same_shape(a, b)) return false;
    for (int d = 0; d < kDims; ++d)
        if (a.ne[d] != 1 && a.nb[d] != b.nb[d]) return false;
    return true;
}

}  // namespace

int Message::report(int status, const char* format, ...) const {
    if (text && bytes) {
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}

bool has_op(const ggml_tensor& node, const char* op) {
    const char* name = ggml_op_name(node.op);
    return name && std::strcmp(name, op) == 0;
}

Reason check_layouts(const ggml_tensor& node) {
    bool are_valid = has_valid_sizes(node);
    for (const ggml_tensor* source : node.src) are_valid = are_valid && (!source || has_valid_sizes(*source));
    if (!are_valid) return "a tensor has a negative size or reaches over 2^63 bytes";
    const bool is_plain = node.type == kFloat32 || node.type == kFloat16 || node.type == kBfloat16;
    return is_plain && !is_nested(node) ? "the result overlaps itself" : nullptr;
}

bool is_empty(const ggml_tensor& t) {
    for (int d = 0; d < kDims; ++d)
        if (t.ne[d] == 0) return true;
    return false;
}

bool has_same_shape(const ggml_tensor& a, const ggml_tensor& b) {
    for (int d = 0; d < kDims; ++d)
        if (a.ne[d] != b.ne[d]) return false;
    return true;
}

bool is_vector(const ggml_tensor& t) { return t.ne[1] == 1 && t.ne[2] == 1 && t.ne[3] == 1; }

bool is_dense(const ggml_tensor& t) {
    size_t expected = item_bytes(t.type);
    for (int d = 0; d < kDims; ++d) {
        if (t.ne[d] != 1 && t.nb[d] != expected) return false;
        expected *= static_cast<size_t>(t.ne[d]);
    }
    return true;
}

bool has_contiguous_rows(const ggml_tensor& t) {
    const size_t item = item_bytes(t.type);
    if (t.ne[0] != 1 && t.nb[0] != item) return false;
    for (int d = 1; d < kDims; ++d)
        if (t.nb[d] % item) return false;
    return true;
}

bool shares_memory(const ggml_tensor& a, const ggml_tensor& b) {
    return first_byte(a) < end_byte(b) && first_byte(b) < end_byte(a);
}

bool may_write(const ggml_tensor& result, const ggml_tensor& source) {
    return is_same_memory(result, source) || !shares_memory(result, source);
}

Call::~Call() {
    for (const aclTensor* t : tensors_) aclDestroyTensor(t);
    for (const aclIntArray* a : arrays_) aclDestroyIntArray(a);
}

aclTensor* Call::tensor(const ggml_tensor& t, int dims) {
    std::vector<int64_t> shape, strides;
    const auto item = static_cast<int64_t>(item_bytes(t.type));
    for (int d = dims - 1; d >= 0; --d) {
        shape.push_back(t.ne[d]);
        strides.push_back(d == 0 ? 1 : static_cast<int64_t>(t.nb[d]) / item);
    }
    return tensor(t.type, t.data, shape, strides);
}

aclTensor* Call::tensor(int type, void* data, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    std::vector<int64_t> used(strides);
    int64_t dense = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] == 1) used[i] = dense;  // no address depends on it
        is_contiguous_ = is_contiguous_ && used[i] == dense;
        dense *= shape[i];
    }
    strides_.insert(strides_.end(), used.begin(), used.end());
    return create(type, data, shape, used);
}

aclTensor* Call::vector(const ggml_tensor* t) { return t ? create(t->type, t->data, {t->ne[0]}, {1}) : nullptr; }

aclTensor* Call::create(int type, void* data, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    tensors_.push_back(aclCreateTensor(shape.data(), shape.size(), acl_type(type), strides.data(), 0, ACL_FORMAT_ND,
                                       shape.data(), shape.size(), data));
    return tensors_.back();
}

aclIntArray* Call::array(const std::vector<int64_t>& values) {
    arrays_.push_back(aclCreateIntArray(values.data(), values.size()));
    return arrays_.back();
}

aclIntArray* Call::strides() { return is_contiguous_ ? nullptr : array(strides_); }

bool Call::is_complete() const {
    bool complete = true;
    for (const void* t : tensors_) complete = complete && t;
    for (const void* a : arrays_) complete = complete && a;
    if (!complete) why_.report(0, "aclCreateTensor or aclCreateIntArray returned NULL");
    return complete;
}

int Call::report_acl_error(const char* function, const char* phase, int status) const {
    const char* text = aclGetRecentErrMsg();
    return why_.report(NPU_ROPE_GGML_FAILED, "%s%s: status %d: %s", function, phase, status, text ? text : "");
}

int Call::run(const char* function, int status,
              aclnnStatus (*second_phase)(void*, uint64_t, aclOpExecutor*, aclrtStream)) {
    if (status != ACL_SUCCESS) return report_acl_error(function, "GetWorkspaceSize", status);
    void* workspace = workspace_bytes > 0 ? target_.allocate(target_.allocate_context, workspace_bytes) : nullptr;
    if (workspace_bytes > 0 && !workspace) return why_.report(NPU_ROPE_GGML_FAILED, "no memory for a workspace");
    status = second_phase(workspace, workspace_bytes, executor, static_cast<aclrtStream>(target_.stream));
    if (status != ACL_SUCCESS) return report_acl_error(function, "", status);
    return why_.report(NPU_ROPE_GGML_OK, "%s", "");
}

}  // namespace npu_rope_ggml
