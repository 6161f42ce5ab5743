#include "cann/host/op_launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cann/host/op_call.h"
#include "cann/runtime/objects.h"
#include "include/ascend_sim.h"

namespace simulated_cann {
namespace {

constexpr uint64_t kPackedAlignment = 512;  // bytes, as of aclrtMalloc
// After a kernel, its workspace has undefined contents; the simulation fills the first bytes with this value.
constexpr int kJunkByte = 0xD7;
constexpr uint64_t kMaxJunkBytes = 64 * 1024;

uint64_t aligned_packed_bytes(const DeviceView& view) {
    return (view.packed_size() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

// torch_npu's EXEC_NPU_CMD_EXT frees a call's workspace before it launches the call (Ascend/op-plugin
// op_plugin/utils/op_api_common_base.h, GetWorkSpaceAddr). If torch_npu's memory cache is on, the workspace stays valid
// until the stream has used it. If the cache is off, the workspace is freed before the kernel runs.
bool is_memory_cache_off() {
    const char* uncached = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
    return uncached && *uncached && std::strcmp(uncached, "0") != 0;
}

}  // namespace

std::vector<MemoryAccess> OpLaunch::accesses() const {
    std::vector<MemoryAccess> accesses;
    for (const Memory& memory : memories)
        accesses.push_back({memory.view.name, memory.view.first, memory.view.shape, memory.view.strides,
                            memory.view.item_bytes, memory.role != ASCEND_SIM_OUT, memory.role != ASCEND_SIM_IN});
    return accesses;
}

uint64_t OpLaunch::count_packed_bytes() const {
    uint64_t bytes = 0;
    for (const Memory& memory : memories)
        if (memory.is_packed) bytes += aligned_packed_bytes(memory.view);
    return bytes;
}

int32_t OpLaunch::refuse(const std::string& text) const {
    set_error("[" + type + "] " + text);
    return kKernelFailed;
}

int32_t OpLaunch::run(void* workspace, uint64_t given_bytes) const {
    // A workspace or a tensor may have been freed before the device reached this launch.
    char* const workspace_first = static_cast<char*>(workspace);
    const bool has_workspace = given_bytes > 0 && is_in_one_allocation(workspace_first, workspace_first + given_bytes);
    if (given_bytes > 0 && !has_workspace && !is_memory_cache_off())
        return refuse("workspace must lie inside one allocation of device memory but got other memory.");
    for (const Memory& memory : memories)
        if (!memory.view.is_in_one_allocation())
            return refuse(memory.view.name +
                          " must lie inside one allocation of device memory when the kernel runs but got "
                          "memory that was freed.");
    std::vector<DeviceView> views;
    std::vector<char> fallback_copies(has_workspace ? 0 : packed_bytes);
    char* packed_first = has_workspace ? workspace_first + given_bytes - packed_bytes : fallback_copies.data();
    for (const Memory& memory : memories) {
        views.push_back(memory.is_packed ? memory.view.pack_into(packed_first) : memory.view);
        if (memory.is_packed) packed_first += aligned_packed_bytes(memory.view);
    }
    std::vector<ascend_sim_memory> spans;
    for (size_t i = 0; i < memories.size(); ++i) {
        const DeviceView& view = views[i];
        const bool has_gaps = memories[i].role == ASCEND_SIM_OUT && !view.is_contiguous();
        spans.push_back({view.name.c_str(), view.low, static_cast<uint64_t>(view.high - view.low),
                         has_gaps ? ASCEND_SIM_PART : memories[i].role});
    }
    std::vector<ascend_sim_arg> args;
    for (int i : arguments) {
        const DeviceView* view = i < 0 ? nullptr : &views[static_cast<size_t>(i)];
        args.push_back({i, view ? view->first - view->low : 0});
    }
    const ascend_sim_launch* const options = launch_options();
    ascend_sim_launch launch = options ? *options : ascend_sim_launch{};
    launch.soc = chip.c_str();
    launch.block_dim = block_dim;
    launch.tiling_key = tiling_key;
    launch.tiling = tiling.data();
    launch.tiling_bytes = tiling.size();
    launch.workspace_bytes = kernel_workspace_bytes;
    int32_t status = ascend_sim_run(entry, spans.data(), static_cast<int32_t>(spans.size()), args.data(),
                                    static_cast<int32_t>(args.size()), &launch);
    record_launch(type, ascend_sim_report());
    for (size_t i = 0; i < memories.size(); ++i)  // copy written inputs back, as aclnnViewCopy does
        if (memories[i].is_packed && memories[i].role != ASCEND_SIM_IN) memories[i].view.unpack_from(views[i].first);
    if (has_workspace) std::memset(workspace_first, kJunkByte, std::min(given_bytes, kMaxJunkBytes));
    if (status == ASCEND_SIM_OK) return OK;
    return refuse(std::string("kernel must keep the simulator's rules but got ") + ascend_sim_message());
}

}  // namespace simulated_cann
