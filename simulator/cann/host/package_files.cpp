#include "cann/host/package_files.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>

#include "cann/host/call_tensors.h"
#include "cann/host/json_reader.h"
#include "cann/host/kernel_file.h"
#include "cann/host/op_call.h"
#include "cann/runtime/objects.h"

namespace simulated_cann {
namespace {

constexpr const char* kTbe = "/op_impl/ai_core/tbe/";
using Kind = JsonValue::Kind;

// Returns nullopt if the file cannot be read.
std::optional<std::string> read_file(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) return std::nullopt;
    std::ifstream file(path, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    if (!file) return std::nullopt;
    return bytes.str();
}

}  // namespace

std::string resolved_package() {
    Dl_info found;
    if (!dladdr(reinterpret_cast<const void*>(&resolved_package), &found) || !found.dli_fname) return "";
    std::error_code none;
    const auto library = std::filesystem::canonical(found.dli_fname, none);
    return none ? "" : library.parent_path().parent_path().parent_path().string();
}

// CANN does not resolve the links of the folder's path: hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseGetCustomOppPath.
std::string configured_package() {
    const std::string own = resolved_package();
    const OperatorPackages& packages = operator_packages();
    const auto found = std::find(packages.folders.begin(), packages.folders.end(), own);
    return found == packages.folders.end() ? own : packages.named.at(found - packages.folders.begin());
}

// Skips an entry that lacks a key, a core type or a path; CANN also logs a warning. A repeated key does not replace the
// first kernel. CANN does not check that the document is an object; this rule is stricter.
KernelList::KernelList(const std::string& package, const std::string& soc)
    : path_(package + kTbe + "kernel/config/" + soc + "/binary_info_config.json") {
    const std::optional<std::string> text = read_file(path_);
    const std::optional<JsonValue> document = text ? read_json(*text) : std::nullopt;
    if (!document || document->kind != Kind::kObject) return;
    is_readable_ = true;
    for (const auto& [op_type, described] : document->members) {
        const JsonValue* listed = described.find("binaryList", Kind::kList);
        if (!listed) continue;
        for (const JsonValue& entry : listed->items) {
            const JsonValue* object = entry.find("binPath", Kind::kString);
            if (!object || !entry.find("coreType", Kind::kNumber)) continue;
            const std::string path = package + kTbe + "kernel/" + object->text;
            if (const JsonValue* key = entry.find("simplifiedKey", Kind::kString))
                kernels_[op_type].emplace(key->text, path);
            if (const JsonValue* keys = entry.find("simplifiedKey", Kind::kList))
                for (const JsonValue& key : keys->items) kernels_[op_type].emplace(key.text, path);
        }
    }
}

const KernelList& KernelList::own(const std::string& soc) {
    static std::mutex mutex;
    static std::map<std::string, KernelList> lists;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = lists.find(soc);
    return found != lists.end() ? found->second
                                : lists.emplace(soc, KernelList(configured_package(), soc)).first->second;
}

std::string KernelList::find(const std::string& op_type, const std::string& key) const {
    const auto kernels = kernels_.find(op_type);
    if (kernels == kernels_.end()) return "";
    const auto kernel = kernels->second.find(key);
    return kernel == kernels->second.end() ? "" : kernel->second;
}

std::string kernel_entry_name(const std::string& op_type, const std::string& object) {
    static std::mutex mutex;
    static std::map<std::string, std::string> loaded;
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = loaded.find(object); found != loaded.end()) return found->second;
    const std::string rule = "[" + op_type + "] operator package must have ";
    const std::optional<std::string> bytes = read_file(object);
    if (!bytes || bytes->empty())
        throw Failure{kBadKernelFile, rule + "the kernel that it lists but got " + object + ", which is " +
                                          (bytes ? "empty." : "absent.")};
    // CANN replaces everything from the first ".o" of the path on, even if a folder's name contains it: hicann/opbase
    // src/nnopbase/individual_op/executor/indv_bininfo.cpp, NnopbaseGetKernelJsonPath.
    const size_t cut = object.find(".o");
    const std::string description = object.substr(0, cut + 1) + "json";
    const std::optional<std::string> text = read_file(description);
    if (!text || !read_json(*text))
        throw Failure{kBadJson, rule + "a description of each kernel but got " + description + ", which is " +
                                    (text ? "no JSON." : "absent.") +
                                    (cut + 2 == object.size() ? ""
                                                              : " CANN cuts the path at the first .o of " + object +
                                                                    ": install the package in another folder.")};
    const std::string entry = entry_of_object(*bytes);
    if (entry.empty())
        throw Failure{kRuntimeFailed, rule + "whole kernels but got " + object +
                                          ", which is truncated or not one of the simulated package."};
    loaded[object] = entry;
    return entry;
}

// The last folder is named after the machine (asc-tools' func.cmake). CANN reads `linux` and its name from scene.info.
std::string tiling_library_path() {
    utsname machine;
    if (uname(&machine) != 0) return "";
    return resolved_package() + kTbe + "op_tiling/lib/linux/" + machine.machine + "/libcust_opmaster_rt2.0.so";
}

const std::string& kernel_folder() {
    static const std::string folder = resolved_package() + "/sim_kernels";
    return folder;
}

const TilingLibrary* tiling_library() {
    static const TilingLibrary* const library = []() -> const TilingLibrary* {
        const std::string path = tiling_library_path();
        // dlopen of a truncated file ends the process.
        const std::optional<std::string> bytes = read_file(path);
        if (!bytes || !is_whole_elf(*bytes)) return nullptr;
        void* opened = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
        auto entry =
            opened ? reinterpret_cast<const TilingLibrary* (*)()>(dlsym(opened, kTilingLibraryEntry)) : nullptr;
        return entry ? entry() : nullptr;
    }();
    return library;
}

}  // namespace simulated_cann
