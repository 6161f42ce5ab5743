// aclnn's handles and the declarations that its calls need.
#pragma once

#include "aclnn/acl_meta.h"

extern "C" {

aclnnStatus aclnnInit(const char* configPath);
aclnnStatus aclnnFinalize();

}  // extern "C"
