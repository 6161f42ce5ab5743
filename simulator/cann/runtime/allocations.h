// Simulated device memory: host memory between two guard zones, in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu_cann {

// nullptr where there is none. What lies behind `bytes` up to `bytes + padding` is the caller's by CANN's
// rules and is watched as a guard zone here.
void* allocate_device(size_t bytes, size_t padding);

// False where no allocation starts there; `damage` gets what its guard zones say, "" for nothing.
bool free_device(void* first, std::string* damage);

// Whole zones of every allocation; or, for who looks often, the bytes next to some hundreds of
// allocations, the next time those that follow.
enum class Look { kWhole, kGlance };

// Looks at guard zones; "" or a sentence an allocation that was written around. What was said once is not
// said again.
std::string guard_damage(Look look);

size_t device_bytes_in_use();
constexpr size_t kDeviceBytes = size_t(64) << 30;  // what the simulated device claims to have

}  // namespace npu_cann
