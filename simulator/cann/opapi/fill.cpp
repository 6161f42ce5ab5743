// aclnnInplaceZero, -One, -FillScalar, -FillTensor: set every element to one value.
#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

template <class C>
void fill_with(const Operand& out, C value) {
    C run[kRun];
    for (C& one : run) one = value;
    for_each_run({&out}, [&](int64_t count, char* const* at) { store(out.dtype, at[0], out.step(), count, run); });
}

// Converts an integer or bool value through int64_t, any other value through std::complex<double>.
void fill_from(const Operand& out, const Operand& value) {
    if (!is_floating(value.dtype) && !is_complex(value.dtype)) {
        int64_t integer = 0;
        load(value.dtype, value.first, 1, 1, &integer);
        fill_with(out, integer);
    } else {
        std::complex<double> number;
        load(value.dtype, value.first, 1, 1, &number);
        fill_with(out, number);
    }
}

aclError prepare_fill(const char* name, aclTensor* self, const aclScalar& value, uint64_t* workspace_bytes,
                      aclOpExecutor** executor) {
    Operand out;
    std::string error = read_argument(self, "self", &out);
    if (error.empty()) error = read_argument(&value, "value");
    if (error.empty()) error = argument_rule(name, Role::kOutput, "self", out);
    if (error.empty()) error = argument_rule(name, "value", value);
    if (!error.empty()) return refused(name, error);
    auto body = [out, value] {
        aclScalar scalar_copy = value;
        Operand one;
        one.dtype = scalar_copy.dtype;
        one.first = reinterpret_cast<char*>(scalar_copy.value);
        fill_from(out, one);
    };
    return prepared(name, {writes("self", out)}, body, workspace_bytes, executor);
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
    return simulated_cann::prepare_fill("aclnnInplaceZero", self, simulated_cann::uint8_scalar(0), bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceZero)

NPU_CANN_API aclError aclnnInplaceOneGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_fill("aclnnInplaceOne", self, simulated_cann::uint8_scalar(1), bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceOne)

NPU_CANN_API aclError aclnnInplaceFillScalarGetWorkspaceSize(aclTensor* self, const aclScalar* value, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    if (!value)
        return simulated_cann::refused("aclnnInplaceFillScalar", std::string("value") + simulated_cann::kIsNull);
    return simulated_cann::prepare_fill("aclnnInplaceFillScalar", self, *value, bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceFillScalar)

NPU_CANN_API aclError aclnnInplaceFillTensorGetWorkspaceSize(aclTensor* self, const aclTensor* value, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    using namespace simulated_cann;
    Operand out, one;
    std::string error = read_argument(self, "self", &out);
    if (error.empty()) error = read_argument(value, "value", &one);
    if (error.empty()) error = argument_rule("aclnnInplaceFillTensor", Role::kOutput, "self", out);
    if (error.empty()) error = argument_rule("aclnnInplaceFillTensor", Role::kInput, "value", one);
    // hicann/ops-math conversion/fill/op_api/aclnn_fill_tensor.cpp, CheckShape.
    if (error.empty() && (one.count() != 1 || one.shape.size() > 1))
        error = "value must have one element and at most one dimension but got " + std::to_string(one.count()) +
                " in " + std::to_string(one.shape.size()) + ".";
    if (!error.empty()) return refused("aclnnInplaceFillTensor", error);
    return prepared(
        "aclnnInplaceFillTensor", {reads("value", one), writes("self", out)}, [out, one] { fill_from(out, one); },
        bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceFillTensor)
