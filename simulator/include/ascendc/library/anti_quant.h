// AscendAntiQuant: (x + offset) * scale of int8 or int4. The rules are in quant.h.
//
// src is [K, N], or [N, K] with isTranspose; scale and offset have an element for each of N, or one for all.
#pragma once

#include "ascendc/library/quant.h"

namespace ascend_sim {

// The operands of one call. A tensor is null if there is a value, or no offset.
template <class D, class S>
struct AntiQuantCall {
    Tensor<D> dst;
    Tensor<S> src;
    const Tensor<D>* offsets;
    const Tensor<D>* scales;
    float offset, scale;
    bool has_offset;
    uint32_t k, n;
};

// x = (x + offset) * scale of `rows` rows of `columns` elements. Transposed: a row has one offset and scale.
template <bool kTransposed, class C>
void scale_back(NormSteps& m, const Tensor<C>& x, const Tensor<C>* offsets, const Tensor<C>* scales, float offset,
                float scale, bool has_offset, uint32_t rows, uint32_t columns) {
    if (!scales) {
        if (has_offset) m.adds(x, x, C(offset));
        m.muls(x, x, C(scale));
        return;
    }
    if constexpr (kTransposed) {
        hand_over(Pipe::V, Pipe::S, "GetValue", m.site());
        std::vector<C> add, multiply;
        for (uint32_t r = 0; r < rows; ++r) {
            add.push_back(offsets ? offsets->GetValue(r, m.site()) : C(0.0f));
            multiply.push_back(scales->GetValue(r, m.site()));
        }
        hand_over(Pipe::S, Pipe::V, "GetValue", m.site());
        m.count(columns);
        for (uint32_t r = 0; r < rows; ++r) {
            if (has_offset) m.adds(x[r * columns], x[r * columns], add[r]);
            m.muls(x[r * columns], x[r * columns], multiply[r]);
        }
    } else {
        m.count(columns);
        m.together([&] {
            for (uint32_t r = 0; r < rows && has_offset; ++r) m.add(x[r * columns], x[r * columns], *offsets);
        });
        m.together([&] {
            for (uint32_t r = 0; r < rows; ++r) m.mul(x[r * columns], x[r * columns], *scales);
        });
    }
}

template <bool kTransposed, class S>
void anti_quantize_to_half(NormSteps& m, const AntiQuantCall<half, S>& p) {
    const uint32_t rows = kTransposed ? p.n : p.k, columns = kTransposed ? p.k : p.n;
    m.count(rows * columns);
    m.cast(p.dst, p.src, RoundMode::CAST_NONE);
    scale_back<kTransposed>(m, p.dst, p.offsets, p.scales, p.offset, p.scale, p.has_offset, rows, columns);
}

// In float: the halves take the upper half of their floats' memory.
template <bool kTransposed, class D, class S>
void anti_quantize_to_bfloat16(NormSteps& m, const AntiQuantCall<D, S>& p, const Floats& tmp) {
    const uint32_t rows = kTransposed ? p.n : p.k, columns = kTransposed ? p.k : p.n;
    auto widen = [&](const Floats& x, uint32_t at, uint32_t n) {
        m.count(n);
        const Tensor<half> halves = x.ReinterpretCast<half>()[n];
        m.cast(halves, p.src[at], RoundMode::CAST_NONE);
        cast_in_place(m.site(), x, halves, n);
    };
    auto narrow = [&](const Floats& x, uint32_t at, uint32_t n) {
        m.count(n);
        m.cast(p.dst[at], x, RoundMode::CAST_RINT);
    };
    if (!p.scales) {
        const uint32_t chunk = tmp.GetSize() / 64 * 64, all = rows * columns;
        for (uint32_t at = 0; at < all; at += chunk) {
            const uint32_t n = NormSteps::least(all - at, chunk);
            widen(tmp, at, n);
            scale_back<kTransposed, float>(m, tmp, nullptr, nullptr, p.offset, p.scale, p.has_offset, 1, n);
            narrow(tmp, at, n);
        }
        return;
    }
    const uint32_t pitch = (p.n + 7) / 8 * 8;
    const Floats offsets = tmp, scales = tmp[pitch], x = tmp[2 * pitch];
    m.count(p.n);
    if (p.has_offset) m.cast(offsets, *p.offsets, RoundMode::CAST_NONE);
    m.cast(scales, *p.scales, RoundMode::CAST_NONE);
    // A row, or a part of one, at a time.
    const uint32_t fits = x.GetSize() / 64 * 64, chunk = NormSteps::least(fits, columns);
    for (uint32_t r = 0; r < rows; ++r)
        for (uint32_t at = 0; at < columns; at += chunk) {
            const uint32_t n = NormSteps::least(columns - at, chunk), first = kTransposed ? r : at;
            const Floats add = offsets[first], multiply = scales[first];
            widen(x, r * columns + at, n);
            scale_back<kTransposed>(m, x, p.has_offset ? &add : nullptr, &multiply, 0, 0, p.has_offset, 1, n);
            narrow(x, r * columns + at, n);
        }
}

template <bool kTransposed, class D, class S>
void anti_quantize(const Call& call, const AntiQuantCall<D, S>& p, const Tensor<uint8_t>* shared) {
    const uint32_t size = p.k * p.n, row = kTransposed ? p.k : p.n;
    if (size == 0 || size % kBlockBytes || row * sizeof(D) % kBlockBytes || (kTransposed && p.k % kBlockBytes))
        call.report(Rule::Count04, "src (%u x %u) must have whole 32-byte blocks, and rows of them.", p.k, p.n);
    const Range to = call.operand("dst", p.dst, size);
    Range from = bytes_of(p.src, size);
    if constexpr (kIsInt4<S>)
        from.end = from.begin + size / 2;
    else
        from = call.operand("src", p.src, size);
    call.apart("dst", to, "src", from);
    if (p.scales) call.operand("scale", *p.scales, p.n);
    if (p.offsets) call.operand("offset", *p.offsets, p.n);
    NormSteps m(call.site());
    if constexpr (std::is_same_v<D, half>) {
        anti_quantize_to_half<kTransposed>(m, p);
    } else {
        const auto tmp = call.temporary(
            shared, anti_quant_sizes(kTransposed ? p.n : p.k, row, p.scales ? p.n : 1, kTransposed, true));
        call.apart("sharedTmpBuffer", range_of(tmp), "dst", to);
        call.apart("sharedTmpBuffer", range_of(tmp), "src", from);
        anti_quantize_to_bfloat16<kTransposed>(m, p, tmp.template ReinterpretCast<float>());
    }
    m.finish();
}

// N: the size of a row of scales, or of its shape.
template <class T>
uint32_t scale_count(const Tensor<T>& scale, const AscendC::AntiQuantShapeInfo& info, bool transposed) {
    const uint32_t given = transposed ? info.scaleHeight : info.scaleWidth;
    return given ? given : scale.GetSize();
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_ANTI_QUANT(offsets, scales, offset, scale, has_offset, n, memory)                          \
    ASCEND_SIM_NEEDS(AscendAntiQuant, OutputDataType);                                                        \
    static_assert(                                                                                            \
        std::is_same_v<InputDataType, int8_t> || (ascend_sim::kIsInt4<InputDataType> && ascend_sim::kIs910b), \
        "AscendAntiQuant: src is of int8, or of int4 on Ascend910B");                                         \
    ascend_sim::anti_quantize<isTranspose, OutputDataType, InputDataType>(                                    \
        ascend_sim::Call("AscendAntiQuant", site),                                                            \
        {dst, src, offsets, scales, float(offset), float(scale), has_offset, k, n}, memory)
#define ASCEND_SIM_ANTI_QUANT_FORMS(memory_parameter, memory)                                                        \
    template <class InputDataType, class OutputDataType, bool isTranspose>                                           \
    void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src,              \
                         const LocalTensor<OutputDataType>& offset,                                                  \
                         const LocalTensor<OutputDataType>& scale memory_parameter, const uint32_t k,                \
                         const AntiQuantShapeInfo& shapeInfo = {}, ASCEND_SIM_SITE) {                                \
        ASCEND_SIM_ANTI_QUANT(&offset, &scale, 0, 0, true, ascend_sim::scale_count(scale, shapeInfo, isTranspose),   \
                              memory);                                                                               \
    }                                                                                                                \
    template <class InputDataType, class OutputDataType, bool isTranspose>                                           \
    void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src,              \
                         const LocalTensor<OutputDataType>& scale memory_parameter, const uint32_t k,                \
                         const AntiQuantShapeInfo& shapeInfo = {}, ASCEND_SIM_SITE) {                                \
        ASCEND_SIM_ANTI_QUANT(nullptr, &scale, 0, 0, false, ascend_sim::scale_count(scale, shapeInfo, isTranspose),  \
                              memory);                                                                               \
    }                                                                                                                \
    template <class InputDataType, class OutputDataType, bool isTranspose>                                           \
    void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src,              \
                         const OutputDataType offset, const OutputDataType scale memory_parameter, const uint32_t k, \
                         const AntiQuantShapeInfo& = {}, ASCEND_SIM_SITE) {                                          \
        ASCEND_SIM_ANTI_QUANT(nullptr, nullptr, offset, scale, true, src.GetSize() / k, memory);                     \
    }                                                                                                                \
    template <class InputDataType, class OutputDataType, bool isTranspose>                                           \
    void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src,              \
                         const OutputDataType scale memory_parameter, const uint32_t k,                              \
                         const AntiQuantShapeInfo& = {}, ASCEND_SIM_SITE) {                                          \
        ASCEND_SIM_ANTI_QUANT(nullptr, nullptr, 0, scale, false, src.GetSize() / k, memory);                         \
    }
ASCEND_SIM_ANTI_QUANT_FORMS(ASCEND_SIM_MEMORY, &sharedTmpBuffer)
ASCEND_SIM_ANTI_QUANT_FORMS(, nullptr)
#undef ASCEND_SIM_ANTI_QUANT
#undef ASCEND_SIM_ANTI_QUANT_FORMS
#undef ASCEND_SIM_MEMORY

}  // namespace AscendC
