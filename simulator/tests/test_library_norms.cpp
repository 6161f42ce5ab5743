// Norms with tiling structs, compared with formulas in double.
#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr bool kIs950 = ascend_sim::kIs950;

using Doubles = std::vector<double>;

template <class T>
Doubles doubles(const std::vector<T>& v) {
    Doubles d;
    for (T x : v) d.push_back(double(float(x)));
    return d;
}
std::string shape_name(const std::string& what, uint32_t rows, uint32_t h, uint32_t original) {
    return what + " " + std::to_string(rows) + " x " + std::to_string(original) + " of " + std::to_string(h);
}

struct Shape {
    uint32_t b, s, h, original;  // original: the elements of a row without its filling
    uint32_t rows() const { return b * s; }
};
const Shape kShapes[] = {{1, 1, 16, 16},   {1, 3, 32, 30},   {3, 3, 64, 64},     {1, 5, 80, 70}, {2, 8, 128, 128},
                         {4, 1, 208, 200}, {7, 1, 512, 511}, {2, 1, 2112, 2112}, {8, 5, 16, 16}, {3, 100, 32, 32}};

// Rows of numbers; the filling is 0.
template <class T>
std::vector<T> rows_of(const Shape& s, float low, float high) {
    auto x = numbers<T>(s.rows() * s.h, low, high);
    for (uint32_t i = 0; i < x.size(); ++i)
        if (i % s.h >= s.original) x[i] = T(0.0f);
    return x;
}

constexpr float kNormEpsilon = 0.0009765625f;  // exact in half

struct Norm {
    Doubles y, mean, variance, rstd;
};
// Normalizes rows of k elements, of which `counted` enter the variance.
Norm norm_of(const Doubles& x, uint32_t rows, uint32_t pitch, uint32_t k, uint32_t counted, const Doubles& gamma,
             const Doubles& beta) {
    Norm n;
    for (uint32_t r = 0; r < rows; ++r) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < k; ++i) mean += x[r * pitch + i] / k;
        for (uint32_t i = 0; i < counted; ++i) variance += (x[r * pitch + i] - mean) * (x[r * pitch + i] - mean) / k;
        const double rstd = 1 / std::sqrt(variance + kNormEpsilon);
        n.mean.push_back(mean);
        n.variance.push_back(variance);
        n.rstd.push_back(rstd);
        for (uint32_t i = 0; i < pitch; ++i)
            n.y.push_back(i < k ? (x[r * pitch + i] - mean) * rstd * gamma[i] + beta[i] : NAN);
    }
    return n;
}

// Error bound in units of the type's epsilon. Values are at most 4, and a mean of h values has about h / 64 + 8
// roundings.
double roundings(uint32_t h) { return 4 * (h / 64.0 + 12); }

// Three amounts of temporary memory: the least, one in between, and the most, if it fits.
std::vector<uint32_t> amounts(const ascend_sim::TmpSizes& sizes) {
    constexpr uint32_t kFits = 96 << 10;
    const uint32_t most = std::max(sizes.least, std::min(sizes.most, kFits));
    return {sizes.least, std::max(sizes.least, (sizes.least + most) / 64 * 32), most};
}

// ---- LayerNorm, Normalize, RmsNorm ------------------------------------------------------------------------

