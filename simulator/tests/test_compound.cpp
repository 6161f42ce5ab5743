// Instructions of several steps, compared with plain formulas: Relu after an operation, dequantization, conversions of
// int4b_t.
#include <algorithm>
#include <cmath>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

template <class T>
T narrow(double v) {
    return T(float(v));
}

float nearest_even(double v) { return float(std::nearbyint(v)); }

// Calls an instruction with a count of all but three elements and expects dst[i] = want(x[i], y[i]); the last three
// elements stay.
template <class D, class T, class F, class G>
void check_count(const std::string& what, const std::vector<T>& x, const std::vector<T>& y, F call, G want,
                 bool saturate = false) {
    const uint32_t n = uint32_t(x.size()) - 3;
    std::vector<D> expected(x.size(), D(3));
    Bench b({saturate, nullptr});
    const auto sx = b.put(x), sy = b.put(y);
    const auto sd = b.put(expected);
    expect_rule(what, b.run([&] { call(b(sd), b(sx), b(sy), int32_t(n)); }), "");
    for (uint32_t i = 0; i < n; ++i) expected[i] = want(x[i], y[i]);
    expect(what, b.get(sd), expected);
}

template <class T>
std::vector<T> rotated(std::vector<T> v) {
    std::rotate(v.begin(), v.begin() + 7, v.end());
    return v;
}

// ---- Relu ------------------------------------------------------------------------------------------------

template <class T>
void check_relu_of(const std::string& type) {
    using W = std::conditional_t<std::is_integral_v<T>, T, float>;
    auto x = numbers<T>(515, -99, 120);
    if constexpr (!std::is_integral_v<T>) x[5] = T(std::numeric_limits<float>::quiet_NaN());
    const auto y = rotated(x);
    auto relu = [](W v) { return v > 0 || v != v ? v : W(0); };
    check_count<T>(
        "AddRelu " + type, x, y, [](auto d, auto a, auto c, int32_t n) { AddRelu(d, a, c, n); },
        [=](T a, T c) { return T(relu(W(W(a) + W(c)))); });
    check_count<T>(
        "SubRelu " + type, x, y, [](auto d, auto a, auto c, int32_t n) { SubRelu(d, a, c, n); },
        [=](T a, T c) { return T(relu(W(W(a) - W(c)))); });
    if constexpr (!std::is_integral_v<T>) {
        check_count<T>(
            "Relu " + type, x, y, [](auto d, auto a, auto, int32_t n) { Relu(d, a, n); },
            [=](T a, T) { return T(relu(W(a))); });
        const T s = T(-0.3f);
        auto z = x;
        z[7] = T(-0.0f);
        check_count<T>(
            "LeakyRelu " + type, z, y, [=](auto d, auto a, auto, int32_t n) { LeakyRelu(d, a, s, n); },
            [=](T a, T) { return std::signbit(float(a)) ? narrow<T>(float(a) * float(s)) : a; });
        // dst = relu(src0 * dst + src1), with the product rounded.
        auto product_then_sum = [=](T a, T c) {
            return T(relu(float(narrow<T>(double(float(narrow<T>(double(float(a)) * 3.0))) + float(c)))));
        };
        check_count<T>(
            "MulAddRelu " + type, x, y, [](auto d, auto a, auto c, int32_t n) { MulAddRelu(d, a, c, n); },
            product_then_sum);
        check_count<T>(
            "FusedMulAddRelu " + type, x, y, [](auto d, auto a, auto c, int32_t n) { FusedMulAddRelu(d, a, c, n); },
            product_then_sum);
    }
}

template <class I>
I clamped(float v) {
    if (std::isnan(v)) return 0;
    return I(std::min(std::max(v, float(std::numeric_limits<I>::min())), float(std::numeric_limits<I>::max())));
}

