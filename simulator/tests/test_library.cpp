// Elementwise library functions, compared with formulas in double. Bounds: an absolute and a relative error in units of
// the type's epsilon, from the number of roundings and from the errors of the published polynomials.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

template <class T>
constexpr double kEpsilon = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-11;  // relative error of a rounding to nearest
template <class T>
constexpr const char* kTypeName = std::is_same_v<T, float> ? "float" : "half";

// Allowed errors: absolute and relative, in float and in half. In half most functions compute in float, so the last
// rounding dominates.
struct Bounds {
    double float_absolute, float_relative, half_absolute, half_relative;
};
struct Interval {
    float low, high;
};

// Prints the largest errors of a function if the variable ASCEND_SIM_SHOW_ERRORS is set.
void show(const std::string& what, double absolute, double relative) {
    if (std::getenv("ASCEND_SIM_SHOW_ERRORS")) std::printf("%-24s %9.2e %9.2e\n", what.c_str(), absolute, relative);
}

constexpr double kSmallestNormal = 0x1p-14;  // of half

template <class T>
void compare_values(const std::string& what, const std::vector<T>& got, const std::vector<double>& want,
                    const Bounds& bounds) {
    const bool is_float = std::is_same_v<T, float>;
    const double absolute = (is_float ? bounds.float_absolute : bounds.half_absolute) * kEpsilon<T>;
    const double relative = (is_float ? bounds.float_relative : bounds.half_relative) * kEpsilon<T>;
    const double tiny = is_float ? 0.0 : kSmallestNormal * kEpsilon<T>;
    double worst_absolute = 0, worst_relative = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        const double g = double(float(got[i])), w = want[i];
        const bool is_number = std::isfinite(w) && std::isfinite(g);
        if (!is_number && (std::isnan(w) ? std::isnan(g) : g == w)) continue;
        const double error = is_number ? std::fabs(g - w) : std::numeric_limits<double>::quiet_NaN();
        worst_absolute = std::max(worst_absolute, error);
        if (w != 0) worst_relative = std::max(worst_relative, error / std::fabs(w));
        if (!(error <= absolute + relative * std::fabs(w) + tiny))
            return check(false, what + ": element " + std::to_string(i) + " is " + std::to_string(g) + ", not " +
                                    std::to_string(w));
    }
    show(what, worst_absolute, worst_relative);
}

// Runs call(dst, src0, src1, tmp, n) on lengths around a repeat, with the least and with much temporary memory, and
// expects want(x, y) in the first n elements and the old contents in the others.
template <class T, class F, class G>
void check_lengths(const std::string& name, Interval a, Interval c, uint32_t least, F call, G want, Bounds bounds) {
    constexpr uint32_t kRepeat = 256 / sizeof(T);
    std::vector<double> wanted_all;
    std::vector<T> got_all;
    for (uint32_t n : {1u, 17u, kRepeat - 1, kRepeat, kRepeat + 1, 3 * kRepeat + 5, 1000u})
        for (uint32_t tmp_bytes : {least, 8 * least + 64}) {
            const uint32_t size = (n + 31) / 32 * 32;
            const auto x = numbers<T>(size, a.low, a.high);
            auto y = numbers<T>(size + 7, c.low, c.high);
            y.erase(y.begin(), y.begin() + 7);
            const std::vector<T> before(size, T(-77.0f));
            Bench b;
            const auto sx = b.put(x), sy = b.put(y), sd = b.put(before);
            const auto st = b.space<uint8_t>(tmp_bytes);
            expect_rule(name, b.run([&] { call(b(sd), b(sx), b(sy), b(st), n); }), "");
            const auto got = b.get(sd);
            for (uint32_t i = 0; i < size; ++i)
                if (i < n) {
                    got_all.push_back(got[i]);
                    wanted_all.push_back(want(double(float(x[i])), double(float(y[i]))));
                } else if (!same(got[i], before[i])) {
                    return check(false, name + ": element " + std::to_string(i) + " past the count changed");
                }
        }
    compare_values(name + " " + kTypeName<T>, got_all, wanted_all, bounds);
}

template <class T, class F, class G>
void check_unary(const std::string& name, Interval a, const ascend_sim::TmpArrays& arrays, F call, G want,
                 Bounds bounds) {
    check_lengths<T>(
        name, a, a, std::max(32u, arrays.sizes(1, sizeof(T), false).least),
        [&](auto d, auto x, auto, auto t, uint32_t n) { call(d, x, t, n); }, [&](double x, double) { return want(x); },
        bounds);
}

#define BOTH_TYPES(check) \
    do {                  \
        check<float>();   \
        check<half>();    \
    } while (false)

