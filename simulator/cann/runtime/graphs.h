// Capture of streams into graphs. A graph is what the streams were given between begin and end: nodes in
// the order of the calls, each in the lane of its stream. Replaying queues the nodes again: those of the
// origin's lane on the stream that replays, the others on streams of the graph's own.
//
// The rules are those of hicann/runtime src/runtime/feature/aclgraph/. Callers hold the scheduler's lock.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulator/cann/runtime/scheduler.h"

namespace npu_cann {

// aclmdlRICaptureMode; kNoCapture stands for none.
enum CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2, kNoCapture = 3 };

struct Capture : std::enable_shared_from_this<Capture> {
    enum class State { kActive, kInvalid, kReady };
    struct Node {
        Work work;
        size_t lane;
        size_t waits_for = 0;  // of a wait: the node that records
    };
    struct Lane {
        StreamPtr source;  // while it is captured
        StreamPtr replay;  // none for the origin's lane
    };
    struct Group {
        std::vector<size_t> nodes;
        bool is_updated = false;  // by a stream, at present
    };
    uint32_t id = 0;
    State state = State::kActive;
    CaptureMode mode = kGlobal;
    uint64_t thread = 0;  // that began
    std::vector<Node> nodes;
    std::vector<Lane> lanes;
    std::map<size_t, Group*> open_groups;  // by lane
    std::vector<std::unique_ptr<Group>> groups;
};

bool is_capturing(const Stream& stream);
bool is_capturing(const Event& event);
StreamPtr any_captured_stream();

// The status and text of a call that needs work to be done which is only being captured: 107027, and 107028
// for events. The capture is invalid from then on.
aclError refuse_captured_stream(const Stream& stream, const std::string& call);
// The same for a call that the capture survives: what would change the stream itself.
aclError keep_captured_stream(const Stream& stream, const std::string& call);
aclError refuse_captured_event(const Event& event, const std::string& call);
// 107030 and its text, for a call that the modes of the captures that are going on do not let this thread make.
aclError refuse_while_capturing(const std::string& call);
aclError no_stream(const char* call);

// What enqueue does with a stream that is captured, or whose launches update a group of tasks.
aclError capture_work(const StreamPtr& stream, Work work);
aclError update_task(const StreamPtr& stream, Work work);
aclError capture_record(const StreamPtr& stream, Event* event);
aclError capture_wait(const StreamPtr& stream, Event* event);

}  // namespace npu_cann
