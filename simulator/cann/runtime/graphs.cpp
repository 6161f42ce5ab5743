#include "cann/runtime/graphs.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

namespace simulated_cann {
namespace {

using Graph = std::shared_ptr<Capture>;

// Never destroyed, because graphs are destroyed while the process ends.
struct Graphs {
    std::unordered_map<void*, Graph> by_handle;  // being captured, or ready
    std::vector<Graph> active;
    uint32_t made = 0;
    uint64_t replays = 0;
};
Graphs& graphs() {
    static Graphs* instance = new Graphs;
    return *instance;
}

thread_local CaptureMode exchanged_mode = kGlobal;

CaptureMode strictest_mode(bool of_this_thread) {
    CaptureMode mode = kNoCapture;
    for (const Graph& graph : graphs().active)
        if (!of_this_thread || graph->thread == this_thread()) mode = std::min(mode, graph->mode);
    return mode;
}

// context_aclgraph.cc, IsCaptureModeSupport.
bool mode_allows_unsafe_calls() {
    const CaptureMode context = strictest_mode(false), thread = strictest_mode(true);
    if (context == kNoCapture || exchanged_mode == kRelaxed) return true;
    if (exchanged_mode == kGlobal) return context != kGlobal && thread != kThreadLocal;
    return thread != kGlobal && thread != kThreadLocal;
}

void invalidate(const Graph& graph) {
    if (graph && graph->state == Capture::State::kActive) graph->state = Capture::State::kInvalid;
}

bool is_unfinished(const Graph& graph) { return graph && graph->state != Capture::State::kReady; }

size_t add_branch(const Graph& graph, const StreamPtr& s) {
    graph->branches.push_back({s, nullptr, s->id});
    s->capture = graph;
    s->branch = graph->branches.size() - 1;
    return s->branch;
}

size_t add_node(const Graph& graph, size_t branch, Work work, size_t waits_for = 0) {
    graph->nodes.push_back({std::move(work), branch, waits_for});
    if (auto open = graph->open_groups.find(branch); open != graph->open_groups.end())
        open->second->nodes.push_back(graph->nodes.size() - 1);
    return graph->nodes.size() - 1;
}

void leave_capture(const Graph& graph) {
    auto& active = graphs().active;
    active.erase(std::remove(active.begin(), active.end(), graph), active.end());
    for (Capture::Branch& branch : graph->branches) {
        if (branch.source) branch.source->capture = nullptr;
        branch.source = nullptr;
    }
}

// "" or the broken rule of context_aclgraph.cc, CheckCaptureModelValidity: the last node of every branch except the
// origin's is a record that another branch waits for, and the origin waits for one of them.
std::string join_error(const Capture& graph) {
    if (!graph.open_groups.empty()) return "a task group is open";
    bool origin_waits = graph.branches.size() == 1;
    for (size_t branch = 1; branch < graph.branches.size(); ++branch) {
        size_t last = graph.nodes.size();
        for (size_t i = 0; i < graph.nodes.size(); ++i)
            if (graph.nodes[i].branch == branch) last = i;
        const std::string name = graph.branches[branch].source->place();
        if (last == graph.nodes.size() || graph.nodes[last].work.kind != Work::Kind::kRecord)
            return name + " joined the capture, and its last work is not the record of an event";
        bool is_waited_for = false;
        for (const Capture::Node& node : graph.nodes) {
            if (node.work.kind != Work::Kind::kWait || node.waits_for != last || node.branch == branch) continue;
            is_waited_for = true;
            origin_waits = origin_waits || node.branch == 0;
        }
        if (!is_waited_for) return name + " joined the capture, and no stream waits for its last event";
    }
    return origin_waits ? "" : "the stream that began the capture waits for none of the streams that joined it";
}

// Queues a replay. The nodes of branches other than the origin's run on streams that the first replay creates.
aclError queue_nodes(const Graph& graph, const StreamPtr& stream) {
    for (size_t branch = 1; branch < graph->branches.size(); ++branch)
        if (!graph->branches[branch].replay) graph->branches[branch].replay = new_stream();
    std::unordered_map<size_t, std::shared_ptr<Record>> records;
    const uint64_t replay = ++graphs().replays;
    std::vector<std::shared_ptr<const ReplayedAs>> replayed_as;  // by branch
    for (const Capture::Branch& branch : graph->branches)
        replayed_as.push_back(std::make_shared<const ReplayedAs>(
            ReplayedAs{replay, graph->id, "stream " + std::to_string(branch.source_id), stream->place()}));
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
        const Capture::Node& node = graph->nodes[i];
        const StreamPtr& on = node.branch == 0 ? stream : graph->branches[node.branch].replay;
        aclError status = kSuccess;
        if (node.work.kind == Work::Kind::kRecord)
            status = enqueue_record(on, records[i] = std::make_shared<Record>());
        else if (node.work.kind == Work::Kind::kWait)
            status = enqueue_wait(on, records.at(node.waits_for));
        else {
            Work work = node.work;
            work.replayed_as = replayed_as[node.branch];
            status = enqueue(on, std::move(work));
        }
        if (status != kSuccess) return status;
        graph->replayed[on] = on->queued;
    }
    return kSuccess;
}

// The modelRI argument, a graph that is ready or being captured.
aclError take_graph(void* handle, const char* call, Graph* out) {
    if (!handle) return failed(kInvalidParam, call, "modelRI must not be null.");
    auto found = graphs().by_handle.find(handle);
    if (found == graphs().by_handle.end()) return no_object(call, "modelRI");
    *out = found->second;
    return kSuccess;
}

// capture_model.cc, CaptureModel::CheckExecuteReady, and context.cc, Context::ModelDestroy.
aclError refuse_captured_graph(const Capture& graph, const char* call) {
    if (graph.state == Capture::State::kReady) return kSuccess;
    return failed(kModelCaptured, call, "modelRI must not be in a capture.");
}

// The stream argument of the capture calls, which must not be null, as in CANN.
aclError take_stream(void* handle, const char* call, StreamPtr* out) {
    if (!handle) return failed(kInvalidParam, call, "stream must not be null.");
    *out = stream_of(handle);
    return *out ? kSuccess : no_stream(call);
}

}  // namespace

