// Elementwise library functions as programs of vector instructions.
//
// A program is a callable object that computes y from the sources x[0], x[1] with temporary registers tmp[0], tmp[1].
// It calls the steps of its first argument: steps.muls(y, x[0], 2), steps.exp(y, y).
// On Ascend910B and 310P the steps are those of UbSteps. Each step is an instruction in counter mode, and a barrier
// follows it. Registers are parts of the temporary memory, whose size limits the elements of one run.
// On Ascend950 the steps are those of RegisterSteps, because the functions are loops over vector registers there. A
// call is one instruction without temporary memory. It costs the sum of its steps, a load of each source and a store.
//
// Meaning: the steps round as the instructions do; half is computed in float if the program's kWidens is true.
#pragma once

#include <array>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "ascendc/binary.h"
#include "ascendc/cast.h"
#include "ascendc/compare.h"
#include "ascendc/duplicate.h"
#include "ascendc/library/call.h"
#include "ascendc/mask.h"
#include "ascendc/scalar_binary.h"
#include "ascendc/sync.h"
#include "ascendc/unary.h"

namespace ascend_sim {

class UbSteps {
public:
    template <class T>
    using Register = AscendC::LocalTensor<T>;

    explicit UbSteps(Site site) : site_(site) { AscendC::SetMaskCount(site_); }
    void finish() {
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
    }
    // Sets the number of elements of the next steps.
    void set_count(uint32_t elements) {
        count_ = elements;
        AscendC::SetVectorMask<float, AscendC::MaskMode::COUNTER>(0, elements, site_);
    }

#define ASCEND_SIM_STEPS(step, Name)                                                 \
    template <class T>                                                               \
    void step(const Register<T>& dst, const Register<T>& a, const Register<T>& b) {  \
        AscendC::Name<T, false>(dst, a, b, kMaskRegister, 1, {}, site_), end_step(); \
    }
    ASCEND_SIM_STEPS(add, Add)
    ASCEND_SIM_STEPS(sub, Sub)
    ASCEND_SIM_STEPS(mul, Mul)
    ASCEND_SIM_STEPS(div, Div)
    ASCEND_SIM_STEPS(max, Max)
    ASCEND_SIM_STEPS(min, Min)
    ASCEND_SIM_STEPS(and_bits, And)
    ASCEND_SIM_STEPS(or_bits, Or)
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, Name)                                                         \
    template <class T, class Scalar>                                                         \
    void step(const Register<T>& dst, const Register<T>& a, Scalar scalar) {                 \
        AscendC::Name<T, false>(dst, a, T(scalar), kMaskRegister, 1, {}, site_), end_step(); \
    }
    ASCEND_SIM_STEPS(adds, Adds)
    ASCEND_SIM_STEPS(muls, Muls)
    ASCEND_SIM_STEPS(maxs, Maxs)
    ASCEND_SIM_STEPS(mins, Mins)
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, Name)                                              \
    template <class T>                                                            \
    void step(const Register<T>& dst, const Register<T>& a) {                     \
        AscendC::Name<T, false>(dst, a, kMaskRegister, 1, {}, site_), end_step(); \
    }
    ASCEND_SIM_STEPS(abs, Abs)
    ASCEND_SIM_STEPS(exp, Exp)
    ASCEND_SIM_STEPS(ln, Ln)
    ASCEND_SIM_STEPS(sqrt, Sqrt)
    ASCEND_SIM_STEPS(reciprocal, Reciprocal)
    ASCEND_SIM_STEPS(not_bits, Not)
