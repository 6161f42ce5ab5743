// Functions of the elements along one dimension: Sort, Argsort, Topk, ArgMax, ArgMin, MaxDim, MinDim and Cumsum; and
// Max and Min of all elements. Equal elements keep their order, and NaN is greater than every number, as in torch: the
// documents define neither.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

// The operand with dimension `dim` last. A tensor of rank 0 becomes a vector of one element.
Operand with_last_dimension(const Operand& operand, size_t dim) {
    if (operand.shape.empty()) return with_repeated_dimension(operand, 0, 1);
    std::vector<size_t> order(operand.shape.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(dim), order.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
                order.end());
    return permuted(operand, order);
}

std::vector<int64_t> shape_without(std::vector<int64_t> shape, size_t dim, bool keeps_dim) {
    if (shape.empty()) return shape;
    if (keeps_dim)
        shape[dim] = 1;
    else
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
    return shape;
}

template <class Compute>
bool is_less(Compute a, Compute b) {
    if constexpr (std::is_floating_point_v<Compute>)
        return std::isnan(b) ? !std::isnan(a) : a < b;
    else
        return a < b;
}

// Calls work(Compute{}) with the compute type of a real dtype.
template <class Work>
void call_with_real_type(int32_t dtype, Work work) {
    if (dtype == kDouble) return work(double{});
    return is_floating(dtype) ? work(float{}) : work(int64_t{});
}

// Sorts the indices of a row by their elements. Only the first `count` of them are in order afterwards.
template <class Compute>
void sort_row(const Compute* row, bool descending, int64_t count, std::vector<int64_t>* order) {
    std::iota(order->begin(), order->end(), int64_t(0));
    const auto comes_before = [row, descending](int64_t a, int64_t b) {
        if (is_less(row[a], row[b])) return !descending;
        if (is_less(row[b], row[a])) return descending;
        return a < b;
    };
    std::partial_sort(order->begin(), order->begin() + count, order->end(), comes_before);
}

// Sorts each row and writes the first elements and their indices. The outputs have the same number of elements along
// `dim`. `values` may be null.
void sort_rows(const Operand& self, size_t dim, bool descending, const Operand* values, const Operand& indices) {
    if (indices.count() == 0) return;
    const Operand rows = with_last_dimension(self, dim), index_rows = with_last_dimension(indices, dim);
    const int64_t size = rows.shape.back(), count = index_rows.shape.back();
    call_with_real_type(self.dtype, [&](auto type) {
        using Compute = decltype(type);
        const std::vector<Compute> given = values_of<Compute>(rows);
        std::vector<int64_t> order(static_cast<size_t>(size)), found(static_cast<size_t>(indices.count()));
        std::vector<Compute> sorted(values ? found.size() : 0);
        for (int64_t row = 0; row * count < indices.count(); ++row) {
            sort_row(given.data() + row * size, descending, count, &order);
            for (int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<size_t>(row * count + i);
                found[at] = order[static_cast<size_t>(i)];
                if (values) sorted[at] = given[static_cast<size_t>(row * size + found[at])];
            }
        }
        set_values(index_rows, found);
        if (values) set_values(with_last_dimension(*values, dim), sorted);
    });
}

constexpr uint32_t kSortedTypes = kHalfAndFloatTypes | kIntegerTypes;
constexpr TypesByChip kInt64Only = on_all(type_set({kInt64}));

// CANN refuses to sort one element of bfloat16 (hicann/ops-math math/sort/op_api/aclnn_argsort.cpp, CheckDimValid, and
// aclnn_sort.cpp).
void refuse_one_bfloat16(FirstPhase* call, const Operand& self, size_t dim) {
    if (!call->is_valid() || self.dtype != kBfloat16 || self.shape.empty()) return;
    call->require(self.shape[dim] != 1, "self", "not be bfloat16 with one element in the sorted dimension",
                  shape_text(self.shape));
}

