// Sizes of the temporary memory of library functions. The host's functions Get...MaxMinTmpSize() return them, and the
// kernel's functions check them. Plain C++ for kernels and for tiling/tiling_api.h.
//
// Source: the pages Get...MaxMinTmpSize describe the functions. The figures are those of asc-devkit's
// impl/adv_api/tiling.
#pragma once

#include <cstdint>

namespace ascend_sim {

constexpr uint32_t round_up(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }

struct TmpSizes {
    uint32_t most, least;  // bytes; memory past `most` is not used
};

// The number of arrays of the input's size that the temporary memory holds: for 16-bit input, for 32-bit input, and for
// 32-bit input that the function may overwrite (isReuseSource). `all_are_float`: 16-bit input also has arrays of float.
struct TmpArrays {
    uint32_t half_arrays, float_arrays, reuse_arrays;
    bool all_are_float;

    constexpr uint32_t arrays(uint32_t type_bytes, bool reuse) const {
        return type_bytes == 2 ? half_arrays : reuse ? reuse_arrays : float_arrays;
    }
    constexpr TmpSizes sizes(uint64_t elements, uint32_t type_bytes, bool reuse) const {
        constexpr uint32_t kLeast = 256;
        const uint64_t bytes = elements * (all_are_float ? 4 : type_bytes), count = arrays(type_bytes, reuse);
        return {uint32_t(count * (bytes > kLeast ? bytes : kLeast)), uint32_t(count * kLeast)};
    }
};

// ROW(name, arrays for half, for float, for float with isReuseSource, whether all arrays are of float)
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
#define ASCEND_SIM_TMP_SIZE(Name, half, single, reuse, all_are_float) \
    constexpr TmpArrays k##Name{half, single, reuse, all_are_float};
ASCEND_SIM_TMP_SIZES(ASCEND_SIM_TMP_SIZE)
#undef ASCEND_SIM_TMP_SIZE
constexpr TmpArrays kNone{0, 0, 0, false};
}  // namespace tmp_sizes

constexpr TmpArrays round_arrays(bool is310p) { return is310p ? TmpArrays{2, 1, 1, false} : TmpArrays{1, 0, 0, false}; }

// Power of floating-point numbers has arrays of float, and 256 bytes for constants. Power of integers has arrays of
// int32. tensors: base and exponent are both tensors.
constexpr uint32_t kPowerConstantBytes = 256;
constexpr uint32_t power_array_count(bool tensors, uint32_t type_bytes, bool is310p) {
    return (type_bytes == 2 ? 7 : tensors ? 4 : 5) + (is310p ? 1 : 0);
}
constexpr uint32_t int_power_array_count(bool tensors, bool is310p) { return (tensors ? 6 : 7) + (is310p ? 1 : 0); }
constexpr TmpSizes power_array_sizes(uint64_t elements, uint32_t arrays, uint32_t constant_bytes) {
    constexpr uint32_t kLeast = 256;
    const uint64_t bytes = elements * 4;
    return {uint32_t(arrays * (bytes > kLeast ? bytes : kLeast) + constant_bytes), arrays * kLeast + constant_bytes};
}
constexpr TmpSizes power_sizes(uint64_t elements, bool tensors, uint32_t type_bytes, bool is310p, bool is950) {
    if (is950) return {uint32_t(elements * 12), uint32_t(elements * 12)};
    return power_array_sizes(elements, power_array_count(tensors, type_bytes, is310p), kPowerConstantBytes);
}
constexpr TmpSizes int_power_sizes(uint64_t elements, bool tensors, bool is310p, bool is950) {
    return is950 ? TmpSizes{0, 0} : power_array_sizes(elements, int_power_array_count(tensors, is310p), 0);
}

}  // namespace ascend_sim