#undef ASCEND_SIM_STEPS
    template <class T>
    void fill(const Register<T>& dst, T value) {
        AscendC::Duplicate<T, false>(dst, value, kMaskRegister, 1, 1, 8, site_), end_step();
    }
    template <class D, class S>
    void cast(const Register<D>& dst, const Register<S>& src, RoundMode mode) {
        constexpr uint32_t kWide = kWidest<D, S>;
        AscendC::Cast<D, S, false>(dst, src, mode, ConstMask(kMaskRegister), 1,
                                   {1, 1, uint8_t(8 * sizeof(D) / kWide), uint8_t(8 * sizeof(S) / kWide)}, site_);
        end_step();
    }
    // Rounds to an integral float. Ascend310P goes through int32.
    void round(const Register<float>& dst, const Register<float>& src, RoundMode mode) {
        if constexpr (kIs310p) {
            const Register<int32_t> integers = dst.template ReinterpretCast<int32_t>();
            cast(integers, src, mode);
            cast(dst, integers, RoundMode::CAST_NONE);
        } else {
            cast(dst, src, mode);
        }
    }
    // Compares a with the scalar, and writes one bit for each element to the memory of dst.
    template <class T>
    void compare(const Register<T>& dst, const Register<T>& a, T scalar, CMPMODE mode) {
        start(Pipe::V, "CompareScalar", site_);
        compare_op(dst.template ReinterpretCast<uint8_t>(), Operand<T>{"src0", a}, Lanes::limited(sizeof(T), count_),
                   mode, [=](uint32_t, uint32_t) { return scalar; });
        end_step();
    }
    // dst = bit ? a : b, where b is a register or a scalar. The instruction reads the bits from a register, so it does
    // not need the reserved UB of AscendC::Select.
    template <class T, class TensorOrScalar>
    void select(const Register<T>& dst, const Register<T>& bits, const Register<T>& a, const TensorOrScalar& b) {
        constexpr bool kIsScalar = std::is_same_v<TensorOrScalar, T>;
        start(Pipe::V, "Select", site_);
        const Lanes lanes = Lanes::limited(sizeof(T), count_);
        const Range mask_bytes{bits.view().addr, int64_t(bits.view().addr) + (count_ + 7) / 8};
        reads("selMask", bits.view(), &mask_bytes, 1);
        check_source(Operand<T>{"src0", a}, lanes);
        if constexpr (!kIsScalar) check_source(Operand<T>{"src1", b}, lanes);
        check_destination(Operand<T>{"dst", dst}, lanes);
        const uint8_t* const mask = ub() + bits.view().addr;
        for (uint32_t i = 0; i < count_; ++i) {
            if constexpr (kIsScalar)
                dst.data()[i] = mask[i / 8] >> i % 8 & 1 ? a.data()[i] : b;
            else
                dst.data()[i] = mask[i / 8] >> i % 8 & 1 ? a.data()[i] : b.data()[i];
        }
        finish_vector(lanes.repeats(), cycles_of(Cost::Repeat));
        end_step();
    }

protected:
    static constexpr uint64_t kMaskRegister = AscendC::MASK_PLACEHOLDER;
    void end_step() {
        if (!kIs950 && !shares_barrier_) AscendC::PipeBarrier<PIPE_V>(site_);
    }
    Site site_;
    uint32_t count_ = 0;
    bool shares_barrier_ = false;  // true: one barrier follows several steps, instead of one for each
};

// The steps of a loop over vector registers. A Register holds the lanes of all iterations.
class RegisterSteps {
public:
    template <class T>
    using Register = std::vector<T>;

    double cycles() const { return cycles_; }

#define ASCEND_SIM_STEPS(step, cost, operation)                                                                       \
    template <class T>                                                                                                \
    void step(Register<T>& dst, const Register<T>& x, const Register<T>& y) {                                         \
        for_each_lane<T>(dst, Cost::cost, [&](size_t i) { return compute<T>(operation, widen(x[i]), widen(y[i])); }); \
    }
    ASCEND_SIM_STEPS(add, Repeat, [](auto a, auto b) { return a + b; })
    ASCEND_SIM_STEPS(sub, Repeat, [](auto a, auto b) { return a - b; })
    ASCEND_SIM_STEPS(mul, Repeat, [](auto a, auto b) { return a * b; })
    ASCEND_SIM_STEPS(div, Division, [](auto a, auto b) { return a / b; })
    ASCEND_SIM_STEPS(max, Repeat, [](auto a, auto b) { return a > b ? a : b; })
    ASCEND_SIM_STEPS(min, Repeat, [](auto a, auto b) { return a < b ? a : b; })
    ASCEND_SIM_STEPS(and_bits, Repeat, [](auto a, auto b) { return a & b; })
    ASCEND_SIM_STEPS(or_bits, Repeat, [](auto a, auto b) { return a | b; })
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, operation)                                                                     \
    template <class T, class Scalar>                                                                          \
    void step(Register<T>& dst, const Register<T>& x, Scalar scalar) {                                        \
        const auto y = widen(T(scalar));                                                                      \
        for_each_lane<T>(dst, Cost::Repeat, [&](size_t i) { return compute<T>(operation, widen(x[i]), y); }); \
    }
    ASCEND_SIM_STEPS(adds, [](auto a, auto b) { return a + b; })
    ASCEND_SIM_STEPS(muls, [](auto a, auto b) { return a * b; })
    ASCEND_SIM_STEPS(maxs, [](auto a, auto b) { return a > b ? a : b; })
    ASCEND_SIM_STEPS(mins, [](auto a, auto b) { return a < b ? a : b; })
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, cost, operation)                                                          \
    template <class T>                                                                                   \
    void step(Register<T>& dst, const Register<T>& x) {                                                  \
        for_each_lane<T>(dst, Cost::cost, [&](size_t i) { return compute<T>(operation, widen(x[i])); }); \
    }
    ASCEND_SIM_STEPS(abs, Repeat, [](auto a) { return std::fabs(a); })
    ASCEND_SIM_STEPS(exp, Function, [](auto a) { return std::exp(double(a)); })
    ASCEND_SIM_STEPS(ln, Function, [](auto a) { return std::log(double(a)); })
    ASCEND_SIM_STEPS(sqrt, Function, [](auto a) { return std::sqrt(a); })
    ASCEND_SIM_STEPS(reciprocal, Function, [](auto a) { return approximately<T>(1.0f / a); })
    ASCEND_SIM_STEPS(not_bits, Repeat, [](auto a) { return ~a; })
