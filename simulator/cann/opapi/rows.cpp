// Rows and indices: IndexSelect, GatherV2, Embedding, IndexCopy, IndexFillTensor, RepeatInterleaveInt and
// RepeatInterleaveIntWithDim. The bodies that read indices from device memory check them before they copy anything.
#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

constexpr RankRange kVector{1, 1}, kAtMostVector{0, 1};

// Copies slice indices[i] of dimension `dim` of `from` to slice i of `out`.
void gather_slices(const Operand& out, const Operand& from, size_t dim, const std::vector<int64_t>& indices) {
    std::vector<char> storage;
    const Operand source = separate_from(out, from, &storage);
    for (size_t i = 0; i < indices.size(); ++i)
        copy_view(narrow(out, dim, static_cast<int64_t>(i), 1), narrow(source, dim, indices[i], 1));
}

// Returns a tensor of rank 0 as a vector of one element, and other tensors unchanged.
Operand at_least_vector(const Operand& operand) {
    return operand.shape.empty() ? with_repeated_dimension(operand, 0, 1) : operand;
}

std::vector<int64_t> gathered_shape(const std::vector<int64_t>& self, size_t dim, const std::vector<int64_t>& index) {
    std::vector<int64_t> shape(self.begin(), self.begin() + static_cast<std::ptrdiff_t>(dim));
    shape.insert(shape.end(), index.begin(), index.end());
    shape.insert(shape.end(), self.begin() + static_cast<std::ptrdiff_t>(dim) + 1, self.end());
    return shape;
}

// Gathers slices of `self` with an index of any rank.
void gather(const Operand& out, const Operand& self, size_t dim, const Operand& index) {
    if (self.count() == 0 || index.count() == 0) return;  // CANN returns before it reads the index
    const Operand source = at_least_vector(self);
    const std::vector<int64_t> indices = indices_of(index, "index", source.shape[dim]);
    std::vector<char> storage;
    const Operand slices = packed_operand(out.dtype, gathered_shape(source.shape, dim, {index.count()}), &storage);
    gather_slices(slices, source, dim, indices);
    copy_view(out, reshaped(slices, out.shape));
}

// hicann/ops-nn index/gather_v2/docs/aclnnIndexSelect.md and op_api/aclnn_index_select.cpp. The document requires a
// contiguous index and out; the source packs index, and copies the result to an out of any strides.
aclError prepare_index_select(const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                              const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnIndexSelect");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes | kWideUnsigned);
    const Operand self = call.input("self", self_tensor, types);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes), kAtMostVector);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    call.report_beyond_document_unless_contiguous("index", index);
    call.report_beyond_document_unless_contiguous("out", out);
    if (call.is_valid() && self.shape.empty()) {
        call.require_shape("index", index, {1});
        call.require_shape("out", out, {});
    } else if (call.is_valid()) {
        call.require_shape("out", out, gathered_shape(self.shape, axis, {index.count()}));
    }
    return call.finish([self, index, out, axis] { gather(out, self, axis, index); }, bytes, executor);
}

// hicann/ops-nn index/gather_v2/docs/aclnnGatherV2.md and op_api/aclnn_gather_v2.cpp. The document has no rank 0 and
// requires a contiguous out. The source accepts both: an index of rank 0 is a vector of one index. A self of rank 0
// would need an out of rank 0. It is refused, because the sources do not show the kernel for this case.
aclError prepare_gather_v2(const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                           const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnGatherV2");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes);
    const RankRange ranks{1, 8};
    const Operand self = call.input("self", self_tensor, types, ranks);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes));
    const Operand out = call.output("out", out_tensor, types, ranks);
    call.require_dtype("out", out, self.dtype);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    call.report_beyond_document(index_tensor && index.shape.empty(),
                                "its document does not list an index without dimensions");
    call.report_beyond_document_unless_contiguous("out", out);
    if (call.is_valid()) call.require_shape("out", out, gathered_shape(self.shape, axis, at_least_vector(index).shape));
    return call.finish([self, index, out, axis] { gather(out, self, axis, index); }, bytes, executor);
}

