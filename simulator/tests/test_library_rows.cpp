// Softmax functions of rows, with their tiling structs, compared with formulas in double.
#include <algorithm>

#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

struct Shape {
    uint32_t m, k, original;  // rows, columns, columns without the filling
};
const Shape kShapes[] = {{1, 16, 16},   {3, 32, 30},   {9, 64, 64},     {5, 80, 70}, {16, 128, 128},
                         {4, 208, 200}, {7, 512, 511}, {2, 2112, 2112}, {40, 16, 16}};

// The softmax of a matrix in double: `quotient` and `exp` have a value for each element, `max` and `sum` for each row.
struct Softmax {
    std::vector<double> quotient, max, sum, exp;
};
template <class T>
Softmax softmax_of(const std::vector<T>& x, const Shape& s) {
    Softmax result;
    for (uint32_t i = 0; i < s.m; ++i) {
        double most = -INFINITY, sum = 0;
        for (uint32_t j = 0; j < s.original; ++j) most = std::max(most, double(float(x[i * s.k + j])));
        for (uint32_t j = 0; j < s.original; ++j) sum += std::exp(double(float(x[i * s.k + j])) - most);
        result.max.push_back(most);
        result.sum.push_back(sum);
        for (uint32_t j = 0; j < s.k; ++j) {
            const double e = std::exp(double(float(x[i * s.k + j])) - most);
            result.exp.push_back(j < s.original ? e : NAN);
            result.quotient.push_back(j < s.original ? e / sum : NAN);
        }
    }
    return result;
}
std::vector<double> in_blocks(const std::vector<double>& values, uint32_t block) {
    std::vector<double> all;
    for (double v : values) all.insert(all.end(), block, v);
    return all;
}

// exp's argument has two roundings of values up to 12; a sum of k rounds at most k / 64 + 9 times.
template <class T>
double softmax_bound(const Shape& s) {
    return std::is_same_v<T, float> ? 30 + s.k / 64.0 + 9 : 1.2;
}

template <class T, class S>
void check_softmax_of(const Shape& s) {
    constexpr uint32_t kBlock = 32 / sizeof(S);
    const std::string what = "SoftMax " + type_name<T>() + "," + type_name<S>() + " " + std::to_string(s.m) + " x " +
                             std::to_string(s.original) + " of " + std::to_string(s.k);
    const auto x = numbers<T>(s.m * s.k, -6, 6);
    const Softmax want = softmax_of(x, s);
    const uint32_t least = ascend_sim::softmax_floats(ascend_sim::SoftmaxKind::Plain, s.k, sizeof(T), sizeof(T)) * 4;
    for (uint32_t bytes : {least * (ascend_sim::kIs950 ? s.m : 1), 3 * least + 64, s.m * least}) {
        Bench b;
        const auto sx = b.put(x), sd = b.put(x), si = b.put(x);
        const auto sums = b.space<S>(s.m * kBlock), maxima = b.space<S>(s.m * kBlock);
        const auto tmp = b.space<uint8_t>(bytes);
        const SoftMaxTiling tiling = ascend_sim::softmax_tiling(s.m, s.k, sizeof(T), bytes);
        const SoftMaxShapeInfo info{s.m, s.k, s.m, s.original};
        expect_rule(what, b.run([&] {
            SoftMax<T>(b(sd), b(sums), b(maxima), b(sx), b(tmp), tiling, info);
            // In place. SoftMax replaces the empty tiling by its own.
            SoftMax<T>(b(si), b(si), b(tmp), SoftMaxTiling(), info);
        }),
                    "");
        const double bound = softmax_bound<T>(s), tiny = std::is_same_v<T, half> ? 0x1p-25 : 0;
        near(what, b.get(sd), want.quotient, bound, 0, tiny);
        near(what + " in place", b.get(si), want.quotient, bound, 0, tiny);
        near(what + ": maxima", b.get(maxima), in_blocks(want.max, kBlock), 0);
        near(what + ": sums", b.get(sums), in_blocks(want.sum, kBlock), softmax_bound<S>(s));
    }
}

