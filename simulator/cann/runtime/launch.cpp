// Queues executors on streams.
#include <cstring>
#include <memory>
#include <unordered_map>

#include "cann/locked.h"
#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// Converts the error of an executor to the status of a kernel exception. A later wait for the stream returns this
// status. With immediate streams, the error is not converted, and the launch returns kLaunchRefused.
int32_t to_kernel_status(int32_t status) {
    return status == kSuccess || stream_order() == Order::kImmediate ? status : kernel_exception();
}

int32_t run_executor(const aclOpExecutor& executor, void* workspace, uint64_t workspace_bytes) {
    try {
        return executor.run(workspace, workspace_bytes);
    } catch (const std::exception& error) {
        return fail(kInternalError, executor.name + ": " + error.what());
    }
}

int32_t run_on_stream(const aclOpExecutor& executor, void* workspace, uint64_t workspace_bytes) {
    return to_kernel_status(run_executor(executor, workspace, workspace_bytes));
}

// Checks the guard zones before and after the executor runs. So damage that is found afterwards is caused by the
// executor.
int32_t run_guarded(const aclOpExecutor& executor, void* workspace, uint64_t workspace_bytes) {
    check_guards("before " + executor.name + " was launched", GuardCheck::kFull);
    int32_t status = run_on_stream(executor, workspace, workspace_bytes);
    if (status != kSuccess) return status;
    std::string damage = check_guards("after " + executor.name + " had run", GuardCheck::kFull);
    return damage.empty() ? kSuccess : fail(kDeviceMemoryError, executor.name + ": " + damage);
}

MemoryAccess workspace_access(void* workspace, uint64_t bytes) {
    return {kWorkspace, static_cast<char*>(workspace), {int64_t(bytes)}, {1}, 1, true, true};
}

// aclnn's status for every launch that the runtime refuses. In CANN, only the text contains the code of the runtime
// (hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp, NnopbaseExecutorRunWithWorkspace;
// src/nnopbase/composite_op/aclnn_engine/rts_arg.cpp, RtsArg::LaunchKernel).
constexpr int32_t kLaunchRefused = 361001;

constexpr int kJunkByte = 0xFF;  // NaN in every floating-point type

// Checks the workspace of a stand-in's second phase. CANN refuses only a NULL workspace with a size (hicann/opbase
// src/nnopbase/composite_op/aclnn_engine/op_executor.cpp, CommonOpExecutorRun). In CANN, a workspace that is smaller
// than the first phase asked for would be overrun. Here it is an error.
int32_t check_workspace(const aclOpExecutor& executor, void* workspace, uint64_t bytes) {
    if (bytes && !workspace) return fail(kAclnnNullptr, executor.name, "workspace must not be null.");
    if (bytes < executor.workspace_bytes)
        return fail(kAclnnInvalidParam, executor.name,
                    "workspace must have the " + std::to_string(executor.workspace_bytes) +
                        " bytes that GetWorkspaceSize returned",
                    bytes);
    if (!executor.workspace_bytes) return kSuccess;
    void* allocation = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(workspace, &allocation, &allocation_bytes))
        return fail(kAclnnInvalidParam, executor.name, "workspace must be in device memory.");
    const auto begin = static_cast<uint64_t>(static_cast<char*>(workspace) - static_cast<char*>(allocation));
    if (begin + executor.workspace_bytes > allocation_bytes)
        return fail(kAclnnInvalidParam, executor.name, "workspace must end inside its allocation.");
    return kSuccess;
}

// The executors of stand-ins that wait for their second phase.
struct StandInExecutors {
    std::unordered_map<const aclOpExecutor*, std::unique_ptr<aclOpExecutor>> by_handle;
};

const ForkLock executors_lock(LockRank::kLast, &Locked<StandInExecutors>::mutex());

// Null if the executor does not wait for its second phase.
std::unique_ptr<aclOpExecutor> take_executor(const aclOpExecutor* executor) {
    Locked<StandInExecutors> executors;
    auto found = executors->by_handle.find(executor);
    if (found == executors->by_handle.end()) return nullptr;
    std::unique_ptr<aclOpExecutor> taken = std::move(found->second);
    executors->by_handle.erase(found);
    return taken;
}

// CANN deletes the executor after the second phase, unless it is repeatable (hicann/opbase
// src/nnopbase/composite_op/aclnn_engine/op_executor.cpp, CommonOpExecutorRun). In CANN, a second run of such an
// executor is undefined.
aclError refuse_used_executor(const char* call) {
    return fail(kAclnnInvalidParam, call, "executor must come from a first phase and run only once.");
}

int32_t submit_to(void* handle, Work work) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return fail(kLaunchRefused, work.name, "stream must be one that exists.");
    if (check_stream_context(work.name.c_str(), *stream)) return kLaunchRefused;
    return submit(stream, std::move(work)) == kSuccess ? kSuccess : kLaunchRefused;
}

}  // namespace

aclOpExecutor* keep_executor(std::unique_ptr<aclOpExecutor> executor) {
    aclOpExecutor* handle = executor.get();
    Locked<StandInExecutors>()->by_handle[handle] = std::move(executor);
    return handle;
}

bool destroy_executor(const aclOpExecutor* executor) { return take_executor(executor) != nullptr; }

int32_t launch(void* workspace, uint64_t workspace_bytes, std::unique_ptr<const aclOpExecutor> executor, void* stream) {
    std::shared_ptr<const aclOpExecutor> owned(std::move(executor));
    // Host calls run immediately, without streams.
    if (host_calls()) return run_executor(*owned, workspace, workspace_bytes);
    Work work(Work::Kind::kDevice, owned->name);
    work.is_kernel = true;
    work.accesses = owned->accesses;
    if (workspace && workspace_bytes) work.accesses.push_back(workspace_access(workspace, workspace_bytes));
    work.run = [owned, workspace, workspace_bytes] { return run_guarded(*owned, workspace, workspace_bytes); };
    return submit_to(stream, std::move(work));
}

int32_t launch_stand_in(const char* name, void* workspace, uint64_t bytes, aclOpExecutor* executor, void* stream) {
    if (!executor) return refuse_null_executor();
    std::unique_ptr<aclOpExecutor> taken = take_executor(executor);
    if (!taken) return refuse_used_executor(name);
    if (int32_t error = check_workspace(*taken, workspace, bytes)) {
        keep_executor(std::move(taken));
        return error;
    }
    std::shared_ptr<const aclOpExecutor> owned(std::move(taken));
    if (host_calls()) {
        if (owned->workspace_bytes) std::memset(workspace, kJunkByte, owned->workspace_bytes);
        return run_executor(*owned, workspace, bytes);
    }
    // CANN's own operators search the packages for static kernels, and the first search reads the packages
    // (hicann/opbase src/nnopbase/composite_op/aclnn_engine/op_kernel.h, SelectStaticBin; individual_op_api.cpp,
    // NnopbaseFindStaticKernel). In CANN, only some operators search; here every stand-in does.
    operator_packages();
    Work work(Work::Kind::kDevice, owned->name);
    work.is_kernel = true;
    work.accesses = owned->accesses;
    const uint64_t used_bytes = owned->workspace_bytes;
    if (used_bytes) work.accesses.push_back(workspace_access(workspace, used_bytes));
    work.run = [owned, workspace, used_bytes] {
        if (used_bytes) std::memset(workspace, kJunkByte, used_bytes);
        int32_t status = run_on_stream(*owned, nullptr, 0);
        if (status == kSuccess) record_launch(owned->name, "");
        return status;
    };
    return submit_to(stream, std::move(work));
}

}  // namespace simulated_cann
