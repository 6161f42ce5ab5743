// Runs the queued work of streams. scheduler.h describes its order.
#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <thread>

#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/device_flags.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {
namespace {

constexpr size_t kMaxQueuedWork = 1024;  // pieces of work in a full queue of a stream
constexpr int kMaxEarlySteps = 4;        // pieces of work that may run early when one is queued

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// The functions below that take streams, positions or records need the lock. The functions that run work also
// need SchedulerState::running.

bool is_ready(const Stream& stream) {
    if (stream.is_running || stream.queue.empty()) return false;
    const Work& head = stream.queue.front();
    if (head.may_run && !head.may_run()) return false;
    if (head.is_blocked && head.is_blocked()) return false;
    return head.kind != Work::Kind::kWait || (head.flag ? head.flag->is_set : head.record->is_done);
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

// Releases a lock, and takes it again at its end.
class Unlocked {
public:
    explicit Unlocked(std::unique_lock<std::mutex>* lock) : lock_(lock) { lock_->unlock(); }
    ~Unlocked() { lock_->lock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    std::unique_lock<std::mutex>* lock_;
};

// Runs the record, the wait or the reset of an event. Returns false for other work.
bool run_event_work(const Work& work) {
    if (work.kind == Work::Kind::kReset) work.flag->is_set = false;
    if (work.kind == Work::Kind::kRecord) {
        work.record->is_done = true;
        work.record->nanoseconds = now();
        if (work.flag) work.flag->is_set = true;
    }
    return work.kind == Work::Kind::kRecord || work.kind == Work::Kind::kWait || work.kind == Work::Kind::kReset;
}

// Stores the error of failed work. A context that stops on failure stores the first error, and the stream runs no
// further work. Its later records do not happen, and other streams wait for them. The host does not wait forever: its
// calls return the error of the context. Source: hicann/runtime src/runtime/core/src/stream/stream.cc,
// Stream::EnterFailureAbort. In CANN, the records would happen if nothing called Runtime::SetDisableThread. But
// raw_device.cc calls it on chips with STARS, and NpuDriver::VirtualCqAllocate calls it on other chips.
void store_failure(Stream* stream, int32_t status, std::string text) {
    stream->error = status;
    stream->error_text = std::move(text);
    const auto found = scheduler_state().contexts.find(stream->context);
    if (found == scheduler_state().contexts.end() || !found->second.stops_on_failure) return;
    ContextState& context = found->second;
    if (!context.failure) {
        context.failure = status;
        context.device_of_failure = stream->device;
        try {
            context.failure_text = stream->error_text;
        } catch (const std::bad_alloc&) {
            context.failure_text = "no host memory";
        }
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
               " memory that " + (what.empty() ? "is not allocated" : "was freed before the work ran (" + what + ")") +
               ".";
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

// Runs the work, without the lock. If it fails, sets the text. Adds the failure to the report unless something else
// has reported it, such as a broken rule of a kernel, a damaged guard zone or freed memory.
int32_t run_and_report(const Work& work, int32_t device, std::string* text) {
    const KeepLastError keep_last_error;
    const uint64_t errors_before = reported_errors();
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
    if (!status) return status;
    *text = recent_error_text();
    if (reported_errors() == errors_before) report_failed_work(*text);
    return status;
}

// Like run_and_report(), but throws nothing: without memory for the text of an error, the text is short.
int32_t run(const Work& work, int32_t device, std::string* text) {
    try {
        return run_and_report(work, device, text);
    } catch (const std::bad_alloc&) {
        *text = "no host memory";
        return kernel_exception();
    }
}

// Runs the head of the stream's queue. Releases the lock while the work runs.
void run_head(const StreamPtr& stream, std::unique_lock<std::mutex>* lock) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (run_event_work(work)) {
        ++stream->last_finished;
        return;
    }
    stream->is_running = true;
    lock->unlock();
    std::string text;
    const int32_t status = run(work, stream->device, &text);
    lock->lock();
    stream->is_running = false;
    if (status) store_failure(stream.get(), status, std::move(text));
    ++stream->last_finished;
}

// Returns the position that each stream must reach before all targets are reached. The keys are the streams' actors.
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
            if (work.kind != Work::Kind::kWait) continue;
            for (const auto& record : work.flag ? work.flag->queued : std::vector{work.record})
                if (StreamPtr other = record->stream.lock(); other && !record->is_done)
                    pending.push_back({other, record->position});
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

}  // namespace

// Returns a head that this thread may run only in aclrtProcessReport; null if there is none.
const Work* find_work_for_report() {
    for (const auto& [handle, stream] : scheduler_state().streams)
        if (!stream->is_running && !stream->queue.empty() && stream->queue.front().may_run &&
            !stream->queue.front().may_run())
            return &stream->queue.front();
    return nullptr;
}

void fail_running_work() {
    const std::string text =
        std::string(kErrorPrefix) + "the process was forked while another thread ran work of the stream.";
    for (const StreamPtr& stream : list_streams()) {
        if (!stream->is_running) continue;
        stream->is_running = false;
        store_failure(stream.get(), kernel_exception(), text);
        ++stream->last_finished;
    }
}

int32_t run_immediately(const StreamPtr& stream, Work work, std::unique_lock<std::mutex>* lock) {
    ++stream->last_finished;
    if (run_event_work(work)) return 0;
    const Unlocked unlocked(lock);
    for (RankWait wait; work.is_blocked && work.is_blocked();) wait.sleep();
    std::string text;
    // Two threads may launch on one stream at once. A host function may wait for another thread's launch.
    std::optional<RunLock> running;
    if (work.kind != Work::Kind::kHostCode) running.emplace(scheduler_state().running, RunLock::kWait);
    return run(work, stream->device, &text);
}

namespace {

void run_some_early(const StreamPtr& stream) {
    SchedulerState& scheduler = scheduler_state();
    if (stream_order() == Order::kImmediate) return;
    RunLock running(scheduler.running, RunLock::kTry);
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

}  // namespace

void run_early(const StreamPtr& stream) {
    try {
        run_some_early(stream);
    } catch (const std::bad_alloc&) {  // the work is queued, and runs later
    }
}

namespace {

enum class Progress { kReached, kNeedsRank, kStuck };

// Runs ready work until the targets are reached or no work is ready.
Progress run_toward(const std::vector<StreamPosition>& targets) {
    SchedulerState& scheduler = scheduler_state();
    RunLock running(scheduler.running, RunLock::kWait);
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
    RunLock running(scheduler.running, RunLock::kTry);
    if (!running.is_held()) return;
    auto lock = lock_streams();
    const std::map<size_t, StreamPosition> needed = find_needed_positions(targets);
    for (size_t steps = scheduler.random.below(4); steps > 0; --steps)
        if (!run_one(needed, &lock)) return;
}

void run_some_of_all_streams() {
    std::vector<StreamPosition> targets;
    {
        auto lock = lock_streams();
        for (const StreamPtr& stream : list_streams()) targets.push_back({stream, stream->last_queued});
    }
    run_some(targets);
}

}  // namespace simulated_cann