// hicann/ops-nn index/embedding/docs/aclnnEmbedding.md. The document says that a negative index is an error and one
// beyond the last row gives random values; here both are errors.
aclError prepare_embedding(const aclTensor* weight_tensor, const aclTensor* indices_tensor, const aclTensor* out_tensor,
                           uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnEmbedding");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes);
    const Operand weight = call.input("weight", weight_tensor, types);
    const Operand indices = call.input("indices", indices_tensor, on_all(kIndexTypes));
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, weight.dtype);
    // CheckDimension in the source compares the dimensions of indices. The last copy fails for other wrong shapes.
    std::vector<int64_t> leading = out.shape;
    if (!leading.empty()) leading.pop_back();
    call.require(out.shape.size() == indices.shape.size() + 1 && leading == indices.shape, "out",
                 "have the dimensions of indices, " + shape_text(indices.shape) + ", and one more",
                 shape_text(out.shape));
    call.require_inner(kAclnnInnerNullptr, weight.shape.size() == 2, "weight", "have 2 dimensions",
                       std::to_string(weight.shape.size()));
    if (call.is_valid())
        call.require_inner(kAclnnInnerNullptr, out.shape.back() == weight.shape[1], "the last dimension of out",
                           "be " + std::to_string(weight.shape[1]), std::to_string(out.shape.back()));
    auto body = [weight, indices, out] {
        if (out.count() == 0) return;
        std::vector<char> storage;
        const Operand packed = packed_operand(out.dtype, {indices.count(), weight.shape[1]}, &storage);
        gather_slices(packed, weight, 0, indices_of(indices, "indices", weight.shape[0]));
        copy_view(out, reshaped(packed, out.shape));
    };
    return call.finish(body, bytes, executor);
}

// Copies slice i of `source` to slice indices[i] of `out`. If an index occurs twice, the last slice remains; CANN does
// not define which one does.
void scatter_slices(const Operand& out, size_t dim, const Operand& index, const Operand& source) {
    if (out.count() == 0 || index.count() == 0) return;
    Operand target = at_least_vector(out);
    std::vector<char> storage;
    const Operand rows = at_least_vector(separate_from(out, source, &storage));
    // A scalar `out` takes a source of one element with any number of dimensions.
    while (target.shape.size() < rows.shape.size()) target = with_repeated_dimension(target, 0, 1);
    const std::vector<int64_t> indices = indices_of(index, "index", target.shape[dim]);
    for (size_t i = 0; i < indices.size(); ++i)
        copy_view(narrow(target, dim, indices[i], 1), narrow(rows, dim, static_cast<int64_t>(i), 1));
}

// Checks the arguments of IndexCopy except `self`, and returns the dimension as a number in [0, rank).
// hicann/ops-nn index/scatter_update/docs/aclnnIndexCopy&aclnnInplaceIndexCopy.md and op_api/aclnn_index_copy.cpp. The
// document does not list Ascend310P. The kernel ScatterUpdate has float16, float32 and int32, and except on Ascend310P
// int64 and bfloat16 (op_api/scatter_update.cpp). Other types run on the AI CPU, which has no bool (CANN 8.1,
// aicpu/tf_kernel/config/tf_kernel.json), although the document lists it. Only the source accepts an outRef that is not
// contiguous.
size_t check_index_copy(FirstPhase* call, const Operand& self, int64_t dim, const Operand& index,
                        const Operand& source) {
    call->require_dtype("source", source, self.dtype);
    const size_t axis = call->dimension("dim", dim, self.shape.size());
    if (!call->is_valid()) return axis;
    if (source.shape.empty() || self.shape.empty()) {
        call->require(index.count() == 1, "index", "have 1 element", index.count());
        call->require(source.count() == 1, "source", "have 1 element", source.count());
        // IsSliceShapeSame compares all dimensions of selfRef except dim.
        call->require(self.shape.size() <= 1 || !source.shape.empty(), "source", "have the rank of selfRef",
                      shape_text(source.shape));
        return axis;
    }
    call->require_shape("source", source, gathered_shape(self.shape, axis, {index.count()}));
    // The kernel writes slices of dimension 0. For another dimension, CANN transposes self and source before the
    // kernel, and self again after the kernel.
    if (call->is_valid() && axis) call->ask_workspace((2 * self.count() + source.count()) * dtype_bytes(self.dtype));
    return axis;
}

constexpr TypesByChip kIndexCopyTypes = undocumented_on_310p(kNumberTypes & ~kBoolType);

aclError prepare_index_copy(const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                            const aclTensor* source_tensor, const aclTensor* out_tensor, uint64_t* bytes,
                            aclOpExecutor** executor) {
    FirstPhase call("aclnnIndexCopy");
    const Operand self = call.input("selfRef", self_tensor, kIndexCopyTypes);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes), kAtMostVector);
    const Operand source = call.input("source", source_tensor, kIndexCopyTypes);
    const Operand out = call.output("outRef", out_tensor, kIndexCopyTypes);
    call.require_dtype("outRef", out, self.dtype);
    call.require_format_of("selfRef", self_tensor, "outRef", out_tensor);
    call.require_shape("outRef", out, self.shape);
    call.report_beyond_document_unless_contiguous("outRef", out);
    const size_t axis = check_index_copy(&call, self, dim, index, source);
    auto body = [self, index, source, out, axis] {
        if (out.count() == 0 || index.count() == 0) return;
        copy_elements(out, self);
        scatter_slices(out, axis, index, source);
    };
    return call.finish(body, bytes, executor);
}