template <class T>
void check_other_softmax_of(const Shape& s) {
    constexpr uint32_t kBlock = 32 / sizeof(T);
    const std::string what =
        type_name<T>() + " " + std::to_string(s.m) + " x " + std::to_string(s.original) + " of " + std::to_string(s.k);
    const auto x = numbers<T>(s.m * s.k, -6, 6), g = numbers<T>(s.m * s.k, -1, 1);
    const Softmax want = softmax_of(x, s);
    const uint32_t bytes =
        ascend_sim::softmax_floats(ascend_sim::SoftmaxKind::Grad, s.k, sizeof(T), sizeof(T)) * 4 * std::min(s.m, 3u);
    const uint32_t all_bytes = bytes * (ascend_sim::kIs950 ? s.m : 1);
    const SoftMaxShapeInfo info{s.m, s.k, s.m, s.original};
    Bench b;
    const auto sx = b.put(x), sl = b.put(x), ss = b.put(x), sg = b.put(g), sgrad = b.put(x);
    const auto sums = b.space<T>(s.m * kBlock), maxima = b.space<T>(s.m * kBlock), front = b.space<T>(s.m * kBlock);
    const auto tmp = b.space<uint8_t>(all_bytes);
    const auto plain = ascend_sim::softmax_tiling(s.m, s.k, sizeof(T), all_bytes);
    const auto grad = ascend_sim::softmax_tiling(s.m, s.k, sizeof(T), all_bytes, ascend_sim::SoftmaxKind::Grad);
    const auto log_tiling = ascend_sim::bits<LogSoftMaxTiling>(plain);
    expect_rule("softmaxes " + what, b.run([&] {
        LogSoftMax(b(sl), b(sums), b(maxima), b(sx), b(tmp), log_tiling, info);
        SimpleSoftMax<T>(b(ss), b(sums), b(maxima), b(sx), b(tmp), plain, info);
        SoftmaxGrad(b(sgrad), b(sg), b(sx), b(tmp), grad, false, info);
        SoftmaxGradFront(b(front), b(sg), b(sx), b(tmp), grad, info);
    }),
                "");
    std::vector<double> log, simple, gradients, fronts;
    for (uint32_t i = 0; i < s.m; ++i) {
        double d = 0;
        for (uint32_t j = 0; j < s.original; ++j) d += double(float(g[i * s.k + j])) * double(float(x[i * s.k + j]));
        fronts.push_back(d);
        const double sum = double(float(b.get(sums)[i * kBlock])), most = double(float(b.get(maxima)[i * kBlock]));
        for (uint32_t j = 0; j < s.k; ++j) {
            const size_t at = i * s.k + j;
            const bool counts = j < s.original;
            log.push_back(std::log10(want.quotient[at]));
            simple.push_back(counts ? std::exp(double(float(x[at])) - most) / sum : NAN);
            gradients.push_back(counts ? (double(float(g[at])) - d) * double(float(x[at])) : NAN);
        }
    }
    const double bound = softmax_bound<T>(s), tiny = std::is_same_v<T, half> ? 0x1p-25 : 0;
    near("LogSoftMax " + what, b.get(sl), log, 3, bound);
    near("SimpleSoftMax " + what, b.get(ss), simple, bound, 0, tiny);
    // A sum of k products of up to 6, in float; then half rounds.
    const double sums_error = 0x1p-24 * 6 * s.k * (10 + s.k / 64.0);
    near("SoftmaxGradFront " + what, b.get(front), in_blocks(fronts, kBlock), 2, 0, sums_error);
    near("SoftmaxGrad " + what, b.get(sgrad), gradients, 4, 0, 6 * sums_error);
}

