// The temporary memory of library functions: Get...MaxMinTmpSize(), Get...TmpBufferFactorSize().
//
// Source: the pages of those names; the figures are in include/ascendc/library/*_sizes.h.
#pragma once

#include "include/ascendc/library/broadcast_sizes.h"
#include "include/ascendc/library/move_sizes.h"
#include "include/ascendc/library/quant_sizes.h"
#include "include/ascendc/library/reduce_sizes.h"
#include "tiling/library_shapes.h"

namespace ascend_sim::host {

// Sets the two results of a function Get...TmpBufferFactorSize(). The first is the temporary memory as a multiple of
// the input. The second, the bytes that do not depend on the input, is 0.
inline void give_factor(uint32_t arrays, uint32_t& arrays_out, uint32_t& extra_out) {
    arrays_out = arrays;
    extra_out = 0;
}

}  // namespace ascend_sim::host

namespace AscendC {

// ---- functions of elements ------------------------------------------------------------------------------------------

#define ASCEND_SIM_SIZES(Name)                                                                                        \
    inline void Get##Name##MaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize,                        \
                                         const bool isReuseSource, uint32_t& maxValue, uint32_t& minValue) {          \
        const uint32_t n = ascend_sim::host::elements_of(srcShape);                                                   \
        if (n == 0) return;                                                                                           \
        ascend_sim::host::give(ascend_sim::tmp_sizes::k##Name.sizes(n, typeSize, isReuseSource), maxValue, minValue); \
    }
#define ASCEND_SIM_FACTOR(Name)                                                                                 \
    inline void Get##Name##TmpBufferFactorSize(const uint32_t typeSize, uint32_t& maxLiveNodeCount,             \
                                               uint32_t& extraBuf) {                                            \
        ascend_sim::host::give_factor(ascend_sim::tmp_sizes::k##Name.arrays(typeSize, false), maxLiveNodeCount, \
                                      extraBuf);                                                                \
    }
#define ASCEND_SIM_SIZES_AND_FACTOR(Name) ASCEND_SIM_SIZES(Name) ASCEND_SIM_FACTOR(Name)
ASCEND_SIM_SIZES_AND_FACTOR(Acos)
ASCEND_SIM_SIZES_AND_FACTOR(Asin)
ASCEND_SIM_SIZES_AND_FACTOR(Asinh)
ASCEND_SIM_SIZES_AND_FACTOR(Atan)
ASCEND_SIM_SIZES_AND_FACTOR(Atanh)
ASCEND_SIM_SIZES_AND_FACTOR(Ceil)
ASCEND_SIM_FACTOR(Cos)
ASCEND_SIM_SIZES_AND_FACTOR(Cosh)
ASCEND_SIM_SIZES_AND_FACTOR(Erf)
ASCEND_SIM_SIZES_AND_FACTOR(Erfc)
ASCEND_SIM_SIZES_AND_FACTOR(Floor)
ASCEND_SIM_SIZES_AND_FACTOR(Fmod)
ASCEND_SIM_SIZES_AND_FACTOR(Frac)
ASCEND_SIM_SIZES_AND_FACTOR(GeGLU)
ASCEND_SIM_SIZES_AND_FACTOR(Log)
ASCEND_SIM_SIZES_AND_FACTOR(Log10)
ASCEND_SIM_SIZES(Log2)
ASCEND_SIM_SIZES(Sigmoid)
ASCEND_SIM_SIZES_AND_FACTOR(Sign)
ASCEND_SIM_FACTOR(Sin)
ASCEND_SIM_SIZES_AND_FACTOR(Sinh)
ASCEND_SIM_SIZES_AND_FACTOR(Tan)
ASCEND_SIM_SIZES_AND_FACTOR(Tanh)
ASCEND_SIM_SIZES_AND_FACTOR(Trunc)
ASCEND_SIM_SIZES_AND_FACTOR(Xor)
ASCEND_SIM_SIZES(Axpy)
ASCEND_SIM_FACTOR(Acosh)
ASCEND_SIM_FACTOR(SwiGLU)
#undef ASCEND_SIM_SIZES_AND_FACTOR
#undef ASCEND_SIM_SIZES
#undef ASCEND_SIM_FACTOR

