// State of a core that instructions read: index, mask, atomics, tiling. Also the rules, instructions,
// conversions and profiles as JSON.
#include <cstring>

#include "include/ascend_sim.h"
#include "include/ascendc/availability.h"
#include "src/chips.h"
#include "src/core.h"
#include "src/json.h"

namespace ascend_sim {

int64_t block_index() { return machine().core; }
int64_t block_count() { return machine().blocks; }
void set_sum_register(uint64_t bits) {
    machine().sum_bits = bits;
    machine().has_sum = true;
}
uint64_t sum_register(const char* api, Site site) {
    Machine& m = machine();
    start(Pipe::S, api, site);
    if (!m.has_sum) broken(Rule::Init01, "the register is read before a ReduceSum left a sum there.");
    finish_scalar(m.profile->scalar_cycles);
    return m.sum_bits;
}
void set_extremum_register(const ExtremumRegister* value) {
    machine().has_extremum = value != nullptr;
    if (value) machine().extremum = *value;
}
ExtremumRegister extremum_register(const char* api, Site site) {
    Machine& m = machine();
    start(Pipe::S, api, site);
    if (!m.has_extremum)
        broken(Rule::Init01,
               "the register is read before a contiguous reduction to a maximum or minimum left one there.");
    finish_scalar(m.profile->scalar_cycles);
    return m.extremum;
}
void set_merge_register(const MergeRegister* value) {
    machine().has_merge = value != nullptr;
    if (value) machine().merge = *value;
}
MergeRegister merge_register(const char* api, Site site) {
    Machine& m = machine();
    start(Pipe::S, api, site);
    if (!m.has_merge)
        broken(Rule::Init01, "the register is read before a merge with ifExhaustedSuspension left its counts there.");
    finish_scalar(m.profile->scalar_cycles);
    return m.merge;
}
void set_system_workspace(uint8_t* address) { machine().system_workspace = address; }
uint8_t* system_workspace() { return machine().system_workspace; }
bool saturates() {
    const Machine& m = machine();
    return m.saturates < 0 ? m.options.saturate : m.saturates != 0;
}
void set_saturation(bool saturates, const char* api, Site site) {
    Machine& m = machine();
    m.saturates = saturates;
    spend_scalar(api, site, m.profile->scalar_cycles);
}
void uses_reserved_ub(const char* api) {
    machine().reserved_user = api;
    machine().reserved_site = machine().current.site;
}

void set_atomic(Atomic mode, int32_t dtype, Site site) {
    Machine& m = machine();
    m.atomic_site = site;
    m.atomic = mode;
    m.atomic_type = dtype;
    constexpr const char* kNames[] = {"SetAtomicNone", "SetAtomicAdd", "SetAtomicMax", "SetAtomicMin"};
    spend_scalar(kNames[int(mode)], site, m.profile->scalar_cycles);
}
Atomic atomic_mode() { return machine().atomic; }
int32_t atomic_dtype() { return machine().atomic_type; }
MaskRegister& mask_register() { return machine().mask; }
DeqRegister& deq_register() { return machine().deq; }
PadRegister& pad_register() { return machine().pad; }
CompareRegister& compare_register() { return machine().compare; }
void state_initialised() {
    Machine& m = machine();
    m.is_initialised = true;
    if (m.profile->arch == kArch950) m.deq = {DeqForm::Half, 0x3c00, {}};
}

int64_t system_counter(const char* api, Site site) {
    Machine& m = machine();
    start(Pipe::S, api, site);
    finish_scalar(m.profile->scalar_cycles);
    const double counter_ghz = m.profile->arch == kArch950 ? 1.0 : 0.05;
    return int64_t(m.pipe_free[int(Pipe::S)].time * counter_ghz / m.profile->clock_ghz);
}

bool tiling_key_is(uint64_t key, Site site) {
    Machine& m = machine();
    m.last_key_check = site;
    m.key_matched = m.key_matched || key == m.tiling_key;
    return key == m.tiling_key;
}

void register_tiling(uint64_t bytes, Site site) { machine().registered_tilings.push_back({bytes, site}); }

void expect_tiling(uint64_t bytes, Site site) {
    Machine& m = machine();
    m.tiling_read = true;
    const uint64_t passed = m.gm.back().bytes;
    if (bytes != passed)
        broken_at(Rule::Tiling01, "GET_TILING_DATA", site, "the struct has %llu bytes but the host passed %llu.",
                  static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(passed));
}

const void* tiling_data(const void* gm, uint64_t bytes, Site site) {
    const GmTensor& tiling = machine().gm.back();
    const auto address = reinterpret_cast<uintptr_t>(gm);
    if (address >= tiling.base && address + bytes <= tiling.base + tiling.bytes) return gm;
    broken_at(Rule::Tiling01, "GET_TILING_DATA", site,
              "the pointer is not the kernel's tiling argument, or the bytes end after what the host passed.");
    return nullptr;
}

void copy_tiling(void* to, const void* gm, uint64_t bytes, Site site) {
    Machine& m = machine();
    const void* from = tiling_data(gm, bytes, site);
    if (from)
        std::memcpy(to, from, bytes);
    else
        std::memset(to, 0, bytes);
    spend_scalar("GET_TILING_DATA", site, m.profile->scalar_cycles * double((bytes + 7) / 8));
}

namespace {

constexpr int32_t kArchs[] = {220, 200, 310};

// The names of a set's bits, as a JSON list.
std::string names_of(uint32_t set, const char* const* names, int count) {
    std::string s;
    for (int i = 0; i < count; ++i)
        if (set >> i & 1) s += std::string(s.empty() ? "" : ",") + '"' + names[i] + '"';
    return "[" + s + "]";
}

}  // namespace
}  // namespace ascend_sim

