// Communicators of HCCL. The ranks of a communicator share a folder with a table of the ranks' processes and the files
// of their channels (channel.h).
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cann/hccl/channel.h"
#include "cann/runtime/scheduler.h"
#include "hccl/hccl_types.h"

namespace simulated_cann {

// HCCL has a status of its own. fail_hccl() sets the text of aclGetRecentErrMsg and returns the status.
HcclResult fail_hccl(HcclResult status, const std::string& call, const std::string& rule);

// The process of one rank, in the file that the ranks share.
struct RankEntry {
    enum State : uint32_t { kAbsent = 0, kJoined = 1, kLeft = 2 };
    std::atomic<uint32_t> state;
    std::atomic<int32_t> process;
    std::atomic<int32_t> device;          // the driver's number
    std::atomic<uint64_t> process_start;  // tells the process from a later one with the same number
};

class Communicator {
public:
    // Joins the communicator of the folder as this rank. Throws FileError if the folder cannot be used, and
    // std::runtime_error if the arguments break a rule; the error's text is the rule.
    Communicator(const std::string& folder, std::string name, uint32_t rank, uint32_t rank_count, int32_t device);
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    const std::string& name() const { return name_; }
    uint32_t rank() const { return rank_; }
    uint32_t rank_count() const { return rank_count_; }
    int32_t device() const { return device_; }
    // The time that an operation waits for other ranks; 0 for no limit.
    std::chrono::milliseconds exec_timeout() const { return exec_timeout_; }
    void set_exec_timeout(std::chrono::milliseconds timeout) { exec_timeout_ = timeout; }

    // Waits until every rank has joined. Returns "" or the reason why the ranks cannot communicate.
    std::string wait_for_ranks() const;
    // Marks this rank as gone. The last rank removes the folder, which stays if there is no memory.
    void leave() noexcept;

    // The channel of all ranks, and the channel of two ranks, whose rank 0 sends and whose rank 1 receives. The latter
    // throws FileError if its file cannot be made.
    Channel& channel_of_all() { return channel_of_all_; }
    Channel& channel_of_pair(uint32_t sender, uint32_t receiver);

    // Returns "" or the sentence that the process of the rank has ended or has destroyed its communicator.
    std::string end_of_rank(uint32_t rank) const;

    // The first failure, with which every later operation fails; "" if there is none. Without memory for its text, the
    // text is short.
    std::string failure() const;
    void set_failure(HcclResult status, std::string_view call, std::string_view reason) noexcept;
    HcclResult async_error() const { return async_error_; }

    // The last work of the communicator on each stream.
    void note_work(const StreamPtr& stream, uint64_t position);
    std::vector<StreamPosition> last_work() const;

private:
    std::string same_device_error() const;

    std::string folder_, name_;
    uint32_t rank_, rank_count_;
    int32_t device_;
    std::chrono::milliseconds exec_timeout_;
    const std::chrono::milliseconds connect_timeout_;
    Channel channel_of_all_;
    SharedMemory table_;  // the number of ranks, and the entries
    RankEntry* const entries_;
    std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Channel>> channels_of_pairs_;
    std::atomic<HcclResult> async_error_{HCCL_SUCCESS};
    mutable std::mutex mutex_;  // of the members below, and of channels_of_pairs_
    std::string failure_;
    std::map<StreamPtr, uint64_t> last_work_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

// Removes the folder if no rank has joined its communicator: ranks that could not join may have left files in it.
void remove_if_not_joined(const std::string& folder) noexcept;

// Returns the communicator of a handle, or nullptr.
CommunicatorPtr find_communicator(void* handle);
// Whether the process has a communicator.
bool has_communicators();

}  // namespace simulated_cann
