// Contexts of threads: the device's own one, and those that a program creates. There is one device, 0.
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

// hicann/runtime src/runtime/core/src/runtime.cc, Runtime::PrimaryContextRetain and ::PrimaryContextRelease: the
// device's own context counts the aclrtSetDevice calls of all threads. The last reset ends it for every thread.
std::mutex mutex;
int64_t times_set = 0;
Context primary{1};  // the current one, or the next one
uint64_t last_number = 1;
std::map<Context*, std::unique_ptr<Context>> created;
thread_local uint64_t thread_context = 0;  // the number of the context that this thread set

// The functions below need the mutex.
Context* current() {
    if (times_set > 0 && thread_context == primary.number) return &primary;
    for (const auto& [context, owned] : created)
        if (context->number == thread_context) return context;
    return nullptr;
}

bool exists(Context* context) { return context == &primary ? times_set > 0 : created.count(context) > 0; }

}  // namespace

aclError no_context(const char* call) {
    std::lock_guard<std::mutex> lock(mutex);
    if (current()) return kSuccess;
    return failed(kContextNull, call, "a device must be set on this thread first (aclrtSetDevice).");
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetDevice and ::DeviceReset.
aclError refuse_device(const char* call, int32_t device) {
    if (device >= 0 && uint32_t(device) < kDevices) return kSuccess;
    return failed(kRtInvalidDevice, call, "deviceId must be 0, the one device that is simulated,", device);
}

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtSetDevice(int32_t device) {
    if (aclError refused = refuse_device(__func__, device)) return refused;
    std::lock_guard<std::mutex> lock(mutex);
    ++times_set;
    thread_context = primary.number;
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetDevice(int32_t* device) {
    if (!device) return failed(kInvalidParam, __func__, "deviceId must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!current()) return kContextNull;  // no message: torch_npu calls this before it sets the device
    *device = 0;
    return kSuccess;
}
NPU_CANN_API aclError aclrtResetDevice(int32_t device) {
    if (aclError refused = refuse_device(__func__, device)) return refused;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (times_set == 0) return failed(kContextReleased, __func__, "deviceId must be a device that is set.");
        if (--times_set > 0) return kSuccess;
        primary.number = ++last_number;
    }
    reset_context();
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextCreate: the new context is this thread's.
NPU_CANN_API aclError aclrtCreateContext(void** out, int32_t device) {
    if (!out) return failed(kInvalidParam, __func__, "context must not be null.");
    if (aclError refused = refuse_device(__func__, device)) return refused;
    std::lock_guard<std::mutex> lock(mutex);
    auto owned = std::make_unique<Context>(Context{++last_number});
    thread_context = owned->number;
    *out = owned.get();
    created[owned.get()] = std::move(owned);
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ContextDestroy: not the device's own context. This thread has no
// context if the destroyed one was its own.
NPU_CANN_API aclError aclrtDestroyContext(void* context) {
    if (!context) return failed(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!created.erase(static_cast<Context*>(context)))
        return failed(kContextNull, __func__, "context must be one that aclrtCreateContext made.");
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetCurrentContext(void** out) {
    if (!out) return failed(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    if (!current()) return kContextNull;
    *out = current();
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetCurrentContext(void* wanted) {
    if (!wanted) return failed(kInvalidParam, __func__, "context must not be null.");
    std::lock_guard<std::mutex> lock(mutex);
    auto* const context = static_cast<Context*>(wanted);
    if (!exists(context)) return failed(kRtInvalid, __func__, "context must be one that exists.");
    thread_context = context->number;
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/context.cpp, aclrtGetPrimaryCtxStateImpl: flags is reserved.
// src/runtime/core/src/runtime.cc, GetPrimaryCtxState: whether any thread has set the device.
NPU_CANN_API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
    if (!active) return failed(kInvalidParam, __func__, "active must not be null.");
    if (flags) return failed(kInvalidParam, __func__, "flags must be null.");
    if (aclError refused = refuse_device(__func__, device)) return refused;
    std::lock_guard<std::mutex> lock(mutex);
    *active = times_set > 0;
    return kSuccess;
}
