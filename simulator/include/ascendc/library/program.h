// Elementwise library functions as programs of vector instructions.
//
// A program is a callable object that uses the steps of a machine: m.muls(y, x, 2), m.exp(y, y). On Ascend910B and
// 310P the machine is UbMachine: each step is an instruction in counter mode, and a barrier follows it; registers are
// parts of the temporary memory, which decides how many elements run at a time. On Ascend950 the machine is
// RegisterMachine: there the functions are loops over vector registers, so a call is one instruction, which costs the
// sum of its steps, a load of each source and a store, and uses no temporary memory.
//
// Meaning: the steps round as the instructions do; half is computed in float where the program says so.
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

class UbMachine {
public:
    template <class T>
    using Reg = AscendC::LocalTensor<T>;

    explicit UbMachine(Site site) : site_(site) { AscendC::SetMaskCount(site_); }
    void finish() {
        AscendC::SetMaskNorm(site_);
        AscendC::ResetMask(site_);
    }
    // The number of elements of the next steps.
    void count(uint32_t n) {
        count_ = n;
        AscendC::SetVectorMask<float, AscendC::MaskMode::COUNTER>(0, n, site_);
    }

#define ASCEND_SIM_STEPS(step, Name)                                       \
    template <class T>                                                     \
    void step(const Reg<T>& d, const Reg<T>& a, const Reg<T>& b) {         \
        AscendC::Name<T, false>(d, a, b, kRegister, 1, {}, site_), done(); \
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
#define ASCEND_SIM_STEPS(step, Name)                                          \
    template <class T, class S>                                               \
    void step(const Reg<T>& d, const Reg<T>& a, S s) {                        \
        AscendC::Name<T, false>(d, a, T(s), kRegister, 1, {}, site_), done(); \
    }
    ASCEND_SIM_STEPS(adds, Adds)
    ASCEND_SIM_STEPS(muls, Muls)
    ASCEND_SIM_STEPS(maxs, Maxs)
    ASCEND_SIM_STEPS(mins, Mins)
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, Name)                                    \
    template <class T>                                                  \
    void step(const Reg<T>& d, const Reg<T>& a) {                       \
        AscendC::Name<T, false>(d, a, kRegister, 1, {}, site_), done(); \
    }
    ASCEND_SIM_STEPS(abs, Abs)
    ASCEND_SIM_STEPS(exp, Exp)
    ASCEND_SIM_STEPS(ln, Ln)
    ASCEND_SIM_STEPS(sqrt, Sqrt)
    ASCEND_SIM_STEPS(reciprocal, Reciprocal)
    ASCEND_SIM_STEPS(not_bits, Not)
#undef ASCEND_SIM_STEPS
    template <class T>
    void fill(const Reg<T>& d, T value) {
        AscendC::Duplicate<T, false>(d, value, kRegister, 1, 1, 8, site_), done();
    }
    template <class D, class S>
    void cast(const Reg<D>& d, const Reg<S>& s, RoundMode mode) {
        constexpr uint32_t kWide = kWidest<D, S>;
        AscendC::Cast<D, S, false>(d, s, mode, ConstMask(kRegister), 1,
                                   {1, 1, uint8_t(8 * sizeof(D) / kWide), uint8_t(8 * sizeof(S) / kWide)}, site_);
        done();
    }
    // Rounds to an integral float. Ascend310P goes through int32.
    void round(const Reg<float>& d, const Reg<float>& s, RoundMode mode) {
        if constexpr (kIs310p) {
            const Reg<int32_t> integers = d.template ReinterpretCast<int32_t>();
            cast(integers, s, mode);
            cast(d, integers, RoundMode::CAST_NONE);
        } else {
            cast(d, s, mode);
        }
    }
    // Bits of a comparison, in the memory of d.
    template <class T>
    void compare(const Reg<T>& d, const Reg<T>& a, T s, CMPMODE mode) {
        start(Pipe::V, "CompareScalar", site_);
        compare_op(d.template ReinterpretCast<uint8_t>(), Operand<T>{"src0", a}, Lanes::limited(sizeof(T), count_),
                   mode, [=](uint32_t, uint32_t) { return s; });
        done();
    }
    // d = bit ? a : b. The bits' register is read by the instruction, so the reserved UB of Select is not needed.
    template <class T, class B>
    void select(const Reg<T>& d, const Reg<T>& bits, const Reg<T>& a, const B& b) {
        start(Pipe::V, "Select", site_);
        const Lanes lanes = Lanes::limited(sizeof(T), count_);
        const Range chosen{bits.view().addr, int64_t(bits.view().addr) + (count_ + 7) / 8};
        reads("selMask", bits.view(), &chosen, 1);
        check_source(Operand<T>{"src0", a}, lanes);
        if constexpr (!std::is_same_v<B, T>) check_source(Operand<T>{"src1", b}, lanes);
        check_destination(Operand<T>{"dst", d}, lanes);
        const uint8_t* const bit = ub() + bits.view().addr;
        for (uint32_t i = 0; i < count_; ++i) {
            if constexpr (std::is_same_v<B, T>)
                d.data()[i] = bit[i / 8] >> i % 8 & 1 ? a.data()[i] : b;
            else
                d.data()[i] = bit[i / 8] >> i % 8 & 1 ? a.data()[i] : b.data()[i];
        }
        finish_vector(lanes.repeats(), cycles_of(Cost::Repeat));
        done();
    }

protected:
    static constexpr uint64_t kRegister = AscendC::MASK_PLACEHOLDER;
    void done() {
        if (!kIs950 && !is_together_) AscendC::PipeBarrier<PIPE_V>(site_);
    }
    Site site_;
    uint32_t count_ = 0;
    bool is_together_ = false;  // steps that do not depend on each other share a barrier
};

