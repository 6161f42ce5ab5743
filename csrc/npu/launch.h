// Shared parts of the launches on NPU tensors: the tensors in the form that the checks take, devices and strides.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "csrc/core/check.h"
#include "include/npu_rope.h"
#include "op_host/platform.h"

namespace npu_rope {

using OptionalTensor = std::optional<at::Tensor>;

// Raises a broken rule as ValueError or TypeError, another error as RuntimeError.
void raise_on(const Check& c);

// The chip of this process. Raises an error, which names op, if the kernels do not support it.
const Platform& platform(const char* op);

// A tensor of a launch.
struct LaunchTensor {
    // How the kernel reads the tensor. copy_inputs() copies a tensor that does not have this form.
    enum Form {
        kAsIs,        // in its own layout
        kUnitStride,  // in its own layout, with unit stride in the last dimension
        kContiguous,
        kInt64,  // as int64: the package supports row numbers of this type only, which halves the number of its kernels
        kInt32   // as int32; the values are in its range
    };
    const char* name;          // in messages
    const at::Tensor* tensor;  // NULL: the call has none
    Form form = kAsIs;
    const at::Tensor* out = nullptr;  // for kUnitStride: an output; if it is `tensor`, `tensor` is not copied
};

inline const at::Tensor* given(const OptionalTensor& t) { return t.has_value() ? &*t : nullptr; }

// The tensors of one launch, in the order of the operator's definition in op_host/. Selects their device.
class LaunchTensors {
public:
    // Raises an error unless all tensors are on the first one's device. They must outlive this object.
    LaunchTensors(const char* op, std::vector<LaunchTensor> tensors);

    // Tensor i for the checks, with its own type and with the strides that copy_inputs() gives it; NULL if the call has
    // none. A copy shares no memory with other tensors.
    const npu_rope_tensor* view(size_t i) const { return tensors_[i].tensor ? &views_[i] : nullptr; }

    // Copies the inputs that are not in the kernel's form. Call it after the checks, because a copy is also a launch.
    void copy_inputs();

    // Tensor i for aclnn.
    const at::Tensor& operator[](size_t i) const { return *launched_[i]; }
    const OptionalTensor& optional(size_t i) const { return launched_[i]; }
    // The attribute `strides`: the strides of every given tensor that is not kContiguous, or one 0 if all of these are
    // contiguous. Call it once.
    at::IntArrayRef strides();

private:
    c10::OptionalDeviceGuard guard_;
    std::vector<LaunchTensor> tensors_;
    std::vector<npu_rope_tensor> views_;
    std::vector<OptionalTensor> launched_;
    std::vector<int64_t> strides_;
};

}  // namespace npu_rope
