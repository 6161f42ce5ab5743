// The tilings of library functions, such as SoftMaxTilingFunc() and GetLayerNormNDTilingInfo(), and their temporary
// memory. A tiling function fills the class of optiling or the kernel's struct.
//
// Source: the pages of the tilings, such as SoftMax/SimpleSoftMax Tiling and LayerNorm Tiling; the formulas are in
// include/ascendc/library/softmax_tiling.h, norm_tiling.h, group_norm_tiling.h and pad_tiling.h.
#pragma once

#include <cstring>

#include "include/ascendc/library/group_norm_tiling.h"
#include "include/ascendc/library/pad_tiling.h"
#include "include/ascendc/library/softmax_tiling.h"
#include "tiling/library_shapes.h"

namespace ascend_sim::host {

// SoftMax and the functions related to it take half and float. For other types, the functions below return 0.
inline bool is_softmax_type(uint32_t type_bytes) { return type_bytes == 2 || type_bytes == 4; }

// {0, 0} for types that softmax lacks.
inline TmpSizes flash_v2_sizes(const AscendC::TensorShape& shape, uint32_t type_bytes, uint32_t result_bytes,
                               bool update, bool basic_block, bool without_broadcast) {
    if (!is_softmax_type(type_bytes) || !is_softmax_type(result_bytes)) return {0, 0};
    const auto rows = rows_of(shape);
    return softmax_flash_v2_sizes(rows.m, rows.k, type_bytes, result_bytes, update, basic_block, without_broadcast,
                                  is_950());
}

}  // namespace ascend_sim::host

namespace AscendC {

// ---- softmax --------------------------------------------------------------------------------------------------------

#define ASCEND_SIM_SOFTMAX_SIZE(Name, Shape, size)                                                     \
    inline uint32_t Name(Shape srcShape, const uint32_t dataTypeSize, const bool) {                    \
        if (!ascend_sim::host::is_softmax_type(dataTypeSize)) return 0;                                \
        const auto rows = ascend_sim::host::rows_of(srcShape);                                         \
        return ascend_sim::softmax_sizes(ascend_sim::SoftmaxKind::Plain, rows.m, rows.k, dataTypeSize, \
                                         ascend_sim::host::is_950())                                   \
            .size;                                                                                     \
    }
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxMaxTmpSize, const TensorShape&, most)
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxMinTmpSize, const TensorShape&, least)
ASCEND_SIM_SOFTMAX_SIZE(GetLogSoftMaxMaxTmpSize, const TensorShape, most)
ASCEND_SIM_SOFTMAX_SIZE(GetLogSoftMaxMinTmpSize, const TensorShape, least)
#undef ASCEND_SIM_SOFTMAX_SIZE
#define ASCEND_SIM_SOFTMAX_SIZE(Name, on, off, size)                                                                \
    inline uint32_t Name(const TensorShape& srcShape, const uint32_t dataTypeSize, const bool flag, const bool) {   \
        if (!ascend_sim::host::is_softmax_type(dataTypeSize)) return 0;                                             \
        const auto rows = ascend_sim::host::rows_of(srcShape);                                                      \
        return ascend_sim::softmax_sizes(flag ? ascend_sim::SoftmaxKind::on : ascend_sim::SoftmaxKind::off, rows.m, \
                                         rows.k, dataTypeSize, ascend_sim::host::is_950())                          \
            .size;                                                                                                  \
    }
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxFlashMaxTmpSize, FlashUpdate, Plain, most)
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxFlashMinTmpSize, FlashUpdate, Plain, least)
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxGradMaxTmpSize, GradFront, Grad, most)
ASCEND_SIM_SOFTMAX_SIZE(GetSoftMaxGradMinTmpSize, GradFront, Grad, least)
#undef ASCEND_SIM_SOFTMAX_SIZE
inline uint32_t GetSoftMaxFlashV2MaxTmpSize(const TensorShape& srcShape, const uint32_t dataTypeSize1,
                                            const uint32_t dataTypeSize2, const bool isUpdate,
                                            const bool isBasicBlock = false, const bool isFlashOutputBrc = false) {
    return ascend_sim::host::flash_v2_sizes(srcShape, dataTypeSize1, dataTypeSize2, isUpdate, isBasicBlock,
                                            isFlashOutputBrc)
        .most;
}
inline uint32_t GetSoftMaxFlashV2MinTmpSize(const TensorShape& srcShape, const uint32_t dataTypeSize1,
                                            const uint32_t dataTypeSize2, const bool isUpdate,
                                            const bool isBasicBlock = false, const bool isFlashOutputBrc = false) {
    return ascend_sim::host::flash_v2_sizes(srcShape, dataTypeSize1, dataTypeSize2, isUpdate, isBasicBlock,
                                            isFlashOutputBrc)
        .least;
}

}  // namespace AscendC

