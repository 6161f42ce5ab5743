// Arithmetic, filling and sums, compared with plain loops. Other files test the instructions' rules (test_rules.py),
// conversions (test_conversions.cpp), and copies and gathers (test_movement.cpp).
#include <algorithm>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

// Rounds to float and then to T, by the conversion that test_conversions.cpp verifies.
template <class T>
T narrow(double v) {
    return T(float(v));
}

// Calls an instruction with a count of all but three elements and expects dst[i] = want(x[i], y[i]). dst begins as a
// copy of x, and its last three elements stay.
template <class T, class F, class G>
void check_count(const std::string& what, const std::vector<T>& x, const std::vector<T>& y, F call, G want) {
    const uint32_t n = uint32_t(x.size()) - 3;
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), sd = b.put(x);
    expect_rule(what, b.run([&] { call(b(sd), b(sx), b(sy), int32_t(n)); }), "");
    std::vector<T> expected = x;
    for (uint32_t i = 0; i < n; ++i) expected[i] = want(x[i], y[i]);
    expect(what, b.get(sd), expected);
}

// ---- one and two sources ----------------------------------------------------------------------------------

template <class T>
void check_binary_of(const std::string& type) {
    using W = std::conditional_t<std::is_integral_v<T>, T, float>;
    const auto x = numbers<T>(1003, -99, 120);
    auto y = numbers<T>(1003, -99, 120);
    std::rotate(y.begin(), y.begin() + 7, y.end());
    auto to = [](W v) { return T(v); };
    check_count<T>(
        "Add " + type, x, y, [](auto d, auto a, auto c, int32_t n) { Add(d, a, c, n); },
        [=](T a, T c) { return to(W(W(a) + W(c))); });
    check_count<T>(
        "Sub " + type, x, y, [](auto d, auto a, auto c, int32_t n) { Sub(d, a, c, n); },
        [=](T a, T c) { return to(W(W(a) - W(c))); });
    check_count<T>(
        "Mul " + type, x, y, [](auto d, auto a, auto c, int32_t n) { Mul(d, a, c, n); },
        [=](T a, T c) { return to(W(W(a) * W(c))); });
    check_count<T>(
        "Max " + type, x, y, [](auto d, auto a, auto c, int32_t n) { Max(d, a, c, n); },
        [=](T a, T c) { return W(a) > W(c) ? a : c; });
    check_count<T>(
        "Min " + type, x, y, [](auto d, auto a, auto c, int32_t n) { Min(d, a, c, n); },
        [=](T a, T c) { return W(a) < W(c) ? a : c; });
    const T s = T(17);
    check_count<T>(
        "Adds " + type, x, y, [=](auto d, auto a, auto, int32_t n) { Adds(d, a, s, n); },
        [=](T a, T) { return to(W(W(a) + W(s))); });
    check_count<T>(
        "Muls " + type, x, y, [=](auto d, auto a, auto, int32_t n) { Muls<T>(d, a, s, n); },
        [=](T a, T) { return to(W(W(a) * W(s))); });
    check_count<T>(
        "Maxs " + type, x, y, [=](auto d, auto a, auto, int32_t n) { Maxs(d, a, s, n); },
        [=](T a, T) { return W(a) > W(s) ? a : s; });
    check_count<T>(
        "Mins " + type, x, y, [=](auto d, auto a, auto, int32_t n) { Mins<T, true>(d, a, s, n); },
        [=](T a, T) { return W(a) < W(s) ? a : s; });
}

void check_bitwise() {
    const auto x = numbers<uint16_t>(515, 0, 65535);
    const std::vector<uint16_t> y(x.rbegin(), x.rend());
    using U = uint16_t;
    check_count<U>(
        "And", x, y, [](auto d, auto a, auto c, int32_t n) { And(d, a, c, n); }, [](U a, U c) { return U(a & c); });
    check_count<U>(
        "Or", x, y, [](auto d, auto a, auto c, int32_t n) { Or(d, a, c, n); }, [](U a, U c) { return U(a | c); });
    check_count<U>("Not", x, y, [](auto d, auto a, auto, int32_t n) { Not(d, a, n); }, [](U a, U) { return U(~a); });
}

