// AscendAntiQuant: (x + offset) * scale for int8 or int4. quant.h states the rules.
//
// src is [K, N], or [N, K] with isTranspose. scale and offset have N elements, or are one value for all.
#pragma once

#include "ascendc/library/quant.h"

namespace ascend_sim {

// The operands of one call. `scales` is null if `scale` is the value for all elements. `offsets` is null if `offset` is
// the value for all elements, or if there is no offset.
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

// x = (x + offset) * scale, in place. If kTransposed, all elements of a row have the same offset and scale.
template <bool kTransposed, class Computed>
void apply_scales(NormSteps& steps, const Tensor<Computed>& x, const Tensor<Computed>* offsets,
                  const Tensor<Computed>* scales, float offset, float scale, bool has_offset, uint32_t rows,
                  uint32_t columns) {
    if (!scales) {
        if (has_offset) steps.adds(x, x, Computed(offset));
        steps.muls(x, x, Computed(scale));
        return;
    }
    if constexpr (kTransposed) {
        hand_over(Pipe::V, Pipe::S, "GetValue", steps.site());
        std::vector<Computed> row_offsets, row_scales;
        for (uint32_t row = 0; row < rows; ++row) {
            row_offsets.push_back(offsets ? offsets->GetValue(row, steps.site()) : Computed(0.0f));
            row_scales.push_back(scales->GetValue(row, steps.site()));
        }
        hand_over(Pipe::S, Pipe::V, "GetValue", steps.site());
        steps.set_count(columns);
        for (uint32_t row = 0; row < rows; ++row) {
            if (has_offset) steps.adds(x[row * columns], x[row * columns], row_offsets[row]);
            steps.muls(x[row * columns], x[row * columns], row_scales[row]);
        }
    } else {
        steps.set_count(columns);
        steps.share_barrier([&] {
            for (uint32_t row = 0; row < rows && has_offset; ++row)
                steps.add(x[row * columns], x[row * columns], *offsets);
        });
        steps.share_barrier([&] {
            for (uint32_t row = 0; row < rows; ++row) steps.mul(x[row * columns], x[row * columns], *scales);
        });
    }
}

template <bool kTransposed, class S>
void anti_quantize_to_half(NormSteps& steps, const AntiQuantCall<half, S>& operands) {
    const uint32_t rows = kTransposed ? operands.n : operands.k, columns = kTransposed ? operands.k : operands.n;
    steps.set_count(rows * columns);
    steps.cast(operands.dst, operands.src, RoundMode::CAST_NONE);
    apply_scales<kTransposed>(steps, operands.dst, operands.offsets, operands.scales, operands.offset, operands.scale,
                              operands.has_offset, rows, columns);
}

// Computes in float. The elements are first cast to half, into the second half of the memory of the floats, and then to
// float in place.
template <bool kTransposed, class D, class S>
void anti_quantize_to_bfloat16(NormSteps& steps, const AntiQuantCall<D, S>& operands, const Floats& tmp) {
    const uint32_t rows = kTransposed ? operands.n : operands.k, columns = kTransposed ? operands.k : operands.n;
    auto widen = [&](const Floats& x, uint32_t first, uint32_t n) {
        steps.set_count(n);
        const Tensor<half> halves = x.ReinterpretCast<half>()[n];
        steps.cast(halves, operands.src[first], RoundMode::CAST_NONE);
        cast_in_place(steps.site(), x, halves, n);
    };
    auto narrow = [&](const Floats& x, uint32_t first, uint32_t n) {
        steps.set_count(n);
        steps.cast(operands.dst[first], x, RoundMode::CAST_RINT);
    };
    if (!operands.scales) {
        const uint32_t chunk = tmp.GetSize() / 64 * 64, all = rows * columns;
        for (uint32_t first = 0; first < all; first += chunk) {
            const uint32_t n = std::min<uint32_t>(all - first, chunk);
            widen(tmp, first, n);
            apply_scales<kTransposed, float>(steps, tmp, nullptr, nullptr, operands.offset, operands.scale,
                                             operands.has_offset, 1, n);
            narrow(tmp, first, n);
        }
        return;
    }
    const uint32_t pitch = (operands.n + 7) / 8 * 8;
    const Floats offsets = tmp, scales = tmp[pitch], x = tmp[2 * pitch];
    steps.set_count(operands.n);
    if (operands.has_offset) steps.cast(offsets, *operands.offsets, RoundMode::CAST_NONE);
    steps.cast(scales, *operands.scales, RoundMode::CAST_NONE);
    // One step is a row, or a part of a row.
    const uint32_t fits = x.GetSize() / 64 * 64, chunk = std::min<uint32_t>(fits, columns);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t first = 0; first < columns; first += chunk) {
            const uint32_t n = std::min<uint32_t>(columns - first, chunk), channel = kTransposed ? row : first;
            const Floats part_offsets = offsets[channel], part_scales = scales[channel];
            widen(x, row * columns + first, n);
            apply_scales<kTransposed>(steps, x, operands.has_offset ? &part_offsets : nullptr, &part_scales, 0, 0,
                                      operands.has_offset, 1, n);
            narrow(x, row * columns + first, n);
        }
}

template <bool kTransposed, class D, class S>
void anti_quantize(const Call& call, const AntiQuantCall<D, S>& operands, const Tensor<uint8_t>* shared) {
    const uint32_t size = operands.k * operands.n, row_elements = kTransposed ? operands.k : operands.n;
    if (size == 0 || size % kBlockBytes || row_elements * sizeof(D) % kBlockBytes ||
        (kTransposed && operands.k % kBlockBytes))
        call.report(Rule::Count04, "src (%u x %u) and each of its rows must have whole 32-byte blocks.", operands.k,
                    operands.n);
    const Range dst_bytes = call.check_operand("dst", operands.dst, size);
    Range src_bytes = bytes_of(operands.src, size);
    if constexpr (kIsInt4<S>)
        src_bytes.end = src_bytes.begin + size / 2;
    else
        src_bytes = call.check_operand("src", operands.src, size);
    call.check_apart("dst", dst_bytes, "src", src_bytes);
    if (operands.scales) call.check_operand("scale", *operands.scales, operands.n);
    if (operands.offsets) call.check_operand("offset", *operands.offsets, operands.n);
    NormSteps steps(call.site());
    if constexpr (std::is_same_v<D, half>) {
        anti_quantize_to_half<kTransposed>(steps, operands);
    } else {
        const auto tmp =
            call.temporary_memory(shared, anti_quant_sizes(kTransposed ? operands.n : operands.k, row_elements,
                                                           operands.scales ? operands.n : 1, kTransposed, true));
        call.check_apart("sharedTmpBuffer", range_of(tmp), "dst", dst_bytes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "src", src_bytes);
        anti_quantize_to_bfloat16<kTransposed>(steps, operands, tmp.template ReinterpretCast<float>());
    }
    steps.finish();
}

// Returns N: the row length that the shape gives, else the size of `scale`.
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
