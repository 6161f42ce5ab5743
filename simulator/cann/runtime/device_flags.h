// Flags of events in the device. An event of aclrtCreateEventWithFlag has one flag: a record sets it, a reset clears
// it, and a wait needs it set, whichever record has set it (hicann/runtime src/runtime/core/src/event/event.cc,
// Event::Record, ::Wait and ::Reset). An event of aclrtCreateEvent or aclrtCreateEventExWithFlag takes another flag at
// each record, so that a wait for it needs this record; these events have no DeviceFlag.
#pragma once

#include <memory>
#include <vector>

#include "cann/runtime/clocks.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {

// The lock of lock_streams() protects all members.
struct DeviceFlag {
    bool is_set = false;
    std::vector<std::shared_ptr<Record>> queued;  // that will set the flag
    // The records that may have set the flag when a later wait runs: one for each order of records. Then those that the
    // last reset clears.
    std::vector<std::shared_ptr<Record>> setting, cleared;
    uint64_t record_count = 0;  // since the last reset
    size_t reset_actor = kHost;
    uint64_t reset_step = 0;  // of the stream of the last reset

    // Update the members when a record or a reset is queued. `clock` is the one of its stream.
    void note_record(const std::shared_ptr<Record>& record);
    void note_reset(const Clock& clock, size_t actor);
    // Adds to the stream's clock the steps that happen before a wait of the stream ends. Returns false if only a later
    // record can end it.
    bool join_clock(const StreamPtr& stream) const;
};

// Queue a wait for the flag, or its reset. Need the lock.
int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<DeviceFlag>& flag, std::shared_ptr<void> waits);
int32_t enqueue_reset(const StreamPtr& stream, const std::shared_ptr<DeviceFlag>& flag);

}  // namespace simulated_cann
