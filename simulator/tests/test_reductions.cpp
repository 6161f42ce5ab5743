// Maxima and minima of lanes, compared with plain loops. test_instructions.cpp tests the sums.
#include <algorithm>
#include <cmath>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

// The bits of an index in type T.
template <class T>
T index_bits(uint64_t index) {
    T t;
    std::memcpy(&t, &index, sizeof t);
    return t;
}

// The index of the first NaN in v[0, n), or else of the first largest or smallest element.
template <class T>
uint32_t extreme(const T* v, uint32_t n, bool max) {
    for (uint32_t i = 0; i < n; ++i)
        if (std::isnan(float(v[i]))) return i;
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; ++i)
        if (max ? float(v[i]) > float(v[at]) : float(v[i]) < float(v[at])) at = i;
    return at;
}

template <class T>
std::vector<T> ties(uint32_t n, uint32_t seed) {  // few different values, so that equal extrema occur
    Random random;
    for (uint32_t i = 0; i < seed; ++i) random.bits();
    std::vector<T> v(n);
    for (T& x : v) x = T(float(int32_t(random.bits() % 50) - 25) / 2);
    return v;
}

// ---- repeats and blocks ----------------------------------------------------------------------------------

template <class T>
void check_repeats_of(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T), kInBlock = 32 / sizeof(T);
    const auto x = ties<T>(kLanes * 12, 1);
    for (bool max : {true, false})
        for (ReduceOrder order : {ReduceOrder::ORDER_VALUE_INDEX, ReduceOrder::ORDER_INDEX_VALUE,
                                  ReduceOrder::ORDER_ONLY_VALUE, ReduceOrder::ORDER_ONLY_INDEX}) {
            const std::string what =
                type + (max ? " maximum, order " : " minimum, order ") + std::to_string(int(order));
            const bool absent = ascend_sim::kIs310p && int(order) > 1;
            // Three repeats of all lanes but five, nine blocks apart; results two units apart.
            Bench b;
            const auto sx = b.put(x), sd = b.put(std::vector<T>(64, T(7))), sn = b.put(std::vector<T>(64, T(7)));
            const uint32_t n = kLanes - 5;
            expect_rule(what, b.run([&] {
                if (max) {
                    WholeReduceMax(b(sd), b(sx), n, 3, 2, 1, 9, order);
                    ReduceRepeat<ReduceType::MAX, T, T>(b(sn), b(sx), n, 3, 2, 1, 9, order);
                } else {
                    WholeReduceMin(b(sd), b(sx), n, 3, 2, 1, 9, order);
                    ReduceRepeat<ReduceType::MIN, T, T>(b(sn), b(sx), n, 3, 2, 1, 9, order);
                }
            }),
                        absent ? "SIM-MODE-01" : "");
            if (absent) continue;
            std::vector<T> want(64, T(7));
            for (uint32_t r = 0; r < 3; ++r) {
                const T* const v = &x[r * 9 * kInBlock];
                const uint32_t at = extreme(v, n, max);
                if (order == ReduceOrder::ORDER_ONLY_VALUE) {
                    want[r * 2] = v[at];
                } else if (order == ReduceOrder::ORDER_ONLY_INDEX) {
                    std::memcpy(reinterpret_cast<uint8_t*>(want.data()) + r * 2 * 4, &at, 4);
                } else {
                    const bool index_first = order == ReduceOrder::ORDER_INDEX_VALUE;
                    want[r * 4 + index_first] = v[at];
                    want[r * 4 + !index_first] = index_bits<T>(at);
                }
            }
            expect(what, b.get(sd), want);
            expect(what + ", new name", b.get(sn), want);
        }
}

