// The properties of a chip that a tiling reads (asc-devkit include/utils/tiling/platform/platform_ascendc.h).
#pragma once

#include <csignal>
#include <cstdint>

#include "platform/soc_spec.h"

#ifndef ASCENDC_ASSERT
#define ASCENDC_ASSERT(condition, behaviour) \
    do {                                     \
        if (!(condition)) {                  \
            behaviour;                       \
            raise(SIGABRT);                  \
        }                                    \
    } while (0)
#endif

namespace fe {
class PlatFormInfos;
}

namespace platform_ascendc {

enum class CoreMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, FB = 7, BT = 8, RESERVED };

enum class SocVersion {
    ASCEND910 = 0,
    ASCEND910B,
    ASCEND310P,
    ASCEND310B,
    ASCEND950,
    ASCEND910_55,
    ASCEND910_95 = ASCEND950,
    AS31XM1,
    ASCEND031,
    ASCEND035,
    ASCEND310,
    ASCEND610,
    ASCEND610Lite,
    ASCEND910_93,
    BS9SX1A,
    BS9SX2A,
    HI3796CV300CS,
    HI3796CV300ES,
    MC61AM21A,
    MC62,
    SD3403,
    KIRINX90,
    KIRIN9030,
    MC32DM11A,
    ASCEND350,
    RESERVED_VERSION = 99999
};

enum class ReservedSize { RESERVED_SIZE_8K, RESERVED_SIZE_16K, RESERVED_SIZE_32K };

class PlatformAscendC {
public:
    PlatformAscendC() = delete;
    explicit PlatformAscendC(fe::PlatFormInfos* platform_info) : platform_info_(platform_info) {}
    uint32_t GetCoreNum(void) const;
    uint32_t GetCoreNumAic(void) const;
    uint32_t GetCoreNumAiv(void) const;
    // The vector cores beside the AI cores of Ascend310P; 0 on other chips.
    uint32_t GetCoreNumVector(void) const;
    // The blocks of a kernel on cube and vector cores that has `slice_num` slices for vector cores.
    uint32_t CalcTschNumBlocks(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const;
    uint32_t CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
        return CalcTschNumBlocks(slice_num, aic_core_num, aiv_core_num);
    }
    uint32_t GetLibApiWorkSpaceSize(void) const;
    uint32_t GetResCubeGroupWorkSpaceSize(void) const;
    uint32_t GetResGroupBarrierWorkSpaceSize(void) const;
    // Leaves `size` as it is for memories that the chip lacks.
    void GetCoreMemSize(const CoreMemType& memory, uint64_t& size) const;
    void GetCoreMemBw(const CoreMemType& memory, uint64_t& bytes_per_cycle) const;
    // Lowers the size of UB that GetCoreMemSize() returns.
    void ReserveLocalMemory(ReservedSize size);
    SocVersion GetSocVersion(void) const;
    NpuArch GetCurNpuArch(void) const;
    // The bytes of a vector register, on chips that have them (Ascend950); else 0.
    uint32_t GetVecRegLen(void) const;

private:
    fe::PlatFormInfos* platform_info() const;
    fe::PlatFormInfos* platform_info_;
    uint32_t reserved_bytes_ = 0;
};

}  // namespace platform_ascendc

namespace platform_ascendc {

// The chip of the call whose tiling runs; else the chip of the process, or null if there is none.
class PlatformAscendCManager {
public:
    static PlatformAscendC* GetInstance();
};

}  // namespace platform_ascendc