// The steps of a loop over vector registers; a Reg holds the lanes of all its iterations.
class RegisterMachine {
public:
    template <class T>
    using Reg = std::vector<T>;

    double cycles() const { return cycles_; }

#define ASCEND_SIM_STEPS(step, cost, expr)                                                         \
    template <class T>                                                                             \
    void step(Reg<T>& d, const Reg<T>& x, const Reg<T>& y) {                                       \
        run<T>(d, Cost::cost, [&](size_t i) { return value<T>(expr, widen(x[i]), widen(y[i])); }); \
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
#define ASCEND_SIM_STEPS(step, expr)                                                       \
    template <class T, class S>                                                            \
    void step(Reg<T>& d, const Reg<T>& x, S scalar) {                                      \
        const auto s = widen(T(scalar));                                                   \
        run<T>(d, Cost::Repeat, [&](size_t i) { return value<T>(expr, widen(x[i]), s); }); \
    }
    ASCEND_SIM_STEPS(adds, [](auto a, auto b) { return a + b; })
    ASCEND_SIM_STEPS(muls, [](auto a, auto b) { return a * b; })
    ASCEND_SIM_STEPS(maxs, [](auto a, auto b) { return a > b ? a : b; })
    ASCEND_SIM_STEPS(mins, [](auto a, auto b) { return a < b ? a : b; })
#undef ASCEND_SIM_STEPS
#define ASCEND_SIM_STEPS(step, cost, expr)                                            \
    template <class T>                                                                \
    void step(Reg<T>& d, const Reg<T>& x) {                                           \
        run<T>(d, Cost::cost, [&](size_t i) { return value<T>(expr, widen(x[i])); }); \
    }
    ASCEND_SIM_STEPS(abs, Repeat, [](auto a) { return std::fabs(a); })
    ASCEND_SIM_STEPS(exp, Function, [](auto a) { return std::exp(double(a)); })
    ASCEND_SIM_STEPS(ln, Function, [](auto a) { return std::log(double(a)); })
    ASCEND_SIM_STEPS(sqrt, Function, [](auto a) { return std::sqrt(a); })
    ASCEND_SIM_STEPS(reciprocal, Function, [](auto a) { return approximately<T>(1.0f / a); })
    ASCEND_SIM_STEPS(not_bits, Repeat, [](auto a) { return ~a; })
#undef ASCEND_SIM_STEPS
    template <class T>
    void fill(Reg<T>& d, T value) {
        run<T>(d, Cost::Repeat, [=](size_t) { return value; });
    }
    void round(Reg<float>& d, const Reg<float>& s, RoundMode mode) {
        with_mode(mode, [&](auto m) {
            run<float>(d, Cost::Repeat, [&](size_t i) { return round_float<decltype(m)::value>(s[i]); });
        });
    }
    template <class T>
    void compare(Reg<T>& d, const Reg<T>& a, T s, CMPMODE mode) {
        run<T>(d, Cost::Repeat, [&](size_t i) { return T(holds(mode, widen(a[i]), widen(s))); });
    }
    template <class T>
    void select(Reg<T>& d, const Reg<T>& bits, const Reg<T>& a, const Reg<T>& b) {
        run<T>(d, Cost::Repeat, [&](size_t i) { return widen(bits[i]) != 0 ? a[i] : b[i]; });
    }
    template <class T>
    void select(Reg<T>& d, const Reg<T>& bits, const Reg<T>& a, T s) {
        run<T>(d, Cost::Repeat, [&](size_t i) { return widen(bits[i]) != 0 ? a[i] : s; });
    }

private:
    template <class T>
    static auto widen(T v) {
        return Arithmetic<T>::widen(v);
    }
    template <class T, class F, class... A>
    static T value(F f, A... a) {
        return Arithmetic<T>().narrow(decltype(widen(T{}))(f(a...)));
    }
    template <class T, class F>
    void run(Reg<T>& d, Cost cost, F f) {
        cycles_ += cycles_of(cost);
        for (size_t i = 0; i < d.size(); ++i) d[i] = f(i);
    }
    double cycles_ = 0;
};

// sum of coefficients[k] * x^(n - 1 - k), highest power first; d and x differ.
template <class M, class R>
void polynomial(M& m, R& d, R& x, std::initializer_list<float> coefficients) {
    const float* c = coefficients.begin();
    m.muls(d, x, *c++);
    for (; c + 1 < coefficients.end(); ++c) {
        m.adds(d, d, *c);
        m.mul(d, d, x);
    }
    m.adds(d, d, *c);
}

// The type in which a program computes: float if it widens half.
template <class P, class T>
using ComputedType = std::conditional_t<P::kWidens, float, T>;

// On Ascend950: one instruction, without temporary memory.
template <class P, class T, size_t N>
void run_in_registers(const P& program, const AscendC::LocalTensor<T>& dst,
                      const std::array<AscendC::LocalTensor<T>, N>& src, const char* const (&names)[N], uint32_t count,
                      Site site) {
    using C = ComputedType<P, T>;
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(T), count);
    std::vector<C> x[N], y(count), t[P::kTemps ? P::kTemps : 1];
    for (size_t k = 0; k < N; ++k) {
        check_source(Operand<T>{names[k], src[k]}, lanes);
        x[k].resize(count);
        for (uint32_t i = 0; i < count; ++i) x[k][i] = C(src[k].data()[i]);
    }
    for (auto& r : t) r.resize(P::kTemps ? count : 0);
    RegisterMachine m;
    program(m, y, x, t);
    check_destination(Operand<T>{"dstTensor", dst}, lanes);
    const Arithmetic<T> type;
    for (uint32_t i = 0; i < count; ++i) dst.data()[i] = type.narrow(Arithmetic<C>::widen(y[i]));
    finish_vector(lanes.repeats(), m.cycles() + double(N + 1) * cycles_of(Cost::Repeat));
}