extern "C" {

const char* ascend_sim_rules(void) {
    using ascend_sim::Json;
    static const std::string text = [] {
        std::string s = "[";
        auto add = [&s](const char* id, const char* text, const char* basis, const char* severity) {
            if (s.size() > 1) s += ",";
            s += Json().field("rule", id).field("text", text).field("basis", basis).field("severity", severity).done();
        };
#define ASCEND_SIM_RULE(name, id, text, basis) add(id, text, basis, "error");
#define ASCEND_SIM_ADVICE(name, id, text, basis) add(id, text, basis, "warning");
        ASCEND_SIM_RULES(ASCEND_SIM_RULE, ASCEND_SIM_ADVICE)
#undef ASCEND_SIM_ADVICE
#undef ASCEND_SIM_RULE
        return s + "]";
    }();
    return text.c_str();
}

const char* ascend_sim_instructions(void) {
    using namespace ascend_sim;
    static const std::string text = json_list(kInstructions, [](const Instruction& row) {
        Json json;
        json.field("instruction", row.name).field("source", row.source);
        for (int32_t arch : kArchs) {
            const Elements types = row.types[int(soc_column_of(arch))];
            json.raw(std::to_string(arch),
                     types == cell::kAny ? "[\"any\"]" : names_of(types, kElementNames, kElements));
        }
        return json.done();
    });
    return text.c_str();
}

const char* ascend_sim_conversions(void) {
    using namespace ascend_sim;
    static const std::string text = json_list(kConversions, [](const Conversion& row) {
        Json json;
        json.field("from", kElementNames[int(row.from)]).field("to", kElementNames[int(row.to)]);
        for (int32_t arch : kArchs)
            json.raw(std::to_string(arch), names_of(row.modes[int(soc_column_of(arch))], kRoundModeNames, kRoundModes));
        return json.done();
    });
    return text.c_str();
}

const char* ascend_sim_profiles(void) {
    using ascend_sim::Json;
    static const std::string text = [] {
        std::string s = "[";
        for (int32_t i = 0; const ascend_sim::Profile* p = ascend_sim::profile_at(i); ++i) {
            if (i) s += ",";
            Json row;
            row.field("name", p->name).field("soc", p->soc).field("arch", p->arch).field("cores", p->cores);
            row.field("ub_bytes", p->ub_bytes).field("reserved_from", p->reserved_from);
            row.field("clock_ghz", p->clock_ghz);
            for (const ascend_sim::Figure& figure : ascend_sim::figures()) row.field(figure.name, p->*figure.value);
            s += row.done();
        }
        return s + "]";
    }();
    return text.c_str();
}

}  // extern "C"