// Repeat forms with strides.
void check_repeat_forms() {
    const auto x = numbers<float>(2048, -9, 9), y = numbers<float>(2048, -9, 9);
    const std::vector<float> before(2048, 5.0f);
    auto offset = [](uint32_t r, uint32_t lane, uint32_t block_stride, uint32_t repeat_stride) {
        return (r * repeat_stride + lane / 8 * block_stride) * 8 + lane % 8;
    };
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), sd = b.put(before);
    const BinaryRepeatParams p(2, 1, 0, 17, 8, 1);
    expect_rule("Add's strides", b.run([&] { Add(b(sd), b(sx), b(sy), 61, 6, p); }), "");
    std::vector<float> want = before;
    for (uint32_t r = 0; r < 6; ++r)
        for (uint32_t l = 0; l < 61; ++l) want[offset(r, l, 2, 17)] = x[offset(r, l, 1, 8)] + y[offset(r, l, 0, 1)];
    expect("Add's strides", b.get(sd), want);

    // Calls by function pointers of the types that CANN's functions have.
    using Floats = LocalTensor<float>;
    void (*const repeats)(const Floats&, const Floats&, const Floats&, uint64_t, uint8_t, const BinaryRepeatParams&) =
        Add;
    void (*const counted)(const Floats&, const Floats&, const Floats&, const int32_t&) = Add<float>;
    Bench f;
    const auto fx = f.put(x), fy = f.put(y), fd = f.put(before);
    expect_rule("a pointer to Add", f.run([&] { repeats(f(fd), f(fx), f(fy), 61, 6, p); }), "");
    expect("a pointer to Add", f.get(fd), want);
    expect_rule("a pointer to a count form", f.run([&] { counted(f(fd), f(fx), f(fy), 100); }), "");
    for (uint32_t i = 0; i < 100; ++i) want[i] = x[i] + y[i];
    expect("a pointer to a count form", f.get(fd), want);
    expect_rule("a pointer's mask", f.run([&] { repeats(f(fd), f(fx), f(fy), 65, 1, p); }), "SIM-MASK-01");

    Bench c;
    const auto cx = c.put(x), cd = c.put(before);
    uint64_t mask[2] = {0xf0000000000000f1ull, 0};
    expect_rule("Muls's bit mask", c.run([&] { Muls(c(cd), c(cx), 2.0f, mask, 5, UnaryRepeatParams(1, 3, 8, 24)); }),
                "");
    want = before;
    for (uint32_t r = 0; r < 5; ++r)
        for (uint32_t l = 0; l < 64; ++l)
            if (mask[0] >> l & 1) want[offset(r, l, 1, 8)] = x[offset(r, l, 3, 24)] * 2.0f;
    expect("Muls's bit mask", c.get(cd), want);

    // With repeat stride 0 in place, each lane sums its repeats in order.
    Bench d;
    const auto dx = d.put(numbers<float>(640, 0, 1)), dd = d.put(std::vector<float>(64, 0.0f));
    expect_rule("Add accumulates", d.run([&] { Add(d(dd), d(dx), d(dd), 64, 10, {1, 1, 1, 0, 8, 0}); }), "");
    std::vector<float> sum(64, 0.0f);
    for (uint32_t i = 0; i < 640; ++i) sum[i % 64] = d.get(dx)[i] + sum[i % 64];
    expect("Add accumulates", d.get(dd), sum);

    // The mask register in both modes.
    Bench e;
    const auto ex = e.put(x), ed = e.put(before), ec = e.put(before);
    expect_rule("isSetMask = false", e.run([&] {
        SetVectorMask<float>(0, 0xffff);
        Adds<float, false>(e(ed), e(ex), 1.0f, MASK_PLACEHOLDER, 3, {1, 1, 8, 8});
        SetMaskCount();
        SetVectorMask<float, MaskMode::COUNTER>(0, 150);
        Adds<float, false>(e(ec), e(ex), 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 16, 8});
        SetMaskNorm();
        ResetMask();
    }),
                "");
    want = before;
    for (uint32_t r = 0; r < 3; ++r)
        for (uint32_t l = 0; l < 16; ++l) want[r * 64 + l] = x[r * 64 + l] + 1.0f;
    expect("isSetMask = false", e.get(ed), want);
    want = before;
    for (uint32_t i = 0; i < 150; ++i) want[i / 64 * 128 + i % 64] = x[i] + 1.0f;  // counter mode ignores repeatTime
    expect("counter mode", e.get(ec), want);
}

// The result of a function in float. Ascend950 may return either neighbour of the exact value, so the simulator returns
// the one that is not the nearest.
float function_result(double exact) {
    const auto nearest = float(exact);
    if (!ascend_sim::kIs950 || double(nearest) == exact) return nearest;
    return std::nextafter(nearest, exact > double(nearest) ? INFINITY : -INFINITY);
}