void check_operation_casts() {
    using H = half;
    const auto x = numbers<H>(515, -99, 120), y = rotated(x);
    auto relu = [](float v) { return v > 0 ? v : 0.0f; };
    check_count<int8_t>(
        "AddReluCast half", x, y, [](auto d, auto a, auto c, int32_t n) { AddReluCast(d, a, c, n); },
        [=](H a, H c) { return clamped<int8_t>(nearest_even(relu(float(narrow<H>(double(float(a)) + float(c)))))); });
    check_count<int8_t>(
        "SubReluCast half", x, y, [](auto d, auto a, auto c, int32_t n) { SubReluCast(d, a, c, n); },
        [=](H a, H c) { return clamped<int8_t>(nearest_even(relu(float(narrow<H>(double(float(a)) - float(c)))))); });
    const auto u = numbers<float>(515, -99, 120), v = rotated(u);
    check_count<H>(
        "AddReluCast float", u, v, [](auto d, auto a, auto c, int32_t n) { AddReluCast(d, a, c, n); },
        [=](float a, float c) { return H(relu(a + c)); });
    auto s = numbers<int16_t>(515, -200, 200);
    s[0] = s[7] = 32767;
    s[1] = s[8] = -32768;
    const auto t = rotated(s);
    check_count<int8_t>(
        "AddReluCast int16", s, t, [](auto d, auto a, auto c, int32_t n) { AddReluCast(d, a, c, n); },
        [](int16_t a, int16_t c) { return int8_t(std::min(std::max(a + c, 0), 127)); });
    check_count<int8_t>(
        "SubReluCast int16", s, t, [](auto d, auto a, auto c, int32_t n) { SubReluCast(d, a, c, n); },
        [](int16_t a, int16_t c) { return int8_t(std::min(std::max(a - c, 0), 127)); });
    auto product = [](H a, H c) { return nearest_even(float(narrow<H>(double(float(a)) * float(c)))); };
    check_count<int8_t>(
        "MulCast int8", x, y, [](auto d, auto a, auto c, int32_t n) { MulCast(d, a, c, n); },
        [=](H a, H c) { return clamped<int8_t>(product(a, c)); });
    check_count<uint8_t>(
        "MulCast uint8", x, y, [](auto d, auto a, auto c, int32_t n) { MulCast(d, a, c, n); },
        [=](H a, H c) { return clamped<uint8_t>(product(a, c)); });
    // NaN, and infinity in both modes.
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> special{inf, nan, -inf, 70000, 1, 1, 1, 1, 1, 1, 1}, ones(11, 1.0f);
    for (bool saturate : {false, true})
        check_count<H>(
            "AddReluCast of special values", special, ones,
            [](auto d, auto a, auto c, int32_t n) { AddReluCast(d, a, c, n); },
            [=](float a, float) {
                if (std::isnan(a)) return saturate ? H(0.0f) : H(nan);
                const float v = relu(a + 1);
                return saturate && v > 65504 ? H(65504.0f) : H(v);
            },
            saturate);
}

// Each operand has its own strides; AddRelu accumulates.
void check_strides() {
    const auto x = numbers<half>(1024, -9, 9), y = rotated(x);
    Bench b;
    const auto sx = b.put(x), sy = b.put(y);
    const auto sd = b.put(std::vector<int8_t>(1024, 3));
    // Two repeats of 100 lanes; the strides of int8, half, half.
    expect_rule(
        "strides",
        b.run([&] { AddReluCast(b(sd), b(sx), b(sy), uint64_t(100), 2, BinaryRepeatParams(1, 2, 1, 8, 17, 9)); }), "");
    std::vector<int8_t> want(1024, 3);
    for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t l = 0; l < 100; ++l) {
            const float a = float(x[(r * 17 + l / 16 * 2) * 16 + l % 16]), c = float(y[r * 9 * 16 + l]);
            want[r * 8 * 32 + l] = int8_t(std::max(nearest_even(double(float(half(a + c)))), 0.0f));
        }
    expect("strides", b.get(sd), want);
    Bench c;
    const auto cx = c.put(numbers<float>(640, -1, 1)), cd = c.put(std::vector<float>(64, 0.0f));
    expect_rule("AddRelu accumulates", c.run([&] { AddRelu(c(cd), c(cx), c(cd), 64, 10, {1, 1, 1, 0, 8, 0}); }), "");
    std::vector<float> sum(64, 0.0f);
    for (uint32_t i = 0; i < 640; ++i) sum[i % 64] = std::max(c.get(cx)[i] + sum[i % 64], 0.0f);
    expect("AddRelu accumulates", c.get(cd), sum);
}

