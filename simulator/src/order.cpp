// The order of pipes (events, barriers) and the time instructions take.
#include <algorithm>
#include <cstring>

#include "simulator/src/core.h"

namespace npu_sim {
namespace {

constexpr double kCountFormCycles = 4;                             // the mask instructions around a count form
constexpr double kLineBytesOfGm = 512, kWorstMisalignment = 0.43;  // 70 % of the bandwidth

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

// A number of the kernel's own may be one that a queue is given as well.
void advise_on_mixed_numbers(Pipe from, Pipe to) {
    const EventKind& kind = machine().event_kinds[int(from)][int(to)];
    if (kind.dealt_out && kind.numbered.file)
        broken_at(Rule::Event07, "SetFlag", kind.numbered,
                  "%s_%s event ids are also dealt out to queues or by TPipe: this number may be one of them.",
                  pipe_name(from), pipe_name(to));
}

ApiTotal& total_of(const Record& r) {
    auto& apis = machine().totals.apis;
    for (ApiTotal& t : apis)
        if (t.pipe == r.pipe && !std::strcmp(t.api, r.api)) return t;
    apis.push_back({r.api, r.pipe});
    return apis.back();
}

void keep_span(double begin, double end, uint64_t bytes, uint32_t repeats) {
    Machine& m = machine();
    m.totals.instructions[int(m.current.pipe)]++;
    m.totals.vector_repeats += repeats;
    m.totals.busy[int(m.current.pipe)] += end - begin;
    ApiTotal& total = total_of(m.current);
    total.count++;
    total.repeats += repeats;
    total.bytes += bytes;
    total.cycles += end - begin;
    if (m.core < m.options.traced_cores)
        m.spans.push_back({int32_t(m.core), m.current.pipe, m.current.api, m.current.site, begin, end, bytes, repeats});
    m.running = false;
}

}  // namespace

void start(Pipe pipe, const char* api, Site site) {
    Machine& m = machine();
    const int p = int(pipe);
    m.mark_reads();
    m.current = {pipe, ++m.issued[p], api, site};
    m.number = m.next_number++;
    m.records.push_back(m.current);
    m.running = true;
    m.clock[p].join(m.clock[int(Pipe::S)]);  // issued by the scalar unit, hence after all that it has waited for
    m.pipe_free[int(Pipe::S)] += m.profile->scalar_cycles;
    m.issue_time = m.pipe_free[int(Pipe::S)];
}

void finish_vector(uint32_t repeats, double cycles_per_repeat, bool sets_mask) {
    Machine& m = machine();
    const int v = int(Pipe::V);
    const double begin = std::max(m.pipe_free[v], m.issue_time);
    const double end =
        begin + m.profile->vector_issue_cycles + repeats * cycles_per_repeat + (sets_mask ? kCountFormCycles : 0.0);
    m.pipe_free[v] = m.pipe_done[v] = end;
    keep_span(begin, end, 0, repeats);
}

void finish_copy(uint64_t bytes, uint32_t bursts, uintptr_t gm_address) {
    Machine& m = machine();
    const Profile& profile = *m.profile;
    const bool reads = m.current.pipe == Pipe::MTE2;
    const int p = int(m.current.pipe);
    double weighed = double(bytes) + bursts * profile.burst_overhead_bytes;
    if (gm_address % uintptr_t(kLineBytesOfGm))
        weighed += std::min(bursts * kLineBytesOfGm, double(bytes) * kWorstMisalignment);
    const double active = double(std::min<int64_t>(m.blocks, profile.cores));
    const double share = profile.gm_bytes_per_cycle / active;
    const double port = reads ? profile.core_gm_bytes_per_cycle : profile.mte3_bytes_per_cycle;
    const double begin = std::max(m.pipe_free[p], m.issue_time);
    const double first = begin + profile.mte_issue_cycles;
    // Both directions of all cores share GM: this core's part is booked one transfer after another.
    m.gm_free = std::max(m.gm_free, first) + weighed / share;
    const double end = std::max(first + weighed / port, m.gm_free);
    m.pipe_free[p] = end;
    m.pipe_done[p] = end + (reads ? profile.read_latency_cycles : profile.write_latency_cycles);
    keep_span(begin, end, bytes, 0);
}

void finish_scalar(double cycles) {
    Machine& m = machine();
    double& now = m.pipe_free[int(Pipe::S)];
    const double begin = now;
    now += cycles;
    m.pipe_done[int(Pipe::S)] = now;
    keep_span(begin, now, 0, 0);
}

void set_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (!valid_event(from, to, id, api, site)) return;
    Machine& m = machine();
    Flag& flag = m.flags[int(from)][int(to)][id];
    if (flag.set)
        broken_at(Rule::Event01, api, site, "%s_%s event %d is set at %s already and was not waited for.",
                  pipe_name(from), pipe_name(to), id, where(flag.site).c_str());
    if (!flag.allocated && !flag.fetched) {
        if (id >= kKernelEvents)
            broken_at(Rule::Event07, api, site, "event ids 6 and 7 are the compiler's, but this is %d.", id);
        m.event_kinds[int(from)][int(to)].numbered = site;
        advise_on_mixed_numbers(from, to);
    }
    flag.fetched = false;
    m.pipe_free[int(Pipe::S)] += m.profile->scalar_cycles;
    flag.set = true;
    flag.site = site;
    flag.clock = m.clock[int(from)];
    flag.clock.join(m.clock[int(Pipe::S)]);  // the flag, too, is issued by the scalar unit
    flag.clock.seen[int(from)] = m.issued[int(from)];
    flag.time = std::max(m.pipe_done[int(from)], m.pipe_free[int(Pipe::S)]);
}

