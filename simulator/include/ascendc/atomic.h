// SetAtomicAdd, SetAtomicNone, DisableDmaAtomic: UB to GM copies add to what GM holds.
//
// Rules: int8, int16, half, bfloat16, int32, float; int16, half, float on Ascend310P. While the mode is on,
// copies have the same type. The mode is off before the kernel ends.   Cost: issuing an instruction.
#pragma once

#include "ascendc/copy.h"

namespace AscendC {

template <class T>
void SetAtomicAdd(ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetAtomicAdd, T);
    ascend_sim::set_atomic(ascend_sim::Atomic::Add, ascend_sim::dtype_number<T>(), site);
}
inline void SetAtomicNone(ASCEND_SIM_SITE) { ascend_sim::set_atomic(ascend_sim::Atomic::None, 0, site); }
inline void DisableDmaAtomic(ASCEND_SIM_SITE) { SetAtomicNone(site); }

}  // namespace AscendC
