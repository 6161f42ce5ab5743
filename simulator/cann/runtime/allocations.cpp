#include "cann/runtime/allocations.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

constexpr size_t kGuardBytes = 512;  // also the alignment of aclrtMalloc
constexpr uint8_t kGuardByte = 0xA5;
constexpr uint8_t kFreedByte = 0xFB;  // gives large negative numbers, which differ from the NaN of fresh memory
constexpr size_t kQuarantineBytes = size_t(256) << 20;  // freed memory that is kept, so that it is not reused
constexpr uint8_t kFreshByte = 0xFF;  // gives NaN in every floating-point type, so results show reads of fresh memory

struct Allocation {
    uint8_t* block;
    size_t bytes;
    uint64_t number;  // sequence number in the process, from 1
    int32_t device;
    bool is_padded = false;
    bool is_reported = false;
};

struct Mapping {
    uintptr_t reserved;  // first address of the reserved range
    size_t bytes;
    uint64_t number;  // the same for all mappings of the range
    int32_t device;   // that has the physical memory
};

struct AllocationTable {
    std::map<uintptr_t, Allocation> by_first;
    std::map<uintptr_t, Mapping> mappings;  // by first address
    std::map<int32_t, size_t> in_use;       // bytes, by device
    size_t ended_bytes = 0;                 // that the ends of devices freed
    uint64_t count = 0;
    uintptr_t checked_last = 0;             // address of the allocation that was checked last
    std::map<uintptr_t, Allocation> freed;  // in quarantine, by first address
    std::deque<uintptr_t> freed_in_order;   // oldest first
    size_t freed_bytes = 0;
};

const ForkLock allocations_lock(LockRank::kLast, &Locked<AllocationTable>::mutex());

constexpr size_t kPartialBytes = 64;   // bytes of each guard zone that a partial check reads
constexpr size_t kPartialCount = 256;  // allocations that a partial check reads

// Whether every byte is kGuardByte: the first byte is, and each byte equals the next one.
bool is_intact(const uint8_t* zone, size_t bytes) {
    return zone[0] == kGuardByte && std::memcmp(zone, zone + 1, bytes - 1) == 0;
}

bool is_partly_intact(const Allocation& allocation) {
    const uint8_t* first = allocation.block + kGuardBytes;
    return is_intact(first - kPartialBytes, kPartialBytes) && is_intact(first + allocation.bytes, kPartialBytes);
}

// Returns the range of overwritten bytes of a guard zone, as distances from the allocation.
std::string overwritten_bytes(const uint8_t* zone, bool is_behind) {
    size_t nearest = kGuardBytes, farthest = 0;
    for (size_t i = 0; i < kGuardBytes; ++i) {
        if (zone[i] == kGuardByte) continue;
        size_t distance = is_behind ? i + 1 : kGuardBytes - i;
        nearest = distance < nearest ? distance : nearest;
        farthest = distance > farthest ? distance : farthest;
    }
    if (nearest == farthest) return "byte " + std::to_string(nearest);
    return "bytes " + std::to_string(nearest) + " to " + std::to_string(farthest);
}

std::string damage_of(const Allocation& allocation) {
    const uint8_t* front = allocation.block;
    const uint8_t* back = allocation.block + kGuardBytes + allocation.bytes;
    std::string text;
    auto report = [&](const std::string& where) {
        text += text.empty() ? "device memory was overrun: allocation " + std::to_string(allocation.number) + " of " +
                                   std::to_string(allocation.bytes) + " bytes has damage at "
                             : " and ";
        text += where;
    };
    if (!is_intact(front, kGuardBytes)) report(overwritten_bytes(front, false) + " before its start");
    if (!is_intact(back, kGuardBytes)) report(overwritten_bytes(back, true) + " behind its end");
    return text.empty() ? text : text + ".";
}

// Where an address lies: the allocation's first byte, size and number. Mappings side by side are one allocation.
struct Place {
    uint8_t* first = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;
    int32_t device = 0;
};