void check_truncate() {
#if __CCE_AICORE__ == 310
    const auto x = numbers<float>(515, -9, 9);
    const auto h = numbers<bfloat16_t>(515, -9, 9);
    check_count<float>(
        "Truncate down", x, x,
        [](auto d, auto a, auto, int32_t n) { Truncate<float, RoundMode::CAST_FLOOR>(d, a, uint32_t(n)); },
        [](float a, float) { return std::floor(a); });
    check_count<bfloat16_t>(
        "Truncate to nearest", h, h,
        [](auto d, auto a, auto, int32_t n) { Truncate<bfloat16_t, RoundMode::CAST_RINT>(d, a, uint32_t(n)); },
        [](bfloat16_t a, bfloat16_t) { return bfloat16_t(std::nearbyint(float(a))); });
#endif
}

// ---- dequantization --------------------------------------------------------------------------------------

half scaled(int32_t v, float scale, bool saturate) {
    const float f = float(v) / 131072.0f * scale * 131072.0f;
    const half h = half(f);
    if (saturate && std::isinf(float(h))) return half(f > 0 ? 65504.0f : -65504.0f);
    return h;
}

void check_scales() {
    Random random;
    std::vector<int32_t> x(515);
    for (int32_t& v : x) v = int32_t(random.bits()) >> random.bits() % 31;
    x[0] = std::numeric_limits<int32_t>::max();
    x[1] = std::numeric_limits<int32_t>::min();
    const auto y = rotated(x);
    for (float scale : {1.0f, 0.1f, -0.25f, 300.0f})
        for (bool saturate : {false, true}) {
            const half s = half(scale);
            check_count<half>(
                "Cast int32 to half", x, y,
                [=](auto d, auto a, auto, int32_t n) {
                    SetDeqScale(s);
                    Cast(d, a, RoundMode::CAST_FLOOR, uint32_t(n));  // the mode has no effect
                },
                [=](int32_t a, int32_t) { return scaled(a, float(s), saturate); }, saturate);
            check_count<half>(
                "AddDeqRelu", x, y,
                [=](auto d, auto a, auto c, int32_t n) {
                    SetDeqScale(s);
                    AddDeqRelu(d, a, c, n);
                },
                [=](int32_t a, int32_t c) {
                    const half h = scaled(int32_t(uint32_t(a) + uint32_t(c)), float(s), saturate);
                    return float(h) > 0 ? h : half(0.0f);
                },
                saturate);
#if __CCE_AICORE__ != 200
            check_count<half>(
                "CastDequant int32", x, y,
                [=](auto d, auto a, auto, int32_t n) {
                    SetDeqScale(s);
                    CastDequant<half, int32_t>(d, a, uint32_t(n));
                },
                [=](int32_t a, int32_t) { return scaled(a, float(s), saturate); }, saturate);
#endif
        }
}

// The dequantized value of 16 bits. The scale keeps ten bits of its mantissa, the product nine bits.
int dequantized(int16_t v, float scale, int offset, bool is_signed) {
    uint32_t u;
    std::memcpy(&u, &scale, sizeof u);
    u &= ~0x1fffu;
    std::memcpy(&scale, &u, sizeof u);
    const double product = std::min(std::max(std::nearbyint(double(float(v) * scale)), -256.0), 255.0);
    const int sum = int(product) + offset;
    return is_signed ? std::min(std::max(sum, -128), 127) : std::min(std::max(sum, 0), 255);
}

