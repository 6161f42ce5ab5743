// The tiling structs of an operator's kernel, from the classes that its host code registers.
#pragma once

#include <string>

namespace simulated_cann {

// Returns the text of a header for the compiler's option -include. The header has the structs of the classes that are
// registered for the operator and for its keys (<operator>_<key>), and the structs inside them. It also defines
// AscendSimDefaultTiling, the type of a GET_TILING_DATA without a type: the struct of the operator, also for a key that
// has its own struct (page GET_TILING_DATA). Returns "" if the operator has no class.
// Throws std::runtime_error if a struct inside another one is not registered as <struct>Op, which CANN requires.
//
// Source: asc-devkit tools/build/asc_op_compile_base/asc_op_compiler/get_op_tiling.py, get_struct_tiling_info and
// generate_dynamic_tiling_struct_file. Structs of library functions are those of kernel_tiling/kernel_tiling.h.
std::string kernel_header(const std::string& op_type);

}  // namespace simulated_cann
