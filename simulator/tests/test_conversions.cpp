// Cast between every pair of types in every mode. The expected values come from searches among the values of the
// target type, not from the simulator's arithmetic.
#include <algorithm>
#include <limits>

#include "instruction_bench.h"

using AscendC::RoundMode;
using namespace bench;

namespace {

// ---- the values of a 16-bit type, exactly ----------------------------------------------------------------

// The magnitude of bits as in IEEE 754, with infinity's bits read as the next finite number.
double magnitude_of(uint32_t u, int mantissa_bits, int bias) {
    const uint32_t exponent = u >> mantissa_bits, mantissa = u & ((1u << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(double(mantissa), 1 - bias - mantissa_bits);
    return std::ldexp(double(mantissa + (1u << mantissa_bits)), int(exponent) - bias - mantissa_bits);
}

struct Format {
    int mantissa_bits, bias;
    uint16_t infinity, nan;
    std::vector<double> magnitudes;  // indexed by bits, from 0 to those of infinity
    Format(int bits, int b, uint16_t inf) : mantissa_bits(bits), bias(b), infinity(inf), nan(inf | 1) {
        for (uint32_t u = 0; u <= inf; ++u) magnitudes.push_back(magnitude_of(u, bits, b));
    }
    double value(uint16_t raw) const {
        const uint16_t m = raw & 0x7fff;
        const double v = m > infinity ? NAN : m == infinity ? INFINITY : magnitudes[m];
        return raw & 0x8000 ? -v : v;
    }
};

const Format kHalf(10, 15, 0x7c00), kBfloat16(7, 127, 0x7f80);

// Returns index if x rounds to the magnitude low, or index + 1 if it rounds to the magnitude high.
uint32_t choose(double x, double low, double high, uint32_t index, RoundMode mode) {
    const double m = std::fabs(x);
    if (m == low) return index;
    const bool negative = x<0, above_half = m - low> high - m, tie = m - low == high - m;
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return index + negative;
        case RoundMode::CAST_CEIL:
            return index + !negative;
        case RoundMode::CAST_ROUND:
            return index + (above_half || tie);
        case RoundMode::CAST_TRUNC:
            return index;
        case RoundMode::CAST_ODD:
            return index + (index % 2 == 0);
        default:
            return index + (above_half || (tie && index % 2 == 1));
    }
}

uint16_t rounded(float f, const Format& format, RoundMode mode, bool saturate) {
    const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
    if (std::isnan(f)) return saturate ? 0 : format.nan;
    uint32_t index = format.infinity;
    if (!std::isinf(f)) {
        const double m = std::fabs(double(f));
        const auto above = std::upper_bound(format.magnitudes.begin(), format.magnitudes.end(), m);
        index = uint32_t(above - format.magnitudes.begin()) - 1;
        // A number beyond the largest one rounds as 3 between 2 (the largest) and 3.5 (infinity): infinity is nearer.
        if (index >= format.infinity)
            index = choose(sign ? -3 : 3, 2, 3.5, format.infinity - 1u, mode);
        else
            index = choose(f, format.magnitudes[index], format.magnitudes[index + 1], index, mode);
    }
    if (index == format.infinity && saturate) --index;
    return uint16_t(index | sign);
}

double rounded_to_integer(double x, RoundMode mode) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return std::floor(x);
        case RoundMode::CAST_CEIL:
            return std::ceil(x);
        case RoundMode::CAST_ROUND:
            return std::round(x);
        case RoundMode::CAST_TRUNC:
            return std::trunc(x);
        default:
            return std::nearbyint(x);
    }
}

