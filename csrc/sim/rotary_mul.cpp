// rotary_mul on the simulator, and the parts that rotary_mul_qk and rotary_embedding share with it: the checks of every
// native path, the real tiling, the real kernel.
#include "csrc/sim/common.h"
#include "csrc/sim/rotary.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {
namespace {

// The types in the order of the kernel's arguments. The scalar unit reads row numbers, and the tiling data hold their
// width, so one compile serves both widths.
std::vector<const char*> column(const RotaryTensors& t) {
    std::vector<const char*> types;
    for (int k = 0; k < t.sides; ++k) types.push_back(kernel_type(*t.x[k]));
    types.insert(types.end(), 2, kernel_type(*t.cos));
    if (t.sides == 1) types.push_back("int64_t");
    for (int k = 0; k < t.sides; ++k) types.push_back(kernel_type(*t.out[k]));
    return types;
}

Check run_rotary_on_sim(const RotaryTensors& t, const RotaryAttributes& a, bool forward,
                        const npu_rope_sim_options* options) {
    RotaryShape shape;
    if (Check c = check_rotary(t, a, &shape); !c.ok()) return c;
    if (!options || !options->soc) return bad_value(t.op, "options must name a soc but got NULL.");
    Platform platform;
    if (Check c = platform_of(t.op, *options, &platform); !c.ok()) return c;
    if (Check c = check_dtype_on_chip(t.op, t.x_name[0], t.x[0]->dtype, platform, options->soc); !c.ok()) return c;
    if (shape.rows.empty()) return {};
    RotaryTilingData tiling;
    RopeLaunch launch;
    if (Check c = rotary_tiling(rotary_tiling_input(t, a, shape, forward), platform, &tiling, &launch); !c.ok())
        return c;
    SimLaunch sim;
    for (int k = 0; k < t.sides; ++k) sim.add(t.x_name[k], t.x[k], ASCEND_SIM_IN);
    sim.add(t.cos_name, t.cos, ASCEND_SIM_IN);
    sim.add(t.sin_name, t.sin, ASCEND_SIM_IN);
    if (t.sides == 1) sim.add("position_ids", t.position_ids, ASCEND_SIM_IN);
    add_results(t, shape.rows, &sim);
    const char* kernel = t.sides == 1 ? "rotary_mul" : "rotary_mul_qk";
    return sim.run(t.op, kernel_name(kernel, options->soc, column(t)), *options, launch.block_dim, launch.tiling_key,
                   &tiling, sizeof tiling, uint64_t(launch.workspace_bytes));
}

}  // namespace

npu_rope_status rotary_sim_entry(const RotaryTensors& t, const RotaryAttributes& a, bool forward,
                                 const npu_rope_sim_options* options) {
    return reported(t.op, [&] { return run_rotary_on_sim(t, a, forward, options); });
}

}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_rotary_mul(const npu_rope_tensor* x, const npu_rope_tensor* cos,
                                                   const npu_rope_tensor* sin, int32_t interleaved, int64_t rotary_dim,
                                                   int64_t offset, int32_t forward, const npu_rope_tensor* out,
                                                   const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return rotary_sim_entry(rotary_mul_tensors(x, cos, sin, out), {interleaved != 0, rotary_dim, offset, 0},
                            forward != 0, options);
}
