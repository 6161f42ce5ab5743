// Names of the APIs that the simulator lacks because it has vector cores only: those of cube cores, and those of
// Ascend950's registers. A use does not compile; the message names the API and the kernel's line.
#pragma once

namespace ascend_sim {

// False, in a form that is evaluated only when a template is used.
template <class...>
constexpr bool kNever = false;

}  // namespace ascend_sim

#define ASCEND_SIM_NO_CUBE "an API of cube cores, but the simulator has vector cores only"
#define ASCEND_SIM_NO_REGISTERS "the register API of Ascend950, but the simulated vector instructions use UB only"

// An error at the line that uses a macro.
#define ASCEND_SIM_ERROR(text) _Pragma(text)

// A function that a kernel calls with any arguments, and with up to three types in angle brackets.
#define ASCEND_SIM_ABSENT_FUNCTION(Name, why)                               \
    template <class... A>                                                   \
    void Name(const A&...) {                                                \
        static_assert(::ascend_sim::kNever<A...>, #Name ": " why);          \
    }                                                                       \
    template <class T, class... A>                                          \
    void Name(const A&...) {                                                \
        static_assert(::ascend_sim::kNever<T, A...>, #Name ": " why);       \
    }                                                                       \
    template <class T, class U, class... A>                                 \
    void Name(const A&...) {                                                \
        static_assert(::ascend_sim::kNever<T, U, A...>, #Name ": " why);    \
    }                                                                       \
    template <class T, class U, class V, class... A>                        \
    void Name(const A&...) {                                                \
        static_assert(::ascend_sim::kNever<T, U, V, A...>, #Name ": " why); \
    }

// A type that is not a template.
#define ASCEND_SIM_ABSENT_TYPE(Name, why)                       \
    template <class T>                                          \
    struct AscendSimNo##Name {                                  \
        static_assert(::ascend_sim::kNever<T>, #Name ": " why); \
    };                                                          \
    using Name = AscendSimNo##Name<void>;

// A type that is a template.
#define ASCEND_SIM_ABSENT_TEMPLATE(Name, why)                      \
    template <class... T>                                          \
    struct Name {                                                  \
        static_assert(::ascend_sim::kNever<T...>, #Name ": " why); \
    };

// ---- kernels of cube cores -----------------------------------------------------------------------------

#define __cube__ \
    ASCEND_SIM_ERROR("GCC error \"__cube__: a kernel of cube cores, but the simulator has vector cores only\"")
// __mix__(c, v): the ratio of cube cores to vector cores. Only __mix__(0, 1) compiles: vector cores alone.
#define __mix__(cube, vector) ASCEND_SIM_MIX_##cube##_##vector
#define ASCEND_SIM_MIX_0_1
#define ASCEND_SIM_MIX_1_0 ASCEND_SIM_MIXED
#define ASCEND_SIM_MIX_1_1 ASCEND_SIM_MIXED
#define ASCEND_SIM_MIX_1_2 ASCEND_SIM_MIXED
#define ASCEND_SIM_MIXED \
    ASCEND_SIM_ERROR("GCC error \"__mix__: a kernel of cube cores, but the simulator has vector cores only\"")

ASCEND_SIM_ABSENT_TYPE(TCubeTiling, ASCEND_SIM_NO_CUBE)

namespace AscendC {

#define ASCEND_SIM_CUBE(Name) ASCEND_SIM_ABSENT_FUNCTION(Name, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_CUBE(BroadCastVecToMM)
ASCEND_SIM_CUBE(Conv2D)
ASCEND_SIM_CUBE(Fixpipe)
ASCEND_SIM_CUBE(Gemm)
ASCEND_SIM_CUBE(InitConstValue)
ASCEND_SIM_CUBE(LoadData)
ASCEND_SIM_CUBE(LoadDataUnzip)
ASCEND_SIM_CUBE(LoadDataWithSparse)
ASCEND_SIM_CUBE(LoadDataWithTranspose)
ASCEND_SIM_CUBE(LoadImageToLocal)
ASCEND_SIM_CUBE(Mmad)
ASCEND_SIM_CUBE(MmadMx)
ASCEND_SIM_CUBE(MmadWithSparse)
ASCEND_SIM_CUBE(SetFixPipeConfig)
ASCEND_SIM_CUBE(SetFixpipeNz2ndFlag)
ASCEND_SIM_CUBE(SetFixpipePreQuantFlag)
ASCEND_SIM_CUBE(SetFmatrix)
ASCEND_SIM_CUBE(SetHF32Mode)
ASCEND_SIM_CUBE(SetHF32TransMode)
ASCEND_SIM_CUBE(SetLoadDataBoundary)
ASCEND_SIM_CUBE(SetLoadDataPaddingValue)
ASCEND_SIM_CUBE(SetLoadDataRepeat)
ASCEND_SIM_CUBE(SetMMLayoutTransform)
#undef ASCEND_SIM_CUBE

#define ASCEND_SIM_CUBE(Name) ASCEND_SIM_ABSENT_TYPE(Name, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_CUBE(Conv2dParams)
ASCEND_SIM_CUBE(DataCopyCO12DstParams)
ASCEND_SIM_CUBE(FixpipeParamsC310)
ASCEND_SIM_CUBE(FixpipeParamsV220)
ASCEND_SIM_CUBE(LoadData2DMxParams)
ASCEND_SIM_CUBE(LoadData2DParams)
ASCEND_SIM_CUBE(LoadData2DParamsV2)
ASCEND_SIM_CUBE(LoadData2dTransposeParams)
ASCEND_SIM_CUBE(LoadDataRepeatParam)
ASCEND_SIM_CUBE(LoadImageToLocalParams)
ASCEND_SIM_CUBE(MmadParams)
#undef ASCEND_SIM_CUBE
ASCEND_SIM_ABSENT_TYPE(Nd2NzParams, "the simulator lacks the copies that change the layout")
ASCEND_SIM_ABSENT_TEMPLATE(InitConstValueParams, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_ABSENT_TEMPLATE(LoadData3DParamsV1, ASCEND_SIM_NO_CUBE)
ASCEND_SIM_ABSENT_TEMPLATE(LoadData3DParamsV2, ASCEND_SIM_NO_CUBE)

// ---- registers of Ascend950 ------------------------------------------------------------------------------

namespace Reg {

#define ASCEND_SIM_REGISTER(Name) ASCEND_SIM_ABSENT_TYPE(Name, ASCEND_SIM_NO_REGISTERS)
ASCEND_SIM_REGISTER(AddrReg)
ASCEND_SIM_REGISTER(CastTrait)
ASCEND_SIM_REGISTER(DivSpecificMode)
ASCEND_SIM_REGISTER(ExpSpecificMode)
ASCEND_SIM_REGISTER(MaskReg)
ASCEND_SIM_REGISTER(UnalignReg)
ASCEND_SIM_REGISTER(UnalignRegForLoad)
ASCEND_SIM_REGISTER(UnalignRegForStore)
#undef ASCEND_SIM_REGISTER
ASCEND_SIM_ABSENT_TEMPLATE(RegTensor, ASCEND_SIM_NO_REGISTERS)
ASCEND_SIM_ABSENT_FUNCTION(LocalMemBar, ASCEND_SIM_NO_REGISTERS)

}  // namespace Reg

namespace MicroAPI = Reg;

}  // namespace AscendC

#define ASCEND_SIM_NO_VECTOR_FUNCTION \
    ASCEND_SIM_ERROR(                 \
        "GCC error \"a function that uses Ascend950's registers, but the simulated vector instructions use UB only\"")
#define __VEC_SCOPE__ ASCEND_SIM_NO_VECTOR_FUNCTION
#define __simd_vf__ ASCEND_SIM_NO_VECTOR_FUNCTION
#define __simd_callee__ ASCEND_SIM_NO_VECTOR_FUNCTION
#define __simt_vf__ ASCEND_SIM_NO_VECTOR_FUNCTION
#define __simt_callee__ ASCEND_SIM_NO_VECTOR_FUNCTION
#define asc_vf_call ASCEND_SIM_NO_VECTOR_FUNCTION ::ascend_sim::absent_vector_function
#define VF_CALL ASCEND_SIM_NO_VECTOR_FUNCTION ::ascend_sim::absent_vector_function

namespace ascend_sim {
template <auto function, class... A>
void absent_vector_function(const A&...) {}
}  // namespace ascend_sim