// Functions with subnormal operands and results, which are zeros on Ascend950. The first two quotients and their
// results there are the examples of the vendor's page of Div (Reg API).
void check_subnormal_functions() {
    const float inf = INFINITY, smallest = 0x1p-126f;
    const std::vector<float> x{1, 1.8611191411098982e-39f, smallest, -smallest, 0x1p-130f, -0x1p-140f, 3, -3, -89, 0, 0,
                               0};
    const std::vector<float> y{-5.01923249665106e-39f, 7.70406850625423e-39f, 2, 2, 1, 1, inf, inf, 3, 0, 0, 0};
    const auto flushed = [](double v) {
        return ascend_sim::kIs950 && std::fabs(v) < 0x1p-126 ? std::copysign(0.0, v) : v;
    };
    const auto result = [=](double exact) { return float(flushed(function_result(exact))); };
    const auto quotient = [=](float a, float b) { return result(flushed(a) / flushed(b)); };
    if (ascend_sim::kIs950) {
        check(quotient(x[0], y[0]) == -inf && std::isnan(quotient(x[1], y[1])), "the examples of the page of Div");
        check(bits_of(quotient(x[3], y[3])) == bits_of(-0.0f), "a subnormal quotient is a zero of its sign");
    }
    check_count<float>("Div of subnormals", x, y, [](auto d, auto a, auto c, int32_t n) { Div(d, a, c, n); }, quotient);
    check_count<float>(
        "Sqrt of subnormals", x, y, [](auto d, auto a, auto, int32_t n) { Sqrt(d, a, n); },
        [=](float a, float) { return result(std::sqrt(flushed(a))); });
    check_count<float>(
        "Exp with subnormal results", x, y, [](auto d, auto a, auto, int32_t n) { Exp(d, a, n); },
        [=](float a, float) { return result(std::exp(flushed(a))); });
}

void check_unary() {
    const auto x = numbers<float>(1003, 0.01f, 30);
    const std::vector<float> y(x.rbegin(), x.rend());
    using F = float;
    check_count<F>(
        "Abs", x, x, [](auto d, auto a, auto, int32_t n) { Abs(d, a, n); }, [](F a, F) { return std::fabs(a); });
    check_count<F>(
        "Sqrt", x, x, [](auto d, auto a, auto, int32_t n) { Sqrt(d, a, n); },
        [](F a, F) { return function_result(std::sqrt(double(a))); });
    check_count<F>(
        "Div", x, y, [](auto d, auto a, auto c, int32_t n) { Div(d, a, c, n); },
        [](F a, F c) { return function_result(double(a) / double(c)); });
    check_count<F>(
        "Exp", x, x, [](auto d, auto a, auto, int32_t n) { Exp(d, a, n); },
        [](F a, F) { return function_result(std::exp(double(a))); });
    check_count<F>(
        "Ln", x, x, [](auto d, auto a, auto, int32_t n) { Ln(d, a, n); },
        [](F a, F) { return function_result(std::log(double(a))); });
    const auto z = numbers<half>(515, -30, 30);
    check_count<half>(
        "Relu half", z, z, [](auto d, auto a, auto, int32_t n) { Relu(d, a, n); },
        [](half a, half) { return float(a) > 0 ? a : half(0.0f); });
    check_count<half>(
        "Abs half", z, z, [](auto d, auto a, auto, int32_t n) { Abs(d, a, n); },
        [](half a, half) { return half(std::fabs(float(a))); });
    // The simulator makes errors up to those that the documentation allows.
    Bench b;
    const auto sx = b.put(x), sr = b.put(x), sq = b.put(x);
    expect_rule("Reciprocal, Rsqrt", b.run([&] {
        Reciprocal(b(sr), b(sx), int32_t(x.size()));
        Rsqrt(b(sq), b(sx), int32_t(x.size()));
    }),
                "");
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        worst = std::max(worst, std::fabs(b.get(sr)[i] * double(x[i]) - 1));
        worst = std::max(worst, std::fabs(b.get(sq)[i] * std::sqrt(double(x[i])) - 1));
        for (float result : {b.get(sr)[i], b.get(sq)[i]})
            check(ascend_sim::bits<uint32_t>(result) << 21 == 0, "Reciprocal, Rsqrt: a result of more than 13 bits");
    }
    check(worst > 1e-5 && worst < 1.3e-4, "Reciprocal, Rsqrt: worst relative error " + std::to_string(worst));
    const std::vector<float> nan{ascend_sim::bits<float>(~0u)};
    const auto sn = b.put(nan), sd = b.space<float>(1);
    expect_rule("Reciprocal of NaN", b.run([&] { Reciprocal(b(sd), b(sn), 1); }), "");
    expect("Reciprocal of NaN", b.get(sd), nan);
}

