// npu_rope_check: the rules of any operator, without its computation.
#include "csrc/capi/common.h"
#include "csrc/core/rms_norm_check.h"
#include "csrc/core/rms_norm_rope_check.h"
#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/core/rotary_check.h"

namespace npu_rope {
namespace {

using Call = npu_rope_call;

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
    t.allocates = true;
    if (Check failed = check_rope(t, c.params, c.angle, &shape); !failed.ok()) return failed;
    return check_frequencies(c, t.freq_factors);
}

Check check_call(const Call& c, RmsNormRopeTensors t) {
    RopeShape shape;
    t.rope.known = known_of(c);
    t.rope.allocates = true;
    if (Check failed = check_rms_norm_rope(t, c.params, c.epsilon, c.angle, &shape); !failed.ok()) return failed;
    return check_frequencies(c, t.rope.freq_factors);
}

Check check_call(const Call& c, RotaryTensors t) {
    RotaryShape shape;
    t.known = known_of(c);
    t.allocates = true;
    return check_rotary(t, {false, c.rotary_dim, c.offset, c.num_heads}, &shape);
}

Check check_call(const Call& c, RmsNormTensors t) {
    RmsNormShape shape;
    t.known = known_of(c);
    t.allocates = true;
    return check_rms_norm(t, {c.axis, c.epsilon, c.stash_type}, &shape);
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

Check check_call(const Call* c) {
    if (!c || !c->op) return bad_value("check", "call", "name its operator", "NULL");
    for (const OperatorRules& rules : kOperators)
        if (rules.op == std::string(c->op)) return rules.check(*c, c->inputs, c->outputs);
    return bad_value("check", "op", "be an operator of npu_rope.h", c->op);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_check(const npu_rope_call* call) {
    return npu_rope::guarded("check", [&] { return npu_rope::check_call(call); });
}
