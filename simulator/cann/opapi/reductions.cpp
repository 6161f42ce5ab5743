// ReduceSum, Mean and Norm. float16, bfloat16 and float32 are added in float32, in as many partial sums as the vector
// unit has lanes (sums.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/sums.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

// The dimensions that a reduction removes. The elements of `given` may be negative; an empty `given` means all
// dimensions. `accepts_one_element` tells whether the source accepts every shape of one element for out if the result
// has one element.
std::vector<size_t> check_reduction(FirstPhase* call, const char* name, const std::vector<int64_t>& given,
                                    const Operand& self, bool keeps_dims, const Operand& out,
                                    bool accepts_one_element = false) {
    const size_t rank = self.shape.size();
    std::vector<bool> is_reduced(std::max<size_t>(rank, 1), given.empty());
    for (int64_t value : given) {
        const size_t dim = call->dimension(name, value, rank);
        if (!call->is_valid()) return {};
        call->require(!is_reduced[dim], name, "contain each dimension at most once", shape_text(given));
        is_reduced[dim] = true;
    }
    std::vector<size_t> reduced;
    std::vector<int64_t> shape;
    for (size_t dim = 0; dim < rank; ++dim) {
        if (is_reduced[dim]) reduced.push_back(dim);
        if (!is_reduced[dim])
            shape.push_back(self.shape[dim]);
        else if (keeps_dims)
            shape.push_back(1);
    }
    if (accepts_one_element)
        call->require_shape_or_one_element("out", out, shape);
    else
        call->require_shape("out", out, shape);
    return reduced;
}

// The operand with the reduced dimensions last, so that its packed elements are one row for each result.
Operand with_last(const Operand& operand, const std::vector<size_t>& reduced) {
    std::vector<size_t> order;
    for (size_t dim = 0; dim < operand.shape.size(); ++dim)
        if (std::find(reduced.begin(), reduced.end(), dim) == reduced.end()) order.push_back(dim);
    order.insert(order.end(), reduced.begin(), reduced.end());
    return permuted(operand, order);
}

// Writes reduce(row, size) for each row. Rounds to `dtype` and then to the dtype of `out`.
template <class Compute, class Reduce>
void reduce_rows(const Operand& out, int32_t dtype, const Operand& rows, int64_t size, Reduce reduce) {
    const std::vector<Compute> values = values_of<Compute>(rows);
    std::vector<Compute> results(static_cast<size_t>(out.count()));
    for (size_t i = 0; i < results.size(); ++i)
        results[i] = reduce(values.data() + static_cast<int64_t>(i) * size, size);
    std::vector<char> storage;
    const Operand rounded = packed_operand(dtype, out.shape, &storage);
    set_values(rounded, results);
    copy_view(out, rounded);
}

int64_t row_size(const Operand& self, const std::vector<size_t>& reduced) {
    int64_t size = 1;
    for (size_t dim : reduced) size *= self.shape[dim];
    return size;
}

// A reduction that converts its input to `dtype` first.
struct CastReduction {
    Operand self, out;
    std::vector<size_t> reduced;
    int32_t dtype = 0;

    template <class Compute, class Reduce>
    void run(Reduce reduce) const {
        std::vector<char> storage;
        const Operand view = with_last(self, reduced);
        const Operand rows = dtype == self.dtype ? view : packed_as(dtype, view, &storage);
        reduce_rows<Compute>(out, dtype, rows, row_size(self, reduced), reduce);
    }
};

CastReduction check_cast_reduction(FirstPhase* call, const TypesByChip& types, const char* dims_name,
                                   const aclTensor* self_tensor, const aclIntArray* dims, bool keeps_dims,
                                   int32_t dtype, const aclTensor* out_tensor) {
    CastReduction reduction;
    reduction.dtype = dtype;
    reduction.self = call->input("self", self_tensor, types);
    const std::vector<int64_t> given = call->integers(dims_name, dims);
    reduction.out = call->output("out", out_tensor, types);
    const std::string error = type_error("dtype", types, dtype);
    call->require(error.empty(), "dtype", "be a type that the function computes", dtype_name(dtype));
    reduction.reduced = check_reduction(call, dims_name, given, reduction.self, keeps_dims, reduction.out, true);
    const bool is_complex_fill = reduction.self.count() == 0 && is_complex(reduction.out.dtype);
    call->require(!is_complex_fill, "out", "be real for an empty self", dtype_name(reduction.out.dtype));
    if (call->is_valid() && dtype != reduction.self.dtype)
        call->ask_workspace(reduction.self.count() * dtype_bytes(dtype));
    return reduction;
}

// hicann/ops-math math/reduce_sum/docs/aclnnReduceSum.md and op_api/aclnn_reduce_sum.cpp: CANN converts self to dtype
// before it adds. The sum of bool elements is true if any element is true.
aclError prepare_reduce_sum(const aclTensor* self_tensor, const aclIntArray* dims, bool keeps_dims, int32_t dtype,
                            const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnReduceSum");
    const CastReduction sum = check_cast_reduction(&call, with_bf16_except_310p(kNumberTypes), "dims", self_tensor,
                                                   dims, keeps_dims, dtype, out_tensor);
    call.require_dtype("out", sum.out, dtype);
    auto body = [sum] {
        call_with_compute_type(sum.dtype, [&](auto type) {
            using Compute = decltype(type);
            sum.run<Compute>([](const Compute* row, int64_t size) { return lane_sum(row, size); });
        });
    };
    return call.finish(body, bytes, executor);
}

