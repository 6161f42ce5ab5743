// The data of CANN's platform_config/<chip>.ini for each simulated chip, and the classes by which a tiling reads them.
//
// Sources: the files Ascend910B1.ini, Ascend910_9391.ini and Ascend310P3.ini of CANN 8.1.RC1 and of hicann/runtime
// src/platform/platform_config/cann; Ascend950PR_9589.ini and Ascend950PR_9599.ini of hicann/runtime
// src/platform/platform_config/cann-dev; runtime src/platform/platform_infos_def.cpp; asc-devkit
// impl/utils/tiling/platform/platform_ascendc.cpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "platform/platform_infos_def.h"
#include "src/chips.h"
#include "src/profile.h"
#include "tiling/platform/platform_ascendc.h"

namespace simulated_cann {
namespace {

struct SharedValue {
    const char *label, *key;
    const char *ascend910b, *ascend310p, *ascend950;  // null if the chips' files have no such key

    const char* on(int32_t arch) const {
        return arch == ascend_sim::kArch310p ? ascend310p : arch == ascend_sim::kArch950 ? ascend950 : ascend910b;
    }
};

// The values that all chips of a family share.
constexpr SharedValue kSharedValues[] = {
    {"version", "AIC_version", "AIC-C-220", "AIC-M-200", "AIC-C-310"},
    {"version", "CCEC_AIC_version", "dav-c220-cube", "dav-m200", "dav-c310-cube"},
    {"version", "CCEC_AIV_version", "dav-c220-vec", "dav-m200-vec", "dav-c310-vec"},
    {"version", "CCEC_CUBE_version", "dav-c220-cube", nullptr, "dav-c310-cube"},
    {"version", "CCEC_VECTOR_version", "dav-c220-vec", nullptr, "dav-c310-vec"},
    {"version", "Compiler_aicpu_support_os", "true", "true", "true"},
    {"version", "Arch_type", "4", "1", nullptr},
    {"version", "NpuArch", "2201", "2002", "3510"},
    {"version", "Chip_type", "5", "4", "15"},
    {"DieInfo", "io_die_num", nullptr, nullptr, "2"},
    {"SoCInfo", "l2_type", "0", "0", "0"},
    {"SoCInfo", "l2PageNum", "64", "64", "64"},
    {"SoCInfo", "prefetch_num", "8", "10", "8"},
    {"SoCInfo", "ffts_mode", "ffts-plus", nullptr, nullptr},
    {"SoCInfo", "core_type_list", "CubeCore,VectorCore", "AICore,VectorCore", "CubeCore,VectorCore"},
    {"SoCInfo", "cube_vector_combine", "split", nullptr, "split"},
    {"SoCInfo", "hardware_sync_betweencore", "1", nullptr, "1"},
    {"SoCInfo", "support_bf16", "1", nullptr, "1"},
    {"SoCInfo", "support_inf_nan", "1", nullptr, "1"},
    {"SoCInfo", "pcie_through_partial_support", nullptr, nullptr, "1"},
    {"SoCInfo", "mix_vector_core_cnt", nullptr, "15", nullptr},
    {"SoCInfo", "support_vector_engine", nullptr, "1", nullptr},
    {"AICoreSpec", "cube_m_size", "16", "16", "16"},
    {"AICoreSpec", "cube_n_size", "16", "16", "16"},
    {"AICoreSpec", "cube_k_size", "16", "16", "16"},
    {"AICoreSpec", "vec_calc_size", "128", "128", "128"},
    {"AICoreSpec", "l0_a_size", "65536", "65536", "65536"},
    {"AICoreSpec", "l0_b_size", "65536", "65536", "65536"},
    {"AICoreSpec", "l0_c_size", "131072", "262144", "262144"},
    {"AICoreSpec", "l1_size", "524288", "1048576", "524288"},
    {"AICoreSpec", "fb0_size", "2048", nullptr, "4096"},
    {"AICoreSpec", "fb1_size", "1024", nullptr, "2048"},
    {"AICoreSpec", "fb2_size", "2048", nullptr, "0"},
    {"AICoreSpec", "fb3_size", "2048", nullptr, "0"},
    {"AICoreSpec", "bt_size", "1024", nullptr, "4096"},
    {"AICoreSpec", "smask_buffer", "0", "256", "0"},
    {"AICoreSpec", "ubblock_size", "32", "32", "32"},
    {"AICoreSpec", "ubbank_size", "4096", "4096", "4096"},
    {"AICoreSpec", "ubbank_num", "64", "64", "16"},
    {"AICoreSpec", "ubburst_in_one_block", "32", "32", "32"},
    {"AICoreSpec", "ubbank_group_num", "16", "16", "8"},
    {"AICoreSpec", "unzip_engines", "4", "4", nullptr},
    {"AICoreSpec", "unzip_max_ratios", "64", "64", nullptr},
    {"AICoreSpec", "unzip_channels", "2", "2", nullptr},
    {"AICoreSpec", "unzip_is_tight", "1", "1", nullptr},
    {"AICoreSpec", "support_fixpipe", "1", nullptr, "1"},
    {"AICoreSpec", "sparsity", "1", nullptr, "0"},
    {"AICoreSpec", "padding_size", "32", "32", "0"},
    {"AICoreSpec", "load3d_constraints", nullptr, "1", nullptr},
    {"AICoreSpec", "pipev2_constraints", nullptr, "1", nullptr},
    {"AICoreSpec", "ubsubbank_num", nullptr, nullptr, "64"},
    {"AICoreSpec", "l0a_layout_zN", nullptr, nullptr, "1"},
    {"AICoreSpec", "vector_reg_width", nullptr, nullptr, "256"},
    {"AICoreSpec", "predicate_reg_width", nullptr, nullptr, "32"},
    {"AICoreSpec", "wide_reg_width", nullptr, nullptr, "768"},
    {"AICoreMemoryRates", "ddr_rate", "32", "17", "31"},
    {"AICoreMemoryRates", "ddr_read_rate", "32", "17", "31"},
    {"AICoreMemoryRates", "ddr_write_rate", "32", "17", "31"},
    {"AICoreMemoryRates", "l2_rate", "110", "114", "100"},
    {"AICoreMemoryRates", "l2_read_rate", "110", "114", "100"},
    {"AICoreMemoryRates", "l2_write_rate", "86", "114", "100"},
    {"AICoreMemoryRates", "l1_to_l0_a_rate", "512", "512", "256"},
    {"AICoreMemoryRates", "l1_to_l0_b_rate", "256", "256", "256"},
    {"AICoreMemoryRates", "l1_to_ub_rate", "128", "128", "128"},
    {"AICoreMemoryRates", "l0_c_to_ub_rate", "256", "512", "128"},
    {"AICoreMemoryRates", "ub_to_l2_rate", "64", "114", "128"},
    {"AICoreMemoryRates", "ub_to_ddr_rate", "64", "17", "128"},
    {"AICoreMemoryRates", "ub_to_l1_rate", "128", "256", "128"},
    {"AICoreintrinsicDtypeMap", "Intrinsic_data_move_l12bt", "u8,s8,f16,u16,s16,f32,s32,u32", nullptr,
     "u8,s8,f16,bf16,u16,s16,f32,s32,u32"},
    {"AICoreintrinsicDtypeMap", "Intrinsic_fix_pipe_l0c2out", "f32,s32,f16", nullptr, "f32,s32,f16"},
};

// Whether kSharedValues lacks keys of this label that the chips' files have.
bool is_incomplete_label(const std::string& label) {
    for (const char* listed :
         {"AICoreintrinsicDtypeMap", "CUBECoreintrinsicDtypeMap", "VectorCoreintrinsicDtypeMap", "DtypeMKN", "CPUCache",
          "DSARandom", "VectorCoreSpec", "VectorCoreMemoryRates", "SoftwareSpec"})
        if (label == listed) return true;
    return false;
}

// Whether kSharedValues lacks this key although the chips' files have it.
bool is_missing_key(const std::string& label, const std::string& key) {
    if (label != "SoCInfo") return false;
    for (const char* listed : {"ai_cpu_cnt", "memory_type", "memory_size", "normal_stream_num", "normal_stream_depth",
                               "huge_stream_num", "huge_stream_depth", "vir_type_list", "max_stream_num",
                               "max_hardware_eventid_num", "max_notifyid_num", "max_modelid_num"})
        if (key == listed) return true;
    return false;
}

[[noreturn]] void exit_not_simulated(const std::string& what) {
    std::fprintf(stderr, "[sim] platform information must be simulated but got %s.\n", what.c_str());
    std::fflush(stderr);
    std::_Exit(3);
}

// Returns the number of cube cores. If the profile has fewer vector cores than the chip's file, the number of cube
// cores is reduced in the same ratio and rounded up.
int32_t cube_cores(const ascend_sim::Profile& profile) {
    const ascend_sim::Chip* chip = ascend_sim::find_chip(profile.name);
    if (profile.arch == ascend_sim::kArch310p || !chip) return profile.cores;
    return (profile.cores * chip->ai_cores + chip->vector_cores - 1) / chip->vector_cores;
}

int32_t vector_cores(const ascend_sim::Profile& profile) {
    const ascend_sim::Chip* chip = ascend_sim::find_chip(profile.name);
    return profile.arch == ascend_sim::kArch310p && chip ? chip->vector_cores : profile.cores;
}

std::string short_version(const ascend_sim::Profile& profile) {
    if (profile.arch == ascend_sim::kArch310p) return "Ascend310P";
    if (profile.arch == ascend_sim::kArch950) return "Ascend950";
    return std::string(profile.soc) == "ascend910_93" ? "Ascend910_93" : "Ascend910B";
}

// Returns a value that differs between the chips of a family; "" if the key has no such value.
std::string chip_value(const ascend_sim::Profile& profile, const std::string& label, const std::string& key) {
    const ascend_sim::Chip* chip = ascend_sim::find_chip(profile.name);
    if (label == "version")
        return key == "SoC_version" ? profile.name : key == "Short_SoC_version" ? short_version(profile) : "";
    if (label == "AICoreSpec" && key == "ub_size") return std::to_string(profile.ub_bytes);
    if (label == "AICoreSpec" && key == "cube_freq")
        return std::to_string(static_cast<int>(profile.clock_ghz * 1000 + 0.5));
    if (label != "SoCInfo") return "";
    if (key == "ai_core_cnt") return std::to_string(cube_cores(profile));
    if (key == "cube_core_cnt") return profile.arch == ascend_sim::kArch310p ? "" : std::to_string(cube_cores(profile));
    if (key == "vector_core_cnt") return std::to_string(vector_cores(profile));
    if (key == "l2_size" && chip) return std::to_string(static_cast<int64_t>(chip->l2_mib) << 20);
    return "";
}

const char* const kChipKeys[] = {"SoC_version", "Short_SoC_version", "ub_size",         "cube_freq",
                                 "ai_core_cnt", "cube_core_cnt",     "vector_core_cnt", "l2_size"};

uint64_t platform_number(fe::PlatFormInfos* infos, const char* label, const char* key) {
    std::string text;
    infos->GetPlatformRes(label, key, text);
    return text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace
}  // namespace simulated_cann

namespace fe {

using namespace simulated_cann;

bool PlatFormInfos::GetPlatformRes(const std::string& label, const std::string& key, std::string& val) {
    if (const std::string value_of_chip = chip_value(*profile, label, key); !value_of_chip.empty()) {
        val = value_of_chip;
        return true;
    }
    for (const SharedValue& shared : kSharedValues) {
        if (label != shared.label || key != shared.key) continue;
        const char* value = shared.on(profile->arch);
        if (value) val = value;
        return value != nullptr;
    }
    if (is_incomplete_label(label) || is_missing_key(label, key)) exit_not_simulated(label + " " + key);
    return false;
}

bool PlatFormInfos::GetPlatformRes(const std::string& label, std::map<std::string, std::string>& res) {
    if (is_incomplete_label(label)) exit_not_simulated(label);
    std::map<std::string, std::string> found;
    std::string value;
    for (const SharedValue& shared : kSharedValues)
        if (label == shared.label && GetPlatformRes(label, shared.key, value)) found[shared.key] = value;
    for (const char* key : kChipKeys)
        if (const std::string value_of_chip = chip_value(*profile, label, key); !value_of_chip.empty())
            found[key] = value_of_chip;
    if (found.empty()) return false;
    res = found;
    return true;
}

uint32_t PlatFormInfos::GetCoreNum() const { return static_cast<uint32_t>(profile->cores); }

uint32_t PlatFormInfos::GetCoreNumByType(const std::string& core_type) {
    const bool vector = core_type == "VectorCore" || core_type == "AIV";
    return static_cast<uint32_t>(platform_number(this, "SoCInfo", vector ? "vector_core_cnt" : "ai_core_cnt"));
}

void PlatFormInfos::GetLocalMemSize(const LocalMemType& mem_type, uint64_t& size) {
    static constexpr const char* kKeys[] = {"l0_a_size", "l0_b_size", "l0_c_size",  "l1_size",
                                            "l2_size",   "ub_size",   "memory_size"};
    const auto index = static_cast<size_t>(mem_type);
    const bool is_chip_memory = mem_type == LocalMemType::L2 || mem_type == LocalMemType::HBM;
    size =
        index < std::size(kKeys) ? platform_number(this, is_chip_memory ? "SoCInfo" : "AICoreSpec", kKeys[index]) : 0;
}

void PlatFormInfos::GetLocalMemBw(const LocalMemType& mem_type, uint64_t& bw_size) {
    bw_size = mem_type == LocalMemType::L2    ? platform_number(this, "AICoreMemoryRates", "l2_rate")
              : mem_type == LocalMemType::HBM ? platform_number(this, "AICoreMemoryRates", "ddr_rate")
                                              : 0;
}

}  // namespace fe

namespace platform_ascendc {
namespace {

bool is_910b(const PlatformAscendC& chip) { return chip.GetSocVersion() == SocVersion::ASCEND910B; }

}  // namespace

fe::PlatFormInfos* PlatformAscendC::platform_info() const {
    ASCENDC_ASSERT(platform_info_ != nullptr,
                   std::fprintf(stderr, "[sim] platform information must be given but got NULL.\n"));
    return platform_info_;
}

uint32_t PlatformAscendC::GetCoreNum(void) const { return platform_info()->GetCoreNum(); }

// The AI cores of Ascend310P execute cube and vector instructions, so both functions return the number of AI cores.
uint32_t PlatformAscendC::GetCoreNumAic(void) const { return platform_info()->GetCoreNumByType("AiCore"); }
uint32_t PlatformAscendC::GetCoreNumAiv(void) const {
    return platform_info()->profile->arch == ascend_sim::kArch310p ? GetCoreNumAic()
                                                                   : platform_info()->GetCoreNumByType("AIV");
}
uint32_t PlatformAscendC::GetCoreNumVector(void) const {
    return GetSocVersion() == SocVersion::ASCEND310P ? platform_info()->GetCoreNumByType("AIV") : 0;
}

uint32_t PlatformAscendC::CalcTschNumBlocks(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
    if (aic_core_num == 0 || aiv_core_num == 0 || aic_core_num > aiv_core_num) return slice_num;
    const uint32_t ratio = aiv_core_num / aic_core_num;
    const uint32_t blocks = (slice_num + ratio - 1) / ratio;
    return ratio == 2 && blocks > aic_core_num ? 0 : blocks;
}

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize(void) const {
    return (GetCurNpuArch() == NpuArch::DAV_2002 ? 2 : 16) * 1024 * 1024;
}

uint32_t PlatformAscendC::GetResCubeGroupWorkSpaceSize(void) const { return is_910b(*this) ? 1024 * 1024 : ~0u; }
uint32_t PlatformAscendC::GetResGroupBarrierWorkSpaceSize(void) const { return is_910b(*this) ? 1024 * 1024 : ~0u; }

void PlatformAscendC::GetCoreMemSize(const CoreMemType& memory, uint64_t& size) const {
    constexpr uint64_t kMessageBytes910b = 256;  // reserved for messages between cores
    if (memory == CoreMemType::FB || memory == CoreMemType::BT) {
        std::string text;
        if (platform_info()->GetPlatformRes("AICoreSpec", memory == CoreMemType::FB ? "fb0_size" : "bt_size", text))
            size = std::strtoull(text.c_str(), nullptr, 10);
        return;
    }
    platform_info()->GetLocalMemSize(static_cast<fe::LocalMemType>(memory), size);
    if ((memory == CoreMemType::UB || memory == CoreMemType::L1) && is_910b(*this)) size -= kMessageBytes910b;
    if (memory == CoreMemType::UB) size -= reserved_bytes_;
}

void PlatformAscendC::GetCoreMemBw(const CoreMemType& memory, uint64_t& bytes_per_cycle) const {
    platform_info()->GetLocalMemBw(static_cast<fe::LocalMemType>(memory), bytes_per_cycle);
}

void PlatformAscendC::ReserveLocalMemory(ReservedSize size) { reserved_bytes_ = 8192u << static_cast<int>(size); }

// Ascend910_93 counts as Ascend910B.
SocVersion PlatformAscendC::GetSocVersion(void) const {
    switch (platform_info()->profile->arch) {
        case ascend_sim::kArch910b:
            return SocVersion::ASCEND910B;
        case ascend_sim::kArch310p:
            return SocVersion::ASCEND310P;
        case ascend_sim::kArch950:
            return SocVersion::ASCEND950;
        default:
            return SocVersion::RESERVED_VERSION;
    }
}

NpuArch PlatformAscendC::GetCurNpuArch(void) const {
    return static_cast<NpuArch>(simulated_cann::platform_number(platform_info(), "version", "NpuArch"));
}

uint32_t PlatformAscendC::GetVecRegLen(void) const {
    return platform_info()->profile->arch == ascend_sim::kArch950 ? 256 : 0;
}

}  // namespace platform_ascendc