namespace ascend_sim::host {

inline bool is_basic_softmax(uint32_t k, uint32_t tail_rows, uint32_t type_bytes) {
    return is_softmax_type(type_bytes) && tail_rows == 0 && k >= 256 / type_bytes && k < 2048 && k % 64 == 0;
}
inline bool is_basic_softmax(optiling::SoftMaxTiling& t, uint32_t type_bytes) {
    return is_basic_softmax(t.get_srcK(), t.get_tailM(), type_bytes);
}
inline bool is_basic_softmax(const AscendC::tiling::SoftMaxTiling& t, uint32_t type_bytes) {
    return is_basic_softmax(t.srcK, t.tailM, type_bytes);
}

template <class S>
void softmax_tiling_of(const ge::Shape& shape, uint32_t type_bytes, uint32_t bytes, SoftmaxKind kind, S& to) {
    const Rows rows = rows_of(shape);
    if (rows.m && is_softmax_type(type_bytes)) assign(to, softmax_tiling(rows.m, rows.k, type_bytes, bytes, kind));
}
template <class S>
void log_softmax_tiling_of(const ge::Shape& shape, uint32_t type_bytes, uint32_t bytes, S& to) {
    const Rows rows = rows_of(shape);
    if (rows.m == 0 || !is_softmax_type(type_bytes)) return;
    const AscendC::tiling::SoftMaxTiling plain = softmax_tiling(rows.m, rows.k, type_bytes, bytes);
    AscendC::tiling::LogSoftMaxTiling same;
    static_assert(sizeof same == sizeof plain);
    std::memcpy(static_cast<void*>(&same), &plain, sizeof same);
    assign(to, same);
}
template <class S>
void softmax_flash_v2_tiling_of(const ge::Shape& shape, uint32_t type_bytes, uint32_t result_bytes, uint32_t bytes,
                                bool basic_block, bool without_broadcast, S& to) {
    const Rows rows = rows_of(shape);
    if (rows.m && is_softmax_type(type_bytes) && is_softmax_type(result_bytes))
        assign(to, softmax_flash_v2_tiling(rows.m, rows.k, type_bytes, result_bytes, bytes, basic_block,
                                           without_broadcast));
}

}  // namespace ascend_sim::host