template <class T>
T product_then_sum(double a, double b, double c) {
    return narrow<T>(double(float(narrow<T>(a * b))) + c);
}

void check_fused() {
    using H = half;
    const auto x = numbers<H>(515, -3, 3);
    auto y = x;
    std::rotate(y.begin(), y.begin() + 5, y.end());
    const H s = H(1.7f);
    check_count<H>(
        "Axpy half", x, y, [=](auto d, auto, auto c, int32_t n) { Axpy(d, c, s, n); },
        [=](H a, H c) { return product_then_sum<H>(c, s, a); });
    check_count<H>(
        "MulAddDst half", x, y, [](auto d, auto a, auto c, int32_t n) { MulAddDst(d, a, c, n); },
        [](H a, H c) { return product_then_sum<H>(a, c, a); });
    check_count<H>(
        "FusedMulAdd half", x, y, [](auto d, auto a, auto c, int32_t n) { FusedMulAdd(d, a, c, n); },
        [](H a, H c) { return product_then_sum<H>(a, a, c); });
    const auto u = numbers<float>(515, -3, 3);
    auto v = u;
    std::rotate(v.begin(), v.begin() + 5, v.end());
    check_count<float>(
        "MulAddDst float", u, v, [](auto d, auto a, auto c, int32_t n) { MulAddDst(d, a, c, n); },
        [](float a, float c) { return product_then_sum<float>(a, c, a); });
    // A float destination adds the unrounded product of halves.
    Bench b;
    const auto sx = b.put(x), sy = b.put(y);
    const auto sd = b.put(std::vector<float>(512, 0.5f)), se = b.put(std::vector<float>(512, 0.5f));
    expect_rule("float += half * half", b.run([&] {
        MulAddDst(b(sd), b(sx), b(sy), 512);
        Axpy(b(se), b(sx), s, 64, 8, UnaryRepeatParams(1, 1, 8, 4));
    }),
                "");
    std::vector<float> want(512), want_axpy(512);
    for (uint32_t i = 0; i < 512; ++i) {
        want[i] = float(x[i]) * float(y[i]) + 0.5f;
        want_axpy[i] = float(x[i]) * float(s) + 0.5f;
    }
    expect("MulAddDst float from half", b.get(sd), want);
    expect("Axpy float from half", b.get(se), want_axpy);
}

void check_saturation() {
    const std::vector<half> x(128, half(60000.0f));
    for (bool saturate : {false, true}) {
        Bench b({saturate, nullptr});
        const auto sx = b.put(x), sd = b.put(x);
        expect_rule("half overflow", b.run([&] { Add(b(sd), b(sx), b(sx), 128); }), "");
        half want;
        want.raw = saturate ? 0x7bff : 0x7c00;
        expect(saturate ? "half overflow clamps" : "half overflow", b.get(sd), std::vector<half>(128, want));
    }
}

// ---- filling, indices -------------------------------------------------------------------------------------

// Ascend950 has 8-bit types, with 256 lanes a repeat.
void check_filling_of_bytes() {
#if __CCE_AICORE__ == 310
    Bench b;
    const auto by_number = b.put(std::vector<uint8_t>(256, 1));
    expect_rule("Duplicate of bytes by a number",
                b.run([&] { Duplicate<uint8_t>(b(by_number), uint8_t(9), 200, 1, 1, 8); }), "");
    std::vector<uint8_t> want(256, 1);
    std::fill_n(want.begin(), 200, uint8_t(9));
    expect("Duplicate of bytes by a number", b.get(by_number), want);
    for (const auto& [low, high] : {std::pair{0ull, 5ull}, {~0ull, 1ull}, {~0ull, ~0ull}}) {
        const auto by_bits = b.put(std::vector<uint8_t>(256, 1));
        uint64_t mask[2] = {low, high};
        expect_rule("Duplicate of bytes by bits", b.run([&] { Duplicate(b(by_bits), uint8_t(9), mask, 1, 1, 8); }), "");
        for (uint32_t i = 0; i < 256; ++i) want[i] = i < 128 && mask[i / 64] >> i % 64 & 1 ? 9 : 1;
        expect("Duplicate of bytes by bits", b.get(by_bits), want);
    }
#endif
}

