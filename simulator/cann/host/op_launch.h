// The second phase of a call: a kernel and its arguments, launched on the simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/cann/host/device_view.h"
#include "simulator/cann/runtime/objects.h"

namespace npu_cann {

// Everything that is needed, and nothing that may be gone by then. Without an entry nothing is launched.
struct OpLaunch {
    struct Memory {
        DeviceView view;
        int32_t role;  // npu_sim_role
        bool packs;    // the kernel gets a contiguous copy
    };
    std::string type, chip;
    void* entry = nullptr;
    std::vector<Memory> memories;  // of the tensors that are there
    std::vector<int> arguments;    // of the kernel: a memory, or -1
    uint64_t workspace_bytes = 0;  // that the caller brings
    uint64_t packed_bytes = 0;     // of these, at their end: for contiguous copies
    uint64_t kernel_workspace_bytes = 0;
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    std::vector<uint8_t> tiling;

    // The memory that run() touches, without the workspace.
    std::vector<MemoryAccess> accesses() const;
    // What the contiguous copies of views need of a workspace.
    uint64_t bytes_to_pack() const;
    // On the device: aclnn's status; the sentence is set_error's.
    int32_t run(void* workspace, uint64_t given_bytes) const;

private:
    int32_t failed(const std::string& text) const;
};

}  // namespace npu_cann