template <class T>
void check_blocks_of(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T), kInBlock = 32 / sizeof(T);
    const auto x = ties<T>(kLanes * 4, 2);
    Bench b;
    const auto sx = b.put(x), smax = b.put(std::vector<T>(64, T(7))), smin = b.put(std::vector<T>(64, T(7))),
               snew = b.put(std::vector<T>(64, T(7)));
    // Lanes of blocks 0, 3 and 7 only.
    std::vector<bool> active(kLanes);
    uint64_t mask[2] = {};
    for (uint32_t i = 0; i < kLanes; ++i) {
        const uint32_t block = i / kInBlock;
        active[i] = block == 0 || (block == 3 && i % 2) || (block == 7 && i + 1 == kLanes);
        if (active[i]) mask[i / 64] |= 1ull << i % 64;
    }
    expect_rule("blocks " + type, b.run([&] {
        BlockReduceMax<T>(b(smax), b(sx), 2, int32_t(kLanes), 2, 1, 8);
        BlockReduceMin(b(smin), b(sx), 2, mask, 1, 1, 8);
        ReduceDataBlock<ReduceType::MAX, T>(b(snew), b(sx), mask, 1, 1, 1, 8);
    }),
                "");
    std::vector<T> wmax(64, T(7)), wmin(64, T(7)), wnew(64, T(7));
    auto of_block = [&](const T* v, bool max, bool masked, T old) {
        std::vector<T> chosen;
        for (uint32_t i = 0; i < kInBlock; ++i)
            if (!masked || active[size_t(v - x.data()) % kLanes + i]) chosen.push_back(v[i]);
        if (!chosen.empty()) return chosen[extreme(chosen.data(), uint32_t(chosen.size()), max)];
        const float infinity = std::numeric_limits<float>::infinity();
        return ascend_sim::kIs950 ? T(max ? -infinity : infinity) : old;
    };
    for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t g = 0; g < 8; ++g) {
            const T* const v = &x[r * kLanes + g * kInBlock];
            wmax[r * 16 + g] = of_block(v, true, false, T(7));
            wmin[r * 8 + g] = of_block(v, false, true, T(7));
            if (r == 0) wnew[g] = of_block(v, true, true, T(7));
        }
    expect("BlockReduceMax " + type, b.get(smax), wmax);
    expect("BlockReduceMin " + type, b.get(smin), wmin);
    expect("ReduceDataBlock " + type, b.get(snew), wnew);
}

void check_bit_mask() {
    const auto x = ties<float>(128, 3);
    Bench b;
    const auto sx = b.put(x), sd = b.put(std::vector<float>(8, 7.0f));
    uint64_t mask[2] = {0xf0f0, 0};
    expect_rule("WholeReduceMax of a bit mask", b.run([&] { WholeReduceMax(b(sd), b(sx), mask, 2, 1, 1, 8); }), "");
    std::vector<float> want(8, 7.0f);
    for (uint32_t r = 0; r < 2; ++r) {
        std::vector<float> chosen(64, -100.0f);
        for (uint32_t i = 0; i < 64; ++i)
            if (mask[0] >> i & 1) chosen[i] = x[r * 64 + i];
        const uint32_t at = extreme(chosen.data(), 64, true);
        want[r * 2] = chosen[at];
        want[r * 2 + 1] = index_bits<float>(at);
    }
    expect("WholeReduceMax of a bit mask", b.get(sd), want);
}

// ---- special values: the table of boundary values --------------------------------------------------------

template <class T>
void check_special(const std::string& what, std::vector<T> special, bool saturate, T max, T min) {
    std::vector<T> x(256 / sizeof(T), T(1.0f));
    std::copy(special.begin(), special.end(), x.begin() + 3);
    Bench b({saturate, nullptr});
    const auto sx = b.put(x), sd = b.space<T>(8), se = b.space<T>(8);
    const int32_t n = int32_t(x.size());
    expect_rule(what, b.run([&] {
        WholeReduceMax<T>(b(sd), b(sx), n, 1, 1, 1, 8);
        WholeReduceMin<T>(b(se), b(sx), n, 1, 1, 1, 8);
    }),
                "");
    expect(what + ", maximum", {b.get(sd)[0]}, std::vector<T>{max});
    expect(what + ", minimum", {b.get(se)[0]}, std::vector<T>{min});
}

void check_special_values() {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const half hinf = half(inf), hnan = half(nan), largest = half(65504.0f), one = half(1.0f);
    check_special<float>("infinities", {inf, -inf}, false, inf, -inf);
    check_special<float>("NaN in float", {inf, nan, -inf}, false, nan, nan);
    check_special<half>("infinities in half", {hinf, half(-inf)}, false, hinf, half(-inf));
    check_special<half>("NaN in half", {hnan}, false, hnan, hnan);
    check_special<half>("infinities in saturating half", {hinf, half(-inf)}, true, largest, half(-65504.0f));
    check_special<half>("NaN in saturating half", {hnan}, true, one, half(0.0f));
}

// ---- ReduceMax, ReduceMin --------------------------------------------------------------------------------

