// Implementation of gert's contexts. They read and set the data of a Node.
#include <utility>

#include "cann/host/node.h"
#include "cann/host/tiling_chip.h"

namespace simulated_cann {
namespace {

// A context holds only a pointer to the call.
template <typename Base>
struct Context : Base {
    explicit Context(Node* node) { this->node_ = node; }
};

const Node::Tensor* tensor_at(const Node& node, const std::vector<Node::Parameter>& parameters, size_t index) {
    for (const Node::Parameter& parameter : parameters) {
        const size_t slots = node.slots_of(parameter);
        if (index < slots) return parameter.empty() ? nullptr : &parameter[index];
        index -= slots;
    }
    return nullptr;
}

std::vector<gert::AnchorInstanceInfo> count_instances(const Node& node,
                                                      const std::vector<Node::Parameter>& parameters) {
    std::vector<gert::AnchorInstanceInfo> instances;
    uint32_t start = 0;
    for (const Node::Parameter& parameter : parameters) {
        instances.emplace_back(start, static_cast<uint32_t>(parameter.size()));
        start += static_cast<uint32_t>(node.slots_of(parameter));
    }
    return instances;
}

}  // namespace

Node::Node(size_t tiling_capacity) : tiling_bytes(tiling_capacity) {
    runtime_attrs_.node_ = this;
    compute_node_info_.node_ = this;
    tiling.Init(tiling_bytes.size(), tiling_bytes.data());
}

Node::Tensor Node::make_tensor(ge::DataType type, const std::vector<int64_t>& shape, ge::Format format) {
    Tensor tensor;
    tensor.present = true;
    for (int64_t size : shape) {
        tensor.value.MutableOriginShape().AppendDim(size);
        tensor.value.MutableStorageShape().AppendDim(size);
    }
    tensor.value.format_ = {format, format, {}};
    tensor.desc.SetStorageFormat(format);
    tensor.desc.SetOriginFormat(format);
    set_data_type(&tensor, type);
    return tensor;
}

void Node::set_values(Tensor* tensor, const void* values, size_t bytes) {
    tensor->value.data_ = values;
    tensor->value.size_ = bytes;
}

void Node::set_data_type(Tensor* tensor, ge::DataType type) {
    tensor->desc.SetDataType(type);
    tensor->value.SetDataType(type);
}

const Node::Tensor* Node::input(size_t index) const { return tensor_at(*this, inputs, index); }
const Node::Tensor* Node::output(size_t index) const { return tensor_at(*this, outputs, index); }
const Node::Tensor* Node::input_of(size_t ir_index, size_t relative_index) const {
    const bool exists = ir_index < inputs.size() && relative_index < inputs[ir_index].size();
    return exists ? &inputs[ir_index][relative_index] : nullptr;
}
size_t Node::slots_of(const Parameter& parameter) const {
    return parameter.empty() && absent_inputs_have_slots ? 1 : parameter.size();
}
size_t Node::count_slots(const std::vector<Parameter>& parameters) const {
    size_t count = 0;
    for (const Parameter& parameter : parameters) count += slots_of(parameter);
    return count;
}
const gert::AnchorInstanceInfo* Node::input_instances(size_t ir_index) const {
    return ir_index < input_instances_.size() ? &input_instances_[ir_index] : nullptr;
}
const gert::AnchorInstanceInfo* Node::output_instances(size_t ir_index) const {
    return ir_index < output_instances_.size() ? &output_instances_[ir_index] : nullptr;
}

template <typename Base>
uint32_t Node::run(uint32_t (*function)(Base*)) {
    input_instances_ = count_instances(*this, inputs);
    output_instances_ = count_instances(*this, outputs);
    Context<Base> context(this);
    return function(&context);
}

uint32_t Node::tile(uint32_t (*function)(gert::TilingContext*)) {
    const TilingChipScope scope(platform.profile);
    return run(function);
}
uint32_t Node::parse(uint32_t (*function)(gert::TilingParseContext*)) { return run(function); }
uint32_t Node::infer_shape(uint32_t (*function)(gert::InferShapeContext*)) { return run(function); }
uint32_t Node::infer_data_type(uint32_t (*function)(gert::InferDataTypeContext*)) { return run(function); }

}  // namespace simulated_cann