namespace AscendC {

#define ASCEND_SIM_SOFTMAX_TILINGS(space)                                                                           \
    inline void SoftMaxTilingFunc(const TensorShape& srcShape, const uint32_t dataTypeSize,                         \
                                  const uint32_t localWorkSpaceSize, space::SoftMaxTiling& softmaxTiling) {         \
        ascend_sim::host::softmax_tiling_of(srcShape, dataTypeSize, localWorkSpaceSize,                             \
                                            ascend_sim::SoftmaxKind::Plain, softmaxTiling);                         \
    }                                                                                                               \
    inline void LogSoftMaxTilingFunc(const TensorShape srcShape, const uint32_t dataTypeSize,                       \
                                     const uint32_t localWorkSpaceSize, space::LogSoftMaxTiling& softmaxTiling) {   \
        ascend_sim::host::log_softmax_tiling_of(srcShape, dataTypeSize, localWorkSpaceSize, softmaxTiling);         \
    }                                                                                                               \
    inline void SoftMaxFlashTilingFunc(const TensorShape& srcShape, const uint32_t dataTypeSize,                    \
                                       const uint32_t localWorkSpaceSize, space::SoftMaxTiling& softmaxFlashTiling, \
                                       const bool isUpdate = false) {                                               \
        ascend_sim::host::softmax_tiling_of(                                                                        \
            srcShape, dataTypeSize, localWorkSpaceSize,                                                             \
            isUpdate ? ascend_sim::SoftmaxKind::FlashUpdate : ascend_sim::SoftmaxKind::Plain, softmaxFlashTiling);  \
    }                                                                                                               \
    inline void SoftMaxGradTilingFunc(const TensorShape& srcShape, const uint32_t dataTypeSize,                     \
                                      const uint32_t localWorkSpaceSize, space::SoftMaxTiling& softmaxGradTiling,   \
                                      const bool isFront = false) {                                                 \
        ascend_sim::host::softmax_tiling_of(                                                                        \
            srcShape, dataTypeSize, localWorkSpaceSize,                                                             \
            isFront ? ascend_sim::SoftmaxKind::GradFront : ascend_sim::SoftmaxKind::Grad, softmaxGradTiling);       \
    }                                                                                                               \
    inline void SoftMaxFlashV2TilingFunc(const TensorShape& srcShape, const uint32_t dataTypeSize1,                 \
                                         const uint32_t dataTypeSize2, const uint32_t localWorkSpaceSize,           \
                                         space::SoftMaxTiling& softmaxFlashTiling, const bool,                      \
                                         const bool isBasicBlock = false, const bool isFlashOutputBrc = false) {    \
        ascend_sim::host::softmax_flash_v2_tiling_of(srcShape, dataTypeSize1, dataTypeSize2, localWorkSpaceSize,    \
                                                     isBasicBlock, isFlashOutputBrc, softmaxFlashTiling);           \
    }                                                                                                               \
    inline bool IsBasicBlockInSoftMax(space::SoftMaxTiling& tiling, const uint32_t dataTypeSize = 2) {              \
        return ascend_sim::host::is_basic_softmax(tiling, dataTypeSize);                                            \
    }

ASCEND_SIM_SOFTMAX_TILINGS(optiling)
ASCEND_SIM_SOFTMAX_TILINGS(AscendC::tiling)
#undef ASCEND_SIM_SOFTMAX_TILINGS

// ---- norms ----------------------------------------------------------------------------------------------------------
//
// A shape is [B, S, H], [B, S, H, original H], [N, C, H, W] or [A, R].

inline void GetLayerNormMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                      uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    ascend_sim::host::give(ascend_sim::layer_norm_sizes(size_of(srcShape, 0) * size_of(srcShape, 1),
                                                        size_of(srcShape, 2), typeSize, isReuseSource),
                           maxValue, minValue);
}
inline void GetLayerNormMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool,
                                      const bool isComputeRstd, const bool isOnlyOutput, uint32_t& maxValue,
                                      uint32_t& minValue) {
    using ascend_sim::host::size_of;
    const bool is950 = ascend_sim::host::is_950();
    if (isOnlyOutput || typeSize == 0 || (!is950 && !isComputeRstd)) return;
    const uint32_t a = size_of(srcShape, 0);
    ascend_sim::host::give(
        is950 ? ascend_sim::layer_norm_separate_sizes_950(a, ascend_sim::host::rows_of(srcShape).k, isComputeRstd)
              : ascend_sim::layer_norm_separate_sizes(a, size_of(srcShape, 1), typeSize),
        maxValue, minValue);
}
inline void GetNormalizeMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSizeU, const uint32_t typeSizeT,
                                      const bool, const bool isComputeRstd, const bool isOnlyOutput, uint32_t& maxValue,
                                      uint32_t& minValue) {
    using ascend_sim::host::size_of;
    if (!isComputeRstd || isOnlyOutput || typeSizeU == 0 || typeSizeT == 0) return;
    ascend_sim::host::give(
        ascend_sim::host::is_950()
            ? ascend_sim::TmpSizes{0, 0}
            : ascend_sim::normalize_sizes(size_of(srcShape, 0), size_of(srcShape, 1), typeSizeU, typeSizeT),
        maxValue, minValue);
}
inline void GetWelfordUpdateMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSizeT, const uint32_t,
                                          const bool isReuseSource, const bool, uint32_t& maxValue,
                                          uint32_t& minValue) {
    using ascend_sim::host::size_of;
    ascend_sim::host::give(
        ascend_sim::host::is_950()
            ? ascend_sim::TmpSizes{0, 0}
            : ascend_sim::welford_update_sizes(size_of(srcShape, 0), size_of(srcShape, 1), typeSizeT, isReuseSource),
        maxValue, minValue);
}
inline void GetWelfordFinalizeMaxMinTmpSize(const TensorShape& srcShape, const uint32_t, const bool, uint32_t& maxValue,
                                            uint32_t& minValue) {
    const uint32_t n =
        ascend_sim::host::is_950() ? ascend_sim::host::rows_of(srcShape).k : ascend_sim::host::size_of(srcShape, 0);
    if (!ascend_sim::host::is_950() && (srcShape.GetDimNum() != 1 || n == 0 || n % 8)) return;
    ascend_sim::host::give(
        ascend_sim::host::is_950() ? ascend_sim::welford_finalize_sizes_950(n) : ascend_sim::welford_finalize_sizes(n),
        maxValue, minValue);
}
inline bool GetRmsNormMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, uint32_t& maxValue,
                                    uint32_t& minValue, const bool isBasicBlock = false) {
    using ascend_sim::host::size_of;
    const uint32_t rows = size_of(srcShape, 0) * size_of(srcShape, 1), h = size_of(srcShape, 2);
    if (typeSize == 0 || (isBasicBlock && !ascend_sim::is_rms_norm_basic_block(rows, h))) return false;
    ascend_sim::host::give(ascend_sim::rms_norm_sizes(rows, h, typeSize), maxValue, minValue);
    return true;
}
inline bool GetDeepNormMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                     const bool isBasicBlock, uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    const uint32_t rows = size_of(srcShape, 0) * size_of(srcShape, 1), h = size_of(srcShape, 2);
    if (isBasicBlock && (h == 0 || h % 64 || rows % 8)) return false;
    ascend_sim::host::give(ascend_sim::layer_norm_sizes(rows, h, typeSize, isReuseSource), maxValue, minValue);
    return true;
}
inline bool GetBatchNormMaxMinTmpSize(const TensorShape& srcShape, const TensorShape& originSrcShape,
                                      const uint32_t typeSize, const bool, uint32_t& maxValue, uint32_t& minValue,
                                      const bool isBasicBlock = false) {
    using ascend_sim::host::size_of;
    const uint32_t b = size_of(originSrcShape, 0), sh = size_of(srcShape, 1) * size_of(srcShape, 2);
    if (isBasicBlock && !ascend_sim::is_batch_norm_basic_block(b, sh)) return false;
    ascend_sim::host::give(ascend_sim::batch_norm_sizes(b, sh, typeSize, isBasicBlock), maxValue, minValue);
    return true;
}
inline void GetGroupNormMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool isReuseSource,
                                      const uint32_t groupNum, uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    if (typeSize == 0 || groupNum == 0) return;
    ascend_sim::host::give(
        ascend_sim::group_norm_sizes({size_of(srcShape, 0), size_of(srcShape, 1),
                                      size_of(srcShape, 2) * size_of(srcShape, 3), groupNum, typeSize},
                                     isReuseSource),
        maxValue, minValue);
}
inline void GetLayerNormGradMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize,
                                          const bool isReuseSource, uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    ascend_sim::host::give(
        ascend_sim::layer_norm_grad_sizes(size_of(srcShape, 0) * size_of(srcShape, 1), size_of(srcShape, 2), typeSize,
                                          isReuseSource, ascend_sim::host::is_950()),
        maxValue, minValue);
}
inline void GetLayerNormGradBetaMaxMinTmpSize(const TensorShape& srcShape, const uint32_t typeSize, const bool,
                                              uint32_t& maxValue, uint32_t& minValue) {
    using ascend_sim::host::size_of;
    ascend_sim::host::give(ascend_sim::layer_norm_grad_beta_sizes(size_of(srcShape, 0) * size_of(srcShape, 1),
                                                                  size_of(srcShape, 2), typeSize),
                           maxValue, minValue);
}

}  // namespace AscendC

