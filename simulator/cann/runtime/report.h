// Report of a process's work on the simulated device, written as JSON to <pid>.runtime.json in the folder
// ASCEND_SIM_REPORT_DIR. The file is created when the library is loaded and complete if the process ends normally.
#pragma once

#include <string>

#include "cann/runtime/allocations.h"

namespace npu_cann {

// Checks the guard zones and reports damage. Returns "" or the damage.
std::string check_guards(const std::string& when, GuardCheck check);

// Prints the damage and keeps it for the report; `when` is a phrase such as "when it was freed".
void report_damage(const std::string& damage, const std::string& when);

// Reports a race between streams, or between a stream and the host. `detail` is printed but not kept; a race that
// is not new is only counted.
void report_race(const std::string& text, const std::string& detail, bool is_new);

// Reports memory that was freed although queued work still uses it.
void report_freed(const std::string& text);

void count_not_simulated(const std::string& call);

// Counts a wait of the host for the device, or a copy from it. Operators in a captured graph must not do this.
void count_host_wait(const std::string& call);

}  // namespace npu_cann
