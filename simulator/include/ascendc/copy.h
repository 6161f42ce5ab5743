// DataCopy: whole 32-byte blocks between GM and UB (pipes MTE2, MTE3) and within UB (pipe V).
//
// Rules: UB addresses are aligned to 32 bytes, GM addresses to the element's size. A count that is not whole
// blocks is rounded down and reported. blockCount is 0 .. 4095. On Ascend310P, 0 blocks or lengths are an error.
// Meaning: blockCount bursts of blockLen with gaps, lengths and gaps in 32-byte blocks. While an atomic mode is on, a
// copy from UB to GM combines its data with the contents of GM.
// Cost: the transfer's bytes and bursts; within UB a plain repeat per 256 bytes.
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

constexpr uint32_t kMaxBursts = 4095;

// The values of ge::DataType, in Element's order.
constexpr int32_t kDtypeNumbers[kElements] = {12, 2, 4, 6, 7, 1, 27, 3, 8, 0, 9, 10, 11, 29, 28};
template <class T>
constexpr int32_t dtype_number() {
    return kDtypeNumbers[int(element_of<T>())];
}

// The name of a type that atomic copies support, from its value in ge::DataType.
inline const char* dtype_name(int32_t number) {
    for (int element = 0; element < kElements; ++element)
        if (kDtypeNumbers[element] == number &&
            (cell::kSigned | cell::kBfloat16 | cell::kInt8) & set_of(Element(element)))
            return kElementNames[element];
    return "another type";
}

// A transfer: `count` bursts of `bytes` bytes. A step is the number of bytes from the start of a burst to that of the
// next.
struct Bursts {
    uint64_t count, bytes;
    int64_t gm_step, ub_step;
    bool empty() const { return count == 0 || bytes == 0; }
};

// The bytes of UB that a transfer accesses.
inline const std::vector<Range>& ub_ranges(uint32_t addr, uint64_t count, uint64_t bytes, int64_t step) {
    static thread_local std::vector<Range> ranges;
    ranges.clear();
    if (uint64_t(step) == bytes) {
        ranges.push_back({addr, int64_t(addr + count * bytes)});
        return ranges;
    }
    for (uint64_t i = 0; i < count; ++i) {
        const int64_t begin = addr + int64_t(i) * step;
        ranges.push_back({begin, begin + int64_t(bytes)});
    }
    return ranges;
}

// Calls use(address, bytes) for the contiguous parts of GM that a transfer accesses.
template <class F>
void for_each_gm_part(uintptr_t address, const Bursts& bursts, F use) {
    if (uint64_t(bursts.gm_step) == bursts.bytes) return use(address, bursts.count * bursts.bytes);
    for (uint64_t i = 0; i < bursts.count; ++i) use(address + int64_t(i) * bursts.gm_step, bursts.bytes);
}

inline void check_burst_count(uint64_t count, uint64_t length) {
    if (count > kMaxBursts)
        broken(Rule::Count03, "blockCount must be 0 .. 4095 but got %llu.", static_cast<unsigned long long>(count));
    if (kIs310p && (count == 0 || length == 0))
        broken(Rule::Count02, "blockCount and blockLen must be at least 1 but got %llu and %llu.",
               static_cast<unsigned long long>(count), static_cast<unsigned long long>(length));
}

template <class T>
void check_gm_aligned(const char* operand, const T* address) {
    ASCEND_SIM_NEEDS(DataCopy, T);
    if (uintptr_t(address) % sizeof(T))
        broken(Rule::Align03, "`%s` starts at a GM address that is no multiple of %zu.", operand, sizeof(T));
}

inline void copy_burst(const uint8_t* from, uint64_t bytes, int64_t to) {
    std::memcpy(ub() + to, from, bytes);
    poison_unwritten(uintptr_t(from), bytes, to);
}

