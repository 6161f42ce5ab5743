// DataCopyPad: copies of any length between GM and UB; each block of UB is filled up to 32 bytes.
//
// Rules: not on Ascend310P. blockCount 0 .. 4095, blockLen 0 .. 2097151 bytes in whole elements; padding at most 32
// bytes a side. The padding value is 0 for 64-bit elements and for DataCopyPadParams. The tensor in UB is aligned to 32
// bytes.
// Meaning: a copy to UB writes left padding, the bytes, right padding, and then filler up to 32 bytes. In a copy with
// padding, padding and filler have paddingValue if isPad is set. Otherwise they have SetPadValue's value, or undefined
// values if it is not set. A copy with isPad replaces SetPadValue's value, which is undefined afterwards. In a copy
// without padding, the filler has the value of the block's first element. A copy to GM writes the bytes only. Gaps are
// in bytes in GM, in 32-byte blocks in UB.
// PaddingMode::Compact (Ascend950): bursts are adjacent in UB, and filler follows only the last one. Without padding
// and with several blocks this filler is undefined, because the page does not say which block's first element it has.
// Cost: the transfer's bytes and bursts; SetPadValue as another write of a register.
// Sources: the pages DataCopyPad and SetPadValue; asc-devkit impl/basic_api/dav_c220/kernel_operator_data_copy_impl.h:
// isPad writes the register of SetPadValue.
#pragma once

#include "ascendc/copy.h"

namespace AscendC {
enum class PaddingMode : uint8_t { Normal, Compact };
}

