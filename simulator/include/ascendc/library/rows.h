// Steps of library functions on rows of floats in UB: reductions of rows to blocks, and operations of rows with blocks.
//
// A matrix has `rows` rows of `pitch` elements, a multiple of 8. The first `columns` elements of a row hold data.
// Blocks hold one value for each row. Each block repeats its value 8 times, or 16 times for results that become half.
// Meaning: the 64-element chunks of a longer row are first combined lane by lane. Two BlockReduce instructions then
// reduce the 64 lanes to one value. One WholeReduce instruction reduces a row of less than 64 elements.
// Cost: the sum of the instructions, which are those of asc-devkit's impl/adv_api/detail/activation/softmax.
#pragma once

#include <algorithm>

#include "ascendc/binary.h"
#include "ascendc/cast.h"
#include "ascendc/extremes.h"
#include "ascendc/library/moves.h"
#include "ascendc/mask.h"
#include "ascendc/scalar_binary.h"
#include "ascendc/unary.h"

namespace ascend_sim {

using Floats = AscendC::LocalTensor<float>;

constexpr uint32_t kRepeatFloats = 64, kBlockFloats = 8, kMaxRepeats = 255;

// Returns the number of temporary floats that the reduction of a row needs.
constexpr uint32_t fold_floats(uint32_t pitch) {
    return kIs950 ? 0 : pitch < kRepeatFloats ? kBlockFloats : kRepeatFloats;
}

class RowSteps {
public:
    explicit RowSteps(Site site) : site_(site) {}
    Site site() const { return site_; }
    void end_step() const {
        if (!kIs950) barrier(int32_t(Pipe::V), site_);
    }

    template <class D, class S>
    void cast(const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src, uint32_t elements) const {
        AscendC::Cast(dst, src, kIsBfloat16<D> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE, elements, site_),
            end_step();
    }
    void exp(const Floats& dst, const Floats& src, uint32_t elements) const {
        AscendC::Exp(dst, src, int32_t(elements), site_), end_step();
    }
    void ln(const Floats& dst, const Floats& src, uint32_t elements) const {
        AscendC::Ln(dst, src, int32_t(elements), site_), end_step();
    }
    void muls(const Floats& dst, const Floats& src, float scalar, uint32_t elements) const {
        AscendC::Muls(dst, src, scalar, int32_t(elements), site_), end_step();
    }
    void adds(const Floats& dst, const Floats& src, float scalar, uint32_t elements) const {
        AscendC::Adds(dst, src, scalar, int32_t(elements), site_), end_step();
    }
#define ASCEND_SIM_STEP(step, Name)                                                                 \
    void step(const Floats& dst, const Floats& a, const Floats& b, uint32_t elements) const {       \
        AscendC::Name(dst, a, b, int32_t(elements), site_), end_step();                             \
    }                                                                                               \
    void step(const Floats& dst, const Floats& a, const Floats& b, uint64_t mask, uint32_t repeats, \
              const AscendC::BinaryRepeatParams& params) const {                                    \
        AscendC::Name<float>(dst, a, b, mask, repeats, params, site_), end_step();                  \
    }
    ASCEND_SIM_STEP(add, Add)
    ASCEND_SIM_STEP(sub, Sub)
    ASCEND_SIM_STEP(mul, Mul)
    ASCEND_SIM_STEP(div, Div)
    ASCEND_SIM_STEP(max, Max)
#undef ASCEND_SIM_STEP

