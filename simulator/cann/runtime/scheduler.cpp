#include "cann/runtime/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>

#include "cann/runtime/allocations.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/device_flags.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/races.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {

namespace {

// Not in SchedulerState, which reads the settings at its first use: a process may load the library, fork, and set them.
std::mutex g_streams_mutex;
const ForkLock streams_lock(LockRank::kStreams, &g_streams_mutex);
std::atomic<bool> g_has_state{false};

}  // namespace

SchedulerState& scheduler_state() {
    static SchedulerState* instance = [] {
        auto* const made = new SchedulerState;
        g_has_state = true;
        return made;
    }();
    return *instance;
}

namespace {

// Ends the process for text that is not a number. Not by std::exit, whose handlers would read the settings again.
uint64_t read_seed() {
    const char* text = std::getenv("ASCEND_SIM_SEED");
    if (!text || !*text) return 0;
    uint64_t seed = 0;
    const char* const text_end = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, text_end, seed);
    if (error == std::errc() && end == text_end) return seed;
    print_message({"ASCEND_SIM_SEED must be an integer of 0 to 2**64 - 1 but got ", text, "."});
    std::_Exit(2);
}

}  // namespace

std::vector<StreamPtr> list_streams() {
    SchedulerState& scheduler = scheduler_state();
    std::vector<StreamPtr> streams;
    for (const auto& [handle, stream] : scheduler.streams) streams.push_back(stream);
    std::sort(streams.begin(), streams.end(),
              [](const StreamPtr& left, const StreamPtr& right) { return left->actor < right->actor; });
    return streams;
}

std::string Stream::place() const { return "stream " + std::to_string(id); }

namespace {

// The settings of the environment, read again after a fork: tests fork a process that has loaded the library.
struct Settings {
    pid_t process = getpid();
    Order order = Order::kRandom;
    uint64_t seed = read_seed();

    Settings() {
        const char* wanted = std::getenv("ASCEND_SIM_STREAMS");
        if (!wanted || !*wanted || std::strcmp(wanted, "asynchronous") == 0) return;
        order = Order::kImmediate;
        if (std::strcmp(wanted, "immediate") == 0) return;
        print_message({"ASCEND_SIM_STREAMS must be asynchronous or immediate but got ", wanted, "."});
        std::_Exit(2);  // not std::exit, whose handlers would read the settings again
    }
};

// Threads may call this at once, also in a fork. They then read the same settings, of which one copy stays in use.
const Settings& settings() {
    static std::atomic<const Settings*> current{nullptr};
    const Settings* found = current.load();
    if (found && found->process == getpid()) return *found;
    found = new Settings;  // never freed, because another thread may use it
    current.store(found);
    return *found;
}

}  // namespace

Order stream_order() { return settings().order; }
uint64_t stream_seed() { return settings().seed; }

std::unique_lock<std::mutex> lock_streams() { return std::unique_lock<std::mutex>(g_streams_mutex); }

StreamPtr new_stream(ContextId context) {
    SchedulerState& scheduler = scheduler_state();
    auto stream = std::make_shared<Stream>();
    stream->id = scheduler.stream_ids++;
    stream->actor = scheduler.actors++;
    stream->context = context.number;
    stream->device = context.device;
    stream->clock.join(scheduler.host);
    scheduler.streams[stream.get()] = stream;
    return stream;
}

size_t number_of_streams(int32_t device) {
    size_t count = number_of_contexts(device);  // the default streams, which exist here only once they are used
    for (const auto& [handle, stream] : scheduler_state().streams)
        count += stream->device == device && !stream->is_replay && !is_default_stream(stream);
    return count;
}

// A null handle is the context's default stream. The default stream is not ordered with other streams (hicann/runtime
// src/runtime/api/impl/api_impl.cc).
StreamPtr default_stream(ContextId context) {
    StreamPtr& stream = scheduler_state().contexts[context.number].default_stream;
    if (!stream) stream = new_stream(context);
    return stream;
}

bool is_default_stream(const StreamPtr& stream) {
    const auto& contexts = scheduler_state().contexts;
    const auto found = contexts.find(stream->context);
    return found != contexts.end() && found->second.default_stream == stream;
}

StreamPtr stream_of(void* handle) {
    if (!handle) return default_stream(current_context());
    auto found = scheduler_state().streams.find(handle);
    return found == scheduler_state().streams.end() ? nullptr : found->second;
}

