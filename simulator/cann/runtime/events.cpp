// aclrt's event calls. A wait binds to the event's last record before the wait; a wait for an event of
// aclrtCreateEventExWithFlag that was not recorded passes immediately.
#include <unordered_map>

#include "cann/runtime/api.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr int32_t kRecordNotReady = 0, kRecordComplete = 1;  // aclrtEventRecordedStatus
constexpr int32_t kWaitComplete = 0, kWaitNotReady = 1;      // aclrtEventWaitStatus

int32_t events_made = 0;

// Handles are numbers that no address and no later event equals, so that a destroyed event's handle stays invalid.
// Never destroyed, because events are destroyed while the process ends.
using Events = std::unordered_map<void*, std::unique_ptr<Event>>;
Events& live_events() {
    static auto* instance = new Events;
    return *instance;
}
void* new_handle(int32_t id) { return reinterpret_cast<void*>(0xE000000000000000 + 16 * uint64_t(id)); }

constexpr uint32_t kDefaultFlags = kEventProgress | kEventSyncOfDevices | kEventTimeLine;
constexpr uint32_t kCombinable = kEventSync | kDefaultFlags;
constexpr uint32_t kSingle = kEventOfDevice | kEventExternal | kEventOfProcesses;

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::EventCreate and ::EventCreateEx.
bool are_valid_flags(uint32_t flags, bool is_extended) {
    const uint32_t known = kCombinable | (is_extended ? kEventOfProcesses : kEventOfDevice | kEventExternal);
    return (flags & known) && flags <= known && (!(flags & kSingle) || (flags & (flags - 1)) == 0);
}

aclError make_event(void** out, uint32_t flags, bool is_extended, const char* call) {
    if (!out) return failed(kInvalidParam, call, "event must not be null.");
    if (!are_valid_flags(flags, is_extended))
        return failed(
            kRtInvalid, call,
            std::string("flag must be an OR of 1, 2, 4 and 8, or ") + (is_extended ? "64" : "16 or 32") + " alone,",
            flags);
    if (is_extended && flags == kEventOfProcesses && is_ascend310p())
        return failed(kRtNotSupported, call, "flag must not be 64, ACL_EVENT_IPC, on this chip.");
    if (aclError refused = no_context(call)) return refused;
    auto lock = lock_streams();
    auto event = std::make_unique<Event>();
    event->id = ++events_made;
    event->is_extended = is_extended;
    event->flags = flags;
    *out = new_handle(event->id);
    live_events()[*out] = std::move(event);
    return kSuccess;
}

aclError no_event(const char* call) { return failed(kInvalidParam, call, "event must not be null."); }