// Sin and Cos of halves cannot overwrite their sources.
inline void GetSinMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                uint32_t& maxValue, uint32_t& minValue) {
    const bool refused = isReuseSource && typeSize != 4;
    ascend_sim::host::give((refused ? ascend_sim::tmp_sizes::kNone : ascend_sim::tmp_sizes::kSin)
                               .sizes(ascend_sim::host::elements_of(srcShape), typeSize, isReuseSource),
                           maxValue, minValue);
}
inline void GetCosMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                uint32_t& maxValue, uint32_t& minValue) {
    GetSinMaxMinTmpSize(srcShape, typeSize, isReuseSource, maxValue, minValue);
}
inline void GetAxpyTmpBufferFactorSize(const uint32_t typeSize, uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    ascend_sim::host::give_factor(typeSize == 4 ? 1 : 4, maxLiveNodeCount, extraBuf);
}
inline void GetLog2TmpBufferFactorSize(const uint32_t typeSize, uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    ascend_sim::host::give_factor(typeSize == 4 ? 0 : 2, maxLiveNodeCount, extraBuf);
}
inline void GetAcoshMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool, uint32_t& maxValue,
                                  uint32_t& minValue) {
    constexpr uint32_t kLeast = 256;
    const uint32_t arrays = typeSize == 4 ? 1 : 2, n = arrays * ascend_sim::host::elements_of(srcShape);
    maxValue = (n > kLeast ? n : kLeast) * typeSize;
    minValue = arrays * kLeast;
}
inline bool GetExpMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                uint32_t& maxValue, uint32_t& minValue) {
    ascend_sim::host::give(
        ascend_sim::tmp_sizes::kExp.sizes(ascend_sim::host::elements_of(srcShape), typeSize, isReuseSource), maxValue,
        minValue);
    return true;
}
inline void GetExpTmpBufferFactorSize(const uint32_t typeSize, uint32_t& maxLiveNodeCount, uint32_t& extraBuffer) {
    ascend_sim::host::give_factor(typeSize == 4 ? 3 : 8, maxLiveNodeCount, extraBuffer);
}
inline void GetSwiGLUMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, uint32_t& maxValue,
                                   uint32_t& minValue, const bool isReuseSource) {
    ascend_sim::host::give(
        ascend_sim::tmp_sizes::kSwiGLU.sizes(ascend_sim::host::elements_of(srcShape), typeSize, isReuseSource),
        maxValue, minValue);
}
inline void GetReGluMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                  uint32_t& maxValue, uint32_t& minValue) {
    if (isReuseSource) return;
    constexpr uint32_t kLeast = 256, kArrays = 6;
    minValue = typeSize == 4 ? kLeast : kArrays * kLeast;
    const uint32_t most = typeSize == 4 ? kLeast : kArrays * ascend_sim::host::elements_of(srcShape) * typeSize;
    maxValue = most > minValue ? most : minValue;
}
inline void GetSiluTmpSize(const TensorShape&, const uint32_t, const bool, uint32_t& maxValue, uint32_t& minValue) {
    maxValue = minValue = 0;
}
inline void GetSwishTmpSize(const TensorShape&, const uint32_t, const bool, uint32_t& maxValue, uint32_t& minValue) {
    maxValue = minValue = 0;
}
inline void GetGeluMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, uint32_t& maxValue,
                                 uint32_t& minValue) {
    ascend_sim::host::give(ascend_sim::tmp_sizes::kGelu.sizes(ascend_sim::host::elements_of(srcShape), typeSize, false),
                           maxValue, minValue);
}
inline uint32_t GetGeluMaxTmpSize(const TensorShape& srcShape, const uint32_t typeSize) {
    return ascend_sim::tmp_sizes::kGelu.sizes(ascend_sim::host::elements_of(srcShape), typeSize, false).most;
}
inline uint32_t GetGeluMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize) {
    return ascend_sim::tmp_sizes::kGelu.sizes(ascend_sim::host::elements_of(srcShape), typeSize, false).least;
}
inline void GetClampMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool, uint32_t& maxValue,
                                  uint32_t& minValue) {
    const uint32_t n = ascend_sim::host::elements_of(srcShape);
    minValue = typeSize == 4 ? 64 : 128;
    maxValue = n > minValue ? n : minValue;
}
inline void GetClampTmpBufferFactorSize(const uint32_t, uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    ascend_sim::host::give_factor(1, maxLiveNodeCount, extraBuf);
}
inline void GetRoundMaxMinTmpSize(const platform_ascendc::PlatformAscendC& ascendcPlatform, const TensorShape& srcShape,
                                  const uint32_t typeSize, const bool, uint32_t& maxValue, uint32_t& minValue) {
    if (ascend_sim::host::is_950(ascendcPlatform)) return;
    ascend_sim::host::give(ascend_sim::round_arrays(ascend_sim::host::is_310p(ascendcPlatform))
                               .sizes(ascend_sim::host::elements_of(srcShape), typeSize, false),
                           maxValue, minValue);
}
inline void GetRoundTmpBufferFactorSize(const platform_ascendc::PlatformAscendC& ascendcPlatform,
                                        const uint32_t typeSize, uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    extraBuf = 0;
    if (ascend_sim::host::is_950(ascendcPlatform)) return;
    maxLiveNodeCount = ascend_sim::round_arrays(ascend_sim::host::is_310p(ascendcPlatform)).arrays(typeSize, false);
}
// A shape of one dimension of size 1 is a scalar.
inline void GetPowerMaxMinTmpSize(const TensorShape& srcShape1, const TensorShape& srcShape2, const bool typeIsInt,
                                  const uint32_t typeSize, const bool, uint32_t& maxValue, uint32_t& minValue) {
    const auto is_tensor = [](const TensorShape& s) { return s.GetDimNum() != 1 || s.GetDim(0) != 1; };
    const bool first = is_tensor(srcShape1), second = is_tensor(srcShape2), both = first && second;
    const uint32_t n = ascend_sim::host::elements_of(first ? srcShape1 : srcShape2);
    const bool is310p = ascend_sim::host::is_310p(), is950 = ascend_sim::host::is_950();
    ascend_sim::host::give(typeIsInt ? ascend_sim::int_power_sizes(n, both, is310p, is950)
                                     : ascend_sim::power_sizes(n, both, typeSize, is310p, is950),
                           maxValue, minValue);
}
inline void GetPowerTmpBufferFactorSize(const bool baseIsTensor, const bool expIsTensor, const bool typeIsInt,
                                        const uint32_t typeSize, uint32_t& maxLiveNodeCount, uint32_t& extraBuffer) {
    const bool both = baseIsTensor && expIsTensor, is310p = ascend_sim::host::is_310p(),
               is950 = ascend_sim::host::is_950();
    const uint32_t float_arrays = is950 ? 3 : ascend_sim::power_array_count(both, typeSize == 4 ? 4 : 2, is310p);
    const uint32_t int_arrays = is950 ? 0 : ascend_sim::int_power_array_count(both, is310p);
    maxLiveNodeCount = typeIsInt ? int_arrays : typeSize == 4 ? float_arrays : 2 * float_arrays;
    extraBuffer = typeIsInt || is950 ? 0 : ascend_sim::kPowerConstantBytes;
}

