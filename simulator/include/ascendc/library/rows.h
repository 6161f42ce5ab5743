// Steps of library functions on rows of floats in UB: reductions of rows to blocks, and operations of rows with blocks.
//
// A matrix has m rows of `pitch` elements, a multiple of 8, of which `k` count. Blocks hold one value per row, repeated
// to 8 elements, or to 16 for results that become half.
// Meaning: rows of 64 and more elements are folded lane by lane, chunk after chunk; then blocks of 8 lanes are reduced
// twice. Shorter rows are reduced at once.
// Cost: that of the instructions, which are those of asc-devkit's impl/adv_api/detail/activation/softmax.
#pragma once

#include <algorithm>

#include "ascendc/binary.h"
#include "ascendc/cast.h"
#include "ascendc/extremes.h"
#include "ascendc/library/moves.h"
#include "ascendc/mask.h"
#include "ascendc/scalar_binary.h"
#include "ascendc/unary.h"

namespace ascend_sim {

using Floats = AscendC::LocalTensor<float>;

constexpr uint32_t kRepeatFloats = 64, kBlockFloats = 8, kMaxRepeats = 255;

// Temporary floats of a row's reduction.
constexpr uint32_t fold_floats(uint32_t pitch) {
    return kIs950 ? 0 : pitch < kRepeatFloats ? kBlockFloats : kRepeatFloats;
}

class RowSteps {
public:
    explicit RowSteps(Site site) : site_(site) {}
    Site site() const { return site_; }
    void end_step() const {
        if (!kIs950) barrier(int32_t(Pipe::V), site_);
    }

    template <class D, class S>
    void cast(const AscendC::LocalTensor<D>& d, const AscendC::LocalTensor<S>& s, uint32_t n) const {
        AscendC::Cast(d, s, kIsBfloat16<D> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE, n, site_), end_step();
    }
    void exp(const Floats& d, const Floats& s, uint32_t n) const { AscendC::Exp(d, s, int32_t(n), site_), end_step(); }
    void ln(const Floats& d, const Floats& s, uint32_t n) const { AscendC::Ln(d, s, int32_t(n), site_), end_step(); }
    void muls(const Floats& d, const Floats& s, float f, uint32_t n) const {
        AscendC::Muls(d, s, f, int32_t(n), site_), end_step();
    }
    void adds(const Floats& d, const Floats& s, float f, uint32_t n) const {
        AscendC::Adds(d, s, f, int32_t(n), site_), end_step();
    }
#define ASCEND_SIM_STEP(step, Name)                                                               \
    void step(const Floats& d, const Floats& a, const Floats& b, uint32_t n) const {              \
        AscendC::Name(d, a, b, int32_t(n), site_), end_step();                                    \
    }                                                                                             \
    void step(const Floats& d, const Floats& a, const Floats& b, uint64_t mask, uint32_t repeats, \
              const AscendC::BinaryRepeatParams& p) const {                                       \
        AscendC::Name<float>(d, a, b, mask, repeats, p, site_), end_step();                       \
    }
    ASCEND_SIM_STEP(add, Add)
    ASCEND_SIM_STEP(sub, Sub)
    ASCEND_SIM_STEP(mul, Mul)
    ASCEND_SIM_STEP(div, Div)
    ASCEND_SIM_STEP(max, Max)
#undef ASCEND_SIM_STEP

    // Copies n elements.
    void copy(const Floats& d, const Floats& s, uint32_t n) const {
        run_instruction("Copy", site_, first_elements("dst", d, n), first_elements("src", s, n),
                        repeats_of(n * sizeof(float)), Cost::Repeat,
                        [&] { std::memcpy(d.data(), s.data(), n * sizeof(float)); });
    }
    // The scalars s[0, m) become blocks of `block` elements.
    void spread(const Floats& d, const Floats& s, uint32_t m, uint32_t block) const {
        const uint32_t parts = block / kBlockFloats;
        for (uint32_t part = 0; part < parts; ++part) {
            const bool is_last = part + 1 == parts;
            start(Pipe::V, "Brcb", site_);
            const Range from = bytes_of(s, m), to = bytes_of(d, uint64_t(m) * block);
            reads("src", s.view(), &from, 1);
            if (is_last) {
                writes("dst", d.view(), &to, 1);
                for (uint32_t i = 0; i < m * block; ++i) d.data()[i] = s.data()[i / block];
            }
            finish_vector((m + 7) / 8, cycles_of(Cost::Repeat));
        }
        end_step();
    }
    // Blocks of 8 become blocks of 16: two copies.
    void double_blocks(const Floats& d, const Floats& s, uint32_t m) const {
        const uint32_t n = m * kBlockFloats;
        for (uint32_t part = 0; part < 2; ++part) {
            start(Pipe::V, "Copy", site_);
            const Range from = bytes_of(s, n), to = bytes_of(d, 2 * n);
            reads("src", s.view(), &from, 1);
            if (part) writes("dst", d.view(), &to, 1);
            for (uint32_t i = 0; part && i < 2 * n; ++i) d.data()[i] = s.data()[i / 2 / kBlockFloats * kBlockFloats];
            finish_vector(repeats_of(n * sizeof(float)), cycles_of(Cost::Repeat));
        }
        end_step();
    }
    // Counter mode for the instructions that f issues.
    template <class F>
    void counted(uint32_t n, F f) const {
        AscendC::SetMaskCount(site_);
        AscendC::SetVectorMask<float, AscendC::MaskMode::COUNTER>(0, n, site_);
        f();
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
        end_step();
    }

