// What a tiling may know of the chip it tiles for, and the chips that are known by name.
// Figures: CANN 8.1's platform_config (cores, UB); the budget leaves what the API itself uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace npu_rope {

// __CCE_AICORE__ of the vector cores.
constexpr int32_t kArch310p = 200;
constexpr int32_t kArch910b = 220;  // Ascend910B and Ascend910_93
constexpr int32_t kArch950 = 310;

struct Platform {
    const char* soc;
    int32_t arch;
    int32_t cores;     // vector cores; AI cores where the two are one
    int64_t ub_bytes;  // of the chip; what the platform reports is up to 256 bytes less
};

constexpr Platform kPlatforms[] = {
    {"Ascend910B1", kArch910b, 48, 196608},     {"Ascend910B2", kArch910b, 48, 196608},
    {"Ascend910B3", kArch910b, 40, 196608},     {"Ascend910B4", kArch910b, 40, 196608},
    {"Ascend910_9391", kArch910b, 48, 196608},  {"Ascend910_9392", kArch910b, 48, 196608},
    {"Ascend910_9381", kArch910b, 48, 196608},  {"Ascend910_9382", kArch910b, 48, 196608},
    {"Ascend910_9372", kArch910b, 40, 196608},  {"Ascend910_9362", kArch910b, 40, 196608},
    {"Ascend310P1", kArch310p, 10, 262144},     {"Ascend310P3", kArch310p, 8, 262144},
    {"Ascend950PR_9599", kArch950, 64, 253952},
};

// Null where the name is not known.
inline const Platform* find_platform(const char* soc) {
    for (const Platform& p : kPlatforms)
        if (std::strcmp(p.soc, soc) == 0) return &p;
    return nullptr;
}

// What a kernel may allocate: on Ascend910B and 310P the last 8 KiB are the API's scratch, on
// Ascend950 the platform reports UB without them.
inline int64_t ub_budget_bytes(const Platform& p) {
    int64_t most = p.arch == kArch910b ? 184 * 1024 : 248 * 1024;
    return std::min(most, p.ub_bytes / 32 * 32);
}

}  // namespace npu_rope
