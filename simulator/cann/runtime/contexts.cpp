// Contexts of threads: a primary context of each device, and contexts that a program creates.
#include "cann/runtime/contexts.h"

#include <map>
#include <memory>
#include <mutex>

#include "cann/runtime/allocations.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// A context handle is the address of this struct.
struct Context {
    ContextId id;
    bool was_device_reset = false;  // after the context was created
};

// The primary context of a device counts the calls of aclrtSetDevice of all threads. The last reset ends it for every
// thread (hicann/runtime src/runtime/core/src/runtime.cc, Runtime::PrimaryContextRetain and ::PrimaryContextRelease).
struct PrimaryContext {
    int64_t set_device_calls = 0;
    Context context;  // after the last reset it gets another number
};

std::mutex mutex;
const ForkLock fork_lock(LockRank::kContexts, &mutex);
uint64_t last_number = 0;
std::map<int32_t, PrimaryContext> primary_contexts;  // by device
std::map<Context*, std::unique_ptr<Context>> created_contexts;
thread_local uint64_t thread_context = 0;  // the number of the context that this thread set
int32_t default_device = kNoDevice;        // aclInit's

// The functions below need the mutex.
PrimaryContext& primary_context_of(int32_t device) {
    PrimaryContext& primary = primary_contexts[device];
    if (!primary.context.id.number) primary.context.id = {++last_number, device};
    return primary;
}

void set_device(int32_t device) {
    PrimaryContext& primary = primary_context_of(device);
    ++primary.set_device_calls;
    thread_context = primary.context.id.number;
}

Context* find_current_context() {
    if (!thread_context) return nullptr;
    for (auto& [device, primary] : primary_contexts)
        if (primary.set_device_calls > 0 && primary.context.id.number == thread_context) return &primary.context;
    for (const auto& [context, owned] : created_contexts)
        if (context->id.number == thread_context) return context;
    return nullptr;
}

size_t number_of_created_contexts(int32_t device) {
    size_t count = 0;
    for (const auto& [context, owned] : created_contexts) count += context->id.device == device;
    return count;
}

bool is_live(Context* context) {
    for (const auto& [device, primary] : primary_contexts)
        if (context == &primary.context) return primary.set_device_calls > 0;
    return created_contexts.count(context) > 0;
}

// Ends a context, which is no longer in the tables. The device's memory ends with its last context: the driver closes
// the device (hicann/runtime src/runtime/core/src/runtime.cc, Runtime::DeviceRelease; src/runtime/core/src/device/
// raw_device.cc, RawDevice::ReleaseDriverResourcesOnDestroy), and with it the memory (hicann/driver src/ascend_hal/svm/
// v2/devmm/devmm_svm.c, drvMemDeviceClose). Memory that another thread allocates meanwhile stays.
aclError end(ContextId ended, const char* call) {
    const aclError error = end_context(ended.number, call);
    const uint64_t last = last_allocation(), last_physical = last_physical_memory();
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (number_of_created_contexts(ended.device) || primary_context_of(ended.device).set_device_calls > 0)
            return error;
    }
    while (void* first = find_allocation_of(ended.device, last)) free_and_report(first, FreedBy::kDevice);
    free_physical_memory(ended.device, last_physical);
    return error;
}

}  // namespace

ContextId current_context() {
    std::lock_guard<std::mutex> lock(mutex);
    // hicann/runtime src/runtime/core/src/runtime.cc, CurrentContext: sets the default device.
    if (!thread_context && default_device != kNoDevice) set_device(default_device);
    const Context* context = find_current_context();
    return context ? context->id : ContextId();
}

size_t number_of_contexts(int32_t device) {
    std::lock_guard<std::mutex> lock(mutex);
    return 1 + number_of_created_contexts(device);
}

void set_default_device(int32_t device) {
    std::lock_guard<std::mutex> lock(mutex);
    default_device = device;
}

bool is_device_set(int32_t device) {
    std::lock_guard<std::mutex> lock(mutex);
    const Context* context = find_current_context();
    return primary_context_of(device).set_device_calls > 0 || (context && context->id.device == device);
}