    // d[r] (blocks) = the maximum or the sum of row r. tmp has m * fold_floats(pitch) elements.
    template <bool kMax>
    void reduce(const Floats& d, const Floats& s, uint32_t m, uint32_t k, uint32_t pitch, uint32_t block,
                const Floats& tmp) const {
        if constexpr (kIs950) return reduce_in_registers<kMax>(d, s, m, k, pitch, block);
        if (k < kRepeatFloats) {
            by_repeats(m, [&](uint32_t first, uint32_t rows) {
                if constexpr (!kMax)
                    AscendC::WholeReduceSum(tmp[first], s[first * pitch], int32_t(k), int32_t(rows), 1, 1,
                                            int32_t(pitch / kBlockFloats), site_);
                else if constexpr (kIs310p)
                    short_maxima(tmp[first], s[first * pitch], rows, k, pitch);
                else
                    AscendC::WholeReduceMax(tmp[first], s[first * pitch], int32_t(k), int32_t(rows), 1, 1,
                                            int32_t(pitch / kBlockFloats), AscendC::ReduceOrder::ORDER_ONLY_VALUE,
                                            site_);
            });
            end_step();
        } else {
            fold<kMax>(tmp, s, m, k, pitch);
            reduce_blocks<kMax>(d, tmp, m * kRepeatFloats);
            reduce_blocks<kMax>(tmp, d, m * kBlockFloats);
        }
        spread(d, tmp, m, block);
    }