bool is_capturing(const Stream& stream) { return is_unfinished(stream.capture); }
bool is_capturing(const Event& event) { return event.capture && event.capture->state == Capture::State::kActive; }

StreamPtr any_captured_stream() {
    for (const Graph& graph : graphs().active)
        for (const Capture::Branch& branch : graph->branches)
            if (branch.source) return branch.source;
    return nullptr;
}

aclError refuse_stream_change(const Stream& stream, const std::string& call) {
    return failed(kStreamCaptured, call,
                  stream.place() + " must not be in a capture: its work is recorded and does not run.");
}

// hicann/runtime docs/zh/dev_guide/04-01_single_stream_capture.md: such a call is illegal in every mode; according
// to docs/zh/FAQ/ACLGraph*.md the capture fails.
aclError refuse_captured_stream(const Stream& stream, const std::string& call) {
    invalidate(stream.capture);
    return refuse_stream_change(stream, call);
}

aclError refuse_captured_event(const Event& event, const std::string& call) {
    invalidate(event.capture);
    return failed(kEventCaptured, call,
                  "event " + std::to_string(event.id) + " must not be in a capture: its record does not happen.");
}

aclError refuse_while_capturing(const std::string& call, aclError status) {
    if (mode_allows_unsafe_calls()) return kSuccess;
    for (const Graph& graph : graphs().active) invalidate(graph);
    return failed(status, call,
                  "operation must not be made while a stream is captured and the mode of the capture is not relaxed.");
}

aclError capture_work(const StreamPtr& stream, Work work) {
    if (stream->capture->state == Capture::State::kInvalid)
        return failed(kCaptureInvalidated, work.name, "the capture of " + stream->place() + " is invalid.");
    add_node(stream->capture, stream->branch, std::move(work));
    return kSuccess;
}

// context_aclgraph.cc, StreamBeginTaskUpdate: the launches replace the group's tasks, in order.
aclError update_task(const StreamPtr& stream, Work work) {
    TaskUpdate& update = *stream->update;
    auto* group = static_cast<Capture::Group*>(update.group);
    if (update.done >= group->nodes.size())
        return failed(kTaskGroupStatus, work.name,
                      "the group has no more than " + std::to_string(group->nodes.size()) + " tasks.");
    Work& old = update.graph->nodes[group->nodes[update.done]].work;
    if (old.name != work.name)
        return failed(kTaskGroupStatus, work.name, "the task of the group must be " + old.name + ".");
    old = std::move(work);
    ++update.done;
    return kSuccess;
}

