#include "cann/host/kernel_file.h"

#include <elf.h>

#include <cstring>
#include <vector>

namespace simulated_cann {
namespace {

constexpr const char* kSectionName = ".simulated.kernel";

// Returns the section table of an ELF file; empty if the file is incomplete.
std::vector<Elf64_Shdr> read_section_table(const std::string& bytes) {
    Elf64_Ehdr header;
    if (bytes.size() < sizeof header) return {};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return {};
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return {};
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    const size_t table_bytes = sections.size() * sizeof(Elf64_Shdr);
    if (header.e_shoff > bytes.size() || table_bytes > bytes.size() - header.e_shoff) return {};
    std::memcpy(sections.data(), bytes.data() + header.e_shoff, table_bytes);
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
        if (section.sh_offset > bytes.size() || section.sh_size > bytes.size() - section.sh_offset) return {};
    }
    return sections;
}

}  // namespace

std::string make_object_file(const std::string& entry) {
    // Sections: 0 is the empty one that ELF requires, 1 has the entry's name, 2 has the names of sections.
    const std::string names = std::string(1, '\0') + kSectionName + '\0' + ".shstrtab" + '\0';
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    header.e_shstrndx = 2;
    header.e_shoff = sizeof header + entry.size() + names.size();
    Elf64_Shdr sections[3] = {};
    sections[1].sh_name = 1;
    sections[1].sh_type = SHT_PROGBITS;
    sections[1].sh_offset = sizeof header;
    sections[1].sh_size = entry.size();
    sections[2].sh_name = static_cast<Elf64_Word>(2 + std::strlen(kSectionName));
    sections[2].sh_type = SHT_STRTAB;
    sections[2].sh_offset = sizeof header + entry.size();
    sections[2].sh_size = names.size();
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    return bytes + entry + names + std::string(reinterpret_cast<const char*>(sections), sizeof sections);
}

std::string read_entry_name(const std::string& bytes) {
    const std::vector<Elf64_Shdr> sections = read_section_table(bytes);
    if (sections.empty()) return "";
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const Elf64_Shdr& strings = sections[header.e_shstrndx];
    const std::string names = bytes.substr(strings.sh_offset, strings.sh_size);
    for (const Elf64_Shdr& section : sections)
        if (section.sh_name < names.size() && names.c_str() + section.sh_name == std::string(kSectionName))
            return bytes.substr(section.sh_offset, section.sh_size);
    return "";
}

bool is_whole_elf(const std::string& bytes) { return !read_section_table(bytes).empty(); }

}  // namespace simulated_cann
