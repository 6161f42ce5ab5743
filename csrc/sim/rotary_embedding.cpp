#include "csrc/sim/rotary.h"

extern "C" npu_rope_status npu_rope_sim_rotary_embedding(const npu_rope_tensor* x, const npu_rope_tensor* cos_cache,
                                                         const npu_rope_tensor* sin_cache,
                                                         const npu_rope_tensor* position_ids, int32_t interleaved,
                                                         int64_t num_heads, int64_t rotary_embedding_dim,
                                                         int32_t forward, const npu_rope_tensor* y,
                                                         const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return rotary_sim_entry(rotary_embedding_tensors(x, cos_cache, sin_cache, position_ids, y),
                            {interleaved != 0, rotary_embedding_dim, 0, num_heads}, forward != 0, options);
}
