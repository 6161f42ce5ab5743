// The names of a definition's kernels, in a package's lists and in the simulator.
#pragma once

#include <cstddef>
#include <string>

#include "cann/host/def_reader.h"

namespace npu_cann {

// The kernel's key in binary_info_config.json: type and format of the required tensors (asc-devkit
// tools/build/asc_opc/python/asc_opc_tool/simplified_key_utils.py; hicann/opbase indv_executor_ext.cpp,
// NnopbaseExecutorGenDynamicKey).
std::string simplified_key(const OpRecord& def, size_t column);

// The types of a kernel's arguments, as in its file name.
std::string column_name(const OpRecord& def, size_t column);

// The name of a kernel of sim_kernels. SoCs of one instruction set share kernels.
std::string kernel_entry(const OpRecord& def, size_t column);

// Whether the simulator supports the definition's SoC.
bool is_simulated(const std::string& soc);

// The format of a parameter in a column.
ge::Format format_of(const ParamRecord& p, size_t column);

}  // namespace npu_cann
