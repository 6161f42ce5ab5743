#include "cann/host/op_launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cann/host/op_call.h"
#include "cann/runtime/objects.h"
#include "include/ascend_sim.h"

namespace simulated_cann {
namespace {

constexpr uint64_t kPackedAlignment = 512;
// After a kernel, its workspace has undefined contents; the simulation fills the first bytes with this value.
constexpr int kJunk = 0xD7;
constexpr uint64_t kMaxJunkBytes = 64 * 1024;

uint64_t packed_bytes_of(const DeviceView& view) {
    return (view.packed_size() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

// torch_npu's EXEC_NPU_CMD_EXT frees a call's workspace before it launches the call (Ascend/op-plugin
// op_plugin/utils/op_api_common_base.h, GetWorkSpaceAddr). With its cache, the memory stays valid until the stream has
// used it. Without the cache, the memory is freed before the kernel runs.
bool caller_frees_early() {
    const char* uncached = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
    return uncached && *uncached && std::strcmp(uncached, "0") != 0;
}

}  // namespace

std::vector<MemoryAccess> OpLaunch::accesses() const {
    std::vector<MemoryAccess> all;
    for (const Memory& m : memories)
        all.push_back({m.view.name, m.view.first, m.view.shape, m.view.strides, m.view.item_bytes,
                       m.role != ASCEND_SIM_OUT, m.role != ASCEND_SIM_IN});
    return all;
}

uint64_t OpLaunch::bytes_to_pack() const {
    uint64_t bytes = 0;
    for (const Memory& m : memories)
        if (m.packs) bytes += packed_bytes_of(m.view);
    return bytes;
}

int32_t OpLaunch::failed(const std::string& text) const {
    set_error("[" + type + "] " + text);
    return kKernelFailed;
}

int32_t OpLaunch::run(void* workspace, uint64_t given_bytes) const {
    // A workspace or a tensor may have been freed before the device reached this launch.
    char* const workspace_first = static_cast<char*>(workspace);
    const bool has_workspace = given_bytes > 0 && is_in_one_allocation(workspace_first, workspace_first + given_bytes);
    if (given_bytes > 0 && !has_workspace && !caller_frees_early())
        return failed("workspace must lie inside one allocation of device memory but got other memory.");
    for (const Memory& m : memories)
        if (!m.view.is_in_one_allocation())
            return failed(m.view.name +
                          " must lie inside one allocation of device memory when the kernel runs but got "
                          "memory that was freed.");
    std::vector<DeviceView> views;
    std::vector<char> own_copies(has_workspace ? 0 : packed_bytes);
    char* packed = has_workspace ? workspace_first + given_bytes - packed_bytes : own_copies.data();
    for (const Memory& m : memories) {
        views.push_back(m.packs ? m.view.packed_into(packed) : m.view);
        if (m.packs) packed += packed_bytes_of(m.view);
    }
    std::vector<ascend_sim_memory> spans;
    for (size_t i = 0; i < memories.size(); ++i) {
        const DeviceView& v = views[i];
        const bool has_gaps = memories[i].role == ASCEND_SIM_OUT && !v.contiguous();
        spans.push_back({v.name.c_str(), v.low, static_cast<uint64_t>(v.high - v.low),
                         has_gaps ? ASCEND_SIM_PART : memories[i].role});
    }
    std::vector<ascend_sim_arg> args;
    for (int i : arguments) {
        const DeviceView* v = i < 0 ? nullptr : &views[static_cast<size_t>(i)];
        args.push_back({i, v ? v->first - v->low : 0});
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
    for (size_t i = 0; i < memories.size(); ++i)  // aclnnViewCopy of an input that is written
        if (memories[i].packs && memories[i].role != ASCEND_SIM_IN) memories[i].view.unpack_from(views[i].first);
    if (has_workspace) std::memset(workspace_first, kJunk, std::min(given_bytes, kMaxJunkBytes));
    if (status == ASCEND_SIM_OK) return OK;
    return failed(std::string("kernel must keep the simulator's rules but got ") + ascend_sim_message());
}

}  // namespace simulated_cann
