#include "op_host/rotary_tiling.h"

#include <algorithm>

namespace npu_rope {

RopeTilingInput rotary_tiling_input(const RotaryTensors& t, const RotaryAttributes& a, const RotaryShape& shape,
                                    bool forward) {
    RopeTilingInput in;
    in.op = t.op;
    in.x_name = t.x_name[0];
    in.shape = shape.rope;
    in.dtype = in.out_dtype = t.x[0]->dtype;
    in.forward = forward;
    in.params.mode = a.interleaved ? NPU_ROPE_MODE_NORMAL : NPU_ROPE_MODE_NEOX;
    in.params.n_dims = static_cast<int32_t>(shape.rotary_dim);
    in.params.n_offs = static_cast<int32_t>(a.offset);
    in.tables.dtype = t.cos->dtype;
    in.tables.entry_per_lane = shape.entry_per_lane;
    in.tables.has_ids = t.position_ids != nullptr;
    std::copy(shape.cos_stride, shape.cos_stride + 2, in.tables.cos_stride);
    std::copy(shape.sin_stride, shape.sin_stride + 2, in.tables.sin_stride);
    if (t.position_ids) {
        in.tables.rows = t.cos->shape[0];
        in.tables.ids_int64 = t.position_ids->dtype == NPU_ROPE_INT64;
        std::copy(shape.rope.pos_stride, shape.rope.pos_stride + 2, in.tables.id_stride);
        std::fill(in.shape.pos_stride, in.shape.pos_stride + 2, 0);
    }
    return in;
}

Check check_and_tile_rotary(const RotaryTensors& t, const RotaryAttributes& a, bool forward, const Platform& platform,
                            RotaryShape* shape, TilingResult<RotaryTilingData>* tiled) {
    if (Check c = check_rotary(t, a, shape); !c.ok()) return c;
    return rotary_tiling(rotary_tiling_input(t, a, *shape, forward), platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