aclError check_context(const char* call) {
    if (current_device() != kNoDevice) return kSuccess;
    return fail(kContextNull, call, "a device must be set on this thread first (aclrtSetDevice).");
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetDevice and ::DeviceReset.
aclError check_device(const char* call, int32_t device) {
    const int32_t count = device_count();
    if (device >= 0 && device < count) return kSuccess;
    std::string rule = "deviceId must be 0 to " + std::to_string(count - 1);
    if (count == 1) rule = "deviceId must be 0, the one device that is simulated,";
    if (count == 0) rule = "deviceId must be a device of ASCEND_RT_VISIBLE_DEVICES, which names none,";
    return fail(kRtInvalidDevice, call, rule, device);
}

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtSetDevice(int32_t device) {
    announce_simulation();
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    set_device(device);
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetDevice(int32_t* device) {
    if (!device) return fail(kInvalidParam, __func__, "deviceId must not be null.");
    const int32_t current = current_device();
    if (current == kNoDevice) return kContextNull;  // no message: torch_npu calls this before it sets the device
    *device = current;
    return kSuccess;
}
// The last reset waits for the work of the primary context (hicann/runtime docs/zh/api_ref/04_device_management.md).
NPU_CANN_API aclError aclrtResetDevice(int32_t device) {
    if (aclError error = check_device(__func__, device)) return error;
    ContextId ended;
    {
        std::lock_guard<std::mutex> lock(mutex);
        PrimaryContext& primary = primary_context_of(device);
        if (primary.set_device_calls == 0)
            return fail(kContextReleased, __func__, "deviceId must be a device that is set.");
        if (--primary.set_device_calls > 0) return kSuccess;
        ended = primary.context.id;
        primary.context.id.number = ++last_number;
        for (const auto& [context, owned] : created_contexts)
            context->was_device_reset = context->was_device_reset || context->id.device == device;
    }
    return end(ended, __func__);
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextCreate: the new context becomes the context of this thread.
NPU_CANN_API aclError aclrtCreateContext(void** out, int32_t device) {
    announce_simulation();
    if (!out) return fail(kInvalidParam, __func__, "context must not be null.");
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    auto owned = std::make_unique<Context>();
    owned->id = {++last_number, device};
    thread_context = owned->id.number;
    *out = owned.get();
    created_contexts[owned.get()] = std::move(owned);
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextDestroy: the primary context cannot be destroyed. If this
// thread used the destroyed context, it has no context afterwards.
NPU_CANN_API aclError aclrtDestroyContext(void* context) {
    if (!context) return fail(kInvalidParam, __func__, "context must not be null.");
    ContextId ended;
    {
        std::lock_guard<std::mutex> lock(mutex);
        auto found = created_contexts.find(static_cast<Context*>(context));
        if (found == created_contexts.end())
            return fail(kContextNull, __func__, "context must be one that aclrtCreateContext made.");
        ended = found->second->id;
        created_contexts.erase(found);
    }
    return end(ended, __func__);
}
NPU_CANN_API aclError aclrtGetCurrentContext(void** out) {
    if (!out) return fail(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    Context* const context = find_current_context();
    if (!context) return kContextNull;
    *out = context;
    return kSuccess;
}
// hicann/runtime docs/zh/api_ref/05_context_management.md excludes contexts of a device that was reset; the source
// (api_impl.cc, ContextSetCurrent) accepts them.
NPU_CANN_API aclError aclrtSetCurrentContext(void* wanted) {
    if (!wanted) return fail(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    auto* const context = static_cast<Context*>(wanted);
    if (!is_live(context)) return fail(kRtInvalid, __func__, "context must be one that exists.");
    if (context->was_device_reset)
        count_beyond_document("aclrtSetCurrentContext with a context whose device was reset");
    thread_context = context->id.number;
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/context.cpp, aclrtGetPrimaryCtxStateImpl: flags is reserved.
// src/runtime/core/src/runtime.cc, GetPrimaryCtxState: whether any thread has set the device.
NPU_CANN_API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
    if (!active) return fail(kInvalidParam, __func__, "active must not be null.");
    if (flags) return fail(kInvalidParam, __func__, "flags must be null.");
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    *active = primary_context_of(device).set_device_calls > 0;
    return kSuccess;
}