// ---- functions of shapes --------------------------------------------------------------------------------------------

inline void GetBroadCastMaxMinTmpSize(const platform_ascendc::PlatformAscendC& ascendcPlatform,
                                      const TensorShape& srcShape, const TensorShape& dstShape, uint32_t typeSize,
                                      const bool, uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    const size_t dims = dstShape.GetDimNum();
    const bool is950 = ascend_sim::host::is_950(ascendcPlatform);
    if (dims == 0 || srcShape.GetDimNum() != dims || typeSize == 0 || srcShape.GetShapeSize() <= 0) return;
    if (dims > 2 && !is950) return;
    for (size_t i = 0; i < dims; ++i)
        if (srcShape.GetDim(i) != dstShape.GetDim(i) && srcShape.GetDim(i) != 1) return;
    const uint32_t source = ascend_sim::host::elements_of(srcShape), all = ascend_sim::host::elements_of(dstShape);
    if (source == all || source == 1) {
        ascend_sim::host::give(ascend_sim::broadcast_sizes(1, source, 1, all, typeSize, false, false), maxValue,
                               minValue);
        return;
    }
    if (is950 || dims != 2) return;
    const bool is310p = ascend_sim::host::is_310p(ascendcPlatform);
    const uint32_t rows = size_of(dstShape, 0), columns = size_of(dstShape, 1), in_block = typeSize == 4 ? 8 : 16;
    if (srcShape.GetDim(1) != 1 ? columns % in_block != 0 : is310p && rows % in_block != 0) return;
    ascend_sim::host::give(
        ascend_sim::broadcast_sizes(size_of(srcShape, 0), size_of(srcShape, 1), rows, columns, typeSize, is310p, is950),
        maxValue, minValue);
}

