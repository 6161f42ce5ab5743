#include "cann/runtime/races.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "cann/runtime/host_memory.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr size_t kPruneAt = 4096;       // prune() runs at each multiple of this number of stored accesses
constexpr size_t kMaxAccesses = 65536;  // at this number, all stored accesses of an actor to an allocation are dropped

struct Access {
    Region region;
    uint64_t step;
    bool writes;
    std::shared_ptr<const Accessor> accessor;
};

// Accesses of one actor to one allocation, by the region's first byte.
struct ActorAccesses {
    std::map<uintptr_t, std::vector<Access>> by_low;
    size_t count = 0;
    uint64_t last_step = 0, last_write = 0;
};

using History = std::map<size_t, ActorAccesses>;

std::unordered_map<uint64_t, History>& histories() {
    static auto* all = new std::unordered_map<uint64_t, History>;
    return *all;
}

std::string describe_memory(const void* address) {
    const std::string pinned = describe_pinned(address);
    return pinned.empty() ? describe_address(address) : pinned;
}

std::string verb(bool writes) { return writes ? "writes" : "reads"; }

std::string describe_accessor(const Accessor& accessor) {
    if (!accessor.branch_replay) return accessor.place + "'s " + accessor.operation;
    return accessor.operation + ", which graph " + std::to_string(accessor.branch_replay->graph_id) + " captured on " +
           accessor.branch_replay->captured_stream + " and replays on " + accessor.place + ",";
}

void report_conflict(const Access& earlier_access, const Region& region, bool writes, const Accessor& accessor) {
    static auto* reported = new std::set<std::string>;
    const Accessor& earlier = *earlier_access.accessor;
    std::string text = describe_accessor(accessor) + " " + verb(writes) + " memory that " + describe_accessor(earlier) +
                       " " + verb(earlier_access.writes) + ", and nothing orders them: ";
    if (accessor.actor == kHost)
        text += "synchronize " + earlier.place + " first.";
    else if (accessor.branch_replay && earlier.branch_replay &&
             accessor.branch_replay->replay_number == earlier.branch_replay->replay_number)
        text += "while they are captured, record an event on " + earlier.branch_replay->captured_stream + " after " +
                earlier.operation + " and let " + accessor.branch_replay->captured_stream + " wait for it.";
    else
        text += "record an event on " + earlier.place + " after " +
                (earlier.branch_replay ? "the replay" : earlier.operation) + " and let " + accessor.place +
                " wait for it" + (accessor.branch_replay ? " before the replay." : ".");
    const bool is_new = reported->insert(text).second;
    const uintptr_t low = std::max(earlier_access.region.low, region.low);
    const uintptr_t high = std::min(earlier_access.region.high, region.high);
    report_race(text,
                is_new ? " (within " + std::to_string(high - low) + " bytes from " +
                             describe_memory(reinterpret_cast<const void*>(low)) + ")"
                       : "",
                is_new);
}

void report_early_free(const ActorAccesses& accesses) {
    const Access* latest = nullptr;
    for (const auto& [low, list] : accesses.by_low)
        for (const Access& access : list)
            if (!latest || access.step > latest->step) latest = &access;
    if (!latest) return;
    report_race("aclrtFree frees memory that " + describe_accessor(*latest->accessor) + " " + verb(latest->writes) +
                    ", and the host has not waited for it: synchronize " + latest->accessor->place + " first.",
                "", true);
}

// Drops accesses that the host has waited for. They precede every later step of every actor.
void prune(ActorAccesses* accesses, uint64_t host_step) {
    for (auto next = accesses->by_low.begin(); next != accesses->by_low.end();) {
        auto& list = next->second;
        const size_t count_before = list.size();
        list.erase(
            std::remove_if(list.begin(), list.end(), [&](const Access& access) { return access.step <= host_step; }),
            list.end());
        accesses->count -= count_before - list.size();
        next = list.empty() ? accesses->by_low.erase(next) : std::next(next);
    }
}

void store_access(ActorAccesses* accesses, Access access) {
    auto& list = accesses->by_low[access.region.low];
    for (Access& old : list)
        if (old.region == access.region && (access.writes || !old.writes)) {
            old = std::move(access);
            return;
        }
    list.push_back(std::move(access));
    ++accesses->count;
}

}  // namespace

void note_access(uint64_t allocation, const Region& region, bool writes,
                 const std::shared_ptr<const Accessor>& accessor, const Clock& clock, const Clock& host) {
    if (region.empty()) return;
    History& history = histories()[allocation];
    for (auto& [actor, accesses] : history) {
        const uint64_t known_step = clock.at(actor);
        if (actor == accessor->actor || (writes ? accesses.last_step : accesses.last_write) <= known_step) continue;
        bool is_reported = false;
        for (const auto& [low, list] : accesses.by_low) {
            if (low >= region.high || is_reported) break;
            for (const Access& old : list) {
                if (old.step <= known_step || !(writes || old.writes) || !overlap(old.region, region)) continue;
                report_conflict(old, region, writes, *accessor);
                is_reported = true;  // report one race per access and actor
                break;
            }
        }
    }
    if (accessor->actor == kHost) return;  // all work queued later comes after the host's access
    ActorAccesses& own = history[accessor->actor];
    if (own.count >= kPruneAt && own.count % kPruneAt == 0) prune(&own, host.at(accessor->actor));
    if (own.count >= kMaxAccesses) own = ActorAccesses();
    store_access(&own, {region, accessor->step, writes, accessor});
    own.last_step = accessor->step;
    if (writes) own.last_write = accessor->step;
}

void forget_accesses(uint64_t allocation, const Clock* host) {
    auto found = histories().find(allocation);
    if (found == histories().end()) return;
    for (const auto& [actor, accesses] : found->second)
        if (host && accesses.last_step > host->at(actor)) report_early_free(accesses);
    histories().erase(found);
}

}  // namespace simulated_cann
