// Properties of a chip that tilings use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "csrc/core/check.h"
#include "csrc/core/dtype.h"
#include "op_host/chips.h"

namespace npu_rope {

struct Platform {
    const char* soc;  // from find_platform: the name of the chip; from platform_from_cann: that of its family
    int32_t arch;
    int32_t cores;     // vector cores, or AI cores that execute vector instructions
    int64_t ub_bytes;  // from find_platform: as in chips.h; from platform_from_cann: up to 256 bytes less
};

// Returns the platform of the chip with this name, or nothing if kChips does not have it.
inline std::optional<Platform> find_platform(const char* name) {
    const Family* family = family_of(name);
    for (const Chip& chip : kChips)
        if (family != nullptr && std::strcmp(chip.name, name) == 0)
            return Platform{chip.name, family->arch, chip.cores, family->ub_bytes};
    return std::nullopt;
}

// Returns the bytes of UB that a kernel may allocate. On Ascend910B and Ascend310P, AscendC uses the last 8 KiB as
// scratch memory. On Ascend950 the reported size does not include them.
inline int64_t ub_budget_bytes(const Platform& p) {
    int64_t max_bytes = p.arch == kArch910b ? 184 * 1024 : 248 * 1024;
    return std::min(max_bytes, p.ub_bytes / 32 * 32);
}

// Checks that the chip supports a float type as an element type.
inline Check check_dtype_on_chip(const char* op, const char* name, int32_t dtype, const Platform& p) {
    const bool bfloat16 = has_bfloat16(p.arch);
    if (dtype != NPU_ROPE_FLOAT64 && (dtype != NPU_ROPE_BFLOAT16 || bfloat16)) return {};
    return bad_type(op, name,
                    formatted("be %s on %s", bfloat16 ? "float32, float16 or bfloat16" : "float32 or float16", p.soc),
                    dtype_name(dtype));
}

}  // namespace npu_rope
