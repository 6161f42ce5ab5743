// The host's clock. The work for which the host has waited is ordered before all later work.
#include <algorithm>

#include "cann/runtime/allocations.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {
namespace {

constexpr size_t kMostSources = 4096;

bool shares_bytes(const HostRange& a, const HostRange& b) {
    const auto* a_first = static_cast<const char*>(a.first);
    const auto* b_first = static_cast<const char*>(b.first);
    return a_first < b_first + b.bytes && b_first < a_first + a.bytes;
}

// Drops the sources that the work may change: they can no longer be checked.
void forget_sources(const Work& work) {
    auto& sources = state().sources;
    if (work.kind == Work::Kind::kHostCode) return sources.clear();
    if (work.target.bytes == 0) return;
    sources.erase(std::remove_if(sources.begin(), sources.end(),
                                 [&](const Source& s) { return shares_bytes(s.memory, work.target); }),
                  sources.end());
}

bool is_used_by_queued_work(const HostRange& memory) {
    for (const auto& [handle, s] : state().streams)
        for (const Work& work : s->queue)
            if (shares_bytes(work.source, memory) || shares_bytes(work.target, memory)) return true;
    return false;
}

// Whether queued work will write the memory. If so, a later change of the contents does not prove a write by the host.
bool will_be_written(const HostRange& memory) {
    for (const auto& [handle, s] : state().streams)
        for (const Work& work : s->queue)
            if (shares_bytes(work.target, memory)) return true;
    return false;
}

// Streams' accesses to pinned memory are checked like accesses to device memory.
void note_pinned(const HostRange& memory, bool writes, const std::shared_ptr<const Accessor>& accessor,
                 const Clock& clock) {
    uint64_t number = 0;
    if (memory.bytes == 0 || !number_of_pinned(memory.first, &number)) return;
    note_access(number, dense_region(memory.first, memory.bytes), writes, accessor, clock, state().host);
}

}  // namespace

bool detects_races() { return stream_order() == Order::kDrawn; }

// With its cache off, torch_npu synchronizes the device before each aclrtFree. A program must not rely on this,
// because with the cache there is no synchronization. So if the next call is such a free, note_freed drops the clock of
// the device synchronization. Any other call that uses the host's clock joins it here.
void join_device_wait() {
    State& st = state();
    if (!st.has_device_wait) return;
    st.host.join(st.device_wait);
    st.has_device_wait = false;
}

void check_sources(const Clock& clock) {
    State& st = state();
    auto has_happened = [&](const Source& s) { return clock.at(s.actor) >= s.step; };
    for (const Source& s : st.sources) {
        if (!has_happened(s)) continue;
        uint64_t hash = 0;
        if (hash_host(s.memory.first, s.memory.bytes, &hash) && hash == s.hash) continue;
        report_race("the host changes the " + std::to_string(s.memory.bytes) + " bytes that " + s.place + "'s " +
                        s.operation + " reads, and it has not waited for the copy: synchronize " + s.place + " first.",
                    "", true);
    }
    st.sources.erase(std::remove_if(st.sources.begin(), st.sources.end(), has_happened), st.sources.end());
}

void fill_target(const Work& work) {
    if (work.target.bytes == 0 || is_used_by_queued_work(work.target)) return;
    fill_host(const_cast<void*>(work.target.first), work.target.bytes);
}

void note_work(const StreamPtr& s, const Work& work) {
    State& st = state();
    join_device_wait();
    s->clock.join(st.host);
    const uint64_t now_at = s->clock.advance(s->actor);
    if (!detects_races()) return;
    const std::string place = work.replayed_as ? work.replayed_as->on : s->place();
    if (!s->waits_for_unrecorded) {
        auto accessor =
            std::make_shared<const Accessor>(Accessor{s->actor, now_at, place, work.name, work.replayed_as});
        for (const MemoryAccess& access : work.accesses) {
            const Region region = region_of(access);
            uint64_t number = 0;
            if (region.empty() || !number_of_allocation(reinterpret_cast<const void*>(region.low), &number)) continue;
            note_access(number, region, access.writes, accessor, s->clock, st.host);
        }
        note_pinned(work.source, false, accessor, s->clock);
        note_pinned(work.target, true, accessor, s->clock);
    }
    forget_sources(work);
    Source source{work.source, 0, s->actor, now_at, work.name, place};
    if (work.source.bytes && !will_be_written(work.source) &&
        hash_host(work.source.first, work.source.bytes, &source.hash)) {
        if (st.sources.size() >= kMostSources) st.sources.erase(st.sources.begin());
        st.sources.push_back(std::move(source));
    }
}

void note_host_access(const char* call, const void* first, uint64_t bytes, bool writes) {
    State& st = state();
    join_device_wait();
    uint64_t number = 0;
    if (!detects_races() || !number_of_allocation(first, &number)) return;
    auto accessor = std::make_shared<const Accessor>(Accessor{kHost, 0, "the host", call, nullptr});
    note_access(number, dense_region(first, bytes), writes, accessor, st.host, st.host);
}

void note_host_wait(const Clock& clock) {
    State& st = state();
    join_device_wait();
    check_sources(clock);
    st.host.join(clock);
}

std::string user_of_host(const HostRange& memory) {
    State& st = state();
    join_device_wait();
    for (const Source& s : st.sources)
        if (shares_bytes(s.memory, memory) && st.host.at(s.actor) < s.step) return s.place + "'s " + s.operation;
    for (const auto& [handle, s] : st.streams)
        for (const Work& work : s->queue)
            if (shares_bytes(work.source, memory) || shares_bytes(work.target, memory))
                return s->place() + "'s " + work.name;
    return "";
}

void note_freed(uint64_t allocation, bool is_torchs_own) {
    State& st = state();
    Clock known = st.host;
    if (st.has_device_wait) known.join(st.device_wait);
    if (is_torchs_own)
        st.has_device_wait = false;
    else
        join_device_wait();
    // In torch_npu's own frees the host has waited for the device, so no use is reported.
    if (detects_races()) note_free(allocation, is_torchs_own ? nullptr : &known);
}

}  // namespace simulated_cann
