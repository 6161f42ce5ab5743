// The instruction set of this process's kernels. Kernels are compiled once per instruction set, and the active one
// selects the compile.
#pragma once

namespace npu_rope {

enum class Isa : int { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

// The widest instruction set that this machine has, unless force_isa chose another.
Isa active_isa();

// Selects an instruction set by its name, or the widest for nullptr; returns false if this machine does not have it.
bool force_isa(const char* name);

// "avx512_bf16", "avx512", "avx2", "baseline" or "neon".
const char* isa_name(Isa isa);

// The compile of a set of kernels for the active instruction set.
template <typename Set>
const Set& of_active_isa(const Set& (*baseline)(), const Set& (*avx2)(), const Set& (*avx512)(),
                         const Set& (*avx512bf16)()) {
    switch (active_isa()) {
        case Isa::kAvx2:
            return avx2();
        case Isa::kAvx512:
            return avx512();
        case Isa::kAvx512Bf16:
            return avx512bf16();
        case Isa::kBaseline:
            break;
    }
    return baseline();
}

}  // namespace npu_rope
