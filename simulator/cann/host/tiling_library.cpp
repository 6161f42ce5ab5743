#include "cann/host/tiling_library.h"

#include "cann/host/def_reader.h"
#include "cann/host/node.h"

extern "C" __attribute__((visibility("default"))) const simulated_cann::TilingLibrary* simulated_cann_tiling_library() {
    static const simulated_cann::TilingLibrary library = {
        [](const std::string& op_type) { return simulated_cann::find_functions(op_type).tiling; },
        &simulated_cann::take_logged_error};
    return &library;
}