// Returns the sum times 1 / n in the compute type, and for integers the quotient. The mean of no elements is NaN, and
// for integers 0.
template <class Compute>
Compute mean_of(const Compute* row, int64_t size) {
    if constexpr (std::is_same_v<Compute, int64_t>) {
        return size ? lane_sum(row, size) / size : 0;
    } else if (size == 0) {
        return Compute(std::numeric_limits<float>::quiet_NaN());
    } else {
        return lane_sum(row, size) * (Compute(1) / Compute(static_cast<double>(size)));
    }
}

// hicann/ops-math math/reduce_mean/docs/aclnnMean.md, op_api/aclnn_mean.cpp and op_kernel/arch35/reduce_mean_dag.h: the
// kernel multiplies the sum by 1 / n.
aclError prepare_mean(const aclTensor* self_tensor, const aclIntArray* dim, bool keeps_dim, int32_t dtype,
                      const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnMean");
    constexpr uint32_t all = kHalfToDoubleTypes | kIntegerTypes | kComplexTypes;
    const CastReduction mean =
        check_cast_reduction(&call, with_bf16_except_310p(all), "dim", self_tensor, dim, keeps_dim, dtype, out_tensor);
    if (call.is_valid()) {
        call.require(can_cast(mean.self.dtype, dtype), "dtype",
                     std::string("be a type to which ") + dtype_name(mean.self.dtype) + " converts", dtype_name(dtype));
        call.require(can_cast(dtype, mean.out.dtype), "out",
                     std::string("have a type to which ") + dtype_name(dtype) + " converts",
                     dtype_name(mean.out.dtype));
    }
    auto body = [mean] {
        call_with_compute_type(mean.dtype, [&](auto type) { mean.run<decltype(type)>(mean_of<decltype(type)>); });
    };
    return call.finish(body, bytes, executor);
}

float norm_of(const float* row, int64_t size, float p) {
    const auto sum = [&](auto term) { return lane_sum(row, size, term); };
    if (size == 0) return 0;
    if (std::isinf(p)) {
        float result = std::fabs(row[0]);
        for (int64_t i = 1; i < size; ++i)
            result = p > 0 ? std::fmax(result, std::fabs(row[i])) : std::fmin(result, std::fabs(row[i]));
        return result;
    }
    if (p == 0) return sum([](float x) { return x != 0 ? 1.0f : 0.0f; });
    if (p == 1) return sum([](float x) { return std::fabs(x); });
    if (p == 2) return std::sqrt(sum([](float x) { return x * x; }));
    return std::pow(sum([p](float x) { return std::pow(std::fabs(x), p); }), 1 / p);
}

// The value of p: INT_MAX and INT_MIN mean the infinities (op_api/aclnn_norm.cpp, CalculateValP).
float norm_order(float p) {
    const float infinity = std::numeric_limits<float>::infinity();
    return p == 0x1p31f ? infinity : p == -0x1p31f ? -infinity : p;
}

// hicann/ops-nn norm/lp_norm_v2/docs/aclnnNorm.md and op_api/aclnn_norm.cpp. The document lists bfloat16 for all chips,
// the source computes it only on Ascend910B.
aclError prepare_norm(const aclTensor* self_tensor, const aclScalar* p_scalar, const aclIntArray* dim, bool keeps_dim,
                      const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnNorm");
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const Operand self = call.input("self", self_tensor, types);
    const float p = norm_order(call.scalar<float>("pScalar", p_scalar, on_all(type_set({kFloat}))));
    const std::vector<int64_t> given = call.integers("dim", dim);
    const Operand out = call.output("out", out_tensor, types);
    const std::vector<size_t> reduced = check_reduction(&call, "dim", given, self, keeps_dim, out);
    // On Ascend310P, CANN always converts self to float32. On Ascend910B, it does so unless out is float32 or has the
    // type of self.
    const bool casts = self.dtype != kFloat && (is_ascend310p() || (out.dtype != self.dtype && out.dtype != kFloat));
    if (call.is_valid() && casts) call.ask_workspace(self.count() * 4);
    auto body = [self, out, reduced, p] {
        reduce_rows<float>(out, out.dtype, with_last(self, reduced), row_size(self, reduced),
                           [p](const float* row, int64_t size) { return norm_of(row, size, p); });
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnReduceSumGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keeps_dims,
                                                     int32_t dtype, aclTensor* out, uint64_t* bytes,
                                                     aclOpExecutor** executor) {
    return simulated_cann::prepare_reduce_sum(self, dims, keeps_dims, dtype, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnReduceSum)

NPU_CANN_API aclError aclnnMeanGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keeps_dim,
                                                int32_t dtype, aclTensor* out, uint64_t* bytes,
                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_mean(self, dim, keeps_dim, dtype, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnMean)

NPU_CANN_API aclError aclnnNormGetWorkspaceSize(const aclTensor* self, const aclScalar* p, const aclIntArray* dim,
                                                bool keeps_dim, aclTensor* out, uint64_t* bytes,
                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_norm(self, p, dim, keeps_dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnNorm)
