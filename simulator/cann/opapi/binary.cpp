#include "cann/opapi/binary.h"

#include <cstring>

#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

struct BinaryCall {
    Operand self, other, out;
    bool is_other_scalar = false, has_alpha = false;
    aclScalar scalar, alpha;
};

// As in torch on the CPU, sums and comparisons first convert the scalar to the dtype of the computation; Mul and Div do
// not, for which `scalar_dtype` is negative.
template <class Compute>
void run_call(const BinaryCall& call, RunFunction<Compute> function, int32_t scalar_dtype) {
    Compute scalar{}, alpha(1);
    if (call.is_other_scalar) scalar = scalar_as<Compute>(call.scalar);
    if (call.is_other_scalar && scalar_dtype >= 0) scalar = rounded_to(scalar_dtype, scalar);
    if (call.has_alpha) alpha = scalar_as<Compute>(call.alpha);
    Operand self = call.self.broadcast_to(call.out.shape);
    Operand other = call.is_other_scalar ? call.out : call.other.broadcast_to(call.out.shape);
    Compute self_run[kMaxRunElements], other_run[kMaxRunElements], out_run[kMaxRunElements];
    for (Compute& element : other_run) element = scalar;
    for_each_run({&call.out, &self, &other}, [&](int64_t count, char* const* addresses) {
        load(self.dtype, addresses[1], self.run_stride(), count, self_run);
        if (!call.is_other_scalar) load(other.dtype, addresses[2], other.run_stride(), count, other_run);
        function(count, self_run, other_run, alpha, out_run);
        store(call.out.dtype, addresses[0], call.out.run_stride(), count, out_run);
    });
}

CallTypes types_of(const BinaryCall& call, const SecondArgument& second) {
    CallTypes types;
    types.self = call.self.dtype;
    types.other = call.is_other_scalar ? second.scalar->dtype : call.other.dtype;
    types.is_other_scalar = call.is_other_scalar;
    if (second.alpha) types.alpha = second.alpha->dtype;
    types.out = call.out.dtype;
    return types;
}

BeyondDocument beyond_document(const char* name, const BinaryCall& call, const CallTypes& types) {
    BeyondDocument beyond;
    add_undocumented_type(&beyond, name, Role::kInput, "self", types.self);
    add_undocumented_result(&beyond, name, types);
    // hicann/ops-math math/equal/docs/aclnnEqTensor&aclnnInplaceEqTensor.md; the source has no such check.
    beyond.add(std::strcmp(name, "aclnnInplaceEqTensor") == 0 && (call.self.count() == 0) != (call.other.count() == 0),
               "its document does not allow one empty tensor of selfRef and other");
    return beyond;
}

// Returns "" or the reason why CANN's function refuses arguments of these types or ranks.
std::string types_error(const char* name, const BinaryCall& call, const SecondArgument& second) {
    std::string error = argument_error(name, Role::kInput, "self", call.self);
    if (error.empty())
        error = call.is_other_scalar ? argument_error(name, "other", *second.scalar)
                                     : argument_error(name, Role::kInput, "other", call.other);
    if (error.empty() && second.alpha) error = argument_error(name, "alpha", *second.alpha);
    if (error.empty()) error = argument_error(name, Role::kOutput, "out", call.out);
    if (!error.empty()) return error;
    const CallTypes types = types_of(call, second);
    error = promotion_error(types.self, types.other);
    return error.empty() ? cast_error(name, types) : error;
}

}  // namespace

aclError prepare_binary(const char* name, const BinaryFunction& function, ComputeDtype compute_dtype,
                        const aclTensor* self, const SecondArgument& second, const aclTensor* out,
                        uint64_t* workspace_bytes, aclOpExecutor** executor) {
    BinaryCall call;
    call.is_other_scalar = second.scalar != nullptr;
    std::string error = read_argument(name, Role::kInput, self, "self", &call.self);
    if (error.empty()) error = read_argument(name, Role::kOutput, out, "out", &call.out);
    if (error.empty())
        error = call.is_other_scalar ? read_argument(name, second.scalar, "other")
                                     : read_argument(name, Role::kInput, second.tensor, "other", &call.other);
    if (error.empty() && second.alpha) error = read_argument(name, second.alpha, "alpha");
    if (error.empty()) error = types_error(name, call, second);
    if (error.empty())
        error = result_shape_error(call.self, "self", call.is_other_scalar ? call.self : call.other, "other", call.out);
    if (!error.empty()) return refuse(name, error);

    int32_t dtype = call.out.dtype;
    if (compute_dtype == ComputeDtype::kOutput) {
        // The scalar may be a fraction although out is an integer: hicann/ops-math math/mul/op_api/aclnn_mul.cpp,
        // InferTensorScalarDtype.
        if (call.is_other_scalar && !is_floating(dtype) && !is_complex(dtype))
            dtype = promoted_dtype(call.self.dtype, true, second.scalar->dtype, false);
    } else {
        // A floating-point scalar promotes integers to torch's default dtype.
        int32_t other = !call.is_other_scalar               ? call.other.dtype
                        : is_floating(second.scalar->dtype) ? kFloat
                                                            : second.scalar->dtype;
        dtype = promoted_dtype(call.self.dtype, !call.self.shape.empty() || call.is_other_scalar, other,
                               !call.is_other_scalar && !call.other.shape.empty());
    }
    if (is_complex(dtype) && !std::get<RunFunction<std::complex<float>>>(function))
        return refuse(name, "self and other must be real.");
    if (call.is_other_scalar) call.scalar = *second.scalar;
    call.has_alpha = second.alpha != nullptr;
    if (call.has_alpha) call.alpha = *second.alpha;
    const int32_t scalar_dtype = call.has_alpha || compute_dtype == ComputeDtype::kPromotedInputs ? dtype : -1;
    auto body = [call, function, dtype, scalar_dtype] {
        call_with_compute_type(
            dtype, [&](auto zero) { run_call(call, std::get<RunFunction<decltype(zero)>>(function), scalar_dtype); });
    };
    std::vector<MemoryAccess> accesses{read_access("self", call.self), write_access("out", call.out)};
    if (!call.is_other_scalar) accesses.push_back(read_access("other", call.other));
    const aclError status = finish_first_phase(name, std::move(accesses), body, workspace_bytes, executor);
    if (status == kSuccess) beyond_document(name, call, types_of(call, second)).report(name);
    return status;
}

}  // namespace simulated_cann
