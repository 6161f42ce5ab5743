// What a process did on the simulated device, written as JSON to the folder NPU_ROPE_SIM_REPORT_DIR names:
// <pid>.runtime.json, begun when the library is loaded, whole once the process ends in order.
#pragma once

#include <string>

#include "simulator/cann/runtime/allocations.h"

namespace npu_cann {

// Looks at the guard zones: "" or the damage, reported already.
std::string check_guards(const std::string& when, Look look);

// Prints the damage and keeps it for the report; `when` such as "when it was freed".
void report_damage(const std::string& damage, const std::string& when);

// A race between streams, or between a stream and the host. `detail` is printed and not kept; a race that is
// not new is only counted.
void report_race(const std::string& text, const std::string& detail, bool is_new);

// Work that touched memory after it was freed.
void report_freed(const std::string& text);

void count_not_simulated(const std::string& call);

// The host waited for the device, or fetched from it: what an operator that is captured into a graph may not do.
void count_host_wait(const std::string& call);

}  // namespace npu_cann
