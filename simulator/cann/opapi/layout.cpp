// Layout: Repeat, Permute, Slice, Expand, Flip, Roll, Cat, Stack and SplitTensor copy elements to other positions.
#include <algorithm>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

constexpr RankRange kNotScalar{1, 8};

// Ends the first phase of a function that copies a view of an input to a view of the output.
aclError finish_copy(FirstPhase* call, const Operand& to, const Operand& from, uint64_t* bytes,
                     aclOpExecutor** executor) {
    auto body = [to, from] {
        std::vector<char> storage;
        copy_view(to, separate_from(to, from, &storage));
    };
    return call->finish(body, bytes, executor);
}

// The dimensions, each in [0, rank). Refuses one that occurs twice.
std::vector<size_t> distinct_dimensions(FirstPhase* call, const std::vector<int64_t>& given, size_t rank) {
    std::vector<size_t> dims;
    for (int64_t value : given) {
        const size_t dim = call->dimension("dims", value, rank);
        call->require(std::find(dims.begin(), dims.end(), dim) == dims.end(), "dims",
                      "contain each dimension at most once", shape_text(given));
        dims.push_back(dim);
    }
    return dims;
}

// The types, ranks and counts: hicann/ops-math math/tile/docs/aclnnRepeat.md and op_api/aclnn_repeat.cpp. The source
// accepts bfloat16 on Ascend310P, but the kernel Tile of CANN 8.1 has no bfloat16 there.
constexpr int64_t kMostRepeatedAfterFirst = 3;  // repeated dimensions, without the first dimension

aclError prepare_repeat(const aclTensor* self_tensor, const aclIntArray* repeats_array, const aclTensor* out_tensor,
                        uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnRepeat");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes | kWideUnsigned);
    Operand self = call.input("self", self_tensor, types);
    const std::vector<int64_t> repeats = call.integers("repeats", repeats_array);
    Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    call.require(repeats.size() >= self.shape.size() && repeats.size() <= 8, "repeats",
                 "have " + std::to_string(self.shape.size()) + " to 8 elements", static_cast<int64_t>(repeats.size()));
    for (int64_t count : repeats) call.require(count >= 0, "repeats", "be at least 0", count);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    while (self.shape.size() < repeats.size()) self = with_repeated_dimension(self, 0, 1);
    std::vector<int64_t> shape = self.shape;
    for (size_t i = 0; i < shape.size(); ++i) shape[i] = call.repeated_size(repeats[i], shape[i]);
    call.require_shape("out", out, shape);
    const bool has_zero = std::find(repeats.begin(), repeats.end(), 0) != repeats.end();
    int64_t repeated_after_first = 0;
    for (size_t i = 1; i < repeats.size(); ++i)
        if (repeats[i] != 1) ++repeated_after_first;
    call.require_inner(kAclnnInnerNullptr, has_zero || repeated_after_first <= kMostRepeatedAfterFirst, "repeats",
                       "repeat at most 3 dimensions after the first one", shape_text(repeats));
    if (call.is_valid() && out.count())
        for (size_t i = repeats.size(); i-- > 0;) {
            out = split_dimension(out, i, repeats[i], self.shape[i]);
            self = with_repeated_dimension(self, i, repeats[i]);
        }
    else
        self = out;  // nothing to copy
    return finish_copy(&call, out, self, bytes, executor);
}

// hicann/ops-math conversion/transpose/docs/aclnnPermute.md and op_api/aclnn_permute.cpp. The document does not list
// Ascend310P. On this chip, the kernel Transpose of CANN 8.1 handles some types, and the AI CPU handles the others. For
// an empty self, the source accepts every empty out of the same rank.
aclError prepare_permute(const aclTensor* self_tensor, const aclIntArray* dims_array, const aclTensor* out_tensor,
                         uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnPermute");
    const TypesByChip types = undocumented_on_310p(kNumberTypes | kWideUnsigned);
    Operand self = call.input("self", self_tensor, types);
    const std::vector<int64_t> given = call.integers("dims", dims_array);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    call.require(given.size() == self.shape.size(), "dims", "have " + std::to_string(self.shape.size()) + " elements",
                 static_cast<int64_t>(given.size()));
    const std::vector<size_t> dims = distinct_dimensions(&call, given, self.shape.size());
    if (call.is_valid()) self = permuted(self, dims);
    if (call.is_valid() && self.count() == 0 && out.shape.size() == self.shape.size()) {
        call.require_inner(kAclnnInnerNullptr, out.count() == 0, "out", "be empty, as self is", shape_text(out.shape));
        call.report_beyond_document(out.shape != self.shape, "its document requires the permuted shape for out");
        return call.finish([] {}, bytes, executor);
    }
    call.require_shape("out", out, self.shape);
    return finish_copy(&call, out, self, bytes, executor);
}

