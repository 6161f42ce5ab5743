#include "cann/runtime/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <unordered_map>

#include "cann/runtime/allocations.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/races.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {

SchedulerState& scheduler_state() {
    static SchedulerState* instance = new SchedulerState;
    return *instance;
}

namespace {

constexpr size_t kMaxQueuedWork = 1024;  // pieces of work in a stream's queue, before queueing waits for the device
constexpr int kMaxEarlySteps = 4;        // after each queued piece of work

uint64_t read_number(const char* variable, uint64_t default_value) {
    const char* text = std::getenv(variable);
    return text && *text ? std::strtoull(text, nullptr, 10) : default_value;
}

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// ---- running, with `running` and the lock held -------------------------------------------------------

bool is_ready(const Stream& stream) {
    if (stream.is_running || stream.queue.empty()) return false;
    const Work& head = stream.queue.front();
    if (head.may_run && !head.may_run()) return false;
    if (head.is_blocked && head.is_blocked()) return false;
    return head.kind != Work::Kind::kWait || head.record->is_done;
}

bool needs_rank(const Stream& stream) {
    return !stream.is_running && !stream.queue.empty() && stream.queue.front().is_blocked;
}

// A wait for other ranks, without the locks: short at first, then up to a millisecond.
class RankWait {
public:
    void sleep() {
        GilRelease release;
        std::this_thread::sleep_for(duration_);
        duration_ = std::min(2 * duration_, std::chrono::microseconds(1000));
    }

private:
    std::chrono::microseconds duration_{20};
};

// Returns a head that this thread may run only in aclrtProcessReport; null if there is none.
const Work* find_work_for_report() {
    for (const auto& [handle, stream] : scheduler_state().streams)
        if (!stream->is_running && !stream->queue.empty() && stream->queue.front().may_run &&
            !stream->queue.front().may_run())
            return &stream->queue.front();
    return nullptr;
}

void mark_done(Record* record) {
    record->is_done = true;
    record->nanoseconds = now();
}

// Stores the error of failed work. A context that stops on failure stores the first error, and the stream runs no
// further work. Its later records do not happen, and other streams wait for them. The host does not wait forever: its
// calls return the error of the context. Source: hicann/runtime src/runtime/core/src/stream/stream.cc,
// Stream::EnterFailureAbort. This requires Runtime::SetDisableThread, which raw_device.cc calls on chips with STARS,
// and NpuDriver::VirtualCqAllocate elsewhere.
void store_failure(Stream* stream, int32_t status, const std::string& text) {
    DeviceState& device = scheduler_state().devices[stream->device];
    stream->error = status;
    stream->error_text = text;
    if (!device.stops_on_failure) return;
    if (!device.failure) {
        device.failure = status;
        device.failure_text = text;
    }
    stream->is_aborted = true;
    stream->queue.clear();
    stream->last_finished = stream->last_queued - 1;  // the caller counts the failed work
}

// Returns "" or the error that the work accesses memory that is not allocated. Called when the work runs.
std::string freed_memory_error(const Work& work) {
    for (const MemoryAccess& access : work.accesses) {
        const Region region = region_of(access);
        if (region.empty()) continue;
        void* first = nullptr;
        uint64_t bytes = 0;
        const auto* low = reinterpret_cast<const void*>(region.low);
        if (find_allocation(low, &first, &bytes)) continue;
        // torch_npu frees a workspace before it launches the call (Ascend/op-plugin
        // op_plugin/utils/op_api_common_base.h, GetWorkSpaceAddr). If its cache is off, the memory is freed
        // before the work runs.
        if (access.argument == kWorkspace && is_freed_with_padding(low)) continue;
        const std::string what = describe_freed(low);
        return work.name + ": " + access.argument + " " + (access.writes ? "is written to" : "is read from") +
               " memory that " + (what.empty() ? "is not allocated" : "was freed before it ran (" + what + ")") + ".";
    }
    return "";
}

// Returns "" or the error that the work accesses memory of another device. A device maps the memory of another one only
// after aclrtMemP2PMap (hicann/runtime docs/zh/api_ref/11-05_unified_addressing.md), which is not simulated.
std::string other_device_error(const Work& work, int32_t device) {
    if (work.is_copy) return "";
    for (const MemoryAccess& access : work.accesses) {
        int32_t owner = device;
        if (!device_of_address(access.first, &owner) || owner == device) continue;
        return work.name + ": " + access.argument + " must be in the memory of device " + std::to_string(device) +
               ", which runs it, but got memory of device " + std::to_string(owner) + ".";
    }
    return "";
}

int32_t run(const Work& work, int32_t device, std::string* text) {
    std::string freed = freed_memory_error(work);
    const std::string other_device = other_device_error(work, device);
    int32_t status = 0;
    if (!other_device.empty()) {
        status = fail(kernel_exception(), other_device);
    } else if (!freed.empty()) {
        report_freed(freed);
        status = fail(kernel_exception(), freed);
    } else {
        try {
            status = work.run ? work.run() : 0;
        } catch (const std::exception& error) {
            status = fail(kernel_exception(), work.name, error.what());
        }
    }
    if (status) *text = recent_error_text();
    return status;
}

// Runs the head of the stream's queue, without the lock.
void run_head(const StreamPtr& stream, std::unique_lock<std::mutex>* lock) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (work.kind == Work::Kind::kRecord) mark_done(work.record.get());
    if (work.kind == Work::Kind::kRecord || work.kind == Work::Kind::kWait) {
        ++stream->last_finished;
        return;
    }
    stream->is_running = true;
    lock->unlock();
    std::string text;
    const int32_t status = run(work, stream->device, &text);
    lock->lock();
    stream->is_running = false;
    if (status) store_failure(stream.get(), status, text);
    ++stream->last_finished;
}

