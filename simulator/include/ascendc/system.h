// The kind of the core, the numbers of cores and the core's state, under CANN's names. Also the lower-case names of
// events, barriers and masks that CANN's compiler defines.
//
// Rules: a kernel without a TPipe calls InitSocState before it uses UB. GetSubBlockNum and GetSystemCycle are not on
// Ascend310P.
// Meaning: the simulator has vector cores, on Ascend310P AI cores. A launch has no cube cores, so GetTaskRatio and
// GetSubBlockNum return 1. InitSocState turns atomic copies off and, except on Ascend310P, resets the mask register.
// GetSystemCycle counts from the core's start, at 50 MHz, on Ascend950 at 1 GHz. WaitPreTaskEnd and SetNextTaskStart do
// nothing: they order the kernels of a SuperKernel, and the simulator has none.
// Cost: a write of a register costs as in the other headers; a read of the counter costs as much as issuing an
// instruction.
// Sources: the pages InitSocState, GetSystemCycle, GetSubBlockNum, GetTaskRatio, GetDataBlockSizeInBytes,
// GetUBSizeInBytes, GetRuntimeUBSize, Async, WaitPreTaskEnd, SetNextTaskStart; asc-devkit impl/utils/sys_macros.h.
#pragma once

#include "ascendc/atomic.h"
#include "ascendc/constants.h"
#include "ascendc/mask.h"
#include "ascendc/sync.h"

// ---- kinds of cores ------------------------------------------------------------------------------------

constexpr int32_t g_coreType = ascend_sim::kIs310p ? AscendC::MIX : AscendC::AIV;

#define ASCEND_IS_AIV constexpr(g_coreType == ::AscendC::AIV)
#define ASCEND_IS_AIC constexpr(g_coreType == ::AscendC::AIC)
#define ASCEND_IS_NOT_AIV constexpr(g_coreType != ::AscendC::AIV)
#define ASCEND_IS_NOT_AIC constexpr(g_coreType != ::AscendC::AIC)
#define ASCEND_IS_AICORE constexpr(g_coreType == ::AscendC::MIX)

// ---- CANN's functions ----------------------------------------------------------------------------------

namespace AscendC {

template <bool FORCE = false>
inline void WaitPreTaskEnd() {}
template <pipe_t AIV_PIPE = PIPE_MTE3, pipe_t AIC_PIPE = PIPE_MTE3, bool FORCE = false>
inline void SetNextTaskStart() {}

inline void InitSocState(ASCEND_SIM_SITE) {
    SetAtomicNone(site);
    if (!ascend_sim::kIs310p) {
        SetMaskNorm(site);
        ResetMask(site);
    }
    ascend_sim::state_initialised();
}

template <class Any = int>
int64_t GetSubBlockNum() {
    ASCEND_SIM_NEEDS(GetSubBlockNum, Any);
    return 1;
}
inline int64_t GetTaskRatio() { return 1; }
inline int64_t GetTaskRation() { return 1; }
template <class Any = int>
int64_t GetSystemCycle(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(GetSystemCycle, Any);
    return ascend_sim::system_counter("GetSystemCycle", site);
}
constexpr int16_t GetDataBlockSizeInBytes() { return ONE_BLK_SIZE; }
template <class Any = int>
constexpr uint32_t GetUBSizeInBytes() {
    ASCEND_SIM_NEEDS(GetUBSizeInBytes, Any);
    return TOTAL_UB_SIZE;
}
template <class Any = int>
uint32_t GetRuntimeUBSize() {
    ASCEND_SIM_NEEDS(GetRuntimeUBSize, Any);
    return TOTAL_UB_SIZE;
}

enum class EngineType : int32_t { AIC = AscendC::AIC, AIV = AscendC::AIV };
// Calls the function if the core is of this kind.
template <EngineType engine, auto funPtr, class... Args>
void Async(Args... args) {
    if constexpr (int32_t(engine) == g_coreType) funPtr(args...);
}

}  // namespace AscendC

// ---- the compiler's names ------------------------------------------------------------------------------

namespace ascend_sim {
struct BlockIndex {
    operator int64_t() const { return block_index(); }
};
// A pipe that the simulator lacks becomes S: an event between S and S is reported.
inline Pipe pipe_of(pipe_t pipe) { return pipe <= PIPE_MTE3 ? Pipe(pipe) : Pipe::S; }
}  // namespace ascend_sim

// An object, not a macro, because kernels have variables of this name.
inline constexpr ascend_sim::BlockIndex block_idx{};

inline int64_t get_block_idx() { return ascend_sim::block_index(); }
inline int64_t get_block_num() { return ascend_sim::block_count(); }
inline int64_t get_subblockid() { return 0; }
inline int64_t get_subblockdim() { return 1; }

inline void set_flag(pipe_t from, pipe_t to, int32_t id, ASCEND_SIM_SITE) {
    ascend_sim::set_flag(ascend_sim::pipe_of(from), ascend_sim::pipe_of(to), id, "set_flag", site);
}
inline void wait_flag(pipe_t from, pipe_t to, int32_t id, ASCEND_SIM_SITE) {
    ascend_sim::wait_flag(ascend_sim::pipe_of(from), ascend_sim::pipe_of(to), id, "wait_flag", site);
}
namespace AscendC {
// An event between two pipes, with an id that the kernel chooses. Source: the page TQueSync模板参数.
template <pipe_t src, pipe_t dst>
class TQueSync {
    static_assert(src <= PIPE_MTE3 && dst <= PIPE_MTE3 && src != dst,
                  "TQueSync: two different pipes of a vector core, S, V, MTE2 or MTE3");

public:
    void SetFlag(TEventID id, ASCEND_SIM_SITE) {
        ascend_sim::set_flag(ascend_sim::Pipe(src), ascend_sim::Pipe(dst), id, "TQueSync::SetFlag", site);
    }
    void WaitFlag(TEventID id, ASCEND_SIM_SITE) {
        ascend_sim::wait_flag(ascend_sim::Pipe(src), ascend_sim::Pipe(dst), id, "TQueSync::WaitFlag", site);
    }
};
}  // namespace AscendC

inline void pipe_barrier(pipe_t pipe, ASCEND_SIM_SITE) {
    ascend_sim::barrier(pipe == PIPE_ALL ? ascend_sim::kAllPipes : int32_t(ascend_sim::pipe_of(pipe)), site);
}
inline void set_mask_norm(ASCEND_SIM_SITE) { AscendC::SetMaskNorm(site); }
inline void set_mask_count(ASCEND_SIM_SITE) { AscendC::SetMaskCount(site); }
inline void set_vector_mask(uint64_t high, uint64_t low, ASCEND_SIM_SITE) {
    AscendC::AscendCUtils::SetMask<uint8_t>(high, low, site);
}
inline void set_atomic_none(ASCEND_SIM_SITE) { AscendC::SetAtomicNone(site); }
