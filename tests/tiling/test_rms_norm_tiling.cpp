// The tiling of rms_norm, add_rms_norm and rms_norm_backward (op_host/rms_norm_tiling.cpp), for random calls and for
// calls of known shapes.
#include "op_host/row_norm_tiling.h"
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

void one_short_packed_row_has_a_gather_of_16_lanes() {
    const Case c = tile_call(make_call(1, 1, 1, 12, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0), "Ascend310P3");
    CHECK(c, c.data.common.copy_mode == kCopyPacked && c.data.common.setup_lanes == 16);
}

void rows_are_in_the_order_in_which_they_are_adjacent() {
    for (const bool exchanged : {false, true})
        for (const int64_t gap : {0, 16})
            for (const int64_t heads : {2, 7}) {
                const Case c = tile_call(make_call(1, 5, heads, 48, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, exchanged, gap),
                                         "Ascend910B1");
                CHECK(c, c.data.common.tokens_inner == (exchanged && gap == 0));
            }
}

// 6 KiB justify 6 cores. Two parts of the rows and three of the heads give each core two rows; with four parts of the
// rows, a core would have three.
void heads_are_split_where_that_makes_shares_shorter() {
    const Case c = tile_call(make_call(1, 4, 3, 256, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, true, 0), "Ascend910B1");
    CHECK(c, c.data.common.row_parts == 2 && c.data.common.head_parts == 3);
}

void a_single_dimension_becomes_tokens_beside_dimensions_of_size_1() {
    RmsNormTilingInput in = make_call(1, 1, 7, 48, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, false, 0);
    for (int64_t* stride : {in.shape.x_stride, in.shape.out_stride}) stride[0] = stride[1] = 0;
    const Case c = tile_call(in, "Ascend910B1");
    CHECK(c, c.data.common.heads == 1 && c.data.common.seq == 7);
}

void a_scale_may_differ_along_the_first_dimension_only() {
    RmsNormTilingInput in = make_call(3, 2, 2, 48, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, false, 0);
    in.shape.scale_stride[0] = 48;
    const Case c = tile_call(in, "Ascend910B1");
    CHECK(c, c.data.scale_shared == 0 && c.data.common.heads == 4);  // the other dimensions merge
    CHECK(c, c.data.scale_stride[1] == 48 && c.data.scale_stride[2] == 0);
}

