// Which kernel set this process runs.
#include "csrc/cpu/rope_kernels.h"

#include <atomic>
#include <cstring>

namespace npu_rope {
namespace {

struct Candidate {
    const char* name;
    bool (*runs_here)();
    const KernelSet& (*get)();
};

bool always() { return true; }
#if defined(NPU_ROPE_X86)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

// Widest first.
const Candidate kCandidates[] = {
#if defined(NPU_ROPE_X86)
    {"avx512_bf16", has_avx512bf16, kernels_avx512bf16},
    {"avx512", has_avx512, kernels_avx512},
    {"avx2", has_avx2, kernels_avx2},
#endif
#if defined(__aarch64__)
    {"neon", always, kernels_baseline},
#else
    {"baseline", always, kernels_baseline},
#endif
};

const KernelSet* widest() {
    for (const Candidate& c : kCandidates)
        if (c.runs_here()) return &c.get();
    return &kernels_baseline();
}

std::atomic<const KernelSet*> g_active{nullptr};

}  // namespace

const KernelSet& active_kernels() {
    const KernelSet* k = g_active.load(std::memory_order_relaxed);
    if (!k) {
        k = widest();
        g_active.store(k, std::memory_order_relaxed);
    }
    return *k;
}

bool force_kernels(const char* name) {
    if (!name) {
        g_active.store(widest(), std::memory_order_relaxed);
        return true;
    }
    for (const Candidate& c : kCandidates)
        if (!std::strcmp(c.name, name) && c.runs_here()) {
            g_active.store(&c.get(), std::memory_order_relaxed);
            return true;
        }
    return false;
}

}  // namespace npu_rope
