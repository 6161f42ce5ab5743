// Host functions in the order of a stream. A function of aclrtLaunchHostFunc runs when the stream reaches it. A
// callback of aclrtLaunchCallback runs on the thread that subscribed to the stream, inside its call of
// aclrtProcessReport.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <utility>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr int kDoesNotBlock = 0, kBlocks = 1;  // aclrtCallbackBlockType
constexpr int32_t kWaitsForever = -1;          // timeout of aclrtProcessReport
constexpr std::chrono::seconds kMaxWait(20);   // time in which the subscribed thread must call the callback

struct PendingCallback {
    void (*function)(void*);
    void* argument;
    bool is_done = false;
};

// The thread of aclrtSubscribeReport, and the device of its stream.
struct Subscription {
    uint64_t thread;
    int32_t device;
};

struct CallbackState {
    std::condition_variable changed;
    std::map<int32_t, Subscription> subscriptions;  // by the ids of streams, which are not reused
    std::set<int32_t> runtime_streams;              // streams whose host functions the runtime's own thread runs
    std::map<uint64_t, std::deque<std::shared_ptr<PendingCallback>>> callbacks_of_thread;
};

const ForkLock callbacks_lock(LockRank::kTables, &Locked<CallbackState>::mutex());

// Number of threads with subscriptions: hicann/runtime docs/zh/api_ref/12_execution_control.md, aclrtSubscribeReport. A
// driver may have fewer (src/runtime/core/src/runtime.cc, InitCbSubscribe).
constexpr size_t kMaxThreads = 1024;

thread_local bool is_in_host_function = false;
thread_local bool is_processing_reports = false;  // this thread is in aclrtProcessReport, and runs no callback yet
thread_local bool has_run_callback = false;       // aclrtProcessReport ran a callback of this thread

// Whether the calling thread may wait for a callback that blocks the stream and that `thread`, the subscribed one,
// runs. The callback must run in aclrtProcessReport of `thread`, so other calls of `thread` must not wait for it.
bool may_run_blocking(uint64_t thread) { return thread != this_thread() || is_processing_reports; }

void call_host_function(void (*function)(void*), void* argument) {
    const bool was_in_one = std::exchange(is_in_host_function, true);
    function(argument);
    is_in_host_function = was_in_one;
}

// Passes the function to the subscribed thread. If the callback blocks, waits until that thread has called it. With
// immediate streams, this wait happens during the launch. There is no wait if the subscribed thread itself launches:
// that thread calls the function later.
int32_t pass_to_subscriber(uint64_t thread, void (*function)(void*), void* argument, bool blocks) {
    if (thread == this_thread() && is_processing_reports) {
        is_processing_reports = false;
        has_run_callback = true;
        call_host_function(function, argument);
        return kSuccess;
    }
    auto callback = std::make_shared<PendingCallback>(PendingCallback{function, argument});
    GilRelease release;
    Locked<CallbackState> callbacks;
    callbacks->callbacks_of_thread[thread].push_back(callback);
    callbacks->changed.notify_all();
    if (!blocks || thread == this_thread()) return kSuccess;
    if (callbacks->changed.wait_for(callbacks.lock(), kMaxWait, [&] { return callback->is_done; })) return kSuccess;
    return fail(kReportTimeout, "aclrtLaunchCallback", "the thread that subscribed must call aclrtProcessReport.");
}

Work make_host_work(const char* call, std::function<int32_t()> run) {
    Work work(Work::Kind::kHostCode, call);
    work.run = std::move(run);
    return work;
}

// The stream must have no host functions. A null stream is not checked. Source: hicann/runtime
// src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SubscribeReport, ::UnSubscribeReport, ::CallbackLaunch.
aclError check_no_host_functions(const char* call, void* handle, const Stream& stream, const CallbackState& callbacks) {
    if (!handle || !callbacks.runtime_streams.count(stream.id)) return kSuccess;
    return fail(kStreamSubscribe, call, stream.place() + " must not have had a function of aclrtLaunchHostFunc.");
}

// hicann/runtime src/runtime/core/src/utils/subscribe.cc, CbSubscribe::CheckForInsert and ::AssignGroupId: a stream has
// one subscription, and the streams of a thread have one device.
aclError check_new_subscription(const char* call, uint64_t thread, const Stream& stream,
                                const CallbackState& callbacks) {
    if (callbacks.subscriptions.count(stream.id) || callbacks.runtime_streams.count(stream.id))
        return fail(kStreamSubscribe, call, stream.place() + " must not be subscribed.");
    std::set<uint64_t> threads{thread};
    for (const auto& [id, other] : callbacks.subscriptions) {
        threads.insert(other.thread);
        if (other.thread == thread && other.device != stream.device)
            return fail(kThreadSubscribe, call, "threadId must be a thread without streams of another device.");
    }
    if (threads.size() <= kMaxThreads) return kSuccess;
    return fail(kRtInternal, call, "at most " + std::to_string(kMaxThreads) + " threads may have streams.");
}

}  // namespace

// hicann/runtime docs/zh/api_ref/12_execution_control.md, aclrtLaunchCallback and aclrtLaunchHostFunc. The sources
// accept these calls; a deadlock is possible.
void note_call_in_host_function(const char* call) {
    if (is_in_host_function)
        count_beyond_document(std::string(call) + " in a host function: it must not allocate, free, launch or wait");
}

void reset_callbacks_in_fork() {
    Locked<CallbackState> callbacks;
    new (&callbacks->changed) std::condition_variable;  // the destructor of the old one would wait for its threads
}

void end_reports(const Stream& stream) {
    Locked<CallbackState> callbacks;
    callbacks->subscriptions.erase(stream.id);
    callbacks->runtime_streams.erase(stream.id);
}

}  // namespace simulated_cann

