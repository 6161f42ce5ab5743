// AscendQuant, AscendDequant, AscendAntiQuant: int8 from and to floating point, with scales and offsets.
//
// AscendQuant: half and float to int8, with a scale and an offset for all elements or for each of scaleCount columns.
//   y = int8(half(x) * scale + offset), computed in half and rounded to nearest even. Float scales and offsets become
//   half in their own memory. dst may be src.
// AscendDequant: int32 to half, bfloat16 or float, with one scale for all elements or for each column.
//   y = x * scale in float, for the first calCount elements of a row. A uint64 scale, for half, holds a float in its
//   low 32 bits. Rows of n int32 have whole 32-byte blocks; rows of the result are filled to whole blocks.
// AscendAntiQuant: int8 (int4 on Ascend910B) to half or, except on Ascend310P, to bfloat16.
//   y = (x + offset) * scale, computed in half, or in float for bfloat16.
// Not simulated: scales by token or group (Ascend950), fp8 and fp4.
// Cost: the sum of the instructions; AscendDequant is one instruction on Ascend950.
// Pages: AscendQuant, AscendDequant, AscendAntiQuant. The steps are those of asc-devkit's
// impl/adv_api/detail/quantization.
#pragma once

#include "ascendc/gather_mask.h"
#include "ascendc/library/norm_steps.h"
#include "ascendc/library/quant_sizes.h"

namespace AscendC {

struct AscendQuantConfig {
    uint32_t calcCount = 0, offsetCount = 0, scaleCount = 0, workLocalSize = 0;
};
constexpr AscendQuantConfig ASCEND_QUANT_DEFAULT_CFG = {0, 0, 0, 0};

enum class DeQuantMode { DEQUANT_WITH_SINGLE_ROW = 0, DEQUANT_WITH_MULTI_ROW };
struct DequantParams {
    uint32_t m, n, calCount;
};
struct AntiQuantShapeInfo {
    uint32_t offsetHeight{0}, offsetWidth{0}, scaleHeight{0}, scaleWidth{0};
};

}  // namespace AscendC

namespace ascend_sim {

template <class T>
using Tensor = AscendC::LocalTensor<T>;

// ---- AscendQuant --------------------------------------------------------------------------------------------------

// Quantizes n elements. Scale and Offset: half, or a tensor of halves.
template <class T, class Scale, class Offset>
void quantize_elements(NormSteps& steps, const Tensor<int8_t>& dst, const Tensor<T>& src, const Tensor<half>& tmp,
                       const Scale& scale, const Offset& offset, uint32_t n) {
    constexpr bool kHasScales = !std::is_same_v<Scale, half>, kHasOffsets = !std::is_same_v<Offset, half>;
    const uint32_t chunk = tmp.GetSize() / 32 * 32;
    for (uint32_t first = 0; first < n; first += chunk) {
        steps.set_count(std::min<uint32_t>(n - first, chunk));
        Tensor<half> x = src.template ReinterpretCast<half>()[first];
        if constexpr (sizeof(T) == 4) {
            steps.cast(tmp, src[first], RoundMode::CAST_NONE);
            x = tmp;
        }
        if constexpr (kHasScales)
            steps.mul(tmp, x, scale[first]);
        else
            steps.muls(tmp, x, scale);
        if constexpr (kHasOffsets)
            steps.add(tmp, tmp, offset[first]);
        else
            steps.adds(tmp, tmp, offset);
        steps.cast(dst[first], tmp, kIs950 ? RoundMode::CAST_RINT : RoundMode::CAST_NONE);
    }
}

// Converts n elements between half and float although dst and src overlap, as CANN's own functions do.
template <class D, class S>
void cast_in_place(Site site, const Tensor<D>& dst, const Tensor<S>& src, uint32_t n) {
    const std::vector<S> values(src.data(), src.data() + n);
    run_instruction("Cast", site, first_elements("sharedTmpBuffer", dst, n), first_elements("sharedTmpBuffer", src, n),
                    repeats_of(n * 4), Cost::Repeat, [&] {
                        for (uint32_t i = 0; i < n; ++i) dst.data()[i] = Arithmetic<D>().narrow(float(values[i]));
                    });
}
// Returns n scales or offsets as halves. Converts floats in place.
template <class T>
Tensor<half> as_halves(NormSteps& steps, const Tensor<T>& t, uint32_t n) {
    const Tensor<half> halves = t.template ReinterpretCast<half>();
    if constexpr (sizeof(T) == 4) cast_in_place(steps.site(), halves, t, n);
    return halves;
}

// Quantizes n elements. `scales` has a scale for each of `columns` columns; null if `scale` is that of all elements.
// `offsets` has an offset for each column; null if `offset` is that of all elements.
template <class T>
void quantize(const Call& call, const Tensor<int8_t>& dst, const Tensor<T>& src, const Tensor<uint8_t>* shared,
              const Tensor<T>* scales, float scale, const Tensor<T>* offsets, float offset, uint32_t columns,
              uint32_t offset_count, uint32_t n) {
    if (n % kBlockBytes) call.report(Rule::Count04, "calCount must be a multiple of 32 but is %u.", n);
    if (scales && (columns == 0 || n % columns || columns * sizeof(T) % kBlockBytes))
        call.report(Rule::Count04, "scaleCount (%u) must be whole 32-byte blocks and divide calCount (%u).", columns,
                    n);
    if (offsets && offset_count != columns)
        call.report(Rule::Count04, "offsetCount (%u) must be scaleCount (%u).", offset_count, columns);
    const Range dst_bytes = call.check_operand("dstTensor", dst, n),
                src_bytes = call.check_operand("srcTensor", src, n);
    call.check_same_or_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    const auto tmp = call.temporary_memory(shared, quant_sizes(n));
    call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", dst_bytes);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", src_bytes);
    const Tensor<half> work = tmp.template ReinterpretCast<half>();
    NormSteps steps(call.site());
    if (!scales) {
        quantize_elements(steps, dst, src, work, half(scale), half(offset), n);
    } else {
        call.check_operand("scaleTensor", *scales, columns);
        const Tensor<half> scale_row = as_halves(steps, *scales, columns);
        Tensor<half> offset_row;
        if (offsets) {
            call.check_operand("offsetTensor", *offsets, columns);
            offset_row = as_halves(steps, *offsets, columns);
        }
        for (uint32_t first = 0; first < n; first += columns) {
            if (offsets)
                quantize_elements(steps, dst[first], src[first], work, scale_row, offset_row, columns);
            else
                quantize_elements(steps, dst[first], src[first], work, scale_row, half(offset), columns);
        }
    }
    steps.finish();
}

