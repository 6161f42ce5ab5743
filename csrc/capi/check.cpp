// npu_rope_check and npu_rope_check_on_chip: the rules of any operator, without its computation.
#include "csrc/capi/common.h"
#include "csrc/core/rms_norm_check.h"
#include "csrc/core/rms_norm_rope_check.h"
#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/core/rotary_check.h"
#include "op_host/rms_norm_rope_tiling.h"
#include "op_host/rms_norm_tiling.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {
namespace {

struct Call : npu_rope_call {
    const Platform* chip;  // NULL: check only the rules of the operator
};

Known known_of(const Call& c) {
    if (c.known == NPU_ROPE_KNOWN_VALUES) return Known::kValues;
    return c.known == NPU_ROPE_KNOWN_ADDRESSES ? Known::kAddresses : Known::kLayout;
}

// The frequencies follow from the parameters and from the values of the factors, which may be unknown.
Check check_frequencies(const Call& c, const npu_rope_tensor* factors) {
    if (factors && known_of(c) != Known::kValues) return {};
    const auto* values = factors ? static_cast<const float*>(factors->data) : nullptr;
    return check_rope_frequencies(rope_frequencies(*c.params, values, factors ? factors->stride[0] : 1));
}

Check check_call(const Call& c, RopeTensors t) {
    RopeShape shape;
    t.known = known_of(c);
    t.out_may_be_null = true;
    if (Check result = check_rope(t, c.params, c.angle, &shape); !result.ok()) return result;
    if (Check result = check_frequencies(c, t.freq_factors); !result.ok() || !c.chip) return result;
    TilingResult<RopeTilingData> tiled;
    return check_and_tile_rope(t, *c.params, c.angle, /*forward=*/true, *c.chip, &tiled);
}

Check check_call(const Call& c, RmsNormRopeTensors t) {
    RopeShape shape;
    t.rope.known = known_of(c);
    t.rope.out_may_be_null = true;
    if (Check result = check_rms_norm_rope(t, c.params, c.epsilon, c.angle, &shape); !result.ok()) return result;
    if (Check result = check_frequencies(c, t.rope.freq_factors); !result.ok() || !c.chip) return result;
    TilingResult<RmsNormRopeTilingData> tiled;
    return check_and_tile_rms_norm_rope(t, *c.params, c.angle, {c.epsilon, /*intermediate_rounding=*/false}, *c.chip,
                                        &tiled);
}

Check check_call(const Call& c, RotaryTensors t) {
    RotaryShape shape;
    t.known = known_of(c);
    t.out_may_be_null = true;
    const RotaryAttributes a{/*interleaved=*/false, c.rotary_dim, c.offset, c.num_heads};
    if (!c.chip) return check_rotary(t, a, &shape);
    TilingResult<RotaryTilingData> tiled;
    return check_and_tile_rotary(t, a, /*forward=*/true, *c.chip, &shape, &tiled);
}

Check check_call(const Call& c, RmsNormTensors t) {
    RmsNormShape shape;
    t.known = known_of(c);
    t.out_may_be_null = true;
    const RmsNormAttributes a{c.axis, c.epsilon, c.stash_type};
    if (!c.chip) return check_rms_norm(t, a, &shape);
    TilingResult<RmsNormTilingData> tiled;
    return check_and_tile_rms_norm(t, a, *c.chip, &tiled);
}

struct OperatorRules {
    const char* op;
    Check (*check)(const Call& c, const npu_rope_tensor* const* in, const npu_rope_tensor* const* out);
};

#define NPU_ROPE_RULES(op, expression)                                                  \
    OperatorRules {                                                                     \
        op, [](const Call& c, auto* const* in, auto* const* out) { return expression; } \
    }

const OperatorRules kOperators[] = {
    NPU_ROPE_RULES("rope", check_call(c, rope_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_RULES("rope_qk", check_call(c, rope_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_RULES("rope_set_rows", check_call(c, rope_set_rows_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_RULES("rotary_mul", check_call(c, rotary_mul_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_RULES("rotary_mul_qk", check_call(c, rotary_mul_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_RULES("rotary_embedding", check_call(c, rotary_embedding_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_RULES("rms_norm", check_call(c, rms_norm_tensors(in[0], in[1], out[0]))),
    NPU_ROPE_RULES("rms_norm_backward", check_call(c, rms_norm_backward_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_RULES("add_rms_norm", check_call(c, add_rms_norm_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_RULES("rms_norm_rope",
                   check_call(c, rms_norm_rope_tensors(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1]))),
    NPU_ROPE_RULES(
        "rms_norm_rope_set_rows",
        check_call(c, rms_norm_rope_set_rows_tensors(in[0], in[1], in[2], in[3], in[4], in[5], in[6], out[0], out[1]))),
};

Check check_call(const npu_rope_call* c, const Platform* chip) {
    if (!c || !c->op) return bad_value("check", "call", "name its operator", "NULL");
    for (const OperatorRules& rules : kOperators)
        if (rules.op == std::string(c->op)) return rules.check({*c, chip}, c->inputs, c->outputs);
    return bad_value("check", "op", "be an operator of npu_rope.h", c->op);
}

Check check_on_chip(const npu_rope_call* c, const char* chip) {
    const std::optional<Platform> platform = chip ? find_platform(chip) : std::nullopt;
    if (!platform)
        return bad_value("check", "chip", "be CANN's name of a chip that docs/npu.md lists", chip ? chip : "NULL");
    return check_call(c, &*platform);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_check(const npu_rope_call* call) {
    return npu_rope::guarded("check", [&] { return npu_rope::check_call(call, nullptr); });
}

extern "C" npu_rope_status npu_rope_check_on_chip(const npu_rope_call* call, const char* chip) {
    return npu_rope::guarded("check", [&] { return npu_rope::check_on_chip(call, chip); });
}
