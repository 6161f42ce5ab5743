// Relu after other operations: AddRelu, SubRelu, MulAddRelu (FusedMulAddRelu: dst = relu(src0 * dst + src1)), and, with
// a conversion, AddReluCast, SubReluCast. Also MulCast, a product with a conversion, LeakyRelu, and Truncate.
//
// Rules: as in binary.h; AddRelu and SubRelu may accumulate over repeat stride 0. Types by SoC. The lanes of a
// conversion follow the wider type; each operand has its own strides.
// Meaning: relu(x) is the larger one of x and 0; relu(NaN) is NaN. Half is rounded after each step, as in the
// equivalent sequence of instructions; MulAddRelu rounds the product, as FusedMulAdd does. A half becomes an integer by
// rounding to nearest even, clamped. Sums and differences of int16 before a conversion are clamped to int16. LeakyRelu
// multiplies values below 0 and -0 by the scalar.
// Cost: a plain repeat; MulAddRelu as FusedMulAdd.
// Sources: the instructions' pages and the table of boundary values.
#pragma once

#include "ascendc/binary.h"
#include "ascendc/convert.h"
#include "ascendc/fused.h"
#include "ascendc/scalar_binary.h"

namespace ascend_sim {

template <class Wide>
Wide relu(Wide value) {
    return value > Wide(0) || value != value ? value : Wide(0);
}

// Converts a half (in float) or int16 intermediate result to an integer type.
template <class To, class Src, class Wide>
To converted(Wide value) {
    if constexpr (std::is_integral_v<Src>)
        return clamp_integer<To>(value);
    else
        return clamp_to<To>(round_float<RoundMode::CAST_RINT>(value));
}

// Returns the function f(a, b), a sum, difference or product of two lanes, with its result rounded or clamped to the
// type of the sources.
template <class Src, class F>
auto intermediate(Src, F f) {
    const Arithmetic<Src> type;
    return [=](auto a, auto b) {
        if constexpr (std::is_integral_v<Src>)
            return clamp_integer<Src>(f(int32_t(a), int32_t(b)));
        else
            return type.widen(type.narrow(f(a, b)));
    };
}

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_BINARY(AddRelu, Accumulate, Repeat, ascend_sim::relu(decltype(a)(a + b)))
ASCEND_SIM_BINARY(SubRelu, Accumulate, Repeat, ascend_sim::relu(decltype(a)(a - b)))
ASCEND_SIM_SCALAR(LeakyRelu, (__builtin_signbit(a) ? a * s : a))

namespace sim_detail {

template <class T>
void mul_add_relu(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                  const ascend_sim::Lanes& lanes, const BinaryRepeatParams& params = {}) {
    const ascend_sim::Arithmetic<T> type;
    ascend_sim::binary_op<true>(
        ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
        ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride},
        ascend_sim::Operand<T>{"src1", src1, params.src1BlkStride, params.src1RepStride}, lanes,
        ascend_sim::Aliasing::Exact, three_read_cost(dst, src0, src1), [=](float x0, float x1, float old_dst) {
            return ascend_sim::relu(type.widen(type.narrow(type.widen(type.narrow(x0 * old_dst)) + x1)));
        });
}

// dst = convert(f(src0, src1)); with kRelu, dst = convert(relu(f(src0, src1))).
template <bool kRelu, class T, class U, class F>
void cast_lanes(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
                const ascend_sim::Lanes& lanes, const BinaryRepeatParams& params, F f) {
    const auto rounded_f = ascend_sim::intermediate(U(0), f);
    ascend_sim::binary_op<false>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
                                 ascend_sim::Operand<U>{"src0", src0, params.src0BlkStride, params.src0RepStride},
                                 ascend_sim::Operand<U>{"src1", src1, params.src1BlkStride, params.src1RepStride},
                                 lanes, ascend_sim::Aliasing::Exact, ascend_sim::Cost::Repeat, [=](auto a, auto b) {
                                     const auto result = rounded_f(a, b);
                                     const auto value = kRelu ? ascend_sim::relu(result) : result;
                                     if constexpr (std::is_integral_v<T>)
                                         return ascend_sim::converted<T, U>(value);
                                     else
                                         return value;
                                 });
}

}  // namespace sim_detail

#define ASCEND_SIM_MUL_ADD_RELU(Name)                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
              ASCEND_SIM_SITE) {                                                                                       \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::mul_add_relu(dst, src0, src1, ascend_sim::count_lanes<true>(sizeof(T), count));                    \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                       \
              ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,        \
              ASCEND_SIM_SITE) {                                                                                       \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::mul_add_relu(dst, src0, src1,                                                                      \
                                 ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params);     \
    }

ASCEND_SIM_MUL_ADD_RELU(MulAddRelu)
ASCEND_SIM_MUL_ADD_RELU(FusedMulAddRelu)

// condition: whether the SoC has the instruction for T and U. expr: an expression of the lanes a and b.
#define ASCEND_SIM_OPERATION_CAST(Name, has_relu, condition, expr)                                                     \
    template <class T, class U>                                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const uint32_t count, \
              ASCEND_SIM_SITE) {                                                                                       \
        static_assert(condition, #Name ": this SoC does not have it for these types");                                 \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::cast_lanes<has_relu>(dst, src0, src1,                                                              \
                                         ascend_sim::count_lanes<true>(ascend_sim::kWidest<T, U>, count), {},          \
                                         [](auto a, auto b) { return expr; });                                         \
    }                                                                                                                  \
    template <class T, class U, bool isSetMask = true>                                                                 \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,                       \
              ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,        \
              ASCEND_SIM_SITE) {                                                                                       \
        static_assert(condition, #Name ": this SoC does not have it for these types");                                 \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::cast_lanes<has_relu>(                                                                              \
            dst, src0, src1, ascend_sim::repeat_lanes<isSetMask>(#Name, ascend_sim::kWidest<T, U>, mask, repeatTime),  \
            params, [](auto a, auto b) { return expr; });                                                              \
    }

#define ASCEND_SIM_HAS_CAST_OF(Name)                                                  \
    (std::is_same_v<T, int8_t> ? ascend_sim::kTakes<U, ascend_sim::Api::Name##ToInt8> \
                               : std::is_same_v<T, half> && ascend_sim::kTakes<U, ascend_sim::Api::Name##ToHalf>)
ASCEND_SIM_OPERATION_CAST(AddReluCast, true, ASCEND_SIM_HAS_CAST_OF(AddReluCast), a + b)
ASCEND_SIM_OPERATION_CAST(SubReluCast, true, ASCEND_SIM_HAS_CAST_OF(SubReluCast), a - b)
ASCEND_SIM_OPERATION_CAST(MulCast, false,
                          (ascend_sim::kIsOneOf<T, int8_t, uint8_t> && ascend_sim::kTakes<U, ascend_sim::Api::MulCast>),
                          a* b)

// Rounds to integral values in the same type.
template <class T, RoundMode roundMode>
void Truncate(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Truncate, T);
    static_assert(roundMode >= RoundMode::CAST_RINT && roundMode <= RoundMode::CAST_TRUNC,
                  "Truncate: CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND or CAST_TRUNC");
    ascend_sim::start(ascend_sim::Pipe::V, "Truncate", site);
    ascend_sim::unary_op<false>(ascend_sim::Operand<T>{"dst", dst}, ascend_sim::Operand<T>{"src", src},
                                ascend_sim::count_lanes<true>(sizeof(T), count), ascend_sim::Cost::Repeat,
                                [](float a) { return ascend_sim::round_float<roundMode>(a); });
}

}  // namespace AscendC
