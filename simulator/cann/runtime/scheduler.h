// Queues of streams, and the order in which their work runs. Queued work must run when the host waits for a stream, an
// event or the device, or when a queue is full. A query by the host runs at most three pieces of work. The order is
// random and depends on a seed. It guarantees only that the work of one stream keeps its order, and that a record of an
// event runs before the waits for it. The seed also determines whether other work runs early or stays queued.
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
struct Graph;

// One call of aclrtRecordEvent: its position in its stream, and whether it has happened.
struct Record {
    std::weak_ptr<Stream> stream;
    uint64_t position = 0;  // in its stream; 0 if not recorded yet
    bool is_done = false;
    int64_t nanoseconds = 0;  // when it happened
    Clock clock;
};

// A range of host memory, such as the source of a copy.
struct HostRange {
    const void* first = nullptr;
    uint64_t bytes = 0;
};

// One branch of a graph in one replay. Messages name the captured stream and the stream of aclmdlRIExecuteAsync,
// because the program does not know the graph's own streams.
struct BranchReplay {
    uint64_t replay_number;
    uint32_t graph_id;
    std::string captured_stream, replaying_stream;  // places, such as "stream 2"
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
    HostRange host_source;           // of a copy to the device
    HostRange host_target;           // of a copy to the host
    bool is_copy = false;            // may access memory of another device; kernels may not
    // Whether the calling thread may run the work now; empty if every thread may. Used by callbacks that block
    // (callbacks.cpp).
    std::function<bool()> may_run;
    // For operations of HCCL (cann/hccl/exchange.h); empty for other work. is_blocked returns whether the work must
    // wait for another rank, is_awaited whether another rank waits for this work.
    std::function<bool()> is_blocked, is_awaited;
    std::shared_ptr<const BranchReplay> branch_replay;

    Work(Kind kind, std::string name) : kind(kind), name(std::move(name)) {}
};

// Update of a group of captured tasks: launches on the stream replace the tasks (aclmdlRICaptureTaskUpdateBegin).
struct TaskUpdate {
    std::shared_ptr<Graph> graph;
    void* group;
    size_t replaced_count;
};

struct Stream {
    int32_t id = 0;
    size_t actor = 0;  // index in clocks (clocks.h)
    int32_t device = 0;
    std::deque<Work> queue;
    uint64_t last_queued = 0, last_finished = 0;  // positions of the last queued and finished work, from 1
    bool is_running = false;
    Clock clock;
    uint64_t unrecorded_waits = 0;  // number of queued waits whose record is not queued; `clock` does not include them
    int32_t error = 0;
    std::string error_text;
    bool stops_on_failure = false, is_aborted = false;
    bool is_replay = false;                   // replays a branch of a graph; the program has no handle
    uint32_t overflow_switch = 0;             // of aclrtSetStreamOverflowSwitch
    std::shared_ptr<Graph> capture;           // the graph that records the stream; null if none does
    size_t branch = 0;                        // index of the stream's branch in the graph
    std::shared_ptr<TaskUpdate> task_update;  // null unless launches replace captured tasks
    std::string place() const;                // such as "stream 2"
};

// hicann/runtime pkg_inc/runtime/runtime/event.h, RT_EVENT_DDSYNC_NS and its neighbours.
enum EventFlag : uint32_t {
    kEventSync = 0x1,
    kEventProgress = 0x2,
    kEventDeviceSync = 0x4,
    kEventTimeLine = 0x8,
    kEventDeviceUseOnly = 0x10,
    kEventExternal = 0x20,
    kEventIpc = 0x40,
};

struct Event {
    int32_t id = 0;
    int32_t device = 0;
    bool is_extended = false;  // created by aclrtCreateEventExWithFlag
    uint32_t flags = 0;        // an OR of EventFlag
    std::shared_ptr<Record> latest_record;
    // The next record, if waits for it are already queued, and the streams of these waits. Extended events do not use
    // it.
    std::shared_ptr<Record> next_record;
    std::vector<std::shared_ptr<Stream>> waiting_streams;
    // The capture and its node that records the event; null if no capture does.
    std::shared_ptr<Graph> capture;
    size_t node = 0;
};

// Whether streams can wait for the event: the opposite of Event::IsEventWithoutWaitTask (hicann/runtime
// src/runtime/core/inc/event/event.hpp).
inline bool can_be_waited_for(const Event& event) {
    return event.flags & (kEventSync | kEventDeviceSync | kEventExternal | kEventIpc);
}