// `first` is null if no mapping holds the address.
Place place_in_mappings(const void* address, const AllocationTable& table) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    auto found = table.mappings.upper_bound(wanted);
    if (found == table.mappings.begin() || wanted - std::prev(found)->first >= std::prev(found)->second.bytes)
        return {};
    auto low = std::prev(found), high = low;
    const auto touch = [](const auto& left, const auto& right) {
        return left.first + left.second.bytes == right.first && left.second.reserved == right.second.reserved;
    };
    while (low != table.mappings.begin() && touch(*std::prev(low), *low)) --low;
    while (std::next(high) != table.mappings.end() && touch(*high, *std::next(high))) ++high;
    return {reinterpret_cast<uint8_t*>(low->first), high->first + high->second.bytes - low->first, low->second.number,
            std::prev(found)->second.device};
}

// Null if no allocation of the map holds the address.
const Allocation* find_holder(const void* address, const std::map<uintptr_t, Allocation>& by_first) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    auto after = by_first.upper_bound(wanted);
    if (after == by_first.begin()) return nullptr;
    const auto& [start, allocation] = *--after;
    // An empty allocation holds its start address.
    return wanted - start >= allocation.bytes && wanted != start ? nullptr : &allocation;
}

// The allocation or the mappings that hold the address; `first` is null if none does.
Place place_of(const void* address, const AllocationTable& table) {
    if (const Allocation* allocation = find_holder(address, table.by_first))
        return {allocation->block + kGuardBytes, allocation->bytes, allocation->number, allocation->device};
    return place_in_mappings(address, table);
}

}  // namespace

