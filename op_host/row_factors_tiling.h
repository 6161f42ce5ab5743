// The places of the rows of factors of qkv_norm_rope_cache in UB (op_kernel/norm/row_factors.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "op_host/work_split.h"
#include "op_kernel/qkv_norm_rope_cache_tiling_data.h"

namespace npu_rope {

// Rows of factors in GM. Strides in elements.
struct FactorRows {
    int64_t rows = 0;  // 1 for all heads, or one for each head
    int64_t item_bytes = 0;
    int64_t head_stride = 0, lane_stride = 0;
};

struct RowFactorsPlaces {
    bool streams = false;             // rows of which each head has its own are loaded for each tile
    int64_t bytes = 0;                // of the rows that stay in UB, as float32
    int64_t staging_bytes = 0;        // of those of them that are converted, in their own types
    int64_t streamed_head_bytes = 0;  // of a head of a tile: its row as float32, and in its own type if it is converted

    RowFactorsTiling place(const FactorRows& f, const HeadRow& head) {
        const int64_t pitch = round_up(head.size, kUbBlockBytes / f.item_bytes);
        const bool is_converted = f.lane_stride != 0 && (f.item_bytes != 4 || pitch != head.pitch);
        const int64_t raw_bytes = is_converted ? pitch * f.item_bytes : 0;
        RowFactorsTiling to = {to_int32(bytes / 4), to_int32(f.rows), to_int32(f.head_stride), to_int32(f.lane_stride),
                               is_converted ? to_int32(staging_bytes) : -1};
        if (streams && f.rows > 1) {
            streamed_head_bytes = std::max(streamed_head_bytes, 4 * head.pitch + raw_bytes);
        } else {
            bytes += 4 * f.rows * head.pitch;
            staging_bytes += f.rows * raw_bytes;
        }
        return to;
    }
};

}  // namespace npu_rope