// Temporary memory that is enough for every function. Power takes 12 bytes for each element on Ascend950.
constexpr ascend_sim::TmpArrays kEnoughMemory =
    ascend_sim::kIs950 ? ascend_sim::TmpArrays{48, 48, 48, false} : ascend_sim::TmpArrays{16, 8, 8, false};

// Tests a function with sharedTmpBuffer and count, on both types.
#define UNARY(Name, low, high, formula, ...)                                                         \
    do {                                                                                             \
        const auto want = [](double x) { return double(formula); };                                  \
        check_unary<float>(                                                                          \
            #Name, {low, high}, ascend_sim::tmp_sizes::k##Name,                                      \
            [](auto d, auto x, auto t, uint32_t n) { Name(d, x, t, n); }, want, Bounds __VA_ARGS__); \
        check_unary<half>(                                                                           \
            #Name, {low, high}, ascend_sim::tmp_sizes::k##Name,                                      \
            [](auto d, auto x, auto t, uint32_t n) { Name(d, x, t, n); }, want, Bounds __VA_ARGS__); \
    } while (false)
// Tests a function of another form, by the given call, on both types.
#define UNARY_CALL(name, low, high, call, formula, ...)                                      \
    do {                                                                                     \
        const auto want = [](double x) { return double(formula); };                          \
        const auto run = [](auto d, auto x, auto t, uint32_t n) {                            \
            (void)t;                                                                         \
            call;                                                                            \
        };                                                                                   \
        check_unary<float>(name, {low, high}, kEnoughMemory, run, want, Bounds __VA_ARGS__); \
        check_unary<half>(name, {low, high}, kEnoughMemory, run, want, Bounds __VA_ARGS__);  \
    } while (false)

