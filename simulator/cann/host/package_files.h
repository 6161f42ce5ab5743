// The files of this library's operator package, as CANN's runtime reads them: the list of a SoC's kernels, the kernels,
// and the library of tilings.
#pragma once

#include <map>
#include <string>

#include "cann/host/tiling_library.h"

namespace npu_cann {

// The package that contains this code as <package>/op_api/lib/libcust_opapi.so.
std::string own_package();
// Its folder as ASCEND_CUSTOM_OPP_PATH or CANN's vendors name it: the start of its kernels' paths.
std::string named_package();

// A package's kernels for a SoC, by operator and key: op_impl/ai_core/tbe/kernel/config/<soc>/binary_info_config.json
// (hicann/opbase src/nnopbase/individual_op/executor/indv_collector.cpp,
// NnopbaseCollectorReadDynamicKernelOpInfoConfig).
class KernelList {
public:
    KernelList(const std::string& package, const std::string& soc);
    // The own package's, read once for each SoC.
    static const KernelList& own(const std::string& soc);

    const std::string& path() const { return path_; }
    bool is_readable() const { return is_readable_; }
    // An operator without a listed kernel is not registered.
    bool names(const std::string& op_type) const { return kernels_.count(op_type) != 0; }
    // Path of the kernel's object; "" if it is not listed.
    std::string find(const std::string& op_type, const std::string& key) const;

private:
    std::string path_;
    bool is_readable_ = false;
    std::map<std::string, std::map<std::string, std::string>> kernels_;
};

// The name of the kernel in an object file. Reads the object and its description; if both are complete, only once.
// Throws Failure if the object is absent or empty (561113), the description is absent or not JSON (561108), or the
// object is incomplete (361001): hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp,
// NnopbaseKernelRegister.
std::string load_kernel(const std::string& op_type, const std::string& object);

// The own package's tilings; null if the library is absent or does not load. Loaded once (hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseLoadTilingSo).
const TilingLibrary* tiling_library();
std::string tiling_library_path();

// The own package's compiled kernels, as ascend_sim_find_kernel() takes them. No folder of CANN's.
const std::string& kernel_folder();

}  // namespace npu_cann
