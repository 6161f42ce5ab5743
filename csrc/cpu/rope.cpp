#include "csrc/cpu/rope.h"

#include "csrc/cpu/rope_table.h"

namespace npu_rope {

Check run_rope_cpu(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle) {
    rope_table::Angles made_of;
    Rotation call;
    if (Check c = check_rope(t, params, angle, &call.shape); !c.ok()) return c;
    if (Check c = rope_table::describe(t, *params, forward, angle, &made_of, &call); !c.ok()) return c;
    rotate_all(made_of, call);
    return {};
}

}  // namespace npu_rope
