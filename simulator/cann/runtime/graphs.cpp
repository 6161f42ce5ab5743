#include "cann/runtime/graphs.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "cann/runtime/contexts.h"

namespace simulated_cann {
namespace {

using GraphPtr = std::shared_ptr<Graph>;

// Never destroyed, because callers may destroy graphs while the process ends.
struct GraphRegistry {
    std::unordered_map<void*, GraphPtr> by_handle;  // being captured, or ready
    std::vector<GraphPtr> capturing;
    uint32_t created_count = 0;
    uint64_t replay_count = 0;
};
GraphRegistry& registry() {
    static GraphRegistry* instance = new GraphRegistry;
    return *instance;
}

thread_local CaptureMode thread_mode = kGlobal;

CaptureMode strictest_mode(bool only_this_thread) {
    CaptureMode mode = kNoCapture;
    for (const GraphPtr& graph : registry().capturing)
        if (!only_this_thread || graph->thread == this_thread()) mode = std::min(mode, graph->mode);
    return mode;
}

// Whether the modes allow calls that CANN considers unsafe during a capture (context_aclgraph.cc,
// IsCaptureModeSupport).
bool are_unsafe_calls_allowed() {
    const CaptureMode process_strictest = strictest_mode(false), thread_strictest = strictest_mode(true);
    if (process_strictest == kNoCapture || thread_mode == kRelaxed) return true;
    if (thread_mode == kGlobal) return process_strictest != kGlobal && thread_strictest != kThreadLocal;
    return thread_strictest != kGlobal && thread_strictest != kThreadLocal;
}

void invalidate(const GraphPtr& graph) {
    if (graph && graph->state == Graph::State::kActive) graph->state = Graph::State::kInvalid;
}

bool is_unfinished(const GraphPtr& graph) { return graph && graph->state != Graph::State::kReady; }

size_t add_branch(const GraphPtr& graph, const StreamPtr& stream) {
    graph->branches.push_back({stream, nullptr, stream->id});
    stream->capture = graph;
    stream->branch = graph->branches.size() - 1;
    return stream->branch;
}

size_t add_node(const GraphPtr& graph, size_t branch, Work work, size_t waits_for = 0) {
    graph->nodes.push_back({std::move(work), branch, waits_for});
    if (auto group = graph->open_groups.find(branch); group != graph->open_groups.end())
        group->second->nodes.push_back(graph->nodes.size() - 1);
    return graph->nodes.size() - 1;
}

void leave_capture(const GraphPtr& graph) {
    auto& capturing = registry().capturing;
    capturing.erase(std::remove(capturing.begin(), capturing.end(), graph), capturing.end());
    for (Graph::Branch& branch : graph->branches) {
        if (branch.captured_stream) branch.captured_stream->capture = nullptr;
        branch.captured_stream = nullptr;
    }
}

// Returns "" or the reason why a capture cannot end: an open task group, or streams that are not joined. In each branch
// except the origin's, the last node must be a record, and another branch must wait for it. The origin must wait for
// one of these records (context_aclgraph.cc, CheckCaptureModelValidity).
std::string join_error(const Graph& graph) {
    if (!graph.open_groups.empty()) return "a task group is open";
    bool origin_waits = graph.branches.size() == 1;
    for (size_t branch = 1; branch < graph.branches.size(); ++branch) {
        size_t last = graph.nodes.size();
        for (size_t i = 0; i < graph.nodes.size(); ++i)
            if (graph.nodes[i].branch == branch) last = i;
        const std::string name = graph.branches[branch].captured_stream->place();
        if (last == graph.nodes.size() || graph.nodes[last].work.kind != Work::Kind::kRecord)
            return name + " joined the capture, and its last work is not the record of an event";
        bool is_waited_for = false;
        for (const Graph::Node& node : graph.nodes) {
            if (node.work.kind != Work::Kind::kWait || node.waits_for != last || node.branch == branch) continue;
            is_waited_for = true;
            origin_waits = origin_waits || node.branch == 0;
        }
        if (!is_waited_for) return name + " joined the capture, and no stream waits for its last event";
    }
    return origin_waits ? "" : "the stream that began the capture waits for none of the streams that joined it";
}

// Queues one replay. The origin's branch runs on `stream`, each other branch on a stream that the first replay creates.
aclError queue_replay(const GraphPtr& graph, const StreamPtr& stream) {
    for (size_t branch = 1; branch < graph->branches.size(); ++branch) {
        StreamPtr& replay_stream = graph->branches[branch].replay_stream;
        if (replay_stream) continue;
        replay_stream = new_stream(stream->device);
        replay_stream->is_replay = true;
    }
    std::unordered_map<size_t, std::shared_ptr<Record>> records;
    const uint64_t replay = ++registry().replay_count;
    std::vector<std::shared_ptr<const BranchReplay>> branch_replays;  // by branch
    for (const Graph::Branch& branch : graph->branches)
        branch_replays.push_back(std::make_shared<const BranchReplay>(
            BranchReplay{replay, graph->id, "stream " + std::to_string(branch.captured_stream_id), stream->place()}));
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
        const Graph::Node& node = graph->nodes[i];
        const StreamPtr& target_stream = node.branch == 0 ? stream : graph->branches[node.branch].replay_stream;
        aclError status = kSuccess;
        if (node.work.kind == Work::Kind::kRecord)
            status = enqueue_record(target_stream, records[i] = std::make_shared<Record>());
        else if (node.work.kind == Work::Kind::kWait)
            status = enqueue_wait(target_stream, records.at(node.waits_for));
        else {
            Work work = node.work;
            work.branch_replay = branch_replays[node.branch];
            status = enqueue(target_stream, std::move(work));
        }
        if (status != kSuccess) return status;
        graph->replay_ends[target_stream] = target_stream->last_queued;
    }
    return kSuccess;
}

// Finds the graph of the argument modelRI. It is ready or being captured.
aclError find_graph(void* handle, const char* call, GraphPtr* out) {
    if (!handle) return fail(kInvalidParam, call, "modelRI must not be null.");
    auto found = registry().by_handle.find(handle);
    if (found == registry().by_handle.end()) return refuse_unknown_handle(call, "modelRI");
    *out = found->second;
    return kSuccess;
}

// capture_model.cc, CaptureModel::CheckExecuteReady, and context.cc, Context::ModelDestroy.
aclError check_graph_ready(const Graph& graph, const char* call) {
    if (graph.state == Graph::State::kReady) return kSuccess;
    return fail(kModelCaptured, call, "modelRI must not be in a capture.");
}

// Finds the stream of a capture call. As in CANN, its handle must not be null.
aclError find_capture_stream(void* handle, const char* call, StreamPtr* out) {
    if (!handle) return fail(kInvalidParam, call, "stream must not be null.");
    *out = stream_of(handle);
    return *out ? kSuccess : refuse_unknown_stream(call);
}

}  // namespace

