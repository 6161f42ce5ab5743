// Registration of an operator's host functions by the operator's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "exe_graph/runtime/tiling_parse_context.h"
#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace gert {

enum TilingPlacement { TILING_ON_HOST = 0, TILING_ON_AICPU = 1 };

class OpImplRegisterV2 {
public:
    using InferShapeKernelFunc = uint32_t (*)(InferShapeContext*);
    using InferDataTypeKernelFunc = uint32_t (*)(InferDataTypeContext*);
    using TilingKernelFunc = uint32_t (*)(TilingContext*);
    using TilingParseFunc = uint32_t (*)(TilingParseContext*);
    using GenSimplifiedKeyKernelFunc = uint32_t (*)(TilingContext*, ge::char_t*);
    using CompileInfoCreatorFunc = void* (*)();
    using CompileInfoDeleterFunc = void (*)(void*);

    explicit OpImplRegisterV2(const ge::char_t* op_type);
    OpImplRegisterV2(const OpImplRegisterV2& other) = default;
    OpImplRegisterV2& operator=(const OpImplRegisterV2&) = delete;

    // Each call replaces one function of the operator; its other functions stay registered.
    OpImplRegisterV2& InferShape(InferShapeKernelFunc function);
    OpImplRegisterV2& InferDataType(InferDataTypeKernelFunc function);
    OpImplRegisterV2& Tiling(TilingKernelFunc function, size_t max_tiling_data_size = 2048);
    // Registers the function that fills the compile information T, which GetCompileInfo<T>() of a tiling returns.
    template <typename T>
    OpImplRegisterV2& TilingParse(TilingParseFunc const function) {
        return TilingParse(
            function, []() -> void* { return new T(); }, [](void* info) { delete static_cast<T*>(info); });
    }
    // The function by which CANN chooses among kernels without recompiling. It is not used: a call chooses the kernel
    // of the column that has its types.
    OpImplRegisterV2& GenSimplifiedKey(GenSimplifiedKeyKernelFunc) { return *this; }
    // The inputs, by their positions in the definition, whose values the functions read.
    OpImplRegisterV2& InputsDataDependency(std::initializer_list<int32_t> inputs);
    OpImplRegisterV2& TilingInputsDataDependency(std::initializer_list<int32_t> inputs);
    OpImplRegisterV2& TilingInputsDataDependency(std::initializer_list<int32_t> inputs,
                                                 std::initializer_list<TilingPlacement>) {
        return TilingInputsDataDependency(inputs);
    }

private:
    OpImplRegisterV2& TilingParse(TilingParseFunc function, CompileInfoCreatorFunc creator,
                                  CompileInfoDeleterFunc deleter);
    const char* op_type_;
};

}  // namespace gert

#define NPU_CANN_JOIN_(a, b) a##b
#define NPU_CANN_JOIN(a, b) NPU_CANN_JOIN_(a, b)
#define IMPL_OP(op_type)                                                                                    \
    [[maybe_unused]] static gert::OpImplRegisterV2 NPU_CANN_JOIN(op_impl_register_##op_type, __COUNTER__) = \
        gert::OpImplRegisterV2(#op_type)
// Two registrations of one operator do not link, as in CANN.
#define IMPL_OP_INFERSHAPE(op_type) \
    [[maybe_unused]] gert::OpImplRegisterV2 op_impl_register_infershape_##op_type = gert::OpImplRegisterV2(#op_type)
#define IMPL_OP_OPTILING(op_type) \
    [[maybe_unused]] gert::OpImplRegisterV2 op_impl_register_optiling_##op_type = gert::OpImplRegisterV2(#op_type)
