#include "cann/opapi/binary.h"

#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

struct Plan {
    Operand a, b, out;
    bool b_is_scalar = false, has_alpha = false;
    aclScalar scalar, alpha;
};

// As in torch on the CPU, sums and comparisons first convert the scalar to the computation's dtype; Mul and Div do not.
template <class C>
C converted(C value, int32_t dtype) {
    alignas(16) char bytes[16];
    store(dtype, bytes, 1, 1, &value);
    load(dtype, bytes, 1, 1, &value);
    return value;
}

template <class C>
void run(const Plan& p, RunFunction<C> f, int32_t scalar_dtype) {
    C scalar{}, alpha(1);
    if (p.b_is_scalar) scalar = scalar_as<C>(p.scalar);
    if (p.b_is_scalar && scalar_dtype >= 0) scalar = converted(scalar, scalar_dtype);
    if (p.has_alpha) alpha = scalar_as<C>(p.alpha);
    Operand a = p.a.broadcast_to(p.out.shape);
    Operand b = p.b_is_scalar ? p.out : p.b.broadcast_to(p.out.shape);
    C left[kRun], right[kRun], result[kRun];
    for (C& one : right) one = scalar;
    for_each_run({&p.out, &a, &b}, [&](int64_t count, char* const* at) {
        load(a.dtype, at[1], a.step(), count, left);
        if (!p.b_is_scalar) load(b.dtype, at[2], b.step(), count, right);
        f(count, left, right, alpha, result);
        store(p.out.dtype, at[0], p.out.step(), count, result);
    });
}

// "" or the reason why the real function refuses arguments of these types or ranks.
std::string types_rule(const char* name, const Plan& p, const SecondArgument& second) {
    std::string error = argument_rule(name, Role::kInput, "self", p.a);
    if (error.empty())
        error = p.b_is_scalar ? argument_rule(name, "other", *second.scalar)
                              : argument_rule(name, Role::kInput, "other", p.b);
    if (error.empty() && second.alpha) error = argument_rule(name, "alpha", *second.alpha);
    if (error.empty()) error = argument_rule(name, Role::kOutput, "out", p.out);
    if (!error.empty()) return error;
    CallTypes types;
    types.self = p.a.dtype;
    types.other = p.b_is_scalar ? second.scalar->dtype : p.b.dtype;
    types.other_is_scalar = p.b_is_scalar;
    if (second.alpha) types.alpha = second.alpha->dtype;
    types.out = p.out.dtype;
    error = promotion_rule(types.self, types.other);
    return error.empty() ? cast_rule(name, types) : error;
}

}  // namespace

aclError prepare_binary(const char* name, const BinaryFunction& f, Computed computed, const aclTensor* self,
                        const SecondArgument& second, const aclTensor* out, uint64_t* workspace_bytes,
                        aclOpExecutor** executor) {
    Plan p;
    p.b_is_scalar = second.scalar != nullptr;
    std::string error = read_argument(self, "self", &p.a);
    if (error.empty()) error = read_argument(out, "out", &p.out);
    if (error.empty())
        error = p.b_is_scalar ? read_argument(second.scalar, "other") : read_argument(second.tensor, "other", &p.b);
    if (error.empty() && second.alpha) error = read_argument(second.alpha, "alpha");
    if (error.empty()) error = types_rule(name, p, second);
    if (error.empty()) error = result_shape_rule(p.a, "self", p.b_is_scalar ? p.a : p.b, "other", p.out);
    if (!error.empty()) return refused(name, error);

    int32_t dtype = p.out.dtype;
    if (computed == Computed::kAsOut) {
        // The scalar may be a fraction although out is an integer: hicann/ops-math math/mul/op_api/aclnn_mul.cpp,
        // InferTensorScalarDtype.
        if (p.b_is_scalar && !is_floating(dtype) && !is_complex(dtype))
            dtype = promoted(p.a.dtype, true, second.scalar->dtype, false);
    } else {
        // A floating-point scalar promotes integers to torch's default dtype.
        int32_t other = !p.b_is_scalar ? p.b.dtype : is_floating(second.scalar->dtype) ? kFloat : second.scalar->dtype;
        dtype = promoted(p.a.dtype, !p.a.shape.empty() || p.b_is_scalar, other, !p.b_is_scalar && !p.b.shape.empty());
    }
    if (is_complex(dtype) && !std::get<RunFunction<std::complex<float>>>(f))
        return refused(name, "self and other must be real.");
    if (p.b_is_scalar) p.scalar = *second.scalar;
    p.has_alpha = second.alpha != nullptr;
    if (p.has_alpha) p.alpha = *second.alpha;
    const int32_t scalar_dtype = p.has_alpha || computed == Computed::kAsInputs ? dtype : -1;
    auto body = [p, f, dtype, scalar_dtype] {
        with_compute_type(dtype, [&](auto zero) { run(p, std::get<RunFunction<decltype(zero)>>(f), scalar_dtype); });
    };
    std::vector<MemoryAccess> accesses{reads("self", p.a), writes("out", p.out)};
    if (!p.b_is_scalar) accesses.push_back(reads("other", p.b));
    return prepared(name, std::move(accesses), body, workspace_bytes, executor);
}

}  // namespace simulated_cann
