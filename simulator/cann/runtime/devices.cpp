// The device, 0, and the chip's capabilities.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/scheduler.h"
#include "src/chips.h"

namespace simulated_cann {
namespace {

std::atomic<bool> initialized{false}, finalized{false};

// aclSysParamOpt: deterministic, debug kernel, consistency, early start. One set for the process (hicann/runtime
// src/runtime/api/api_c.cc, rtSetSysParamOpt and rtCtxSetSysParamOpt).
constexpr int kSystemOptions = 4;
std::atomic<int64_t> system_options[kSystemOptions] = {};

struct SimulatedChip {
    std::string name;
    int64_t ai_cores, vector_cores, l2_bytes;
    int32_t kernel_cores;  // cores that run vector kernels: src/chips.h
};

constexpr const char* kDefaultChip = "Ascend910B2";
constexpr int64_t kMiB = 1 << 20;

// Whether the simulated CANN supports the chip: a known family other than Ascend950.
bool is_supported(const char* name) {
    const ascend_sim::Family* family = ascend_sim::find_family(name);
    return family && family->arch != ascend_sim::kArch950;
}

SimulatedChip listed_chip(const ascend_sim::Chip& c) {
    const int32_t arch = ascend_sim::find_family(c.name)->arch;
    return {c.name, c.ai_cores, c.vector_cores, c.l2_mib * kMiB,
            ascend_sim::kernel_cores(arch, c.ai_cores, c.vector_cores)};
}

// Parses NAME:CORES, where the table lacks NAME but has its family. Returns false for other texts.
bool unlisted_chip(const std::string& text, SimulatedChip* chip) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return false;
    const std::string name = text.substr(0, colon), digits = text.substr(colon + 1);
    if (!is_supported(name.c_str()) || ascend_sim::find_chip(name.c_str())) return false;
    if (digits.empty() || digits.size() > 2 || digits.find_first_not_of("0123456789") != std::string::npos)
        return false;
    const int32_t cores = std::stoi(digits), arch = ascend_sim::find_family(name.c_str())->arch;
    // At most the AI cores of the family's largest chip.
    if (cores < 1 || cores > (arch == ascend_sim::kArch310p ? 10 : 24)) return false;
    const int32_t vector_cores = arch == ascend_sim::kArch310p ? cores - 1 : 2 * cores;
    *chip = {name, cores, vector_cores, 16 * kMiB, ascend_sim::kernel_cores(arch, cores, vector_cores)};
    return true;
}

// The chip of ASCEND_SIM_SOC: a chip of the table, or NAME:CORES of unlisted_chip() with the number of AI cores. Any
// other value ends the process.
SimulatedChip chip_of_environment() {
    const char* name = std::getenv("ASCEND_SIM_SOC");
    if (!name || !*name) name = kDefaultChip;
    const ascend_sim::Chip* found = ascend_sim::find_chip(name);
    if (found && is_supported(name)) return listed_chip(*found);
    SimulatedChip unlisted;
    if (unlisted_chip(name, &unlisted)) return unlisted;
    std::string known;
    for (const ascend_sim::Chip& one : ascend_sim::kChips)
        if (is_supported(one.name)) known += std::string(known.empty() ? "" : ", ") + one.name;
    std::fprintf(stderr,
                 "simulated CANN: ASCEND_SIM_SOC must be one of %s, or NAME:CORES for a chip that is not "
                 "listed: a name of one of these families and its number of AI cores, but got %s.\n",
                 known.c_str(), name);
    std::exit(2);
}

const SimulatedChip& this_chip() {
    static const SimulatedChip chip = chip_of_environment();
    return chip;
}

}  // namespace

const char* soc_name() { return host_calls() ? host_calls()->chip : this_chip().name.c_str(); }
int32_t soc_kernel_cores() { return host_calls() ? host_calls()->cores : this_chip().kernel_cores; }

bool is_ascend310p() { return std::strncmp(soc_name(), "Ascend310P", 10) == 0; }

