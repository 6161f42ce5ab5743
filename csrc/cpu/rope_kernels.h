// What one instruction set offers rope: the cos/sin table of a token, and the rotation of its
// heads. rope_kernels.inl is compiled once per instruction set and fills one KernelSet each.
#pragma once

#include <cstdint>

namespace npu_rope {

// How a head's pairs lie in memory.
enum Pairing : int { kHalf = 0, kInterleaved = 1, kPairings = 2 };

// Order of the table a rotation reads; which one is the kernel's choice.
enum TableOrder : int {
    kNatural,  // c[i], s[i]
    kCrossed,  // c[i], s[i] and -s[i], c[i]: what x1 and x2 add to each element of an interleaved head
    kEvenOdd   // in every full block of 2 W pairs: the even ones, then the odd ones
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
    // kStreamAlign. The caller orders these stores before it lets another thread read them.
    bool stream;
};

using RotateFn = void (*)(const HeadsJob&);
// count elements of a type as floats.
using WidenFn = void (*)(const void* src, float* dst, int64_t count);
// count floats rounded to 16 bits.
using NarrowFn = void (*)(const float* src, void* dst, int64_t count);

// frac(m * (hi + lo)) of a turn -> cos and sin times scale. m is one number (a position) or, with
// m_each, one per pair. count is a multiple of kAnglePad.
struct TableJob {
    const double* turns_hi;
    const double* turns_lo;
    const double* m_each;
    double m;
    int count;
    double cos_scale, sin_scale;
};

// A table turned by one position: (c + i s) *= (c1 + i s1), in float64, then rounded into the
// float tables. Cheaper than a table from scratch; the caller starts afresh often enough for the
// float64 rounding (2^-53 a step) not to matter.
struct StepJob {
    double *c, *s;          // unscaled, count each
    const double *c1, *s1;  // of one position
    int count;
    double cos_scale, sin_scale;
};

struct KernelSet {
    int lanes;  // floats a vector
    void (*table_f32)(const TableJob&, float* cos_table, float* sin_table);
    void (*table_f64)(const TableJob&, double* cos_table, double* sin_table);
    void (*step)(const StepJob&, float* cos_table, float* sin_table);
    void (*reorder)(TableOrder, int pairs, const float* c, const float* s, float* c_out, float* s_out);
    TableOrder order[kPairings][4];  // by npu_rope_dtype
    RotateFn rotate[kPairings][4];
    // The two lanes of a pair have entries of their own, (c1, s1) and (c2, s2): y1 = x1 c1 - x2 s1,
    // y2 = x2 c2 + x1 s2. kHalf: all c1, then all c2, and s1 and s2 alike. kInterleaved: (c1, s2) pair by
    // pair, and (-s1, c2). Never streams.
    RotateFn rotate_full[kPairings][4];
    NarrowFn narrow[4];  // nullptr but for the 16-bit types
    WidenFn widen[4];    // nullptr for float64
};

const KernelSet& kernels_baseline();
#if defined(NPU_ROPE_X86)
const KernelSet& kernels_avx2();
const KernelSet& kernels_avx512();
const KernelSet& kernels_avx512bf16();
#endif

// Those of the active instruction set.
const KernelSet& active_kernels();

// Floats a table of so many pairs needs under any order.
constexpr int table_floats(int pairs) { return 2 * ((pairs + 31) / 32 * 32); }

}  // namespace npu_rope
