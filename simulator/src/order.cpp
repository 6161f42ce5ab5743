// The order of pipes (events, barriers) and the duration of instructions.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "src/core.h"

namespace ascend_sim {
namespace {

bool valid_event(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (from == to) {
        broken_at(Rule::Event06, api, site, "%s_%s is no event.", pipe_name(from), pipe_name(to));
        return false;
    }
    if (id < 0 || id >= kEvents) {
        broken_at(Rule::Event03, api, site, "event id must be 0 .. 7 but got %d.", id);
        return false;
    }
    return true;
}

// An event id that the kernel chose itself may be one that TPipe assigns.
void advise_on_mixed_ids(Pipe from, Pipe to) {
    const EventKind& kind = machine().event_kinds[int(from)][int(to)];
    if (kind.assigned && kind.chosen_at.file)
        broken_at(Rule::Event07, "SetFlag", kind.chosen_at,
                  "TPipe also assigns %s_%s event ids, to queues or on request: this id may be one of them.",
                  pipe_name(from), pipe_name(to));
}

void advise_on_empty_instruction(bool is_empty) {
    if (is_empty) broken(Rule::Count05, "the instruction does nothing: 0 elements, repeats or bytes.");
}

ApiTotal& total_of(Pipe pipe, const char* api) {
    auto& apis = machine().totals.apis;
    for (ApiTotal& t : apis)
        if (t.pipe == pipe && !std::strcmp(t.api, api)) return t;
    apis.push_back({api, pipe});
    return apis.back();
}

void end_instruction(double begin, double end, uint64_t bytes, uint32_t repeats) {
    Machine& m = machine();
    keep_span(m.current.pipe, m.current.api, m.current.site, begin, end, bytes, repeats);
    m.note_ub_time(begin, end);
    m.running = false;
}

// Keeps a copy's latency for the trace, cut off at the end of the pipe's next copy.
void keep_latency(Pipe pipe, double end, double done) {
    Machine& m = machine();
    if (!m.is_traced()) return;
    Span& latency = m.latency[int(pipe)];
    if (latency.api) {
        latency.end = std::min(latency.end, end);
        m.spans.push_back(latency);
    }
    const bool reads = pipe == Pipe::MTE2;
    const Row row = reads ? Row::ReadLatency : Row::WriteLatency;
    latency = {
        int32_t(m.core), uint8_t(row), reads ? "read latency" : "write latency", m.current.site, end, done, 0, 0};
}

// Returns a name such as "Sigmoid (Exp)". The names are kept, because records hold pointers to them.
const char* name_inside(const char* function, const char* api) {
    static thread_local std::map<std::pair<const char*, const char*>, const char*> names;
    const char*& name = names[{function, api}];
    if (!name) {
        static std::mutex mutex;
        static auto* const kept =
            new std::set<std::string>;  // never destroyed: a process may run kernels while it exits
        const std::lock_guard<std::mutex> lock(mutex);
        name = kept->insert(std::string(function) + " (" + api + ")").first->c_str();
    }
    return name;
}

}  // namespace

void keep_span(Pipe pipe, const char* api, Site site, double begin, double end, uint64_t bytes, uint32_t repeats) {
    Machine& m = machine();
    m.totals.instructions[int(pipe)]++;
    m.totals.vector_repeats += repeats;
    m.totals.busy[int(pipe)] += end - begin;
    ApiTotal& total = total_of(pipe, api);
    total.count++;
    total.repeats += repeats;
    total.bytes += bytes;
    total.cycles += end - begin;
    if (m.is_traced()) m.spans.push_back({int32_t(m.core), uint8_t(pipe), api, site, begin, end, bytes, repeats});
}

Moment step(Pipe pipe, StepKind kind, const char* api, Site site, const Moment& from, double end) {
    Machine& m = machine();
    if (!m.options.keeps_steps) return {end, -1};
    m.steps.push_back({pipe, kind, api, site, from.time, end, from.step});
    return {end, int32_t(m.steps.size()) - 1};
}

void spend_scalar(const char* api, Site site, double cycles, StepKind kind) {
    Machine& m = machine();
    Moment& now = m.pipe_free[int(Pipe::S)];
    const double begin = now.time;
    now = step(Pipe::S, kind, api, site, now, begin + cycles);
    keep_span(Pipe::S, api, site, begin, now.time, 0, 0);
}

const char* set_library_function(const char* name) {
    const char*& current = machine().library_function;
    const char* const before = current;
    if (!current || !name) current = name;
    return before;
}

// Of a core. Each takes memory until the core ends, so an endless loop would take all of it.
constexpr size_t kMostInstructions = size_t(1) << 24;

void start(Pipe pipe, const char* api, Site site) {
    Machine& m = machine();
    if (m.library_function) api = name_inside(m.library_function, api);
    const int p = int(pipe);
    m.settle_reference();
    m.mark_reads();
    m.current = {pipe, ++m.issued[p], api, site};
    m.number = m.next_number++;
    m.records.push_back(m.current);
    m.running = true;
    if (m.records.size() > kMostInstructions)
        fatal_at(Rule::End02, api, site, "this is instruction %zu of the core.", m.records.size());
    m.ends_with_barrier = false;
    m.clock[p].join(m.clock[int(Pipe::S)]);  // the scalar unit issues the instruction after its own waits
    spend_scalar("issue", site, m.profile->scalar_cycles, StepKind::Issue);
    m.issue = m.pipe_free[int(Pipe::S)];
}

// The order is that of Cost.
double cycles_of(Cost cost, uint32_t element_bytes) {
    using P = Profile;
    static constexpr double P::* kCycles[] = {
        &P::repeat_cycles,         &P::three_reads_cycles,  &P::division_cycles,
        &P::function_cycles,       &P::estimate_cycles,     &P::gather_mask_cycles,
        &P::whole_reduce_cycles,   &P::block_reduce_cycles, &P::gathered_element_cycles,
        &P::sorted_element_cycles, &P::index_store_cycles,  &P::index_addition_cycles,
        &P::mask_cycles,           &P::scalar_ub_cycles};
    const bool by_element = cost == Cost::Division || cost == Cost::Function;
    return machine().profile->*kCycles[size_t(cost)] * (by_element ? 4.0 / element_bytes : 1.0);
}

double scalar_gm_cycles() {
    Machine& m = machine();
    return std::exchange(m.missed_cache, false) ? m.profile->scalar_miss_cycles : m.profile->scalar_ub_cycles;
}

void finish_vector(uint32_t repeats, double cycles_per_repeat, bool has_tail, Cost issue) {
    Machine& m = machine();
    advise_on_empty_instruction(repeats == 0);
    const int v = int(Pipe::V);
    const Profile& p = *m.profile;
    const double issue_cycles = issue == Cost::Division || issue == Cost::Function ? p.function_issue_cycles
                                : issue == Cost::WholeReduce                       ? p.reduce_issue_cycles
                                                                                   : p.vector_issue_cycles;
    const Moment begin = later(m.pipe_free[v], m.issue);
    const double wait = std::exchange(m.bank_wait, 0.0);
    const double end =
        begin.time + issue_cycles + repeats * cycles_per_repeat + wait + (has_tail ? p.count_form_cycles : 0.0);
    m.pipe_free[v] = m.pipe_done[v] = step(Pipe::V, StepKind::Work, m.current.api, m.current.site, begin, end);
    end_instruction(begin.time, end, 0, repeats);
}

void finish_copy(uint64_t bytes, uint32_t bursts, uintptr_t gm_address) {
    Machine& m = machine();
    if (!m.doubtful_writes.empty()) m.settle_doubtful_writes();
    advise_on_empty_instruction(bytes == 0);
    const Profile& profile = *m.profile;
    const Pipe pipe = m.current.pipe;
    const bool reads = pipe == Pipe::MTE2;
    const int p = int(pipe);
    double charged_bytes = double(bytes) + bursts * profile.burst_overhead_bytes;
    if (gm_address % uintptr_t(profile.gm_line_bytes))
        charged_bytes += std::min(bursts * profile.gm_line_bytes, double(bytes) * profile.unaligned_extra_share);
    const double active_cores = double(std::min<int64_t>(m.blocks, profile.cores));
    const double share = profile.gm_bytes_per_cycle / active_cores;
    const double port = reads ? profile.core_gm_bytes_per_cycle : profile.mte3_bytes_per_cycle;
    const auto add_step = [&](StepKind kind, const Moment& from, double end) {
        return step(pipe, kind, m.current.api, m.current.site, from, end);
    };
    // A copy is issued while the bytes of the one before it move.
    const Moment issued = later(m.pipe_free[p], m.issue), begin = later(issued, m.port_free[p]);
    const Moment ready = add_step(StepKind::Issue, issued, issued.time + profile.mte_issue_cycles);
    // All cores share GM's bandwidth, in both directions.
    const Bookings::Slot slot = m.gm_time.find(later(ready, m.port_free[p]), charged_bytes / share);
    const Moment moved = add_step(StepKind::Memory, slot.begin, slot.end);
    m.gm_time.book(slot, slot.idle > slot.end ? add_step(StepKind::Memory, moved, slot.idle) : moved);
    const Moment end = later(add_step(StepKind::Transfer, slot.begin, slot.begin.time + charged_bytes / port), moved);
    m.pipe_free[p] = ready;
    m.port_free[p] = end;
    // The measured rate of a core's reads contains the wait for their data, so a read lasts at least the latency.
    m.pipe_done[p] = reads ? later(end, add_step(StepKind::Latency, ready, ready.time + profile.read_latency_cycles))
                           : add_step(StepKind::Latency, end, end.time + profile.write_latency_cycles);
    keep_latency(pipe, end.time, m.pipe_done[p].time);
    end_instruction(begin.time, end.time, bytes, 0);
}

void finish_scalar(double cycles) {
    Machine& m = machine();
    if (!m.doubtful_writes.empty()) m.settle_doubtful_writes();
    const double begin = m.pipe_free[int(Pipe::S)].time;
    spend_scalar(m.current.api, m.current.site, cycles);
    m.note_ub_time(begin, m.pipe_free[int(Pipe::S)].time);
    m.pipe_done[int(Pipe::S)] = m.pipe_free[int(Pipe::S)];
    m.running = false;
}

void set_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (!valid_event(from, to, id, api, site)) return;
    Machine& m = machine();
    m.settle_reference();
    Flag& flag = m.flags[int(from)][int(to)][id];
    if (flag.set)
        broken_at(Rule::Event01, api, site, "%s_%s event %d is set at %s already and was not waited for.",
                  pipe_name(from), pipe_name(to), id, where(flag.set_at).c_str());
    if (!flag.allocated && !flag.fetched) {
        if (id >= kKernelEvents)
            broken_at(Rule::Event07, api, site, "event ids 6 and 7 are the compiler's, but this is %d.", id);
        m.event_kinds[int(from)][int(to)].chosen_at = site;
        advise_on_mixed_ids(from, to);
    }
    spend_scalar(api, site, m.profile->scalar_cycles, StepKind::Issue);
    flag.set = true;
    flag.set_at = site;
    flag.clock = m.clock[int(from)];
    flag.clock.join(m.clock[int(Pipe::S)]);  // the scalar unit also issues the flag
    flag.clock.complete[int(from)] = m.issued[int(from)];
    // The flag is raised after the pipe's earlier work and waits.
    flag.raised = later(later(m.pipe_done[int(from)], m.pipe_free[int(from)]), m.pipe_free[int(Pipe::S)]);
}

