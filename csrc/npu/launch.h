// What the launches of NPU tensors share: tensors as the checks take them, their devices and strides.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/platform.h"

namespace npu_rope {

using OptionalTensor = std::optional<at::Tensor>;

// A launch's tensor under the name its messages give it.
struct LaunchTensor {
    const char* name;
    const at::Tensor* tensor;
};

// As Python's checks raise them.
void raise_on(const Check& c);

const Platform& platform(const char* op);

// x, or a copy of it where its last dimension has no unit stride, the one layout the kernels do not read. Not of
// a tensor that is written in place. To be called once the launch is accepted: a copy is a launch, too.
at::Tensor readable(const at::Tensor& x, const at::Tensor& out);
bool will_be_copied(const at::Tensor& x, const at::Tensor& out);
OptionalTensor contiguous(const OptionalTensor& factors);

// t, or the copy of it that will be launched, contiguous, in memory that nothing else is in; number: of the
// launch's tensors.
npu_rope_tensor view_for_launch(const at::Tensor& t, bool copied, size_t number);

void check_devices(const char* op, const std::vector<LaunchTensor>& tensors);

// The attribute `strides`: those of every tensor, or one 0 where all are contiguous.
std::vector<int64_t> strides_of(const std::vector<LaunchTensor>& tensors);

}  // namespace npu_rope