template <class T>
void check_cast_dequant_of(const std::string& type) {
    constexpr bool kSigned = std::is_signed_v<T>;
    auto x = numbers<int16_t>(515, -600, 600);
    x[0] = 32767;
    x[1] = -32768;
    for (bool upper : {false, true})
        for (bool vector : {false, true}) {
            Bench b;
            const auto sx = b.put(x);
            const auto sd = b.put(std::vector<T>(1056, 3)), sr = b.put(std::vector<T>(1056, 3));
            const auto sv = b.space<uint64_t>(16);
            float scales[16];
            int16_t offsets[16];
            bool signs[16];
            for (int i = 0; i < 16; ++i) {
                scales[i] = vector ? 0.1f * float(i) - 0.7f : 0.317f;
                offsets[i] = vector ? int16_t(10 * i - 100) : int16_t(-17);
                signs[i] = kSigned;
            }
            auto set = [&] {
                if (vector)
                    SetDeqScale(b(sv), VdeqInfo(scales, offsets, signs));
                else
                    SetDeqScale(0.317f, int16_t(-17), kSigned);
            };
            auto call = [&](auto is_vector, auto is_upper) {
                constexpr bool kVector = decltype(is_vector)::value, kUpper = decltype(is_upper)::value;
                CastDequant<T, int16_t, kVector, kUpper>(b(sd), b(sx), 512u);
                CastDeq<T, int16_t, true, kVector, kUpper>(b(sr), b(sx), 100, 2, {2, 1, 16, 9});
            };
            const std::string what =
                "CastDequant " + type + (upper ? " upper" : " lower") + (vector ? ", a vector" : "");
            expect_rule(what, b.run([&] {
                set();
                if (vector && upper) call(std::true_type(), std::true_type());
                if (vector && !upper) call(std::true_type(), std::false_type());
                if (!vector && upper) call(std::false_type(), std::true_type());
                if (!vector && !upper) call(std::false_type(), std::false_type());
            }),
                        "");
            std::vector<T> want(1056, 3), repeats(1056, 3);
            auto of = [&](uint32_t i) { return T(dequantized(x[i], scales[i % 16], offsets[i % 16], kSigned)); };
            for (uint32_t i = 0; i < 512; ++i) want[i / 16 * 32 + upper * 16 + i % 16] = of(i);
            for (uint32_t r = 0; r < 2; ++r)
                for (uint32_t l = 0; l < 100; ++l)
                    repeats[(r * 16 + l / 16 * 2) * 32 + upper * 16 + l % 16] = of(r * 9 * 16 + l);
            expect(what, b.get(sd), want);
            expect(what + ", repeats", b.get(sr), repeats);
        }
}

void check_dequantization_rules() {
    auto run = [](auto call) {
        Bench b;
        const auto si = b.put(std::vector<int32_t>(128, 5));
        const auto ss = b.put(std::vector<int16_t>(128, 5));
        const auto sh = b.space<half>(128);
        const auto sc = b.space<int8_t>(256);
        const auto sv = b.space<uint64_t>(32);
        return b.run([&] { call(b(si), b(ss), b(sh), b(sc), b(sv)); });
    };
    expect_rule("no scale", run([](auto i, auto, auto h, auto, auto) { Cast(h, i, RoundMode::CAST_NONE, 64); }),
                ascend_sim::kIs950 ? "" : "SIM-STATE-04");
    expect_rule("no scale of 16 bits",
                run([](auto, auto s, auto, auto c, auto) { CastDequant<int8_t, int16_t, false>(c, s, 64); }),
                "SIM-STATE-04");
    expect_rule("a scale of another form", run([](auto i, auto, auto h, auto, auto) {
                    SetDeqScale(1.0f, int16_t(0), true);
                    AddDeqRelu(h, i, i, 64);
                }),
                "SIM-STATE-04");
    expect_rule("another sign", run([](auto, auto s, auto, auto c, auto) {
                    SetDeqScale(1.0f, int16_t(0), false);
                    CastDequant<int8_t, int16_t, false>(c, s, 64);
                }),
                "SIM-MODE-01");
    expect_rule("an offset of ten bits",
                run([](auto, auto, auto, auto, auto) { SetDeqScale(1.0f, int16_t(256), true); }), "SIM-MODE-01");
    expect_rule("a tensor of 120 bytes", run([](auto, auto, auto, auto, auto v) {
                    v.SetSize(15);
                    SetDeqScale(v, VdeqInfo());
                }),
                "SIM-WORK-01");
    expect_rule("a tensor that begins inside a block",
                run([](auto, auto, auto, auto, auto v) { SetDeqScale(v[1], VdeqInfo()); }), "SIM-ALIGN-01");
    expect_rule("parameters that change after SetDeqScale", run([](auto, auto s, auto, auto c, auto v) {
                    SetDeqScale(v, VdeqInfo());
                    v.SetValue(0, 0);
                    CastDequant<uint8_t, int16_t, true>(c.template ReinterpretCast<uint8_t>(), s, 64);
                }),
                "SIM-HAZARD-03");
    // If the rule only warns, the scale is 0.
    if (!ascend_sim::kIs950) {
        Bench b({false, "SIM-STATE-04"});
        const auto si = b.put(std::vector<int32_t>(64, std::numeric_limits<int32_t>::max()));
        const auto sh = b.put(std::vector<half>(64, half(1.0f)));
        expect_rule("a lenient launch without a scale", b.run([&] { Cast(b(sh), b(si), RoundMode::CAST_NONE, 64); }),
                    "");
        expect("a lenient launch without a scale", b.get(sh), std::vector<half>(64, half(0.0f)));
    }
    expect_rule("16 bits in place", run([](auto, auto s, auto, auto, auto) {
                    SetDeqScale(1.0f, int16_t(0), true);
                    CastDequant<int8_t, int16_t, false>(s.template ReinterpretCast<int8_t>(), s, 64);
                }),
                "SIM-OVERLAP-01");
}