// hicann/ops-math conversion/slice/docs/aclnnSlice.md and op_api/aclnn_slice.cpp. The document does not list
// Ascend310P, for which op_api/slice.cpp has a list of types.
aclError prepare_slice(const aclTensor* self_tensor, int64_t dim, int64_t start, int64_t end, int64_t step,
                       const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnSlice");
    const TypesByChip types = undocumented_on_310p(type_set({kFloat16, kFloat, kInt32, kInt64, kInt8, kUint8, kBool}));
    Operand self = call.input("self", self_tensor, types, kNotScalar);
    const Operand out = call.output("out", out_tensor, types, kNotScalar);
    call.require_dtype("out", out, self.dtype);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    call.require(step > 0, "step", "be greater than 0", step);
    if (call.is_valid()) {
        const int64_t size = self.shape[axis];
        const auto clamp = [size](int64_t value, int64_t least) {
            return std::min(std::max(value < 0 ? value + size : value, least), size);
        };
        const int64_t first = clamp(start, 0), last = clamp(end, first);
        self = narrow(self, axis, first, last > first ? (last - first - 1) / step + 1 : 0, step);
    }
    call.require_shape("out", out, self.shape);
    return finish_copy(&call, out, self, bytes, executor);
}

// hicann/ops-math math/expand/docs/aclnnExpand.md. The document does not define negative sizes, which are refused.
aclError prepare_expand(const aclTensor* self_tensor, const aclIntArray* size_array, const aclTensor* out_tensor,
                        uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnExpand");
    const TypesByChip types = with_bf16_except_310p(type_set({kFloat16, kFloat, kUint8, kInt8, kInt32, kInt64, kBool}));
    Operand self = call.input("self", self_tensor, types);
    const std::vector<int64_t> size = call.integers("size", size_array);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    call.require_shape("out", out, size);
    if (call.is_valid()) {
        const bool fits = broadcast_error(self, out, "self").empty();
        call.require(fits, "self", "broadcast to " + shape_text(size), shape_text(self.shape));
    }
    if (call.is_valid()) self = self.broadcast_to(size);
    return finish_copy(&call, out, self, bytes, executor);
}

// hicann/ops-nn index/reverse_v2/docs/aclnnFlip.md and op_api/aclnn_flip.cpp, reverse_v2.cpp. The document lists
// neither Ascend310P nor an out that is not contiguous.
aclError prepare_flip(const aclTensor* self_tensor, const aclIntArray* dims_array, const aclTensor* out_tensor,
                      uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnFlip");
    const TypesByChip types = undocumented_on_310p(kNumberTypes);
    Operand self = call.input("self", self_tensor, types, kNotScalar);
    const std::vector<int64_t> given = call.integers("dims", dims_array);
    const Operand out = call.output("out", out_tensor, types, kNotScalar);
    call.require_dtype("out", out, self.dtype);
    call.require_shape("out", out, self.shape);
    call.report_beyond_document_unless_contiguous("out", out);
    const std::vector<size_t> dims = distinct_dimensions(&call, given, self.shape.size());
    if (call.is_valid() && self.count())
        for (size_t dim : dims) self = narrow(self, dim, self.shape[dim] - 1, self.shape[dim], -1);
    return finish_copy(&call, out, self, bytes, executor);
}

