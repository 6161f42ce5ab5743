// The operator packages that CANN reads. CANN reads them once in a process, at the first call of an operator of a
// package (hicann/opbase src/nnopbase/individual_op/api/individual_op_api.cpp, NnopbaseInit;
// src/nnopbase/individual_op/executor/indv_collector.cpp, NnopbaseGetCustomOppPath and NnopbaseGetOppPath).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"

namespace simulated_cann {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        if (!part.empty()) parts.push_back(part);
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
std::vector<std::string> read_vendor_names(std::istream& config) {
    for (std::string line; std::getline(config, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
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
        std::ifstream config(vendors + "/config.ini");
        for (const std::string& name : read_vendor_names(config)) candidates.push_back(vendors + "/" + name);
    }
    OperatorPackages packages;
    packages.has_built_in = has_built_in_package(opp);
    for (const std::string& folder : candidates) {
        std::error_code error;
        const auto resolved = std::filesystem::canonical(folder, error);
        if (error || !std::filesystem::is_directory(resolved)) continue;
        packages.folders.push_back(resolved.string());
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