template <class T>
void check_all_of(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T), kInBlock = 32 / sizeof(T);
    for (uint32_t n : {1u, kLanes - 1, kLanes, kLanes + 1, kLanes * 17 + 5, kLanes * 64 + 3}) {
        const auto x = ties<T>(n, n);
        const std::string what = type + " of " + std::to_string(n);
        Bench b;
        const auto sx = b.put(x), smax = b.put(std::vector<T>(16, T(7))), smin = b.put(std::vector<T>(16, T(7)));
        const auto work = b.space<T>(1024);
        expect_rule(what, b.run([&] {
            ReduceMax(b(smax), b(sx), b(work), int32_t(n), true);
            ReduceMin(b(smin), b(sx), b(work), int32_t(n));  // ReduceMax's events order it after ReduceMax
            PipeBarrier<PIPE_V>();
            Duplicate(b(work), T(0), 1024);  // the work tensor is undefined now
        }),
                    "");
        std::vector<T> wmax(16, T(7)), wmin(16, T(7));
        const uint32_t at = extreme(x.data(), n, true);
        wmax[0] = x[at];
        wmax[1] = index_bits<T>(at);
        wmin[0] = x[extreme(x.data(), n, false)];
        expect("ReduceMax " + what, b.get(smax), wmax);
        expect("ReduceMin " + what, b.get(smin), wmin);
    }
    // Repeats of 20 lanes, ten blocks apart: the index counts elements from src's first.
    const auto x = ties<T>(kInBlock * 10 * 6, 9);
    Bench b;
    const auto sx = b.put(x), sd = b.put(std::vector<T>(16, T(7)));
    const auto work = b.space<T>(256);
    expect_rule("repeats of " + type, b.run([&] {
        ReduceMin<T>(b(sd), b(sx), b(work), 20, 5, 10, true);
        PipeBarrier<PIPE_ALL>();
        Duplicate(b(work), T(0), 256);
    }),
                "");
    uint32_t best = 0;
    for (uint32_t r = 0; r < 5; ++r)
        for (uint32_t i = 0; i < 20; ++i) {
            const uint32_t at = r * 10 * kInBlock + i;
            if (float(x[at]) < float(x[best])) best = at;
        }
    std::vector<T> want(16, T(7));
    want[0] = x[best];
    want[1] = index_bits<T>(best);
    expect("repeats of " + type, b.get(sd), want);
}

// The sizes of the work tensor: the page's examples.
void check_work_sizes() {
    using ascend_sim::extremum_work;
    check(extremum_work<half>(65, true) == 176, "work of 65 repeats of half with an index");
    check(extremum_work<half>(255, true) == 544, "work of 255 repeats of half with an index");
    check(extremum_work<half>(511, true) == 1056, "work of 511 repeats of half with an index");
    check(extremum_work<half>(4, true) == 32, "work of 4 repeats of half with an index");
    check(extremum_work<half>(511, false) == 1024, "work of 511 repeats of half");
    auto run = [](uint32_t elements, bool with_index) {
        Bench b;
        const auto sx = b.put(std::vector<half>(65 * 128, half(1.0f))), sd = b.space<half>(16);
        const auto work = b.space<half>(elements);
        return b.run([&] {
            ReduceMax<half>(b(sd), b(sx), b(work), 128, 65, 8, with_index);
            PipeBarrier<PIPE_ALL>();
            Duplicate(b(work), half(0.0f), int32_t(elements));
        });
    };
    const char* const needs = ascend_sim::kIs950 ? "" : "SIM-WORK-01";
    expect_rule("enough work memory", run(176, true), "");
    expect_rule("too little work memory", run(175, true), needs);
    expect_rule("enough work memory without an index", run(144, false), "");
    expect_rule("too little work memory without an index", run(128, false), needs);
}

