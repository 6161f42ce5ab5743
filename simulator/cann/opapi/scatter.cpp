// Gather, Scatter and InplaceScatter, which have an index for each element, and InplaceScatterUpdate, which has an
// index for each slice.
#include <cstring>

#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

// Calls work(i, offset in `a`, offset in `b`) for each position i of `shape` in row-major order. The offsets, in bytes,
// are those of the elements at this position.
template <class Work>
void for_each_position(const std::vector<int64_t>& shape, const Operand& a, const Operand& b, Work work) {
    std::vector<int64_t> position(shape.size());
    int64_t a_offset = 0, b_offset = 0, count = 1;
    const int64_t a_bytes = dtype_bytes(a.dtype), b_bytes = dtype_bytes(b.dtype);
    for (int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
        work(static_cast<size_t>(i), a_offset, b_offset);
        for (size_t dim = shape.size(); dim-- > 0;) {
            a_offset += a.strides[dim] * a_bytes;
            b_offset += b.strides[dim] * b_bytes;
            if (++position[dim] < shape[dim]) break;
            position[dim] = 0;
            a_offset -= shape[dim] * a.strides[dim] * a_bytes;
            b_offset -= shape[dim] * b.strides[dim] * b_bytes;
        }
    }
}

// `base` is the operand with a stride of 0 along `dim`. `step` is the original stride along `dim`, in bytes; for a
// tensor of rank 0, it is 0.
struct Indexed {
    Operand base;
    int64_t step = 0;

    Indexed(const Operand& operand, size_t dim) : base(operand) {
        if (operand.shape.empty()) return;
        step = operand.strides[dim] * dtype_bytes(operand.dtype);
        base.strides[dim] = 0;
    }
};

int64_t size_along(const Operand& operand, size_t dim) { return operand.shape.empty() ? 1 : operand.shape[dim]; }

// Requires that the operand has `rank` dimensions, and in each dimension except `dim` at most the size of `limit`.
void require_inside(FirstPhase* call, const char* name, const Operand& operand, const Operand& limit, size_t rank,
                    size_t dim) {
    call->require(operand.shape.size() == rank, name, "have " + std::to_string(rank) + " dimensions",
                  static_cast<int64_t>(operand.shape.size()));
    for (size_t i = 0; i < rank && call->is_valid(); ++i)
        call->require(i == dim || operand.shape[i] <= limit.shape[i], name,
                      "have at most " + std::to_string(limit.shape[i]) + " elements in dimension " + std::to_string(i),
                      operand.shape[i]);
}

// hicann/ops-nn index/gather_elements_v2/docs/aclnnGather.md and op_host/op_api/aclnn_gather.cpp. The document does not
// list Ascend310P; GatherElements runs there on the AI core or the AI CPU. An index may be negative.
aclError prepare_gather(const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                        const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnGather");
    const TypesByChip types = undocumented_on_310p(kRealTypes | kWideUnsigned);
    const Operand self = call.input("self", self_tensor, types);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes));
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    call.require_shape("out", out, index.shape);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    require_inside(&call, "index", index, self, self.shape.size(), axis);
    if (call.is_valid() && index.count())
        call.require(size_along(self, axis) > 0, "self", "have elements in dimension " + std::to_string(axis), 0);
    auto body = [self, index, out, axis] {
        std::vector<char> storage;
        const Operand source = separate_from(out, self, &storage);
        const int64_t size = size_along(self, axis), item = dtype_bytes(self.dtype);
        std::vector<int64_t> indices = values_of<int64_t>(index);
        for (int64_t& value : indices) value += value < 0 && value >= -size ? size : 0;
        check_indices(indices, "index", size);
        const Indexed from(source, axis);
        for_each_position(index.shape, out, from.base, [&](size_t i, int64_t to_offset, int64_t from_offset) {
            std::memcpy(out.first + to_offset, from.base.first + from_offset + indices[i] * from.step,
                        static_cast<size_t>(item));
        });
    };
    return call.finish(body, bytes, executor);
}

