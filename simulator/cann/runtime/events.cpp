// aclrt's calls for events. aclrtStreamWaitEvent waits for the last record of the event before the call, or for the
// event's flag (device_flags.h). If there is no record, an extended event (created by aclrtCreateEventExWithFlag) makes
// the call have no effect, an event with the flag ACL_EVENT_SYNC or ACL_EVENT_EXTERNAL makes it wait for the next
// record, and any other event makes it fail.
#include <cstring>
#include <unordered_map>

#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/device_flags.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr int32_t kRecordNotReady = 0, kRecordComplete = 1;  // aclrtEventRecordedStatus
constexpr int32_t kWaitComplete = 0, kWaitNotReady = 1;      // aclrtEventWaitStatus

int32_t created_event_count = 0;

// A handle is a number that differs from every address and every later handle, so the handle of a destroyed event stays
// invalid. The map is never destroyed, because events are destroyed while the process ends.
using Events = std::unordered_map<void*, std::unique_ptr<Event>>;
Events& live_events() {
    static auto* instance = new Events;
    return *instance;
}
void* new_handle(int32_t id) { return reinterpret_cast<void*>(0xE000000000000000 + 16 * uint64_t(id)); }

constexpr uint32_t kDefaultFlags = kEventProgress | kEventDeviceSync | kEventTimeLine;
constexpr uint32_t kCombinableFlags = kEventSync | kDefaultFlags;
constexpr uint32_t kSingleFlags = kEventDeviceUseOnly | kEventExternal | kEventIpc;

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::EventCreate and ::EventCreateEx.
bool are_flags_valid(uint32_t flags, bool is_extended) {
    const uint32_t known = kCombinableFlags | (is_extended ? kEventIpc : kEventDeviceUseOnly | kEventExternal);
    return (flags & known) && flags <= known && (!(flags & kSingleFlags) || (flags & (flags - 1)) == 0);
}

// The device's resource of an event of aclrtCreateEventWithFlag is taken when the event is made, that of other events
// when it is recorded, and then the record waits for a free one (hicann/runtime
// docs/zh/api_ref/07_event_management.md). Only the first is simulated.
bool has_own_resource(uint32_t flags) { return flags & (kEventSync | kEventExternal); }

// Callers hold the lock.
aclError check_number_of_events(const char* call) {
    const size_t most = is_ascend310p() ? 1023 : 65536;
    if (live_events().size() < most) return kSuccess;
    const int32_t device = current_device();
    size_t count = 0;
    for (const auto& [handle, event] : live_events())
        count += event->device == device && !event->is_extended && has_own_resource(event->flags);
    if (count < most) return kSuccess;
    return fail(kNoEventResource, call,
                "a device must have at most " + std::to_string(most) + " events with the flag 1 or 32.");
}

aclError make_event(void** out, uint32_t flags, bool is_extended, const char* call) {
    if (!out) return fail(kInvalidParam, call, "event must not be null.");
    if (!are_flags_valid(flags, is_extended))
        return fail(
            kRtInvalid, call,
            std::string("flag must be an OR of 1, 2, 4 and 8, or ") + (is_extended ? "64" : "16 or 32") + " alone,",
            flags);
    // hicann/runtime docs/zh/api_ref/07_event_management.md, aclrtCreateEventExWithFlag: not on Ascend950DT.
    if (is_extended && flags == kEventIpc && (is_ascend310p() || std::strncmp(soc_name(), "Ascend950DT", 11) == 0))
        return fail(kRtNotSupported, call, "flag must not be 64, ACL_EVENT_IPC, on this chip.");
    if (aclError error = check_context(call)) return error;
    auto lock = lock_streams();
    if (!is_extended && has_own_resource(flags))
        if (aclError error = check_number_of_events(call)) return error;
    auto event = std::make_unique<Event>();
    event->id = ++created_event_count;
    event->device = current_device();
    event->is_extended = is_extended;
    event->flags = flags;
    if (!is_extended && flags != kDefaultFlags && can_be_waited_for(*event))
        event->flag = std::make_shared<DeviceFlag>();
    void* const handle = new_handle(event->id);
    live_events()[handle] = std::move(event);
    *out = handle;
    return kSuccess;
}

aclError refuse_null_event(const char* call) { return fail(kInvalidParam, call, "event must not be null."); }