// api_impl.cc, EventRecord: only an extended event can be captured, and the record of an event that cannot be waited
// for has no effect.
aclError capture_record(const StreamPtr& stream, Event* event) {
    const char* call = "aclrtRecordEvent";
    if (!event->is_extended) return failed(kRtNotSupported, call, "event must be of aclrtCreateEventExWithFlag.");
    if (!can_be_waited_for(*event)) return kSuccess;
    if (is_capturing(*event) && event->capture != stream->capture) {
        invalidate(event->capture);
        invalidate(stream->capture);
        return failed(kCaptureConflict, call, "event and stream must be of one capture.");
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
        if (!event->is_extended) return failed(kRtNotSupported, call, "event must be of aclrtCreateEventExWithFlag.");
        if (!event->latest) return kSuccess;
        return failed(kCaptureDependency, call, "event must be recorded in the capture of " + stream->place() + ".");
    }
    if (stream == default_stream()) return failed(kCaptureImplicit, call, "stream must not be the default stream.");
    const Graph graph = event->capture;
    if (is_unfinished(stream->capture) && stream->capture != graph) {
        invalidate(graph);
        invalidate(stream->capture);
        return failed(kCaptureConflict, call, "event and stream must be of one capture.");
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
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (mode < kGlobal || mode > kRelaxed) return failed(kRtInvalid, __func__, "mode must be 0, 1 or 2", mode);
    if (aclError refused = no_context(__func__)) return refused;
    if (stream == default_stream()) return failed(kRtNotSupported, __func__, "stream must not be the default stream.");
    if (is_capturing(*stream)) return refuse_stream_change(*stream, __func__);
    auto graph = std::make_shared<Capture>();
    graph->id = ++graphs().made;
    graph->mode = static_cast<CaptureMode>(mode);
    graph->thread = this_thread();
    add_branch(graph, stream);
    graphs().by_handle[graph.get()] = graph;
    graphs().active.push_back(graph);
    return kSuccess;
}

// aclmdlRICaptureStatus: 0 none, 1 active, 2 invalidated.
NPU_CANN_API aclError aclmdlRICaptureGetInfo(void* handle, int32_t* status, void** model) {
    if (!status && !model) return failed(kInvalidParam, __func__, "status and modelRI must not both be null.");
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    const Graph& graph = stream->capture;
    if (status) *status = !is_unfinished(graph) ? 0 : graph->state == Capture::State::kActive ? 1 : 2;
    if (model) *model = is_unfinished(graph) ? graph.get() : nullptr;
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRIGetId(void* model, uint32_t* id) {
    auto lock = lock_streams();
    Graph graph;
    if (!id) return failed(kInvalidParam, __func__, "modelRIId must not be null.");
    if (aclError refused = take_graph(model, __func__, &graph)) return refused;
    *id = graph->id;
    return kSuccess;
}

// context_aclgraph.cc, StreamEndCapture: a wrong argument does not end the capture, every other error does.
NPU_CANN_API aclError aclmdlRICaptureEnd(void* handle, void** model) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (!model) return failed(kRtInvalid, __func__, "modelRI must not be null.");
    if (aclError refused = no_context(__func__)) return refused;
    *model = nullptr;
    Graph graph = stream->capture;
    if (!is_unfinished(graph)) return failed(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    if (stream->branch != 0)
        return failed(kCaptureUnmatched, __func__, stream->place() + " must be the one that began the capture.");
    const std::string error = join_error(*graph);
    leave_capture(graph);
    aclError status = kSuccess;
    if (graph->mode != kRelaxed && graph->thread != this_thread())
        status = failed(kCaptureWrongThread, __func__, "thread must be the one that began the capture.");
    else if (graph->state == Capture::State::kInvalid)
        status = failed(kCaptureInvalidated, __func__, "the capture is invalid: an earlier call in it failed.");
    else if (!error.empty())
        status = failed(graph->open_groups.empty() ? kStreamUnjoined : kTaskGroupStatus, __func__, error + ".");
    if (status != kSuccess) {
        graph->state = Capture::State::kInvalid;
        graphs().by_handle.erase(graph.get());
        return status;
    }
    graph->state = Capture::State::kReady;
    *model = graph.get();
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode) {
    if (!mode) return failed(kInvalidParam, __func__, "mode must not be null.");
    if (*mode < kGlobal || *mode > kRelaxed) return failed(kRtInvalid, __func__, "mode must be 0, 1 or 2", *mode);
    const CaptureMode wanted = static_cast<CaptureMode>(*mode);
    *mode = exchanged_mode;
    exchanged_mode = wanted;
    return kSuccess;
}

// api_error.cc, ModelExecute: not on a stream that is captured.
NPU_CANN_API aclError aclmdlRIExecuteAsync(void* model, void* handle) {
    StreamPtr stream;
    {
        auto lock = lock_streams();
        Graph graph;
        if (aclError refused = take_graph(model, __func__, &graph)) return refused;
        stream = stream_of(handle);
        if (!stream) return no_stream(__func__);
        if (is_capturing(*stream)) return refuse_stream_change(*stream, __func__);
        if (aclError refused = no_context(__func__)) return refused;
        if (aclError refused = refuse_captured_graph(*graph, __func__)) return refused;
        if (aclError status = queue_nodes(graph, stream)) return status;
    }
    run_early(stream);
    return kSuccess;
}

// context.cc, Context::ModelDestroy: waits up to ten seconds for replays that are running. Here the wait ends when no
// queued work can complete them.
NPU_CANN_API aclError aclmdlRIDestroy(void* model) {
    std::vector<Target> running;
    {
        auto lock = lock_streams();
        Graph graph;
        if (aclError refused = take_graph(model, __func__, &graph)) return refused;
        if (aclError refused = no_context(__func__)) return refused;
        if (aclError refused = refuse_captured_graph(*graph, __func__)) return refused;
        for (const auto& [stream, position] : graph->replayed)
            if (stream->finished < position) running.push_back({stream, position});
    }
    const bool is_done = running.empty() || run_until(running);
    auto lock = lock_streams();
    // After an error that stopped the context, no work runs.
    if (!is_done && !context_error())
        return failed(kModelRunning, __func__,
                      "modelRI must not be running, but its replay waits for work that is not queued.");
    graphs().by_handle.erase(model);
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskGrpBegin(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (!is_capturing(*stream)) return failed(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    Capture& graph = *stream->capture;
    if (graph.open_groups.count(stream->branch))
        return failed(kTaskGroupStatus, __func__, stream->place() + " must not have an open group.");
    graph.groups.push_back(std::make_unique<Capture::Group>());
    graph.open_groups[stream->branch] = graph.groups.back().get();
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskGrpEnd(void* handle, void** group) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (!group) return failed(kInvalidParam, __func__, "handle must not be null.");
    *group = nullptr;
    if (!is_capturing(*stream)) return failed(kStreamNotCaptured, __func__, stream->place() + " must be in a capture.");
    Capture& graph = *stream->capture;
    auto open = graph.open_groups.find(stream->branch);
    if (open == graph.open_groups.end())
        return failed(kTaskGroupStatus, __func__, stream->place() + " must have an open group.");
    Capture::Group* closed = open->second;
    graph.open_groups.erase(open);
    if (graph.state == Capture::State::kInvalid)
        return failed(kCaptureInvalidated, __func__, "the capture of " + stream->place() + " is invalid.");
    *group = closed;
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskUpdateBegin(void* handle, void* group) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (aclError refused = no_context(__func__)) return refused;
    if (is_capturing(*stream)) return refuse_stream_change(*stream, __func__);
    if (stream->update) return failed(kTaskGroupStatus, __func__, stream->place() + " must not update another group.");
    for (const auto& [key, graph] : graphs().by_handle)
        for (const auto& one : graph->groups) {
            if (one.get() != group || graph->state != Capture::State::kReady) continue;
            if (one->is_in_update)
                return failed(kTaskGroupStatus, __func__, "handle must not be updated by another stream.");
            one->is_in_update = true;
            stream->update = std::make_shared<TaskUpdate>(TaskUpdate{graph, group, 0});
            return kSuccess;
        }
    return failed(kInvalidParam, __func__, "handle must be a group of a graph that exists.");
}

NPU_CANN_API aclError aclmdlRICaptureTaskUpdateEnd(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError refused = take_stream(handle, __func__, &stream)) return refused;
    if (aclError refused = no_context(__func__)) return refused;
    if (is_capturing(*stream)) return refuse_stream_change(*stream, __func__);
    if (!stream->update) return failed(kTaskGroupStatus, __func__, stream->place() + " must update a group.");
    const std::shared_ptr<TaskUpdate> update = std::move(stream->update);
    stream->update = nullptr;
    auto* group = static_cast<Capture::Group*>(update->group);
    group->is_in_update = false;
    if (update->done == group->nodes.size()) return kSuccess;
    return failed(kRtInternal, __func__,
                  "every task of the group must be updated but got " + std::to_string(update->done) + " of " +
                      std::to_string(group->nodes.size()) + ".");
}

NPU_CANN_API aclError aclmdlRIDebugJsonPrint(void* model, const char* path, uint32_t /*flags*/) {
    auto lock = lock_streams();
    Graph graph;
    if (aclError refused = take_graph(model, __func__, &graph)) return refused;
    std::FILE* file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return failed(kRtInvalid, __func__, "path must be a file that can be written.");
    std::fputs(as_trace(*graph).c_str(), file);
    std::fclose(file);
    return kSuccess;
}
NPU_CANN_API aclError aclmdlRIDebugPrint(void* model) {
    auto lock = lock_streams();
    Graph graph;
    if (aclError refused = take_graph(model, __func__, &graph)) return refused;
    std::fprintf(stderr, "simulated CANN: %s\n", as_trace(*graph).c_str());
    return kSuccess;
}
