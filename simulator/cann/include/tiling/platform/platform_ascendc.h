// The properties of a chip that a tiling reads.
#pragma once

#include <cstdint>

namespace fe {
class PlatFormInfos;
}

namespace platform_ascendc {

enum class CoreMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, RESERVED };
enum class SocVersion { ASCEND910 = 0, ASCEND910B, ASCEND310P, ASCEND310B, RESERVED_VERSION = 99999 };

class PlatformAscendC {
public:
    PlatformAscendC() = delete;
    explicit PlatformAscendC(fe::PlatFormInfos* platform_info) : platform_info_(platform_info) {}
    uint32_t GetCoreNumAiv(void) const;
    uint32_t GetLibApiWorkSpaceSize(void) const;
    // The size of UB; 0 for the memories whose size is not simulated.
    void GetCoreMemSize(const CoreMemType& memory, uint64_t& size) const;
    SocVersion GetSocVersion(void) const;

private:
    fe::PlatFormInfos* platform_info_;
};

}  // namespace platform_ascendc

namespace platform_ascendc {

// The chip of the call whose tiling runs; else the chip of the process, or null if there is none.
class PlatformAscendCManager {
public:
    static PlatformAscendC* GetInstance();
};

}  // namespace platform_ascendc
