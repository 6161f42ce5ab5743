// The simulated chips by CANN's names, and their families.
//
// Source: CANN's platform_config/<name>.ini (CANN 8.1's toolkit; hicann/runtime
// src/platform/platform_config, which adds Ascend910_9363 and Ascend950): ai_core_cnt, vector_core_cnt, ub_size,
// l2_size, cube_freq. Of the 35 files of Ascend950 the table has two. The first one has the cores and the clock of the
// chip on which the vendor's samples were measured.
#pragma once

#include <cstdint>
#include <cstring>

namespace ascend_sim {

// __CCE_AICORE__ of the vector cores.
constexpr int32_t kArch310p = 200;
constexpr int32_t kArch910b = 220;  // Ascend910B and Ascend910_93
constexpr int32_t kArch950 = 310;

struct Family {
    const char* prefix;  // of its chips' names; a digit follows
    const char* soc;     // name for AddConfig
    int32_t arch;
    int64_t ub_bytes;  // for TPipe's buffers; the platform reports up to 256 bytes less
};

// "Ascend910B" without a digit is another chip (of the Ascend910 family, without vector cores).
constexpr Family kFamilies[] = {
    {"Ascend910B", "ascend910b", kArch910b, 196608}, {"Ascend910_93", "ascend910_93", kArch910b, 196608},
    {"Ascend310P", "ascend310p", kArch310p, 262144}, {"Ascend950PR_", "ascend950", kArch950, 253952},
    {"Ascend950DT_", "ascend950", kArch950, 253952},
};

struct Chip {
    const char* name;
    int32_t ai_cores;
    int32_t vector_cores;  // on Ascend310P they are separate cores, which our kernels do not use
    int32_t l2_mib;
    double clock_ghz;
};

// The name of a family's SoC selects the first chip of this SoC.
constexpr Chip kChips[] = {
    {"Ascend910B1", 24, 48, 192, 1.85},      {"Ascend910B2", 24, 48, 192, 1.80},
    {"Ascend910B2C", 24, 48, 192, 1.80},     {"Ascend910B3", 20, 40, 192, 1.80},
    {"Ascend910B4", 20, 40, 96, 1.50},       {"Ascend910B4-1", 20, 40, 168, 1.50},
    {"Ascend910_9392", 24, 48, 192, 1.85},   {"Ascend910_9391", 24, 48, 192, 1.85},
    {"Ascend910_9381", 24, 48, 192, 1.80},   {"Ascend910_9382", 24, 48, 192, 1.80},
    {"Ascend910_9372", 20, 40, 192, 1.80},   {"Ascend910_9362", 20, 40, 168, 1.50},
    {"Ascend910_9363", 20, 40, 168, 1.50},   {"Ascend310P3", 8, 7, 16, 1.06},
    {"Ascend310P1", 10, 8, 16, 1.06},        {"Ascend310P5", 8, 7, 16, 0.80},
    {"Ascend310P7", 8, 7, 16, 0.55},         {"Ascend950PR_9589", 32, 64, 128, 1.65},
    {"Ascend950PR_9599", 36, 72, 128, 1.80},
};

// Null for an unknown name.
inline const Chip* find_chip(const char* name) {
    for (const Chip& chip : kChips)
        if (std::strcmp(chip.name, name) == 0) return &chip;
    return nullptr;
}

// The family of a chip's name, which need not be in the table; null if it belongs to no family.
inline const Family* find_family(const char* name) {
    for (const Family& family : kFamilies) {
        const size_t length = std::strlen(family.prefix);
        if (std::strncmp(name, family.prefix, length) == 0 && name[length] >= '0' && name[length] <= '9')
            return &family;
    }
    return nullptr;
}

// The cores that run vector kernels: on Ascend310P, whose AI cores execute vector instructions, the AI cores.
constexpr int32_t kernel_cores(int32_t arch, int32_t ai_cores, int32_t vector_cores) {
    return arch == kArch310p ? ai_cores : vector_cores;
}

}  // namespace ascend_sim
