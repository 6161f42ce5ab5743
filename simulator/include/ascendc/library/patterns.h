// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceAny, ReduceAll of two-dimensional data: over rows
// (pattern AR) or columns (RA).
//
// Rules: types by SoC. The rows of srcTensor start 32-byte blocks, and srcInnerPad is true; on Ascend950 the rows of
// ReduceSum, ReduceMax and ReduceMin follow each other. Destination and source are apart. With isReuseSource the source
// is overwritten and no temporary memory is needed.
// Meaning: RA: the rows past the largest power of two are added to the first ones, then halves are added to halves. AR:
// sums of at most a repeat are a tree of neighbours; of longer rows the elements past the largest power of two are
// added to the first ones before that. Products multiply halves by halves. ReduceMean multiplies the sum by 1 / n.
// Cost: that of the instructions; on Ascend950 one instruction.
// Pages: ReduceSum and the like; the steps are those of asc-devkit's impl/adv_api/detail/reduce.
#pragma once

#include "ascendc/library/norm_steps.h"
#include "ascendc/library/reduce_sizes.h"

namespace AscendC::Pattern::Reduce {

struct R {};
struct RA {};
struct AR {};
struct ARA {};
struct ARAR {};
struct ARARA {};
struct ARARAR {};
struct ARARARA {};
struct ARARARAR {};
struct ARARARARA {};
struct RAR {};
struct RARA {};
struct RARAR {};
struct RARARA {};
struct RARARAR {};
struct RARARARA {};

}  // namespace AscendC::Pattern::Reduce

