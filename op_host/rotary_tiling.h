// Converts a checked call of rotary_mul, rotary_mul_qk or rotary_embedding to the input of rope's tiling.
#pragma once

#include "csrc/core/rotary_check.h"
#include "op_host/platform.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {

// Returns the tiling's input for a call that check_rotary has accepted. shape: the result of this check.
RopeTilingInput rotary_tiling_input(const RotaryTensors& t, const RotaryAttributes& a, const RotaryShape& shape,
                                    bool forward);

// Checks a call by the rules of the operator and of the chip, tiles it, and fills *shape.
Check check_and_tile_rotary(const RotaryTensors& t, const RotaryAttributes& a, bool forward, const Platform& platform,
                            RotaryShape* shape, TilingResult<RotaryTilingData>* tiled);

}  // namespace npu_rope
