// Transpose, TransDataTo5HD: blocks of a matrix, transposed.
//
// Rules: operands on 32 bytes. The destination is the source's memory, or no repeat writes what it or a later one
// reads. Transpose with TransposeParamsExt between NCHW and NHWC takes a temporary buffer (not on Ascend310P), which
// is undefined afterwards, and no overlap; a plane's rows are whole blocks; sizes of 0 do nothing.
// Meaning of TransDataTo5HD, for the sixteen blocks of a repeat: dst[i][j] = src[j][i]; of 32-bit types, dst[2 i] and
// dst[2 i + 1] get element i of the first and of the last eight sources; of 8-bit types, half blocks are read and
// written. One repeat alone begins a stride after the lists' addresses.
// Cost: 256 bytes a cycle (附录, Vector指令理论性能汇总); for the conversions of the extended form, which move data
// twice besides, three times as much. Sources: the pages Transpose and TransDataTo5HD.
#pragma once

#include "ascendc/constants.h"
#include "ascendc/reduce.h"

namespace AscendC {

enum class TransposeType : uint8_t {
    TRANSPOSE_TYPE_NONE,
    TRANSPOSE_NZ2ND_0213,
    TRANSPOSE_NZ2NZ_0213,
    TRANSPOSE_NZ2NZ_012_WITH_N,
    TRANSPOSE_NZ2ND_012_WITH_N,
    TRANSPOSE_NZ2ND_012_WITHOUT_N,
    TRANSPOSE_NZ2NZ_012_WITHOUT_N,
    TRANSPOSE_ND2ND_ONLY,
    TRANSPOSE_ND_UB_GM,
    TRANSPOSE_GRAD_ND_UB_GM,
    TRANSPOSE_ND2ND_B16,
    TRANSPOSE_NCHW2NHWC,
    TRANSPOSE_NHWC2NCHW
};

struct TransDataTo5HDParams {
    constexpr TransDataTo5HDParams() = default;
    constexpr TransDataTo5HDParams(const bool dstHighHalfIn, const bool srcHighHalfIn, const uint8_t repeatTimesIn,
                                   const uint16_t dstRepStrideIn, const uint16_t srcRepStrideIn)
        : dstHighHalf(dstHighHalfIn),
          srcHighHalf(srcHighHalfIn),
          repeatTimes(repeatTimesIn),
          dstRepStride(dstRepStrideIn),
          srcRepStride(srcRepStrideIn) {}
    bool dstHighHalf = false, srcHighHalf = false;
    uint8_t repeatTimes = 1;
    uint16_t dstRepStride = 0, srcRepStride = 0;
};

struct TransposeParamsExt {
    constexpr TransposeParamsExt() = default;
    constexpr TransposeParamsExt(const uint16_t nSizeIn, const uint16_t cSizeIn, const uint16_t hSizeIn,
                                 const uint16_t wSizeIn, const TransposeType transposeTypeIn)
        : nSize(nSizeIn), cSize(cSizeIn), hSize(hSizeIn), wSize(wSizeIn), transposeType(transposeTypeIn) {}
    uint16_t nSize = 0, cSize = 0, hSize = 0, wSize = 0;
    TransposeType transposeType = TransposeType::TRANSPOSE_ND2ND_B16;
};

}  // namespace AscendC

namespace ascend_sim {

constexpr int kListed = AscendC::NCHW_CONV_ADDR_LIST_SIZE;

// The sixteen blocks of TransDataTo5HD's source or destination, and the bytes that it uses of each.
struct BlockList {
    const char* name;
    UbView views[kListed];
    uint32_t stride, offset, bytes;  // offset: of the first repeat's bytes from the views' begin

