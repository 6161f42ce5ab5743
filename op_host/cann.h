// For all operators: make CANN's definitions, read CANN's contexts, and return results to CANN.
#pragma once

#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/core/check.h"
#include "include/npu_rope.h"
#include "op_host/platform.h"
#include "op_host/tiling_result.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// The npu_rope_dtype; -1 for a type that no operator takes.
int32_t dtype_from_cann(ge::DataType type);

// A contiguous tensor in the form that the checks take. Its sizes are those of the origin shape, the user's view; the
// storage shape covers all of the view's memory. It has no data pointer, because the host cannot read device memory.
npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc);

// The kinds of a definition's parameters. CANN makes a kContiguousInput or kOptionalContiguousInput contiguous.
enum ParameterKind { kInput, kContiguousInput, kOptionalInput, kOptionalContiguousInput, kOutput };

// The types of a parameter, one for each column.
using Types = std::vector<ge::DataType>;

// A parameter of a definition. A column is the types of all parameters at one index.
struct Parameter {
    const char* name;
    ParameterKind kind;
    Types types;
};

// The parameters of a definition, inputs first. An output with the name of an input is that input, which the kernel
// writes.
using Parameters = std::vector<Parameter>;

// The tensors of a call, in the order of the parameters.
using Tensors = std::vector<const npu_rope_tensor*>;

// Each family of operators has a template function that lists its attributes. It calls required(), optional() or
// strides() once for each, in the definition's order. Given an AttributeAdder, it adds them to a definition; *value is
// the default of an optional one.
class AttributeAdder {
public:
    explicit AttributeAdder(ops::OpDef* def) : def_(def) {}

    void required(const char* name, int32_t*) { def_->Attr(name).AttrType(ops::REQUIRED).Int(); }
    void optional(const char* name, int32_t* value) { def_->Attr(name).AttrType(ops::OPTIONAL).Int(*value); }
    void optional(const char* name, int64_t* value) { def_->Attr(name).AttrType(ops::OPTIONAL).Int(*value); }
    void optional(const char* name, bool* value) { def_->Attr(name).AttrType(ops::OPTIONAL).Bool(*value); }
    void optional(const char* name, double* value) {
        def_->Attr(name).AttrType(ops::OPTIONAL).Float(static_cast<float>(*value));
    }
    void optional(const char* name, int32_t (*value)[4]) {
        def_->Attr(name).AttrType(ops::OPTIONAL).ListInt({std::begin(*value), std::end(*value)});
    }
    // The attribute `strides`, which every operator has. Its default, one 0, means that every tensor is contiguous. It
    // must not be empty: aclnn's runtime rejects a list without elements (561103), and the code that CANN generates
    // for an empty default passes one element of undefined memory.
    void strides() { def_->Attr("strides").AttrType(ops::OPTIONAL).ListInt({0}); }

private:
    ops::OpDef* def_;
};

// A call as CANN passes it to a tiling function. Given a CannCall, the function that lists the attributes reads them.
// Then call tensors(), which also returns the first error of an attribute.
class CannCall {
public:
    CannCall(const char* op, gert::TilingContext* context);

    void required(const char* name, int32_t* value);
    void optional(const char* name, int32_t* value) { required(name, value); }
    void optional(const char* name, int64_t* value);
    void optional(const char* name, bool* value);
    void optional(const char* name, double* value);
    void optional(const char* name, int32_t (*value)[4]);
    void strides();

    // Fills *tensors in the definition's order, with NULL for an optional one that the call does not have. The strides
    // are those of the attribute `strides` (docs/npu.md): one 0, or no elements, if every tensor is contiguous, else
    // the strides of every given tensor that may be a view, inputs first.
    Check tensors(const Parameters& parameters, Tensors* tensors);

private:
    // Reads the next attribute, which has type T in CANN.
    template <typename T, typename Value>
    void read(const char* name, Value* value);
    void narrow(const char* name, int64_t wide, int32_t* value);
    void keep(Check check);
    void read_strides(npu_rope_tensor* t);

    const char* op_;
    gert::TilingContext* context_;
    const gert::RuntimeAttrs* attrs_;
    size_t attribute_ = 0;  // index of the next attribute
    Check check_;           // the first error of an attribute
    std::vector<int64_t> strides_;
    size_t strides_at_ = 0;
    npu_rope_tensor tensors_[12];  // no operator has more
};

// Fills *platform with the chip of the call.
Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform);

// The error for a part of the call that the framework did not pass.
Check missing_from_cann(const char* op, const char* what, const char* rule = "be in CANN's tiling context");

// Adds the parameters, the attributes that `attributes` adds, and the SoCs to a definition, with its tiling function.
// Ascend310P has no bfloat16: its configuration leaves out the columns that contain it.
void define(ops::OpDef* def, const Parameters& parameters, void (*attributes)(AttributeAdder*),
            gert::OpImplRegisterV2::TilingKernelFunc tiling);

// Configures an SoC so that CANN runs the tiling at each call, for every shape. Kernels need this, because they read
// their tiling data from GM. AddConfig(soc) without a configuration allows CANN to compile for static shapes, with the
// tiling data as constants of the kernel.
ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config);

// The error for a tensor without elements. aclnn does not tile a call whose outputs are empty; a graph may.
Check empty_tensor_error(const char* op, const char* name, const npu_rope_tensor& t);

// Passes the result of a tiling to CANN. room: the memory for `data`.
Check pass_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* room,
                   const KernelLaunch& launch);

template <typename Data>
Check pass_to_cann(const char* op, gert::TilingContext* context, const TilingResult<Data>& tiled) {
    static_assert(std::is_trivially_copyable<Data>::value, "copied to the device as it is");
    void* room = context->GetTilingData<Data>();
    return pass_to_cann(op, context, &tiled.data, sizeof tiled.data, room, tiled.launch);
}

// Returns the status that a tiling function must return for `check`. Writes a failed check to CANN's log.
ge::graphStatus report_to_cann(const Check& check);

// Sets the shape, or the type, of output k to that of the definition's input inputs[k].
ge::graphStatus infer_shapes(gert::InferShapeContext* context, const std::vector<size_t>& inputs);
ge::graphStatus infer_types(gert::InferDataTypeContext* context, const std::vector<size_t>& inputs);

// The two functions above for fixed inputs, in the form that a definition registers.
template <size_t... inputs>
ge::graphStatus shapes_of_inputs(gert::InferShapeContext* context) {
    return infer_shapes(context, {inputs...});
}

template <size_t... inputs>
ge::graphStatus types_of_inputs(gert::InferDataTypeContext* context) {
    return infer_types(context, {inputs...});
}

}  // namespace npu_rope