void wait_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site) {
    if (!valid_event(from, to, id, api, site)) return;
    Machine& m = machine();
    Flag& flag = m.flags[int(from)][int(to)][id];
    if (!flag.set) {
        broken_at(Rule::Event02, api, site, "waits for %s_%s event %d, which nobody set: the core would wait for ever.",
                  pipe_name(from), pipe_name(to), id);
        return;
    }
    flag.set = false;
    m.clock[int(to)].join(flag.clock);
    double& free = m.pipe_free[int(to)];
    free = std::max(free, flag.time) + m.profile->flag_cycles;
}

void barrier(int32_t pipe, Site site) {
    Machine& m = machine();
    m.pipe_free[int(Pipe::S)] += m.profile->scalar_cycles;
    if (pipe != kAllPipes) {
        if (pipe == int(Pipe::S)) broken_at(Rule::Event06, "PipeBarrier", site, "PIPE_S has no barrier.");
        m.clock[pipe].seen[pipe] = m.issued[pipe];
        m.pipe_free[pipe] = std::max(m.pipe_free[pipe], m.pipe_done[pipe]) + m.profile->barrier_cycles;
        return;
    }
    Clock all;
    double latest = 0;
    for (int p = 0; p < kPipes; ++p) {
        all.join(m.clock[p]);
        all.seen[p] = m.issued[p];
        latest = std::max({latest, m.pipe_free[p], m.pipe_done[p]});
    }
    for (int p = 0; p < kPipes; ++p) {
        m.clock[p] = all;
        m.pipe_free[p] = latest + m.profile->barrier_cycles;
    }
}

int32_t alloc_event(Pipe from, Pipe to, const char* api, Site site) {
    Machine& m = machine();
    for (int32_t id = 0; id < kEvents; ++id) {
        Flag& flag = m.flags[int(from)][int(to)][id];
        if (flag.allocated) continue;  // a flag that is only set, the core's own bookkeeping does not know
        flag.allocated = true;
        m.event_kinds[int(from)][int(to)].dealt_out = true;
        advise_on_mixed_numbers(from, to);
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

}  // namespace npu_sim