template <class T, bool kReuse>
void check_layer_norm(const Shape& s) {
    const std::string what = shape_name("LayerNorm " + type_name<T>(), s.rows(), s.h, s.original);
    const auto x = rows_of<T>(s, -3, 4), gamma = numbers<T>(s.h, -2, 2), beta = numbers<T>(s.h, -1, 1);
    const Norm want = norm_of(doubles(x), s.rows(), s.h, s.original, s.h, doubles(gamma), doubles(beta));
    for (uint32_t bytes : amounts(ascend_sim::layer_norm_sizes(s.rows(), s.h, sizeof(T), kReuse))) {
        Bench b;
        const auto sx = b.put(x), sg = b.put(gamma), sb = b.put(beta), sd = b.space<T>(s.rows() * s.h);
        const auto mean = b.space<T>(s.rows()), variance = b.space<T>(s.rows());
        const auto tmp = b.space<uint8_t>(bytes);
        LayerNormTiling tiling = ascend_sim::layer_norm_tiling(s.b, s.s, s.h, s.original, bytes, sizeof(T), kReuse);
        expect_rule(what, b.run([&] {
            LayerNorm<T, kReuse>(b(sd), b(mean), b(variance), b(sx), b(sg), b(sb), b(tmp), T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? roundings(s.h) : 2;
        near(what, b.get(sd), want.y, 2, bound);
        near(what + ": mean", b.get(mean), want.mean, 1, bound);
        near(what + ": variance", b.get(variance), want.variance, 2, bound);
    }
}

template <class U, class T, class F>
void check_row_norm(const std::string& name, const Shape& s, const ascend_sim::TmpSizes& sizes, bool has_gamma,
                    bool has_beta, F call) {
    const std::string what = shape_name(name + " " + type_name<U>() + "," + type_name<T>(), s.rows(), s.h, s.original);
    const auto x = rows_of<T>(s, -3, 4);
    auto filled = x;  // the filling does not count
    for (uint32_t i = 0; i < x.size(); ++i)
        if (i % s.h >= s.original) filled[i] = T(5.0f);
    const auto gamma = numbers<U>(s.h, -2, 2), beta = numbers<U>(s.h, -1, 1);
    const Doubles ones(s.h, 1), zeros(s.h, 0);
    const Norm want = norm_of(doubles(x), s.rows(), s.h, s.original, s.original, has_gamma ? doubles(gamma) : ones,
                              has_beta ? doubles(beta) : zeros);
    std::vector<float> mean, variance;
    for (uint32_t r = 0; r < s.rows(); ++r) {
        mean.push_back(float(want.mean[r]));
        variance.push_back(float(want.variance[r]));
    }
    for (uint32_t bytes : amounts(sizes)) {
        Bench b;
        const auto sx = b.put(filled), sd = b.space<T>(s.rows() * s.h);
        const auto sg = b.put(gamma), sb = b.put(beta);
        const auto sm = b.put(mean), sv = b.put(variance), rstd = b.space<float>(s.rows());
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(what, b.run([&] { call(b(sd), b(sm), b(rstd), b(sv), b(sx), b(sg), b(sb), b(tmp), bytes); }), "");
        const double bound = std::is_same_v<T, float> ? roundings(s.h) : 2;
        near(what, b.get(sd), want.y, 2, bound);
        near(what + ": mean", b.get(sm), want.mean, 1, roundings(s.h));
        near(what + ": rstd", b.get(rstd), want.rstd, 8, roundings(s.h));
    }
}

// The documented default configurations.
constexpr LayerNormConfig kLayerNormConfig;
static_assert(!kLayerNormConfig.isNoBeta && !kLayerNormConfig.isNoGamma && !kLayerNormConfig.isOnlyOutput &&
              kLayerNormConfig.isOutputRstd);
constexpr NormalizeConfig kNormalizeConfig;
static_assert(kNormalizeConfig.reducePattern == ReducePattern::AR && kNormalizeConfig.aLength == -1 &&
              !kNormalizeConfig.isNoBeta && !kNormalizeConfig.isNoGamma && !kNormalizeConfig.isOnlyOutput);

template <class U, class T>
void check_rstd_norms(const Shape& s) {
    if (s.h - s.original >= 32 / sizeof(T)) return;  // these norms allow a filling of less than a block
    const LayerNormPara para{s.rows(), s.original, s.h};
    const auto sizes = kIs950 ? ascend_sim::layer_norm_separate_sizes_950(s.rows(), s.original, true)
                              : ascend_sim::layer_norm_separate_sizes(s.rows(), s.original, sizeof(T));
    check_row_norm<U, T>("LayerNorm", s, sizes, true, true,
                         [&](auto d, auto mean, auto rstd, auto, auto x, auto g, auto be, auto tmp, uint32_t bytes) {
                             const auto tiling = kIs950 ? ascend_sim::layer_norm_separate_tiling_950(s.original)
                                                        : ascend_sim::layer_norm_separate_tiling(s.rows(), s.original,
                                                                                                 bytes, sizeof(T));
                             LayerNorm<U, T>(d, mean, rstd, x, g, be, kNormEpsilon, tmp, para, tiling);
                         });
    const auto norm_sizes =
        kIs950 ? ascend_sim::TmpSizes{32, 32} : ascend_sim::normalize_sizes(s.rows(), s.original, sizeof(U), sizeof(T));
    check_row_norm<U, T>("Normalize", s, norm_sizes, true, true,
                         [&](auto d, auto mean, auto rstd, auto v, auto x, auto g, auto be, auto tmp, uint32_t) {
                             Normalize<U, T>(d, rstd, mean, v, x, g, be, tmp, kNormEpsilon, para);
                         });
    check_row_norm<U, T>("Normalize without gamma", s, norm_sizes, false, true,
                         [&](auto d, auto mean, auto rstd, auto v, auto x, auto g, auto be, auto tmp, uint32_t) {
                             Normalize<U, T, false, NLCFG_NOGAMMA>(d, rstd, mean, v, x, g, be, tmp, kNormEpsilon, para);
                         });
    check_row_norm<U, T>("Normalize without beta", s, norm_sizes, true, false,
                         [&](auto d, auto mean, auto rstd, auto v, auto x, auto g, auto be, auto tmp, uint32_t) {
                             Normalize<U, T, false, NLCFG_NOBETA>(d, rstd, mean, v, x, g, be, tmp, kNormEpsilon, para);
                         });
}

template <class T, bool kBasicBlock>
void check_rms_norm(const Shape& s) {
    if (kBasicBlock && (!ascend_sim::is_rms_norm_basic_block(s.rows(), s.h) || s.h != s.original)) return;
    const std::string what = shape_name("RmsNorm " + type_name<T>(), s.rows(), s.h, s.original);
    const auto x = rows_of<T>(s, -3, 4), gamma = numbers<T>(s.h, -2, 2);
    Doubles want;
    for (uint32_t r = 0; r < s.rows(); ++r) {
        double sum = 0;
        for (uint32_t i = 0; i < s.h; ++i) sum += double(float(x[r * s.h + i])) * double(float(x[r * s.h + i]));
        for (uint32_t i = 0; i < s.h; ++i)
            want.push_back(double(float(x[r * s.h + i])) / std::sqrt(sum / s.original + kNormEpsilon) *
                           double(float(gamma[i])));
    }
    for (uint32_t bytes : amounts(ascend_sim::rms_norm_sizes(s.rows(), s.h, sizeof(T)))) {
        Bench b;
        const auto sx = b.put(x), sg = b.put(gamma), sd = b.space<T>(s.rows() * s.h);
        const auto tmp = b.space<uint8_t>(bytes);
        const auto tiling = ascend_sim::rms_norm_tiling(s.b, s.s, s.h, s.original, bytes, sizeof(T), kBasicBlock);
        expect_rule(what, b.run([&] {
            RmsNorm<T, kBasicBlock>(b(sd), b(sx), b(sg), b(tmp), T(kNormEpsilon), tiling);
            RmsNorm<T, kBasicBlock>(b(sx), b(sx), b(sg), b(tmp), T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? 24 : 1.1, tiny = std::is_same_v<T, half> ? 0x1p-25 : 0;
        near(what, b.get(sd), want, bound, 0, tiny);
        near(what + " in place", b.get(sx), want, bound, 0, tiny);
    }
}

}  // namespace

int main() {
    for (const Shape& s : kShapes) {
        check_layer_norm<float, false>(s);
        check_layer_norm<float, true>(s);
        check_layer_norm<half, false>(s);
        check_rstd_norms<float, float>(s);
        check_rstd_norms<half, half>(s);
        check_rstd_norms<float, half>(s);
        check_rms_norm<float, false>(s);
        check_rms_norm<float, true>(s);
        check_rms_norm<half, false>(s);
        check_rms_norm<half, true>(s);
    }
    return finish("test_library_norms");
}
