// Capture of streams into graphs. A graph holds the work that the streams received between begin and end: nodes
// in the order of the calls, each in the branch of its stream. The stream that began the capture is the origin. A
// replay queues the nodes of the origin's branch on the replaying stream, the others on the graph's own streams.
//
// The rules are those of hicann/runtime src/runtime/feature/aclgraph/. Callers hold the scheduler's lock.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cann/runtime/scheduler.h"

namespace simulated_cann {

// aclmdlRICaptureMode; kNoCapture means no capture.
enum CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2, kNoCapture = 3 };

struct Capture : std::enable_shared_from_this<Capture> {
    enum class State { kActive, kInvalid, kReady };
    struct Node {
        Work work;
        size_t branch;
        size_t waits_for = 0;  // for a wait: the node that records
    };
    struct Branch {
        StreamPtr source;  // null after the capture
        StreamPtr replay;  // created by the first replay; null for the origin's branch
        int32_t source_id = 0;
    };
    struct Group {
        std::vector<size_t> nodes;
        bool is_in_update = false;  // a stream updates it
    };
    uint32_t id = 0;
    State state = State::kActive;
    CaptureMode mode = kGlobal;
    uint64_t thread = 0;  // the thread that began the capture
    std::vector<Node> nodes;
    std::vector<Branch> branches;
    std::map<size_t, Group*> open_groups;  // by branch
    std::vector<std::unique_ptr<Group>> groups;
    std::map<StreamPtr, uint64_t> replayed;  // the position that each stream must reach for the replays to be done
};

// The graph as JSON.
std::string as_trace(const Capture& graph);

bool is_capturing(const Stream& stream);
bool is_capturing(const Event& event);
StreamPtr any_captured_stream();

// Return 107027, for events 107028, and set the text, for a call that waits for captured work or queries it.
// Invalidate the capture.
aclError refuse_captured_stream(const Stream& stream, const std::string& call);
aclError refuse_captured_event(const Event& event, const std::string& call);
// Returns 107027 and sets the text, for any other call that a captured stream refuses. The capture stays valid.
aclError refuse_stream_change(const Stream& stream, const std::string& call);
// If the modes of the current captures forbid the call in this thread, invalidates the captures, sets the text and
// returns `status`. Otherwise returns kSuccess.
aclError refuse_while_capturing(const std::string& call, aclError status = kCaptureModeRefuses);
aclError no_stream(const char* call);

// The part of enqueue for a stream that is captured or whose launches update a group of tasks.
aclError capture_work(const StreamPtr& stream, Work work);
aclError update_task(const StreamPtr& stream, Work work);
// aclrtRecordEvent and aclrtStreamWaitEvent in a capture.
aclError capture_record(const StreamPtr& stream, Event* event);
aclError capture_wait(const StreamPtr& stream, Event* event);

}  // namespace simulated_cann
