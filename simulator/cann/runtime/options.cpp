// Compile options. They are stored and returned but have no effect, because the simulation does not compile operators.
#include <cstring>
#include <map>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"

namespace simulated_cann {
namespace {

struct Options {
    // By aclCompileOpt; 10 is ACL_OP_JIT_COMPILE, off because operators are never compiled at run time.
    std::map<int, std::string> texts{{10, "disable"}};
};

const ForkLock options_lock(LockRank::kLast, &Locked<Options>::mutex());

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclSetCompileopt(int option, const char* value) {
    if (!value) return fail(kInvalidParam, __func__, "value must not be null.");
    Locked<Options>()->texts[option] = value;
    return kSuccess;
}
NPU_CANN_API size_t aclGetCompileoptSize(int option) { return Locked<Options>()->texts[option].size() + 1; }
NPU_CANN_API aclError aclGetCompileopt(int option, char* value, size_t bytes) {
    Locked<Options> options;
    const std::string& text = options->texts[option];
    if (!value || bytes < text.size() + 1)
        return fail(kInvalidParam, __func__,
                    "value must not be null, and length must be at least the result of aclGetCompileoptSize.");
    std::memcpy(value, text.c_str(), text.size() + 1);
    return kSuccess;
}
