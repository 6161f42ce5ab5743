// Kernels that a program launches with <<<blocks, l2ctrl, stream>>> instead of aclnn.
#include <memory>
#include <utility>
#include <vector>

#include "cann/runtime/api.h"
#include "include/ascend_sim_cann.h"
#include "src/chips.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

// hicann/runtime src/runtime/api/impl/api_error.cc, the checks of a kernel's launch: 1 .. 65535 blocks.
constexpr int64_t kMaxBlocks = 65535;

struct Allocation {
    char* first = nullptr;
    uint64_t bytes = 0;
};

// A copy of a kernel's description, which lives until the launch has run.
struct LaunchedKernel {
    explicit LaunchedKernel(const ascend_sim_kernel& description)
        : name(description.name),
          arch(description.arch),
          auto_sync(description.auto_sync),
          blocks(description.blocks),
          call(description.call),
          context(description.context, description.release),
          pointers(description.pointers, description.pointers + description.pointer_count) {}

    int32_t run() const;

    std::string name;
    int32_t arch, auto_sync;
    int64_t blocks;
    ascend_sim_call call;
    std::shared_ptr<void> context;
    std::vector<void*> pointers;
};

// Records a launch that breaks a rule before the kernel runs.
void record_broken_launch(const std::string& name, const std::string& rule, const std::string& text) {
    const std::string error = ascend_sim::Json().field("rule", rule).field("text", text).done();
    record_launch(name, ascend_sim::Json().field("status", "broken rule").raw("errors", "[" + error + "]").done());
}

// Passes one memory to the simulator for each allocation to which the pointers point. The role of each memory is SUM:
// the kernel may write it, and several cores may add to it.
int32_t LaunchedKernel::run() const {
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
            record_broken_launch(name, "SIM-BOUNDS-03", text);
            return fail(kVectorCoreException, text);
        }
        size_t index = 0;
        while (index < allocations.size() && allocations[index].first != first) ++index;
        if (index == allocations.size()) allocations.push_back({static_cast<char*>(first), bytes});
        arguments.push_back({static_cast<int32_t>(index), static_cast<char*>(pointer) - allocations[index].first});
    }
    std::vector<std::string> names;
    names.reserve(allocations.size());
    std::vector<ascend_sim_memory> memories;
    for (const Allocation& allocation : allocations) {
        names.push_back("allocation of pointer " + std::to_string(memories.size() + 1));
        memories.push_back({names.back().c_str(), allocation.first, allocation.bytes, ASCEND_SIM_SUM});
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
    return fail(kVectorCoreException,
                name + ": kernel must keep the simulator's rules but got " + ascend_sim_message());
}

// Refuses a launch. <<<>>> returns nothing that says so to the program, so the report does.
int32_t refuse(const std::string& name, const std::string& text) {
    record_broken_launch(name, "launch", "the launch was refused: " + text);
    return fail(kRtInvalid, name + ": " + text);
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

int32_t ascend_sim_launch_kernel(const ascend_sim_kernel* kernel) {
    auto launched = std::make_shared<const LaunchedKernel>(*kernel);
    const ascend_sim::Family* family = ascend_sim::find_family(soc_name());
    if (!family || family->arch != launched->arch)
        return refuse(launched->name, std::string("the kernel must be compiled for ") + soc_name() +
                                          " but was not (ascend-sim program --soc).");
    if (launched->blocks < 1 || launched->blocks > kMaxBlocks)
        return refuse(launched->name, "numBlocks must be 1 to 65535 but got " + std::to_string(launched->blocks) + ".");
    auto executor = std::make_unique<aclOpExecutor>();
    executor->name = launched->name;
    executor->run = [launched](void*, uint64_t) { return launched->run(); };
    for (void* pointer : launched->pointers) {
        void* first = nullptr;
        uint64_t bytes = 0;
        if (pointer && find_allocation(pointer, &first, &bytes))
            executor->accesses.push_back(
                {"pointer", static_cast<char*>(first), {static_cast<int64_t>(bytes)}, {1}, 1, true, true});
    }
    return launch(nullptr, 0, std::move(executor), kernel->stream);
}