// ---- AscendDequant ------------------------------------------------------------------------------------------------

constexpr uint32_t kLanes = NormSteps::kLanes;

// Multiplies the first `columns` elements of each row by `factors`. x has `rows` rows of n floats.
inline void multiply_columns(NormSteps& steps, const Floats& x, const Floats& factors, uint32_t rows, uint32_t n,
                             uint32_t columns) {
    if (rows == 0) return;
    if (n > NormSteps::kMaxRepeats * 8) {
        steps.set_count(columns);
        steps.share_barrier([&] {
            for (uint32_t r = 0; r < rows; ++r) steps.mul(x[r * n], x[r * n], factors);
        });
        return;
    }
    const auto stride = uint8_t(n / 8);
    const AscendC::BinaryRepeatParams repeat_params(1, 1, 1, stride, stride, 0);
    const uint32_t chunks = columns / kLanes, tail = columns % kLanes;
    steps.set_count(rows * kLanes);
    steps.share_barrier([&] {
        for (uint32_t i = 0; i < chunks; ++i)
            AscendC::Mul<float, false>(x[i * kLanes], x[i * kLanes], factors[i * kLanes], AscendC::MASK_PLACEHOLDER, 1,
                                       repeat_params, steps.site());
    });
    if (tail == 0) return;
    AscendC::SetMaskNorm(steps.site());
    steps.share_barrier([&] {
        for (uint32_t r = 0; r < rows; r += NormSteps::kMaxRepeats) {
            const uint32_t first = r * n + chunks * kLanes;
            AscendC::Mul<float>(x[first], x[first], factors[chunks * kLanes], uint64_t(tail),
                                uint8_t(std::min<uint32_t>(rows - r, NormSteps::kMaxRepeats)), repeat_params,
                                steps.site());
        }
    });
    AscendC::SetMaskCount(steps.site());
}

