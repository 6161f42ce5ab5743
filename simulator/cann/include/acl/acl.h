// CANN's acl initialization and error messages, for programs that call operators.
#pragma once

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

aclError aclInit(const char* configPath);
aclError aclFinalize();
const char* aclGetRecentErrMsg();

#ifdef __cplusplus
}
#endif
