// include/npu_rope.h compiles in C++, its functions have C linkage, and its structs have the layout of native.py.
#include <cstddef>
#include <cstdio>

#include "include/npu_rope.h"

static_assert(sizeof(npu_rope_tensor) == 80, "npu_rope_tensor has the layout native.py assumes");
static_assert(offsetof(npu_rope_tensor, shape) == 16 && offsetof(npu_rope_tensor, stride) == 48, "no padding");
static_assert(sizeof(npu_rope_params) == 80, "npu_rope_params has the layout native.py assumes");
static_assert(offsetof(npu_rope_params, freq_base) == 16 && offsetof(npu_rope_params, sections) == 64, "no padding");

int main() {
    npu_rope_params params = npu_rope_default_params(64, NPU_ROPE_MODE_NEOX);
    if (npu_rope_abi_version() != NPU_ROPE_ABI_VERSION || params.n_dims != 64) {
        std::fprintf(stderr, "the library and its header disagree\n");
        return 1;
    }
    return 0;
}
