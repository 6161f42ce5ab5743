// aclnn's handles, its initialization and its end.
#pragma once

#include "aclnn/acl_meta.h"

extern "C" {

aclnnStatus aclnnInit(const char* configPath);
aclnnStatus aclnnFinalize();

}  // extern "C"
