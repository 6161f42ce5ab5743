// SetAtomicAdd, SetAtomicMax, SetAtomicMin, SetAtomicType, SetAtomicNone, DisableDmaAtomic: copies from UB to GM
// combine their data with the contents of GM.
//
// Rules: the types are int8, int16, half, bfloat16, int32 and float. Ascend310P has only sums, of int16, half and
// float. While an atomic mode is on, each copy from UB to GM must have the type given to SetAtomicAdd, SetAtomicMax,
// SetAtomicMin or SetAtomicType. The kernel turns the mode off before it ends.
// Cost: issuing an instruction.
#pragma once

#include "ascendc/copy.h"

namespace AscendC {

template <class T>
void SetAtomicAdd(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetAtomicAdd, T);
    ascend_sim::set_atomic(ascend_sim::Atomic::Add, ascend_sim::dtype_number<T>(), site);
}
template <class T>
void SetAtomicMax(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetAtomicMax, T);
    ascend_sim::set_atomic(ascend_sim::Atomic::Max, ascend_sim::dtype_number<T>(), site);
}
template <class T>
void SetAtomicMin(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetAtomicMin, T);
    ascend_sim::set_atomic(ascend_sim::Atomic::Min, ascend_sim::dtype_number<T>(), site);
}
// Changes the type of the mode that is on.
template <class T>
void SetAtomicType(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetAtomicType, T);
    ascend_sim::set_atomic(ascend_sim::atomic_mode(), ascend_sim::dtype_number<T>(), site);
}
inline void SetAtomicNone(ASCEND_SIM_SITE) { ascend_sim::set_atomic(ascend_sim::Atomic::None, 0, site); }
inline void DisableDmaAtomic(ASCEND_SIM_SITE) { SetAtomicNone(site); }

}  // namespace AscendC