template <class T, class S>
void check_flash_of(const Shape& s) {
    constexpr uint32_t kBlock = 32 / sizeof(S), kFactor = 32 / sizeof(T);
    const std::string what = type_name<T>() + "," + type_name<S>() + " " + std::to_string(s.m) + " x " +
                             std::to_string(s.original) + " of " + std::to_string(s.k);
    const auto x = numbers<T>(s.m * s.k, -6, 6);
    auto y = numbers<T>(s.m * s.k + 11, -5, 7);
    y.erase(y.begin(), y.begin() + 11);
    const SoftMaxShapeInfo info{s.m, s.k, s.m, s.original};
    const uint32_t bytes = 4 * std::min(s.m, 5u) * (4 * 16 + 2 * s.k + 64) * (ascend_sim::kIs950 ? 2 : 1);
    const auto v2 = ascend_sim::softmax_flash_v2_tiling(s.m, s.k, sizeof(T), sizeof(S), bytes, false);
    const auto v1 = ascend_sim::softmax_tiling(s.m, s.k, sizeof(T), bytes, ascend_sim::SoftmaxKind::FlashUpdate);
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), d0 = b.put(x), d1 = b.put(x), e1 = b.put(x);
    const auto sum0 = b.space<S>(s.m * kBlock), max0 = b.space<S>(s.m * kBlock), sum1 = b.space<S>(s.m * kBlock),
               max1 = b.space<S>(s.m * kBlock);
    const auto factor = b.space<T>(s.m * kFactor), factor1 = b.space<T>(s.m * kFactor);
    const auto tmp = b.space<uint8_t>(bytes);
    expect_rule("flash " + what, b.run([&] {
        SoftmaxFlashV2<T, false>(b(d0), b(sum0), b(max0), b(sx), b(factor), b(sum0), b(max0), b(tmp), v2, info);
        SoftmaxFlash<T>(b(e1), b(sum1), b(max1), b(sy), b(factor1), b(sum0), b(max0), b(tmp), v1, true, info);
        // Its sums and maxima replace the earlier ones in the same memory.
        SoftmaxFlashV2<T, true>(b(d1), b(sum0), b(max0), b(sy), b(factor), b(sum0), b(max0), b(tmp), v2, info);
    }),
                "");
    const Softmax first = softmax_of(x, s), second = softmax_of(y, s);
    std::vector<double> max, sum, factors, factors_v1, exp, quotient;
    for (uint32_t i = 0; i < s.m; ++i) {
        const double most = std::max(first.max[i], second.max[i]), f = std::exp(first.max[i] - most);
        const double total = f * first.sum[i] + second.sum[i] * std::exp(second.max[i] - most);
        max.push_back(most);
        sum.push_back(total);
        factors.push_back(f);
        factors_v1.push_back(f * first.sum[i] / total);
        for (uint32_t j = 0; j < s.k; ++j) {
            const double e = std::exp(double(float(y[i * s.k + j])) - most);
            exp.push_back(j < s.original ? e : NAN);
            quotient.push_back(j < s.original ? e / total : NAN);
        }
    }
    const double bound = softmax_bound<T>(s) * 1.5, tiny = std::is_same_v<T, half> ? 0x1p-25 : 0;
    const double half_sums = std::is_same_v<S, half> ? 2 : 1;  // the first sum was rounded to half
    near("SoftmaxFlashV2 " + what + ": first", b.get(d0), first.exp, bound, 0, tiny);
    near("SoftmaxFlashV2 " + what, b.get(d1), exp, bound, 0, tiny);
    near("SoftmaxFlashV2 " + what + ": maxima", b.get(max0), in_blocks(max, kBlock), 0);
    near("SoftmaxFlashV2 " + what + ": sums", b.get(sum0), in_blocks(sum, kBlock),
         softmax_bound<S>(s) * 1.5 * half_sums);
    near("SoftmaxFlashV2 " + what + ": factors", b.get(factor), in_blocks(factors, kFactor), bound, 0, tiny);
    near("SoftmaxFlash " + what, b.get(e1), quotient, bound * half_sums, 0, tiny);
    near("SoftmaxFlash " + what + ": factors", b.get(factor1), in_blocks(factors_v1, kFactor), bound * half_sums, 0,
         tiny);
}

void check_adjust() {
    const auto x = numbers<float>(4 * 16, -6, 6);
    std::vector<float> maxima(4 * 8, 2.0f);
    for (int i = 0; i < 8; ++i) maxima[2 * 8 + i] = -1.5f;
    Bench b;
    const auto sx = b.put(x), sm = b.put(maxima);
    bool found = false, found_other = true;
    expect_rule("AdjustSoftMaxRes", b.run([&] {
        found = AdjustSoftMaxRes(b(sx), b(sm), 0xbfc00000, 0.25f, {4, 16, 4, 16});
        found_other = AdjustSoftMaxRes(b(sx), b(sm), 0x7f800000, 0.5f, {4, 16, 4, 16});
    }),
                "");
    auto want = x;
    std::fill_n(want.begin() + 32, 16, 0.25f);
    expect("AdjustSoftMaxRes", b.get(sx), want);
    check(found && !found_other, "AdjustSoftMaxRes returns whether it found the value");
}

}  // namespace

int main() {
    for (const Shape& s : kShapes) {
        check_softmax_of<float, float>(s);
        check_softmax_of<half, half>(s);
        check_softmax_of<half, float>(s);
        check_other_softmax_of<float>(s);
        check_other_softmax_of<half>(s);
        check_flash_of<float, float>(s);
        check_flash_of<half, half>(s);
        check_flash_of<half, float>(s);
    }
    check_adjust();
    return finish("test_library_rows");
}
