// Shared parts of rope, rope_qk and rope_set_rows on NPU tensors: rope's attributes, and the checks before a launch.
// rms_norm_rope uses some of them.
// aclnn's first phase cannot report an error through torch_npu's queue, so the checks reject every call that the tiling
// rejects.
#pragma once

#include <vector>

#include "csrc/core/rope_check.h"
#include "csrc/npu/launch.h"
#include "csrc/npu/package.h"

namespace npu_rope {

// The attributes after "*" in the operators' schemas, in their order.
struct Attributes {
    int64_t n_dims, mode, n_ctx_orig;
    double freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    std::vector<int64_t> sections;
    int64_t n_offs;
    bool forward;
    int64_t angle;
};

#define NPU_ROPE_ATTRIBUTE_PARAMETERS                                                                              \
    int64_t n_dims, int64_t rope_mode, int64_t n_ctx_orig, double freq_base, double freq_scale, double ext_factor, \
        double attn_factor, double beta_fast, double beta_slow, at::OptionalIntArrayRef sections, int64_t n_offs,  \
        bool forward, int64_t angle
#define NPU_ROPE_ATTRIBUTES                                                                                  \
    npu_rope::Attributes {                                                                                   \
        n_dims, rope_mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, \
            npu_rope::sections_or_zeros(sections), n_offs, forward, angle                                    \
    }
// The attributes in aclnn's order, after the inputs. torch_npu's macro requires lvalues. `strides` is the result of
// LaunchTensors::strides().
#define NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides)                                                               \
    a.n_dims, a.mode, a.n_ctx_orig, a.freq_base, a.freq_scale, a.ext_factor, a.attn_factor, a.beta_fast, a.beta_slow, \
        sections, a.forward, a.n_offs, strides

inline std::vector<int64_t> sections_or_zeros(at::OptionalIntArrayRef sections) {
    return sections.has_value() ? sections->vec() : std::vector<int64_t>(4, 0);
}

// The attributes in the form that the checks take. Errors of parameters name the operator rope.
npu_rope_params params_of(const Attributes& a);
int32_t angle_of(const Attributes& a);

// Checks the call, then launches NpuRope once, which rotates x into out. out may be x itself.
void launch_rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& factors, const Attributes& a,
                 const at::Tensor& out);

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
bool check_rope_call(RopeTensors t, const Attributes& a);

}  // namespace npu_rope
