// A kernel's object file in the simulated operator package: an ELF file without device code. It holds the entry's name,
// by which the simulator finds the kernel in a library of the package's folder sim_kernels.
#pragma once

#include <string>

namespace simulated_cann {

// Returns the bytes of an object file that contains this entry name.
std::string make_object_file(const std::string& entry);

// Returns the entry's name; "" if the bytes are not a complete ELF file with such a name. CANN's runtime also refuses
// an object file if its section table or a section extends beyond its end (hicann/runtime
// src/runtime/core/src/kernel/elf.cc, Get64bitSectionHeaders).
std::string read_entry_name(const std::string& bytes);

// Whether a file is an ELF file with all of its sections.
bool is_whole_elf(const std::string& bytes);

}  // namespace simulated_cann
