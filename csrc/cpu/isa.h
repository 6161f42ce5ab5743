// The instruction set of this process's kernels. CMake compiles each csrc/cpu/*_kernels.cpp once per instruction set,
// with its name as NPU_ROPE_ISA and its floats per vector as NPU_ROPE_LANES. active_isa() selects the kernels that run.
#pragma once

namespace npu_rope {

enum class Isa : int { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

// The widest instruction set that this machine has, unless force_isa chose another.
Isa active_isa();

// Selects an instruction set by its name, or the widest for nullptr; returns false if this machine does not have it.
bool force_isa(const char* name);

// "avx512_bf16", "avx512", "avx2", "baseline" or "neon".
const char* isa_name(Isa isa);

// The name of the function that returns the set of kernels `name` for one instruction set.
#define NPU_ROPE_OF_ISA(name, isa) NPU_ROPE_JOINED(name, isa)
#define NPU_ROPE_JOINED(name, isa) name##_##isa

// The names of these functions for all instruction sets, in the order of Isa.
#if defined(__x86_64__)
#define NPU_ROPE_OF_EACH_ISA(name) name##_baseline, name##_avx2, name##_avx512, name##_avx512bf16
#else
#define NPU_ROPE_OF_EACH_ISA(name) name##_baseline
#endif

// Declares these functions and active_<name>(), which returns the set of kernels for the active instruction set.
#define NPU_ROPE_DECLARE_KERNELS(Set, name)                               \
    using name##_function = const Set&();                                 \
    name##_function NPU_ROPE_OF_EACH_ISA(name);                           \
    inline const Set& active_##name() {                                   \
        name##_function* const compiles[] = {NPU_ROPE_OF_EACH_ISA(name)}; \
        return compiles[static_cast<int>(active_isa())]();                \
    }

}  // namespace npu_rope
