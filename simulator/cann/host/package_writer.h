// Writes a definition's kernels into an operator package: their objects, their descriptions, and the list of a SoC's
// kernels, laid out as CANN's project template packs them (hicann/asc-tools utils/templates, ascendc_ops_config.py).
#pragma once

#include <string>

#include "cann/host/def_reader.h"

namespace npu_cann {

// Writes kernels below <package>/op_impl/ai_core/tbe/kernel/<soc>/<operator>. Returns the operator's list member.
std::string write_kernels(const std::string& package, const OpRecord& def);

// Writes the list of a SoC's kernels, which consists of those members.
void write_kernel_list(const std::string& package, const std::string& soc, const std::string& members);

// Throws where the file cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace npu_cann
