// Host memory that copies access, allocated by aclrtMallocHost or elsewhere. Accesses to unmapped memory fail
// instead of ending the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu_cann {

void* allocate_host(size_t bytes);
// False if allocate_host did not allocate it.
bool free_host(void* first);
// Whether the memory was allocated by aclrtMallocHost; CANN calls it pinned.
bool is_pinned(const void* address, size_t bytes);
// Size of the pinned allocation that starts at `first`, or 0.
size_t pinned_bytes(const void* first);
// The number of the allocation that holds the address, distinct from the device's numbers; false if not pinned.
bool number_of_pinned(const void* address, uint64_t* number);
// "byte 16 of 4096 bytes of pinned memory"; "" if the address is not pinned.
std::string describe_pinned(const void* address);

// False if the host memory is unmapped.
bool read_host(void* to, const void* from, size_t bytes);
bool write_host(void* to, const void* from, size_t bytes);
bool hash_host(const void* first, size_t bytes, uint64_t* hash);
// Fills with bytes that are NaN in every floating-point type.
void fill_host(void* first, size_t bytes);

}  // namespace npu_cann