inline void GetSumMaxMinTmpSize(const uint32_t n, const uint32_t typeSize, const bool, uint32_t& maxSize,
                                uint32_t& minSize) {
    if (n == 0 || (typeSize != 2 && typeSize != 4)) return;
    ascend_sim::host::give(ascend_sim::sum_sizes(n, typeSize), maxSize, minSize);
}
inline void GetMeanMaxMinTmpSize(const uint32_t n, const uint32_t srcTypeSize, const uint32_t accTypeSize, const bool,
                                 uint32_t& maxSize, uint32_t& minSize) {
    if (n == 0 || (srcTypeSize != 2 && srcTypeSize != 4) || (accTypeSize != 4 && accTypeSize != srcTypeSize)) return;
    ascend_sim::host::give(ascend_sim::mean_sizes(n, srcTypeSize, accTypeSize), maxSize, minSize);
}
inline void GetMeanTmpBufferFactorSize(const uint32_t, uint32_t& maxLiveNodeCount, uint32_t& extraBuffer) {
    ascend_sim::host::give_factor(1, maxLiveNodeCount, extraBuffer);
}

}  // namespace AscendC

namespace ascend_sim::host {

inline uint32_t bytes_of(ge::DataType type) {
    return type == ge::DT_FLOAT || type == ge::DT_INT32 ? 4 : type == ge::DT_FLOAT16 ? 2 : 1;
}
inline bool has_pattern_type(Fold fold, ge::DataType type) {
    if (type == ge::DT_FLOAT) return true;
    if (fold == Fold::Any || fold == Fold::All) return type == ge::DT_UINT8;
    const bool is_wide = type == ge::DT_INT32 || type == ge::DT_UINT32 || type == ge::DT_INT64 || type == ge::DT_UINT64;
    if (fold == Fold::Sum) return is_950() && is_wide;
    if (fold != Fold::Max && fold != Fold::Min) return false;
    const bool is_short = type == ge::DT_INT8 || type == ge::DT_UINT8 || type == ge::DT_INT16 ||
                          type == ge::DT_UINT16 || type == ge::DT_BF16;
    return type == ge::DT_FLOAT16 || (is_950() && (is_wide || is_short));
}
inline void give_pattern(Fold fold, const ge::Shape& shape, ge::DataType type, AscendC::ReducePattern pattern,
                         bool reuse, uint32_t& most, uint32_t& least) {
    const bool by_row = pattern == AscendC::ReducePattern::AR;
    const uint32_t first = size_of(shape, 0), last = size_of(shape, 1);
    if (!has_pattern_type(fold, type) || shape.GetDimNum() != 2 || first == 0 || last == 0 ||
        (!by_row && pattern != AscendC::ReducePattern::RA))
        return;
    // ReduceSum counts all types as float.
    give(pattern_sizes(fold, by_row, first, last, fold == Fold::Sum ? 4 : bytes_of(type), reuse), most, least);
}

}  // namespace ascend_sim::host

namespace AscendC {

#define ASCEND_SIM_PATTERN_SIZES(Name)                                                                               \
    inline void GetReduce##Name##MaxMinTmpSize(const TensorShape& srcShape, const TensorDataType dataType,           \
                                               ReducePattern pattern, bool, bool isReuseSource, uint32_t& maxValue,  \
                                               uint32_t& minValue) {                                                 \
        ascend_sim::host::give_pattern(ascend_sim::Fold::Name, srcShape, dataType, pattern, isReuseSource, maxValue, \
                                       minValue);                                                                    \
    }
ASCEND_SIM_PATTERN_SIZES(Sum)
ASCEND_SIM_PATTERN_SIZES(Mean)
ASCEND_SIM_PATTERN_SIZES(Max)
ASCEND_SIM_PATTERN_SIZES(Min)
ASCEND_SIM_PATTERN_SIZES(Prod)
ASCEND_SIM_PATTERN_SIZES(Any)
ASCEND_SIM_PATTERN_SIZES(All)
#undef ASCEND_SIM_PATTERN_SIZES

