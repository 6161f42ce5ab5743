#include "cann/host/package_files.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>

#include "cann/files.h"
#include "cann/host/call_tensors.h"
#include "cann/host/json_reader.h"
#include "cann/host/kernel_file.h"
#include "cann/host/op_call.h"
#include "cann/runtime/objects.h"

namespace simulated_cann {
namespace {

constexpr const char* kTbeFolder = "/op_impl/ai_core/tbe/";
using Kind = JsonValue::Kind;

// The last folder has the name of the machine's architecture (asc-tools' func.cmake). CANN reads this name and `linux`
// from scene.info. "" if the machine's name is unknown.
std::string tiling_library_path() {
    utsname machine;
    if (uname(&machine) != 0) return "";
    return resolved_package() + kTbeFolder + "op_tiling/lib/linux/" + machine.machine + "/libcust_opmaster_rt2.0.so";
}

}  // namespace

std::string resolved_package() {
    Dl_info found;
    if (!dladdr(reinterpret_cast<const void*>(&resolved_package), &found) || !found.dli_fname) return "";
    const std::filesystem::path library = resolved_path(found.dli_fname);
    return library.parent_path().parent_path().parent_path().string();
}

// CANN does not resolve the links of the folder's path: hicann/opbase
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseGetCustomOppPath.
std::string configured_package() {
    const std::string own = resolved_package();
    const OperatorPackages& packages = operator_packages();
    const auto found = std::find(packages.folders.begin(), packages.folders.end(), own);
    return found == packages.folders.end() ? own : packages.configured_paths.at(found - packages.folders.begin());
}

// Skips an entry that lacks a key, a core type or a path; CANN also logs a warning. If two entries have the same key,
// the first one counts. Unlike CANN, requires that the document is a JSON object.
KernelList::KernelList(const std::string& package, const std::string& soc)
    : path_(package + kTbeFolder + "kernel/config/" + soc + "/binary_info_config.json") {
    const std::optional<std::string> text = read_regular_file(path_);
    const std::optional<JsonValue> document = text ? parse_json(*text) : std::nullopt;
    if (!document || document->kind != Kind::kObject) return;
    is_readable_ = true;
    for (const auto& [op_type, operator_entry] : document->members) {
        const JsonValue* binary_list = operator_entry.find("binaryList", Kind::kList);
        if (!binary_list) continue;
        for (const JsonValue& kernel_entry : binary_list->items) {
            const JsonValue* object_path = kernel_entry.find("binPath", Kind::kString);
            if (!object_path || !kernel_entry.find("coreType", Kind::kNumber)) continue;
            const std::string path = package + kTbeFolder + "kernel/" + object_path->text;
            if (const JsonValue* key = kernel_entry.find("simplifiedKey", Kind::kString))
                kernels_[op_type].emplace(key->text, path);
            if (const JsonValue* keys = kernel_entry.find("simplifiedKey", Kind::kList))
                for (const JsonValue& key : keys->items) kernels_[op_type].emplace(key.text, path);
        }
    }
}

const KernelList& KernelList::of_own_package(const std::string& soc) {
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

std::string kernel_entry_name(const std::string& op_type, const std::string& object_path) {
    static std::mutex mutex;
    static std::map<std::string, std::string> entry_by_object;
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = entry_by_object.find(object_path); found != entry_by_object.end()) return found->second;
    const std::string message_start = "[" + op_type + "] operator package must have ";
    const std::optional<std::string> bytes = read_regular_file(object_path);
    if (!bytes || bytes->empty())
        throw Failure{kBadKernelFile, message_start + "the kernel that it lists but got " + object_path +
                                          ", which is " + (bytes ? "empty." : "absent.")};
    // CANN replaces everything from the first ".o" of the path on, even if a folder's name contains it: hicann/opbase
    // src/nnopbase/individual_op/executor/indv_bininfo.cpp, NnopbaseGetKernelJsonPath.
    const size_t extension_position = object_path.find(".o");
    const std::string description_path = object_path.substr(0, extension_position + 1) + "json";
    const std::optional<std::string> description = read_regular_file(description_path);
    if (!description || !parse_json(*description))
        throw Failure{kBadJson, message_start + "a description of each kernel but got " + description_path +
                                    ", which is " + (description ? "not JSON." : "absent.") +
                                    (extension_position + 2 == object_path.size()
                                         ? ""
                                         : " CANN cuts the path at the first .o of " + object_path +
                                               ": install the package in another folder.")};
    const std::string entry = read_entry_name(*bytes);
    if (entry.empty())
        throw Failure{kRuntimeFailed, message_start + "whole kernels but got " + object_path +
                                          ", which is truncated or does not belong to a simulated package."};
    entry_by_object.emplace(object_path, entry);
    return entry;
}

const std::string& kernel_folder() {
    static const std::string folder = resolved_package() + "/sim_kernels";
    return folder;
}

const TilingLibrary& tiling_library(const std::string& op_type) {
    static std::atomic<const TilingLibrary*> loaded{nullptr};
    static std::mutex mutex;
    static bool is_absent = false;
    if (const TilingLibrary* library = loaded) return *library;
    const std::lock_guard<std::mutex> lock(mutex);
    const std::string path = tiling_library_path();
    std::string reason = "which is absent or truncated";
    // dlopen of a truncated file ends the process.
    const std::optional<std::string> bytes = is_absent ? std::nullopt : read_regular_file(path);
    is_absent = !bytes || !is_whole_elf(*bytes);
    if (!is_absent) {
        void* opened = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
        using Entry = const TilingLibrary* (*)();
        if (auto entry = opened ? reinterpret_cast<Entry>(dlsym(opened, kTilingLibraryEntry)) : nullptr)
            return *(loaded = entry());
        const char* error = dlerror();
        reason = error ? error : "which is not one of a simulated package";
    }
    throw Failure{kTilingFailed, "[" + op_type +
                                     "] operator package must have a library of tilings that loads but got " + path +
                                     ", " + reason + "."};
}

}  // namespace simulated_cann
