// DeepNorm, BatchNorm, GroupNorm, Welford and the gradients of LayerNorm, compared with formulas in double.
#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr bool kIs950 = ascend_sim::kIs950;
constexpr float kNormEpsilon = 0.0009765625f;  // exact in half

using Doubles = std::vector<double>;

// Three amounts of temporary memory: the least, one in between, and the most, if it fits.
std::vector<uint32_t> amounts(const ascend_sim::TmpSizes& sizes) {
    constexpr uint32_t kFits = 96 << 10;
    const uint32_t most = std::max(sizes.least, std::min(sizes.most, kFits));
    return {sizes.least, std::max(sizes.least, (sizes.least + most) / 64 * 32), most};
}
template <class T>
double at(const std::vector<T>& v, uint32_t i) {
    return double(float(v[i]));
}
std::string with_sizes(const std::string& what, std::initializer_list<uint32_t> sizes) {
    std::string name = what;
    for (uint32_t n : sizes) name += " " + std::to_string(n);
    return name;
}
struct Moments {
    double mean = 0, variance = 0, rstd = 0;
};
template <class F>
Moments moments_of(uint32_t n, F value) {
    Moments m;
    for (uint32_t i = 0; i < n; ++i) m.mean += value(i) / n;
    for (uint32_t i = 0; i < n; ++i) m.variance += (value(i) - m.mean) * (value(i) - m.mean) / n;
    m.rstd = 1 / std::sqrt(m.variance + kNormEpsilon);
    return m;
}

// ---- DeepNorm ---------------------------------------------------------------------------------------------