// A scale without strides is one element. Elements that overlap, or have gaps, are loaded by their strides.
void a_scale_with_gaps_is_one_element_or_scattered() {
    struct Scale {
        int64_t stride[4];
        int32_t kind;
    };
    for (const Scale& scale :
         {Scale{{0, 0, 0, 0}, kScaleOne}, {{0, 0, 0, 2}, kScaleScattered}, {{1, 1, 1, 1}, kScaleScattered}}) {
        RmsNormTilingInput in = make_call(1, 5, 7, 48, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT16, false, 0);
        in.shape.scale_is_dense = false;
        std::copy(scale.stride, scale.stride + 4, in.shape.scale_inner_stride);
        const Case c = tile_call(in, "Ascend910B1");
        CHECK(c, c.data.scale_kind == scale.kind);
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
    const auto set_call = [&c](int64_t first, int64_t second, int64_t third, int64_t n) {
        c.in = make_call(first, second, third, n, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT32, false, 0);
        c.in.op = "rms_norm_backward";
        c.in.backward = true;
        for (bool& is_shared : c.in.shape.scale_is_shared) is_shared = true;
    };
    const auto message = [&c] { return check_rms_norm_on_chip(c.in, c.platform).message(); };
    const auto rule = [](const char* row) {
        return std::string("[rms_norm_backward] scale must have the elements of one row, ") + row +
               ", for all rows and be contiguous on Ascend910B1 but got one that lacks some of them, differs between "
               "rows or has gaps.";
    };
    set_call(2, 2, 3, 40);
    CHECK(c, message().empty());
    struct Row {
        int64_t sizes[4];
        const char* text;
    };
    for (const Row& row : {Row{{1, 1, 1, 40}, "[40]"}, {{1, 1, 4, 10}, "[4, 10]"}, {{2, 1, 4, 5}, "[2, 1, 4, 5]"}}) {
        std::copy(row.sizes, row.sizes + 4, c.in.shape.inner);
        c.in.shape.scale_is_dense = false;
        CHECK(c, message() == rule(row.text));
        c.in.shape.scale_is_dense = true;
        for (bool& is_shared : c.in.shape.scale_is_shared) {
            is_shared = false;
            CHECK(c, message() == rule(row.text));
            is_shared = true;
        }
    }
    set_call(1, 2, 3, 40);
    c.in.shape.scale_is_shared[0] = false;  // one row
    CHECK(c, message().empty());
    // The smallest calls, and calls without elements.
    struct Size {
        int64_t first, second, third, n;
        std::string message;
    };
    for (const Size& size :
         {Size{1, 1, 1, 40, rule("[40]")}, {1, 2, 3, 1, rule("[1]")}, {0, 2, 3, 40, ""}, {1, 2, 3, 0, ""}}) {
        set_call(size.first, size.second, size.third, size.n);
        c.in.shape.scale_is_dense = false;
        CHECK(c, message() == size.message);
    }
}

// A contiguous float32 tensor without memory.
npu_rope_tensor make_tensor(std::initializer_list<int64_t> shape) {
    npu_rope_tensor t{nullptr, NPU_ROPE_FLOAT32, static_cast<int32_t>(shape.size()), {}, {}};
    std::copy(shape.begin(), shape.end(), t.shape);
    int64_t next = 1;
    for (int k = t.ndim - 1; k >= 0; next *= t.shape[k--]) t.stride[k] = next;
    return t;
}

Case check_and_tile(RmsNormTensors tensors, bool deterministic) {
    Case c;
    c.platform = *find_platform("Ascend910B1");
    tensors.known = Known::kLayout;
    TilingResult<RmsNormTilingData> tiled;
    require_accepted(check_and_tile_rms_norm(tensors, {-1, 1e-5, 1}, c.platform, &tiled, deterministic), c);
    c.data = tiled.data;
    c.launch = tiled.launch;
    return c;
}

void a_deterministic_gradient_is_ordered() {
    const npu_rope_tensor x = make_tensor({64, 256}), scale = make_tensor({256});
    const RmsNormTensors tensors = rms_norm_backward_tensors(&x, &x, &scale, &x, &scale, true);
    const Case ordered = check_and_tile(tensors, true), unordered = check_and_tile(tensors, false);
    CHECK(ordered, ordered.launch.cores_wait && ordered.data.sums_pitch == 256 && ordered.launch.workspace_bytes > 0);
    CHECK(unordered, !unordered.launch.cores_wait && unordered.data.sums_pitch == 0);
    CHECK(unordered, unordered.launch.workspace_bytes == 0);
}

void a_call_without_elements_has_no_launch() {
    for (const int64_t rows : {0, 1, 3})
        for (const int64_t n : {0, 1, 8}) {
            const npu_rope_tensor x = make_tensor({rows, n}), scale = make_tensor({n});
            const Case c = check_and_tile(rms_norm_tensors(&x, &scale, &x), false);
            CHECK(c, (c.launch.block_dim > 0) == (rows * n > 0));
        }
}

// The kernel adds to dscale, which is float32 for a scale of any type.
void dscale_is_float32() {
    npu_rope_tensor x = make_tensor({3, 40}), scale = make_tensor({40}), dscale = scale;
    x.dtype = scale.dtype = NPU_ROPE_FLOAT16;
    RmsNormTensors tensors = rms_norm_backward_tensors(&x, &x, &scale, &x, &dscale, true);
    tensors.known = Known::kLayout;
    RmsNormShape shape;
    CHECK(Case{}, check_rms_norm(tensors, {-1, 0, 1}, &shape).ok());
    dscale.dtype = NPU_ROPE_FLOAT16;
    CHECK(Case{}, check_rms_norm(tensors, {-1, 0, 1}, &shape).message() ==
                      "[rms_norm_backward] dscale must be float32 but got float16.");
}

struct Epsilon {
    int32_t stash;
    double given, rounded;
};

void describe(const Epsilon& e) {
    std::fprintf(stderr, "  stash type %d epsilon %a, not %a\n", e.stash, e.given, e.rounded);
}

// float16 has 11 significant bits and bfloat16 has 8, and the last one is at least 2^-24 and 2^-133.
void epsilon_is_rounded_to_the_stash_type() {
    for (const Epsilon& e : {Epsilon{kStashFloat16, 0, 0},
                             {kStashFloat16, 1, 1},
                             {kStashFloat16, 1e-3, 1049 * 0x1p-20},
                             {kStashFloat16, 3.2e-8, 0x1p-24},
                             {kStashBfloat16, 1.5e-3, 197 * 0x1p-17},
                             {kStashBfloat16, 0x1.8p-133, 0x1p-132},
                             {kStashFloat32, 0x1.000002p-10, 0x1.000002p-10}})
        CHECK(e, row_norm_tiling(64, e.given, e.stash, true).n_epsilon == 64 * e.rounded);
}

// Without an epsilon of at least 2^-100, squares that underflow would change the result.
void small_squares_matter_with_a_small_epsilon() {
    for (const double epsilon : {0.0, 0x1p-101, 0x1p-100}) {
        const Epsilon e{kStashFloat32, epsilon, epsilon};
        const int32_t range = epsilon == 0x1p-100 ? kSquaresMayOverflow : kSquaresMayUnderflow;
        CHECK(e, row_norm_tiling(64, epsilon, kStashFloat32, true).square_range == range);
        CHECK(e, row_norm_tiling(64, epsilon, kStashFloat32, false).square_range == kSquaresInRange);
    }
}

}  // namespace

int main() {
    rows_beyond_int32_must_merge();
    rows_are_in_the_order_in_which_they_are_adjacent();
    rows_without_whole_blocks_are_packed_on_310p();
    one_short_packed_row_has_a_gather_of_16_lanes();
    heads_are_split_where_that_makes_shares_shorter();
    a_single_dimension_becomes_tokens_beside_dimensions_of_size_1();
    a_scale_may_differ_along_the_first_dimension_only();
    a_scale_with_gaps_is_one_element_or_scattered();
    random_calls_have_sound_tilings();
    common_shapes_use_cores_and_ub_well();
    a_scale_that_rows_do_not_share_is_refused_in_backward();
    a_deterministic_gradient_is_ordered();
    a_call_without_elements_has_no_launch();
    dscale_is_float32();
    epsilon_is_rounded_to_the_stash_type();
    small_squares_matter_with_a_small_epsilon();
    std::printf("16 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
