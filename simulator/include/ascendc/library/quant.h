// AscendQuant, AscendDequant, AscendAntiQuant: int8 from and to floating point, with scales and offsets.
//
// Rules: AscendQuant: half and float to int8; a scale and an offset for all elements, or for each of scaleCount
// columns. AscendDequant: int32 to half, bfloat16 or float, by one scale or by one for each column (uint64 for half:
// the low 32 bits are a float); rows of n int32 have whole 32-byte blocks, rows of the result are filled to whole
// blocks. AscendAntiQuant: int8 (int4 on Ascend910B) to half, or to bfloat16 (not on Ascend310P). AscendQuant's
// destination may be its source; the others' must not. Meaning: AscendQuant in half: int8(half(x) * scale + offset),
// rounded to nearest even; float scales and offsets become half in their own memory. AscendDequant in float: x * scale
// for the first calCount elements of a row. AscendAntiQuant: (x + offset) * scale, in half, or in float for bfloat16.
// Not simulated: scales by token or group (Ascend950), fp8 and fp4.
// Cost: that of the instructions; AscendDequant is one instruction on Ascend950.
// Pages: AscendQuant, AscendDequant, AscendAntiQuant; the steps are those of asc-devkit's
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

// scale, offset: a half, or a tensor of halves.
template <class T, class S, class O>
void quantize_elements(NormSteps& m, const Tensor<int8_t>& dst, const Tensor<T>& src, const Tensor<half>& tmp,
                       const S& scale, const O& offset, uint32_t n) {
    constexpr bool kScales = !std::is_same_v<S, half>, kOffsets = !std::is_same_v<O, half>;
    const uint32_t chunk = tmp.GetSize() / 32 * 32;
    for (uint32_t at = 0; at < n; at += chunk) {
        m.count(NormSteps::least(n - at, chunk));
        Tensor<half> x = src.template ReinterpretCast<half>()[at];
        if constexpr (sizeof(T) == 4) {
            m.cast(tmp, src[at], RoundMode::CAST_NONE);
            x = tmp;
        }
        if constexpr (kScales)
            m.mul(tmp, x, scale[at]);
        else
            m.muls(tmp, x, scale);
        if constexpr (kOffsets)
            m.add(tmp, tmp, offset[at]);
        else
            m.adds(tmp, tmp, offset);
        m.cast(dst[at], tmp, kIs950 ? RoundMode::CAST_RINT : RoundMode::CAST_NONE);
    }
}

// A conversion of n elements between half and float in memory that overlaps, as CANN's own functions do.
template <class D, class S>
void cast_in_place(Site site, const Tensor<D>& d, const Tensor<S>& s, uint32_t n) {
    const std::vector<S> values(s.data(), s.data() + n);
    move_elements("Cast", site, first_of("sharedTmpBuffer", d, n), first_of("sharedTmpBuffer", s, n), repeats_of(n * 4),
                  Cost::Repeat, [&] {
                      for (uint32_t i = 0; i < n; ++i) d.data()[i] = Arithmetic<D>().narrow(float(values[i]));
                  });
}
// A row of n scales or offsets; floats become halves in place.
template <class T>
Tensor<half> as_halves(NormSteps& m, const Tensor<T>& t, uint32_t n) {
    const Tensor<half> halves = t.template ReinterpretCast<half>();
    if constexpr (sizeof(T) == 4) cast_in_place(m.site(), halves, t, n);
    return halves;
}

// scales, offsets: null for the value `scale`, `offset`; else `columns` of them.
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
    const Range to = call.operand("dstTensor", dst, n), from = call.operand("srcTensor", src, n);
    call.same_or_apart("dstTensor", to, "srcTensor", from);
    const auto tmp = call.temporary(shared, quant_sizes(n));
    call.apart("sharedTmpBuffer", range_of(tmp), "dstTensor", to);
    call.apart("sharedTmpBuffer", range_of(tmp), "srcTensor", from);
    const Tensor<half> work = tmp.template ReinterpretCast<half>();
    NormSteps m(call.site());
    if (!scales) {
        quantize_elements(m, dst, src, work, half(scale), half(offset), n);
    } else {
        call.operand("scaleTensor", *scales, columns);
        const Tensor<half> scale_row = as_halves(m, *scales, columns);
        Tensor<half> offset_row;
        if (offsets) {
            call.operand("offsetTensor", *offsets, columns);
            offset_row = as_halves(m, *offsets, columns);
        }
        for (uint32_t at = 0; at < n; at += columns) {
            if (offsets)
                quantize_elements(m, dst[at], src[at], work, scale_row, offset_row, columns);
            else
                quantize_elements(m, dst[at], src[at], work, scale_row, half(offset), columns);
        }
    }
    m.finish();
}

