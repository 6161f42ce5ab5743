// Detection of races between streams, or between a stream and the host. A race is two unordered accesses to the same
// byte, at least one of them a write. It is found when work is queued or the host accesses memory, independently of the
// order in which the work runs. Callers hold the scheduler's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cann/runtime/clocks.h"
#include "cann/runtime/regions.h"

namespace simulated_cann {

struct BranchReplay;

// The actor of an access, and the step of its clock (clocks.h).
struct Accessor {
    size_t actor;
    uint64_t step;
    std::string place;      // "stream 2" or "the host"; in a replay, the stream that replays
    std::string operation;  // "aclnnAdd"
    std::shared_ptr<const BranchReplay> branch_replay;  // null if no graph replays the access
};

// Reports races of this access with earlier accesses of other actors to the allocation. Stores the access if a stream
// makes it. `clock` is the clock of the accessor, `host` the clock of the host.
void note_access(uint64_t allocation, const Region& region, bool writes,
                 const std::shared_ptr<const Accessor>& accessor, const Clock& clock, const Clock& host);

// Drops the accesses to a freed allocation. If `host` is not null, reports each stream whose work uses the allocation
// and for which the host has not waited.
void forget_accesses(uint64_t allocation, const Clock* host);

}  // namespace simulated_cann
