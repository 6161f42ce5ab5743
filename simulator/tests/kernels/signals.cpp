// Several cores that wait for each other. A launch has two cores, unless a comment gives another number.
#include "mini.h"

namespace {

// y[64 * core, 64 * core + 64) = 1.
__aicore__ inline void write_part(GM_ADDR y) {
    Ub ub(256);
    DataCopy(global<float>(y)[uint32_t(GetBlockIdx()) * 64], ub.at<float>(0, 64), 64);
    PipeBarrier<PIPE_ALL>();
}

// Copies the other core's part of y to this core's part of its second half.
__aicore__ inline void copy_other_part(GM_ADDR y) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    const uint32_t mine = uint32_t(GetBlockIdx());
    DataCopy(t, global<float>(y)[(1 - mine) * 64], 64);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y)[(2 + mine) * 64], t, 64);
}

constexpr uint32_t kSignalBytes = 256;

struct SignalMemory {
    __aicore__ inline SignalMemory() {
        pipe_.InitBuffer(buffer_, kSignalBytes);
        ub = buffer_.Get<int32_t>();
    }
    LocalTensor<int32_t> ub;

   private:
    TPipe pipe_;
    TBuf<TPosition::VECCALC> buffer_;
};

__aicore__ inline GlobalTensor<int32_t> signals(GM_ADDR y) { return global<int32_t>(y)[uint32_t(1024)]; }

}  // namespace

// ---- order between the accesses of two cores -----------------------------------------------------------

KERNEL(read_after_sync_all) {
    write_part(y);
    SyncAll();
    copy_other_part(y);  // keeps SIM-CORE-02
}

KERNEL(read_before_sync_all) {
    write_part(y);
    copy_other_part(y);
    SyncAll();
}

// The first read loads the line into the core's cache.
KERNEL(scalar_read_again_after_another_cores_copy) {
    GlobalTensor<float> out = global<float>(y);
    if (GetBlockIdx() == 1) (void)out.GetValue(0);
    SyncAll();
    if (GetBlockIdx() == 0) write_part(y);
    SyncAll();
    if (GetBlockIdx() == 1) (void)out.GetValue(0);  // breaks SIM-GM-03: after this core loaded the line: DataCacheCleanAndInvalid missing before this read
}

KERNEL(read_after_software_sync_all) {
    write_part(y);
    {
        SignalMemory memory;
        SyncAll(signals(y), memory.ub);  // keeps SIM-SYNC-06
    }
    copy_other_part(y);
}

KERNEL(read_after_a_flag) {
    write_part(y);
    CrossCoreSetFlag<0, PIPE_MTE3>(3);
    CrossCoreWaitFlag(3);
    copy_other_part(y);  // keeps SIM-SYNC-05
}

KERNEL(read_after_a_flag_of_another_pipe) {
    Ub ub(256);
    DataCopy(global<float>(y)[uint32_t(GetBlockIdx()) * 64], ub.at<float>(0, 64), 64);
    CrossCoreSetFlag<0, PIPE_V>(3);
    CrossCoreWaitFlag(3);
    DataCopy(ub.at<float>(0, 64), global<float>(y)[uint32_t(1 - GetBlockIdx()) * 64], 64);  // breaks SIM-CORE-02: `src` reads bytes [0, 256) of GM `y`, which core 0 wrote by DataCopy at @-3.
}

// Core 1 reads after core 0's signal.
KERNEL(read_after_a_pair_signal) {
    if (GetBlockIdx() == 0) write_part(y);
    SignalMemory memory;
    if (GetBlockIdx() == 0) {
        IBSet(signals(y), memory.ub, 0, 0);
    } else {
        IBWait(signals(y), memory.ub, 0, 0);
        LocalTensor<float> t = memory.ub.ReinterpretCast<float>();
        DataCopy(t, global<float>(y), 64);  // keeps SIM-CORE-02
    }
}

// As above, twice.
KERNEL(read_after_the_second_pair_signal) {
    SignalMemory memory;
    LocalTensor<float> t = memory.ub.ReinterpretCast<float>();
    for (uint32_t round = 0; round < 2; ++round) {
        GlobalTensor<float> part = global<float>(y)[round * 64];
        if (GetBlockIdx() == 0) {
            Duplicate(t, 1.0f, 64);
            order<HardEvent::V_MTE3>();
            DataCopy(part, t, 64);
            IBSet(signals(y), memory.ub, 0, 0);
        } else {
            IBWait(signals(y), memory.ub, 0, 0);
            DataCopy(t, part, 64);  // keeps SIM-CORE-02
        }
    }
}

KERNEL(cores_in_turn) {
    SignalMemory memory;
    GlobalTensor<int32_t> gm = signals(y);
    InitDetermineComputeWorkspace(gm, memory.ub);
    for (int round = 0; round < 3; ++round) {
        WaitPreBlock(gm, memory.ub);
        LocalTensor<float> t = memory.ub.ReinterpretCast<float>();
        DataCopy(t, global<float>(y), 64);
        order<HardEvent::MTE2_V>();
        Adds(t, t, 1.0f, 64);
        order<HardEvent::V_MTE3>();
        DataCopy(global<float>(y), t, 64);  // keeps SIM-CORE-01
        NotifyNextBlock(gm, memory.ub);
    }
}

// ---- launches that would hang ---------------------------------------------------------------------------

KERNEL(all_cores_meet) {
    SyncAll();  // keeps SIM-SYNC-01
}

KERNEL(one_core_does_not_come) {
    if (GetBlockIdx() == 0) SyncAll();  // breaks SIM-SYNC-01: the signal of core 1 is missing, which has ended: the launch would hang.
}