template <class T, bool kReuse, bool kBasicBlock>
void check_deep_norm(uint32_t rows, uint32_t h, uint32_t k) {
    const std::string what = with_sizes("DeepNorm " + type_name<T>(), {rows, h, k});
    constexpr double kAlpha = 0.75;
    auto x = numbers<T>(rows * h, -3, 4);
    for (uint32_t i = 0; i < x.size(); ++i)
        if (i % h >= k) x[i] = T(0.0f);
    auto gx = x;
    for (uint32_t i = 0; i < x.size(); ++i) gx[i] = x[x.size() / h * h - h + i % h];  // every row is x's last row
    const auto gamma = numbers<T>(h, -2, 2), beta = numbers<T>(h, -1, 1);
    Doubles y, mean, variance;
    for (uint32_t r = 0; r < rows; ++r) {
        auto value = [&](uint32_t i) { return kAlpha * at(x, r * h + i) + at(gx, r * h + i); };
        const Moments m = moments_of(k, value);
        mean.push_back(m.mean);
        variance.push_back(m.variance);
        for (uint32_t i = 0; i < h; ++i)
            y.push_back(i < k ? (value(i) - m.mean) * m.rstd * at(gamma, i) + at(beta, i) : NAN);
    }
    for (uint32_t bytes : amounts(ascend_sim::layer_norm_sizes(rows, h, sizeof(T), kReuse))) {
        Bench b;
        const auto sx = b.put(x), sgx = b.put(gx), sg = b.put(gamma), sb = b.put(beta), sd = b.space<T>(rows * h);
        const auto sm = b.space<T>(rows), sv = b.space<T>(rows);
        const auto tmp = b.space<uint8_t>(bytes);
        const auto t =
            ascend_sim::layer_norm_tiling<DeepNormTiling>(1, rows, h, k, bytes, sizeof(T), kReuse, kBasicBlock);
        DeepNormTiling tiling = t;
        expect_rule(what, b.run([&] {
            DeepNorm<T, kReuse, kBasicBlock>(b(sd), b(sm), b(sv), b(sx), b(sgx), b(sb), b(sg), b(tmp), T(float(kAlpha)),
                                             T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? 80 + h / 8.0 : 2;
        near(what, b.get(sd), y, 2, bound);
        near(what + ": mean", b.get(sm), mean, 1, bound);
        near(what + ": variance", b.get(sv), variance, 2, bound);
    }
}

// ---- BatchNorm --------------------------------------------------------------------------------------------

template <class T, bool kBasicBlock>
void check_batch_norm(uint32_t batches, uint32_t columns) {
    const std::string what = with_sizes("BatchNorm " + type_name<T>(), {batches, columns});
    const auto x = numbers<T>(batches * columns, -3, 4);
    const auto gamma = numbers<T>(batches, -2, 2), beta = numbers<T>(batches, -1, 1);
    Doubles y(x.size()), mean, variance;
    for (uint32_t j = 0; j < columns; ++j) {
        auto value = [&](uint32_t i) { return at(x, i * columns + j); };
        const Moments m = moments_of(batches, value);
        mean.push_back(m.mean);
        variance.push_back(m.variance);
        for (uint32_t i = 0; i < batches; ++i)
            y[i * columns + j] = (value(i) - m.mean) * m.rstd * at(gamma, i) + at(beta, i);
    }
    for (uint32_t bytes : amounts(ascend_sim::batch_norm_sizes(batches, columns, sizeof(T), kBasicBlock))) {
        Bench b;
        const auto sx = b.put(x), sg = b.put(gamma), sb = b.put(beta), sd = b.space<T>(batches * columns);
        const auto sm = b.space<T>(columns), sv = b.space<T>(columns);
        const auto tmp = b.space<uint8_t>(bytes);
        BatchNormTiling tiling = ascend_sim::batch_norm_tiling(batches, columns, bytes, sizeof(T), kBasicBlock);
        expect_rule(what, b.run([&] {
            BatchNorm<T, false, kBasicBlock>(b(sd), b(sm), b(sv), b(sx), b(sg), b(sb), b(tmp), T(kNormEpsilon), tiling);
            BatchNorm<T, false, kBasicBlock>(b(sx), b(sm), b(sv), b(sx), b(sg), b(sb), b(tmp), T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? 40 + batches : 2, relative = std::is_same_v<T, float> ? 12 : 2;
        near(what, b.get(sd), y, relative, bound);
        near(what + " in place", b.get(sx), y, relative, bound);
        near(what + ": mean", b.get(sm), mean, 1, bound);
        near(what + ": variance", b.get(sv), variance, 2, bound);
    }
}

// ---- GroupNorm --------------------------------------------------------------------------------------------

template <class T, bool kReuse>
void check_group_norm(uint32_t n, uint32_t c, uint32_t hw, uint32_t groups) {
#if __CCE_AICORE__ != 200
    const std::string what = with_sizes("GroupNorm " + type_name<T>(), {n, c, hw, groups});
    const ascend_sim::GroupShape shape{n, c, hw, groups, sizeof(T)};
    const uint32_t channel = shape.channel_elements(), d = c / groups, rows = shape.rows();
    auto x = numbers<T>(n * c * channel, -3, 4);
    for (uint32_t i = 0; i < x.size(); ++i)
        if (i % channel >= hw) x[i] = T(0.0f);
    const auto gamma = numbers<T>(c, -2, 2), beta = numbers<T>(c, -1, 1);
    Doubles y(x.size(), NAN), mean, variance;
    for (uint32_t r = 0; r < rows; ++r) {
        auto position = [&](uint32_t i) { return (r * d + i / hw) * channel + i % hw; };
        const Moments m = moments_of(d * hw, [&](uint32_t i) { return at(x, position(i)); });
        mean.push_back(m.mean);
        variance.push_back(m.variance);
        for (uint32_t i = 0; i < d * hw; ++i) {
            const uint32_t channel_index = (r * d + i / hw) % c;
            y[position(i)] =
                (at(x, position(i)) - m.mean) * m.rstd * at(gamma, channel_index) + at(beta, channel_index);
        }
    }
    auto sizes = ascend_sim::group_norm_sizes(shape, kReuse);
    if (sizeof(T) == 2)
        sizes.least = std::max(sizes.least,
                               (3 * ((c + shape.group_elements()) / shape.group_elements() * shape.group_elements()) +
                                2 * ((rows + 7) / 8 * 8)) *
                                   4);
    for (uint32_t bytes : amounts(sizes)) {
        Bench b;
        const auto sx = b.put(x), sg = b.put(gamma), sb = b.put(beta), sd = b.space<T>(n * c * channel);
        const auto sm = b.space<T>(rows), sv = b.space<T>(rows);
        const auto tmp = b.space<uint8_t>(bytes);
        GroupNormTiling tiling = ascend_sim::group_norm_tiling(shape, bytes, kReuse);
        expect_rule(what, b.run([&] {
            GroupNorm<T, kReuse>(b(sd), b(sm), b(sv), b(sx), b(sg), b(sb), b(tmp), T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? 80 + d * hw / 8.0 : 2;
        near(what, b.get(sd), y, 2, bound);
        near(what + ": mean", b.get(sm), mean, 1, bound);
        near(what + ": variance", b.get(sv), variance, 2, bound);
    }
#endif
}

// ---- Welford ----------------------------------------------------------------------------------------------

template <class T, bool kReuse, bool kInPlace>
void check_welford_update(uint32_t length, uint32_t computed) {
    const std::string what = with_sizes("WelfordUpdate " + type_name<T>(), {length, computed});
    const auto x = numbers<T>(length, -3, 4);
    const auto mean = numbers<float>(length, -1, 1), m2 = numbers<float>(length, 0, 5);
    const float rec = 0.25f;
    Doubles want_mean(length, kInPlace ? 0 : 9), want_m2(length, kInPlace ? 0 : 9);
    for (uint32_t i = 0; i < length; ++i) {
        if (i < computed) {
            want_mean[i] = at(mean, i) + (at(x, i) - at(mean, i)) * rec;
            want_m2[i] = at(m2, i) + (at(x, i) - at(mean, i)) * (at(x, i) - want_mean[i]);
        } else if (kInPlace) {
            want_mean[i] = at(mean, i);
            want_m2[i] = at(m2, i);
        }
    }
    static constexpr WelfordUpdateConfig config{kInPlace};
    for (uint32_t bytes : amounts(ascend_sim::welford_update_sizes(1, length, sizeof(T), kReuse))) {
        Bench b;
        const auto sx = b.put(x);
        const auto sm = b.put(mean), sv = b.put(m2);
        const auto dm = b.put(std::vector<float>(length, 9)), dv = b.put(std::vector<float>(length, 9));
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(what, b.run([&] {
            WelfordUpdate<T, float, kReuse, config>(b(dm), b(dv), b(sm), b(sv), b(sx), b(tmp),
                                                    {1, length, computed, rec});
        }),
                    "");
        near(what + ": mean", b.get(dm), want_mean, 1, 4);
        near(what + ": m2", b.get(dv), want_m2, 2, 40);
    }
}

void check_welford_finalize(uint32_t length, uint32_t head, uint32_t head_count, uint32_t tail_count, bool counts) {
    const std::string what =
        with_sizes(counts ? "WelfordFinalize with counts" : "WelfordFinalize", {length, head, head_count, tail_count});
    const auto mean = numbers<float>(length, -1, 1), m2 = numbers<float>(length, 0, 5);
    std::vector<int32_t> number(length);
    double total = 0, want_mean = 0, want_variance = 0;
    for (uint32_t i = 0; i < length; ++i) {
        number[i] = int32_t(counts ? 1 + i % 5 : i < head ? head_count : tail_count);
        total += number[i];
    }
    for (uint32_t i = 0; i < length; ++i) want_mean += at(mean, i) * number[i] / total;
    for (uint32_t i = 0; i < length; ++i)
        want_variance += (at(m2, i) + number[i] * (at(mean, i) - want_mean) * (at(mean, i) - want_mean)) / total;
    WelfordFinalizePara para{
        head_count,           length,           head_count, head, tail_count, tail_count ? length - head : 0,
        1.0f / float(length), float(1 / total), 0};
    if (!tail_count) para.headCountLength = length;
    const auto sizes =
        kIs950 ? ascend_sim::welford_finalize_sizes_950(length) : ascend_sim::welford_finalize_sizes(length);
    for (uint32_t bytes : amounts(sizes)) {
        Bench b;
        const auto sm = b.put(mean), sv = b.put(m2), dm = b.space<float>(8), dv = b.space<float>(8);
        const auto em = b.space<float>(8), ev = b.space<float>(8);  // results of the form without sharedTmpBuffer
        const auto sc = b.put(number);
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(what, b.run([&] {
            if (counts) {
                WelfordFinalize(b(dm), b(dv), b(sm), b(sv), b(sc), b(tmp), para);
                WelfordFinalize(b(em), b(ev), b(sm), b(sv), b(sc), para);
            } else {
                WelfordFinalize(b(dm), b(dv), b(sm), b(sv), b(tmp), para);
                WelfordFinalize(b(em), b(ev), b(sm), b(sv), para);
            }
        }),
                    "");
        for (const auto& [mean, variance] : {std::pair{dm, dv}, {em, ev}}) {
            near(what + ": mean", b.get(mean), {want_mean, 0, 0, 0, 0, 0, 0, 0}, 4, 24);
            near(what + ": variance", b.get(variance), {want_variance, 0, 0, 0, 0, 0, 0, 0}, 24, 4);
        }
    }
}

// A vector of 257 repeats: an instruction adds at most 255 repeats to the first one. UB holds the operands only on
// Ascend310P, and only if one tensor is both inputs, which needs a lenient launch.
void check_welford_of_many_repeats() {
    if (!ascend_sim::kIs310p) return;
    constexpr uint32_t n = 257 * 64;
    const auto x = numbers<float>(n, 0, 5);
    double mean = 0, variance = 0;
    for (float value : x) mean += double(value) / n;
    for (float value : x) variance += (double(value) + 2 * (double(value) - mean) * (double(value) - mean)) / (2.0 * n);
    WelfordFinalizePara para{2, n, 2, n, 0, 0, 1.0f / n, 0.5f / n, 0};
    Bench b(Options{false, "SIM-OVERLAP-01"});
    const auto sx = b.put(x), dm = b.space<float>(8), dv = b.space<float>(8);
    const auto tmp = b.space<uint8_t>(ascend_sim::welford_finalize_sizes(n).most);
    expect_rule("WelfordFinalize", b.run([&] { WelfordFinalize(b(dm), b(dv), b(sx), b(sx), b(tmp), para); }), "");
    near("WelfordFinalize of many repeats: mean", b.get(dm), {mean, 0, 0, 0, 0, 0, 0, 0}, 4, 24);
    near("WelfordFinalize of many repeats: variance", b.get(dv), {variance, 0, 0, 0, 0, 0, 0, 0}, 24, 4);
}

// ---- gradients --------------------------------------------------------------------------------------------

template <class T, bool kReuse>
void check_grad(uint32_t rows, uint32_t h) {
    const std::string what = with_sizes("LayerNormGrad " + type_name<T>(), {rows, h});
    const auto x = numbers<T>(rows * h, -3, 4), gamma = numbers<T>(h, -2, 2);
    auto dy = numbers<T>(rows * h + 9, -1, 1);
    dy.erase(dy.begin(), dy.begin() + 9);
    std::vector<T> mean, variance;
    Doubles want_x, want_res;
    for (uint32_t r = 0; r < rows; ++r) {
        const Moments m = moments_of(h, [&](uint32_t i) { return at(x, r * h + i); });
        mean.push_back(T(float(m.mean + 0.5)));  // with the exact mean, the sum of the deviations would be about 0
        variance.push_back(T(float(m.variance)));
        const double mu = at(mean, r), rstd = 1 / std::sqrt(at(variance, r) + kNormEpsilon);
        double pd_variance = 0, pd_mean = 0, sum = 0;
        for (uint32_t i = 0; i < h; ++i) {
            const double g = at(dy, r * h + i) * at(gamma, i), d = at(x, r * h + i) - mu;
            pd_variance += g * d * -0.5 * rstd * rstd * rstd;
            pd_mean += -g * rstd;
            sum += -2 * d;
        }
        pd_mean += pd_variance * sum / h;
        for (uint32_t i = 0; i < h; ++i) {
            const double g = at(dy, r * h + i) * at(gamma, i), d = at(x, r * h + i) - mu;
            want_x.push_back(g * rstd + pd_variance * 2 / h * d + pd_mean / h);
            want_res.push_back(d * rstd);
        }
    }
    auto sizes = ascend_sim::layer_norm_grad_sizes(rows, h, sizeof(T), kReuse, kIs950);
    if (!kIs950) {  // the tiling rounds rows up to a block, so that the least memory may not hold them
        const uint32_t arrays = ascend_sim::layer_norm_grad_arrays(sizeof(T), kReuse), block = 32 / sizeof(T);
        sizes = {arrays * 4 * h * ((rows + block - 1) / block * block), arrays * 4 * h * block};
    }
    for (uint32_t bytes : {sizes.least, sizes.most}) {
        Bench b;
        const auto sx = b.put(x), sdy = b.put(dy), sg = b.put(gamma), sm = b.put(mean), sv = b.put(variance);
        const auto dx = b.space<T>(rows * h), res = b.space<T>(rows * h);
        const auto tmp = b.space<uint8_t>(std::max(32u, bytes));
        LayerNormGradTiling tiling =
            ascend_sim::layer_norm_grad_tiling(1, rows, h, h, bytes, sizeof(T), kReuse, kIs950);
        expect_rule(what, b.run([&] {
            auto t = b(tmp);
            LayerNormGrad<T, kReuse>(b(dx), b(res), b(sdy), b(sx), b(sv), b(sm), b(sg), t, T(kNormEpsilon), tiling);
        }),
                    "");
        const double bound = std::is_same_v<T, float> ? 64 + h / 16.0 : 1.5;
        near(what + ": x", b.get(dx), want_x, 2, bound);
        near(what + ": gamma's part", b.get(res), want_res, 8, bound);
    }
}

template <class T, bool kReuse>
void check_grad_beta(uint32_t rows, uint32_t h, uint32_t k) {
    const std::string what = with_sizes("LayerNormGradBeta " + type_name<T>(), {rows, h, k});
    const auto res = numbers<T>(rows * h, -2, 2);
    auto dy = numbers<T>(rows * h + 9, -1, 1);
    dy.erase(dy.begin(), dy.begin() + 9);
    Doubles gamma(k, 0), beta(k, 0);
    for (uint32_t i = 0; i < rows * h; ++i) {
        if (i % h >= k) continue;
        gamma[i % h] += at(res, i) * at(dy, i);
        beta[i % h] += at(dy, i);
    }
    for (uint32_t bytes : amounts(ascend_sim::layer_norm_grad_beta_sizes(rows, h, sizeof(T)))) {
        Bench b;
        const auto sr = b.put(res), sdy = b.put(dy), dg = b.space<T>(k), db = b.space<T>(k);
        const auto tmp = b.space<uint8_t>(bytes);
        const auto tiling = ascend_sim::layer_norm_grad_beta_tiling(1, rows, h, k, bytes, sizeof(T));
        expect_rule(what, b.run([&] { LayerNormGradBeta<T, kReuse>(b(dg), b(db), b(sr), b(sdy), b(tmp), tiling); }),
                    "");
        near(what + ": gamma", b.get(dg), gamma, 2, 4.0 * rows);
        near(what + ": beta", b.get(db), beta, 2, 2.0 * rows);
    }
}

}  // namespace

int main() {
    for (uint32_t rows : {1u, 5u, 8u, 40u, 130u})
        for (auto [h, k] : {std::pair{16u, 16u}, {32u, 30u}, {64u, 64u}, {208u, 200u}, {256u, 256u}}) {
            if (rows * h > 4096) continue;
            check_deep_norm<float, false, false>(rows, h, k);
            check_deep_norm<float, true, false>(rows, h, k);
            check_deep_norm<half, false, false>(rows, h, k);
            if (rows % 8 == 0 && h % 64 == 0) {
                check_deep_norm<float, false, true>(rows, h, k);
                check_deep_norm<half, true, true>(rows, h, k);
            }
            check_batch_norm<float, false>(rows, h);
            check_batch_norm<half, false>(rows, h);
            if (rows % 8 == 0 && h % 64 == 0) {
                check_batch_norm<float, true>(rows, h);
                check_batch_norm<half, true>(rows, h);
            }
            check_grad<float, false>(rows, h);
            check_grad<float, true>(rows, h);
            check_grad<half, false>(rows, h);
            check_grad_beta<float, false>(rows, h, k);
            check_grad_beta<float, true>(rows, h, k);
            check_grad_beta<half, false>(rows, h, k);
        }
    for (auto [n, c, hw, groups] :
         {std::array<uint32_t, 4>{1, 4, 16, 2}, {2, 16, 60, 8}, {3, 6, 100, 2}, {2, 24, 9, 3}}) {
        check_group_norm<float, false>(n, c, hw, groups);
        check_group_norm<float, true>(n, c, hw, groups);
        check_group_norm<half, false>(n, c, hw, groups);
    }
    for (auto [length, computed] : {std::pair{16u, 16u}, {64u, 33u}, {1024u, 1000u}, {4096u, 4096u}}) {
        check_welford_update<float, false, false>(length, computed);
        check_welford_update<float, true, true>(length, computed);
        check_welford_update<half, false, true>(length, computed);
    }
    for (uint32_t length : {8u, 64u, 72u, 1024u, 8192u}) {
        check_welford_finalize(length, length, 3, 0, false);
        check_welford_finalize(length, length / 2, 5, 4, false);
        check_welford_finalize(length, 0, 1, 1, true);
    }
    check_welford_of_many_repeats();
    return finish("test_library_more_norms");
}
