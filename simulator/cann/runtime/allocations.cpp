#include "cann/runtime/allocations.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

constexpr size_t kGuardBytes = 512;  // also the alignment of aclrtMalloc
constexpr uint8_t kGuard = 0xA5;
constexpr uint8_t kFreed = 0xFB;  // a large negative number, not NaN, to distinguish it from fresh memory
constexpr size_t kQuarantineBytes = size_t(256) << 20;
constexpr uint8_t kFresh = 0xFF;  // NaN in every floating-point type, so that results show reads of unwritten memory

struct Allocation {
    uint8_t* block;
    size_t bytes;
    uint64_t number;  // sequence number in the process, from 1
    bool is_padded = false;
    bool reported = false;
};

struct Table {
    std::map<uintptr_t, Allocation> by_first;
    size_t in_use = 0;
    uint64_t count = 0;
    uintptr_t checked_last = 0;    // address of the allocation that was checked last
    std::deque<Allocation> freed;  // in quarantine, oldest first
    size_t freed_bytes = 0;
};

constexpr size_t kNearBytes = 64;      // of each zone that a partial check reads
constexpr size_t kPartialCount = 256;  // allocations of a partial check

// Whether every byte is the guard's: the first one is, and each one equals the next.
bool is_intact(const uint8_t* zone, size_t bytes) {
    return zone[0] == kGuard && std::memcmp(zone, zone + 1, bytes - 1) == 0;
}

bool is_intact_nearby(const Allocation& a) {
    const uint8_t* first = a.block + kGuardBytes;
    return is_intact(first - kNearBytes, kNearBytes) && is_intact(first + a.bytes, kNearBytes);
}

// The nearest and the farthest overwritten byte, counted from the allocation's edge.
std::string overwritten_bytes(const uint8_t* zone, bool behind) {
    size_t nearest = kGuardBytes, farthest = 0;
    for (size_t i = 0; i < kGuardBytes; ++i) {
        if (zone[i] == kGuard) continue;
        size_t distance = behind ? i + 1 : kGuardBytes - i;
        nearest = distance < nearest ? distance : nearest;
        farthest = distance > farthest ? distance : farthest;
    }
    if (nearest == farthest) return "byte " + std::to_string(nearest);
    return "bytes " + std::to_string(nearest) + " to " + std::to_string(farthest);
}

std::string damage_of(const Allocation& a) {
    const uint8_t* front = a.block;
    const uint8_t* back = a.block + kGuardBytes + a.bytes;
    std::string text;
    auto report = [&](const std::string& where) {
        text += text.empty() ? "device memory was overrun: allocation " + std::to_string(a.number) + " of " +
                                   std::to_string(a.bytes) + " bytes had "
                             : " and ";
        text += where;
    };
    if (!is_intact(front, kGuardBytes)) report(overwritten_bytes(front, false) + " before its first written");
    if (!is_intact(back, kGuardBytes)) report(overwritten_bytes(back, true) + " behind its last written");
    return text.empty() ? text : text + ".";
}

// Null if no allocation holds the address.
const Allocation* holder_of(const void* address, const Table& t) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    auto after = t.by_first.upper_bound(wanted);
    if (after == t.by_first.begin()) return nullptr;
    const auto& [start, a] = *--after;
    // An empty allocation holds its start address.
    return wanted - start >= a.bytes && wanted != start ? nullptr : &a;
}

// Null if no allocation in quarantine held the address.
const Allocation* freed_holder_of(const void* address, const Table& t) {
    const auto* wanted = static_cast<const uint8_t*>(address);
    for (const Allocation& a : t.freed)
        if (wanted >= a.block + kGuardBytes && wanted < a.block + kGuardBytes + a.bytes) return &a;
    return nullptr;
}

}  // namespace

