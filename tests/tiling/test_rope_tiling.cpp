// The tilings of the rotation kernels (op_host/rope_tiling.h), for random calls and for calls of known shapes.
#include <cmath>

#include "csrc/core/rotary_check.h"
#include "op_host/tile_preferences.h"
#include "op_host/work_split.h"
#include "tests/tiling/rope_tiling_calls.h"

using namespace rope_tilings;

namespace {

void random_calls_have_sound_tilings() {
    Choices random(20261120);
    for (int k = 0; k < 6000; ++k) {
        const Case c = check_random_call(&random, kChipNames[k % 4]);
        if (k % 16 == 0) check_cover(c, 3);
    }
}

void prefill_uses_every_core_and_long_bursts() {
    for (int32_t mode : {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX})
        for (int64_t heads : {8, 32, 40, 64}) {
            Case c = tile_call(make_call(1, 4096, heads, 128, NPU_ROPE_BFLOAT16, mode), "Ascend910B1");
            int64_t burst = int64_t{c.common.tile_tokens[0]} * c.common.tile_heads * 128 * 2;
            CHECK(c, c.launch.block_dim == 48 && c.common.head_parts == 1);
            CHECK(c, burst >= (heads >= 32 ? 16 : 12) * 1024 || heads == 40);  // 40 heads: a row of 10 KiB
            CHECK(c, burst >= 10 * 1024);
            CHECK(c, c.common.block_tokens >= 8);
        }
}

void decode_splits_heads_into_parts_of_at_least_four() {
    Case one = tile_call(make_call(1, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(one, one.launch.block_dim == 8 && one.common.head_parts == 8);
    Case four_tokens = tile_call(make_call(4, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(four_tokens, four_tokens.launch.block_dim >= 24);
    Case four_heads = tile_call(make_call(1, 1, 4, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(four_heads, four_heads.launch.block_dim == 1);
    // A batch of single tokens is split like one sequence.
    Case batch = tile_call(make_call(256, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(batch, batch.common.seq == 256 && batch.launch.block_dim == 48);
}

void check_large(const Case& c) {
    check_launch(c);
    check_ub(c);
    check_instructions(c);
    check_balance(c);
    // Check the addresses of the first 40 tiles of each unit.
    for (int64_t unit = 0; unit < units_of(c.common); ++unit) {
        Tiles tiles;
        tiles.Init(&c.common, unit, units_of(c.common));
        Tile tile;
        for (int k = 0; k < 40 && tiles.Next(&tile); ++k) check_memory(c, tile, true);
    }
}

void sizes_beyond_2_to_31_keep_their_offsets() {
    for (const char* chip : {"Ascend910B1", "Ascend310P3"})
        for (int32_t mode : {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_IMROPE}) {
            Case contiguous = tile_call(make_call(1, 1048576, 512, 1024, NPU_ROPE_FLOAT16, mode), chip);
            check_large(contiguous);
            RopeTilingInput in = contiguous.in;
            in.shape.side[0].x_stride[1] = in.shape.D;
            in.shape.side[0].x_stride[2] = in.shape.S * in.shape.D;
            check_large(tile_call(in, chip));  // transposed
        }
    check_large(tile_call(make_call(1, 1048576, 64, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_MROPE, 8), "Ascend910B1"));
    Case tokens = tile_call(make_call(1, 1048576, 1, 64, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    check_cover(tokens, tokens.launch.block_dim);
}

void one_row_is_one_tile() {
    for (const char* chip : kChipNames)
        for (int64_t D : {2, 3, 16, 100, 1024}) {
            Case c = tile_call(make_call(1, 1, 1, D, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NORMAL), chip);
            Tiles tiles;
            tiles.Init(&c.common, 0, 1);
            Tile tile;
            CHECK(c, tiles.Next(&tile) && tile.tokens == 1 && tile.heads == 1 && !tiles.Next(&tile));
            check_ub(c);
        }
}

void unaligned_rows_of_310p_are_packed_and_split_at_32_bytes() {
    Case c = tile_call(make_call(1, 5000, 3, 100, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(c, c.common.copy_mode == kCopyPacked && c.launch.block_dim == 8);
    for (int64_t part = 1; part < c.common.row_parts; ++part)
        CHECK(c, ShareOf(c.common.rows, c.common.row_granule, c.common.row_parts, part).first * 3 * 100 * 2 % 32 == 0);
    Case tiny = tile_call(make_call(1, 7, 1, 10, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(tiny, tiny.common.copy_mode == kCopyScalar);
    Case small_tokens = tile_call(make_call(1, 7, 4, 10, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(small_tokens, small_tokens.common.copy_mode == kCopyPacked && small_tokens.common.tile_heads == 4);
}

void the_stride_of_a_single_head_has_no_effect() {
    RopeTilingInput in = make_call(1, 64, 1, 36, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    RopeSide& side = in.shape.side[0];
    side.x_stride[2] = side.out_stride[2] = 0;
    const Case c = tile_call(in, "Ascend310P3");
    CHECK(c, c.common.copy_mode == kCopyPacked && c.common.row_granule == 4 && c.common.tokens_inner == 0);
}

void axes_with_the_same_positions_are_one_plane() {
    RopeTilingInput in = make_call(1, 5, 2, 64, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_MROPE);  // sections 2, 1, 1, 0
    Case three = tile_call(in, "Ascend910B1");
    CHECK(three, three.common.planes == 3 && three.data.turns.plane_lanes[0][0] == 0x33333333);
    CHECK(three, three.data.turns.plane_lanes[1][0] == 0x44444444 && three.data.turns.plane_lanes[2][0] == 0x88888888);
    in.params.sections[3] = 4;
    in.shape.axis_offset[3] = 0;  // the positions of time
    Case same = tile_call(in, "Ascend910B1");
    CHECK(same, same.common.planes == 3 && same.data.turns.plane_lanes[0][0] == 0xf3f3f3f3);
    in.params.sections[1] = in.params.sections[2] = 0;
    Case one = tile_call(in, "Ascend910B1");
    CHECK(one, one.common.planes == 1 && one.data.turns.plane_lanes[0][0] == 0xffffffff);
    // Without pairs of time, the first plane is that of the next axis.
    in = make_call(1, 5, 2, 64, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_MROPE);
    const int32_t sections[4] = {0, 2, 1, 1};
    std::copy(sections, sections + 4, in.params.sections);
    Case no_time = tile_call(in, "Ascend910B1");
    CHECK(no_time, no_time.common.planes == 3 && no_time.common.plane_offset[0] == 5);
    CHECK(no_time, no_time.data.turns.plane_lanes[0][0] == 0x33333333);
}

void two_tensors_share_a_cores_table() {
    Case decode = tile_call(make_call(1, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX, 8), "Ascend910B1");
    CHECK(decode, decode.common.heads == 40 && decode.common.heads_end[0] == 32 && decode.common.head_parts >= 8);
    Case prefill = tile_call(make_call(1, 4096, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX, 8), "Ascend910B1");
    CHECK(prefill, prefill.launch.block_dim == 48 && prefill.common.head_parts == 1 && prefill.common.tile_heads == 32);
    // A tile has the heads of one side: 64 heads are 16 KiB, also if they are normalized in mode normal.
    RopeTilingInput normal = make_call(1, 4096, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NORMAL, 8);
    for (bool rounds : {false, true}) {
        normal.norm.intermediate_rounding = rounds;
        Case normed = tile_call(normal, "Ascend910B1", false, true);
        CHECK(normed, normed.launch.tiling_key == kRopeSwapByShifts);
        CHECK(normed,
              normed.common.tile_tokens[0] == 2 && normed.common.tile_heads == 32 && normed.common.tile_tokens[1] >= 6);
    }
}

void turns_are_the_frequencies_over_2_pi() {
    RopeTilingInput in = make_call(1, 4, 2, 128, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    in.params.freq_base = 500000.0;
    in.params.ext_factor = 1.0;
    in.params.freq_scale = 0.25;
    in.params.n_ctx_orig = 8192;
    Case c = tile_call(in, "Ascend910B1");
    in.forward = false;
    Case back = tile_call(in, "Ascend910B1");
    in.forward = true;
    in.has_factors = true;
    Case whole = tile_call(in, "Ascend910B1");
    std::vector<Quad> frequencies = rope_frequencies(in.params, nullptr, 0);
    constexpr size_t pairs = 64;
    auto sum = [](const Case& of, size_t k, size_t i) {
        return static_cast<long double>(of.data.turns.vectors[k * pairs + i]) +
               of.data.turns.vectors[(k + 1) * pairs + i];
    };
    for (size_t i = 0; i < pairs; ++i) {
        const auto turns = static_cast<long double>(frequencies[i] / kTwoPi), high = 2048 * turns;
        CHECK(whole, fabsl(sum(whole, 0, i) - turns) <= fabsl(turns) * 0x1p-47L);
        // A lower part is at most 2^-14, and rounds once or twice.
        CHECK(c, fabsl(sum(c, 0, i) - turns) <= 0x1p-38L);
        CHECK(c, fabsl(sum(c, 2, i) - (high - rintl(high))) <= 0x1p-37L);
        for (size_t k = 0; k < kTurnParts; ++k) {
            const float part = c.data.turns.vectors[k * pairs + i];
            CHECK(c, back.data.turns.vectors[k * pairs + i] == -part);
            CHECK(c, k % 2 == 1 ? std::fabs(part) <= 0x1p-13f : part * 8192 == std::rint(part * 8192));
        }
    }
    CHECK(c, c.data.turns.vectors[kTurnParts * pairs] == 0 && whole.data.turns.vectors[2 * pairs] == 0);
    CHECK(c, std::fabs(c.common.mscale - (1 + 0.1 * std::log(4.0))) < 1e-6);

    // The parts of more than 256 pairs do not fit: the kernel splits the turns.
    in = make_call(1, 4, 2, 520, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    Case wide = tile_call(in, "Ascend910B1");
    frequencies = rope_frequencies(in.params, nullptr, 0);
    for (size_t i = 0; i < 260; ++i) {
        const float *hi = wide.data.turns.vectors, *lo = hi + 264;
        const long double turns = frequencies[i] / kTwoPi;
        CHECK(wide, fabsl(static_cast<long double>(hi[i]) + lo[i] - turns) <= fabsl(turns) * 0x1p-47L);
    }
}

// On Ascend310P, rows without whole blocks are copied in runs of 32 bytes or more, or by the scalar unit.
void short_heads_have_a_tile_on_310p() {
    for (const int32_t mode : {NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_NORMAL})
        for (const int64_t keys : {0, 1, 5, 8})
            for (const int64_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 40, 127, 1000, 4097, 12289})
                for (const int64_t D : {2, 3, 4, 5, 6, 7, 9, 11, 15, 17, 20, 33, 100, 1000}) {
                    const Case c = tile_call(make_call(1, 3, heads, D, NPU_ROPE_FLOAT16, mode, keys), "Ascend310P3");
                    const int64_t run_bytes = (keys > 0 ? std::min(heads, keys) : heads) * D * 2;
                    const int32_t mode_of_short = run_bytes >= 32 ? kCopyPacked : kCopyScalar;
                    CHECK(c, c.common.copy_mode == mode_of_short);
                }
}

// No other number of parts of the heads has less work for the busiest core, and no smaller one has as little.
void the_split_has_the_least_work() {
    Choices random(20261127);
    constexpr int64_t kHeadBytes = 4096;
    for (int k = 0; k < 2000; ++k) {
        const int64_t granule = random.one_of<int64_t>({1, 1, 2, 16}), rows = random.between(1, 400);
        const int64_t heads = random.between(1, 80), min_heads = random.one_of<int64_t>({1, 1, 4, 8});
        const int64_t token_cost = random.one_of<int64_t>({0, 2, 5}), cores = random.one_of<int64_t>({8, 20, 48});
        const int64_t core_bytes = tile_preferences().min_core_bytes;
        const int64_t parts = std::clamp<int64_t>(rows * heads * kHeadBytes / core_bytes, 1, cores);
        const WorkSplit best = split_work(rows, granule, heads, kHeadBytes, cores, min_heads, token_cost);
        const auto work_of = [&](int64_t head_parts) {
            const int64_t groups = (rows + granule - 1) / granule, row_parts = std::min(groups, parts / head_parts);
            const int64_t rows_of_part = (groups + row_parts - 1) / row_parts * granule;
            return rows_of_part * ((heads + head_parts - 1) / head_parts + token_cost);
        };
        const int64_t most = std::max<int64_t>(1, std::min(parts, heads / min_heads));
        bool is_least = best.row_parts * best.head_parts <= parts && best.head_parts <= most;
        for (int64_t other = 1; other <= most; ++other)
            is_least &= other < best.head_parts ? work_of(other) > work_of(best.head_parts)
                                                : work_of(other) >= work_of(best.head_parts);
        if (is_least) continue;
        std::fprintf(stderr, "%" PRId64 " rows by %" PRId64 ", %" PRId64 " heads: %" PRId64 " x %" PRId64 " parts\n",
                     rows, granule, heads, best.row_parts, best.head_parts);
        ++g_failures;
    }
}

void set_heads_first(const RopeTilingInput& in, int64_t* strides, int64_t heads) {
    strides[2] = in.shape.S * in.shape.D;
    strides[1] = in.shape.D;
    strides[0] = heads * strides[2];
}

// Rows in UB have the order in which more rows of the tensors are adjacent, and tokens before heads otherwise.
void rows_are_in_the_order_of_most_tensors() {
    for (const int64_t keys : {0, 4}) {
        RopeTilingInput in = make_call(1, 64, 8, 32, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX, keys);
        const int tensors = 2 * in.shape.sides;
        for (int heads_first = 0; heads_first <= tensors; ++heads_first) {
            const Case c = tile_call(in, "Ascend910B1");
            CHECK(c, c.common.tokens_inner == (2 * heads_first > tensors));
            if (heads_first == tensors) break;
            RopeSide& side = in.shape.side[heads_first / 2];
            set_heads_first(in, heads_first % 2 ? side.out_stride : side.x_stride, side.N);
        }
        in.scatters = true;  // a cache has its rows token by token
        in.shape.cache_rows = 64;
        CHECK(tile_call(in, "Ascend910B1"), tile_call(in, "Ascend910B1").common.tokens_inner == 0);
    }
}

// On Ascend310P, the scalar unit copies heads that are shorter than a block, token by token.
void unaligned_rows_of_310p_are_in_the_order_in_which_they_are_adjacent() {
    for (const int64_t D : {10, 36}) {
        RopeTilingInput in = make_call(1, 64, 8, D, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
        RopeSide& side = in.shape.side[0];
        for (int64_t* strides : {side.x_stride, side.out_stride}) set_heads_first(in, strides, side.N);
        const Case c = tile_call(in, "Ascend310P3");
        const bool packed = D == 36;
        CHECK(c, c.common.copy_mode == (packed ? kCopyPacked : kCopyScalar) && c.common.tokens_inner == packed);
    }
}

void backward_turns_the_other_way() {
    uint16_t memory[64] = {};
    int32_t numbers[4] = {0, 1, 2, 3};
    const npu_rope_tensor x{memory, NPU_ROPE_FLOAT16, 4, {1, 4, 2, 8}, {64, 16, 8, 1}};
    const npu_rope_tensor positions{numbers, NPU_ROPE_INT32, 1, {4}, {1}};
    const npu_rope_params params = make_call(1, 4, 2, 8, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX).params;
    TilingResult<RopeTilingData> tiled[2];
    for (const bool forward : {false, true}) {
        const Check check = check_and_tile_rope(rope_tensors(&x, &positions, nullptr, &x), params, NPU_ROPE_ANGLE_EXACT,
                                                forward, *find_platform("Ascend910B1"), &tiled[forward]);
        if (!check.ok()) std::fprintf(stderr, "%s\n", check.message().c_str());
        g_failures += !check.ok();
    }
    const float back = tiled[false].data.turns.vectors[0], front = tiled[true].data.turns.vectors[0];
    g_failures += !(front > 0 && back == -front);
}

void integer_turns_are_removed_unless_factors_divide_them() {
    RopeTilingInput in = make_call(1, 4, 2, 4, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    in.params.freq_scale = 100.0;
    Case c = tile_call(in, "Ascend910B1");
    CHECK(c, std::fabs(c.data.turns.vectors[0]) <= 0.5f);
    in.has_factors = true;
    Case factors = tile_call(in, "Ascend910B1");
    CHECK(factors,
          std::fabs(factors.data.turns.vectors[0] - 100 / 6.2831853f) < 1e-5f && factors.common.has_factors == 1);
}

void expect_error(const RopeTilingInput& in, const char* chip, const char* message) {
    Case c;
    c.in = in;
    c.platform = *find_platform(chip);
    Check check = rope_tiling(in, c.platform, &c.data, &c.launch);
    CHECK(c, check.message() == message);
}

void calls_that_an_npu_does_not_support_are_refused() {
    expect_error(make_call(1, 4, 2, 64, NPU_ROPE_BFLOAT16, 0), "Ascend310P3",
                 "[rope] x must be float32 or float16 on Ascend310P3 but got bfloat16.");
    expect_error(make_call(1, 4, 2, 64, NPU_ROPE_FLOAT64, 0), "Ascend910B1",
                 "[rope] x must be float32, float16 or bfloat16 on Ascend910B1 but got float64.");
    expect_error(make_call(1, 4, 2, 2048, NPU_ROPE_FLOAT16, 0), "Ascend910B1",
                 "[rope] x must have a head size of at most 1024 on an NPU but got 2048.");
    const int64_t most_heads = INT32_MAX;
    const Case most = tile_call(make_call(1, 1, most_heads, 2, NPU_ROPE_FLOAT16, 0), "Ascend910B1");
    CHECK(most, most.common.heads == most_heads);
    expect_error(make_call(1, 1, most_heads + 1, 2, NPU_ROPE_FLOAT16, 0), "Ascend910B1",
                 "[rope] x must have at most 2147483647 heads on an NPU but got 2147483648.");
    RopeTilingInput fast = make_call(1, 4, 2, 64, NPU_ROPE_FLOAT16, 0);
    fast.params.freq_scale = 1e10;
    expect_error(fast, "Ascend910B1",
                 "[rope] frequencies must be at most 1e+09 radians per position but got 1e+10 for pair 0.");
}

// Only the NPU's paths give rotary_mul position_ids.
void position_ids_of_rotary_mul_select_rows_of_tables() {
    const npu_rope_tensor x{nullptr, NPU_ROPE_FLOAT32, 4, {2, 3, 4, 8}, {96, 32, 8, 1}};
    const npu_rope_tensor ids{nullptr, NPU_ROPE_INT64, 2, {2, 3}, {3, 1}};
    RotaryShape shape;
    const auto message = [&](const npu_rope_tensor& table) {
        RotaryTensors t = rotary_mul_tensors(&x, &table, &table, &x, &ids);
        t.known = Known::kLayout;
        return check_rotary(t, RotaryAttributes{}, &shape).message();
    };
    for (const int64_t width : {4, 8}) {
        CHECK(Case{}, message({nullptr, NPU_ROPE_FLOAT32, 2, {9, width}, {11, 1}}).empty());
        CHECK(Case{}, shape.cos_stride[0] == 0 && shape.cos_stride[1] == 11);
        CHECK(Case{}, shape.sin_stride[0] == 0 && shape.sin_stride[1] == 11);
        CHECK(Case{}, shape.entry_per_lane == (width == 8));
    }
    const std::string rule = "[rotary_mul] cos must have shape [rows, W] with W = 4 or 8 where position_ids is given";
    CHECK(Case{}, message({nullptr, NPU_ROPE_FLOAT32, 2, {9, 3}, {3, 1}}) == rule + " but got [9, 3].");
    CHECK(Case{}, message({nullptr, NPU_ROPE_FLOAT32, 3, {2, 3, 4}, {12, 4, 1}}) == rule + " but got [2, 3, 4].");
}

struct Test {
    const char* name;
    void (*run)();
};
#define TEST(function) {#function, function}

constexpr Test kTests[] = {
    TEST(random_calls_have_sound_tilings),
    TEST(prefill_uses_every_core_and_long_bursts),
    TEST(decode_splits_heads_into_parts_of_at_least_four),
    TEST(sizes_beyond_2_to_31_keep_their_offsets),
    TEST(one_row_is_one_tile),
    TEST(unaligned_rows_of_310p_are_packed_and_split_at_32_bytes),
    TEST(the_stride_of_a_single_head_has_no_effect),
    TEST(axes_with_the_same_positions_are_one_plane),
    TEST(two_tensors_share_a_cores_table),
    TEST(turns_are_the_frequencies_over_2_pi),
    TEST(short_heads_have_a_tile_on_310p),
    TEST(the_split_has_the_least_work),
    TEST(rows_are_in_the_order_of_most_tensors),
    TEST(unaligned_rows_of_310p_are_in_the_order_in_which_they_are_adjacent),
    TEST(backward_turns_the_other_way),
    TEST(integer_turns_are_removed_unless_factors_divide_them),
    TEST(calls_that_an_npu_does_not_support_are_refused),
    TEST(position_ids_of_rotary_mul_select_rows_of_tables),
};

}  // namespace

int main() {
    for (const Test& test : kTests) {
        g_test = test.name;
        test.run();
    }
    std::printf("%zu tests, %d failure(s)\n", sizeof kTests / sizeof *kTests, g_failures);
    return g_failures == 0 ? 0 : 1;
}