bool is_capturing(const Stream& stream) { return is_unfinished(stream.capture); }
bool is_capturing(const Event& event) { return event.capture && event.capture->state == Graph::State::kActive; }

StreamPtr any_captured_stream(int32_t device) {
    for (const GraphPtr& graph : registry().capturing)
        for (const Graph::Branch& branch : graph->branches)
            if (branch.captured_stream && branch.captured_stream->device == device) return branch.captured_stream;
    return nullptr;
}

aclError refuse_and_keep_capture(const Stream& stream, const std::string& call) {
    return fail(kStreamCaptured, call,
                stream.place() + " must not be in a capture: its work is recorded and does not run.");
}

// Refuses a call that no mode allows on a captured stream, and invalidates the capture. Sources:
// hicann/runtime docs/zh/dev_guide/04-01_single_stream_capture.md and docs/zh/FAQ/ACLGraph*.md.
aclError refuse_captured_stream(const Stream& stream, const std::string& call) {
    invalidate(stream.capture);
    return refuse_and_keep_capture(stream, call);
}

aclError refuse_captured_event(const Event& event, const std::string& call) {
    invalidate(event.capture);
    return fail(kEventCaptured, call,
                "event " + std::to_string(event.id) + " must not be in a capture: its record does not happen.");
}

aclError check_capture_mode(const std::string& call, aclError status) {
    if (are_unsafe_calls_allowed()) return kSuccess;
    for (const GraphPtr& graph : registry().capturing) invalidate(graph);
    return fail(status, call,
                "the call must not be made while a stream is captured and the mode of the capture is not relaxed.");
}