void check_filling() {
    Bench b;
    const auto s16 = b.put(std::vector<uint16_t>(256, 1)), s16r = b.put(std::vector<uint16_t>(512, 1));
    const auto si = b.space<int32_t>(300), st = b.space<int32_t>(8);
    const auto sh = b.space<half>(4000);
    const auto sa = b.space<float>(200), sb = b.space<float>(256);
    const auto scalars = b.put(numbers<float>(24, -5, 5));
    expect_rule("filling", b.run([&] {
        Duplicate(b(s16), uint16_t(0xbeef), 250);
        Duplicate<uint16_t>(b(s16r), uint16_t(7), 100, 2, 1, 16);
        CreateVecIndex(b(si), int32_t(-5), 300u);
        CreateVecIndex(b(sh), half(0.0f), 4000u);
        ArithProgression<float>(b(sa), 0.5f, 0.25f, 197);
        LocalTensor<int32_t> five = b(st);
        five.SetSize(5);
        ArithProgression<int32_t>(five, 3, 4, 5);
        Brcb(b(sb), b(scalars), 3, {1, 8});
    }),
                "");
    std::vector<uint16_t> w16(256, 1), w16r(512, 1);
    std::fill_n(w16.begin(), 250, uint16_t(0xbeef));
    for (uint32_t r = 0; r < 2; ++r) std::fill_n(w16r.begin() + r * 256, 100, uint16_t(7));
    expect("Duplicate", b.get(s16), w16);
    expect("Duplicate's repeats", b.get(s16r), w16r);
    std::vector<int32_t> wi(300), wt{3, 7, 11, 15, 19, 0, 0, 0};
    for (int32_t i = 0; i < 300; ++i) wi[uint32_t(i)] = i - 5;
    expect("CreateVecIndex int32", b.get(si), wi);
    expect("ArithProgression, short", b.get(st), wt);
    std::vector<half> wh(4000);
    for (uint32_t i = 0; i < 4000; ++i)
        wh[i] = i < 16 ? half(float(i)) : half(float(wh[i - (i < 128 ? 16 : 128)]) + (i < 128 ? 16.0f : 128.0f));
    expect("CreateVecIndex half", b.get(sh), wh);
    std::vector<float> wa(200);
    for (uint32_t i = 0; i < 200; ++i) wa[i] = 0.5f + 0.25f * float(i);  // the last 32-byte block is filled to its end
    expect("ArithProgression", b.get(sa), wa);
    std::vector<float> wb(256, 0.0f);
    for (uint32_t i = 0; i < 24; ++i) std::fill_n(wb.begin() + i * 8, 8, b.get(scalars)[i]);
    expect("Brcb", b.get(sb), wb);
}

template <class T>
void check_shift_of(const std::string& type) {
    if constexpr (!ascend_sim::kIs310p) {
        const auto x =
            numbers<T>(515, float(std::numeric_limits<T>::min()), float(std::numeric_limits<T>::max()) * 0.99f);
        for (int by : {0, 1, 7, int(sizeof(T)) * 8}) {
            const T s = T(by);
            const std::string what = type + " by " + std::to_string(by);
            check_count<T>(
                "ShiftLeft " + what, x, x, [=](auto d, auto a, auto, int32_t n) { ShiftLeft(d, a, s, n); },
                [=](T a, T) { return T(by == int(sizeof(T)) * 8 ? 0 : uint64_t(a) << by); });
            check_count<T>(
                "ShiftRight " + what, x, x, [=](auto d, auto a, auto, int32_t n) { ShiftRight(d, a, s, n); },
                [=](T a, T) {
                    T r = a;
                    for (int i = 0; i < by; ++i) r = T(r < 0 && r % 2 ? (r - 1) / 2 : r / 2);
                    return r;
                });
        }
    } else {
        (void)type;
    }
}

// ---- sums -------------------------------------------------------------------------------------------------

// The sum of n values by the documented tree of neighbours.
template <class T>
T tree(const T* v, uint32_t n) {
    return n == 1 ? v[0] : narrow<T>(double(float(tree(v, n / 2))) + float(tree(v + n / 2, n / 2)));
}

// The same for any number of values. If the number of sums is odd, the last one stays as it is.
template <class T>
T tree(std::vector<T> level) {
    while (level.size() > 1) {
        std::vector<T> next;
        for (size_t i = 0; i < level.size(); i += 2)
            next.push_back(i + 1 < level.size() ? narrow<T>(double(float(level[i])) + float(level[i + 1])) : level[i]);
        level = next;
    }
    return level[0];
}

