// The files of this library's operator package, as CANN's runtime reads them: the list of an SoC's kernels, the
// kernels, and the tiling library.
#pragma once

#include <map>
#include <string>

#include "cann/host/tiling_library.h"

namespace simulated_cann {

// Path of the package that contains this library as <package>/op_api/lib/libcust_opapi.so, with its links resolved;
// "" if it is not known.
std::string resolved_package();
// The path of the same folder in ASCEND_CUSTOM_OPP_PATH or vendors/config.ini, with its links; resolved_package() if
// neither lists it. Kernels' paths begin with it.
std::string configured_package();

// A package's kernels for an SoC, by operator and simplifiedKey:
// op_impl/ai_core/tbe/kernel/config/<soc>/binary_info_config.json (hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseCollectorReadDynamicKernelOpInfoConfig).
class KernelList {
public:
    KernelList(const std::string& package, const std::string& soc);
    // This package's list for an SoC, which is read once.
    static const KernelList& own(const std::string& soc);

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

// The name of the entry in a kernel's object file, kept by path after the first success. Throws Failure if the object
// is absent or empty (561113), if its description is absent or not JSON (561108), or if the object is truncated or not
// one of a simulated package (361001): hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp,
// NnopbaseKernelRegister.
std::string kernel_entry_name(const std::string& op_type, const std::string& object);

// The tiling library of this package, loaded once; null if it is absent or does not load (hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseLoadTilingSo).
const TilingLibrary* tiling_library();
// The path of that library; "" if the machine's name is unknown.
std::string tiling_library_path();

// Folder of the kernels that are compiled for the simulator, for ascend_sim_find_kernel(). A real package has none.
const std::string& kernel_folder();

}  // namespace simulated_cann
