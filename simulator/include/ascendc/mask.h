// SetMaskCount, SetMaskNorm, SetVectorMask, ResetMask, and AscendCUtils of CANN's headers: the mask register of forms
// with isSetMask = false.
//
// Rules: the kernel resets the register to normal mode and all ones before it ends. It does not rely on a mask
// that another instruction left (SIM-MASK-03).
// Meaning: normal mode: a bit for each lane, high before low. Counter mode: low is the number of elements of the
// whole instruction.
// Cost: one scalar cycle.
#pragma once

#include "ascendc/constants.h"
#include "ascendc/saturation.h"

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

namespace sim_detail {
// fits: the mask is one of the register's mode.
inline void set_vector_mask(uint64_t high, uint64_t low, bool fits, ascend_sim::Site site) {
    const bool counter = ascend_sim::mask_register().counter;
    ascend_sim::set_mask("SetVectorMask", site, {counter, low, high});
    if (!fits)
        ascend_sim::broken_at(ascend_sim::Rule::Mask03, "SetVectorMask", site,
                              "the mask is for %s mode but the mode is %s.", counter ? "normal" : "counter",
                              counter ? "counter" : "normal");
}
}  // namespace sim_detail

// Two numbers set the register as it is: in counter mode maskLow is the number of elements, also without the template's
// mode, and maskHigh must be 0. Page: SetVectorMask.
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow, ASCEND_SIM_SITE) {
    const bool counter = ascend_sim::mask_register().counter;
    sim_detail::set_vector_mask(maskHigh, maskLow, counter ? maskHigh == 0 : mode == MaskMode::NORMAL, site);
}
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len, ASCEND_SIM_SITE) {
    if (mode == MaskMode::COUNTER) return SetVectorMask<T, mode>(0, uint64_t(len), site);
    constexpr int32_t kLanes = int32_t(ascend_sim::kRepeatBytes / sizeof(T));
    if (len < 1 || len > kLanes)
        ascend_sim::broken_at(ascend_sim::Rule::Mask01, "SetVectorMask", site, "the mask must be 1 .. %d but got %d.",
                              kLanes, len);
    auto ones = [](int32_t n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; };
    sim_detail::set_vector_mask(ones(len - 64), ones(len), !ascend_sim::mask_register().counter, site);
}

// A class of CANN's headers that kernels use. Source: asc-devkit impl/basic_api/kernel_utils_base.h.
class AscendCUtils {
public:
    template <class T, bool isSetMask = true>
    static void SetMask(const uint64_t& maskHigh, const uint64_t& maskLow, ASCEND_SIM_SITE) {
        if (isSetMask) ascend_sim::set_mask("SetMask", site, {ascend_sim::mask_register().counter, maskLow, maskHigh});
    }
    // The first len lanes; all lanes if there are no more than len.
    template <class T, bool isSetMask = true>
    static void SetMask(int32_t len, ASCEND_SIM_SITE) {
        if (len < 0) ascend_sim::broken_at(ascend_sim::Rule::Mask01, "SetMask", site, "the mask must be >= 0.");
        const bool all = len >= FULL_MASK_LEN || len == int32_t(ascend_sim::kRepeatBytes / sizeof(T));
        auto ones = [](int32_t n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; };
        // 64 lanes are the low half also for types of 32 bits, whose register has no more lanes.
        const bool low_half = len == HALF_MASK_LEN;
        SetMask<T, isSetMask>(all && !low_half ? FULL_MASK : ones(len - 64), all ? FULL_MASK : ones(len), site);
    }
    template <class T>
    static void SetMaskCount(ASCEND_SIM_SITE) {
        AscendC::SetMaskCount(site);
    }
    template <class T>
    static void SetMaskNorm(ASCEND_SIM_SITE) {
        AscendC::SetMaskNorm(site);
    }
    template <bool isSetMask = true>
    static void ResetMask(ASCEND_SIM_SITE) {
        if (isSetMask) AscendC::ResetMask(site);
    }
    // 0: half and bfloat16 saturate.
    static void SetOverflow(uint64_t ctrlValue, ASCEND_SIM_SITE) {
        ascend_sim::set_saturation(ctrlValue != 1, "SetOverflow", site);
    }
    static constexpr int32_t GetBitSize(int32_t byteSize) { return byteSize * ONE_BYTE_BIT_SIZE; }
    static constexpr int32_t GetC0Size() { return DEFAULT_C0_SIZE; }
    static constexpr int32_t GetC0Count(int32_t dtypeSize) { return dtypeSize ? DEFAULT_C0_SIZE / dtypeSize : 0; }
    static constexpr int32_t GetDefaultBlockNum() { return DEFAULT_BLK_NUM; }
};

}  // namespace AscendC
