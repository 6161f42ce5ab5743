// State of a thread's host calls. A host call is an aclnn call on the host's own memory (include/ascend_sim_cann.h).
#pragma once

#include <string>

#include "cann/runtime/objects.h"
#include "include/ascend_sim_cann.h"

namespace simulated_cann {

// Null if this thread's calls go to the device.
const ascend_sim_host_calls* host_calls();

// The package, the error text and the memory of the thread's host calls.
const OperatorPackages& host_packages();
void set_host_error(const std::string& text);
bool find_host_memory(const void* address, void** first, uint64_t* bytes);

}  // namespace simulated_cann
