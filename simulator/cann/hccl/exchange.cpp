#include "cann/hccl/exchange.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "cann/runtime/forks.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The state of an exchange while it runs. A replay of a graph runs it again.
struct RunningExchange {
    Exchange exchange;
    std::string call;
    CommunicatorPtr communicator;
    uint64_t operation = 0;
    steady_clock::time_point posted_at = {}, checked_at = {};

    int32_t post();
    bool is_blocked();
    int32_t complete();
    std::string missing_rank(bool* is_missing);
};

using RunningExchangePtr = std::shared_ptr<RunningExchange>;

// The status of a stream whose HCCL operation timed out on Ascend910B: ACL_ERROR_RT_FFTS_PLUS_TIMEOUT (hicann/runtime
// include/external/acl/error_codes/rt_error_codes.h). On this chip, HCCL queues its operations as FFTS+ tasks.
constexpr int32_t kCommunicationFailed = 507048;
constexpr milliseconds kLivenessInterval(10);

int32_t fail_communication(const CommunicatorPtr& communicator, HcclResult status, std::string_view call,
                           std::string_view reason) {
    communicator->set_failure(status, call, reason);
    return fail(kCommunicationFailed, communicator->failure());
}

constexpr const char* kTooLittleMemory = "host memory must suffice but did not.";

int32_t RunningExchange::post() {
    if (const std::string failure = communicator->failure(); !failure.empty())
        return fail(kCommunicationFailed, failure);
    try {
        operation = exchange.channel->post(exchange.message);
    } catch (const std::bad_alloc&) {
        return fail_communication(communicator, HCCL_E_MEMORY, call, kTooLittleMemory);
    } catch (const std::exception& error) {
        return fail_communication(communicator, HCCL_E_SYSCALL, call, error.what());
    }
    posted_at = checked_at = steady_clock::now();
    return kSuccess;
}

// Sets is_missing to whether a rank has not posted its message. Returns "" or the reason why it will not.
std::string RunningExchange::missing_rank(bool* is_missing) {
    *is_missing = false;
    const auto now = steady_clock::now();
    const bool checks_processes = now - checked_at > kLivenessInterval;
    if (checks_processes) checked_at = now;
    for (uint32_t rank = 0; rank < exchange.channel->rank_count(); ++rank) {
        if (exchange.channel->has_posted(rank, operation)) continue;
        *is_missing = true;
        if (!checks_processes) continue;
        const std::string end = communicator->end_of_rank(exchange.ranks[rank]);
        // The rank may have posted its message before it ended.
        if (!end.empty() && !exchange.channel->has_posted(rank, operation)) return end + ", and this rank waits for it";
        const milliseconds timeout = communicator->exec_timeout();
        if (timeout.count() && now - posted_at > timeout)
            return "rank " + std::to_string(exchange.ranks[rank]) + " has not made the call within " +
                   std::to_string(timeout.count() / 1000) + " seconds (HCCL_EXEC_TIMEOUT)";
    }
    return "";
}

bool RunningExchange::is_blocked() {
    if (!communicator->failure().empty()) return false;
    bool is_missing = false;
    const std::string reason = missing_rank(&is_missing);
    if (reason.empty()) return is_missing;
    communicator->set_failure(
        HCCL_E_REMOTE,
        exchange.message.call + " on rank " + std::to_string(communicator->rank()) + " of " + communicator->name(),
        reason + ".");
    return false;
}

std::string signature_error(const RunningExchange& running, const Messages& messages) {
    for (size_t rank = 0; rank < messages.size(); ++rank)
        if (messages[rank].signature != running.exchange.message.signature)
            return "ranks must make the same call but got " + running.exchange.message.call + " on rank " +
                   std::to_string(running.communicator->rank()) + " and " + messages[rank].call + " on rank " +
                   std::to_string(running.exchange.ranks[rank]) + ".";
    return "";
}

int32_t RunningExchange::complete() {
    if (const std::string failure = communicator->failure(); !failure.empty())
        return fail(kCommunicationFailed, failure);
    int32_t status = kSuccess;
    try {
        Messages messages(exchange.channel->rank_count());
        for (uint32_t rank = 0; rank < messages.size(); ++rank)
            exchange.channel->open(rank, operation, &messages[rank]);
        std::string error = signature_error(*this, messages);
        if (error.empty()) error = exchange.read(messages);
        if (!error.empty()) status = fail_communication(communicator, HCCL_E_PARA, call, error);
    } catch (const std::bad_alloc&) {
        status = fail_communication(communicator, HCCL_E_MEMORY, call, kTooLittleMemory);
    } catch (const std::exception& error) {
        status = fail_communication(communicator, HCCL_E_PARA, call, error.what());
    }
    exchange.channel->finish(operation);
    if (status == kSuccess) record_launch(call, "");
    return status;
}

