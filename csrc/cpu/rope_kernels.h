// The kernels of rope for one instruction set: the cos/sin table of a token, and the rotation of its
// heads. rope_kernels.cpp is compiled once per instruction set, and each compile fills one KernelSet.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// The layout of a head's pairs in memory.
enum Pairing : int { kHalf = 0, kInterleaved = 1, kPairings = 2 };

// Order of the table that a rotation reads; each kernel chooses one.
enum TableOrder : int {
    kNatural,  // c[i], s[i]
    kCrossed,  // c[i], s[i] and -s[i], c[i]: factors of x1 and x2 in each element of an interleaved head
    kEvenOdd   // in every full block of 2 W pairs: the even pairs, then the odd pairs
};

// Heads of one token. Strides in elements; x and y point at the rotated window of head 0.
// cos and sin are float tables, or double ones for float64 data.
struct HeadsJob {
    const void* x;
    void* y;
    int64_t x_stride, y_stride;
    int64_t heads;
    int pairs;
    // Bytes to copy before and after each window: the rest of its head, or 0.
    int64_t before, after;
    const void* cos_table;
    const void* sin_table;
    // Store past the caches; y, the bytes of y_stride and those of a half are then multiples of
    // kStreamAlign. The caller orders these stores before another thread reads them.
    bool stream;
};

using RotateFn = void (*)(const HeadsJob&);
// Converts count elements of a type to floats.
using WidenFn = void (*)(const void* src, float* dst, int64_t count);
// Rounds count floats to 16 bits.
using NarrowFn = void (*)(const float* src, void* dst, int64_t count);

// Computes cos and sin of frac(m * (hi + lo)) turns, times scale. m is one number (a position) or, with
// m_each, one per pair. count is a multiple of kAnglePad.
struct TableJob {
    const double* turns_hi;
    const double* turns_lo;
    const double* m_each;
    double m;
    int count;
    double cos_scale, sin_scale;
};

// Rotates a table by one position: (c + i s) *= (c1 + i s1), in float64, then rounds it into the
// float tables. This is cheaper than a table from scratch. The caller starts from scratch often enough that the
// float64 rounding (2^-53 per step) does not matter.
struct StepJob {
    double *c, *s;          // unscaled, count each
    const double *c1, *s1;  // of one position
    int count;
    double cos_scale, sin_scale;
};

struct KernelSet {
    int lanes;  // floats per vector
    void (*table_f32)(const TableJob&, float* cos_table, float* sin_table);
    void (*table_f64)(const TableJob&, double* cos_table, double* sin_table);
    void (*step)(const StepJob&, float* cos_table, float* sin_table);
    void (*reorder)(TableOrder, int pairs, const float* c, const float* s, float* c_out, float* s_out);
    TableOrder order[kPairings][4];  // by npu_rope_dtype
    RotateFn rotate[kPairings][4];
    // Rotates by tables with one entry per lane, (c1, s1) and (c2, s2) for a pair: y1 = x1 c1 - x2 s1,
    // y2 = x2 c2 + x1 s2. kHalf: all c1, then all c2; s1 and s2 likewise. kInterleaved: one table of (c1, s2) per
    // pair, one of (-s1, c2). Never streams.
    RotateFn rotate_full[kPairings][4];
    NarrowFn narrow[4];  // nullptr except for the 16-bit types
    WidenFn widen[4];    // nullptr for float64
};

NPU_ROPE_DECLARE_KERNELS(KernelSet, kernels)

// Number of floats of a table of `pairs` pairs, sufficient for any order.
constexpr int table_floats(int pairs) { return 2 * ((pairs + 31) / 32 * 32); }

}  // namespace npu_rope
