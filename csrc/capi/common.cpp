#include "csrc/capi/common.h"

#include "csrc/cpu/isa.h"
#include "csrc/cpu/parallel.h"

namespace npu_rope {
namespace {
thread_local Check g_last_error;
// Made when the library is loaded, because later there may be no memory for it.
const Check g_no_memory = internal_error("npu_rope", "call", "have memory", "none");
}  // namespace

npu_rope_status report(const Check& check) {
    if (!check.ok()) g_last_error = check;
    return static_cast<npu_rope_status>(check.kind);
}

npu_rope_status report_no_memory() { return report(g_no_memory); }

}  // namespace npu_rope

extern "C" {

int32_t npu_rope_abi_version(void) { return NPU_ROPE_ABI_VERSION; }
const char* npu_rope_version(void) { return NPU_ROPE_VERSION; }
const char* npu_rope_last_error(void) { return npu_rope_last_error_parts().message; }
npu_rope_error npu_rope_last_error_parts(void) { return npu_rope::parts_of(npu_rope::g_last_error); }
const char* npu_rope_isa(void) { return npu_rope::isa_name(npu_rope::active_isa()); }
int32_t npu_rope_num_threads(void) { return npu_rope::num_threads(); }

int32_t npu_rope_force_isa(const char* name) {
    return npu_rope::guarded("force_isa", [&] {
        if (npu_rope::force_isa(name)) return npu_rope::Check{};
        return npu_rope::bad_value("force_isa", "name", "be an instruction set this machine runs", name);
    });
}

void npu_rope_set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn num_threads) {
    npu_rope::set_thread_pool(run, num_threads);
}

}  // extern "C"
