// Functions that libcust_opmaster_rt2.0.so, a package's tiling library, exports to the interface library.
#pragma once

#include <string>

#include "register/op_impl_registry.h"

namespace simulated_cann {

struct TilingLibrary {
    // Returns the operator's tiling function; null if none is registered.
    gert::OpImplRegisterV2::TilingKernelFunc (*find)(const std::string& op_type);
    std::string (*take_logged_error)();  // see log.h
};

// The function that returns the library's TilingLibrary.
constexpr const char* kTilingLibraryEntry = "simulated_cann_tiling_library";

}  // namespace simulated_cann
