// Broadcast, BroadCast: a tensor of one or two dimensions to a larger one.
//
// Rules: int8, uint8, half, float. dim and axis are 1 or 2 and 0 or 1; the other dimension is equal. Rows that are
// repeated (axis 0) have whole 32-byte blocks, on Ascend310P also a column that is repeated (axis 1). The
// destination is apart from the source.
// Meaning: dst[i][j] = src[i or 0][j or 0].
// Cost: on Ascend910B, a column becomes blocks (Brcb), these are copied along the row, and rows of a part of a block
// are gathered; rows are repeated by Or, eight at a time. 8-bit elements become half and go back. On Ascend310P a
// column is repeated as a row and transposed; on Ascend950 it is one instruction. Pages: Broadcast,
// GetBroadCastMaxMinTmpSize; the steps are those of asc-devkit's impl/adv_api/detail/pad.
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

// Element (i, j) of the destination from the source; i counts from `first`.
template <class T>
void broadcast_values(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const BroadcastShape& s) {
    for (uint32_t i = 0; i < s.rows; ++i)
        for (uint32_t j = 0; j < s.columns; ++j)
            dst.data()[uint64_t(i) * s.columns + j] =
                src.data()[uint64_t(s.repeats_row ? 0 : i) * (s.repeats_column ? 1 : s.columns) +
                           (s.repeats_column ? 0 : j)];
}

// A column of `rows` elements to rows of `columns`, in chunks that the memory allows.
template <class T>
void broadcast_column(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const BroadcastShape& all,
                      const AscendC::LocalTensor<T>& tmp, Site site) {
    constexpr uint32_t kInBlock = kBlockBytes / sizeof(T);
    const uint64_t row = align_up(all.columns, kInBlock);
    const bool aligned = row == all.columns;
    const uint64_t unit = uint64_t(kInBlock) * kInBlock + (aligned ? 0 : kInBlock * row);  // memory of kInBlock rows
    const uint32_t chunk = uint32_t(tmp.GetSize() / unit * kInBlock);
    for (uint32_t first = 0; chunk && first < all.rows; first += chunk) {
        const uint32_t rows = all.rows - first < chunk ? all.rows - first : chunk;
        const BroadcastShape part{rows, all.columns, false, true};
        const auto from = src[first], to = dst[uint32_t(uint64_t(first) * all.columns)];
        const uint64_t blocks = align_up(rows, 8) * kInBlock;
        const auto copied = aligned ? to : tmp[uint32_t(align_up(rows, kInBlock) * kInBlock)];
        const uint64_t written = rows * row;
        move_elements("Brcb", site, first_of("sharedTmpBuffer", tmp, blocks), first_of("srcLocal", from, rows),
                      uint32_t(align_up(rows, 8) / 8), Cost::Repeat, [&] {
                          for (uint64_t i = 0; i < blocks; ++i) {
                              const uint64_t r = i / kInBlock;
                              tmp.data()[i] = from.data()[r < rows ? r : 0];
                          }
                      });
        move_elements("Copy", site, first_of(aligned ? "dstLocal" : "sharedTmpBuffer", copied, written),
                      first_of("sharedTmpBuffer", tmp, uint64_t(rows) * kInBlock), rows * repeats_of(row * sizeof(T)),
                      Cost::Repeat, [&] {
                          for (uint64_t i = 0; i < written; ++i) copied.data()[i] = tmp.data()[i / row * kInBlock];
                      });
        if (aligned) continue;
        move_elements("GatherMask", site, first_of("dstLocal", to, part.elements()),
                      first_of("sharedTmpBuffer", copied, written), rows * repeats_of(row * sizeof(T)),
                      Cost::GatherMask, [&] {
                          for (uint64_t i = 0; i < part.elements(); ++i)
                              to.data()[i] = copied.data()[i / all.columns * row + i % all.columns];
                      });
    }
}

