// Simulated device memory: host memory between two guard zones, in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu_cann {

// nullptr where there is none. What lies behind `bytes` up to `bytes + padding` is the caller's by CANN's
// rules and is watched as a guard zone here.
void* allocate_device(size_t bytes, size_t padding);

// The allocation that starts there; false where none does.
struct Freed {
    uint64_t number = 0;
    bool is_padded = false;  // it was asked for with padding
    std::string damage;      // what its guard zones say, "" for nothing
};
bool find_start(const void* first, Freed* out);

// Fills the memory with junk and keeps it from being used again for a while, so that work which still uses
// it finds junk and can be told which memory that was. False where no allocation starts there.
bool free_device(void* first, Freed* out);

// "" or the freed allocation that an address was in, such as "allocation 7 of 4096 bytes".
std::string describe_freed(const void* address);

// The address was in an allocation with padding, which is freed: torch_npu's, with its cache off.
bool is_freed_with_padding(const void* address);

// The number of the allocation that holds the address, from 1; false where none does.
bool number_of_allocation(const void* address, uint64_t* number);
// "byte 16 of allocation 7"; the address where no allocation holds it.
std::string describe_address(const void* address);

// Whole zones of every allocation; or, for who looks often, the bytes next to some hundreds of
// allocations, the next time those that follow.
enum class Look { kWhole, kGlance };

// Looks at guard zones; "" or a sentence an allocation that was written around. What was said once is not
// said again.
std::string guard_damage(Look look);

size_t device_bytes_in_use();
constexpr size_t kDeviceBytes = size_t(64) << 30;  // what the simulated device claims to have

}  // namespace npu_cann
