#include "simulator/cann/opapi/binary.h"

namespace npu_cann {
namespace {

struct Plan {
    Operand a, b, out;
    bool b_is_scalar = false;
    double b_number = 0, alpha_number = 1;
    int64_t b_whole = 0, alpha_whole = 1;
};

void convert_to(int32_t dtype, double* number, int64_t* whole) {
    char value[16];
    store(dtype, value, 1, 1, number);
    load(dtype, value, 1, 1, number);
    store(dtype, value, 1, 1, whole);
    load(dtype, value, 1, 1, whole);
}

template <class C>
void run(const Plan& p, void (*f)(int64_t, const C*, const C*, C, C*), C scalar, C alpha) {
    Operand a = p.a.broadcast_to(p.out.shape);
    Operand b = p.b_is_scalar ? p.out : p.b.broadcast_to(p.out.shape);
    const bool flat = p.out.shape.empty();
    const int64_t a_stride = flat ? 1 : a.strides.back(), b_stride = flat ? 1 : b.strides.back(),
                  out_stride = flat ? 1 : p.out.strides.back();
    C left[kRun], right[kRun], result[kRun];
    for (C& one : right) one = scalar;
    for_each_run({&p.out, &a, &b}, [&](int64_t count, char* const* at) {
        load(a.dtype, at[1], a_stride, count, left);
        if (!p.b_is_scalar) load(b.dtype, at[2], b_stride, count, right);
        f(count, left, right, alpha, result);
        store(p.out.dtype, at[0], out_stride, count, result);
    });
}

}  // namespace

aclError prepare_binary(const char* name, const BinaryFunction& f, Computed computed, const aclTensor* self,
                        const Second& second, const aclTensor* out, uint64_t* workspace_bytes,
                        aclOpExecutor** executor) {
    Plan p;
    p.b_is_scalar = second.scalar != nullptr;
    std::string wrong = take(self, "self", &p.a);
    if (wrong.empty()) wrong = take(out, "out", &p.out);
    if (wrong.empty()) wrong = p.b_is_scalar ? take(second.scalar, "other") : take(second.tensor, "other", &p.b);
    if (wrong.empty() && second.alpha) wrong = take(second.alpha, "alpha");
    if (wrong.empty()) wrong = broadcast_rule(p.a, p.out, "self");
    if (wrong.empty() && !p.b_is_scalar) wrong = broadcast_rule(p.b, p.out, "other");
    if (!wrong.empty()) return refused(name, wrong);

    int32_t dtype = p.out.dtype;
    if (computed == Computed::kAsInputs) {
        // A Python float beside integers makes torch's default dtype of them.
        int32_t other = !p.b_is_scalar ? p.b.dtype : is_floating(second.scalar->dtype) ? kFloat : second.scalar->dtype;
        dtype = promoted(p.a.dtype, !p.a.shape.empty() || p.b_is_scalar, other, !p.b_is_scalar && !p.b.shape.empty());
    }
    if (p.b_is_scalar) {
        p.b_number = scalar_as_double(*second.scalar);
        p.b_whole = scalar_as_integer(*second.scalar);
        // As torch's CPU kernels: sums and comparisons convert the scalar to their dtype first, products do not.
        if (second.alpha || computed == Computed::kAsInputs) convert_to(dtype, &p.b_number, &p.b_whole);
    }
    if (second.alpha) {
        p.alpha_number = scalar_as_double(*second.alpha);
        p.alpha_whole = scalar_as_integer(*second.alpha);
    }
    auto body = [p, f, compute = compute_of(dtype)] {
        switch (compute) {
            case Compute::kInteger: return run(p, f.integer, p.b_whole, p.alpha_whole);
            case Compute::kFloat: return run(p, f.single, float(p.b_number), float(p.alpha_number));
            case Compute::kDouble: return run(p, f.twofold, p.b_number, p.alpha_number);
        }
    };
    return prepared(name, body, workspace_bytes, executor);
}

}  // namespace npu_cann
