// The kernels of rms_norm for one instruction set. rms_norm_kernels.cpp is compiled once per instruction set, and each
// compile fills one RmsNormKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// How y is stored: cached, prefetched or past the caches.
enum class StoreMode {
    kPlain,       // into the caches
    kPrefetched,  // into cache lines that were prefetched, so that stores do not wait for them
    kStreamed     // past the caches
};

// A row of finite elements to normalize. x and scale are float32 or narrower, and the stash type is float32.
struct NormalizeJob {
    const void* x;
    const void* scale;
    void* y;
    int64_t count;
    float inverse;  // of the root mean square
    float scale_offset;
    // With StoreMode::kStreamed, y's address is a multiple of kStreamAlignBytes, and the caller orders the stores
    // before another thread reads them.
    StoreMode storing;
    const void* prefetch[2];  // the first addresses of two later rows to prefetch; any address is valid
};

// Computes sum = a + b, rounded once. sum may be a or b itself.
struct AddJob {
    const void* a;
    const void* b;
    void* sum;
    int64_t count;
    // NULL, or for 16-bit types a second destination of the sum, stored as by StoreMode::kStreamed.
    void* streamed;
};

// Largest block, in elements, of a sum of doubles; the caller adds the sums of blocks pairwise.
constexpr int64_t kSumBlock = 512;
// Error of a block's sum, in units of 2^-53 of the sum of the products' magnitudes. The roundings of a product are:
//   1    of the product itself
//   31   of additions: a product is added into one of 32 accumulators, which takes kSumBlock / 32 = 16 additions. The
//        products of the block's rest, which does not fill the accumulators, are added to one number instead, with at
//        most 31 additions. So 31 covers both.
//   5    of additions that join the accumulators: log2(32)
//   1    of the addition of the rest
constexpr int kSumBlockError = 1 + 31 + 5 + 1;

// Largest block, in elements, of sum_squares, which adds groups of 128 or 256 elements in float32 and the groups in
// double.
// In a group, the square of a float32 rounds once. The squares of float16 and bfloat16 have at most 22 significant
// bits, so they are exact. Then an accumulator rounds in at most one addition (bfloat16: three), and two more roundings
// join the four accumulators. The worst case is bfloat16: 5 * 2^-24. The doubles round as above, with at most
// kSquaresBlock / 128 = 32 groups, 7 single vectors of 16 elements and 15 single elements: less than 2^-45.
constexpr int64_t kSquaresBlock = 4096;
// Range of mean squares (with epsilon) that are computed by float32 sums. Squares below 2^-126 lose bits in float32.
// Their loss is less than 2^-24 of the smallest mean square in the range. Outside the range the row is summed in
// double.
constexpr double kMinMeanSquare = 0x1p-100, kMaxMeanSquare = 0x1p128;

// Arrays of functions are indexed by npu_rope_dtype: float32, float16, bfloat16 and, if they have four entries,
// float64. The arrays of doubles in one call do not overlap.
struct RmsNormKernels {
    // Sums the squares of each row, of at most kSquaresBlock elements. A sum is infinite or NaN if float32 overflows.
    void (*sum_squares[3])(const void* x, int64_t count, int64_t rows, int64_t row_bytes, double* sums);
    // By x's type, then scale's.
    void (*normalize[3][3])(const NormalizeJob&);               // y = (x * inverse, rounded to x's type) * scale
    void (*normalize_rounded_last[3][3])(const NormalizeJob&);  // y = x * inverse * (scale + scale_offset), of x's type
    // normalize[F16][F16] with the same bits, from a scale that was widened to float32. nullptr: it would not be
    // faster.
    void (*normalize_f16_by_floats)(const NormalizeJob&);
    void (*add[4])(const AddJob&);
    // widen converts elements to doubles; narrow rounds doubles once to the type.
    void (*widen[4])(const void* from, double* to, int64_t count);
    void (*narrow[4])(const double* from, void* to, int64_t count);
    double (*dot)(const double* a, const double* b, int64_t count);
    void (*scale_by)(double* a, double factor, int64_t count);  // a *= factor
    void (*multiply)(const double* a, const double* b, double* product, int64_t count);
    void (*add_product)(const double* a, const double* b, double* sum, int64_t count);  // sum += a * b
    // to = factor * (a - b * mean)
    void (*scale_difference)(const double* a, const double* b, double mean, double factor, double* to, int64_t count);
};

NPU_ROPE_DECLARE_KERNELS_WITH(RmsNormKernels, rms_norm_kernels, NPU_ROPE_FP16_ISA)

}  // namespace npu_rope
