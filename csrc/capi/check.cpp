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

Check judge(const Call& c, RopeTensors t) {
    RopeShape shape;
    t.known = known_of(c);
    t.allocates = true;
    if (Check found = check_rope(t, c.params, c.angle, &shape); !found.ok()) return found;
    return check_frequencies(c, t.freq_factors);
}

Check judge(const Call& c, RmsNormRopeTensors t) {
    RopeShape shape;
    t.rope.known = known_of(c);
    t.rope.allocates = true;
    if (Check found = check_rms_norm_rope(t, c.params, c.epsilon, c.angle, &shape); !found.ok()) return found;
    return check_frequencies(c, t.rope.freq_factors);
}

Check judge(const Call& c, RotaryTensors t) {
    RotaryShape shape;
    t.known = known_of(c);
    t.allocates = true;
    return check_rotary(t, {false, c.rotary_dim, c.offset, c.num_heads}, &shape);
}

Check judge(const Call& c, RmsNormTensors t) {
    RmsNormShape shape;
    t.known = known_of(c);
    t.allocates = true;
    return check_rms_norm(t, {c.axis, c.epsilon, c.stash_type}, &shape);
}

struct Row {
    const char* op;
    Check (*judge)(const Call& c, const npu_rope_tensor* const* in, const npu_rope_tensor* const* out);
};

#define NPU_ROPE_ROW(op, expression)                                                    \
    Row {                                                                               \
        op, [](const Call& c, auto* const* in, auto* const* out) { return expression; } \
    }

const Row kRows[] = {
    NPU_ROPE_ROW("rope", judge(c, rope_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_ROW("rope_qk", judge(c, rope_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_ROW("rope_set_rows", judge(c, rope_set_rows_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_ROW("rotary_mul", judge(c, rotary_mul_tensors(in[0], in[1], in[2], out[0]))),
    NPU_ROPE_ROW("rotary_mul_qk", judge(c, rotary_mul_qk_tensors(in[0], in[1], in[2], in[3], out[0], out[1]))),
    NPU_ROPE_ROW("rotary_embedding", judge(c, rotary_embedding_tensors(in[0], in[1], in[2], in[3], out[0]))),
    NPU_ROPE_ROW("rms_norm", judge(c, rms_norm_tensors(in[0], in[1], out[0]))),
    NPU_ROPE_ROW("rms_norm_backward", judge(c, rms_norm_backward_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_ROW("add_rms_norm", judge(c, add_rms_norm_tensors(in[0], in[1], in[2], out[0], out[1]))),
    NPU_ROPE_ROW("rms_norm_rope",
                 judge(c, rms_norm_rope_tensors(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1]))),
    NPU_ROPE_ROW("rms_norm_rope_set_rows", judge(c, rms_norm_rope_set_rows_tensors(in[0], in[1], in[2], in[3], in[4],
                                                                                   in[5], in[6], out[0], out[1]))),
};

Check judge(const Call* c) {
    if (!c || !c->op) return bad_value("check", "call", "name its operator", "NULL");
    for (const Row& row : kRows)
        if (row.op == std::string(c->op)) return row.judge(*c, c->inputs, c->outputs);
    return bad_value("check", "op", "be an operator of npu_rope.h", c->op);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_check(const npu_rope_call* call) {
    return npu_rope::guarded("check", [&] { return npu_rope::judge(call); });
}
