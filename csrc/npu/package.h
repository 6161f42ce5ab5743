// Launch operators of the package that CANN finds. torch_npu may have found another package when it was loaded.
//
// torch_npu reads ASCEND_CUSTOM_OPP_PATH once, while libtorch_npu.so is loaded (op-plugin
// op_plugin/utils/op_api_common.cpp, g_custom_lib_path). `import torch` already loads that library, before npu_rope can
// set the variable. CANN reads the variable later, at the first generated operator of the process (hicann/opbase
// src/nnopbase/individual_op/api/individual_op_api.cpp, NnopbaseInit). The binding therefore opens the package's
// library itself.
#pragma once

#include "op_plugin/include/npu_cpp_extension.h"

namespace npu_rope {

// Finds an operator's two functions. The name and parameters are those of the function that torch_npu's launch macros
// call. The first call checks that CANN runs the package on this chip; if not, it raises an error with the remedies.
void GetApiFunc(const char* api_name, const char* workspace_api_name, void*& api, void*& workspace_api);

}  // namespace npu_rope

// EXEC_NPU_CMD_EXT with the function above, which the using-declaration selects instead of torch_npu's.
#define NPU_ROPE_LAUNCH(aclnn_api, ...)           \
    do {                                          \
        using npu_rope::GetApiFunc;               \
        EXEC_NPU_CMD_EXT(aclnn_api, __VA_ARGS__); \
    } while (false)