    // d = s op b, where b has a block for each row.
    template <class Op>
    void with_blocks(Op op, const Floats& d, const Floats& s, const Floats& b, uint32_t m, uint32_t pitch,
                     uint32_t block) const {
        constexpr uint32_t kShort = 192;  // below: one instruction for each column of blocks, else for each row
        if (pitch < kShort) {
            counted(m * kBlockFloats, [&] {
                for (uint32_t j = 0; j < pitch; j += kBlockFloats)
                    op(d[j], s[j], b,
                       AscendC::BinaryRepeatParams(pitch / kBlockFloats, pitch / kBlockFloats, block / kBlockFloats,
                                                   pitch, pitch, block));
            });
        } else {
            counted(pitch, [&] {
                for (uint32_t r = 0; r < m; ++r)
                    op(d[r * pitch], s[r * pitch], b[r * block], AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
            });
        }
    }
#define ASCEND_SIM_STEP(step, Name)                                                                                  \
    void step(const Floats& d, const Floats& s, const Floats& b, uint32_t m, uint32_t pitch, uint32_t block) const { \
        with_blocks(                                                                                                 \
            [this](const Floats& x, const Floats& y, const Floats& z, const AscendC::BinaryRepeatParams& p) {        \
                AscendC::Name<float, false>(x, y, z, AscendC::MASK_PLACEHOLDER, 1, p, site_);                        \
            },                                                                                                       \
            d, s, b, m, pitch, block);                                                                               \
    }
    ASCEND_SIM_STEP(sub_blocks, Sub)
    ASCEND_SIM_STEP(mul_blocks, Mul)
    ASCEND_SIM_STEP(div_blocks, Div)
#undef ASCEND_SIM_STEP

private:
    // A loop over vector registers: an operation for each repeat of a row, a reduction and a store for each row.
    template <bool kMax>
    void reduce_in_registers(const Floats& d, const Floats& s, uint32_t m, uint32_t k, uint32_t pitch,
                             uint32_t block) const {
        start(Pipe::V, "registers", site_);
        const uint32_t chunks = (k + kRepeatFloats - 1) / kRepeatFloats;
        const Range to = bytes_of(d, uint64_t(m) * block);
        writes("dst", d.view(), &to, 1);
        for (uint32_t r = 0; r < m; ++r) {
            const Range row = bytes_of(s[r * pitch], k);
            reads("src", s.view(), &row, 1);
            const float* const x = s.data() + r * pitch;
            float lanes[kRepeatFloats] = {};
            const uint32_t n = k < kRepeatFloats ? k : kRepeatFloats;
            for (uint32_t i = 0; i < k; ++i) {
                float& lane = lanes[i % kRepeatFloats];
                lane = i < kRepeatFloats ? x[i] : kMax ? std::max(lane, x[i]) : lane + x[i];
            }
            float result = lanes[0];
            if constexpr (kMax)
                for (uint32_t i = 1; i < n; ++i) result = std::max(result, lanes[i]);
            else
                tree_sum(lanes, kRepeatFloats, Arithmetic<float>(), [n](uint32_t i) { return i < n; }, &result);
            for (uint32_t i = 0; i < block; ++i) d.data()[r * block + i] = result;
        }
        finish_vector(m * (chunks + 2), cycles_of(Cost::Repeat));
    }
    // Ascend310P, whose WholeReduceMax has no order of values only: with the cost of that instruction.
    void short_maxima(const Floats& d, const Floats& s, uint32_t m, uint32_t k, uint32_t pitch) const {
        start(Pipe::V, "WholeReduceMax", site_);
        const Range to = bytes_of(d, m);
        writes("dst", d.view(), &to, 1);
        for (uint32_t r = 0; r < m; ++r) {
            const Range row = bytes_of(s[r * pitch], k);
            reads("src", s.view(), &row, 1);
            d.data()[r] = *std::max_element(s.data() + r * pitch, s.data() + r * pitch + k);
        }
        finish_vector(m, cycles_of(Cost::WholeReduce));
    }
    template <class F>
    static void by_repeats(uint32_t m, F f) {
        for (uint32_t first = 0; first < m; first += kMaxRepeats)
            f(first, m - first < kMaxRepeats ? m - first : kMaxRepeats);
    }
    template <bool kMax>
    void combine(const Floats& d, const Floats& a, const Floats& b, uint64_t mask, uint32_t repeats,
                 const AscendC::BinaryRepeatParams& p) const {
        if constexpr (kMax)
            max(d, a, b, mask, repeats, p);
        else
            add(d, a, b, mask, repeats, p);
    }
    template <bool kMax>
    void reduce_blocks(const Floats& d, const Floats& s, uint32_t n) const {
        counted(n, [&] {
            if constexpr (kMax)
                AscendC::BlockReduceMax<float, false>(d, s, 1, AscendC::MASK_PLACEHOLDER, 1, 1, 8, site_);
            else
                AscendC::BlockReduceSum<float, false>(d, s, 1, AscendC::MASK_PLACEHOLDER, 1, 1, 8, site_);
        });
    }
    // d[r][64] = the chunks of row r, combined lane by lane.
    template <bool kMax>
    void fold(const Floats& d, const Floats& s, uint32_t m, uint32_t k, uint32_t pitch) const {
        const uint32_t chunks = k / kRepeatFloats, tail = k % kRepeatFloats, stride = pitch / kBlockFloats;
        if (stride > kMaxRepeats) {  // strides do not fit: row by row
            for (uint32_t r = 0; r < m; ++r) {
                const Floats to = d[r * kRepeatFloats], row = s[r * pitch];
                copy(to, row, kRepeatFloats);
                for (uint32_t first = 1; first < chunks; first += kMaxRepeats)
                    combine<kMax>(to, row[first * kRepeatFloats], to, kRepeatFloats,
                                  chunks - first < kMaxRepeats ? chunks - first : kMaxRepeats, {1, 1, 1, 0, 8, 0});
                if (tail) combine<kMax>(to, to, row[chunks * kRepeatFloats], tail, 1, {1, 1, 1, 8, 8, 8});
            }
            return;
        }
        by_repeats(m, [&](uint32_t first, uint32_t rows) {
            const Floats to = d[first * kRepeatFloats], from = s[first * pitch];
            if (chunks == 1)
                move_rows(to, from, rows, pitch);
            else
                combine<kMax>(to, from, from[kRepeatFloats], kRepeatFloats, rows, {1, 1, 1, 8, stride, stride});
            for (uint32_t j = 2; j <= chunks; ++j)
                if (j < chunks || tail)
                    combine<kMax>(to, to, from[j * kRepeatFloats], j < chunks ? kRepeatFloats : tail, rows,
                                  {1, 1, 1, 8, 8, stride});
            if (chunks == 1 && tail) combine<kMax>(to, to, from[kRepeatFloats], tail, rows, {1, 1, 1, 8, 8, stride});
        });
    }
    // The first 64 elements of each row.
    void move_rows(const Floats& d, const Floats& s, uint32_t rows, uint32_t pitch) const {
        start(Pipe::V, "Copy", site_);
        for (uint32_t r = 0; r < rows; ++r) {
            const Range from = bytes_of(s[r * pitch], kRepeatFloats),
                        to = bytes_of(d[r * kRepeatFloats], kRepeatFloats);
            reads("src", s.view(), &from, 1);
            writes("dst", d.view(), &to, 1);
            std::memcpy(ub() + to.begin, ub() + from.begin, kRepeatBytes);
        }
        finish_vector(rows, cycles_of(Cost::Repeat));
        end_step();
    }
    Site site_;
};

}  // namespace ascend_sim
