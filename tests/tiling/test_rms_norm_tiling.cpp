// The tiling of rms_norm, add_rms_norm and rms_norm_backward (op_host/rms_norm_tiling.cpp), for random calls and for
// calls of known shapes.
#include "tests/tiling/rms_norm_tiling_calls.h"

using namespace rms_norm_tilings;

namespace {

void random_calls_have_sound_tilings() {
    Choices random(1);
    int in_rows = 0, in_chunks = 0, rows_kept = 0, inner = 0, packed = 0, scalar = 0, backward = 0;
    for (int i = 0; i < 6000; ++i) {
        const Case c = check_random_call(&random, random.one_of({"Ascend910B1", "Ascend910B4", "Ascend310P3"}));
        if (c.in.backward) {
            ++backward;
            continue;
        }
        const bool rows = c.launch.tiling_key == kRmsNormRows;
        (rows ? in_rows : in_chunks)++;
        rows_kept += !rows && c.data.keeps_row;
        inner += c.data.common.tokens_inner;
        packed += rows && c.data.common.copy_mode == kCopyPacked;
        scalar += c.data.common.copy_mode == kCopyScalar;
    }
    std::printf(
        "calls: %d with whole rows (%d packed, %d by the scalar unit), %d in chunks (%d keep the row in UB), %d head "
        "by head\n",
        in_rows, packed, scalar, in_chunks, rows_kept, inner);
    if (!(in_rows > 2000 && in_chunks > 300 && rows_kept > 60 && packed > 100 && scalar > 30 && inner > 60 &&
          backward > 1000))
        ++g_failures;
}

void common_shapes_use_cores_and_ub_well() {
    // A tile has several rows of a model's width; all cores work.
    Case c = tile_call(make_call(1, 1, 2048, 4096, NPU_ROPE_BFLOAT16, NPU_ROPE_BFLOAT16, false, 0), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kRmsNormRows && c.launch.block_dim == 48 && c.data.common.tile_tokens[0] >= 2);
    // The heads of queries fill tiles of 16 KiB.
    c = tile_call(make_call(1, 4096, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_BFLOAT16, false, 0), "Ascend910B1");
    CHECK(c, int64_t{c.data.common.tile_tokens[0]} * c.data.common.tile_heads * 128 * 2 >= 16 * 1024);
    // A row of 16,384 stays in UB between its two passes, a row of a million does not.
    c = tile_call(make_call(1, 1, 64, 16384, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kRmsNormLong && c.data.keeps_row && c.data.keeps_scale);
    c = tile_call(make_call(1, 1, 1, 1000003, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0), "Ascend910B1");
    CHECK(c, c.launch.tiling_key == kRmsNormLong && !c.data.keeps_row && c.launch.block_dim == 1);
}

// On Ascend310P a DMA copies whole blocks of 32 bytes, of x's type and of out's.
void rows_without_whole_blocks_are_packed_on_310p() {
    const int32_t half = NPU_ROPE_FLOAT16, single = NPU_ROPE_FLOAT32;
    struct Row {
        int64_t n;
        int32_t x, out, mode, scale_pitch;
    };
    for (const Row& row : {Row{16, half, single, kCopyBursts, 16},
                           {24, half, single, kCopyPacked, 24},
                           {24, single, half, kCopyPacked, 32},
                           {24, single, single, kCopyBursts, 24},
                           {20, half, half, kCopyPacked, 32},
                           {12, half, single, kCopyScalar, 16},
                           {12, single, half, kCopyScalar, 16},
                           {7, single, single, kCopyScalar, 8}}) {
        const RmsNormTilingInput in = make_call(1, 5, 7, row.n, row.x, row.out, false, 0);
        const Case on_310p = tile_call(in, "Ascend310P3"), on_910b = tile_call(in, "Ascend910B1");
        CHECK(on_310p, on_310p.data.common.copy_mode == row.mode && on_310p.data.scale_pitch == row.scale_pitch);
        CHECK(on_910b, on_910b.data.common.copy_mode == kCopyBursts && on_910b.data.scale_pitch == row.scale_pitch);
    }
}

void rows_are_in_the_order_in_which_they_are_adjacent() {
    for (const bool exchanged : {false, true})
        for (const int64_t gap : {0, 16}) {
            const Case c =
                tile_call(make_call(1, 5, 7, 48, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, exchanged, gap), "Ascend910B1");
            CHECK(c, c.data.common.tokens_inner == (exchanged && gap == 0));
        }
}

void rows_beyond_int32_must_merge() {
    const Case merged =
        tile_call(make_call(1, 2, int64_t{1} << 31, 1, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0), "Ascend910B1");
    CHECK(merged, merged.data.common.rows == int64_t{1} << 32);
    Case c;
    for (const int64_t heads : {int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1}) {
        c.in = make_call(1, 2, heads, 1, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, true, 0);
        c.in.op = "rms_norm";
        c.platform = *find_platform("Ascend910B1");
        const std::string message = rms_norm_tiling(c.in, c.platform, &c.data, &c.launch).message();
        CHECK(c, message == (heads == INT32_MAX ? ""
                                                : "[rms_norm] x must have at most 2147483647 rows in a dimension that "
                                                  "cannot be merged with another on an NPU but got more."));
    }
}

void a_scale_that_rows_do_not_share_is_refused_in_backward() {
    Case c;
    c.platform = *find_platform("Ascend910B1");
    c.in = make_call(1, 2, 3, 40, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0);
    c.in.op = "rms_norm_backward";
    c.in.backward = true;
    const auto message = [&c] { return check_rms_norm_on_chip(c.in, c.platform).message(); };
    for (bool& is_shared : c.in.shape.scale_is_shared) is_shared = true;
    CHECK(c, message().empty());
    struct Row {
        int64_t sizes[4];
        const char* text;
    };
    for (const Row& row : {Row{{1, 1, 1, 40}, "[40]"}, {{1, 1, 4, 10}, "[4, 10]"}, {{2, 1, 4, 5}, "[2, 1, 4, 5]"}}) {
        std::copy(row.sizes, row.sizes + 4, c.in.shape.inner);
        const std::string rule = std::string("[rms_norm_backward] scale must have the elements of one row, ") +
                                 row.text +
                                 ", for all rows and be contiguous on Ascend910B1 but got one that lacks some of them, "
                                 "differs between rows or has gaps.";
        c.in.shape.scale_is_dense = false;
        CHECK(c, message() == rule);
        c.in.shape.scale_is_dense = true;
        for (const int k : {1, 2}) {  // the dimensions with several rows
            c.in.shape.scale_is_shared[k] = false;
            CHECK(c, message() == rule);
            c.in.shape.scale_is_shared[k] = true;
        }
    }
    c.in.shape.scale_is_shared[0] = false;  // one row
    CHECK(c, message().empty());
}

}  // namespace

int main() {
    rows_beyond_int32_must_merge();
    rows_are_in_the_order_in_which_they_are_adjacent();
    rows_without_whole_blocks_are_packed_on_310p();
    random_calls_have_sound_tilings();
    common_shapes_use_cores_and_ub_well();
    a_scale_that_rows_do_not_share_is_refused_in_backward();
    std::printf("6 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
