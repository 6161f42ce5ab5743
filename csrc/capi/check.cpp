// Define npu_rope_check and npu_rope_check_on_chip, which check a call of any operator and compute nothing.
#include <algorithm>

#include "csrc/capi/common.h"
#include "csrc/core/qkv_norm_rope_cache_check.h"
#include "csrc/core/rms_norm_check.h"
#include "csrc/core/rms_norm_rope_check.h"
#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/core/rotary_check.h"
#include "op_host/qk_square_sums_tiling.h"
#include "op_host/qkv_norm_rope_cache_tiling.h"
#include "op_host/rms_norm_rope_tiling.h"
#include "op_host/rms_norm_tiling.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {
namespace {

struct Call : npu_rope_call {
    const Platform* chip;  // NULL, or the chip on which the kernels must support the call
};

Known known_of(const Call& call) {
    if (call.known == NPU_ROPE_KNOWN_VALUES) return Known::kValues;
    return call.known == NPU_ROPE_KNOWN_ADDRESSES ? Known::kAddresses : Known::kLayout;
}

// Checks the frequencies, unless they depend on freq_factors whose values are unknown.
Check check_frequencies(const Call& call, const npu_rope_tensor* factors) {
    if (factors && known_of(call) != Known::kValues) return {};
    const auto* values = factors ? static_cast<const float*>(factors->data) : nullptr;
    return check_rope_frequencies(rope_frequencies(*call.params, values, factors ? factors->stride[0] : 1));
}

Check check_call(const Call& call, RopeTensors t) {
    RopeShape shape;
    t.known = known_of(call);
    t.out_may_be_null = true;
    if (Check result = check_rope(t, call.params, call.angle, &shape); !result.ok()) return result;
    if (Check result = check_frequencies(call, t.freq_factors); !result.ok() || !call.chip) return result;
    TilingResult<RopeTilingData> tiled;
    return check_and_tile_rope(t, *call.params, call.angle, /*forward=*/true, *call.chip, &tiled);
}

Check check_call(const Call& call, RmsNormRopeTensors t) {
    RopeShape shape;
    t.rope.known = known_of(call);
    t.rope.out_may_be_null = true;
    if (Check result = check_rms_norm_rope(t, call.params, call.epsilon, call.angle, &shape); !result.ok())
        return result;
    if (Check result = check_frequencies(call, t.rope.freq_factors); !result.ok() || !call.chip) return result;
    TilingResult<RmsNormRopeTilingData> tiled;
    return check_and_tile_rms_norm_rope(t, *call.params, call.angle, {call.epsilon, /*intermediate_rounding=*/false},
                                        *call.chip, &tiled);
}

Check check_call(const Call& call, RotaryTensors t) {
    RotaryShape shape;
    t.known = known_of(call);
    t.out_may_be_null = true;
    // ONNX's operator has no offset.
    const RotaryAttributes attributes{/*interleaved=*/false, call.rotary_dim, t.onnx ? 0 : call.offset, call.num_heads};
    if (!call.chip) return check_rotary(t, attributes, &shape);
    TilingResult<RotaryTilingData> tiled;
    return check_and_tile_rotary(t, attributes, /*forward=*/true, *call.chip, &shape, &tiled);
}

Check check_call(const Call& call, RmsNormTensors t) {
    RmsNormShape shape;
    t.known = known_of(call);
    t.out_may_be_null = true;
    const RmsNormAttributes attributes{call.axis, call.epsilon, t.rounds_last ? 1 : call.stash_type,
                                       t.rounds_last ? call.scale_offset : 0};
    if (Check c = check_rms_norm(t, attributes, &shape); !call.chip || !c.ok()) return c;
    if (t.rounds_last) return bad_value(t.op, "x", "be on the CPU, which alone has this operator", "an NPU");
    TilingResult<RmsNormTilingData> tiled;
    return check_and_tile_rms_norm(t, attributes, *call.chip, &tiled);
}

Check check_qkv(const Call& call, const npu_rope_tensor* const* in, const npu_rope_tensor* const* out) {
    QkvTensors t = {};
    std::copy(in, in + sizeof t.in / sizeof *in, reinterpret_cast<const npu_rope_tensor**>(&t.in));
    t.out = {out[0], out[1], out[2]};
    t.known = known_of(call);
    t.out_may_be_null = true;
    QkvShape shape;
    const QkvAttributes attributes{call.epsilon, call.scale_offset, call.ranks, call.angle};
    if (Check c = check_qkv_norm_rope_cache(t, call.params, attributes, &shape); !c.ok()) return c;
    if (!t.in.cos)
        if (Check c = check_frequencies(call, t.in.freq_factors); !c.ok()) return c;
    if (!call.chip) return {};
    TilingResult<QkvNormRopeCacheTilingData> tiled;
    return check_and_tile_qkv_norm_rope_cache(t, *call.params, attributes, *call.chip, &tiled);
}

Check check_square_sums(const Call& call, QkSquareSumsTensors t) {
    t.known = known_of(call);
    t.out_may_be_null = true;
    if (!call.chip) return check_qk_square_sums(t.q, t.k, t.out, t.known, t.out_may_be_null);
    TilingResult<QkSquareSumsTilingData> tiled;
    return check_and_tile_qk_square_sums(t, *call.chip, &tiled);
}

// An operator and the check of its calls, from the inputs and outputs of npu_rope_call.
struct OperatorRules {
    const char* op;
    Check (*check)(const Call& call, const npu_rope_tensor* const* in, const npu_rope_tensor* const* out);
};

#define NPU_ROPE_RULES(op, expression)                                                     \
    OperatorRules {                                                                        \
        op, [](const Call& call, auto* const* in, auto* const* out) { return expression; } \
    }

const OperatorRules kOperators[] = {
    NPU_ROPE_RULES("rope", check_call(call, rope_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_RULES("rope_qk", check_call(call, rope_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_RULES("rope_set_rows", check_call(call, rope_set_rows_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_RULES("rotary_mul", check_call(call, rotary_mul_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_RULES("rotary_mul_qk",
                   check_call(call, rotary_mul_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_RULES("rotary_embedding", check_call(call, rotary_embedding_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_RULES("rms_norm", check_call(call, rms_norm_tensors(in[0], in[1], out[0]))),
    NPU_ROPE_RULES("rms_norm_rounded_last", check_call(call, rms_norm_rounded_last_tensors(in[0], in[1], out[0]))),
    NPU_ROPE_RULES("rms_norm_backward",
                   check_call(call, rms_norm_backward_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_RULES("add_rms_norm", check_call(call, add_rms_norm_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_RULES("rms_norm_rope",
                   check_call(call, rms_norm_rope_tensors(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1]))),
    NPU_ROPE_RULES("rms_norm_rope_set_rows",
                   check_call(call, rms_norm_rope_set_rows_tensors(in[0], in[1], in[2], in[3], in[4], in[5], in[6],
                                                                   out[0], out[1]))),
    NPU_ROPE_RULES("qkv_norm_rope_cache", check_qkv(call, in, out)),
    NPU_ROPE_RULES("qk_square_sums", check_square_sums(call, {in[0], in[1], out[0]})),
};

Check check_call(const npu_rope_call* call, const Platform* chip) {
    if (!call || !call->op) return bad_value("check", "call", "name its operator", "NULL");
    for (const OperatorRules& rules : kOperators)
        if (rules.op == std::string(call->op)) return rules.check({*call, chip}, call->inputs, call->outputs);
    return bad_value("check", "op", "be an operator of npu_rope.h", call->op);
}

Check check_on_chip(const npu_rope_call* call, const char* chip) {
    const std::optional<Platform> platform = chip ? find_platform(chip) : std::nullopt;
    if (!platform)
        return bad_value("check", "chip", "be CANN's name of a chip that docs/npu.md lists", chip ? chip : "NULL");
    return check_call(call, &*platform);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_check(const npu_rope_call* call) {
    return npu_rope::guarded("check", [&] { return npu_rope::check_call(call, nullptr); });
}

extern "C" npu_rope_status npu_rope_check_on_chip(const npu_rope_call* call, const char* chip) {
    return npu_rope::guarded("check", [&] { return npu_rope::check_on_chip(call, chip); });
}
