#include "csrc/cpu/rope.h"

#include "csrc/cpu/rope_table.h"

namespace npu_rope {

Check run_rope_cpu(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle_policy) {
    rope_table::ComputedTableSource source;
    RotationCall call;
    if (Check c = check_rope(t, params, angle_policy, &call.shape); !c.ok()) return c;
    if (Check c = rope_table::fill_call(t, *params, forward, angle_policy, &source, &call); !c.ok()) return c;
    rotate_all(source, call, rope_kernels_for(call.pairing, call.dtype, call.pairs));
    return {};
}

}  // namespace npu_rope