int32_t submit_noted(const CommunicatorPtr& communicator, const StreamPtr& stream, Work work) {
    {
        auto lock = lock_streams();
        if (int32_t status = enqueue(stream, std::move(work))) return status;
        communicator->note_work(stream, stream->last_queued);
    }
    run_early(stream);
    return kSuccess;
}

std::atomic<bool> is_ending{false};

// The first work of each stream for which another rank waits.
std::vector<StreamPosition> awaited_work() {
    std::vector<StreamPosition> found;
    for_each_queued_work([&](const StreamPtr& stream, uint64_t position, const Work& work) {
        if (!work.is_awaited || !work.is_awaited()) return true;
        found.push_back({stream, position});
        return false;
    });
    return found;
}

std::mutex progress_mutex;
const ForkLock progress_lock(LockRank::kLast, &progress_mutex);

void run_progress() {
    while (!is_ending) {
        usleep(has_communicators() ? 1000 : 20000);
        try {
            for (const StreamPosition& target : awaited_work()) run_ready({target});
        } catch (const std::bad_alloc&) {  // the other ranks wait until there is memory
        }
    }
}

}  // namespace

namespace {

// The exchanges of a group for one stream.
struct GroupedExchanges {
    StreamPtr stream;
    std::vector<RunningExchangePtr> exchanges;
};
thread_local int group_depth = 0;
thread_local std::vector<GroupedExchanges> grouped_exchanges;

HcclResult queue_all(const StreamPtr& stream, const std::vector<RunningExchangePtr>& all) {
    Work post(Work::Kind::kDevice, all.front()->call);
    for (const RunningExchangePtr& running : all)
        post.accesses.insert(post.accesses.end(), running->exchange.reads.begin(), running->exchange.reads.end());
    post.run = [all]() -> int32_t {
        for (const RunningExchangePtr& running : all)
            if (int32_t status = running->post()) return status;
        return kSuccess;
    };
    post.is_awaited = [all] {
        for (const RunningExchangePtr& running : all)
            if (running->exchange.channel->is_awaited()) return true;
        return false;
    };
    if (submit_noted(all.front()->communicator, stream, std::move(post))) return HCCL_E_RUNTIME;
    for (const RunningExchangePtr& running : all) {
        Work wait(Work::Kind::kDevice, running->call);
        wait.accesses = running->exchange.writes;
        wait.run = [running] { return running->complete(); };
        wait.is_blocked = [running] { return running->is_blocked(); };
        if (submit_noted(running->communicator, stream, std::move(wait))) return HCCL_E_RUNTIME;
    }
    return HCCL_SUCCESS;
}

// Queues the exchanges of each stream. Without memory some may be queued and others not. Then their communicators fail,
// because the other ranks would pair the next ones with those that are missing.
HcclResult queue_groups(const std::vector<GroupedExchanges>& groups) {
    try {
        for (const GroupedExchanges& grouped : groups)
            if (HcclResult error = queue_all(grouped.stream, grouped.exchanges)) return error;
    } catch (const std::bad_alloc&) {
        for (const GroupedExchanges& grouped : groups)
            for (const RunningExchangePtr& running : grouped.exchanges)
                running->communicator->set_failure(HCCL_E_MEMORY, running->call, kTooLittleMemory);
        throw;
    }
    return HCCL_SUCCESS;
}

}  // namespace

HcclResult queue_exchanges(const char* call, const CommunicatorPtr& communicator, const StreamPtr& stream,
                           std::vector<Exchange> exchanges) {
    std::vector<RunningExchangePtr> all;
    for (Exchange& exchange : exchanges)
        all.push_back(std::make_shared<RunningExchange>(RunningExchange{std::move(exchange), call, communicator}));
    if (!group_depth) return queue_groups({{stream, std::move(all)}});
    for (GroupedExchanges& grouped : grouped_exchanges) {
        if (grouped.stream != stream) continue;
        grouped.exchanges.insert(grouped.exchanges.end(), all.begin(), all.end());
        return HCCL_SUCCESS;
    }
    grouped_exchanges.push_back({stream, std::move(all)});
    return HCCL_SUCCESS;
}

void begin_group() { ++group_depth; }

HcclResult end_group() {
    if (!group_depth) return HCCL_E_PARA;
    if (--group_depth) return HCCL_SUCCESS;
    return queue_groups(std::exchange(grouped_exchanges, {}));
}

void start_progress() {
    static pid_t process = 0;  // a fork has no threads of its parent
    std::lock_guard<std::mutex> lock(progress_mutex);
    if (process == getpid()) return;
    std::thread(run_progress).detach();
    process = getpid();
    [[maybe_unused]] static const int registered = std::atexit([] { is_ending = true; });
}

}  // namespace simulated_cann
