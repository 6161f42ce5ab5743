// The result of any operator's tiling.
#pragma once

#include <cstdint>

namespace npu_rope {

struct KernelLaunch {
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    int64_t workspace_bytes = 0;  // for the kernel; pass_to_cann() adds the bytes of CANN's library
    bool cores_wait = false;      // cores wait for each other, so all of them must start together
};

// The tiling of a call. A call without elements needs no launch.
template <typename Data>
struct TilingResult {
    Data data = {};
    KernelLaunch launch;
    bool has_elements() const { return launch.block_dim != 0; }
};

}  // namespace npu_rope
