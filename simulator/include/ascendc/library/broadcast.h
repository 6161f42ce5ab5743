// Broadcast, BroadCast: a tensor of one or two dimensions to a larger one.
//
// Rules: int8, uint8, half, float. dim is 1 or 2, axis 0 or 1. Source and destination have the same size in the other
// dimension. A row that is repeated (axis 0) has whole 32-byte blocks. On Ascend310P a column that is repeated (axis 1)
// also has whole blocks. Destination and source do not overlap.
// Meaning: dst[i][j] = src[i][j], with index 0 in the dimension that is repeated.
// Cost on Ascend910B: to repeat a column, Brcb makes a block of each element, Copy repeats the block along the row, and
// GatherMask packs rows without whole blocks. To repeat a row, one Or writes eight copies of it. 8-bit elements are
// cast to half and back. On Ascend310P a column is repeated like a row and then transposed. On Ascend950 a call is one
// instruction.
// Pages: Broadcast, GetBroadCastMaxMinTmpSize. The steps are those of asc-devkit's impl/adv_api/detail/pad.
#pragma once

#include "ascendc/cast.h"
#include "ascendc/duplicate.h"
#include "ascendc/library/broadcast_sizes.h"
#include "ascendc/library/moves.h"

namespace ascend_sim {

struct BroadcastShape {
    uint32_t rows, columns;  // of the destination
    bool repeats_row, repeats_column;
    uint64_t elements() const { return uint64_t(rows) * columns; }
    uint64_t source_elements() const { return uint64_t(repeats_row ? 1 : rows) * (repeats_column ? 1 : columns); }
};

// Writes the elements of the destination.
template <class T>
void broadcast_values(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                      const BroadcastShape& shape) {
    for (uint32_t i = 0; i < shape.rows; ++i)
        for (uint32_t j = 0; j < shape.columns; ++j)
            dst.data()[uint64_t(i) * shape.columns + j] =
                src.data()[uint64_t(shape.repeats_row ? 0 : i) * (shape.repeats_column ? 1 : shape.columns) +
                           (shape.repeats_column ? 0 : j)];
}

// Repeats a column, in chunks of rows that fit the temporary memory.
template <class T>
void broadcast_column(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                      const BroadcastShape& shape, const AscendC::LocalTensor<T>& tmp, Site site) {
    constexpr uint32_t kElementsInBlock = kBlockBytes / sizeof(T);
    const uint64_t row_pitch = round_up_64(shape.columns, kElementsInBlock);
    const bool is_aligned = row_pitch == shape.columns;
    const uint64_t group_elements = uint64_t(kElementsInBlock) * kElementsInBlock +
                                    (is_aligned ? 0 : kElementsInBlock * row_pitch);  // for kElementsInBlock rows
    const uint32_t chunk = uint32_t(tmp.GetSize() / group_elements * kElementsInBlock);
    for (uint32_t first = 0; chunk && first < shape.rows; first += chunk) {
        const uint32_t rows = shape.rows - first < chunk ? shape.rows - first : chunk;
        const BroadcastShape part{rows, shape.columns, false, true};
        const auto src_part = src[first], dst_part = dst[uint32_t(uint64_t(first) * shape.columns)];
        const uint64_t block_elements = round_up_64(rows, 8) * kElementsInBlock;
        const auto copied_rows =
            is_aligned ? dst_part : tmp[uint32_t(round_up_64(rows, kElementsInBlock) * kElementsInBlock)];
        const uint64_t copied_elements = rows * row_pitch;
        run_instruction("Brcb", site, first_elements("sharedTmpBuffer", tmp, block_elements),
                        first_elements("srcLocal", src_part, rows), uint32_t(round_up_64(rows, 8) / 8), Cost::Repeat,
                        [&] {
                            for (uint64_t i = 0; i < block_elements; ++i) {
                                const uint64_t source_row = i / kElementsInBlock;
                                tmp.data()[i] = src_part.data()[source_row < rows ? source_row : 0];
                            }
                        });
        run_instruction("Copy", site,
                        first_elements(is_aligned ? "dstLocal" : "sharedTmpBuffer", copied_rows, copied_elements),
                        first_elements("sharedTmpBuffer", tmp, uint64_t(rows) * kElementsInBlock),
                        rows * repeats_of(row_pitch * sizeof(T)), Cost::Repeat, [&] {
                            for (uint64_t i = 0; i < copied_elements; ++i)
                                copied_rows.data()[i] = tmp.data()[i / row_pitch * kElementsInBlock];
                        });
        if (is_aligned) continue;
        run_instruction("GatherMask", site, first_elements("dstLocal", dst_part, part.elements()),
                        first_elements("sharedTmpBuffer", copied_rows, copied_elements),
                        rows * repeats_of(row_pitch * sizeof(T)), Cost::GatherMask, [&] {
                            for (uint64_t i = 0; i < part.elements(); ++i)
                                dst_part.data()[i] =
                                    copied_rows.data()[i / shape.columns * row_pitch + i % shape.columns];
                        });
    }
}

template <class T>
void broadcast(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
               const BroadcastShape& shape, const AscendC::LocalTensor<T>& tmp) {
    constexpr uint32_t kElementsInBlock = kBlockBytes / sizeof(T);
    const Site site = call.site();
    const uint64_t elements = shape.elements(), bytes = elements * sizeof(T);
    const AccessedElements dst_elements = first_elements("dstLocal", dst, elements),
                           src_elements = first_elements("srcLocal", src, shape.source_elements());
    auto run_as_one = [&](const char* api, uint32_t repeats) {
        run_instruction(api, site, dst_elements, src_elements, repeats, Cost::Repeat,
                        [&] { broadcast_values(dst, src, shape); });
    };
    if (!shape.repeats_row && !shape.repeats_column)
        return run_as_one(kIs310p ? "DataCopy" : "Copy", repeats_of(bytes));
    if (shape.source_elements() == 1) {
        hand_over(Pipe::V, Pipe::S, "Broadcast", site);
        const T value = src.GetValue(0, site);
        hand_over(Pipe::S, Pipe::V, "Broadcast", site);
        return run_instruction("Duplicate", site, dst_elements, {"srcLocal", src.view(), {0, 0}}, repeats_of(bytes),
                               Cost::Repeat, [&] {
                                   for (uint64_t i = 0; i < elements; ++i) dst.data()[i] = value;
                               });
    }
    if (kIs950) return run_as_one("registers", 2 * repeats_of(bytes));
    if (shape.repeats_column && !kIs310p) return broadcast_column(dst, src, shape, tmp, site);
    // Repeat a row by an Or with zeros. Ascend310P repeats a column in the same way, and then transposes the result.
    const uint32_t copies = shape.repeats_row ? shape.rows : shape.columns,
                   copy_elements = shape.repeats_row ? shape.columns : shape.rows;
    if (copy_elements % kElementsInBlock)
        call.report(Rule::Count04, "%s must have whole 32-byte blocks, but it has %u elements.",
                    shape.repeats_row ? "a row that is repeated" : "on Ascend310P, a column that is repeated",
                    copy_elements);
    run_instruction("Duplicate", site, first_elements("sharedTmpBuffer", tmp, kElementsInBlock),
                    {"", tmp.view(), {0, 0}}, 1, Cost::Repeat, [&] { std::memset(tmp.data(), 0, kBlockBytes); });
    for (uint32_t first = 0; first < copies; first += 8) {
        const uint32_t part_copies = copies - first < 8 ? copies - first : 8;
        if (!shape.repeats_row) {
            start(Pipe::V, "Or", site);
            finish_vector(copy_elements / kElementsInBlock, cycles_of(Cost::Repeat));
            continue;
        }
        const auto part = dst[first * copy_elements];
        run_instruction("Or", site, first_elements("dstLocal", part, uint64_t(part_copies) * copy_elements),
                        src_elements, copy_elements / kElementsInBlock, Cost::Repeat,
                        [&] { broadcast_values(part, src, {part_copies, copy_elements, true, false}); });
    }
    if (!shape.repeats_row) run_as_one("Transpose", repeats_of(bytes));
}

template <class T>
void broadcast_call(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const uint32_t* dst_shape, const uint32_t* src_shape, int32_t dim,
                    const AscendC::LocalTensor<uint8_t>* shared) {
    const uint32_t rows = dim == 2 ? dst_shape[0] : 1, columns = dst_shape[dim - 1];
    const uint32_t src_rows = dim == 2 ? src_shape[0] : 1, src_columns = src_shape[dim - 1];
    if ((src_rows != rows && src_rows != 1) || (src_columns != columns && src_columns != 1))
        call.report(Rule::Count04, "a source of %u x %u does not broadcast to %u x %u.", src_rows, src_columns, rows,
                    columns);
    const BroadcastShape shape{rows, columns, src_rows != rows, src_columns != columns};
    if (shape.repeats_row && shape.repeats_column && shape.source_elements() != 1) return;
    const Range dst_bytes = call.check_operand("dstLocal", dst, shape.elements());
    const Range src_bytes = call.check_operand("srcLocal", src, shape.source_elements());
    call.check_apart("dstLocal", dst_bytes, "srcLocal", src_bytes);
    const TmpSizes sizes =
        kIs950 ? TmpSizes{0, 0} : broadcast_sizes(src_rows, src_columns, rows, columns, sizeof(T), kIs310p, false);
    AscendC::LocalTensor<uint8_t> tmp;
    if (sizes.most) {
        tmp = call.temporary_memory(shared, sizes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "dstLocal", dst_bytes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "srcLocal", src_bytes);
    }
    if constexpr (sizeof(T) == 1 && !kIs950) {
        const auto src_halves = tmp.template ReinterpretCast<half>();
        const auto dst_halves = src_halves[uint32_t(round_up_64(shape.source_elements(), 16))];
        const Site site = call.site();
        AscendC::Cast(src_halves, src, RoundMode::CAST_NONE, uint32_t(shape.source_elements()), site);
        barrier(int32_t(Pipe::V), site);
        broadcast(call, dst_halves, src_halves, shape, dst_halves[uint32_t(round_up_64(shape.elements(), 16))]);
        AscendC::Cast(dst, dst_halves, RoundMode::CAST_NONE, uint32_t(shape.elements()), site);
        barrier(int32_t(Pipe::V), site);
    } else {
        broadcast(call, dst, src, shape, tmp.template ReinterpretCast<T>());
    }
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_BROADCAST(Name)                                                                             \
    template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>                                  \
    void Name(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim],    \
              const uint32_t srcShape[dim], const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {    \
        ASCEND_SIM_NEEDS(Broadcast, T);                                                                        \
        static_assert(dim == 1 || dim == 2, "Broadcast: dim is 1 or 2");                                       \
        static_assert(axis == 0 || axis == 1, "Broadcast: axis is 0 or 1");                                    \
        ascend_sim::broadcast_call(ascend_sim::Call(#Name, site), dstLocal, srcLocal, dstShape, srcShape, dim, \
                                   &sharedTmpBuffer);                                                          \
    }                                                                                                          \
    template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>                                  \
    void Name(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim],    \
              const uint32_t srcShape[dim], ASCEND_SIM_SITE) {                                                 \
        ASCEND_SIM_NEEDS(Broadcast, T);                                                                        \
        static_assert(dim == 1 || dim == 2, "Broadcast: dim is 1 or 2");                                       \
        static_assert(axis == 0 || axis == 1, "Broadcast: axis is 0 or 1");                                    \
        ascend_sim::broadcast_call(ascend_sim::Call(#Name, site), dstLocal, srcLocal, dstShape, srcShape, dim, \
                                   nullptr);                                                                   \
    }
ASCEND_SIM_BROADCAST(Broadcast)
ASCEND_SIM_BROADCAST(BroadCast)

}  // namespace AscendC
