// Select the instruction set of this process's kernels. CMake compiles each csrc/cpu/*_kernels.cpp once per instruction
// set, with two macros: NPU_ROPE_ISA is the name of the instruction set, and NPU_ROPE_VECTOR_FLOATS the number of
// floats of its vectors.
#pragma once

namespace npu_rope {

enum class Isa : int { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAvx512Fp16 };

// Returns the widest instruction set that this machine has, unless force_isa selected another.
Isa active_isa();

// Selects an instruction set by its name, or the widest for nullptr. Returns false if this machine does not have it.
bool force_isa(const char* name);

// Returns "avx512_fp16", "avx512_bf16", "avx512", "avx2", "baseline" or "neon".
const char* isa_name(Isa isa);

// The name of the function that returns the set of kernels `name` for one instruction set, such as rope_kernels_avx2.
#define NPU_ROPE_OF_ISA(name, isa) NPU_ROPE_JOINED(name, isa)
#define NPU_ROPE_JOINED(name, isa) name##_##isa

// The names of these functions for all instruction sets, in the order of Isa. Most kernels have no code for avx512_fp16
// and take those of avx512_bf16 instead: `fp16` is one of both. NPU_ROPE_FP16_ISA is avx512fp16, unless the compiler
// does not know that instruction set.
#if defined(NPU_ROPE_HAS_AVX512FP16)
#define NPU_ROPE_FP16_ISA avx512fp16
#else
#define NPU_ROPE_FP16_ISA avx512bf16
#endif
#if defined(__x86_64__)
#define NPU_ROPE_OF_EACH_ISA(name, fp16) \
    name##_baseline, name##_avx2, name##_avx512, name##_avx512bf16, NPU_ROPE_OF_ISA(name, fp16)
#else
#define NPU_ROPE_OF_EACH_ISA(name, fp16) name##_baseline
#endif

// Declares these functions, and active_<name>(), which returns the set of kernels for the active instruction set.
#define NPU_ROPE_DECLARE_KERNELS(Set, name) NPU_ROPE_DECLARE_KERNELS_WITH(Set, name, avx512bf16)
#define NPU_ROPE_DECLARE_KERNELS_WITH(Set, name, fp16)                           \
    using name##_function = const Set&();                                        \
    name##_function NPU_ROPE_OF_EACH_ISA(name, fp16);                            \
    inline const Set& active_##name() {                                          \
        name##_function* const functions[] = {NPU_ROPE_OF_EACH_ISA(name, fp16)}; \
        return functions[static_cast<int>(active_isa())]();                      \
    }

}  // namespace npu_rope
