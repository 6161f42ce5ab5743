// Simulated device memory: host memory between two guard zones, listed in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simulated_cann {

// Allocates memory of a device. Returns nullptr if no memory is left. CANN lets the caller use `padding` more bytes.
// Here they belong to the guard zone.
void* allocate_device(int32_t device, size_t bytes, size_t padding);

// A call of the program frees memory, or the end of the last context of its device.
enum class FreedBy { kProgram, kDevice };

struct FreedAllocation {
    uint64_t number = 0;
    bool is_padded = false;  // allocated with padding
    std::string damage;      // message about damaged guard zones, or ""
};
// Sets `number` and `is_padded` of the allocation that starts at `first`; returns false if there is none.
bool find_allocation_start(const void* first, FreedAllocation* out);

// Overwrites the memory with junk and delays its reuse. So queued work that still uses the memory reads junk, and the
// message about this work can name the allocation. Returns false if no allocation starts at `first`.
bool free_device(void* first, FreedBy by, FreedAllocation* out);

// Does the same, and reports damage and queued work that uses the memory (memory.cpp).
bool free_and_report(void* first, FreedBy by);

// The number of the last allocation of any device.
uint64_t last_allocation();
// Returns the first address of an allocation of the device whose number is at most `last`, or nullptr.
void* find_allocation_of(int32_t device, uint64_t last);

// Returns "" or the freed allocation that contained the address, such as "allocation 7 of 4096 bytes".
std::string describe_freed(const void* address);

// Whether the address was in a freed allocation with padding. torch_npu allocates with padding if its cache is off.
bool is_freed_with_padding(const void* address);

// Sets the number of the allocation that contains the address; numbers start at 1. Returns false if none contains it.
bool number_of_allocation(const void* address, uint64_t* number);
// Sets the device whose memory contains the address. Returns false if no allocation contains it.
bool device_of_address(const void* address, int32_t* device);
// Returns "byte 16 of allocation 7", or "an address that is not allocated".
std::string describe_address(const void* address);

// kFull checks the complete guard zones of every allocation. kPartial is for frequent checks. It reads a few bytes next
// to some hundreds of allocations, and the next call continues with the allocations after them.
enum class GuardCheck { kFull, kPartial };

// Checks guard zones. Returns "" or one message per damaged allocation. Each allocation is reported at most once.
std::string guard_damage(GuardCheck check);

// Virtual memory: adds a mapped range to an address range that the program reserved. Ranges that lie side by side count
// as one allocation, which has no guard zones: the memory behind it is not accessible. `reserved`, the first address of
// the reserved range, identifies that range.
void add_mapping(int32_t device, void* reserved, void* first, size_t bytes);
// Returns false if no mapped range starts at `first`.
bool remove_mapping(void* first, FreedBy by);
bool has_mappings(const void* reserved);
// Whether the address is in a mapped range.
bool is_mapping(const void* address);

// The number of the last physical memory of any device (virtual_memory.cpp).
uint64_t last_physical_memory();
// Unmaps and frees the physical memory of the device whose numbers are at most `last`.
void free_physical_memory(int32_t device, uint64_t last);

size_t device_bytes_in_use(int32_t device);
size_t bytes_not_freed();                          // by the program, of all devices
constexpr size_t kDeviceBytes = size_t(64) << 30;  // memory size that a simulated device reports

}  // namespace simulated_cann
