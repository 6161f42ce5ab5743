// Lookup of compiled kernels by the names of their entries, <kernel>__<soc>__<types>. A library holds all entries of an
// SoC.
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>

#include "include/ascend_sim.h"

namespace {

// The environment variable with paths of kernel libraries, separated by colons. They replace those of the folder, so
// that a changed kernel runs without a rebuild.
constexpr const char* kOverride = "ASCEND_SIM_KERNELS";

// Makes this library's functions visible to kernel libraries even if the process loaded it with RTLD_LOCAL. A kernel
// library that does not find this library by its name needs that.
bool make_global() {
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&make_global), &info);
    return info.dli_fname && dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

// Whether a library lacks bytes that dlopen would map. A read of the missing part ends the process. dlopen itself
// refuses files that are no libraries.
bool is_truncated(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const auto bytes = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
    Elf64_Ehdr header;
    if (!file.seekg(0).read(reinterpret_cast<char*>(&header), sizeof header)) return false;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr)) return false;
    for (uint16_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr part;
        if (!file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof part))) return true;
        if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) return true;
        if (part.p_filesz > bytes || part.p_offset > bytes - part.p_filesz) return true;
    }
    return false;
}

// Opens a library of kernels. After a failure, dlerror() has the reason, or none for a truncated library.
void* open_kernels(const std::string& path) {
    dlerror();
    return is_truncated(path) ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
}

// Prints at the end of the process that the named libraries replaced no kernel.
struct Replacements {
    std::mutex mutex;
    std::string libraries;
    std::string missing;  // the first entry that the libraries lack
    bool replaced_any = false;
    ~Replacements() {
        if (!replaced_any && !missing.empty())
            std::fprintf(stderr, "[sim] %s must have a kernel that this process ran, such as %s, but got %s.\n",
                         kOverride, missing.c_str(), libraries.c_str());
    }
};

// Sets *found to the entry, or to NULL if the named libraries lack it. False if one of them does not load.
bool find_override(const char* entry, void** found) {
    static Replacements replacements;
    const char* list = std::getenv(kOverride);
    if (!list || !*list) return true;
    for (const char* p = list; *p && !*found;) {
        const size_t n = std::strcspn(p, ":");
        const std::string path(p, n);
        p += n + (p[n] != 0);
        if (path.empty()) continue;
        // Not closed, because the entry is called later. A second dlopen of a path costs little.
        void* library = open_kernels(path);
        if (!library) return false;
        *found = dlsym(library, entry);
    }
    const std::lock_guard<std::mutex> lock(replacements.mutex);
    replacements.replaced_any = replacements.replaced_any || *found;
    if (!*found && replacements.missing.empty()) {
        replacements.libraries = list;
        replacements.missing = entry;
    }
    return true;
}

// The path at which cmake/AscendSimFunctions.cmake puts a kernel's library, <soc>.so.
std::string kernel_path(const std::string& folder, const std::string& entry) {
    const size_t kernel_end = entry.find("__");
    if (kernel_end == std::string::npos) return folder + "/" + entry + ".so";
    const size_t soc = kernel_end + 2;
    return folder + "/" + entry.substr(soc, entry.find("__", soc) - soc) + ".so";
}

}  // namespace

extern "C" void* ascend_sim_find_kernel(const char* folder, const char* entry) {
    [[maybe_unused]] static const bool is_global = make_global();
    void* found = nullptr;
    if (!find_override(entry, &found) || found) return found;
    void* library = open_kernels(kernel_path(folder, entry));
    return library ? dlsym(library, entry) : nullptr;
}
