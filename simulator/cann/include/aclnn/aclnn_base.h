// aclnn's handles and the declarations that its calls need.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnInit(const char* configPath);
aclnnStatus aclnnFinalize();

#ifdef __cplusplus
}
#endif
