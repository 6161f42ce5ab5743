// Memory of the host that copies touch: allocated by aclrtMallocHost, or of anybody. Reads and writes of
// memory that is not mapped fail instead of ending the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu_cann {

void* allocate_host(size_t bytes);
// False where allocate_host did not give it.
bool free_host(void* first);
// Allocated by aclrtMallocHost: pinned, in CANN's word.
bool is_pinned(const void* address, size_t bytes);
// 0 where nothing that it gave starts there.
size_t pinned_bytes(const void* first);
// The number of the allocation that holds the address, none of the device's; false where it is not pinned.
bool number_of_pinned(const void* address, uint64_t* number);
// "byte 16 of 4096 bytes of pinned memory"; "" where the address is not pinned.
std::string describe_pinned(const void* address);

bool read_host(void* to, const void* from, size_t bytes);
bool write_host(void* to, const void* from, size_t bytes);
bool hash_host(const void* first, size_t bytes, uint64_t* hash);
// With bytes that are NaN in every floating-point type.
void fill_host(void* first, size_t bytes);

}  // namespace npu_cann
