// Library functions of elements, rows and norms: each case breaks one of their rules. The last cases check the
// counters and times of the report.
#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr bool kIs950 = ascend_sim::kIs950;
constexpr float kNormEpsilon = 0.0009765625f;

// Checks that the report of the last launch contains the text.
void expect_message(const std::string& what, const char* text) {
    check(std::strstr(ascend_sim_report(), text) != nullptr, what + ": the report has no \"" + text + "\"");
}

// ---- functions of elements --------------------------------------------------------------------------------

void check_elements() {
    Bench b;
    constexpr uint32_t n = 1024;
    const auto x = b.put(numbers<float>(n, 0.1f, 0.9f)), d = b.space<float>(n);
    const auto tmp = b.space<uint8_t>(7 * 4 * n);
    expect_rule("Erf", b.run([&] { Erf(b(d), b(x), b(tmp), n); }), "");
    expect_rule("Erf: count", b.run([&] { Erf(b(d), b(x), b(tmp), n + 8); }), "SIM-BOUNDS-01");
    expect_rule("Erf: alignment", b.run([&] { Erf(b(d), b(x)[1], b(tmp), 64); }), "SIM-ALIGN-01");
    expect_rule("Tanh: overlap", b.run([&] { Tanh(b(x)[64], b(x), b(tmp), 128); }), "SIM-OVERLAP-01");
    if (kIs950) return;  // its functions need less temporary memory, or none
    auto little = [&](uint32_t bytes) {
        auto t = b(tmp);
        t.SetSize(bytes);
        return t;
    };
    expect_rule("Erf: least memory", b.run([&] { Erf(b(d), b(x), little(768), n); }), "");
    expect_rule("Erf: memory", b.run([&] { Erf(b(d), b(x), little(736), n); }), "SIM-WORK-01");
    expect_rule("Sigmoid: memory", b.run([&] { Sigmoid(b(d), b(x), little(224), n); }), "SIM-WORK-01");
    expect_rule("Gelu: memory in the result", b.run([&] { Gelu(b(d), b(x), b(d).ReinterpretCast<uint8_t>(), 64); }),
                "SIM-OVERLAP-01");
    expect_rule("Power: memory", b.run([&] { Power(b(d), b(x), b(x), little(1024), 64); }), "SIM-WORK-01");
}

// ---- SoftMax and related functions ------------------------------------------------------------------------

void check_softmax() {
    Bench b;
    constexpr uint32_t m = 4, k = 64;
    const auto x = b.put(numbers<float>(m * k, -1, 1)), d = b.space<float>(m * k);
    const auto sums = b.space<float>(m * 8), maxima = b.space<float>(m * 8);
    const auto tmp = b.space<uint8_t>(8192);
    const SoftMaxTiling tiling = ascend_sim::softmax_tiling(m, k, 4, 8192);
    auto call = [&](const SoftMaxTiling& t, const SoftMaxShapeInfo& info) {
        return b.run([&] { SoftMax<float>(b(d), b(sums), b(maxima), b(x), b(tmp), t, info); });
    };
    expect_rule("SoftMax", call(tiling, {m, k, m, k}), "");
    expect_rule("SoftMax: no shape", call(tiling, {}), "SIM-COUNT-04");
    expect_message("SoftMax: no shape", "the shape is missing");
    expect_rule("SoftMax: part of a block", call(tiling, {m, 60, m, 60}), "SIM-COUNT-04");
    expect_rule("SoftMax: more elements than the row has", call(tiling, {m, 56, m, 64}), "SIM-COUNT-04");
    expect_rule("SoftMax: rows", call(ascend_sim::softmax_tiling(8, k, 4, 8192), {8, k, 8, k}), "SIM-BOUNDS-01");
    auto no_rows = tiling;
    no_rows.splitM = 0;
    expect_rule("SoftMax: no rows in a round", call(no_rows, {m, k, m, k}), "SIM-WORK-01");
    expect_rule("SoftMax: sums in the maxima", b.run([&] {
        SoftMax<float>(b(d), b(sums), b(sums), b(x), b(tmp), tiling, SoftMaxShapeInfo{m, k, m, k});
    }),
                "SIM-OVERLAP-01");
    if (!kIs950)
        expect_rule("SoftMax: memory", b.run([&] {
            SoftMax<float>(b(d), b(sums), b(maxima), b(x), b(tmp)[7680], SoftMaxTiling(), SoftMaxShapeInfo{m, k, m, k});
        }),
                    "SIM-WORK-01");
    if (!kIs950)  // there, it needs no temporary memory
        expect_rule("SimpleSoftMax: sums in the temporary memory", b.run([&] {
            SimpleSoftMax<float>(b(d), b(tmp).ReinterpretCast<float>(), b(maxima), b(x), b(tmp), tiling,
                                 SoftMaxShapeInfo{m, k, m, k});
        }),
                    "SIM-OVERLAP-01");
    expect_rule("AdjustSoftMaxRes: rows", b.run([&] {
        AdjustSoftMaxRes(b(d)[k], b(maxima), 0x7f800000, 0.5f, {m, k, m, k});  // no maximum is infinite
    }),
                "SIM-BOUNDS-01");
}

