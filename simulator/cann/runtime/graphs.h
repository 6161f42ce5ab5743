// Capture of streams into graphs. A graph contains the work that the streams received between the start and the end of
// the capture. Its nodes have the order of the calls. Each captured stream has a branch. The stream that began the
// capture is the origin. A replay queues the origin's branch on the replaying stream, and the other branches on the
// graph's own streams.
//
// The rules are those of hicann/runtime src/runtime/feature/aclgraph/. Callers hold the scheduler's lock.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cann/runtime/scheduler.h"

namespace simulated_cann {

// aclmdlRICaptureMode; kNoCapture means no capture.
enum CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2, kNoCapture = 3 };

// A graph, ready or during its capture.
struct Graph : std::enable_shared_from_this<Graph> {
    enum class State { kActive, kInvalid, kReady };
    struct Node {
        Work work;
        size_t branch;
        size_t waits_for = 0;  // for a wait: the index of the node that records the event
    };
    struct Branch {
        StreamPtr captured_stream;  // null after the capture
        StreamPtr replay_stream;    // created by the first replay; null for the origin's branch
        int32_t captured_stream_id = 0;
    };
    // A group of tasks that a program can replace after the capture.
    struct Group {
        std::vector<size_t> nodes;
        bool is_being_updated = false;  // between aclmdlRICaptureTaskUpdateBegin and ...End
    };
    uint32_t id = 0;
    uint64_t context = 0;  // the number of the context that captured it
    State state = State::kActive;
    CaptureMode mode = kGlobal;
    uint64_t thread = 0;  // the thread that began the capture
    std::vector<Node> nodes;
    std::vector<Branch> branches;
    std::map<size_t, Group*> open_groups;  // by branch
    aclError group_error = kSuccess;       // of the first task that no group can have
    std::vector<std::unique_ptr<Group>> groups;
    std::map<StreamPtr, uint64_t> replay_ends;  // for each stream, the position of the last work of a replay
};

using GraphPtr = std::shared_ptr<Graph>;

// Never destroyed, because callers may destroy graphs while the process ends.
struct GraphRegistry {
    std::unordered_map<void*, GraphPtr> by_handle;  // being captured, or ready
    std::vector<GraphPtr> capturing;
    uint32_t created_count = 0;
    uint64_t replay_count = 0;
};
GraphRegistry& graph_registry();

// Finds the stream of a capture call. As in CANN, its handle must not be null.
aclError find_capture_stream(void* handle, const char* call, StreamPtr* out);

// Returns the graph as a Chrome trace in JSON.
std::string to_chrome_trace(const Graph& graph);

bool is_capturing(const Stream& stream);
bool is_capturing(const Event& event);
// A captured stream of the context; null if there is none.
StreamPtr any_captured_stream(uint64_t context);
// Forgets the graphs of a context that ends, also those that are being captured.
void forget_graphs(uint64_t context);

// Refuse a call that waits for captured work or queries it. Invalidate the capture. Return 107027, for events 107028.
aclError refuse_captured_stream(const Stream& stream, const std::string& call);
aclError refuse_captured_event(const Event& event, const std::string& call);
// Refuses any other call that is illegal on a captured stream. The capture stays valid. Returns 107027.
aclError refuse_and_keep_capture(const Stream& stream, const std::string& call);
// Checks that the modes of this context's captures allow the call in this thread. Otherwise invalidates the captures
// and returns `status`.
aclError check_capture_mode(const std::string& call, aclError status = kCaptureModeRefuses);
aclError refuse_unknown_stream(const char* call);

// Parts of enqueue(): for a stream that is captured, and for a stream whose launches replace the tasks of a group.
aclError capture_work(const StreamPtr& stream, Work work);
aclError replace_captured_task(const StreamPtr& stream, Work work);
// aclrtRecordEvent and aclrtStreamWaitEvent in a capture.
aclError capture_record(const StreamPtr& stream, Event* event);
aclError capture_wait(const StreamPtr& stream, Event* event);

}  // namespace simulated_cann