aclError kernel_exception() { return is_ascend310p() ? kAiCoreException : kVectorCoreException; }

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclInit(const char* /*config_path*/) {
    finalized = false;
    return initialized.exchange(true) ? failed(kRepeatInitialize, "aclInit must be called once.") : kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/acl.cpp, aclFinalizeImpl: once, also without an aclInit before it.
NPU_CANN_API aclError aclFinalize() {
    if (finalized.exchange(true)) return failed(kRepeatFinalize, "aclFinalize must be called once.");
    initialized = false;
    return kSuccess;
}

NPU_CANN_API aclError aclrtGetDeviceCount(uint32_t* count) {
    if (!count) return failed(kInvalidParam, __func__, "count must not be null.");
    *count = kDevices;
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logic) {
    if (!logic) return failed(kInvalidParam, __func__, "logicDevId must not be null.");
    // hicann/runtime src/runtime/api/api_c_device.cc, rtsGetLogicDevIdByUserDevId: a negative id has its own status.
    if (user < 0) return failed(kRtInvalid, __func__, "userDevid must be at least 0", user);
    if (aclError refused = refuse_device(__func__, user)) return refused;
    *logic = user;
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtDeviceCanAccessPeerImpl, then src/runtime/api/impl/api_error.cc
// and api_impl.cc, DeviceCanAccessPeer. The devices differ, so one of them is not simulated. The driver's status for
// such a peer is not in the sources.
NPU_CANN_API aclError aclrtDeviceCanAccessPeer(int32_t* /*can*/, int32_t device, int32_t peer) {
    constexpr uint32_t kMostDevices = 64;
    const std::string call = __func__, got = " but got " + std::to_string(device) + ".";
    if (device == peer) return failed(kInvalidParam, call, "deviceId must not be peerDeviceId" + got);
    if (aclError refused = refuse_device(call.c_str(), peer)) return refused;
    if (uint32_t(device) >= kMostDevices) return failed(kRtInvalid, call, "deviceId must be 0 to 63" + got);
    return failed(kContextNull, call, "deviceId must be a device that is set on this thread" + got);
}

NPU_CANN_API const char* aclrtGetSocName() { return soc_name(); }

NPU_CANN_API aclError aclGetDeviceCapability(uint32_t device, int what, int64_t* value) {
    if (device >= kDevices || !value) return failed(kInvalidParam, __func__, "deviceId must be 0, value not null.");
    const int64_t values[] = {this_chip().ai_cores, this_chip().vector_cores, this_chip().l2_bytes};
    if (what < 0 || what > 2) return failed(kInvalidParam, __func__, "deviceInfo must be 0, 1 or 2", what);
    *value = values[what];
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetDeviceInfo(uint32_t device, int what, int64_t* value) {
    if (device >= kDevices || !value) return failed(kInvalidParam, __func__, "deviceId must be 0, value not null.");
    const SimulatedChip& chip = this_chip();
    const std::map<int, int64_t> known = {
        {101, chip.ai_cores}, {102, chip.ai_cores}, {201, chip.vector_cores}, {302, chip.l2_bytes}};
    const auto found = known.find(what);
    if (found == known.end())
        return failed(
            kNotSupported, __func__,
            "attribute " + std::to_string(what) + " is not simulated; add it in simulator/cann/runtime/devices.cpp.");
    *value = found->second;
    return kSuccess;
}

namespace {
// 0 cube cores, 1 vector cores: the limits are the chip's, and setting a limit is not simulated. hicann/runtime
// src/runtime/api/impl/api_error.cc, ApiErrorDecorator::GetDeviceResLimit and its neighbours.
aclError core_limit(const char* call, int kind, uint32_t* value) {
    if (!value) return failed(kInvalidParam, call, "value must not be null.");
    if (kind < 0 || kind > 1) return failed(kRtInvalid, call, "type must be 0 or 1", kind);
    *value = uint32_t(kind == 0 ? this_chip().ai_cores : this_chip().vector_cores);
    return kSuccess;
}
}  // namespace

NPU_CANN_API aclError aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t* value) {
    if (aclError refused = core_limit(__func__, kind, value)) return refused;
    return refuse_device(__func__, device);
}
NPU_CANN_API aclError aclrtGetStreamResLimit(void* stream, int kind, uint32_t* value) {
    if (value) {
        auto lock = lock_streams();
        if (!stream_of(stream)) return no_stream(__func__);
    }
    return core_limit(__func__, kind, value);
}
NPU_CANN_API aclError aclrtGetResInCurrentThread(int kind, uint32_t* value) {
    return core_limit(__func__, kind, value);
}

// aclCannAttr: 0 inf/nan mode, 1 bfloat16, 2 just-in-time compile.
NPU_CANN_API aclError aclGetCannAttributeList(const int32_t** list, size_t* count) {
    static const int32_t attributes[] = {0, 1, 2};
    if (!list || !count) return failed(kInvalidParam, __func__, "arguments must not be null.");
    *list = attributes;
    *count = 3;
    return kSuccess;
}
NPU_CANN_API aclError aclGetCannAttribute(int attribute, int32_t* value) {
    if (!value || attribute < 0 || attribute > 2) return failed(kInvalidParam, __func__, "cannAttr must be 0, 1 or 2.");
    *value = attribute == 2 || is_ascend310p() ? 0 : 1;
    return kSuccess;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetDeviceSatMode, and src/runtime/api/api_c.cc,
// rtSetDeviceSatMode: Ascend310P has no mode 1. The mode is not used.
NPU_CANN_API aclError aclrtSetDeviceSatMode(int mode) {
    if (mode < 0 || mode > 1) return failed(kRtInvalid, __func__, "mode must be 0 or 1", mode);
    if (mode == 1 && is_ascend310p())
        return failed(kRtNotSupported, __func__, "mode must be 0 on this chip but got 1.");
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetOpExecuteTimeOut(uint32_t /*seconds*/) { return kSuccess; }
NPU_CANN_API aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actual) {
    if (actual) *actual = timeout;
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetOpWaitTimeout(uint32_t /*seconds*/) { return kSuccess; }

namespace {
// hicann/runtime src/acl/aclrt_impl/context.cpp, SetSysParamOpt and GetSysParamOpt.
aclError refuse_option(const char* call, int option, int options) {
    if (option >= 0 && option < options) return kSuccess;
    return failed(kInvalidParam, call, "opt must be 0 to " + std::to_string(options - 1), option);
}
// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::CtxSetSysParamOpt.
aclError refuse_option_value(const char* call, int option, int64_t value) {
    const int64_t most = option == 0 ? 3 : 1;
    if (value >= 0 && value <= most) return kSuccess;
    return failed(kRtInvalid, call, "value must be 0 to " + std::to_string(most), value);
}
}  // namespace

NPU_CANN_API aclError aclrtSetSysParamOpt(int option, int64_t value) {
    if (aclError refused = refuse_option(__func__, option, kSystemOptions)) return refused;
    if (aclError refused = refuse_option_value(__func__, option, value)) return refused;
    system_options[option] = value;
    return kSuccess;
}
// A context does not have the option early start.
NPU_CANN_API aclError aclrtCtxSetSysParamOpt(int option, int64_t value) {
    if (aclError refused = refuse_option(__func__, option, kSystemOptions - 1)) return refused;
    if (aclError refused = refuse_option_value(__func__, option, value)) return refused;
    if (aclError refused = no_context(__func__)) return refused;
    system_options[option] = value;
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetSysParamOpt(int option, int64_t* value) {
    if (!value) return failed(kInvalidParam, __func__, "value must not be null.");
    if (aclError refused = refuse_option(__func__, option, kSystemOptions)) return refused;
    *value = system_options[option];
    return kSuccess;
}
