// Streams and events. Work runs to its end when it is launched, on the thread that launches it: a stream's
// order is the order of the calls, an event has happened as soon as it is recorded, and a wait is over at
// once. Two streams never overlap, so a missing wait between them is not found here. Synchronizing a stream
// has nothing to wait for and nothing to find: who launches a kernel looks at the guard zones after it.
#include <atomic>
#include <chrono>
#include <thread>

#include "simulator/cann/runtime/allocations.h"
#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/report.h"

namespace npu_cann {
namespace {

struct Stream {
    int32_t id;
};
struct Event {
    std::atomic<int64_t> nanoseconds{0};  // when it was recorded; 0: never
    int32_t id;
};

std::atomic<int32_t> streams_made{0}, events_made{0};

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

aclError make_stream(void** out, const char* call) {
    if (!out) return failed(kInvalidParam, std::string(call) + ": stream must not be null.");
    *out = new Stream{++streams_made};
    return kSuccess;
}

aclError make_event(void** out, const char* call) {
    if (!out) return failed(kInvalidParam, std::string(call) + ": event must not be null.");
    auto* event = new Event;
    event->id = ++events_made;
    *out = event;
    return kSuccess;
}

Event* event_of(void* handle) { return static_cast<Event*>(handle); }

aclError no_event(const char* call) { return failed(kInvalidParam, std::string(call) + ": event must not be null."); }

}  // namespace

}  // namespace npu_cann

using namespace npu_cann;

NPU_CANN_API aclError aclrtCreateStream(void** out) { return make_stream(out, "aclrtCreateStream"); }
NPU_CANN_API aclError aclrtCreateStreamWithConfig(void** out, uint32_t /*priority*/, uint32_t /*flag*/) {
    return make_stream(out, "aclrtCreateStreamWithConfig");
}
NPU_CANN_API aclError aclrtDestroyStream(void* stream) {
    delete static_cast<Stream*>(stream);
    return kSuccess;
}
NPU_CANN_API aclError aclrtDestroyStreamForce(void* stream) { return aclrtDestroyStream(stream); }
NPU_CANN_API aclError aclrtStreamGetId(void* stream, int32_t* id) {
    if (!id) return failed(kInvalidParam, "aclrtStreamGetId: streamId must not be null.");
    *id = stream ? static_cast<Stream*>(stream)->id : 0;
    return kSuccess;
}
NPU_CANN_API aclError aclrtStreamQuery(void* /*stream*/, int32_t* status) {
    if (!status) return failed(kInvalidParam, "aclrtStreamQuery: status must not be null.");
    *status = 0;  // ACL_STREAM_STATUS_COMPLETE
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetStreamFailureMode(void* /*stream*/, uint64_t /*mode*/) { return kSuccess; }
NPU_CANN_API aclError aclrtSetStreamAttribute(void* /*stream*/, int /*kind*/, void* /*value*/) { return kSuccess; }
NPU_CANN_API aclError aclrtSetStreamOverflowSwitch(void* /*stream*/, uint32_t /*flag*/) { return kSuccess; }
NPU_CANN_API aclError aclrtGetStreamOverflowSwitch(void* /*stream*/, uint32_t* flag) {
    if (flag) *flag = 0;
    return kSuccess;
}

NPU_CANN_API aclError aclrtSynchronizeStream(void* /*stream*/) {
    count_host_wait("aclrtSynchronizeStream");
    return kSuccess;
}
NPU_CANN_API aclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t /*timeout_ms*/) {
    return aclrtSynchronizeStream(stream);
}

// torch_npu does this before it frees a tensor's memory, so that the look has to be a short one.
NPU_CANN_API aclError aclrtSynchronizeDevice() {
    count_host_wait("aclrtSynchronizeDevice");
    std::string damage = check_guards("when the device was synchronized", Look::kGlance);
    return damage.empty() ? kSuccess : failed(kDeviceMemoryError, damage);
}
NPU_CANN_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t /*timeout_ms*/) { return aclrtSynchronizeDevice(); }

