// Names of a definition's kernels: in the list of a package, and in the simulator's libraries.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cann/host/def_reader.h"

namespace simulated_cann {

// The key of a column's kernel in binary_info_config.json: types and formats of the required tensors (asc-devkit
// tools/build/asc_opc/python/asc_opc_tool/simplified_key_utils.py; hicann/opbase indv_executor_ext.cpp,
// NnopbaseExecutorGenDynamicKey).
std::string simplified_key(const OpRecord& def, size_t column);

// The inputs, then the outputs that are not inputs.
std::vector<const ParamRecord*> distinct_parameters(const OpRecord& def);

// The types of the distinct parameters in a column, joined by "_"; part of the kernel's file name.
std::string column_name(const OpRecord& def, size_t column);

// Returns the SoC for which the kernels of `soc` are compiled: ascend910b for ascend910_93, otherwise `soc`. The folder
// sim_kernels has one library for each returned SoC.
std::string kernel_soc(const std::string& soc);

// The name of a kernel's function in its library.
std::string kernel_entry(const OpRecord& def, size_t column);

// Whether the simulator supports an SoC.
bool is_simulated(const std::string& soc);

// The format of a parameter in a column.
ge::Format format_of(const ParamRecord& param, size_t column);

}  // namespace simulated_cann