double gelu(double x) { return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
double faster_gelu_v2(double x) {
    const double q = std::min(std::fabs(0.7071 * x), 1.769) - 1.769;
    return x * ((x < 0 ? -1 : 1) * (-0.1444 * q * q + 0.5) + 0.5);
}

void check_activations() {
    // exp rounds its result, and its argument's rounding is scaled by the argument (at most 20 here).
    UNARY(Sigmoid, -20, 20, 1 / (1 + std::exp(-x)), {0, 6, 0.05, 24});  // exp overflows in half at 11.1
    UNARY(Tanh, -12, 12, std::tanh(x), {4, 4, 0, 2});
    UNARY_CALL("Silu", -20, 20, Silu(d, x, n), x / (1 + std::exp(-x)), {0, 6, 0.5, 24});
    UNARY_CALL("Swish", -9, 9, Swish(d, x, n, decltype(x[0].GetValue(0))(1.5f)), x / (1 + std::exp(-1.5 * x)),
               {0, 20, 0.3, 40});
    UNARY(Gelu, -4, 4, gelu(x), {0, 60, 0, 60});
    UNARY_CALL("Gelu precise", -4, 4, (Gelu<std::decay_t<decltype(x.GetValue(0))>, true>(d, x, t, n)), gelu(x),
               {0, 60, 0, 3});
    UNARY_CALL("FasterGelu", -6, 6, FasterGelu(d, x, t, n), x / (1 + std::exp(-1.702 * x)), {0, 20, 0, 30});
    UNARY_CALL("FasterGelu fast", -6, 6, (FasterGelu<std::decay_t<decltype(x.GetValue(0))>, false, true>(d, x, t, n)),
               x / (1 + std::exp(-1.702 * x)), {0, 3000, 0, 34});
    UNARY_CALL("FasterGeluV2", -6, 6, FasterGeluV2(d, x, t, n), faster_gelu_v2(x), {8, 8, 12, 8});
}

void check_rounding() {
    UNARY(Ceil, -70, 70, std::ceil(x), {0, 0, 0, 0});
    UNARY(Floor, -70, 70, std::floor(x), {0, 0, 0, 0});
    UNARY(Trunc, -70, 70, std::trunc(x), {0, 0, 0, 0});
    UNARY_CALL("Round", -70, 70, Round(d, x, t, n), std::nearbyint(x), {0, 0, 0, 0});
    UNARY(Frac, -70, 70, x - std::trunc(x), {0, 0, 0, 0});
    UNARY(Sign, -1, 1, x > 0 ? 1 : x < 0 ? -1 : 0, {0, 0, 0, 0});
    UNARY_CALL("ClampMax", -9, 9, ClampMax(d, x, t, decltype(x.GetValue(0))(2.5f), n), std::min(x, 2.5), {0, 0, 0, 0});
    UNARY_CALL("ClampMin", -9, 9, ClampMin(d, x, t, decltype(x.GetValue(0))(2.5f), n), std::max(x, 2.5), {0, 0, 0, 0});
}

void check_exponentials() {
    if constexpr (!ascend_sim::kIs310p)
        UNARY_CALL("Exp", -8, 8, (Exp<std::decay_t<decltype(x.GetValue(0))>, 12>(d, x, t, n)), std::exp(x),
                   {0, 8, 0, 2});
    UNARY_CALL("Log", 0.01f, 900, Log(d, x, n), std::log(x), {0, 1, 0, 1});
    UNARY_CALL("Log10", 0.01f, 900, Log10(d, x, n), std::log10(x), {0, 3, 0, 3});
    UNARY_CALL("Log2", 0.01f, 900, Log2(d, x, t, n), std::log2(x), {0, 3, 0, 2});
    // exp's argument y * ln|x| is up to 9 here, and has two roundings.
    UNARY_CALL("Power by a scalar", 0.05f, 20, Power(d, x, decltype(x.GetValue(0))(3.0f), t, n), std::pow(x, 3.0),
               {0, 24, 0, 2});
    UNARY_CALL("Power of a scalar", -3, 3, Power(d, decltype(x.GetValue(0))(3.0f), x, t, n), std::pow(3.0, x),
               {0, 24, 0, 2});
}

void check_trigonometry() {
    UNARY(Sin, -300, 300, std::sin(x), {4, 4, 1, 2});
    UNARY(Cos, -300, 300, std::cos(x), {4, 4, 1, 2});
    UNARY(Tan, -1.4f, 1.4f, std::tan(x), {4, 24, 1, 2});
    UNARY(Tan, 99.2f, 101.9f, std::tan(x), {4, 24, 1, 2});  // around 32 pi
    UNARY(Asin, -1, 1, std::asin(x), {1700, 4, 1, 2});      // a Taylor series of eight terms
    UNARY(Acos, -1, 1, std::acos(x), {1700, 4, 1, 2});
    UNARY(Atan, -900, 900, std::atan(x), {96, 4, 1, 2});  // its shortest series end with the power 9
    UNARY(Atan, -2, 2, std::atan(x), {96, 4, 1, 2});
    UNARY(Sinh, -9, 9, std::sinh(x), {4, 30, 1, 2});
    UNARY(Cosh, -9, 9, std::cosh(x), {0, 30, 0, 2});
    UNARY(Asinh, -900, 900, std::asinh(x), {4, 4, 1, 2});
    UNARY(Acosh, 1, 900, std::acosh(x), {2000, 4, 1, 2});  // x^2 - 1 cancels near 1
    UNARY(Atanh, -0.99f, 0.99f, std::atanh(x), {4, 100, 1, 2});
    UNARY(Erf, -5, 5, std::erf(x), {4, 8, 1, 2});
    UNARY(Erfc, -3, 3, std::erfc(x), {8, 120, 1, 2});
}

template <class T>
void check_two_sources_of() {
    const uint32_t least = kEnoughMemory.sizes(1, sizeof(T), false).least;
    const Interval a{-6, 6}, c{0.5f, 3};
    check_lengths<T>(
        "SwiGLU", a, a, least, [](auto d, auto x, auto y, auto t, uint32_t n) { SwiGLU(d, x, y, 1.5f, t, n); },
        [](double x, double y) { return x * y / (1 + std::exp(-1.5 * y)); }, {0, 30, 0, 2});
    check_lengths<T>(
        "GeGLU", a, {-3, 3}, least, [](auto d, auto x, auto y, auto t, uint32_t n) { GeGLU(d, x, y, t, n); },
        [](double x, double y) { return x * y / (1 + std::exp(-0.0713548162726 * y * (y * y + 22.363860002236))); },
        {0, 60, 0, 3});
    check_lengths<T>(
        "ReGlu", a, a, least, [](auto d, auto x, auto y, auto t, uint32_t n) { ReGlu(d, x, y, t, n); },
        [](double x, double y) { return x * std::max(y, 0.0); }, {0, 1, 0, 1});
    check_lengths<T>(
        "Fmod", {1, 100}, c, least, [](auto d, auto x, auto y, auto t, uint32_t n) { Fmod(d, x, y, t, n); },
        [](double x, double y) { return x - std::trunc(float(float(x) / float(y))) * y; }, {400, 0, 100, 2});
    check_lengths<T>(
        "Power", {0.1f, 9}, {-2, 2}, least, [](auto d, auto x, auto y, auto t, uint32_t n) { Power(d, x, y, t, n); },
        [](double x, double y) { return std::pow(x, y); }, {0, 30, 0, 2});
}

// Special values of Power in float.
void check_power_cases() {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x{-2, -2, -2, 0, 0, 0, 1, 1, nan, -1, -1, -inf, -inf, -inf, -8, 5, -3},
        y{3, 2, 0.5f, 0, 2, -1, inf, nan, 0, inf, 3, 3, 0.5f, -0.5f, 0, 0, 1e9f};
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), sd = b.put(x);
    const auto st = b.space<uint8_t>(8192);
    expect_rule("Power", b.run([&] { Power(b(sd), b(sx), b(sy), b(st), uint32_t(x.size())); }), "");
    std::vector<double> want;
    for (size_t i = 0; i < x.size(); ++i) want.push_back(std::pow(double(x[i]), double(y[i])));
    want.back() = inf;  // beyond float
    compare_values("Power's special values", b.get(sd), want, {0, 30, 0, 0});
}

