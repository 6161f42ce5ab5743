// The files of this library's operator package, as CANN's runtime reads them: the list of an SoC's kernels, the
// kernels, and the tiling library.
#pragma once

#include <map>
#include <string>

#include "cann/host/tiling_library.h"

namespace simulated_cann {

// Path of this library's package: <package>/op_api/lib/libcust_opapi.so is this library. Symbolic links are resolved.
// "" if the path is unknown.
std::string resolved_package();
// Path of the same folder as ASCEND_CUSTOM_OPP_PATH or vendors/config.ini lists it, without resolving links. Returns
// resolved_package() if neither lists it. The paths of kernels begin with this path.
std::string configured_package();

// A package's kernels for an SoC, by operator and simplifiedKey:
// op_impl/ai_core/tbe/kernel/config/<soc>/binary_info_config.json (hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseCollectorReadDynamicKernelOpInfoConfig).
class KernelList {
public:
    KernelList(const std::string& package, const std::string& soc);
    // The list of this library's package for an SoC, which is read once.
    static const KernelList& of_own_package(const std::string& soc);

    const std::string& path() const { return path_; }
    bool is_readable() const { return is_readable_; }
    // Whether the list has a kernel of the operator. CANN registers only such operators.
    bool has_operator(const std::string& op_type) const { return kernels_.count(op_type) != 0; }
    // Path of the kernel's object; "" if it is not listed.
    std::string find(const std::string& op_type, const std::string& key) const;

private:
    std::string path_;
    bool is_readable_ = false;
    std::map<std::string, std::map<std::string, std::string>> kernels_;
};

// Returns the name of the entry that a kernel's object file contains, and caches it by path. Throws Failure, as
// hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp, NnopbaseKernelRegister, does:
// - 561113 if the object file is absent or empty;
// - 561108 if its description is absent or not JSON;
// - 361001 if the object file is truncated or does not belong to a simulated package.
std::string kernel_entry_name(const std::string& op_type, const std::string& object_path);

// The tiling library of this package, read once (hicann/opbase src/nnopbase/individual_op/executor/indv_collector.cpp,
// NnopbaseLoadTilingSo). Throws Failure 561002 if it is absent or does not load. The next call loads a whole library
// again, because dlopen does not say whether it lacked memory.
const TilingLibrary& tiling_library(const std::string& op_type);

// Folder with the libraries of kernels that are compiled for the simulator: the argument of ascend_sim_find_kernel().
// A package for real CANN has no such folder.
const std::string& kernel_folder();

}  // namespace simulated_cann