namespace ascend_sim::host {

inline bool has_same_rows(const ge::Shape& shape, const ge::Shape& original) {
    return shape.GetDimNum() == 3 && original.GetDimNum() == 3 && shape.GetDim(0) == original.GetDim(0) &&
           shape.GetDim(1) == original.GetDim(1) && original.GetDim(2) > 0 && original.GetDim(2) <= shape.GetDim(2);
}
// Assigns a tiling if the memory suffices for one round of its kernel; otherwise the rounds are empty.
template <class S, class T>
bool assign_if(bool has_round, S& to, const T& from) {
    if (has_round) assign(to, from);
    return has_round;
}
template <class S>
bool rms_norm_tiling_of(const ge::Shape& shape, const ge::Shape& original, uint32_t bytes, uint32_t type_bytes,
                        bool basic_block, S& to) {
    const uint32_t b = size_of(shape, 0), s = size_of(shape, 1), h = size_of(shape, 2);
    if (!has_same_rows(shape, original) || h * type_bytes % 32 || (basic_block && !is_rms_norm_basic_block(b * s, h)) ||
        bytes < rms_norm_sizes(b * s, h, type_bytes).least)
        return false;
    assign(to, rms_norm_tiling(b, s, h, size_of(original, 2), bytes, type_bytes, basic_block));
    return true;
}
template <class S>
bool deep_norm_tiling_of(const ge::Shape& shape, const ge::Shape& original, uint32_t bytes, uint32_t type_bytes,
                         bool reuse, bool basic_block, S& to) {
    constexpr uint32_t kLongest = 2040;
    const uint32_t b = size_of(shape, 0), s = size_of(shape, 1), h = size_of(shape, 2), k = size_of(original, 2);
    if (!has_same_rows(shape, original) || h * type_bytes % 32 || h > kLongest ||
        (basic_block && (h % 64 || b * s % 8 || k != h)) || bytes < layer_norm_sizes(b * s, h, type_bytes, reuse).least)
        return false;
    const auto tiling =
        layer_norm_tiling<AscendC::tiling::DeepNormTiling>(b, s, h, k, bytes, type_bytes, reuse, basic_block);
    return assign_if(tiling.oneTmpSize, to, tiling);
}
template <class S>
bool batch_norm_tiling_of(const ge::Shape& shape, const ge::Shape& original, uint32_t bytes, uint32_t type_bytes,
                          bool basic_block, S& to) {
    const uint32_t b = size_of(original, 0), sh = size_of(shape, 1) * size_of(shape, 2);
    if (shape.GetDimNum() != 3 || original.GetDimNum() != 3 || sh * type_bytes % 32 ||
        (basic_block && !is_batch_norm_basic_block(b, sh)) ||
        bytes < batch_norm_sizes(b, sh, type_bytes, basic_block).least)
        return false;
    const auto tiling = batch_norm_tiling(b, sh, bytes, type_bytes, basic_block);
    return assign_if(tiling.oneTmpSize, to, tiling);
}

}  // namespace ascend_sim::host

