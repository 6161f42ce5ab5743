#include "cann/runtime/host_calls.h"

namespace simulated_cann {
namespace {

struct HostThread {
    const ascend_sim_host_calls* calls = nullptr;
    OperatorPackages packages;
    std::string error;
};
thread_local HostThread host;

}  // namespace

const ascend_sim_host_calls* host_calls() { return host.calls; }
const OperatorPackages& host_packages() { return host.packages; }
void set_host_error(const std::string& text) { host.error = text; }

// Memories overlap if they are views of one array. Selects the one that ends last among those with the address.
bool find_host_memory(const void* address, void** first, uint64_t* bytes) {
    const char* const at = static_cast<const char*>(address);
    char *begin = nullptr, *end = nullptr;
    for (int32_t i = 0; i < host.calls->memory_count; ++i) {
        const ascend_sim_memory& memory = host.calls->memories[i];
        char* const low = static_cast<char*>(memory.data);
        if (at < low || at >= low + memory.bytes || (end && low + memory.bytes <= end)) continue;
        begin = low;
        end = low + memory.bytes;
    }
    if (!begin) return false;
    *first = begin;
    *bytes = static_cast<uint64_t>(end - begin);
    return true;
}

const ascend_sim_launch* launch_options() { return host.calls ? host.calls->options : nullptr; }

}  // namespace simulated_cann

using namespace simulated_cann;

extern "C" {

void ascend_sim_begin_host_calls(const ascend_sim_host_calls* calls) {
    host.calls = calls;
    host.packages = {{calls->package}, {calls->package}, true};
    host.error.clear();
}

const char* ascend_sim_end_host_calls() {
    host.calls = nullptr;
    return host.error.c_str();
}

}  // extern "C"
