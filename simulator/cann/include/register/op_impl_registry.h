// Registration of an operator's host functions by the operator's name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace gert {

class TilingParseContext;

class OpImplRegisterV2 {
public:
    using InferShapeKernelFunc = uint32_t (*)(InferShapeContext*);
    using InferDataTypeKernelFunc = uint32_t (*)(InferDataTypeContext*);
    using TilingKernelFunc = uint32_t (*)(TilingContext*);
    using TilingParseFunc = uint32_t (*)(TilingParseContext*);

    explicit OpImplRegisterV2(const ge::char_t* op_type);
    OpImplRegisterV2(const OpImplRegisterV2& other) = default;
    OpImplRegisterV2& operator=(const OpImplRegisterV2&) = delete;

    // Each call replaces one function of the operator; its other functions stay registered.
    OpImplRegisterV2& InferShape(InferShapeKernelFunc function);
    OpImplRegisterV2& InferDataType(InferDataTypeKernelFunc function);
    OpImplRegisterV2& Tiling(TilingKernelFunc function, size_t max_tiling_data_size = 2048);
    // Does nothing: the tilings of AscendC kernels do not use the compile information that this function parses.
    template <typename T>
    OpImplRegisterV2& TilingParse(TilingParseFunc const) {
        return *this;
    }

private:
    const char* op_type_;
};

}  // namespace gert

#define NPU_CANN_JOIN_(a, b) a##b
#define NPU_CANN_JOIN(a, b) NPU_CANN_JOIN_(a, b)
#define IMPL_OP(op_type)                                                                                    \
    [[maybe_unused]] static gert::OpImplRegisterV2 NPU_CANN_JOIN(op_impl_register_##op_type, __COUNTER__) = \
        gert::OpImplRegisterV2(#op_type)
#define IMPL_OP_INFERSHAPE(op_type) IMPL_OP(op_type)
#define IMPL_OP_OPTILING(op_type) IMPL_OP(op_type)
