// Context in which an operator infers its outputs' sizes from those of the inputs.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class InferShapeContext : public ExtendedKernelContext {
public:
    const Shape* GetInputShape(const size_t index) const;
    const Shape* GetOptionalInputShape(const size_t ir_index) const;
    const Shape* GetRequiredInputShape(const size_t ir_index) const { return GetOptionalInputShape(ir_index); }
    Shape* GetOutputShape(const size_t index);
};

}  // namespace gert
