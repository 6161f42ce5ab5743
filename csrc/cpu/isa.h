// Which instruction set this process's kernels run with. Kernels are compiled once for each; a set of them is
// chosen by what is active.
#pragma once

namespace npu_rope {

enum class Isa : int { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

// The widest this machine runs, unless force_isa chose another.
Isa active_isa();

// By its name, or nullptr for the widest again; false for one that does not run here.
bool force_isa(const char* name);

// "avx512_bf16", "avx512", "avx2", "baseline" or "neon".
const char* isa_name(Isa isa);

// What a set of kernels has for the active instruction set, given its compiles.
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
