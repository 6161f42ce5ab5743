// The minimal CANN runtime for the simulated operator package. It replaces libascend_sim_cann in these tests, together
// with tensors.cpp of that library. Device memory is host memory with guard bytes around it; a stream runs its work
// immediately.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "cann/runtime/objects.h"
#include "op_host/platform.h"

#pragma GCC visibility push(default)

namespace {

constexpr size_t kGuard = 512;
constexpr int kGuardByte = 0xA5;

std::map<char*, size_t> g_memory;  // first byte of each allocation, without guards
std::string g_error, g_soc = "Ascend910B1", g_launched, g_report;
int g_launches = 0, g_executors = 0;
npu_cann::OperatorPackages g_packages = {{}, {}, true};

void add_package(const char* folder) {
    g_packages.folders.push_back(folder);
    g_packages.named.push_back(folder);
}

bool guards_are_whole(const char* first, size_t bytes) {
    for (size_t i = 0; i < kGuard; ++i)
        if (static_cast<unsigned char>(first[-1 - static_cast<std::ptrdiff_t>(i)]) != kGuardByte ||
            static_cast<unsigned char>(first[bytes + i]) != kGuardByte)
            return false;
    return true;
}

}  // namespace

namespace npu_cann {

int32_t launch(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void*) {
    std::unique_ptr<aclOpExecutor> own(executor);
    ++g_executors;
    return own->run(workspace, workspace_bytes);
}

void set_error(const std::string& text) { g_error = text; }
int failed(int status, const std::string& text) {
    g_error = text;
    return status;
}

bool find_allocation(const void* address, void** first, uint64_t* bytes) {
    auto after = g_memory.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == g_memory.begin()) return false;
    --after;
    if (address >= after->first + after->second) return false;
    *first = after->first;
    *bytes = after->second;
    return true;
}

const char* soc_name() { return g_soc.c_str(); }
// A chip that the table lacks has fewer cores here than any chip of the table.
int32_t soc_kernel_cores() {
    const auto known = npu_rope::find_platform(g_soc.c_str());
    return known ? known->cores : 6;
}

// One folder in ASCEND_CUSTOM_OPP_PATH, and those that a test adds.
const OperatorPackages& operator_packages() {
    if (const char* named = std::getenv("ASCEND_CUSTOM_OPP_PATH")) add_package(named);
    return g_packages;
}

const ascend_sim_launch* launch_options() { return nullptr; }

void record_launch(const std::string& operator_name, const std::string& simulator_report) {
    ++g_launches;
    g_launched = operator_name;
    g_report = simulator_report;
}

}  // namespace npu_cann

extern "C" {

// For the tests.
void double_set_soc(const char* name) { g_soc = name; }
void double_add_package(const char* folder) { add_package(folder); }
int double_launches() { return g_launches; }
int double_executors() { return g_executors; }
const char* double_launched() { return g_launched.c_str(); }
const char* double_report() { return g_report.c_str(); }
int double_guards_are_whole() {
    for (const auto& [first, bytes] : g_memory)
        if (!guards_are_whole(first, bytes)) return 0;
    return 1;
}

aclError aclInit(const char*) { return ACL_SUCCESS; }
aclError aclFinalize() { return ACL_SUCCESS; }
const char* aclGetRecentErrMsg() { return g_error.c_str(); }
aclnnStatus aclnnInit(const char*) { return OK; }
aclnnStatus aclnnFinalize() { return OK; }
aclError aclrtSetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtResetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtCreateStream(aclrtStream* stream) {
    *stream = &g_launches;
    return ACL_SUCCESS;
}
aclError aclrtDestroyStream(aclrtStream) { return ACL_SUCCESS; }
aclError aclrtSynchronizeStream(aclrtStream) { return ACL_SUCCESS; }

aclError aclrtMalloc(void** memory, size_t bytes, aclrtMemMallocPolicy) {
    constexpr size_t kAlign = 512;
    char* all = static_cast<char*>(std::aligned_alloc(kAlign, (bytes + 2 * kGuard + kAlign - 1) / kAlign * kAlign));
    if (!all) return 1;
    std::memset(all, kGuardByte, bytes + 2 * kGuard);
    *memory = all + kGuard;
    g_memory[all + kGuard] = bytes;
    return ACL_SUCCESS;
}
aclError aclrtFree(void* memory) {
    auto found = g_memory.find(static_cast<char*>(memory));
    if (found == g_memory.end()) return 1;
    const bool whole = guards_are_whole(found->first, found->second);
    std::free(found->first - kGuard);
    g_memory.erase(found);
    return whole ? ACL_SUCCESS : 2;
}
aclError aclrtMemcpy(void* to, size_t most, const void* from, size_t bytes, aclrtMemcpyKind) {
    if (bytes > most) return 1;
    if (bytes) std::memcpy(to, from, bytes);
    return ACL_SUCCESS;
}

}  // extern "C"