namespace ascend_sim {

struct Padding {
    bool is_pad;
    uint64_t left, right;  // in bytes
};

constexpr uint64_t kMaxPadLength = 2097151;

// A gap of `blocks` blocks in bytes. The limit prevents an overflow in sums of 4,095 gaps; it is far beyond UB's size.
constexpr int64_t gap_bytes(int64_t blocks) {
    constexpr int64_t kMaxBlocks = int64_t(1) << 44;
    return (blocks > kMaxBlocks ? kMaxBlocks : blocks < -kMaxBlocks ? -kMaxBlocks : blocks) * int64_t(kBlockBytes);
}

constexpr uint64_t round_up_to_block(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

template <class T>
void check_pad_copy(uint64_t count, uint64_t length) {
    ASCEND_SIM_NEEDS(DataCopyPad, T);
    check_burst_count(count, length);
    if (length > kMaxPadLength || length % sizeof(T))
        broken(Rule::Count03, "blockLen must be 0 .. 2097151 bytes in whole elements of %zu but got %llu.", sizeof(T),
               static_cast<unsigned long long>(length));
}

template <class T>
void check_padding(const Padding& pad, bool value_is_zero) {
    if (pad.left > kBlockBytes || pad.right > kBlockBytes)
        broken(Rule::Pad01, "padding must be at most 32 bytes a side but got %llu and %llu.",
               static_cast<unsigned long long>(pad.left), static_cast<unsigned long long>(pad.right));
    if (sizeof(T) == 8 && pad.is_pad && !value_is_zero) broken(Rule::Pad01, "the value must be 0 for 64-bit elements.");
}

// Fills the bytes [begin, end) of UB, a part of the running copy's destination, with the element `value`; null: with
// undefined data.
template <class T>
void fill(uint64_t begin, uint64_t end, const void* value) {
    if (begin >= end) return;
    if (!value) {
        std::memset(ub() + begin, 0xff, end - begin);
        poison({int64_t(begin), int64_t(end)});
        return;
    }
    T element;
    std::memcpy(&element, value, sizeof element);
    if constexpr (kIsInt4<T>) element.storage = uint8_t((element.storage & 15) * 17);  // in both halves of the byte
    for (uint64_t at = begin; at + sizeof(T) <= end; at += sizeof(T)) std::memcpy(ub() + at, &element, sizeof(T));
}

// Returns the value of padding and filler of a copy with padding, or null if it is undefined.
template <class T>
const void* padding_value(bool is_pad, const T& value) {
    if (is_pad) return &value;
    const PadRegister& from_kernel = pad_register();
    if (from_kernel.element_bytes == 0) return nullptr;
    if (from_kernel.element_bytes != sizeof(T))
        broken(Rule::Pad01, "the value of SetPadValue must have the copy's type, %zu bytes, but has %u.", sizeof(T),
               from_kernel.element_bytes);
    return &from_kernel.bits;
}

template <class T>
void copy_in_padded(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, uint64_t count,
                    uint64_t length, int64_t gm_gap, int64_t ub_gap, const Padding& pad, T value,
                    bool compact = false) {
    check_pad_copy<T>(count, length);
    T zero{};
    check_padding<T>(pad, std::memcmp(&value, &zero, sizeof(T)) == 0);
    if (pad.is_pad) pad_register().element_bytes = 0;  // also without padding
    const uint64_t left = compact ? 0 : pad.left;
    const uint64_t block_bytes = compact ? length : round_up_to_block(left + length + pad.right);
    const Bursts bursts{count, length, int64_t(length) + gm_gap,
                        int64_t(block_bytes) + (compact ? 0 : gap_bytes(ub_gap))};
    const uint32_t dst_addr = dst.view().addr;
    check_aligned("dst", dst_addr);
    if (!bursts.empty()) {
        for_each_gm_part(uintptr_t(src.data()), bursts,
                         [&](uintptr_t address, uint64_t bytes) { reads_gm("src", address, bytes, src.view()); });
        const auto& ranges = compact ? ub_ranges(dst_addr, 1, round_up_to_block(count * length), 0)
                                     : ub_ranges(dst_addr, count, block_bytes, bursts.ub_step);
        writes("dst", dst.view(), ranges.data(), ranges.size());
        const bool is_padded = pad.left + pad.right > 0;
        const void* const padding = is_padded ? padding_value(pad.is_pad, value) : nullptr;
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t block_begin = uint64_t(dst_addr + int64_t(i) * bursts.ub_step), begin = block_begin + left,
                           end = begin + length;
            copy_burst(reinterpret_cast<const uint8_t*>(src.data()) + int64_t(i) * bursts.gm_step, length,
                       int64_t(begin));
            fill<T>(block_begin, begin, padding);
            if (!compact) fill<T>(end, block_begin + block_bytes, is_padded ? padding : ub() + begin);
        }
        if (compact)
            fill<T>(dst_addr + count * length, dst_addr + round_up_to_block(count * length),
                    is_padded || count > 1 ? padding : ub() + dst_addr);
    }
    finish_copy(count * length, uint32_t(count), uintptr_t(src.data()));
}

template <class T>
void copy_out_unpadded(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint64_t count,
                       uint64_t length, int64_t gm_gap, int64_t ub_gap, bool compact = false) {
    check_pad_copy<T>(count, length);
    const Bursts bursts{count, length, int64_t(length) + gm_gap,
                        compact ? int64_t(length) : int64_t(round_up_to_block(length)) + gap_bytes(ub_gap)};
    write_bursts(dst, src, bursts);
    finish_copy(count * length, uint32_t(count), uintptr_t(dst.data()));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, TPosition pos = TPosition::MAX>
void SetPadValue(T paddingValue, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SetPadValue, T);
    static_assert(pos == TPosition::MAX || pos == TPosition::VECIN || pos == TPosition::VECOUT,
                  "SetPadValue: the position must be VECIN, VECOUT or MAX");
    ascend_sim::start(ascend_sim::Pipe::S, "SetPadValue", site);
    ascend_sim::PadRegister value{sizeof(T)};
    std::memcpy(&value.bits, &paddingValue, sizeof(T));
    ascend_sim::pad_register() = value;
    ascend_sim::finish_scalar(ascend_sim::cycles_of(ascend_sim::Cost::Mask));
}

template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& dataCopyParams,
                 const DataCopyPadExtParams<T>& padParams, ASCEND_SIM_SITE) {
    static_assert(mode == PaddingMode::Normal || ascend_sim::kTakes<T, ascend_sim::Api::DataCopyPadCompact>,
                  "DataCopyPad: this SoC does not have PaddingMode::Compact");
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopyPad", site);
    ascend_sim::copy_in_padded(dst, src, dataCopyParams.blockCount, dataCopyParams.blockLen,
                               int64_t(dataCopyParams.srcStride), int64_t(dataCopyParams.dstStride),
                               {padParams.isPad, ascend_sim::bytes_of<T>(padParams.leftPadding),
                                ascend_sim::bytes_of<T>(padParams.rightPadding)},
                               padParams.paddingValue, mode == PaddingMode::Compact);
}
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& dataCopyParams,
                 const DataCopyPadParams& padParams, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE2, "DataCopyPad", site);
    if (padParams.paddingValue)
        ascend_sim::broken(ascend_sim::Rule::Pad01, "DataCopyPadParams pads with 0 but got %llu.",
                           static_cast<unsigned long long>(padParams.paddingValue));
    T zero{};
    ascend_sim::copy_in_padded(dst, src, dataCopyParams.blockCount, dataCopyParams.blockLen, dataCopyParams.srcStride,
                               dataCopyParams.dstStride,
                               {padParams.isPad, ascend_sim::bytes_of<T>(padParams.leftPadding),
                                ascend_sim::bytes_of<T>(padParams.rightPadding)},
                               zero);
}
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& dataCopyParams,
                 ASCEND_SIM_SITE) {
    static_assert(mode == PaddingMode::Normal || ascend_sim::kTakes<T, ascend_sim::Api::DataCopyPadCompact>,
                  "DataCopyPad: this SoC does not have PaddingMode::Compact");
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopyPad", site);
    ascend_sim::copy_out_unpadded(dst, src, dataCopyParams.blockCount, dataCopyParams.blockLen,
                                  int64_t(dataCopyParams.dstStride), int64_t(dataCopyParams.srcStride),
                                  mode == PaddingMode::Compact);
}
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& dataCopyParams,
                 ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::MTE3, "DataCopyPad", site);
    ascend_sim::copy_out_unpadded(dst, src, dataCopyParams.blockCount, dataCopyParams.blockLen,
                                  dataCopyParams.dstStride, dataCopyParams.srcStride);
}

}  // namespace AscendC
