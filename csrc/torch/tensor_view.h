// A torch tensor as the C interface sees it, for operators that take torch's own Tensor class.
// (rope unpacks handles by hand instead: a decode-sized call is mostly argument handling.)
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include "include/npu_rope.h"

namespace npu_rope {

inline int32_t dtype_of(const torch::stable::Tensor& t) {
    using torch::headeronly::ScalarType;
    switch (t.scalar_type()) {
        case ScalarType::Float:
            return NPU_ROPE_FLOAT32;
        case ScalarType::Half:
            return NPU_ROPE_FLOAT16;
        case ScalarType::BFloat16:
            return NPU_ROPE_BFLOAT16;
        case ScalarType::Double:
            return NPU_ROPE_FLOAT64;
        case ScalarType::Int:
            return NPU_ROPE_INT32;
        case ScalarType::Long:
            return NPU_ROPE_INT64;
        default:
            return -1;
    }
}

inline npu_rope_tensor view_of(const torch::stable::Tensor& t) {
    npu_rope_tensor view = {};
    view.data = t.data_ptr();
    view.dtype = dtype_of(t);
    view.ndim = static_cast<int32_t>(t.dim());
    for (int32_t k = 0; k < view.ndim && k < NPU_ROPE_MAX_NDIM; ++k) {
        view.shape[k] = t.size(k);
        view.stride[k] = t.stride(k);
    }
    return view;
}

}  // namespace npu_rope
