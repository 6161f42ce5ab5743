// Implementation of gert's contexts on a call's plain data.
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "cann/host/node.h"
#include "cann/host/tiled_chip.h"
#include "tiling/platform/platform_ascendc.h"

namespace npu_cann {
namespace {

thread_local std::string g_logged_error;

// A context holds only a pointer to the call.
template <typename Base>
struct Context : Base {
    explicit Context(Node* node) { this->node_ = node; }
};

}  // namespace

Node::Node() : tiling_bytes(kTilingCapacity) {
    runtime_attrs_.node_ = this;
    tiling.Init(tiling_bytes.size(), tiling_bytes.data());
}

Node::Tensor Node::tensor(ge::DataType type, const std::vector<int64_t>& shape) {
    Tensor t;
    t.present = true;
    t.desc.data_type_ = type;
    for (int64_t size : shape) {
        t.shape.MutableOriginShape().AppendDim(size);
        t.shape.MutableStorageShape().AppendDim(size);
    }
    return t;
}

Node::Tensor* Node::present_input(size_t index) {
    for (Tensor& t : inputs)
        if (t.present && index-- == 0) return &t;
    return nullptr;
}

Node::Tensor* Node::optional_input(size_t ir_index) {
    return ir_index < inputs.size() && inputs[ir_index].present ? &inputs[ir_index] : nullptr;
}

Node::Tensor* Node::output(size_t index) { return index < outputs.size() ? &outputs[index] : nullptr; }

uint32_t Node::tile(uint32_t (*function)(gert::TilingContext*)) {
    const TiledChip chip(platform.profile);
    Context<gert::TilingContext> context(this);
    return function(&context);
}
uint32_t Node::infer_shape(uint32_t (*function)(gert::InferShapeContext*)) {
    Context<gert::InferShapeContext> context(this);
    return function(&context);
}
uint32_t Node::infer_data_type(uint32_t (*function)(gert::InferDataTypeContext*)) {
    Context<gert::InferDataTypeContext> context(this);
    return function(&context);
}

std::string take_logged_error() { return std::exchange(g_logged_error, {}); }

}  // namespace npu_cann

// CANN's log. An operator's host functions log the reason why they refuse a call.
extern "C" int32_t AlogRecord(uint32_t, uint32_t, int32_t level, const char* format, ...) {
    constexpr int32_t kError = 3;
    if (level != kError) return 0;
    char text[1024];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    npu_cann::g_logged_error = text;
    return 0;
}

