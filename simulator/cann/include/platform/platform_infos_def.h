// The data of a chip that CANN's platform_config/<chip>.ini holds, by label and key. A tiling gets an object from its
// context; it cannot make or change one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "platform/platform_info_def.h"

namespace ascend_sim {
struct Profile;
}

namespace fe {

enum class LocalMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, RESERVED };

class PlatFormInfos {
public:
    explicit PlatFormInfos(const ascend_sim::Profile* chip) : profile(chip) {}

    // Return false, as CANN does, if the chip's file has no such label or key. If the file has it but the simulator
    // lacks it, such as the labels with the types of instructions, end the process with a message.
    bool GetPlatformRes(const std::string& label, const std::string& key, std::string& val);
    bool GetPlatformRes(const std::string& label, std::map<std::string, std::string>& res);
    bool GetPlatformResWithLock(const std::string& label, const std::string& key, std::string& val) {
        return GetPlatformRes(label, key, val);
    }
    bool GetPlatformResWithLock(const std::string& label, std::map<std::string, std::string>& res) {
        return GetPlatformRes(label, res);
    }
    // The cores that run the operator's kernel.
    uint32_t GetCoreNum() const;
    uint32_t GetCoreNumWithLock() const { return GetCoreNum(); }
    uint32_t GetCoreNumByType(const std::string& core_type);
    // 0 for a type of memory that the chip's file lacks.
    void GetLocalMemSize(const LocalMemType& mem_type, uint64_t& size);
    void GetLocalMemBw(const LocalMemType& mem_type, uint64_t& bw_size);

    const ascend_sim::Profile* profile;  // of the simulator
};

}  // namespace fe
