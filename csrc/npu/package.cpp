#include "csrc/npu/package.h"

#include <ATen/ATen.h>
#include <acl/acl.h>
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "csrc/npu/launch.h"

namespace npu_rope {
namespace {

constexpr const char* kLibrary = "/op_api/lib/libcust_opapi.so";
constexpr const char* kInterface = "/op_api/include/aclnn_npu_rope.h";
constexpr const char* kBuild =
    "Build the package where CANN is and install npu_rope again: "
    "scripts/build_npu.sh && pip install --no-build-isolation --force-reinstall --no-deps .";

// The folders that CANN and torch_npu search for packages, in their order: ASCEND_CUSTOM_OPP_PATH, then the vendors in
// the list in CANN's own folder (op_api_common.cpp, get_custom_lib_path and get_default_custom_lib_path).
std::vector<std::string> package_folders() {
    std::vector<std::string> folders;
    auto add_folders = [&](const std::string& list, char separator, const std::string& parent) {
        std::istringstream names(list);
        for (std::string name; std::getline(names, name, separator);)
            if (!name.empty()) folders.push_back(parent + name);
    };
    const char *custom = std::getenv("ASCEND_CUSTOM_OPP_PATH"), *opp = std::getenv("ASCEND_OPP_PATH");
    add_folders(custom == nullptr ? "" : custom, ':', "");
    const std::string vendors = std::string(opp == nullptr ? "" : opp) + "/vendors/";
    std::ifstream config(vendors + "config.ini");
    for (std::string line; std::getline(config, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        // Same parsing as CANN: hicann/opbase indv_collector.cpp, NnopbaseReadConfigFile.
        if (line.rfind('#', 0) == 0 || line.find("priority") == std::string::npos) continue;
        const size_t equal = line.find('=');
        if (equal == std::string::npos) break;
        add_folders(line.substr(equal + 1), ',', vendors);
        break;
    }
    return folders;
}

// Whether a library is complete. dlopen maps a truncated file, and a read of its missing parts ends the process with
// SIGBUS.
bool is_complete(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const auto bytes = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
    Elf64_Ehdr header;
    if (!file.seekg(0).read(reinterpret_cast<char*>(&header), sizeof header)) return false;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr)) return false;
    for (uint16_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr part;
        if (!file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof part))) return false;
        if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) return false;
        if (part.p_filesz > bytes || part.p_offset > bytes - part.p_filesz) return false;
    }
    return true;
}

struct Package {
    std::string folder;
    void* library = nullptr;
};

// Opens the first of npu_rope's packages. A package whose library does not load is an error, because CANN would still
// use its kernels.
Package open_package() {
    for (const std::string& folder : package_folders()) {
        std::error_code ignored;  // CANN also skips a folder that it cannot read
        if (!std::filesystem::exists(folder + kInterface, ignored)) continue;
        const std::string path = folder + kLibrary;
        TORCH_CHECK(is_complete(path), "[npu] operator package must be whole but got ", path,
                    ", which is absent or truncated.\n", kBuild);
        void* library = dlopen(path.c_str(), RTLD_LAZY);
        TORCH_CHECK(library != nullptr, "[npu] operator package must load but got ", dlerror(), ".\n", kBuild);
        return {folder, library};
    }
    TORCH_CHECK(false,
                "[npu] operator package must be in ASCEND_CUSTOM_OPP_PATH or installed into CANN but got none. "
                "Importing npu_rope adds the package inside npu_rope, if there is one, to the variable: "
                "a program that sets the variable later must keep that folder. If there is no package in npu_rope:\n",
                kBuild);
}

void* find(const Package& package, const char* name) {
    void* function = dlsym(package.library, name);
    TORCH_CHECK(function != nullptr, "[npu] operator package must have ", name, " but got the package ", package.folder,
                ", which does not: another version of npu_rope made it.\n", kBuild);
    return function;
}