// Finds the event of a handle that is not null. Callers hold the lock.
aclError find_event(void* handle, const char* call, Event** out) {
    auto found = live_events().find(handle);
    if (found == live_events().end()) return refuse_unknown_handle(call, "event");
    *out = found->second.get();
    return kSuccess;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::EventRecord, ::StreamWaitEvent and ::EventReset.
aclError check_not_device_event(const Event& event, const char* call) {
    if (event.flags != kEventDeviceUseOnly) return kSuccess;
    return fail(kRtInvalid, call, "event must not have the flag 16, ACL_EVENT_DEVICE_USE_ONLY.");
}

// Checks that the event does not have this flag. Source: hicann/runtime src/runtime/api/impl/api_error.cc, the
// functions above, ::EventSynchronize, ::EventQueryStatus, ::EventQueryWaitStatus, ::EventElapsedTime and
// ::EventGetTimeStamp.
aclError check_without_flag(const Event& event, uint32_t flag, const char* call) {
    if (event.flags != flag) return kSuccess;
    return fail(kRtNotSupported, call,
                "event must not have the flag " + std::to_string(flag) +
                    (flag == kEventExternal ? ", ACL_EVENT_EXTERNAL." : ", ACL_EVENT_IPC."));
}

aclError check_waitable(const Event& event, const char* call) {
    if (can_be_waited_for(event)) return kSuccess;
    return fail(kRtNotSupported, call, "event must have the flag 1, ACL_EVENT_SYNC,", event.flags);
}

// Callers hold the lock.
aclError record_event(const StreamPtr& stream, Event* event) {
    auto new_record = std::make_shared<Record>();
    if (int32_t status = enqueue_record(stream, new_record, event->flag)) return status;
    event->latest_record = new_record;
    event->capture = nullptr;
    while (!event->waiting_streams.empty()) {
        event->waiting_streams.back()->clock.join(new_record->clock);
        --event->waiting_streams.back()->unrecorded_waits;
        event->waiting_streams.pop_back();
    }
    return kSuccess;
}

// If an extended event was not recorded, a wait has no effect. A wait for another event waits for the next record if
// the event has the flag ACL_EVENT_SYNC or ACL_EVENT_EXTERNAL, and is refused otherwise (hicann/runtime
// src/runtime/core/src/event/event.cc, WaitSendCheck and Event::Wait). Immediate streams never wait.
// docs/zh/api_ref/07_event_management.md, aclrtRecordEvent: only an extended event is used again without a reset. A
// wait for another one may end at an earlier record. On Ascend310P a stream does not wait for an event of another
// device (event.cc, CrossDeviceEventWait).
aclError wait_for_event(const StreamPtr& stream, Event* event) {
    if (!event->latest_record && event->is_extended) return kSuccess;
    if (!event->latest_record && !has_own_resource(event->flags))
        return fail(kRtInvalid, "aclrtStreamWaitEvent",
                    "event must have been recorded, or have the flag 1, ACL_EVENT_SYNC, or 32, ACL_EVENT_EXTERNAL.");
    if (is_ascend310p() && event->device != stream->device) return kSuccess;
    if (!event->flag) return enqueue_wait(stream, event->latest_record, event->waits);
    if (event->flag->record_count > 1)
        count_beyond_document("aclrtStreamWaitEvent for an event that was recorded again without aclrtResetEvent");
    const bool is_recorded = event->flag->join_clock(stream);
    if (event->latest_record && event->latest_record->is_done && !has_own_resource(event->flags)) return kSuccess;
    event->waiting_streams.reserve(event->waiting_streams.size() + 1);
    if (int32_t status = enqueue_wait(stream, event->flag, event->waits)) return status;
    if (is_recorded || stream_order() == Order::kImmediate) return kSuccess;
    ++stream->unrecorded_waits;
    event->waiting_streams.push_back(stream);
    return kSuccess;
}

// Sets the time of the event's last record, or returns an error if the record has not happened. Only events with the
// flag ACL_EVENT_TIME_LINE have a time (hicann/runtime src/runtime/core/src/task/task_info/event/event_task.cc;
// event.cc, Event::ElapsedTime).
aclError record_time(const Event& event, const char* call, int64_t* nanoseconds) {
    if (!event.latest_record) return fail(kRtInternal, call, "event must have been recorded but nothing recorded it.");
    if (!event.latest_record->is_done)
        return fail(kEventTimestampInvalid, call, "event must have happened but its record is still in a queue.");
    if (!(event.flags & kEventTimeLine))
        return fail(kEventTimestampInvalid, call,
                    "event must be made with the flag 8, ACL_EVENT_TIME_LINE (torch.npu.Event(enable_timing=True)).");
    *nanoseconds = event.latest_record->nanoseconds;
    return kSuccess;
}

using CheckFunction = aclError (*)(const StreamPtr&, const Event&, const char* call);

aclError check_record(const StreamPtr& stream, const Event& event, const char* call) {
    if (aclError error = check_not_device_event(event, call)) return error;
    return is_capturing(*stream) ? check_without_flag(event, kEventIpc, call) : kSuccess;
}
aclError check_wait(const StreamPtr& stream, const Event& event, const char* call) {
    if (aclError error = check_record(stream, event, call)) return error;
    return check_waitable(event, call);
}
// hicann/runtime docs/zh/api_ref/07_event_management.md: a reset of an event of aclrtCreateEvent is undefined.
// src/runtime/api/impl/api_impl.cc, EventReset: the event must not be extended.
aclError check_reset(const StreamPtr&, const Event& event, const char* call) {
    if (aclError error = check_not_device_event(event, call)) return error;
    if (aclError error = check_without_flag(event, kEventIpc, call)) return error;
    if (event.is_extended)
        return fail(kRtNotSupported, call, "event must not be created by aclrtCreateEventExWithFlag.");
    if (has_own_resource(event.flags)) return kSuccess;
    return fail(kRtNotSupported, call, "event must have the flag 1, ACL_EVENT_SYNC,", event.flags);
}

// Calls `action` with the event and the stream if `check` accepts them, then runs some queued work.
aclError call_with_event(void* handle, void* stream_handle, const char* call, CheckFunction check,
                         aclError (*action)(const StreamPtr&, Event*)) {
    if (!handle) return refuse_null_event(call);
    StreamPtr stream;
    {
        auto lock = lock_streams();
        Event* event = nullptr;
        if (aclError error = find_event(handle, call, &event)) return error;
        stream = stream_of(stream_handle);
        if (!stream) return refuse_unknown_stream(call);
        if (aclError error = check(stream, *event, call)) return error;
        if (aclError error = check_stream_context(call, *stream)) return error;
        if (aclError status = action(stream, event)) return status;
    }
    run_early(stream);
    return kSuccess;
}

// The last record of an event when the host queries the event, and the stream of the record. Null if there is none.
struct LatestRecord {
    std::shared_ptr<Record> record;
    StreamPtr stream;
    bool is_extended = false;                  // the event's
    std::vector<StreamPosition> pending = {};  // the record, unless it has happened; else empty
};

// Returns the error of the context in which the event was recorded.
aclError record_error(const LatestRecord& latest) {
    return context_error(latest.stream ? latest.stream->context : current_context().number);
}

aclError find_latest_record(void* handle, const char* call, LatestRecord* out) {
    if (!handle) return refuse_null_event(call);
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError error = find_event(handle, call, &event)) return error;
    if (aclError error = check_without_flag(*event, kEventExternal, call)) return error;
    if (is_capturing(*event)) return refuse_captured_event(*event, call);
    *out = {event->latest_record, event->latest_record ? event->latest_record->stream.lock() : nullptr,
            event->is_extended};
    if (out->record && !out->record->is_done && out->stream) out->pending = {{out->stream, out->record->position}};
    if (int32_t error = record_error(*out)) return error;
    return kSuccess;
}