    int64_t at(uint32_t repeat, int i) const { return int64_t(views[i].addr) + offset + int64_t(repeat) * stride; }
    std::vector<Range> of_repeat(uint32_t repeat) const {
        std::vector<Range> ranges;
        for (int i = 0; i < kListed; ++i) ranges.push_back({at(repeat, i), at(repeat, i) + bytes});
        return ranges;
    }
    void check(decltype(reads)& accesses, uint32_t repeats) const {
        for (int i = 0; i < kListed; ++i) {
            check_aligned(name, views[i].addr);
            std::vector<Range> ranges;
            for (uint32_t r = 0; r < repeats; ++r) ranges.push_back({at(r, i), at(r, i) + bytes});
            accesses(name, views[i], ranges.data(), ranges.size());
        }
    }
    Range span(uint32_t repeats) const {
        Range all{INT64_MAX, 0};
        for (int i = 0; i < kListed; ++i) {
            all.begin = std::min(all.begin, at(0, i));
            all.end = std::max(all.end, at(repeats - 1, i) + bytes);
        }
        return all;
    }
};

inline void check_transposed(const BlockList& dst, const BlockList& src, uint32_t repeats) {
    const Range to = dst.span(repeats), from = src.span(repeats);
    if (to.end <= from.begin || from.end <= to.begin) return;
    bool same = dst.stride == src.stride && dst.offset == src.offset && (dst.stride || repeats == 1);
    for (int i = 0; i < kListed; ++i) same = same && dst.views[i].addr == src.views[i].addr;
    if (same) return;
    std::vector<std::vector<Range>> read, written;
    for (uint32_t r = 0; r < repeats; ++r) {
        read.push_back(src.of_repeat(r));
        written.push_back(dst.of_repeat(r));
    }
    check_reduce_overlap(read, written);
}

template <class T, class F>
void trans_data(F view_of, const AscendC::TransDataTo5HDParams& p, Site site) {
    ASCEND_SIM_NEEDS(TransDataTo5HD, T);
    start(Pipe::V, "TransDataTo5HD", site);
    constexpr bool kHalves = sizeof(T) == 1;
    constexpr uint32_t kBytes = kHalves ? kBlockBytes / 2 : kBlockBytes;
    const auto list = [&](const char* name, bool is_dst, uint32_t stride, bool high) {
        BlockList l{name, {}, stride * kBlockBytes, kHalves && high ? kBytes : 0, kBytes};
        if (p.repeatTimes == 1) l.offset += l.stride;
        for (int i = 0; i < kListed; ++i) l.views[i] = view_of(is_dst, i);
        return l;
    };
    const BlockList to = list("dstList", true, p.dstRepStride, p.dstHighHalf);
    const BlockList from = list("srcList", false, p.srcRepStride, p.srcHighHalf);
    if (p.repeatTimes) {
        from.check(reads, p.repeatTimes);
        check_transposed(to, from, p.repeatTimes);
        to.check(writes, p.repeatTimes);
    }
    constexpr int kLanes = int(kBytes / sizeof(T));
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        T blocks[kListed][kLanes];
        for (int j = 0; j < kListed; ++j) std::memcpy(blocks[j], ub() + from.at(r, j), kBytes);
        for (int i = 0; i < kListed; ++i) {
            T out[kLanes];
            // Sixteen sources fill one block, or a pair of blocks if a block has eight lanes.
            for (int lane = 0; lane < kLanes; ++lane)
                out[lane] = kLanes == 8 ? blocks[i % 2 * 8 + lane][i / 2] : blocks[lane][i];
            std::memcpy(ub() + to.at(r, i), out, kBytes);
        }
    }
    finish_vector(p.repeatTimes, kListed * kBlockBytes / kRepeatBytes * cycles_of(Cost::Repeat));
}

// The first `bytes` bytes of a tensor.
template <class T>
Range checked_range(decltype(reads)& accesses, const char* name, const AscendC::LocalTensor<T>& t, uint64_t bytes) {
    check_aligned(name, t.view().addr);
    const Range r{t.view().addr, int64_t(t.view().addr + bytes)};
    accesses(name, t.view(), &r, bytes ? 1 : 0);
    return r;
}

// Transposes `count` matrices of rows x columns.
template <class T>
void transpose_matrices(T* to, const T* from, size_t count, size_t rows, size_t columns) {
    const std::vector<T> copy(from, from + count * rows * columns);
    for (size_t n = 0; n < count; ++n)
        for (size_t i = 0; i < rows; ++i)
            for (size_t k = 0; k < columns; ++k) to[(n * columns + k) * rows + i] = copy[(n * rows + i) * columns + k];
}

template <class T>
void transpose_16(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src) {
    constexpr uint32_t kBytes = kListed * kListed * sizeof(T);
    const Range from = checked_range(reads, "src", src, kBytes);
    const bool same = dst.view().addr == src.view().addr;
    const Range to = checked_range(writes, "dst", dst, kBytes);
    if (!same) check_disjoint("dst", to, "src", from);
    transpose_matrices(dst.data(), src.data(), 1, kListed, kListed);
    finish_vector(kBytes / kRepeatBytes, cycles_of(Cost::Repeat));
}

