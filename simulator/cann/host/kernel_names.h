// The names of a definition's kernels, in a package's lists and in the simulator.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cann/host/def_reader.h"

namespace simulated_cann {

// The kernel's key in binary_info_config.json: type and format of the required tensors (asc-devkit
// tools/build/asc_opc/python/asc_opc_tool/simplified_key_utils.py; hicann/opbase indv_executor_ext.cpp,
// NnopbaseExecutorGenDynamicKey).
std::string simplified_key(const OpRecord& def, size_t column);

// The inputs, then the outputs that are not inputs.
std::vector<const ParamRecord*> distinct_parameters(const OpRecord& def);

// The types of these parameters in a column, as in the kernel's file name.
std::string column_name(const OpRecord& def, size_t column);

// The SoC whose kernels an SoC runs: ascend910_93 runs those of ascend910b. The folder sim_kernels has one library for
// each such SoC.
std::string kernel_soc(const std::string& soc);

// The name of a kernel's function in its library.
std::string kernel_entry(const OpRecord& def, size_t column);

// Whether the simulator supports an SoC.
bool is_simulated(const std::string& soc);

// The format of a parameter in a column.
ge::Format format_of(const ParamRecord& p, size_t column);

}  // namespace simulated_cann
