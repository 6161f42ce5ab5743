// Queues of streams, and the order in which their work runs. Queued work must run when the host waits for a stream, an
// event or the device, or when a queue is full. A query by the host runs at most three pieces of work. The order is
// random and depends on a seed. It guarantees only that the work of one stream keeps its order, and that a record of an
// event runs before the waits for it. The seed also determines whether other work runs early or stays queued.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cann/runtime/api.h"
#include "cann/runtime/clocks.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/regions.h"

namespace simulated_cann {

struct Stream;
struct Graph;
struct DeviceFlag;

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
        kReset,  // of an event's flag
    };
    Kind kind = Kind::kDevice;
    std::string name;
    std::vector<MemoryAccess> accesses;
    std::function<int32_t()> run;      // returns 0, or calls set_error and returns an error code
    std::shared_ptr<Record> record;    // of kRecord, and of kWait unless it waits for a flag
    std::shared_ptr<DeviceFlag> flag;  // of kReset, and of kRecord and kWait if the event has a flag
    std::shared_ptr<void> waits;       // of kWait: Event::waits
    HostRange host_source;             // of a copy to the device
    HostRange host_target;             // of a copy to the host
    bool is_copy = false;              // may access memory of another device; kernels may not
    bool is_kernel = false;            // may be a task of a group that a program updates
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
    size_t actor = 0;      // index in clocks (clocks.h)
    uint64_t context = 0;  // the number of the context that made it
    int32_t device = 0;    // of the context
    std::list<Work> queue;
    uint64_t last_queued = 0, last_finished = 0;  // positions of the last queued and finished work, from 1
    bool is_running = false;
    Clock clock;
    uint64_t unrecorded_waits = 0;  // number of queued waits whose record is not queued; `clock` does not include them
    int32_t error = 0;
    std::string error_text;
    bool stops_on_failure = false, is_aborted = false;
    bool has_failure_mode = false;            // the program has set it
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
    std::shared_ptr<DeviceFlag> flag;                        // null if the event has none (device_flags.h)
    std::vector<std::shared_ptr<Stream>> waiting_streams;    // of queued waits that the next record must end
    std::shared_ptr<void> waits = std::make_shared<char>();  // also held by the event's queued waits
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

StreamPtr new_stream(ContextId context);
// The number of the device's streams that the program made, and of the default streams of its contexts.
size_t number_of_streams(int32_t device);
StreamPtr default_stream(ContextId context);
bool is_default_stream(const StreamPtr& stream);
// The stream of a handle, the default stream of this thread's context for null, or nullptr if the handle is not a
// stream.
StreamPtr stream_of(void* handle);
void forget_stream(void* handle);

// Queues work after the earlier work of the stream. A captured stream records the work instead. Returns the error of
// the context if it has one.
int32_t enqueue(const StreamPtr& stream, Work work);
// Queue a record of an event, or a wait for it.
int32_t enqueue_record(const StreamPtr& stream, const std::shared_ptr<Record>& record,
                       std::shared_ptr<DeviceFlag> flag = nullptr);
int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<Record>& record,
                     std::shared_ptr<void> waits = nullptr);

// aclrtSetStreamFailureMode.
void set_failure_mode(const StreamPtr& stream, bool stops);

// Reports races between queued work and an access that the host makes to device memory now, without a stream.
void note_host_access(const char* call, const void* first, uint64_t bytes, bool writes);
// Records that the host has waited for the work before this clock of a stream or a record.
void note_host_wait(const Clock& clock);
// Whether the host has waited for all work of the stream.
bool has_host_waited(const Stream& stream);
// Returns "" or the stream work that uses this host memory and for which the host has not waited.
std::string find_user_of_host_memory(const HostRange& memory);
// Handles a free of device memory. `is_by_torch_npu`: torch_npu itself synchronized the device before this free.
void note_device_free(uint64_t allocation, bool is_by_torch_npu);

// ---- without the lock --------------------------------------------------------------------------------

// Takes the lock and calls stream_of.
StreamPtr find_stream(void* handle);

// Like check_context. The stream must also belong to the context of this thread, else 107003 (hicann/runtime
// src/runtime/core/inc/common/error_message_manage.hpp, COND_RETURN_AND_MSG_INVALID_CONTEXT_STREAM_WITH_FUNC_DESC).
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

// Wait for a stream, or for all streams of this thread's context. Return the status of `call`, and set its text if it
// fails.
int32_t synchronize(const StreamPtr& stream, const char* call);
int32_t synchronize_all(const char* call);

// Returns the error of a context and sets its text; 0 if there is none. After an error, all calls that queue, query or
// wait in this context return it. Needs the lock.
int32_t context_error(uint64_t context);
// Returns the error of a context of the device that stopped; 0 if none did.
int32_t device_failure(int32_t device);
// Waits for the work of a context. Then ends its streams and graphs, and forgets its error. Returns the error of `call`
// if work waits for something that never happens.
int32_t end_context(uint64_t context, const char* call);

// Ends the subscription of a destroyed stream (callbacks.cpp).
void end_reports(const Stream& stream);
// Adds the call to the report if a host function makes it (callbacks.cpp).
void note_call_in_host_function(const char* call);

// Number of pieces of work that are still queued and would have an effect: not records of events and waits for them.
uint64_t work_left();

}  // namespace simulated_cann