KERNEL(wait_without_a_signal) {
    CrossCoreWaitFlag(3);  // breaks SIM-SYNC-01: the signal of core 0 is missing, which it must raise itself: the launch would hang.
}

// Each core waits for the signal that the other one raises after its own wait.
KERNEL(cores_that_wait_for_each_other) {
    SignalMemory memory;
    const int32_t mine = int32_t(GetBlockIdx());
    IBWait(signals(y), memory.ub, 1 - mine, 0);  // breaks SIM-SYNC-01: the launch would hang.
    IBSet(signals(y), memory.ub, mine, 0);
}

// 48 blocks on 48 cores.
KERNEL(as_many_waiting_blocks_as_cores) {
    SyncAll();  // keeps SIM-SYNC-02
}

// 49 blocks.
KERNEL(more_waiting_blocks_than_cores) {
    SyncAll();  // breaks SIM-SYNC-02: 49 blocks wait for each other on 48 cores: the launch would hang.
}

// ---- flags -----------------------------------------------------------------------------------------------

KERNEL(type_with_the_scheduler) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    SyncAll();  // keeps SIM-SYNC-03
}

KERNEL(type_without_the_scheduler) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    SyncAll();  // breaks SIM-SYNC-03: a kernel of type KERNEL_TYPE_AIV_ONLY does not start the scheduler between cores
}

// The launch has tiling key 2.
KERNEL(type_of_the_key_without_the_scheduler) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    KERNEL_TASK_TYPE(1, KERNEL_TYPE_MIX_AIV_1_0);
    KERNEL_TASK_TYPE(2, KERNEL_TYPE_AIV_ONLY);
    SyncAll();  // breaks SIM-SYNC-03: a kernel of type KERNEL_TYPE_AIV_ONLY does not start
}

KERNEL(fifteen_signals) {
    for (int i = 0; i < 15; ++i) CrossCoreSetFlag<0, PIPE_MTE3>(3);  // keeps SIM-SYNC-04
    for (int i = 0; i < 15; ++i) CrossCoreWaitFlag(3);
}

KERNEL(sixteen_signals) {
    for (int i = 0; i < 16; ++i) CrossCoreSetFlag<0, PIPE_MTE3>(3);  // breaks SIM-SYNC-04: flag 3 has more than 15 signals that this core has not waited for.
    for (int i = 0; i < 16; ++i) CrossCoreWaitFlag(3);
}

KERNEL(flag_past_the_last) {
    CrossCoreSetFlag<0, PIPE_MTE3>(16);  // breaks SIM-SYNC-04: flagId must be 0 .. 15 but got 16.
    CrossCoreWaitFlag(0);
}

KERNEL(flag_without_a_wait) {
    CrossCoreSetFlag<0, PIPE_MTE3>(3);  // breaks SIM-SYNC-05: core 0 did not wait for flag 3, set here: CrossCoreWaitFlag missing.
    if (GetBlockIdx() == 1) CrossCoreWaitFlag(3);
}

KERNEL(flag_that_one_core_sets) {
    if (GetBlockIdx() == 1) CrossCoreSetFlag<0, PIPE_MTE3>(3);  // breaks SIM-SYNC-05: core 1 set flag 3 here, but not every core did.
}

KERNEL(signal_memory_that_is_not_0) {
    if (GetBlockIdx() == 0) {
        Ub ub(256);
        DataCopy(global<float>(y)[uint32_t(1024)], ub.at<float>(0, 64), 64);
    }
    PipeBarrier<PIPE_ALL>();
    SignalMemory memory;
    SyncAll(signals(y), memory.ub);  // breaks SIM-SYNC-06: the 64 bytes of `gmWorkspace` are not all 0 at their first use.
}

KERNEL(turn_without_its_workspace) {
    SignalMemory memory;
    GlobalTensor<int32_t> gm = signals(y);
    WaitPreBlock(gm, memory.ub);  // breaks SIM-SYNC-06: InitDetermineComputeWorkspace was not called for this workspace.
}

KERNEL(flags_beside_sync_all) {
    SyncAll();
    for (uint16_t id : {10, 15}) {
        CrossCoreSetFlag<0, PIPE_MTE3>(id);  // keeps SIM-SYNC-07
        CrossCoreWaitFlag(id);
    }
}

KERNEL(first_flag_of_sync_all) {
    SyncAll();
    CrossCoreSetFlag<0, PIPE_MTE3>(11);
    CrossCoreWaitFlag(11);  // warns SIM-SYNC-07: which uses the flags 11 .. 14.
}

KERNEL(flags_of_sync_all) {
    SyncAll();
    CrossCoreSetFlag<0, PIPE_MTE3>(14);
    CrossCoreWaitFlag(14);  // warns SIM-SYNC-07: this kernel also calls SyncAll(), which uses the flags 11 .. 14.
}

// ---- types, and the same values -----------------------------------------------------------------------

KERNEL(type_of_vector_cores) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);  // keeps SIM-TYPE-01
}

KERNEL(type_of_another_soc) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AICORE);  // warns SIM-TYPE-01: KERNEL_TYPE_AICORE is no kernel type of ascend910b
}

KERNEL(cores_write_the_same_values) {
    Ub ub(256);
    DataCopy(global<float>(y)[uint32_t(GetBlockIdx()) * 56], ub.at<float>(0, 64), 64);  // warns SIM-CORE-07: `dst` writes bytes [224, 256) of GM `y`, which core 0 wrote by DataCopy at @.
}

KERNEL(cores_write_their_own) {
    write_part(y);  // keeps SIM-CORE-07
}
