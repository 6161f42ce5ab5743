// The capabilities of the simulated devices, which all have the same chip.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"
#include "src/chips.h"

namespace simulated_cann {
namespace {

// Values of aclSysParamOpt: deterministic, debug kernel, consistency, early start. The process has one value for each
// (hicann/runtime src/runtime/api/api_c.cc, rtSetSysParamOpt and rtCtxSetSysParamOpt).
constexpr int kSystemOptionCount = 4;
std::atomic<int64_t> system_options[kSystemOptionCount] = {};

struct SimulatedChip {
    std::string name;
    int64_t ai_cores, vector_cores, l2_bytes;
    int32_t kernel_cores;  // cores that run vector kernels, by kernel_cores() of src/chips.h
};

constexpr const char* kDefaultChip = "Ascend910B2";
constexpr int64_t kMiB = 1 << 20;
constexpr int kSaturation = 0;  // aclrtFloatOverflowMode

SimulatedChip make_listed_chip(const ascend_sim::Chip& chip) {
    const int32_t arch = ascend_sim::find_family(chip.name)->arch;
    return {chip.name, chip.ai_cores, chip.vector_cores, chip.l2_mib * kMiB,
            ascend_sim::kernel_cores(arch, chip.ai_cores, chip.vector_cores)};
}

// Parses NAME:CORES, where src/chips.h lacks NAME but has its family. Returns false for other texts.
bool parse_unlisted_chip(const std::string& text, SimulatedChip* chip) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return false;
    const std::string name = text.substr(0, colon), digits = text.substr(colon + 1);
    const ascend_sim::Family* family = ascend_sim::find_family(name.c_str());
    if (!family || ascend_sim::find_chip(name.c_str())) return false;
    if (digits.empty() || digits.size() > 2 || digits.find_first_not_of("0123456789") != std::string::npos)
        return false;
    const int32_t cores = std::stoi(digits), arch = family->arch;
    // At most the AI cores of the family's largest chip.
    const int32_t most_cores = arch == ascend_sim::kArch310p ? 10 : arch == ascend_sim::kArch950 ? 36 : 24;
    if (cores < 1 || cores > most_cores) return false;
    const int32_t vector_cores = arch == ascend_sim::kArch310p ? cores - 1 : 2 * cores;
    *chip = {name, cores, vector_cores, 16 * kMiB, ascend_sim::kernel_cores(arch, cores, vector_cores)};
    return true;
}

// Returns the chip of ASCEND_SIM_SOC: a chip of src/chips.h, or NAME:CORES with the number of AI cores. Any other value
// ends the process.
SimulatedChip chip_of_environment() {
    const char* name = std::getenv("ASCEND_SIM_SOC");
    if (!name || !*name) name = kDefaultChip;
    const ascend_sim::Chip* found = ascend_sim::find_chip(name);
    if (found) return make_listed_chip(*found);
    SimulatedChip unlisted;
    if (parse_unlisted_chip(name, &unlisted)) return unlisted;
    std::string known;
    for (const ascend_sim::Chip& listed : ascend_sim::kChips)
        known += std::string(known.empty() ? "" : ", ") + listed.name;
    print_message(
        {"ASCEND_SIM_SOC must be one of ", known,
         ", or NAME:CORES for a chip that is not listed: a name of one of these families and its number of AI "
         "cores, but got ",
         name, "."});
    std::exit(2);
}

const SimulatedChip& this_chip() {
    static const SimulatedChip chip = chip_of_environment();
    return chip;
}

}  // namespace

const char* soc_name() { return host_calls() ? host_calls()->chip : this_chip().name.c_str(); }
// hicann/opbase src/nnopbase/individual_op/executor/indv_executor_utils.h, GetGlobalDeterministic: level 1 becomes 2 if
// the option of strong consistency is on.
int32_t deterministic_level() {
    if (host_calls()) return host_calls()->deterministic != 0;
    constexpr int kDeterministic = 0, kStrongConsistency = 2;
    const auto level = static_cast<int32_t>(system_options[kDeterministic]);
    return level == 1 && system_options[kStrongConsistency] == 1 ? 2 : level;
}
int32_t soc_kernel_cores() { return host_calls() ? host_calls()->cores : this_chip().kernel_cores; }

