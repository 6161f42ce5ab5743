// rope on the simulator: the checks of every native path, the real tiling, the real kernel.
#include <cmath>
#include <vector>

#include "csrc/sim/common.h"
#include "op_host/dtype.h"
#include "op_host/rope_check.h"
#include "op_host/rope_frequency.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

constexpr const char* kOp = "rope";
// Beyond it the split position loses exactness (numerics: |p| < 2^22).
constexpr int64_t kPositionLimit = int64_t{1} << 22;

int64_t position_at(const npu_rope_tensor& t, int64_t offset) {
    return t.dtype == NPU_ROPE_INT64 ? static_cast<const int64_t*>(t.data)[offset]
                                     : static_cast<const int32_t*>(t.data)[offset];
}

Check check_device_positions(const npu_rope_tensor& t) {
    const bool batched = t.ndim == 2;
    const int64_t rows = batched ? t.shape[0] : 1, columns = t.shape[t.ndim - 1];
    for (int64_t b = 0; b < rows; ++b)
        for (int64_t s = 0; s < columns; ++s) {
            const int64_t p = position_at(t, (batched ? b * t.stride[0] : 0) + s * t.stride[t.ndim - 1]);
            if (p <= -kPositionLimit || p >= kPositionLimit)
                return bad_value(kOp, "positions must be between -4194303 and 4194303 on the device but got %lld.",
                                 static_cast<long long>(p));
        }
    return {};
}

Check check_device_dtype(const npu_rope_tensor& x, const Platform& platform, const char* soc) {
    if (x.dtype == NPU_ROPE_FLOAT64)
        return bad_type(kOp, "x must be float32, float16 or bfloat16 on %s but got float64.", soc);
    if (x.dtype == NPU_ROPE_BFLOAT16 && platform.arch == 200)
        return bad_type(kOp, "x must be float32 or float16 on %s but got bfloat16.", soc);
    return {};
}

// The limit that the CPU keeps, where the factors' values are at hand.
Check check_frequencies(const npu_rope_params& params, const std::vector<float>& factors) {
    const std::vector<long double> frequencies =
        rope_frequencies(params, factors.empty() ? nullptr : factors.data(), 1);
    for (size_t i = 0; i < frequencies.size(); ++i)
        if (Check c = check_rope_frequency(std::fabs(static_cast<double>(frequencies[i])), static_cast<int64_t>(i));
            !c.ok())
            return c;
    return {};
}

// Exactly what the kernel may read of them, back to back, whatever their stride is here.
std::vector<float> read_factors(const npu_rope_tensor* t, int32_t pairs) {
    std::vector<float> factors(t ? pairs : 0);
    for (size_t i = 0; i < factors.size(); ++i)
        factors[i] = static_cast<const float*>(t->data)[static_cast<int64_t>(i) * t->stride[0]];
    return factors;
}

const char* column_type(int32_t dtype) {
    constexpr const char* kNames[] = {"float", "half", "bfloat16_t", "double", "int32_t", "int64_t"};
    return kNames[dtype];
}

Check rope_on_sim(const npu_rope_tensor* x, const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                  const npu_rope_params* params, int32_t forward, int32_t angle, const npu_rope_tensor* out,
                  const npu_rope_sim_options* options) {
    if (!x) return bad_value(kOp, "x must be a tensor but got NULL.");
    if (!positions) return bad_value(kOp, "positions must be a tensor but got NULL.");
    if (!params) return bad_value(kOp, "params must be a struct but got NULL.");
    if (!out) return bad_value(kOp, "out must be a tensor but got NULL.");
    if (!options || !options->soc) return bad_value(kOp, "options must name a soc but got NULL.");
    RopeShape shape;
    if (Check c = check_rope(*x, *positions, freq_factors, *params, angle, *out, &shape); !c.ok()) return c;
    Platform platform;
    if (Check c = platform_of(kOp, options->soc, &platform); !c.ok()) return c;
    if (angle != NPU_ROPE_ANGLE_EXACT)
        return bad_value(kOp, "angle must be exact (0) on backend sim but got %s.",
                         angle == NPU_ROPE_ANGLE_F32 ? "f32" : "ggml");
    if (Check c = check_device_dtype(*x, platform, options->soc); !c.ok()) return c;
    std::vector<float> factors = read_factors(freq_factors, params->n_dims / 2);
    if (Check c = check_frequencies(*params, factors); !c.ok()) return c;
    if (shape.B * shape.S * shape.N * shape.D == 0) return {};
    if (Check c = check_device_positions(*positions); !c.ok()) return c;

    RopeTilingInput in = {};
    in.B = shape.B;
    in.S = shape.S;
    in.N = shape.N;
    in.D = shape.D;
    for (int k = 0; k < 3; ++k) {
        in.x_stride[k] = shape.x_stride[k];
        in.out_stride[k] = shape.out_stride[k];
    }
    for (int k = 0; k < 2; ++k) in.pos_stride[k] = shape.pos_stride[k];
    in.dtype = x->dtype;
    in.positions_int64 = positions->dtype == NPU_ROPE_INT64;
    in.has_factors = freq_factors != nullptr;
    in.in_place = shape.in_place;
    in.forward = forward != 0;
    in.params = *params;
    RopeTilingData tiling;
    RopeLaunch launch;
    if (Check c = rope_tiling(in, platform, &tiling, &launch); !c.ok()) return c;

    SimLaunch sim;
    sim.add("x", x, NPU_SIM_IN);
    sim.add("positions", positions, NPU_SIM_IN);
    npu_rope_tensor packed_factors = {factors.data(), NPU_ROPE_FLOAT32, 1, {int64_t(factors.size())}, {1}};
    sim.add("freq_factors", freq_factors ? &packed_factors : nullptr, NPU_SIM_IN);
    if (shape.in_place)
        sim.add_again(0);
    else
        sim.add("out", out, NPU_SIM_OUT);
    const std::string type = column_type(x->dtype);
    const std::string kernel =
        "npu_rope__" + kernel_soc(options->soc) + "__" + type + "_" + column_type(positions->dtype) + "_float_" + type;
    return sim.run(kOp, kernel, *options, launch.block_dim, launch.tiling_key, &tiling, sizeof tiling,
                   uint64_t(launch.workspace_bytes));
}

}  // namespace
}  // namespace npu_rope

extern "C" npu_rope_status npu_rope_sim_rope(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                                             const npu_rope_tensor* freq_factors, const npu_rope_params* params,
                                             int32_t forward, npu_rope_angle angle, const npu_rope_tensor* out,
                                             const npu_rope_sim_options* options) {
    try {
        return npu_rope::report_sim(
            npu_rope::rope_on_sim(x, positions, freq_factors, params, forward, angle, out, options));
    } catch (const std::exception& e) {
        return npu_rope::report_sim(
            {npu_rope::Check::kInternal, std::string("[rope] call must succeed but got ") + e.what() + "."});
    }
}
