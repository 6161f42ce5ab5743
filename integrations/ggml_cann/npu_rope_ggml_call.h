// Parts that all calls of the adapter share: the layouts of ggml's tensors, the arguments of aclnn, and errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "ggml_tensor.h"
#include "npu_rope_ggml.h"

namespace npu_rope_ggml {

// Values of ggml_type in GGUF files.
constexpr int kFloat32 = 0, kFloat16 = 1, kInt32 = 26, kInt64 = 27, kBfloat16 = 30;

constexpr int kDims = 4;

// The rule that a node breaks, in words, or nullptr.
using Reason = const char*;

// The caller's buffer for an error.
struct Message {
    char* text;
    size_t bytes;

    // Writes the message as printf does and returns the status.
    int report(int status, const char* format, ...) const;
};

bool has_op(const ggml_tensor& node, const char* op);
// Checks the sizes and strides of a node and of its sources, before others compute with them.
Reason check_layouts(const ggml_tensor& node);
bool is_empty(const ggml_tensor& t);
bool has_same_shape(const ggml_tensor& a, const ggml_tensor& b);
bool is_vector(const ggml_tensor& t);
bool is_dense(const ggml_tensor& t);
// Whether each row is contiguous and all strides are multiples of the element size.
bool has_contiguous_rows(const ggml_tensor& t);
// Whether the result may be written while the source is read: it is the source itself, or shares no memory with it.
bool may_write(const ggml_tensor& result, const ggml_tensor& source);
bool shares_memory(const ggml_tensor& a, const ggml_tensor& b);

// A call of an aclnn function: its arguments and its two phases. The destructor frees the arguments.
class Call {
public:
    Call(const npu_rope_ggml_target& target, Message why) : target_(target), why_(why) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Makes a tensor of the ggml tensor's first `dims` dimensions in reverse order, [B, S, N, D], and records its
    // strides.
    aclTensor* tensor(const ggml_tensor& t, int dims = kDims);
    // Makes a tensor of a shape and of strides in elements, and records the strides.
    aclTensor* tensor(int type, void* data, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
    // Makes a contiguous tensor with one dimension, whose strides are not part of a call. NULL if t is NULL.
    aclTensor* vector(const ggml_tensor* t);
    aclIntArray* array(const std::vector<int64_t>& values);
    // The recorded strides, or NULL if every tensor is contiguous.
    aclIntArray* strides();

    // Whether all arguments were made. Otherwise reports an error.
    bool is_complete() const;

    // Runs the second phase. `status` is that of the first phase, which wrote workspace_bytes and executor.
    int run(const char* function, int status,
            aclnnStatus (*second_phase)(void*, uint64_t, aclOpExecutor*, aclrtStream));

    uint64_t workspace_bytes = 0;
    aclOpExecutor* executor = nullptr;

private:
    aclTensor* create(int type, void* data, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
    int report_acl_error(const char* function, const char* phase, int status) const;

    const npu_rope_ggml_target& target_;
    const Message why_;
    std::vector<aclTensor*> tensors_;
    std::vector<aclIntArray*> arrays_;
    std::vector<int64_t> strides_;
    bool is_contiguous_ = true;
};

}  // namespace npu_rope_ggml
