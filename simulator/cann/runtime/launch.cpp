// Running executors. In the stream's order means now: see streams.cpp.
#include "simulator/cann/runtime/launch.h"

#include <exception>
#include <memory>

#include "simulator/cann/runtime/allocations.h"
#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/report.h"

namespace npu_cann {
namespace {

int32_t run(aclOpExecutor& executor, void* workspace, uint64_t workspace_bytes) {
    try {
        return executor.run(workspace, workspace_bytes);
    } catch (const std::exception& error) {
        return failed(kInternalError, executor.name + ": " + error.what());
    }
}

}  // namespace

// What the guard zones say after it is what it wrote: damage from before was reported before.
int32_t launch(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* /*stream*/) {
    if (!executor) return no_executor();
    std::unique_ptr<aclOpExecutor> owned(executor);
    check_guards("before " + owned->name + " was launched", Look::kWhole);
    int32_t status = run(*owned, workspace, workspace_bytes);
    if (status != kSuccess) return status;
    std::string damage = check_guards("after " + owned->name + " had run", Look::kWhole);
    return damage.empty() ? kSuccess : failed(kDeviceMemoryError, owned->name + ": " + damage);
}

int32_t launch_stand_in(aclOpExecutor* executor) {
    if (!executor) return no_executor();
    std::unique_ptr<aclOpExecutor> owned(executor);
    int32_t status = run(*owned, nullptr, 0);
    if (status == kSuccess) record_launch(owned->name, "");
    return status;
}

}  // namespace npu_cann
