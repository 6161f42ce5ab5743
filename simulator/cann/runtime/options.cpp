// Compile options, stored and returned. The simulation does not compile operators.
#include <cstring>
#include <map>
#include <mutex>

#include "cann/runtime/api.h"

namespace npu_cann {
namespace {

std::mutex options_mutex;

// Options by aclCompileOpt; 10 is ACL_OP_JIT_COMPILE, off because operators are never compiled at run time.
std::map<int, std::string>& options() {
    static auto* all = new std::map<int, std::string>{{10, "disable"}};
    return *all;
}

}  // namespace
}  // namespace npu_cann

using namespace npu_cann;

NPU_CANN_API aclError aclSetCompileopt(int option, const char* value) {
    if (!value) return failed(kInvalidParam, __func__, "value must not be null.");
    std::lock_guard<std::mutex> lock(options_mutex);
    options()[option] = value;
    return kSuccess;
}
NPU_CANN_API size_t aclGetCompileoptSize(int option) {
    std::lock_guard<std::mutex> lock(options_mutex);
    return options()[option].size() + 1;
}
NPU_CANN_API aclError aclGetCompileopt(int option, char* value, size_t bytes) {
    std::lock_guard<std::mutex> lock(options_mutex);
    const std::string& text = options()[option];
    if (!value || bytes < text.size() + 1)
        return failed(kInvalidParam, __func__, "length must be at least aclGetCompileoptSize's.");
    std::memcpy(value, text.c_str(), text.size() + 1);
    return kSuccess;
}
