#include "cann/runtime/graphs.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "cann/runtime/contexts.h"

namespace simulated_cann {
namespace {

thread_local CaptureMode thread_mode = kGlobal;

// Whether the modes allow calls that CANN considers unsafe during a capture (context_aclgraph.cc,
// IsCaptureModeSupport): the strictest mode of the context's captures, and that of the thread's captures.
bool are_unsafe_calls_allowed(uint64_t context) {
    CaptureMode context_strictest = kNoCapture, thread_strictest = kNoCapture;
    for (const GraphPtr& graph : graph_registry().capturing) {
        if (graph->context == context) context_strictest = std::min(context_strictest, graph->mode);
        if (graph->thread == this_thread()) thread_strictest = std::min(thread_strictest, graph->mode);
    }
    if (context_strictest == kNoCapture || thread_mode == kRelaxed) return true;
    if (thread_mode == kGlobal) return context_strictest != kGlobal && thread_strictest != kThreadLocal;
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

// Refuses a task that the capture cannot have, because a group is open, and invalidates the capture.
aclError refuse_in_group(const GraphPtr& graph, aclError status, const std::string& call, const std::string& rule) {
    invalidate(graph);
    graph->group_error = status;
    return fail(status, call, rule);
}

// While a group is open, only its stream may have tasks, and only kernels (hicann/runtime
// src/runtime/feature/aclgraph/stream_capture.cc, AllocCaptureTaskWithoutLock; src/runtime/core/src/stream/stream.cc,
// PackingTaskGroup).
aclError add_node(const GraphPtr& graph, size_t branch, Work work, size_t waits_for = 0) {
    Graph::Group* group = nullptr;
    if (!graph->open_groups.empty()) {
        const auto found = graph->open_groups.find(branch);
        if (found == graph->open_groups.end())
            return refuse_in_group(graph, kTaskGroupInterrupted, work.name,
                                   "stream must be the one of the open task group.");
        if (!work.is_kernel)
            return refuse_in_group(graph, kTaskNotSupported, work.name, "only kernels can be tasks of a group.");
        group = found->second;
        group->nodes.reserve(group->nodes.size() + 1);
    }
    graph->nodes.push_back({std::move(work), branch, waits_for});
    if (group) group->nodes.push_back(graph->nodes.size() - 1);
    return kSuccess;
}

void leave_capture(const GraphPtr& graph) {
    auto& capturing = graph_registry().capturing;
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
        replay_stream = new_stream({stream->context, stream->device});
        replay_stream->is_replay = true;
    }
    std::unordered_map<size_t, std::shared_ptr<Record>> records;
    const uint64_t replay = ++graph_registry().replay_count;
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
    auto found = graph_registry().by_handle.find(handle);
    if (found == graph_registry().by_handle.end()) return refuse_unknown_handle(call, "modelRI");
    *out = found->second;
    return kSuccess;
}

// capture_model.cc, CaptureModel::CheckExecuteReady, and context.cc, Context::ModelDestroy.
aclError check_graph_ready(const Graph& graph, const char* call) {
    if (graph.state == Graph::State::kReady) return kSuccess;
    return fail(kModelCaptured, call, "modelRI must not be in a capture.");
}

// hicann/runtime src/runtime/core/inc/common/error_message_manage.hpp,
// COND_RETURN_AND_MSG_INVALID_CONTEXT_MODEL_WITH_FUNC_DESC.
aclError check_graph_context(const char* call, const Graph& graph) {
    if (aclError error = check_context(call)) return error;
    if (graph.context == current_context().number) return kSuccess;
    return fail(kModelContext, call, "modelRI must be a graph of this thread's context.");
}

// Forgets a graph that the program cannot use any more, with the streams of its branches.
void forget_graph(void* handle) {
    const auto found = graph_registry().by_handle.find(handle);
    for (const Graph::Branch& branch : found->second->branches)
        if (branch.replay_stream) forget_stream(branch.replay_stream.get());
    graph_registry().by_handle.erase(found);
}

// api_impl_aclgraph.cc, StreamBeginCapture and StreamEndCapture.
aclError check_capturable(const char* call, const StreamPtr& stream) {
    if (aclError error = check_stream_context(call, *stream)) return error;
    return is_default_stream(stream) ? fail(kRtNotSupported, call, "stream must not be the default stream.") : kSuccess;
}

}  // namespace

GraphRegistry& graph_registry() {
    static GraphRegistry* instance = new GraphRegistry;
    return *instance;
}

aclError find_capture_stream(void* handle, const char* call, StreamPtr* out) {
    if (!handle) return fail(kInvalidParam, call, "stream must not be null.");
    *out = stream_of(handle);
    return *out ? kSuccess : refuse_unknown_stream(call);
}

bool is_capturing(const Stream& stream) { return is_unfinished(stream.capture); }
bool is_capturing(const Event& event) { return event.capture && event.capture->state == Graph::State::kActive; }

StreamPtr any_captured_stream(uint64_t context) {
    for (const GraphPtr& graph : graph_registry().capturing)
        for (const Graph::Branch& branch : graph->branches)
            if (branch.captured_stream && branch.captured_stream->context == context) return branch.captured_stream;
    return nullptr;
}

void forget_graphs(uint64_t context) {
    std::vector<GraphPtr> ended;
    for (const auto& [handle, graph] : graph_registry().by_handle)
        if (graph->context == context) ended.push_back(graph);
    for (const GraphPtr& graph : ended) {
        leave_capture(graph);
        forget_graph(graph.get());
    }
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
    const uint64_t context = current_context().number;
    if (are_unsafe_calls_allowed(context)) return kSuccess;
    for (const GraphPtr& graph : graph_registry().capturing)
        if (graph->context == context) invalidate(graph);
    return fail(status, call,
                "the call must not be made while a stream is captured and the mode of the capture is not relaxed.");
}

aclError capture_work(const StreamPtr& stream, Work work) {
    if (stream->capture->state == Graph::State::kInvalid)
        return fail(kCaptureInvalidated, work.name, "the capture of " + stream->place() + " is invalid.");
    return add_node(stream->capture, stream->branch, std::move(work));
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
    if (is_default_stream(stream)) return fail(kCaptureImplicit, call, "stream must not be the default stream.");
    const GraphPtr graph = event->capture;
    if (is_unfinished(stream->capture) && stream->capture != graph) {
        invalidate(graph);
        invalidate(stream->capture);
        return fail(kCaptureConflict, call, "event and stream must belong to one capture.");
    }
    if (!stream->capture) add_branch(graph, stream);
    return add_node(graph, stream->branch, Work(Work::Kind::kWait, call), event->node);
}

}  // namespace simulated_cann