using namespace simulated_cann;

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::LaunchHostFunc: no thread may be subscribed to
// the stream. api_impl.cc, ApiImpl::StarsLaunchSubscribeProc: the runtime subscribes to a stream that is not captured.
NPU_CANN_API aclError aclrtLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    if (!function) return fail(kRtInvalid, __func__, "fn must not be null.");
    bool is_captured = false;
    {
        auto lock = lock_streams();
        is_captured = is_capturing(*stream);
    }
    {
        Locked<CallbackState> callbacks;
        const bool is_subscribed = callbacks->subscriptions.count(stream->id);
        if (handle && is_subscribed)
            return fail(kStreamSubscribe, __func__,
                        stream->place() + " must not be subscribed by aclrtSubscribeReport.");
        if (aclError error = check_stream_context(__func__, *stream)) return error;
        if (!is_captured && !is_subscribed) callbacks->runtime_streams.insert(stream->id);
    }
    return submit(stream, make_host_work(__func__, [function, argument] {
                      call_host_function(function, argument);
                      return int32_t(kSuccess);
                  }));
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::CallbackLaunch: refused without a subscription.
NPU_CANN_API aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int block, void* handle) {
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtLaunchCallbackImpl.
    if (block != kBlocks && block != kDoesNotBlock)
        return fail(kInvalidParam, __func__, "blockType must be 0 or 1", block);
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    if (!function) return fail(kRtInvalid, __func__, "fn must not be null.");
    uint64_t thread = 0;
    {
        Locked<CallbackState> callbacks;
        if (aclError error = check_no_host_functions(__func__, handle, *stream, *callbacks)) return error;
        if (aclError error = check_stream_context(__func__, *stream)) return error;
        auto found = callbacks->subscriptions.find(stream->id);
        if (found == callbacks->subscriptions.end())
            return fail(kNotSubscribed, __func__, "stream must be one that aclrtSubscribeReport subscribed.");
        thread = found->second.thread;
    }
    const bool blocks = block == kBlocks;
    Work work = make_host_work(__func__, [=] { return pass_to_subscriber(thread, function, argument, blocks); });
    if (blocks) work.may_run = [thread] { return may_run_blocking(thread); };
    return submit(stream, std::move(work));
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::SubscribeReport: it creates an event, which needs a
// context, except on Ascend310P. There only a null stream, the context's default stream, needs one.
NPU_CANN_API aclError aclrtSubscribeReport(uint64_t thread, void* handle) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    Locked<CallbackState> callbacks;
    if (aclError error = check_no_host_functions(__func__, handle, *stream, *callbacks)) return error;
    if (!handle || !is_ascend310p())
        if (aclError error = check_context(__func__)) return error;
    if (aclError error = check_new_subscription(__func__, thread, *stream, *callbacks)) return error;
    callbacks->subscriptions[stream->id] = {thread, stream->device};
    return kSuccess;
}

// subscribe.cc, CbSubscribe::Delete. api_impl.cc, ApiImpl::UnSubscribeReport: only a null stream needs a context.
NPU_CANN_API aclError aclrtUnSubscribeReport(uint64_t thread, void* handle) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    Locked<CallbackState> callbacks;
    if (aclError error = check_no_host_functions(__func__, handle, *stream, *callbacks)) return error;
    if (!handle)
        if (aclError error = check_context(__func__)) return error;
    auto found = callbacks->subscriptions.find(stream->id);
    if (found == callbacks->subscriptions.end() && !callbacks->runtime_streams.count(stream->id))
        return fail(kStreamSubscribe, __func__, stream->place() + " must be subscribed.");
    if (found == callbacks->subscriptions.end() || found->second.thread != thread)
        return fail(kThreadSubscribe, __func__,
                    "threadId must be the thread that aclrtSubscribeReport subscribed to the stream.");
    callbacks->subscriptions.erase(found);
    return kSuccess;
}

// Queued work of all streams runs while this call waits.
NPU_CANN_API aclError aclrtProcessReport(int32_t timeout_ms) {
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtProcessReportImpl.
    if (timeout_ms < kWaitsForever || timeout_ms == 0)
        return fail(kInvalidParam, __func__, "timeout must be -1 or greater than 0", timeout_ms);
    bool is_subscribed = false;
    {
        Locked<CallbackState> callbacks;
        for (const auto& [stream, subscription] : callbacks->subscriptions)
            is_subscribed = is_subscribed || subscription.thread == this_thread();
    }
    if (!is_subscribed) {
        // torch_npu's thread (torch_npu/csrc/npu/Graph.cpp, process_callback) calls this again at once.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // subscribe.cc, CbSubscribe::GetGroupIdByThreadId.
        return fail(kThreadSubscribe, __func__, "thread must be one that aclrtSubscribeReport subscribed to a stream.");
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    std::shared_ptr<PendingCallback> callback;
    has_run_callback = false;
    while (!callback) {
        is_processing_reports = true;
        run_some_of_all_streams();
        is_processing_reports = false;
        if (has_run_callback) return kSuccess;
        Locked<CallbackState> callbacks;
        auto& pending = callbacks->callbacks_of_thread[this_thread()];
        if (callbacks->changed.wait_for(callbacks.lock(), std::chrono::milliseconds(1),
                                        [&] { return !pending.empty(); })) {
            callback = pending.front();
            pending.pop_front();
        } else if (timeout_ms != kWaitsForever && std::chrono::steady_clock::now() >= end) {
            return fail(kReportTimeout, __func__, "no callback within the timeout.");
        }
    }
    call_host_function(callback->function, callback->argument);
    Locked<CallbackState> callbacks;
    callback->is_done = true;
    callbacks->changed.notify_all();
    return kSuccess;
}