enum Reduction : int64_t { kReplace = 0, kAdd = 1, kMultiply = 2 };

// Adds the element at `from` to the element at `to`, or multiplies the latter by the former. Computes in the compute
// type of the dtype and rounds the result.
void combine(int32_t dtype, char* to, const char* from, int64_t reduce) {
    call_with_compute_type(dtype, [&](auto type) {
        using Compute = decltype(type);
        const auto a = to_wrapping(load_one<Compute>(dtype, to)), b = to_wrapping(load_one<Compute>(dtype, from));
        store_one<Compute>(dtype, to, Compute(reduce == kAdd ? a + b : a * b));
    });
}

// Writes element i of `src` to the position of element i of `index`, except that its coordinate along `dim` is that
// index. If a position occurs twice, the last element remains.
void scatter_elements(const Operand& out, size_t dim, const Operand& index, const Operand& src, int64_t reduce) {
    if (index.count() == 0) return;
    std::vector<char> storage;
    const Operand source = separate_from(out, src, &storage);
    const std::vector<int64_t> indices = indices_of(index, "index", size_along(out, dim));
    const Indexed to(out, dim);
    const auto item = static_cast<size_t>(dtype_bytes(out.dtype));
    for_each_position(index.shape, to.base, source, [&](size_t i, int64_t to_offset, int64_t from_offset) {
        char* target = to.base.first + to_offset + indices[i] * to.step;
        if (reduce == kReplace)
            std::memcpy(target, source.first + from_offset, item);
        else
            combine(out.dtype, target, source.first + from_offset, reduce);
    });
}