    void copy(const Floats& dst, const Floats& src, uint32_t elements) const {
        run_instruction("Copy", site_, first_elements("dst", dst, elements), first_elements("src", src, elements),
                        repeats_of(elements * sizeof(float)), Cost::Repeat,
                        [&] { std::memcpy(dst.data(), src.data(), elements * sizeof(float)); });
    }
    // Makes a block of block_elements elements from each value src[row].
    void spread(const Floats& dst, const Floats& src, uint32_t rows, uint32_t block_elements) const {
        const uint32_t parts = block_elements / kBlockFloats;
        for (uint32_t part = 0; part < parts; ++part) {
            const bool is_last = part + 1 == parts;
            start(Pipe::V, "Brcb", site_);
            const Range src_rows = bytes_of(src, rows), dst_rows = bytes_of(dst, uint64_t(rows) * block_elements);
            reads("src", src.view(), &src_rows, 1);
            if (is_last) {
                writes("dst", dst.view(), &dst_rows, 1);
                for (uint32_t i = 0; i < rows * block_elements; ++i) dst.data()[i] = src.data()[i / block_elements];
            }
            finish_vector((rows + 7) / 8, cycles_of(Cost::Repeat));
        }
        end_step();
    }
    // Makes blocks of 16 elements from blocks of 8, by two copies.
    void double_blocks(const Floats& dst, const Floats& src, uint32_t rows) const {
        const uint32_t elements = rows * kBlockFloats;
        for (uint32_t part = 0; part < 2; ++part) {
            start(Pipe::V, "Copy", site_);
            const Range src_rows = bytes_of(src, elements), dst_rows = bytes_of(dst, 2 * elements);
            reads("src", src.view(), &src_rows, 1);
            if (part) writes("dst", dst.view(), &dst_rows, 1);
            for (uint32_t i = 0; part && i < 2 * elements; ++i)
                dst.data()[i] = src.data()[i / 2 / kBlockFloats * kBlockFloats];
            finish_vector(repeats_of(elements * sizeof(float)), cycles_of(Cost::Repeat));
        }
        end_step();
    }
    // Calls run_steps with the mask in counter mode.
    template <class Function>
    void in_counter_mode(uint32_t elements, Function run_steps) const {
        AscendC::SetMaskCount(site_);
        AscendC::SetVectorMask<float, AscendC::MaskMode::COUNTER>(0, elements, site_);
        run_steps();
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
        end_step();
    }

    // Block `row` of dst = the maximum or the sum of the row. tmp has rows * fold_floats(pitch) elements.
    template <bool kIsMax>
    void reduce(const Floats& dst, const Floats& src, uint32_t rows, uint32_t columns, uint32_t pitch,
                uint32_t block_elements, const Floats& tmp) const {
        if constexpr (kIs950) return reduce_in_registers<kIsMax>(dst, src, rows, columns, pitch, block_elements);
        if (columns < kRepeatFloats) {
            for_each_part(rows, [&](uint32_t first_row, uint32_t part_rows) {
                if constexpr (!kIsMax)
                    AscendC::WholeReduceSum(tmp[first_row], src[first_row * pitch], int32_t(columns),
                                            int32_t(part_rows), 1, 1, int32_t(pitch / kBlockFloats), site_);
                else if constexpr (kIs310p)
                    max_of_short_rows(tmp[first_row], src[first_row * pitch], part_rows, columns, pitch);
                else
                    AscendC::WholeReduceMax(tmp[first_row], src[first_row * pitch], int32_t(columns),
                                            int32_t(part_rows), 1, 1, int32_t(pitch / kBlockFloats),
                                            AscendC::ReduceOrder::ORDER_ONLY_VALUE, site_);
            });
            end_step();
        } else {
            fold_rows<kIsMax>(tmp, src, rows, columns, pitch);
            reduce_blocks<kIsMax>(dst, tmp, rows * kRepeatFloats);
            reduce_blocks<kIsMax>(tmp, dst, rows * kBlockFloats);
        }
        spread(dst, tmp, rows, block_elements);
    }