// ---- AscendDequant ------------------------------------------------------------------------------------------------

constexpr uint32_t kLanes = NormSteps::kLanes;

// d = s * v for the first `columns` elements of each of `rows` rows of n floats.
inline void multiply_columns(NormSteps& m, const Floats& d, const Floats& v, uint32_t rows, uint32_t n,
                             uint32_t columns) {
    if (rows == 0) return;
    if (n > NormSteps::kMostRepeats * 8) {
        m.count(columns);
        m.together([&] {
            for (uint32_t r = 0; r < rows; ++r) m.mul(d[r * n], d[r * n], v);
        });
        return;
    }
    const auto stride = uint8_t(n / 8);
    const AscendC::BinaryRepeatParams params(1, 1, 1, stride, stride, 0);
    const uint32_t chunks = columns / kLanes, tail = columns % kLanes;
    m.count(rows * kLanes);
    m.together([&] {
        for (uint32_t i = 0; i < chunks; ++i)
            AscendC::Mul<float, false>(d[i * kLanes], d[i * kLanes], v[i * kLanes], AscendC::MASK_PLACEHOLDER, 1,
                                       params, m.site());
    });
    if (tail == 0) return;
    AscendC::SetMaskNorm(m.site());
    m.together([&] {
        for (uint32_t r = 0; r < rows; r += NormSteps::kMostRepeats) {
            const uint32_t at = r * n + chunks * kLanes;
            AscendC::Mul<float>(d[at], d[at], v[chunks * kLanes], uint64_t(tail),
                                uint8_t(NormSteps::least(rows - r, NormSteps::kMostRepeats)), params, m.site());
        }
    });
    AscendC::SetMaskCount(m.site());
}

// The scales in float. S: float, bfloat16, or uint64 with a float in the low half.
template <class S>
void load_scales(NormSteps& m, const Floats& d, const Tensor<S>& scales, uint32_t n) {
    m.count(n);
    if constexpr (std::is_same_v<S, float>) {
        m.adds(d, scales, 0.0f);
    } else if constexpr (sizeof(S) == 8) {
        const Floats halves = scales.template ReinterpretCast<float>();
        move_elements("GatherMask", m.site(), first_of("sharedTmpBuffer", d, n), first_of("deqScale", halves, 2 * n),
                      repeats_of(n * 8), Cost::GatherMask, [&] {
                          for (uint32_t i = 0; i < n; ++i) d.data()[i] = halves.data()[2 * i];
                      });
    } else {
        m.cast(d, scales, RoundMode::CAST_NONE);
    }
}

template <class D>
constexpr RoundMode kToResult = kIsBfloat16<D> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE;

// `elements` of src are calculated: whole rows of n, and a part of one. out_n: the pitch of dst.
template <class D>
void dequantize_chunks(NormSteps& m, const Tensor<D>& dst, const Tensor<int32_t>& src, const Floats& scales,
                       const Floats& x, uint32_t rows_that_fit, const AscendC::DequantParams& p, uint32_t out_n,
                       uint32_t elements) {
    for (uint32_t first = 0; first < elements; first += rows_that_fit * p.n) {
        const uint32_t size = NormSteps::least(elements - first, rows_that_fit * p.n), rows = size / p.n;
        const uint32_t part = size % p.n, out = first / p.n * out_n;
        m.count(size);
        m.cast(x, src[first], RoundMode::CAST_NONE);
        multiply_columns(m, x, scales, rows, p.n, p.calCount);
        if (part) {
            m.count(part);
            m.mul(x[rows * p.n], x[rows * p.n], scales);
        }
        auto store = [&](const Tensor<D>& d, const Floats& s, uint32_t n) {
            m.count(n);
            if constexpr (std::is_same_v<D, float>)
                m.adds(d, s, 0.0f);
            else
                m.cast(d, s, kToResult<D>);
        };
        if (out_n == p.n) {
            store(dst[out], x, size);
        } else {
            m.together([&] {
                for (uint32_t r = 0; r < rows; ++r) store(dst[out + r * out_n], x[r * p.n], p.n);
            });
            if (part) store(dst[out + rows * out_n], x[rows * p.n], part);
        }
    }
}