enum class Order { kRandom, kImmediate };
Order stream_order();    // ASCEND_SIM_STREAMS: asynchronous (the default) or immediate
uint64_t stream_seed();  // ASCEND_SIM_SEED

// The lock of all streams, events and clocks.
std::unique_lock<std::mutex> lock_streams();

// MemoryAccess::argument of a launch's workspace.
constexpr const char* kWorkspace = "workspace";

using StreamPtr = std::shared_ptr<Stream>;

inline uint64_t this_thread() { return uint64_t(pthread_self()); }

// ---- with the lock held ------------------------------------------------------------------------------

StreamPtr new_stream(int32_t device);
// The number of the device's streams that the program made, and its default stream.
size_t number_of_streams(int32_t device);
// The default stream of a device.
StreamPtr default_stream(int32_t device);
// The stream of a handle, the default stream of this thread's device for null, or nullptr if the handle is not a
// stream.
StreamPtr stream_of(void* handle);
void forget_stream(void* handle);

// Queues work after the earlier work of the stream. A captured stream records the work instead. Returns the error of
// the context if it has one.
int32_t enqueue(const StreamPtr& stream, Work work);
// Queue a record of an event, or a wait for it.
int32_t enqueue_record(const StreamPtr& stream, const std::shared_ptr<Record>& record);
int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<Record>& record);

// aclrtSetStreamFailureMode.
void set_failure_mode(const StreamPtr& stream, bool stops);

// Reports races between queued work and an access that the host makes to device memory now, without a stream.
void note_host_access(const char* call, const void* first, uint64_t bytes, bool writes);
// Records that the host has waited for the work before this clock of a stream or a record.
void note_host_wait(const Clock& clock);
// Returns "" or the stream work that uses this host memory and for which the host has not waited.
std::string find_user_of_host_memory(const HostRange& memory);
// Handles a free of device memory. `is_by_torch_npu`: torch_npu itself synchronized the device before this free.
void note_device_free(uint64_t allocation, bool is_by_torch_npu);

// ---- without the lock --------------------------------------------------------------------------------

// Takes the lock and calls stream_of.
StreamPtr find_stream(void* handle);

// Like check_context. The stream must also belong to the device of this thread, else 107003 (hicann/runtime
// src/runtime/api/impl/api_impl.cc, for example ApiImpl::LaunchKernelV2 and ::MemcpyAsync: RT_ERROR_STREAM_CONTEXT).
aclError check_stream_context(const char* call, const Stream& stream);

// submit() calls enqueue() and run_early(). run_early() runs at most a few heads of queues. If the queue of this stream
// is full, it runs half of it.
int32_t submit(const StreamPtr& stream, Work work);
void run_early(const StreamPtr& stream);

// A piece of work of a stream, by its position.
struct StreamPosition {
    StreamPtr stream;
    uint64_t position;
};
// Runs the work of streams up to these positions, and the work on which it depends. It may also run other work. Waits
// for other ranks if work needs them. Returns false if work is missing in the queues, or if this thread may not run
// it.
bool run_until(const std::vector<StreamPosition>& targets);
// Like run_until, but does not wait for other ranks.
void run_ready(const std::vector<StreamPosition>& targets);
// Calls `visit` with the queued work of each stream, in its order and with its position, with the lock held. If it
// returns false, continues with the next stream.
void for_each_queued_work(const std::function<bool(const StreamPtr&, uint64_t position, const Work&)>& visit);

// Run at most three heads of queues. run_some() runs work that the targets of a query need. run_some_of_all_streams(),
// for aclrtProcessReport, runs work of all streams.
void run_some(const std::vector<StreamPosition>& targets);
void run_some_of_all_streams();

// Wait for a stream, or for all streams of this thread's device. Return the status of `call`, and set its text if it
// fails.
int32_t synchronize(const StreamPtr& stream, const char* call);
int32_t synchronize_all(const char* call);

// Returns the error of the device and sets its text; 0 if there is none. After an error, all calls that queue, query or
// wait on this device return it.
int32_t context_error(int32_t device);
// Returns the error of the first work that failed on the device, whether or not later calls return it; 0 if none
// failed.
int32_t device_failure(int32_t device);
// Clears the error of the device and discards its queued work.
void reset_context(int32_t device);

// Ends the subscription of a destroyed stream (callbacks.cpp).
void end_reports(const Stream& stream);
// Adds the call to the report if a host function makes it (callbacks.cpp).
void note_call_in_host_function(const char* call);

// Number of pieces of work that are still queued and would have an effect: not records of events and waits for them.
uint64_t work_left();

}  // namespace simulated_cann