inline void GetAscendQuantMaxMinTmpSize(const TensorShape& srcShape, const uint32_t, uint32_t& maxValue,
                                        uint32_t& minValue) {
    ascend_sim::host::give(ascend_sim::quant_sizes(ascend_sim::host::elements_of(srcShape)), maxValue, minValue);
}
inline void GetAscendQuantTmpBufferFactorSize(uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    ascend_sim::host::give_factor(2, maxLiveNodeCount, extraBuf);
}
inline void GetAscendDequantMaxMinTmpSize(const TensorShape& srcShape, const uint32_t, uint32_t& maxValue,
                                          uint32_t& minValue) {
    const bool has_rows = srcShape.GetDimNum() == 2;
    if (!has_rows && srcShape.GetDimNum() != 1) return;
    ascend_sim::host::give(ascend_sim::dequant_sizes(has_rows ? ascend_sim::host::size_of(srcShape, 0) : 1,
                                                     ascend_sim::host::size_of(srcShape, has_rows)),
                           maxValue, minValue);
}
inline void GetAscendDequantTmpBufferFactorSize(const TensorShape& srcShape, uint32_t& maxLiveNodeCount,
                                                uint32_t& extraBuf) {
    const size_t dims = srcShape.GetDimNum();
    maxLiveNodeCount = dims == 2 ? 1 : dims == 1 ? 2 : 0;
    extraBuf = dims == 2 ? 72 + ascend_sim::host::size_of(srcShape, 1) : dims == 1 ? 72 : 0;
}
inline void GetAscendAntiQuantMaxMinTmpSize(const TensorShape& srcShape, const TensorShape& scaleShape,
                                            bool isTranspose, TensorDataType, TensorDataType outputDataType,
                                            uint32_t& maxValue, uint32_t& minValue) {
    uint32_t columns = 1;
    for (size_t i = 1; i < srcShape.GetDimNum(); ++i) columns *= ascend_sim::host::size_of(srcShape, i);
    ascend_sim::host::give(ascend_sim::anti_quant_sizes(ascend_sim::host::size_of(srcShape, 0), columns,
                                                        ascend_sim::host::elements_of(scaleShape), isTranspose,
                                                        outputDataType != ge::DT_FLOAT16),
                           maxValue, minValue);
}
inline void GetAscendAntiQuantTmpBufferFactorSize(const TensorShape& srcShape, const TensorShape& scaleShape,
                                                  bool isTranspose, TensorDataType, TensorDataType outputDataType,
                                                  uint32_t& maxLiveNodeCount, uint32_t& extraBuf) {
    const uint32_t scales = ascend_sim::host::elements_of(scaleShape);
    const bool is_half = outputDataType == ge::DT_FLOAT16;
    maxLiveNodeCount = !is_half && scales == 1;
    extraBuf = scales == 1 ? 0
                           : ascend_sim::anti_quant_sizes(ascend_sim::host::size_of(srcShape, 0), 1, scales,
                                                          isTranspose, !is_half)
                                 .most;
}
inline uint32_t GetAscendAntiQuantMaxTmpSize(const TensorShape& srcShape, const TensorShape& scaleShape,
                                             bool isTranspose, TensorDataType inputDataType,
                                             TensorDataType outputDataType) {
    uint32_t most = 0, least = 0;
    GetAscendAntiQuantMaxMinTmpSize(srcShape, scaleShape, isTranspose, inputDataType, outputDataType, most, least);
    return most;
}
inline uint32_t GetAscendAntiQuantMinTmpSize(const TensorShape& srcShape, const TensorShape& scaleShape,
                                             bool isTranspose, TensorDataType inputDataType,
                                             TensorDataType outputDataType) {
    uint32_t most = 0, least = 0;
    GetAscendAntiQuantMaxMinTmpSize(srcShape, scaleShape, isTranspose, inputDataType, outputDataType, most, least);
    return least;
}

// ---- functions that move elements -----------------------------------------------------------------------------------