#undef ASCEND_SIM_STEPS
    template <class T>
    void fill(Register<T>& dst, T value) {
        for_each_lane<T>(dst, Cost::Repeat, [=](size_t) { return value; });
    }
    void round(Register<float>& dst, const Register<float>& src, RoundMode mode) {
        with_mode(mode, [&](auto constant_mode) {
            for_each_lane<float>(dst, Cost::Repeat,
                                 [&](size_t i) { return round_float<decltype(constant_mode)::value>(src[i]); });
        });
    }
    template <class T>
    void compare(Register<T>& dst, const Register<T>& a, T scalar, CMPMODE mode) {
        for_each_lane<T>(dst, Cost::Repeat, [&](size_t i) { return T(holds(mode, widen(a[i]), widen(scalar))); });
    }
    template <class T>
    void select(Register<T>& dst, const Register<T>& bits, const Register<T>& a, const Register<T>& b) {
        for_each_lane<T>(dst, Cost::Repeat, [&](size_t i) { return widen(bits[i]) != 0 ? a[i] : b[i]; });
    }
    template <class T>
    void select(Register<T>& dst, const Register<T>& bits, const Register<T>& a, T scalar) {
        for_each_lane<T>(dst, Cost::Repeat, [&](size_t i) { return widen(bits[i]) != 0 ? a[i] : scalar; });
    }

private:
    template <class T>
    static auto widen(T value) {
        return Arithmetic<T>::widen(value);
    }
    template <class T, class Operation, class... Operands>
    static T compute(Operation operation, Operands... operands) {
        return Arithmetic<T>().narrow(decltype(widen(T{}))(operation(operands...)));
    }
    template <class T, class Function>
    void for_each_lane(Register<T>& dst, Cost cost, Function lane_value) {
        cycles_ += cycles_of(cost);
        for (size_t i = 0; i < dst.size(); ++i) dst[i] = lane_value(i);
    }
    double cycles_ = 0;
};

// dst = the polynomial of x with the coefficients, highest power first. dst and x are different registers.
template <class Steps, class Register>
void polynomial(Steps& steps, Register& dst, Register& x, std::initializer_list<float> coefficients) {
    const float* coefficient = coefficients.begin();
    steps.muls(dst, x, *coefficient++);
    for (; coefficient + 1 < coefficients.end(); ++coefficient) {
        steps.adds(dst, dst, *coefficient);
        steps.mul(dst, dst, x);
    }
    steps.adds(dst, dst, *coefficient);
}

// The type in which a program computes: float if it widens half.
template <class Program, class T>
using ComputedType = std::conditional_t<Program::kWidens, float, T>;

// Runs the program on Ascend950: one instruction, without temporary memory.
template <class Program, class T, size_t kSources>
void run_in_registers(const Program& program, const AscendC::LocalTensor<T>& dst,
                      const std::array<AscendC::LocalTensor<T>, kSources>& src, const char* const (&names)[kSources],
                      uint32_t count, Site site) {
    using Computed = ComputedType<Program, T>;
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(T), count);
    std::vector<Computed> x[kSources], y(count), tmp_registers[Program::kTmpRegisters ? Program::kTmpRegisters : 1];
    for (size_t k = 0; k < kSources; ++k) {
        check_source(Operand<T>{names[k], src[k]}, lanes);
        x[k].resize(count);
        for (uint32_t i = 0; i < count; ++i) x[k][i] = Computed(src[k].data()[i]);
    }
    for (auto& lanes_of_register : tmp_registers) lanes_of_register.resize(Program::kTmpRegisters ? count : 0);
    RegisterSteps steps;
    program(steps, y, x, tmp_registers);
    check_destination(Operand<T>{"dstTensor", dst}, lanes);
    const Arithmetic<T> type;
    for (uint32_t i = 0; i < count; ++i) dst.data()[i] = type.narrow(Arithmetic<Computed>::widen(y[i]));
    finish_vector(lanes.repeats(), steps.cycles() + double(kSources + 1) * cycles_of(Cost::Repeat));
}

