#include "csrc/cpu/isa.h"

#include <atomic>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace npu_rope {
namespace {

struct Candidate {
    Isa isa;
    const char* name;
    bool (*is_supported)();
};

bool supported_always() { return true; }
#if defined(__x86_64__)
// Clang 14's __builtin_cpu_supports() does not know F16C.
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#if defined(NPU_ROPE_HAS_AVX512FP16)
// __builtin_cpu_supports() of a compiler that has this instruction set need not know its name.
bool has_avx512fp16() {
    constexpr unsigned kFp16Bit = 1u << 23;  // of EDX; Intel SDM, CPUID, leaf 7
    unsigned a, b, c, d;
    return has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kFp16Bit);
}
#endif
#endif

// Widest first.
const Candidate kCandidates[] = {
#if defined(NPU_ROPE_HAS_AVX512FP16)
    {Isa::kAvx512Fp16, "avx512_fp16", has_avx512fp16},
#endif
#if defined(__x86_64__)
    {Isa::kAvx512Bf16, "avx512_bf16", has_avx512bf16},
    {Isa::kAvx512, "avx512", has_avx512},
    {Isa::kAvx2, "avx2", has_avx2},
#endif
#if defined(__aarch64__)
    {Isa::kBaseline, "neon", supported_always},
#else
    {Isa::kBaseline, "baseline", supported_always},
#endif
};

Isa widest() {
    for (const Candidate& c : kCandidates)
        if (c.is_supported()) return c.isa;
    return Isa::kBaseline;
}

constexpr int kUnknown = -1;
std::atomic<int> g_active{kUnknown};

}  // namespace

Isa active_isa() {
    int isa = g_active.load(std::memory_order_relaxed);
    if (isa == kUnknown) {
        const int found = static_cast<int>(widest());
        // Keeps the instruction set that another thread has forced in the meantime.
        if (g_active.compare_exchange_strong(isa, found, std::memory_order_relaxed)) isa = found;
    }
    return static_cast<Isa>(isa);
}

bool force_isa(const char* name) {
    for (const Candidate& c : kCandidates) {
        if (name && std::strcmp(c.name, name) != 0) continue;
        if (!c.is_supported()) continue;
        g_active.store(static_cast<int>(c.isa), std::memory_order_relaxed);
        return true;
    }
    return false;
}

const char* isa_name(Isa isa) {
    for (const Candidate& c : kCandidates)
        if (c.isa == isa) return c.name;
    return "unknown";
}

}  // namespace npu_rope