// ---- norms ------------------------------------------------------------------------------------------------

struct Parts {
    Slot<float> d, mean, variance, x, gamma, beta;
    Slot<uint8_t> tmp;
};
Parts parts_of(Bench& b, uint32_t rows, uint32_t h) {
    return {b.space<float>(rows * h),
            b.space<float>((rows + 7) / 8 * 8),
            b.space<float>((rows + 7) / 8 * 8),
            b.put(numbers<float>(rows * h, -1, 1)),
            b.put(numbers<float>(h, -1, 1)),
            b.put(numbers<float>(h, -1, 1)),
            b.space<uint8_t>(16384)};
}

void check_layer_norm() {
    Bench b;
    const Parts p = parts_of(b, 6, 64);
    auto call = [&](const LayerNormTiling& t, Slot<float> d, uint32_t from = 0) {
        return b.run([&] {
            auto tiling = t;
            LayerNorm<float, false>(b(d), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(p.beta), b(p.tmp)[from],
                                    kNormEpsilon, tiling);
        });
    };
    const auto good = ascend_sim::layer_norm_tiling(2, 3, 64, 60, 16384, 4, false);
    expect_rule("LayerNorm", call(good, p.d), "");
    expect_rule("LayerNorm: no round", call(LayerNormTiling(), p.d), "SIM-COUNT-04");
    auto bad = good;
    bad.originalHLength = 65;
    expect_rule("LayerNorm: elements that count", call(bad, p.d), "SIM-COUNT-04");
    expect_rule("LayerNorm: part of a block", call(ascend_sim::layer_norm_tiling(2, 3, 60, 60, 16384, 4, false), p.d),
                "SIM-COUNT-04");
    expect_rule("LayerNorm: bounds", call(ascend_sim::layer_norm_tiling(2, 4, 64, 64, 16384, 4, false), p.d),
                "SIM-BOUNDS-01");
    expect_rule("LayerNorm: memory", call(good, p.d, 16000), "SIM-WORK-01");
    expect_rule("LayerNorm: result in gamma", b.run([&] {
        auto tiling = good;
        LayerNorm<float, false>(b(p.d), b(p.gamma), b(p.variance), b(p.x), b(p.gamma), b(p.beta), b(p.tmp),
                                kNormEpsilon, tiling);
    }),
                "SIM-OVERLAP-01");
}

void check_normalize() {
    Bench b;
    constexpr uint32_t kRows = 5;
    const Parts p = parts_of(b, kRows + 1, 64);
    const auto rstd = b.space<float>(8);
    auto call = [&](Slot<float> d, Slot<float> beta, uint32_t h) {
        return b.run([&] {
            Normalize<float, float>(b(d), b(rstd), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(beta), b(p.tmp),
                                    kNormEpsilon, {kRows, h, h});
        });
    };
    const Slot<float> rows_after_first{p.x.byte + 4 * 64, kRows * 64};
    expect_rule("Normalize", call(p.d, p.beta, 64), "");
    expect_rule("Normalize: part of a block", call(p.d, p.beta, 60), "SIM-COUNT-04");
    expect_rule("Normalize: result in a part of the input", call(rows_after_first, p.beta, 64), "SIM-OVERLAP-01");
    expect_rule("Normalize: beta in the result", call(p.d, p.d, 64), "SIM-OVERLAP-01");
    expect_rule("Normalize without beta", b.run([&] {
        Normalize<float, float, false, NLCFG_NOBETA>(b(p.d), b(rstd), b(p.mean), b(p.variance), b(p.x), b(p.gamma),
                                                     LocalTensor<float>(), b(p.tmp), kNormEpsilon, {kRows, 64, 64});
    }),
                "");
}

