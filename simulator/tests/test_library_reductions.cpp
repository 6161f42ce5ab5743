// Reductions of rows and columns, Sum and Mean, compared with formulas in double.
#include "library_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

using ascend_sim::Fold;
constexpr bool kIs950 = ascend_sim::kIs950;

std::string with_sizes(const std::string& what, std::initializer_list<uint32_t> sizes) {
    std::string name = what;
    for (uint32_t n : sizes) name += " " + std::to_string(n);
    return name;
}

double fold(Fold kind, double a, double b) {
    switch (kind) {
        case Fold::Max:
        case Fold::Any:
            return std::max(a, b);
        case Fold::Min:
        case Fold::All:
            return std::min(a, b);
        case Fold::Prod:
            return a * b;
        default:
            return a + b;
    }
}

template <class T>
void clear(const LocalTensor<T>& t) {
    if constexpr (sizeof(T) > 1) Duplicate(t, T(0.0f), int32_t(t.GetSize()));
}

// `call` is a reduction of the form with sharedTmpBuffer.
template <class T, bool kByRow, class F>
void check_pattern(const char* name, Fold kind, uint32_t rows, uint32_t columns, bool reuse, F call) {
    const std::string what = with_sizes(std::string(name) + (kByRow ? " AR " : " RA ") + std::to_string(sizeof(T)),
                                        {rows, columns, uint32_t(reuse)});
    const bool rows_are_adjacent = kIs950 && (kind == Fold::Sum || kind == Fold::Max || kind == Fold::Min);
    const uint32_t pitch = rows_are_adjacent ? columns : ascend_sim::round_up(columns, 32 / sizeof(T));
    auto x = kind == Fold::Prod ? numbers<T>(rows * pitch, 0.8f, 1.25f) : numbers<T>(rows * pitch, -4, 4);
    if (kind == Fold::Any || kind == Fold::All)
        for (uint32_t i = 0; i < x.size(); ++i) x[i] = T(float(i * i % 7 % 2));
    const uint32_t results = kByRow ? rows : columns, count = kByRow ? columns : rows;
    std::vector<double> want, magnitude;
    for (uint32_t i = 0; i < results; ++i) {
        double value = 0, size = 0;
        for (uint32_t j = 0; j < count; ++j) {
            const double v = double(float(x[kByRow ? i * pitch + j : j * pitch + i]));
            value = j ? fold(kind, value, v) : v;
            size += std::fabs(v);
        }
        want.push_back(kind == Fold::Mean ? value / count : value);
        magnitude.push_back(kind == Fold::Mean ? size / count : size);
    }
    const auto sizes = ascend_sim::pattern_sizes(kind, kByRow, rows, columns, sizeof(T), reuse);
    Bench b;
    const auto sx = b.put(x);
    const auto sd = b.put(std::vector<T>(results + 3, T(99.0f)));
    const auto tmp = b.space<uint8_t>(std::max(32u, sizes.least));
    const uint32_t shape[] = {rows, columns};
    expect_rule(what, b.run([&] {
        call(b(sd), b(sx), b(tmp), shape);
        if (reuse) clear(b(sx));  // undefined now
    }),
                "");
    auto got = b.get(sd);
    for (uint32_t i = 0; i < 3; ++i)  // an odd number of byte results may write one byte more
        check(float(got[results + i]) == 99.0f || (sizeof(T) == 1 && i == 0), what + ": past the end");
    got.resize(results);
    const bool is_exact = kind != Fold::Sum && kind != Fold::Mean && kind != Fold::Prod;
    near(what, got, want,
         is_exact             ? 0
         : kind == Fold::Prod ? count + 2.0
                              : 2,
         is_exact ? 0 : 0.25 * *std::max_element(magnitude.begin(), magnitude.end()) * (std::log2(count) + 1));
}

template <class T, class pattern, bool kReuse>
void check_patterns_of(uint32_t rows, uint32_t columns) {
#if __CCE_AICORE__ != 200
    constexpr bool kByRow = std::is_same_v<pattern, Pattern::Reduce::AR>;
#define CHECK(Name)                                                                        \
    check_pattern<T, kByRow>("Reduce" #Name, Fold::Name, rows, columns, kReuse,            \
                             [](auto d, auto s, auto tmp, const uint32_t* shape) {         \
                                 Reduce##Name<T, pattern, kReuse>(d, s, tmp, shape, true); \
                             })
    if constexpr (std::is_same_v<T, half>) {
        CHECK(Max);
        CHECK(Min);
    } else if constexpr (sizeof(T) == 1) {
        CHECK(Any);
        CHECK(All);
    } else {
        CHECK(Max);
        CHECK(Min);
        CHECK(Any);
        CHECK(All);
        CHECK(Sum);
        CHECK(Mean);
        CHECK(Prod);
    }
#undef CHECK
#endif
}