// Rolls dimension `dim` and the dimensions after it. In each of them, one part moves by the shift and the other part
// wraps around. A shift is in [0, size).
void roll(const Operand& out, const Operand& x, const std::vector<int64_t>& shifts, size_t dim) {
    while (dim < shifts.size() && shifts[dim] == 0) ++dim;
    if (dim == shifts.size()) return copy_view(out, x);
    const int64_t size = x.shape[dim], shift = shifts[dim];
    roll(narrow(out, dim, shift, size - shift), narrow(x, dim, 0, size - shift), shifts, dim + 1);
    roll(narrow(out, dim, 0, shift), narrow(x, dim, size - shift, shift), shifts, dim + 1);
}

// hicann/ops-math conversion/roll/docs/aclnnRoll.md and op_api/aclnn_roll.cpp. Without dims, x is rolled as one vector.
// The source packs x and copies the result to an out of any strides.
aclError prepare_roll(const aclTensor* x_tensor, const aclIntArray* shifts_array, const aclIntArray* dims_array,
                      const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnRoll");
    constexpr uint32_t on_310p = kHalfAndFloatTypes | kIndexTypes | type_set({kInt8, kUint8, kUint32, kBool});
    const TypesByChip types = by_chip(on_310p | kBf16 | type_set({kInt16}), on_310p);
    const Operand x = call.input("x", x_tensor, types);
    const std::vector<int64_t> shifts = call.integers("shifts", shifts_array);
    const std::vector<int64_t> dims = call.integers("dims", dims_array);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, x.dtype);
    call.require_shape("out", out, x.shape);
    call.report_beyond_document_unless_contiguous("out", out);
    const size_t expected = dims.empty() ? 1 : dims.size();
    call.require(shifts.size() == expected, "shifts", "have " + std::to_string(expected) + " element(s)",
                 static_cast<int64_t>(shifts.size()));
    call.require(dims.empty() || !x.shape.empty(), "dims", "be empty for x of rank 0", shape_text(dims));
    const bool is_flat = dims.empty();
    std::vector<int64_t> shift_of(is_flat ? 1 : x.shape.size());
    for (size_t i = 0; i < expected && call.is_valid(); ++i) {
        const size_t dim = is_flat ? 0 : call.dimension("dims", dims[i], x.shape.size());
        const int64_t size = std::max<int64_t>(is_flat ? x.count() : call.is_valid() ? x.shape[dim] : 1, 1);
        shift_of[dim] = ((shift_of[dim] + shifts[i] % size) % size + size) % size;
    }
    auto body = [x, out, is_flat, shift_of] {
        std::vector<char> storage, packed;
        if (!is_flat) return roll(out, separate_from(out, x, &storage), shift_of, 0);
        const Operand source = packed_as(x.dtype, x, &storage);
        const Operand result = packed_operand(out.dtype, {out.count()}, &packed);
        roll(result, reshaped(source, {x.count()}), shift_of, 0);
        copy_view(out, reshaped(result, out.shape));
    };
    return call.finish(body, bytes, executor);
}

// Returns the common type of the inputs. Refuses inputs without one, or whose common type does not convert to that of
// `out`.
int32_t check_common_type(FirstPhase* call, const std::vector<Operand>& tensors, const Operand& out) {
    call->require(!tensors.empty(), "tensors", "have at least 1 element", 0);
    if (!call->is_valid()) return out.dtype;
    int32_t common = tensors[0].dtype;
    for (const Operand& tensor : tensors) {
        call->require(promotion_error(tensor.dtype, common).empty(), "tensors", "have a common type",
                      std::string(dtype_name(common)) + " and " + dtype_name(tensor.dtype));
        common = promoted_dtype(tensor.dtype, true, common, true);
    }
    call->require(can_cast(common, out.dtype), "out",
                  std::string("have a type to which ") + dtype_name(common) + " converts", dtype_name(out.dtype));
    return common;
}

// Copies each part to its place. A part that overlaps the memory of the places is copied to a buffer first.
aclError finish_parts(FirstPhase* call, const std::vector<Operand>& places, const std::vector<Operand>& parts,
                      uint64_t* bytes, aclOpExecutor** executor) {
    auto body = [places, parts] {
        Extent written;  // from the first to the last byte of all places
        for (const Operand& place : places) {
            const Extent extent = extent_of(place);
            if (extent.begin && (!written.begin || extent.begin < written.begin)) written.begin = extent.begin;
            if (extent.end > written.end) written.end = extent.end;
        }
        std::vector<std::vector<char>> storage(parts.size());
        std::vector<Operand> sources = parts;
        for (size_t i = 0; i < parts.size(); ++i)
            if (extent_of(parts[i]).overlaps(written)) sources[i] = packed_as(parts[i].dtype, parts[i], &storage[i]);
        for (size_t i = 0; i < parts.size(); ++i) copy_view(places[i], sources[i]);
    };
    return call->finish(body, bytes, executor);
}

