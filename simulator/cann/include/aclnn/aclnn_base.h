// Initialization and finalization of aclnn, with aclnn's handles.
#pragma once

#include "aclnn/acl_meta.h"

extern "C" {

aclnnStatus aclnnInit(const char* configPath);
aclnnStatus aclnnFinalize();

}  // extern "C"
