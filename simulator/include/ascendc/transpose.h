// Transpose, TransDataTo5HD: transpose blocks of a matrix.
//
// Rules: operands are aligned to 32 bytes. Either the destination is the source's memory, or no repeat writes bytes
// that it or a later repeat reads. Transpose with TransposeParamsExt between NCHW and NHWC allows no overlap; a plane's
// rows are whole blocks, and a size of 0 does nothing. Except on Ascend310P, it takes a temporary buffer, which is
// undefined afterwards.
// Meaning of TransDataTo5HD, for the sixteen blocks of a repeat: dst[i][j] = src[j][i]. With 32-bit types, dst[2 i] and
// dst[2 i + 1] get element i of the first and of the last eight sources. With 8-bit types, half blocks are read and
// written. If there is only one repeat, it begins one repeat stride after the addresses in the lists.
// Cost: 256 bytes a cycle (附录, Vector指令理论性能汇总). The conversions between NCHW and NHWC cost three times as
// much, because they move the data two more times.
// Sources: the pages Transpose and TransDataTo5HD.
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

constexpr int kListLength = AscendC::NCHW_CONV_ADDR_LIST_SIZE;

// The sixteen blocks of TransDataTo5HD's source or destination, and the part of each block that the instruction uses.
struct BlockList {
    const char* name;
    UbView views[kListLength];
    uint32_t repeat_stride, offset, bytes;  // offset: from the start of a view to the bytes of the first repeat

    int64_t address_of(uint32_t repeat, int i) const {
        return int64_t(views[i].addr) + offset + int64_t(repeat) * repeat_stride;
    }
    std::vector<Range> ranges_of_repeat(uint32_t repeat) const {
        std::vector<Range> ranges;
        for (int i = 0; i < kListLength; ++i) ranges.push_back({address_of(repeat, i), address_of(repeat, i) + bytes});
        return ranges;
    }
    void check(decltype(reads)& reads_or_writes, uint32_t repeats) const {
        for (int i = 0; i < kListLength; ++i) {
            check_aligned(name, views[i].addr);
            std::vector<Range> ranges;
            for (uint32_t repeat = 0; repeat < repeats; ++repeat)
                ranges.push_back({address_of(repeat, i), address_of(repeat, i) + bytes});
            reads_or_writes(name, views[i], ranges.data(), ranges.size());
        }
    }
    Range covering_range(uint32_t repeats) const {
        Range all{INT64_MAX, 0};
        for (int i = 0; i < kListLength; ++i) {
            all.begin = std::min(all.begin, address_of(0, i));
            all.end = std::max(all.end, address_of(repeats - 1, i) + bytes);
        }
        return all;
    }
};

inline void check_lists_overlap(const BlockList& dst, const BlockList& src, uint32_t repeats) {
    const Range to = dst.covering_range(repeats), from = src.covering_range(repeats);
    if (to.end <= from.begin || from.end <= to.begin) return;
    bool is_same_memory =
        dst.repeat_stride == src.repeat_stride && dst.offset == src.offset && (dst.repeat_stride || repeats == 1);
    for (int i = 0; i < kListLength; ++i) is_same_memory = is_same_memory && dst.views[i].addr == src.views[i].addr;
    if (is_same_memory) return;
    std::vector<std::vector<Range>> read, written;
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        read.push_back(src.ranges_of_repeat(repeat));
        written.push_back(dst.ranges_of_repeat(repeat));
    }
    check_reduce_overlap(read, written);
}

// view_of(is_dst, i): the i-th block of the destination or the source.
template <class T, class F>
void trans_data_to_5hd(F view_of, const AscendC::TransDataTo5HDParams& params, Site site) {
    ASCEND_SIM_NEEDS(TransDataTo5HD, T);
    start(Pipe::V, "TransDataTo5HD", site);
    constexpr bool kUsesHalfBlocks = sizeof(T) == 1;
    constexpr uint32_t kBytes = kUsesHalfBlocks ? kBlockBytes / 2 : kBlockBytes;
    const auto list = [&](const char* name, bool is_dst, uint32_t stride_blocks, bool uses_high_half) {
        BlockList blocks{name, {}, stride_blocks * kBlockBytes, kUsesHalfBlocks && uses_high_half ? kBytes : 0, kBytes};
        if (params.repeatTimes == 1) blocks.offset += blocks.repeat_stride;
        for (int i = 0; i < kListLength; ++i) blocks.views[i] = view_of(is_dst, i);
        return blocks;
    };
    const BlockList to = list("dstList", true, params.dstRepStride, params.dstHighHalf);
    const BlockList from = list("srcList", false, params.srcRepStride, params.srcHighHalf);
    if (params.repeatTimes) {
        from.check(reads, params.repeatTimes);
        check_lists_overlap(to, from, params.repeatTimes);
        to.check(writes, params.repeatTimes);
    }
    constexpr int kLanes = int(kBytes / sizeof(T));
    for (uint32_t repeat = 0; repeat < params.repeatTimes; ++repeat) {
        T sources[kListLength][kLanes];
        for (int j = 0; j < kListLength; ++j) std::memcpy(sources[j], ub() + from.address_of(repeat, j), kBytes);
        for (int i = 0; i < kListLength; ++i) {
            T transposed[kLanes];
            // Sixteen sources fill one block, or two blocks if a block has eight lanes.
            for (int lane = 0; lane < kLanes; ++lane)
                transposed[lane] = kLanes == 8 ? sources[i % 2 * 8 + lane][i / 2] : sources[lane][i];
            std::memcpy(ub() + to.address_of(repeat, i), transposed, kBytes);
        }
    }
    finish_vector(params.repeatTimes, kListLength * kBlockBytes / kRepeatBytes * cycles_of(Cost::Repeat));
}

