// The names of a definition's kernels: those by which a package lists them, and those that the simulator runs.
#pragma once

#include <cstddef>
#include <string>

#include "simulator/cann/host/def_reader.h"

namespace npu_cann {

// The kernel's key in binary_info_config.json: type and format of the tensors that must be there (asc-devkit
// tools/build/asc_opc/python/asc_opc_tool/simplified_key_utils.py; hicann/opbase indv_executor_ext.cpp,
// NnopbaseExecutorGenDynamicKey).
std::string simplified_key(const OpRecord& def, size_t column);

// The types of a kernel's arguments, as its file's name has them.
std::string column_name(const OpRecord& def, size_t column);

// Of npu_rope_sim_kernels. SoCs of one instruction set share their kernels.
std::string kernel_entry(const OpRecord& def, size_t column);

// Whether the simulator has the definition's SoC.
bool is_simulated(const std::string& soc);

// The format of a parameter in a column.
ge::Format format_of(const ParamRecord& p, size_t column);

}  // namespace npu_cann
