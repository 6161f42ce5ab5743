// One call of an operator as plain data, which gert's contexts read and set.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "src/profile.h"

// The object behind the pointer from which PlatformAscendC is constructed.
class fe::PlatFormInfos {
public:
    explicit PlatFormInfos(const ascend_sim::Profile* chip) : profile(chip) {}
    const ascend_sim::Profile* profile;
};

namespace npu_cann {

struct Node {
    struct Tensor {
        bool present = false;
        gert::StorageShape shape;
        gert::CompileTimeTensorDesc desc;
    };
    std::string type;
    std::vector<Tensor> inputs, outputs;  // in the definition's order
    std::vector<std::vector<uint8_t>> attrs;
    fe::PlatFormInfos platform{nullptr};

    // Set by a tiling.
    uint64_t tiling_key = 0;
    uint32_t block_dim = 0;
    std::vector<uint8_t> tiling_bytes;
    gert::TilingData tiling;
    std::vector<size_t> workspaces;

    Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // A tensor's description for a host function. A view is described like a contiguous tensor.
    static Tensor tensor(ge::DataType type, const std::vector<int64_t>& shape);

    // Adds the next attribute in the definition's order.
    template <typename T>
    void add_attr(T value) {
        std::vector<uint8_t> bytes(sizeof value);
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

    // The input at position `index` among the present inputs; null if there are fewer.
    Tensor* present_input(size_t index);
    Tensor* optional_input(size_t ir_index);
    Tensor* output(size_t index);
    const gert::RuntimeAttrs* runtime_attrs() const { return &runtime_attrs_; }

    // Run a host function on this call.
    uint32_t tile(uint32_t (*function)(gert::TilingContext*));
    uint32_t infer_shape(uint32_t (*function)(gert::InferShapeContext*));
    uint32_t infer_data_type(uint32_t (*function)(gert::InferDataTypeContext*));

    static void set_data_type(Tensor* tensor, ge::DataType type) { tensor->desc.data_type_ = type; }

private:
    gert::RuntimeAttrs runtime_attrs_;
};

// Capacity for tiling data: CANN's value for a kernel whose description has no opParaSize (hicann/opbase
// src/nnopbase/individual_op/executor/indv_executor.h).
constexpr size_t kTilingCapacity = 8 * 1024;

// Returns and clears the last error message that a host function logged on this thread.
std::string take_logged_error();

}  // namespace npu_cann
