// aclrt's event calls. A wait binds to the event's last record before the wait; a wait for an event of
// aclrtCreateEventExWithFlag that was not recorded passes immediately.
#include <chrono>
#include <cstring>

#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/graphs.h"
#include "simulator/cann/runtime/report.h"
#include "simulator/cann/runtime/scheduler.h"

namespace npu_cann {
namespace {

constexpr int32_t kRecordNotReady = 0, kRecordComplete = 1;  // aclrtEventRecordedStatus
constexpr int32_t kWaitComplete = 0, kWaitNotReady = 1;      // aclrtEventWaitStatus

int32_t events_made = 0;

// Flags of an event: sync 1, capture of a stream's progress 2, sync between devices 4, time line 8, used alone:
// device only 16, external 32, between processes 64.
constexpr uint32_t kDefaultFlags = 0xE, kTimeLine = 0x8, kAlone = 0x70, kBetweenProcesses = 0x40;

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::EventCreate and ::EventCreateEx.
bool are_flags(uint32_t flags, bool is_extended) {
    const uint32_t known = is_extended ? 0x4F : 0x3F;
    return (flags & known) && flags <= known && (!(flags & kAlone) || (flags & (flags - 1)) == 0);
}

aclError make_event(void** out, uint32_t flags, bool is_extended, const char* call) {
    if (!out) return failed(kInvalidParam, std::string(call) + ": event must not be null.");
    if (!are_flags(flags, is_extended))
        return failed(kRtInvalid, std::string(call) + ": flag must be an OR of 1, 2, 4 and 8, or " +
                                      (is_extended ? "64" : "16 or 32") + " alone, but got " + std::to_string(flags) +
                                      ".");
    if (is_extended && flags == kBetweenProcesses && std::strncmp(soc_name(), "Ascend310P", 10) == 0)
        return failed(kRtNotSupported, std::string(call) + ": flag must not be 64, ACL_EVENT_IPC, on this chip.");
    if (aclError refused = no_context(call)) return refused;
    auto lock = lock_streams();
    auto* event = new Event;
    event->id = ++events_made;
    event->is_extended = is_extended;
    event->has_times = flags & kTimeLine;
    *out = event;
    return kSuccess;
}

Event* event_of(void* handle) { return static_cast<Event*>(handle); }

aclError no_event(const char* call) { return failed(kInvalidParam, std::string(call) + ": event must not be null."); }

// Call it with the lock held.
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

// hicann/runtime src/runtime/core/src/event/event.cc, WaitSendCheck. A wait for an event of the older calls waits for
// the next record.
aclError wait(const StreamPtr& stream, Event* event) {
    if (event->latest) return enqueue_wait(stream, event->latest);
    if (event->is_extended || stream_order() == Order::kImmediate) return kSuccess;
    if (!event->expected) event->expected = std::make_shared<Record>();
    if (int32_t status = enqueue_wait(stream, event->expected)) return status;
    ++stream->waits_for_unrecorded;
    event->waiting.push_back(stream);
    return kSuccess;
}

// The time of the event's record, or a status if it has not happened. Only events with the flag ACL_EVENT_TIME_LINE
// have a time (hicann/runtime src/runtime/core/src/task/task_info/event/event_task.cc; event.cc,
// Event::ElapsedTime).
aclError moment(const Event& event, const char* call, int64_t* nanoseconds) {
    if (!event.latest)
        return failed(kRtInternal, std::string(call) + ": event must have been recorded but nothing recorded it.");
    if (!event.latest->done)
        return failed(kEventTimestampInvalid,
                      std::string(call) + ": event must have happened but its record is still in a queue.");
    if (!event.has_times)
        return failed(kEventTimestampInvalid, std::string(call) +
                                                  ": event must be made with the flag 8, ACL_EVENT_TIME_LINE "
                                                  "(torch.npu.Event(enable_timing=True)).");
    *nanoseconds = event.latest->nanoseconds;
    return kSuccess;
}

aclError with_stream(void* event, void* handle, const char* call, aclError (*act)(const StreamPtr&, Event*),
                     bool* is_queued) {
    if (!event) return no_event(call);
    if (aclError refused = no_context(call)) return refused;
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

NPU_CANN_API aclError aclrtCreateEvent(void** out) { return make_event(out, kDefaultFlags, false, "aclrtCreateEvent"); }
NPU_CANN_API aclError aclrtCreateEventWithFlag(void** out, uint32_t flag) {
    return make_event(out, flag, false, "aclrtCreateEventWithFlag");
}
NPU_CANN_API aclError aclrtCreateEventExWithFlag(void** out, uint32_t flag) {
    return make_event(out, flag, true, "aclrtCreateEventExWithFlag");
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
        if (!latest) return kSuccess;  // event.cc, Synchronize: no record to wait for
        stream = latest->stream.lock();
    }
    if (!latest->done && stream && !run_until({{stream, latest->position}})) {
        auto lock = lock_streams();
        if (int32_t error = context_error()) return error;
        return failed(kStreamSyncTimeout, "aclrtSynchronizeEvent: the event's stream waits for what nothing records.");
    }
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

// Host time between the two records, which is the duration of the simulation and unrelated to hardware. event.cc,
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