void check_rms_norm() {
    Bench b;
    const Parts p = parts_of(b, 8, 64);
    auto call = [&](auto basic, const RmsNormTiling& t, uint32_t from = 0) {
        return b.run([&] {
            RmsNorm<float, decltype(basic)::value>(b(p.d), b(p.x), b(p.gamma), b(p.tmp)[from], kNormEpsilon, t);
        });
    };
    const std::false_type plain;
    const std::true_type basic;
    const auto good = ascend_sim::rms_norm_tiling(2, 4, 64, 64, 16384, 4, false);
    expect_rule("RmsNorm", call(plain, good), "");
    expect_rule("RmsNorm in basic blocks", call(basic, good), "");
    expect_rule("RmsNorm: no round", call(plain, RmsNormTiling()), "SIM-COUNT-04");
    expect_rule("RmsNorm: rows of basic blocks", call(basic, ascend_sim::rms_norm_tiling(1, 7, 64, 64, 16384, 4, true)),
                "SIM-COUNT-04");
    expect_rule("RmsNorm: part of a block", call(plain, ascend_sim::rms_norm_tiling(2, 4, 60, 60, 16384, 4, false)),
                "SIM-COUNT-04");
    expect_rule("RmsNorm: memory", call(plain, good, 16128), "SIM-WORK-01");
}

void check_other_norms() {
    Bench b;
    const Parts p = parts_of(b, 8, 64);
    auto deep = [&](auto basic, DeepNormTiling t) {
        return b.run([&] {
            DeepNorm<float, false, decltype(basic)::value>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.x), b(p.beta),
                                                           b(p.gamma), b(p.tmp), 0.5f, kNormEpsilon, t);
        });
    };
    auto tiling = [](uint32_t rows, uint32_t h, uint32_t original) {
        return ascend_sim::layer_norm_tiling<DeepNormTiling>(1, rows, h, original, 16384, 4, false);
    };
    const std::false_type plain;
    const std::true_type basic;
    expect_rule("DeepNorm: no round", deep(plain, DeepNormTiling()), "SIM-COUNT-04");
    auto too_long = tiling(8, 64, 64);
    too_long.hLength = too_long.originalHLength = 2048;
    expect_rule("DeepNorm: H", deep(plain, too_long), "SIM-COUNT-04");
    expect_rule("DeepNorm: basic block with filling", deep(basic, tiling(8, 64, 60)), "SIM-COUNT-04");
    expect_rule("DeepNorm: rows of basic blocks", deep(basic, tiling(7, 64, 64)), "SIM-COUNT-04");
    auto batch = [&](auto basic, BatchNormTiling t) {
        return b.run([&] {
            BatchNorm<float, false, decltype(basic)::value>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.gamma),
                                                            b(p.beta), b(p.tmp), kNormEpsilon, t);
        });
    };
    expect_rule("BatchNorm: no round", batch(plain, BatchNormTiling()), "SIM-COUNT-04");
    expect_rule("BatchNorm: basic block", batch(basic, ascend_sim::batch_norm_tiling(7, 64, 16384, 4, true)),
                "SIM-COUNT-04");
    expect_rule("BatchNorm: part of a block", batch(plain, ascend_sim::batch_norm_tiling(8, 60, 16384, 4, false)),
                "SIM-COUNT-04");
    expect_rule("BatchNorm, by default without basic blocks", b.run([&] {
        BatchNormTiling t = ascend_sim::batch_norm_tiling(8, 8, 16384, 4, false);
        BatchNorm<float>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(p.beta), b(p.tmp), kNormEpsilon, t);
    }),
                "");
