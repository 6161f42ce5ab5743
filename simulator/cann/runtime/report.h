// Report of a process's work on the simulated device: the JSON file <pid>.runtime.json in the folder
// ASCEND_SIM_REPORT_DIR. Loading the library creates the file. A normal end of the process completes it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "cann/runtime/allocations.h"

namespace simulated_cann {

// Prints a line on standard error: "simulated CANN: " and the parts of a text. Lines of up to PIPE_BUF bytes from
// several processes do not mix. Control characters, which a variable or a file may have, are escaped, except for ends
// of lines. Needs no memory.
void print_message(std::initializer_list<std::string_view> parts) noexcept;

// At its first call in a process outside `ascend-sim run`, prints that CANN is simulated.
void announce_simulation();

// Checks the guard zones and reports damage. Returns the message about the damage, or "".
std::string check_guards(const std::string& when, GuardCheck check);

// Prints the damage and adds it to the report; `when` is a phrase such as "when it was freed".
void report_damage(const std::string& damage, const std::string& when);

// Reports a race between streams, or between a stream and the host. `detail` is printed but not stored. If the race is
// not new, or if the report has its largest number of races, the race is only counted.
void report_race(const std::string& text, const std::string& detail, bool is_new);

// Reports memory that was freed although queued work still uses it.
void report_freed(const std::string& text);

// Reports failed work of a stream whose reason is not in the report yet. `error` is the text of its error, as fail()
// sets it.
void report_failed_work(const std::string& error);

// Returns the number of errors that this thread has added to the report, by the functions of this file or by
// record_launch(); failed work does not count.
uint64_t reported_errors();

void count_not_simulated(const std::string& call);

// Counts a call that CANN's sources accept and its documents exclude.
void count_beyond_document(const std::string& call);
// Does the same, and adds this chip and the reason to the name of the call.
void count_beyond_document(const std::string& call, const std::string& reason);
constexpr const char* kUnlistedChip = "its document does not list the chip";

// Counts a call that waits for the device or copies from the device to the host.
void count_host_wait(const std::string& call);

}  // namespace simulated_cann
