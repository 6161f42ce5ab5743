// rms_norm_backward on the simulator.
#include "csrc/sim/rms_norm.h"

namespace npu_rope {
namespace {

Check run_rms_norm_backward_on_sim(const RmsNormBackwardTensors& t, const RmsNormAttributes& a,
                                   const npu_rope_sim_options* options) {
    RmsNormTilingInput in;
    in.op = "rms_norm_backward";
    in.backward = true;
    if (Check c = check_rms_norm_backward_sums(t, a, &in.shape); !c.ok()) return c;
    in.dtype = t.x->dtype;
    in.scale_dtype = t.scale->dtype;
    constexpr int32_t kDscale = 3;
    return launch_rms_norm_on_sim(in,
                                  {{"grad", t.grad, ASCEND_SIM_IN, -1},
                                   {"x", t.x, ASCEND_SIM_IN, -1},
                                   {"scale", t.scale, ASCEND_SIM_IN, -1},
                                   {"dscale", t.dscale, ASCEND_SIM_SUM, -1},
                                   {"dx", t.dx, ASCEND_SIM_OUT, -1},
                                   {"dscale", t.dscale, ASCEND_SIM_SUM, kDscale}},
                                  options);
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_rms_norm_backward(const npu_rope_tensor* grad, const npu_rope_tensor* x,
                                                          const npu_rope_tensor* scale, int64_t axis, double epsilon,
                                                          int64_t stash_type, const npu_rope_tensor* dx,
                                                          const npu_rope_tensor* dscale,
                                                          const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return reported("rms_norm_backward", [&] {
        return run_rms_norm_backward_on_sim({grad, x, scale, dx, dscale}, {axis, epsilon, stash_type}, options);
    });
}
