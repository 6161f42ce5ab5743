// rope on the simulator, and the parts that rope_qk and rope_set_rows share with it: the checks of every native
// path, the real tiling, the real kernel.
#include "csrc/sim/rope.h"

#include <cmath>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/sim/common.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

// Beyond this limit the split position is not exact (numerics: |p| < 2^22).
constexpr int64_t kPositionLimit = int64_t{1} << 22;

Check check_device_positions(const char* op, const npu_rope_tensor& t) {
    int64_t count = 1;
    for (int k = 0; k < t.ndim; ++k) count *= t.shape[k];
    for (int64_t i = 0; i < count; ++i) {
        int64_t offset = 0, rest = i;
        for (int k = t.ndim - 1; k >= 0; rest /= t.shape[k--]) offset += rest % t.shape[k] * t.stride[k];
        int64_t p = index_at(t.data, t.dtype == NPU_ROPE_INT64, offset);
        if (p <= -kPositionLimit || p >= kPositionLimit)
            return bad_value(op, "positions must be between -4194303 and 4194303 on the device but got %lld.",
                             static_cast<long long>(p));
    }
    return {};
}

// Copies exactly the factors that the kernel may read to contiguous memory, for any stride.
std::vector<float> read_factors(const npu_rope_tensor* t, int32_t pairs) {
    std::vector<float> factors(t ? pairs : 0);
    for (size_t i = 0; i < factors.size(); ++i)
        factors[i] = static_cast<const float*>(t->data)[static_cast<int64_t>(i) * t->stride[0]];
    return factors;
}

// The types in the order of the kernel's arguments. The scalar unit reads row indices, and the tiling data hold their
// width, so one compile serves both widths.
std::vector<const char*> column(const RopeTensors& t) {
    std::vector<const char*> types;
    for (int k = 0; k < t.sides; ++k) types.push_back(kernel_type(*t.x[k]));
    types.push_back(kernel_type(*t.positions));
    if (t.scatters) types.push_back("int64_t");
    types.push_back("float");
    for (int k = 0; k < t.sides; ++k) types.push_back(kernel_type(*t.out[k]));
    return types;
}

void add_arguments(const RopeTensors& t, const RopeShape& shape, const npu_rope_tensor* factors, SimLaunch* sim) {
    for (int k = 0; k < t.sides; ++k) sim->add(t.x_name[k], t.x[k], ASCEND_SIM_IN);
    sim->add("positions", t.positions, ASCEND_SIM_IN);
    if (t.scatters) sim->add("rows", t.rows, ASCEND_SIM_IN);
    sim->add("freq_factors", factors, ASCEND_SIM_IN);
    add_results(t, shape, sim);
    // A cache is an input that the kernel writes.
    if (t.scatters) sim->add_again(sim->count() - 1);
}

Check run_rope_on_sim(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle,
                      const npu_rope_sim_options* options) {
    RopeShape shape;
    if (Check c = check_rope(t, params, angle, &shape); !c.ok()) return c;
    RopeOnSim call;
    if (Check c = accept_rope_on_sim(t, shape, *params, angle, options, &call); !c.ok() || shape.empty()) return c;
    RopeTilingData tiling;
    RopeLaunch launch;
    if (Check c = rope_tiling(rope_tiling_input(t, shape, *params, forward != 0), call.platform, &tiling, &launch);
        !c.ok())
        return c;
    SimLaunch sim;
    add_arguments(t, shape, t.freq_factors ? &call.packed_factors : nullptr, &sim);
    return sim.run(t.op, kernel_name(t.op, options->soc, column(t)), *options, launch.block_dim, launch.tiling_key,
                   &tiling, sizeof tiling, uint64_t(launch.workspace_bytes));
}

}  // namespace

Check accept_rope_on_sim(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params, int32_t angle,
                         const npu_rope_sim_options* options, RopeOnSim* call) {
    if (!options || !options->soc) return bad_value(t.op, "options must name a soc but got NULL.");
    if (Check c = platform_of(t.op, *options, &call->platform); !c.ok()) return c;
    if (Check c = check_rope_on_chip(t, angle, "sim", call->platform, options->soc); !c.ok()) return c;
    // Check the CPU's limit of frequencies, because the values of the factors are readable here.
    std::vector<float>& factors = call->factors = read_factors(t.freq_factors, rope_pairs(params));
    if (Check c = check_rope_frequencies(rope_frequencies(params, factors.empty() ? nullptr : factors.data(), 1));
        !c.ok())
        return c;
    call->packed_factors = {factors.data(), NPU_ROPE_FLOAT32, 1, {int64_t(factors.size())}, {1}};
    return shape.empty() ? Check{} : check_device_positions(t.op, *t.positions);
}

npu_rope_status rope_sim_entry(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle,
                               const npu_rope_sim_options* options) {
    return reported(t.op, [&] { return run_rope_on_sim(t, params, forward, angle, options); });
}

}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_rope(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                                             const npu_rope_tensor* freq_factors, const npu_rope_params* params,
                                             int32_t forward, npu_rope_angle angle, const npu_rope_tensor* out,
                                             const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return rope_sim_entry(rope_tensors(x, positions, freq_factors, out), params, forward, angle, options);
}
