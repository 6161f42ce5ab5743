// One call of an operator as plain data. gert's contexts read and set it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cann/host/log.h"
#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "exe_graph/runtime/tiling_parse_context.h"
#include "platform/platform_infos_def.h"
#include "src/profile.h"

namespace simulated_cann {

// Capacity for tiling data: CANN's value for a kernel whose description has no opParaSize (hicann/opbase
// src/nnopbase/individual_op/executor/indv_executor.h).
constexpr size_t kTilingCapacity = 8 * 1024;
// The number of workspaces that a tiling may ask for (opbase src/nnopbase/composite_op/aclnn_engine/op_ctx_def.h).
constexpr size_t kMaxWorkspaces = 64;

struct Node {
    struct Tensor {
        bool present = false;
        gert::Tensor value;
        gert::CompileTimeTensorDesc desc;
    };
    // The tensors of one parameter of the definition: no tensor if it is absent, several for a list.
    using Parameter = std::vector<Tensor>;
    std::string type;
    std::vector<Parameter> inputs, outputs;  // in the definition's order
    std::vector<std::vector<uint8_t>> attrs;
    fe::PlatFormInfos platform{nullptr};
    void* compile_info = nullptr;
    int32_t deterministic = 0;
    // Whether an absent input has a slot of its own among the indices that count the call's tensors.
    bool absent_inputs_have_slots = false;

    // Set by a tiling.
    uint64_t tiling_key = 0;
    uint32_t block_dim = 0, schedule_mode = 0, local_memory_bytes = 0;
    int32_t tiling_cond = 0;
    bool need_atomic = false;
    std::vector<uint8_t> tiling_bytes;
    gert::TilingData tiling;
    std::vector<size_t> workspaces;

    explicit Node(size_t tiling_capacity = kTilingCapacity);
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Returns a tensor's description for a host function. It does not show whether the tensor is a view.
    static Tensor make_tensor(ge::DataType type, const std::vector<int64_t>& shape, ge::Format format = ge::FORMAT_ND);
    // Makes the values readable for host functions.
    static void set_values(Tensor* tensor, const void* values, size_t bytes);

    // Adds the next attribute in the definition's order, with zeros after it up to 8 bytes (opbase
    // src/nnopbase/composite_op/aclnn_engine/kernel_context_holder.h, UpdateAttrArg).
    template <typename T>
    void add_attr(T value) {
        std::vector<uint8_t> bytes(sizeof value < 8 ? 8 : sizeof value);
        std::memcpy(bytes.data(), &value, sizeof value);
        attrs.push_back(std::move(bytes));
    }
    void add_attr_text(const std::string& value) {
        attrs.emplace_back(value.c_str(), value.c_str() + value.size() + 1);
    }
    template <typename T>
    void add_attr_list(const T* values, size_t count) {
        std::vector<uint8_t> bytes(sizeof(gert::ContinuousVector) + count * sizeof(T));
        auto* list = reinterpret_cast<gert::ContinuousVector*>(bytes.data());
        list->Init(count);
        list->SetSize(count);
        if (count) std::memcpy(list->MutableData(), values, count * sizeof(T));
        attrs.push_back(std::move(bytes));
    }

    // The tensor at a position among the call's inputs or outputs; null if there are fewer. An absent input has a slot,
    // which counts, if the call comes from a function that CANN generated (opbase
    // src/nnopbase/individual_op/executor/indv_tilingcontext_builder.cpp, indv_executor_ext.cpp). An absent input has
    // no slot in a graph (page GetInputShape) and in a call of a function written by hand (opbase
    // src/nnopbase/composite_op/aclnn_engine/kernel_context_holder.cpp).
    const Tensor* input(size_t index) const;
    const Tensor* output(size_t index) const;
    // The tensor at position `relative_index` of the parameter `ir_index`; null if there are fewer.
    const Tensor* input_of(size_t ir_index, size_t relative_index) const;
    size_t slots_of(const Parameter& parameter) const;
    size_t count_slots(const std::vector<Parameter>& parameters) const;
    const gert::RuntimeAttrs* runtime_attrs() const { return &runtime_attrs_; }
    const gert::ComputeNodeInfo* compute_node_info() const { return &compute_node_info_; }
    const gert::AnchorInstanceInfo* input_instances(size_t ir_index) const;
    const gert::AnchorInstanceInfo* output_instances(size_t ir_index) const;

    // Run a host function on this call.
    uint32_t tile(uint32_t (*function)(gert::TilingContext*));
    uint32_t parse(uint32_t (*function)(gert::TilingParseContext*));
    uint32_t infer_shape(uint32_t (*function)(gert::InferShapeContext*));
    uint32_t infer_data_type(uint32_t (*function)(gert::InferDataTypeContext*));

    static void set_data_type(Tensor* tensor, ge::DataType type);

private:
    template <typename Context>
    uint32_t run(uint32_t (*function)(Context*));

    gert::RuntimeAttrs runtime_attrs_;
    gert::ComputeNodeInfo compute_node_info_;
    std::vector<gert::AnchorInstanceInfo> input_instances_, output_instances_;  // set when a function runs
};

}  // namespace simulated_cann
