// AscendQuant, AscendDequant and AscendAntiQuant, compared bit by bit with their formulas. Each step rounds as the
// function's page says.
#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr bool kIs950 = ascend_sim::kIs950;

std::string with_sizes(const std::string& what, std::initializer_list<uint32_t> sizes) {
    std::string name = what;
    for (uint32_t n : sizes) name += " " + std::to_string(n);
    return name;
}
int8_t to_int8(half v) {
    const double r = std::nearbyint(double(float(v)));
    return int8_t(std::min(127.0, std::max(-128.0, r)));
}
half times(half a, half b) { return half(float(a) * float(b)); }
half plus(half a, half b) { return half(float(a) + float(b)); }

template <class T>
void check_quant(uint32_t rows, uint32_t columns) {
    const std::string what = with_sizes("AscendQuant " + type_name<T>(), {rows, columns});
    const uint32_t n = rows * columns;
    const auto x = numbers<T>(n, -40, 40), scales = numbers<T>(columns, 0.5f, 3.5f),
               offsets = numbers<T>(columns, -9, 9);
    std::vector<int8_t> all(n), by_column(n), with_offset(n);
    for (uint32_t i = 0; i < n; ++i) {
        const half h = half(float(x[i])), s = half(float(scales[i % columns])), o = half(float(offsets[i % columns]));
        all[i] = to_int8(plus(times(h, half(2.5f)), half(-3.0f)));
        by_column[i] = to_int8(plus(times(h, s), o));
        with_offset[i] = to_int8(plus(times(h, s), half(4.0f)));
    }
    const auto sizes = ascend_sim::quant_sizes(n);
    for (uint32_t bytes : {sizes.least, sizes.most}) {
        Bench b;
        const auto sx = b.put(x);
        const auto s1 = b.put(scales), s2 = b.put(scales), so = b.put(offsets);
        const auto d1 = b.space<int8_t>(n), d2 = b.space<int8_t>(n), d3 = b.space<int8_t>(n);
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(what, b.run([&] {
            AscendQuant<T>(b(d1), b(sx), b(tmp), 2.5f, -3.0f, n);
            AscendQuant<T>(b(d2), b(sx), b(tmp), b(s1), b(so), columns, columns, n);
            AscendQuant<T>(b(d3), b(sx), b(tmp), b(s2), T(4.0f));
        }),
                    "");
        expect(what, b.get(d1), all);
        expect(what + " by column", b.get(d2), by_column);
        expect(what + " by column, one offset", b.get(d3), with_offset);
    }
}

template <class D, class S>
void check_dequant(uint32_t m, uint32_t n, uint32_t count) {
    const std::string what =
        with_sizes("AscendDequant " + std::to_string(sizeof(D)) + "," + std::to_string(sizeof(S)), {m, n, count});
    const uint32_t in_block = 32 / sizeof(D), pitch = (n + in_block - 1) / in_block * in_block;
    const auto x = numbers<int32_t>(m * n, -900, 900);
    const auto values = numbers<float>(n, 0.01f, 0.9f);
    std::vector<S> scales(n);
    std::vector<float> used(n);
    for (uint32_t i = 0; i < n; ++i) {
        if constexpr (sizeof(S) == 8) {
            uint32_t bits;
            std::memcpy(&bits, &values[i], sizeof bits);
            scales[i] = bits | uint64_t(0x12345678) << 32;
            used[i] = values[i];
        } else {
            scales[i] = S(values[i]);
            used[i] = float(scales[i]);
        }
    }
    std::vector<D> want(m * pitch, D(77.0f));
    for (uint32_t i = 0; i < m; ++i)
        for (uint32_t j = 0; j < n; ++j) want[i * pitch + j] = D(float(x[i * n + j]) * (j < count ? used[j] : 1.0f));
    const auto sizes = ascend_sim::dequant_sizes(m, n);
    for (uint32_t bytes : {sizes.least, sizes.most}) {
        Bench b;
        const auto sx = b.put(x);
        const auto ss = b.put(scales);
        const auto sd = b.put(std::vector<D>(m * pitch, D(77.0f))), se = b.put(std::vector<D>(m * pitch, D(77.0f)));
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(what, b.run([&] {
            AscendDequant<D, S, DeQuantMode::DEQUANT_WITH_MULTI_ROW>(b(sd), b(sx), b(ss), b(tmp),
                                                                     DequantParams{m, n, count});
            if (count == n) AscendDequant(b(se), b(sx), b(ss), b(tmp));
        }),
                    "");
        expect(what, b.get(sd), want);
        if (count == n) expect(what + " of all", b.get(se), want);
    }
}