template <class T>
void read_bursts(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, const Bursts& bursts) {
    const uint32_t dst_addr = dst.view().addr;
    check_aligned("dst", dst_addr);
    if (bursts.empty()) return;
    for_each_gm_part(uintptr_t(src.data()), bursts,
                     [&](uintptr_t address, uint64_t bytes) { reads_gm("src", address, bytes, src.view()); });
    const auto& ranges = ub_ranges(dst_addr, bursts.count, bursts.bytes, bursts.ub_step);
    writes("dst", dst.view(), ranges.data(), ranges.size());
    for (uint64_t i = 0; i < bursts.count; ++i)
        copy_burst(reinterpret_cast<const uint8_t*>(src.data()) + int64_t(i) * bursts.gm_step, bursts.bytes,
                   dst_addr + int64_t(i) * bursts.ub_step);
}

// Combines each element of `to` with that of `from`, as an atomic copy does. If one of two elements is NaN, their
// maximum and minimum are NaN, as in the reductions.
template <class T>
void combine_elements(Atomic mode, uint8_t* to, const uint8_t* from, uint64_t bytes) {
    if constexpr (kIsOneOf<T, int8_t, int16_t, int32_t, half, float> || kIsBfloat16<T>) {
        const Arithmetic<T> type;
        for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
            T result, source;
            std::memcpy(&result, to + i, sizeof result);
            std::memcpy(&source, from + i, sizeof source);
            const auto old_value = type.widen(result), new_value = type.widen(source);
            if (mode == Atomic::Add)
                result = type.narrow(decltype(type.widen(result))(old_value + new_value));
            else if (new_value != new_value || (mode == Atomic::Max ? old_value < new_value : new_value < old_value))
                result = source;
            std::memcpy(to + i, &result, sizeof result);
        }
    }
}

template <class T>
void write_bursts(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Bursts& bursts) {
    const uint32_t src_addr = src.view().addr;
    check_aligned("src", src_addr);
    if (bursts.empty()) return;
    const Atomic mode = atomic_mode();
    if (mode != Atomic::None && atomic_dtype() != dtype_number<T>())
        broken(Rule::State02, "SetAtomic%s is on for %s, the copy's elements are %s.",
               mode == Atomic::Add   ? "Add"
               : mode == Atomic::Max ? "Max"
                                     : "Min",
               dtype_name(atomic_dtype()), dtype_name(dtype_number<T>()));
    const auto& ranges = ub_ranges(src_addr, bursts.count, bursts.bytes, bursts.ub_step);
    reads("src", src.view(), ranges.data(), ranges.size());
    for_each_gm_part(uintptr_t(dst.data()), bursts,
                     [&](uintptr_t address, uint64_t bytes) { writes_gm("dst", address, bytes, dst.view()); });
    for (uint64_t i = 0; i < bursts.count; ++i) {
        uint8_t* const to = reinterpret_cast<uint8_t*>(dst.data()) + int64_t(i) * bursts.gm_step;
        const uint8_t* const from = ub() + src_addr + int64_t(i) * bursts.ub_step;
        if (mode != Atomic::None)
            combine_elements<T>(mode, to, from, bursts.bytes);
        else
            std::memcpy(to, from, bursts.bytes);
    }
}

// The number of bytes that the hardware copies: whole blocks. check_whole_blocks() reports a remainder.
template <class T>
uint64_t whole_block_bytes(uint64_t count) {
    if (kIs310p && count == 0) broken(Rule::Count02, "count must be at least one block but got 0.");
    return bytes_of<T>(count) / kBlockBytes * kBlockBytes;
}
template <class T>
void check_whole_blocks(uint64_t count) {
    if (const uint64_t remainder = bytes_of<T>(count) % kBlockBytes)
        broken(Rule::Count01,
               "%llu elements of %zu bytes are no whole 32-byte blocks: the last %llu bytes are not copied.",
               static_cast<unsigned long long>(count), sizeof(T), static_cast<unsigned long long>(remainder));
    if (kIsInt4<T> && count % 2)
        broken(Rule::Count04, "a count of int4b_t must be even but got %llu.", static_cast<unsigned long long>(count));
}

inline Bursts single_burst(uint64_t bytes) { return {1, bytes, int64_t(bytes), int64_t(bytes)}; }

