// The state of the scheduler: streams, clocks, the sources of copies. For scheduler.cpp, running.cpp and host_clock.cpp
// only.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cann/runtime/races.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {

// Random numbers by SplitMix64.
class RandomNumbers {
public:
    explicit RandomNumbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
    uint64_t next() {
        uint64_t mixed = (state_ += 0x9E3779B97F4A7C15u);
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
        return mixed ^ (mixed >> 31);
    }
    size_t below(size_t count) { return size_t(next() % count); }
    // Returns true with this probability.
    bool is_true(double probability) { return double(next() >> 11) * 0x1.0p-53 < probability; }

private:
    uint64_t state_;
};

// Host memory that a queued copy to the device reads, with a hash of its contents. The host must wait for the copy
// before it changes this memory.
struct CopySource {
    HostRange memory;
    uint64_t hash;
    size_t actor;
    uint64_t step;
    std::string operation, place;
};

// The state of a context.
struct ContextState {
    StreamPtr default_stream;
    bool stops_on_failure = false;  // true once a stream stops on failure
    int32_t failure = 0;
    std::string failure_text;
    int32_t device_of_failure = kNoDevice;
};

// Never destroyed, because calls may use it while the process ends. The mutex of lock_streams() protects all members
// but `running`, and the fields of streams and events.
struct SchedulerState {
    // Held by the thread that runs work, which may take long; taken before the other mutex. A fork gets another one.
    std::recursive_mutex* running = new std::recursive_mutex;
    std::unordered_map<void*, StreamPtr> streams;
    std::unordered_map<uint64_t, ContextState> contexts;  // by their numbers
    size_t actors = kHost + 1;
    int32_t stream_ids = 0;
    Clock host;
    Clock device_wait;  // of the last aclrtSynchronizeDevice, see join_device_wait()
    bool has_device_wait = false;
    std::vector<CopySource> copy_sources;
    RandomNumbers random{stream_seed()};
    // early_chance: probability that queueing runs work early. stray_chance: probability that a step of a wait selects
    // among all ready queues instead of the needed ones. Ten consecutive seeds cover late, early and mixed orders.
    double early_chance = std::vector<double>{0.0, 0.3, 0.05, 0.7, 0.0, 1.0}[stream_seed() % 6];
    double stray_chance = std::vector<double>{0.0, 0.5, 0.2, 0.5, 0.5}[stream_seed() % 5];
};
SchedulerState& scheduler_state();

// All streams, by their actors. Needs the lock.
std::vector<StreamPtr> list_streams();

// ---- running.cpp, with the lock held -----------------------------------------------------------------

// Returns a head that this thread may run only in aclrtProcessReport; null if there is none.
const Work* find_work_for_report();
// Ends the work that a thread of the parent process ran at the fork, with an error of its stream.
void fail_running_work();
// Runs the work now, for streams that run their work immediately. Releases the lock while it runs.
int32_t run_immediately(const StreamPtr& stream, Work work, std::unique_lock<std::mutex>* lock);

// ---- host_clock.cpp, with the lock held --------------------------------------------------------------

bool detects_races();
// Joins the clock of the last device synchronization to the host's clock.
void join_device_wait();
// Drops the sources of the copies that happened before this clock. Reports sources that the host has changed.
void check_copy_sources(const Clock& clock);
// Advances the stream's clock by one step, for this work. Checks the work's accesses for races and records them.
void note_work(const StreamPtr& stream, const Work& work);
// Fills host memory that a copy will write, unless queued work uses it. So an early read gives NaN instead of old
// values.
void fill_host_target(const Work& work);

}  // namespace simulated_cann
