// Define the C function that runs rotary_embedding on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rotary.h"

extern "C" npu_rope_status npu_rope_rotary_embedding(const npu_rope_tensor* x, const npu_rope_tensor* cos_cache,
                                                     const npu_rope_tensor* sin_cache,
                                                     const npu_rope_tensor* position_ids, int32_t interleaved,
                                                     int64_t num_heads, int64_t rotary_embedding_dim, int32_t forward,
                                                     const npu_rope_tensor* y) {
    using namespace npu_rope;
    RotaryAttributes attributes{interleaved != 0, rotary_embedding_dim, /*offset=*/0, num_heads};
    return guarded("rotary_embedding", [&] {
        return run_rotary_cpu(rotary_embedding_tensors(x, cos_cache, sin_cache, position_ids, y), attributes,
                              forward != 0);
    });
}
