#include "cann/runtime/host_calls.h"

namespace npu_cann {
namespace {

struct HostThread {
    const ascend_sim_host_calls* calls = nullptr;
    OperatorPackages packages;
    std::string error;
    // Of the second phase that runs.
    char* workspace = nullptr;
    uint64_t workspace_bytes = 0;
};
thread_local HostThread host;

}  // namespace

const ascend_sim_host_calls* host_calls() { return host.calls; }
const OperatorPackages& host_packages() { return host.packages; }
void set_host_error(const std::string& text) { host.error = text; }

// Views of one array are separate memories here and may overlap: the one that reaches furthest answers.
bool find_host_memory(const void* address, void** first, uint64_t* bytes) {
    const char* const at = static_cast<const char*>(address);
    char *begin = nullptr, *end = nullptr;
    auto look = [&](void* data, uint64_t size) {
        char* const low = static_cast<char*>(data);
        if (at < low || at >= low + size || (end && low + size <= end)) return;
        begin = low;
        end = low + size;
    };
    for (int32_t i = 0; i < host.calls->memory_count; ++i)
        look(host.calls->memories[i].data, host.calls->memories[i].bytes);
    look(host.workspace, host.workspace_bytes);
    if (!begin) return false;
    *first = begin;
    *bytes = static_cast<uint64_t>(end - begin);
    return true;
}

int32_t run_on_host(const aclOpExecutor& executor, void* workspace, uint64_t workspace_bytes) {
    host.workspace = static_cast<char*>(workspace);
    host.workspace_bytes = workspace_bytes;
    const int32_t status = executor.run(workspace, workspace_bytes);
    host.workspace = nullptr;
    host.workspace_bytes = 0;
    return status;
}

const ascend_sim_launch* launch_options() { return host.calls ? host.calls->options : nullptr; }

}  // namespace npu_cann

using namespace npu_cann;

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
