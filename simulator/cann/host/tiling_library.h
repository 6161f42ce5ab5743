// Functions that libcust_opmaster_rt2.0.so, a package's tiling library, exports to the interface library.
#pragma once

#include <string>

#include "register/op_impl_registry.h"

namespace simulated_cann {

struct TilingLibrary {
    gert::OpImplRegisterV2::TilingKernelFunc (*find)(const std::string& op_type);  // null if not registered
    std::string (*take_logged_error)();                                            // of a tiling on this thread
};

constexpr const char* kTilingLibraryEntry = "simulated_cann_tiling_library";

}  // namespace simulated_cann
