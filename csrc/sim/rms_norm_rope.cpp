// rms_norm_rope on the simulator: the checks of every native path, the real tiling, the real kernel.
#include "csrc/sim/common.h"
#include "csrc/sim/rope.h"
#include "op_host/rms_norm_rope_tiling.h"

namespace npu_rope {
namespace {

// The types in the order of the kernel's arguments. The scalar unit reads row numbers, and the tiling data hold their
// width, so one compile serves both widths.
std::vector<const char*> column(const RopeTensors& t) {
    const char* type = kernel_type(*t.x[0]);
    return {type, type, type, type, kernel_type(*t.positions), "int64_t", "float", type, type, type};
}

Check run_rms_norm_rope_on_sim(const RmsNormRopeTensors& t, const npu_rope_params* params, const HeadNorm& norm,
                               int32_t angle, const npu_rope_sim_options* options) {
    const RopeTensors& rope = t.rope;
    RopeShape shape;
    if (Check c = check_rms_norm_rope(t, params, norm.epsilon, angle, &shape); !c.ok()) return c;
    RopeOnSim call;
    if (Check c = accept_rope_on_sim(rope, shape, *params, angle, options, &call); !c.ok() || shape.empty()) return c;
    RmsNormRopeTilingData tiling;
    RopeLaunch launch;
    if (Check c =
            rms_norm_rope_tiling(rms_norm_rope_tiling_input(t, shape, *params, norm), call.platform, &tiling, &launch);
        !c.ok())
        return c;
    SimLaunch sim;
    for (int k = 0; k < 2; ++k) sim.add(rope.x_name[k], rope.x[k], ASCEND_SIM_IN);
    sim.add("q_scale", t.scale[0], ASCEND_SIM_IN);
    sim.add("k_scale", t.scale[1], ASCEND_SIM_IN);
    sim.add("positions", rope.positions, ASCEND_SIM_IN);
    sim.add("rows", rope.rows, ASCEND_SIM_IN);
    sim.add("freq_factors", rope.freq_factors ? &call.packed_factors : nullptr, ASCEND_SIM_IN);
    const int32_t cache = sim.count();
    sim.add("cache", rope.scatters ? rope.out[1] : nullptr, ASCEND_SIM_INOUT);
    for (int k = 0; k < 2; ++k) {
        if (rope.scatters && k == 1)
            sim.add_again(cache);
        else if (shape.side[k].in_place)
            sim.add_again(k);
        else
            sim.add(rope.out_name[k], rope.out[k], ASCEND_SIM_OUT);
    }
    return sim.run(rope.op, kernel_name("rms_norm_rope", options->soc, column(rope)), *options, launch.block_dim,
                   launch.tiling_key, &tiling, sizeof tiling, uint64_t(launch.workspace_bytes));
}

}  // namespace
}  // namespace npu_rope

extern "C" {

npu_rope_status npu_rope_sim_rms_norm_rope(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                           const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                           const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                           const npu_rope_params* params, double epsilon, int32_t intermediate_rounding,
                                           npu_rope_angle angle, const npu_rope_tensor* q_out,
                                           const npu_rope_tensor* k_out, const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return reported("rms_norm_rope", [&] {
        return run_rms_norm_rope_on_sim(
            rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, freq_factors, q_out, k_out), params,
            {epsilon, intermediate_rounding != 0}, angle, options);
    });
}

npu_rope_status npu_rope_sim_rms_norm_rope_set_rows(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                    const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                                    const npu_rope_tensor* positions, const npu_rope_tensor* rows,
                                                    const npu_rope_tensor* freq_factors, const npu_rope_params* params,
                                                    double epsilon, int32_t intermediate_rounding, npu_rope_angle angle,
                                                    const npu_rope_tensor* q_out, const npu_rope_tensor* cache,
                                                    const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return reported("rms_norm_rope", [&] {
        return run_rms_norm_rope_on_sim(
            rms_norm_rope_set_rows_tensors(q, k, q_scale, k_scale, positions, rows, freq_factors, q_out, cache), params,
            {epsilon, intermediate_rounding != 0}, angle, options);
    });
}

}  // extern "C"
