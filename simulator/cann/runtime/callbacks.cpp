// Host functions in a stream's order: those of aclrtLaunchHostFunc run when the stream reaches them, those of
// aclrtLaunchCallback on the subscribed thread, in its aclrtProcessReport.
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/gil.h"
#include "simulator/cann/runtime/graphs.h"
#include "simulator/cann/runtime/scheduler.h"

namespace npu_cann {
namespace {

constexpr int kCallbackGoesOn = 0, kCallbackBlocks = 1;  // aclrtCallbackBlockType
constexpr std::chrono::seconds kMostPatience(20);        // for a thread that processes reports
constexpr aclError kNotSubscribed = 107015, kReportTimeout = 507012;

struct Report {
    void (*function)(void*);
    void* argument;
    bool is_done = false;
};

struct Reports {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<void*, uint64_t> thread_of_stream;
    std::map<uint64_t, std::deque<std::shared_ptr<Report>>> of_thread;
};
Reports& reports() {
    static Reports* instance = new Reports;
    return *instance;
}

// Passes the function to the thread. If it blocks, waits until the thread has called it.
int32_t hand_over(uint64_t thread, void (*function)(void*), void* argument, bool blocks) {
    if (thread == uint64_t(pthread_self())) {
        function(argument);
        return kSuccess;
    }
    Reports& r = reports();
    auto report = std::make_shared<Report>(Report{function, argument});
    InterpreterPause pause;
    std::unique_lock<std::mutex> lock(r.mutex);
    r.of_thread[thread].push_back(report);
    r.changed.notify_all();
    if (!blocks || r.changed.wait_for(lock, kMostPatience, [&] { return report->is_done; })) return kSuccess;
    return failed(kReportTimeout, "aclrtLaunchCallback: the thread that subscribed must call aclrtProcessReport.");
}

aclError submit_code(void* handle, const char* call, std::function<int32_t()> run) {
    StreamPtr stream;
    {
        auto lock = lock_streams();
        stream = stream_of(handle);
    }
    if (!stream) return no_stream(call);
    if (aclError refused = no_context(call)) return refused;
    Work work;
    work.kind = Work::Kind::kHostCode;
    work.name = call;
    work.run = std::move(run);
    return submit(stream, std::move(work));
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::SubscribeReport: a null stream is the context's.
aclError no_subscriber(const char* call, void* handle) {
    if (!handle) return no_context(call);
    auto lock = lock_streams();
    return stream_of(handle) ? kSuccess : no_stream(call);
}

}  // namespace
}  // namespace npu_cann

using namespace npu_cann;

NPU_CANN_API aclError aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
    if (!function) return failed(kRtInvalid, "aclrtLaunchHostFunc: fn must not be null.");
    return submit_code(stream, "aclrtLaunchHostFunc", [function, argument] {
        function(argument);
        return int32_t(kSuccess);
    });
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, LaunchHostFunc's neighbour: refused without a subscription.
NPU_CANN_API aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int block, void* stream) {
    const char* call = "aclrtLaunchCallback";
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtLaunchCallbackImpl.
    if (block != kCallbackBlocks && block != kCallbackGoesOn)
        return failed(kInvalidParam,
                      "aclrtLaunchCallback: blockType must be 0 or 1 but got " + std::to_string(block) + ".");
    {
        auto lock = lock_streams();
        if (!stream_of(stream)) return no_stream(call);
    }
    if (!function) return failed(kRtInvalid, "aclrtLaunchCallback: fn must not be null.");
    uint64_t thread = 0;
    {
        Reports& r = reports();
        std::lock_guard<std::mutex> lock(r.mutex);
        auto found = r.thread_of_stream.find(stream);
        if (found == r.thread_of_stream.end())
            return failed(kNotSubscribed, "aclrtLaunchCallback: stream must be one that aclrtSubscribeReport named.");
        thread = found->second;
    }
    const bool blocks = block == kCallbackBlocks;
    return submit_code(stream, call, [=] { return hand_over(thread, function, argument, blocks); });
}

NPU_CANN_API aclError aclrtSubscribeReport(uint64_t thread, void* stream) {
    if (aclError refused = no_subscriber("aclrtSubscribeReport", stream)) return refused;
    Reports& r = reports();
    std::lock_guard<std::mutex> lock(r.mutex);
    r.thread_of_stream[stream] = thread;
    return kSuccess;
}
NPU_CANN_API aclError aclrtUnSubscribeReport(uint64_t /*thread*/, void* stream) {
    if (aclError refused = no_subscriber("aclrtUnSubscribeReport", stream)) return refused;
    Reports& r = reports();
    std::lock_guard<std::mutex> lock(r.mutex);
    r.thread_of_stream.erase(stream);
    return kSuccess;
}

// The device continues while this call waits.
NPU_CANN_API aclError aclrtProcessReport(int32_t timeout_ms) {
    // hicann/runtime src/acl/aclrt_impl/callback.cpp, aclrtProcessReportImpl.
    if (timeout_ms < -1 || timeout_ms == 0)
        return failed(kInvalidParam, "aclrtProcessReport: timeout must be -1 or greater than 0 but got " +
                                         std::to_string(timeout_ms) + ".");
    Reports& r = reports();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 1000 : timeout_ms);
    std::shared_ptr<Report> report;
    while (!report) {
        run_some_of_all();
        std::unique_lock<std::mutex> lock(r.mutex);
        auto& own = r.of_thread[uint64_t(pthread_self())];
        if (r.changed.wait_for(lock, std::chrono::milliseconds(1), [&] { return !own.empty(); })) {
            report = own.front();
            own.pop_front();
        } else if (std::chrono::steady_clock::now() >= end) {
            return failed(kReportTimeout, "aclrtProcessReport: no callback within the timeout.");
        }
    }
    report->function(report->argument);
    std::lock_guard<std::mutex> lock(r.mutex);
    report->is_done = true;
    r.changed.notify_all();
    return kSuccess;
}
