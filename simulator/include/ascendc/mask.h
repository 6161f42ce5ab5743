// SetMaskCount, SetMaskNorm, SetVectorMask, ResetMask: the mask register of forms with isSetMask = false.
//
// Rules: the kernel resets the register to normal mode and all ones before it ends. It does not rely on a mask
// that another instruction left (SIM-MASK-03).
// Meaning: normal mode: a bit for each lane, high before low. Counter mode: low is the number of elements of the
// whole instruction.
// Cost: one scalar cycle.
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

inline void set_mask(const char* api, Site site, const MaskRegister& value) {
    start(Pipe::S, api, site);
    mask_register() = value;
    finish_scalar(cycles_of(Cost::Mask));
}

}  // namespace ascend_sim

namespace AscendC {

inline void SetMaskCount(ASCEND_SIM_SITE) {
    ascend_sim::MaskRegister m = ascend_sim::mask_register();
    m.counter = true;
    ascend_sim::set_mask("SetMaskCount", site, m);
}
inline void SetMaskNorm(ASCEND_SIM_SITE) {
    ascend_sim::MaskRegister m = ascend_sim::mask_register();
    m.counter = false;
    ascend_sim::set_mask("SetMaskNorm", site, m);
}
inline void ResetMask(ASCEND_SIM_SITE) {
    ascend_sim::MaskRegister m;
    m.counter = ascend_sim::mask_register().counter;
    ascend_sim::set_mask("ResetMask", site, m);
}

template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow, ASCEND_SIM_SITE) {
    const bool counter = ascend_sim::mask_register().counter;
    ascend_sim::set_mask("SetVectorMask", site, {counter, maskLow, maskHigh});
    if (counter != (mode == MaskMode::COUNTER))
        ascend_sim::broken_at(ascend_sim::Rule::Mask03, "SetVectorMask", site,
                              "the mask is for %s mode but the mode is %s.", counter ? "normal" : "counter",
                              counter ? "counter" : "normal");
}
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len, ASCEND_SIM_SITE) {
    if (mode == MaskMode::COUNTER) return SetVectorMask<T, mode>(0, uint64_t(len), site);
    constexpr int32_t kLanes = int32_t(ascend_sim::kRepeatBytes / sizeof(T));
    if (len < 1 || len > kLanes)
        ascend_sim::broken_at(ascend_sim::Rule::Mask01, "SetVectorMask", site, "the mask must be 1 .. %d but got %d.",
                              kLanes, len);
    auto ones = [](int32_t n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; };
    SetVectorMask<T, mode>(ones(len - 64), ones(len), site);
}

}  // namespace AscendC
