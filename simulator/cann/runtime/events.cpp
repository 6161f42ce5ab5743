// aclrt's event calls. A wait binds to the event's last record as the wait is called; an event of
// aclrtCreateEventExWithFlag that nothing has recorded is over at once.
#include <chrono>

#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/graphs.h"
#include "simulator/cann/runtime/report.h"
#include "simulator/cann/runtime/scheduler.h"

namespace npu_cann {
namespace {

constexpr int32_t kRecordNotReady = 0, kRecordComplete = 1;  // aclrtEventRecordedStatus
constexpr int32_t kWaitComplete = 0, kWaitNotReady = 1;      // aclrtEventWaitStatus

int32_t events_made = 0;

aclError make_event(void** out, bool is_extended, const char* call) {
    if (!out) return failed(kInvalidParam, std::string(call) + ": event must not be null.");
    auto lock = lock_streams();
    auto* event = new Event;
    event->id = ++events_made;
    event->is_extended = is_extended;
    *out = event;
    return kSuccess;
}

Event* event_of(void* handle) { return static_cast<Event*>(handle); }

aclError no_event(const char* call) { return failed(kInvalidParam, std::string(call) + ": event must not be null."); }

// With the lock.
aclError record(const StreamPtr& stream, Event* event) {
    auto made = event->expected ? std::move(event->expected) : std::make_shared<Record>();
    event->expected = nullptr;
    if (int32_t status = enqueue_record(stream, made)) return status;
    event->latest = made;
    event->capture = nullptr;
    for (const StreamPtr& waiting : event->waiting) {
        waiting->clock.join(made->clock);
        --waiting->waits_for_unrecorded;
    }
    event->waiting.clear();
    return kSuccess;
}

// hicann/runtime src/runtime/core/src/event/event.cc, WaitSendCheck. Events of the older calls wait for the
// record that comes.
aclError wait(const StreamPtr& stream, Event* event) {
    if (event->latest) return enqueue_wait(stream, event->latest);
    if (event->is_extended || stream_order() == Order::kImmediate) return kSuccess;
    if (!event->expected) event->expected = std::make_shared<Record>();
    if (int32_t status = enqueue_wait(stream, event->expected)) return status;
    ++stream->waits_for_unrecorded;
    event->waiting.push_back(stream);
    return kSuccess;
}

// When the event's record happened; a status where it has not.
aclError moment(const Event& event, const char* call, int64_t* nanoseconds) {
    if (!event.latest)
        return failed(kRtInternal, std::string(call) + ": event must have been recorded but nothing recorded it.");
    if (!event.latest->done)
        return failed(kEventTimestampInvalid,
                      std::string(call) + ": event must have happened but its record is still in a queue.");
    *nanoseconds = event.latest->nanoseconds;
    return kSuccess;
}

aclError with_stream(void* event, void* handle, const char* call, aclError (*act)(const StreamPtr&, Event*),
                     bool* is_queued) {
    if (!event) return no_event(call);
    auto lock = lock_streams();
    StreamPtr stream = stream_of(handle);
    if (!stream) return no_stream(call);
    *is_queued = true;
    return act(stream, event_of(event));
}

void run_early_of(void* handle) {
    StreamPtr stream;
    {
        auto lock = lock_streams();
        stream = stream_of(handle);
    }
    if (stream) run_early(stream);
}

aclError act_on(void* event, void* handle, const char* call, aclError (*act)(const StreamPtr&, Event*)) {
    bool is_queued = false;
    const aclError status = with_stream(event, handle, call, act, &is_queued);
    if (status == kSuccess && is_queued) run_early_of(handle);
    return status;
}

}  // namespace
}  // namespace npu_cann

using namespace npu_cann;

NPU_CANN_API aclError aclrtCreateEvent(void** out) { return make_event(out, false, "aclrtCreateEvent"); }
NPU_CANN_API aclError aclrtCreateEventWithFlag(void** out, uint32_t /*flag*/) {
    return make_event(out, false, "aclrtCreateEventWithFlag");
}
NPU_CANN_API aclError aclrtCreateEventExWithFlag(void** out, uint32_t /*flag*/) {
    return make_event(out, true, "aclrtCreateEventExWithFlag");
}
NPU_CANN_API aclError aclrtDestroyEvent(void* event) {
    if (!event) return no_event("aclrtDestroyEvent");
    auto lock = lock_streams();
    delete event_of(event);
    return kSuccess;
}

NPU_CANN_API aclError aclrtRecordEvent(void* event, void* stream) {
    return act_on(event, stream, "aclrtRecordEvent",
                  [](const StreamPtr& s, Event* e) { return is_capturing(*s) ? capture_record(s, e) : record(s, e); });
}

