// Convert CANN's contexts to the arguments of every operator's checks and tiling, and results back.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/core/check.h"
#include "include/npu_rope.h"
#include "op_host/platform.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// The npu_rope_dtype, or a number outside it.
int32_t dtype_from_cann(ge::DataType type);

// A contiguous tensor of a device in the form that the checks take. The origin shape is the user's view; the storage
// shape covers all of the view's memory. The tensor has no data pointer, because the host cannot read the values.
npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc);

// Adds the attribute `strides`, which every operator has. Its default, one 0, means that every tensor is contiguous.
// It must not be empty: aclnn's runtime rejects a list without elements (561103), and the code that CANN generates
// for an empty default passes one element of undefined memory.
void add_strides_attribute(ops::OpDef* def);

// A call as CANN passes it to a tiling function: its attributes, and its tensors with their strides from the
// attribute `strides`, see docs/npu.md. The list is one 0 where every tensor is contiguous. Otherwise it holds the
// strides of every tensor that may be a view and is given, inputs first. Read the tensors in that order.
class CannCall {
public:
    CannCall(const char* op, gert::TilingContext* context) : op_(op), context_(context) {}

    Check begin(size_t strides_attribute);
    Check read(size_t index, const char* name, int64_t* value) const;
    Check read(size_t index, const char* name, int32_t* value) const;
    Check read(size_t index, const char* name, double* value) const;  // a float attribute
    Check read(size_t index, const char* name, bool* value) const;
    const gert::RuntimeAttrs& attributes() const { return *attrs_; }

    // NULL if the call has no such tensor.
    const npu_rope_tensor* input(size_t index);
    const npu_rope_tensor* contiguous_input(size_t index);
    const npu_rope_tensor* optional_view(size_t index);
    const npu_rope_tensor* optional_contiguous(size_t index);
    const npu_rope_tensor* output(size_t index);

    // To be called after all tensors are read.
    Check end() const;

private:
    const npu_rope_tensor* tensor(const gert::StorageShape* shape, const gert::CompileTimeTensorDesc* desc,
                                  bool may_be_view);

    const char* op_;
    gert::TilingContext* context_;
    const gert::RuntimeAttrs* attrs_ = nullptr;
    std::vector<int64_t> strides_;
    size_t strides_at_ = 0;
    npu_rope_tensor tensors_[12];  // no operator has more
    size_t tensor_count_ = 0;
};

// The chip of the call.
Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform);

// The error for a part of the call that the framework did not pass.
Check missing_from_cann(const char* op, const char* what);

// Writes the reason for which a host function rejects a call to CANN's log.
void log_to_cann(const std::string& error);

// The kinds of a definition's parameters, as CannCall reads them. CANN makes contiguous inputs contiguous before a
// call.
enum ParameterKind { kInput, kContiguousInput, kOptionalInput, kOptionalContiguousInput, kOutput };

// The data types of a parameter: a column of each compile of the kernel.
using Types = std::vector<ge::DataType>;

// A parameter of a definition. The types at the same index of all parameters belong together.
struct Parameter {
    const char* name;
    ParameterKind kind;
    Types types;
};

void add_parameters(ops::OpDef* def, const std::vector<Parameter>& parameters);

// Adds the SoCs. Ascend310P has no bfloat16: its configuration leaves out the columns that contain it.
void add_chips(ops::OpDef* def, const std::vector<Parameter>& parameters);

// A SoC's configuration with which tilings run at each call, for every shape. A kernel that reads its tiling data from
// their address in global memory needs this. AddConfig(soc) without a configuration allows CANN to compile for static
// shapes, with tiling data as constants of the kernel.
ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config);

// Passes the result of a tiling to CANN. workspace_bytes: those of the kernel; the function adds the library's.
Check hand_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* room,
                   uint32_t block_dim, uint64_t tiling_key, int64_t workspace_bytes);

template <typename Data>
Check hand_to_cann(const char* op, gert::TilingContext* context, const Data& data, uint32_t block_dim,
                   uint64_t tiling_key, int64_t workspace_bytes) {
    static_assert(std::is_trivially_copyable<Data>::value, "copied to the device as it is");
    void* room = context->GetTilingData<Data>();
    return hand_to_cann(op, context, &data, sizeof data, room, block_dim, tiling_key, workspace_bytes);
}

// Converts a check to a status. Writes the reason for which a tiling function rejects a call to CANN's log.
ge::graphStatus report_to_cann(const Check& check);

// Gives output k the shape, or the type, of the definition's input inputs[k].
ge::graphStatus infer_shapes(gert::InferShapeContext* context, const std::vector<size_t>& inputs);
ge::graphStatus infer_types(gert::InferDataTypeContext* context, const std::vector<size_t>& inputs);

// The same as functions that a definition registers.
template <size_t... inputs>
ge::graphStatus shapes_of_inputs(gert::InferShapeContext* context) {
    return infer_shapes(context, {inputs...});
}

template <size_t... inputs>
ge::graphStatus types_of_inputs(gert::InferDataTypeContext* context) {
    return infer_types(context, {inputs...});
}

}  // namespace npu_rope