using namespace simulated_cann;

// api_impl_aclgraph.cc and context_aclgraph.cc, StreamBeginCapture.
NPU_CANN_API aclError aclmdlRICaptureBegin(void* handle, int32_t mode) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (mode < kGlobal || mode > kRelaxed) return fail(kRtInvalid, __func__, "mode must be 0, 1 or 2", mode);
    if (aclError error = check_capturable(__func__, stream)) return error;
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    auto graph = std::make_shared<Graph>();
    graph->id = ++graph_registry().created_count;
    graph->context = stream->context;
    graph->mode = static_cast<CaptureMode>(mode);
    graph->thread = this_thread();
    graph->branches.reserve(1);
    graph_registry().capturing.reserve(graph_registry().capturing.size() + 1);
    graph_registry().by_handle[graph.get()] = graph;
    graph_registry().capturing.push_back(graph);  // from here on, nothing needs memory: the capture begins completely
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
// error does. api_impl_aclgraph.cc: modelRI may be null if the stream is not captured.
NPU_CANN_API aclError aclmdlRICaptureEnd(void* handle, void** model) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    GraphPtr graph = stream->capture;
    if (!model && is_unfinished(graph)) return fail(kRtInvalid, __func__, "modelRI must not be null.");
    if (aclError error = check_capturable(__func__, stream)) return error;
    if (model) *model = nullptr;
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
        forget_graph(graph.get());
        return status;
    }
    graph->state = Graph::State::kReady;
    *model = graph.get();
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode) {
    if (!mode) return fail(kInvalidParam, __func__, "mode must not be null.");
    if (*mode < kGlobal || *mode > kRelaxed) return fail(kRtInvalid, __func__, "mode must be 0, 1 or 2", *mode);
    if (aclError error = check_context(__func__)) return error;
    const CaptureMode wanted = static_cast<CaptureMode>(*mode);
    *mode = thread_mode;
    thread_mode = wanted;
    return kSuccess;
}

// api_error.cc and api_impl.cc, ModelExecute: the stream must not be captured, and the graph must be one of the
// context. The stream is checked last (src/runtime/feature/model/model.cc, Model::Execute).
NPU_CANN_API aclError aclmdlRIExecuteAsync(void* model, void* handle) {
    StreamPtr stream;
    {
        auto lock = lock_streams();
        GraphPtr graph;
        if (aclError error = find_graph(model, __func__, &graph)) return error;
        stream = stream_of(handle);
        if (!stream) return refuse_unknown_stream(__func__);
        if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
        if (aclError error = check_graph_context(__func__, *graph)) return error;
        if (aclError error = check_graph_ready(*graph, __func__)) return error;
        if (aclError error = check_stream_context(__func__, *stream)) return error;
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
        if (aclError error = check_graph_context(__func__, *graph)) return error;
        if (aclError error = check_graph_ready(*graph, __func__)) return error;
        for (const auto& [stream, position] : graph->replay_ends)
            if (stream->last_finished < position) running.push_back({stream, position});
    }
    const bool is_done = running.empty() || run_until(running);
    auto lock = lock_streams();
    // After an error that stopped the context, no work runs.
    if (!is_done && !context_error(current_context().number))
        return fail(kModelRunning, __func__,
                    "modelRI must not be running, but its replay waits for work that is not queued.");
    if (graph_registry().by_handle.count(model)) forget_graph(model);
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRIDebugJsonPrint(void* model, const char* path, uint32_t /*flags*/) {
    // hicann/runtime src/acl/aclrt_impl/model_ri.cpp, aclmdlRIDebugJsonPrintImpl.
    if (!path) return fail(kInvalidParam, __func__, "path must not be null.");
    auto lock = lock_streams();
    GraphPtr graph;
    if (aclError error = find_graph(model, __func__, &graph)) return error;
    if (aclError error = check_graph_context(__func__, *graph)) return error;
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
    if (aclError error = check_graph_context(__func__, *graph)) return error;
    std::fprintf(stderr, "simulated CANN: %s\n", to_chrome_trace(*graph).c_str());
    return kSuccess;
}