template <class D>
void dequantize_in_registers(const Tensor<D>& dst, const Tensor<int32_t>& src, const std::vector<float>& scales,
                             const AscendC::DequantParams& p, uint32_t out_n, uint32_t elements, Site site) {
    const Arithmetic<D> type;
    move_elements("registers", site, first_of("dstTensor", dst, (elements + p.n - 1) / p.n * out_n),
                  first_of("srcTensor", src, elements), repeats_of(elements * 4) * 4, Cost::Repeat, [&] {
                      for (uint32_t i = 0; i < elements; ++i) {
                          const uint32_t column = i % p.n;
                          const float x = float(src.data()[i]);
                          dst.data()[i / p.n * out_n + column] =
                              type.narrow(column < p.calCount ? x * scales[column] : x);
                      }
                  });
}

// scales: null for the value `scale`.
template <bool kSingleRow, class D, class S>
void dequantize(const Call& call, const Tensor<D>& dst, const Tensor<int32_t>& src, const Tensor<S>* scales,
                float scale, const Tensor<uint8_t>* shared, AscendC::DequantParams p, uint32_t elements) {
    const uint32_t in_block = kBlockBytes / sizeof(D), given_m = p.m, given_n = p.n;
    if (p.m == 0 || p.n == 0 || p.n % 8 || p.calCount == 0 || p.calCount > p.n)
        call.report(Rule::Count04,
                    "n must be whole 32-byte blocks and calCount 1 .. n, but m, n and calCount are %u, %u and %u.", p.m,
                    p.n, p.calCount);
    if (kSingleRow && p.m == 1 && p.calCount % in_block == 0 && p.n % p.calCount == 0)
        p = {p.n / p.calCount, p.calCount, p.calCount};
    if (elements == 0) elements = p.m * p.n;
    const uint32_t out_n = (p.n + in_block - 1) / in_block * in_block;
    const Range from = call.operand("srcTensor", src, elements);
    const Range to = call.operand("dstTensor", dst, uint64_t((elements + p.n - 1) / p.n) * out_n);
    call.apart("dstTensor", to, "srcTensor", from);
    if (scales) call.apart("dstTensor", to, "deqScale", call.operand("deqScale", *scales, p.calCount));
    if constexpr (kIs950) {
        std::vector<float> values(p.calCount, scale);
        if (scales) {
            const Range range = bytes_of(*scales, p.calCount);
            start(Pipe::V, "registers", call.site());
            reads("deqScale", scales->view(), &range, 1);
            for (uint32_t i = 0; i < p.calCount; ++i) {
                if constexpr (sizeof(S) == 8)
                    values[i] = bits<float>(uint32_t(scales->data()[i]));
                else
                    values[i] = float(scales->data()[i]);
            }
            finish_vector(repeats_of(p.calCount * 4), cycles_of(Cost::Repeat));
        }
        dequantize_in_registers(dst, src, values, p, out_n, elements, call.site());
        return;
    }
    const auto tmp = call.temporary(shared, dequant_sizes(given_m, given_n));
    call.apart("sharedTmpBuffer", range_of(tmp), "dstTensor", to);
    call.apart("sharedTmpBuffer", range_of(tmp), "srcTensor", from);
    const Floats memory = tmp.template ReinterpretCast<float>();
    const uint32_t scale_floats = (p.calCount + 7) / 8 * 8;
    const uint32_t fits = NormSteps::least((memory.GetSize() - scale_floats) / p.n, (elements + p.n - 1) / p.n);
    NormSteps m(call.site());
    if (scales) {
        load_scales(m, memory, *scales, p.calCount);
    } else {
        m.count(p.calCount);
        m.fill(memory, scale);
        m.adds(memory, memory, 0.0f);
    }
    dequantize_chunks(m, dst, src, memory, memory[scale_floats], fits, p, out_n, elements);
    m.finish();
}

template <class D, class S, bool kIsTensor>
constexpr bool is_dequant_pair() {
    constexpr bool kFloats = std::is_same_v<D, float> && std::is_same_v<S, float>;
    constexpr bool kBits = kIsTensor && std::is_same_v<D, half> && std::is_same_v<S, uint64_t>;
    if constexpr (kIs310p)
        return kFloats || kBits;
    else
        return kFloats || kBits || ((std::is_same_v<D, float> || kIsBfloat16<D>) && kIsBfloat16<S>) ||
               (kIsBfloat16<D> && std::is_same_v<S, float>);
}

}  // namespace ascend_sim

namespace AscendC {

// ---- forms: with and without sharedTmpBuffer, of some and of all elements
// ---------------------------------------------

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