// Checks the access to the first `bytes` bytes of a tensor by reads() or writes(), and returns their range.
template <class T>
Range check_access(decltype(reads)& reads_or_writes, const char* name, const AscendC::LocalTensor<T>& tensor,
                   uint64_t bytes) {
    check_aligned(name, tensor.view().addr);
    const Range range{tensor.view().addr, int64_t(tensor.view().addr + bytes)};
    reads_or_writes(name, tensor.view(), &range, bytes ? 1 : 0);
    return range;
}

// Transposes `count` matrices of rows x columns.
template <class T>
void transpose_matrices(T* to, const T* from, size_t count, size_t rows, size_t columns) {
    const std::vector<T> copy(from, from + count * rows * columns);
    for (size_t matrix = 0; matrix < count; ++matrix)
        for (size_t row = 0; row < rows; ++row)
            for (size_t column = 0; column < columns; ++column)
                to[(matrix * columns + column) * rows + row] = copy[(matrix * rows + row) * columns + column];
}

// Transposes a matrix of 16 x 16 elements.
template <class T>
void transpose_16(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src) {
    constexpr uint32_t kBytes = kListLength * kListLength * sizeof(T);
    const Range from = check_access(reads, "src", src, kBytes);
    const bool is_same_memory = dst.view().addr == src.view().addr;
    const Range to = check_access(writes, "dst", dst, kBytes);
    if (!is_same_memory) check_disjoint("dst", to, "src", from);
    transpose_matrices(dst.data(), src.data(), 1, kListLength, kListLength);
    finish_vector(kBytes / kRepeatBytes, cycles_of(Cost::Repeat));
}

// Converts between NCHW and NHWC.
template <class T>
void transpose_nchw(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>& work, const AscendC::TransposeParamsExt& params) {
    const bool to_nhwc = params.transposeType == AscendC::TransposeType::TRANSPOSE_NCHW2NHWC;
    const uint32_t plane = uint32_t(params.hSize) * params.wSize;
    if (params.cSize > 4095 || plane > 4095 || plane * sizeof(T) % kBlockBytes)
        broken(Rule::Count04, "cSize must be 0 .. 4095 and hSize * wSize 0 .. 4095 in whole blocks but got %u and %u.",
               params.cSize, plane);
    const uint64_t bytes = uint64_t(params.nSize) * params.cSize * plane * sizeof(T);
    if (bytes == 0) return finish_vector(0, 0);
    const Range from = check_access(reads, "src", src, bytes), to = check_access(writes, "dst", dst, bytes);
    check_disjoint("dst", to, "src", from);
    if (!kIs310p) {
        const uint32_t rows = to_nhwc ? params.cSize + 2u : params.cSize * 2u + 1;
        const uint32_t needed = rows * (sizeof(T) == 1 ? 32 : 16) * kBlockBytes;
        if (work.view().bytes < needed)
            broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", needed, work.view().bytes);
        const Range work_range = check_access(writes, "sharedTmpBuffer", work, needed);
        check_disjoint("sharedTmpBuffer", work_range, "src", from);
        check_disjoint("sharedTmpBuffer", work_range, "dst", to);
        poison(work_range);
    }
    transpose_matrices(dst.data(), src.data(), params.nSize, to_nhwc ? params.cSize : plane,
                       to_nhwc ? plane : params.cSize);
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
    ascend_sim::trans_data_to_5hd<T>([&](bool is_dst, int i) { return (is_dst ? dstList : srcList)[i].view(); },
                                     nchwconvParams, site);
}
// Lists of addresses from GetPhyAddr.
template <class T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& nchwconvParams, ASCEND_SIM_SITE) {
    ascend_sim::trans_data_to_5hd<T>(
        [&](bool is_dst, int i) { return ascend_sim::view_at((is_dst ? dstList : srcList)[i]); }, nchwconvParams, site);
}
// Tensors of addresses, which the instruction reads.
template <class T>
void TransDataTo5HD(const LocalTensor<uint64_t>& dst, const LocalTensor<uint64_t>& src,
                    const TransDataTo5HDParams& nchwconvParams, ASCEND_SIM_SITE) {
    bool is_checked = false;
    ascend_sim::trans_data_to_5hd<T>(
        [&](bool is_dst, int i) {
            constexpr uint64_t kBytes = NCHW_CONV_ADDR_LIST_SIZE * sizeof(uint64_t);
            if (!is_checked) {
                ascend_sim::check_access(ascend_sim::reads, "dst", dst, kBytes);
                ascend_sim::check_access(ascend_sim::reads, "src", src, kBytes);
            }
            is_checked = true;
            return ascend_sim::view_at((is_dst ? dst : src).data()[i]);
        },
        nchwconvParams, site);
}

}  // namespace AscendC