// Finds the event of a handle that is not null. Callers hold the lock.
aclError take_event(void* handle, const char* call, Event** out) {
    auto found = live_events().find(handle);
    if (found == live_events().end()) return no_object(call, "event");
    *out = found->second.get();
    return kSuccess;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::EventRecord, ::StreamWaitEvent and ::EventReset.
aclError refuse_event_of_device(const Event& event, const char* call) {
    if (event.flags != kEventOfDevice) return kSuccess;
    return failed(kRtInvalid, call, "event must not have the flag 16, ACL_EVENT_DEVICE_USE_ONLY.");
}

// hicann/runtime src/runtime/api/impl/api_error.cc: the functions of refuse_event_of_device, ::EventSynchronize,
// ::EventQueryStatus, ::EventQueryWaitStatus, ::EventElapsedTime and ::EventGetTimeStamp.
aclError refuse_flag(const Event& event, uint32_t flag, const char* call) {
    if (event.flags != flag) return kSuccess;
    return failed(kRtNotSupported, call,
                  "event must not have the flag " + std::to_string(flag) +
                      (flag == kEventExternal ? ", ACL_EVENT_EXTERNAL." : ", ACL_EVENT_IPC."));
}

aclError refuse_unwaitable(const Event& event, const char* call) {
    if (can_be_waited_for(event)) return kSuccess;
    return failed(kRtNotSupported, call, "event must have the flag 1, ACL_EVENT_SYNC,", event.flags);
}

// Callers hold the lock.
aclError record(const StreamPtr& stream, Event* event) {
    auto new_record = event->expected ? std::move(event->expected) : std::make_shared<Record>();
    event->expected = nullptr;
    if (int32_t status = enqueue_record(stream, new_record)) return status;
    event->latest = new_record;
    event->capture = nullptr;
    for (const StreamPtr& waiting : event->waiting) {
        waiting->clock.join(new_record->clock);
        --waiting->waits_for_unrecorded;
    }
    event->waiting.clear();
    return kSuccess;
}

// hicann/runtime src/runtime/core/src/event/event.cc, WaitSendCheck. If the event was not recorded, a wait passes for
// an extended event, and else waits for the next record. Immediate streams never wait.
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
aclError record_time(const Event& event, const char* call, int64_t* nanoseconds) {
    if (!event.latest) return failed(kRtInternal, call, "event must have been recorded but nothing recorded it.");
    if (!event.latest->done)
        return failed(kEventTimestampInvalid, call, "event must have happened but its record is still in a queue.");
    if (!(event.flags & kEventTimeLine))
        return failed(kEventTimestampInvalid, call,
                      "event must be made with the flag 8, ACL_EVENT_TIME_LINE (torch.npu.Event(enable_timing=True)).");
    *nanoseconds = event.latest->nanoseconds;
    return kSuccess;
}

using Refusal = aclError (*)(const StreamPtr&, const Event&, const char* call);

aclError refuse_record(const StreamPtr& stream, const Event& event, const char* call) {
    if (aclError refused = refuse_event_of_device(event, call)) return refused;
    return is_capturing(*stream) ? refuse_flag(event, kEventOfProcesses, call) : kSuccess;
}
aclError refuse_wait(const StreamPtr& stream, const Event& event, const char* call) {
    if (aclError refused = refuse_record(stream, event, call)) return refused;
    return refuse_unwaitable(event, call);
}
aclError refuse_reset(const StreamPtr&, const Event& event, const char* call) {
    if (aclError refused = refuse_event_of_device(event, call)) return refused;
    if (aclError refused = refuse_flag(event, kEventOfProcesses, call)) return refused;
    return refuse_unwaitable(event, call);
}

aclError act_on(void* handle, void* stream_handle, const char* call, Refusal refuse,
                aclError (*act)(const StreamPtr&, Event*)) {
    if (!handle) return no_event(call);
    StreamPtr stream;
    {
        auto lock = lock_streams();
        Event* event = nullptr;
        if (aclError refused = take_event(handle, call, &event)) return refused;
        stream = stream_of(stream_handle);
        if (!stream) return no_stream(call);
        if (aclError refused = refuse(stream, *event, call)) return refused;
        if (aclError refused = no_context(call)) return refused;
        if (aclError status = act(stream, event)) return status;
    }
    run_early(stream);
    return kSuccess;
}

// An event's last record when the host queries it, and the record's stream; null if there is none.
struct LatestRecord {
    std::shared_ptr<Record> record;
    StreamPtr stream;
    bool is_extended = false;  // the event's
};

aclError take_latest(void* handle, const char* call, LatestRecord* out) {
    if (!handle) return no_event(call);
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError refused = take_event(handle, call, &event)) return refused;
    if (aclError refused = refuse_flag(*event, kEventExternal, call)) return refused;
    if (is_capturing(*event)) return refuse_captured_event(*event, call);
    if (int32_t error = context_error()) return error;
    *out = {event->latest, event->latest ? event->latest->stream.lock() : nullptr, event->is_extended};
    return kSuccess;
}

