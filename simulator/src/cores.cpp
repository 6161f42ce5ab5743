// Signals between the cores of a launch. A signal determines which work is complete for a core that has waited for it,
// and when that core continues.
#include <algorithm>

#include "src/core.h"

namespace ascend_sim {
namespace {

// The flags that CANN's SyncAll() uses (asc-devkit impl/basic_api/dav_3510/kernel_operator_sync_impl.h).
constexpr uint32_t kFirstReservedFlag = 11, kLastReservedFlag = 14;
constexpr uint64_t kCoreFlags = 16, kLargestCount = 15;  // flags between cores, and the largest value of their counters

// The signal that the running core raises after the earlier work of `pipe`, or of all pipes.
CoreSignal signal_after(int32_t pipe, Site site) {
    Machine& m = machine();
    CoreSignal signal;
    for (int p = 0; p < kPipes; ++p) {
        if (pipe != kAllPipes && p != pipe && p != int(Pipe::S)) continue;
        signal.complete.join(m.clock[p]);
        signal.raised = std::max({signal.raised, m.pipe_done[p].time, m.pipe_free[p].time});
        if (pipe == kAllPipes || p == pipe) signal.complete.complete[p] = m.issued[p];
    }
    signal.others = m.others;
    signal.site = site;
    return signal;
}

// Marks the work before the signal as complete for the running core.
void mark_complete(const CoreSignal& signal, int64_t core) {
    Machine& m = machine();
    m.others.resize(size_t(m.blocks));
    m.others[size_t(core)].join(signal.complete);
    for (size_t c = 0; c < signal.others.size(); ++c) m.others[c].join(signal.others[c]);
}

// Stops the running core until missing() returns -1.
void wait_until(const std::function<int64_t()>& missing, const char* api, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (m.profile->cores < m.blocks)
        fatal_at(Rule::Sync02, api, site, "%lld blocks wait for each other on %d cores: the launch would hang.",
                 static_cast<long long>(m.blocks), m.profile->cores);
    if (missing() >= 0) m.pause({missing, api, site});
}

// Continues the scalar unit after the last signal was raised. Its wait begins at its own last step, because a core's
// chain of steps has no steps of other cores.
void continue_at(double raised, const char* api, Site site) {
    Machine& m = machine();
    Moment& free = m.pipe_free[int(Pipe::S)];
    const double begin = free.time, end = std::max(begin, raised) + m.profile->core_signal_cycles;
    free = step(Pipe::S, StepKind::Cores, api, site, free, end);
    keep_span(Pipe::S, api, site, begin, end, 0, 0);
}

// Waits for signal `index` of each of the cores.
void wait_for(uint64_t key, int64_t first, int64_t end, size_t index, const char* api, Site site) {
    Machine& m = machine();
    wait_until(
        [&m, key, first, end, index]() -> int64_t {
            for (int64_t c = first; c < end; ++c)
                if (m.signals.raised(key, c).size() <= index) return c;
            return -1;
        },
        api, site);
    double raised = 0;
    for (int64_t c = first; c < end; ++c) {
        const CoreSignal& signal = m.signals.raised(key, c)[index];
        mark_complete(signal, c);
        raised = std::max(raised, signal.raised);
    }
    continue_at(raised, api, site);
}

// The number of signals that all cores have raised.
size_t complete_rounds(uint64_t key) {
    Machine& m = machine();
    size_t rounds = SIZE_MAX;
    for (int64_t c = 0; c < m.blocks; ++c) rounds = std::min(rounds, m.signals.raised(key, c).size());
    return rounds;
}

}  // namespace

bool Machine::has_seen(const GmAccess& access) const {
    return !others.empty() && others[size_t(access.core)].complete[int(access.record.pipe)] >= access.record.seq;
}

const CoreState::Numbers* Machine::find_earlier(uint32_t instruction) const {
    const auto after = std::upper_bound(earlier_numbers.begin(), earlier_numbers.end(), instruction,
                                        [](uint32_t wanted, const Numbers& numbers) { return wanted < numbers.first; });
    if (after == earlier_numbers.begin()) return nullptr;
    const Numbers& numbers = *std::prev(after);
    return instruction < numbers.end ? &numbers : nullptr;
}

void raise_signal(uint64_t key, int32_t pipe, const char* api, Site site) {
    Machine& m = machine();
    m.uses_sync_all |= key == kSyncAllKey;
    m.settle_reference();
    spend_scalar(api, site, m.profile->scalar_cycles, StepKind::Issue);
    m.signals.raised(key, m.core).push_back(signal_after(pipe, site));
    if (key < kCoreFlags &&
        complete_rounds(key) - std::min(complete_rounds(key), m.signals.waits(key, m.core)) > kLargestCount)
        broken_at(Rule::Sync04, api, site, "flag %d has more than %d signals that this core has not waited for.",
                  int(key), int(kLargestCount));
}

void wait_for_signals(uint64_t key, int64_t first, int64_t end, const char* api, Site site) {
    wait_for(key, first, end, machine().signals.waits(key, machine().core)++, api, site);
}

// The signals of a pair are stored as signals of core 0. A core raises one only after the wait for the one before it.
void raise_pair_signal(uint64_t key, Site site) {
    Machine& m = machine();
    wait_until(
        [&m, key]() -> int64_t { return m.signals.raised(key, 0).size() > m.signals.waits(key, 0) ? m.core : -1; },
        "IBSet", site);
    spend_scalar("IBSet", site, m.profile->scalar_cycles, StepKind::Issue);
    CoreSignal signal = signal_after(kAllPipes, site);
    signal.others.resize(size_t(m.blocks));
    signal.others[size_t(m.core)].join(signal.complete);
    signal.complete = {};
    m.signals.raised(key, 0).push_back(std::move(signal));
}
void wait_for_pair_signal(uint64_t key, Site site) {
    wait_for(key, 0, 1, machine().signals.waits(key, 0), "IBWait", site);
    machine().signals.waits(key, 0)++;
}

void begin_core_order(uint64_t key) { machine().core_order_keys.insert(key); }

// In each round, core 0 takes its turn after the last core's turn of the round before.
void wait_for_turn(uint64_t key, Site site) {
    Machine& m = machine();
    if (!m.core_order_keys.count(key))
        fatal_at(Rule::Sync06, "WaitPreBlock", site,
                 "InitDetermineComputeWorkspace was not called for this workspace.");
    const size_t turn = m.signals.waits(key, m.core)++;
    const int64_t before = m.core ? m.core - 1 : m.blocks - 1;
    if (m.core || turn) wait_for(key, before, before + 1, m.core ? turn : turn - 1, "WaitPreBlock", site);
}

void check_core_flag(const char* api, uint32_t id, Site site) {
    if (id >= kCoreFlags) broken_at(Rule::Sync04, api, site, "flagId must be 0 .. 15 but got %u.", id);
    if (id >= kFirstReservedFlag && id <= kLastReservedFlag) machine().reserved_flag_user = {api, site};
}

void needs_scheduler(const char* api, Site site) { machine().scheduler_user = {api, site}; }

void set_kernel_type(const char* name, bool is_documented, bool starts_scheduler, Site site) {
    Machine& m = machine();
    if (!is_documented)
        broken_at(Rule::Type01, "KERNEL_TASK_TYPE_DEFAULT", site, "%s is no kernel type of %s.", name, m.profile->soc);
    if (m.has_type_of_key) return;
    m.kernel_type = name;
    m.starts_scheduler = starts_scheduler;
}

void set_kernel_type_of_key(uint64_t key, const char* name, bool needs_cube_cores, bool is_documented,
                            bool starts_scheduler, Site site) {
    Machine& m = machine();
    if (key != m.tiling_key) return;
    if (needs_cube_cores)
        fatal_at(Rule::Mode01, "KERNEL_TASK_TYPE", site,
                 "tiling key %llu needs cube cores (%s): the simulator has vector cores only.",
                 static_cast<unsigned long long>(key), name);
    m.has_type_of_key = false;
    set_kernel_type(name, is_documented, starts_scheduler, site);
    m.has_type_of_key = true;
}

// Checks of a core's end and of the launch's end.
void Machine::check_scheduler() const {
    if (scheduler_user.api && !starts_scheduler)
        broken_at(Rule::Sync03, scheduler_user.api, scheduler_user.site,
                  "a kernel of type %s does not start the scheduler between cores: KERNEL_TYPE_MIX_AIV_1_0 missing.",
                  kernel_type);
    if (uses_sync_all && reserved_flag_user.api)
        broken_at(Rule::Sync07, reserved_flag_user.api, reserved_flag_user.site,
                  "this kernel also calls SyncAll(), which uses the flags 11 .. 14.");
}

void check_flags_between_cores() {
    Machine& m = machine();
    for (uint64_t key = 0; key < kCoreFlags; ++key) {
        const size_t rounds = complete_rounds(key);
        for (int64_t c = 0; c < m.blocks; ++c) {
            const std::vector<CoreSignal>& raised = m.signals.raised(key, c);
            if (raised.size() > rounds)
                broken_at(Rule::Sync05, "CrossCoreSetFlag", raised[rounds].site,
                          "core %lld set flag %d here, but not every core did.", static_cast<long long>(c), int(key));
            else if (m.signals.waits(key, c) < rounds)
                broken_at(Rule::Sync05, "CrossCoreSetFlag", raised[m.signals.waits(key, c)].site,
                          "core %lld did not wait for flag %d, set here: CrossCoreWaitFlag missing.",
                          static_cast<long long>(c), int(key));
        }
    }
}

void check_signal_memory(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view,
                         bool starts_at_zero) {
    Machine& m = machine();
    const GmTensor* t = require_gm(operand, address, bytes);
    if (!t) return;
    check_view(operand, view, *t, address, bytes);
    if (t->role == Role::In || t->role == Role::Tiling)
        broken(Rule::Gm01, "`%s` is GM `%s`, which is an input.", operand, t->name.c_str());
    if (!m.signal_memory.insert(address).second || !starts_at_zero) return;
    const auto* memory = reinterpret_cast<const uint8_t*>(address);
    if (std::any_of(memory, memory + bytes, [](uint8_t byte) { return byte != 0; }))
        broken(Rule::Sync06, "the %llu bytes of `%s` are not all 0 at their first use.",
               static_cast<unsigned long long>(bytes), operand);
}

}  // namespace ascend_sim