NPU_CANN_API aclError aclrtCreateEvent(void** out) { return make_event(out, "aclrtCreateEvent"); }
NPU_CANN_API aclError aclrtCreateEventWithFlag(void** out, uint32_t /*flag*/) {
    return make_event(out, "aclrtCreateEventWithFlag");
}
NPU_CANN_API aclError aclrtCreateEventExWithFlag(void** out, uint32_t /*flag*/) {
    return make_event(out, "aclrtCreateEventExWithFlag");
}
NPU_CANN_API aclError aclrtDestroyEvent(void* event) {
    delete event_of(event);
    return kSuccess;
}
NPU_CANN_API aclError aclrtRecordEvent(void* event, void* /*stream*/) {
    if (!event) return no_event("aclrtRecordEvent");
    event_of(event)->nanoseconds = now();
    return kSuccess;
}
NPU_CANN_API aclError aclrtResetEvent(void* event, void* /*stream*/) {
    if (!event) return no_event("aclrtResetEvent");
    event_of(event)->nanoseconds = 0;
    return kSuccess;
}
NPU_CANN_API aclError aclrtStreamWaitEvent(void* /*stream*/, void* event) {
    return event ? kSuccess : no_event("aclrtStreamWaitEvent");
}
NPU_CANN_API aclError aclrtSynchronizeEvent(void* event) {
    count_host_wait("aclrtSynchronizeEvent");
    return event ? kSuccess : no_event("aclrtSynchronizeEvent");
}
NPU_CANN_API aclError aclrtQueryEventStatus(void* event, int32_t* status) {
    if (!event || !status) return no_event("aclrtQueryEventStatus");
    *status = 1;  // ACL_EVENT_RECORDED_STATUS_COMPLETE
    return kSuccess;
}
NPU_CANN_API aclError aclrtQueryEventWaitStatus(void* event, int32_t* status) {
    if (!event || !status) return no_event("aclrtQueryEventWaitStatus");
    *status = 0;  // ACL_EVENT_WAIT_STATUS_COMPLETE
    return kSuccess;
}
// Host time between the two records: how long the simulation took, nothing about hardware.
NPU_CANN_API aclError aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
    if (!milliseconds || !start || !end) return no_event("aclrtEventElapsedTime");
    if (!event_of(start)->nanoseconds || !event_of(end)->nanoseconds)
        return failed(kInvalidParam, "aclrtEventElapsedTime: both events must have been recorded.");
    *milliseconds = float(double(event_of(end)->nanoseconds - event_of(start)->nanoseconds) * 1e-6);
    return kSuccess;
}
NPU_CANN_API aclError aclrtEventGetTimestamp(void* event, uint64_t* microseconds) {
    if (!event || !microseconds) return no_event("aclrtEventGetTimestamp");
    *microseconds = uint64_t(event_of(event)->nanoseconds / 1000);
    return kSuccess;
}

// Host functions and callbacks run where they are launched, as everything does.
NPU_CANN_API aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int /*block*/, void* /*stream*/) {
    if (!function) return failed(kInvalidParam, "aclrtLaunchCallback: fn must not be null.");
    function(argument);
    return kSuccess;
}
NPU_CANN_API aclError aclrtLaunchHostFunc(void* /*stream*/, void (*function)(void*), void* argument) {
    if (!function) return failed(kInvalidParam, "aclrtLaunchHostFunc: fn must not be null.");
    function(argument);
    return kSuccess;
}
NPU_CANN_API aclError aclrtSubscribeReport(uint64_t /*thread*/, void* /*stream*/) { return kSuccess; }
NPU_CANN_API aclError aclrtUnSubscribeReport(uint64_t /*thread*/, void* /*stream*/) { return kSuccess; }
// Nothing is ever outstanding. A moment's sleep, because callers come back in a loop.
NPU_CANN_API aclError aclrtProcessReport(int32_t /*timeout_ms*/) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return kSuccess;
}
