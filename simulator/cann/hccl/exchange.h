// Operations of a communicator as work of a stream. An exchange has two pieces of work. The first one posts the message
// of this rank. The second one reads the messages of all ranks, and it is not ready before all ranks have posted
// theirs. So no piece blocks the thread that runs work, and other streams continue as on a device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cann/hccl/communicator.h"

namespace simulated_cann {

// The messages of all ranks of the channel, by rank.
using Messages = std::vector<ReceivedMessage>;

struct Exchange {
    Channel* channel = nullptr;
    std::vector<uint32_t> ranks;  // of the communicator, by rank of the channel
    Message message;
    // Reads the messages. Returns "" or the rule that a message breaks.
    std::function<std::string(const Messages&)> read;
    std::vector<MemoryAccess> reads, writes;  // memory of this device
};

// Queues the exchanges on the stream: first all posts, then all waits, so that no exchange waits for another one.
// Inside of a group, the end of the group queues them with the other exchanges of the stream.
HcclResult queue_exchanges(const char* call, const CommunicatorPtr& communicator, const StreamPtr& stream,
                           std::vector<Exchange> exchanges);

// Groups of this thread may be nested; the end of the outermost one queues its exchanges. end_group returns
// HCCL_E_PARA if no group has begun.
void begin_group();
HcclResult end_group();

// Starts the thread that runs queued posts for which another rank waits, as a device does without the host.
// Throws std::system_error if the thread cannot be created.
void start_progress();

}  // namespace simulated_cann
