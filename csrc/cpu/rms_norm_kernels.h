// The kernels of rms_norm for one instruction set. rms_norm_kernels.cpp is compiled once per instruction set, and each
// compile fills one RmsNormKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// How a result is stored: into the caches; into cache lines that were prefetched, so that stores do not wait for them;
// or past the caches.
enum class Storing { kPlain, kPrefetched, kStreamed };

// A row of finite elements. x and scale are float32 or narrower, the stash type is float32:
// y = (x * inverse, rounded to x's type) * scale.
struct NormalizeJob {
    const void* x;
    const void* scale;
    void* y;
    int64_t count;
    float inverse;  // of the root mean square
    // With Storing::kStreamed, y's address is a multiple of kStreamAlign, and the caller orders the stores before
    // another thread reads them.
    Storing storing;
    const void* prefetch[2];  // starts of two ranges of a row's size, for later reads; any address is valid
};

// sum = a + b, rounded once; sum may be a or b itself.
struct AddJob {
    const void* a;
    const void* b;
    void* sum;
    int64_t count;
    // NULL, or for 16-bit types a second destination of the sum, stored as by Storing::kStreamed.
    void* streamed;
};

// Largest block, in elements, of a sum of doubles; the caller adds the sums of blocks pairwise.
constexpr int64_t kSumBlock = 512;
// Error of a block's sum, in units of 2^-53 of the sum of the products' magnitudes: a product rounds once. It goes
// through at most kSumBlock / (2 W) additions in its lane of four accumulators of W/2 doubles, W >= 4, or 2 W - 1 <= 31
// in the tail; then through 2 + log2(W/2) <= 5 additions that join the lanes, and one that adds the tail.
constexpr int kSumBlockError = 1 + 64 + 5 + 1;

// Largest block, in elements, of sum_squares, which adds groups of 8 or 16 vectors in float32 and the groups in double.
// In a group a square rounds once, or not at all if it has 22 bits or fewer. It goes through at most one addition
// (bfloat16: three) and two that join four accumulators: 5 * 2^-24. The doubles round as above, with at most
// kSquaresBlock / (8 W) <= 128 groups and 7 single vectors: less than 2^-45.
constexpr int64_t kSquaresBlock = 4096;
// Range of mean squares (with epsilon) that are computed by float32 sums. The part that float32 cannot hold, squares
// below 2^-126 at worst, is less than 2^-24 of the smallest mean square in the range. Outside the range the row is
// summed in double.
constexpr double kMinMeanSquare = 0x1p-100, kMaxMeanSquare = 0x1p128;

// Tables by npu_rope_dtype: float32, float16, bfloat16 and, in those of four entries, float64. Arrays of doubles do
// not overlap.
struct RmsNormKernels {
    double (*sum_squares[3])(const void* x, int64_t count);  // infinite or NaN where float32 overflows
    void (*normalize[3][3])(const NormalizeJob&);            // x's type, scale's
    void (*add[4])(const AddJob&);
    // Elements as doubles, and doubles rounded once.
    void (*widen[4])(const void* from, double* to, int64_t count);
    void (*narrow[4])(const double* from, void* to, int64_t count);
    double (*dot)(const double* a, const double* b, int64_t count);
    void (*scale_by)(double* a, double factor, int64_t count);  // a *= factor
    void (*multiply)(const double* a, const double* b, double* product, int64_t count);
    void (*add_product)(const double* a, const double* b, double* sum, int64_t count);  // sum += a * b
    // to = factor * (a - b * mean)
    void (*project)(const double* a, const double* b, double mean, double factor, double* to, int64_t count);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormKernels, rms_norm_kernels)

}  // namespace npu_rope