// hicann/ops-math conversion/concat_d/docs/aclnnCat.md and op_api/aclnn_cat.cpp, which copies the result to an out of
// any strides.
aclError prepare_cat(const aclTensorList* list, int64_t dim, const aclTensor* out_tensor, uint64_t* bytes,
                     aclOpExecutor** executor) {
    FirstPhase call("aclnnCat");
    const TypesByChip types = with_bf16_except_310p(kRealTypes | type_set({kComplex64}));
    const std::vector<Operand> tensors = call.inputs("tensors", list, types, kNotScalar);
    const Operand out = call.output("out", out_tensor, types);
    const int32_t common = check_common_type(&call, tensors, out);
    call.require(common != kComplex128, "tensors", "have a common type other than complex128", dtype_name(common));
    call.report_beyond_document_unless_contiguous("out", out);
    if (call.is_valid()) {
        const aclTensor* first = list->values[0];
        for (const aclTensor* tensor : list->values)
            call.require_format_of("the first tensor", first, "tensors", tensor);
        call.require_format_of("the first tensor", first, "out", out_tensor);
    }
    const size_t axis = tensors.empty() ? 0 : call.dimension("dim", dim, tensors[0].shape.size());
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    std::vector<int64_t> shape = tensors[0].shape;
    shape[axis] = 0;
    for (const Operand& tensor : tensors) {
        std::vector<int64_t> expected = tensors[0].shape;
        if (tensor.shape.size() == expected.size()) expected[axis] = tensor.shape[axis];
        call.require(tensor.shape == expected, "tensors",
                     "have the shape " + shape_text(expected) + " except in dim " + std::to_string(axis),
                     shape_text(tensor.shape));
        if (call.is_valid()) shape[axis] += tensor.shape[axis];
    }
    // The source copies a single tensor with elements without a check of out's shape, and the copy fails.
    const auto with_elements =
        std::count_if(tensors.begin(), tensors.end(), [](const Operand& tensor) { return tensor.count() != 0; });
    call.require_inner(with_elements == 1 ? kAclnnInnerNullptr : kAclnnInvalidParam, out.shape == shape, "out",
                       "have the shape " + shape_text(shape), shape_text(out.shape));
    std::vector<Operand> places;
    int64_t start = 0;
    for (size_t i = 0; i < tensors.size() && call.is_valid(); start += tensors[i++].shape[axis])
        places.push_back(narrow(out, axis, start, tensors[i].shape[axis]));
    return finish_parts(&call, places, tensors, bytes, executor);
}

// hicann/ops-math conversion/pack/docs/aclnnStack.md and op_api/aclnn_stack.cpp, which give 561103 for NULL.
aclError prepare_stack(const aclTensorList* list, int64_t dim, const aclTensor* out_tensor, uint64_t* bytes,
                       aclOpExecutor** executor) {
    for (const auto& [name, is_null] : {std::pair("tensors", !list), std::pair("out", !out_tensor)})
        if (is_null) return fail(kAclnnInnerNullptr, std::string("aclnnStack: ") + name + kMustNotBeNull);
    FirstPhase call("aclnnStack");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes | kWideUnsigned);
    std::vector<Operand> tensors = call.inputs("tensors", list, types, {1, 7});
    const Operand out = call.output("out", out_tensor, types, kNotScalar);
    check_common_type(&call, tensors, out);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const std::vector<int64_t> part_shape = tensors[0].shape;
    const size_t axis = call.dimension("dim", dim, part_shape.size() + 1);
    for (const Operand& tensor : tensors) call.require_shape("tensors", tensor, part_shape);
    std::vector<int64_t> shape = part_shape;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<int64_t>(tensors.size()));
    call.require_shape("out", out, shape);
    std::vector<Operand> places;
    for (size_t i = 0; i < tensors.size() && call.is_valid(); ++i) {
        places.push_back(narrow(out, axis, static_cast<int64_t>(i), 1));
        tensors[i] = with_repeated_dimension(tensors[i], axis, 1);
    }
    return finish_parts(&call, places, tensors, bytes, executor);
}

