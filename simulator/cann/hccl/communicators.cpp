// HCCL's functions for communicators. The text of an error, the files and the default names are this simulator's; the
// arguments are those of hccl/hccl.h of CANN 8.1 and of torch_npu 2.13.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "cann/hccl/communicator.h"
#include "cann/hccl/exchange.h"
#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/forks.h"
#include "hccl/hccl.h"

namespace simulated_cann {
namespace {

struct Communicators {
    std::map<void*, CommunicatorPtr> by_handle;
};

const ForkLock communicators_lock(LockRank::kLast, &Locked<Communicators>::mutex());

struct Configuration {
    int32_t deterministic = 0;
};

const ForkLock configuration_lock(LockRank::kLast, &Locked<Configuration>::mutex());

constexpr char kRootMark[] = "ascend_sim ";  // start of a root info; the path of the folder follows

// The folders that this process has made.
struct MadeFolders {
    pid_t process = 0;
    std::vector<std::string> paths;
};

const ForkLock folders_lock(LockRank::kLast, &Locked<MadeFolders>::mutex());

// Removes the folders that no rank has joined. The last rank that leaves removes another folder.
void remove_unused_folders() {
    Locked<MadeFolders> made;
    if (made->process != getpid()) return;  // a fork, whose parent has made them
    for (const std::string& path : made->paths) remove_if_not_joined(path);
}

// Makes the folder of a new communicator. It is in the folder of the run's reports, which ascend-sim run removes at its
// end. A program without ascend-sim run has it in TMPDIR or /tmp.
std::string make_folder() {
    const char* base = std::getenv("ASCEND_SIM_REPORT_DIR");
    if (!base || !*base) base = std::getenv("TMPDIR");
    const std::string folder = std::string(base && *base ? base : "/tmp") + "/hccl-XXXXXX";
    [[maybe_unused]] static const int registered = std::atexit(remove_unused_folders);
    Locked<MadeFolders> made;
    if (made->process != getpid()) *made = {getpid(), {}};
    made->paths.push_back(folder);
    if (mkdtemp(made->paths.back().data())) return made->paths.back();
    made->paths.pop_back();
    return "";
}

std::string name_of_folder(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

void remove_communicator(const CommunicatorPtr& communicator) {
    communicator->leave();
    Locked<Communicators>()->by_handle.erase(communicator.get());
}

// The communicators that a call makes. They are removed again if the call does not succeed.
struct NewCommunicators {
    std::vector<CommunicatorPtr> all;
    bool is_kept = false;

    NewCommunicators() = default;
    NewCommunicators(const NewCommunicators&) = delete;
    NewCommunicators& operator=(const NewCommunicators&) = delete;
    ~NewCommunicators() {
        if (is_kept) return;
        for (const CommunicatorPtr& communicator : all) remove_communicator(communicator);
    }
    HcclResult add(const char* call, const std::string& folder, std::string name, uint32_t rank, uint32_t rank_count,
                   int32_t device);
};

HcclResult NewCommunicators::add(const char* call, const std::string& folder, std::string name, uint32_t rank,
                                 uint32_t rank_count, int32_t device) {
    all.reserve(all.size() + 1);  // so that a communicator that has joined is certainly one of them
    try {
        start_progress();
        all.push_back(std::make_shared<Communicator>(folder, std::move(name), rank, rank_count, device));
    } catch (const std::system_error& error) {
        return fail_hccl(HCCL_E_SYSCALL, call, std::string("thread must be created but got: ") + error.what() + ".");
    } catch (const FileError& error) {
        return fail_hccl(HCCL_E_SYSCALL, call, error.what());
    } catch (const std::runtime_error& error) {
        return fail_hccl(HCCL_E_PARA, call, error.what());
    }
    Locked<Communicators>()->by_handle[all.back().get()] = all.back();
    return HCCL_SUCCESS;
}

HcclResult check_config(const char* call, const HcclCommConfig* config) {
    uint32_t magic = 0;
    std::memcpy(&magic, config->reserved + sizeof(size_t), sizeof(magic));
    if (magic != HCCL_COMM_CONFIG_MAGIC_WORD)
        return fail_hccl(HCCL_E_PARA, call, "config must come from HcclCommConfigInit.");
    if (!std::memchr(config->hcclCommName, 0, COMM_NAME_MAX_LENGTH))
        return fail_hccl(HCCL_E_PARA, call, "hcclCommName must have at most 127 characters.");
    return HCCL_SUCCESS;
}

// The structure starts with the size and the version that a program was compiled with.
bool has_exec_timeout(const HcclCommConfig* config) {
    size_t bytes = 0;
    std::memcpy(&bytes, config->reserved, sizeof(bytes));
    return bytes >= offsetof(HcclCommConfig, hcclExecTimeOut) + sizeof(config->hcclExecTimeOut) &&
           config->hcclExecTimeOut != -1;
}

HcclResult join(const char* call, uint32_t rank_count, const HcclRootInfo* root, uint32_t rank,
                const HcclCommConfig* config, HcclComm* out) {
    if (!root || !out) return fail_hccl(HCCL_E_PTR, call, "rootInfo and comm must not be null.");
    if (rank_count == 0) return fail_hccl(HCCL_E_PARA, call, "nRanks must be greater than 0.");
    if (rank >= rank_count)
        return fail_hccl(
            HCCL_E_PARA, call,
            "rank must be less than nRanks " + std::to_string(rank_count) + " but got " + std::to_string(rank) + ".");
    const size_t mark_bytes = sizeof(kRootMark) - 1;
    if (std::memcmp(root->internal, kRootMark, mark_bytes) != 0 ||
        !std::memchr(root->internal, 0, HCCL_ROOT_INFO_BYTES))
        return fail_hccl(HCCL_E_PARA, call, "rootInfo must come from HcclGetRootInfo.");
    if (config)
        if (HcclResult error = check_config(call, config)) return error;
    if (check_context(call)) return HCCL_E_RUNTIME;
    const std::string folder = root->internal + mark_bytes;
    const bool is_named = config && config->hcclCommName[0];
    NewCommunicators made;
    if (HcclResult error = made.add(call, folder, is_named ? config->hcclCommName : name_of_folder(folder), rank,
                                    rank_count, current_device()))
        return error;
    const CommunicatorPtr& communicator = made.all.front();
    if (config && has_exec_timeout(config))
        communicator->set_exec_timeout(std::chrono::seconds(config->hcclExecTimeOut));
    if (const std::string reason = communicator->wait_for_ranks(); !reason.empty())
        return fail_hccl(HCCL_E_TIMEOUT, call, reason);
    made.is_kept = true;
    *out = communicator.get();
    return HCCL_SUCCESS;
}

HcclResult find(const char* call, HcclComm comm, CommunicatorPtr* out) {
    if (!comm) return fail_hccl(HCCL_E_PTR, call, "comm must not be null.");
    *out = find_communicator(comm);
    return *out ? HCCL_SUCCESS : fail_hccl(HCCL_E_PARA, call, "comm must be a communicator that exists.");
}

}  // namespace

CommunicatorPtr find_communicator(void* handle) {
    Locked<Communicators> all;
    const auto found = all->by_handle.find(handle);
    return found == all->by_handle.end() ? nullptr : found->second;
}

bool has_communicators() { return !Locked<Communicators>()->by_handle.empty(); }

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API HcclResult HcclGetRootInfo(HcclRootInfo* root) {
    if (!root) return fail_hccl(HCCL_E_PTR, __func__, "rootInfo must not be null.");
    if (check_context(__func__)) return HCCL_E_RUNTIME;
    const std::string folder = make_folder();
    if (folder.empty() || folder.size() + sizeof(kRootMark) > HCCL_ROOT_INFO_BYTES)
        return fail_hccl(HCCL_E_SYSCALL, __func__, "a temporary folder with a short path must be writable (TMPDIR).");
    std::memset(root->internal, 0, HCCL_ROOT_INFO_BYTES);
    const std::string text = kRootMark + folder;
    std::memcpy(root->internal, text.data(), text.size());
    return HCCL_SUCCESS;
}

NPU_CANN_API HcclResult HcclCommInitRootInfo(uint32_t rank_count, const HcclRootInfo* root, uint32_t rank,
                                             HcclComm* comm) {
    return join(__func__, rank_count, root, rank, nullptr, comm);
}
NPU_CANN_API HcclResult HcclCommInitRootInfoConfig(uint32_t rank_count, const HcclRootInfo* root, uint32_t rank,
                                                   const HcclCommConfig* config, HcclComm* comm) {
    if (!config) return fail_hccl(HCCL_E_PTR, __func__, "config must not be null.");
    return join(__func__, rank_count, root, rank, config, comm);
}

// One process has all ranks: rank i uses the device devices[i].
NPU_CANN_API HcclResult HcclCommInitAll(uint32_t count, int32_t* devices, HcclComm* comms) {
    if (!devices || !comms) return fail_hccl(HCCL_E_PTR, __func__, "devices and comms must not be null.");
    if (count == 0) return fail_hccl(HCCL_E_PARA, __func__, "ndev must be greater than 0.");
    for (uint32_t i = 0; i < count; ++i)
        if (check_device(__func__, devices[i])) return HCCL_E_PARA;
    HcclRootInfo root;
    if (HcclResult error = HcclGetRootInfo(&root)) return error;
    const std::string folder = root.internal + sizeof(kRootMark) - 1;
    NewCommunicators made;
    for (uint32_t rank = 0; rank < count; ++rank)
        if (HcclResult error = made.add(__func__, folder, name_of_folder(folder), rank, count, devices[rank]))
            return error;
    if (const std::string reason = made.all[0]->wait_for_ranks(); !reason.empty())
        return fail_hccl(HCCL_E_PARA, __func__, reason);
    made.is_kept = true;
    for (uint32_t rank = 0; rank < count; ++rank) comms[rank] = made.all[rank].get();
    return HCCL_SUCCESS;
}

// Does not wait for other ranks: torch_npu synchronizes the streams first, "as a substitute for the HCCL finalize API"
// (Ascend/pytorch torch_npu/csrc/distributed/ProcessGroupHCCL.cpp, shutdown). Runs the queued operations that can run,
// as a device would have done.
NPU_CANN_API HcclResult HcclCommDestroy(HcclComm comm) {
    CommunicatorPtr communicator;
    if (HcclResult error = find(__func__, comm, &communicator)) return error;
    run_ready(communicator->last_work());
    remove_communicator(communicator);
    return HCCL_SUCCESS;
}

NPU_CANN_API HcclResult HcclGetCommName(HcclComm comm, char* name) {
    CommunicatorPtr communicator;
    if (HcclResult error = find(__func__, comm, &communicator)) return error;
    if (!name) return fail_hccl(HCCL_E_PTR, __func__, "commName must not be null.");
    std::memset(name, 0, COMM_NAME_MAX_LENGTH);
    communicator->name().copy(name, COMM_NAME_MAX_LENGTH - 1);
    return HCCL_SUCCESS;
}
NPU_CANN_API HcclResult HcclGetRankSize(HcclComm comm, uint32_t* count) {
    CommunicatorPtr communicator;
    if (HcclResult error = find(__func__, comm, &communicator)) return error;
    if (!count) return fail_hccl(HCCL_E_PTR, __func__, "rankSize must not be null.");
    *count = communicator->rank_count();
    return HCCL_SUCCESS;
}
NPU_CANN_API HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
    CommunicatorPtr communicator;
    if (HcclResult error = find(__func__, comm, &communicator)) return error;
    if (!rank) return fail_hccl(HCCL_E_PTR, __func__, "rank must not be null.");
    *rank = communicator->rank();
    return HCCL_SUCCESS;
}
NPU_CANN_API HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* error) {
    CommunicatorPtr communicator;
    if (HcclResult status = find(__func__, comm, &communicator)) return status;
    if (!error) return fail_hccl(HCCL_E_PTR, __func__, "asyncError must not be null.");
    *error = communicator->async_error();
    return HCCL_SUCCESS;
}

