// Context in which an operator infers its outputs' types from those of the inputs. Getters return
// DT_UNDEFINED if the call has no such tensor.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class InferDataTypeContext : public ExtendedKernelContext {
public:
    ge::DataType GetInputDataType(const size_t index) const;
    ge::DataType GetOptionalInputDataType(const size_t ir_index) const;
    ge::DataType GetRequiredInputDataType(const size_t ir_index) const { return GetOptionalInputDataType(ir_index); }
    ge::DataType GetOutputDataType(const size_t index) const;
    ge::graphStatus SetOutputDataType(const size_t index, const ge::DataType data_type);
};

}  // namespace gert