bool is_ascend310p() { return std::strncmp(soc_name(), "Ascend310P", 10) == 0; }

bool is_ascend950() { return std::strncmp(soc_name(), "Ascend950", 9) == 0; }

aclError kernel_exception() { return is_ascend310p() ? kAiCoreException : kVectorCoreException; }

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logic) {
    if (!logic) return fail(kInvalidParam, __func__, "logicDevId must not be null.");
    // hicann/runtime src/runtime/api/api_c_device.cc, rtsGetLogicDevIdByUserDevId: a negative id has its own status.
    if (user < 0) return fail(kRtInvalid, __func__, "userDevid must be at least 0", user);
    if (aclError error = check_device(__func__, user)) return error;
    *logic = physical_device(user);
    return kSuccess;
}
NPU_CANN_API const char* aclrtGetSocName() { return soc_name(); }

namespace {
// Checks the pointer and the device of a query, whose functions have different statuses for an unknown device.
aclError check_query(const char* call, uint32_t device, const int64_t* value, aclError unknown_device) {
    if (!value) return fail(kInvalidParam, call, "value must not be null.");
    if (device < uint32_t(device_count())) return kSuccess;
    return fail(unknown_device, call, "deviceId must be a device that is simulated", int64_t(device));
}
// Whether the number is an attribute of aclrtDevAttr (hicann/runtime include/external/acl/acl_rt.h).
bool is_device_attribute(int attribute) {
    const int group = attribute / 100, last_of_group[] = {1, 102, 212, 302, 409, 501, 601};
    return attribute >= 0 && group <= 6 && attribute % 100 > 0 && attribute <= last_of_group[group];
}
}  // namespace

NPU_CANN_API aclError aclGetDeviceCapability(uint32_t device, int attribute, int64_t* value) {
    if (aclError error = check_query(__func__, device, value, kInvalidParam)) return error;
    const int64_t values[] = {this_chip().ai_cores, this_chip().vector_cores, this_chip().l2_bytes};
    if (attribute < 0 || attribute > 2) return fail(kInvalidParam, __func__, "deviceInfo must be 0, 1 or 2", attribute);
    *value = values[attribute];
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::GetDeviceInfoByAttr, and api_impl.cc,
// ApiImpl::GetDeviceInfoByAttrMisc.
NPU_CANN_API aclError aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t* value) {
    if (aclError error = check_query(__func__, device, value, kRtInvalid)) return error;
    if (!is_device_attribute(attribute))
        return fail(kRtInvalid, __func__, "attr must be an attribute of aclrtDevAttr", attribute);
    const SimulatedChip& chip = this_chip();
    const std::map<int, int64_t> known = {
        {101, chip.ai_cores}, {102, chip.ai_cores}, {201, chip.vector_cores}, {302, chip.l2_bytes}};
    const auto found = known.find(attribute);
    if (found == known.end())
        return fail(kNotSupported, __func__,
                    "attribute " + std::to_string(attribute) +
                        " is not simulated; add it in simulator/cann/runtime/devices.cpp.");
    *value = found->second;
    return kSuccess;
}

namespace {
// Checks of the functions below, of hicann/runtime src/runtime/api/impl/api_error.cc,
// ApiErrorDecorator::GetDeviceResLimit and the functions after it.
aclError check_limit_value(const char* call, const uint32_t* value) {
    return value ? kSuccess : fail(kInvalidParam, call, "value must not be null.");
}
aclError check_limit_kind(const char* call, int kind) {
    return kind == 0 || kind == 1 ? kSuccess : fail(kRtInvalid, call, "type must be 0 or 1", kind);
}
// Sets `value` to the number of cores that kernels may use: cube cores for kind 0, vector cores for kind 1. Setting a
// limit is not simulated, so these are all cores of the chip.
aclError get_core_limit(int kind, uint32_t* value) {
    *value = uint32_t(kind == 0 ? this_chip().ai_cores : this_chip().vector_cores);
    return kSuccess;
}
}  // namespace

