// A torch tensor in the form of the C interface, from torch's handle or its stable Tensor class.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "csrc/core/rms_norm_dims.h"
#include "csrc/torch/errors.h"
#include "include/npu_rope.h"

namespace npu_rope {

inline void check(AOTITorchError code) {
    if (code != 0) raise_on(internal_error("torch", "C interface", "succeed", "an error"));
}

// A tensor that the call owns: an argument or a new tensor. The destructor deletes its handle.
class Owned {
public:
    explicit Owned(StableIValue v) : handle_(torch::stable::detail::to<AtenTensorHandle>(v)) {}
    explicit Owned(AtenTensorHandle h) : handle_(h) {}
    Owned(Owned&& o) noexcept : handle_(o.handle_) { o.handle_ = nullptr; }
    Owned(const Owned&) = delete;
    ~Owned() {
        if (handle_) aoti_torch_delete_tensor_object(handle_);
    }
    AtenTensorHandle get() const { return handle_; }
    AtenTensorHandle release() {
        AtenTensorHandle h = handle_;
        handle_ = nullptr;
        return h;
    }

private:
    AtenTensorHandle handle_;
};

// A new tensor, uninitialized. torch's C interface does not tell why it made none; the usual reason is too little
// memory.
inline Owned new_tensor(int64_t ndim, const int64_t* size, const int64_t* stride, int32_t dtype, int32_t device,
                        int32_t index) {
    AtenTensorHandle tensor;
    if (aoti_torch_empty_strided(ndim, size, stride, dtype, device, index, &tensor) != 0)
        raise_on(internal_error("torch", "memory",
                                "be enough for a result of shape " + shape_text(size, static_cast<int>(ndim)),
                                "an error of torch's allocator"));
    return Owned(tensor);
}

// A second reference to a tensor.
inline torch::stable::Tensor reference_to(AtenTensorHandle h) {
    AtenTensorHandle same;
    check(aoti_torch_new_tensor_handle(h, &same));
    return torch::stable::Tensor(same);
}

// Returns the npu_rope_dtype of a tensor, or -1. No operator accepts int16 and the types after it in the table, but
// error messages name them.
inline int32_t dtype_code(AtenTensorHandle h) {
    static const struct {
        int32_t type, code;
    } types[] = {
        {aoti_torch_dtype_float32(), NPU_ROPE_FLOAT32},     {aoti_torch_dtype_float16(), NPU_ROPE_FLOAT16},
        {aoti_torch_dtype_bfloat16(), NPU_ROPE_BFLOAT16},   {aoti_torch_dtype_float64(), NPU_ROPE_FLOAT64},
        {aoti_torch_dtype_int32(), NPU_ROPE_INT32},         {aoti_torch_dtype_int64(), NPU_ROPE_INT64},
        {aoti_torch_dtype_int8(), NPU_ROPE_INT8},           {aoti_torch_dtype_int16(), NPU_ROPE_INT16},
        {aoti_torch_dtype_uint8(), NPU_ROPE_UINT8},         {aoti_torch_dtype_bool(), NPU_ROPE_BOOL},
        {aoti_torch_dtype_complex64(), NPU_ROPE_COMPLEX64}, {aoti_torch_dtype_complex128(), NPU_ROPE_COMPLEX128}};
    int32_t d;
    check(aoti_torch_get_dtype(h, &d));
    for (const auto& row : types)
        if (row.type == d) return row.code;
    return -1;
}

inline Dims dims_of(AtenTensorHandle h) {
    int64_t ndim, *size, *stride;
    check(aoti_torch_get_dim(h, &ndim));
    check(aoti_torch_get_sizes(h, &size));
    check(aoti_torch_get_strides(h, &stride));
    return {ndim, size, stride};
}

inline npu_rope_tensor view_of(AtenTensorHandle h) {
    const Dims s = dims_of(h);
    npu_rope_tensor t = {};
    check(aoti_torch_get_data_ptr(h, &t.data));
    t.dtype = dtype_code(h);
    t.ndim = static_cast<int32_t>(s.ndim);
    for (int64_t k = 0; k < s.ndim && k < NPU_ROPE_MAX_NDIM; ++k) {
        t.shape[k] = s.size[k];
        t.stride[k] = s.stride[k];
    }
    return t;
}

inline npu_rope_tensor view_of(const torch::stable::Tensor& t) { return view_of(t.get()); }

}  // namespace npu_rope
