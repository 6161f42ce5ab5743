// From a checked call of rotary_mul, rotary_mul_qk or rotary_embedding to the tiling, which is rope's.
#pragma once

#include "op_host/platform.h"
#include "op_host/rope_tiling.h"
#include "op_host/rotary_check.h"

namespace npu_rope {

// A call that check_rotary has accepted, of which it found this shape.
RopeTilingInput rotary_tiling_input(const RotaryTensors& t, const RotaryAttributes& a, const RotaryShape& shape,
                                    bool forward);

// What no kernel on this chip can: element types it lacks. soc is what the caller knows the chip by.
Check check_rotary_on_chip(const RotaryTensors& t, const Platform& platform, const char* soc);

}  // namespace npu_rope
