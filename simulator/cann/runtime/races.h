// Races between streams: two accesses to the same byte, one of them a write, that nothing orders. They are
// found when work is queued, so that the order in which it runs does not matter. Callers hold the
// scheduler's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "simulator/cann/runtime/clocks.h"
#include "simulator/cann/runtime/regions.h"

namespace npu_cann {

// Who accesses memory: an actor of the clocks, at one of its steps.
struct Accessor {
    size_t actor;
    uint64_t step;
    std::string place;      // "stream 2" or "the host"
    std::string operation;  // "aclnnAdd"
};

// Compares the access with the earlier ones to the same allocation, reports a race, and keeps the access.
void note_access(uint64_t allocation, const Region& region, bool writes, const std::shared_ptr<const Accessor>& who,
                 const Clock& clock, const Clock& host);

// The allocation is freed: reports stream work that uses it and that the host has not waited for, where it is
// not null.
void note_free(uint64_t allocation, const Clock* host);

}  // namespace npu_cann
