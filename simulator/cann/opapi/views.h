// Views of tensors and copies between views, for the stand-ins that move elements and do not change them.
#pragma once

#include <string>
#include <vector>

#include "cann/opapi/elements.h"

namespace simulated_cann {

// The `count` slices start, start + step, ... of a dimension. `step` may be negative.
Operand narrow(const Operand& whole, size_t dim, int64_t start, int64_t count, int64_t step = 1);
// Dimension i of the result is dimension dims[i] of the operand.
Operand permuted(const Operand& operand, const std::vector<size_t>& dims);
// Splits a dimension into two: `outer_size` blocks of `inner_size` indices.
Operand split_dimension(const Operand& operand, size_t dim, int64_t outer_size, int64_t inner_size);
// Adds a dimension of `size` equal slices in front of dimension `dim`.
Operand with_repeated_dimension(const Operand& operand, size_t dim, int64_t size);
// The elements of a contiguous operand in another shape.
Operand reshaped(const Operand& contiguous, const std::vector<int64_t>& shape);

// Copies the elements of a view to another view of the same shape. Converts them if the dtypes differ; otherwise copies
// bytes, so the payload of NaNs is kept. The views must not overlap.
void copy_view(const Operand& out, const Operand& from);

// The bytes of a view: [begin, end).
struct Extent {
    const char *begin = nullptr, *end = nullptr;
    bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};
Extent extent_of(const Operand& operand);  // empty for an operand without elements

// packed_operand() returns a contiguous operand in `storage`, without values. packed_as() returns a packed copy of
// `from`, converted to `dtype`.
Operand packed_operand(int32_t dtype, const std::vector<int64_t>& shape, std::vector<char>* storage);
Operand packed_as(int32_t dtype, const Operand& from, std::vector<char>* storage);
// Returns `in`, or a packed copy of it in `storage` if its memory overlaps that of `out`.
Operand separate_from(const Operand& out, const Operand& in, std::vector<char>* storage);

// Like copy_view(), but broadcasts `from` and allows views that overlap.
void copy_elements(const Operand& out, const Operand& from);

// Sets all elements to a scalar, which is converted once.
void fill_view(const Operand& out, const aclScalar& value);
aclScalar float_scalar(float value);

// Throws an error with the argument's name if an index is not in [0, limit): the kernel would access memory outside the
// tensor.
void check_indices(const std::vector<int64_t>& indices, const char* argument_name, int64_t limit);
// Returns the elements of `index` after check_indices().
std::vector<int64_t> indices_of(const Operand& index, const char* argument_name, int64_t limit);

}  // namespace simulated_cann
