// The simulated device, number 0. contexts.cpp has its contexts.
#pragma once

#include "cann/runtime/api.h"

namespace simulated_cann {

constexpr uint32_t kDeviceCount = 1;

// Returns kRtInvalidDevice for every device except the simulated one.
aclError check_device(const char* call, int32_t device);

}  // namespace simulated_cann