aclError prepare_inplace_index_copy(const aclTensor* self_tensor, int64_t dim, const aclTensor* index_tensor,
                                    const aclTensor* source_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnInplaceIndexCopy");
    const Operand self = call.in_place("selfRef", self_tensor, kIndexCopyTypes);
    const Operand index = call.input("index", index_tensor, on_all(kIndexTypes), kAtMostVector);
    const Operand source = call.input("source", source_tensor, kIndexCopyTypes);
    const size_t axis = check_index_copy(&call, self, dim, index, source);
    return call.finish([self, index, source, axis] { scatter_slices(self, axis, index, source); }, bytes, executor);
}

// Checks and converts the indices of IndexFillTensor. They may be negative, except for a self of rank 0: the source
// accepts -1, but adds the size of a dimension that does not exist.
std::vector<int64_t> fill_indices(FirstPhase* call, const Operand& self, size_t axis, std::vector<int64_t> indices) {
    const int64_t size = self.shape.empty() ? 1 : call->is_valid() ? self.shape[axis] : 0;
    const int64_t least = self.shape.empty() ? 0 : -size;
    for (int64_t& index : indices) {
        call->require(index >= least && index < size, "index",
                      "be in [" + std::to_string(least) + ", " + std::to_string(size) + ")", index);
        if (index < 0) index += size;
    }
    return indices;
}

// Sets the slices with the indices to a value, which CANN converts through float32.
void fill_slices(const Operand& out, size_t axis, const std::vector<int64_t>& indices, float value) {
    const Operand target = at_least_vector(out);
    for (int64_t index : indices) fill_view(narrow(target, axis, index, 1), float_scalar(value));
}

// hicann/ops-nn index/index_fill_d/docs/aclnnIndexFillTensor&aclnnInplaceIndexFillTensor.md and
// op_api/aclnn_index_fill_tensor.cpp. The document does not list Ascend310P, for which the source has a list of types.
// This list is also that of the kernel IndexFillD of CANN 8.1.
constexpr TypesByChip kIndexFillTypes = undocumented_on_310p(type_set({kFloat16, kFloat, kInt32, kInt64, kBool}));
constexpr TypesByChip kFillValueTypes = with_bf16_except_310p(kRealTypes | kWideUnsigned);

aclError prepare_index_fill(const char* function, const aclTensor* self_tensor, int64_t dim,
                            const aclIntArray* index_array, const aclScalar* value_scalar, const aclTensor* out_tensor,
                            uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const bool is_in_place = self_tensor == out_tensor;
    const Operand out = is_in_place ? call.in_place("selfRef", self_tensor, kIndexFillTypes)
                                    : call.output("out", out_tensor, kIndexFillTypes);
    const Operand self = is_in_place ? out : call.input("self", self_tensor, kIndexFillTypes);
    const std::vector<int64_t> given = call.integers("index", index_array);
    const auto value = call.scalar<float>("value", value_scalar, kFillValueTypes);
    call.report_beyond_document(call.is_valid() && value_scalar->dtype != self.dtype,
                                "its document requires the type of self for value");
    call.require_dtype("out", out, self.dtype);
    call.require_shape("out", out, self.shape);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    const std::vector<int64_t> indices = self.count() ? fill_indices(&call, self, axis, given) : given;
    // The source builds two tensors of self's size in float32, and converts them to self's type.
    if (call.is_valid()) call.ask_workspace(2 * self.count() * (4 + dtype_bytes(self.dtype)));
    auto body = [self, out, is_in_place, axis, indices, value] {
        if (out.count() == 0) return;
        if (!is_in_place) copy_elements(out, self);
        fill_slices(out, axis, indices, value);
    };
    return call.finish(body, bytes, executor);
}

// The documents do not list Ascend310P, for which op_api/aclnn_repeat_interleave.cpp has a list of types and CANN 8.1
// has the kernel RepeatInterleave.
constexpr TypesByChip kRepeatInterleaveTypes = undocumented_on_310p(kIntegerTypes | kHalfAndFloatTypes | kBoolType);

// Repeats each slice of a dimension.
void repeat_interleave(const Operand& out, const Operand& self, size_t axis, int64_t repeats) {
    if (out.count() == 0) return;
    std::vector<char> storage;
    const Operand source = separate_from(out, self, &storage);
    copy_view(split_dimension(out, axis, source.shape[axis], repeats),
              with_repeated_dimension(source, axis + 1, repeats));
}

