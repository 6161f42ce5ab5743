// dst = src0 + src1 and the other operators between tensors: each calls the function of the same operation.
//
// Rules: those of the function. Meaning: an operator applies to dst.GetSize() elements, and a comparison to
// src0.GetSize() elements. Cost: that of the function.
// Sources: the pages Add, Sub, Mul, Div, And, Or and Compare; asc-devkit kernel_operator_symbol_override_impl.h for the
// number of elements.
#pragma once

#include "ascendc/binary.h"
#include "ascendc/compare.h"

namespace ascend_sim {

#define ASCEND_SIM_OPERATION(Name)                                                               \
    struct Name##Operation {                                                                     \
        template <class T>                                                                       \
        static void run(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0, \
                        const AscendC::LocalTensor<T>& src1, Site site) {                        \
            AscendC::Name(dst, src0, src1, int32_t(dst.GetSize()), site);                        \
        }                                                                                        \
    };
ASCEND_SIM_OPERATION(Add)
ASCEND_SIM_OPERATION(Sub)
ASCEND_SIM_OPERATION(Mul)
ASCEND_SIM_OPERATION(Div)
ASCEND_SIM_OPERATION(And)
ASCEND_SIM_OPERATION(Or)
#undef ASCEND_SIM_OPERATION

template <CMPMODE mode>
struct CompareOperation {
    template <class Bits, class T>
    static void run(const AscendC::LocalTensor<Bits>& dst, const AscendC::LocalTensor<T>& src0,
                    const AscendC::LocalTensor<T>& src1, Site site) {
        AscendC::Compare(dst, src0, src1, mode, src0.GetSize(), site);
    }
};

}  // namespace ascend_sim
