// Functions that write a definition's kernels. For the simulator, they write the source to compile. For an operator
// package, they write the kernels' object files, their descriptions, and the list of an SoC's kernels. The package has
// the layout of CANN's project template (hicann/asc-tools utils/templates, ascendc_ops_config.py).
#pragma once

#include <string>

#include "cann/host/def_reader.h"

namespace simulated_cann {

// Writes the kernels' files below <package>/op_impl/ai_core/tbe/kernel/<soc>/<operator>. Returns the operator's entry
// of the list, as JSON.
std::string write_kernels(const std::string& package, const OpRecord& def);

// Adds a definition's kernels to the source of an SoC's library. The source includes <operator>.cpp once for each
// column. Macros give the types of each parameter, DTYPE_<NAME> and ORIG_DTYPE_<NAME> (hicann/asc-devkit
// cmake/asc/fwk_modules/util/ascendc_impl_build.py, get_dtype_fmt_options). Another macro renames the kernel function
// to its entry.
// CANN compiles each column separately. Here one compile includes the headers once for all columns of all operators,
// which takes a tenth of the time. So no header may depend on a column's macros, and no two operators may define the
// same name.
void add_kernels_to_source(const OpRecord& def, std::string* source);

// Writes the list of an SoC's kernels: a JSON object of the entries from write_kernels(), by operator.
void write_kernel_list(const std::string& package, const std::string& soc, const std::string& list);

// Writes the text unless the file already contains it, so that a build does not compile the file again. Throws if the
// file cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace simulated_cann