// hicann/ops-math conversion/split_v/docs/aclnnSplitTensor.md and op_api/aclnn_split_tensor.cpp. The document lists
// unsigned types of at least 16 bits for every chip; the source has them only on Ascend950. The parts are converted to
// the type of the outputs. If there is one part, the source copies it without a check of the shape.
aclError prepare_split(const aclTensor* self_tensor, uint64_t sections, int64_t dim, const aclTensorList* list,
                       uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnSplitTensor");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes);
    const Operand self = call.input("self", self_tensor, types, kNotScalar);
    const std::vector<Operand> out = call.outputs("out", list, types, kNotScalar);
    const size_t axis = call.dimension("dim", dim, self.shape.size());
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int64_t size = self.shape[axis], part = static_cast<int64_t>(sections);
    call.require((size == 0) == (part == 0), "splitSections",
                 size ? "be greater than 0" : "be 0 for an empty dimension", part);
    const int64_t count = call.is_valid() && part && part <= size ? (size + part - 1) / part : 1;
    call.require(static_cast<int64_t>(out.size()) == count, "out", "have " + std::to_string(count) + " element(s)",
                 static_cast<int64_t>(out.size()));
    std::vector<Operand> parts;
    for (int64_t i = 0; i < count && call.is_valid(); ++i) {
        const Operand& place = out[static_cast<size_t>(i)];
        parts.push_back(narrow(self, axis, i * part, std::min(part, size - i * part)));
        call.require_dtype("out", place, out[0].dtype);
        call.require(can_cast(self.dtype, place.dtype), "out",
                     std::string("have a type to which ") + dtype_name(self.dtype) + " converts",
                     dtype_name(place.dtype));
        call.require_inner(part == size ? kAclnnInnerNullptr : kAclnnInvalidParam, place.shape == parts.back().shape,
                           "out", "have the shape " + shape_text(parts.back().shape), shape_text(place.shape));
        if (call.is_valid() && place.dtype != self.dtype) call.ask_workspace(place.count() * dtype_bytes(place.dtype));
    }
    return finish_parts(&call, out, parts, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnRepeatGetWorkspaceSize(const aclTensor* self, const aclIntArray* repeats, aclTensor* out,
                                                  uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_repeat(self, repeats, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRepeat)

NPU_CANN_API aclError aclnnPermuteGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_permute(self, dims, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnPermute)

NPU_CANN_API aclError aclnnSliceGetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t start, int64_t end,
                                                 int64_t step, aclTensor* out, uint64_t* bytes,
                                                 aclOpExecutor** executor) {
    return simulated_cann::prepare_slice(self, dim, start, end, step, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSlice)

NPU_CANN_API aclError aclnnExpandGetWorkspaceSize(const aclTensor* self, const aclIntArray* size, aclTensor* out,
                                                  uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_expand(self, size, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnExpand)

NPU_CANN_API aclError aclnnFlipGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out,
                                                uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_flip(self, dims, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnFlip)

NPU_CANN_API aclError aclnnRollGetWorkspaceSize(const aclTensor* x, const aclIntArray* shifts, const aclIntArray* dims,
                                                aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_roll(x, shifts, dims, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRoll)

NPU_CANN_API aclError aclnnCatGetWorkspaceSize(const aclTensorList* tensors, int64_t dim, aclTensor* out,
                                               uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_cat(tensors, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnCat)

NPU_CANN_API aclError aclnnStackGetWorkspaceSize(const aclTensorList* tensors, int64_t dim, aclTensor* out,
                                                 uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_stack(tensors, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnStack)

NPU_CANN_API aclError aclnnSplitTensorGetWorkspaceSize(const aclTensor* self, uint64_t sections, int64_t dim,
                                                       aclTensorList* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_split(self, sections, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSplitTensor)