// hicann/ops-nn index/repeat_interleave/docs/aclnnRepeatInterleaveIntWithDim.md and
// op_api/aclnn_repeat_interleave.cpp.
aclError prepare_repeat_interleave_dim(const aclTensor* self_tensor, int64_t repeats, int64_t dim, int64_t output_size,
                                       const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnRepeatInterleaveIntWithDim");
    const Operand self = call.input("self", self_tensor, kRepeatInterleaveTypes, {1, 8});
    const Operand out = call.output("out", out_tensor, kRepeatInterleaveTypes, {1, 8});
    call.require_dtype("out", out, self.dtype);
    call.require(repeats >= 0, "repeats", "be at least 0", repeats);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (call.is_valid()) {
        const int64_t expected = call.repeated_size(repeats, self.shape[axis]);
        call.require(output_size == expected, "outputSize", "be " + std::to_string(expected), output_size);
        call.require_shape("out", out, gathered_shape(self.shape, axis, {expected}));
    }
    return call.finish([self, out, axis, repeats] { repeat_interleave(out, self, axis, repeats); }, bytes, executor);
}

// hicann/ops-nn index/repeat_interleave/docs/aclnnRepeatInterleaveInt.md and op_api/aclnn_repeat_interleave.cpp.
aclError prepare_repeat_interleave(const aclTensor* self_tensor, int64_t repeats, int64_t output_size,
                                   const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnRepeatInterleaveInt");
    const Operand self = call.input("self", self_tensor, kRepeatInterleaveTypes);
    const Operand out = call.output("out", out_tensor, kRepeatInterleaveTypes, kVector);
    call.require_dtype("out", out, self.dtype);
    call.require(repeats >= 0, "repeats", "be at least 0", repeats);
    if (call.is_valid()) {
        const int64_t expected = call.repeated_size(repeats, self.count());
        call.require(output_size == expected, "outputSize", "be " + std::to_string(expected), output_size);
        call.require_shape("out", out, {expected});
    }
    auto body = [self, out, repeats] {
        if (out.count() == 0) return;
        std::vector<char> storage;
        const Operand packed = packed_as(self.dtype, self, &storage);
        repeat_interleave(out, reshaped(packed, {self.count()}), 0, repeats);
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnIndexSelectGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                                       aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_index_select(self, dim, index, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnIndexSelect)

NPU_CANN_API aclError aclnnGatherV2GetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                                    aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_gather_v2(self, dim, index, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGatherV2)

NPU_CANN_API aclError aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices,
                                                     const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_embedding(weight, indices, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnEmbedding)

NPU_CANN_API aclError aclnnIndexCopyGetWorkspaceSize(aclTensor* self, int64_t dim, const aclTensor* index,
                                                     const aclTensor* source, aclTensor* out, uint64_t* bytes,
                                                     aclOpExecutor** executor) {
    return simulated_cann::prepare_index_copy(self, dim, index, source, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnIndexCopy)

NPU_CANN_API aclError aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor* self, int64_t dim, const aclTensor* index,
                                                            const aclTensor* source, uint64_t* bytes,
                                                            aclOpExecutor** executor) {
    return simulated_cann::prepare_inplace_index_copy(self, dim, index, source, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceIndexCopy)

NPU_CANN_API aclError aclnnIndexFillTensorGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclIntArray* index,
                                                           const aclScalar* value, aclTensor* out, uint64_t* bytes,
                                                           aclOpExecutor** executor) {
    return simulated_cann::prepare_index_fill("aclnnIndexFillTensor", self, dim, index, value, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnIndexFillTensor)

NPU_CANN_API aclError aclnnInplaceIndexFillTensorGetWorkspaceSize(aclTensor* self, int64_t dim,
                                                                  const aclIntArray* index, const aclScalar* value,
                                                                  uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_index_fill("aclnnInplaceIndexFillTensor", self, dim, index, value, self, bytes,
                                              executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceIndexFillTensor)

NPU_CANN_API aclError aclnnRepeatInterleaveIntWithDimGetWorkspaceSize(const aclTensor* self, int64_t repeats,
                                                                      int64_t dim, int64_t output_size, aclTensor* out,
                                                                      uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_repeat_interleave_dim(self, repeats, dim, output_size, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRepeatInterleaveIntWithDim)

NPU_CANN_API aclError aclnnRepeatInterleaveIntGetWorkspaceSize(const aclTensor* self, int64_t repeats,
                                                               int64_t output_size, aclTensor* out, uint64_t* bytes,
                                                               aclOpExecutor** executor) {
    return simulated_cann::prepare_repeat_interleave(self, repeats, output_size, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRepeatInterleaveInt)
