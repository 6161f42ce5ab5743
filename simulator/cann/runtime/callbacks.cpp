// Host functions in a stream's order: those of aclrtLaunchHostFunc run when the stream reaches them, those of
// aclrtLaunchCallback on the subscribed thread, in its aclrtProcessReport.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr int kCallbackReturns = 0, kCallbackBlocks = 1;  // aclrtCallbackBlockType
constexpr std::chrono::seconds kMaxWait(20);              // for a thread that processes reports

struct Report {
    void (*function)(void*);
    void* argument;
    bool is_done = false;
};

struct Reports {
    std::condition_variable changed;
    // The keys are ids of streams, which are not reused.
    std::map<int32_t, uint64_t> thread_of_stream;  // of aclrtSubscribeReport
    std::set<int32_t> runtime_streams;             // streams whose host functions the runtime's own thread runs
    std::map<uint64_t, std::deque<std::shared_ptr<Report>>> reports_of_thread;
};

thread_local bool is_processing = false;  // this thread is in aclrtProcessReport, and runs no callback yet
thread_local bool has_processed = false;  // aclrtProcessReport ran a callback of this thread

// A callback that blocks the stream runs only in aclrtProcessReport of the thread that subscribed. So the other calls
// of that thread must not run the work.
bool may_run(uint64_t thread) { return thread != this_thread() || is_processing; }

// Passes the function to the subscribed thread. If the callback blocks, waits until that thread has called it.
// Immediate streams do this in the launch; if the subscribed thread launches, it calls the function later.
int32_t pass_to_thread(uint64_t thread, void (*function)(void*), void* argument, bool blocks) {
    if (thread == this_thread() && is_processing) {
        is_processing = false;
        has_processed = true;
        function(argument);
        return kSuccess;
    }
    auto report = std::make_shared<Report>(Report{function, argument});
    InterpreterPause pause;
    Locked<Reports> r;
    r->reports_of_thread[thread].push_back(report);
    r->changed.notify_all();
    if (!blocks || thread == this_thread()) return kSuccess;
    if (r->changed.wait_for(r.lock(), kMaxWait, [&] { return report->is_done; })) return kSuccess;
    return failed(kReportTimeout, "aclrtLaunchCallback", "the thread that subscribed must call aclrtProcessReport.");
}

Work host_code(const char* call, std::function<int32_t()> run) {
    Work work(Work::Kind::kHostCode, call);
    work.run = std::move(run);
    return work;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SubscribeReport, ::UnSubscribeReport,
// ::CallbackLaunch: not on a stream with host functions. A null stream is not checked.
aclError refuse_host_functions(const char* call, void* handle, const Stream& stream, const Reports& r) {
    if (!handle || !r.runtime_streams.count(stream.id)) return kSuccess;
    return failed(kStreamSubscribe, call, stream.place() + " must not have had a function of aclrtLaunchHostFunc.");
}

// api_impl.cc, ApiImpl::SubscribeReport: only a null stream, the context's default stream, needs a context.
aclError refuse_subscription(const char* call, void* handle, const Stream& stream, const Reports& r) {
    if (aclError refused = refuse_host_functions(call, handle, stream, r)) return refused;
    return handle ? kSuccess : no_context(call);
}

}  // namespace

void end_reports(const Stream& stream) {
    Locked<Reports> r;
    r->thread_of_stream.erase(stream.id);
    r->runtime_streams.erase(stream.id);
}

}  // namespace simulated_cann

