// Matrix products of cube cores, which the simulator lacks: a kernel may include this header, and a use of its names
// does not compile.
#pragma once

#include "kernel_operator.h"

namespace AscendC {

enum class CubeFormat : uint8_t { ND, NZ, ZN, ZZ, NN, VECTOR, SCALAR, ND_ALIGN, ROW_MAJOR, COLUMN_MAJOR };
enum class LayoutMode : uint8_t { NONE, BSNGD, SBNGD, BNGS1S2, NORMAL };

#define ASCEND_SIM_MATMUL(Name) ASCEND_SIM_ABSENT_TYPE(Name, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_MATMUL(MatmulConfig)
ASCEND_SIM_MATMUL(MatmulApiStaticTiling)
ASCEND_SIM_MATMUL(MatmulBatchParams)
ASCEND_SIM_MATMUL(MatmulFuncParams)
ASCEND_SIM_MATMUL(MatmulQuantParams)
ASCEND_SIM_MATMUL(MatmulShapeParams)
#undef ASCEND_SIM_MATMUL

#define ASCEND_SIM_MATMUL(Name) ASCEND_SIM_ABSENT_FUNCTION(Name, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_MATMUL(GetBasicConfig)
ASCEND_SIM_MATMUL(GetIBShareNormConfig)
ASCEND_SIM_MATMUL(GetMDLConfig)
ASCEND_SIM_MATMUL(GetMMConfig)
ASCEND_SIM_MATMUL(GetMatmulApiTiling)
ASCEND_SIM_MATMUL(GetNormalConfig)
ASCEND_SIM_MATMUL(GetSpecialBasicConfig)
ASCEND_SIM_MATMUL(GetSpecialMDLConfig)
#undef ASCEND_SIM_MATMUL

template <TPosition position, CubeFormat format, class T, bool isTrans = false, LayoutMode layout = LayoutMode::NONE,
          bool ibShare = false, TPosition source = TPosition::GM>
struct MatmulType {
    static_assert(ascend_sim::kNever<T>, "MatmulType: " ASCEND_SIM_NO_CUBE);
};

// The classes take the types of a product's operands, and any configuration.
#define ASCEND_SIM_MATMUL(Name)                                                          \
    template <class A, class B, class C = A, class Bias = C, const auto&... config>      \
    class Name {                                                                         \
        static_assert(ascend_sim::kNever<A, B, C, Bias>, #Name ": " ASCEND_SIM_NO_CUBE); \
    };
ASCEND_SIM_MATMUL(Matmul)
ASCEND_SIM_MATMUL(MatmulImpl)
ASCEND_SIM_MATMUL(BatchMatmul)
#undef ASCEND_SIM_MATMUL

}  // namespace AscendC

namespace matmul = AscendC;

#define REGIST_MATMUL_OBJ(...) \
    ASCEND_SIM_ERROR("GCC error \"REGIST_MATMUL_OBJ: an API of cube cores, but the simulator has vector cores only\"")
#define REGIST_CUBE_OBJ REGIST_MATMUL_OBJ