template <class T>
void check_sums_of(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T), kInBlock = 32 / sizeof(T);
    const auto x = numbers<T>(kLanes * 20, -10, 10);
    Bench b;
    const auto sx = b.put(x), whole_reduce = b.space<T>(32), block_reduce = b.space<T>(64),
               pair_reduce = b.space<T>(kLanes * 2);
    const auto reduce_repeat = b.space<T>(16), repeat_reduce = b.space<T>(16);
    const auto reduce_sum = b.space<T>(16), reduce_sum_repeats = b.space<T>(16), work = b.space<T>(32);
    expect_rule("sums " + type, b.run([&] {
        WholeReduceSum(b(whole_reduce), b(sx), int32_t(kLanes), 4, 2, 1, 8);
        BlockReduceSum(b(block_reduce), b(sx), 3, int32_t(kLanes), 2, 1, 8);
        PairReduceSum<T>(b(pair_reduce), b(sx), 2, int32_t(kLanes), 2, 1, 8);
        ReduceRepeat<ReduceType::SUM, T, T>(b(reduce_repeat), b(sx), int32_t(kLanes), 3, 1, 1, 8);
        RepeatReduceSum<T>(b(repeat_reduce), b(sx), 2, int32_t(kLanes), 0, 1, 1, 8);
        ReduceSum(b(reduce_sum), b(sx), b(work), int32_t(kLanes * 18));
        PipeBarrier<PIPE_ALL>();
        ReduceSum(b(reduce_sum_repeats), b(sx), b(work), int32_t(kLanes), 19, 8);
    }),
                "");
    std::vector<T> sums(20), want_whole(32, T(0)), want_block(64, T(0)), want_pair(kLanes * 2, T(0)),
        want_reduce_repeat(16, T(0)), want_repeat_reduce(16, T(0)), want_sum(16, T(0)), want_sum_repeats(16, T(0));
    for (uint32_t r = 0; r < 20; ++r) sums[r] = tree(&x[r * kLanes], kLanes);
    for (uint32_t r = 0; r < 4; ++r) want_whole[r * 2] = sums[r];
    for (uint32_t r = 0; r < 3; ++r)
        for (uint32_t g = 0; g < 8; ++g) want_block[r * 16 + g] = tree(&x[r * kLanes + g * kInBlock], kInBlock);
    for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t i = 0; i < kLanes / 2; ++i) want_pair[r * kLanes + i] = tree(&x[r * kLanes + 2 * i], 2);
    std::copy_n(sums.begin(), 3, want_reduce_repeat.begin());
    std::copy_n(sums.begin(), 2, want_repeat_reduce.begin());
    expect("WholeReduceSum " + type, b.get(whole_reduce), want_whole);
    expect("BlockReduceSum " + type, b.get(block_reduce), want_block);
    expect("PairReduceSum " + type, b.get(pair_reduce), want_pair);
    expect("ReduceRepeat " + type, b.get(reduce_repeat), want_reduce_repeat);
    expect("RepeatReduceSum " + type, b.get(repeat_reduce), want_repeat_reduce);
    // The sum of the repeats' sums is a tree. On Ascend910B, the count form adds them one after another instead.
    auto second_tree = [&](uint32_t n) { return tree(std::vector<T>(sums.begin(), sums.begin() + n)); };
    want_sum[0] = sums[0];
    for (uint32_t r = 1; r < 18; ++r) want_sum[0] = narrow<T>(double(float(want_sum[0])) + float(sums[r]));
    if (!ascend_sim::kIs910b) want_sum[0] = second_tree(18);
    want_sum_repeats[0] = second_tree(19);
    expect("ReduceSum " + type, b.get(reduce_sum), want_sum);
    expect("ReduceSum's repeats " + type, b.get(reduce_sum_repeats), want_sum_repeats);
}

