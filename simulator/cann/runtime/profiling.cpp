// Profiling functions that record nothing, because the simulator has its own reports.
#include <chrono>
#include <functional>
#include <string_view>

#include "cann/runtime/api.h"

using namespace simulated_cann;

NPU_CANN_API uint64_t MsprofGetHashId(const char* text, size_t bytes) {
    return text ? std::hash<std::string_view>{}(std::string_view(text, bytes)) : 0;
}
NPU_CANN_API uint64_t MsprofSysCycleTime() {
    return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
}
NPU_CANN_API int32_t MsprofRegisterCallback(uint32_t /*module*/, void* /*handle*/) { return 0; }
NPU_CANN_API int32_t MsprofReportApi(uint32_t /*aging*/, const void* /*api*/) { return 0; }
NPU_CANN_API int32_t MsprofReportCompactInfo(uint32_t /*aging*/, const void* /*data*/, uint32_t /*bytes*/) { return 0; }
NPU_CANN_API int32_t MsprofReportAdditionalInfo(uint32_t /*aging*/, const void* /*data*/, uint32_t /*bytes*/) {
    return 0;
}