void* allocate_device(int32_t device, size_t bytes, size_t padding) {
    if (padding > kGuardBytes) return nullptr;  // the guard zone must hold the padding
    if (bytes > kDeviceBytes - device_bytes_in_use(device)) return nullptr;
    const size_t block_bytes = (bytes + 2 * kGuardBytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
    auto* block = static_cast<uint8_t*>(std::aligned_alloc(kGuardBytes, block_bytes));
    if (!block) return nullptr;
    std::memset(block, kGuardByte, kGuardBytes);
    std::memset(block + kGuardBytes, kFreshByte, bytes);
    std::memset(block + kGuardBytes + bytes, kGuardByte, kGuardBytes);
    Locked<AllocationTable> table;
    table->in_use[device] += bytes;
    table->by_first[reinterpret_cast<uintptr_t>(block + kGuardBytes)] = {block, bytes, ++table->count, device,
                                                                         padding > 0};
    return block + kGuardBytes;
}

bool find_allocation_start(const void* first, FreedAllocation* out) {
    Locked<AllocationTable> table;
    auto found = table->by_first.find(reinterpret_cast<uintptr_t>(first));
    if (found == table->by_first.end()) return false;
    out->number = found->second.number;
    out->is_padded = found->second.is_padded;
    return true;
}

bool free_device(void* first, FreedBy by, FreedAllocation* out) {
    Locked<AllocationTable> table;
    auto found = table->by_first.find(reinterpret_cast<uintptr_t>(first));
    if (found == table->by_first.end()) return false;
    Allocation& allocation = found->second;
    *out = {allocation.number, allocation.is_padded, allocation.is_reported ? "" : damage_of(allocation)};
    table->in_use[allocation.device] -= allocation.bytes;
    if (by == FreedBy::kDevice) table->ended_bytes += allocation.bytes;
    std::memset(allocation.block + kGuardBytes, kFreedByte, allocation.bytes);
    table->freed_in_order.push_back(found->first);
    table->freed_bytes += allocation.bytes;
    table->freed.insert(table->by_first.extract(found));
    while (table->freed_bytes > kQuarantineBytes) {
        auto oldest = table->freed.find(table->freed_in_order.front());
        table->freed_bytes -= oldest->second.bytes;
        std::free(oldest->second.block);
        table->freed.erase(oldest);
        table->freed_in_order.pop_front();
    }
    return true;
}

uint64_t last_allocation() { return Locked<AllocationTable>()->count; }

void* find_allocation_of(int32_t device, uint64_t last) {
    Locked<AllocationTable> table;
    for (const auto& [first, allocation] : table->by_first)
        if (allocation.device == device && allocation.number <= last) return reinterpret_cast<void*>(first);
    return nullptr;
}

std::string describe_freed(const void* address) {
    Locked<AllocationTable> table;
    const Allocation* allocation = find_holder(address, table->freed);
    return allocation ? "allocation " + std::to_string(allocation->number) + " of " +
                            std::to_string(allocation->bytes) + " bytes"
                      : "";
}

bool is_freed_with_padding(const void* address) {
    Locked<AllocationTable> table;
    const Allocation* allocation = find_holder(address, table->freed);
    return allocation && allocation->is_padded;
}

std::string guard_damage(GuardCheck check) {
    Locked<AllocationTable> table;
    std::string all_damage;
    const bool checks_all = check == GuardCheck::kFull;
    size_t left_count = checks_all ? table->by_first.size() : std::min(kPartialCount, table->by_first.size());
    auto next = checks_all ? table->by_first.begin() : table->by_first.upper_bound(table->checked_last);
    for (; left_count > 0; --left_count, ++next) {
        if (next == table->by_first.end()) next = table->by_first.begin();
        table->checked_last = next->first;
        Allocation& allocation = next->second;
        if (allocation.is_reported || (!checks_all && is_partly_intact(allocation))) continue;
        std::string damage = damage_of(allocation);
        if (damage.empty()) continue;
        allocation.is_reported = true;
        all_damage += (all_damage.empty() ? "" : " ") + damage;
    }
    return all_damage;
}

size_t device_bytes_in_use(int32_t device) { return Locked<AllocationTable>()->in_use[device]; }

size_t bytes_not_freed() {
    Locked<AllocationTable> table;
    size_t total = table->ended_bytes;
    for (const auto& [device, bytes] : table->in_use) total += bytes;
    return total;
}

void add_mapping(int32_t device, void* reserved, void* first, size_t bytes) {
    Locked<AllocationTable> table;
    const auto range = reinterpret_cast<uintptr_t>(reserved);
    uint64_t number = 0;
    for (const auto& [start, mapping] : table->mappings)
        if (mapping.reserved == range) number = mapping.number;
    table->in_use[device] += bytes;
    table->mappings[reinterpret_cast<uintptr_t>(first)] = {range, bytes, number ? number : ++table->count, device};
}

bool remove_mapping(void* first, FreedBy by) {
    Locked<AllocationTable> table;
    auto found = table->mappings.find(reinterpret_cast<uintptr_t>(first));
    if (found == table->mappings.end()) return false;
    table->in_use[found->second.device] -= found->second.bytes;
    if (by == FreedBy::kDevice) table->ended_bytes += found->second.bytes;
    table->mappings.erase(found);
    return true;
}

bool has_mappings(const void* reserved) {
    Locked<AllocationTable> table;
    for (const auto& [start, mapping] : table->mappings)
        if (mapping.reserved == reinterpret_cast<uintptr_t>(reserved)) return true;
    return false;
}

bool is_mapping(const void* address) { return place_in_mappings(address, *Locked<AllocationTable>()).first != nullptr; }

bool find_allocation(const void* address, void** first, uint64_t* bytes) {
    if (host_calls()) return find_host_memory(address, first, bytes);
    const Place place = place_of(address, *Locked<AllocationTable>());
    if (!place.first) return false;
    *first = place.first;
    *bytes = place.bytes;
    return true;
}

bool number_of_allocation(const void* address, uint64_t* number) {
    const Place place = place_of(address, *Locked<AllocationTable>());
    if (place.first) *number = place.number;
    return place.first != nullptr;
}

bool device_of_address(const void* address, int32_t* device) {
    const Place place = place_of(address, *Locked<AllocationTable>());
    if (place.first) *device = place.device;
    return place.first != nullptr;
}

std::string describe_address(const void* address) {
    const Place place = place_of(address, *Locked<AllocationTable>());
    if (!place.first) return "an address that is not allocated";
    return "byte " + std::to_string(static_cast<const uint8_t*>(address) - place.first) + " of allocation " +
           std::to_string(place.number);
}

}  // namespace simulated_cann
