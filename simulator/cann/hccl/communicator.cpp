#include "cann/hccl/communicator.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "cann/runtime/contexts.h"
#include "cann/runtime/gil.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kTableHeader = 64;  // bytes before the entries; the first word is the number of ranks

size_t table_bytes(uint32_t rank_count) { return kTableHeader + rank_count * sizeof(RankEntry); }

// The state and the start time of a process: fields 3 and 22 of /proc/PID/stat. The state is 0 if there is no such
// process, and '?' if it cannot be read.
struct ProcessState {
    char state = 0;
    uint64_t start = 0;
};
ProcessState state_of_process(int32_t process) {
    char path[32], text[1024] = {};
    std::snprintf(path, sizeof(path), "/proc/%d/stat", process);
    const File file(path, O_RDONLY);
    if (!file.is_open()) return {errno == ENOENT ? char{0} : '?', 0};
    const ssize_t bytes = read(file.number, text, sizeof(text) - 1);
    if (bytes <= 0) return {bytes < 0 && errno != ESRCH ? '?' : char{0}, 0};
    const char* next = std::strrchr(text, ')');  // the name before it may contain spaces
    if (!next || next[1] != ' ') return {};
    ProcessState found{next[2], 0};
    next += 2;
    for (int field = 3; field < 22 && next; ++field) {
        next = std::strchr(next, ' ');
        if (next) ++next;
    }
    if (next) found.start = std::strtoull(next, nullptr, 10);
    return found;
}

// Reads the seconds of an environment variable; the default text if it is empty or not set.
// Throws std::runtime_error if the variable is not such a number in the range.
milliseconds read_seconds(const char* variable, size_t most_decimals, double low, double high,
                          const char* default_text) {
    const char* text = std::getenv(variable);
    if (!text || !*text) text = default_text;
    const size_t digits = std::strspn(text, "0123456789");
    const size_t decimals = text[digits] == '.' ? std::strspn(text + digits + 1, "0123456789") : 0;
    const bool is_number = digits != 0 && decimals <= most_decimals && (text[digits] != '.' || decimals != 0) &&
                           text[digits + (decimals ? decimals + 1 : 0)] == 0;
    const double value = is_number ? std::strtod(text, nullptr) : -1;
    if (!is_number || value < low || value > high) {
        char rule[160];
        std::snprintf(rule, sizeof(rule), "%s must be a number of seconds from %.0f to %.0f with at most %zu decimals",
                      variable, low, high, most_decimals);
        throw std::runtime_error(std::string(rule) + " but got " + text + ".");
    }
    return milliseconds(std::llround(1000 * value));
}

// hicann/hccl docs/zh/user_guide/hccl_env/HCCL_EXEC_TIMEOUT.md; src/common/alg_env_config.cc, ParseExecTimeout() and
// InitEnvConfig(), refuses other texts with HCCL_E_PARA, in each operation. A communicator is not created here, which
// is stricter.
milliseconds default_exec_timeout() { return read_seconds("HCCL_EXEC_TIMEOUT", 2, 0, 2147483647, "1836"); }
// hicann/hccl docs/zh/user_guide/hccl_env/HCCL_CONNECT_TIMEOUT.md, which adds 20 seconds and gives the range. The
// page does not say what CANN does with other numbers. Here they are refused, the stricter reading.
milliseconds connect_timeout() { return read_seconds("HCCL_CONNECT_TIMEOUT", 0, 120, 7200, "120") + seconds(20); }

void remove_folder(const std::string& folder) {
    if (DIR* entries = opendir(folder.c_str())) {
        while (const dirent* entry = readdir(entries)) unlinkat(dirfd(entries), entry->d_name, 0);
        closedir(entries);
    }
    rmdir(folder.c_str());
}

}  // namespace

HcclResult fail_hccl(HcclResult status, const std::string& call, const std::string& rule) {
    fail(kInternalError, call, rule);
    return status;
}

Communicator::Communicator(const std::string& folder, std::string name, uint32_t rank, uint32_t rank_count,
                           int32_t device)
    : folder_(folder),
      name_(std::move(name)),
      rank_(rank),
      rank_count_(rank_count),
      device_(device),
      exec_timeout_(default_exec_timeout()),
      connect_timeout_(connect_timeout()),
      channel_of_all_(folder + "/all", rank, rank_count),
      table_(folder + "/ranks", table_bytes(rank_count)),
      entries_(table_.at<RankEntry>(kTableHeader)) {
    uint32_t other_count = 0;
    if (!table_.at<std::atomic<uint32_t>>(0)->compare_exchange_strong(other_count, rank_count) &&
        other_count != rank_count)
        throw std::runtime_error("nRanks must be " + std::to_string(other_count) +
                                 ", as on another rank of the communicator, but got " + std::to_string(rank_count) +
                                 ".");
    const ProcessState process = state_of_process(getpid());
    if (process.start == 0) throw std::runtime_error("/proc must have the start of this process.");
    RankEntry& entry = entries_[rank];
    int32_t absent = 0;
    if (!entry.process.compare_exchange_strong(absent, getpid()))
        throw std::runtime_error("rank must be one that has not joined the communicator but got " +
                                 std::to_string(rank) + ".");
    entry.device = physical_device(device);
    entry.process_start = process.start;
    entry.state = RankEntry::kJoined;
}