aclError refuse_without_time(std::initializer_list<const Event*> events, const char* call) {
    for (uint32_t flag : {kEventExternal, kEventOfProcesses})
        for (const Event* event : events)
            if (aclError refused = refuse_flag(*event, flag, call)) return refused;
    return kSuccess;
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtCreateEvent(void** out) { return make_event(out, kDefaultFlags, false, __func__); }
NPU_CANN_API aclError aclrtCreateEventWithFlag(void** out, uint32_t flag) {
    return make_event(out, flag, false, __func__);
}
NPU_CANN_API aclError aclrtCreateEventExWithFlag(void** out, uint32_t flag) {
    return make_event(out, flag, true, __func__);
}
NPU_CANN_API aclError aclrtDestroyEvent(void* handle) {
    if (!handle) return no_event(__func__);
    auto lock = lock_streams();
    return live_events().erase(handle) ? kSuccess : no_object(__func__, "event");
}

NPU_CANN_API aclError aclrtRecordEvent(void* event, void* stream) {
    return act_on(event, stream, __func__, refuse_record,
                  [](const StreamPtr& s, Event* e) { return is_capturing(*s) ? capture_record(s, e) : record(s, e); });
}

NPU_CANN_API aclError aclrtStreamWaitEvent(void* stream, void* event) {
    return act_on(event, stream, __func__, refuse_wait, [](const StreamPtr& s, Event* e) {
        return is_capturing(*s) || is_capturing(*e) ? capture_wait(s, e) : wait(s, e);
    });
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, EventReset: not for events of aclrtCreateEventExWithFlag.
// On a captured stream, only an external event is reset (event_capture.cc, Event::ToBeCaptured).
NPU_CANN_API aclError aclrtResetEvent(void* event, void* stream) {
    return act_on(event, stream, __func__, refuse_reset, [](const StreamPtr& s, Event* e) -> aclError {
        if (e->is_extended)
            return failed(kRtNotSupported, "aclrtResetEvent", "event must not be of aclrtCreateEventExWithFlag.");
        if (is_capturing(*s) && e->flags != kEventExternal)
            return failed(kRtNotSupported, "aclrtResetEvent", "stream must not be in a capture.");
        e->latest = nullptr;
        return kSuccess;
    });
}

NPU_CANN_API aclError aclrtSynchronizeEvent(void* handle) {
    count_host_wait(__func__);
    LatestRecord latest;
    if (aclError refused = take_latest(handle, __func__, &latest)) return refused;
    if (!latest.record) return kSuccess;  // event.cc, Synchronize: no record to wait for
    if (!latest.record->done && latest.stream && !run_until({{latest.stream, latest.record->position}})) {
        auto lock = lock_streams();
        if (int32_t error = context_error()) return error;
        return failed(kStreamSyncTimeout, __func__, "the event's stream waits for an event that nothing records.");
    }
    auto lock = lock_streams();
    note_host_wait(latest.record->clock);
    return context_error();
}

NPU_CANN_API aclError aclrtQueryEventStatus(void* handle, int32_t* status) {
    if (!status) return failed(kInvalidParam, __func__, "status must not be null.");
    LatestRecord latest;
    if (aclError refused = take_latest(handle, __func__, &latest)) return refused;
    if (!latest.record) {
        *status = latest.is_extended ? kRecordComplete : kRecordNotReady;  // event.cc, QueryEventStatus
        return kSuccess;
    }
    if (!latest.record->done && latest.stream) run_some({{latest.stream, latest.record->position}});
    auto lock = lock_streams();
    *status = latest.record->done ? kRecordComplete : kRecordNotReady;
    if (latest.record->done) note_host_wait(latest.record->clock);
    return kSuccess;
}

// api_error.cc, EventQueryWaitStatus: not for events of aclrtCreateEventExWithFlag.
NPU_CANN_API aclError aclrtQueryEventWaitStatus(void* handle, int32_t* status) {
    if (!handle || !status) return failed(kInvalidParam, __func__, "event and status must not be null.");
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError refused = take_event(handle, __func__, &event)) return refused;
    if (event->is_extended)
        return failed(kRtNotSupported, __func__, "event must not be of aclrtCreateEventExWithFlag.");
    if (aclError refused = refuse_flag(*event, kEventExternal, __func__)) return refused;
    *status = event->waiting.empty() && (!event->latest || event->latest->done) ? kWaitComplete : kWaitNotReady;
    return kSuccess;
}

// Host time between the two records, which is the duration of the simulation and unrelated to hardware. event.cc,
// ElapsedTime: both must have happened.
NPU_CANN_API aclError aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
    if (!milliseconds || !start || !end) return failed(kInvalidParam, __func__, "arguments must not be null.");
    auto lock = lock_streams();
    Event* events[2] = {};
    if (aclError refused = take_event(start, __func__, &events[0])) return refused;
    if (aclError refused = take_event(end, __func__, &events[1])) return refused;
    for (const Event* event : events)
        if (is_capturing(*event)) return refuse_captured_event(*event, __func__);
    if (aclError refused = refuse_without_time({events[0], events[1]}, __func__)) return refused;
    int64_t first = 0, last = 0;
    if (aclError status = record_time(*events[0], __func__, &first)) return status;
    if (aclError status = record_time(*events[1], __func__, &last)) return status;
    *milliseconds = float(double(last - first) * 1e-6);
    return kSuccess;
}

NPU_CANN_API aclError aclrtEventGetTimestamp(void* handle, uint64_t* microseconds) {
    if (!handle || !microseconds) return failed(kInvalidParam, __func__, "event and timestamp must not be null.");
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError refused = take_event(handle, __func__, &event)) return refused;
    if (aclError refused = refuse_without_time({event}, __func__)) return refused;
    if (is_capturing(*event)) return refuse_captured_event(*event, __func__);
    int64_t nanoseconds = 0;
    if (aclError status = record_time(*event, __func__, &nanoseconds)) return status;
    *microseconds = uint64_t(nanoseconds / 1000);
    return kSuccess;
}