// Copies bursts within UB, in order.
template <class T>
void move_bursts(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint64_t count, uint64_t bytes,
                 int64_t dst_step, int64_t src_step) {
    ASCEND_SIM_NEEDS(DataCopy, T);
    const uint32_t dst_addr = dst.view().addr, src_addr = src.view().addr;
    check_aligned("dst", dst_addr);
    check_aligned("src", src_addr);
    if (count && bytes) {
        const auto& read = ub_ranges(src_addr, count, bytes, src_step);
        reads("src", src.view(), read.data(), read.size());
        const Range read_range{read.front().begin, read.back().end};
        const auto& written = ub_ranges(dst_addr, count, bytes, dst_step);
        if (!(dst_addr == src_addr && dst_step == src_step) && read_range.begin < written.back().end &&
            written.front().begin < read_range.end)
            for (uint64_t i = 0; i < count; ++i)
                for (uint64_t j = 0; j < count; ++j) {
                    const int64_t read_begin = src_addr + int64_t(i) * src_step,
                                  write_begin = dst_addr + int64_t(j) * dst_step;
                    check_disjoint("dst", {write_begin, write_begin + int64_t(bytes)}, "src",
                                   {read_begin, read_begin + int64_t(bytes)});
                }
        writes("dst", dst.view(), written.data(), written.size());
        for (uint64_t i = 0; i < count; ++i)
            std::memmove(ub() + dst_addr + int64_t(i) * dst_step, ub() + src_addr + int64_t(i) * src_step, bytes);
    }
    finish_vector(uint32_t((count * bytes + kRepeatBytes - 1) / kRepeatBytes), cycles_of(Cost::Repeat));
}

// A length and a gap in blocks, as a step in bytes.
inline int64_t step_of(uint64_t length, uint64_t gap) { return int64_t((length + gap) * kBlockBytes); }
inline Bursts bursts_of(const AscendC::DataCopyParams& params, uint64_t gm_gap, uint64_t ub_gap) {
    return {params.blockCount, params.blockLen * uint64_t(kBlockBytes), step_of(params.blockLen, gm_gap),
            step_of(params.blockLen, ub_gap)};
}

}  // namespace ascend_sim

namespace AscendC {

// ---- count forms -------------------------------------------------------------------------------------

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopy", site);
    ascend_sim::check_gm_aligned("src", src.data());
    const uint64_t bytes = ascend_sim::whole_block_bytes<T>(count);
    ascend_sim::read_bursts(dst, src, ascend_sim::single_burst(bytes));
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::finish_copy(bytes, 1, uintptr_t(src.data()));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopy", site);
    ascend_sim::check_gm_aligned("dst", dst.data());
    const uint64_t bytes = ascend_sim::whole_block_bytes<T>(count);
    ascend_sim::write_bursts(dst, src, ascend_sim::single_burst(bytes));
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::finish_copy(bytes, 1, uintptr_t(dst.data()));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "DataCopy", site);
    const uint64_t bytes = ascend_sim::whole_block_bytes<T>(count);
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::move_bursts(dst, src, 1, bytes, int64_t(bytes), int64_t(bytes));
}

// ---- strided forms -----------------------------------------------------------------------------------

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopy", site);
    ascend_sim::check_burst_count(params.blockCount, params.blockLen);
    ascend_sim::check_gm_aligned("src", src.data());
    const ascend_sim::Bursts bursts = ascend_sim::bursts_of(params, params.srcStride, params.dstStride);
    ascend_sim::read_bursts(dst, src, bursts);
    ascend_sim::finish_copy(bursts.count * bursts.bytes, uint32_t(bursts.count), uintptr_t(src.data()));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopy", site);
    ascend_sim::check_burst_count(params.blockCount, params.blockLen);
    ascend_sim::check_gm_aligned("dst", dst.data());
    const ascend_sim::Bursts bursts = ascend_sim::bursts_of(params, params.dstStride, params.srcStride);
    ascend_sim::write_bursts(dst, src, bursts);
    ascend_sim::finish_copy(bursts.count * bursts.bytes, uint32_t(bursts.count), uintptr_t(dst.data()));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "DataCopy", site);
    ascend_sim::check_burst_count(params.blockCount, params.blockLen);
    ascend_sim::move_bursts(dst, src, params.blockCount, params.blockLen * uint64_t(ascend_sim::kBlockBytes),
                            ascend_sim::step_of(params.blockLen, params.dstStride),
                            ascend_sim::step_of(params.blockLen, params.srcStride));
}

}  // namespace AscendC
