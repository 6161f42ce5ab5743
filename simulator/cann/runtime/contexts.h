// The simulated devices and the contexts of threads. A device has its own memory.
#pragma once

#include "cann/runtime/api.h"

namespace simulated_cann {

// The number of devices that this process sees: ASCEND_SIM_DEVICES (1 by default), limited by
// ASCEND_RT_VISIBLE_DEVICES. A wrong value of ASCEND_SIM_DEVICES ends the process.
int32_t device_count();

// The driver's number for a device of this process. With ASCEND_RT_VISIBLE_DEVICES, the two numbers can differ.
int32_t physical_device(int32_t device);

constexpr int32_t kNoDevice = -1;

// A context. Contexts of a process have different numbers, also those that ended. Streams and graphs belong to a
// context and end with it.
struct ContextId {
    uint64_t number = 0;  // 0: no context
    int32_t device = kNoDevice;
};
// The context of this thread.
ContextId current_context();
// The device of this thread's context, or kNoDevice.
inline int32_t current_device() { return current_context().device; }
// The number of contexts of the device: the primary one and those of aclrtCreateContext.
size_t number_of_contexts(int32_t device);

// The device that a thread without a context sets at its next call, or kNoDevice (aclInit's defaultDevice).
void set_default_device(int32_t device);

// Whether any thread has set the device, or this thread uses it.
bool is_device_set(int32_t device);

// Returns kRtInvalidDevice for a device that this process does not see.
aclError check_device(const char* call, int32_t device);

// Whether copies between two different devices are allowed: aclrtDeviceEnablePeerAccess was called on both.
bool can_copy_between(int32_t device, int32_t peer);

}  // namespace simulated_cann