// Two processes may use one device (hicann/hccl docs/zh/user_guide/constraints.md), but the pages do not say that two
// ranks of one communicator may. The stricter reading is simulated.
std::string Communicator::same_device_error() const {
    for (uint32_t rank = 0; rank < rank_count_; ++rank)
        for (uint32_t other = 0; other < rank; ++other)
            if (entries_[rank].device == entries_[other].device)
                return "ranks must use different devices but ranks " + std::to_string(other) + " and " +
                       std::to_string(rank) + " use device " + std::to_string(entries_[rank].device) +
                       " (torch.npu.set_device, ascend-sim run --devices).";
    return "";
}

std::string Communicator::wait_for_ranks() const {
    GilRelease release;
    const auto end = steady_clock::now() + connect_timeout_;
    for (;;) {
        uint32_t absent = rank_count_;
        for (uint32_t rank = 0; rank < rank_count_; ++rank) {
            if (entries_[rank].state == RankEntry::kAbsent) {
                absent = rank;
            } else if (std::string text = end_of_rank(rank);
                       entries_[rank].state == RankEntry::kJoined && !text.empty()) {
                return text;
            }
        }
        if (absent == rank_count_) return same_device_error();
        if (steady_clock::now() > end)
            return "rank " + std::to_string(absent) + " must join the communicator within " +
                   std::to_string(connect_timeout_.count() / 1000) + " seconds (HCCL_CONNECT_TIMEOUT).";
        usleep(1000);
    }
}

void Communicator::leave() noexcept {
    entries_[rank_].state = RankEntry::kLeft;
    for (uint32_t rank = 0; rank < rank_count_; ++rank)
        if (entries_[rank].state == RankEntry::kJoined) return;
    remove_folder(folder_);
}

void remove_if_not_joined(const std::string& folder) noexcept try {
    RankEntry entry{};
    const File table((folder + "/ranks").c_str(), O_RDONLY);
    for (off_t offset = kTableHeader; table.is_open() && pread(table.number, &entry, sizeof(entry), offset) > 0;
         offset += sizeof(entry))
        if (entry.process != 0) return;
    remove_folder(folder);
} catch (const std::bad_alloc&) {  // the folder stays
}

Channel& Communicator::channel_of_pair(uint32_t sender, uint32_t receiver) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Channel>& channel = channels_of_pairs_[{sender, receiver}];
    if (!channel)
        channel =
            std::make_unique<Channel>(folder_ + "/from-" + std::to_string(sender) + "-to-" + std::to_string(receiver),
                                      rank_ == sender ? 0 : 1, 2);
    return *channel;
}

std::string Communicator::end_of_rank(uint32_t rank) const {
    const RankEntry& entry = entries_[rank];
    const std::string who = "rank " + std::to_string(rank) + " (process " + std::to_string(entry.process) + ")";
    if (entry.state == RankEntry::kAbsent) return "";
    if (entry.state == RankEntry::kLeft) return who + " has destroyed its communicator";
    const ProcessState process = state_of_process(entry.process);
    if (process.state == '?') return "";
    const bool has_ended = process.state == 0 || process.state == 'Z' || process.state == 'X';
    return has_ended || process.start != entry.process_start ? who + " has ended" : "";
}

std::string Communicator::failure() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

void Communicator::set_failure(HcclResult status, std::string_view call, std::string_view reason) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) return;
    try {
        failure_ = std::string(call).append(": ").append(reason);
    } catch (const std::bad_alloc&) {
        failure_ = "no host memory";
    }
    async_error_ = status;
    print_message({failure_});
}

void Communicator::note_work(const StreamPtr& stream, uint64_t position) {
    std::lock_guard<std::mutex> lock(mutex_);
    last_work_[stream] = position;
}

std::vector<StreamPosition> Communicator::last_work() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<StreamPosition> found;
    for (const auto& [stream, position] : last_work_) found.push_back({stream, position});
    return found;
}

}  // namespace simulated_cann
