// Lookup of compiled kernels by the names of their entries, <kernel>__<soc>__<types>: a library holds a kernel for an
// SoC.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "simulator/include/npu_sim.h"

namespace {

// Libraries of kernels that replace built-in ones, so that a changed kernel runs without a rebuild:
// paths, separated by colons.
constexpr const char* kOverride = "NPU_ROPE_SIM_KERNELS";

void* find_override(const char* entry) {
    const char* list = std::getenv(kOverride);
    for (const char* p = list ? list : ""; *p;) {
        const size_t n = std::strcspn(p, ":");
        const std::string path(p, n);
        p += n + (p[n] != 0);
        // Not closed, because the entry is called later. A second dlopen of a path costs nothing.
        void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (void* found = library ? dlsym(library, entry) : nullptr) return found;
    }
    return nullptr;
}

// The path at which cmake/NpuRopeSim.cmake puts a kernel's library, beside this one.
std::string kernel_path(const std::string& entry) {
    const size_t soc = entry.find("__"), types = soc == std::string::npos ? soc : entry.find("__", soc + 2);
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&kernel_path), &info);
    const std::string self = info.dli_fname ? info.dli_fname : "";
    return self.substr(0, self.rfind('/') + 1) + "npu_rope_sim_kernels/" + entry.substr(0, types) + ".so";
}

}  // namespace

extern "C" void* npu_sim_find_kernel(const char* entry) {
    if (void* found = find_override(entry)) return found;
    void* library = dlopen(kernel_path(entry).c_str(), RTLD_LAZY | RTLD_LOCAL);
    return library ? dlsym(library, entry) : nullptr;
}
