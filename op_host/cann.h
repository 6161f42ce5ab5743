// From CANN's contexts to what checks and tilings of every operator take, and back.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/platform.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// npu_rope_dtype's number, or one that it does not have.
int32_t dtype_from_cann(ge::DataType type);

// A contiguous tensor of a device as the checks take it. Of a view the origin shape is what its user sees;
// the storage is all of its memory. Its data are nowhere: the host does not see them.
npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc);

// The attribute `strides` of every operator. Its default is one 0, which means that every tensor is contiguous.
// It must not be empty: aclnn's runtime refuses a list without elements (561103), and the code that CANN generates
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

    // NULL where there is none.
    const npu_rope_tensor* input(size_t index);
    const npu_rope_tensor* contiguous_input(size_t index);
    const npu_rope_tensor* optional_view(size_t index);
    const npu_rope_tensor* optional_contiguous(size_t index);
    const npu_rope_tensor* output(size_t index);

    // When all are read.
    Check end() const;

private:
    const npu_rope_tensor* tensor(const gert::StorageShape* shape, const gert::CompileTimeTensorDesc* desc,
                                  bool may_be_view);

    const char* op_;
    gert::TilingContext* context_;
    const gert::RuntimeAttrs* attrs_ = nullptr;
    std::vector<int64_t> strides_;
    size_t strides_at_ = 0;
    npu_rope_tensor tensors_[12];  // more than any operator has
    size_t tensor_count_ = 0;
};

// The chip that is tiled for.
Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform);

// What the framework did not give.
Check nothing_of(const char* op, const char* what);

// CANN's log is where a host function says why it refuses a call.
void log_to_cann(const std::string& error);

// A configuration of a SoC whose kernels' tilings run when the operator does, for every shape. A kernel
// that reads its tiling data's address in global memory needs that: where CANN compiles for static shapes,
// as AddConfig(soc) without a configuration allows, tiling data are constants of the kernel.
ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config);

// Everything a tiling sets. Workspace: the kernel's own bytes; the library's come on top.
Check hand_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* room,
                   uint32_t block_dim, uint64_t tiling_key, int64_t workspace_bytes);

template <typename Data>
Check hand_to_cann(const char* op, gert::TilingContext* context, const Data& data, uint32_t block_dim,
                   uint64_t tiling_key, int64_t workspace_bytes) {
    static_assert(std::is_trivially_copyable<Data>::value, "copied to the device as it is");
    void* room = context->GetTilingData<Data>();
    return hand_to_cann(op, context, &data, sizeof data, room, block_dim, tiling_key, workspace_bytes);
}

// The SoCs whose types are the definition's own, and Ascend310P, where `of_310p` says which they are. All kernels
// of one's are tiled at run time.
void add_chips(ops::OpDef* def, ops::OpAICoreConfig* of_310p);

// Why a tiling function refuses a call goes to CANN's log.
ge::graphStatus said_to_cann(const Check& check);

// Output k has the shape, or the type, of the definition's input `first_input` + k.
ge::graphStatus infer_shapes_of_inputs(gert::InferShapeContext* context, size_t first_input, size_t outputs);
ge::graphStatus infer_types_of_inputs(gert::InferDataTypeContext* context, size_t first_input, size_t outputs);

}  // namespace npu_rope
