// Shared parts of rope, rope_qk and rope_set_rows on NPU tensors: their attributes, the checks before a launch,
// and the tensors' description for aclnn. aclnn's first phase cannot report an error through torch_npu's queue,
// so this code rejects everything that the tiling may reject, before the launch.
#pragma once

#include <vector>

#include "csrc/core/rope_check.h"
#include "csrc/npu/launch.h"
#include "csrc/npu/package.h"

namespace npu_rope {

// The attributes after "*" in the operators' schemas, in their order. aclnn takes them unchanged.
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
            npu_rope::listed(sections), n_offs, forward, angle                                               \
    }
// The attributes in aclnn's order, after the inputs. They are lvalues because torch_npu's macro requires it. `strides`:
// of the launch.
#define NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides)                                                               \
    a.n_dims, a.mode, a.n_ctx_orig, a.freq_base, a.freq_scale, a.ext_factor, a.attn_factor, a.beta_fast, a.beta_slow, \
        sections, a.forward, a.n_offs, strides

inline std::vector<int64_t> listed(at::OptionalIntArrayRef values) {
    return values.has_value() ? values->vec() : std::vector<int64_t>(4, 0);
}

// The attributes in the form that the checks take. Errors of parameters name the operator rope.
npu_rope_params params_of(const Attributes& a);

// One launch of NpuRope, checked: x into out, which may be x itself.
void launch_rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& factors, const Attributes& a,
                 const at::Tensor& out);

// One launch: its tensors and their names in messages, in the order of the definition in
// op_host/, which is also the order of `strides`. freq_factors is separate, because it is contiguous.
class RopeLaunchCheck {
public:
    // The call's tensors must outlive this object.
    static RopeLaunchCheck rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& factors,
                                const at::Tensor& out);
    static RopeLaunchCheck rope_qk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                                   const OptionalTensor& factors, const at::Tensor& q_out, const at::Tensor& k_out);
    static RopeLaunchCheck rope_set_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows,
                                         const OptionalTensor& factors, const at::Tensor& cache);

    // Raises ValueError or TypeError for a broken rule; returns false if there is nothing to launch. Inputs may have
    // any layout: they are checked in the form that readable() and contiguous() give them.
    bool accepts(const Attributes& a) const;
    // The strides of every tensor except freq_factors; one 0 if all are contiguous.
    std::vector<int64_t> strides() const;

private:
    RopeLaunchCheck(const char* op, int sides, std::vector<LaunchTensor> tensors, const OptionalTensor& factors);

    const char* op_;
    int sides_;
    std::vector<LaunchTensor> tensors_;  // x, or q and k; positions; rows; outputs
    const OptionalTensor& factors_;
};

}  // namespace npu_rope
