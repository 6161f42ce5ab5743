// Library functions that move elements: their results are those of plain loops, bit by bit.
#include <algorithm>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr bool kIs310p = ascend_sim::kIs310p;

template <class T>
std::vector<T> counting_values(uint32_t n) {
    std::vector<T> v(n);
    for (uint32_t i = 0; i < n; ++i) v[i] = T(float(i % 119) - (std::is_unsigned_v<T> ? 0 : 50));
    return v;
}

// ---- Broadcast ------------------------------------------------------------------------------------------

struct Matrix {
    uint32_t rows, columns;
};

template <class T, int dim, int axis>
void check_broadcast(Matrix to, Matrix from) {
    const std::string what = "Broadcast " + std::to_string(sizeof(T)) + " bytes, " + std::to_string(from.rows) + " x " +
                             std::to_string(from.columns) + " to " + std::to_string(to.rows) + " x " +
                             std::to_string(to.columns);
    const auto x = counting_values<T>(from.rows * from.columns);
    std::vector<T> want(to.rows * to.columns + 5, T(99.0f));
    for (uint32_t i = 0; i < to.rows; ++i)
        for (uint32_t j = 0; j < to.columns; ++j)
            want[i * to.columns + j] = x[(from.rows == 1 ? 0 : i) * from.columns + (from.columns == 1 ? 0 : j)];
    const auto sizes = ascend_sim::broadcast_sizes(from.rows, from.columns, to.rows, to.columns, sizeof(T), kIs310p,
                                                   ascend_sim::kIs950);
    const uint32_t to_shape[] = {to.rows, to.columns}, from_shape[] = {from.rows, from.columns};
    for (uint32_t bytes : {sizes.least, std::max(sizes.least, sizes.most)}) {
        Bench b;
        const auto s = b.put(x), d = b.put(std::vector<T>(want.size(), T(99.0f)));
        const auto tmp = b.space<uint8_t>(bytes);
        expect_rule(
            what, b.run([&] { Broadcast<T, dim, axis>(b(d), b(s), to_shape + 2 - dim, from_shape + 2 - dim, b(tmp)); }),
            "");
        expect(what, b.get(d), want);
    }
}

template <class T>
void check_broadcasts() {
    constexpr uint32_t kInBlock = 32 / sizeof(T);
    for (uint32_t rows : {1u, 7u, kInBlock, 3 * kInBlock + 1, 70u}) {
        for (uint32_t columns : {kInBlock, 2 * kInBlock, 16 * kInBlock, 3 * kInBlock + 5, 1u}) {
            if (columns != 1 && (!kIs310p || rows % kInBlock == 0))
                check_broadcast<T, 2, 1>({rows, columns}, {rows, 1});
            if (columns % kInBlock == 0 && rows > 1) check_broadcast<T, 2, 0>({rows, columns}, {1, columns});
            check_broadcast<T, 2, 0>({rows, columns}, {1, 1});
        }
        check_broadcast<T, 1, 0>({1, rows}, {1, 1});
    }
    check_broadcast<T, 2, 1>({32, 64}, {32, 64});
}

void check_broadcast_rules() {
    Bench b;
    const auto x = b.put(counting_values<float>(256)), d = b.put(counting_values<float>(256));
    const auto tmp = b.space<uint8_t>(1024);
    const uint32_t to[] = {16, 8}, column[] = {16, 1}, row[] = {1, 8}, narrow[] = {16, 4};
    auto call = [&](auto axis, uint32_t first, const uint32_t* to_shape, const uint32_t* from_shape) {
        return b.run(
            [&] { BroadCast<float, 2, decltype(axis)::value>(b(d), b(x)[first], to_shape, from_shape, b(tmp)); });
    };
    const std::integral_constant<int, 0> by_row;
    const std::integral_constant<int, 1> by_column;
    expect_rule("BroadCast", call(by_column, 0, to, column), "");
    expect_rule("BroadCast of a row", call(by_row, 0, to, row), "");
    expect_rule("BroadCast: other dimension", call(by_column, 0, to, narrow), "SIM-COUNT-04");
    expect_rule("BroadCast: alignment", call(by_column, 1, to, column), "SIM-ALIGN-01");
    expect_rule("BroadCast: in place", b.run([&] { BroadCast<float, 2, 1>(b(d), b(d), to, column, b(tmp)); }),
                "SIM-OVERLAP-01");
    const uint32_t uneven[] = {16, 5}, uneven_row[] = {1, 5};
    if (!ascend_sim::kIs950) {
        expect_rule("BroadCast: rows of whole blocks", call(by_row, 0, uneven, uneven_row), "SIM-COUNT-04");
        expect_rule("BroadCast: temporary memory",
                    b.run([&] { BroadCast<float, 2, 1>(b(d), b(x), to, column, b(tmp)[992]); }), "SIM-WORK-01");
    }
}

// A source or a destination without elements is no use of its memory, which Select has as scratch here.
void check_empty_broadcast() {
    if (ascend_sim::kIs950) return;  // no buffer reaches the scratch there
    constexpr uint32_t kScratch = (kIs310p ? 248 : 184) << 10;
    Bench b;
    const auto x = b.put(counting_values<float>(64)), d = b.space<float>(64);
    const auto bits = b.space<uint8_t>(32), tmp = b.space<uint8_t>(1024);
    const uint32_t none[] = {0, 8}, row[] = {1, 8}, rows[] = {8, 8};
    auto call = [&](const uint32_t* to, const uint32_t* from) {
        return b.run([&] {
            TBuf<> below, above;
            GetTPipePtr()->InitBuffer(below, kScratch - 2048);
            GetTPipePtr()->InitBuffer(above, 4096);
            const auto in_scratch = above.Get<float>()[512];
            if (to == rows) Duplicate(in_scratch, 1.0f, 8);
            Select(b(d), b(bits), b(x), b(x), SELMODE::VSEL_TENSOR_TENSOR_MODE, 64);
            PipeBarrier<PIPE_V>();
            Broadcast<float, 2, 0>(b(d), in_scratch, to, from, b(tmp));
            if (to == none) Broadcast<float, 2, 0>(in_scratch[8], b(x), to, from, b(tmp));
        });
    };
    expect_rule("Broadcast of no elements", call(none, none), "");
    expect_rule("Broadcast of a row", call(rows, row), "SIM-BUFFER-05");
}

}  // namespace

int main() {
    check_broadcasts<int8_t>();
    check_broadcasts<uint8_t>();
    check_broadcasts<half>();
    check_broadcasts<float>();
    check_broadcast_rules();
    check_empty_broadcast();
    return finish("test_library_moves");
}
