// The kernels of qkv_norm_rope_cache for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. Every product and every sum is
// rounded.
#include "csrc/cpu/qkv_norm_rope_cache_kernels.h"

#include <algorithm>
#include <cmath>

#include "csrc/cpu/elements.h"

namespace npu_rope {
namespace {

template <typename Element, bool kHasScale, bool kHasBias>
void widen_head(const WidenHeadJob& job) {
    using T = typename Element::T;
    const T* x = static_cast<const T*>(job.x);
    int64_t i = 0;
    for (; i + W <= job.count; i += W) {
        FloatVec y = Element::load_vector(x + i);
        if constexpr (kHasScale) y = y * job.inverse * load<FloatVec>(job.scale + i);
        if constexpr (kHasBias) y = y + load<FloatVec>(job.bias + i);
        store(job.y + i, y);
    }
    for (; i < job.count; ++i) {
        float y = Element::to_float(x[i]);
        if constexpr (kHasScale) y = y * job.inverse * job.scale[i];
        if constexpr (kHasBias) y = y + job.bias[i];
        job.y[i] = y;
    }
}

template <typename Element>
void widen(const WidenHeadJob& job) {
    if (!job.scale) return widen_head<Element, false, false>(job);
    job.bias ? widen_head<Element, true, true>(job) : widen_head<Element, true, false>(job);
}

inline int8_t to_int8(float y) {
    if (y != y) return 0;
    return static_cast<int8_t>(std::nearbyint(std::min(127.0f, std::max(-128.0f, y))));
}

void quantize(const QuantizeJob& job) {
    if (job.stride == 0) {
        const float factor = job.factor[0], offset = job.offset ? job.offset[0] : -0.0f;
        for (int64_t i = 0; i < job.count; ++i) job.y[i] = to_int8(job.x[i] * factor + offset);
        return;
    }
    for (int64_t i = 0; i < job.count; ++i) {
        const float y = job.x[i] * job.factor[i];
        job.y[i] = to_int8(job.offset ? y + job.offset[i] : y);
    }
}

template <bool kStream>
void copy_heads(const CopyJob& job) {
    auto* x = static_cast<const char*>(job.x);
    auto* y = static_cast<char*>(job.y);
    for (int64_t h = 0; h < job.count; ++h, x += job.x_step, y += job.y_step) {
        prefetch_bytes(x + job.prefetch_distance, job.bytes);
        copy_bytes<kStream>(y, x, job.bytes);
    }
}

void copy(const CopyJob& job) { job.stream ? copy_heads<true>(job) : copy_heads<false>(job); }

}  // namespace

const QkvKernels& NPU_ROPE_OF_ISA(qkv_norm_rope_cache_kernels, NPU_ROPE_ISA)() {
    static const QkvKernels set = {{widen<F32>, widen<F16>, widen<Bf16>}, quantize, copy};
    return set;
}

}  // namespace npu_rope