StreamPtr find_stream(void* handle) {
    auto lock = lock_streams();
    return stream_of(handle);
}

aclError check_stream_context(const char* call, const Stream& stream) {
    const ContextId context = current_context();
    if (!context.number) return check_context(call);
    if (stream.context == context.number) return kSuccess;
    const std::string rule =
        stream.device == context.device
            ? "stream must be one of this thread's context but got " + stream.place() + " of another context"
            : "stream must be one of device " + std::to_string(context.device) + ", the current one, but got " +
                  stream.place();
    return fail(kStreamContext, call, rule + " of device " + std::to_string(stream.device) + ".");
}

void forget_stream(void* handle) { scheduler_state().streams.erase(handle); }

int32_t enqueue(const StreamPtr& stream, Work work) {
    if (stream->task_update) return replace_captured_task(stream, std::move(work));
    if (is_capturing(*stream)) return capture_work(stream, std::move(work));
    // hicann/runtime docs/zh/dev_guide/04-01_single_stream_capture.md: a capture forbids the default stream.
    if (is_default_stream(stream) && any_captured_stream(stream->context))
        return fail(kCaptureImplicit, work.name, "stream must not be the default stream during a capture.");
    if (int32_t error = context_error(stream->context)) return error;
    std::list<Work> added;
    added.push_back(std::move(work));
    const Work& last = added.back();
    note_work(stream, last);
    if (last.kind == Work::Kind::kRecord) {
        last.record->clock = stream->clock;
        if (last.flag) last.flag->note_record(last.record);
        last.record->stream = stream;
        last.record->position = stream->last_queued + 1;
    }
    if (last.kind == Work::Kind::kReset) last.flag->note_reset(stream->clock, stream->actor);
    const bool is_immediate = stream_order() == Order::kImmediate;
    if (!is_immediate) fill_host_target(last);
    ++stream->last_queued;  // from here on, nothing needs memory: the work is queued completely
    if (is_immediate) {
        std::unique_lock<std::mutex> lock(g_streams_mutex, std::adopt_lock);
        const int32_t status = run_immediately(stream, std::move(added.back()), &lock);
        lock.release();
        return status;
    }
    stream->queue.splice(stream->queue.end(), added);
    return 0;
}

int32_t enqueue_record(const StreamPtr& stream, const std::shared_ptr<Record>& record,
                       std::shared_ptr<DeviceFlag> flag) {
    Work work(Work::Kind::kRecord, "aclrtRecordEvent");
    work.record = record;
    work.flag = std::move(flag);
    return enqueue(stream, std::move(work));
}

int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<Record>& record, std::shared_ptr<void> waits) {
    stream->clock.join(record->clock);
    if (record->is_done) return 0;
    Work work(Work::Kind::kWait, "aclrtStreamWaitEvent");
    work.record = record;
    work.waits = std::move(waits);
    return enqueue(stream, std::move(work));
}

int32_t submit(const StreamPtr& stream, Work work) {
    note_call_in_host_function(work.name.c_str());
    int32_t status = 0;
    {
        auto lock = lock_streams();
        status = enqueue(stream, std::move(work));
    }
    if (status == 0) run_early(stream);
    return status;
}

int32_t context_error(uint64_t context) {
    const auto found = scheduler_state().contexts.find(context);
    if (found == scheduler_state().contexts.end() || !found->second.failure) return 0;
    set_error(found->second.failure_text);
    note_runtime_status(found->second.failure);
    return found->second.failure;
}

int32_t device_failure(int32_t device) {
    auto lock = lock_streams();
    for (const auto& [number, context] : scheduler_state().contexts)
        if (context.failure && context.device_of_failure == device) return context.failure;
    return 0;
}

void set_failure_mode(const StreamPtr& stream, bool stops) {
    stream->stops_on_failure = stops;
    if (stops) scheduler_state().contexts[stream->context].stops_on_failure = true;
}

