// SetMaskCount, SetMaskNorm, SetVectorMask, ResetMask, and AscendCUtils of CANN's headers: the mask register, which
// forms with isSetMask = false use.
//
// Rules: the kernel resets the register to normal mode and all ones before it ends. It does not rely on a mask that
// another instruction left (SIM-MASK-03).
// Meaning: in normal mode the register has a bit for each lane, high before low. In counter mode, low is the number of
// elements of the whole instruction.
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
    ascend_sim::MaskRegister mask = ascend_sim::mask_register();
    mask.counter = true;
    ascend_sim::set_mask("SetMaskCount", site, mask);
}
inline void SetMaskNorm(ASCEND_SIM_SITE) {
    ascend_sim::MaskRegister mask = ascend_sim::mask_register();
    mask.counter = false;
    ascend_sim::set_mask("SetMaskNorm", site, mask);
}
inline void ResetMask(ASCEND_SIM_SITE) {
    ascend_sim::MaskRegister mask;
    mask.counter = ascend_sim::mask_register().counter;
    ascend_sim::set_mask("ResetMask", site, mask);
}

namespace sim_detail {
// fits: whether the mask is valid in the register's mode.
inline void set_vector_mask(uint64_t high, uint64_t low, bool fits, ascend_sim::Site site) {
    const bool counter = ascend_sim::mask_register().counter;
    ascend_sim::set_mask("SetVectorMask", site, {counter, low, high});
    if (!fits)
        ascend_sim::broken_at(ascend_sim::Rule::Mask03, "SetVectorMask", site,
                              "the mask is for %s mode but the mode is %s.", counter ? "normal" : "counter",
                              counter ? "counter" : "normal");
}
}  // namespace sim_detail

// Two numbers set the register without a conversion. In counter mode maskLow is the number of elements, even if the
// template's mode is NORMAL, and maskHigh must be 0. Page: SetVectorMask.
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
    auto low_ones = [](int32_t count) { return count <= 0 ? 0 : count >= 64 ? ~0ull : (1ull << count) - 1; };
    sim_detail::set_vector_mask(low_ones(len - 64), low_ones(len), !ascend_sim::mask_register().counter, site);
}

// A class of CANN's headers that kernels use. Source: asc-devkit impl/basic_api/kernel_utils_base.h.
class AscendCUtils {
public:
    template <class T, bool isSetMask = true>
    static void SetMask(const uint64_t& maskHigh, const uint64_t& maskLow, ASCEND_SIM_SITE) {
        if (isSetMask) ascend_sim::set_mask("SetMask", site, {ascend_sim::mask_register().counter, maskLow, maskHigh});
    }
    // Selects the first len lanes, or all lanes if there are not more.
    template <class T, bool isSetMask = true>
    static void SetMask(int32_t len, ASCEND_SIM_SITE) {
        if (len < 0) ascend_sim::broken_at(ascend_sim::Rule::Mask01, "SetMask", site, "the mask must be >= 0.");
        const bool all_lanes = len >= FULL_MASK_LEN || len == int32_t(ascend_sim::kRepeatBytes / sizeof(T));
        auto low_ones = [](int32_t count) { return count <= 0 ? 0 : count >= 64 ? ~0ull : (1ull << count) - 1; };
        // For 64 lanes, CANN sets the low half only, even for 32-bit types, which have no more than 64 lanes.
        const bool low_half = len == HALF_MASK_LEN;
        SetMask<T, isSetMask>(all_lanes && !low_half ? FULL_MASK : low_ones(len - 64),
                              all_lanes ? FULL_MASK : low_ones(len), site);
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
    // ctrlValue 0: half and bfloat16 saturate.
    static void SetOverflow(uint64_t ctrlValue, ASCEND_SIM_SITE) {
        ascend_sim::set_saturation(ctrlValue != 1, "SetOverflow", site);
    }
    static constexpr int32_t GetBitSize(int32_t byteSize) { return byteSize * ONE_BYTE_BIT_SIZE; }
    static constexpr int32_t GetC0Size() { return DEFAULT_C0_SIZE; }
    static constexpr int32_t GetC0Count(int32_t dtypeSize) { return dtypeSize ? DEFAULT_C0_SIZE / dtypeSize : 0; }
    static constexpr int32_t GetDefaultBlockNum() { return DEFAULT_BLK_NUM; }
};

}  // namespace AscendC