// ---- int4b_t ---------------------------------------------------------------------------------------------

int four_bits(float v, RoundMode mode) {
    const float rounded = mode == RoundMode::CAST_FLOOR   ? std::floor(v)
                          : mode == RoundMode::CAST_CEIL  ? std::ceil(v)
                          : mode == RoundMode::CAST_ROUND ? std::round(v)
                          : mode == RoundMode::CAST_TRUNC ? std::trunc(v)
                                                          : std::nearbyint(v);
    return std::isnan(v) ? 0 : int(std::min(std::max(rounded, -8.0f), 7.0f));
}

void check_int4_casts() {
    auto x = numbers<half>(1024, -12, 12);
    x[3] = half(std::numeric_limits<float>::quiet_NaN());
    x[4] = half(2.5f);
    for (RoundMode mode : {RoundMode::CAST_NONE, RoundMode::CAST_RINT, RoundMode::CAST_FLOOR, RoundMode::CAST_CEIL,
                           RoundMode::CAST_ROUND, RoundMode::CAST_TRUNC, RoundMode::CAST_ODD}) {
        const bool allowed = ascend_sim::round_modes<int4b_t, half>() & ascend_sim::mode_bit(mode);
        const std::string what = std::string("half to int4b_t, ") + ascend_sim::mode_name(mode);
        Bench b;
        const auto sx = b.put(x);
        const auto sd = b.put(std::vector<uint8_t>(512, 0x33)), sr = b.put(std::vector<uint8_t>(512, 0x33)),
                   sb = b.put(std::vector<uint8_t>(512, 0x33));
        uint64_t mask[2] = {0xc0000000000000f3ull, 0x3000ull};
        expect_rule(what, b.run([&] {
            auto of = [&](const Slot<uint8_t>& s) { return b(s).template ReinterpretCast<int4b_t>(); };
            Cast(of(sd), b(sx), mode, 1002u);
            // Three repeats of 100 elements; the source has 9 blocks between repeats, the result 3.
            Cast(of(sr), b(sx), mode, 100, 3, {1, 1, 3, 9});
            Cast(of(sb), b(sx), mode, mask, 1, {1, 1, 2, 8});
        }),
                    allowed ? "" : "SIM-ROUND-01");
        if (!allowed) continue;
        std::vector<uint8_t> want(512, 0x33), repeats = want, bits = want;
        auto put = [&](std::vector<uint8_t>& to, uint32_t at, uint32_t i) {
            const uint8_t v = uint8_t(four_bits(float(x[i]), mode) & 15);
            to[at / 2] = uint8_t(at % 2 ? (to[at / 2] & 15) | v << 4 : (to[at / 2] & 0xf0) | v);
        };
        for (uint32_t i = 0; i < 1002; ++i) put(want, i, i);
        for (uint32_t r = 0; r < 3; ++r)
            for (uint32_t l = 0; l < 100; ++l) put(repeats, r * 3 * 64 + l, r * 9 * 16 + l);
        for (uint32_t l = 0; l < 128; ++l)
            if (mask[l / 64] >> l % 64 & 1) put(bits, l, l);
        expect(what, b.get(sd), want);
        expect(what + ", repeats", b.get(sr), repeats);
        expect(what + ", a bit mask", b.get(sb), bits);
    }
#if __CCE_AICORE__ != 200
    Random random;
    std::vector<uint8_t> packed(512);
    for (uint8_t& p : packed) p = uint8_t(random.bits());
    Bench b;
    const auto sx = b.put(packed);
    const auto sd = b.put(std::vector<half>(1024, half(3.0f)));
    expect_rule("int4b_t to half",
                b.run([&] { Cast(b(sd), b(sx).template ReinterpretCast<int4b_t>(), RoundMode::CAST_NONE, 1002u); }),
                "");
    std::vector<half> want(1024, half(3.0f));
    for (uint32_t i = 0; i < 1002; ++i) {
        const int v = packed[i / 2] >> i % 2 * 4 & 15;
        want[i] = half(float(v > 7 ? v - 16 : v));
    }
    expect("int4b_t to half", b.get(sd), want);
#endif
}

