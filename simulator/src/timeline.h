// The timeline of a launch: its summary, and its file in Chrome's trace format.
#pragma once

#include <string>
#include <vector>

#include "src/core.h"

namespace ascend_sim {

struct Timeline {
    std::vector<Span> spans;              // of the traced cores
    std::vector<UbContents> ub_contents;  // of the traced cores
    std::vector<Totals> cores;            // one for each block
    std::vector<Step> critical_path;
    int64_t critical_core = -1;
};

// Totals, use of the pipes, instructions of the slowest core and critical path, as JSON.
std::string summary_of(const Timeline& timeline, const Profile& profile);

// Writes the trace with the summary. Returns "", or why the file cannot be written.
std::string write_trace(const char* path, const Timeline& timeline, const Profile& profile, const std::string& summary);

}  // namespace ascend_sim
