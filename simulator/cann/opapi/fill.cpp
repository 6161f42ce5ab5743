// aclnnInplaceZero, aclnnInplaceOne, aclnnInplaceFillScalar, aclnnInplaceFillTensor: set every element to one value.
#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

template <class Compute>
void fill_with(const Operand& out, Compute value) {
    Compute run[kMaxRunElements];
    for (Compute& element : run) element = value;
    for_each_run({&out}, [&](int64_t count, char* const* addresses) {
        store(out.dtype, addresses[0], out.run_stride(), count, run);
    });
}

// Converts an integer or bool value through int64_t, any other value through std::complex<double>.
void fill_from(const Operand& out, const Operand& value) {
    if (!is_floating(value.dtype) && !is_complex(value.dtype)) {
        fill_with(out, load_one<int64_t>(value.dtype, value.first));
    } else {
        fill_with(out, load_one<std::complex<double>>(value.dtype, value.first));
    }
}

// The documents require a value whose type converts to that of self. The sources convert every value.
BeyondDocument beyond_document(const char* name, int32_t self, int32_t value) {
    BeyondDocument beyond;
    add_undocumented_type(&beyond, name, Role::kOutput, "self", self);
    add_undocumented_type(&beyond, name, Role::kInput, "value", value);
    beyond.add(!can_cast(value, self), std::string("its document does not convert a value of ") + dtype_name(value) +
                                           " to " + dtype_name(self));
    return beyond;
}

// `is_fill_scalar`: the value is an argument of the call.
aclError prepare_fill(const char* name, aclTensor* self, const aclScalar& value, bool is_fill_scalar,
                      uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Operand out;
    std::string error = read_argument(name, Role::kOutput, self, "self", &out);
    if (error.empty()) error = read_argument(name, &value, "value");
    if (error.empty()) error = argument_error(name, Role::kOutput, "self", out);
    if (error.empty()) error = argument_error(name, "value", value);
    // CheckPromoteType in hicann/ops-math conversion/fill/op_api/aclnn_fill_scalar.cpp.
    if (error.empty() && is_fill_scalar) error = promotion_error(out.dtype, value.dtype, "value");
    if (!error.empty()) return refuse(name, error);
    auto body = [out, value] {
        aclScalar scalar_copy = value;
        Operand value_operand;
        value_operand.dtype = scalar_copy.dtype;
        value_operand.first = reinterpret_cast<char*>(scalar_copy.value);
        fill_from(out, value_operand);
    };
    const aclError status = finish_first_phase(name, {write_access("self", out)}, body, workspace_bytes, executor);
    BeyondDocument beyond;
    if (is_fill_scalar)
        beyond = beyond_document(name, out.dtype, value.dtype);
    else
        add_undocumented_type(&beyond, name, Role::kOutput, "self", out.dtype);
    if (status == kSuccess) beyond.report(name);
    return status;
}

aclScalar uint8_scalar(uint8_t value) {
    aclScalar scalar;
    scalar.value[0] = value;
    scalar.dtype = kUint8;
    return scalar;
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnInplaceZeroGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_fill("aclnnInplaceZero", self, simulated_cann::uint8_scalar(0), false, bytes,
                                        executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceZero)

NPU_CANN_API aclError aclnnInplaceOneGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_fill("aclnnInplaceOne", self, simulated_cann::uint8_scalar(1), false, bytes,
                                        executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceOne)

NPU_CANN_API aclError aclnnInplaceFillScalarGetWorkspaceSize(aclTensor* self, const aclScalar* value, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    if (!value)
        return simulated_cann::refuse("aclnnInplaceFillScalar", std::string("value") + simulated_cann::kMustNotBeNull);
    return simulated_cann::prepare_fill("aclnnInplaceFillScalar", self, *value, true, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceFillScalar)

NPU_CANN_API aclError aclnnInplaceFillTensorGetWorkspaceSize(aclTensor* self, const aclTensor* value, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    using namespace simulated_cann;
    Operand out, value_operand;
    std::string error = read_argument("aclnnInplaceFillTensor", Role::kOutput, self, "self", &out);
    if (error.empty()) error = read_argument("aclnnInplaceFillTensor", Role::kInput, value, "value", &value_operand);
    if (error.empty()) error = argument_error("aclnnInplaceFillTensor", Role::kOutput, "self", out);
    if (error.empty()) error = argument_error("aclnnInplaceFillTensor", Role::kInput, "value", value_operand);
    // hicann/ops-math conversion/fill/op_api/aclnn_fill_tensor.cpp, CheckShape.
    if (error.empty() && (value_operand.count() != 1 || value_operand.shape.size() > 1))
        error = "value must have one element and at most one dimension but got " +
                std::to_string(value_operand.count()) + " element(s) in " + std::to_string(value_operand.shape.size()) +
                " dimension(s).";
    if (!error.empty()) return refuse("aclnnInplaceFillTensor", error);
    const aclError status = finish_first_phase(
        "aclnnInplaceFillTensor", {read_access("value", value_operand), write_access("self", out)},
        [out, value_operand] { fill_from(out, value_operand); }, bytes, executor);
    if (status == kSuccess)
        beyond_document("aclnnInplaceFillTensor", out.dtype, value_operand.dtype).report("aclnnInplaceFillTensor");
    return status;
}
NPU_CANN_SECOND_PHASE(aclnnInplaceFillTensor)
