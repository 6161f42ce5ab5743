// SetSaturationFlag, GetSaturationFlag, SetCtrlSpr, GetCtrlSpr: whether half and bfloat16 saturate.
//
// Rules: the flags are on Ascend910B only, the control register also on Ascend950. The simulator has only bit 48 of
// this register.
// Meaning of FLOAT: true turns overflow into the largest value and NaN into 0; false leaves both. The launch's
// `saturate` is the value at the kernel's start. Bit 48 of the control register is the opposite of FLOAT.
// Meaning of CAST: conversions to integers saturate. The simulator has no other conversions, so a kernel cannot turn
// this flag off.
// Cost: issuing an instruction.
// Sources: the pages SetSaturationFlag(ISASI), GetSaturationFlag(ISASI), SetCtrlSpr(ISASI), GetCtrlSpr(ISASI).
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

enum class SaturationMode : uint8_t { FLOAT, CAST };

template <SaturationMode mode>
void SetSaturationFlag(bool enableSat, ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<std::integral_constant<SaturationMode, mode>, ascend_sim::Api::SetSaturationFlag>,
                  "SetSaturationFlag: this SoC does not have it");
    if (mode == SaturationMode::FLOAT) return ascend_sim::set_saturation(enableSat, "SetSaturationFlag", site);
    if (!enableSat)
        ascend_sim::broken_at(ascend_sim::Rule::Mode01, "SetSaturationFlag", site,
                              "the simulator has no conversions to integers that do not saturate.");
}
template <SaturationMode mode>
bool GetSaturationFlag() {
    static_assert(ascend_sim::kTakes<std::integral_constant<SaturationMode, mode>, ascend_sim::Api::GetSaturationFlag>,
                  "GetSaturationFlag: this SoC does not have it");
    return mode == SaturationMode::CAST || ascend_sim::saturates();
}

template <int8_t startBit, int8_t endBit>
void SetCtrlSpr(int64_t value, ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<std::integral_constant<int, startBit>, ascend_sim::Api::SetCtrlSpr>,
                  "SetCtrlSpr: this SoC does not have it");
    static_assert(startBit == 48 && endBit == 48, "SetCtrlSpr: the simulator has bit 48 only, the saturation of half");
    ascend_sim::set_saturation(value == 0, "SetCtrlSpr", site);
}
template <int8_t startBit, int8_t endBit>
int64_t GetCtrlSpr() {
    static_assert(ascend_sim::kTakes<std::integral_constant<int, startBit>, ascend_sim::Api::GetCtrlSpr>,
                  "GetCtrlSpr: this SoC does not have it");
    static_assert(startBit == 48 && endBit == 48, "GetCtrlSpr: the simulator has bit 48 only, the saturation of half");
    return ascend_sim::saturates() ? 0 : 1;
}

}  // namespace AscendC
