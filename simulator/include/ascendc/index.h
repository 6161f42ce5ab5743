// CreateVecIndex: first, first + 1, ... ArithProgression and Arange: first, first + step, ...
//
// Rules: types by SoC; dst is aligned to 32 bytes. Scalar stores write the first block (with a bit mask, the first
// repeat). Earlier vector work on dst must have ended (V_S event). After its scalar stores, the instruction itself sets
// an S_V event and waits for it.
// Meaning: scalars write the first block. Each further block is the previous block plus a constant, each further repeat
// the previous repeat plus a constant. The result differs from first + i * step only where a sum rounds, such as half
// above 2048.
// Cost: one scalar store per element that scalars write. Then eight additions and one per further repeat; each takes as
// long as an instruction.
#pragma once

#include "ascendc/arithmetic.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// The elements of the progression, computed as the hardware does.
template <class T>
class Progression {
public:
    Progression(T first, T step, bool is_index) : first_(first), step_(step), is_index_(is_index) {}
    // values[i], from the elements before it. The first `stored` elements are scalar stores.
    T at(const std::vector<T>& values, uint64_t i, uint32_t stored) const {
        if (i < stored) return store(i);
        const uint32_t distance = i < kElementsPerRepeat ? kElementsPerBlock : kElementsPerRepeat;
        if constexpr (std::is_integral_v<T>)
            return T(values[i - distance] + T(step_ * T(distance)));
        else
            return type_.narrow(type_.widen(values[i - distance]) + type_.widen(T(float(step_) * float(distance))));
    }
    static constexpr uint32_t kElementsPerBlock = kBlockBytes / sizeof(T),
                              kElementsPerRepeat = kRepeatBytes / sizeof(T);

private:
    T store(uint64_t i) const {
        if constexpr (std::is_integral_v<T>)
            // Ascend310P's CreateVecIndex computes in float.
            return is_index_ && kIs310p ? T(float(first_) + float(i))
                                        : T(int64_t(first_) + int64_t(step_) * int64_t(i));
        else
            return T(float(first_) + float(step_) * float(i));
    }
    T first_, step_;
    bool is_index_;
    Arithmetic<T> type_;
};

// stores_repeat: scalars write the whole first repeat instead of only the first block.
template <class T>
void progression_op(const char* api, const Operand<T>& dst, const Progression<T>& progression, const Lanes& lanes,
                    bool stores_repeat, Site site) {
    using Sequence = Progression<T>;
    check_aligned("dst", dst.tensor.view().addr);
    if (lanes.empty()) return finish_scalar(0);
    const Layout layout = layout_of(dst, lanes);
    const uint32_t dst_addr = dst.tensor.view().addr,
                   stored = stores_repeat ? Sequence::kElementsPerRepeat : Sequence::kElementsPerBlock;
    std::vector<Range> stores;
    lanes.for_each_active_group(0, Sequence::kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
        const uint32_t begin = dst_addr + layout.offset(0, lane);
        if (lane < stored) stores.push_back({begin, begin + lane_count * uint32_t(sizeof(T))});
    });
    writes("dst", dst.tensor.view(), stores.data(), stores.size());
    finish_scalar(cycles_of(Cost::IndexStore) *
                  (stores_repeat ? Sequence::kElementsPerRepeat : Sequence::kElementsPerBlock));
    hand_over(Pipe::S, Pipe::V, api, site);

    start(Pipe::V, api, site);
    check_destination(dst, lanes);
    std::vector<T> values(uint64_t(lanes.repeats()) * Sequence::kElementsPerRepeat);
    for (uint64_t i = 0; i < values.size(); ++i) values[i] = progression.at(values, i, stored);
    T* const dst_data = dst.tensor.data();
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, Sequence::kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            std::memcpy(dst_data + layout.offset(repeat, lane) / sizeof(T),
                        &values[uint64_t(repeat) * Sequence::kElementsPerRepeat + lane], lane_count * sizeof(T));
        });
    finish_vector(lanes.repeats() + 7, cycles_of(Cost::IndexAddition));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(CreateVecIndex, T);
    ascend_sim::start(ascend_sim::Pipe::S, "CreateVecIndex", site);
    ascend_sim::set_own_mask("CreateVecIndex");  // its additions set their own masks
    ascend_sim::progression_op("CreateVecIndex", ascend_sim::Operand<T>{"dst", dst},
                               ascend_sim::Progression<T>(firstValue, T(1), true),
                               ascend_sim::Lanes::counted(sizeof(T), count), false, site);
}
template <class T>
void CreateVecIndex(LocalTensor<T>& dst, const T& firstValue, ascend_sim::Mask mask, ascend_sim::RepeatTime repeatTime,
                    ascend_sim::Stride<uint16_t> dstBlkStride, ascend_sim::Stride<uint8_t> dstRepStride,
                    ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(CreateVecIndex, T);
    ascend_sim::start(ascend_sim::Pipe::S, "CreateVecIndex", site);
    ascend_sim::progression_op("CreateVecIndex", ascend_sim::Operand<T>{"dst", dst, dstBlkStride, dstRepStride},
                               ascend_sim::Progression<T>(firstValue, T(1), true),
                               ascend_sim::repeat_lanes<true>("CreateVecIndex", sizeof(T), mask, repeatTime),
                               mask.is_bits, site);
}

template <class T>
void ArithProgression(const LocalTensor<T>& dst, const T firstValue, const T diffValue, const int32_t count,
                      ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(ArithProgression, T);
    ascend_sim::start(ascend_sim::Pipe::S, "ArithProgression", site);
    if (count <= 0) ascend_sim::broken(ascend_sim::Rule::Count04, "count must be > 0 but got %d.", count);
    if (diffValue < T(0)) ascend_sim::broken(ascend_sim::Rule::Mode01, "the difference must be >= 0.");
    constexpr uint32_t kElementsPerBlock = ascend_sim::Progression<T>::kElementsPerBlock;
    uint32_t written = count > 0 ? uint32_t(count) : 0;
    // Short progressions consist of scalar stores, which wait for the vector unit; longer ones fill whole blocks.
    if (written > kElementsPerBlock)
        written = (written + kElementsPerBlock - 1) / kElementsPerBlock * kElementsPerBlock;
    else
        ascend_sim::hand_over(ascend_sim::Pipe::V, ascend_sim::Pipe::S, "ArithProgression", site);
    ascend_sim::set_own_mask("ArithProgression");
    ascend_sim::progression_op("ArithProgression", ascend_sim::Operand<T>{"dst", dst},
                               ascend_sim::Progression<T>(firstValue, diffValue, false),
                               ascend_sim::Lanes::counted(sizeof(T), written), false, site);
    ascend_sim::barrier(int32_t(ascend_sim::Pipe::V), site);
}
template <class T>
void Arange(const LocalTensor<T>& dst, const T firstValue, const T diffValue, const int32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Arange, T);
    ArithProgression(dst, firstValue, diffValue, count, site);
}

}  // namespace AscendC
