// Groups of captured tasks, and their update after the capture.
#include "cann/runtime/graphs.h"

namespace simulated_cann {
namespace {

// api_error_aclgraph.cc and api_impl_aclgraph.cc, StreamBeginTaskGrp and StreamEndTaskGrp.
aclError check_captured(const char* call, const Stream& stream) {
    if (!is_capturing(stream)) return fail(kStreamNotCaptured, call, stream.place() + " must be in a capture.");
    return check_stream_context(call, stream);
}

}  // namespace

// hicann/runtime src/runtime/core/src/stream/stream.cc, AllocTask and UpdateTask: the launches replace the group's
// tasks, in order.
aclError replace_captured_task(const StreamPtr& stream, Work work) {
    TaskUpdate& task_update = *stream->task_update;
    auto* group = static_cast<Graph::Group*>(task_update.group);
    if (!work.is_kernel) return fail(kTaskNotSupported, work.name, "only kernels can replace the tasks of a group.");
    if (task_update.replaced_count >= group->nodes.size())
        return fail(kRtInternal, work.name, "the group has only " + std::to_string(group->nodes.size()) + " task(s).");
    Work& old = task_update.graph->nodes[group->nodes[task_update.replaced_count]].work;
    if (old.name != work.name)
        return fail(kTaskGroupStatus, work.name, "the task of the group must be " + old.name + ".");
    old = std::move(work);
    ++task_update.replaced_count;
    return kSuccess;
}

}  // namespace simulated_cann

using namespace simulated_cann;

// A task group is one of a captured stream of the context (api_error_aclgraph.cc and api_impl_aclgraph.cc).
NPU_CANN_API aclError aclmdlRICaptureTaskGrpBegin(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (aclError error = check_captured(__func__, *stream)) return error;
    Graph& graph = *stream->capture;
    if (graph.open_groups.count(stream->branch))
        return fail(kTaskGroupStatus, __func__, stream->place() + " must not have an open group.");
    if (stream->task_update) return fail(kTaskGroupStatus, __func__, stream->place() + " must not update a group.");
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
    if (aclError error = check_captured(__func__, *stream)) return error;
    Graph& graph = *stream->capture;
    auto open_group = graph.open_groups.find(stream->branch);
    if (open_group == graph.open_groups.end())
        return fail(kTaskGroupStatus, __func__, stream->place() + " must have an open group.");
    Graph::Group* closed = open_group->second;
    graph.open_groups.erase(open_group);
    if (graph.state == Graph::State::kInvalid)
        return fail(graph.group_error ? graph.group_error : kCaptureInvalidated, __func__,
                    "the capture of " + stream->place() + " is invalid.");
    *group = closed;
    return kSuccess;
}

NPU_CANN_API aclError aclmdlRICaptureTaskUpdateBegin(void* handle, void* group) {
    auto lock = lock_streams();
    StreamPtr stream;
    if (aclError error = find_capture_stream(handle, __func__, &stream)) return error;
    if (!group) return fail(kInvalidParam, __func__, "handle must not be null.");
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    if (aclError error = check_stream_context(__func__, *stream)) return error;
    if (stream->task_update)
        return fail(kTaskGroupStatus, __func__, stream->place() + " must not update another group.");
    for (const auto& [key, graph] : graph_registry().by_handle)
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
    if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, __func__);
    if (aclError error = check_stream_context(__func__, *stream)) return error;
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