namespace ascend_sim {

template <Fold kFold, class T>
T fold_two(T a, T b) {
    if constexpr (kFold == Fold::Max || kFold == Fold::Any) {
        return float(a) > float(b) ? a : b;
    } else if constexpr (kFold == Fold::Min || kFold == Fold::All) {
        return float(a) < float(b) ? a : b;
    } else if constexpr (std::is_integral_v<T>) {
        return T(kFold == Fold::Prod ? uint64_t(a) * uint64_t(b) : uint64_t(a) + uint64_t(b));
    } else {
        return Arithmetic<T>().narrow(kFold == Fold::Prod ? float(a) * float(b) : float(a) + float(b));
    }
}
// Integers compare as such.
template <Fold kFold, class T>
T fold_lanes(T a, T b) {
    if constexpr (std::is_integral_v<T> && (kFold == Fold::Max || kFold == Fold::Any))
        return a > b ? a : b;
    else if constexpr (std::is_integral_v<T> && (kFold == Fold::Min || kFold == Fold::All))
        return a < b ? a : b;
    else
        return fold_two<kFold>(a, b);
}

// The reduction of one row of n elements; x is overwritten.
template <Fold kFold, class T>
T fold_row(T* x, uint32_t n) {
    constexpr bool kIsSum = kFold == Fold::Sum || kFold == Fold::Mean;
    uint32_t lanes = largest_power_of_two(n);
    if (kIsSum && n <= kRepeatBytes / sizeof(T)) {  // a tree of the lanes there are
        for (uint32_t left = n; left > 1; left = (left + 1) / 2)
            for (uint32_t i = 0; i < (left + 1) / 2; ++i)
                x[i] = 2 * i + 1 < left ? fold_lanes<kFold>(x[2 * i], x[2 * i + 1]) : x[2 * i];
        return x[0];
    }
    if (lanes == n && n > 1) lanes /= 2;
    for (uint32_t i = lanes; i < n; ++i) x[i - lanes] = fold_lanes<kFold>(x[i - lanes], x[i]);
    for (uint32_t left = lanes / 2; left > 0; left /= 2)
        for (uint32_t i = 0; i < left; ++i)
            x[i] = kIsSum ? fold_lanes<kFold>(x[2 * i], x[2 * i + 1]) : fold_lanes<kFold>(x[i], x[i + left]);
    return x[0];
}

struct Matrix {
    uint32_t rows, columns, pitch;
};

// An instruction of a reduction, whose memory is that of the whole reduction.
inline void charge(const char* api, uint64_t repeats, Cost cost, Site site) {
    if (repeats == 0) return;
    start(Pipe::V, api, site);
    finish_vector(uint32_t(repeats), cycles_of(cost));
    if (!kIs950) barrier(int32_t(Pipe::V), site);
}

// The instructions of a reduction of rows before the last one, whose number of repeats is returned.
template <Fold kFold, class T>
uint32_t charge_rows(const Matrix& s, bool reuse, Site site) {
    constexpr uint32_t kInRepeat = kRepeatBytes / sizeof(T), kInBlock = kBlockBytes / sizeof(T), kMost = 255;
    const uint32_t rows = s.rows, n = s.columns, groups = (rows + 7) / 8;
    const auto repeats = [](uint64_t elements) { return uint32_t((elements + kInRepeat - 1) / kInRepeat); };
    if constexpr (kFold == Fold::Prod) {
        for (uint32_t r = 0; r < rows; ++r) {
            const bool has_rest = largest_power_of_two(n) != n;
            uint32_t lanes = largest_power_of_two(n);
            if (!reuse && has_rest) charge("Adds", repeats(lanes), Cost::Repeat, site);
            if (has_rest) charge("Mul", repeats(n - lanes), Cost::Repeat, site);
            for (; lanes > kInBlock; lanes /= 2) charge("Mul", repeats(lanes / 2), Cost::Repeat, site);
            charge("Brcb", 1, Cost::Repeat, site);
            for (; lanes > 1; lanes /= 2) charge("Mul", 1, Cost::Repeat, site);
            charge("Adds", 1, Cost::Repeat, site);
        }
        charge("Duplicate", 1, Cost::Repeat, site);
        return rows;
    } else if constexpr (kFold == Fold::Sum || kFold == Fold::Mean) {
        if (n <= kInBlock) return groups;
        if (n <= kInRepeat) return rows;
        uint32_t lanes = largest_power_of_two(n);
        if (lanes == n) lanes /= 2;
        const uint32_t rest = repeats(n - lanes);
        if (!reuse) charge("DataCopy", rows * repeats(lanes), Cost::Repeat, site);
        for (uint32_t i = 0; i < std::min(rest, rows); ++i)
            charge("Add", rest < rows ? rows : rest, Cost::Repeat, site);
        if (reuse) charge("DataCopy", rows * repeats(lanes), Cost::Repeat, site);
        for (; lanes > kInRepeat; lanes /= 2) charge("PairReduceSum", rows * repeats(lanes), Cost::BlockReduce, site);
        charge("BlockReduceSum", rows, Cost::BlockReduce, site);
        return groups;
    } else {
        if (n <= kInBlock) return groups;
        const char* const op = kFold == Fold::Max || kFold == Fold::Any ? "Max" : "Min";
        const bool by_block = n<kInRepeat, is_long = n> kMost * kInBlock;
        const uint32_t unit = by_block ? kInBlock : kInRepeat, parts = n / unit;
        const uint32_t calls = is_long ? rows : 1, in_call = repeats(uint64_t(rows) * unit) / calls;
        for (uint32_t i = 0; i < calls; ++i) {
            if (!reuse) charge("Adds", in_call, Cost::Repeat, site);
            for (uint32_t j = 1; j < parts; ++j) charge(op, in_call, Cost::Repeat, site);
        }
        if (n % unit) charge(op, rows, Cost::Repeat, site);
        if (by_block) return groups;
        if (sizeof(T) == 2) return rows;
        charge("BlockReduceMax", rows, Cost::BlockReduce, site);
        return groups;
    }
}

template <Fold kFold, class T>
void reduce_rows(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Matrix& s, bool reuse,
                 Site site) {
    const uint64_t read = uint64_t(s.rows - 1) * s.pitch + s.columns;
    const uint32_t last =
        kIs950 ? s.rows * repeats_of(uint64_t(s.columns) * sizeof(T)) * 3 : charge_rows<kFold, T>(s, reuse, site);
    const bool is_whole = sizeof(T) == 2 && s.columns >= kRepeatBytes / sizeof(T);
    const char* const api = kIs950                ? "registers"
                            : kFold == Fold::Prod ? "GatherMask"
                            : is_whole            ? "WholeReduceMax"
                                                  : "BlockReduce";
    std::vector<T> row(s.columns);
    run_instruction(api, site, first_elements("dstTensor", dst, s.rows), first_elements("srcTensor", src, read), last,
                    kFold == Fold::Prod ? Cost::GatherMask
                    : kIs950            ? Cost::Repeat
                    : is_whole          ? Cost::WholeReduce
                                        : Cost::BlockReduce,
                    [&] {
                        for (uint32_t r = 0; r < s.rows; ++r) {
                            std::memcpy(row.data(), src.data() + uint64_t(r) * s.pitch, s.columns * sizeof(T));
                            dst.data()[r] = fold_row<kFold>(row.data(), s.columns);
                        }
                        if (reuse) poison(bytes_of(src, read));
                    });
}

// Columns: the values in plain C++, one instruction on Ascend950.
template <Fold kFold, class T>
void reduce_columns_in_registers(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                 const Matrix& s, Site site) {
    std::vector<T> column(s.rows);
    run_instruction("registers", site, first_elements("dstTensor", dst, s.columns),
                    first_elements("srcTensor", src, uint64_t(s.rows - 1) * s.pitch + s.columns),
                    s.rows * repeats_of(uint64_t(s.columns) * sizeof(T)) * 2, Cost::Repeat, [&] {
                        for (uint32_t j = 0; j < s.columns; ++j) {
                            uint32_t half = largest_power_of_two(s.rows);
                            for (uint32_t i = 0; i < s.rows; ++i) column[i] = src.data()[uint64_t(i) * s.pitch + j];
                            for (uint32_t i = half; i < s.rows; ++i)
                                column[i - half] = fold_lanes<kFold>(column[i - half], column[i]);
                            for (half /= 2; half > 0; half /= 2)
                                for (uint32_t i = 0; i < half; ++i)
                                    column[i] = fold_lanes<kFold>(column[i], column[i + half]);
                            dst.data()[j] = column[0];
                        }
                    });
}

template <Fold kFold, class T>
void fold_step(UbSteps& steps, const AscendC::LocalTensor<T>& d, const AscendC::LocalTensor<T>& a,
               const AscendC::LocalTensor<T>& b) {
    if constexpr (kFold == Fold::Sum || kFold == Fold::Mean)
        steps.add(d, a, b);
    else if constexpr (kFold == Fold::Prod)
        steps.mul(d, a, b);
    else if constexpr (std::is_integral_v<T> && kFold == Fold::Any)
        steps.or_bits(d, a, b);
    else if constexpr (std::is_integral_v<T>)
        steps.and_bits(d, a, b);
    else if constexpr (kFold == Fold::Max || kFold == Fold::Any)
        steps.max(d, a, b);
    else
        steps.min(d, a, b);
}

template <Fold kFold, class T>
void reduce_columns(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Matrix& s, bool reuse,
                    const AscendC::LocalTensor<T>& tmp, Site site) {
    UbSteps steps(site);
    uint32_t rows = largest_power_of_two(s.rows);
    const uint32_t rest = s.rows - rows;
    const AscendC::LocalTensor<T> sums = reuse ? src : tmp;
    if (rest) {
        if (!reuse) {
            steps.set_count(rows * s.pitch);
            steps.adds(sums, src, T(0.0f));
        }
        steps.set_count(rest * s.pitch);
        fold_step<kFold>(steps, sums, sums, src[rows * s.pitch]);
    } else if (!reuse && rows > 1) {
        rows /= 2;
        steps.set_count(rows * s.pitch);
        fold_step<kFold>(steps, sums, src, src[rows * s.pitch]);
    }
    while (rows > 1) {
        rows /= 2;
        steps.set_count(rows * s.pitch);
        fold_step<kFold>(steps, sums, sums, sums[rows * s.pitch]);
    }
    steps.set_count(s.columns);
    steps.adds(dst, s.rows == 1 ? src : sums, T(0.0f));
    steps.finish();
}

template <Fold kFold, bool kByRow, bool kReusesSource, class T>
void reduce_pattern(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>* shared, const uint32_t* shape, bool inner_pad) {
    constexpr bool kFollows =
        kIs950 && (kFold == Fold::Sum || kFold == Fold::Max || kFold == Fold::Min);  // rows without filling
    if (!inner_pad && !kFollows) call.report(Rule::Count04, "srcInnerPad must be true.");
    const uint32_t in_block = kBlockBytes / sizeof(T);
    const Matrix s{shape[0], shape[1], kFollows ? shape[1] : round_up(shape[1], in_block)};
    if (s.rows == 0 || s.columns == 0)
        call.report(Rule::Count04, "srcShape must have no 0 but is %u x %u.", s.rows, s.columns);
    const uint32_t results = kByRow ? s.rows : s.columns;
    const Range to = call.check_operand("dstTensor", dst, results);
    const Range from =
        call.check_operand("srcTensor", src, uint64_t(s.rows - 1) * s.pitch + (kByRow ? s.columns : s.pitch));
    call.check_apart("dstTensor", to, "srcTensor", from);
    AscendC::LocalTensor<uint8_t> tmp;
    const TmpSizes sizes = pattern_sizes(kFold, kByRow, s.rows, s.columns, sizeof(T), kReusesSource);
    if (sizes.least && !kIs950) {
        tmp = call.temporary_memory(shared, sizes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", to);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", from);
    }
    const Site site = call.site();
    if constexpr (kByRow) {
        if constexpr (sizeof(T) == 1 && !kIs950)  // in half
            for (uint32_t r = 0; r < s.rows; ++r) charge("Cast", repeats_of(s.pitch * 2), Cost::Repeat, site);
        reduce_rows<kFold>(dst, src, s, kReusesSource, site);
    } else if constexpr (kIs950) {
        reduce_columns_in_registers<kFold>(dst, src, s, site);
    } else if constexpr (sizeof(T) == 1) {  // two elements at a time
        const Matrix pairs{s.rows, s.columns / 2 + s.columns % 2, s.pitch / 2};
        reduce_columns<kFold>(dst.template ReinterpretCast<int16_t>(), src.template ReinterpretCast<int16_t>(), pairs,
                              kReusesSource, tmp.template ReinterpretCast<int16_t>(), site);
    } else {
        reduce_columns<kFold>(dst, src, s, kReusesSource, tmp.template ReinterpretCast<T>(), site);
    }
    if constexpr (kFold == Fold::Mean) {
        NormSteps steps(site);
        steps.set_count(results);
        steps.muls(dst, dst, 1.0f / float(kByRow ? s.columns : s.rows));
        steps.finish();
    }
}

template <class pattern>
constexpr bool is_by_row() {
    constexpr bool kByRow = std::is_same_v<pattern, AscendC::Pattern::Reduce::AR>;
    static_assert(kByRow || std::is_same_v<pattern, AscendC::Pattern::Reduce::RA>, "the pattern must be AR or RA");
    return kByRow;
}

}  // namespace ascend_sim

