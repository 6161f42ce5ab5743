// Functions for all operators: make their definitions in CANN, read CANN's contexts, and return results to CANN.
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

// Returns the npu_rope_dtype, or -1 for a type that no operator takes.
int32_t dtype_from_cann(ge::DataType type);

// Returns a contiguous tensor in the form that the checks take. Its sizes are those of the origin shape, which is the
// user's view; the storage shape describes all memory of the view. The tensor has no data pointer, because the host
// cannot read device memory.
npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc);

// The kinds of a definition's parameters. CANN copies a kContiguousInput or kOptionalContiguousInput that has gaps, so
// that the kernel gets a contiguous tensor.
enum ParameterKind { kInput, kContiguousInput, kOptionalInput, kOptionalContiguousInput, kOutput, kOptionalOutput };

// The types of a parameter, one for each column. A column has one type for each parameter.
using Types = std::vector<ge::DataType>;

// A parameter of a definition.
struct Parameter {
    const char* name;
    ParameterKind kind;
    Types types;
};

// The parameters of a definition, inputs first. If the kernel writes an input, the definition also has an output with
// the name of this input.
using Parameters = std::vector<Parameter>;

// The tensors of a call, in the order of the parameters.
using Tensors = std::vector<const npu_rope_tensor*>;

// Adds attributes to a definition. Each family of operators has a template function that lists its attributes: it calls
// required(), optional() or strides() once for each attribute, in the order of the definition. With an AttributeAdder,
// this function adds them; *value is the default of an optional attribute. With a CannCall, it reads them.
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
    // The attribute `strides`, which every operator has. Its default [0] means that every tensor is contiguous. The
    // default must not be empty: aclnn rejects a list without elements (status 561103), and the code that CANN
    // generates for an empty default passes one element of uninitialised memory.
    void strides() { def_->Attr("strides").AttrType(ops::OPTIONAL).ListInt({0}); }

private:
    ops::OpDef* def_;
};

// A call as CANN passes it to a tiling function. Read the attributes first, then the tensors.
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

    // Fills *tensors in the order of the definition; a tensor that the call does not have is NULL. Returns the first
    // error of an attribute or a tensor. The strides come from the attribute `strides` (docs/npu.md). It is [0] or
    // empty if every tensor is contiguous. Otherwise it has the strides of each given tensor that may be a view, inputs
    // first.
    Check tensors(const Parameters& parameters, Tensors* tensors);

private:
    // Reads the next attribute. T: its type in CANN.
    template <typename T, typename Value>
    void read(const char* name, Value* value);
    void set_int32(const char* name, int64_t wide, int32_t* value);
    void keep_first_error(Check check);
    void read_strides(npu_rope_tensor* t);

    const char* op_;
    gert::TilingContext* context_;
    const gert::RuntimeAttrs* attrs_;
    size_t attribute_ = 0;  // index of the next attribute
    Check check_;           // the first error of an attribute
    std::vector<int64_t> strides_;
    size_t next_stride_ = 0;       // index in strides_
    npu_rope_tensor tensors_[22];  // no operator has more
};

// Fills *platform with the chip of the call.
Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform);

// Returns the error for a part of the call that CANN has not passed.
Check missing_from_cann(const char* op, const char* what, const char* rule = "be in CANN's tiling context");

// Completes a definition: adds its parameters, its attributes, its tiling function and the SoCs. attributes: a function
// that adds the attributes. The configuration of Ascend310P omits the columns with bfloat16, which this SoC does not
// have. Ascend950 is an SoC of the definition if the build defines NPU_ROPE_ASCEND950. CANN 9.0 and older do not know
// this SoC: their op_build has no name for it, and their platform_ascendc.h lacks SocVersion::ASCEND950.
void define(ops::OpDef* def, const Parameters& parameters, void (*attributes)(AttributeAdder*),
            gert::OpImplRegisterV2::TilingKernelFunc tiling);

// Configures an SoC so that CANN runs the tiling at each call, for every shape. The kernels need this, because they
// read their tiling data from GM. Without such a configuration, CANN may compile a kernel for one shape, with the
// tiling data as constants.
ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config);

// Returns the error for a tensor without elements. aclnn does not tile a call with empty outputs, but a graph may.
Check empty_tensor_error(const char* op, const char* name, const npu_rope_tensor& t);

// Passes the result of a tiling to CANN. tiling_memory: CANN's memory for `data`; NULL if CANN has too little.
Check pass_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* tiling_memory,
                   const KernelLaunch& launch);

template <typename Data>
Check pass_to_cann(const char* op, gert::TilingContext* context, const TilingResult<Data>& tiled) {
    static_assert(std::is_trivially_copyable<Data>::value, "copied to the device as it is");
    void* tiling_memory = context->GetTilingData<Data>();
    return pass_to_cann(op, context, &tiled.data, sizeof tiled.data, tiling_memory, tiled.launch);
}

// Returns the status that a tiling function must return for `check`. Writes a failed check to CANN's log.
ge::graphStatus report_to_cann(const Check& check);

// Sets the shapes, or the types, of the outputs: output k gets that of input inputs[k] of the definition.
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
