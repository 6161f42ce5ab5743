// The library functions of sorting, and the operators between tensors, compared with plain loops.
#include <algorithm>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr uint32_t kPerRepeat = ascend_sim::kSortedByRepeat;

// On Ascend910B, Extract of half reads and writes twice as many entries as it extracts.
template <class T>
constexpr uint32_t kExtracted = ascend_sim::kIs910b && sizeof(T) == 2 ? 2 : 1;

// The order of the sort: descending score, equal scores in the order of the input.
template <class T>
std::vector<uint32_t> sorted_order(const std::vector<T>& scores, uint32_t group) {
    std::vector<uint32_t> order(scores.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    for (uint32_t first = 0; first < order.size(); first += group)
        std::stable_sort(order.begin() + first, order.begin() + std::min<size_t>(first + group, order.size()),
                         [&](uint32_t a, uint32_t c) { return float(scores[a]) > float(scores[c]); });
    return order;
}

template <class T>
std::vector<T> scores_with_equal_ones(uint32_t n) {
    auto scores = numbers<T>(n, -30, 30);
    for (uint32_t i = 0; i < n; i += 2) scores[i] = T(float(int(float(scores[i]))));
    return scores;
}

// A sort of `repeats` repeats, as the example of the pages does it: Concat, Sort, Extract.
template <class T, bool kFull>
void check_sort(const std::string& type, uint32_t repeats) {
    const std::string what = "Sort of " + std::to_string(repeats) + " repeats of " + type;
    const uint32_t n = repeats * kPerRepeat;
    const auto scores = scores_with_equal_ones<T>(n);
    std::vector<uint32_t> indices(n);
    for (uint32_t i = 0; i < n; ++i) indices[i] = 7 + 100003 * i;  // more than 16 bits
    indices.resize((n + 63) / 64 * 64);  // on Ascend310P, Sort of half reads whole repeats of indices
    Bench b;
    const auto sorted = b.space<T>(kExtracted<T> * GetSortLen<T>(n)), tmp = b.space<T>(GetSortLen<T>(n));
    const auto proposals = b.space<T>(ascend_sim::kIs310p ? GetSortLen<T>(n) : 0);
    const auto s = b.put(scores);
    const auto index = b.put(indices), out_index = b.space<uint32_t>(kExtracted<T> * n);
    const auto out = b.space<T>(n);
    expect_rule(what, b.run([&] {
        LocalTensor<T> concat, scratch = b(tmp);
        Concat(concat, b(s), b(proposals), int32_t(n / 16));
        PipeBarrier<PIPE_V>();
        Sort<T, kFull>(b(sorted), concat, b(index), scratch, int32_t(repeats));
        PipeBarrier<PIPE_V>();
        Extract(b(out), b(out_index), b(sorted), int32_t(repeats));
    }),
                "");
    std::vector<T> want(n);
    std::vector<uint32_t> want_index(n);
    const auto order = sorted_order(scores, kFull ? n : kPerRepeat);
    for (uint32_t i = 0; i < n; ++i) want[i] = scores[order[i]], want_index[i] = indices[order[i]];
    expect(what, b.get(out), want);
    auto got_index = b.get(out_index);
    got_index.resize(n);
    expect(what + ", indices", got_index, want_index);
}

// The merge of the pages' example, and a merge that stops at the end of a list.
template <class T, bool kSuspends>
void check_merge(const std::string& type) {
    const std::string what = "MrgSort of lists of " + type;
    constexpr uint32_t kN = 4 * kPerRepeat;
    auto scores = scores_with_equal_ones<T>(kN);
    for (uint32_t i = 0; i < kPerRepeat; ++i) scores[2 * kPerRepeat + i] = T(40.0f + float(i));  // this list ends first
    std::vector<uint32_t> indices(kN);
    for (uint32_t i = 0; i < kN; ++i) indices[i] = i;
    Bench b;
    const auto sorted = b.space<T>(GetSortLen<T>(kN)), merged = b.space<T>(kExtracted<T> * GetSortLen<T>(kN));
    const auto proposals = b.space<T>(ascend_sim::kIs310p ? GetSortLen<T>(kN) : 0);
    const auto s = b.put(scores), out = b.space<T>(kN);
    const auto index = b.put(indices), out_index = b.space<uint32_t>(kExtracted<T> * kN);
    uint32_t taken[4] = {99, 99, 99, 99};
    expect_rule(what, b.run([&] {
        LocalTensor<T> concat, unused;
        Concat(concat, b(s), b(proposals), kN / 16);
        PipeBarrier<PIPE_V>();
        Sort(b(sorted), concat, b(index), unused, 4);
        PipeBarrier<PIPE_V>();
        const uint16_t lengths[4] = {kPerRepeat, kPerRepeat, kPerRepeat, kPerRepeat};
        const auto list = [&](uint32_t i) { return b(sorted)[i * GetSortOffset<T>(kPerRepeat)]; };
        MrgSort<T, kSuspends>(b(merged), {list(0), list(1), list(2), list(3)}, lengths, taken, 15, 1);
        PipeBarrier<PIPE_V>();
        Extract(b(out), b(out_index), b(merged), 4);
    }),
                "");
    const auto order = sorted_order(scores, kN);
    std::vector<uint32_t> got = b.get(out_index), want(order);
    got.resize(kSuspends ? kPerRepeat : kN);
    if (kSuspends) {
        want.resize(kPerRepeat);
        check(taken[0] == 0 && taken[1] == 0 && taken[2] == kPerRepeat && taken[3] == 0, what + ": sortedNum");
    } else {
        check(taken[0] == 99, what + ": sortedNum of a merge without suspension");
    }
    expect(what, got, want);
}

void check_sort_rules() {
    constexpr uint32_t kN = 4 * kPerRepeat;
    Bench b;
    const auto sorted = b.space<float>(GetSortLen<float>(kN)), tmp = b.space<float>(GetSortLen<float>(kN));
    const auto s = b.space<float>(GetSortLen<float>(kN));
    const auto index = b.space<uint32_t>(kN);
    const auto sort = [&](uint32_t tmp_elements, int32_t repeats) {
        return b.run([&] {
            LocalTensor<float> scratch = b(tmp);
            scratch.SetSize(tmp_elements);
            Sort<float, true>(b(sorted), b(s), b(index), scratch, repeats);
        });
    };
    expect_rule("Sort", sort(GetSortLen<float>(kN), 4), "");
    expect_rule("Sort with too small a tmp", sort(GetSortLen<float>(kN) - 8, 4), "SIM-BOUNDS-01");
    expect_rule("Sort of 256 repeats", sort(GetSortLen<float>(kN), 256), "SIM-REPEAT-01");
    const auto concat = [&](uint32_t first, int32_t repeats) {
        return b.run([&] {
            LocalTensor<float> all;
            Concat(all, b(s)[first], b(tmp), repeats);
        });
    };
    expect_rule("Concat of 256 repeats", concat(0, 256), "SIM-REPEAT-01");
    expect_rule("Concat: alignment", concat(1, 1), "SIM-ALIGN-01");
    const auto extract = [&](uint32_t index_elements) {
        return b.run([&] {
            LocalTensor<uint32_t> indices = b(index);
            indices.SetSize(index_elements);
            Extract(b(tmp).ReinterpretCast<half>(), indices, b(sorted).ReinterpretCast<half>(), 1);
        });
    };
    expect_rule("Extract of half", extract(kExtracted<half> * kPerRepeat), "");
    expect_rule("Extract of half with too few indices", extract(kExtracted<half> * kPerRepeat - 8), "SIM-BOUNDS-01");
    expect_rule("Extract: alignment", b.run([&] { Extract(b(tmp), b(index), b(sorted)[1], 1); }), "SIM-ALIGN-01");
    check(std::strstr(ascend_sim_report(), "`entries`") != nullptr, "Extract: the report names `entries`");
}

void check_operators() {
    constexpr uint32_t kN = 256;
    const auto x = numbers<float>(kN, -4, 4);
    std::vector<float> y(kN);  // powers of two, because on Ascend950 an inexact quotient is not the nearest number
    for (uint32_t i = 0; i < kN; ++i) y[i] = float(1 << i % 3);
    const auto u = varied_bits<int16_t>(kN), v = numbers<int16_t>(kN, -500, 500);
    std::vector<float> sum(kN), difference(kN), product(kN), quotient(kN);
    std::vector<int16_t> both(kN), either(kN);
    for (uint32_t i = 0; i < kN; ++i) {
        sum[i] = x[i] + y[i], difference[i] = x[i] - y[i], product[i] = x[i] * y[i], quotient[i] = x[i] / y[i];
        both[i] = u[i] & v[i], either[i] = u[i] | v[i];
    }
    Bench b;
    const auto a = b.put(x), c = b.put(y);
    const auto p = b.put(u), q = b.put(v);
    Slot<float> f[4];
    for (auto& slot : f) slot = b.space<float>(kN);
    const auto g = b.space<int16_t>(kN), h = b.space<int16_t>(kN);
    Slot<uint8_t> bits[6];
    for (auto& slot : bits) slot = b.space<uint8_t>(kN / 8);
    expect_rule("operators", b.run([&] {
        LocalTensor<float> r0 = b(f[0]), r1 = b(f[1]), r2 = b(f[2]), r3 = b(f[3]);
        r0 = b(a) + b(c);
        r1 = b(a) - b(c);
        r2 = b(a) * b(c);
        r3 = b(a) / b(c);
        LocalTensor<int16_t> w0 = b(g), w1 = b(h);
        w0 = b(p) & b(q);
        w1 = b(p) | b(q);
        LocalTensor<uint8_t> m[6];
        for (int i = 0; i < 6; ++i) m[i] = b(bits[i]);
        m[0] = b(a) == b(c);
        if constexpr (ascend_sim::kTakes<float, ascend_sim::Api::CompareOrder>) {
            m[1] = b(a) < b(c);
            m[2] = b(a) > b(c);
            m[3] = b(a) <= b(c);
            m[4] = b(a) >= b(c);
            m[5] = b(a) != b(c);
        }
    }),
                "");
    expect("+", b.get(f[0]), sum);
    expect("-", b.get(f[1]), difference);
    expect("*", b.get(f[2]), product);
    expect("/", b.get(f[3]), quotient);
    expect("&", b.get(g), both);
    expect("|", b.get(h), either);
    const auto holds = [](int mode, float l, float r) {
        return mode == 0   ? l == r
               : mode == 1 ? l < r
               : mode == 2 ? l > r
               : mode == 3 ? l <= r
               : mode == 4 ? l >= r
                           : l != r;
    };
    for (int mode = 0; mode < (ascend_sim::kTakes<float, ascend_sim::Api::CompareOrder> ? 6 : 1); ++mode) {
        std::vector<uint8_t> want(kN / 8);
        for (uint32_t i = 0; i < kN; ++i) want[i / 8] |= uint8_t(holds(mode, x[i], y[i]) << i % 8);
        expect("comparison " + std::to_string(mode), b.get(bits[mode]), want);
    }
    // The number of elements is that of the destination.
    expect_rule("+ of a larger destination", b.run([&] {
        LocalTensor<float> dst = b(f[0]);
        dst = b(a)[kN / 2] + b(c);
    }),
                "SIM-BOUNDS-01");
}

}  // namespace

int main() {
    for (uint32_t repeats : {1u, 2u, 3u, 4u, 5u, 8u, 13u, 16u, 17u, 31u}) {
        check_sort<float, true>("float", repeats);
        check_sort<half, true>("half", repeats);
    }
    check_sort<float, false>("float", 6);
    check_sort<half, false>("half", 6);
    check_merge<float, false>("float");
    check_merge<half, false>("half");
    check_merge<float, true>("float");
    check_merge<half, true>("half");
    check_sort_rules();
    check_operators();
    return finish("library sort");
}
