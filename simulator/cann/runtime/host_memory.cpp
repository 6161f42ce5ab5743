#include "cann/runtime/host_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "cann/locked.h"
#include "cann/runtime/forks.h"

namespace simulated_cann {
namespace {

constexpr size_t kChunkBytes = 1 << 16;
constexpr uint8_t kNanByte = 0xFF;

constexpr uint64_t kFirstPinnedNumber = uint64_t(1) << 63;  // the device's allocations count from 1

struct Pinned {
    size_t bytes;
    uint64_t number;
};

struct PinnedTable {
    std::map<uintptr_t, Pinned> by_first;
    uint64_t next_number = kFirstPinnedNumber;

    // Null if no allocation holds the address.
    const std::pair<const uintptr_t, Pinned>* find_holder(const void* address) const {
        const auto wanted = reinterpret_cast<uintptr_t>(address);
        auto after = by_first.upper_bound(wanted);
        if (after == by_first.begin()) return nullptr;
        --after;
        return wanted - after->first < after->second.bytes ? &*after : nullptr;
    }
};

const ForkLock pinned_lock(LockRank::kLast, &Locked<PinnedTable>::mutex());

// Copies with `call`, which is process_vm_readv or process_vm_writev. These system calls fail on unmapped addresses.
// Their arguments are `local` and `remote`. If the operating system forbids the call, copies directly.
template <class Call>
bool transfer(Call call, void* to, const void* from, void* local, const void* remote, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        iovec local_range{static_cast<char*>(local) + done, bytes - done};
        iovec remote_range{const_cast<char*>(static_cast<const char*>(remote)) + done, bytes - done};
        const ssize_t count = call(getpid(), &local_range, 1ul, &remote_range, 1ul, 0ul);
        if (count <= 0) {
            if (errno == EFAULT) return false;
            std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done, bytes - done);
            return true;
        }
        done += size_t(count);
    }
    return true;
}

}  // namespace

void* allocate_host(size_t bytes) {
    void* first = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!first) return nullptr;
    Locked<PinnedTable> table;
    table->by_first[reinterpret_cast<uintptr_t>(first)] = {bytes, table->next_number++};
    return first;
}

bool free_host(void* first) {
    Locked<PinnedTable> table;
    if (table->by_first.erase(reinterpret_cast<uintptr_t>(first)) == 0) return false;
    std::free(first);
    return true;
}

bool is_pinned(const void* address, size_t bytes) {
    Locked<PinnedTable> table;
    const auto* holder = table->find_holder(address);
    return holder && reinterpret_cast<uintptr_t>(address) - holder->first + bytes <= holder->second.bytes;
}

bool number_of_pinned(const void* address, uint64_t* number) {
    Locked<PinnedTable> table;
    const auto* holder = table->find_holder(address);
    if (holder) *number = holder->second.number;
    return holder;
}

std::string describe_pinned(const void* address) {
    Locked<PinnedTable> table;
    const auto* holder = table->find_holder(address);
    if (!holder) return "";
    return "byte " + std::to_string(reinterpret_cast<uintptr_t>(address) - holder->first) + " of " +
           std::to_string(holder->second.bytes) + " bytes of pinned memory";
}

size_t pinned_bytes(const void* first) {
    Locked<PinnedTable> table;
    auto found = table->by_first.find(reinterpret_cast<uintptr_t>(first));
    return found == table->by_first.end() ? 0 : found->second.bytes;
}

bool read_host(void* to, const void* from, size_t bytes) {
    return transfer(process_vm_readv, to, from, to, from, bytes);
}

bool write_host(void* to, const void* from, size_t bytes) {
    return transfer(process_vm_writev, to, from, const_cast<void*>(from), to, bytes);
}

bool hash_host(const void* first, size_t bytes, uint64_t* hash) {
    std::vector<uint64_t> words(kChunkBytes / sizeof(uint64_t));
    uint64_t mixed = 0xCBF29CE484222325u;  // arbitrary: the hash only detects changes
    for (size_t done = 0; done < bytes; done += kChunkBytes) {
        const size_t count = std::min(kChunkBytes, bytes - done);
        words[(count - 1) / sizeof(uint64_t)] = 0;  // the last word may be incomplete
        if (!read_host(words.data(), static_cast<const char*>(first) + done, count)) return false;
        for (size_t i = 0; i < (count + sizeof(uint64_t) - 1) / sizeof(uint64_t); ++i) {
            mixed = (mixed ^ words[i]) * 0x9E3779B97F4A7C15u;
            mixed ^= mixed >> 29;
        }
    }
    *hash = mixed;
    return true;
}

void fill_host(void* first, size_t bytes) {
    const std::vector<uint8_t> junk(std::min(kChunkBytes, bytes), kNanByte);
    for (size_t done = 0; done < bytes; done += kChunkBytes)
        write_host(static_cast<char*>(first) + done, junk.data(), std::min(kChunkBytes, bytes - done));
}

}  // namespace simulated_cann
