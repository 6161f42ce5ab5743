// Where executors of libopapi's stand-ins run, beside npu_cann::launch.
#pragma once

#include "simulator/cann/runtime/objects.h"

namespace npu_cann {

// Queues a stand-in on the stream: as launch, without looking at every guard zone after it. The
// stand-ins stay inside their tensors by their own checks, and there are many of them a step.
int32_t launch_stand_in(aclOpExecutor* executor, void* stream);

}  // namespace npu_cann