void check_rules() {
    auto run = [](auto call) {
        Bench b;
        const auto sx = b.put(std::vector<float>(256, 1.0f)), sd = b.space<float>(32), work = b.space<float>(32);
        return b.run([&] {
            call(b(sd), b(sx), b(work));
            PipeBarrier<PIPE_ALL>();
            Duplicate(b(work), 0.0f, 32);
            Duplicate(b(sx), 0.0f, 256);
        });
    };
    expect_rule("a pair at an odd element", run([](auto d, auto x, auto) { WholeReduceMax(d[1], x, 64, 1, 1, 1, 8); }),
                "SIM-ALIGN-02");
    expect_rule("ReduceMax of a value at an odd element",
                run([](auto d, auto x, auto w) { ReduceMax(d[1], x, w, 64); }), "");
    expect_rule("ReduceMax of a pair at an odd element",
                run([](auto d, auto x, auto w) { ReduceMax(d[1], x, w, 64, true); }), "SIM-ALIGN-02");
    expect_rule("work that begins inside a block", run([](auto d, auto x, auto w) { ReduceMax(d, x, w[4], 64); }),
                ascend_sim::kIs950 ? "" : "SIM-ALIGN-01");
    expect_rule("in place", run([](auto, auto x, auto) { WholeReduceMax(x, x, 64, 2, 1, 1, 8); }), "");
    expect_rule("in a later source", run([](auto, auto x, auto) { WholeReduceMax(x[64], x, 64, 2, 1, 1, 8); }),
                "SIM-OVERLAP-02");
    expect_rule("repeats in place", run([](auto, auto x, auto w) { ReduceMax(x, x, w, 64, 3, 8); }), "SIM-OVERLAP-01");
    expect_rule("a count in place", run([](auto, auto x, auto) { ReduceMax(x, x, x, 200); }), "");
    expect_rule("work in the source and the result in the work",
                run([](auto, auto x, auto) { ReduceMin(x[128], x, x[128], 128); }), "");
    expect_rule("an unknown order",
                run([](auto d, auto x, auto) { WholeReduceMax(d, x, 64, 1, 1, 1, 8, ReduceOrder(4)); }), "SIM-MODE-01");
    expect_rule("a negative stride", run([](auto d, auto x, auto w) { ReduceMax(d, x, w, 64, 2, -1); }),
                "SIM-STRIDE-01");
    expect_instruction("ReduceMax");
    expect_rule("too many lanes", run([](auto d, auto x, auto) { WholeReduceMin(d, x, 65, 1, 1, 1, 8); }),
                "SIM-MASK-01");
    // An index of half beyond 16 bits.
    if (ascend_sim::kIs310p) {
        Bench b;
        std::vector<half> x(66048, half(1.0f));
        x.back() = half(2.0f);
        const auto sx = b.put(x), sd = b.space<half>(16);
        const auto work = b.space<half>(2048);
        auto reduce = [&](bool with_index) {
            return b.run([&] {
                ReduceMax(b(sd), b(sx), b(work), 66048, with_index);
                PipeBarrier<PIPE_ALL>();
                Duplicate(b(work), half(0.0f), 2048);
            });
        };
        expect_rule("no index of half beyond 16 bits", reduce(false), "");
        expect_rule("an index of half beyond 16 bits", reduce(true), "SIM-COUNT-04");
    }
}

// ---- the registers ---------------------------------------------------------------------------------------

void check_registers() {
#if __CCE_AICORE__ != 310
    const auto x = ties<float>(256, 5);
    Bench b;
    const auto sx = b.put(x), sd = b.space<float>(64), work = b.space<float>(64);
    float value = 0, index = 0, last = 0;
    auto read = [&](float& v, float& i) {
#if __CCE_AICORE__ == 220
        GetReduceRepeatMaxMinSpr<float>(v, i);
#else
        i = 0;
        GetReduceMaxMinCount<float>(v);
#endif
    };
    float unused = 0;
    expect_rule("registers", b.run([&] {
        WholeReduceMax(b(sd), b(sx), 64, 4, 1, 1, 8);
        read(value, index);
        PipeBarrier<PIPE_V>();
        ReduceMin(b(sd), b(sx), b(work), 256);
        read(last, unused);
        PipeBarrier<PIPE_ALL>();
        Duplicate(b(work), 0.0f, 64);
    }),
                "");
    const uint32_t at = extreme(x.data(), 256, true);
    check(value == x[at], "the register's maximum");
    if (ascend_sim::kIs910b)
        check(bits_of(index) == bits_of(index_bits<float>(at)), "the register's index over all repeats");
    check(last == x[extreme(x.data(), 256, false)], "the register's minimum");
    expect_rule("a register before a reduction", b.run([&] { read(value, index); }), "SIM-INIT-01");
    expect_rule("a register after a reduction with gaps", b.run([&] {
        WholeReduceMax(b(sd), b(sx), 64, 2, 1, 1, 10);
        read(value, index);
    }),
                "SIM-INIT-01");
    expect_rule("a register after a reduction of repeats with gaps", b.run([&] {
        WholeReduceMax(b(sd), b(sx), 64, 2, 1, 1, 8);
        PipeBarrier<PIPE_V>();
        ReduceMax(b(sd), b(sx), b(work), 64, 2, 10);
        read(value, index);
    }),
                "SIM-INIT-01");
    expect_instruction(ascend_sim::kIs910b ? "GetReduceRepeatMaxMinSpr" : "GetReduceMaxMinCount");
#endif
}

}  // namespace

int main() {
    check_repeats_of<float>("float");
    check_repeats_of<half>("half");
    check_blocks_of<float>("float");
    check_blocks_of<half>("half");
    check_bit_mask();
    check_special_values();
    check_all_of<float>("float");
    check_all_of<half>("half");
    check_work_sizes();
    check_rules();
    check_registers();
    return finish("test_reductions");
}