using RopeWorkspaceSize = int (*)(const aclTensor*, const aclTensor*, const aclTensor*, int64_t, int64_t, int64_t,
                                  double, double, double, double, double, double, const aclIntArray*, bool, int64_t,
                                  const aclIntArray*, const aclTensor*, uint64_t*, aclOpExecutor**);

// The possible causes of an error of the smallest call. CANN does not support a path with ".o" in it: hicann/opbase
// src/nnopbase/individual_op/executor/indv_bininfo.cpp, NnopbaseGetKernelJsonPath.
std::string possible_causes(const std::string& folder) {
    std::string causes = "The cause is one of these:\n";
    if (folder.find(".o") != std::string::npos)
        causes +=
            "- the path of the package contains .o, where CANN cuts the path of a kernel "
            "(install npu_rope in another folder);\n";
    return causes +
           "- the package has no kernels for this chip (build it for its SoC);\n"
           "- a part of it is absent or truncated (build it again);\n"
           "- ASCEND_OPP_PATH is not set (source CANN's set_env.sh);\n"
           "- CANN read ASCEND_CUSTOM_OPP_PATH before npu_rope was imported: it does so once, at the process's "
           "first operator of a generated package (import npu_rope before that, or set the variable).\n"
           "If the package is not npu_rope's own, build it again "
           "or remove that folder from ASCEND_CUSTOM_OPP_PATH or CANN's vendors.\n";
}

// Runs the first phase of a call of the smallest size. torch_npu ignores the status of a first phase: without an
// executor the error appears later, in torch_npu's queue, and results are wrong.
void check_first_phase(const Package& package) {
    const at::TensorOptions on_npu = at::TensorOptions(at::kPrivateUse1);
    const at::Tensor x = at::empty({1, 1, 1, 16}, on_npu.dtype(at::kHalf));
    const at::Tensor positions = at::empty({1}, on_npu.dtype(at::kInt)), out = at::empty_like(x);
    const std::vector<int64_t> zeros(4, 0);
    const at::IntArrayRef sections(zeros), strides(zeros.data(), 1);  // 0: all tensors are contiguous
    uint64_t workspace_bytes = 0;
    aclOpExecutor* executor = nullptr;
    auto converted = ConvertTypes(x, positions, out, sections, strides);
    const auto [acl_x, acl_positions, acl_out, acl_sections, acl_strides] = converted;
    auto prepare = reinterpret_cast<RopeWorkspaceSize>(find(package, "aclnnNpuRopeGetWorkspaceSize"));
    const int status = prepare(acl_x, acl_positions, nullptr, 16, 0, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0, acl_sections,
                               true, 0, acl_strides, acl_out, &workspace_bytes, &executor);
    const char* message = status == 0 ? nullptr : aclGetRecentErrMsg();
    // Declared in CANN's aclnn/acl_meta.h, which torch_npu does not contain.
    auto destroy = reinterpret_cast<int (*)(aclOpExecutor*)>(GetOpApiFuncAddr("aclDestroyAclOpExecutor"));
    if (executor != nullptr && destroy != nullptr) destroy(executor);
    ReleaseConvertTypes(converted);
    TORCH_CHECK(status == 0, "[npu] operator package must be one that CANN runs on this chip but got status ", status,
                " for the package ", package.folder, ".\n", message == nullptr ? "" : message, "\n",
                possible_causes(package.folder), kBuild);
}

const Package& package() {
    static Package opened = open_package();
    static const bool checked = [] {
        check_first_phase(opened);
        return true;
    }();
    static_cast<void>(checked);
    return opened;
}

}  // namespace

void GetApiFunc(const char* api_name, const char* workspace_api_name, void*& api, void*& workspace_api) {
    if (api != nullptr && workspace_api != nullptr) return;
    workspace_api = find(package(), workspace_api_name);
    api = find(package(), api_name);
}

}  // namespace npu_rope
