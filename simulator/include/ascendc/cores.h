// Synchronisation between the vector cores of a launch: SyncAll, CrossCoreSetFlag and CrossCoreWaitFlag, IBSet and
// IBWait, and the cores' order by WaitPreBlock and NotifyNextBlock.
//
// Rules: every core that a core waits for raises its signal (SIM-SYNC-01: the launch would hang), and there are at most
// as many blocks as cores (SIM-SYNC-02). Flags between cores need a kernel type that starts the scheduler between cores
// (SIM-SYNC-03). Their ids are 0 .. 15, at most 15 signals are outstanding (SIM-SYNC-04), and each signal is waited for
// (SIM-SYNC-05). The forms with workspaces use memory in GM, which is 0 before its first use (SIM-SYNC-06).
// Meaning: for a core that has waited for a signal, the work before the signal is complete: that of the signal's pipe,
// or of all pipes. The scalar unit's cache is not cleaned.
// Cost: the profile's core_signal_cycles after the last core's signal.
// Sources: the pages 同步控制/核间同步 of the vendor's API reference; asc-devkit
// impl/basic_api/dav_c220/kernel_operator_sync_impl.h.
#pragma once

#include "ascendc/copy.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// Checks the workspaces of a form with workspaces, and marks the one in UB as written.
inline void use_signal_memory(const AscendC::GlobalTensor<int32_t>& gm, const AscendC::LocalTensor<int32_t>& ub,
                              uint64_t gm_bytes, uint64_t ub_bytes, bool starts_at_zero, const char* api, Site site) {
    barrier(kAllPipes, site);
    start(Pipe::MTE2, api, site);
    if (ub.view().bytes < ub_bytes)
        broken(Rule::Work01, "`ubWorkspace` must have %llu bytes but has %u.",
               static_cast<unsigned long long>(ub_bytes), ub.view().bytes);
    check_aligned("ubWorkspace", ub.view().addr);
    check_signal_memory("gmWorkspace", uintptr_t(gm.data()), gm_bytes, gm.view(), starts_at_zero);
    const Range all{ub.view().addr, int64_t(ub.view().addr + ub_bytes)};
    writes("ubWorkspace", ub.view(), &all, 1);
    std::memset(ascend_sim::ub() + all.begin, 0, ub_bytes);
    finish_copy(gm_bytes, 1, uintptr_t(gm.data()));
    barrier(kAllPipes, site);
}

}  // namespace ascend_sim

namespace AscendC {

struct SyncAllConfig {
    pipe_t triggerPipe;
    pipe_t waitPipe;
};
constexpr SyncAllConfig DEFAULT_SYNC_ALL_CONFIG = {PIPE_ALL, PIPE_ALL};

template <bool isAIVOnly = true>
void SyncAll(ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<std::bool_constant<isAIVOnly>, ascend_sim::Api::SyncAll>,
                  "SyncAll(): this SoC has only the form with workspaces");
    static_assert(isAIVOnly,
                  "SyncAll<false>: a launch without cube cores would hang; the simulator has vector cores only");
    ascend_sim::barrier(ascend_sim::kAllPipes, site);
    ascend_sim::needs_scheduler("SyncAll", site);
    ascend_sim::raise_signal(ascend_sim::kSyncAllKey, ascend_sim::kAllPipes, "SyncAll", site);
    ascend_sim::wait_for_signals(ascend_sim::kSyncAllKey, 0, ascend_sim::block_count(), "SyncAll", site);
}

// Ascend950: with the pipe that raises the signal and the pipe that waits for it.
template <bool isAIVOnly, const SyncAllConfig& config>
void SyncAll(ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kIs950 && isAIVOnly,
                  "SyncAll<isAIVOnly, config>: only Ascend950 has it, for vector cores");
    static_assert(config.triggerPipe == PIPE_MTE2 || config.triggerPipe == PIPE_MTE3 || config.triggerPipe == PIPE_ALL,
                  "SyncAll: triggerPipe is PIPE_MTE2, PIPE_MTE3 or PIPE_ALL");
    ascend_sim::needs_scheduler("SyncAll", site);
    ascend_sim::raise_signal(ascend_sim::kSyncAllKey,
                             config.triggerPipe == PIPE_ALL ? ascend_sim::kAllPipes : int32_t(config.triggerPipe),
                             "SyncAll", site);
    ascend_sim::wait_for_signals(ascend_sim::kSyncAllKey, 0, ascend_sim::block_count(), "SyncAll", site);
}

template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace,
             const int32_t usedCores = 0, ASCEND_SIM_SITE) {
    static_assert(isAIVOnly, "SyncAll with workspaces: only for kernels of vector cores");
    const int64_t cores = usedCores ? usedCores : ascend_sim::block_count();
    if (usedCores < 0 || cores > ascend_sim::block_count())
        ascend_sim::broken_at(ascend_sim::Rule::Mode01, "SyncAll", site, "usedCores must be 0 .. %lld but got %d.",
                              static_cast<long long>(ascend_sim::block_count()), usedCores);
    const uint64_t bytes = uint64_t(cores) * ascend_sim::kBlockBytes, key = uintptr_t(gmWorkspace.data());
    ascend_sim::use_signal_memory(gmWorkspace, ubWorkspace, bytes, bytes, true, "SyncAll", site);
    ascend_sim::raise_signal(key, ascend_sim::kAllPipes, "SyncAll", site);
    ascend_sim::wait_for_signals(key, 0, cores, "SyncAll", site);
}

