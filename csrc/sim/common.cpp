#include "csrc/sim/common.h"

#include <dlfcn.h>

#include <algorithm>

#include "csrc/core/dtype.h"
#include "src/profile.h"

namespace npu_rope {
namespace {

thread_local std::string g_sim_error;

// Lowest and highest byte of a view, from its data pointer.
void span_of(const npu_rope_tensor& t, int64_t* low, int64_t* high) {
    const int64_t item = dtype_bytes(t.dtype);
    *low = 0;
    *high = item;
    for (int32_t d = 0; d < t.ndim; ++d) {
        if (t.shape[d] == 0) {
            *low = *high = 0;
            return;
        }
        const int64_t reach = (t.shape[d] - 1) * t.stride[d] * item;
        (reach < 0 ? *low : *high) += reach;
    }
}

// The SoCs for which CMakeLists.txt compiles kernels. Other profiles exist for users' kernels.
constexpr const char* kSocs = "ascend910b,ascend910_93,ascend310p";

// The SoC for which a chip's kernels were compiled ("Ascend910B3" -> "ascend910b"); empty: none.
std::string kernel_soc(const char* soc) {
    const ascend_sim::Profile* p = ascend_sim::find_profile(soc);
    if (!p) return "";
    // All chips of 910B and 910_93 run the same binaries here: one instruction set, one UB.
    return p->arch == 220 ? "ascend910b" : p->arch == 200 ? "ascend310p" : p->soc;
}

// The kernels of the simulated operator package, beside this library.
std::string kernel_folder() {
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&kernel_folder), &info);
    const std::string self = info.dli_fname ? info.dli_fname : "";
    return self.substr(0, self.rfind('/') + 1) + "simcann_opp/sim_kernels";
}

bool has_kernels(const ascend_sim::Profile& p) { return p.arch == 220 || p.arch == 200; }

}  // namespace

void SimLaunch::add(const char* name, const npu_rope_tensor* t, ascend_sim_role role) {
    if (!t) {
        args_.push_back({-1, 0});
        return;
    }
    int64_t low, high;
    span_of(*t, &low, &high);
    memories_.push_back({name, static_cast<char*>(t->data) + low, uint64_t(high - low), role});
    args_.push_back({int32_t(memories_.size()) - 1, -low});
}

void SimLaunch::add_again(int32_t earlier) {
    int32_t& role = memories_[size_t(args_[size_t(earlier)].memory)].role;
    role = std::max<int32_t>(role, ASCEND_SIM_INOUT);
    args_.push_back(args_[size_t(earlier)]);
}

Check SimLaunch::run(const char* op, const std::string& kernel, const npu_rope_sim_options& options, uint32_t block_dim,
                     uint64_t tiling_key, const void* tiling, uint64_t tiling_bytes, uint64_t workspace_bytes) {
    void* entry = ascend_sim_find_kernel(kernel_folder().c_str(), kernel.c_str());
    if (!entry) {
        const char* why = dlerror();
        return bad_value(op, "soc must be one that has this kernel but got %s (%s).", options.soc,
                         why ? why : kernel.c_str());
    }
    if (options.trace_path && !ascend_sim_may_write(options.trace_path))
        return bad_value(op, "trace_path must be a file one may write but got %s.", options.trace_path);
    ascend_sim_launch launch = {};
    launch.soc = options.soc;
    launch.block_dim = block_dim;
    launch.tiling_key = tiling_key;
    launch.tiling = tiling;
    launch.tiling_bytes = tiling_bytes;
    launch.workspace_bytes = workspace_bytes;
    launch.lenient = options.lenient;
    launch.auto_sync = options.auto_sync;
    launch.saturate = options.saturate;
    launch.one_order = options.one_order;
    launch.trace_path = options.trace_path;
    launch.trace_cores = options.trace_cores;
    const int32_t status = ascend_sim_run(entry, memories_.data(), int32_t(memories_.size()), args_.data(),
                                          int32_t(args_.size()), &launch);
    if (status == ASCEND_SIM_OK) return {};
    if (status == ASCEND_SIM_BAD_CALL)
        return bad_value(op, "options must make a launch possible but got %s.", ascend_sim_message());
    return {Check::kInternal,
            "[" + std::string(op) + "] kernel must keep the simulator's rules but got " + ascend_sim_message()};
}

const char* kernel_type(const npu_rope_tensor& t) {
    constexpr const char* kNames[] = {"float", "half", "bfloat16_t", "double", "int32_t", "int64_t"};
    return kNames[t.dtype];
}

std::string kernel_name(const char* op, const char* soc, const std::vector<const char*>& column) {
    std::string name = "npu_" + std::string(op) + "__" + kernel_soc(soc) + "_";
    for (const char* type : column) name += "_" + std::string(type);
    return name;
}

Check platform_of(const char* op, const npu_rope_sim_options& options, Platform* platform) {
    const char* soc = options.soc;
    const ascend_sim::Profile* p = ascend_sim::find_profile(soc ? soc : "");
    if (!p || !has_kernels(*p)) {
        std::string names;
        for (int32_t i = 0; const ascend_sim::Profile* q = ascend_sim::profile_at(i); ++i)
            if (has_kernels(*q)) names += (names.empty() ? "" : ", ") + std::string(q->name);
        return bad_value(op, "soc must be one of %s but got %s%s.", names.c_str(), soc ? soc : "NULL",
                         p ? ", for which there are no kernels of npu_rope" : "");
    }
    if (options.most_cores < 0)
        return bad_value(op, "most_cores must be 0 (all) or a number of cores but got %d.", options.most_cores);
    platform->arch = p->arch;
    platform->cores = options.most_cores > 0 ? std::min(p->cores, options.most_cores) : p->cores;
    platform->ub_bytes = std::min(p->ub_bytes, p->reserved_from);
    return {};
}

npu_rope_status report_sim(const Check& check) {
    if (!check.ok()) g_sim_error = check.message;
    return static_cast<npu_rope_status>(check.kind);
}

}  // namespace npu_rope

extern "C" {

const char* npu_rope_sim_last_error(void) { return npu_rope::g_sim_error.c_str(); }
const char* npu_rope_sim_socs(void) { return npu_rope::kSocs; }

}  // extern "C"