aclError capture_work(const StreamPtr& stream, Work work) {
    if (stream->capture->state == Graph::State::kInvalid)
        return fail(kCaptureInvalidated, work.name, "the capture of " + stream->place() + " is invalid.");
    add_node(stream->capture, stream->branch, std::move(work));
    return kSuccess;
}

// context_aclgraph.cc, StreamBeginTaskUpdate: the launches replace the group's tasks, in order.
aclError replace_captured_task(const StreamPtr& stream, Work work) {
    TaskUpdate& task_update = *stream->task_update;
    auto* group = static_cast<Graph::Group*>(task_update.group);
    if (task_update.replaced_count >= group->nodes.size())
        return fail(kTaskGroupStatus, work.name,
                    "the group has only " + std::to_string(group->nodes.size()) + " task(s).");
    Work& old = task_update.graph->nodes[group->nodes[task_update.replaced_count]].work;
    if (old.name != work.name)
        return fail(kTaskGroupStatus, work.name, "the task of the group must be " + old.name + ".");
    old = std::move(work);
    ++task_update.replaced_count;
    return kSuccess;
}

// api_impl.cc, EventRecord: only an extended event can be captured. If no stream can wait for the event, recording it
// has no effect.
aclError capture_record(const StreamPtr& stream, Event* event) {
    const char* call = "aclrtRecordEvent";
    if (!event->is_extended) return fail(kRtNotSupported, call, "event must be created by aclrtCreateEventExWithFlag.");
    if (!can_be_waited_for(*event)) return kSuccess;
    if (is_capturing(*event) && event->capture != stream->capture) {
        invalidate(event->capture);
        invalidate(stream->capture);
        return fail(kCaptureConflict, call, "event and stream must belong to one capture.");
    }
    Work work(Work::Kind::kRecord, call);
    if (aclError status = capture_work(stream, std::move(work))) return status;
    event->capture = stream->capture;
    event->node = stream->capture->nodes.size() - 1;
    return kSuccess;
}

// api_impl.cc, StreamWaitEvent, and api_impl_capture_event.cc, CaptureEventWait.
aclError capture_wait(const StreamPtr& stream, Event* event) {
    const std::string call = "aclrtStreamWaitEvent";
    if (!is_capturing(*event)) {
        if (!event->is_extended)
            return fail(kRtNotSupported, call, "event must be created by aclrtCreateEventExWithFlag.");
        if (!event->latest_record) return kSuccess;
        return fail(kCaptureDependency, call, "event must be recorded in the capture of " + stream->place() + ".");
    }
    if (stream == default_stream(stream->device))
        return fail(kCaptureImplicit, call, "stream must not be the default stream.");
    const GraphPtr graph = event->capture;
    if (is_unfinished(stream->capture) && stream->capture != graph) {
        invalidate(graph);
        invalidate(stream->capture);
        return fail(kCaptureConflict, call, "event and stream must belong to one capture.");
    }
    if (!stream->capture) add_branch(graph, stream);
    Work work(Work::Kind::kWait, call);
    add_node(graph, stream->branch, std::move(work), event->node);
    return kSuccess;
}

}  // namespace simulated_cann

using namespace simulated_cann;

// api_impl_aclgraph.cc and context_aclgraph.cc, StreamBeginCapture.
NPU_CANN_API aclError aclmdlRICaptureBegin(void* handle, int32_t mode) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (mode < kGlobal || mode > kRelaxed) return fail(kRtInvalid, __func__, "mode must be 0, 1 or 2", mode);
    if (aclError error = check_context(__func__)) return error;
    if (stream == default_stream(stream->device))
        return fail(kRtNotSupported, __func__, "stream must not be the default stream.");
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    auto graph = std::make_shared<Graph>();
    graph->id = ++registry().created_count;
    graph->mode = static_cast<CaptureMode>(mode);
    graph->thread = this_thread();
    graph->branches.reserve(1);
    registry().capturing.reserve(registry().capturing.size() + 1);
    registry().by_handle[graph.get()] = graph;
    registry().capturing.push_back(graph);  // from here on, nothing needs memory: the capture begins completely
    add_branch(graph, stream);
    return kSuccess;
}