#if __CCE_AICORE__ != 200
    // It needs memory for three arrays, but two if it may overwrite the source.
    expect_rule("GroupNorm, by default without isReuseSource", b.run([&] {
        GroupNormTiling t = ascend_sim::group_norm_tiling({2, 4, 64, 2, 4}, 16384, false);
        auto two_arrays = b(p.tmp);
        two_arrays.SetSize(2 * 8 * 64 * 4);
        GroupNorm<float>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(p.beta), two_arrays, kNormEpsilon, t);
    }),
                "SIM-WORK-01");
    GroupNormTiling no_groups;
    expect_rule("GroupNorm: no round", b.run([&] {
        GroupNorm<float, false>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(p.beta), b(p.tmp), kNormEpsilon,
                                no_groups);
    }),
                "SIM-COUNT-04");
#endif
    expect_rule("LayerNormGrad: no round", b.run([&] {
        auto t = b(p.tmp);
        LayerNormGradTiling none;
        LayerNormGrad<float, false>(b(p.d), b(p.d), b(p.x), b(p.x), b(p.variance), b(p.mean), b(p.gamma), t,
                                    kNormEpsilon, none);
    }),
                "SIM-COUNT-04");
    expect_rule("LayerNormGradBeta: no round", b.run([&] {
        LayerNormGradBeta<float, false>(b(p.gamma), b(p.beta), b(p.x), b(p.d), b(p.tmp), LayerNormGradBetaTiling());
    }),
                "SIM-COUNT-04");
}

void check_gradients() {
    Bench b;
    constexpr uint32_t kRows = 8, h = 64;
    const Parts p = parts_of(b, kRows, h);
    const auto dy_values = numbers<float>(kRows * h, -2, 2), x_values = b.get(p.x);
    const auto dy = b.put(dy_values), res = b.space<float>(kRows * h);
    auto grad = [&](Slot<float> d, Slot<float> res, Slot<float> gamma, uint32_t bytes = 16384) {
        return b.run([&] {
            auto t = b(p.tmp);
            t.SetSize(bytes);
            LayerNormGradTiling tiling =
                ascend_sim::layer_norm_grad_tiling(1, kRows, h, h, 6 * 4 * kRows * h, 4, false, kIs950);
            LayerNormGrad<float>(b(d), b(res), b(dy), b(p.x), b(p.variance), b(p.mean), b(gamma), t, kNormEpsilon,
                                 tiling);
        });
    };
    const Slot<float> start_of_d{p.d.byte, h}, end_of_res{res.byte + 4 * (kRows - 1) * h, h};
    expect_rule("LayerNormGrad", grad(p.d, res, p.gamma), "");
    expect("LayerNormGrad: inputDy, by default without isReuseSource", b.get(dy), dy_values);
    expect("LayerNormGrad: inputX, by default without isReuseSource", b.get(p.x), x_values);
    expect_rule("LayerNormGrad: memory, by default without isReuseSource", grad(p.d, res, p.gamma, 32), "SIM-WORK-01");
    expect_rule("LayerNormGrad: gamma in outputPdX", grad(p.d, res, start_of_d), "SIM-OVERLAP-01");
    expect_rule("LayerNormGrad: gamma in resForGamma", grad(p.d, res, end_of_res), "SIM-OVERLAP-01");
    expect_rule("LayerNormGrad: both results in inputX", grad(p.x, p.x, p.gamma), "SIM-OVERLAP-01");
    expect_rule("LayerNormGrad: resForGamma in place of inputDy", grad(p.d, dy, p.gamma), "");
    // The scalar unit writes the last element of a tensor, and V does not wait for it.
    auto grad_after_write = [&](Slot<float> written) {
        return b.run([&] {
            auto t = b(p.tmp);
            LayerNormGradTiling tiling =
                ascend_sim::layer_norm_grad_tiling(1, kRows, h, h, 6 * 4 * kRows * h, 4, false, kIs950);
            b(written).SetValue(kRows * h - 1, 0.5f);
            LayerNormGrad<float>(b(p.d), b(res), b(dy), b(p.x), b(p.variance), b(p.mean), b(p.gamma), t, kNormEpsilon,
                                 tiling);
        });
    };
    for (const Slot<float>& written : {dy, p.x, p.d, res})
        expect_rule("LayerNormGrad: all elements of each matrix", grad_after_write(written), "SIM-HAZARD-03");
    auto beta = [&](auto reuse, Slot<float> pd_gamma, uint32_t bytes) {
        return b.run([&] {
            auto t = b(p.tmp);
            t.SetSize(bytes);
            const auto tiling = ascend_sim::layer_norm_grad_beta_tiling(1, kRows, h, h, 16384, 4);
            if constexpr (decltype(reuse)::value)
                LayerNormGradBeta<float, true>(b(pd_gamma), b(p.beta), b(res), b(dy), t, tiling);
            else
                LayerNormGradBeta<float>(b(pd_gamma), b(p.beta), b(res), b(dy), t, tiling);
        });
    };
    const std::false_type plain;
    const std::true_type reuse;
    const Slot<float> end_of_dy{dy.byte + 4 * (kRows - 1) * h, h};
    expect_rule("LayerNormGradBeta", beta(plain, p.gamma, 16384), "");
    expect_rule("LayerNormGradBeta: result in the last row of inputDy", beta(plain, end_of_dy, 16384),
                "SIM-OVERLAP-01");
    expect_rule("LayerNormGradBeta: memory, by default without isReuseSource", beta(plain, p.gamma, 32), "SIM-WORK-01");
    expect_rule("LayerNormGradBeta with isReuseSource", beta(reuse, p.gamma, 32), "");
}

