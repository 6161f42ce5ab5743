#include "cann/runtime/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <unordered_map>

#include "cann/runtime/allocations.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/races.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {

State& state() {
    static State* instance = new State;
    return *instance;
}

namespace {

constexpr size_t kQueueDepth = 1024;  // a stream's queue holds this much work before queueing waits for the device
constexpr int kMostEarlySteps = 4;    // after each queued piece of work

uint64_t number_of(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// ---- running, with `running` and the lock held -------------------------------------------------------

bool is_done(const Record& record) { return record.done; }

bool is_ready(const Stream& s) {
    if (s.is_running || s.queue.empty()) return false;
    const Work& head = s.queue.front();
    if (head.may_run && !head.may_run()) return false;
    return head.kind != Work::Kind::kWait || is_done(*head.record);
}

// Work that this thread may run only in aclrtProcessReport; nullptr if there is none.
const Work* kept_for_report() {
    for (const auto& [handle, s] : state().streams)
        if (!s->is_running && !s->queue.empty() && s->queue.front().may_run && !s->queue.front().may_run())
            return &s->queue.front();
    return nullptr;
}

void mark_done(Record* record) {
    record->done = true;
    record->nanoseconds = now();
}

// hicann/runtime src/runtime/core/src/stream/stream.cc, Stream::EnterFailureAbort: a context that stops on failure
// stores the first error, and the stream runs no further work. The stream's later records do not happen, and other
// streams wait for them, if Runtime::SetDisableThread was called: on chips with STARS (raw_device.cc), elsewhere by
// NpuDriver::VirtualCqAllocate. The host does not wait forever: its calls return the context's error.
void fail(Stream* s, int32_t status, const std::string& text) {
    State& st = state();
    s->error = status;
    s->error_text = text;
    if (!st.stops_on_failure) return;
    if (!st.failure) {
        st.failure = status;
        st.failure_text = text;
    }
    s->is_aborted = true;
    s->queue.clear();
    s->finished = s->queued - 1;  // the caller counts the failed work
}

// "", or the error that memory which the work accesses is not allocated. Called when the work runs.
std::string freed_memory_error(const Work& work) {
    for (const MemoryAccess& access : work.accesses) {
        const Region region = region_of(access);
        if (region.empty()) continue;
        void* first = nullptr;
        uint64_t bytes = 0;
        const auto* low = reinterpret_cast<const void*>(region.low);
        if (find_allocation(low, &first, &bytes)) continue;
        // torch_npu frees a workspace before it launches the call (Ascend/op-plugin
        // op_plugin/utils/op_api_common_base.h, GetWorkSpaceAddr). With its cache off, that memory is freed by now.
        if (access.argument == kWorkspace && is_freed_with_padding(low)) continue;
        const std::string what = describe_freed(low);
        return work.name + ": " + access.argument + " " + (access.writes ? "is written to" : "is read from") +
               " memory that " + (what.empty() ? "is not allocated" : "was freed before it ran (" + what + ")") + ".";
    }
    return "";
}

int32_t run(const Work& work, std::string* text) {
    std::string freed = freed_memory_error(work);
    int32_t status = 0;
    if (!freed.empty()) {
        report_freed(freed);
        status = failed(kernel_exception(), freed);
    } else {
        try {
            status = work.run ? work.run() : 0;
        } catch (const std::exception& error) {
            status = failed(kernel_exception(), work.name, error.what());
        }
    }
    if (status) *text = recent_error_text();
    return status;
}

void step(const StreamPtr& s, std::unique_lock<std::mutex>* lock) {
    Work work = std::move(s->queue.front());
    s->queue.pop_front();
    if (work.kind == Work::Kind::kRecord) mark_done(work.record.get());
    if (work.kind == Work::Kind::kRecord || work.kind == Work::Kind::kWait) {
        ++s->finished;
        return;
    }
    s->is_running = true;
    lock->unlock();
    std::string text;
    const int32_t status = run(work, &text);
    lock->lock();
    s->is_running = false;
    if (status) fail(s.get(), status, text);
    ++s->finished;
}

std::vector<StreamPtr> all_streams() {
    State& st = state();
    std::vector<StreamPtr> all;
    for (const auto& [handle, s] : st.streams) all.push_back(s);
    std::sort(all.begin(), all.end(), [](const StreamPtr& a, const StreamPtr& b) { return a->actor < b->actor; });
    return all;
}

// The position that each stream must reach for the targets.
std::map<size_t, Target> needed_by(const std::vector<Target>& targets) {
    std::map<size_t, Target> needed;
    std::vector<Target> pending(targets);
    while (!pending.empty()) {
        Target target = std::move(pending.back());
        pending.pop_back();
        Target& farthest = needed[target.stream->actor];
        if (farthest.stream && farthest.position >= target.position) continue;
        farthest = target;
        uint64_t position = target.stream->finished + (target.stream->is_running ? 1 : 0);
        for (const Work& work : target.stream->queue) {
            if (++position > target.position) break;
            if (work.kind != Work::Kind::kWait || is_done(*work.record)) continue;
            if (StreamPtr other = work.record->stream.lock(); other && work.record->position)
                pending.push_back({other, work.record->position});
        }
    }
    return needed;
}

bool is_reached(const Target& t) { return t.stream->finished >= t.position; }

// Runs one head that a target needs, or sometimes another one; false if none of the needed heads is ready.
bool run_one(const std::map<size_t, Target>& needed, std::unique_lock<std::mutex>* lock) {
    State& st = state();
    std::vector<StreamPtr> ready;
    for (const auto& [actor, t] : needed)
        if (!is_reached(t) && is_ready(*t.stream)) ready.push_back(t.stream);
    if (ready.empty()) return false;
    if (st.stray_chance > 0 && st.draw.chance(st.stray_chance)) {
        ready.clear();
        for (const StreamPtr& s : all_streams())
            if (is_ready(*s)) ready.push_back(s);
    }
    step(ready[st.draw.below(ready.size())], lock);
    return true;
}

// ---- queueing ----------------------------------------------------------------------------------------

int32_t run_at_once(const StreamPtr& s, Work work, std::unique_lock<std::mutex>* lock) {
    if (work.kind == Work::Kind::kRecord) mark_done(work.record.get());
    ++s->finished;
    if (work.kind == Work::Kind::kRecord || work.kind == Work::Kind::kWait) return 0;
    lock->unlock();
    std::string text;
    const int32_t status = run(work, &text);
    lock->lock();
    return status;
}

}  // namespace

std::string Stream::place() const { return "stream " + std::to_string(id); }

namespace {

// The settings of the environment, read again after a fork: tests fork a process that has loaded the library.
struct Settings {
    pid_t process = getpid();
    Order order = Order::kDrawn;
    uint64_t seed = number_of("ASCEND_SIM_SEED", 0);

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

std::unique_lock<std::mutex> lock_streams() { return std::unique_lock<std::mutex>(state().mutex); }

StreamPtr new_stream() {
    State& st = state();
    auto s = std::make_shared<Stream>();
    s->id = st.stream_ids++;
    s->actor = st.actors++;
    s->clock.join(st.host);
    st.streams[s.get()] = s;
    return s;
}

// hicann/runtime src/runtime/api/impl/api_impl.cc: a null stream is the context's default stream, which is not ordered
// with other streams.
StreamPtr default_stream() {
    State& st = state();
    if (!st.default_stream) st.default_stream = new_stream();
    return st.default_stream;
}

StreamPtr stream_of(void* handle) {
    if (!handle) return default_stream();
    auto found = state().streams.find(handle);
    return found == state().streams.end() ? nullptr : found->second;
}

StreamPtr find_stream(void* handle) {
    auto lock = lock_streams();
    return stream_of(handle);
}

void forget_stream(void* handle) { state().streams.erase(handle); }

int32_t enqueue(const StreamPtr& s, Work work) {
    State& st = state();
    if (is_capturing(*s)) return capture_work(s, std::move(work));
    if (s->update) return update_task(s, std::move(work));
    // hicann/runtime docs/zh/dev_guide/04-01_single_stream_capture.md: a capture forbids the default stream.
    if (s == st.default_stream && any_captured_stream())
        return failed(kCaptureImplicit, work.name, "stream must not be the default stream during a capture.");
    if (st.stops_on_failure && st.failure) {
        set_error(st.failure_text);
        return st.failure;
    }
    ++s->queued;
    note_work(s, work);
    if (work.kind == Work::Kind::kRecord) {
        work.record->stream = s;
        work.record->position = s->queued;
        work.record->clock = s->clock;
    }
    if (stream_order() == Order::kImmediate) {
        std::unique_lock<std::mutex> lock(st.mutex, std::adopt_lock);
        const int32_t status = run_at_once(s, std::move(work), &lock);
        lock.release();
        return status;
    }
    fill_target(work);
    s->queue.push_back(std::move(work));
    return 0;
}

int32_t enqueue_record(const StreamPtr& s, const std::shared_ptr<Record>& record) {
    Work work(Work::Kind::kRecord, "aclrtRecordEvent");
    work.record = record;
    return enqueue(s, std::move(work));
}

int32_t enqueue_wait(const StreamPtr& s, const std::shared_ptr<Record>& record) {
    s->clock.join(record->clock);
    if (is_done(*record)) return 0;
    Work work(Work::Kind::kWait, "aclrtStreamWaitEvent");
    work.record = record;
    return enqueue(s, std::move(work));
}

void run_early(const StreamPtr& s) {
    State& st = state();
    if (stream_order() == Order::kImmediate) return;
    RunningLock running(&st.running, RunningLock::kTry);
    if (!running.is_held()) return;
    auto lock = lock_streams();
    for (int i = 0; i < kMostEarlySteps && st.early_chance > 0 && st.draw.chance(st.early_chance); ++i) {
        std::vector<StreamPtr> ready;
        for (const StreamPtr& one : all_streams())
            if (is_ready(*one)) ready.push_back(one);
        if (ready.empty()) return;
        step(ready[st.draw.below(ready.size())], &lock);
    }
    // If the queue is full, the caller waits for half of it.
    if (s->queue.size() < kQueueDepth) return;
    const Target half{s, s->queued - kQueueDepth / 2};
    lock.unlock();
    run_until({half});
}

int32_t submit(const StreamPtr& s, Work work) {
    int32_t status = 0;
    {
        auto lock = lock_streams();
        status = enqueue(s, std::move(work));
    }
    if (status == 0) run_early(s);
    return status;
}

bool run_until(const std::vector<Target>& targets) {
    State& st = state();
    RunningLock running(&st.running, RunningLock::kWait);
    auto lock = lock_streams();
    const std::map<size_t, Target> needed = needed_by(targets);
    for (;;) {
        if (std::all_of(targets.begin(), targets.end(), is_reached)) return true;
        if (!run_one(needed, &lock)) return false;
    }
}

void run_some(const std::vector<Target>& targets) {
    State& st = state();
    RunningLock running(&st.running, RunningLock::kTry);
    if (!running.is_held()) return;
    auto lock = lock_streams();
    const std::map<size_t, Target> needed = needed_by(targets);
    for (size_t steps = st.draw.below(4); steps > 0; --steps)
        if (!run_one(needed, &lock)) return;
}

void run_some_of_all() {
    std::vector<Target> targets;
    {
        auto lock = lock_streams();
        for (const StreamPtr& s : all_streams()) targets.push_back({s, s->queued});
    }
    run_some(targets);
}

int32_t context_error() {
    State& st = state();
    if (!st.stops_on_failure || !st.failure) return 0;
    set_error(st.failure_text);
    return st.failure;
}

void reset_context() {
    State& st = state();
    RunningLock running(&st.running, RunningLock::kWait);
    auto lock = lock_streams();
    st.failure = 0;
    for (const auto& [handle, s] : st.streams) {
        s->is_aborted = false;
        s->error = 0;
        s->queue.clear();  // a reset discards the work of the device's streams
        s->finished = s->queued;
    }
}

void set_failure_mode(const StreamPtr& s, bool stops) {
    s->stops_on_failure = stops;
    if (stops) state().stops_on_failure = true;
}

namespace {

// Returns the stream's error, and clears it unless the stream is aborted; without one, returns the context's error.
int32_t take_error(const StreamPtr& s) {
    if (!s->error) return context_error();
    const int32_t error = s->error;
    set_error(s->error_text);
    if (!s->is_aborted) s->error = 0;
    return error;
}

// The status of a wait that cannot end: after an error, for a callback of this thread, or for a missing record.
int32_t unreachable_status(const char* call) {
    {
        auto lock = lock_streams();
        if (int32_t error = context_error()) return error;
        if (const Work* kept = kept_for_report())
            return failed(
                kReportTimeout, call,
                "the stream waits for the callback of " + kept->name +
                    ", and this thread subscribed to it: it must call aclrtProcessReport first, in this thread.");
    }
    const std::string text = std::string(call) + ": the stream waits for an event that nothing records.";
    report_race(text, "", true);
    return failed(kStreamSyncTimeout, text);
}

}  // namespace

int32_t synchronize(const StreamPtr& s, const char* call) {
    Clock clock;
    Target target{s, 0};
    {
        auto lock = lock_streams();
        clock = s->clock;
        target.position = s->queued;
    }
    if (!run_until({target})) return unreachable_status(call);
    auto lock = lock_streams();
    note_host_wait(clock);
    return take_error(s);
}

int32_t synchronize_all(const char* call) {
    State& st = state();
    Clock clock;
    std::vector<Target> targets;
    {
        auto lock = lock_streams();
        for (const StreamPtr& s : all_streams()) {
            clock.join(s->clock);
            targets.push_back({s, s->queued});
        }
    }
    if (!run_until(targets)) return unreachable_status(call);
    auto lock = lock_streams();
    join_device_wait();
    check_sources(clock);
    st.device_wait = clock;
    st.has_device_wait = true;
    int32_t status = 0;
    for (const Target& t : targets)
        if (int32_t one = take_error(t.stream); one && !status) status = one;
    return status;
}

uint64_t work_left() {
    auto lock = lock_streams();
    uint64_t left = 0;
    for (const auto& [handle, s] : state().streams) left += s->queue.size();
    return left;
}

}  // namespace simulated_cann
