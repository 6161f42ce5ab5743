// The tiling of qk_square_sums (op_host/qk_square_sums_tiling.cpp), for random calls and for calls of known shapes.
#include "tests/tiling/qk_square_sums_tiling_calls.h"

using namespace qk_square_sums_tilings;

namespace {

void random_calls_have_sound_tilings() {
    Choices random(1);
    int count[5] = {}, packed = 0, scalar = 0, in_parts = 0;
    for (int i = 0; i < 8000; ++i) {
        const Case c = check_random_call(
            &random, random.one_of({"Ascend910B1", "Ascend910B4", "Ascend950PR_9589", "Ascend310P3", "Ascend310P1"}));
        ++count[c.launch.tiling_key];
        packed += c.data.common.copy_mode == kCopyPacked;
        scalar += c.data.common.copy_mode == kCopyScalar;
        in_parts += !c.is_long() && c.data.common.tile_heads < std::max(c.in.N[0], c.in.N[1]) && !c.is_split();
    }
    std::printf(
        "calls: %d with whole heads, %d in chunks, %d and %d with split heads; %d packed, %d by the scalar unit, "
        "%d with tiles of some heads\n",
        count[1], count[2], count[3], count[4], packed, scalar, in_parts);
    if (!(count[1] > 3000 && count[2] > 200 && count[3] > 50 && count[4] > 20 && packed > 300 && scalar > 30 &&
          in_parts > 100))
        ++g_failures;
}

// Ascend310P stores at least 4 tokens at a time: for every number of tokens there are shares and blocks.
void every_number_of_tokens_has_blocks() {
    for (int64_t S = 1; S < 1200; ++S)
        for (const char* chip : {"Ascend310P3", "Ascend310P1"})
            check_cover(tile_call(make_call(S, 2, 1, 64, NPU_ROPE_FLOAT16), chip));
    for (int64_t S : {4099, 8191, 10000, 20001, 65537, 99999})
        check_cover(tile_call(make_call(S, 1, 1, 64, NPU_ROPE_FLOAT16), "Ascend310P3"));
}

void common_shapes_use_cores_and_ub_well() {
    // Qwen3-8B's heads in bfloat16: all cores work, and a tile has at least 16 KiB.
    Case c = tile_call(make_call(4096, 32, 8, 128, NPU_ROPE_BFLOAT16), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kSquareSumsRows && c.launch.block_dim == 48);
    CHECK(c, int64_t{c.data.common.tile_tokens[0]} * c.data.common.tile_heads * 128 * 2 >= 16 * 1024);
    CHECK(c, c.data.common.tile_tokens[1] == 4 * c.data.common.tile_tokens[0]);
    c = tile_call(make_call(64, 32, 8, 128, NPU_ROPE_FLOAT16), "Ascend310P3");
    CHECK(c, c.launch.block_dim == 8);
    // Each core has one token, because there are as many tokens as cores.
    c = tile_call(make_call(48, 32, 8, 128, NPU_ROPE_BFLOAT16), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kSquareSumsRows && c.launch.block_dim == 48);
    // All heads of a token, with their sums and the temporaries, fill UB exactly.
    c = tile_call(make_call(36, 172, 0, 128, NPU_ROPE_FLOAT16), "Ascend910B1", 1);
    CHECK(c, c.data.common.tile_heads == 172);
    // A long token is split by heads, a short one is not: the cores would wait longer than the sums take.
    c = tile_call(make_call(1, 2048, 512, 128, NPU_ROPE_BFLOAT16), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kSquareSumsSplitRows && c.launch.block_dim == 48);
    c = tile_call(make_call(1, 32, 8, 128, NPU_ROPE_BFLOAT16), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kSquareSumsRows && c.launch.block_dim == 1);
    c = tile_call(make_call(1, 2048, 512, 128, NPU_ROPE_FLOAT16), "Ascend310P3");
    CHECK(c, c.launch.tiling_key == kSquareSumsRows && c.launch.block_dim == 1);
}

// A core adds the parts of its share of the tokens at once. Calls with a share of more than a block are not split.
void parts_of_many_tokens_are_not_split() {
    for (int64_t S : {257, 511, 512, 513, 515, 1025}) {
        const Case c = tile_call(make_call(S, 1, 1, 40000, NPU_ROPE_FLOAT32), "Ascend910B1", 2);
        check_cover(c);
        check_ub(c);
        CHECK(c, c.is_split() == (S < 512 && S % 2 == 1));
    }
    // The parts of two cores take more memory than a tile's temporaries.
    const Case c = tile_call(make_call(511, 6, 6, 4096, NPU_ROPE_FLOAT32), "Ascend910B1", 2);
    check_sizes(c);
    CHECK(c, c.data.common.head_parts == 2 && c.data.common.block_tokens == 256);
}

// The cores wait as long as one of them reads 64 KiB, so the longest share must become shorter by more.
void a_token_is_split_if_that_saves_more_than_the_wait() {
    for (const int64_t heads : {2092, 2093}) {
        const Case c = tile_call(make_call(1, heads, 0, 16, NPU_ROPE_FLOAT16), "Ascend910B1");
        const int64_t saved = 32 * (heads - (heads + 47) / 48);
        CHECK(c, (saved > 64 * 1024) == (heads == 2093) && c.is_split() == (heads == 2093));
    }
}

void heads_are_long_from_8193_elements() {
    for (const int64_t D : {8192, 8193, 8200, 8207, 8208, 16384, 16399, 16400, 24576, 24600}) {
        const Case c = tile_call(make_call(3, 2, 1, D, NPU_ROPE_FLOAT16), "Ascend910B1");
        CHECK(c, c.is_long() == (D > 8192));
        check_cover(c);
        check_ub(c);
        check_sizes(c);
        check_preferred_size(c);
    }
}

void one_short_head_has_buffers_of_whole_vectors() {
    for (const char* chip : {"Ascend910B1", "Ascend310P3"})
        for (const int32_t dtype : {NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16})
            for (const int64_t D : {1, 9, 17}) {
                const Case c = tile_call(make_call(1, 1, 0, D, dtype), chip);
                check_cover(c);
                check_ub(c);
                check_sizes(c);
            }
}

// On Ascend310P a DMA stores at least 4 sums.
void few_sums_are_stored_by_the_scalar_unit() {
    for (int64_t S : {1, 3, 4, 5}) {
        Case c = tile_call(make_call(S, 2, 1, 64, NPU_ROPE_FLOAT16), "Ascend310P3");
        CHECK(c, c.data.stores_by_scalar == (S < 4));
        c = tile_call(make_call(S, 2, 1, 64, NPU_ROPE_FLOAT16), "Ascend910B1");
        CHECK(c, c.data.stores_by_scalar == 0);
    }
}

void distant_tokens_are_accepted() {
    const int64_t gap = int64_t{1} << 33;
    for (const char* chip : {"Ascend910B1", "Ascend310P3"})
        check_cover(tile_call(make_call(9, 3, 2, 64, NPU_ROPE_FLOAT16, 0, gap), chip));
}

void expect_equal(const std::string& message, const std::string& expected) {
    if (message == expected) return;
    std::fprintf(stderr, "%s\n", message.c_str());
    ++g_failures;
}

void too_many_heads_are_refused() {
    const auto message_of = [](int64_t heads) {
        QkSquareSumsTilingData data;
        KernelLaunch launch;
        const QkSquareSumsTilingInput in = make_call(2, heads, heads, 1, NPU_ROPE_FLOAT16);
        return qk_square_sums_tiling(in, *find_platform("Ascend910B1"), &data, &launch).message();
    };
    const std::string rule = "[qk_square_sums] q must have at most 1073741823 heads on an NPU but got ";
    expect_equal(message_of(1073741823), "");
    expect_equal(message_of(1073741824), rule + "1073741824.");
    expect_equal(message_of(int64_t{1} << 31), rule + "2147483648.");
}

// Ascend310P counts the tokens of a share, which are stored together, in an int32.
void too_many_tokens_are_refused() {
    const auto message_of = [](int64_t tokens, const char* chip) {
        QkSquareSumsTilingData data;
        KernelLaunch launch;
        const QkSquareSumsTilingInput in = make_call(tokens, 1, 1, 64, NPU_ROPE_FLOAT16);
        return qk_square_sums_tiling(in, *find_platform(chip), &data, &launch).message();
    };
    const int64_t most = 8 * int64_t{INT32_MAX};
    const std::string rule = "[qk_square_sums] q must have at most 2147483647 tokens for each core of an NPU but got ";
    expect_equal(message_of(most, "Ascend310P3"), "");
    expect_equal(message_of(most + 1, "Ascend310P3"), rule + "17179869177 for 8 cores.");
    expect_equal(message_of(int64_t{1} << 62, "Ascend310P3"), rule + "4611686018427387904 for 8 cores.");
    expect_equal(message_of(int64_t{1} << 50, "Ascend910B1"), "");
}

void a_call_without_elements_has_no_launch() {
    float memory[64] = {};
    const auto tensor = [&](int64_t S, int64_t N, int64_t D) {
        return npu_rope_tensor{memory, NPU_ROPE_FLOAT32, 3, {S, N, D}, {N * D, D, 1}};
    };
    const auto check_elements = [&](int64_t S, int64_t Nq, int64_t Nk, int64_t D) {
        const npu_rope_tensor q = tensor(S, Nq, D), k = tensor(S, Nk, D);
        const npu_rope_tensor out{memory + 32, NPU_ROPE_FLOAT32, 2, {S, 2}, {2, 1}};
        TilingResult<QkSquareSumsTilingData> tiled;
        expect_equal(check_and_tile_qk_square_sums({&q, &k, &out}, *find_platform("Ascend910B1"), &tiled).message(),
                     "");
        if (tiled.has_elements() != (S * (Nq + Nk) * D != 0)) ++g_failures;
    };
    for (int64_t S : {0, 1, 3})
        for (int64_t Nq : {0, 1, 2})
            for (int64_t Nk : {0, 1})
                for (int64_t D : {0, 1, 4}) check_elements(S, Nq, Nk, D);
}

void a_missing_output_is_refused() {
    float memory[24] = {};
    const npu_rope_tensor x{memory, NPU_ROPE_FLOAT32, 3, {3, 2, 4}, {8, 4, 1}};
    TilingResult<QkSquareSumsTilingData> tiled;
    expect_equal(check_and_tile_qk_square_sums({&x, &x, nullptr}, *find_platform("Ascend910B1"), &tiled).message(),
                 "[qk_square_sums] out must be a tensor but got NULL.");
}

void an_output_with_gaps_is_refused() {
    float memory[64] = {};
    const npu_rope_tensor x{memory, NPU_ROPE_FLOAT32, 3, {3, 2, 4}, {8, 4, 1}};
    const std::string rule = "[qk_square_sums] out must be contiguous on an NPU but got strides ";
    const auto check_stride = [&](int64_t stride, const std::string& expected) {
        const npu_rope_tensor out{memory + 32, NPU_ROPE_FLOAT32, 2, {3, 2}, {stride, 1}};
        TilingResult<QkSquareSumsTilingData> tiled;
        expect_equal(check_and_tile_qk_square_sums({&x, &x, &out}, *find_platform("Ascend910B1"), &tiled).message(),
                     expected);
    };
    check_stride(2, "");
    check_stride(3, rule + "[3, 1].");
}

}  // namespace

int main() {
    random_calls_have_sound_tilings();
    every_number_of_tokens_has_blocks();
    common_shapes_use_cores_and_ub_well();
    parts_of_many_tokens_are_not_split();
    a_token_is_split_if_that_saves_more_than_the_wait();
    heads_are_long_from_8193_elements();
    one_short_head_has_buffers_of_whole_vectors();
    few_sums_are_stored_by_the_scalar_unit();
    distant_tokens_are_accepted();
    too_many_heads_are_refused();
    too_many_tokens_are_refused();
    a_call_without_elements_has_no_launch();
    a_missing_output_is_refused();
    an_output_with_gaps_is_refused();
    std::printf("13 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