aclError check_can_have_time(std::initializer_list<const Event*> events, const char* call) {
    for (uint32_t flag : {kEventExternal, kEventIpc})
        for (const Event* event : events)
            if (aclError error = check_without_flag(*event, flag, call)) return error;
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
    if (!handle) return refuse_null_event(__func__);
    auto lock = lock_streams();
    return live_events().erase(handle) ? kSuccess : refuse_unknown_handle(__func__, "event");
}

NPU_CANN_API aclError aclrtRecordEvent(void* event, void* stream) {
    return call_with_event(event, stream, __func__, check_record, [](const StreamPtr& stream, Event* event) {
        return is_capturing(*stream) ? capture_record(stream, event) : record_event(stream, event);
    });
}

NPU_CANN_API aclError aclrtStreamWaitEvent(void* stream, void* event) {
    return call_with_event(event, stream, __func__, check_wait, [](const StreamPtr& stream, Event* event) {
        return is_capturing(*stream) || is_capturing(*event) ? capture_wait(stream, event)
                                                             : wait_for_event(stream, event);
    });
}

// A task of the stream. The event keeps its record (hicann/runtime src/runtime/core/src/event/event.cc, Event::Reset).
// On a captured stream, the event must be external (hicann/runtime src/runtime/feature/aclgraph/event_capture.cc,
// Event::ToBeCaptured).
NPU_CANN_API aclError aclrtResetEvent(void* event, void* stream) {
    return call_with_event(event, stream, __func__, check_reset, [](const StreamPtr& stream, Event* event) -> aclError {
        if (is_capturing(*stream) && event->flags != kEventExternal)
            return fail(kRtNotSupported, "aclrtResetEvent", "stream must not be in a capture.");
        return enqueue_reset(stream, event->flag);
    });
}

