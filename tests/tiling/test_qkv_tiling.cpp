// The tiling of qkv_norm_rope_cache (op_host/qkv_norm_rope_cache_tiling.h), for random calls and for calls of known
// shapes, and the places of its rows of factors.
#include "op_host/row_factors_tiling.h"
#include "tests/tiling/qkv_tiling_calls.h"

using namespace qkv_tilings;

namespace {

void random_calls_have_sound_tilings() {
    Choices random(20261128);
    int refused = 0, streamed = 0, two_buffers = 0, scalar = 0, tables = 0, planes = 0, whole = 0, int8 = 0;
    for (int i = 0; i < 6000; ++i) {
        const Case c = check_random_call(
            &random, random.one_of({"Ascend910B1", "Ascend910B4", "Ascend950PR_9589", "Ascend310P3", "Ascend310P1"}));
        refused += !c.refusal.empty();
        if (!c.refusal.empty() || !c.tiled.has_elements()) continue;
        for (const QkvSideTiling& side : c.qkv().side) {
            whole += side.norm_kind == kNormToken;
            int8 += side.out_type == kOutInt8;
        }
        streamed += c.qkv().side[0].streams_factors || c.qkv().side[1].streams_factors;
        two_buffers += c.qkv().buffers == 2;
        scalar += c.common().copy_mode == kCopyScalar;
        tables += c.has_tables();
        planes += c.common().planes > 1;
    }
    std::printf(
        "calls: %d refused, %d with streamed factors, %d with two buffers, %d copied by the scalar unit, "
        "%d with tables, %d with several planes; sides: %d with a norm over all heads, %d int8\n",
        refused, streamed, two_buffers, scalar, tables, planes, whole, int8);
    if (!(refused > 10 && refused < 600 && streamed > 50 && two_buffers > 200 && scalar > 100 && tables > 1000 &&
          planes > 500 && whole > 500 && int8 > 500))
        ++g_failures;
}

// Tiles 3 tokens of 2 query heads and one key head of 8 elements, and of values of these sizes, without norms.
Case tile_values(int64_t heads, int64_t size) {
    Case c;
    npu_rope_qkv_inputs& in = c.call.in;
    c.call.out.q_out = in.q = add_tensor(&c, NPU_ROPE_FLOAT16, {3, 2, 8});
    c.call.out.k_out = in.k = add_tensor(&c, NPU_ROPE_FLOAT16, {3, 1, 8});
    c.call.out.v_out = in.v = add_tensor(&c, NPU_ROPE_FLOAT16, {3, heads, size});
    in.positions = add_tensor(&c, NPU_ROPE_INT32, {3});
    c.params.n_dims = 8;
    c.params.mode = NPU_ROPE_MODE_NEOX;
    c.params.freq_base = 10000.0;
    c.params.freq_scale = c.params.attn_factor = 1.0;
    c.platform = *find_platform("Ascend910B1");
    require_accepted(check_qkv_norm_rope_cache(c.call, &c.params, c.attributes, &c.shape), c);
    require_accepted(check_and_tile_qkv_norm_rope_cache(c.call, c.params, c.attributes, c.platform, &c.tiled), c);
    return c;
}

void values_have_heads_if_they_have_elements() {
    struct Values {
        int64_t heads, size, tiled_heads;
    };
    for (const Values& v : {Values{2, 0, 0}, {0, 8, 0}, {1, 1, 1}, {2, 8, 2}}) {
        const Case c = tile_values(v.heads, v.size);
        CHECK(c, c.common().heads_end[1] == 3 && c.common().heads_end[kV] == 3 + v.tiled_heads);
        check_tensors(c);
        check_cover(c);
    }
}

struct Factors {
    RowFactorsPlaces places;
    RowFactorsTiling tiling;
};

void describe(const Factors& f) {
    std::fprintf(stderr, "  kept %" PRId64 " staged %" PRId64 " streamed %" PRId64 " bytes; place %d, %d\n",
                 f.places.bytes, f.places.staging_bytes, f.places.streamed_head_bytes, f.tiling.ub_offset,
                 f.tiling.staging_bytes);
}

Factors place(bool streams, const FactorRows& rows) {
    Factors f{{streams}, {}};
    f.tiling = f.places.place(rows, HeadRow{128, 128});
    return f;
}

void only_rows_of_several_heads_are_streamed() {
    for (const int64_t heads : {1, 2, 3})
        for (const bool streams : {false, true}) {
            const Factors f = place(streams, {heads, 4, 128, 1});
            const bool streamed = streams && heads > 1;
            CHECK(f, f.places.streamed_head_bytes == (streamed ? 512 : 0));
            CHECK(f, f.places.bytes == (streamed ? 0 : 512 * heads));
        }
}

void only_rows_of_another_type_are_staged() {
    Factors f = place(false, {3, 4, 128, 1});
    CHECK(f, f.tiling.ub_offset == 0 && f.tiling.staging_bytes == -1 && f.places.staging_bytes == 0);
    f = place(false, {3, 2, 128, 1});
    CHECK(f, f.tiling.ub_offset == 0 && f.tiling.staging_bytes == 0 && f.places.staging_bytes == 3 * 256);
    f = place(true, {3, 2, 128, 1});
    CHECK(f, f.places.staging_bytes == 0 && f.places.streamed_head_bytes == 512 + 256);
}

}  // namespace

int main() {
    random_calls_have_sound_tilings();
    values_have_heads_if_they_have_elements();
    only_rows_of_several_heads_are_streamed();
    only_rows_of_another_type_are_staged();
    std::printf("4 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
