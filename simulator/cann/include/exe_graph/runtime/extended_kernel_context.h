// Common part of all contexts of a call: types and attributes. compute_node_info.h explains the indices.
#pragma once

#include <cstddef>

#include "exe_graph/runtime/compute_node_info.h"
#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/storage_shape.h"
#include "graph/ge_error_codes.h"

namespace gert {

class ExtendedKernelContext {
public:
    const CompileTimeTensorDesc* GetInputDesc(const size_t index) const;
    const CompileTimeTensorDesc* GetOptionalInputDesc(const size_t ir_index) const {
        return GetDynamicInputDesc(ir_index, 0);
    }
    const CompileTimeTensorDesc* GetRequiredInputDesc(const size_t ir_index) const {
        return GetDynamicInputDesc(ir_index, 0);
    }
    const CompileTimeTensorDesc* GetDynamicInputDesc(const size_t ir_index, const size_t relative_index) const;
    const CompileTimeTensorDesc* GetOutputDesc(const size_t index) const;
    const AnchorInstanceInfo* GetIrInputInstanceInfo(const size_t ir_index) const;
    const AnchorInstanceInfo* GetIrOutputInstanceInfo(const size_t ir_index) const;
    size_t GetComputeNodeInputNum() const;
    size_t GetComputeNodeOutputNum() const;
    const RuntimeAttrs* GetAttrs() const;
    const ge::char_t* GetNodeType() const;
    const ge::char_t* GetNodeName() const;
    const ComputeNodeInfo* GetComputeNodeInfo() const;

protected:
    simulated_cann::Node* node_ = nullptr;
};

}  // namespace gert
