// Races between streams, or between a stream and the host: two unordered accesses to the same byte, at least one of
// them a write. They are found when work is queued or the host accesses memory, independently of the order in which
// work runs. Callers hold the scheduler's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cann/runtime/clocks.h"
#include "cann/runtime/regions.h"

namespace simulated_cann {

struct ReplayedAs;

// The actor of an access, and the step of the actor's clock.
struct Accessor {
    size_t actor;
    uint64_t step;
    std::string place;                       // "stream 2" or "the host"; of a graph's node, the stream that replays it
    std::string operation;                   // "aclnnAdd"
    std::shared_ptr<const ReplayedAs> node;  // null outside graphs
};

// Reports races of this access with earlier ones of other streams to the allocation. Stores the access of a stream.
void note_access(uint64_t allocation, const Region& region, bool writes, const std::shared_ptr<const Accessor>& who,
                 const Clock& clock, const Clock& host);

// Drops the accesses to an allocation that is freed. If `host` is not null, reports stream work that uses the
// allocation and that the host has not waited for.
void note_free(uint64_t allocation, const Clock* host);

}  // namespace simulated_cann
