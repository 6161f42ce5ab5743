// A kernel and its arguments, which the second phase of a call launches on the simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cann/host/device_view.h"
#include "cann/runtime/objects.h"

namespace simulated_cann {

// All data of a launch, by value, because the call's objects may be destroyed before the launch. Without an entry,
// no kernel is launched.
struct OpLaunch {
    struct Memory {
        DeviceView view;
        int32_t role;  // ascend_sim_role
        bool packs;    // the kernel gets a contiguous copy
    };
    std::string type, chip;
    void* entry = nullptr;
    std::vector<Memory> memories;  // of the given tensors
    std::vector<int> arguments;    // of the kernel: an index in memories, or -1 for NULL
    uint64_t workspace_bytes = 0;  // bytes that the caller must provide
    uint64_t packed_bytes = 0;     // its last part, for the contiguous copies
    uint64_t kernel_workspace_bytes = 0;
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    std::vector<uint8_t> tiling;

    // The memory that run() accesses, without the workspace.
    std::vector<MemoryAccess> accesses() const;
    // Workspace bytes for the contiguous copies of views.
    uint64_t bytes_to_pack() const;
    // Runs the kernel. Returns aclnn's status; passes the message of a failure to set_error().
    int32_t run(void* workspace, uint64_t given_bytes) const;

private:
    int32_t failed(const std::string& text) const;
};

}  // namespace simulated_cann
