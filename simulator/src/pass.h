// One pass over the cores of a launch, in ascending or descending order, on memory of its own.
#pragma once

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "include/ascend_sim.h"
#include "src/arena.h"
#include "src/core.h"
#include "src/timeline.h"

namespace ascend_sim {

constexpr int kMaxArgs = 64;  // with workspace and tiling

struct Job {
    void* entry;           // a function of addresses in GM, or null
    ascend_sim_call call;  // if there is no entry
    const void* context;
    const ascend_sim_memory* memories;
    int32_t memory_count;
    const ascend_sim_arg* args;
    int32_t arg_count;
    const ascend_sim_launch* launch;
    const Profile* profile;
};

// The items of a list such as "SIM-COUNT-01,SIM-EVENT-05".
std::set<std::string> split_list(const char* list);

// The order of the cores. Spoiled: ascending, with garbage for data that no result may depend on.
enum class PassKind { Ascending, Descending, Spoiled };

class Pass {
public:
    Pass(const Job& job, PassKind kind, const Spoiling& spoiling = {}) : job_(job), kind_(kind), spoiling_(spoiling) {}

    // Throws if there is not enough memory.
    void run();

    // The last write to the byte of memory i.
    const GmAccess* writer_of(int32_t i, uint64_t byte) const {
        const auto& page = gm_[size_t(i)].writer[byte / kPageBytes];
        return page ? find_access(accesses_, page[byte % kPageBytes]) : nullptr;
    }
    const uint8_t* memory(int32_t i) const { return arenas_[size_t(i)].base(); }

    std::vector<Report> errors, warnings;
    Timeline timeline;
    LeftoverRead leftover_read;
    std::vector<UndefinedRead> undefined_reads;

private:
    struct RunningCore;
    using Waiting = std::vector<std::unique_ptr<RunningCore>>;

    Machine& prepare();
    void place_memory(Machine& m);
    void add_memory(Machine& m, const char* name, const void* data, uint64_t bytes, Role role, int fill = 0);
    void run_cores(Machine& m);
    void report_exception(Machine& m, const char* what) const;
    void run_core(Machine& m, RunningCore& core);
    void run_waiting(Machine& m, Waiting* waiting);
    void resume(Machine& m, RunningCore& core);
    void end_waiting(Machine& m, const Waiting& waiting);
    void report_missing_signal(Machine& m, RunningCore& core, const Waiting& waiting);
    void call_kernel();
    void check_launch(Machine& m);
    void check_unwritten(Machine& m) const;

    const Job& job_;
    std::string kernel_name_;
    PassKind kind_;
    Spoiling spoiling_;
    bool ends_waits_ = false;     // every wait ends its core
    std::exception_ptr failure_;  // what ended a core: it must not leave the core's fiber
    std::vector<Arena> arenas_;
    std::vector<GmTensor> gm_;
    std::vector<GmAccess> accesses_;
    std::vector<CoreMemory> spare_memories_;
    uint8_t* addresses_[kMaxArgs] = {};
};

}  // namespace ascend_sim