// Runs the program on chunks that the temporary memory allows. If it widens half, the result takes the place of the
// first source (kOwnResult: it has memory of its own).
template <class P, class T, size_t N>
void run_in_ub(const P& program, const AscendC::LocalTensor<T>& dst, const std::array<AscendC::LocalTensor<T>, N>& src,
               const AscendC::LocalTensor<uint8_t>& tmp, uint32_t count, const Call& call) {
    using C = ComputedType<P, T>;
    constexpr bool kWidened = !std::is_same_v<C, T>;
    constexpr uint32_t kArrays = P::kTemps + (kWidened ? uint32_t(N) + P::kOwnResult : 0);
    constexpr uint32_t kUnit = 32;  // elements
    uint32_t chunk = count;
    if constexpr (kArrays != 0) {
        const uint32_t fits = tmp.GetLength() / uint32_t(sizeof(C)) / kArrays / kUnit * kUnit;
        if (fits == 0) call.report(Rule::Work01, "`sharedTmpBuffer` of %u bytes is too small.", tmp.GetLength());
        if (fits == 0) return;
        chunk = fits;
    }
    const AscendC::LocalTensor<C> memory = tmp.template ReinterpretCast<C>();
    uint32_t arrays = 0;
    auto next = [&] { return memory[chunk * arrays++]; };
    AscendC::LocalTensor<C> t[P::kTemps ? P::kTemps : 1], x[N], y;
    for (uint32_t k = 0; k < P::kTemps; ++k) t[k] = next();
    if constexpr (kWidened) {
        for (size_t k = 0; k < N; ++k) x[k] = next();
        y = P::kOwnResult ? next() : x[0];
    }
    UbMachine m(call.site());
    for (uint32_t first = 0; first < count; first += chunk) {
        if (first == 0 || count - first < chunk) m.count(count - first < chunk ? count - first : chunk);
        if constexpr (kWidened) {
            for (size_t k = 0; k < N; ++k) m.cast(x[k], src[k][first], RoundMode::CAST_NONE);
            program(m, y, x, t);
            m.cast(dst[first], y, kIsBfloat16<T> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE);
        } else {
            for (size_t k = 0; k < N; ++k) x[k] = src[k][first];
            y = dst[first];
            program(m, y, x, t);
        }
    }
    m.finish();
}

