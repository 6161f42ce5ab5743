// Steps of norms on rows of floats in UB: sums of rows, scalars, and operations of rows with a vector.
//
// A matrix has `rows` rows of h elements, a multiple of 8. Steps are instructions in counter mode, as in UbMachine.
// Cost: that of the instructions, which are those of asc-devkit's impl/adv_api/detail/normalization.
#pragma once

#include <vector>

#include "ascendc/library/moves.h"
#include "ascendc/library/program.h"
#include "ascendc/reduce.h"

namespace ascend_sim {

using Floats = AscendC::LocalTensor<float>;

class NormSteps : public UbMachine {
public:
    using UbMachine::UbMachine;
    Site site() const { return site_; }

    // Steps that do not depend on each other, and one barrier.
    template <class F>
    void together(F steps) {
        is_together_ = true;
        steps();
        is_together_ = false;
        done();
    }
    // d = s op v for each row; v is one row.
    void mul_rows(const Floats& d, const Floats& s, const Floats& v, uint32_t rows, uint32_t h) {
        count(h);
        together([&] {
            for (uint32_t r = 0; r < rows; ++r) mul(d[r * h], s[r * h], v);
        });
    }
    void add_rows(const Floats& d, const Floats& s, const Floats& v, uint32_t rows, uint32_t h) {
        count(h);
        together([&] {
            for (uint32_t r = 0; r < rows; ++r) add(d[r * h], s[r * h], v);
        });
    }
    // d = 1 / d, for n elements; ones is overwritten. Reciprocal would be less accurate.
    void one_over(const Floats& d, const Floats& ones, uint32_t n) {
        count(8);
        fill(ones, 1.0f);
        count(n);
        AscendC::Div<float, false>(d, ones, d, kRegister, 1, AscendC::BinaryRepeatParams(1, 0, 1, 8, 0, 8), site_);
        done();
    }
    // The scalar unit reads n values.
    std::vector<float> scalars(const Floats& s, uint32_t n) const {
        hand_over(Pipe::V, Pipe::S, "GetValue", site_);
        std::vector<float> values(n);
        for (uint32_t i = 0; i < n; ++i) values[i] = s.GetValue(i, site_);
        hand_over(Pipe::S, Pipe::V, "GetValue", site_);
        return values;
    }
    void copy(const Floats& d, const Floats& s, uint32_t n) {
        move_elements(kIs310p ? "DataCopy" : "Copy", site_, first_of("dst", d, n), first_of("src", s, n),
                      repeats_of(n * sizeof(float)), Cost::Repeat,
                      [&] { std::memmove(d.data(), s.data(), n * sizeof(float)); });
    }
    // d (rows of h) = s[r * stride] in each element of row r: a mask and a selection for each row.
    void spread(const Floats& d, const Floats& s, uint32_t stride, uint32_t rows, uint32_t h) {
        for (uint32_t r = 0; r < rows; ++r) {
            const Floats to = d[r * h], from = s[r * stride];
            move_elements("Select", site_, first_of("dst", to, h), first_of("src", from, 1),
                          repeats_of(h * sizeof(float)) + 1, Cost::Repeat, [&] {
                              const float value = from.data()[0];
                              for (uint32_t i = 0; i < h; ++i) to.data()[i] = value;
                          });
        }
    }
    // sums[r] = sum of the h elements of row r, also in the first element of in_rows' row. Overwrites s. Repeats are
    // added lane by lane, then the lanes of one repeat are summed.
    void fold_sums(const Floats& sums, const Floats& in_rows, const Floats& s, uint32_t rows, uint32_t h) {
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
        const uint32_t chunks = h / kLanes, tail = h % kLanes;
        for (uint32_t r = 0; r < rows && h > kLanes; ++r) {
            const Floats row = s[r * h];
            for (uint32_t first = 1; first < chunks; first += kMostRepeats)
                add_repeats(row, row[first * kLanes], kLanes, least(chunks - first, kMostRepeats));
            if (tail) add_repeats(row, row[chunks * kLanes], tail, 1);
        }
        const int32_t lanes = int32_t(least(h, kLanes));
        for (uint32_t r = 0; r < rows; r += kMostRepeats) {
            const int32_t n = int32_t(least(rows - r, kMostRepeats));
            AscendC::WholeReduceSum<float>(sums[r], s[r * h], lanes, n, 1, 1, int32_t(h / 8), site_);
            AscendC::WholeReduceSum<float>(in_rows[r * h], s[r * h], lanes, n, int32_t(h), 1, int32_t(h / 8), site_);
            done();
        }
        AscendC::SetMaskCount(site_);
    }
    // RepeatReduceSum, also in place: a repeat writes only what it or an earlier one has read.
    template <class T>
    void reduce_repeats(const AscendC::LocalTensor<T>& d, const AscendC::LocalTensor<T>& s, uint32_t n) {
        constexpr uint32_t kInRepeat = kRepeatBytes / sizeof(T);
        const uint32_t repeats = (n + kInRepeat - 1) / kInRepeat;
        move_elements("RepeatReduceSum", site_, first_of("dst", d, repeats), first_of("src", s, n), repeats,
                      Cost::WholeReduce, [&] {
                          for (uint32_t r = 0; r < repeats; ++r) {
                              T lanes[kInRepeat] = {}, sum = T(0.0f);
                              const uint32_t left = least(n - r * kInRepeat, kInRepeat);
                              std::memcpy(lanes, s.data() + r * kInRepeat, left * sizeof(T));
                              tree_sum(lanes, kInRepeat, Arithmetic<T>(), [=](uint32_t i) { return i < left; }, &sum);
                              d.data()[r] = sum;
                          }
                      });
    }
    // sums[r] = sum of the first n elements of row r, also in also[r], which unlike sums starts a block. Overwrites s.
    // Each row is reduced by repeats until one is left.
    void repeat_sums(const Floats& sums, const Floats& s, uint32_t rows, uint32_t h, uint32_t n,
                     const Floats* also = nullptr) {
        for (uint32_t r = 0; r < rows; ++r) {
            const Floats row = s[r * h];
            uint32_t total = n;
            for (; total > kLanes; total = (total + kLanes - 1) / kLanes) reduce_repeats(row, row, total);
            if (also) reduce_repeats((*also)[r], row, total);
            reduce_repeats(sums[r], row, total);
        }
    }
    // The sums if h is a multiple of 64 and n = h: the repeats of all rows are added, then reduced.
    void basic_block_sums(const Floats& sums, const Floats& s, uint32_t rows, uint32_t h,
                          const Floats* also = nullptr) {
        const int32_t stride = int32_t(h / 8);
        count(rows * kLanes);
        for (uint32_t i = kLanes; i < h; i += kLanes) {
            AscendC::Add<float, false>(s, s[i], s, kRegister, 1,
                                       AscendC::BinaryRepeatParams(1, 1, 1, stride, stride, stride), site_);
            done();
        }
        for (const Floats* to : {also, &sums}) {
            if (!to) continue;
            AscendC::RepeatReduceSum<float, false>(*to, s, 1, int32_t(kLanes), 1, 1, 1, stride, site_);
            done();
        }
    }

    static constexpr uint32_t kLanes = 64, kMostRepeats = 255;
    static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

private:
    void add_repeats(const Floats& d, const Floats& s, uint32_t lanes, uint32_t repeats) {
        AscendC::Add<float>(d, s, d, uint64_t(lanes), uint8_t(repeats), AscendC::BinaryRepeatParams(1, 1, 1, 0, 8, 0),
                            site_);
        done();
    }
};

// A loop over vector registers on Ascend950: values in plain C++, one instruction with the cost of its repeats.
inline float register_sum(const float* x, uint32_t n) {
    constexpr uint32_t kLanes = 64;
    float lanes[kLanes] = {}, sum = 0;
    for (uint32_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
    tree_sum(lanes, kLanes, Arithmetic<float>(), [n](uint32_t i) { return i < n; }, &sum);
    return sum;
}

}  // namespace ascend_sim
