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

constexpr size_t kPruneAt = 4096;   // accesses of one actor to one allocation
constexpr size_t kMaxKept = 65536;  // at this number, all of the actor's accesses are dropped

struct Access {
    Region region;
    uint64_t step;
    bool writes;
    std::shared_ptr<const Accessor> who;
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

std::string place_of(const void* address) {
    const std::string pinned = describe_pinned(address);
    return pinned.empty() ? describe_address(address) : pinned;
}

std::string verb(bool writes) { return writes ? "writes" : "reads"; }

std::string name_of(const Accessor& a) {
    if (!a.node) return a.place + "'s " + a.operation;
    return a.operation + ", which graph " + std::to_string(a.node->graph) + " captured on " + a.node->source +
           " and replays on " + a.place + ",";
}

void report(const Access& before, const Region& region, bool writes, const Accessor& who) {
    static auto* reported = new std::set<std::string>;
    const Accessor& first = *before.who;
    std::string text = name_of(who) + " " + verb(writes) + " memory that " + name_of(first) + " " +
                       verb(before.writes) + ", and nothing orders them: ";
    if (who.actor == kHost)
        text += "synchronize " + first.place + " first.";
    else if (who.node && first.node && who.node->replay == first.node->replay)
        text += "while they are captured, record an event on " + first.node->source + " after " + first.operation +
                " and let " + who.node->source + " wait for it.";
    else
        text += "record an event on " + first.place + " after " + (first.node ? "the replay" : first.operation) +
                " and let " + who.place + " wait for it" + (who.node ? " before the replay." : ".");
    const bool is_new = reported->insert(text).second;
    const uintptr_t low = std::max(before.region.low, region.low);
    const uintptr_t high = std::min(before.region.high, region.high);
    report_race(text,
                is_new ? " (within " + std::to_string(high - low) + " bytes from " +
                             place_of(reinterpret_cast<const void*>(low)) + ")"
                       : "",
                is_new);
}

void report_early_free(const ActorAccesses& accesses) {
    const Access* last = nullptr;
    for (const auto& [low, list] : accesses.by_low)
        for (const Access& one : list)
            if (!last || one.step > last->step) last = &one;
    if (!last) return;
    report_race("aclrtFree frees memory that " + name_of(*last->who) + " " + verb(last->writes) +
                    ", and the host has not waited for it: synchronize " + last->who->place + " first.",
                "", true);
}

// Drops accesses that the host has waited for: every later step of any actor comes after them.
void prune(ActorAccesses* accesses, uint64_t host_step) {
    for (auto at = accesses->by_low.begin(); at != accesses->by_low.end();) {
        auto& list = at->second;
        const size_t before = list.size();
        list.erase(std::remove_if(list.begin(), list.end(), [&](const Access& a) { return a.step <= host_step; }),
                   list.end());
        accesses->count -= before - list.size();
        at = list.empty() ? accesses->by_low.erase(at) : std::next(at);
    }
}

void keep(ActorAccesses* accesses, Access access) {
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

void note_access(uint64_t allocation, const Region& region, bool writes, const std::shared_ptr<const Accessor>& who,
                 const Clock& clock, const Clock& host) {
    if (region.empty()) return;
    History& history = histories()[allocation];
    for (auto& [actor, accesses] : history) {
        const uint64_t known = clock.at(actor);
        if (actor == who->actor || (writes ? accesses.last_step : accesses.last_write) <= known) continue;
        bool found = false;
        for (const auto& [low, list] : accesses.by_low) {
            if (low >= region.high || found) break;
            for (const Access& old : list) {
                if (old.step <= known || !(writes || old.writes) || !overlap(old.region, region)) continue;
                report(old, region, writes, *who);
                found = true;  // report one race per access and actor
                break;
            }
        }
    }
    if (who->actor == kHost) return;  // all work queued later comes after the host's access
    ActorAccesses& own = history[who->actor];
    if (own.count >= kPruneAt && own.count % kPruneAt == 0) prune(&own, host.at(who->actor));
    if (own.count >= kMaxKept) own = ActorAccesses();
    keep(&own, {region, who->step, writes, who});
    own.last_step = who->step;
    if (writes) own.last_write = who->step;
}

void note_free(uint64_t allocation, const Clock* host) {
    auto found = histories().find(allocation);
    if (found == histories().end()) return;
    for (const auto& [actor, accesses] : found->second)
        if (host && accesses.last_step > host->at(actor)) report_early_free(accesses);
    histories().erase(found);
}

}  // namespace simulated_cann
