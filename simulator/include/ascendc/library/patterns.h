// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceAny, ReduceAll of a matrix: of each row (pattern AR)
// or of each column (pattern RA).
//
// Rules: the types depend on the SoC. Each row of srcTensor starts at a 32-byte border, and srcInnerPad is true. On
// Ascend950 the rows of ReduceSum, ReduceMax and ReduceMin have no filling. Destination and source do not overlap. With
// isReuseSource the function overwrites the source and needs no temporary memory.
// Meaning, with P the largest power of two that is at most the number of rows or columns:
//   RA: rows from P on are combined with the first rows. Then the second half of the rows is combined with the first
//   half, until one row is left.
//   AR, sums: in a row of at most one repeat, neighbours are added in pairs until one value is left. In a longer row,
//   the elements from P on are added to the first elements before that.
//   AR, others: the second half of a row is combined with the first half, until one value is left.
//   ReduceMean multiplies the sum by 1 / n.
// Cost: the sum of the instructions; on Ascend950 one instruction.
// Pages: ReduceSum, ReduceMean and so on. The steps are those of asc-devkit's impl/adv_api/detail/reduce.
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

// Combines two elements, which are compared as floats.
template <Fold kFold, class T>
T fold_as_floats(T a, T b) {
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
// Combines two elements. Integers are compared as integers, because floats would round large ones.
template <Fold kFold, class T>
T fold_lanes(T a, T b) {
    if constexpr (std::is_integral_v<T> && (kFold == Fold::Max || kFold == Fold::Any))
        return a > b ? a : b;
    else if constexpr (std::is_integral_v<T> && (kFold == Fold::Min || kFold == Fold::All))
        return a < b ? a : b;
    else
        return fold_as_floats<kFold>(a, b);
}

// Returns the reduction of the `columns` elements of a row. Overwrites x.
template <Fold kFold, class T>
T fold_row(T* x, uint32_t columns) {
    constexpr bool kIsSum = kFold == Fold::Sum || kFold == Fold::Mean;
    uint32_t width = largest_power_of_two(columns);
    if (kIsSum && columns <= kRepeatBytes / sizeof(T)) {  // neighbours in pairs
        for (uint32_t count = columns; count > 1; count = (count + 1) / 2)
            for (uint32_t i = 0; i < (count + 1) / 2; ++i)
                x[i] = 2 * i + 1 < count ? fold_lanes<kFold>(x[2 * i], x[2 * i + 1]) : x[2 * i];
        return x[0];
    }
    if (width == columns && columns > 1) width /= 2;
    for (uint32_t i = width; i < columns; ++i) x[i - width] = fold_lanes<kFold>(x[i - width], x[i]);
    for (uint32_t count = width / 2; count > 0; count /= 2)
        for (uint32_t i = 0; i < count; ++i)
            x[i] = kIsSum ? fold_lanes<kFold>(x[2 * i], x[2 * i + 1]) : fold_lanes<kFold>(x[i], x[i + count]);
    return x[0];
}

struct Matrix {
    uint32_t rows, columns, pitch;  // pitch: elements from one row to the next
};

// Adds the cost of one instruction of a reduction. The reduction checks its memory only once.
inline void add_cost(const char* api, uint64_t repeats, Cost cost, Site site) {
    if (repeats == 0) return;
    start(Pipe::V, api, site);
    finish_vector(uint32_t(repeats), cycles_of(cost));
    if (!kIs950) barrier(int32_t(Pipe::V), site);
}

// Adds the costs of all instructions of a reduction by rows except the last one. Returns the repeats of the last one.
template <Fold kFold, class T>
uint32_t add_costs_of_rows(const Matrix& matrix, bool reuse, Site site) {
    constexpr uint32_t kElementsInRepeat = kRepeatBytes / sizeof(T), kElementsInBlock = kBlockBytes / sizeof(T),
                       kMaxRepeats = 255;
    const uint32_t rows = matrix.rows, columns = matrix.columns, groups = (rows + 7) / 8;
    const auto repeats = [](uint64_t elements) {
        return uint32_t((elements + kElementsInRepeat - 1) / kElementsInRepeat);
    };
    if constexpr (kFold == Fold::Prod) {
        for (uint32_t row = 0; row < rows; ++row) {
            const bool has_rest = largest_power_of_two(columns) != columns;
            uint32_t width = largest_power_of_two(columns);
            if (!reuse && has_rest) add_cost("Adds", repeats(width), Cost::Repeat, site);
            if (has_rest) add_cost("Mul", repeats(columns - width), Cost::Repeat, site);
            for (; width > kElementsInBlock; width /= 2) add_cost("Mul", repeats(width / 2), Cost::Repeat, site);
            add_cost("Brcb", 1, Cost::Repeat, site);
            for (; width > 1; width /= 2) add_cost("Mul", 1, Cost::Repeat, site);
            add_cost("Adds", 1, Cost::Repeat, site);
        }
        add_cost("Duplicate", 1, Cost::Repeat, site);
        return rows;
    } else if constexpr (kFold == Fold::Sum || kFold == Fold::Mean) {
        if (columns <= kElementsInBlock) return groups;
        if (columns <= kElementsInRepeat) return rows;
        uint32_t width = largest_power_of_two(columns);
        if (width == columns) width /= 2;
        const uint32_t rest = repeats(columns - width);
        if (!reuse) add_cost("DataCopy", rows * repeats(width), Cost::Repeat, site);
        for (uint32_t i = 0; i < std::min(rest, rows); ++i)
            add_cost("Add", rest < rows ? rows : rest, Cost::Repeat, site);
        if (reuse) add_cost("DataCopy", rows * repeats(width), Cost::Repeat, site);
        for (; width > kElementsInRepeat; width /= 2)
            add_cost("PairReduceSum", rows * repeats(width), Cost::BlockReduce, site);
        add_cost("BlockReduceSum", rows, Cost::BlockReduce, site);
        return groups;
    } else {
        if (columns <= kElementsInBlock) return groups;
        const char* const instruction = kFold == Fold::Max || kFold == Fold::Any ? "Max" : "Min";
        const bool by_block = columns < kElementsInRepeat;
        const bool is_long = columns > kMaxRepeats * kElementsInBlock;
        const uint32_t unit_elements = by_block ? kElementsInBlock : kElementsInRepeat, parts = columns / unit_elements;
        const uint32_t calls = is_long ? rows : 1, repeats_per_call = repeats(uint64_t(rows) * unit_elements) / calls;
        for (uint32_t i = 0; i < calls; ++i) {
            if (!reuse) add_cost("Adds", repeats_per_call, Cost::Repeat, site);
            for (uint32_t j = 1; j < parts; ++j) add_cost(instruction, repeats_per_call, Cost::Repeat, site);
        }
        if (columns % unit_elements) add_cost(instruction, rows, Cost::Repeat, site);
        if (by_block) return groups;
        if (sizeof(T) == 2) return rows;
        add_cost("BlockReduceMax", rows, Cost::BlockReduce, site);
        return groups;
    }
}

template <Fold kFold, class T>
void reduce_rows(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Matrix& matrix,
                 bool reuse, Site site) {
    const uint64_t read_elements = uint64_t(matrix.rows - 1) * matrix.pitch + matrix.columns;
    const uint32_t last_repeats = kIs950 ? matrix.rows * repeats_of(uint64_t(matrix.columns) * sizeof(T)) * 3
                                         : add_costs_of_rows<kFold, T>(matrix, reuse, site);
    const bool reduces_repeats = sizeof(T) == 2 && matrix.columns >= kRepeatBytes / sizeof(T);
    const char* const api = kIs950                ? "registers"
                            : kFold == Fold::Prod ? "GatherMask"
                            : reduces_repeats     ? "WholeReduceMax"
                                                  : "BlockReduce";
    std::vector<T> elements(matrix.columns);
    run_instruction(api, site, first_elements("dstTensor", dst, matrix.rows),
                    first_elements("srcTensor", src, read_elements), last_repeats,
                    kFold == Fold::Prod ? Cost::GatherMask
                    : kIs950            ? Cost::Repeat
                    : reduces_repeats   ? Cost::WholeReduce
                                        : Cost::BlockReduce,
                    [&] {
                        for (uint32_t row = 0; row < matrix.rows; ++row) {
                            std::memcpy(elements.data(), src.data() + uint64_t(row) * matrix.pitch,
                                        matrix.columns * sizeof(T));
                            dst.data()[row] = fold_row<kFold>(elements.data(), matrix.columns);
                        }
                        if (reuse) poison(bytes_of(src, read_elements));
                    });
}

// Reduces columns on Ascend950: one instruction.
template <Fold kFold, class T>
void reduce_columns_in_registers(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                 const Matrix& matrix, Site site) {
    std::vector<T> column(matrix.rows);
    run_instruction("registers", site, first_elements("dstTensor", dst, matrix.columns),
                    first_elements("srcTensor", src, uint64_t(matrix.rows - 1) * matrix.pitch + matrix.columns),
                    matrix.rows * repeats_of(uint64_t(matrix.columns) * sizeof(T)) * 2, Cost::Repeat, [&] {
                        for (uint32_t j = 0; j < matrix.columns; ++j) {
                            uint32_t half = largest_power_of_two(matrix.rows);
                            for (uint32_t i = 0; i < matrix.rows; ++i)
                                column[i] = src.data()[uint64_t(i) * matrix.pitch + j];
                            for (uint32_t i = half; i < matrix.rows; ++i)
                                column[i - half] = fold_lanes<kFold>(column[i - half], column[i]);
                            for (half /= 2; half > 0; half /= 2)
                                for (uint32_t i = 0; i < half; ++i)
                                    column[i] = fold_lanes<kFold>(column[i], column[i + half]);
                            dst.data()[j] = column[0];
                        }
                    });
}

template <Fold kFold, class T>
void fold_step(UbSteps& steps, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& a,
               const AscendC::LocalTensor<T>& b) {
    if constexpr (kFold == Fold::Sum || kFold == Fold::Mean)
        steps.add(dst, a, b);
    else if constexpr (kFold == Fold::Prod)
        steps.mul(dst, a, b);
    else if constexpr (std::is_integral_v<T> && kFold == Fold::Any)
        steps.or_bits(dst, a, b);
    else if constexpr (std::is_integral_v<T>)
        steps.and_bits(dst, a, b);
    else if constexpr (kFold == Fold::Max || kFold == Fold::Any)
        steps.max(dst, a, b);
    else
        steps.min(dst, a, b);
}

template <Fold kFold, class T>
void reduce_columns(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Matrix& matrix,
                    bool reuse, const AscendC::LocalTensor<T>& tmp, Site site) {
    UbSteps steps(site);
    uint32_t rows = largest_power_of_two(matrix.rows);
    const uint32_t rest = matrix.rows - rows;
    const AscendC::LocalTensor<T> partials = reuse ? src : tmp;
    if (rest) {
        if (!reuse) {
            steps.set_count(rows * matrix.pitch);
            steps.adds(partials, src, T(0.0f));
        }
        steps.set_count(rest * matrix.pitch);
        fold_step<kFold>(steps, partials, partials, src[rows * matrix.pitch]);
    } else if (!reuse && rows > 1) {
        rows /= 2;
        steps.set_count(rows * matrix.pitch);
        fold_step<kFold>(steps, partials, src, src[rows * matrix.pitch]);
    }
    while (rows > 1) {
        rows /= 2;
        steps.set_count(rows * matrix.pitch);
        fold_step<kFold>(steps, partials, partials, partials[rows * matrix.pitch]);
    }
    steps.set_count(matrix.columns);
    steps.adds(dst, matrix.rows == 1 ? src : partials, T(0.0f));
    steps.finish();
}

template <Fold kFold, bool kByRow, bool kReusesSource, class T>
void reduce_pattern(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>* shared, const uint32_t* shape, bool inner_pad) {
    constexpr bool kRowsArePacked = kIs950 && (kFold == Fold::Sum || kFold == Fold::Max || kFold == Fold::Min);
    if (!inner_pad && !kRowsArePacked) call.report(Rule::Count04, "srcInnerPad must be true.");
    const uint32_t elements_per_block = kBlockBytes / sizeof(T);
    const Matrix matrix{shape[0], shape[1], kRowsArePacked ? shape[1] : round_up(shape[1], elements_per_block)};
    if (matrix.rows == 0 || matrix.columns == 0)
        call.report(Rule::Count04, "srcShape must have no 0 but is %u x %u.", matrix.rows, matrix.columns);
    const uint32_t results = kByRow ? matrix.rows : matrix.columns;
    const Range dst_bytes = call.check_operand("dstTensor", dst, results);
    const Range src_bytes = call.check_operand(
        "srcTensor", src, uint64_t(matrix.rows - 1) * matrix.pitch + (kByRow ? matrix.columns : matrix.pitch));
    call.check_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    AscendC::LocalTensor<uint8_t> tmp;
    const TmpSizes sizes = pattern_sizes(kFold, kByRow, matrix.rows, matrix.columns, sizeof(T), kReusesSource);
    if (sizes.least && !kIs950) {
        tmp = call.temporary_memory(shared, sizes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", dst_bytes);
        call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", src_bytes);
    }
    const Site site = call.site();
    if constexpr (kByRow) {
        if constexpr (sizeof(T) == 1 && !kIs950)  // the instructions cast the elements to half
            for (uint32_t row = 0; row < matrix.rows; ++row)
                add_cost("Cast", repeats_of(matrix.pitch * 2), Cost::Repeat, site);
        reduce_rows<kFold>(dst, src, matrix, kReusesSource, site);
    } else if constexpr (kIs950) {
        reduce_columns_in_registers<kFold>(dst, src, matrix, site);
    } else if constexpr (sizeof(T) == 1) {  // one int16 holds two elements
        const Matrix pairs{matrix.rows, matrix.columns / 2 + matrix.columns % 2, matrix.pitch / 2};
        reduce_columns<kFold>(dst.template ReinterpretCast<int16_t>(), src.template ReinterpretCast<int16_t>(), pairs,
                              kReusesSource, tmp.template ReinterpretCast<int16_t>(), site);
    } else {
        reduce_columns<kFold>(dst, src, matrix, kReusesSource, tmp.template ReinterpretCast<T>(), site);
    }
    if constexpr (kFold == Fold::Mean) {
        NormSteps steps(site);
        steps.set_count(results);
        steps.muls(dst, dst, 1.0f / float(kByRow ? matrix.columns : matrix.rows));
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

// The overloads with and without sharedTmpBuffer.
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