void check_masked_sums() {
    const auto x = numbers<float>(128, 1, 10);
    Bench b;
    const auto sx = b.put(x), whole_reduce = b.space<float>(8), block_reduce = b.put(std::vector<float>(16, -1.0f));
    const auto reduce_sum = b.space<float>(1), work = b.space<float>(8);
    uint64_t mask[2] = {0x00ff00000000ff15ull, 0};
    expect_rule("masked sums", b.run([&] {
        WholeReduceSum(b(whole_reduce), b(sx), 8, 2, 1, 1, 8);
        ReduceSum(b(reduce_sum), b(sx), b(work), 20, 2, 8);
        BlockReduceSum(b(block_reduce), b(sx), 2, mask, 1, 1, 8);
    }),
                "");
    std::vector<float> want_whole(8, 0.0f), want_block(16, ascend_sim::kIs950 ? 0.0f : -1.0f);
    for (uint32_t r = 0; r < 2; ++r) {
        want_whole[r] = tree(&x[r * 64], 8);
        const float* const v = &x[r * 64];
        want_block[r * 8] = v[0] + v[2] + v[4];
        want_block[r * 8 + 1] = tree(v + 8, 8);
        want_block[r * 8 + 6] = tree(v + 48, 8);
    }
    expect("WholeReduceSum of 8 lanes", b.get(whole_reduce), want_whole);
    expect("ReduceSum of 20 lanes", b.get(reduce_sum),
           {tree(std::vector<float>(x.begin(), x.begin() + 20)) +
            tree(std::vector<float>(x.begin() + 64, x.begin() + 84))});
    expect("BlockReduceSum of some lanes", b.get(block_reduce), want_block);
}

// Of 256 .. 1024 bytes, Ascend950 adds the repeats lane by lane before the tree.
void check_order_of_sums() {
    const auto x = numbers<float>(200, -10, 10);
    Bench b;
    const auto sx = b.put(x), sd = b.space<float>(1), work = b.space<float>(8);
    expect_rule("ReduceSum of 200", b.run([&] { ReduceSum(b(sd), b(sx), b(work), 200); }), "");
    const float sums[] = {tree(&x[0], 64), tree(&x[64], 64), tree(&x[128], 64), tree(&x[192], 8)};
    std::vector<float> lanes(x.begin(), x.begin() + 64);
    for (uint32_t i = 64; i < 200; ++i) lanes[i % 64] += x[i];
    expect("ReduceSum of 200", b.get(sd),
           {ascend_sim::kIs910b   ? ((sums[0] + sums[1]) + sums[2]) + sums[3]
            : ascend_sim::kIs310p ? (sums[0] + sums[1]) + (sums[2] + sums[3])
                                  : tree(lanes)});
}

// ---- rules ------------------------------------------------------------------------------------------------

using Floats = LocalTensor<float>;

// Returns the rule that a call breaks. Its arguments are tensors of 1024 floats: zeros and others.
std::string rule_of(const std::function<void(Floats, Floats)>& call) {
    Bench b;
    const auto zeros = b.space<float>(1024), x = b.put(numbers<float>(1024, 1, 9));
    return b.run([&] { call(b(zeros), b(x)); });
}

// An instruction that reads what the scalar unit stored needs an event.
void check_order_after_stores() {
    const std::pair<const char*, void (*)(Floats, Floats)> calls[] = {
        {"Abs", [](Floats d, Floats x) { Abs(d, x, 64); }},
        {"Axpy", [](Floats d, Floats x) { Axpy(d, x, 2.0f, 64); }},
        {"Compares", [](Floats d, Floats x) { Compares(d.ReinterpretCast<uint8_t>(), x, 1.0f, CMPMODE::LT, 64u); }},
        {"Gather", [](Floats d, Floats x) { Gather(d, x, d[512].ReinterpretCast<uint32_t>(), 0u, 64u); }},
        {"ReduceMax", [](Floats d, Floats x) { ReduceMax(d, x, d[512], 64); }},
        {"Transpose",
         [](Floats d, Floats x) { Transpose(d.ReinterpretCast<uint16_t>(), x.ReinterpretCast<uint16_t>()); }}};
    for (const auto& [name, call] : calls) {
        const std::string what = std::string(name) + " after a scalar store";
        expect_rule(what, rule_of([&, instruction = call](Floats d, Floats x) {
                        x.SetValue(0, 1.0f);
                        instruction(d, x);
                    }),
                    "SIM-HAZARD-03");
    }
    expect_rule("CreateVecIndex after an instruction", rule_of([](Floats d, Floats x) {
                    Adds(d, x, 1.0f, 64);
                    CreateVecIndex(d, 0.0f, 64u);
                }),
                "SIM-HAZARD-03");
}

