// The tiling of qkv_norm_rope_cache (op_host/qkv_norm_rope_cache_tiling.h), for random calls.
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

}  // namespace

int main() {
    random_calls_have_sound_tilings();
    return g_failures > 0;
}