void check_int4_tensors() {
    Bench b;
    const auto sx = b.put(std::vector<uint8_t>(64, 0x21));
    const auto sy = b.put(std::vector<uint8_t>(64, 0));
    uint32_t size = 0, length = 0, part = 0;
    int first = 0, second = 0;
    uint64_t address = 0;
    expect_rule("tensors of int4b_t", b.run([&] {
        auto x = b(sx).template ReinterpretCast<int4b_t>();
        auto y = b(sy).template ReinterpretCast<int4b_t>();
        size = x.GetSize();
        length = x.GetLength();
        part = x[64].GetSize();
        address = x.GetPhyAddr(64) - x.GetPhyAddr();
        first = x.GetValue(0);
        second = x.GetValue(1);
        y.SetValue(3, int8_t(-1));
        x.SetSize(64);
        PipeBarrier<PIPE_ALL>();
        DataCopy(y[64], x, 64);
    }),
                "");
    check(size == 128 && length == 64 && part == 64 && address == 32, "sizes of int4b_t");
    check(first == 1 && second == 2, "elements of int4b_t");
    std::vector<uint8_t> want(64, 0);
    want[1] = 0xf0;
    std::fill_n(want.begin() + 32, 32, uint8_t(0x21));
    expect("tensors of int4b_t", b.get(sy), want);
    auto run = [&](auto call) {
        return b.run([&] { call(b(sx).template ReinterpretCast<int4b_t>(), b(sy).template ReinterpretCast<half>()); });
    };
    expect_rule("an odd offset", run([](auto x, auto) { (void)x[3]; }), "SIM-COUNT-04");
    expect_rule("more elements than the source has", run([](auto x, auto h) {
                    Cast(x, h, ascend_sim::kIs950 ? RoundMode::CAST_RINT : RoundMode::CAST_NONE, 64u);
                }),
                "SIM-BOUNDS-01");
    expect_rule("an odd count", run([](auto x, auto h) { Cast(x, h, RoundMode::CAST_NONE, 15u); }), "SIM-COUNT-04");
    expect_rule("an odd mask", run([](auto x, auto h) { Cast(x, h, RoundMode::CAST_NONE, 15, 1, {1, 1, 2, 8}); }),
                "SIM-COUNT-04");
    expect_rule("a mask of half a byte", run([](auto x, auto h) {
                    uint64_t mask[2] = {0x7, 0};
                    Cast(x, h, RoundMode::CAST_NONE, mask, 1, {1, 1, 2, 8});
                }),
                "SIM-COUNT-04");
    expect_rule("an odd number of elements to copy", run([](auto x, auto) { DataCopy(x, x[64], 65); }), "SIM-COUNT-04");
}

}  // namespace

int main() {
    check_relu_of<float>("float");
    check_relu_of<half>("half");
    check_relu_of<int16_t>("int16");
    check_operation_casts();
    check_strides();
    check_truncate();
    check_scales();
    check_cast_dequant_of<int8_t>("int8");
    check_cast_dequant_of<uint8_t>("uint8");
    check_dequantization_rules();
    check_int4_casts();
    check_int4_tensors();
    return finish("test_compound");
}