void check_overlaps() {
    const UnaryRepeatParams adjacent(1, 1, 8, 8), every_other(2, 2, 16, 16);
    auto adds = [](uint32_t dst, uint32_t src, int32_t count) {
        return rule_of([=](Floats, Floats x) { Adds(x[dst], x[src], 1.0f, count); });
    };
    auto repeats = [](uint32_t dst, uint32_t src, int count, const UnaryRepeatParams& params) {
        return rule_of([=](Floats, Floats x) { Adds(x[dst], x[src], 1.0f, 64, count, params); });
    };
    expect_rule("dst in src", adds(8, 0, 60), "SIM-OVERLAP-01");
    expect_rule("dst after src", adds(64, 0, 64), "");
    expect_rule("dst is src", adds(0, 0, 64), "");
    expect_rule("repeats in their own sources", repeats(8, 0, 3, adjacent), "SIM-OVERLAP-01");
    expect_rule("repeats in the next sources", repeats(64, 0, 3, adjacent), "SIM-OVERLAP-02");
    expect_rule("repeats in earlier sources", repeats(0, 64, 3, adjacent), "");
    expect_rule("dst's blocks between src's", repeats(0, 8, 2, every_other), "");
    expect_rule("src's blocks between dst's", repeats(8, 0, 2, every_other), "");
    expect_rule("Brcb in its source", rule_of([](Floats, Floats x) { Brcb(x[8], x, 2, {1, 8}); }), "SIM-OVERLAP-01");
    expect_rule("ReduceSum's work in its source", rule_of([](Floats d, Floats x) { ReduceSum(d, x[8], x, 64, 9, 1); }),
                "SIM-OVERLAP-01");
}

void check_bounds() {
    expect_rule("Adds of one block again and again", rule_of([](Floats d, Floats x) {
                    uint64_t mask[2] = {0xff03, 0};
                    x.SetSize(2);
                    Adds(d, x, 1.0f, mask, 1, UnaryRepeatParams(1, 0, 8, 8));
                }),
                "SIM-BOUNDS-01");
    expect_rule("WholeReduceSum past its source", rule_of([](Floats d, Floats x) {
                    x.SetSize(128);
                    WholeReduceSum(d, x, 64, 3, 1, 1, 8);
                }),
                "SIM-BOUNDS-01");
    expect_rule("ReduceSum past its destination", rule_of([](Floats d, Floats x) {
                    d.SetSize(8);
                    ReduceSum(d[8], x, x[512], 64);
                }),
                "SIM-BOUNDS-01");
    expect_rule("BlockReduceSum to half a block",
                rule_of([](Floats d, Floats x) { BlockReduceSum(d[4], x, 1, 64, 1, 1, 8); }), "SIM-ALIGN-02");
}

void check_masks() {
    expect_rule("more elements than UB holds", rule_of([](Floats d, Floats x) {
                    SetMaskCount();
                    SetVectorMask<float, MaskMode::COUNTER>(0, (1u << 19) + 1);
                    Adds<float, false>(d, x, 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
                }),
                "SIM-MASK-01");
    Bench b;
    const auto x = b.put(numbers<half>(128, 1, 9)), d = b.space<half>(128);
    uint64_t mask[2] = {~0ull, 2};
    expect_rule("a mask with a gap at lane 64",
                b.run([&] { Adds(b(d), b(x), half(1.0f), mask, 1, UnaryRepeatParams(1, 1, 8, 8)); }), "");
    std::vector<half> want(128, half(0.0f));
    for (uint32_t i = 0; i < 66; ++i)
        if (i != 64) want[i] = half(float(b.get(x)[i]) + 1.0f);
    expect("a mask with a gap at lane 64", b.get(d), want);
}

// The report counts an instruction of the vector unit for each call.
void check_instruction_counts() {
    auto counted = [](const std::function<void(Floats, Floats)>& call) {
        expect_rule("a counted instruction", rule_of(call), "");
        return reported("instructions_V");
    };
    const int none = counted([](Floats, Floats) {});
    check(counted([](Floats d, Floats) { CreateVecIndex(d, 0.0f, 64u); }) == none + 1, "CreateVecIndex is counted");
}

}  // namespace

int main() {
    check_binary_of<float>("float");
    check_binary_of<half>("half");
    check_binary_of<int16_t>("int16");
    check_binary_of<int32_t>("int32");
    check_bitwise();
    check_repeat_forms();
    check_subnormal_functions();
    check_unary();
    check_fused();
    check_saturation();
    check_filling();
    check_filling_of_bytes();
    check_shift_of<int16_t>("int16");
    check_shift_of<uint16_t>("uint16");
    check_shift_of<int32_t>("int32");
    check_shift_of<uint32_t>("uint32");
    check_sums_of<float>("float");
    check_sums_of<half>("half");
    check_masked_sums();
    check_order_of_sums();
    check_order_after_stores();
    check_overlaps();
    check_bounds();
    check_masks();
    check_instruction_counts();
    return finish("test_instructions");
}