template <uint8_t modeId, pipe_t pipe>
void CrossCoreSetFlag(uint16_t flagId, ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<std::integral_constant<pipe_t, pipe>, ascend_sim::Api::CrossCoreSetFlag>,
                  "CrossCoreSetFlag: this SoC does not have it");
    static_assert(modeId == 0,
                  "CrossCoreSetFlag: modes 1, 2 and 4 join cores of an AI core with its cube core, and "
                  "the simulator has vector cores only");
    static_assert(pipe == PIPE_V || pipe == PIPE_MTE2 || pipe == PIPE_MTE3,
                  "CrossCoreSetFlag: a vector core's pipe is PIPE_V, PIPE_MTE2 or PIPE_MTE3");
    ascend_sim::needs_scheduler("CrossCoreSetFlag", site);
    ascend_sim::check_core_flag("CrossCoreSetFlag", flagId, site);
    ascend_sim::raise_signal(flagId & 15, int32_t(pipe), "CrossCoreSetFlag", site);
}

template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t flagId, ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<std::integral_constant<pipe_t, pipe>, ascend_sim::Api::CrossCoreWaitFlag>,
                  "CrossCoreWaitFlag: this SoC does not have it");
    ascend_sim::check_core_flag("CrossCoreWaitFlag", flagId, site);
    ascend_sim::wait_for_signals(flagId & 15, 0, ascend_sim::block_count(), "CrossCoreWaitFlag", site);
}

// IBSet and IBWait: a signal of the core blockIdx. gmWorkspace has a 32-byte block for each core and event.
template <bool isAIVOnly = true>
void IBSet(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t blockIdx,
           int32_t eventID, ASCEND_SIM_SITE) {
    static_assert(isAIVOnly, "IBSet<false>: mixed kernels are absent, the simulator has vector cores only");
    const GlobalTensor<int32_t> block = gmWorkspace[uint64_t(8 * (GetBlockNum() * eventID + blockIdx))];
    ascend_sim::use_signal_memory(block, ubWorkspace, 32, 32, true, "IBSet", site);
    ascend_sim::raise_pair_signal(uintptr_t(block.data()), site);
}
template <bool isAIVOnly = true>
void IBWait(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t blockIdx,
            int32_t eventID, ASCEND_SIM_SITE) {
    static_assert(isAIVOnly, "IBWait<false>: mixed kernels are absent, the simulator has vector cores only");
    const GlobalTensor<int32_t> block = gmWorkspace[uint64_t(8 * (GetBlockNum() * eventID + blockIdx))];
    ascend_sim::use_signal_memory(block, ubWorkspace, 32, 32, true, "IBWait", site);
    ascend_sim::wait_for_pair_signal(uintptr_t(block.data()), site);
}

// The cores run the code between WaitPreBlock and NotifyNextBlock in ascending order. This may be repeated.
inline void InitDetermineComputeWorkspace(GlobalTensor<int32_t>& gmWorkspace, LocalTensor<int32_t>& ubWorkspace,
                                          ASCEND_SIM_SITE) {
    const uint64_t bytes = uint64_t(GetBlockNum()) * ascend_sim::kBlockBytes;
    ascend_sim::use_signal_memory(gmWorkspace, ubWorkspace, bytes, bytes + 32, false, "InitDetermineComputeWorkspace",
                                  site);
    ascend_sim::begin_core_order(uintptr_t(gmWorkspace.data()));
}
inline void WaitPreBlock(GlobalTensor<int32_t>& gmWorkspace, LocalTensor<int32_t>& ubWorkspace, ASCEND_SIM_SITE) {
    const uint64_t bytes = uint64_t(GetBlockNum()) * ascend_sim::kBlockBytes;
    ascend_sim::use_signal_memory(gmWorkspace, ubWorkspace, bytes, bytes + 32, false, "WaitPreBlock", site);
    ascend_sim::wait_for_turn(uintptr_t(gmWorkspace.data()), site);
}
inline void NotifyNextBlock(GlobalTensor<int32_t>& gmWorkspace, LocalTensor<int32_t>& ubWorkspace, ASCEND_SIM_SITE) {
    const uint64_t bytes = uint64_t(GetBlockNum()) * ascend_sim::kBlockBytes;
    ascend_sim::use_signal_memory(gmWorkspace, ubWorkspace, bytes, bytes + 32, false, "NotifyNextBlock", site);
    ascend_sim::raise_signal(uintptr_t(gmWorkspace.data()), ascend_sim::kAllPipes, "NotifyNextBlock", site);
}

}  // namespace AscendC