    // Row of dst = operation(row of src, block of the row).
    template <class Operation>
    void apply_blocks(Operation operation, const Floats& dst, const Floats& src, const Floats& blocks, uint32_t rows,
                      uint32_t pitch, uint32_t block_elements) const {
        constexpr uint32_t kLongRow = 192;  // shorter rows: an instruction for each 8 columns, else for each row
        if (pitch < kLongRow) {
            in_counter_mode(rows * kBlockFloats, [&] {
                for (uint32_t j = 0; j < pitch; j += kBlockFloats)
                    operation(dst[j], src[j], blocks,
                              AscendC::BinaryRepeatParams(pitch / kBlockFloats, pitch / kBlockFloats,
                                                          block_elements / kBlockFloats, pitch, pitch, block_elements));
            });
        } else {
            in_counter_mode(pitch, [&] {
                for (uint32_t row = 0; row < rows; ++row)
                    operation(dst[row * pitch], src[row * pitch], blocks[row * block_elements],
                              AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
            });
        }
    }
#define ASCEND_SIM_STEP(step, Name)                                                                                \
    void step(const Floats& dst, const Floats& src, const Floats& blocks, uint32_t rows, uint32_t pitch,           \
              uint32_t block_elements) const {                                                                     \
        apply_blocks(                                                                                              \
            [this](const Floats& x, const Floats& y, const Floats& z, const AscendC::BinaryRepeatParams& params) { \
                AscendC::Name<float, false>(x, y, z, AscendC::MASK_PLACEHOLDER, 1, params, site_);                 \
            },                                                                                                     \
            dst, src, blocks, rows, pitch, block_elements);                                                        \
    }
    ASCEND_SIM_STEP(sub_blocks, Sub)
    ASCEND_SIM_STEP(mul_blocks, Mul)
    ASCEND_SIM_STEP(div_blocks, Div)
#undef ASCEND_SIM_STEP

private:
    // A loop over vector registers. It costs an operation for each repeat, and a reduction and a store for each row.
    template <bool kIsMax>
    void reduce_in_registers(const Floats& dst, const Floats& src, uint32_t rows, uint32_t columns, uint32_t pitch,
                             uint32_t block_elements) const {
        start(Pipe::V, "registers", site_);
        const uint32_t chunks = (columns + kRepeatFloats - 1) / kRepeatFloats;
        const Range dst_rows = bytes_of(dst, uint64_t(rows) * block_elements);
        writes("dst", dst.view(), &dst_rows, 1);
        for (uint32_t row = 0; row < rows; ++row) {
            const Range row_bytes = bytes_of(src[row * pitch], columns);
            reads("src", src.view(), &row_bytes, 1);
            const float* const x = src.data() + row * pitch;
            float lanes[kRepeatFloats] = {};
            const uint32_t elements = columns < kRepeatFloats ? columns : kRepeatFloats;
            for (uint32_t i = 0; i < columns; ++i) {
                float& lane = lanes[i % kRepeatFloats];
                lane = i < kRepeatFloats ? x[i] : kIsMax ? std::max(lane, x[i]) : lane + x[i];
            }
            float result = lanes[0];
            if constexpr (kIsMax)
                for (uint32_t i = 1; i < elements; ++i) result = std::max(result, lanes[i]);
            else
                tree_sum(
                    lanes, kRepeatFloats, Arithmetic<float>(), [elements](uint32_t i) { return i < elements; },
                    &result);
            for (uint32_t i = 0; i < block_elements; ++i) dst.data()[row * block_elements + i] = result;
        }
        finish_vector(rows * (chunks + 2), cycles_of(Cost::Repeat));
    }
    // Maxima of short rows on Ascend310P, where WholeReduceMax cannot return values without indices. Costs the same.
    void max_of_short_rows(const Floats& dst, const Floats& src, uint32_t rows, uint32_t columns,
                           uint32_t pitch) const {
        start(Pipe::V, "WholeReduceMax", site_);
        const Range dst_rows = bytes_of(dst, rows);
        writes("dst", dst.view(), &dst_rows, 1);
        for (uint32_t row = 0; row < rows; ++row) {
            const Range row_bytes = bytes_of(src[row * pitch], columns);
            reads("src", src.view(), &row_bytes, 1);
            dst.data()[row] = *std::max_element(src.data() + row * pitch, src.data() + row * pitch + columns);
        }
        finish_vector(rows, cycles_of(Cost::WholeReduce));
    }
    // Calls function(first row, rows) for parts of at most 255 rows.
    template <class Function>
    static void for_each_part(uint32_t rows, Function function) {
        for (uint32_t first_row = 0; first_row < rows; first_row += kMaxRepeats)
            function(first_row, rows - first_row < kMaxRepeats ? rows - first_row : kMaxRepeats);
    }
    template <bool kIsMax>
    void combine(const Floats& dst, const Floats& a, const Floats& b, uint64_t mask, uint32_t repeats,
                 const AscendC::BinaryRepeatParams& params) const {
        if constexpr (kIsMax)
            max(dst, a, b, mask, repeats, params);
        else
            add(dst, a, b, mask, repeats, params);
    }
    template <bool kIsMax>
    void reduce_blocks(const Floats& dst, const Floats& src, uint32_t elements) const {
        in_counter_mode(elements, [&] {
            if constexpr (kIsMax)
                AscendC::BlockReduceMax<float, false>(dst, src, 1, AscendC::MASK_PLACEHOLDER, 1, 1, 8, site_);
            else
                AscendC::BlockReduceSum<float, false>(dst, src, 1, AscendC::MASK_PLACEHOLDER, 1, 1, 8, site_);
        });
    }
    // dst[row][64] = the 64-element chunks of the row, combined lane by lane.
    template <bool kIsMax>
    void fold_rows(const Floats& dst, const Floats& src, uint32_t rows, uint32_t columns, uint32_t pitch) const {
        const uint32_t chunks = columns / kRepeatFloats, tail = columns % kRepeatFloats, stride = pitch / kBlockFloats;
        if (stride > kMaxRepeats) {  // a repeat stride has 8 bits: fold row by row
            for (uint32_t row = 0; row < rows; ++row) {
                const Floats dst_row = dst[row * kRepeatFloats], src_row = src[row * pitch];
                copy(dst_row, src_row, kRepeatFloats);
                for (uint32_t first_chunk = 1; first_chunk < chunks; first_chunk += kMaxRepeats)
                    combine<kIsMax>(dst_row, src_row[first_chunk * kRepeatFloats], dst_row, kRepeatFloats,
                                    chunks - first_chunk < kMaxRepeats ? chunks - first_chunk : kMaxRepeats,
                                    {1, 1, 1, 0, 8, 0});
                if (tail)
                    combine<kIsMax>(dst_row, dst_row, src_row[chunks * kRepeatFloats], tail, 1, {1, 1, 1, 8, 8, 8});
            }
            return;
        }
        for_each_part(rows, [&](uint32_t first_row, uint32_t part_rows) {
            const Floats dst_rows = dst[first_row * kRepeatFloats], src_rows = src[first_row * pitch];
            if (chunks == 1)
                copy_first_repeats(dst_rows, src_rows, part_rows, pitch);
            else
                combine<kIsMax>(dst_rows, src_rows, src_rows[kRepeatFloats], kRepeatFloats, part_rows,
                                {1, 1, 1, 8, stride, stride});
            for (uint32_t j = 2; j <= chunks; ++j)
                if (j < chunks || tail)
                    combine<kIsMax>(dst_rows, dst_rows, src_rows[j * kRepeatFloats], j < chunks ? kRepeatFloats : tail,
                                    part_rows, {1, 1, 1, 8, 8, stride});
            if (chunks == 1 && tail)
                combine<kIsMax>(dst_rows, dst_rows, src_rows[kRepeatFloats], tail, part_rows, {1, 1, 1, 8, 8, stride});
        });
    }
    // Copies the first 64 elements of each row.
    void copy_first_repeats(const Floats& dst, const Floats& src, uint32_t part_rows, uint32_t pitch) const {
        start(Pipe::V, "Copy", site_);
        for (uint32_t row = 0; row < part_rows; ++row) {
            const Range src_rows = bytes_of(src[row * pitch], kRepeatFloats),
                        dst_rows = bytes_of(dst[row * kRepeatFloats], kRepeatFloats);
            reads("src", src.view(), &src_rows, 1);
            writes("dst", dst.view(), &dst_rows, 1);
            std::memcpy(ub() + dst_rows.begin, ub() + src_rows.begin, kRepeatBytes);
        }
        finish_vector(part_rows, cycles_of(Cost::Repeat));
        end_step();
    }
    Site site_;
};

}  // namespace ascend_sim
