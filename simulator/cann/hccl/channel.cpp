#include "cann/hccl/channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

namespace simulated_cann {
namespace {

[[noreturn]] void throw_file_error(const std::string& path) {
    if (errno == ENOMEM) throw std::bad_alloc();
    throw FileError(path + ": " + std::strerror(errno) + ".");
}

// Makes the file at least this long, with room on the disk for its first `bytes` bytes. Without this room, a write to
// the mapped file would end the process by SIGBUS. Some file systems, such as NFS before version 4.2, cannot reserve
// it.
bool reserve(const File& file, size_t bytes) {
    const auto size = static_cast<off_t>(bytes);
    int status = 0;
    do {
        status = fallocate(file.number, 0, 0, size);
    } while (status != 0 && errno == EINTR);
    if (status == 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return status == 0;
    struct stat found{};
    // Every process extends the file to the same size, so the order does not matter.
    return fstat(file.number, &found) == 0 && (found.st_size >= size || ftruncate(file.number, size) == 0);
}

void write_all(const File& file, const void* from, size_t bytes, const std::string& path) {
    const auto* next = static_cast<const char*>(from);
    while (bytes) {
        const ssize_t written = write(file.number, next, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) throw_file_error(path);
        next += written;
        bytes -= static_cast<size_t>(written);
    }
}

bool read_all(const File& file, void* to, size_t bytes, uint64_t offset) {
    auto* next = static_cast<char*>(to);
    while (bytes) {
        const ssize_t count = pread(file.number, next, bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        next += count;
        offset += static_cast<uint64_t>(count);
        bytes -= static_cast<size_t>(count);
    }
    return true;
}

// The first bytes of a message's file. The texts follow, then the sizes of the segments, then the segments.
struct FileHeader {
    uint64_t call_bytes, signature_bytes, segment_count;
};

}  // namespace

SharedMemory::SharedMemory(const std::string& path, size_t bytes) : first_(MAP_FAILED), bytes_(bytes) {
    const File file(path.c_str(), O_RDWR | O_CREAT);
    if (!file.is_open()) throw_file_error(path);
    if (reserve(file, bytes)) first_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0);
    if (first_ == MAP_FAILED) throw_file_error(path);
}

SharedMemory::~SharedMemory() { munmap(first_, bytes_); }

bool ReceivedMessage::read_for(uint32_t rank, char* to) const {
    return read_all(file, to, bytes_for(rank), segment_offsets[index_for(rank)]);
}

Channel::Channel(std::string path, uint32_t rank, uint32_t rank_count)
    : path_(std::move(path)),
      rank_(rank),
      rank_count_(rank_count),
      memory_(path_ + ".counters", rank_count * sizeof(Counters)),
      counters_(memory_.at<Counters>(0)) {}

std::string Channel::file_name(uint32_t rank, uint64_t operation) const {
    return path_ + "." + std::to_string(operation) + "." + std::to_string(rank);
}

uint64_t Channel::post(const Message& message) {
    const uint64_t operation = counters_[rank_].posted + 1;
    const std::string path = file_name(rank_, operation);
    const File file(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) throw_file_error(path);
    const FileHeader header{message.call.size(), message.signature.size(), message.segments.size()};
    write_all(file, &header, sizeof(header), path);
    write_all(file, message.call.data(), message.call.size(), path);
    write_all(file, message.signature.data(), message.signature.size(), path);
    for (const Segment& segment : message.segments) write_all(file, &segment.bytes, sizeof(segment.bytes), path);
    for (const Segment& segment : message.segments) write_all(file, segment.first, segment.bytes, path);
    counters_[rank_].posted = operation;
    return operation;
}

bool Channel::has_posted(uint32_t rank, uint64_t operation) const { return counters_[rank].posted >= operation; }

bool Channel::is_awaited() const {
    for (uint32_t rank = 0; rank < rank_count_; ++rank)
        if (counters_[rank].posted > counters_[rank_].posted) return true;
    return false;
}

void Channel::open(uint32_t rank, uint64_t operation, ReceivedMessage* out) const {
    const std::string path = file_name(rank, operation);
    out->file = File(path.c_str(), O_RDONLY);
    FileHeader header{};
    if (!out->file.is_open() || !read_all(out->file, &header, sizeof(header), 0)) throw_file_error(path);
    out->call.resize(header.call_bytes);
    out->signature.resize(header.signature_bytes);
    out->segment_bytes.resize(header.segment_count);
    uint64_t offset = sizeof(header);
    const auto read_next = [&](void* to, uint64_t bytes) {
        if (!read_all(out->file, to, bytes, offset)) throw_file_error(path);
        offset += bytes;
    };
    read_next(out->call.data(), header.call_bytes);
    read_next(out->signature.data(), header.signature_bytes);
    read_next(out->segment_bytes.data(), header.segment_count * sizeof(uint64_t));
    for (uint64_t bytes : out->segment_bytes) {
        out->segment_offsets.push_back(offset);
        offset += bytes;
    }
}

void Channel::finish(uint64_t operation) {
    counters_[rank_].finished = operation;
    uint64_t finished_by_all = operation;
    for (uint32_t rank = 0; rank < rank_count_; ++rank)
        finished_by_all = std::min<uint64_t>(finished_by_all, counters_[rank].finished);
    for (; first_kept_ <= finished_by_all; ++first_kept_) unlink(file_name(rank_, first_kept_).c_str());
}

}  // namespace simulated_cann