std::vector<StreamPtr> list_streams() {
    SchedulerState& scheduler = scheduler_state();
    std::vector<StreamPtr> streams;
    for (const auto& [handle, stream] : scheduler.streams) streams.push_back(stream);
    std::sort(streams.begin(), streams.end(),
              [](const StreamPtr& left, const StreamPtr& right) { return left->actor < right->actor; });
    return streams;
}

// Returns, for each stream by its actor, the position that it must reach so that the targets are reached.
std::map<size_t, StreamPosition> find_needed_positions(const std::vector<StreamPosition>& targets) {
    std::map<size_t, StreamPosition> needed;
    std::vector<StreamPosition> pending(targets);
    while (!pending.empty()) {
        StreamPosition target = std::move(pending.back());
        pending.pop_back();
        StreamPosition& farthest = needed[target.stream->actor];
        if (farthest.stream && farthest.position >= target.position) continue;
        farthest = target;
        uint64_t position = target.stream->last_finished + (target.stream->is_running ? 1 : 0);
        for (const Work& work : target.stream->queue) {
            if (++position > target.position) break;
            if (work.kind != Work::Kind::kWait || work.record->is_done) continue;
            if (StreamPtr other = work.record->stream.lock(); other && work.record->position)
                pending.push_back({other, work.record->position});
        }
    }
    return needed;
}

bool is_reached(const StreamPosition& target) { return target.stream->last_finished >= target.position; }

// Runs one head that a target needs, or sometimes another one. Returns false if no needed head is ready.
bool run_one(const std::map<size_t, StreamPosition>& needed, std::unique_lock<std::mutex>* lock) {
    SchedulerState& scheduler = scheduler_state();
    std::vector<StreamPtr> ready;
    for (const auto& [actor, target] : needed)
        if (!is_reached(target) && is_ready(*target.stream)) ready.push_back(target.stream);
    if (ready.empty()) return false;
    if (scheduler.stray_chance > 0 && scheduler.random.is_true(scheduler.stray_chance)) {
        ready.clear();
        for (const StreamPtr& stream : list_streams())
            if (is_ready(*stream)) ready.push_back(stream);
    }
    run_head(ready[scheduler.random.below(ready.size())], lock);
    return true;
}

