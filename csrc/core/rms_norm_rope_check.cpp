#include "csrc/core/rms_norm_rope_check.h"

#include "csrc/core/tensor_rules.h"

namespace npu_rope {
namespace {

constexpr const char* kScaleName[2] = {"q_scale", "k_scale"};

// The rules that rope_qk does not have: those of epsilon and of the scales.
class Rules : TensorRules {
public:
    Rules(const RmsNormRopeTensors& t, int64_t D) : TensorRules(t.rope.op, t.rope.known), tensors_(t), D_(D) {}

    Check check_all(double epsilon) {
        if (Check c = check_epsilon(epsilon); !c.ok()) return c;
        for (int side = 0; side < tensors_.rope.sides; ++side)
            if (Check c = check_scale(side); !c.ok()) return c;
        return known_ == Known::kLayout ? Check{} : check_disjoint();
    }

private:
    Check check_scale(int side) {
        const npu_rope_tensor &scale = *tensors_.scale[side], &x = *tensors_.rope.x[side];
        const char *name = kScaleName[side], *x_name = tensors_.rope.x_name[side];
        if (scale.dtype != x.dtype)
            return bad_type(op_, name, formatted("have %s's dtype %s", x_name, dtype_name(x.dtype)),
                            dtype_name(scale.dtype));
        if (!has_shape(scale, {D_}))
            return bad_value(op_, name, formatted("have shape [D] = [%lld]", static_cast<long long>(D_)),
                             got_shape(scale));
        if (Check c = check_memory(name, scale); !c.ok()) return c;
        return check_unit_stride(name, scale);
    }

    // The outputs must share no memory with a scale.
    Check check_disjoint() {
        const RopeTensors& rope = tensors_.rope;
        for (int side = 0; side < rope.sides; ++side)
            for (int other = 0; other < rope.sides; ++other)
                if (rope.out[side] && may_share_memory(view_of(*rope.out[side]), view_of(*tensors_.scale[other])))
                    return shared_memory_error(rope.out_name[side], kScaleName[other], false);
        return {};
    }

    const RmsNormRopeTensors& tensors_;
    const int64_t D_;
};

}  // namespace

RmsNormRopeTensors rms_norm_rope_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                         const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                         const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                         const npu_rope_tensor* q_out, const npu_rope_tensor* k_out) {
    RmsNormRopeTensors t{rope_qk_tensors(q, k, positions, freq_factors, q_out, k_out), {q_scale, k_scale}};
    t.rope.op = "rms_norm_rope";
    t.rope.cache_may_be_narrower = false;
    return t;
}

RmsNormRopeTensors rms_norm_rope_set_rows_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                  const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                                  const npu_rope_tensor* positions, const npu_rope_tensor* rows,
                                                  const npu_rope_tensor* freq_factors, const npu_rope_tensor* q_out,
                                                  const npu_rope_tensor* cache) {
    RmsNormRopeTensors t = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, freq_factors, q_out, cache);
    t.rope.out_name[1] = "cache";
    t.rope.scatters = true;
    t.rope.rows = rows;
    return t;
}

Check check_rms_norm_rope(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                          int32_t angle_policy, RopeShape* shape) {
    for (int side = 0; side < t.rope.sides; ++side)
        if (!t.scale[side]) return bad_value(t.rope.op, kScaleName[side], "be a tensor", "NULL");
    if (Check c = check_rope(t.rope, params, angle_policy, shape); !c.ok()) return c;
    return Rules(t, shape->D).check_all(epsilon);
}

}  // namespace npu_rope
