// A kernel and its arguments, which the second phase of a call launches on the simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cann/host/device_view.h"
#include "cann/runtime/objects.h"

namespace simulated_cann {

// All data of a launch. The struct has copies, because the call's objects may be destroyed before the launch. If
// `entry` is null, no kernel is launched.
struct OpLaunch {
    struct Memory {
        DeviceView view;
        int32_t role;    // ascend_sim_role
        bool is_packed;  // the kernel gets a contiguous copy
    };
    std::string type, chip;
    void* entry = nullptr;
    std::vector<Memory> memories;         // one for each given tensor, without repetition
    std::vector<int> arguments;           // for each argument of the kernel, its index in `memories`; -1 for NULL
    uint64_t workspace_bytes = 0;         // workspace that the caller must provide
    uint64_t packed_bytes = 0;            // the last part of the workspace, for the contiguous copies
    uint64_t kernel_workspace_bytes = 0;  // the part that the kernel itself uses
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    std::vector<uint8_t> tiling;
    bool deterministic = false;  // the result must not depend on the order of the cores

    // The memory that run() accesses, except the workspace.
    std::vector<MemoryAccess> accesses() const;
    // Workspace bytes for the contiguous copies of views.
    uint64_t count_packed_bytes() const;
    // Runs the kernel. Returns aclnn's status and passes the message of a failure to set_error().
    int32_t run(void* workspace, uint64_t given_bytes) const;

private:
    int32_t refuse(const std::string& text) const;
};

}  // namespace simulated_cann
