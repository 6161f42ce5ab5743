// Define the C function that runs rope_set_rows on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rope.h"

extern "C" npu_rope_status npu_rope_rope_set_rows(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                                                  const npu_rope_tensor* rows, const npu_rope_tensor* freq_factors,
                                                  const npu_rope_params* params, int32_t forward, int32_t angle,
                                                  const npu_rope_tensor* cache) {
    using namespace npu_rope;
    return guarded("rope_set_rows", [&] {
        return run_rope_cpu(rope_set_rows_tensors(x, positions, rows, freq_factors, cache), params, forward, angle);
    });
}
