// Common part of all contexts of a call: types and attributes.
//
// An `index` of an input counts the inputs of this call, without absent optional ones; an `ir_index` counts the inputs
// of the definition. An `index` of an output counts the outputs of the definition.
#pragma once

#include <cstddef>

#include "exe_graph/runtime/compute_node_info.h"
#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/storage_shape.h"
#include "graph/ge_error_codes.h"

namespace npu_cann {
struct Node;
}

namespace gert {

class ExtendedKernelContext {
public:
    const CompileTimeTensorDesc* GetInputDesc(const size_t index) const;
    const CompileTimeTensorDesc* GetOptionalInputDesc(const size_t ir_index) const;
    const CompileTimeTensorDesc* GetRequiredInputDesc(const size_t ir_index) const {
        return GetOptionalInputDesc(ir_index);
    }
    const CompileTimeTensorDesc* GetOutputDesc(const size_t index) const;
    size_t GetComputeNodeInputNum() const;
    size_t GetComputeNodeOutputNum() const;
    const RuntimeAttrs* GetAttrs() const;
    const ge::char_t* GetNodeType() const;
    const ge::char_t* GetNodeName() const;

protected:
    npu_cann::Node* node_ = nullptr;
};

}  // namespace gert
