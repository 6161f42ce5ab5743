// GELU, in the compute type of its argument.
#pragma once

#include <cmath>
#include <cstdint>

namespace simulated_cann {

// Values of `approximate`: hicann/ops-nn activation/gelu_v2/docs/aclnnGeluV2.md and
// activation/ge_glu_v2/docs/aclnnGeGluV3.md.
constexpr int64_t kGeluErf = 0, kGeluTanh = 1;

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + exp(-2 u)): hicann/ops-nn
// activation/ge_glu_v2/op_kernel/ge_glu_v2_base.h, ComputeGeluBase.
template <class Real>
Real gelu_tanh(Real x) {
    const Real twice_u = Real(1.5957691216057308) * (x + Real(0.044715) * x * x * x);
    return x / (Real(1) + std::exp(-twice_u));
}

// x times the normal distribution function.
template <class Real>
Real gelu_erf(Real x) {
    return Real(0.5) * x * std::erfc(x * Real(-0.70710678118654752));
}

template <class Real>
Real gelu_of(Real x, int64_t approximate) {
    return approximate == kGeluTanh ? gelu_tanh(x) : gelu_erf(x);
}

}  // namespace simulated_cann
