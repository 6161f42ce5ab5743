// The devices of this process; contexts.cpp has their contexts.
#pragma once

#include "cann/runtime/api.h"

namespace simulated_cann {

constexpr uint32_t kDevices = 1;

// kRtInvalidDevice, with a message, for any device but the one that is simulated.
aclError refuse_device(const char* call, int32_t device);

}  // namespace simulated_cann
