// Temporary memory of library functions: the results of the host's Get...MaxMinTmpSize(), which the kernel's functions
// check. Plain C++, shared by kernels and by tiling/tiling_api.h.
//
// Source: the pages Get...MaxMinTmpSize say how to get the sizes; the figures are those of asc-devkit's
// impl/adv_api/tiling.
#pragma once

#include <cstdint>

namespace ascend_sim {

struct TmpSizes {
    uint32_t most, least;  // bytes; what exceeds `most` is not used
};

// How many arrays as large as the input fit the temporary memory: of 16-bit input, of 32-bit input, and of 32-bit input
// that may be overwritten (isReuseSource). floats: the arrays are of float, whatever the input's type is.
struct TmpArrays {
    uint32_t half_arrays, float_arrays, reuse_arrays;
    bool floats;

    constexpr uint32_t arrays(uint32_t type_bytes, bool reuse) const {
        return type_bytes == 2 ? half_arrays : reuse ? reuse_arrays : float_arrays;
    }
    constexpr TmpSizes sizes(uint64_t elements, uint32_t type_bytes, bool reuse) const {
        constexpr uint32_t kLeast = 256;
        const uint64_t bytes = elements * (floats ? 4 : type_bytes), n = arrays(type_bytes, reuse);
        return {uint32_t(n * (bytes > kLeast ? bytes : kLeast)), uint32_t(n * kLeast)};
    }
};

// ROW(name, arrays of half, of float, of float with isReuseSource, arrays are floats)
#define ASCEND_SIM_TMP_SIZES(ROW) \
    ROW(Acos, 6, 2, 2, false)     \
    ROW(Acosh, 2, 1, 1, false)    \
    ROW(Asin, 6, 2, 2, false)     \
    ROW(Asinh, 3, 3, 3, false)    \
    ROW(Atan, 12, 5, 5, false)    \
    ROW(Atanh, 4, 1, 1, false)    \
    ROW(Axpy, 4, 0, 0, false)     \
    ROW(Ceil, 2, 1, 1, false)     \
    ROW(Cos, 8, 3, 2, false)      \
    ROW(Cosh, 6, 2, 2, false)     \
    ROW(Digamma, 16, 7, 6, false) \
    ROW(Erf, 8, 3, 3, false)      \
    ROW(Erfc, 16, 7, 7, false)    \
    ROW(Exp, 4, 3, 2, true)       \
    ROW(Floor, 2, 0, 0, false)    \
    ROW(Fmod, 8, 1, 1, false)     \
    ROW(Frac, 4, 0, 0, false)     \
    ROW(GeGLU, 4, 0, 0, false)    \
    ROW(Gelu, 3, 3, 3, true)      \
    ROW(Lgamma, 26, 8, 7, false)  \
    ROW(Log, 0, 0, 0, false)      \
    ROW(Log10, 0, 0, 0, false)    \
    ROW(Log2, 1, 0, 0, true)      \
    ROW(Sigmoid, 1, 1, 1, false)  \
    ROW(Sign, 3, 3, 3, false)     \
    ROW(Sin, 8, 3, 2, false)      \
    ROW(Sinh, 4, 1, 1, false)     \
    ROW(SwiGLU, 6, 0, 0, false)   \
    ROW(Tan, 10, 4, 4, false)     \
    ROW(Tanh, 4, 1, 1, false)     \
    ROW(Trunc, 2, 1, 1, false)    \
    ROW(Xor, 1, 1, 1, false)

namespace tmp_sizes {
#define ASCEND_SIM_TMP_SIZE(Name, half, single, reuse, floats) constexpr TmpArrays k##Name{half, single, reuse, floats};
ASCEND_SIM_TMP_SIZES(ASCEND_SIM_TMP_SIZE)
#undef ASCEND_SIM_TMP_SIZE
constexpr TmpArrays kNone{0, 0, 0, false};
}  // namespace tmp_sizes

constexpr TmpArrays round_arrays(bool is310p) { return is310p ? TmpArrays{2, 1, 1, false} : TmpArrays{1, 0, 0, false}; }

// Power of floating-point numbers: arrays of float, and 256 bytes for constants; of integers: arrays of int32.
// `tensors`: base and exponent are tensors.
constexpr uint32_t kPowerConstants = 256;
constexpr uint32_t power_count(bool tensors, uint32_t type_bytes, bool is310p) {
    return (type_bytes == 2 ? 7 : tensors ? 4 : 5) + (is310p ? 1 : 0);
}
constexpr uint32_t int_power_count(bool tensors, bool is310p) { return (tensors ? 6 : 7) + (is310p ? 1 : 0); }
constexpr TmpSizes power_arrays(uint64_t elements, uint32_t arrays, uint32_t constants) {
    constexpr uint32_t kLeast = 256;
    const uint64_t bytes = elements * 4;
    return {uint32_t(arrays * (bytes > kLeast ? bytes : kLeast) + constants), arrays * kLeast + constants};
}
constexpr TmpSizes power_sizes(uint64_t elements, bool tensors, uint32_t type_bytes, bool is310p, bool is950) {
    if (is950) return {uint32_t(elements * 12), uint32_t(elements * 12)};
    return power_arrays(elements, power_count(tensors, type_bytes, is310p), kPowerConstants);
}
constexpr TmpSizes int_power_sizes(uint64_t elements, bool tensors, bool is310p, bool is950) {
    return is950 ? TmpSizes{0, 0} : power_arrays(elements, int_power_count(tensors, is310p), 0);
}

}  // namespace ascend_sim
