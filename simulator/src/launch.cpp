// One launch: it runs all cores in two orders, compares the results and returns them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <future>

#include "src/json.h"
#include "src/pass.h"

namespace ascend_sim {
namespace {

thread_local std::string g_report, g_message;
thread_local uint64_t g_launches = 0;

// ---- both orders -----------------------------------------------------------------------------------

// A sum of floats depends on the order of its terms, as on hardware. The caller permits the difference by the role Sum.
bool may_differ(const ascend_sim_memory& mem, const Pass& pass, int32_t i, uint64_t byte) {
    if (mem.role != ASCEND_SIM_SUM) return false;
    const GmAccess* last = pass.writer_of(i, byte);
    return last && last->record.is_atomic;
}

void compare_orders(const Job& job, Pass& ascending, const Pass& descending) {
    for (int32_t i = 0; i < job.memory_count; ++i) {
        const ascend_sim_memory& mem = job.memories[i];
        if (mem.role == ASCEND_SIM_IN || !std::memcmp(ascending.memory(i), descending.memory(i), mem.bytes)) continue;
        uint64_t at = mem.bytes, differing = 0;
        for (uint64_t j = mem.bytes; j-- > 0;) {
            if (ascending.memory(i)[j] == descending.memory(i)[j]) continue;
            if (may_differ(mem, ascending, i, j) && may_differ(mem, descending, i, j)) continue;
            at = j;
            ++differing;
        }
        if (differing == 0) continue;
        char text[256];
        std::snprintf(text, sizeof text,
                      "byte %llu of GM `%s` is 0x%02x with the cores in ascending order and 0x%02x in descending order "
                      "(%llu byte%s differ%s in all).",
                      static_cast<unsigned long long>(at), mem.name ? mem.name : "?", ascending.memory(i)[at],
                      descending.memory(i)[at], static_cast<unsigned long long>(differing), differing == 1 ? "" : "s",
                      differing == 1 ? "s" : "");
        const GmAccess* last = ascending.writer_of(i, at);
        const Report report = last ? report_of(Rule::Core04, last->record.api, last->record.site, last->core, text)
                                   : Report{Rule::Core04, std::string(rule_id(Rule::Core04)) + " " + text, "", 0, -1};
        const bool warns = is_lenient(split_list(job.launch->lenient), Rule::Core04);
        (warns ? ascending.warnings : ascending.errors).push_back(report);
        return;
    }
}

// Whether a result depends on the data that a pass with this spoiling overwrites.
bool changes_result(const Job& job, const Pass& ascending, const Spoiling& spoiling) {
    Pass spoiled(job, PassKind::Spoiled, spoiling);
    spoiled.run();
    bool differs = !spoiled.errors.empty();
    for (int32_t i = 0; i < job.memory_count && !differs; ++i)
        differs = std::memcmp(ascending.memory(i), spoiled.memory(i), job.memories[i].bytes) != 0;
    return differs;
}

// Warns if a result depends on leftovers: data of an earlier, longer copy that a later, shorter one did not overwrite.
void check_leftovers(const Job& job, Pass& ascending) {
    Spoiling spoiling;
    spoiling.leftovers = true;
    if (!changes_result(job, ascending, spoiling)) return;
    const LeftoverRead& read = ascending.leftover_read;
    const std::string text =
        "reads data that an earlier, longer copy at " + where(read.copy) + " left in UB, and a result depends on it.";
    ascending.warnings.push_back(report_of(Rule::Init04, read.api, read.site, read.core, text.c_str()));
}

// Reports vector instructions that read undefined bytes: an error if a result depends on the bytes, else a warning. The
// check tries NaN or -1, a large number and a small negative one, because an instruction such as Max may hide some of
// them.
void check_undefined_reads(const Job& job, Pass& ascending) {
    constexpr int kFills[] = {kSpoiled, 0x7F, 0xBC};
    Spoiling spoiling;
    for (int fill : kFills) {
        spoiling.fill = fill;
        if (changes_result(job, ascending, spoiling)) break;
        spoiling.fill = -1;
    }
    const bool any = spoiling.fill >= 0, is_single = ascending.undefined_reads.size() == 1;
    const auto is_at_fault = [&](const UndefinedRead& read) {
        spoiling.only_site = read.site;
        return any && (is_single || changes_result(job, ascending, spoiling));
    };
    std::vector<Report> faults, harmless;
    const auto fault_of = [](const UndefinedRead& r) {
        return report_of(Rule::Init01, r.api, r.site, r.core, (r.text + ", and a result depends on it.").c_str());
    };
    for (const UndefinedRead& r : ascending.undefined_reads) {
        if (is_at_fault(r))
            faults.push_back(fault_of(r));
        else
            harmless.push_back(report_of(Rule::Init06, r.api, r.site, r.core, (r.text + ".").c_str()));
    }
    // No single instruction changes a result, only several together: report the first.
    if (any && faults.empty()) faults.push_back(fault_of(ascending.undefined_reads.front()));
    const bool warns = is_lenient(split_list(job.launch->lenient), Rule::Init01);
    for (const Report& r : faults) (warns ? ascending.warnings : ascending.errors).push_back(r);
    for (const Report& r : harmless) ascending.warnings.push_back(r);
}

void check_waves(const Job& job, Pass& pass) {
    const uint32_t blocks = job.launch->block_dim, cores = uint32_t(job.profile->cores);
    if (blocks <= cores) return;
    pass.warnings.push_back({Rule::Core06,
                             std::string(rule_id(Rule::Core06)) + " the block count should be at most the " +
                                 std::to_string(cores) + " cores of " + job.profile->name + " but got " +
                                 std::to_string(blocks) + ": they run in " +
                                 std::to_string((blocks + cores - 1) / cores) + " waves.",
                             "", 0, -1});
}

std::string reports_json(const std::vector<Report>& reports) {
    return json_list(reports, [](const Report& r) {
        Json j;
        j.field("rule", rule_id(r.rule)).field("text", r.text).field("file", r.file);
        return j.field("line", double(r.line)).field("core", double(r.core)).done();
    });
}

// The site of the API's last call.
Site last_site_of(const char* api, const std::vector<Record>& records) {
    for (auto r = records.rbegin(); r != records.rend(); ++r)
        if (!std::strcmp(r->api, api)) return r->site;
    return {"kernel", 0};
}

int32_t bad_call(const std::string& text) {
    Json j;
    j.field("status", "bad call").field("message", text);
    g_report = j.done();
    g_message = text;
    return ASCEND_SIM_BAD_CALL;
}

// Copies back only the bytes that the kernel changed, because one memory may lie in the gaps of another.
void copy_back(const Job& job, const Pass& pass) {
    struct Change {
        char* to;
        const char* from;
        size_t bytes;
    };
    std::vector<Change> changes;
    for (int32_t i = 0; i < job.memory_count; ++i) {
        const ascend_sim_memory& m = job.memories[i];
        if (m.role == ASCEND_SIM_IN) continue;
        auto* to = static_cast<char*>(m.data);
        auto* from = reinterpret_cast<const char*>(pass.memory(i));
        for (size_t at = 0; at < m.bytes;) {
            if (to[at] == from[at]) {
                ++at;
                continue;
            }
            size_t end = at;
            while (end < m.bytes && to[end] != from[end]) ++end;
            changes.push_back({to + at, from + at, end - at});
            at = end;
        }
    }
    for (const Change& c : changes) std::memcpy(c.to, c.from, c.bytes);
}

int32_t store_report(const std::vector<Report>& errors, const std::vector<Report>& warnings,
                     const std::string& summary) {
    Json j;
    j.field("status", errors.empty() ? "ok" : "broken rule").raw("errors", reports_json(errors));
    j.raw("warnings", reports_json(warnings));
    if (!summary.empty()) j.raw("summary", summary);
    g_report = j.done();
    g_message = errors.empty() ? "" : errors.front().text;
    return errors.empty() ? ASCEND_SIM_OK : ASCEND_SIM_BROKEN_RULE;
}

int32_t run(const Job& job) {
    Pass ascending(job, PassKind::Ascending), descending(job, PassKind::Descending);
    const bool both = job.launch->block_dim > 1 && !job.launch->one_order;
    if (both) {
        std::future<void> other = std::async(std::launch::async, [&] { descending.run(); });
        ascending.run();
        other.get();
        if (ascending.errors.empty()) ascending.errors = descending.errors;
        if (ascending.errors.empty()) compare_orders(job, ascending, descending);
    } else {
        ascending.run();
    }
    if (ascending.errors.empty() && !ascending.undefined_reads.empty()) check_undefined_reads(job, ascending);
    if (ascending.errors.empty() && ascending.leftover_read.api) check_leftovers(job, ascending);
    check_waves(job, ascending);
    const std::string summary = summary_of(ascending.timeline, *job.profile);
    const char* path = job.launch->trace_path;
    if (path)
        if (const std::string cause = write_trace(path, ascending.timeline, *job.profile, summary); !cause.empty())
            return bad_call("cannot write " + std::string(path) + ": " + cause);
    const int32_t status = store_report(ascending.errors, ascending.warnings, summary);
    if (ascending.errors.empty()) copy_back(job, ascending);  // last, so that a failure leaves the results
    return status;
}

// Replaces the figures in a list such as "read_latency_cycles=570,flag_cycles=1". Returns an item that is not a valid
// figure, or "".
std::string replace_figures(const char* list, Profile* profile) {
    for (const std::string& item : split_list(list)) {
        const size_t equals = item.find('=');
        const std::string name = item.substr(0, equals);
        const auto figure =
            std::find_if(figures().begin(), figures().end(), [&](const Figure& f) { return f.name == name; });
        char* end = nullptr;
        const double value = equals == std::string::npos ? -1 : std::strtod(item.c_str() + equals + 1, &end);
        const bool is_rate = name.find("_bytes_per_cycle") != std::string::npos || name == "gm_line_bytes";
        if (figure == figures().end() || !end || *end || !std::isfinite(value) || value < 0 || (is_rate && value < 1))
            return item;
        profile->*(figure->value) = value;
    }
    return "";
}

int32_t launch_checked(Job job) {
    const ascend_sim_launch& launch = *job.launch;
    job.profile = find_profile(launch.soc);
    if (!job.profile) return bad_call(std::string("no SoC ") + launch.soc);
    Profile replaced = *job.profile;
    if (const std::string bad = replace_figures(launch.figures, &replaced); !bad.empty())
        return bad_call("no figure " + bad);
    job.profile = &replaced;
    if (job.arg_count < 0 || job.arg_count > kMaxArgs - 2) return bad_call("too many arguments");
    for (const std::string& id : split_list(launch.lenient))
        if (id != "all" && !is_rule(id)) return bad_call("no rule " + id);
    if (launch.block_dim < 1 || launch.block_dim > 65535) {
        const std::string text = std::string(rule_id(Rule::Core05)) + " the block count must be 1 .. 65535 but got " +
                                 std::to_string(launch.block_dim) + ".";
        return store_report({{Rule::Core05, text, "", 0, -1}}, {}, "");
    }
    if (launch.trace_path && !ascend_sim_may_write(launch.trace_path))
        return bad_call(std::string("cannot write ") + launch.trace_path);
    ++g_launches;
    return run(job);
}

// The interface has no exceptions. One that leaves the simulator says that memory or threads are missing.
int32_t launch_job(const Job& job) {
    try {
        return launch_checked(job);
    } catch (const std::exception& error) {
        g_report.clear();
        g_message = "out of memory";  // short, so that it needs none
        try {
            return bad_call(std::string("too little memory or too few threads: ") + error.what());
        } catch (const std::bad_alloc&) {
            return ASCEND_SIM_BAD_CALL;
        }
    }
}

}  // namespace

void Machine::begin_core(int64_t index) {
    static_cast<CoreState&>(*this) = {};
    core = index;
    core_first = resumed_first = next_number;
    records.clear();
    gm_time.clear();
    steps.clear();
    reads.clear();
}

// Checks the size of the registered structs if no macro read the tiling data. The kernel may have read it through a raw
// pointer.
void Machine::check_registered_tiling() const {
    if (tiling_read || registered_tilings.empty()) return;
    const uint64_t passed = gm.back().bytes;
    for (const RegisteredTiling& t : registered_tilings)
        if (t.bytes == passed) return;
    const RegisteredTiling& first = registered_tilings.front();
    broken_at(Rule::Tiling01, "REGISTER_TILING_DEFAULT", first.site,
              "the struct has %llu bytes but the host passed %llu.", static_cast<unsigned long long>(first.bytes),
              static_cast<unsigned long long>(passed));
}

void Machine::check_event_at_end(Pipe from, Pipe to, int id) const {
    const Flag& flag = flags[int(from)][int(to)][id];
    if (flag.set)
        broken_at(Rule::Event05, "kernel end", flag.set_at, "%s_%s event %d, set here, was not waited for.",
                  pipe_name(from), pipe_name(to), id);
    else if (flag.allocated)
        broken_at(Rule::Event08, "kernel end", flag.allocated_at,
                  "%s_%s event %d, allocated here, was not released: ReleaseEventID missing.", pipe_name(from),
                  pipe_name(to), id);
}

void Machine::end_core() {
    barrier_is_due = false;
    settle_reference();
    running = false;
    check_registered_tiling();
    for (const Buffer& b : buffers)
        if (b.queue >= 0 && b.state != BufferState::Free)
            broken_at(Rule::Queue04, "kernel end", b.allocated_at, "the tensor allocated here was not %s missing).",
                      b.state == BufferState::Enqueued ? "taken out of its queue (DeQue" : "freed (FreeTensor");
    for (int from = 0; from < kPipes; ++from)
        for (int to = 0; to < kPipes; ++to)
            for (int id = 0; id < kEvents; ++id) check_event_at_end(Pipe(from), Pipe(to), id);
    if (!dirty_lines.empty())
        broken_at(Rule::Gm02, "kernel end", dirty_lines.begin()->second,
                  "the scalar cache still holds data written here: DataCacheCleanAndInvalid missing.");
    if (mask.counter)
        broken_at(Rule::Mask03, "kernel end", last_site_of("SetMaskCount", records),
                  "the counter mode, set here, is still on: SetMaskNorm missing.");
    if (mask.low != ~0ull || mask.high != ~0ull)
        broken_at(Rule::Mask03, "kernel end", last_site_of("SetVectorMask", records),
                  "the mask register, set here, was not reset: ResetMask missing.");
    if (atomic != Atomic::None)
        broken_at(Rule::State01, "kernel end", atomic_site,
                  "atomic mode, set here, is still on: SetAtomicNone missing.");
    check_scheduler();
    for (const bool was_written : {false, true})
        for (const auto& [offset, address] : unchecked_addresses)
            if (address.was_written == was_written)
                broken_at(Rule::Bounds06, "GetPhyAddr", address.site,
                          "the simulator does not check what the kernel reads and writes through this address%s.",
                          was_written ? "" : "; its element had not been written");
    if (reserved_user && touched_end > int64_t(profile->reserved_from))
        broken_at(Rule::Buffer05, reserved_user, reserved_site,
                  "uses UB from byte %u on as scratch but tensors use it up to byte %lld.", profile->reserved_from,
                  static_cast<long long>(touched_end));
    end_time();
}

}  // namespace ascend_sim