inline void GetArangeMaxMinTmpSize(uint32_t& maxValue, uint32_t& minValue) { maxValue = minValue = 0; }
inline void GetArithProgressionMaxMinTmpSize(uint32_t& maxValue, uint32_t& minValue) { maxValue = minValue = 0; }
inline void GetCumSumMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isLastAxis,
                                   const bool, uint32_t& maxValue, uint32_t& minValue) {
    const uint32_t columns = ascend_sim::host::size_of(srcShape, 1);
    if (srcShape.GetDimNum() != 2 || (typeSize != 2 && typeSize != 4) || columns == 0 || columns * typeSize % 32)
        return;
    ascend_sim::host::give(ascend_sim::cum_sum_sizes(ascend_sim::host::size_of(srcShape, 0),
                                                     ascend_sim::host::size_of(srcShape, 1), typeSize, isLastAxis),
                           maxValue, minValue);
}
inline uint32_t GetDropOutMaxTmpSize(const TensorShape& srcShape, const uint32_t, const bool) {
    return ascend_sim::drop_out_sizes(ascend_sim::host::elements_of(srcShape)).most;
}
inline uint32_t GetDropOutMinTmpSize(const TensorShape& srcShape, const uint32_t, const bool) {
    return ascend_sim::drop_out_sizes(ascend_sim::host::elements_of(srcShape)).least;
}
inline void GetDropOutMaxMinTmpSize(const TensorShape& srcShape, const uint32_t, const bool, uint32_t& maxValue,
                                    uint32_t& minValue) {
    ascend_sim::host::give(ascend_sim::drop_out_sizes(ascend_sim::host::elements_of(srcShape)), maxValue, minValue);
}
inline void GetSelectMaxMinTmpSize(const TensorShape& src0Shape, const TensorShape& src1Shape, const uint32_t,
                                   const TensorShape& maskShape, const uint32_t maskTypeSize, const bool isReuseMask,
                                   uint32_t& maxValue, uint32_t& minValue) {
    const bool is_scalar = src0Shape.GetDimNum() == 0 || src0Shape.GetShapeSize() == 1;
    const TensorShape& source = is_scalar ? src1Shape : src0Shape;
    if (source.GetDimNum() == 0 || maskShape.GetDimNum() == 0) return;
    ascend_sim::host::give(
        ascend_sim::select_sizes(ascend_sim::host::elements_of(source), ascend_sim::host::rows_of(source).k,
                                 ascend_sim::host::rows_of(maskShape).k, maskTypeSize, isReuseMask),
        maxValue, minValue);
}
inline void GetSelectWithBytesMaskMaxMinTmpSize(const TensorShape& src0Shape, const TensorShape& src1Shape,
                                                const uint32_t srcTypeSize, const TensorShape& maskShape,
                                                const uint32_t maskTypeSize, const bool isReuseMask, uint32_t& maxValue,
                                                uint32_t& minValue) {
    GetSelectMaxMinTmpSize(src0Shape, src1Shape, srcTypeSize, maskShape, maskTypeSize, isReuseMask, maxValue, minValue);
}
#define ASCEND_SIM_SELECT_SIZE(Name, size)                                                                            \
    inline uint32_t Name(const TensorShape& src0Shape, const TensorShape& src1Shape, const uint32_t srcTypeSize,      \
                         const TensorShape& maskShape, const uint32_t maskTypeSize, const bool isReuseMask) {         \
        uint32_t most = 0, least = 0;                                                                                 \
        GetSelectMaxMinTmpSize(src0Shape, src1Shape, srcTypeSize, maskShape, maskTypeSize, isReuseMask, most, least); \
        return size;                                                                                                  \
    }
ASCEND_SIM_SELECT_SIZE(GetSelectMaxTmpSize, most)
ASCEND_SIM_SELECT_SIZE(GetSelectMinTmpSize, least)
ASCEND_SIM_SELECT_SIZE(GetSelectWithBytesMaskMaxTmpSize, most)
ASCEND_SIM_SELECT_SIZE(GetSelectWithBytesMaskMinTmpSize, least)
#undef ASCEND_SIM_SELECT_SIZE
inline void GetPadMaxMinTmpSize(const TensorShape& srcShape, const uint32_t, uint32_t& maxValue, uint32_t& minValue) {
    ascend_sim::host::give(ascend_sim::pad_sizes(ascend_sim::host::elements_of(srcShape)), maxValue, minValue);
}
inline void GetUnPadMaxMinTmpSize(const platform_ascendc::PlatformAscendC& ascendcPlatform, const TensorShape& srcShape,
                                  const uint32_t, uint32_t& maxValue, uint32_t& minValue) {
    const bool is310p = ascend_sim::host::is_310p(ascendcPlatform);
    ascend_sim::host::give(
        is310p ? ascend_sim::pad_sizes(ascend_sim::host::elements_of(srcShape)) : ascend_sim::TmpSizes{0, 0}, maxValue,
        minValue);
}
inline uint32_t GetConcatTmpSize(const platform_ascendc::PlatformAscendC& ascendcPlatform, const uint32_t elemCount,
                                 const uint32_t dataTypeSize) {
    return ascend_sim::host::is_310p(ascendcPlatform) ? elemCount * 8 * dataTypeSize : 0;
}
inline uint32_t GetSortTmpSize(const platform_ascendc::PlatformAscendC& ascendcPlatform, const uint32_t elemCount,
                               const uint32_t dataTypeSize) {
    // Proposals of 8 elements on Ascend310P, else pairs of 8 bytes.
    return elemCount * 8 * (ascend_sim::host::is_310p(ascendcPlatform) ? dataTypeSize : 1);
}

}  // namespace AscendC
