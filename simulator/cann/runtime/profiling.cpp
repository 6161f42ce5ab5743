// Profiling functions that record nothing, because the simulator has its own reports. Source of the results for null:
// hicann/runtime src/dfx/msprof/collector/dvvp/profapi/src/prof_impl_inner_api.cpp, and for MsprofRegisterCallback
// prof_cann_plugin.cpp beside it.
#include <chrono>
#include <functional>
#include <limits>
#include <string_view>

#include "cann/runtime/api.h"

using namespace simulated_cann;

namespace {
constexpr int32_t kProfilingFailed = -1;
int32_t check_not_null(const void* pointer) { return pointer ? 0 : kProfilingFailed; }
}  // namespace

NPU_CANN_API uint64_t MsprofGetHashId(const char* text, size_t bytes) {
    if (!text || !bytes) return std::numeric_limits<uint64_t>::max();
    return std::hash<std::string_view>{}(std::string_view(text, bytes));
}
NPU_CANN_API uint64_t MsprofSysCycleTime() {
    return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
}
NPU_CANN_API int32_t MsprofRegisterCallback(uint32_t /*module*/, void* handle) { return check_not_null(handle); }
NPU_CANN_API int32_t MsprofReportApi(uint32_t /*aging*/, const void* api) { return check_not_null(api); }
NPU_CANN_API int32_t MsprofReportCompactInfo(uint32_t /*aging*/, const void* data, uint32_t /*bytes*/) {
    return check_not_null(data);
}
NPU_CANN_API int32_t MsprofReportAdditionalInfo(uint32_t /*aging*/, const void* data, uint32_t /*bytes*/) {
    return check_not_null(data);
}
