// Tile qkv_norm_rope_cache: check the call and convert it to the input of rope's tiling.
#include "op_host/qkv_norm_rope_cache_tiling.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace npu_rope {
namespace {

// The sides, whose strides QkvSide has in another order. Values without elements count as values without heads.
void set_sides(const QkvShape& shape, bool scatters, RopeShape* rope) {
    rope->sides = shape.side[2].N * shape.side[2].D > 0 ? 3 : 2;
    for (int k = 0; k < rope->sides; ++k) {
        const QkvSide& from = shape.side[k];
        RopeSide& to = rope->side[k];
        to.N = from.N;
        std::copy(from.x_stride, from.x_stride + 2, to.x_stride + 1);
        to.x_stride[0] = 0;
        if (scatters && k > 0) {
            std::copy(from.out_stride, from.out_stride + 3, to.out_stride);
        } else {
            to.out_stride[0] = 0;
            to.out_stride[1] = from.out_stride[0];
            to.out_stride[2] = from.out_stride[2];
        }
    }
}

void set_tables(const npu_rope_qkv_inputs& in, const QkvShape& shape, RopeTilingInput* to) {
    GivenTables& tables = to->tables;
    tables.dtype = in.cos->dtype;
    tables.entry_per_lane = shape.entry_per_lane;
    tables.has_ids = in.positions != nullptr;
    tables.ids_int64 = in.positions && in.positions->dtype == NPU_ROPE_INT64;
    tables.rows = shape.table_rows;
    tables.cos_stride[1] = shape.cos_stride;
    tables.sin_stride[1] = shape.sin_stride;
    if (tables.has_ids) std::copy(shape.rope.pos_stride, shape.rope.pos_stride + 2, tables.id_stride);
}

// The kernels read slots as int32.
Check check_rows(const char* op, const QkvShape& shape) {
    for (int k = 1; k < 3; ++k)
        if (shape.side[k].cache_rows > int64_t{INT32_MAX} + 1)
            return bad_value(op, k == 1 ? "k_cache" : "v_cache", "have at most 2^31 rows on an NPU",
                             std::to_string(shape.side[k].cache_rows));
    return {};
}

}  // namespace

Check check_and_tile_qkv_norm_rope_cache(const QkvTensors& t, const npu_rope_params& params,
                                         const QkvAttributes& attributes, const Platform& platform,
                                         TilingResult<QkvNormRopeCacheTilingData>* tiled) {
    QkvShape shape;
    if (Check c = check_qkv_norm_rope_cache(t, &params, attributes, &shape); !c.ok()) return c;
    RopeTilingInput in;
    in.op = "qkv_norm_rope_cache";
    in.x_name = "q";
    if (Check c = check_device_angle(in.op, attributes.angle_policy); !c.ok()) return c;
    if (Check c = check_rows(in.op, shape); !c.ok()) return c;
    const QkvTilingInput qkv{&t, &shape, attributes};
    in.qkv = &qkv;
    in.shape = shape.rope;
    in.scatters = t.in.slots != nullptr;
    set_sides(shape, in.scatters, &in.shape);
    in.dtype = in.out_dtype = t.in.q->dtype;
    in.positions_int64 = t.in.positions && t.in.positions->dtype == NPU_ROPE_INT64;
    in.has_factors = t.in.freq_factors != nullptr;
    in.rows_int64 = t.in.slots && t.in.slots->dtype == NPU_ROPE_INT64;
    in.shape.row_stride[1] = shape.slot_stride;
    in.params = params;
    if (t.in.cos) set_tables(t.in, shape, &in);
    return qkv_tiling(in, platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