namespace AscendC {

// The forms with and without sharedTmpBuffer.
#define ASCEND_SIM_PATTERN(Name, kind)                                                                       \
    template <class T, class pattern, bool isReuseSource = false>                                            \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,                              \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t srcShape[], bool srcInnerPad,      \
              ASCEND_SIM_SITE) {                                                                             \
        ASCEND_SIM_NEEDS(kind##Pattern, T);                                                                  \
        ascend_sim::reduce_pattern<ascend_sim::Fold::kind, ascend_sim::is_by_row<pattern>(), isReuseSource>( \
            ascend_sim::Call(#Name, site), dstTensor, srcTensor, &sharedTmpBuffer, srcShape, srcInnerPad);   \
    }                                                                                                        \
    template <class T, class pattern, bool isReuseSource = false>                                            \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const uint32_t srcShape[],   \
              bool srcInnerPad, ASCEND_SIM_SITE) {                                                           \
        ASCEND_SIM_NEEDS(kind##Pattern, T);                                                                  \
        ascend_sim::reduce_pattern<ascend_sim::Fold::kind, ascend_sim::is_by_row<pattern>(), isReuseSource>( \
            ascend_sim::Call(#Name, site), dstTensor, srcTensor, nullptr, srcShape, srcInnerPad);            \
    }
ASCEND_SIM_PATTERN(ReduceSum, Sum)
ASCEND_SIM_PATTERN(ReduceMean, Mean)
ASCEND_SIM_PATTERN(ReduceMax, Max)
ASCEND_SIM_PATTERN(ReduceMin, Min)
ASCEND_SIM_PATTERN(ReduceProd, Prod)
ASCEND_SIM_PATTERN(ReduceAny, Any)
ASCEND_SIM_PATTERN(ReduceAll, All)
#undef ASCEND_SIM_PATTERN

}  // namespace AscendC