// ---- queueing ----------------------------------------------------------------------------------------

int32_t run_immediately(const StreamPtr& stream, Work work, std::unique_lock<std::mutex>* lock) {
    if (work.kind == Work::Kind::kRecord) mark_done(work.record.get());
    ++stream->last_finished;
    if (work.kind == Work::Kind::kRecord || work.kind == Work::Kind::kWait) return 0;
    lock->unlock();
    for (RankWait wait; work.is_blocked && work.is_blocked();) wait.sleep();
    std::string text;
    const int32_t status = run(work, stream->device, &text);
    lock->lock();
    return status;
}

}  // namespace

std::string Stream::place() const { return "stream " + std::to_string(id); }

namespace {

// The settings of the environment, read again after a fork: tests fork a process that has loaded the library.
struct Settings {
    pid_t process = getpid();
    Order order = Order::kRandom;
    uint64_t seed = read_number("ASCEND_SIM_SEED", 0);

    Settings() {
        const char* wanted = std::getenv("ASCEND_SIM_STREAMS");
        if (!wanted || !*wanted || std::strcmp(wanted, "asynchronous") == 0) return;
        order = Order::kImmediate;
        if (std::strcmp(wanted, "immediate") == 0) return;
        std::fprintf(stderr, "simulated CANN: ASCEND_SIM_STREAMS must be asynchronous or immediate but got %s.\n",
                     wanted);
        std::_Exit(2);  // not std::exit, whose handlers would read the settings again
    }
};

const Settings& settings() {
    static Settings current;
    if (current.process != getpid()) current = Settings();
    return current;
}

}  // namespace

Order stream_order() { return settings().order; }
uint64_t stream_seed() { return settings().seed; }

std::unique_lock<std::mutex> lock_streams() { return std::unique_lock<std::mutex>(scheduler_state().mutex); }

StreamPtr new_stream(int32_t device) {
    SchedulerState& scheduler = scheduler_state();
    auto stream = std::make_shared<Stream>();
    stream->id = scheduler.stream_ids++;
    stream->actor = scheduler.actors++;
    stream->device = device;
    stream->clock.join(scheduler.host);
    scheduler.streams[stream.get()] = stream;
    return stream;
}

// A null handle is the context's default stream. It is not ordered with other streams (hicann/runtime
// src/runtime/api/impl/api_impl.cc).
StreamPtr default_stream(int32_t device) {
    StreamPtr& stream = scheduler_state().devices[device].default_stream;
    if (!stream) stream = new_stream(device);
    return stream;
}

StreamPtr stream_of(void* handle) {
    if (!handle) return default_stream(std::max(current_device(), 0));
    auto found = scheduler_state().streams.find(handle);
    return found == scheduler_state().streams.end() ? nullptr : found->second;
}

StreamPtr find_stream(void* handle) {
    auto lock = lock_streams();
    return stream_of(handle);
}

aclError check_stream_context(const char* call, const Stream& stream) {
    if (aclError error = check_context(call)) return error;
    const int32_t device = current_device();
    if (stream.device == device) return kSuccess;
    return fail(kStreamContext, call,
                "stream must be one of device " + std::to_string(device) + ", the current one, but got " +
                    stream.place() + " of device " + std::to_string(stream.device) + ".");
}

void forget_stream(void* handle) { scheduler_state().streams.erase(handle); }