void check_welford() {
    Bench b;
    constexpr uint32_t n = 64;
    const auto x = b.put(numbers<float>(n, -1, 1)), mean = b.put(numbers<float>(n, -1, 1));
    const auto m2 = b.put(numbers<float>(n, 0, 1)), dm = b.space<float>(n), dv = b.space<float>(n);
    const auto tmp = b.space<uint8_t>(2048);
    auto update = [&](const WelfordUpdateParam& p, uint32_t from = 0) {
        return b.run([&] { WelfordUpdate<float, float, false>(b(dm), b(dv), b(mean), b(m2), b(x), b(tmp)[from], p); });
    };
    expect_rule("WelfordUpdate", update({1, n, n, 0.5f}), "");
    expect_rule("WelfordUpdate: rows", update({2, n, n, 0.5f}), "SIM-COUNT-04");
    expect_rule("WelfordUpdate: part of a block", update({1, 60, 60, 0.5f}), "SIM-COUNT-04");
    expect_rule("WelfordUpdate: computed", update({1, n, n + 1, 0.5f}), "SIM-COUNT-04");
    if (!kIs950) expect_rule("WelfordUpdate: memory", update({1, n, n, 0.5f}, 1792), "SIM-WORK-01");
    expect_rule("WelfordUpdate: variances in place", b.run([&] {
        WelfordUpdate<float, float, false>(b(dm), b(m2), b(mean), b(m2), b(x), b(tmp), {1, n, n, 0.5f});
    }),
                "SIM-OVERLAP-01");
    auto finalize = [&](WelfordFinalizePara p, uint32_t from = 0) {
        return b.run([&] { WelfordFinalize(b(dm), b(dv), b(mean), b(m2), b(tmp)[from], p); });
    };
    const float rec = 1.0f / n;
    expect_rule("WelfordFinalize", finalize({2, n, 2, n, 0, 0, rec, rec / 2, 0}), "");
    expect_rule("WelfordFinalize: elements", finalize({2, 60, 2, 60, 0, 0, rec, rec / 2, 0}), "SIM-COUNT-04");
    expect_rule("WelfordFinalize: parts", finalize({2, n, 2, 60, 1, 8, rec, rec / 2, 0}), "SIM-COUNT-04");
    if (!kIs950) expect_rule("WelfordFinalize: tail", finalize({2, n, 2, 56, 0, 8, rec, rec / 2, 0}), "SIM-COUNT-04");
    expect_rule("WelfordFinalize: memory", finalize({2, n, 2, n, 0, 0, rec, rec / 2, 0}, 1952), "SIM-WORK-01");
}

// ---- counters of the report -------------------------------------------------------------------------------

