// A call's types, formats and numbers of tensors, which are known before the sizes.
//
// `index` counts the tensors of this call, and each tensor of a list counts. An absent optional input is left out, or
// has a slot without a tensor if the call comes from a function that CANN generated (Node::input). An `ir_index` counts
// the parameters of the definition; its instances are the tensors of the call that belong to it.
#pragma once

#include <cstddef>

#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/storage_format.h"
#include "graph/types.h"

namespace simulated_cann {
struct Node;
}

namespace gert {

class AnchorInstanceInfo {
public:
    AnchorInstanceInfo() = default;
    AnchorInstanceInfo(const uint32_t start, const uint32_t num) : start_(start), num_(num) {}
    size_t GetInstanceNum() const { return num_; }
    size_t GetInstanceStart() const { return start_; }

private:
    uint32_t start_ = 0;
    uint32_t num_ = 0;
};

class CompileTimeTensorDesc {
public:
    ge::DataType GetDataType() const { return data_type_; }
    const StorageFormat& GetFormat() const { return format_; }
    ge::Format GetStorageFormat() const { return format_.GetStorageFormat(); }
    ge::Format GetOriginFormat() const { return format_.GetOriginFormat(); }
    ExpandDimsType GetExpandDimsType() const { return {}; }
    void SetDataType(const ge::DataType data_type) { data_type_ = data_type; }
    void SetStorageFormat(const ge::Format format) { format_.SetStorageFormat(format); }
    void SetOriginFormat(const ge::Format format) { format_.SetOriginFormat(format); }

private:
    ge::DataType data_type_ = ge::DT_UNDEFINED;
    StorageFormat format_;
};

class ComputeNodeInfo {
public:
    const ge::char_t* GetNodeType() const;
    const ge::char_t* GetNodeName() const;
    size_t GetIrInputsNum() const;
    size_t GetIrOutputsNum() const;
    size_t GetInputsNum() const;
    size_t GetOutputsNum() const;
    const AnchorInstanceInfo* GetInputInstanceInfo(const size_t ir_index) const;
    const AnchorInstanceInfo* GetOutputInstanceInfo(const size_t ir_index) const;
    const CompileTimeTensorDesc* GetInputTdInfo(const size_t index) const;
    const CompileTimeTensorDesc* GetOutputTdInfo(const size_t index) const;
    const RuntimeAttrs* GetAttrs() const;

    ComputeNodeInfo(const ComputeNodeInfo&) = delete;
    ComputeNodeInfo& operator=(const ComputeNodeInfo&) = delete;

private:
    friend struct simulated_cann::Node;
    ComputeNodeInfo() = default;
    const simulated_cann::Node* node_ = nullptr;
};

}  // namespace gert