template <class T>
void check_sign_of_zero_of() {
    const std::vector<T> x{T(0.0f), T(-0.0f), T(2.0f), T(-2.0f)};
    Bench b;
    const auto sx = b.put(x), sd = b.put(std::vector<T>(x.size(), T(-77.0f)));
    const auto st = b.space<uint8_t>(768);
    expect_rule("Sign", b.run([&] { Sign(b(sd), b(sx), b(st), uint32_t(x.size())); }), "");
    expect("Sign of zeros", b.get(sd), {T(0.0f), T(0.0f), T(1.0f), T(-1.0f)});
}

void check_xor() {
    const auto x = numbers<uint16_t>(1024, 0, 65535);
    const std::vector<uint16_t> y(x.rbegin(), x.rend());
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), sd = b.put(x);
    const auto st = b.space<uint8_t>(512);
    expect_rule("Xor", b.run([&] { Xor(b(sd), b(sx), b(sy), b(st), 1003); }), "");
    auto want = x;
    for (size_t i = 0; i < 1003; ++i) want[i] = uint16_t(x[i] ^ y[i]);
    expect("Xor", b.get(sd), want);
}

#if __CCE_AICORE__ != 200
void check_bfloat16() {
    const auto x = numbers<bfloat16_t>(300, -9, 9), y = numbers<bfloat16_t>(300, -9, 9);
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), sd = b.put(x);
    const auto st = b.space<uint8_t>(1536);
    expect_rule("ReGlu bfloat16", b.run([&] { ReGlu(b(sd), b(sx), b(sy), b(st), 300); }), "");
    std::vector<bfloat16_t> want;
    for (size_t i = 0; i < x.size(); ++i) want.push_back(bfloat16_t(float(x[i]) * std::max(float(y[i]), 0.0f)));
    expect("ReGlu bfloat16", b.get(sd), want);
}
#endif

// The forms without sharedTmpBuffer use the memory above the buffers; isReuseSource overwrites the source.
void check_other_forms() {
    const auto x = numbers<float>(320, -20, 20);
    Bench b;
    const auto sx = b.put(x), s0 = b.put(x), s1 = b.put(x), s2 = b.put(x), s3 = b.put(x);
    const auto st = b.space<uint8_t>(512);
    expect_rule("other forms", b.run([&] {
        Sin(b(s0), b(sx));
        Sin(b(s1), b(sx), 320);
        Sin<float, true>(b(s2), b(s3), b(st), 320);
    }),
                "");
    std::vector<double> want;
    for (float f : x) want.push_back(std::sin(double(f)));
    for (const auto& s : {s0, s1, s2}) compare_values("Sin's forms", b.get(s), want, {4, 4, 0, 0});
}

// Silu needs no temporary memory: it runs although the buffers fill UB.
template <class T>
void check_silu_in_full_ub_of() {
    constexpr uint32_t kUbBytes = (ascend_sim::kIs910b ? 192 : ascend_sim::kIs310p ? 256 : 248) << 10, n = 64;
    Bench b;
    const auto sx = b.put(numbers<T>(n, -4, 4)), sd = b.space<T>(n);
    b.space<uint8_t>(kUbBytes - 2 * n * sizeof(T));
    expect_rule("Silu in a full UB", b.run([&] { Silu(b(sd), b(sx), n); }), "");
}

}  // namespace

int main() {
    check_activations();
    check_rounding();
    check_exponentials();
    check_trigonometry();
    BOTH_TYPES(check_two_sources_of);
    check_power_cases();
    BOTH_TYPES(check_sign_of_zero_of);
    BOTH_TYPES(check_silu_in_full_ub_of);
    check_xor();
#if __CCE_AICORE__ != 200
    check_bfloat16();
#endif
    check_other_forms();
    return finish("test_library");
}