NPU_CANN_API aclError aclrtStreamWaitEvent(void* stream, void* event) {
    return act_on(event, stream, "aclrtStreamWaitEvent", [](const StreamPtr& s, Event* e) {
        return is_capturing(*s) || is_capturing(*e) ? capture_wait(s, e) : wait(s, e);
    });
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, EventReset: not for events of aclrtCreateEventExWithFlag.
NPU_CANN_API aclError aclrtResetEvent(void* event, void* stream) {
    return act_on(event, stream, "aclrtResetEvent", [](const StreamPtr&, Event* e) -> aclError {
        if (e->is_extended)
            return failed(kRtNotSupported, "aclrtResetEvent: event must not be of aclrtCreateEventExWithFlag.");
        e->latest = nullptr;
        return kSuccess;
    });
}

NPU_CANN_API aclError aclrtSynchronizeEvent(void* event) {
    const char* call = "aclrtSynchronizeEvent";
    count_host_wait(call);
    if (!event) return no_event(call);
    std::shared_ptr<Record> latest;
    StreamPtr stream;
    {
        auto lock = lock_streams();
        if (is_capturing(*event_of(event))) return refuse_captured_event(*event_of(event), call);
        if (int32_t error = context_error()) return error;
        latest = event_of(event)->latest;
        if (!latest) return kSuccess;  // event.cc, Synchronize: nothing to wait for
        stream = latest->stream.lock();
    }
    if (!latest->done && stream && !run_until({{stream, latest->position}}))
        return failed(kStreamSyncTimeout, "aclrtSynchronizeEvent: the event's stream waits for what nothing records.");
    auto lock = lock_streams();
    host_knows(latest->clock);
    return context_error();
}

NPU_CANN_API aclError aclrtQueryEventStatus(void* event, int32_t* status) {
    const char* call = "aclrtQueryEventStatus";
    if (!event || !status) return no_event(call);
    Event* e = event_of(event);
    std::shared_ptr<Record> latest;
    StreamPtr stream;
    {
        auto lock = lock_streams();
        if (is_capturing(*e)) return refuse_captured_event(*e, call);
        if (int32_t error = context_error()) return error;
        latest = e->latest;
        // event.cc, QueryEventStatus.
        *status = e->is_extended ? kRecordComplete : kRecordNotReady;
        if (!latest) return kSuccess;
        stream = latest->stream.lock();
    }
    if (!latest->done && stream) run_some({{stream, latest->position}});
    auto lock = lock_streams();
    *status = latest->done ? kRecordComplete : kRecordNotReady;
    if (latest->done) host_knows(latest->clock);
    return kSuccess;
}

// api_error.cc, EventQueryWaitStatus: not for events of aclrtCreateEventExWithFlag.
NPU_CANN_API aclError aclrtQueryEventWaitStatus(void* event, int32_t* status) {
    if (!event || !status) return no_event("aclrtQueryEventWaitStatus");
    auto lock = lock_streams();
    const Event& e = *event_of(event);
    if (e.is_extended)
        return failed(kRtNotSupported, "aclrtQueryEventWaitStatus: event must not be of aclrtCreateEventExWithFlag.");
    *status = e.waiting.empty() && (!e.latest || e.latest->done) ? kWaitComplete : kWaitNotReady;
    return kSuccess;
}

// Host time between the two records: how long the simulation took, nothing about hardware. event.cc,
// ElapsedTime: both must have happened.
NPU_CANN_API aclError aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
    const char* call = "aclrtEventElapsedTime";
    if (!milliseconds || !start || !end) return no_event(call);
    auto lock = lock_streams();
    for (void* one : {start, end})
        if (is_capturing(*event_of(one))) return refuse_captured_event(*event_of(one), call);
    int64_t first = 0, last = 0;
    if (aclError status = moment(*event_of(start), call, &first)) return status;
    if (aclError status = moment(*event_of(end), call, &last)) return status;
    *milliseconds = float(double(last - first) * 1e-6);
    return kSuccess;
}

NPU_CANN_API aclError aclrtEventGetTimestamp(void* event, uint64_t* microseconds) {
    const char* call = "aclrtEventGetTimestamp";
    if (!event || !microseconds) return no_event(call);
    auto lock = lock_streams();
    if (is_capturing(*event_of(event))) return refuse_captured_event(*event_of(event), call);
    int64_t nanoseconds = 0;
    if (aclError status = moment(*event_of(event), call, &nanoseconds)) return status;
    *microseconds = uint64_t(nanoseconds / 1000);
    return kSuccess;
}