int32_t enqueue(const StreamPtr& stream, Work work) {
    SchedulerState& scheduler = scheduler_state();
    if (is_capturing(*stream)) return capture_work(stream, std::move(work));
    if (stream->task_update) return replace_captured_task(stream, std::move(work));
    // hicann/runtime docs/zh/dev_guide/04-01_single_stream_capture.md: a capture forbids the default stream.
    if (stream == scheduler.devices[stream->device].default_stream && any_captured_stream(stream->device))
        return fail(kCaptureImplicit, work.name, "stream must not be the default stream during a capture.");
    if (int32_t error = context_error(stream->device)) return error;
    ++stream->last_queued;
    note_work(stream, work);
    if (work.kind == Work::Kind::kRecord) {
        work.record->stream = stream;
        work.record->position = stream->last_queued;
        work.record->clock = stream->clock;
    }
    if (stream_order() == Order::kImmediate) {
        std::unique_lock<std::mutex> lock(scheduler.mutex, std::adopt_lock);
        const int32_t status = run_immediately(stream, std::move(work), &lock);
        lock.release();
        return status;
    }
    fill_host_target(work);
    stream->queue.push_back(std::move(work));
    return 0;
}

int32_t enqueue_record(const StreamPtr& stream, const std::shared_ptr<Record>& record) {
    Work work(Work::Kind::kRecord, "aclrtRecordEvent");
    work.record = record;
    return enqueue(stream, std::move(work));
}

int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<Record>& record) {
    stream->clock.join(record->clock);
    if (record->is_done) return 0;
    Work work(Work::Kind::kWait, "aclrtStreamWaitEvent");
    work.record = record;
    return enqueue(stream, std::move(work));
}

void run_early(const StreamPtr& stream) {
    SchedulerState& scheduler = scheduler_state();
    if (stream_order() == Order::kImmediate) return;
    RunLock running(&scheduler.running, RunLock::kTry);
    if (!running.is_held()) return;
    auto lock = lock_streams();
    for (int i = 0;
         i < kMaxEarlySteps && scheduler.early_chance > 0 && scheduler.random.is_true(scheduler.early_chance); ++i) {
        std::vector<StreamPtr> ready;
        for (const StreamPtr& candidate : list_streams())
            if (is_ready(*candidate)) ready.push_back(candidate);
        if (ready.empty()) return;
        run_head(ready[scheduler.random.below(ready.size())], &lock);
    }
    // If the queue is full, the caller waits for half of it.
    if (stream->queue.size() < kMaxQueuedWork) return;
    const StreamPosition half{stream, stream->last_queued - kMaxQueuedWork / 2};
    lock.unlock();
    run_until({half});
}

int32_t submit(const StreamPtr& stream, Work work) {
    int32_t status = 0;
    {
        auto lock = lock_streams();
        status = enqueue(stream, std::move(work));
    }
    if (status == 0) run_early(stream);
    return status;
}

namespace {

enum class Progress { kReached, kNeedsRank, kStuck };

// Runs ready work until the targets are reached or none is ready.
Progress run_toward(const std::vector<StreamPosition>& targets) {
    SchedulerState& scheduler = scheduler_state();
    RunLock running(&scheduler.running, RunLock::kWait);
    auto lock = lock_streams();
    const std::map<size_t, StreamPosition> needed = find_needed_positions(targets);
    for (;;) {
        if (std::all_of(targets.begin(), targets.end(), is_reached)) return Progress::kReached;
        if (run_one(needed, &lock)) continue;
        for (const auto& [actor, target] : needed)
            if (!is_reached(target) && needs_rank(*target.stream)) return Progress::kNeedsRank;
        return Progress::kStuck;
    }
}

}  // namespace

bool run_until(const std::vector<StreamPosition>& targets) {
    RankWait wait;
    for (;;) {
        const Progress progress = run_toward(targets);
        if (progress != Progress::kNeedsRank) return progress == Progress::kReached;
        wait.sleep();
    }
}

void run_ready(const std::vector<StreamPosition>& targets) { run_toward(targets); }

void for_each_queued_work(const std::function<bool(const StreamPtr&, uint64_t position, const Work&)>& visit) {
    auto lock = lock_streams();
    for (const StreamPtr& stream : list_streams()) {
        uint64_t position = stream->last_finished + (stream->is_running ? 1 : 0);
        for (const Work& work : stream->queue)
            if (!visit(stream, ++position, work)) break;
    }
}

