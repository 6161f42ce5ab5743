// Contexts of threads: the primary context of device 0, the only device, and contexts that a program creates.
#include "cann/runtime/contexts.h"

#include <map>
#include <memory>
#include <mutex>

#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// A context handle is the address of this struct.
struct Context {
    uint64_t number;
};

// The primary context counts the calls of aclrtSetDevice of all threads. The last reset ends it for every thread
// (hicann/runtime src/runtime/core/src/runtime.cc, Runtime::PrimaryContextRetain and ::PrimaryContextRelease).
std::mutex mutex;
int64_t set_device_calls = 0;
Context primary_context{1};  // of the device. After the last reset it gets the next number.
uint64_t last_number = 1;
std::map<Context*, std::unique_ptr<Context>> created_contexts;
thread_local uint64_t thread_context = 0;  // the number of the context that this thread set

// The functions below need the mutex.
Context* current_context() {
    if (set_device_calls > 0 && thread_context == primary_context.number) return &primary_context;
    for (const auto& [context, owned] : created_contexts)
        if (context->number == thread_context) return context;
    return nullptr;
}

bool is_live(Context* context) {
    return context == &primary_context ? set_device_calls > 0 : created_contexts.count(context) > 0;
}

}  // namespace

aclError check_context(const char* call) {
    std::lock_guard<std::mutex> lock(mutex);
    if (current_context()) return kSuccess;
    return fail(kContextNull, call, "a device must be set on this thread first (aclrtSetDevice).");
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetDevice and ::DeviceReset.
aclError check_device(const char* call, int32_t device) {
    if (device >= 0 && uint32_t(device) < kDeviceCount) return kSuccess;
    return fail(kRtInvalidDevice, call, "deviceId must be 0, the one device that is simulated,", device);
}

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtSetDevice(int32_t device) {
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    ++set_device_calls;
    thread_context = primary_context.number;
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetDevice(int32_t* device) {
    if (!device) return fail(kInvalidParam, __func__, "deviceId must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!current_context()) return kContextNull;  // no message: torch_npu calls this before it sets the device
    *device = 0;
    return kSuccess;
}
NPU_CANN_API aclError aclrtResetDevice(int32_t device) {
    if (aclError error = check_device(__func__, device)) return error;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (set_device_calls == 0) return fail(kContextReleased, __func__, "deviceId must be a device that is set.");
        if (--set_device_calls > 0) return kSuccess;
        primary_context.number = ++last_number;
    }
    reset_context();
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextCreate: the new context becomes the context of this thread.
NPU_CANN_API aclError aclrtCreateContext(void** out, int32_t device) {
    if (!out) return fail(kInvalidParam, __func__, "context must not be null.");
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    auto owned = std::make_unique<Context>(Context{++last_number});
    thread_context = owned->number;
    *out = owned.get();
    created_contexts[owned.get()] = std::move(owned);
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextDestroy: the primary context cannot be destroyed. If this
// thread used the destroyed context, it has no context afterwards.
NPU_CANN_API aclError aclrtDestroyContext(void* context) {
    if (!context) return fail(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!created_contexts.erase(static_cast<Context*>(context)))
        return fail(kContextNull, __func__, "context must be one that aclrtCreateContext made.");
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetCurrentContext(void** out) {
    if (!out) return fail(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!current_context()) return kContextNull;
    *out = current_context();
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetCurrentContext(void* wanted) {
    if (!wanted) return fail(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    auto* const context = static_cast<Context*>(wanted);
    if (!is_live(context)) return fail(kRtInvalid, __func__, "context must be one that exists.");
    thread_context = context->number;
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/context.cpp, aclrtGetPrimaryCtxStateImpl: flags is reserved.
// src/runtime/core/src/runtime.cc, GetPrimaryCtxState: whether any thread has set the device.
NPU_CANN_API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
    if (!active) return fail(kInvalidParam, __func__, "active must not be null.");
    if (flags) return fail(kInvalidParam, __func__, "flags must be null.");
    if (aclError error = check_device(__func__, device)) return error;
    std::lock_guard<std::mutex> lock(mutex);
    *active = set_device_calls > 0;
    return kSuccess;
}