// Writes the scales to dst as floats. Scale: float, bfloat16, or uint64 with a float in the low half.
template <class Scale>
void load_scales(NormSteps& steps, const Floats& dst, const Tensor<Scale>& scales, uint32_t n) {
    steps.set_count(n);
    if constexpr (std::is_same_v<Scale, float>) {
        steps.adds(dst, scales, 0.0f);
    } else if constexpr (sizeof(Scale) == 8) {
        const Floats words = scales.template ReinterpretCast<float>();
        run_instruction("GatherMask", steps.site(), first_elements("sharedTmpBuffer", dst, n),
                        first_elements("deqScale", words, 2 * n), repeats_of(n * 8), Cost::GatherMask, [&] {
                            for (uint32_t i = 0; i < n; ++i) dst.data()[i] = words.data()[2 * i];
                        });
    } else {
        steps.cast(dst, scales, RoundMode::CAST_NONE);
    }
}

template <class D>
constexpr RoundMode kRoundModeTo = kIsBfloat16<D> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE;

// Dequantizes `elements` elements: whole rows of n, and a part of one more row.
template <class D>
void dequantize_chunks(NormSteps& steps, const Tensor<D>& dst, const Tensor<int32_t>& src, const Floats& scales,
                       const Floats& x, uint32_t rows_per_chunk, const AscendC::DequantParams& params,
                       uint32_t dst_pitch, uint32_t elements) {
    for (uint32_t first = 0; first < elements; first += rows_per_chunk * params.n) {
        const uint32_t size = std::min<uint32_t>(elements - first, rows_per_chunk * params.n), rows = size / params.n;
        const uint32_t rest = size % params.n, out = first / params.n * dst_pitch;
        steps.set_count(size);
        steps.cast(x, src[first], RoundMode::CAST_NONE);
        multiply_columns(steps, x, scales, rows, params.n, params.calCount);
        if (rest) {
            steps.set_count(rest);
            steps.mul(x[rows * params.n], x[rows * params.n], scales);
        }
        auto store = [&](const Tensor<D>& to, const Floats& from, uint32_t count) {
            steps.set_count(count);
            if constexpr (std::is_same_v<D, float>)
                steps.adds(to, from, 0.0f);
            else
                steps.cast(to, from, kRoundModeTo<D>);
        };
        if (dst_pitch == params.n) {
            store(dst[out], x, size);
        } else {
            steps.share_barrier([&] {
                for (uint32_t r = 0; r < rows; ++r) store(dst[out + r * dst_pitch], x[r * params.n], params.n);
            });
            if (rest) store(dst[out + rows * dst_pitch], x[rows * params.n], rest);
        }
    }
}

template <class D>
void dequantize_in_registers(const Tensor<D>& dst, const Tensor<int32_t>& src, const std::vector<float>& scales,
                             const AscendC::DequantParams& params, uint32_t dst_pitch, uint32_t elements, Site site) {
    const Arithmetic<D> type;
    run_instruction("registers", site,
                    first_elements("dstTensor", dst, (elements + params.n - 1) / params.n * dst_pitch),
                    first_elements("srcTensor", src, elements), repeats_of(elements * 4) * 4, Cost::Repeat, [&] {
                        for (uint32_t i = 0; i < elements; ++i) {
                            const uint32_t column = i % params.n;
                            const float x = float(src.data()[i]);
                            dst.data()[i / params.n * dst_pitch + column] =
                                type.narrow(column < params.calCount ? x * scales[column] : x);
                        }
                    });
}

