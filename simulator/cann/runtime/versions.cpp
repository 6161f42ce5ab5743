// The versions of CANN's packages. CANN reads them in $ASCEND_HOME_PATH/share/info, which the simulated CANN does not
// have (hicann/runtime src/acl/aclrt_impl/acl.cpp, aclsysGetCANNVersionImpl and GetPkgVersionContent). torch_npu then
// uses what every version of CANN offers.
#include "cann/runtime/api.h"

using namespace simulated_cann;

NPU_CANN_API aclError aclsysGetVersionStr(const char* package, char* version) {
    if (!package || !version) return fail(kInvalidParam, __func__, "pkgName and versionStr must not be null.");
    return fail(kInvalidFile, __func__, "share/info must exist in ASCEND_HOME_PATH.");
}

NPU_CANN_API aclError aclsysGetCANNVersion(int32_t /*package*/, void* version) {
    if (!version) return fail(kInvalidParam, __func__, "version must not be null.");
    return fail(kInvalidFile, __func__, "share/info must exist in ASCEND_HOME_PATH.");
}
