// The versions of CANN's packages. CANN reads them in $ASCEND_HOME_PATH/share/info (hicann/runtime
// src/acl/aclrt_impl/acl.cpp, aclsysGetCANNVersionImpl and aclsysGetVersionStrImpl). Every package of the simulated
// CANN has the version 9.1.0, whose sources the simulated functions follow. A driver is not installed.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "cann/runtime/api.h"

namespace simulated_cann {
namespace {

constexpr char kVersion[] = "9.1.0";
constexpr int kLastCannPackage = 6, kDriver = 7;  // aclCANNPackageName

// hicann/runtime include/external/acl/acl_base_rt.h, aclCANNPackageVersion.
struct PackageVersion {
    char version[128];
    char major_version[64], minor_version[64], release_version[64], patch_version[64];
    char reserved[128];
};

// The packages of a toolkit that torch_npu 2.13 asks for (torch_npu/csrc/core/npu/GetCANNInfo.cpp, pkgNameV2Map), with
// dashes as underscores: a package is found by both names.
const std::set<std::string>& packages() {
    static const std::set<std::string> names = {
        "acl_extend", "asc_devkit", "asc_tools",       "bisheng_compiler", "ge_compiler", "ge_executor",
        "hccl",       "hcomm",      "metadef",         "opbase",           "ops_cv",      "ops_legacy",
        "ops_math",   "ops_nn",     "ops_transformer", "oam_tools",        "pyACL",       "runtime"};
    return names;
}

// Refuses a call if ASCEND_HOME_PATH is not a folder: the files of the versions are in it.
aclError check_home(const char* call) {
    const char* home = std::getenv("ASCEND_HOME_PATH");
    std::error_code error;
    if (home && std::filesystem::is_directory(home, error)) return kSuccess;
    return fail(kInvalidFile, call, "ASCEND_HOME_PATH must be the folder of CANN (source its set_env.sh).");
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclsysGetVersionStr(const char* package, char* version) {
    if (!package || !version) return fail(kInvalidParam, __func__, "pkgName and versionStr must not be null.");
    if (aclError error = check_home(__func__)) return error;
    std::string name = package;
    for (char& letter : name)
        if (letter == '-') letter = '_';
    if (!packages().count(name)) return fail(kInvalidFile, __func__, "share/info must have the package " + name + ".");
    std::memcpy(version, kVersion, sizeof(kVersion));
    return kSuccess;
}

NPU_CANN_API aclError aclsysGetCANNVersion(int32_t package, PackageVersion* version) {
    if (!version) return fail(kInvalidParam, __func__, "version must not be null.");
    if (package < 0 || package > kDriver) return fail(kInvalidParam, __func__, "name must be 0 to 7", package);
    if (package > kLastCannPackage) return fail(kInvalidFile, __func__, "a driver must be installed.");
    if (aclError error = check_home(__func__)) return error;
    *version = {"9.1.0", "9", "1", "0", "0", ""};
    return kSuccess;
}