template <class T>
void transpose_nchw(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>& work, const AscendC::TransposeParamsExt& p) {
    const bool to_nhwc = p.transposeType == AscendC::TransposeType::TRANSPOSE_NCHW2NHWC;
    const uint32_t plane = uint32_t(p.hSize) * p.wSize;
    if (p.cSize > 4095 || plane > 4095 || plane * sizeof(T) % kBlockBytes)
        broken(Rule::Count04, "cSize must be 0 .. 4095 and hSize * wSize 0 .. 4095 in whole blocks but got %u and %u.",
               p.cSize, plane);
    const uint64_t bytes = uint64_t(p.nSize) * p.cSize * plane * sizeof(T);
    if (bytes == 0) return finish_vector(0, 0);
    const Range from = checked_range(reads, "src", src, bytes), to = checked_range(writes, "dst", dst, bytes);
    check_disjoint("dst", to, "src", from);
    if (!kIs310p) {
        const uint32_t rows = to_nhwc ? p.cSize + 2u : p.cSize * 2u + 1;
        const uint32_t need = rows * (sizeof(T) == 1 ? 32 : 16) * kBlockBytes;
        if (work.view().bytes < need)
            broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", need, work.view().bytes);
        const Range used = checked_range(writes, "sharedTmpBuffer", work, need);
        check_disjoint("sharedTmpBuffer", used, "src", from);
        check_disjoint("sharedTmpBuffer", used, "dst", to);
        poison(used);
    }
    transpose_matrices(dst.data(), src.data(), p.nSize, to_nhwc ? p.cSize : plane, to_nhwc ? plane : p.cSize);
    finish_vector(uint32_t((bytes + kRepeatBytes - 1) / kRepeatBytes), 3 * cycles_of(Cost::Repeat));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Transpose, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Transpose", site);
    ascend_sim::transpose_16(dst, src);
}

template <class T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& sharedTmpBuffer,
               const TransposeParamsExt& transposeParams, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(TransposeExt, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Transpose", site);
    const auto type = transposeParams.transposeType;
    if (type == TransposeType::TRANSPOSE_NCHW2NHWC || type == TransposeType::TRANSPOSE_NHWC2NCHW)
        return ascend_sim::transpose_nchw(dst, src, sharedTmpBuffer, transposeParams);
    if (type == TransposeType::TRANSPOSE_TYPE_NONE) return ascend_sim::finish_vector(0, 0);
    if constexpr (ascend_sim::kTakes<T, ascend_sim::Api::Transpose>) {
        if (type == TransposeType::TRANSPOSE_ND2ND_B16 && (ascend_sim::kIs950 || std::is_same_v<T, uint16_t>)) {
            if (transposeParams.hSize != 16 || transposeParams.wSize != 16)
                ascend_sim::broken(ascend_sim::Rule::Mode01, "hSize and wSize must be 16 but got %u and %u.",
                                   transposeParams.hSize, transposeParams.wSize);
            return ascend_sim::transpose_16(dst, src);
        }
    }
    ascend_sim::broken(ascend_sim::Rule::Mode01, "transposeType %d is not supported for this type.", int(type));
    ascend_sim::finish_vector(0, 0);
}

template <class T>
void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& nchwconvParams, ASCEND_SIM_SITE) {
    ascend_sim::trans_data<T>([&](bool is_dst, int i) { return (is_dst ? dstList : srcList)[i].view(); },
                              nchwconvParams, site);
}
// Lists of addresses from GetPhyAddr.
template <class T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& nchwconvParams, ASCEND_SIM_SITE) {
    ascend_sim::trans_data<T>([&](bool is_dst, int i) { return ascend_sim::view_at((is_dst ? dstList : srcList)[i]); },
                              nchwconvParams, site);
}
// Tensors of addresses, which the instruction reads.
template <class T>
void TransDataTo5HD(const LocalTensor<uint64_t>& dst, const LocalTensor<uint64_t>& src,
                    const TransDataTo5HDParams& nchwconvParams, ASCEND_SIM_SITE) {
    bool is_checked = false;
    ascend_sim::trans_data<T>(
        [&](bool is_dst, int i) {
            constexpr uint64_t kBytes = NCHW_CONV_ADDR_LIST_SIZE * sizeof(uint64_t);
            if (!is_checked) {
                ascend_sim::checked_range(ascend_sim::reads, "dst", dst, kBytes);
                ascend_sim::checked_range(ascend_sim::reads, "src", src, kBytes);
            }
            is_checked = true;
            return ascend_sim::view_at((is_dst ? dst : src).data()[i]);
        },
        nchwconvParams, site);
}

}  // namespace AscendC
