// A torch tensor in the form of the C interface, from torch's handle or its stable Tensor class.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <stdexcept>

#include "include/npu_rope.h"

namespace npu_rope {

inline void check(AOTITorchError code) {
    if (code != 0) throw std::runtime_error("[torch] C interface must answer but got an error.");
}

// A tensor argument that the call owns and releases at its end.
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

// Types that no operator takes; known so that an error message can name them.
inline int32_t foreign_dtype(int32_t d) {
    if (d == aoti_torch_dtype_int8()) return NPU_ROPE_INT8;
    if (d == aoti_torch_dtype_int16()) return NPU_ROPE_INT16;
    if (d == aoti_torch_dtype_uint8()) return NPU_ROPE_UINT8;
    if (d == aoti_torch_dtype_bool()) return NPU_ROPE_BOOL;
    if (d == aoti_torch_dtype_complex64()) return NPU_ROPE_COMPLEX64;
    if (d == aoti_torch_dtype_complex128()) return NPU_ROPE_COMPLEX128;
    return -1;
}

inline int32_t dtype_code(AtenTensorHandle h) {
    static const int32_t f32 = aoti_torch_dtype_float32(), f16 = aoti_torch_dtype_float16(),
                         bf16 = aoti_torch_dtype_bfloat16(), f64 = aoti_torch_dtype_float64(),
                         i32 = aoti_torch_dtype_int32(), i64 = aoti_torch_dtype_int64();
    int32_t d;
    check(aoti_torch_get_dtype(h, &d));
    if (d == f32) return NPU_ROPE_FLOAT32;
    if (d == f16) return NPU_ROPE_FLOAT16;
    if (d == bf16) return NPU_ROPE_BFLOAT16;
    if (d == f64) return NPU_ROPE_FLOAT64;
    if (d == i32) return NPU_ROPE_INT32;
    if (d == i64) return NPU_ROPE_INT64;
    return foreign_dtype(d);
}

inline npu_rope_tensor view_of(AtenTensorHandle h) {
    npu_rope_tensor t = {};
    int64_t ndim, *sizes, *strides;
    check(aoti_torch_get_data_ptr(h, &t.data));
    check(aoti_torch_get_dim(h, &ndim));
    check(aoti_torch_get_sizes(h, &sizes));
    check(aoti_torch_get_strides(h, &strides));
    t.dtype = dtype_code(h);
    t.ndim = static_cast<int32_t>(ndim);
    for (int64_t k = 0; k < ndim && k < NPU_ROPE_MAX_NDIM; ++k) {
        t.shape[k] = sizes[k];
        t.stride[k] = strides[k];
    }
    return t;
}

inline npu_rope_tensor view_of(const torch::stable::Tensor& t) { return view_of(t.get()); }

}  // namespace npu_rope