namespace AscendC {

#define ASCEND_SIM_NORM_TILINGS(space)                                                                                 \
    inline void GetLayerNormNDTilingInfo(const TensorShape& srcShape, const uint32_t stackBufferSize,                  \
                                         const uint32_t typeSize, const bool isReuseSource,                            \
                                         space::LayerNormTiling& tiling) {                                             \
        using ascend_sim::host::size_of;                                                                               \
        const auto t = ascend_sim::layer_norm_tiling(size_of(srcShape, 0), size_of(srcShape, 1), size_of(srcShape, 2), \
                                                     size_of(srcShape, 3), stackBufferSize, typeSize, isReuseSource);  \
        ascend_sim::host::assign_if(t.oneTmpSize, tiling, t);                                                          \
    }                                                                                                                  \
    inline void GetLayerNormNDTilingInfo(const TensorShape& srcShape, const uint32_t stackBufferSize,                  \
                                         const uint32_t typeSize, const bool, const bool,                              \
                                         space::LayerNormSeparateTiling& tiling) {                                     \
        using ascend_sim::host::size_of;                                                                               \
        const auto t = ascend_sim::host::is_950()                                                                      \
                           ? ascend_sim::layer_norm_separate_tiling_950(ascend_sim::host::rows_of(srcShape).k)         \
                           : ascend_sim::layer_norm_separate_tiling(size_of(srcShape, 0), size_of(srcShape, 1),        \
                                                                    stackBufferSize, typeSize);                        \
        ascend_sim::host::assign_if(t.oneTmpSize, tiling, t);                                                          \
    }                                                                                                                  \
    inline bool GetRmsNormTilingInfo(const TensorShape& srcShape, const TensorShape& originSrcShape,                   \
                                     const uint32_t stackBufferByteSize, const uint32_t typeSize,                      \
                                     space::RmsNormTiling& tiling, const bool isBasicBlock = false) {                  \
        return ascend_sim::host::rms_norm_tiling_of(srcShape, originSrcShape, stackBufferByteSize, typeSize,           \
                                                    isBasicBlock, tiling);                                             \
    }                                                                                                                  \
    inline bool GetDeepNormTilingInfo(                                                                                 \
        const TensorShape& srcShape, const TensorShape& originSrcShape, const uint32_t stackBufferSize,                \
        const uint32_t typeSize, const bool isReuseSource, const bool isBasicBlock, space::DeepNormTiling& tiling) {   \
        return ascend_sim::host::deep_norm_tiling_of(srcShape, originSrcShape, stackBufferSize, typeSize,              \
                                                     isReuseSource, isBasicBlock, tiling);                             \
    }                                                                                                                  \
    inline bool GetBatchNormNDTilingInfo(const TensorShape& srcShape, const TensorShape& originSrcShape,               \
                                         const uint32_t stackBufferByteSize, const uint32_t typeSize, const bool,      \
                                         space::BatchNormTiling& tilling, const bool isBasicBlock = false) {           \
        return ascend_sim::host::batch_norm_tiling_of(srcShape, originSrcShape, stackBufferByteSize, typeSize,         \
                                                      isBasicBlock, tilling);                                          \
    }                                                                                                                  \
    inline void GetGroupNormNDTilingInfo(const TensorShape& srcShape, const uint32_t stackBufferSize,                  \
                                         const uint32_t typeSize, const bool isReuseSource, const uint32_t groupNum,   \
                                         space::GroupNormTiling& tiling) {                                             \
        using ascend_sim::host::size_of;                                                                               \
        if (typeSize == 0 || groupNum == 0) return;                                                                    \
        const auto t =                                                                                                 \
            ascend_sim::group_norm_tiling({size_of(srcShape, 0), size_of(srcShape, 1),                                 \
                                           size_of(srcShape, 2) * size_of(srcShape, 3), groupNum, typeSize},           \
                                          stackBufferSize, isReuseSource);                                             \
        ascend_sim::host::assign_if(t.oneTmpSize, tiling, t);                                                          \
    }                                                                                                                  \
    inline void GetLayerNormGradNDTilingInfo(const TensorShape srcShape, const uint32_t stackBufferSize,               \
                                             const uint32_t typeSize, const bool isReuseSource,                        \
                                             space::LayerNormGradTiling& tiling) {                                     \
        using ascend_sim::host::size_of;                                                                               \
        const auto t = ascend_sim::layer_norm_grad_tiling(size_of(srcShape, 0), size_of(srcShape, 1),                  \
                                                          size_of(srcShape, 2), size_of(srcShape, 3), stackBufferSize, \
                                                          typeSize, isReuseSource, ascend_sim::host::is_950());        \
        ascend_sim::host::assign_if(t.oneCalSize, tiling, t);                                                          \
    }                                                                                                                  \
    inline void GetLayerNormGradBetaNDTilingInfo(const TensorShape srcShape, const uint32_t stackBufferSize,           \
                                                 const uint32_t typeSize, const bool,                                  \
                                                 space::LayerNormGradBetaTiling& tiling) {                             \
        using ascend_sim::host::size_of;                                                                               \
        const auto t =                                                                                                 \
            ascend_sim::layer_norm_grad_beta_tiling(size_of(srcShape, 0), size_of(srcShape, 1), size_of(srcShape, 2),  \
                                                    size_of(srcShape, 3), stackBufferSize, typeSize);                  \
        ascend_sim::host::assign_if(t.oneCalSize, tiling, t);                                                          \
    }                                                                                                                  \
    inline void PadTilingFunc(const TensorShape srcShape, const TensorShape oriSrcShape,                               \
                              const uint32_t stackBufferSize, const uint32_t typeSize, space::PadTiling& tiling) {     \
        using ascend_sim::host::size_of;                                                                               \
        if (typeSize == 0) return;                                                                                     \
        ascend_sim::host::assign(tiling, ascend_sim::pad_tiling(size_of(srcShape, 0), size_of(srcShape, 1),            \
                                                                size_of(oriSrcShape, 1), stackBufferSize, typeSize));  \
    }                                                                                                                  \
    inline void UnPadTilingFunc(const TensorShape srcShape, const uint32_t stackBufferSize, const uint32_t typeSize,   \
                                space::UnPadTiling& tiling) {                                                          \
        using ascend_sim::host::size_of;                                                                               \
        if (typeSize == 0) return;                                                                                     \
        ascend_sim::host::assign(                                                                                      \
            tiling, ascend_sim::un_pad_tiling(size_of(srcShape, 0), size_of(srcShape, 1), stackBufferSize, typeSize)); \
    }
ASCEND_SIM_NORM_TILINGS(optiling)
ASCEND_SIM_NORM_TILINGS(AscendC::tiling)
#undef ASCEND_SIM_NORM_TILINGS

// An older name.
inline void GetLayerNormNDTillingInfo(const TensorShape& srcShape, const uint32_t stackBufferSize,
                                      const uint32_t typeSize, const bool isReuseSource,
                                      optiling::LayerNormTiling& tilling) {
    GetLayerNormNDTilingInfo(srcShape, stackBufferSize, typeSize, isReuseSource, tilling);
}

}  // namespace AscendC
