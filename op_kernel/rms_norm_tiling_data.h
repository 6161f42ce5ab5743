// The tiling data of rms_norm, add_rms_norm and rms_norm_backward: plain structs with the same bytes on host and
// device. rms_norm_rope also uses RowNormTiling. CommonTiling is in rope_tiling_data.h.
#pragma once

#include "rope_tiling_data.h"

// Tiling keys of rms_norm, add_rms_norm and rms_norm_backward; the kernels repeat them as literals.
constexpr int32_t kRmsNormRows = 1;  // a tile of whole rows at a time
constexpr int32_t kRmsNormLong = 2;  // rows one by one, chunk by chunk
// The same in rms_norm_backward, where dscale does not depend on the order of the cores.
constexpr int32_t kRmsNormOrderedRows = 3;
constexpr int32_t kRmsNormOrderedLong = 4;

constexpr int32_t kRowNormStats = 12;       // floats of statistics in UB for each normalized row
constexpr int32_t kRowNormSlots = 64;       // the number of rows with statistics is rounded up to a multiple of this
constexpr int32_t kGradientStats = 10;      // more floats of statistics for each row in rms_norm_backward
constexpr int32_t kDscaleExtraFloats = 16;  // floats after the sums of dscale: a tail block of 8, and 8 Gather offsets

// Whether the squares of a row's elements can leave the range of float32.
constexpr int32_t kSquaresInRange = 0;       // always in the range
constexpr int32_t kSquaresMayOverflow = 1;   // may overflow
constexpr int32_t kSquaresMayUnderflow = 2;  // may overflow or underflow; epsilon is too small to hide an underflow

// The stash type, to which x and the normalized rows are rounded.
constexpr int32_t kStashFloat32 = 0;
constexpr int32_t kStashFloat16 = 1;
constexpr int32_t kStashBfloat16 = 2;

// The layout of a row's scale in GM.
constexpr int32_t kScaleDense = 0;      // contiguous elements
constexpr int32_t kScaleOne = 1;        // one element for the whole row
constexpr int32_t kScaleScattered = 2;  // any strides

// Parameters of the division of rows by their root mean square.
struct RowNormTiling {
    float n_epsilon;           // added to a row's sum of squares: epsilon times the number of a row's elements
    float root_n;              // square root of the number of a row's elements
    int32_t epsilon_exponent;  // exponent of sqrt(epsilon) as a float32
    int32_t square_range;      // possible range of the squares: kSquaresInRange, ...
};

struct RmsNormTilingData {
    // Rows as [batch, token, head]; side 0 is x and out, side 1 the residual and the sum. Positions are unused.
    // rms_norm_backward: side 0 is x and dx, side 1 grad, whose row pitch is out_pitch.
    CommonTiling common;
    RowNormTiling norm;

    int64_t scale_stride[3];  // strides of scale by batch, token and head, in elements
    int64_t inner[4];         // sizes of the dimensions of a row
    int64_t inner_stride[4];  // strides of scale in these dimensions, in elements
    int64_t n;                // elements of a row
    int64_t sums_pitch;       // rms_norm_backward: 0, or the distance of the cores' sums in the workspace, in floats
    int32_t scale_kind;       // kScaleDense, ...
    int32_t scale_shared;     // 1: one scale for all rows
    int32_t scale_pitch;      // distance in UB from the scale of a row to the next one, in elements
    int32_t stash;            // kStashFloat32, ...

    // kRmsNormLong: elements of a chunk; the last chunk of a row may be shorter.
    int32_t chunk;
    int32_t keeps_row;    // 1: a row stays in UB between its two passes
    int32_t keeps_scale;  // 1: the scale stays in UB after its first load
    int32_t levels;       // levels of the tree that adds the chunks; a sum of level k covers 2^k chunks

    // UB, in bytes.
    int32_t scale_raw_bytes;  // the scale in its own type; 0 for float32, which needs no conversion
    int32_t scale_bytes;      // the scale as float32
    int32_t stats_bytes;      // statistics of the rows, such as their sums of squares
    int32_t sum_queue_bytes;  // add_rms_norm: each of the two residual buffers and the two sum buffers
    int32_t row_bytes;        // kRmsNormLong: a row as float32, or a chunk of it if it does not stay

    // rms_norm_backward
    float inverse_n;           // inverse of the number of a row's elements
    int32_t keeps_dscale;      // kRmsNormLong: 1: UB holds a core's sums for all elements of a row; 0: for one chunk
    int32_t grad_queue_bytes;  // each of the two grad buffers
    int32_t g_offset_bytes;    // offset of grad * scale in the work buffer
    int32_t dscale_bytes;      // a core's sums, and kDscaleExtraFloats floats
};
