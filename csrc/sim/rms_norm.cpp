// rms_norm on the simulator, and the parts that add_rms_norm and rms_norm_backward share with it.
#include "csrc/sim/rms_norm.h"

#include <cstring>

namespace npu_rope {
namespace {

Check run_rms_norm_on_sim(const RmsNormTensors& t, const RmsNormAttributes& a, const npu_rope_sim_options* options) {
    RmsNormTilingInput in;
    if (Check c = check_rms_norm(t, a, &in.shape); !c.ok()) return c;
    in.dtype = t.x->dtype;
    in.scale_dtype = t.scale->dtype;
    const int32_t again = t.out->data == t.x->data && t.x->dtype == t.out->dtype ? 0 : -1;
    return launch_rms_norm_on_sim(
        in,
        {{"x", t.x, ASCEND_SIM_IN, -1}, {"scale", t.scale, ASCEND_SIM_IN, -1}, {"out", t.out, ASCEND_SIM_OUT, again}},
        options);
}

}  // namespace

Check launch_rms_norm_on_sim(const RmsNormTilingInput& in, std::initializer_list<SimTensor> tensors,
                             const npu_rope_sim_options* options) {
    if (!options || !options->soc) return bad_value(in.op, "options must name a soc but got NULL.");
    Platform platform;
    if (Check c = platform_of(in.op, *options, &platform); !c.ok()) return c;
    if (Check c = check_rms_norm_on_chip(in, platform, options->soc); !c.ok()) return c;
    if (in.shape.rows == 0 || in.shape.n == 0) return {};
    RmsNormTilingData tiling;
    RopeLaunch launch;
    if (Check c = rms_norm_tiling(in, platform, &tiling, &launch); !c.ok()) return c;
    SimLaunch sim;
    std::vector<const char*> column;
    for (const SimTensor& t : tensors) {
        // An input that the kernel writes is also an output of the same name, with one type for both.
        const bool is_written_input = t.again >= 0 && std::strcmp(t.name, tensors.begin()[t.again].name) == 0;
        if (!is_written_input) column.push_back(kernel_type(*t.tensor));
        if (t.again >= 0)
            sim.add_again(t.again);
        else
            sim.add(t.name, t.tensor, t.role);
    }
    return sim.run(in.op, kernel_name(in.op, options->soc, column), *options, launch.block_dim, launch.tiling_key,
                   &tiling, sizeof tiling, uint64_t(launch.workspace_bytes));
}

}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_rms_norm(const npu_rope_tensor* x, const npu_rope_tensor* scale, int64_t axis,
                                                 double epsilon, int64_t stash_type, const npu_rope_tensor* out,
                                                 const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return reported("rms_norm",
                    [&] { return run_rms_norm_on_sim({x, scale, out}, {axis, epsilon, stash_type}, options); });
}