// Dequantizes m * n elements, or the first `elements` if that is not 0. `scales` is null if `scale` is that of all
// elements.
template <bool kSingleRow, class D, class Scale>
void dequantize(const Call& call, const Tensor<D>& dst, const Tensor<int32_t>& src, const Tensor<Scale>* scales,
                float scale, const Tensor<uint8_t>* shared, AscendC::DequantParams params, uint32_t elements) {
    const uint32_t elements_per_block = kBlockBytes / sizeof(D), given_m = params.m, given_n = params.n;
    if (params.m == 0 || params.n == 0 || params.n % 8 || params.calCount == 0 || params.calCount > params.n)
        call.report(Rule::Count04,
                    "n must be whole 32-byte blocks and calCount 1 .. n, but m, n and calCount are %u, %u and %u.",
                    params.m, params.n, params.calCount);
    // In mode DEQUANT_WITH_SINGLE_ROW, one row of n elements counts as several rows of calCount elements.
    if (kSingleRow && params.m == 1 && params.calCount % elements_per_block == 0 && params.n % params.calCount == 0)
        params = {params.n / params.calCount, params.calCount, params.calCount};
    if (elements == 0) elements = params.m * params.n;
    const uint32_t dst_pitch = (params.n + elements_per_block - 1) / elements_per_block * elements_per_block;
    const Range src_bytes = call.check_operand("srcTensor", src, elements);
    const Range dst_bytes =
        call.check_operand("dstTensor", dst, uint64_t((elements + params.n - 1) / params.n) * dst_pitch);
    call.check_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    if (scales)
        call.check_apart("dstTensor", dst_bytes, "deqScale", call.check_operand("deqScale", *scales, params.calCount));
    if constexpr (kIs950) {
        std::vector<float> values(params.calCount, scale);
        if (scales) {
            const Range range = bytes_of(*scales, params.calCount);
            start(Pipe::V, "registers", call.site());
            reads("deqScale", scales->view(), &range, 1);
            for (uint32_t i = 0; i < params.calCount; ++i) {
                if constexpr (sizeof(Scale) == 8)
                    values[i] = bits<float>(uint32_t(scales->data()[i]));
                else
                    values[i] = float(scales->data()[i]);
            }
            finish_vector(repeats_of(params.calCount * 4), cycles_of(Cost::Repeat));
        }
        dequantize_in_registers(dst, src, values, params, dst_pitch, elements, call.site());
        return;
    }
    const auto tmp = call.temporary_memory(shared, dequant_sizes(given_m, given_n));
    call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", dst_bytes);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", src_bytes);
    const Floats memory = tmp.template ReinterpretCast<float>();
    const uint32_t scale_floats = (params.calCount + 7) / 8 * 8;
    const uint32_t rows_per_chunk =
        std::min<uint32_t>((memory.GetSize() - scale_floats) / params.n, (elements + params.n - 1) / params.n);
    NormSteps steps(call.site());
    if (scales) {
        load_scales(steps, memory, *scales, params.calCount);
    } else {
        steps.set_count(params.calCount);
        steps.fill(memory, scale);
        steps.adds(memory, memory, 0.0f);
    }
    dequantize_chunks(steps, dst, src, memory, memory[scale_floats], rows_per_chunk, params, dst_pitch, elements);
    steps.finish();
}

// Returns whether the SoC dequantizes to D with scales of type Scale.
template <class D, class Scale, bool kIsTensor>
constexpr bool is_dequant_pair() {
    constexpr bool kFloats = std::is_same_v<D, float> && std::is_same_v<Scale, float>;
    constexpr bool kBits = kIsTensor && std::is_same_v<D, half> && std::is_same_v<Scale, uint64_t>;
    if constexpr (kIs310p)
        return kFloats || kBits;
    else
        return kFloats || kBits || ((std::is_same_v<D, float> || kIsBfloat16<D>) && kIsBfloat16<Scale>) ||
               (kIsBfloat16<D> && std::is_same_v<Scale, float>);
}

}  // namespace ascend_sim

namespace AscendC {

// ---- overloads: with and without sharedTmpBuffer, with and without calCount -------------------------------------

#define ASCEND_SIM_QUANT(scales, scale, offsets, offset, columns, offset_count, memory, count)                  \
    ASCEND_SIM_NEEDS(AscendQuant, T);                                                                           \
    ascend_sim::quantize<T>(ascend_sim::Call("AscendQuant", site), dstTensor, srcTensor, memory, scales, scale, \
                            offsets, offset, columns, offset_count, count)
#define ASCEND_SIM_QUANT_TEMPLATE \
    template <class T, bool isReuseSource = false, const AscendQuantConfig& config = ASCEND_QUANT_DEFAULT_CFG>
#define ASCEND_SIM_QUANT_FORMS(memory_parameter, memory)                                                               \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const float scale, const float offset, const uint32_t calCount, ASCEND_SIM_SITE) {                \
        ASCEND_SIM_QUANT(nullptr, scale, nullptr, offset, 0, 0, memory, calCount);                                     \
    }                                                                                                                  \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const float scale, const float offset, ASCEND_SIM_SITE) {                                         \
        ASCEND_SIM_QUANT(nullptr, scale, nullptr, offset, 0, 0, memory, srcTensor.GetSize());                          \
    }                                                                                                                  \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const LocalTensor<T>& scaleTensor, const T offset, const uint32_t scaleCount,                     \
                     const uint32_t calCount, ASCEND_SIM_SITE) {                                                       \
        ASCEND_SIM_QUANT(&scaleTensor, 0, nullptr, float(offset), scaleCount, 0, memory, calCount);                    \
    }                                                                                                                  \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const LocalTensor<T>& scaleTensor, const T offset, ASCEND_SIM_SITE) {                             \
        ASCEND_SIM_QUANT(&scaleTensor, 0, nullptr, float(offset), scaleTensor.GetSize(), 0, memory,                    \
                         srcTensor.GetSize());                                                                         \
    }                                                                                                                  \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor, const uint32_t scaleCount, \
                     const uint32_t offsetCount, const uint32_t calCount, ASCEND_SIM_SITE) {                           \
        ASCEND_SIM_QUANT(&scaleTensor, 0, &offsetTensor, 0, scaleCount, offsetCount, memory, calCount);                \
    }                                                                                                                  \
    ASCEND_SIM_QUANT_TEMPLATE                                                                                          \
    void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor memory_parameter,           \
                     const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor, ASCEND_SIM_SITE) {         \
        ASCEND_SIM_QUANT(&scaleTensor, 0, &offsetTensor, 0, scaleTensor.GetSize(), offsetTensor.GetSize(), memory,     \
                         srcTensor.GetSize());                                                                         \
    }