// aclmdlRICaptureStatus: 0 none, 1 active, 2 invalidated.
NPU_CANN_API aclError aclmdlRICaptureGetInfo(void* handle, int32_t* status, void** model) {
    if (!status && !model) return fail(kInvalidParam, __func__, "status and modelRI must not both be null.");
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    const GraphPtr& graph = stream->capture;
    if (status) *status = !is_unfinished(graph) ? 0 : graph->state == Graph::State::kActive ? 1 : 2;
    if (model) *model = is_unfinished(graph) ? graph.get() : nullptr;
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRIGetId(void* model, uint32_t* id) {
    auto lock = lock_streams();
    GraphPtr graph;
    if (!id) return fail(kInvalidParam, __func__, "modelRIId must not be null.");
    if (aclError error = find_graph(model, __func__, &graph)) return error;
    *id = graph->id;
    return kSuccess;
}

// context_aclgraph.cc, StreamEndCapture: a wrong argument, context or stream does not end the capture. Every other
// error does.
NPU_CANN_API aclError aclmdlRICaptureEnd(void* handle, void** model) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (!model) return fail(kRtInvalid, __func__, "modelRI must not be null.");
    if (aclError error = check_context(__func__)) return error;
    *model = nullptr;
    GraphPtr graph = stream->capture;
    if (!is_unfinished(graph)) return fail(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    if (stream->branch != 0)
        return fail(kCaptureUnmatched, __func__, stream->place() + " must be the one that began the capture.");
    const std::string error = join_error(*graph);
    leave_capture(graph);
    aclError status = kSuccess;
    if (graph->mode != kRelaxed && graph->thread != this_thread())
        status = fail(kCaptureWrongThread, __func__, "thread must be the one that began the capture.");
    else if (graph->state == Graph::State::kInvalid)
        status = fail(kCaptureInvalidated, __func__, "the capture is invalid: an earlier call in it failed.");
    else if (!error.empty())
        status = fail(graph->open_groups.empty() ? kStreamUnjoined : kTaskGroupStatus, __func__, error + ".");
    if (status != kSuccess) {
        graph->state = Graph::State::kInvalid;
        registry().by_handle.erase(graph.get());
        return status;
    }
    graph->state = Graph::State::kReady;
    *model = graph.get();
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode) {
    if (!mode) return fail(kInvalidParam, __func__, "mode must not be null.");
    if (*mode < kGlobal || *mode > kRelaxed) return fail(kRtInvalid, __func__, "mode must be 0, 1 or 2", *mode);
    const CaptureMode wanted = static_cast<CaptureMode>(*mode);
    *mode = thread_mode;
    thread_mode = wanted;
    return kSuccess;
}

// api_error.cc, ModelExecute: the stream must not be captured.
NPU_CANN_API aclError aclmdlRIExecuteAsync(void* model, void* handle) {
    StreamPtr stream;
    {
        auto lock = lock_streams();
        GraphPtr graph;
        if (aclError error = find_graph(model, __func__, &graph)) return error;
        stream = stream_of(handle);
        if (!stream) return refuse_unknown_stream(__func__);
        if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
        if (aclError error = check_context(__func__)) return error;
        if (aclError error = check_graph_ready(*graph, __func__)) return error;
        if (aclError status = queue_replay(graph, stream)) return status;
    }
    run_early(stream);
    return kSuccess;
}

// context.cc, Context::ModelDestroy: CANN waits up to ten seconds for running replays. Here the wait ends when no
// queued work can complete them.
NPU_CANN_API aclError aclmdlRIDestroy(void* model) {
    std::vector<StreamPosition> running;
    {
        auto lock = lock_streams();
        GraphPtr graph;
        if (aclError error = find_graph(model, __func__, &graph)) return error;
        if (aclError error = check_context(__func__)) return error;
        if (aclError error = check_graph_ready(*graph, __func__)) return error;
        for (const auto& [stream, position] : graph->replay_ends)
            if (stream->last_finished < position) running.push_back({stream, position});
    }
    const bool is_done = running.empty() || run_until(running);
    auto lock = lock_streams();
    // After an error that stopped the context, no work runs.
    if (!is_done && !context_error(current_device()))
        return fail(kModelRunning, __func__,
                    "modelRI must not be running, but its replay waits for work that is not queued.");
    registry().by_handle.erase(model);
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskGrpBegin(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (!is_capturing(*stream)) return fail(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    Graph& graph = *stream->capture;
    if (graph.open_groups.count(stream->branch))
        return fail(kTaskGroupStatus, __func__, stream->place() + " must not have an open group.");
    graph.groups.push_back(std::make_unique<Graph::Group>());
    graph.open_groups[stream->branch] = graph.groups.back().get();
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskGrpEnd(void* handle, void** group) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (!group) return fail(kInvalidParam, __func__, "handle must not be null.");
    *group = nullptr;
    if (!is_capturing(*stream)) return fail(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    Graph& graph = *stream->capture;
    auto open_group = graph.open_groups.find(stream->branch);
    if (open_group == graph.open_groups.end())
        return fail(kTaskGroupStatus, __func__, stream->place() + " must have an open group.");
    Graph::Group* closed = open_group->second;
    graph.open_groups.erase(open_group);
    if (graph.state == Graph::State::kInvalid)
        return fail(kCaptureInvalidated, __func__, "the capture of " + stream->place() + " is invalid.");
    *group = closed;
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskUpdateBegin(void* handle, void* group) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (aclError error = check_context(__func__)) return error;
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    if (stream->task_update)
        return fail(kTaskGroupStatus, __func__, stream->place() + " must not update another group.");
    for (const auto& [key, graph] : registry().by_handle)
        for (const auto& candidate : graph->groups) {
            if (candidate.get() != group || graph->state != Graph::State::kReady) continue;
            if (candidate->is_being_updated)
                return fail(kTaskGroupStatus, __func__, "handle must not be updated by another stream.");
            candidate->is_being_updated = true;
            stream->task_update = std::make_shared<TaskUpdate>(TaskUpdate{graph, group, 0});
            return kSuccess;
        }
    return fail(kInvalidParam, __func__, "handle must be a group of a graph that exists.");
}

NPU_CANN_API aclError aclmdlRICaptureTaskUpdateEnd(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (aclError error = check_context(__func__)) return error;
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    if (!stream->task_update) return fail(kTaskGroupStatus, __func__, stream->place() + " must update a group.");
    const std::shared_ptr<TaskUpdate> update = std::move(stream->task_update);
    stream->task_update = nullptr;
    auto* group = static_cast<Graph::Group*>(update->group);
    group->is_being_updated = false;
    if (update->replaced_count == group->nodes.size()) return kSuccess;
    return fail(kRtInternal, __func__,
                "every task of the group must be updated but got " + std::to_string(update->replaced_count) + " of " +
                    std::to_string(group->nodes.size()) + ".");
}

NPU_CANN_API aclError aclmdlRIDebugJsonPrint(void* model, const char* path, uint32_t /*flags*/) {
    // hicann/runtime src/acl/aclrt_impl/model_ri.cpp, aclmdlRIDebugJsonPrintImpl.
    if (!path) return fail(kInvalidParam, __func__, "path must not be null.");
    auto lock = lock_streams();
    GraphPtr graph;
    if (aclError error = find_graph(model, __func__, &graph)) return error;
    std::FILE* file = std::fopen(path, "w");
    if (!file) return fail(kRtInvalid, __func__, "path must be a file that can be written.");
    std::fputs(to_chrome_trace(*graph).c_str(), file);
    std::fclose(file);
    return kSuccess;
}
NPU_CANN_API aclError aclmdlRIDebugPrint(void* model) {
    auto lock = lock_streams();
    GraphPtr graph;
    if (aclError error = find_graph(model, __func__, &graph)) return error;
    std::fprintf(stderr, "simulated CANN: %s\n", to_chrome_trace(*graph).c_str());
    return kSuccess;
}
