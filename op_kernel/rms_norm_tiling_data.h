// What the tilings of rms_norm, add_rms_norm, rms_norm_backward and rms_norm_rope hand to their kernels: plain structs,
// the same bytes on both sides. rope_tiling_data.h has what they share with rope's.
#pragma once

#include "rope_tiling_data.h"

// Tiling keys of rms_norm, add_rms_norm and rms_norm_backward, literals in the kernels.
constexpr int32_t kRmsNormRows = 1;  // whole rows in UB, many at a time
constexpr int32_t kRmsNormLong = 2;  // rows one by one, chunk by chunk

constexpr int32_t kRowNormStats = 12;   // floats of its own that a normalized row needs in UB
constexpr int32_t kRowNormSlots = 64;   // rows are counted in whole repeats there
constexpr int32_t kGradientStats = 10;  // floats beside those that a differentiated row needs
constexpr int32_t kDscaleMore = 16;     // floats behind the sums of dscale: a DMA's last block, and its offsets

// Where squares of a row's elements may go.
constexpr int32_t kSquaresStay = 0;      // in float32's range
constexpr int32_t kSquaresOverflow = 1;  // beyond its largest number
constexpr int32_t kSquaresVanish = 2;    // or below its smallest, with no epsilon that outweighs them

// The type that x and Normalized are rounded to.
constexpr int32_t kStashFloat32 = 0;
constexpr int32_t kStashFloat16 = 1;
constexpr int32_t kStashBfloat16 = 2;

// How the elements of a row's scale lie in GM.
constexpr int32_t kScaleDense = 0;
constexpr int32_t kScaleOne = 1;  // one for the whole row
constexpr int32_t kScaleScattered = 2;

// How rows are divided by their root mean square.
struct RowNormTiling {
    float added;               // to a row's sum of squares: epsilon times its elements
    float root_n;              // of their number
    int32_t epsilon_exponent;  // of sqrt(epsilon), as float32 keeps it
    int32_t checks;            // what squares may do: kSquaresStay, ...
};

struct RmsNormTilingData {
    // Rows as [batch, token, head]; side 0 is x and out, side 1 the residual and the sum. Without positions.
    // rms_norm_backward: side 0 is x and dx, side 1 grad, whose elements from a row to the next are out_pitch.
    RopeTilingHead head;
    RowNormTiling norm;

    // Elements: of scale by batch, token and head, then inside a row.
    int64_t scale_stride[3];
    int64_t inner[4];
    int64_t inner_stride[4];
    int64_t n;  // elements of a row
    int32_t scale_kind;
    int32_t scale_shared;  // 1: one scale for all rows
    int32_t scale_pitch;   // elements from a row to the next in UB
    int32_t stash;

    // kRmsNormLong: a row goes chunk by chunk, the last of which may be shorter.
    int32_t chunk;
    int32_t row_stays;    // 1: a row stays in UB between its two passes
    int32_t scale_stays;  // 1: so does the scale, once loaded
    int32_t levels;       // sums of 2^level chunks

    // UB, in bytes.
    int32_t scale_raw_bytes;  // as it lies in GM; 0: float32 needs no copy of it
    int32_t scale_bytes;      // float32
    int32_t stats_bytes;
    int32_t sum_queue_bytes;  // add_rms_norm: one of the two residual buffers, and of the two sum buffers
    int32_t row_bytes;        // kRmsNormLong: a row that stays, as float32

    // rms_norm_backward
    float inverse_n;       // of a row's elements
    int32_t dscale_stays;  // kRmsNormLong: 1: a core's sums of all elements stay in UB
    int32_t grad_queue_bytes;
    int32_t g_offset_bytes;  // in the work buffer: grad * scale
    int32_t dscale_bytes;    // a core's sums
};
