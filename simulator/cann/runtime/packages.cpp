// The operator packages that CANN reads. CANN reads them once in a process, at the first call of an operator of a
// package (hicann/opbase src/nnopbase/individual_op/api/individual_op_api.cpp, NnopbaseInit;
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseGetCustomOppPath and NnopbaseGetOppPath).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "cann/files.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"

namespace simulated_cann {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    for (size_t first = 0, end; first < text.size(); first = end + 1) {
        end = std::min(text.find(separator, first), text.size());
        if (end > first) parts.push_back(text.substr(first, end - first));
    }
    return parts;
}

// Whether CANN's own operators are a package: $ASCEND_HOME_PATH/opp_latest exists, or ASCEND_OPP_PATH is not empty
// (indv_collector.cpp, GetBuiltInBasePath).
bool has_built_in_package(const char* opp) {
    const char* home = std::getenv("ASCEND_HOME_PATH");
    std::error_code error;
    return (home && std::filesystem::exists(std::string(home) + "/opp_latest", error)) || (opp && *opp);
}

// Returns the vendors in config.ini: the names after "=" in the first line that contains "priority" and is not a
// comment (indv_collector.cpp, NnopbaseReadConfigFile).
std::vector<std::string> read_vendor_names(const std::string& config) {
    for (std::string line : split(config, '\n')) {
        if (line.back() == '\r') line.pop_back();
        if (line.rfind('#', 0) == 0 || line.find("priority") == std::string::npos) continue;
        const size_t equal = line.find('=');
        return equal == std::string::npos ? std::vector<std::string>{} : split(line.substr(equal + 1), ',');
    }
    return {};
}

OperatorPackages read_packages() {
    const char* custom = std::getenv("ASCEND_CUSTOM_OPP_PATH");
    std::vector<std::string> candidates = split(custom ? custom : "", ':');
    const char* opp = std::getenv("ASCEND_OPP_PATH");
    if (opp) {
        const std::string vendors = std::string(opp) + "/vendors";
        const std::string config = read_file(vendors + "/config.ini").value_or("");
        for (const std::string& name : read_vendor_names(config)) candidates.push_back(vendors + "/" + name);
    }
    OperatorPackages packages;
    packages.has_built_in = has_built_in_package(opp);
    for (const std::string& folder : candidates) {
        const std::string resolved = resolved_path(folder);
        if (!std::filesystem::is_directory(resolved)) continue;
        packages.folders.push_back(resolved);
        packages.configured_paths.push_back(folder);
    }
    return packages;
}

std::mutex packages_mutex;
const ForkLock packages_lock(LockRank::kLast, &packages_mutex);

}  // namespace

const OperatorPackages& operator_packages() {
    if (host_calls()) return host_packages();
    static const OperatorPackages none;
    static OperatorPackages packages;  // changes only once, because callers read it without the lock
    static bool is_read = false;
    std::lock_guard<std::mutex> lock(packages_mutex);
    if (is_read) return packages;
    OperatorPackages found = read_packages();
    if (found.folders.empty() && !found.has_built_in) return none;
    packages = std::move(found);
    is_read = true;
    return packages;
}

}  // namespace simulated_cann