namespace gert {

using npu_cann::Node;

using Desc = CompileTimeTensorDesc;

namespace {
const Desc* desc_of(const Node::Tensor* t) { return t ? &t->desc : nullptr; }
const StorageShape* shape_of(const Node::Tensor* t) { return t ? &t->shape : nullptr; }
const Shape* origin_of(const Node::Tensor* t) { return t ? &t->shape.GetOriginShape() : nullptr; }
ge::DataType type_of(const Node::Tensor* t) { return t ? t->desc.GetDataType() : ge::DT_UNDEFINED; }
}  // namespace

size_t RuntimeAttrs::GetAttrNum() const { return node_->attrs.size(); }
const void* RuntimeAttrs::GetPointerByIndex(size_t index) const {
    return index < node_->attrs.size() ? node_->attrs[index].data() : nullptr;
}

const Desc* ExtendedKernelContext::GetInputDesc(size_t index) const { return desc_of(node_->present_input(index)); }
const Desc* ExtendedKernelContext::GetOptionalInputDesc(size_t index) const {
    return desc_of(node_->optional_input(index));
}
const Desc* ExtendedKernelContext::GetOutputDesc(size_t index) const { return desc_of(node_->output(index)); }
size_t ExtendedKernelContext::GetComputeNodeInputNum() const {
    size_t count = 0;
    for (const Node::Tensor& t : node_->inputs) count += t.present;
    return count;
}
size_t ExtendedKernelContext::GetComputeNodeOutputNum() const { return node_->outputs.size(); }
const RuntimeAttrs* ExtendedKernelContext::GetAttrs() const { return node_->runtime_attrs(); }
const ge::char_t* ExtendedKernelContext::GetNodeType() const { return node_->type.c_str(); }
const ge::char_t* ExtendedKernelContext::GetNodeName() const { return node_->type.c_str(); }

const StorageShape* TilingContext::GetInputShape(size_t index) const { return shape_of(node_->present_input(index)); }
const StorageShape* TilingContext::GetOptionalInputShape(size_t index) const {
    return shape_of(node_->optional_input(index));
}
const StorageShape* TilingContext::GetOutputShape(size_t index) const { return shape_of(node_->output(index)); }
ge::graphStatus TilingContext::SetTilingKey(const uint64_t tiling_key) {
    node_->tiling_key = tiling_key;
    return ge::GRAPH_SUCCESS;
}
uint64_t TilingContext::GetTilingKey() const { return node_->tiling_key; }
ge::graphStatus TilingContext::SetBlockDim(const uint32_t block_dim) {
    node_->block_dim = block_dim;
    return ge::GRAPH_SUCCESS;
}
uint32_t TilingContext::GetBlockDim() const { return node_->block_dim; }
TilingData* TilingContext::GetRawTilingData() { return &node_->tiling; }
size_t* TilingContext::GetWorkspaceSizes(const size_t workspace_count) {
    node_->workspaces.resize(workspace_count);
    return node_->workspaces.data();
}
size_t TilingContext::GetWorkspaceNum() const { return node_->workspaces.size(); }
fe::PlatFormInfos* TilingContext::GetPlatformInfo() const { return &node_->platform; }

const Shape* InferShapeContext::GetInputShape(size_t index) const { return origin_of(node_->present_input(index)); }
const Shape* InferShapeContext::GetOptionalInputShape(size_t index) const {
    return origin_of(node_->optional_input(index));
}
Shape* InferShapeContext::GetOutputShape(size_t index) {
    Node::Tensor* t = node_->output(index);
    return t ? &t->shape.MutableOriginShape() : nullptr;
}

ge::DataType InferDataTypeContext::GetInputDataType(size_t index) const { return type_of(node_->present_input(index)); }
ge::DataType InferDataTypeContext::GetOptionalInputDataType(size_t index) const {
    return type_of(node_->optional_input(index));
}
ge::DataType InferDataTypeContext::GetOutputDataType(size_t index) const { return type_of(node_->output(index)); }
ge::graphStatus InferDataTypeContext::SetOutputDataType(size_t index, const ge::DataType data_type) {
    Node::Tensor* t = node_->output(index);
    if (!t) return ge::GRAPH_FAILED;
    Node::set_data_type(t, data_type);
    return ge::GRAPH_SUCCESS;
}

}  // namespace gert

namespace platform_ascendc {

uint32_t PlatformAscendC::GetCoreNumAiv(void) const { return static_cast<uint32_t>(platform_info_->profile->cores); }

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize(void) const {
    return (platform_info_->profile->arch == 200 ? 2 : 16) * 1024 * 1024;
}

void PlatformAscendC::GetCoreMemSize(const CoreMemType& memory, uint64_t& size) const {
    constexpr uint64_t kMessages910b = 256;  // reserved for messages between cores
    const ascend_sim::Profile& p = *platform_info_->profile;
    size = memory == CoreMemType::UB ? p.ub_bytes - (p.arch == 220 ? kMessages910b : 0) : 0;
}

// Ascend910_93 counts as Ascend910B (asc-devkit impl/utils/tiling/platform/platform_ascendc.cpp).
SocVersion PlatformAscendC::GetSocVersion(void) const {
    const int32_t arch = platform_info_->profile->arch;
    return arch == 220 ? SocVersion::ASCEND910B : arch == 200 ? SocVersion::ASCEND310P : SocVersion::RESERVED_VERSION;
}

}  // namespace platform_ascendc
