// A kernel's object file in the simulated operator package: an ELF file without device code. It holds the entry's name,
// by which the simulator finds the kernel in a library of the package's folder sim_kernels.
#pragma once

#include <string>

namespace simulated_cann {

// The bytes of the object file of this entry.
std::string kernel_object(const std::string& entry);

// The entry's name; "" if the bytes are not a complete ELF file with such a name. CANN's runtime refuses an object
// whose section table or sections extend beyond its end (hicann/runtime src/runtime/core/src/kernel/elf.cc,
// Get64bitSectionHeaders).
std::string entry_of_object(const std::string& bytes);

// Whether a file is an ELF file with all of its sections.
bool is_whole_elf(const std::string& bytes);

}  // namespace simulated_cann