NPU_CANN_API aclError aclrtSynchronizeEvent(void* handle) {
    count_host_wait(__func__);
    LatestRecord latest;
    if (aclError error = find_latest_record(handle, __func__, &latest)) return error;
    if (!latest.record) return kSuccess;  // event.cc, Synchronize: no record to wait for
    if (!latest.pending.empty() && !run_until(latest.pending)) {
        auto lock = lock_streams();
        if (int32_t error = record_error(latest)) return error;
        return fail(kStreamSyncTimeout, __func__, "the event's stream waits for an event that nothing records.");
    }
    auto lock = lock_streams();
    note_host_wait(latest.record->clock);
    return record_error(latest);
}

NPU_CANN_API aclError aclrtQueryEventStatus(void* handle, int32_t* status) {
    if (!status) return fail(kInvalidParam, __func__, "status must not be null.");
    LatestRecord latest;
    if (aclError error = find_latest_record(handle, __func__, &latest)) return error;
    if (!latest.record) {
        *status = latest.is_extended ? kRecordComplete : kRecordNotReady;  // event.cc, QueryEventStatus
        return kSuccess;
    }
    if (!latest.pending.empty()) run_some(latest.pending);
    auto lock = lock_streams();
    *status = latest.record->is_done ? kRecordComplete : kRecordNotReady;
    if (latest.record->is_done) note_host_wait(latest.record->clock);
    return kSuccess;
}

// api_error.cc, EventQueryWaitStatus: the event must not be extended. api_impl.cc, EventQueryWaitStatus, checks the
// context's error; event.cc, QueryEventWaitStatus, only the waits of streams.
NPU_CANN_API aclError aclrtQueryEventWaitStatus(void* handle, int32_t* status) {
    if (!handle || !status) return fail(kInvalidParam, __func__, "event and status must not be null.");
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError error = find_event(handle, __func__, &event)) return error;
    if (event->is_extended)
        return fail(kRtNotSupported, __func__, "event must not be created by aclrtCreateEventExWithFlag.");
    if (aclError error = check_without_flag(*event, kEventExternal, __func__)) return error;
    if (int32_t error = context_error(current_context().number)) return error;
    *status = event->waits.use_count() == 1 ? kWaitComplete : kWaitNotReady;
    return kSuccess;
}

// Sets the host's time between the two records. This time is a duration of the simulation and unrelated to hardware.
// Both records must have happened (event.cc, ElapsedTime).
NPU_CANN_API aclError aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
    if (!milliseconds || !start || !end) return fail(kInvalidParam, __func__, "arguments must not be null.");
    auto lock = lock_streams();
    Event* events[2] = {};
    if (aclError error = find_event(start, __func__, &events[0])) return error;
    if (aclError error = find_event(end, __func__, &events[1])) return error;
    for (const Event* event : events)
        if (is_capturing(*event)) return refuse_captured_event(*event, __func__);
    if (aclError error = check_can_have_time({events[0], events[1]}, __func__)) return error;
    int64_t first = 0, last = 0;
    if (aclError status = record_time(*events[0], __func__, &first)) return status;
    if (aclError status = record_time(*events[1], __func__, &last)) return status;
    *milliseconds = float(double(last - first) * 1e-6);
    return kSuccess;
}

NPU_CANN_API aclError aclrtEventGetTimestamp(void* handle, uint64_t* microseconds) {
    if (!handle || !microseconds) return fail(kInvalidParam, __func__, "event and timestamp must not be null.");
    auto lock = lock_streams();
    Event* event = nullptr;
    if (aclError error = find_event(handle, __func__, &event)) return error;
    if (aclError error = check_can_have_time({event}, __func__)) return error;
    if (is_capturing(*event)) return refuse_captured_event(*event, __func__);
    int64_t nanoseconds = 0;
    if (aclError status = record_time(*event, __func__, &nanoseconds)) return status;
    *microseconds = uint64_t(nanoseconds / 1000);
    return kSuccess;
}