// hicann/runtime src/runtime/api/api_c_device.cc, rtsGetDeviceResLimit: a negative device is refused before the type.
// src/runtime/api/impl/api_impl.cc, ApiImpl::GetDeviceResLimit: the device must be set.
NPU_CANN_API aclError aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t* value) {
    if (aclError error = check_limit_value(__func__, value)) return error;
    if (device >= 0)
        if (aclError error = check_limit_kind(__func__, kind)) return error;
    if (aclError error = check_device(__func__, device)) return error;
    if (!is_device_set(device))
        return fail(kDeviceSetUp, __func__, "deviceId must be a device that is set (aclrtSetDevice)", device);
    return get_core_limit(kind, value);
}
// api_impl.cc, ApiImpl::GetStreamResLimit: only the default stream needs a context.
NPU_CANN_API aclError aclrtGetStreamResLimit(void* stream, int kind, uint32_t* value) {
    if (aclError error = check_limit_value(__func__, value)) return error;
    if (!find_stream(stream)) return refuse_unknown_stream(__func__);
    if (aclError error = check_limit_kind(__func__, kind)) return error;
    if (!stream)
        if (aclError error = check_context(__func__)) return error;
    return get_core_limit(kind, value);
}
// api_impl.cc, ApiImpl::GetResInCurrentThread.
NPU_CANN_API aclError aclrtGetResInCurrentThread(int kind, uint32_t* value) {
    if (aclError error = check_limit_value(__func__, value)) return error;
    if (aclError error = check_limit_kind(__func__, kind)) return error;
    if (aclError error = check_context(__func__)) return error;
    return get_core_limit(kind, value);
}