template <class T>
void broadcast(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
               const BroadcastShape& s, const AscendC::LocalTensor<T>& tmp) {
    constexpr uint32_t kInBlock = kBlockBytes / sizeof(T);
    const Site site = call.site();
    const uint64_t n = s.elements(), bytes = n * sizeof(T);
    const Moved to = first_of("dstLocal", dst, n), from = first_of("srcLocal", src, s.source_elements());
    auto in_one = [&](const char* api, uint32_t repeats) {
        move_elements(api, site, to, from, repeats, Cost::Repeat, [&] { broadcast_values(dst, src, s); });
    };
    if (!s.repeats_row && !s.repeats_column) return in_one(kIs310p ? "DataCopy" : "Copy", repeats_of(bytes));
    if (s.source_elements() == 1) {
        hand_over(Pipe::V, Pipe::S, "Broadcast", site);
        const T value = src.GetValue(0, site);
        hand_over(Pipe::S, Pipe::V, "Broadcast", site);
        return move_elements("Duplicate", site, to, {"srcLocal", src.view(), {0, 0}}, repeats_of(bytes), Cost::Repeat,
                             [&] {
                                 for (uint64_t i = 0; i < n; ++i) dst.data()[i] = value;
                             });
    }
    if (kIs950) return in_one("registers", 2 * repeats_of(bytes));
    if (s.repeats_column && !kIs310p) return broadcast_column(dst, src, s, tmp, site);
    // Rows: Or with zeros. Ascend310P repeats a column the same way, as a row, before it transposes it.
    const uint32_t lines = s.repeats_row ? s.rows : s.columns, length = s.repeats_row ? s.columns : s.rows;
    if (length % kInBlock)
        call.report(Rule::Count04, "%s must have whole 32-byte blocks, but it has %u elements.",
                    s.repeats_row ? "a row that is repeated" : "on Ascend310P, a column that is repeated", length);
    move_elements("Duplicate", site, first_of("sharedTmpBuffer", tmp, kInBlock), {"", tmp.view(), {0, 0}}, 1,
                  Cost::Repeat, [&] { std::memset(tmp.data(), 0, kBlockBytes); });
    for (uint32_t first = 0; first < lines; first += 8) {
        const uint32_t n_lines = lines - first < 8 ? lines - first : 8;
        if (!s.repeats_row) {
            start(Pipe::V, "Or", site);
            finish_vector(length / kInBlock, cycles_of(Cost::Repeat));
            continue;
        }
        const auto part = dst[first * length];
        move_elements("Or", site, first_of("dstLocal", part, uint64_t(n_lines) * length), from, length / kInBlock,
                      Cost::Repeat, [&] { broadcast_values(part, src, {n_lines, length, true, false}); });
    }
    if (!s.repeats_row) in_one("Transpose", repeats_of(bytes));
}

template <class T>
void broadcast_call(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const uint32_t* to, const uint32_t* from, int32_t dim,
                    const AscendC::LocalTensor<uint8_t>* shared) {
    const uint32_t rows = dim == 2 ? to[0] : 1, columns = to[dim - 1];
    const uint32_t src_rows = dim == 2 ? from[0] : 1, src_columns = from[dim - 1];
    if ((src_rows != rows && src_rows != 1) || (src_columns != columns && src_columns != 1))
        call.report(Rule::Count04, "a source of %u x %u does not broadcast to %u x %u.", src_rows, src_columns, rows,
                    columns);
    const BroadcastShape shape{rows, columns, src_rows != rows, src_columns != columns};
    if (shape.repeats_row && shape.repeats_column && shape.source_elements() != 1) return;
    const Range target = call.operand("dstLocal", dst, shape.elements());
    const Range source = call.operand("srcLocal", src, shape.source_elements());
    call.apart("dstLocal", target, "srcLocal", source);
    const TmpSizes sizes =
        kIs950 ? TmpSizes{0, 0} : broadcast_sizes(src_rows, src_columns, rows, columns, sizeof(T), kIs310p, false);
    AscendC::LocalTensor<uint8_t> tmp;
    if (sizes.most) {
        tmp = call.temporary(shared, sizes);
        call.apart("sharedTmpBuffer", range_of(tmp), "dstLocal", target);
        call.apart("sharedTmpBuffer", range_of(tmp), "srcLocal", source);
    }
    if constexpr (sizeof(T) == 1 && !kIs950) {
        const auto halves = tmp.template ReinterpretCast<half>();
        const auto wide_target = halves[uint32_t(align_up(shape.source_elements(), 16))];
        const Site site = call.site();
        AscendC::Cast(halves, src, RoundMode::CAST_NONE, uint32_t(shape.source_elements()), site);
        barrier(int32_t(Pipe::V), site);
        broadcast(call, wide_target, halves, shape, wide_target[uint32_t(align_up(shape.elements(), 16))]);
        AscendC::Cast(dst, wide_target, RoundMode::CAST_NONE, uint32_t(shape.elements()), site);
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