// Returns which fields of HcclCommConfig this version has.
NPU_CANN_API uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }

// The simulated reductions are always deterministic, so the value has no effect. The values 0 to 2 are false, true and
// strict of hicann/hccl docs/zh/user_guide/hccl_env/HCCL_DETERMINISTIC.md.
NPU_CANN_API HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue value) {
    if (config != HCCL_DETERMINISTIC)
        return fail_hccl(HCCL_E_NOT_SUPPORT, __func__, "config must be HCCL_DETERMINISTIC: others are not simulated.");
    if (value.value < 0 || value.value > 2)
        return fail_hccl(HCCL_E_PARA, __func__,
                         "configValue must be 0 to 2 but got " + std::to_string(value.value) + ".");
    Locked<Configuration>()->deterministic = value.value;
    return HCCL_SUCCESS;
}
NPU_CANN_API HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* value) {
    if (!value) return fail_hccl(HCCL_E_PTR, __func__, "configValue must not be null.");
    if (config != HCCL_DETERMINISTIC)
        return fail_hccl(HCCL_E_NOT_SUPPORT, __func__, "config must be HCCL_DETERMINISTIC: others are not simulated.");
    value->value = Locked<Configuration>()->deterministic;
    return HCCL_SUCCESS;
}

NPU_CANN_API const char* HcclGetErrorString(HcclResult code) {
    static const char* const texts[] = {"no error",
                                        "parameter error",
                                        "empty pointer",
                                        "memory error",
                                        "internal error",
                                        "not supported",
                                        "resource not found",
                                        "resource unavailable",
                                        "system call error",
                                        "timeout",
                                        "file cannot be opened",
                                        "tcp connect failed",
                                        "roce connect failed",
                                        "tcp transfer failed",
                                        "roce transfer failed",
                                        "runtime error",
                                        "driver error",
                                        "profiling error",
                                        "cce error",
                                        "network error",
                                        "try again",
                                        "error of another rank",
                                        "communicator suspended",
                                        "retry failed",
                                        "out of memory"};
    const auto number = static_cast<uint32_t>(code);
    return number < sizeof(texts) / sizeof(*texts) ? texts[number] : "unknown error";
}