namespace {

// Returns the error of the stream, and clears it unless the stream is aborted. If there is none, returns the error of
// the context.
int32_t take_error(const StreamPtr& stream) {
    if (!stream->error) return context_error(stream->context);
    const int32_t error = stream->error;
    set_error(stream->error_text);
    note_runtime_status(error);
    if (!stream->is_aborted) stream->error = 0;
    return error;
}

// Returns the status of a wait that cannot end: after an error, for a callback of this thread, or for a missing record.
int32_t unreachable_status(const char* call, uint64_t context) {
    {
        auto lock = lock_streams();
        if (int32_t error = context_error(context)) return error;
        if (const Work* blocked_work = find_work_for_report())
            return fail(
                kReportTimeout, call,
                "the stream waits for the callback of " + blocked_work->name +
                    ", and this thread subscribed to the stream: call aclrtProcessReport first, in this thread.");
    }
    const std::string text = std::string(call) + ": the stream waits for an event that nothing records.";
    report_race(text, "", true);
    return fail(kStreamSyncTimeout, text);
}

// The positions of the last work of each stream of a context, and its clock.
struct ContextEnd {
    std::vector<StreamPosition> positions;
    Clock clock;

    explicit ContextEnd(uint64_t context) {
        auto lock = lock_streams();
        for (const StreamPtr& stream : list_streams()) {
            if (stream->context != context) continue;
            clock.join(stream->clock);
            positions.push_back({stream, stream->last_queued});
        }
    }
};

}  // namespace

int32_t synchronize(const StreamPtr& stream, const char* call) {
    note_call_in_host_function(call);
    Clock clock;
    StreamPosition target{stream, 0};
    {
        auto lock = lock_streams();
        clock = stream->clock;
        target.position = stream->last_queued;
    }
    if (!run_until({target})) return unreachable_status(call, stream->context);
    auto lock = lock_streams();
    note_host_wait(clock);
    return take_error(stream);
}

int32_t synchronize_all(const char* call) {
    note_call_in_host_function(call);
    SchedulerState& scheduler = scheduler_state();
    const uint64_t context = current_context().number;
    const ContextEnd end(context);
    if (!run_until(end.positions)) return unreachable_status(call, context);
    auto lock = lock_streams();
    join_device_wait();
    check_copy_sources(end.clock);
    scheduler.device_wait = end.clock;
    scheduler.has_device_wait = true;
    // The first stream's error is the result (hicann/runtime src/runtime/core/src/context/context.cc,
    // Context::SyncStreamsWithTimeout), so it is taken last: take_error() notes the text and the last status.
    int32_t status = 0;
    for (auto target = end.positions.rbegin(); target != end.positions.rend(); ++target)
        if (int32_t error = take_error(target->stream)) status = error;
    return status;
}

// hicann/runtime src/runtime/core/src/context/context.cc, Context::TearDown.
int32_t end_context(uint64_t context, const char* call) {
    const ContextEnd end(context);
    const bool is_done = run_until(end.positions);
    bool has_stopped = false;
    {
        auto lock = lock_streams();
        const auto found = scheduler_state().contexts.find(context);
        has_stopped = found != scheduler_state().contexts.end() && found->second.failure;
    }
    const int32_t status = is_done || has_stopped ? 0 : unreachable_status(call, context);
    {
        auto lock = lock_streams();
        if (is_done) note_host_wait(end.clock);
        forget_graphs(context);
        for (const StreamPosition& last : end.positions) forget_stream(last.stream.get());
        scheduler_state().contexts.erase(context);
    }
    for (const StreamPosition& last : end.positions) end_reports(*last.stream);
    return status;
}

bool is_work_running_elsewhere() {
    if (!g_has_state) return false;
    const bool is_free = scheduler_state().running->try_lock();  // or this thread holds it
    if (is_free) scheduler_state().running->unlock();
    return !is_free;
}

void reset_streams_in_fork(bool was_running_elsewhere) {
    if (!g_has_state) return;
    scheduler_state().running = new std::recursive_mutex;  // the other one may stay locked
    auto lock = lock_streams();
    if (was_running_elsewhere) fail_running_work();
}

uint64_t work_left() {
    if (!g_has_state) return 0;  // do not read the settings for a program that has no streams
    auto lock = lock_streams();
    uint64_t left = 0;
    const auto has_results = [](const Work& work) {
        return work.kind == Work::Kind::kDevice || work.kind == Work::Kind::kHostCode;
    };
    for (const auto& [handle, stream] : scheduler_state().streams)
        left += uint64_t(std::count_if(stream->queue.begin(), stream->queue.end(), has_results));
    return left;
}

}  // namespace simulated_cann