// The defaults of a program, which may declare them differently.
struct ProgramTraits {
    static constexpr uint32_t kTemps = 0;      // registers besides sources and result
    static constexpr bool kWidens = true;      // half is computed in float
    static constexpr bool kOwnResult = false;  // a widened result has a register of its own
    static constexpr bool kInPlace = false;    // destination and source may be the same memory
    static constexpr bool kReuses = false;     // isReuseSource: the program overwrites its sources
};

template <class P, class T, size_t N>
void elementwise(const Call& call, const P& program, const TmpArrays& arrays, const AscendC::LocalTensor<T>& dst,
                 const std::array<AscendC::LocalTensor<T>, N>& src, const char* const (&names)[N],
                 const AscendC::LocalTensor<uint8_t>* tmp, uint32_t count) {
    const Range to = call.operand("dstTensor", dst, count);
    AscendC::LocalTensor<uint8_t> memory;
    Range used{0, 0};
    if (arrays.arrays(sizeof(T), P::kReuses) != 0) {
        const TmpSizes sizes = arrays.sizes(count, sizeof(T), P::kReuses);
        memory = call.temporary(tmp, sizes);
        used = range_of(memory);
        call.apart("sharedTmpBuffer", used, "dstTensor", to);
    }
    for (size_t k = 0; k < N; ++k) {
        const Range from = call.operand(names[k], src[k], count);
        if (P::kInPlace)
            call.same_or_apart("dstTensor", to, names[k], from);
        else
            call.apart("dstTensor", to, names[k], from);
        call.apart("sharedTmpBuffer", used, names[k], from);
    }
    if constexpr (kIs950)
        run_in_registers(program, dst, src, names, count, call.site());
    else
        run_in_ub(program, dst, src, memory, count, call);
}

template <class P, class T>
void unary_function(const Call& call, const P& program, const TmpArrays& arrays, const AscendC::LocalTensor<T>& dst,
                    const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<uint8_t>* tmp, uint32_t count) {
    static constexpr const char* kNames[1] = {"srcTensor"};
    elementwise(call, program, arrays, dst, std::array<AscendC::LocalTensor<T>, 1>{src}, kNames, tmp, count);
}

template <class P, class T>
void binary_function(const Call& call, const P& program, const TmpArrays& arrays, const AscendC::LocalTensor<T>& dst,
                     const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1,
                     const AscendC::LocalTensor<uint8_t>* tmp, uint32_t count) {
    static constexpr const char* kNames[2] = {"src0Tensor", "src1Tensor"};
    elementwise(call, program, arrays, dst, std::array<AscendC::LocalTensor<T>, 2>{src0, src1}, kNames, tmp, count);
}

}  // namespace ascend_sim

// The forms of a function of one tensor: with and without sharedTmpBuffer, of a number of elements or of all. `config`
// chooses an algorithm of Ascend950; the simulator has one.
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
// The forms of a function of two tensors.
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
