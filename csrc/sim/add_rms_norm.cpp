// add_rms_norm on the simulator.
#include "csrc/sim/rms_norm.h"

namespace npu_rope {
namespace {

// The index of the input, x or residual, that an output is itself, or -1.
int32_t place_of(const npu_rope_tensor& out, const AddRmsNormTensors& t) {
    const npu_rope_tensor* inputs[] = {t.x, t.residual};
    for (int32_t k = 0; k < 2; ++k)
        if (out.data == inputs[k]->data && out.dtype == inputs[k]->dtype) return k;
    return -1;
}

Check run_add_rms_norm_on_sim(const AddRmsNormTensors& t, const RmsNormAttributes& a,
                              const npu_rope_sim_options* options) {
    RmsNormTilingInput in;
    in.op = "add_rms_norm";
    in.adds = true;
    if (Check c = check_add_rms_norm(t, a, &in.shape); !c.ok()) return c;
    in.dtype = t.x->dtype;
    in.scale_dtype = t.scale->dtype;
    return launch_rms_norm_on_sim(in,
                                  {{"x", t.x, ASCEND_SIM_IN, -1},
                                   {"residual", t.residual, ASCEND_SIM_IN, -1},
                                   {"scale", t.scale, ASCEND_SIM_IN, -1},
                                   {"out", t.out, ASCEND_SIM_OUT, place_of(*t.out, t)},
                                   {"sum", t.sum, ASCEND_SIM_OUT, place_of(*t.sum, t)}},
                                  options);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_add_rms_norm(const npu_rope_tensor* x, const npu_rope_tensor* residual,
                                                     const npu_rope_tensor* scale, int64_t axis, double epsilon,
                                                     int64_t stash_type, const npu_rope_tensor* out,
                                                     const npu_rope_tensor* sum, const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return reported("add_rms_norm", [&] {
        return run_add_rms_norm_on_sim({x, residual, scale, out, sum}, {axis, epsilon, stash_type}, options);
    });
}
