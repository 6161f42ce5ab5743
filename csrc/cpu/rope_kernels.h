// The kernels of rope for one instruction set: the cos/sin table of a token, and the rotation of its heads.
// rope_kernels.cpp is compiled once per instruction set, and each compile fills one RopeKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// The layout of a head's pairs in memory: a lane's partner is half of the lanes away (mode neox), or the next lane
// (mode normal).
enum Pairing : int { kHalf = 0, kInterleaved = 1, kPairings = 2 };

// Order of the table that a rotation reads; each kernel chooses one.
enum TableOrder : int {
    kNatural,  // c[i], s[i]
    kCrossed,  // interleaved heads: cos_table has c[i], s[i], the factors of x1; sin_table has -s[i], c[i], those of x2
    kEvenOdd   // in every full block of two vectors of pairs: the even pairs, then the odd pairs; the rest is in
               // natural order
};

// Heads of one token. Strides in elements; x and y point at the rotated window of head 0.
// cos and sin are float tables, or double ones for float64 data.
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
    // Store past the caches. Then y, y_stride in bytes and the size of `pairs` elements are multiples of kStreamAlign
    // (streaming.h). The caller orders these stores before another thread reads them.
    bool stream;
};

using RotateFn = void (*)(const HeadsJob&);
// Converts count elements of a type to floats, and NaNs as tidy_nan() does (vec.h).
using WidenFn = void (*)(const void* src, float* dst, int64_t count);
// Rounds count floats to 16 bits.
using NarrowFn = void (*)(const float* src, void* dst, int64_t count);

// Computes cos and sin of frac(m * (turns_hi + turns_lo)) turns, times cos_scale and sin_scale (negative for the
// backward rotation). m is the position of all pairs. If m_each is set, it has a number for each pair instead: a
// position, or an angle for the angle policy f32. count is a multiple of kAnglePad (rope_angle.h).
struct TableJob {
    const double* turns_hi;
    const double* turns_lo;
    const double* m_each;
    double m;
    int count;
    double cos_scale, sin_scale;
};

// Rotates a table by the step to the next token: (c + i s) *= (c1 + i s1) in float64. The float tables get the result
// times cos_scale and sin_scale. This is cheaper than a table from scratch. The caller starts from scratch often enough
// that the float64 rounding (2^-53 per step) does not matter.
struct StepJob {
    double *c, *s;          // unscaled, count each
    const double *c1, *s1;  // of the step
    int count;
    double cos_scale, sin_scale;
};

struct RopeKernels {
    void (*table_f32)(const TableJob&, float* cos_table, float* sin_table);
    void (*table_f64)(const TableJob&, double* cos_table, double* sin_table);
    void (*step)(const StepJob&, float* cos_table, float* sin_table);
    void (*reorder)(TableOrder, int pairs, const float* c, const float* s, float* c_out, float* s_out);
    TableOrder order[kPairings][4];  // by npu_rope_dtype
    RotateFn rotate[kPairings][4];
    // Rotates by tables with one entry per lane: y1 = x1 c1 - x2 s1, y2 = x2 c2 + x1 s2. kHalf: cos_table has all c1,
    // then all c2; sin_table has all s1, then all s2. kInterleaved: for each pair, cos_table has c1, s2 and sin_table
    // has -s1, c2. Ignores HeadsJob::stream.
    RotateFn rotate_by_lanes[kPairings][4];
    NarrowFn narrow[4];  // nullptr except for the 16-bit types
    WidenFn widen[4];    // nullptr for float64
};

NPU_ROPE_DECLARE_KERNELS(RopeKernels, rope_kernels)

// Floats to allocate for a table of `pairs` pairs in any order. 32: two vectors of the widest instruction set.
constexpr int table_floats(int pairs) { return 2 * ((pairs + 31) / 32 * 32); }

}  // namespace npu_rope
