// A channel between ranks of a communicator: each rank of it posts a message, then every rank reads the messages of the
// others. The ranks may be in several processes of one machine. The messages are files in a folder of the communicator,
// and a mapped file has the counters of posted and finished operations.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cann/files.h"

namespace simulated_cann {

// A file of a communicator that cannot be made, written or read. The text has its path and the system's reason.
struct FileError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The memory of a file of at least this size that processes share. A new file is filled with zeros.
class SharedMemory {
public:
    // Throws FileError if the file cannot be made, also if the disk is full.
    SharedMemory(const std::string& path, size_t bytes);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    template <class T>
    T* at(size_t byte) const {
        return reinterpret_cast<T*>(static_cast<char*>(first_) + byte);
    }

private:
    void* first_;
    size_t bytes_;
};

// A range of a message for one rank of the channel.
struct Segment {
    const char* first = nullptr;
    uint64_t bytes = 0;
};

// The contribution of one rank to one operation.
struct Message {
    std::string call;               // such as "HcclAllReduce of 8 float32, sum"
    std::string signature;          // must be equal on every rank
    std::vector<Segment> segments;  // one for all ranks, or one for each
};

// The message of a rank, without its data.
struct ReceivedMessage {
    std::string call, signature;
    std::vector<uint64_t> segment_bytes, segment_offsets;  // in the file
    File file;

    // The bytes of the segment for this rank.
    uint64_t bytes_for(uint32_t rank) const { return segment_bytes[index_for(rank)]; }
    // Copies the segment for this rank. Returns false if the file cannot be read.
    bool read_for(uint32_t rank, char* to) const;

private:
    size_t index_for(uint32_t rank) const { return segment_bytes.size() == 1 ? 0 : rank; }
};

// The files of a channel stay when it ends: another rank may still read them. They are in a folder that the end of the
// run removes.
class Channel {
public:
    // `path` is the common start of the names of the channel's files. Throws std::runtime_error if a file cannot be
    // made.
    Channel(std::string path, uint32_t rank, uint32_t rank_count);

    uint32_t rank() const { return rank_; }
    uint32_t rank_count() const { return rank_count_; }

    // Posts the message of the next operation and returns the operation's number, from 1. Throws std::runtime_error if
    // the file cannot be written.
    uint64_t post(const Message& message);
    // Whether this rank has posted its message of this operation.
    bool has_posted(uint32_t rank, uint64_t operation) const;
    // Whether another rank has posted a message, and this rank has not posted its own one.
    bool is_awaited() const;
    // Opens the message of a rank that has posted it.
    void open(uint32_t rank, uint64_t operation, ReceivedMessage* out) const;
    // Notes that this rank has read the messages of the operation. Removes this rank's messages that every rank has
    // read.
    void finish(uint64_t operation);

private:
    struct Counters {
        std::atomic<uint64_t> posted, finished;
    };
    std::string file_name(uint32_t rank, uint64_t operation) const;

    std::string path_;
    uint32_t rank_, rank_count_;
    SharedMemory memory_;
    Counters* const counters_;  // one for each rank
    uint64_t first_kept_ = 1;   // the first operation whose message of this rank was not removed
};

}  // namespace simulated_cann