// Runs the program on chunks that fit the temporary memory. If the program widens half, its float result overwrites the
// first source's floats, or has an array of its own (kHasResultRegister).
template <class Program, class T, size_t kSources>
void run_in_ub(const Program& program, const AscendC::LocalTensor<T>& dst,
               const std::array<AscendC::LocalTensor<T>, kSources>& src, const AscendC::LocalTensor<uint8_t>& tmp,
               uint32_t count, const Call& call) {
    using Computed = ComputedType<Program, T>;
    constexpr bool kWidened = !std::is_same_v<Computed, T>;
    constexpr uint32_t kArrays =
        Program::kTmpRegisters + (kWidened ? uint32_t(kSources) + Program::kHasResultRegister : 0);
    constexpr uint32_t kUnit = 32;  // elements
    uint32_t chunk = count;
    if constexpr (kArrays != 0) {
        const uint32_t fitting = tmp.GetLength() / uint32_t(sizeof(Computed)) / kArrays / kUnit * kUnit;
        if (fitting == 0) call.report(Rule::Work01, "`sharedTmpBuffer` of %u bytes is too small.", tmp.GetLength());
        if (fitting == 0) return;
        chunk = fitting;
    }
    const AscendC::LocalTensor<Computed> memory = tmp.template ReinterpretCast<Computed>();
    uint32_t arrays = 0;
    auto next_array = [&] { return memory[chunk * arrays++]; };
    AscendC::LocalTensor<Computed> tmp_registers[Program::kTmpRegisters ? Program::kTmpRegisters : 1], x[kSources], y;
    for (uint32_t k = 0; k < Program::kTmpRegisters; ++k) tmp_registers[k] = next_array();
    if constexpr (kWidened) {
        for (size_t k = 0; k < kSources; ++k) x[k] = next_array();
        y = Program::kHasResultRegister ? next_array() : x[0];
    }
    UbSteps steps(call.site());
    for (uint32_t first = 0; first < count; first += chunk) {
        if (first == 0 || count - first < chunk) steps.set_count(count - first < chunk ? count - first : chunk);
        if constexpr (kWidened) {
            for (size_t k = 0; k < kSources; ++k) steps.cast(x[k], src[k][first], RoundMode::CAST_NONE);
            program(steps, y, x, tmp_registers);
            steps.cast(dst[first], y, kIsBfloat16<T> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE);
        } else {
            for (size_t k = 0; k < kSources; ++k) x[k] = src[k][first];
            y = dst[first];
            program(steps, y, x, tmp_registers);
        }
    }
    steps.finish();
}

// The default traits of a program.
struct ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 0;       // registers besides sources and result
    static constexpr bool kWidens = true;              // half is computed in float
    static constexpr bool kHasResultRegister = false;  // a widened result has a register of its own
    static constexpr bool kAllowsInPlace = false;      // destination and source may be the same memory
    static constexpr bool kReusesSources = false;      // isReuseSource: the program overwrites its sources
};

template <class Program, class T, size_t kSources>
void elementwise_function(const Call& call, const Program& program, const TmpArrays& arrays,
                          const AscendC::LocalTensor<T>& dst, const std::array<AscendC::LocalTensor<T>, kSources>& src,
                          const char* const (&names)[kSources], const AscendC::LocalTensor<uint8_t>* tmp,
                          uint32_t count) {
    const Range dst_bytes = call.check_operand("dstTensor", dst, count);
    AscendC::LocalTensor<uint8_t> memory;
    Range tmp_bytes{0, 0};
    if (arrays.arrays(sizeof(T), Program::kReusesSources) != 0) {
        const TmpSizes sizes = arrays.sizes(count, sizeof(T), Program::kReusesSources);
        memory = call.temporary_memory(tmp, sizes);
        tmp_bytes = range_of(memory);
        call.check_apart("sharedTmpBuffer", tmp_bytes, "dstTensor", dst_bytes);
    }
    for (size_t k = 0; k < kSources; ++k) {
        const Range src_bytes = call.check_operand(names[k], src[k], count);
        if (Program::kAllowsInPlace)
            call.check_same_or_apart("dstTensor", dst_bytes, names[k], src_bytes);
        else
            call.check_apart("dstTensor", dst_bytes, names[k], src_bytes);
        call.check_apart("sharedTmpBuffer", tmp_bytes, names[k], src_bytes);
    }
    if constexpr (kIs950)
        run_in_registers(program, dst, src, names, count, call.site());
    else
        run_in_ub(program, dst, src, memory, count, call);
}

