// Steps of norms on rows of floats in UB: sums of rows, reads of scalars, and operations of each row with one row.
//
// A matrix has `rows` rows of h elements, a multiple of 8. Steps are instructions in counter mode, as in UbSteps.
// Cost: the sum of the instructions. They are the instructions of asc-devkit's impl/adv_api/detail/normalization.
#pragma once

#include <algorithm>
#include <vector>

#include "ascendc/library/moves.h"
#include "ascendc/library/program.h"
#include "ascendc/reduce.h"

namespace ascend_sim {

using Floats = AscendC::LocalTensor<float>;

class NormSteps : public UbSteps {
public:
    using UbSteps::UbSteps;
    Site site() const { return site_; }

    // Runs steps that do not depend on each other, and puts one barrier after all of them.
    template <class Function>
    void share_barrier(Function run_steps) {
        shares_barrier_ = true;
        run_steps();
        shares_barrier_ = false;
        end_step();
    }
    // dst = src op v for each row, where v is one row.
    void mul_rows(const Floats& dst, const Floats& src, const Floats& v, uint32_t rows, uint32_t h) {
        set_count(h);
        share_barrier([&] {
            for (uint32_t r = 0; r < rows; ++r) mul(dst[r * h], src[r * h], v);
        });
    }
    void add_rows(const Floats& dst, const Floats& src, const Floats& v, uint32_t rows, uint32_t h) {
        set_count(h);
        share_barrier([&] {
            for (uint32_t r = 0; r < rows; ++r) add(dst[r * h], src[r * h], v);
        });
    }
    // dst = 1 / dst for n elements. Overwrites `ones`. A division is more accurate than AscendC::Reciprocal.
    void divide_one_by(const Floats& dst, const Floats& ones, uint32_t n) {
        set_count(8);
        fill(ones, 1.0f);
        set_count(n);
        AscendC::Div<float, false>(dst, ones, dst, kMaskRegister, 1, AscendC::BinaryRepeatParams(1, 0, 1, 8, 0, 8),
                                   site_);
        end_step();
    }
    // Returns the first n values, which the scalar unit reads.
    std::vector<float> read_scalars(const Floats& src, uint32_t n) const {
        hand_over(Pipe::V, Pipe::S, "GetValue", site_);
        std::vector<float> values(n);
        for (uint32_t i = 0; i < n; ++i) values[i] = src.GetValue(i, site_);
        hand_over(Pipe::S, Pipe::V, "GetValue", site_);
        return values;
    }
    void copy(const Floats& dst, const Floats& src, uint32_t n) {
        run_instruction(kIs310p ? "DataCopy" : "Copy", site_, first_elements("dst", dst, n),
                        first_elements("src", src, n), repeats_of(n * sizeof(float)), Cost::Repeat,
                        [&] { std::memmove(dst.data(), src.data(), n * sizeof(float)); });
    }
    // Each of the h elements of row r becomes src[r * stride]. Costs a mask and a selection for each row.
    void spread(const Floats& dst, const Floats& src, uint32_t stride, uint32_t rows, uint32_t h) {
        for (uint32_t r = 0; r < rows; ++r) {
            const Floats result = dst[r * h], from = src[r * stride];
            run_instruction("Select", site_, first_elements("dst", result, h), first_elements("src", from, 1),
                            repeats_of(h * sizeof(float)) + 1, Cost::Repeat, [&] {
                                const float value = from.data()[0];
                                for (uint32_t i = 0; i < h; ++i) result.data()[i] = value;
                            });
        }
    }
    // sums[r] and in_rows[r * h] become the sum of the h elements of row r. Overwrites src. The repeats of a row are
    // added lane by lane, then the lanes of the resulting repeat are summed.
    void sum_rows_by_lanes(const Floats& sums, const Floats& in_rows, const Floats& src, uint32_t rows, uint32_t h) {
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
        const uint32_t chunks = h / kLanes, tail = h % kLanes;
        for (uint32_t r = 0; r < rows && h > kLanes; ++r) {
            const Floats row = src[r * h];
            for (uint32_t first = 1; first < chunks; first += kMaxRepeats)
                add_row_repeats(row, row[first * kLanes], kLanes, std::min<uint32_t>(chunks - first, kMaxRepeats));
            if (tail) add_row_repeats(row, row[chunks * kLanes], tail, 1);
        }
        const int32_t lanes = int32_t(std::min<uint32_t>(h, kLanes));
        for (uint32_t r = 0; r < rows; r += kMaxRepeats) {
            const int32_t n = int32_t(std::min<uint32_t>(rows - r, kMaxRepeats));
            AscendC::WholeReduceSum<float>(sums[r], src[r * h], lanes, n, 1, 1, int32_t(h / 8), site_);
            AscendC::WholeReduceSum<float>(in_rows[r * h], src[r * h], lanes, n, int32_t(h), 1, int32_t(h / 8), site_);
            end_step();
        }
        AscendC::SetMaskCount(site_);
    }
    // Sums each repeat of src. dst may be src, because repeat r writes only element r, which was read before.
    template <class T>
    void reduce_repeats(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint32_t n) {
        constexpr uint32_t kElementsInRepeat = kRepeatBytes / sizeof(T);
        const uint32_t repeats = (n + kElementsInRepeat - 1) / kElementsInRepeat;
        run_instruction(
            "RepeatReduceSum", site_, first_elements("dst", dst, repeats), first_elements("src", src, n), repeats,
            Cost::WholeReduce, [&] {
                for (uint32_t r = 0; r < repeats; ++r) {
                    T lanes[kElementsInRepeat] = {}, sum = T(0.0f);
                    const uint32_t left = std::min<uint32_t>(n - r * kElementsInRepeat, kElementsInRepeat);
                    std::memcpy(lanes, src.data() + r * kElementsInRepeat, left * sizeof(T));
                    tree_sum(lanes, kElementsInRepeat, Arithmetic<T>(), [=](uint32_t i) { return i < left; }, &sum);
                    dst.data()[r] = sum;
                }
            });
    }
    // sums[r] = the sum of the first n elements of row r. Overwrites src. A row's repeats are summed until one value is
    // left. aligned_sums receives the same sums. It starts at a 32-byte border; `sums` need not.
    void sum_rows_by_repeats(const Floats& sums, const Floats& src, uint32_t rows, uint32_t h, uint32_t n,
                             const Floats* aligned_sums = nullptr) {
        for (uint32_t r = 0; r < rows; ++r) {
            const Floats row = src[r * h];
            uint32_t total = n;
            for (; total > kLanes; total = (total + kLanes - 1) / kLanes) reduce_repeats(row, row, total);
            if (aligned_sums) reduce_repeats((*aligned_sums)[r], row, total);
            reduce_repeats(sums[r], row, total);
        }
    }
    // Like sum_rows_by_repeats, but all h elements of a row count, and h is a multiple of 64. Each instruction adds one
    // repeat of every row to the row's first repeat. At the end, the first repeat of each row is summed.
    void sum_basic_block_rows(const Floats& sums, const Floats& src, uint32_t rows, uint32_t h,
                              const Floats* aligned_sums = nullptr) {
        const int32_t stride = int32_t(h / 8);
        set_count(rows * kLanes);
        for (uint32_t i = kLanes; i < h; i += kLanes) {
            AscendC::Add<float, false>(src, src[i], src, kMaskRegister, 1,
                                       AscendC::BinaryRepeatParams(1, 1, 1, stride, stride, stride), site_);
            end_step();
        }
        for (const Floats* result : {aligned_sums, &sums}) {
            if (!result) continue;
            AscendC::RepeatReduceSum<float, false>(*result, src, 1, int32_t(kLanes), 1, 1, 1, stride, site_);
            end_step();
        }
    }

    static constexpr uint32_t kLanes = 64, kMaxRepeats = 255;

private:
    // dst += each of the repeats of src.
    void add_row_repeats(const Floats& dst, const Floats& src, uint32_t lanes, uint32_t repeats) {
        AscendC::Add<float>(dst, src, dst, uint64_t(lanes), uint8_t(repeats),
                            AscendC::BinaryRepeatParams(1, 1, 1, 0, 8, 0), site_);
        end_step();
    }
};

// Returns the sum of n elements as a loop over Ascend950's vector registers computes it: first lane by lane.
inline float sum_in_registers(const float* x, uint32_t n) {
    constexpr uint32_t kLanes = 64;
    float lanes[kLanes] = {}, sum = 0;
    for (uint32_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
    tree_sum(lanes, kLanes, Arithmetic<float>(), [n](uint32_t i) { return i < n; }, &sum);
    return sum;
}

}  // namespace ascend_sim