// aclCannAttr: 0 inf/nan mode, 1 bfloat16, 2 just-in-time compile. hicann/runtime src/acl/utils/cann_info_utils.cpp,
// CannInfoUtils::CheckAndUpdateAttrAvailability: the list has the attributes with the value 1. Each CANN of the
// simulated versions has the last one, on every chip. Ascend310P lacks the others.
NPU_CANN_API aclError aclGetCannAttributeList(const int32_t** list, size_t* count) {
    static const int32_t attributes[] = {0, 1, 2};
    if (!list || !count) return fail(kInvalidParam, __func__, "arguments must not be null.");
    *list = is_ascend310p() ? attributes + 2 : attributes;
    *count = is_ascend310p() ? 1 : 3;
    return kSuccess;
}
NPU_CANN_API aclError aclGetCannAttribute(int attribute, int32_t* value) {
    if (!value || attribute < 0 || attribute > 2)
        return fail(kInvalidParam, __func__, "cannAttr must be 0, 1 or 2, and value must not be null.");
    *value = attribute == 2 || !is_ascend310p();
    return kSuccess;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetDeviceSatMode, and src/runtime/api/api_c.cc,
// rtSetDeviceSatMode: Ascend310P has no mode 1, Ascend950 no mode 0 (src/runtime/config/950/dev_info_reg.cc,
// supportOverflowMode). The mode is not used.
NPU_CANN_API aclError aclrtSetDeviceSatMode(int mode) {
    if (mode < 0 || mode > 1) return fail(kRtInvalid, __func__, "mode must be 0 or 1", mode);
    if (mode == kSaturation ? is_ascend950() : is_ascend310p())
        return fail(kRtNotSupported, __func__, "mode must be one that this chip has", mode);
    return kSuccess;
}
NPU_CANN_API aclError aclrtSetOpExecuteTimeOut(uint32_t /*seconds*/) { return kSuccess; }
// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::SetOpExecuteTimeOutV2: the hardware counts up to 254
// intervals (src/runtime/core/src/task/task_execute_time.cc, TransExeTimeoutCfgToKernelCredit). An interval of
// Ascend310P is 2^31 nanoseconds, of the others 2^32. With some drivers these have a shorter one, so a program must use
// the result. The timeout has no other effect.
NPU_CANN_API aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actual) {
    constexpr double kMaxCredit = 254;
    if (!actual) return fail(kInvalidParam, __func__, "actualTimeout must not be null.");
    if (aclError error = check_context(__func__)) return error;
    const double interval_us = is_ascend310p() ? 2147483.648 : 4294967.296;
    const double credit = timeout ? std::min(std::ceil(double(timeout) / interval_us), kMaxCredit) : kMaxCredit;
    *actual = static_cast<uint64_t>(credit * interval_us);
    return kSuccess;
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, ApiImpl::SetOpWaitTimeOut. The document
// (docs/zh/api_ref/07_event_management.md) does not list Ascend310P; the source accepts it with new firmware.
NPU_CANN_API aclError aclrtSetOpWaitTimeout(uint32_t /*seconds*/) {
    if (!is_ascend310p()) return kSuccess;
    if (aclError error = check_context(__func__)) return error;
    count_beyond_document(__func__, kUnlistedChip);
    return kSuccess;
}

namespace {
// hicann/runtime src/acl/aclrt_impl/context.cpp, SetSysParamOpt and GetSysParamOpt.
aclError check_option(const char* call, int option, int option_count) {
    if (option >= 0 && option < option_count) return kSuccess;
    return fail(kInvalidParam, call, "opt must be 0 to " + std::to_string(option_count - 1), option);
}
// hicann/runtime src/runtime/api/impl/api_error.cc, ApiErrorDecorator::CtxSetSysParamOpt.
aclError check_option_value(const char* call, int option, int64_t value) {
    const int64_t max_value = option == 0 ? 3 : 1;
    if (value >= 0 && value <= max_value) return kSuccess;
    return fail(kRtInvalid, call, "value must be 0 to " + std::to_string(max_value), value);
}
}  // namespace

NPU_CANN_API aclError aclrtSetSysParamOpt(int option, int64_t value) {
    if (aclError error = check_option(__func__, option, kSystemOptionCount)) return error;
    if (aclError error = check_option_value(__func__, option, value)) return error;
    system_options[option] = value;
    return kSuccess;
}
// A context does not have the option early start.
NPU_CANN_API aclError aclrtCtxSetSysParamOpt(int option, int64_t value) {
    if (aclError error = check_option(__func__, option, kSystemOptionCount - 1)) return error;
    if (aclError error = check_option_value(__func__, option, value)) return error;
    if (aclError error = check_context(__func__)) return error;
    system_options[option] = value;
    return kSuccess;
}
NPU_CANN_API aclError aclrtGetSysParamOpt(int option, int64_t* value) {
    if (!value) return fail(kInvalidParam, __func__, "value must not be null.");
    if (aclError error = check_option(__func__, option, kSystemOptionCount)) return error;
    *value = system_options[option];
    return kSuccess;
}

// The simulated UUID is a text that ends with the number of the device. The document (hicann/runtime
// docs/zh/api_ref/04_device_management.md) does not list Ascend310P; the source asks its driver.
NPU_CANN_API aclError aclrtDeviceGetUuid(int32_t device, char* uuid) {
    constexpr size_t kUuidBytes = 16;  // hicann/runtime include/external/acl/acl_rt.h, aclrtUuid
    if (!uuid) return fail(kInvalidParam, __func__, "uuid must not be null.");
    if (aclError error = check_device(__func__, device)) return error;
    if (is_ascend310p()) count_beyond_document(__func__, kUnlistedChip);
    std::snprintf(uuid, kUuidBytes, "ascend_sim %04d", physical_device(device));
    return kSuccess;
}
