// The chips that torch_npu knows by name and this runtime plays, as data. Counts: CANN 8.1's
// platform_config; L2 where it is published there, else 0.
#pragma once

#include <cstdint>
#include <cstring>

namespace npu_cann {

struct Chip {
    const char* name;
    int64_t ai_cores, vector_cores;  // an AI core of Ascend910B has two vector cores
    int64_t l2_bytes;
};

constexpr int64_t kMiB = 1 << 20;

constexpr Chip kChips[] = {
    {"Ascend910B2", 24, 48, 192 * kMiB},    {"Ascend910B1", 24, 48, 192 * kMiB},
    {"Ascend910B3", 20, 40, 192 * kMiB},    {"Ascend910B4", 20, 40, 96 * kMiB},
    {"Ascend910_9391", 24, 48, 192 * kMiB}, {"Ascend910_9392", 24, 48, 192 * kMiB},
    {"Ascend910_9381", 24, 48, 192 * kMiB}, {"Ascend910_9382", 24, 48, 192 * kMiB},
    {"Ascend910_9372", 20, 40, 192 * kMiB}, {"Ascend910_9362", 20, 40, 192 * kMiB},
    {"Ascend310P3", 8, 8, 16 * kMiB},       {"Ascend310P1", 10, 10, 16 * kMiB},
};

// Null where the name is not known.
inline const Chip* find_chip(const char* name) {
    for (const Chip& chip : kChips)
        if (!std::strcmp(chip.name, name)) return &chip;
    return nullptr;
}

const Chip& this_chip();

}  // namespace npu_cann
