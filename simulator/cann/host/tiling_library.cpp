#include "cann/host/tiling_library.h"

#include "cann/host/def_reader.h"
#include "cann/host/node.h"

extern "C" __attribute__((visibility("default"))) const npu_cann::TilingLibrary* npu_cann_tiling_library() {
    static const npu_cann::TilingLibrary library = {
        [](const std::string& op_type) { return npu_cann::find_functions(op_type).tiling; },
        &npu_cann::take_logged_error};
    return &library;
}
