// Kernels that a program launches itself, with <<<blocks, l2ctrl, stream>>>.
#include <memory>
#include <vector>

#include "cann/runtime/api.h"
#include "include/ascend_sim_cann.h"
#include "src/chips.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

// hicann/runtime src/runtime/api/impl/api_error.cc, the checks of a kernel's launch: 1 .. 65535 blocks.
constexpr int64_t kMostBlocks = 65535;

struct Allocation {
    char* first = nullptr;
    uint64_t bytes = 0;
};

// The launch's own copy of the kernel's description.
struct OwnKernel {
    explicit OwnKernel(const ascend_sim_kernel& k)
        : name(k.name),
          arch(k.arch),
          auto_sync(k.auto_sync),
          blocks(k.blocks),
          call(k.call),
          context(k.context, k.release),
          pointers(k.pointers, k.pointers + k.pointer_count) {}

    int32_t run() const;

    std::string name;
    int32_t arch, auto_sync;
    int64_t blocks;
    ascend_sim_call call;
    std::shared_ptr<void> context;
    std::vector<void*> pointers;
};

// One memory for each allocation. Every allocation may be written, also by sums of several cores.
int32_t OwnKernel::run() const {
    std::vector<Allocation> allocations;
    std::vector<ascend_sim_arg> arguments;
    for (void* pointer : pointers) {
        void* first = nullptr;
        uint64_t bytes = 0;
        if (!pointer) {
            arguments.push_back({-1, 0});
            continue;
        }
        if (!find_allocation(pointer, &first, &bytes)) {
            const std::string text = "SIM-BOUNDS-03 " + name + ": pointer " + std::to_string(arguments.size() + 1) +
                                     " of the kernel's arguments points to no device memory.";
            const std::string error = ascend_sim::Json().field("rule", "SIM-BOUNDS-03").field("text", text).done();
            record_launch(name,
                          ascend_sim::Json().field("status", "broken rule").raw("errors", "[" + error + "]").done());
            return failed(kVectorCoreException, text);
        }
        size_t i = 0;
        while (i < allocations.size() && allocations[i].first != first) ++i;
        if (i == allocations.size()) allocations.push_back({static_cast<char*>(first), bytes});
        arguments.push_back({static_cast<int32_t>(i), static_cast<char*>(pointer) - allocations[i].first});
    }
    std::vector<std::string> names;
    names.reserve(allocations.size());
    std::vector<ascend_sim_memory> memories;
    for (const Allocation& a : allocations) {
        names.push_back("allocation of pointer " + std::to_string(memories.size() + 1));
        memories.push_back({names.back().c_str(), a.first, a.bytes, ASCEND_SIM_SUM});
    }
    const ascend_sim_launch* const options = launch_options();
    ascend_sim_launch launch = options ? *options : ascend_sim_launch{};
    launch.soc = soc_name();
    launch.block_dim = static_cast<uint32_t>(blocks);
    launch.auto_sync = auto_sync;
    const int32_t status =
        ascend_sim_run_call(call, context.get(), memories.data(), static_cast<int32_t>(memories.size()),
                            arguments.data(), static_cast<int32_t>(arguments.size()), &launch);
    record_launch(name, ascend_sim_report());
    if (status == ASCEND_SIM_OK) return kSuccess;
    return failed(kVectorCoreException,
                  name + ": kernel must keep the simulator's rules but got " + ascend_sim_message());
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

int32_t ascend_sim_launch_kernel(const ascend_sim_kernel* kernel) {
    auto own = std::make_shared<const OwnKernel>(*kernel);
    const ascend_sim::Family* family = ascend_sim::find_family(soc_name());
    if (!family || family->arch != own->arch)
        return failed(kRtInvalid, own->name + ": the kernel must be compiled for " + soc_name() +
                                      " but was not (ascend-sim program --soc).");
    if (own->blocks < 1 || own->blocks > kMostBlocks)
        return failed(kRtInvalid, own->name, "numBlocks must be 1 to 65535", own->blocks);
    auto* executor = new aclOpExecutor{own->name, [own](void*, uint64_t) { return own->run(); }};
    for (void* pointer : own->pointers) {
        void* first = nullptr;
        uint64_t bytes = 0;
        if (pointer && find_allocation(pointer, &first, &bytes))
            executor->accesses.push_back(
                {"pointer", static_cast<char*>(first), {static_cast<int64_t>(bytes)}, {1}, 1, true, true});
    }
    return launch(nullptr, 0, executor, kernel->stream);
}