using namespace simulated_cann;

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::LaunchHostFunc: not on a stream that a thread
// subscribed. api_impl.cc, ApiImpl::StarsLaunchSubscribeProc: the runtime subscribes a stream that is not captured.
NPU_CANN_API aclError aclrtLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    if (!function) return failed(kRtInvalid, __func__, "fn must not be null.");
    bool is_captured = false;
    {
        auto lock = lock_streams();
        is_captured = is_capturing(*stream);
    }
    {
        Locked<Reports> r;
        const bool is_subscribed = r->thread_of_stream.count(stream->id);
        if (handle && is_subscribed)
            return failed(kStreamSubscribe, __func__,
                          stream->place() + " must not be one that aclrtSubscribeReport named.");
        if (aclError refused = no_context(__func__)) return refused;
        if (!is_captured && !is_subscribed) r->runtime_streams.insert(stream->id);
    }
    return submit(stream, host_code(__func__, [function, argument] {
                      function(argument);
                      return int32_t(kSuccess);
                  }));
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::CallbackLaunch: refused without a subscription.
NPU_CANN_API aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int block, void* handle) {
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtLaunchCallbackImpl.
    if (block != kCallbackBlocks && block != kCallbackReturns)
        return failed(kInvalidParam, __func__, "blockType must be 0 or 1", block);
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    if (!function) return failed(kRtInvalid, __func__, "fn must not be null.");
    uint64_t thread = 0;
    {
        Locked<Reports> r;
        if (aclError refused = refuse_host_functions(__func__, handle, *stream, *r)) return refused;
        if (aclError refused = no_context(__func__)) return refused;
        auto found = r->thread_of_stream.find(stream->id);
        if (found == r->thread_of_stream.end())
            return failed(kNotSubscribed, __func__, "stream must be one that aclrtSubscribeReport named.");
        thread = found->second;
    }
    const bool blocks = block == kCallbackBlocks;
    Work work = host_code(__func__, [=] { return pass_to_thread(thread, function, argument, blocks); });
    if (blocks) work.may_run = [thread] { return may_run(thread); };
    return submit(stream, std::move(work));
}

// hicann/runtime src/runtime/core/src/utils/subscribe.cc, CbSubscribe::CheckForInsert.
NPU_CANN_API aclError aclrtSubscribeReport(uint64_t thread, void* handle) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    Locked<Reports> r;
    if (aclError refused = refuse_subscription(__func__, handle, *stream, *r)) return refused;
    if (r->thread_of_stream.count(stream->id) || r->runtime_streams.count(stream->id))
        return failed(kStreamSubscribe, __func__, stream->place() + " must not be subscribed.");
    r->thread_of_stream[stream->id] = thread;
    return kSuccess;
}

// subscribe.cc, CbSubscribe::Delete.
NPU_CANN_API aclError aclrtUnSubscribeReport(uint64_t thread, void* handle) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    Locked<Reports> r;
    if (aclError refused = refuse_subscription(__func__, handle, *stream, *r)) return refused;
    auto found = r->thread_of_stream.find(stream->id);
    if (found == r->thread_of_stream.end() && !r->runtime_streams.count(stream->id))
        return failed(kStreamSubscribe, __func__, stream->place() + " must be subscribed.");
    if (found == r->thread_of_stream.end() || found->second != thread)
        return failed(kThreadSubscribe, __func__, "threadId must be the one that aclrtSubscribeReport named.");
    r->thread_of_stream.erase(found);
    return kSuccess;
}

// Queued work of all streams runs while this call waits.
NPU_CANN_API aclError aclrtProcessReport(int32_t timeout_ms) {
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtProcessReportImpl.
    if (timeout_ms < -1 || timeout_ms == 0)
        return failed(kInvalidParam, __func__, "timeout must be -1 or greater than 0", timeout_ms);
    bool is_subscribed = false;
    {
        Locked<Reports> r;
        for (const auto& [stream, thread] : r->thread_of_stream)
            is_subscribed = is_subscribed || thread == this_thread();
    }
    if (!is_subscribed) {
        // torch_npu's thread (torch_npu/csrc/npu/Graph.cpp, process_callback) calls this again at once.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // subscribe.cc, CbSubscribe::GetGroupIdByThreadId.
        return failed(kThreadSubscribe, __func__, "thread must be one that aclrtSubscribeReport named.");
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 1000 : timeout_ms);
    std::shared_ptr<Report> report;
    has_processed = false;
    while (!report) {
        is_processing = true;
        run_some_of_all();
        is_processing = false;
        if (has_processed) return kSuccess;
        Locked<Reports> r;
        auto& pending = r->reports_of_thread[this_thread()];
        if (r->changed.wait_for(r.lock(), std::chrono::milliseconds(1), [&] { return !pending.empty(); })) {
            report = pending.front();
            pending.pop_front();
        } else if (std::chrono::steady_clock::now() >= end) {
            return failed(kReportTimeout, __func__, "no callback within the timeout.");
        }
    }
    report->function(report->argument);
    Locked<Reports> r;
    report->is_done = true;
    r->changed.notify_all();
    return kSuccess;
}