namespace gert {

using simulated_cann::Node;

using Desc = CompileTimeTensorDesc;

namespace {
const Desc* desc_of(const Node::Tensor* tensor) { return tensor ? &tensor->desc : nullptr; }
const StorageShape* shape_of(const Node::Tensor* tensor) { return tensor ? &tensor->value.GetShape() : nullptr; }
const Tensor* value_of(const Node::Tensor* tensor) { return tensor ? &tensor->value : nullptr; }
const Shape* origin_of(const Node::Tensor* tensor) { return tensor ? &tensor->value.GetOriginShape() : nullptr; }
ge::DataType type_of(const Node::Tensor* tensor) { return tensor ? tensor->desc.GetDataType() : ge::DT_UNDEFINED; }
Node::Tensor* mutable_output(Node* node, size_t index) { return const_cast<Node::Tensor*>(node->output(index)); }
}  // namespace

size_t RuntimeAttrs::GetAttrNum() const { return node_->attrs.size(); }
const void* RuntimeAttrs::GetPointerByIndex(size_t index) const {
    return index < node_->attrs.size() ? node_->attrs[index].data() : nullptr;
}

const ge::char_t* ComputeNodeInfo::GetNodeType() const { return node_->type.c_str(); }
const ge::char_t* ComputeNodeInfo::GetNodeName() const { return node_->type.c_str(); }
size_t ComputeNodeInfo::GetIrInputsNum() const { return node_->inputs.size(); }
size_t ComputeNodeInfo::GetIrOutputsNum() const { return node_->outputs.size(); }
size_t ComputeNodeInfo::GetInputsNum() const { return node_->count_slots(node_->inputs); }
size_t ComputeNodeInfo::GetOutputsNum() const { return node_->count_slots(node_->outputs); }
const AnchorInstanceInfo* ComputeNodeInfo::GetInputInstanceInfo(size_t index) const {
    return node_->input_instances(index);
}
const AnchorInstanceInfo* ComputeNodeInfo::GetOutputInstanceInfo(size_t index) const {
    return node_->output_instances(index);
}
const Desc* ComputeNodeInfo::GetInputTdInfo(size_t index) const { return desc_of(node_->input(index)); }
const Desc* ComputeNodeInfo::GetOutputTdInfo(size_t index) const { return desc_of(node_->output(index)); }
const RuntimeAttrs* ComputeNodeInfo::GetAttrs() const { return node_->runtime_attrs(); }

const ComputeNodeInfo* ExtendedKernelContext::GetComputeNodeInfo() const { return node_->compute_node_info(); }
const Desc* ExtendedKernelContext::GetInputDesc(size_t index) const { return desc_of(node_->input(index)); }
const Desc* ExtendedKernelContext::GetDynamicInputDesc(size_t ir_index, size_t relative_index) const {
    return desc_of(node_->input_of(ir_index, relative_index));
}
const Desc* ExtendedKernelContext::GetOutputDesc(size_t index) const { return desc_of(node_->output(index)); }
const AnchorInstanceInfo* ExtendedKernelContext::GetIrInputInstanceInfo(size_t ir_index) const {
    return node_->input_instances(ir_index);
}
const AnchorInstanceInfo* ExtendedKernelContext::GetIrOutputInstanceInfo(size_t ir_index) const {
    return node_->output_instances(ir_index);
}
size_t ExtendedKernelContext::GetComputeNodeInputNum() const { return node_->count_slots(node_->inputs); }
size_t ExtendedKernelContext::GetComputeNodeOutputNum() const { return node_->count_slots(node_->outputs); }
const RuntimeAttrs* ExtendedKernelContext::GetAttrs() const { return node_->runtime_attrs(); }
const ge::char_t* ExtendedKernelContext::GetNodeType() const { return node_->type.c_str(); }
const ge::char_t* ExtendedKernelContext::GetNodeName() const { return node_->type.c_str(); }

fe::PlatFormInfos* TilingParseContext::GetPlatformInfo() const { return &node_->platform; }
void* TilingParseContext::compile_info() const { return node_->compile_info; }

const void* TilingContext::GetCompileInfo() const { return node_->compile_info; }
const StorageShape* TilingContext::GetInputShape(size_t index) const { return shape_of(node_->input(index)); }
const StorageShape* TilingContext::GetDynamicInputShape(size_t ir_index, size_t relative_index) const {
    return shape_of(node_->input_of(ir_index, relative_index));
}
const StorageShape* TilingContext::GetOutputShape(size_t index) const { return shape_of(node_->output(index)); }
const Tensor* TilingContext::GetInputTensor(size_t index) const { return value_of(node_->input(index)); }
const Tensor* TilingContext::GetDynamicInputTensor(size_t ir_index, size_t relative_index) const {
    return value_of(node_->input_of(ir_index, relative_index));
}
ge::graphStatus TilingContext::SetTilingKey(const uint64_t tiling_key) {
    node_->tiling_key = tiling_key;
    return ge::GRAPH_SUCCESS;
}
uint64_t TilingContext::GetTilingKey() const { return node_->tiling_key; }
ge::graphStatus TilingContext::SetScheduleMode(const uint32_t schedule_mode) {
    node_->schedule_mode = schedule_mode;
    return ge::GRAPH_SUCCESS;
}
uint32_t TilingContext::GetScheduleMode() const { return node_->schedule_mode; }
ge::graphStatus TilingContext::SetBlockDim(const uint32_t block_dim) {
    node_->block_dim = block_dim;
    return ge::GRAPH_SUCCESS;
}
uint32_t TilingContext::GetBlockDim() const { return node_->block_dim; }
ge::graphStatus TilingContext::SetTilingCond(int32_t tiling_cond) {
    node_->tiling_cond = tiling_cond;
    return ge::GRAPH_SUCCESS;
}
int32_t TilingContext::GetTilingCond() const { return node_->tiling_cond; }
ge::graphStatus TilingContext::SetNeedAtomic(const bool atomic) {
    node_->need_atomic = atomic;
    return ge::GRAPH_SUCCESS;
}
bool TilingContext::NeedAtomic() const { return node_->need_atomic; }
ge::graphStatus TilingContext::SetLocalMemorySize(const uint32_t local_memory_size) {
    node_->local_memory_bytes = local_memory_size;
    return ge::GRAPH_SUCCESS;
}
uint32_t TilingContext::GetLocalMemorySize() const { return node_->local_memory_bytes; }
TilingData* TilingContext::GetRawTilingData() { return &node_->tiling; }
size_t* TilingContext::GetWorkspaceSizes(const size_t workspace_count) {
    if (workspace_count > simulated_cann::kMaxWorkspaces) return nullptr;
    node_->workspaces.reserve(simulated_cann::kMaxWorkspaces);  // the array keeps its address
    node_->workspaces.resize(workspace_count);
    return node_->workspaces.data();
}
size_t TilingContext::GetWorkspaceNum() const { return node_->workspaces.size(); }
fe::PlatFormInfos* TilingContext::GetPlatformInfo() const { return &node_->platform; }
int32_t TilingContext::GetDeterministic() const { return node_->deterministic; }
int32_t TilingContext::GetDeterministicLevel() const { return node_->deterministic; }

const Shape* InferShapeContext::GetInputShape(size_t index) const { return origin_of(node_->input(index)); }
const Shape* InferShapeContext::GetOptionalInputShape(size_t index) const {
    return origin_of(node_->input_of(index, 0));
}
Shape* InferShapeContext::GetOutputShape(size_t index) {
    Node::Tensor* tensor = mutable_output(node_, index);
    return tensor ? &tensor->value.MutableOriginShape() : nullptr;
}

ge::DataType InferDataTypeContext::GetInputDataType(size_t index) const { return type_of(node_->input(index)); }
ge::DataType InferDataTypeContext::GetOptionalInputDataType(size_t index) const {
    return type_of(node_->input_of(index, 0));
}
ge::DataType InferDataTypeContext::GetOutputDataType(size_t index) const { return type_of(node_->output(index)); }
ge::graphStatus InferDataTypeContext::SetOutputDataType(size_t index, const ge::DataType data_type) {
    Node::Tensor* tensor = mutable_output(node_, index);
    if (!tensor) return ge::GRAPH_FAILED;
    Node::set_data_type(tensor, data_type);
    return ge::GRAPH_SUCCESS;
}

}  // namespace gert
