// Queues of streams, and the time at which their work runs. Queued work is forced to run when the host waits for a
// stream, an event or the device, or when a queue is full. A query by the host forces at most three pieces of work.
// Forced heads of queues run in a random order, which a seed determines. It keeps only the order within a stream, and
// an event's record before its waits. Work that is not forced stays queued or runs early, as the seed determines.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cann/runtime/api.h"
#include "cann/runtime/clocks.h"
#include "cann/runtime/regions.h"

namespace simulated_cann {

struct Stream;
struct Capture;

// One aclrtRecordEvent: its position in its stream, and whether it has happened.
struct Record {
    std::weak_ptr<Stream> stream;
    uint64_t position = 0;  // in its stream; 0 if not recorded yet
    bool done = false;
    int64_t nanoseconds = 0;  // when it happened
    Clock clock;
};

// A range of host memory, such as the source of a copy.
struct HostRange {
    const void* first = nullptr;
    uint64_t bytes = 0;
};

// One branch of a graph in one replay. Messages name the stream that was captured and the stream that replays, because
// the program did not create the graph's own streams.
struct ReplayedAs {
    uint64_t replay;  // number of the replay
    uint32_t graph;
    std::string source, on;  // the places of the two streams
};

struct Work {
    enum class Kind {
        kDevice,    // a kernel, a stand-in, a host fallback, a copy, a fill
        kHostCode,  // a host function
        kRecord,
        kWait,
    };
    Kind kind = Kind::kDevice;
    std::string name;
    std::vector<MemoryAccess> accesses;
    std::function<int32_t()> run;    // returns 0, or calls set_error and returns an error code
    std::shared_ptr<Record> record;  // of kRecord and kWait
    HostRange source;                // of a copy to the device
    HostRange target;                // of a copy to the host
    // Whether this thread may run the work now; empty if every thread may. For callbacks that block (callbacks.cpp).
    std::function<bool()> may_run;
    std::shared_ptr<const ReplayedAs> replayed_as;

    Work(Kind kind, std::string name) : kind(kind), name(std::move(name)) {}
};

// Update of a captured group: launches on the stream replace the group's tasks (aclmdlRICaptureTaskUpdateBegin).
struct TaskUpdate {
    std::shared_ptr<Capture> graph;
    void* group;
    size_t done;  // number of replaced tasks
};

struct Stream {
    int32_t id = 0;
    size_t actor = 0;
    std::deque<Work> queue;
    uint64_t queued = 0, finished = 0;  // positions of the last queued and finished work, from 1
    bool is_running = false;
    Clock clock;
    uint64_t waits_for_unrecorded = 0;  // number of waits without a record; `clock` lacks their records
    int32_t error = 0;
    std::string error_text;
    bool stops_on_failure = false, is_aborted = false;
    std::shared_ptr<Capture> capture;
    size_t branch = 0;  // of the capture
    std::shared_ptr<TaskUpdate> update;
    std::string place() const;
};

// hicann/runtime pkg_inc/runtime/runtime/event.h, RT_EVENT_DDSYNC_NS and its neighbours.
enum EventFlag : uint32_t {
    kEventSync = 0x1,
    kEventProgress = 0x2,
    kEventSyncOfDevices = 0x4,
    kEventTimeLine = 0x8,
    kEventOfDevice = 0x10,
    kEventExternal = 0x20,
    kEventOfProcesses = 0x40,
};

struct Event {
    int32_t id = 0;
    bool is_extended = false;  // of aclrtCreateEventExWithFlag
    uint32_t flags = 0;        // an OR of EventFlag
    std::shared_ptr<Record> latest;
    // The next record, if waits for it are already queued, and the streams of these waits; unused for extended events.
    std::shared_ptr<Record> expected;
    std::vector<std::shared_ptr<Stream>> waiting;
    // The capture and its node that records the event; null if no capture does.
    std::shared_ptr<Capture> capture;
    size_t node = 0;
};

// The opposite of hicann/runtime src/runtime/core/inc/event/event.hpp, Event::IsEventWithoutWaitTask.
inline bool can_be_waited_for(const Event& event) {
    return event.flags & (kEventSync | kEventSyncOfDevices | kEventExternal | kEventOfProcesses);
}

enum class Order { kDrawn, kImmediate };
Order stream_order();    // ASCEND_SIM_STREAMS: asynchronous (the default) or immediate
uint64_t stream_seed();  // ASCEND_SIM_SEED

// The lock of all streams, events and clocks.
std::unique_lock<std::mutex> lock_streams();

// MemoryAccess::argument of a launch's workspace.
constexpr const char* kWorkspace = "workspace";

using StreamPtr = std::shared_ptr<Stream>;

inline uint64_t this_thread() { return uint64_t(pthread_self()); }

// ---- with the lock held ------------------------------------------------------------------------------

StreamPtr new_stream();
StreamPtr default_stream();
// The stream of a handle, the default stream for null, or nullptr if the handle is not a stream.
StreamPtr stream_of(void* handle);
void forget_stream(void* handle);

// Queues work after the stream's earlier work; a captured stream records it. If the context has an error, returns it.
int32_t enqueue(const StreamPtr& stream, Work work);
// Queue a record of an event, or a wait for it.
int32_t enqueue_record(const StreamPtr& stream, const std::shared_ptr<Record>& record);
int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<Record>& record);

// aclrtSetStreamFailureMode.
void set_failure_mode(const StreamPtr& stream, bool stops);

// Reports races of queued work with an access of the host to device memory, which happens now, without a stream.
void note_host_access(const char* call, const void* first, uint64_t bytes, bool writes);
// Records that the host has waited for the work before this clock of a stream or a record.
void note_host_wait(const Clock& clock);
// "" or the stream work that uses this host memory and that the host has not waited for.
std::string user_of_host(const HostRange& memory);
// Records that device memory is freed. `is_torchs_own`: torch_npu synchronized the device in order to free it.
void note_freed(uint64_t allocation, bool is_torchs_own);

// ---- without the lock --------------------------------------------------------------------------------

// Takes the lock and calls stream_of.
StreamPtr find_stream(void* handle);

// Calls enqueue, then run_early. run_early runs at most a few heads of queues, or half of this stream's full queue.
int32_t submit(const StreamPtr& stream, Work work);
void run_early(const StreamPtr& stream);

struct Target {
    StreamPtr stream;
    uint64_t position;
};
// Runs the work up to these positions of streams, its dependencies, and perhaps more. Returns false if that requires
// work that is not queued or that this thread may not run.
bool run_until(const std::vector<Target>& targets);

// Run up to three heads of queues: those that a query's targets need, and for aclrtProcessReport those of all streams.
void run_some(const std::vector<Target>& targets);
void run_some_of_all();

// Wait for a stream, or for all streams. Return the status of `call`, and set its text if it fails.
int32_t synchronize(const StreamPtr& stream, const char* call);
int32_t synchronize_all(const char* call);

// The context's error, whose text it sets, or 0. After an error, all calls that queue, query or wait return it.
int32_t context_error();
// Ends the device's context and discards the queued work.
void reset_context();

// Ends the subscription of a destroyed stream (callbacks.cpp).
void end_reports(const Stream& stream);

// Number of pieces of work that are still queued.
uint64_t work_left();

}  // namespace simulated_cann
