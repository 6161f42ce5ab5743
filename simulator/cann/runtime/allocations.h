// Simulated device memory: host memory between two guard zones, listed in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simulated_cann {

// Returns nullptr if no memory is left. CANN lets the caller use `padding` more bytes; here they are in the guard zone.
void* allocate_device(size_t bytes, size_t padding);

struct Freed {
    uint64_t number = 0;
    bool is_padded = false;  // allocated with padding
    std::string damage;      // message about damaged guard zones, or ""
};
// Sets `number` and `is_padded` of the allocation that starts at `first`; returns false if there is none.
bool find_start(const void* first, Freed* out);

// Overwrites the memory with junk and delays its reuse: queued work that still uses the memory reads junk, and the
// work's error can name the allocation. Returns false if no allocation starts at `first`.
bool free_device(void* first, Freed* out);

// "" or the freed allocation that contained the address, such as "allocation 7 of 4096 bytes".
std::string describe_freed(const void* address);

// Whether the address was in a freed allocation with padding. torch_npu allocates with padding if its cache is off.
bool is_freed_with_padding(const void* address);

// The number of the allocation that holds the address, from 1; false if none does.
bool number_of_allocation(const void* address, uint64_t* number);
// "byte 16 of allocation 7"; "an address that is not allocated" if no allocation holds it.
std::string describe_address(const void* address);

// kFull checks the complete zones of every allocation. kPartial, for frequent checks, reads the bytes next to some
// hundreds of allocations; the next call continues with the next allocations.
enum class GuardCheck { kFull, kPartial };

// Checks guard zones. Returns "" or one message per damaged allocation. Each allocation is reported at most once.
std::string guard_damage(GuardCheck check);

size_t device_bytes_in_use();
constexpr size_t kDeviceBytes = size_t(64) << 30;  // memory size that the simulated device reports

}  // namespace simulated_cann
