// Launch of libopapi's stand-ins, in addition to npu_cann::launch.
#pragma once

#include "cann/runtime/objects.h"

namespace npu_cann {

// Queues a stand-in on the stream, as launch does, but without checking every guard zone afterwards. Stand-ins
// check their own bounds, and a training step has many of them.
int32_t launch_stand_in(aclOpExecutor* executor, void* stream);

}  // namespace npu_cann