void* allocate_device(size_t bytes, size_t padding) {
    if (padding > kGuardBytes) return nullptr;  // the guard zone must hold the padding
    if (bytes > kDeviceBytes - device_bytes_in_use()) return nullptr;
    const size_t block_bytes = (bytes + 2 * kGuardBytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
    auto* block = static_cast<uint8_t*>(std::aligned_alloc(kGuardBytes, block_bytes));
    if (!block) return nullptr;
    std::memset(block, kGuard, kGuardBytes);
    std::memset(block + kGuardBytes, kFresh, bytes);
    std::memset(block + kGuardBytes + bytes, kGuard, kGuardBytes);
    Locked<Table> t;
    t->in_use += bytes;
    t->by_first[reinterpret_cast<uintptr_t>(block + kGuardBytes)] = {block, bytes, ++t->count, padding > 0};
    return block + kGuardBytes;
}

bool find_start(const void* first, Freed* out) {
    Locked<Table> t;
    auto found = t->by_first.find(reinterpret_cast<uintptr_t>(first));
    if (found == t->by_first.end()) return false;
    out->number = found->second.number;
    out->is_padded = found->second.is_padded;
    return true;
}

bool free_device(void* first, Freed* out) {
    Locked<Table> t;
    auto found = t->by_first.find(reinterpret_cast<uintptr_t>(first));
    if (found == t->by_first.end()) return false;
    Allocation& a = found->second;
    *out = {a.number, a.is_padded, a.reported ? "" : damage_of(a)};
    t->in_use -= a.bytes;
    std::memset(a.block + kGuardBytes, kFreed, a.bytes);
    t->freed.push_back(a);
    t->freed_bytes += a.bytes;
    t->by_first.erase(found);
    while (t->freed_bytes > kQuarantineBytes) {
        t->freed_bytes -= t->freed.front().bytes;
        std::free(t->freed.front().block);
        t->freed.pop_front();
    }
    return true;
}

std::string describe_freed(const void* address) {
    Locked<Table> t;
    const Allocation* a = freed_holder_of(address, *t);
    return a ? "allocation " + std::to_string(a->number) + " of " + std::to_string(a->bytes) + " bytes" : "";
}

bool is_freed_with_padding(const void* address) {
    Locked<Table> t;
    const Allocation* a = freed_holder_of(address, *t);
    return a && a->is_padded;
}

std::string guard_damage(GuardCheck check) {
    Locked<Table> t;
    std::string text;
    const bool checks_all = check == GuardCheck::kFull;
    size_t left = checks_all ? t->by_first.size() : std::min(kPartialCount, t->by_first.size());
    auto at = checks_all ? t->by_first.begin() : t->by_first.upper_bound(t->checked_last);
    for (; left > 0; --left, ++at) {
        if (at == t->by_first.end()) at = t->by_first.begin();
        t->checked_last = at->first;
        Allocation& a = at->second;
        if (a.reported || (!checks_all && is_intact_nearby(a))) continue;
        std::string one = damage_of(a);
        if (one.empty()) continue;
        a.reported = true;
        text += (text.empty() ? "" : " ") + one;
    }
    return text;
}

size_t device_bytes_in_use() { return Locked<Table>()->in_use; }

bool find_allocation(const void* address, void** first, uint64_t* bytes) {
    if (host_calls()) return find_host_memory(address, first, bytes);
    Locked<Table> t;
    const Allocation* a = holder_of(address, *t);
    if (!a) return false;
    *first = a->block + kGuardBytes;
    *bytes = a->bytes;
    return true;
}

bool number_of_allocation(const void* address, uint64_t* number) {
    Locked<Table> t;
    const Allocation* a = holder_of(address, *t);
    if (!a) return false;
    *number = a->number;
    return true;
}

std::string describe_address(const void* address) {
    Locked<Table> t;
    const Allocation* a = holder_of(address, *t);
    if (!a) return "an address that is not allocated";
    const auto offset = static_cast<const uint8_t*>(address) - (a->block + kGuardBytes);
    return "byte " + std::to_string(offset) + " of allocation " + std::to_string(a->number);
}

}  // namespace simulated_cann
