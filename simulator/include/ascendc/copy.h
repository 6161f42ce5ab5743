// DataCopy: whole 32-byte blocks between GM and UB (pipes MTE2, MTE3) and within UB (pipe V).
//
// Rules: UB addresses are aligned to 32 bytes, GM addresses to the element's size. A count that is not whole
// blocks is rounded down and reported. blockCount is 0 .. 4095; 0 blocks or lengths are an error on Ascend310P.
// UB to GM combines while an atomic mode is on.
// Meaning: bursts of blockLen with gaps, all in 32-byte blocks.
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

// The name of an atomic copy's type, from its value in ge::DataType.
inline const char* dtype_name(int32_t number) {
    for (int e = 0; e < kElements; ++e)
        if (kDtypeNumbers[e] == number && (cell::kSigned | cell::kBfloat16 | cell::kInt8) & set_of(Element(e)))
            return kElementNames[e];
    return "another type";
}

// A transfer: `count` bursts of `bytes`; the steps are bytes between the starts of bursts.
struct Bursts {
    uint64_t count, bytes;
    int64_t gm_step, ub_step;
    bool empty() const { return count == 0 || bytes == 0; }
};

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

// Calls f(address, bytes) for the stretches of GM that a transfer touches.
template <class F>
void for_each_gm(uintptr_t address, const Bursts& b, F f) {
    if (uint64_t(b.gm_step) == b.bytes) return f(address, b.count * b.bytes);
    for (uint64_t i = 0; i < b.count; ++i) f(address + int64_t(i) * b.gm_step, b.bytes);
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

template <class T>
void read_bursts(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, const Bursts& b) {
    const uint32_t to = dst.view().addr;
    check_aligned("dst", to);
    if (b.empty()) return;
    for_each_gm(uintptr_t(src.data()), b, [&](uintptr_t a, uint64_t n) { reads_gm("src", a, n, src.view()); });
    const auto& ranges = ub_ranges(to, b.count, b.bytes, b.ub_step);
    writes("dst", dst.view(), ranges.data(), ranges.size());
    for (uint64_t i = 0; i < b.count; ++i)
        std::memcpy(ub() + to + int64_t(i) * b.ub_step,
                    reinterpret_cast<const uint8_t*>(src.data()) + int64_t(i) * b.gm_step, b.bytes);
}

// Combines each element of `to` with that of `from`, as an atomic copy writes. A NaN is the result of a maximum or
// minimum, as in the reductions.
template <class T>
void combine_elements(Atomic mode, uint8_t* to, const uint8_t* from, uint64_t bytes) {
    if constexpr (kIsOneOf<T, int8_t, int16_t, int32_t, half, float> || kIsBfloat16<T>) {
        const Arithmetic<T> type;
        for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
            T a, b;
            std::memcpy(&a, to + i, sizeof a);
            std::memcpy(&b, from + i, sizeof b);
            const auto x = type.widen(a), y = type.widen(b);
            if (mode == Atomic::Add)
                a = type.narrow(decltype(type.widen(a))(x + y));
            else if (y != y || (mode == Atomic::Max ? x < y : y < x))
                a = b;
            std::memcpy(to + i, &a, sizeof a);
        }
    }
}

template <class T>
void write_bursts(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Bursts& b) {
    const uint32_t from = src.view().addr;
    check_aligned("src", from);
    if (b.empty()) return;
    const Atomic mode = atomic_mode();
    if (mode != Atomic::None && atomic_dtype() != dtype_number<T>())
        broken(Rule::State02, "SetAtomic%s is on for %s, the copy's elements are %s.",
               mode == Atomic::Add   ? "Add"
               : mode == Atomic::Max ? "Max"
                                     : "Min",
               dtype_name(atomic_dtype()), dtype_name(dtype_number<T>()));
    const auto& ranges = ub_ranges(from, b.count, b.bytes, b.ub_step);
    reads("src", src.view(), ranges.data(), ranges.size());
    for_each_gm(uintptr_t(dst.data()), b, [&](uintptr_t a, uint64_t n) { writes_gm("dst", a, n, dst.view()); });
    for (uint64_t i = 0; i < b.count; ++i) {
        uint8_t* const to = reinterpret_cast<uint8_t*>(dst.data()) + int64_t(i) * b.gm_step;
        const uint8_t* const at = ub() + from + int64_t(i) * b.ub_step;
        if (mode != Atomic::None)
            combine_elements<T>(mode, to, at, b.bytes);
        else
            std::memcpy(to, at, b.bytes);
    }
}