template <class I>
I clamped(double x, RoundMode mode) {
    if (std::isnan(x)) return 0;
    const double r = rounded_to_integer(x, mode);
    if (r >= std::ldexp(1.0, std::numeric_limits<I>::digits)) return std::numeric_limits<I>::max();
    if (r < double(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    return I(r);
}

float float_of_integer(int64_t v, RoundMode mode) {
    const long double exact = v;  // 64 bits of mantissa
    float low = float(v);
    if (static_cast<long double>(low) > exact) low = std::nextafter(low, -INFINITY);
    const float high = static_cast<long double>(low) == exact ? low : std::nextafter(low, INFINITY);
    const long double below = exact - low, above = high - exact;
    const float even = std::fmod(std::ldexp(std::fabs(low), -std::ilogb(low) + 23), 2.0f) == 0 ? low : high;
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return low;
        case RoundMode::CAST_CEIL:
            return high;
        case RoundMode::CAST_TRUNC:
            return v < 0 ? high : low;
        case RoundMode::CAST_ROUND:
            return below < above ? low : above < below ? high : v < 0 ? low : high;
        default:
            return below < above ? low : above < below ? high : below == 0 ? low : even;
    }
}

// ---- inputs -----------------------------------------------------------------------------------------------

float from_bits(uint32_t u) {
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
}

// All magnitudes of half; midpoints of half and of bfloat16, powers of two with offsets, and limits, each with its
// neighbours and both signs; random bits.
std::vector<float> interesting_floats() {
    std::vector<float> v;
    auto around = [&](double x) {
        const float f = float(x);
        for (float g : {f, std::nextafter(f, INFINITY), std::nextafter(f, -INFINITY)}) v.insert(v.end(), {g, -g});
    };
    for (uint32_t u = 0; u < 0x7c00; u += 1) {
        v.push_back(float(kHalf.magnitudes[u]));
        if (u % 3 == 0 || u < 1100) around((kHalf.magnitudes[u] + kHalf.magnitudes[u + 1]) / 2);
    }
    for (uint32_t u = 0; u < 0x7f80; u += 5) around((kBfloat16.magnitudes[u] + kBfloat16.magnitudes[u + 1]) / 2);
    for (int e = -3; e < 66; ++e)
        for (double d : {-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5}) around(std::ldexp(1.0, e) + d);
    for (double x : {65503.9, 65504.0, 65519.9, 65520.0, 65536.0, 1e30, 3.4028234e38, 1e-45, 1e-40, 5.9e-8, 2.9e-8})
        around(x);
    v.insert(v.end(), {INFINITY, -INFINITY, NAN, 0.0f, -0.0f});
    Random random;
    for (int i = 0; i < 20000; ++i) v.push_back(from_bits(random.bits()));
    return v;
}

template <class T>
std::vector<T> all_bit_patterns() {
    std::vector<T> v(65536);
    for (uint32_t u = 0; u < 65536; ++u) v[u].raw = uint16_t(u);
    return v;
}

std::vector<int64_t> interesting_integers() {
    std::vector<int64_t> v{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    for (int e = 0; e < 63; ++e)
        for (int64_t d : {-3, -2, -1, 0, 1, 2, 3}) v.insert(v.end(), {(1ll << e) + d, -(1ll << e) - d});
    for (int e = 24; e < 62; ++e)  // ties and their neighbours
        for (int64_t k : {1, 3, 5, 77})
            for (int64_t d : {-1, 0, 1}) {
                const int64_t tie = (1ll << e) + k * (1ll << (e - 24)) + d;
                v.insert(v.end(), {tie, -tie});
            }
    Random random;
    for (int i = 0; i < 5000; ++i)
        v.push_back(int64_t(uint64_t(random.bits()) << 32 | random.bits()) >> random.bits() % 60);
    return v;
}

// ---- the check ----------------------------------------------------------------------------------------------

const RoundMode kModes[] = {RoundMode::CAST_NONE,  RoundMode::CAST_RINT,  RoundMode::CAST_FLOOR, RoundMode::CAST_CEIL,
                            RoundMode::CAST_ROUND, RoundMode::CAST_TRUNC, RoundMode::CAST_ODD};

// Checks that every mode that this SoC has gives reference(value, mode, saturate), and that every other mode breaks
// SIM-ROUND-01.
template <class To, class From, class F>
void check_cast(const char* name, const std::vector<From>& values, F reference) {
    if constexpr (ascend_sim::round_modes<To, From>() != 0) {
        constexpr size_t kPiece = 8160;  // source and result fit UB; not a multiple of a repeat
        for (RoundMode mode : kModes)
            for (bool saturate : {false, true}) {
                const std::string what =
                    std::string(name) + " " + ascend_sim::mode_name(mode) + (saturate ? " clamped" : "");
                const bool allowed = ascend_sim::round_modes<To, From>() & ascend_sim::mode_bit(mode);
                for (size_t first = 0; first < values.size(); first += kPiece) {
                    const std::vector<From> piece(values.begin() + long(first),
                                                  values.begin() + long(std::min(values.size(), first + kPiece)));
                    Bench b({saturate, nullptr});
                    const auto x = b.put(piece);
                    const auto y = b.space<To>(uint32_t(piece.size()));
                    const std::string rule =
                        b.run([&] { AscendC::Cast<To, From>(b(y), b(x), mode, uint32_t(piece.size())); });
                    expect_rule(what, rule, allowed ? "" : "SIM-ROUND-01");
                    if (!allowed || !rule.empty()) break;
                    std::vector<To> want;
                    for (From v : piece) want.push_back(reference(v, mode, saturate));
                    const int before = failures;
                    expect(what + " from " + std::to_string(first), b.get(y), want);
                    if (failures != before) break;
                }
            }
    }
}

template <class T>
T raw_value(uint16_t raw) {
    T t;
    t.raw = raw;
    return t;
}

template <class I, class From>
void check_to_integer(const char* name, const std::vector<From>& values) {
    check_cast<I, From>(name, values, [](From v, RoundMode m, bool) { return clamped<I>(double(float(v)), m); });
}

template <class I>
std::vector<I> narrowed(const std::vector<int64_t>& values) {
    std::vector<I> v;
    for (int64_t x : values)
        if (x >= std::numeric_limits<I>::min() && x <= std::numeric_limits<I>::max()) v.push_back(I(x));
    return v;
}

void check_half(const std::vector<float>& floats) {
    const auto halves = all_bit_patterns<half>();
    for (const half h : halves) check(same(float(h), float(kHalf.value(h.raw))), "float(half) of " + bits_of(h.raw));
    check_cast<float, half>("half to float", halves, [](half h, RoundMode, bool) { return float(kHalf.value(h.raw)); });
    check_cast<half, float>("float to half", floats,
                            [](float f, RoundMode m, bool s) { return raw_value<half>(rounded(f, kHalf, m, s)); });
    check_to_integer<int8_t>("half to int8", halves);
    check_to_integer<uint8_t>("half to uint8", halves);
    check_to_integer<int16_t>("half to int16", halves);
    check_to_integer<int32_t>("half to int32", halves);
}

#if __CCE_AICORE__ != 200
void check_bfloat16(const std::vector<float>& floats) {
    const auto all = all_bit_patterns<bfloat16_t>();
    check_cast<float, bfloat16_t>("bfloat16 to float", all,
                                  [](bfloat16_t b, RoundMode, bool) { return float(kBfloat16.value(b.raw)); });
    check_cast<bfloat16_t, float>("float to bfloat16", floats, [](float f, RoundMode m, bool s) {
        return raw_value<bfloat16_t>(rounded(f, kBfloat16, m, s));
    });
    check_to_integer<int32_t>("bfloat16 to int32", all);
    check_cast<half, bfloat16_t>("bfloat16 to half", all, [](bfloat16_t b, RoundMode m, bool s) {
        return raw_value<half>(rounded(float(kBfloat16.value(b.raw)), kHalf, m, s));
    });
    check_cast<bfloat16_t, half>("half to bfloat16", all_bit_patterns<half>(), [](half h, RoundMode m, bool s) {
        return raw_value<bfloat16_t>(rounded(float(kHalf.value(h.raw)), kBfloat16, m, s));
    });
}
#endif

void check_float(const std::vector<float>& floats) {
    check_cast<float, float>("float to float", floats, [](float f, RoundMode m, bool) {
        return std::isnan(f) ? f : std::copysign(float(rounded_to_integer(f, m)), f);
    });
    check_to_integer<int16_t>("float to int16", floats);
    check_to_integer<int32_t>("float to int32", floats);
    check_to_integer<int64_t>("float to int64", floats);
}

template <class I>
void check_from_integer(const char* name, const std::vector<int64_t>& integers) {
    check_cast<float, I>(name, narrowed<I>(integers), [](I v, RoundMode m, bool) { return float_of_integer(v, m); });
}

void check_integers() {
    const auto integers = interesting_integers();
    check_from_integer<int16_t>("int16 to float", integers);
    check_from_integer<int32_t>("int32 to float", integers);
    check_from_integer<int64_t>("int64 to float", integers);
    check_cast<int64_t, int32_t>("int32 to int64", narrowed<int32_t>(integers),
                                 [](int32_t v, RoundMode, bool) { return int64_t(v); });
    auto clamp32 = [](int64_t v, RoundMode, bool) {
        return int32_t(std::min<int64_t>(std::max<int64_t>(v, INT32_MIN), INT32_MAX));
    };
    check_cast<int32_t, int64_t>("int64 to int32", integers, clamp32);
    check_cast<int16_t, int32_t>("int32 to int16", narrowed<int32_t>(integers), [](int32_t v, RoundMode, bool) {
        return int16_t(std::min(std::max(v, -32768), 32767));
    });
    auto to_half = [](auto v, RoundMode m, bool s) { return raw_value<half>(rounded(float(v), kHalf, m, s)); };
    check_cast<half, int8_t>("int8 to half", narrowed<int8_t>(integers), to_half);
    check_cast<half, uint8_t>("uint8 to half", narrowed<uint8_t>(integers), to_half);
    check_cast<half, int16_t>("int16 to half", narrowed<int16_t>(integers), to_half);
}

// The repeat form with types of two widths: each operand has its own strides, and the wider type sets the lanes.
void check_strides() {
    std::vector<half> x(1024);
    for (uint32_t i = 0; i < x.size(); ++i) x[i] = half(float(i));
    std::vector<float> want(1024, -1.0f);
    Bench b;
    const auto from = b.put(x);
    const auto to = b.put(want);
    const std::string rule = b.run([&] {
        // Four repeats of 37 lanes. Strides in 32-byte blocks: half 2 and 9 (block and repeat), float 1 and 10.
        AscendC::Cast(b(to), b(from), RoundMode::CAST_NONE, 37, 4, {1, 2, 10, 9});
    });
    expect_rule("Cast's strides", rule, "");
    for (uint32_t r = 0; r < 4; ++r)
        for (uint32_t lane = 0; lane < 37; ++lane) want[r * 80 + lane] = float(x[r * 144 + lane / 16 * 32 + lane % 16]);
    expect("Cast's strides", b.get(to), want);

    Bench c;
    const auto source = c.put(x);
    const auto target = c.put(std::vector<float>(1024, -1.0f));
    uint64_t mask[2] = {0x8000000000000a05ull, 0};
    expect_rule("Cast's bit mask",
                c.run([&] { AscendC::Cast(c(target), c(source), RoundMode::CAST_NONE, mask, 2, {1, 1, 8, 4}); }), "");
    want.assign(1024, -1.0f);
    for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t lane : {0u, 2u, 9u, 11u, 63u}) want[r * 64 + lane] = float(x[r * 64 + lane]);
    expect("Cast's bit mask", c.get(target), want);

    expect_rule("Cast of repeats in place", c.run([&] {
        AscendC::Cast(c(source).template ReinterpretCast<float>(), c(source), RoundMode::CAST_NONE, 64, 2,
                      {1, 1, 8, 8});
    }),
                "SIM-OVERLAP-01");

    // A repeat is read before its results are written over its source.
    for (uint32_t begin : {16u, 48u, 64u}) {  // the source's first element in the memory of the result
        Bench d;
        std::vector<half> memory(256);
        for (uint32_t i = 0; i < 64; ++i) memory[begin + i] = x[i + 5];
        const auto both = d.put(memory);
        const std::string what = "Cast from element " + std::to_string(begin) + " of its result";
        d.run([&] {
            AscendC::Cast(d(both).template ReinterpretCast<float>(), d(both)[begin], RoundMode::CAST_NONE, 64);
        });
        std::vector<half> result = d.get(both);
        float values[64];
        std::memcpy(values, result.data(), sizeof values);
        for (uint32_t i = 0; i < 64; ++i) check(values[i] == float(x[i + 5]), what);
    }
}

}  // namespace

int main() {
    const auto floats = interesting_floats();
    check_half(floats);
#if __CCE_AICORE__ != 200
    check_bfloat16(floats);
#endif
    check_float(floats);
    check_integers();
    check_strides();
    return finish("test_conversions");
}