template <class Program, class T>
void unary_function(const Call& call, const Program& program, const TmpArrays& arrays,
                    const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>* tmp, uint32_t count) {
    static constexpr const char* kNames[1] = {"srcTensor"};
    elementwise_function(call, program, arrays, dst, std::array<AscendC::LocalTensor<T>, 1>{src}, kNames, tmp, count);
}

template <class Program, class T>
void binary_function(const Call& call, const Program& program, const TmpArrays& arrays,
                     const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                     const AscendC::LocalTensor<T>& src1, const AscendC::LocalTensor<uint8_t>* tmp, uint32_t count) {
    static constexpr const char* kNames[2] = {"src0Tensor", "src1Tensor"};
    elementwise_function(call, program, arrays, dst, std::array<AscendC::LocalTensor<T>, 2>{src0, src1}, kNames, tmp,
                         count);
}

}  // namespace ascend_sim

// The overloads of a function of one tensor: with and without sharedTmpBuffer, with and without calCount. `config`
// chooses an algorithm of Ascend950; the simulator has only one.
#define ASCEND_SIM_COUNTED_FUNCTION(Name, Program, sizes)                                                           \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,                                     \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, ASCEND_SIM_SITE) {              \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, #Name ": config is for Ascend950 only");        \
        ascend_sim::unary_function(ascend_sim::Call(#Name, site), ascend_sim::Program<T, isReuseSource>(),          \
                                   ascend_sim::tmp_sizes::sizes, dstTensor, srcTensor, &sharedTmpBuffer, calCount); \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const uint32_t calCount,            \
              ASCEND_SIM_SITE) {                                                                                    \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, #Name ": config is for Ascend950 only");        \
        ascend_sim::unary_function(ascend_sim::Call(#Name, site), ascend_sim::Program<T, isReuseSource>(),          \
                                   ascend_sim::tmp_sizes::sizes, dstTensor, srcTensor, nullptr, calCount);          \
    }
#define ASCEND_SIM_FUNCTION(Name, Program, sizes)                                                            \
    ASCEND_SIM_COUNTED_FUNCTION(Name, Program, sizes)                                                        \
    template <class T, bool isReuseSource = false, const auto & ... config>                                  \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,                              \
              const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {                                \
        Name<T, isReuseSource, config...>(dstTensor, srcTensor, sharedTmpBuffer, srcTensor.GetSize(), site); \
    }                                                                                                        \
    template <class T, bool isReuseSource = false, const auto & ... config>                                  \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, ASCEND_SIM_SITE) {           \
        Name<T, isReuseSource, config...>(dstTensor, srcTensor, srcTensor.GetSize(), site);                  \
    }
// The overloads of a function of two tensors.
#define ASCEND_SIM_BINARY_FUNCTION(Name, Program, sizes)                                                            \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& src0Tensor, const LocalTensor<T>& src1Tensor,  \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, ASCEND_SIM_SITE) {              \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, #Name ": config is for Ascend950 only");        \
        ascend_sim::binary_function(ascend_sim::Call(#Name, site), ascend_sim::Program(), ascend_sim::sizes,        \
                                    dstTensor, src0Tensor, src1Tensor, &sharedTmpBuffer, calCount);                 \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& src0Tensor, const LocalTensor<T>& src1Tensor,  \
              const uint32_t calCount, ASCEND_SIM_SITE) {                                                           \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, #Name ": config is for Ascend950 only");        \
        ascend_sim::binary_function(ascend_sim::Call(#Name, site), ascend_sim::Program(), ascend_sim::sizes,        \
                                    dstTensor, src0Tensor, src1Tensor, nullptr, calCount);                          \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& src0Tensor, const LocalTensor<T>& src1Tensor,  \
              const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {                                       \
        Name<T, isReuseSource, config...>(dstTensor, src0Tensor, src1Tensor, sharedTmpBuffer, src0Tensor.GetSize(), \
                                          site);                                                                    \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& src0Tensor, const LocalTensor<T>& src1Tensor,  \
              ASCEND_SIM_SITE) {                                                                                    \
        Name<T, isReuseSource, config...>(dstTensor, src0Tensor, src1Tensor, src0Tensor.GetSize(), site);           \
    }