struct Counter {
    const char *what, *counter;
    int want;
    std::function<void()> call;
};
void check_counter(Bench& b, const Counter& c) {
    expect_rule(c.what, b.run(c.call), "");
    const int got = reported(c.counter);
    check(got == c.want,
          std::string(c.what) + ": " + c.counter + " is " + std::to_string(got) + ", not " + std::to_string(c.want));
    check(!std::strstr(ascend_sim_report(), "SIM-COUNT-05"), std::string(c.what) + ": an instruction does nothing");
}

#if __CCE_AICORE__ == 220
void check_counters() {
    Bench b;
    const auto x = b.put(numbers<float>(16 * 128, 0.5f, 2)), d = b.space<float>(16 * 128);
    const Parts p = parts_of(b, 16, 80);
    const uint32_t three_rows[] = {3, 200}, one_row[] = {1, 13}, column[] = {8, 1}, wide[] = {8, 100};
    LayerNormTiling layer_tiling = ascend_sim::layer_norm_tiling(1, 16, 80, 80, 16384, 4, false);
    const auto rms_tiling = ascend_sim::rms_norm_tiling(1, 16, 64, 64, 16384, 4, true);
    const Counter cases[] = {
        {"Silu: the steps of one run", "instructions_V", 4, [&] { Silu(b(d), b(x), 1000); }},
        {"Gelu: 13 steps for each 96 elements", "instructions_V", 11 * 13,
         [&] {
             auto memory = b(p.tmp);
             memory.SetSize(768);
             Gelu(b(d), b(x), memory, 1000);
         }},
        // Brcb, and Copy and GatherMask of two repeats for each row.
        {"Broadcast to rows with a part of a block", "vector_repeats", 1 + 2 * 8 * 2,
         [&] { Broadcast<float, 2, 1>(b(d), b(x), wide, column, b(p.tmp)); }},
        // DataCopy, two Adds, PairReduceSum and two BlockReduceSums.
        {"ReduceSum of rows", "instructions_V", 6,
         [&] { ReduceSum<float, Pattern::Reduce::AR>(b(d), b(x), b(p.tmp), three_rows, true); }},
        {"ReduceSum of rows", "vector_repeats", 6 + 2 * 3 + 6 + 3 + 1,
         [&] { ReduceSum<float, Pattern::Reduce::AR>(b(d), b(x), b(p.tmp), three_rows, true); }},
        // Adds, three Maxes and two BlockReduceMaxes.
        {"ReduceMax of rows", "instructions_V", 6,
         [&] { ReduceMax<float, Pattern::Reduce::AR>(b(d), b(x), b(p.tmp), three_rows, true); }},
        // Adds, Mul of the rest, Brcb, three Muls, Adds, Duplicate, GatherMask.
        {"ReduceProd of a row", "instructions_V", 9,
         [&] { ReduceProd<float, Pattern::Reduce::AR>(b(d), b(x), b(p.tmp), one_row, true); }},
        // Nine steps for all rows; two sums, which are an Add for each row and two WholeReduceSums; two Selects, a Mul
        // and an Add for each row.
        {"LayerNorm of rows of 80", "instructions_V", 9 + 2 * (16 + 2) + 4 * 16,
         [&] {
             LayerNorm<float>(b(p.d), b(p.mean), b(p.variance), b(p.x), b(p.gamma), b(p.beta), b(p.tmp), kNormEpsilon,
                              layer_tiling);
         }},
        // 11 instructions for the mask, 13 barriers, and the issue of 11 vector instructions with their barriers and of
        // two copies.
        {"RmsNorm in basic blocks", "instructions_S", 11 + 13 + 2 * 11 + 2,
         [&] { RmsNorm<float, true>(b(p.d), b(p.x), b(p.gamma), b(p.tmp), kNormEpsilon, rms_tiling); }},
    };
    for (const Counter& c : cases) check_counter(b, c);
}