void wait_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (!valid_event(from, to, id, api, site)) return;
    Machine& m = machine();
    m.settle_reference();
    Flag& flag = m.flags[int(from)][int(to)][id];
    if (!flag.set) {
        broken_at(Rule::Event02, api, site, "waits for %s_%s event %d, which was not set before.", pipe_name(from),
                  pipe_name(to), id);
        return;
    }
    flag.set = false;
    m.clock[int(to)].join(flag.clock);
    Moment& free = m.pipe_free[int(to)];
    const Moment both = later(later(free, flag.raised), m.pipe_free[int(Pipe::S)]);
    free = step(to, StepKind::Event, api, site, both, both.time + m.profile->flag_cycles);
    if (to == Pipe::S) keep_span(to, api, site, both.time, free.time, 0, 0);
}

void barrier(int32_t pipe, Site site) {
    Machine& m = machine();
    constexpr const char* kApi = "PipeBarrier";
    m.settle_reference();
    spend_scalar(kApi, site, m.profile->scalar_cycles, StepKind::Issue);
    const auto end_of_barrier = [&](Pipe p, const Moment& done) {
        return step(p, StepKind::Barrier, kApi, site, done, done.time + m.profile->barrier_cycles);
    };
    if (pipe != kAllPipes) {
        if (pipe == int(Pipe::S)) broken_at(Rule::Event06, kApi, site, "PIPE_S has no barrier.");
        m.clock[pipe].complete[pipe] = m.issued[pipe];
        m.pipe_free[pipe] = end_of_barrier(Pipe(pipe), later(m.pipe_free[pipe], m.pipe_done[pipe]));
        return;
    }
    m.ends_with_barrier = true;
    Clock all;
    Moment latest;
    for (int p = 0; p < kPipes; ++p) {
        all.join(m.clock[p]);
        all.complete[p] = m.issued[p];
        latest = later(latest, later(m.pipe_free[p], m.pipe_done[p]));
    }
    const Moment end = end_of_barrier(Pipe::S, latest);
    for (int p = 0; p < kPipes; ++p) {
        m.clock[p] = all;
        m.pipe_free[p] = end;
    }
}

