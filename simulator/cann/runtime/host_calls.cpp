#include "cann/runtime/host_calls.h"

namespace simulated_cann {
namespace {

struct HostCallState {
    const ascend_sim_host_calls* calls = nullptr;
    OperatorPackages packages;
    std::string error;
};
thread_local HostCallState thread_state;

}  // namespace

const ascend_sim_host_calls* host_calls() { return thread_state.calls; }
const OperatorPackages& host_packages() { return thread_state.packages; }
void set_host_error(const std::string& text) { thread_state.error = text; }

// Views of one array are overlapping memories. Selects, among the memories that contain the address, the one that ends
// last.
bool find_host_memory(const void* address, void** first, uint64_t* bytes) {
    const char* const byte = static_cast<const char*>(address);
    char *begin = nullptr, *end = nullptr;
    for (int32_t i = 0; i < thread_state.calls->memory_count; ++i) {
        const ascend_sim_memory& memory = thread_state.calls->memories[i];
        char* const low = static_cast<char*>(memory.data);
        if (byte < low || byte >= low + memory.bytes || (end && low + memory.bytes <= end)) continue;
        begin = low;
        end = low + memory.bytes;
    }
    if (!begin) return false;
    *first = begin;
    *bytes = static_cast<uint64_t>(end - begin);
    return true;
}

const ascend_sim_launch* launch_options() { return thread_state.calls ? thread_state.calls->options : nullptr; }

}  // namespace simulated_cann

using namespace simulated_cann;

extern "C" {

void ascend_sim_begin_host_calls(const ascend_sim_host_calls* calls) {
    thread_state.calls = calls;
    thread_state.packages = {{calls->package}, {calls->package}, true};
    thread_state.error.clear();
}

const char* ascend_sim_end_host_calls() {
    thread_state.calls = nullptr;
    return thread_state.error.c_str();
}

}  // extern "C"
