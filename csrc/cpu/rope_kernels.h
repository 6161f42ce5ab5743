// The kernels of rope for one instruction set: they compute a token's tables of cos and sin, and rotate its heads.
// rope_kernels.cpp is compiled once per instruction set, and each compile fills one RopeKernels.
#pragma once

#include <cstdint>

#include "csrc/core/dtype.h"
#include "csrc/cpu/isa.h"

namespace npu_rope {

// The lanes that form pair i in a window of n pairs.
enum Pairing : int {
    kHalfApart = 0,    // lanes i and i + n: mode neox
    kInterleaved = 1,  // lanes 2i and 2i + 1: mode normal
    kPairings = 2      // the number of pairings
};

// Order of the tables that a kernel reads. Each kernel chooses one. c[i] and s[i] are cos and sin of pair i.
enum TableOrder : int {
    kNatural,  // cos_table has c[i], sin_table has s[i]
    // For interleaved pairs, two entries for each pair: cos_table has c[i] and c[i], sin_table has -s[i] and s[i]. A
    // rotation is then x * c + swapped * s, where swapped has the other lane of each pair.
    kPerLane,
    kEvenOdd  // in each group of pairs that fill two vectors, the even pairs come before the odd ones; the remaining
              // pairs are in natural order
};

// Heads of one token. Strides are in elements; x and y point at the rotated window of head 0. The tables hold floats,
// or doubles for float64 heads.
struct HeadsJob {
    const void* x;
    void* y;
    int64_t x_stride, y_stride;
    int64_t heads;
    int pairs;
    // Bytes of the head before and after its window, which are copied; 0 if x and y are the same.
    int64_t bytes_before, bytes_after;
    const void* cos_table;
    const void* sin_table;
    int64_t prefetch_distance;  // in bytes, from a head to the head that is prefetched with it; 0: none is
    // Store past the caches. Then y, y_stride in bytes and the size of `pairs` elements are multiples of
    // kStreamAlignBytes (streaming.h). The caller orders these stores before another thread reads them.
    bool stream;
};

// A token's tables of cos and sin.
struct TablePair {
    const void *cos, *sin;
};

using RotateFn = void (*)(const HeadsJob&);
// Converts count elements of a type to floats, with NaNs as vec.h's with_bf16_nan() converts them.
using WidenFn = void (*)(const void* src, float* dst, int64_t count);
// Rounds count floats to 16 bits.
using NarrowFn = void (*)(const float* src, void* dst, int64_t count);

// Computes cos and sin of multiplier * (turns_hi + turns_lo) turns, times cos_scale and sin_scale. sin_scale is
// negative for the backward rotation. count is a multiple of kPairPadding (rope_angle.h).
struct TableJob {
    const double* turns_hi;  // of each pair; turns_hi and turns_lo as in AngleConstants
    const double* turns_lo;
    double multiplier;               // the position, for all pairs
    const double* pair_multipliers;  // NULL, or for each pair its position, or its angle under angle policy f32
    int count;
    double cos_scale, sin_scale;
};

// Computes the next token's tables by a rotation: (cos + i sin) *= (step_cos + i step_sin) in float64, where i is the
// imaginary unit. The float tables get the result times cos_scale and sin_scale. A rotation is cheaper than tables from
// positions. It adds a rounding error of 2^-53, so the caller computes tables from positions from time to time.
struct StepJob {
    double *cos, *sin;                  // `count` entries each, not scaled
    const double *step_cos, *step_sin;  // of the difference of the positions
    int count;
    double cos_scale, sin_scale;
};

struct RopeKernels {
    void (*table_f32)(const TableJob&, float* cos_table, float* sin_table);
    void (*table_f64)(const TableJob&, double* cos_table, double* sin_table);
    void (*step)(const StepJob&, float* cos_table, float* sin_table);
    void (*reorder)(TableOrder, int pairs, const float* cos, const float* sin, float* cos_out, float* sin_out);
    // By npu_rope_dtype. The types of a pairing that are not kNatural have the same order.
    TableOrder order[kPairings][4];
    RotateFn rotate[kPairings][4];
    // Rotates by tables with one entry per lane: y1 = x1 c1 - x2 s1, y2 = x2 c2 + x1 s2. Ignores HeadsJob::stream.
    // kHalfApart: cos_table has all c1, then all c2; sin_table has all s1, then all s2. kInterleaved, as kPerLane: for
    // each pair, cos_table has c1, c2 and sin_table has -s1, s2.
    RotateFn rotate_by_lanes[kPairings][4];
    NarrowFn narrow[4];  // nullptr except for the 16-bit types
    WidenFn widen[4];    // nullptr for float64
};

NPU_ROPE_DECLARE_KERNELS(RopeKernels, rope_kernels)

// Returns the kernels that rotate windows of `pairs` pairs. If vectors of 16 floats would leave half a vector to the
// code for single pairs, these are the kernels for vectors of 8 floats. A result has the same bits with all kernels.
inline const RopeKernels& rope_kernels_for([[maybe_unused]] Pairing pairing, [[maybe_unused]] int32_t dtype,
                                           [[maybe_unused]] int64_t pairs) {
#if defined(__x86_64__)
    // An interleaved rotator has half as many pairs as floats, but that of bfloat16 has as many.
    const bool has_16_pairs = pairing == kHalfApart || dtype == NPU_ROPE_BFLOAT16;
    if (active_isa() >= Isa::kAvx512 && has_16_pairs && pairs % 16 >= 8) return rope_kernels_avx2();
#endif
    return active_rope_kernels();
}

// Floats to allocate for a table of `pairs` pairs in any order. It is padded to two vectors of the widest instruction
// set, and kPerLane has two entries for each pair.
constexpr int table_floats(int pairs) {
    constexpr int kMaxVectorFloats = 16, kPadding = 2 * kMaxVectorFloats;
    return 2 * ((pairs + kPadding - 1) / kPadding * kPadding);
}

}  // namespace npu_rope