void order_pipes(Pipe from, Pipe to) {
    Machine& m = machine();
    m.settle_reference();
    uint32_t& complete = m.clock[int(to)].complete[int(from)];
    complete = std::max(complete, m.issued[int(from)]);
}

// Orders the running instruction after the earlier work of `before`, as the compiler's own barrier or event would. The
// cost is that of a barrier or event of the kernel.
void Machine::insert_synchronisation(Pipe before) {
    constexpr const char* kApi = "auto_sync";
    const int now = int(current.pipe), from = int(before);
    const Moment done = later(pipe_done[from], pipe_free[from]);
    if (now == from) {
        clock[now].complete[now] = current.seq - 1;
        pipe_free[now] =
            step(current.pipe, StepKind::Barrier, kApi, current.site, done, done.time + profile->barrier_cycles);
    } else {
        Clock known = clock[from];
        known.join(clock[int(Pipe::S)]);
        known.complete[from] = issued[from];
        clock[now].join(known);
        const Moment both = later(later(pipe_free[now], done), pipe_free[int(Pipe::S)]);
        pipe_free[now] =
            step(current.pipe, StepKind::Event, kApi, current.site, both, both.time + profile->flag_cycles);
    }
    // start() has charged one issue, which counts as that of the barrier or event. Here the instruction's own issue is
    // charged.
    spend_scalar(kApi, current.site, profile->scalar_cycles, StepKind::Issue);
    issue = pipe_free[int(Pipe::S)];
}

