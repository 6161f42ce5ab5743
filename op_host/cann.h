// From CANN's contexts to what checks and tilings of every operator take, and back.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

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

// Output k has the shape, or the type, of the definition's input `first_input` + k.
ge::graphStatus infer_shapes_of_inputs(gert::InferShapeContext* context, size_t first_input, size_t outputs);
ge::graphStatus infer_types_of_inputs(gert::InferDataTypeContext* context, size_t first_input, size_t outputs);

}  // namespace npu_rope
