// Shared parts of the launches on NPU tensors: tensors in the checks' form, their devices and strides.
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

// A tensor of a launch and its name in messages.
struct LaunchTensor {
    const char* name;
    const at::Tensor* tensor;
};

// Raises the exceptions that Python's checks raise.
void raise_on(const Check& c);

const Platform& platform(const char* op);

// x, or a copy of it if its last dimension has no unit stride, the only layout that the kernels do not read. Never
// copies a tensor that is written in place. Call it after the launch is accepted, because a copy is also a launch.
at::Tensor readable(const at::Tensor& x, const at::Tensor& out);
bool will_be_copied(const at::Tensor& x, const at::Tensor& out);
OptionalTensor contiguous(const OptionalTensor& factors);

// The view of t or, if copied, of the later contiguous copy, in memory that holds nothing else. number: index among the
// launch's tensors.
npu_rope_tensor view_for_launch(const at::Tensor& t, bool copied, size_t number);

void check_devices(const char* op, const std::vector<LaunchTensor>& tensors);

// The attribute `strides`: the strides of every tensor, or one 0 if all are contiguous.
std::vector<int64_t> strides_of(const std::vector<LaunchTensor>& tensors);

}  // namespace npu_rope