void check_dequant_forms() {
    // AscendDequant takes a row of 64 elements with 16 scales as 4 rows of 16. DEQUANT_WITH_MULTI_ROW keeps the row.
    const auto x = numbers<int32_t>(64, -900, 900);
    const auto scales = numbers<float>(64, 0.01f, 0.9f);
    std::vector<float> rows(64), row(64), scalar(64);
    for (uint32_t i = 0; i < 64; ++i) {
        rows[i] = float(x[i]) * scales[i % 16];
        row[i] = i < 16 ? float(x[i]) * scales[i] : float(x[i]);
        scalar[i] = float(x[i]) * 0.3f;
    }
    Bench b;
    const auto sx = b.put(x);
    const auto ss = b.put(scales), d1 = b.space<float>(64), d2 = b.space<float>(64), d3 = b.space<float>(64);
    const auto part = b.put(std::vector<float>(64, 5));
    const auto tmp = b.space<uint8_t>(2048);
    expect_rule("AscendDequant's forms", b.run([&] {
        AscendDequant(b(d1), b(sx), b(ss), b(tmp), DequantParams{1, 64, 16});
        AscendDequant<float, float, DeQuantMode::DEQUANT_WITH_MULTI_ROW>(b(d2), b(sx), b(ss), b(tmp), {1, 64, 16});
        AscendDequant(b(d3), b(sx), 0.3f, b(tmp), DequantParams{1, 64, 64});
        auto sixteen = b(ss);
        sixteen.SetSize(16);
        AscendDequant(b(part), b(sx), sixteen, b(tmp), 40u);
    }),
                "");
    expect("AscendDequant of one row, taken as four", b.get(d1), rows);
    expect("AscendDequant of one row with DEQUANT_WITH_MULTI_ROW", b.get(d2), row);
    expect("AscendDequant by a scalar", b.get(d3), scalar);
    for (uint32_t i = 40; i < 64; ++i) rows[i] = 5;
    expect("AscendDequant of 40 elements", b.get(part), rows);
}

template <class D, bool kTransposed>
void check_anti_quant(uint32_t k, uint32_t n) {
    const std::string what = with_sizes(kTransposed ? "AscendAntiQuant transposed" : "AscendAntiQuant", {k, n});
    constexpr bool kIsHalf = std::is_same_v<D, half>;
    const uint32_t size = k * n;
    const auto x = numbers<int8_t>(size, -128, 128);
    std::vector<D> scales(n), offsets(n);
    const auto s = numbers<float>(n, 0.5f, 2), o = numbers<float>(n, -20, 20);
    for (uint32_t i = 0; i < n; ++i) scales[i] = D(s[i]), offsets[i] = D(o[i]);
    auto value = [&](int8_t v, D offset, D scale) {
        if constexpr (kIsHalf)
            return times(plus(half(float(v)), offset), scale);
        else
            return D((float(v) + float(offset)) * float(scale));
    };
    std::vector<D> by_column(size), all(size), no_offset(size);
    for (uint32_t i = 0; i < size; ++i) {
        const uint32_t column = kTransposed ? i / k : i % n;
        by_column[i] = value(x[i], offsets[column], scales[column]);
        no_offset[i] = value(x[i], D(0.0f), scales[column]);
        all[i] = value(x[i], D(3.0f), D(0.25f));
    }
    const uint32_t rows = kTransposed ? n : k, columns = kTransposed ? k : n;
    const auto sizes = ascend_sim::anti_quant_sizes(rows, columns, n, kTransposed, !kIsHalf);
    Bench b;
    const auto sx = b.put(x);
    const auto ss = b.put(scales), so = b.put(offsets), d1 = b.space<D>(size), d2 = b.space<D>(size),
               d3 = b.space<D>(size);
    const auto tmp = b.space<uint8_t>(std::max(1024u, sizes.least));
    expect_rule(what, b.run([&] {
        AscendAntiQuant<int8_t, D, kTransposed>(b(d1), b(sx), b(so), b(ss), b(tmp), k);
        AscendAntiQuant<int8_t, D, kTransposed>(b(d2), b(sx), D(3.0f), D(0.25f), b(tmp), k);
        AscendAntiQuant<int8_t, D, kTransposed>(b(d3), b(sx), b(ss), b(tmp), k);
    }),
                "");
    expect(what + " by column", b.get(d1), by_column);
    expect(what + " of all", b.get(d2), all);
    expect(what + " without offset", b.get(d3), no_offset);
}

