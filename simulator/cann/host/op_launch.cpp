#include "simulator/cann/host/op_launch.h"

#include "simulator/cann/host/op_call.h"
#include "simulator/cann/runtime/objects.h"
#include "simulator/include/npu_sim.h"

namespace npu_cann {

int32_t OpLaunch::run(void* workspace, uint64_t given_bytes) const {
    if (given_bytes < workspace_bytes || (workspace_bytes && !workspace)) {
        set_error("[" + type + "] workspace must have " + std::to_string(workspace_bytes) + " bytes but got " +
                  std::to_string(workspace ? given_bytes : 0) + ".");
        return kBadArgument;
    }
    std::vector<DeviceView> copies(memories.size());
    auto view_of = [&](size_t i) -> const DeviceView& { return memories[i].packs ? copies[i] : memories[i].view; };
    std::vector<npu_sim_memory> spans;
    for (size_t i = 0; i < memories.size(); ++i) {
        if (memories[i].packs) copies[i] = memories[i].view.packed_copy();
        const DeviceView& v = view_of(i);
        spans.push_back({v.name.c_str(), v.low, static_cast<uint64_t>(v.high - v.low), memories[i].role});
    }
    std::vector<npu_sim_arg> args;
    for (int i : arguments) {
        const DeviceView* v = i < 0 ? nullptr : &view_of(static_cast<size_t>(i));
        args.push_back({i, v ? v->first - v->low : 0});
    }
    npu_sim_launch launch = {};
    launch.soc = chip.c_str();
    launch.block_dim = block_dim;
    launch.tiling_key = tiling_key;
    launch.tiling = tiling.data();
    launch.tiling_bytes = tiling.size();
    launch.workspace_bytes = kernel_workspace_bytes;
    int32_t status = npu_sim_run(entry, spans.data(), static_cast<int32_t>(spans.size()), args.data(),
                                 static_cast<int32_t>(args.size()), &launch);
    record_launch(type, npu_sim_report());
    if (status == NPU_SIM_OK) return OK;
    set_error("[" + type + "] kernel must keep the simulator's rules but got " + npu_sim_message());
    return kKernelFailed;
}

}  // namespace npu_cann
