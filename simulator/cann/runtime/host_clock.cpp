// The clock of the host. Work for which the host has waited is ordered before all later work.
#include <algorithm>

#include "cann/runtime/allocations.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {
namespace {

constexpr size_t kMaxSources = 4096;

bool shares_bytes(const HostRange& first, const HostRange& second) {
    const auto* first_begin = static_cast<const char*>(first.first);
    const auto* second_begin = static_cast<const char*>(second.first);
    return first_begin < second_begin + second.bytes && second_begin < first_begin + first.bytes;
}

// Drops the sources that the work may change, because they can no longer be checked.
void forget_copy_sources(const Work& work) {
    auto& copy_sources = scheduler_state().copy_sources;
    if (work.kind == Work::Kind::kHostCode) return copy_sources.clear();
    if (work.host_target.bytes == 0) return;
    copy_sources.erase(
        std::remove_if(copy_sources.begin(), copy_sources.end(),
                       [&](const CopySource& source) { return shares_bytes(source.memory, work.host_target); }),
        copy_sources.end());
}

bool is_used_by_queued_work(const HostRange& memory) {
    for (const auto& [handle, stream] : scheduler_state().streams)
        for (const Work& work : stream->queue)
            if (shares_bytes(work.host_source, memory) || shares_bytes(work.host_target, memory)) return true;
    return false;
}

// Whether queued work will write the memory. If so, a later change of the contents does not prove a write by the host.
bool will_be_written(const HostRange& memory) {
    for (const auto& [handle, stream] : scheduler_state().streams)
        for (const Work& work : stream->queue)
            if (shares_bytes(work.host_target, memory)) return true;
    return false;
}

// Checks a stream's access to pinned memory like an access to device memory.
void note_pinned(const HostRange& memory, bool writes, const std::shared_ptr<const Accessor>& accessor,
                 const Clock& clock) {
    uint64_t number = 0;
    if (memory.bytes == 0 || !number_of_pinned(memory.first, &number)) return;
    note_access(number, dense_region(memory.first, memory.bytes), writes, accessor, clock, scheduler_state().host);
}

}  // namespace

bool detects_races() { return stream_order() == Order::kRandom; }

// If its cache is off, torch_npu synchronizes the device before each aclrtFree. A program must not rely on this
// synchronization, because it does not happen with the cache. So if the next call is such a free, note_device_free()
// drops the clock of the synchronization. Any other call that uses the host's clock joins the clock of the
// synchronization here.
void join_device_wait() {
    SchedulerState& scheduler = scheduler_state();
    if (!scheduler.has_device_wait) return;
    scheduler.host.join(scheduler.device_wait);
    scheduler.has_device_wait = false;
}

void check_copy_sources(const Clock& clock) {
    SchedulerState& scheduler = scheduler_state();
    auto has_happened = [&](const CopySource& source) { return clock.at(source.actor) >= source.step; };
    for (const CopySource& source : scheduler.copy_sources) {
        if (!has_happened(source)) continue;
        uint64_t hash = 0;
        if (hash_host(source.memory.first, source.memory.bytes, &hash) && hash == source.hash) continue;
        report_race("the host changes the " + std::to_string(source.memory.bytes) + " bytes that " + source.place +
                        "'s " + source.operation + " reads, and it has not waited for the copy: synchronize " +
                        source.place + " first.",
                    "", true);
    }
    scheduler.copy_sources.erase(
        std::remove_if(scheduler.copy_sources.begin(), scheduler.copy_sources.end(), has_happened),
        scheduler.copy_sources.end());
}

void fill_host_target(const Work& work) {
    if (work.host_target.bytes == 0 || is_used_by_queued_work(work.host_target)) return;
    fill_host(const_cast<void*>(work.host_target.first), work.host_target.bytes);
}

void note_work(const StreamPtr& stream, const Work& work) {
    SchedulerState& scheduler = scheduler_state();
    join_device_wait();
    stream->clock.join(scheduler.host);
    const uint64_t step = stream->clock.advance(stream->actor);
    if (!detects_races()) return;
    const std::string place = work.branch_replay ? work.branch_replay->replaying_stream : stream->place();
    if (!stream->unrecorded_waits) {
        auto accessor =
            std::make_shared<const Accessor>(Accessor{stream->actor, step, place, work.name, work.branch_replay});
        for (const MemoryAccess& access : work.accesses) {
            const Region region = region_of(access);
            uint64_t number = 0;
            if (region.empty() || !number_of_allocation(reinterpret_cast<const void*>(region.low), &number)) continue;
            note_access(number, region, access.writes, accessor, stream->clock, scheduler.host);
        }
        note_pinned(work.host_source, false, accessor, stream->clock);
        note_pinned(work.host_target, true, accessor, stream->clock);
    }
    forget_copy_sources(work);
    CopySource source{work.host_source, 0, stream->actor, step, work.name, place};
    if (work.host_source.bytes && !will_be_written(work.host_source) &&
        hash_host(work.host_source.first, work.host_source.bytes, &source.hash)) {
        if (scheduler.copy_sources.size() >= kMaxSources) scheduler.copy_sources.erase(scheduler.copy_sources.begin());
        scheduler.copy_sources.push_back(std::move(source));
    }
}

void note_host_access(const char* call, const void* first, uint64_t bytes, bool writes) {
    SchedulerState& scheduler = scheduler_state();
    join_device_wait();
    uint64_t number = 0;
    if (!detects_races() || !number_of_allocation(first, &number)) return;
    auto accessor = std::make_shared<const Accessor>(Accessor{kHost, 0, "the host", call, nullptr});
    note_access(number, dense_region(first, bytes), writes, accessor, scheduler.host, scheduler.host);
}

void note_host_wait(const Clock& clock) {
    SchedulerState& scheduler = scheduler_state();
    join_device_wait();
    check_copy_sources(clock);
    scheduler.host.join(clock);
}

bool has_host_waited(const Stream& stream) {
    join_device_wait();
    return scheduler_state().host.at(stream.actor) >= stream.clock.at(stream.actor);
}

std::string find_user_of_host_memory(const HostRange& memory) {
    SchedulerState& scheduler = scheduler_state();
    join_device_wait();
    for (const CopySource& source : scheduler.copy_sources)
        if (shares_bytes(source.memory, memory) && scheduler.host.at(source.actor) < source.step)
            return source.place + "'s " + source.operation;
    for (const auto& [handle, stream] : scheduler.streams)
        for (const Work& work : stream->queue)
            if (shares_bytes(work.host_source, memory) || shares_bytes(work.host_target, memory))
                return stream->place() + "'s " + work.name;
    return "";
}

void note_device_free(uint64_t allocation, bool is_by_torch_npu) {
    SchedulerState& scheduler = scheduler_state();
    Clock host_clock = scheduler.host;
    if (scheduler.has_device_wait) host_clock.join(scheduler.device_wait);
    if (is_by_torch_npu)
        scheduler.has_device_wait = false;
    else
        join_device_wait();
    // In a free by torch_npu, the host has waited for the device, so no use is reported.
    if (detects_races()) forget_accesses(allocation, is_by_torch_npu ? nullptr : &host_clock);
}

}  // namespace simulated_cann
