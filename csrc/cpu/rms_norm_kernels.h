// What one instruction set offers rms_norm. rms_norm_kernels.inl is compiled once per instruction set and fills
// one RmsNormKernels each.
#pragma once

#include <cstdint>

namespace npu_rope {

// How a result is stored: into the caches; into lines of them that were fetched early, because they would have to be
// waited for; or past them.
enum class Storing { kPlain, kFetched, kPast };

// A row of finite elements whose type, scale and precision are float32 or narrower:
// y = (x * inverse, rounded to x's type) * scale.
struct NormalizeJob {
    const void* x;
    const void* scale;
    void* y;
    int64_t count;
    float inverse;  // of the root mean square
    // Past the caches y is a multiple of kStreamAlign, and the caller orders these stores before it lets another
    // thread read them.
    Storing storing;
    const void* ahead[2];  // as many bytes as the row has, to be fetched: they are read later, and need not be anyone's
};

// sum = a + b, rounded once; sum may be a or b itself.
struct AddJob {
    const void* a;
    const void* b;
    void* sum;
    int64_t count;
    // NULL, or for 16 bits where the sum is stored past the caches as well, as by Storing::kPast.
    void* past;
};

// Sums of doubles are over blocks of at most so many elements, whose sums the caller adds pairwise.
constexpr int64_t kSumBlock = 512;
// Their error, in units of 2^-53 of the sum of the products' magnitudes: a product rounds once; it goes through at
// most kSumBlock / (2 W) additions in its lane of four accumulators of W/2 doubles, W >= 4, or 2 W - 1 <= 31 at
// the tail; then through 2 + log2(W/2) <= 5 that join the lanes, and one that adds the tail.
constexpr int kSumBlockError = 1 + 64 + 5 + 1;

// sum_squares takes blocks of at most so many, and adds groups of 8 or 16 vectors in float32, the groups in double.
// In a group a square rounds once, or not at all where it has 22 bits or fewer; it goes through at most one
// addition (bfloat16: three) and two that join four accumulators: 5 * 2^-24. The doubles round as above, but that
// there are at most kSquaresBlock / (8 W) = 128 groups: less than 2^-45.
constexpr int64_t kSquaresBlock = 4096;
// What float32 cannot hold, squares below 2^-126 at worst, is less than 2^-24 of a mean square (with epsilon) of
// so much. Below it, or where float32 overflows, the row is summed in double.
constexpr double kLeastMeanSquare = 0x1p-100, kMostMeanSquare = 0x1p128;

// Tables by npu_rope_dtype: float32, float16, bfloat16 and, where there are four, float64. Arrays of doubles do
// not overlap.
struct RmsNormKernels {
    double (*sum_squares[3])(const void* x, int64_t count);  // infinite or NaN where float32 overflows
    void (*normalize[3][3])(const NormalizeJob&);            // x's type, scale's
    void (*add[4])(const AddJob&);
    // Elements as doubles, and doubles rounded once.
    void (*widen[4])(const void* from, double* to, int64_t count);
    void (*narrow[4])(const double* from, void* to, int64_t count);
    double (*dot)(const double* a, const double* b, int64_t count);
    void (*scale_by)(double* a, double by, int64_t count);  // a *= by
    void (*multiply)(const double* a, const double* b, double* product, int64_t count);
    void (*add_product)(const double* a, const double* b, double* sum, int64_t count);  // sum += a * b
    // to = by * (a - b * mean)
    void (*project)(const double* a, const double* b, double mean, double by, double* to, int64_t count);
};

const RmsNormKernels& rms_norm_kernels_baseline();
#if defined(NPU_ROPE_X86)
const RmsNormKernels& rms_norm_kernels_avx2();
const RmsNormKernels& rms_norm_kernels_avx512();
const RmsNormKernels& rms_norm_kernels_avx512bf16();
#endif

// Those of the active instruction set.
const RmsNormKernels& active_rms_norm_kernels();

}  // namespace npu_rope
