// Host memory that copies access: pinned memory, or any other memory of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simulated_cann {

void* allocate_host(size_t bytes);
// Returns false if `first` is not an allocation of allocate_host.
bool free_host(void* first);
// Whether the memory is inside an allocation of aclrtMallocHost, which CANN calls pinned memory.
bool is_pinned(const void* address, size_t bytes);
// Size of the pinned allocation that starts at `first`, or 0.
size_t pinned_bytes(const void* first);
// Sets the number of the pinned allocation that contains the address. No device allocation has the same number. Returns
// false if no pinned allocation contains the address.
bool number_of_pinned(const void* address, uint64_t* number);
// Returns "byte 16 of 4096 bytes of pinned memory", or "" if the address is not pinned.
std::string describe_pinned(const void* address);

// Return false if the host memory is unmapped, instead of ending the process.
bool read_host(void* to, const void* from, size_t bytes);
bool write_host(void* to, const void* from, size_t bytes);
bool hash_host(const void* first, size_t bytes, uint64_t* hash);
// Fills with bytes that are NaN in every floating-point type.
void fill_host(void* first, size_t bytes);

}  // namespace simulated_cann