#define ASCEND_SIM_MEMORY , const LocalTensor<uint8_t>& sharedTmpBuffer
ASCEND_SIM_QUANT_FORMS(ASCEND_SIM_MEMORY, &sharedTmpBuffer)
ASCEND_SIM_QUANT_FORMS(, nullptr)

#define ASCEND_SIM_DEQUANT(is_tensor, scales, scale, memory, params, elements)                            \
    ASCEND_SIM_NEEDS(AscendDequant, dstT);                                                                \
    static_assert(ascend_sim::is_dequant_pair<dstT, scaleT, is_tensor>(),                                 \
                  "AscendDequant: these types of dstTensor and deqScale do not go together on this SoC"); \
    ascend_sim::dequantize<mode == DeQuantMode::DEQUANT_WITH_SINGLE_ROW, dstT, scaleT>(                   \
        ascend_sim::Call("AscendDequant", site), dstTensor, srcTensor, scales, scale, memory, params, elements)
#define ASCEND_SIM_DEQUANT_TEMPLATE \
    template <class dstT, class scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
#define ASCEND_SIM_DEQUANT_FORMS(memory_parameter, memory)                                                            \
    ASCEND_SIM_DEQUANT_TEMPLATE                                                                                       \
    void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor,                     \
                       const LocalTensor<scaleT>& deqScale memory_parameter, DequantParams params, ASCEND_SIM_SITE) { \
        ASCEND_SIM_DEQUANT(true, &deqScale, 0, memory, params, 0);                                                    \
    }                                                                                                                 \
    template <class dstT, class scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW,                      \
              std::enable_if_t<std::is_same_v<scaleT, float> || ascend_sim::kIsBfloat16<scaleT>, int> = 0>            \
    void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor,                     \
                       const scaleT deqScale memory_parameter, DequantParams params, ASCEND_SIM_SITE) {               \
        const LocalTensor<scaleT>* const none = nullptr;                                                              \
        ASCEND_SIM_DEQUANT(false, none, float(deqScale), memory, params, 0);                                          \
    }                                                                                                                 \
    ASCEND_SIM_DEQUANT_TEMPLATE                                                                                       \
    void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor,                     \
                       const LocalTensor<scaleT>& deqScale memory_parameter, const uint32_t calCount,                 \
                       ASCEND_SIM_SITE) {                                                                             \
        const uint32_t n = deqScale.GetSize();                                                                        \
        ASCEND_SIM_DEQUANT(true, &deqScale, 0, memory, (DequantParams{srcTensor.GetSize() / n, n, n}), calCount);     \
    }                                                                                                                 \
    ASCEND_SIM_DEQUANT_TEMPLATE                                                                                       \
    void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor,                     \
                       const LocalTensor<scaleT>& deqScale memory_parameter, ASCEND_SIM_SITE) {                       \
        const uint32_t n = deqScale.GetSize();                                                                        \
        ASCEND_SIM_DEQUANT(true, &deqScale, 0, memory, (DequantParams{srcTensor.GetSize() / n, n, n}),                \
                           srcTensor.GetSize());                                                                      \
    }
ASCEND_SIM_DEQUANT_FORMS(ASCEND_SIM_MEMORY, &sharedTmpBuffer)
ASCEND_SIM_DEQUANT_FORMS(, nullptr)
#undef ASCEND_SIM_QUANT
#undef ASCEND_SIM_QUANT_TEMPLATE
#undef ASCEND_SIM_QUANT_FORMS
#undef ASCEND_SIM_DEQUANT
#undef ASCEND_SIM_DEQUANT_TEMPLATE
#undef ASCEND_SIM_DEQUANT_FORMS

}  // namespace AscendC
