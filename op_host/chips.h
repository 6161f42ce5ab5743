// The chips by CANN's names, for the tilings and the binding. npu_rope/chips.py repeats the names. A test compares both
// lists with the simulator's chips.
//
// Source: CANN's platform_config/<name>.ini (CANN 8.1's toolkit; hicann/runtime src/platform/platform_config, which
// adds Ascend910_9363 and Ascend950). This table has two of the 35 chips of Ascend950. family_of() knows all of them.
#pragma once

#include <cstdint>
#include <cstring>

namespace npu_rope {

// __CCE_AICORE__ of the vector cores.
constexpr int32_t kArch310p = 200;
constexpr int32_t kArch910b = 220;  // Ascend910B and Ascend910_93
constexpr int32_t kArch950 = 310;

constexpr bool has_bfloat16(int32_t arch) { return arch != kArch310p; }

// A family of chips. Their names begin with the prefix and a digit. The chip "Ascend910B" without a digit does not
// belong to this family: it has no vector cores.
struct Family {
    const char* prefix;
    int32_t arch;
    int64_t ub_bytes;  // ub_size in the .ini file; CANN's platform reports up to 256 bytes less
};
constexpr Family kFamilies[] = {{"Ascend910B", kArch910b, 196608},
                                {"Ascend910_93", kArch910b, 196608},
                                {"Ascend310P", kArch310p, 262144},
                                {"Ascend950PR_", kArch950, 253952},
                                {"Ascend950DT_", kArch950, 253952}};

// cores: the number of cores that execute the kernels. It is vector_core_cnt in the .ini file. On Ascend310P it is
// ai_core_cnt, because the kernels do not use the separate vector cores of this SoC.
struct Chip {
    const char* name;
    int32_t cores;
};
constexpr Chip kChips[] = {
    {"Ascend910B1", 48},    {"Ascend910B2", 48},      {"Ascend910B2C", 48},     {"Ascend910B3", 40},
    {"Ascend910B4", 40},    {"Ascend910B4-1", 40},    {"Ascend910_9391", 48},   {"Ascend910_9392", 48},
    {"Ascend910_9381", 48}, {"Ascend910_9382", 48},   {"Ascend910_9372", 40},   {"Ascend910_9362", 40},
    {"Ascend910_9363", 40}, {"Ascend310P1", 10},      {"Ascend310P3", 8},       {"Ascend310P5", 8},
    {"Ascend310P7", 8},     {"Ascend950PR_9589", 64}, {"Ascend950PR_9599", 72},
};

// Returns the family of a chip, or NULL. The chip need not be in kChips.
inline const Family* family_of(const char* chip) {
    for (const Family& family : kFamilies) {
        const size_t length = std::strlen(family.prefix);
        const char next = std::strncmp(chip, family.prefix, length) == 0 ? chip[length] : '\0';
        if (next >= '0' && next <= '9') return &family;
    }
    return nullptr;
}

}  // namespace npu_rope