template <class T, class A>
void check_sum_of(uint32_t rows, uint32_t n) {
    const std::string what = with_sizes("Sum " + type_name<T>() + "," + type_name<A>(), {rows, n});
    const uint32_t inner = ascend_sim::round_up(n * sizeof(T), 32) / sizeof(T);
    const auto x = numbers<T>(rows * inner, -4, 4);
    std::vector<double> sums, means;
    double magnitude = 0;
    for (uint32_t r = 0; r < rows; ++r) {
        double sum = 0, size = 0;
        for (uint32_t i = 0; i < n; ++i) {
            sum += double(float(x[r * inner + i]));
            size += std::fabs(double(float(x[r * inner + i])));
        }
        sums.push_back(sum);
        means.push_back(sum / n);
        magnitude = std::max(magnitude, size);
    }
    Bench b;
    const auto sx = b.put(x), sd = b.space<T>(rows), sm = b.space<T>(rows);
    const auto tmp = b.space<uint8_t>(ascend_sim::sum_sizes(n, sizeof(T)).least);
    // The size that the host returns for Mean is too small for more than 32 bytes of sums.
    const uint32_t repeats = (n + 63) / 64;
    const auto mean_tmp = b.space<uint8_t>(ascend_sim::mean_sizes(n, sizeof(T), sizeof(A)).least + repeats * 4);
    expect_rule(what, b.run([&] {
        Sum(b(sd), b(sx), b(tmp), SumParams{rows, inner, n});
        Mean<T, A>(b(sm), b(sx), b(mean_tmp), MeanParams{rows, inner, n});
    }),
                "");
    const double steps = std::log2(n) + 1;
    near(what, b.get(sd), sums, 1, 0.3 * magnitude * steps);
    near("Mean of " + what, b.get(sm), means, 1.01,
         sizeof(A) == 4 && sizeof(T) == 2 ? 0 : magnitude / n * (0.3 * steps + 1));
}

// By default a reduction does not overwrite its source. Without sharedTmpBuffer it uses the memory above the buffers.
void check_defaults() {
#if __CCE_AICORE__ != 200
    constexpr uint32_t kRows = 3, kColumns = 200;
    const auto x = numbers<float>(kRows * kColumns, -4, 4);
    const uint32_t shape[] = {kRows, kColumns};
    Bench b;
    const auto sx = b.put(x), given = b.space<float>(kRows), above = b.space<float>(kRows);
    const auto tmp = b.space<uint8_t>(8192);
    expect_rule("ReduceSum by default", b.run([&] {
        ReduceSum<float, Pattern::Reduce::AR>(b(given), b(sx), b(tmp), shape, true);
        ReduceSum<float, Pattern::Reduce::AR>(b(above), b(sx), shape, true);
    }),
                "");
    expect("ReduceSum without sharedTmpBuffer", b.get(above), b.get(given));
    expect("ReduceSum by default: source", b.get(sx), x);
#endif
}

void check_rules() {
    Bench b;
    const auto x = b.put(numbers<float>(1024, -1, 1)), d = b.space<float>(64);
    const auto tmp = b.space<uint8_t>(2048);
    expect_rule("Sum", b.run([&] { Sum(b(d), b(x), b(tmp), SumParams{2, 104, 100}); }), "");
    expect_rule("Sum: inner", b.run([&] { Sum(b(d), b(x), b(tmp), SumParams{2, 112, 100}); }), "SIM-COUNT-04");
    expect_rule("Sum: overlap", b.run([&] { Sum(b(x), b(x), b(tmp), SumParams{2, 104, 100}); }), "SIM-OVERLAP-01");
    expect_rule("Sum: memory", b.run([&] { Sum(b(d), b(x), b(tmp)[2040], SumParams{2, 104, 100}); }), "SIM-WORK-01");
    expect_rule("Mean: elements", b.run([&] { Mean<float>(b(d), b(x), b(tmp), MeanParams{11, 104, 100}); }),
                "SIM-BOUNDS-01");
    if (!kIs950)  // one element for each of 16 repeats
        expect_rule("Mean: the host's size", b.run([&] {
            auto small = b(tmp);
            small.SetSize(32);
            Mean<float>(b(d), b(x), small, MeanParams{1, 1024, 1024});
        }),
                    "SIM-BOUNDS-01");
#if __CCE_AICORE__ != 200
    const uint32_t shape[] = {8, 100}, empty[] = {8, 0};
    auto by_row = [&](auto d, auto s, auto t, const uint32_t* shape, bool pad) {
        return b.run([&] { ReduceMean<float, Pattern::Reduce::AR>(b(d), b(s), b(t), shape, pad); });
    };
    expect_rule("ReduceMean: filling", by_row(d, x, tmp, shape, false), "SIM-COUNT-04");
    expect_rule("ReduceMean: shape", by_row(d, x, tmp, empty, true), "SIM-COUNT-04");
    expect_rule("ReduceMean: overlap", by_row(x, x, tmp, shape, true), "SIM-OVERLAP-01");
    if (!kIs950)
        expect_rule("ReduceMean: memory",
                    b.run([&] { ReduceMean<float, Pattern::Reduce::AR>(b(d), b(x), b(tmp)[1024], shape, true); }),
                    "SIM-WORK-01");
#endif
}

}  // namespace

int main() {
    for (uint32_t rows : {1u, 3u, 8u, 13u, 70u})
        for (uint32_t columns : {1u, 8u, 13u, 64u, 65u, 128u, 200u, 700u}) {
            if (rows * columns > 12000) continue;
            check_patterns_of<float, Pattern::Reduce::AR, false>(rows, columns);
            check_patterns_of<float, Pattern::Reduce::AR, true>(rows, columns);
            check_patterns_of<float, Pattern::Reduce::RA, false>(rows, columns);
            check_patterns_of<float, Pattern::Reduce::RA, true>(rows, columns);
            check_patterns_of<half, Pattern::Reduce::AR, false>(rows, columns);
            check_patterns_of<half, Pattern::Reduce::RA, true>(rows, columns);
            check_patterns_of<uint8_t, Pattern::Reduce::AR, false>(rows, columns);
            check_patterns_of<uint8_t, Pattern::Reduce::RA, false>(rows, columns);
            check_sum_of<float, float>(rows, columns);
            check_sum_of<half, half>(rows, columns);
            check_sum_of<half, float>(rows, columns);
        }
    check_patterns_of<float, Pattern::Reduce::AR, false>(2, 2500);
    check_sum_of<float, float>(2, 5000);
    check_defaults();
    check_rules();
    return finish("test_library_reductions");
}