// The temporary memory begins with three arrays of a block for each row: the sums, an unused one, and the earlier sums
// times their factors. The only two sources that share banks of UB are the first and the third array.
void check_banks_of_softmax_flash() {
    constexpr uint32_t m = 8, k = 8;
    const SoftMaxTiling tiling = ascend_sim::softmax_tiling(m, k, 4, 4096);
    auto busy = [&](const char* figures) {
        Bench b(Options{false, nullptr, figures});
        const auto tmp = b.space<uint8_t>(4096);
        const std::vector<float> values(m * k, 1);  // 256 bytes: half of the groups of banks
        const auto in_sum = b.put(values), in_max = b.put(values), d = b.put(values), x = b.put(values),
                   sum = b.put(values), factor = b.put(values), max = b.put(values);
        expect_rule("SoftmaxFlash", b.run([&] {
            SoftmaxFlash<float>(b(d), b(sum), b(max), b(x), b(factor), b(in_sum), b(in_max), b(tmp), tiling, true,
                                SoftMaxShapeInfo{m, k, m, k});
        }),
                    "");
        return reported("busy_V");
    };
    check(busy(nullptr) - busy("bank_cycles=0") == 1, "SoftmaxFlash: one cycle for banks");
}
#endif

// Counts the repeats of LayerNormGrad's steps in UB.
void check_counter_of_gradients() {
    if (kIs950) return;  // one instruction there
    constexpr uint32_t kRows = 8, h = 128, kBytes = 6 * 4 * kRows * h;
    Bench b;
    const Parts p = parts_of(b, kRows, h);
    const auto dy = b.space<float>(kRows * h), res = b.space<float>(kRows * h);
    const auto tmp = b.space<uint8_t>(kBytes);
    LayerNormGradTiling tiling = ascend_sim::layer_norm_grad_tiling(1, kRows, h, h, kBytes, 4, false, false);
    // 12 steps of all elements, 5 steps that fill rows with a value of each row, 3 sums of two repeats a row, which
    // take a third repeat, and 15 steps of a value of each row.
    check_counter(b, {"LayerNormGrad of rows of 128", "vector_repeats", kRows * ((12 + 5) * 2 + 3 * 3) + 15, [&] {
                          auto t = b(tmp);
                          LayerNormGrad<float>(b(p.d), b(res), b(dy), b(p.x), b(p.variance), b(p.mean), b(p.gamma), t,
                                               kNormEpsilon, tiling);
                      }});
}

// A function is one instruction on Ascend950. Here a plain operation takes 3 cycles for a repeat, instead of 1.
void check_times_in_registers() {
    if (!kIs950) return;
    constexpr uint32_t m = 5, k = 80, kRepeats = 16;
    constexpr int kIssue = 34, kFunction = 4, kPlain = 3;
    Bench b(Options{false, nullptr, "repeat_cycles=3"});
    const auto x = b.put(numbers<float>(1000, 0.5f, 2)), y = b.put(numbers<float>(1000, 0.5f, 2));
    const auto d = b.space<float>(1000);
    const auto tmp = b.space<uint8_t>(8192);
    const SoftMaxTiling tiling = ascend_sim::softmax_tiling(m, k, 4, 8192, ascend_sim::SoftmaxKind::Grad);
    const SoftMaxShapeInfo info{m, k, m, k};
    const Counter cases[] = {
        // A load, the logarithm and a store.
        {"Log", "busy_V", kIssue + int(kRepeats) * (2 * kPlain + kFunction), [&] { Log(b(d), b(x), 1000); }},
        // Two loads, a maximum, a product and a store.
        {"ReGlu", "busy_V", kIssue + int(kRepeats) * 5 * kPlain, [&] { ReGlu(b(d), b(x), b(y), b(tmp), 1000); }},
        {"SoftmaxGrad", "busy_V", kIssue + int(m) * (2 * 8 + 2) * kPlain,
         [&] { SoftmaxGrad(b(d), b(y), b(x), b(tmp), tiling, false, info); }},
        {"SoftmaxGradFront", "busy_V", kIssue + int(m) * (2 * 4 + 2) * kPlain,
         [&] { SoftmaxGradFront(b(d), b(y), b(x), b(tmp), tiling, info); }},
    };
    for (const Counter& c : cases) check_counter(b, c);
}

}  // namespace

int main() {
    check_elements();
    check_softmax();
    check_layer_norm();
    check_normalize();
    check_rms_norm();
    check_other_norms();
    check_gradients();
    check_welford();
#if __CCE_AICORE__ == 220
    check_counters();
    check_banks_of_softmax_flash();
#endif
    check_counter_of_gradients();
    check_times_in_registers();
    return finish("test_library_refusals");
}