// The bytes of the whole blocks of a count, which the hardware copies; check_whole_blocks() reports a rest.
template <class T>
uint64_t whole_blocks(uint64_t count) {
    if (kIs310p && count == 0) broken(Rule::Count02, "count must be at least one block but got 0.");
    return bytes_of<T>(count) / kBlockBytes * kBlockBytes;
}
template <class T>
void check_whole_blocks(uint64_t count) {
    if (const uint64_t rest = bytes_of<T>(count) % kBlockBytes)
        broken(Rule::Count01,
               "%llu elements of %zu bytes are no whole 32-byte blocks: the last %llu bytes are not copied.",
               static_cast<unsigned long long>(count), sizeof(T), static_cast<unsigned long long>(rest));
    if (kIsInt4<T> && count % 2)
        broken(Rule::Count04, "a count of int4b_t must be even but got %llu.", static_cast<unsigned long long>(count));
}

inline Bursts single_burst(uint64_t bytes) { return {1, bytes, int64_t(bytes), int64_t(bytes)}; }

// Copies runs of bytes within UB, in order.
template <class T>
void move_bursts(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint64_t count, uint64_t bytes,
                 int64_t dst_step, int64_t src_step) {
    ASCEND_SIM_NEEDS(DataCopy, T);
    const uint32_t to = dst.view().addr, from = src.view().addr;
    check_aligned("dst", to);
    check_aligned("src", from);
    if (count && bytes) {
        const auto& read = ub_ranges(from, count, bytes, src_step);
        reads("src", src.view(), read.data(), read.size());
        const Range all_read{read.front().begin, read.back().end};
        const auto& written = ub_ranges(to, count, bytes, dst_step);
        if (!(to == from && dst_step == src_step) && all_read.begin < written.back().end &&
            written.front().begin < all_read.end)
            for (uint64_t i = 0; i < count; ++i)
                for (uint64_t k = 0; k < count; ++k) {
                    const int64_t r = from + int64_t(i) * src_step, w = to + int64_t(k) * dst_step;
                    check_apart("dst", {w, w + int64_t(bytes)}, "src", {r, r + int64_t(bytes)});
                }
        writes("dst", dst.view(), written.data(), written.size());
        for (uint64_t i = 0; i < count; ++i)
            std::memmove(ub() + to + int64_t(i) * dst_step, ub() + from + int64_t(i) * src_step, bytes);
    }
    finish_vector(uint32_t((count * bytes + kRepeatBytes - 1) / kRepeatBytes), cycles_of(Cost::Repeat));
}

inline int64_t step_of(uint64_t length, uint64_t gap) { return int64_t((length + gap) * kBlockBytes); }
inline Bursts bursts_of(const AscendC::DataCopyParams& p, uint64_t gm_gap, uint64_t ub_gap) {
    return {p.blockCount, p.blockLen * uint64_t(kBlockBytes), step_of(p.blockLen, gm_gap), step_of(p.blockLen, ub_gap)};
}

}  // namespace ascend_sim

namespace AscendC {

// ---- count forms -------------------------------------------------------------------------------------

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopy", site);
    ascend_sim::check_gm_aligned("src", src.data());
    const uint64_t bytes = ascend_sim::whole_blocks<T>(count);
    ascend_sim::read_bursts(dst, src, ascend_sim::single_burst(bytes));
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::finish_copy(bytes, 1, uintptr_t(src.data()));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopy", site);
    ascend_sim::check_gm_aligned("dst", dst.data());
    const uint64_t bytes = ascend_sim::whole_blocks<T>(count);
    ascend_sim::write_bursts(dst, src, ascend_sim::single_burst(bytes));
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::finish_copy(bytes, 1, uintptr_t(dst.data()));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "DataCopy", site);
    const uint64_t bytes = ascend_sim::whole_blocks<T>(count);
    ascend_sim::check_whole_blocks<T>(count);
    ascend_sim::move_bursts(dst, src, 1, bytes, int64_t(bytes), int64_t(bytes));
}

// ---- strided forms -----------------------------------------------------------------------------------

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopy", site);
    ascend_sim::check_burst_count(p.blockCount, p.blockLen);
    ascend_sim::check_gm_aligned("src", src.data());
    const ascend_sim::Bursts b = ascend_sim::bursts_of(p, p.srcStride, p.dstStride);
    ascend_sim::read_bursts(dst, src, b);
    ascend_sim::finish_copy(b.count * b.bytes, uint32_t(b.count), uintptr_t(src.data()));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopy", site);
    ascend_sim::check_burst_count(p.blockCount, p.blockLen);
    ascend_sim::check_gm_aligned("dst", dst.data());
    const ascend_sim::Bursts b = ascend_sim::bursts_of(p, p.dstStride, p.srcStride);
    ascend_sim::write_bursts(dst, src, b);
    ascend_sim::finish_copy(b.count * b.bytes, uint32_t(b.count), uintptr_t(dst.data()));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "DataCopy", site);
    ascend_sim::check_burst_count(p.blockCount, p.blockLen);
    ascend_sim::move_bursts(dst, src, p.blockCount, p.blockLen * uint64_t(ascend_sim::kBlockBytes),
                            ascend_sim::step_of(p.blockLen, p.dstStride), ascend_sim::step_of(p.blockLen, p.srcStride));
}

}  // namespace AscendC