// hicann/ops-nn index/scatter_elements_v2/docs/aclnnScatter&aclnnInplaceScatter.md and op_api/aclnn_scatter.cpp. The
// document does not list Ascend310P, where the operator runs on the AI CPU.
aclError prepare_scatter(const char* function, const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                         const aclTensor* src_tensor, int64_t reduce, const aclTensor* out_tensor, uint64_t* bytes,
                         aclOpExecutor** executor) {
    FirstPhase call(function);
    const TypesByChip types = undocumented_on_310p(kNumberTypes);
    const bool is_in_place = self_tensor == out_tensor;
    const Operand out =
        is_in_place ? call.in_place("selfRef", self_tensor, types) : call.output("out", out_tensor, types);
    const Operand self = is_in_place ? out : call.input("self", self_tensor, types);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes));
    const Operand src = call.input("src", src_tensor, types);
    call.require_dtype("src", src, self.dtype);
    call.require_dtype("out", out, self.dtype);
    call.require_shape("out", out, self.shape);
    call.require(reduce >= kReplace && reduce <= kMultiply, "reduce", "be 0, 1 or 2", reduce);
    const size_t rank = self.shape.size(), axis = call.dimension("dim", dim, rank);
    require_inside(&call, "index", index, self, rank, axis);
    call.require(src.shape.size() == rank, "src", "have " + std::to_string(rank) + " dimensions",
                 static_cast<int64_t>(src.shape.size()));
    if (call.is_valid()) require_inside(&call, "index", index, src, rank, rank);
    auto body = [self, out, index, src, axis, reduce, is_in_place] {
        if (!is_in_place) copy_elements(out, self);
        scatter_elements(out, axis, index, src, reduce);
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-nn index/scatter/docs/aclnnInplaceScatterUpdate.md and op_api/aclnn_scatter_update.cpp. The document does
// not define the meaning of indices with two dimensions, which are refused. The document does not list Ascend310P,
// whose kernel Scatter (CANN 8.1) has float16, float32 and int8. By the document, the indices and 224 bytes must fit in
// UB. The tiling is not open; the source gives 561103 for its errors.
constexpr int64_t kScatterUpdateUbBytes910b = 192 * 1024, kScatterUpdateUbBytes310p = 256 * 1024;
constexpr int64_t kScatterUpdateReservedBytes = 224;

aclError prepare_scatter_update(const aclTensor* data_tensor, const aclTensor* indices_tensor,
                                const aclTensor* updates_tensor, int64_t axis, uint64_t* bytes,
                                aclOpExecutor** executor) {
    FirstPhase call("aclnnInplaceScatterUpdate");
    constexpr uint32_t on_310p = kHalfAndFloatTypes | type_set({kInt8});
    const TypesByChip types = undocumented_on_310p(on_310p | kBf16 | type_set({kInt32}), on_310p);
    const RankRange ranks{2, 8};
    const Operand data = call.in_place("data", data_tensor, types, ranks);
    const Operand indices = call.input("indices", indices_tensor, on_all(kIndexTypes), {0, 1});
    const Operand updates = call.input("updates", updates_tensor, types, ranks);
    call.require_dtype("updates", updates, data.dtype);
    const size_t dim = call.dimension("axis", axis, data.shape.size());
    call.require(dim != 0, "axis", "not be 0", axis);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    call.require(data.count() && indices.count() && updates.count(), "data, indices and updates", "have elements", 0);
    call.require(updates.shape.size() == data.shape.size(), "updates", "have the rank of data",
                 static_cast<int64_t>(updates.shape.size()));
    call.require(updates.shape[0] == indices.count(), "updates",
                 "have " + std::to_string(indices.count()) + " slices in dimension 0", updates.shape[0]);
    for (size_t i = 0; i < data.shape.size() && call.is_valid(); ++i) {
        const bool may_be_less = i == 0 || i == dim;
        call.require(may_be_less ? updates.shape[i] <= data.shape[i] : updates.shape[i] == data.shape[i], "updates",
                     "fit the shape " + shape_text(data.shape), shape_text(updates.shape));
    }
    const int64_t ub_bytes = is_ascend310p() ? kScatterUpdateUbBytes310p : kScatterUpdateUbBytes910b;
    const int64_t most_indices = (ub_bytes - kScatterUpdateReservedBytes) / dtype_bytes(indices.dtype);
    call.require_inner(kAclnnInnerNullptr, indices.count() <= most_indices, "indices",
                       "have at most " + std::to_string(most_indices) + " elements", std::to_string(indices.count()));
    auto body = [data, indices, updates, dim] {
        std::vector<char> storage;
        const Operand source = separate_from(data, updates, &storage);
        const int64_t length = updates.shape[dim];
        const std::vector<int64_t> starts = indices_of(indices, "indices", data.shape[dim] - length + 1);
        for (size_t i = 0; i < starts.size(); ++i) {
            const auto batch = static_cast<int64_t>(i);
            copy_view(narrow(narrow(data, 0, batch, 1), dim, starts[i], length), narrow(source, 0, batch, 1));
        }
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnGatherGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                                  aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_gather(self, dim, index, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGather)

NPU_CANN_API aclError aclnnScatterGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                                   const aclTensor* src, int64_t reduce, aclTensor* out,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_scatter("aclnnScatter", self, dim, index, src, reduce, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnScatter)

NPU_CANN_API aclError aclnnInplaceScatterGetWorkspaceSize(aclTensor* self, int64_t dim, const aclTensor* index,
                                                          const aclTensor* src, int64_t reduce, uint64_t* bytes,
                                                          aclOpExecutor** executor) {
    return simulated_cann::prepare_scatter("aclnnInplaceScatter", self, dim, index, src, reduce, self, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceScatter)

NPU_CANN_API aclError aclnnInplaceScatterUpdateGetWorkspaceSize(aclTensor* data, const aclTensor* indices,
                                                                const aclTensor* updates, int64_t axis, uint64_t* bytes,
                                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_scatter_update(data, indices, updates, axis, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceScatterUpdate)