extern "C" {

const int32_t ascend_sim_abi_2 = ASCEND_SIM_ABI_VERSION;
int32_t ascend_sim_abi_version(void) { return ascend_sim_abi_2; }

int32_t ascend_sim_run(void* entry, const ascend_sim_memory* memories, int32_t memory_count, const ascend_sim_arg* args,
                       int32_t arg_count, const ascend_sim_launch* launch) {
    using namespace ascend_sim;
    if (!entry) return bad_call("no kernel");
    return launch_job({entry, nullptr, nullptr, memories, memory_count, args, arg_count, launch, nullptr});
}

int32_t ascend_sim_run_call(ascend_sim_call call, const void* context, const ascend_sim_memory* memories,
                            int32_t memory_count, const ascend_sim_arg* args, int32_t arg_count,
                            const ascend_sim_launch* launch) {
    using namespace ascend_sim;
    if (!call) return bad_call("no kernel");
    return launch_job({nullptr, call, context, memories, memory_count, args, arg_count, launch, nullptr});
}

uint64_t ascend_sim_launches(void) { return ascend_sim::g_launches; }

const char* ascend_sim_report(void) { return ascend_sim::g_report.c_str(); }

const char* ascend_sim_message(void) { return ascend_sim::g_message.c_str(); }

int32_t ascend_sim_may_write(const char* path) {
    std::FILE* before = std::fopen(path, "rb");
    if (before) std::fclose(before);
    std::FILE* file = std::fopen(path, "ab");
    if (!file) return 0;
    std::fclose(file);
    if (!before) std::remove(path);
    return 1;
}

}  // extern "C"