// hicann/ops-math math/sort/docs/aclnnArgsort.md and op_api/aclnn_argsort.cpp.
aclError prepare_argsort(const aclTensor* self_tensor, int64_t dim, bool descending, const aclTensor* out_tensor,
                         uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnArgsort");
    const Operand self = call.input("self", self_tensor, with_bf16_except_310p(kSortedTypes));
    const Operand out = call.output("out", out_tensor, kInt64Only);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    call.require_shape("out", out, self.shape);
    refuse_one_bfloat16(&call, self, axis);
    // The kernel also writes the sorted values.
    if (call.is_valid()) call.ask_workspace(self.count() * dtype_bytes(self.dtype));
    return call.finish([self, out, axis, descending] { sort_rows(self, axis, descending, nullptr, out); }, bytes,
                       executor);
}

// hicann/ops-math math/sort/docs/aclnnSort.md and op_api/aclnn_sort.cpp, which converts the values to the type of
// valuesOut.
aclError prepare_sort(const aclTensor* self_tensor, int64_t dim, bool descending, const aclTensor* values_tensor,
                      const aclTensor* indices_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnSort");
    const TypesByChip types = with_bf16_except_310p(kSortedTypes | kBoolType);
    const RankRange ranks{1, 8};
    const Operand self = call.input("self", self_tensor, types, ranks);
    const TypesByChip value_types = with_bf16_except_310p(kSortedTypes | kBoolType | type_set({kDouble}));
    const Operand values = call.output("valuesOut", values_tensor, value_types, ranks);
    const Operand indices = call.output("indicesOut", indices_tensor, kInt64Only, ranks);
    if (call.is_valid() && values.dtype != self.dtype) call.ask_workspace(self.count() * dtype_bytes(self.dtype));
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    call.require_shape("valuesOut", values, self.shape);
    call.require_shape("indicesOut", indices, self.shape);
    refuse_one_bfloat16(&call, self, axis);
    auto body = [self, values, indices, axis, descending] { sort_rows(self, axis, descending, &values, indices); };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/topk/docs/aclnnTopk.md.
aclError prepare_topk(const aclTensor* self_tensor, int64_t k, int64_t dim, bool largest, bool sorted,
                      const aclTensor* values_tensor, const aclTensor* indices_tensor, uint64_t* bytes,
                      aclOpExecutor** executor) {
    FirstPhase call("aclnnTopk");
    const TypesByChip types = with_bf16_except_310p(kSortedTypes | type_set({kDouble}));
    const RankRange ranks{1, 8};
    const Operand self = call.input("self", self_tensor, types, ranks);
    const Operand values = call.output("valuesOut", values_tensor, types, ranks);
    const Operand indices = call.output("indicesOut", indices_tensor, kInt64Only, ranks);
    call.require_dtype("valuesOut", values, self.dtype);
    call.require(sorted, "sorted", "be true", "false");
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (call.is_valid()) {
        std::vector<int64_t> shape = self.shape;
        call.require(k >= 0 && k <= shape[axis], "k", "be in [0, " + std::to_string(shape[axis]) + "]", k);
        shape[axis] = k;
        call.require_shape("valuesOut", values, shape);
        call.require_shape("indicesOut", indices, shape);
    }
    auto body = [self, values, indices, axis, largest] { sort_rows(self, axis, largest, &values, indices); };
    return call.finish(body, bytes, executor);
}

enum class Extreme { kGreatest, kLeast };

// Whether `a` is further than `b` in the direction of the extreme. NaN is further than every number in both directions.
template <class Compute>
bool is_further(Extreme extreme, Compute a, Compute b) {
    if constexpr (std::is_floating_point_v<Compute>)
        if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
    return extreme == Extreme::kGreatest ? b < a : a < b;
}

// Writes the first greatest or least element of each row and its index. The outputs have the shape of self without
// `dim`.
void find_extreme(Extreme extreme, const Operand& self, size_t dim, const Operand* values, const Operand& indices) {
    if (indices.count() == 0 || self.count() == 0) return;
    const Operand rows = with_last_dimension(self, dim);
    const int64_t size = rows.shape.back();
    call_with_real_type(self.dtype, [&](auto type) {
        using Compute = decltype(type);
        const std::vector<Compute> given = values_of<Compute>(rows);
        std::vector<int64_t> found(static_cast<size_t>(indices.count()));
        std::vector<Compute> extremes(found.size());
        for (size_t row = 0; row < found.size(); ++row) {
            const Compute* first = given.data() + static_cast<int64_t>(row) * size;
            const Compute* best = first;
            for (const Compute* next = first; next < first + size; ++next)
                if (is_further(extreme, *next, *best)) best = next;
            found[row] = best - first;
            extremes[row] = *best;
        }
        set_values(indices, found);
        if (values) set_values(*values, extremes);
    });
}

// hicann/ops-math math/arg_max_v2/docs/aclnnArgMax.md and op_api/aclnn_argmax.cpp, math/arg_min/docs/aclnnArgMin.md.
aclError prepare_arg_extreme(const char* function, Extreme extreme, const aclTensor* self_tensor, int64_t dim,
                             bool keeps_dim, const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const Operand self = call.input("self", self_tensor, with_bf16_except_310p(kHalfToDoubleTypes | kIntegerTypes));
    const Operand out = call.output("out", out_tensor, on_all(kIndexTypes));
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (extreme == Extreme::kLeast && is_ascend310p() && !is_floating(self.dtype))
        call.require(self.shape.size() <= 7, "self", "have at most 7 dimensions for an integer type on this chip",
                     static_cast<int64_t>(self.shape.size()));
    if (call.is_valid()) call.require_shape("out", out, shape_without(self.shape, axis, keeps_dim));
    auto body = [extreme, self, out, axis] { find_extreme(extreme, self, axis, nullptr, out); };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/arg_max_with_value/docs/aclnnMaxDim.md and math/arg_min_with_value/docs/aclnnMinDim.md.
aclError prepare_extreme_dim(const char* function, Extreme extreme, const aclTensor* self_tensor, int64_t dim,
                             bool keeps_dim, const aclTensor* out_tensor, const aclTensor* indices_tensor,
                             uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes | type_set({kInt64, kBool}));
    const Operand self = call.input("self", self_tensor, types, {1, 8});
    const Operand out = call.output("out", out_tensor, types);
    const Operand indices = call.output("indices", indices_tensor, on_all(kIndexTypes));
    call.require_dtype("out", out, self.dtype);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (call.is_valid()) {
        const std::vector<int64_t> shape = shape_without(self.shape, axis, keeps_dim);
        call.require_shape("out", out, shape);
        call.require_shape("indices", indices, shape);
    }
    auto body = [extreme, self, out, indices, axis] { find_extreme(extreme, self, axis, &out, indices); };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/reduce_max/docs/aclnnMax.md and math/reduce_min/docs/aclnnMin.md. The output has one element and
// at most one dimension. The documents do not define the result of an empty tensor, which is refused.
aclError prepare_extreme(const char* function, Extreme extreme, const aclTensor* self_tensor,
                         const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const TypesByChip types = with_bf16_except_310p(kRealTypes);
    const Operand self = call.input("self", self_tensor, types);
    const Operand out = call.output("out", out_tensor, types, {0, 1});
    call.require_dtype("out", out, self.dtype);
    call.require(out.count() == 1, "out", "have 1 element", out.count());
    call.require(self.count() > 0, "self", "have elements", self.count());
    auto body = [self, out, extreme] {
        call_with_real_type(self.dtype, [&](auto type) {
            using Compute = decltype(type);
            const std::vector<Compute> values = values_of<Compute>(self);
            Compute best = values[0];
            for (const Compute value : values)
                if (is_further(extreme, value, best)) best = value;
            set_values<Compute>(out, {best});
        });
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/cumsum/docs/aclnnCumsum.md and op_api/aclnn_cumsum.cpp: CANN converts self to dtype before it
// adds.
aclError prepare_cumsum(const aclTensor* self_tensor, int64_t dim, int32_t dtype, const aclTensor* out_tensor,
                        uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnCumsum");
    const TypesByChip types = with_bf16_except_310p(kHalfToDoubleTypes | kIntegerTypes | kComplexTypes);
    const Operand self = call.input("self", self_tensor, types);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, dtype);
    call.require(can_cast(self.dtype, out.dtype), "out",
                 std::string("have a type to which ") + dtype_name(self.dtype) + " converts", dtype_name(out.dtype));
    call.require_shape("out", out, self.shape);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (call.is_valid() && self.dtype != dtype) call.ask_workspace(self.count() * dtype_bytes(dtype));
    auto body = [self, out, axis] {
        if (out.count() == 0) return;
        std::vector<char> storage;
        const Operand rows = with_last_dimension(self, axis), packed = packed_as(out.dtype, rows, &storage);
        const auto size = static_cast<size_t>(rows.shape.back());
        call_with_compute_type(out.dtype, [&](auto type) {
            auto values = values_of<decltype(type)>(packed);
            for (size_t i = 0; i < values.size(); ++i)
                if (i % size)
                    values[i] = static_cast<decltype(type)>(to_wrapping(values[i]) + to_wrapping(values[i - 1]));
            set_values(with_last_dimension(out, axis), values);
        });
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnArgsortGetWorkspaceSize(const aclTensor* self, int64_t dim, bool descending, aclTensor* out,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_argsort(self, dim, descending, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnArgsort)

NPU_CANN_API aclError aclnnSortGetWorkspaceSize(const aclTensor* self, bool /*stable*/, int64_t dim, bool descending,
                                                aclTensor* values, aclTensor* indices, uint64_t* bytes,
                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_sort(self, dim, descending, values, indices, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSort)

NPU_CANN_API aclError aclnnTopkGetWorkspaceSize(const aclTensor* self, int64_t k, int64_t dim, bool largest,
                                                bool sorted, aclTensor* values, aclTensor* indices, uint64_t* bytes,
                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_topk(self, k, dim, largest, sorted, values, indices, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnTopk)

// Defines the three functions of the greatest or the least element.
#define NPU_CANN_EXTREME(name, Arg, extreme)                                                                         \
    NPU_CANN_API aclError aclnn##Arg##GetWorkspaceSize(const aclTensor* self, int64_t dim, bool keeps_dim,           \
                                                       aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {  \
        return simulated_cann::prepare_arg_extreme("aclnn" #Arg, simulated_cann::Extreme::extreme, self, dim,        \
                                                   keeps_dim, out, bytes, executor);                                 \
    }                                                                                                                \
    NPU_CANN_SECOND_PHASE(aclnn##Arg)                                                                                \
    NPU_CANN_API aclError aclnn##name##DimGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keeps_dim,       \
                                                           aclTensor* out, aclTensor* indices, uint64_t* bytes,      \
                                                           aclOpExecutor** executor) {                               \
        return simulated_cann::prepare_extreme_dim("aclnn" #name "Dim", simulated_cann::Extreme::extreme, self, dim, \
                                                   keeps_dim, out, indices, bytes, executor);                        \
    }                                                                                                                \
    NPU_CANN_SECOND_PHASE(aclnn##name##Dim)                                                                          \
    NPU_CANN_API aclError aclnn##name##GetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,      \
                                                        aclOpExecutor** executor) {                                  \
        return simulated_cann::prepare_extreme("aclnn" #name, simulated_cann::Extreme::extreme, self, out, bytes,    \
                                               executor);                                                            \
    }                                                                                                                \
    NPU_CANN_SECOND_PHASE(aclnn##name)

NPU_CANN_EXTREME(Max, ArgMax, kGreatest)
NPU_CANN_EXTREME(Min, ArgMin, kLeast)

NPU_CANN_API aclError aclnnCumsumGetWorkspaceSize(const aclTensor* self, int64_t dim, int32_t dtype, aclTensor* out,
                                                  uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_cumsum(self, dim, dtype, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnCumsum)