void check_rules() {
    Bench b;
    const auto x = b.put(numbers<half>(256, -3, 3)), scale = b.put(numbers<half>(64, 1, 2));
    const auto n = b.put(numbers<int32_t>(256, -3, 3));
    const auto d = b.space<int8_t>(256);
    const auto f = b.space<float>(256);
    const auto tmp = b.space<uint8_t>(2048);
    expect_rule("AscendQuant in place",
                b.run([&] { AscendQuant<half>(b(x).ReinterpretCast<int8_t>(), b(x), b(tmp), 1.0f, 0.0f, 256); }), "");
    expect_rule("AscendQuant: count", b.run([&] { AscendQuant(b(d), b(x), b(tmp), 1.0f, 0.0f, 40); }), "SIM-COUNT-04");
    expect_rule("AscendQuant: scales",
                b.run([&] { AscendQuant<half>(b(d), b(x), b(tmp), b(scale), half(0.0f), 48, 64); }), "SIM-COUNT-04");
    expect_rule("AscendQuant: memory", b.run([&] { AscendQuant(b(d), b(x), b(tmp)[1792], 1.0f, 0.0f, 256); }),
                "SIM-WORK-01");
    expect_rule("AscendDequant: row", b.run([&] { AscendDequant(b(f), b(n), 1.0f, b(tmp), {4, 12, 12}); }),
                "SIM-COUNT-04");
    expect_rule("AscendDequant: in place",
                b.run([&] { AscendDequant(b(n).ReinterpretCast<float>(), b(n), 1.0f, b(tmp), {4, 16, 16}); }),
                "SIM-OVERLAP-01");
    if (!kIs950)
        expect_rule("AscendDequant: memory", b.run([&] { AscendDequant(b(f), b(n), 1.0f, b(tmp)[1792], {4, 16, 16}); }),
                    "SIM-WORK-01");
    expect_rule("AscendAntiQuant: row",
                b.run([&] { AscendAntiQuant<int8_t, half, true>(b(x), b(d), half(1.0f), half(1.0f), b(tmp), 16); }),
                "SIM-COUNT-04");
    expect_rule("AscendDequant: fewer elements than scales", b.run([&] {
        auto eight = b(n);
        eight.SetSize(8);
        auto scales = b(f);
        scales.SetSize(16);
        AscendDequant(b(f)[64], eight, scales, b(tmp), 8u);
    }),
                "SIM-COUNT-04");
    expect_rule("AscendAntiQuant: elements", b.run([&] {
        auto sixteen = b(scale);
        sixteen.SetSize(16);
        AscendAntiQuant<int8_t, half, false>(b(x), b(d), sixteen, sixteen, b(tmp), 1);
    }),
                "SIM-COUNT-04");
}

}  // namespace

int main() {
    for (uint32_t rows : {1u, 3u, 9u})
        for (uint32_t columns : {32u, 64u, 160u, 512u}) {
            check_quant<half>(rows, columns);
            check_quant<float>(rows, columns);
        }
    for (uint32_t m : {1u, 3u, 9u, 30u})
        for (auto [n, count] : {std::pair{8u, 8u}, {16u, 13u}, {64u, 64u}, {104u, 100u}, {200u, 200u}}) {
            check_dequant<float, float>(m, n, count);
            check_dequant<half, uint64_t>(m, n, count);
#if __CCE_AICORE__ != 200
            check_dequant<float, bfloat16_t>(m, n, count);
            check_dequant<bfloat16_t, bfloat16_t>(m, n, count);
            check_dequant<bfloat16_t, float>(m, n, count);
#endif
        }
    check_dequant<float, float>(2, 2080, 2080);
    check_dequant_forms();
    for (uint32_t k : {32u, 64u, 96u})
        for (uint32_t n : {32u, 64u}) {
            check_anti_quant<half, false>(k, n);
            check_anti_quant<half, true>(k, n);
#if __CCE_AICORE__ != 200
            check_anti_quant<bfloat16_t, false>(k, n);
            check_anti_quant<bfloat16_t, true>(k, n);
#endif
        }
    check_rules();
    return finish("test_library_quant");
}