void run_some(const std::vector<StreamPosition>& targets) {
    SchedulerState& scheduler = scheduler_state();
    RunLock running(&scheduler.running, RunLock::kTry);
    if (!running.is_held()) return;
    auto lock = lock_streams();
    const std::map<size_t, StreamPosition> needed = find_needed_positions(targets);
    for (size_t steps = scheduler.random.below(4); steps > 0; --steps)
        if (!run_one(needed, &lock)) return;
}

void run_some_of_all() {
    std::vector<StreamPosition> targets;
    {
        auto lock = lock_streams();
        for (const StreamPtr& stream : list_streams()) targets.push_back({stream, stream->last_queued});
    }
    run_some(targets);
}

int32_t context_error(int32_t device) {
    const DeviceState& state = scheduler_state().devices[device];
    if (!state.stops_on_failure || !state.failure) return 0;
    set_error(state.failure_text);
    return state.failure;
}

void reset_context(int32_t device) {
    SchedulerState& scheduler = scheduler_state();
    RunLock running(&scheduler.running, RunLock::kWait);
    auto lock = lock_streams();
    scheduler.devices[device].failure = 0;
    for (const auto& [handle, stream] : scheduler.streams) {
        if (stream->device != device) continue;
        stream->is_aborted = false;
        stream->error = 0;
        stream->queue.clear();  // a reset discards the work of the device's streams
        stream->last_finished = stream->last_queued;
    }
}

void set_failure_mode(const StreamPtr& stream, bool stops) {
    stream->stops_on_failure = stops;
    if (stops) scheduler_state().devices[stream->device].stops_on_failure = true;
}

namespace {

// Returns the error of the stream, and clears it unless the stream is aborted. If there is none, returns the error of
// the context.
int32_t take_error(const StreamPtr& stream) {
    if (!stream->error) return context_error(stream->device);
    const int32_t error = stream->error;
    set_error(stream->error_text);
    if (!stream->is_aborted) stream->error = 0;
    return error;
}

// Returns the status of a wait that cannot end: after an error, for a callback of this thread, or for a missing record.
int32_t unreachable_status(const char* call, int32_t device) {
    {
        auto lock = lock_streams();
        if (int32_t error = context_error(device)) return error;
        if (const Work* blocked_work = find_work_for_report())
            return fail(
                kReportTimeout, call,
                "the stream waits for the callback of " + blocked_work->name +
                    ", and this thread subscribed to it: it must call aclrtProcessReport first, in this thread.");
    }
    const std::string text = std::string(call) + ": the stream waits for an event that nothing records.";
    report_race(text, "", true);
    return fail(kStreamSyncTimeout, text);
}

}  // namespace

int32_t synchronize(const StreamPtr& stream, const char* call) {
    Clock clock;
    StreamPosition target{stream, 0};
    {
        auto lock = lock_streams();
        clock = stream->clock;
        target.position = stream->last_queued;
    }
    if (!run_until({target})) return unreachable_status(call, stream->device);
    auto lock = lock_streams();
    note_host_wait(clock);
    return take_error(stream);
}

int32_t synchronize_all(const char* call) {
    SchedulerState& scheduler = scheduler_state();
    const int32_t device = current_device();
    Clock clock;
    std::vector<StreamPosition> targets;
    {
        auto lock = lock_streams();
        for (const StreamPtr& stream : list_streams()) {
            if (stream->device != device) continue;
            clock.join(stream->clock);
            targets.push_back({stream, stream->last_queued});
        }
    }
    if (!run_until(targets)) return unreachable_status(call, device);
    auto lock = lock_streams();
    join_device_wait();
    check_copy_sources(clock);
    scheduler.device_wait = clock;
    scheduler.has_device_wait = true;
    int32_t status = 0;
    for (const StreamPosition& target : targets)
        if (int32_t error = take_error(target.stream); error && !status) status = error;
    return status;
}

uint64_t work_left() {
    auto lock = lock_streams();
    uint64_t left = 0;
    for (const auto& [handle, stream] : scheduler_state().streams) left += stream->queue.size();
    return left;
}

}  // namespace simulated_cann