int32_t alloc_event(Pipe from, Pipe to, const char* api, Site site) {
    Machine& m = machine();
    for (int32_t id = 0; id < kEvents; ++id) {
        Flag& flag = m.flags[int(from)][int(to)][id];
        if (flag.allocated) continue;  // as on the core, the allocation ignores flags that are only set
        flag.allocated = true;
        flag.allocated_at = site;
        m.event_kinds[int(from)][int(to)].assigned = true;
        advise_on_mixed_ids(from, to);
        return id;
    }
    broken_at(Rule::Event04, api, site, "all eight %s_%s events are in use.", pipe_name(from), pipe_name(to));
    return 0;
}

void release_event(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (!valid_event(from, to, id, api, site)) return;
    Flag& flag = machine().flags[int(from)][int(to)][id];
    if (!flag.allocated)
        broken_at(Rule::Event03, api, site, "%s_%s event %d was not allocated.", pipe_name(from), pipe_name(to), id);
    flag.allocated = false;
}

int32_t fetch_event(Pipe from, Pipe to, Site site) {
    const int32_t id = alloc_event(from, to, "FetchEventID", site);
    Flag& flag = machine().flags[int(from)][int(to)][id];
    flag.allocated = false;
    flag.fetched = true;
    return id;
}

// Records the core's end time, and its chain of steps if it is the slowest core so far.
void Machine::end_time() {
    check_static_end();
    Moment last;
    for (int p = 0; p < kPipes; ++p) last = later(last, later(pipe_free[p], pipe_done[p]));
    last = later(last, gm_time.last());
    totals.end = last.time;
    for (const Span& span : latency)
        if (span.api) spans.push_back(span);
    for (const auto& place : ub_places.places)
        if (place.second.is_open) ub_contents.push_back(place.second.contents);
    if (!options.keeps_steps || (critical_core >= 0 && last.time <= critical_path.back().end)) return;
    std::vector<Step> path;
    for (int32_t at = last.step; at >= 0; at = steps[size_t(at)].after) path.push_back(steps[size_t(at)]);
    if (path.empty()) return;
    critical_path.assign(path.rbegin(), path.rend());
    critical_core = core;
}

}  // namespace ascend_sim
