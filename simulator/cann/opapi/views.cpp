#include "cann/opapi/views.h"

#include <array>
#include <cstring>
#include <stdexcept>

namespace simulated_cann {
namespace {

// Converts elements through the type Compute.
template <class Compute>
void convert(const Operand& out, const Operand& from) {
    Compute run[kMaxRunElements];
    for_each_run({&out, &from}, [&](int64_t count, char* const* addresses) {
        load(from.dtype, addresses[1], from.run_stride(), count, run);
        store(out.dtype, addresses[0], out.run_stride(), count, run);
    });
}

struct Dimension {
    int64_t size, to_step, from_step;  // steps in bytes
};
constexpr size_t kMaxDimensions = 32;  // RepeatInterleave and Repeat split each of 8 dimensions

// Sets `dims` to the dimensions of a copy and returns their number. Omits dimensions of size 1, and merges two
// dimensions if both operands can traverse them with one step.
size_t merge_dimensions(const Operand& out, const Operand& from, std::array<Dimension, kMaxDimensions>* dims) {
    const int64_t bytes = dtype_bytes(out.dtype);
    size_t count = 0;
    for (size_t i = 0; i < out.shape.size(); ++i) {
        const Dimension next{out.shape[i], out.strides[i] * bytes, from.strides[i] * bytes};
        if (next.size == 1) continue;
        if (count) {
            Dimension& last = (*dims)[count - 1];
            if (last.to_step == next.to_step * next.size && last.from_step == next.from_step * next.size) {
                last = {last.size * next.size, next.to_step, next.from_step};
                continue;
            }
        }
        (*dims)[count++] = next;
    }
    return count;
}

struct SixteenBytes {
    uint64_t low, high;
};

template <class Item>
void copy_items(char* to, const char* from, const Dimension& run) {
    for (int64_t i = 0; i < run.size; ++i) std::memcpy(to + i * run.to_step, from + i * run.from_step, sizeof(Item));
}

void copy_run(char* to, const char* from, const Dimension& run, int64_t bytes) {
    if (run.to_step == bytes && run.from_step == bytes)
        std::memcpy(to, from, static_cast<size_t>(run.size * bytes));
    else if (bytes == 1)
        copy_items<uint8_t>(to, from, run);
    else if (bytes == 2)
        copy_items<uint16_t>(to, from, run);
    else if (bytes == 4)
        copy_items<uint32_t>(to, from, run);
    else if (bytes == 8)
        copy_items<uint64_t>(to, from, run);
    else
        copy_items<SixteenBytes>(to, from, run);
}

void copy_bytes(const Operand& out, const Operand& from) {
    const int64_t bytes = dtype_bytes(out.dtype);
    std::array<Dimension, kMaxDimensions> dims;
    size_t rank = merge_dimensions(out, from, &dims);
    if (!rank) dims[rank++] = {1, bytes, bytes};
    std::array<int64_t, kMaxDimensions> position{};
    char* to = out.first;
    const char* source = from.first;
    for (;;) {
        copy_run(to, source, dims[rank - 1], bytes);
        size_t dim = rank - 1;
        for (; dim-- > 0;) {
            to += dims[dim].to_step;
            source += dims[dim].from_step;
            if (++position[dim] < dims[dim].size) break;
            position[dim] = 0;
            to -= dims[dim].size * dims[dim].to_step;
            source -= dims[dim].size * dims[dim].from_step;
        }
        if (dim == size_t(-1)) return;
    }
}

}  // namespace

Operand narrow(const Operand& whole, size_t dim, int64_t start, int64_t count, int64_t step) {
    Operand part = whole;
    if (whole.first) part.first += start * whole.strides[dim] * dtype_bytes(whole.dtype);
    part.shape[dim] = count;
    part.strides[dim] = count > 1 ? part.strides[dim] * step : 0;  // of one element or none, the step is any number
    return part;
}

Operand permuted(const Operand& operand, const std::vector<size_t>& dims) {
    Operand view = operand;
    for (size_t i = 0; i < dims.size(); ++i) {
        view.shape[i] = operand.shape[dims[i]];
        view.strides[i] = operand.strides[dims[i]];
    }
    return view;
}

Operand split_dimension(const Operand& operand, size_t dim, int64_t outer_size, int64_t inner_size) {
    Operand view = operand;
    const auto at = static_cast<std::ptrdiff_t>(dim);
    view.shape[dim] = inner_size;
    view.shape.insert(view.shape.begin() + at, outer_size);
    view.strides.insert(view.strides.begin() + at, operand.strides[dim] * inner_size);
    return view;
}

Operand with_repeated_dimension(const Operand& operand, size_t dim, int64_t size) {
    Operand view = operand;
    view.shape.insert(view.shape.begin() + static_cast<std::ptrdiff_t>(dim), size);
    view.strides.insert(view.strides.begin() + static_cast<std::ptrdiff_t>(dim), 0);
    return view;
}

Operand reshaped(const Operand& contiguous, const std::vector<int64_t>& shape) {
    Operand view = contiguous;
    view.shape = shape;
    view.strides.assign(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) view.strides[i - 1] = view.strides[i] * shape[i];
    return view;
}

void copy_view(const Operand& out, const Operand& from) {
    if (out.count() == 0) return;
    if (out.dtype == from.dtype)
        copy_bytes(out, from);
    else if (is_complex(out.dtype) || is_complex(from.dtype))
        convert<std::complex<double>>(out, from);
    else if (out.dtype == kDouble || from.dtype == kDouble)
        convert<double>(out, from);
    else if (is_floating(from.dtype))
        convert<float>(out, from);
    else
        convert<int64_t>(out, from);
}

Extent extent_of(const Operand& operand) {
    if (operand.count() == 0) return {};
    const int64_t bytes = dtype_bytes(operand.dtype);
    Extent extent{operand.first, operand.first + bytes};
    for (size_t i = 0; i < operand.shape.size(); ++i) {
        const int64_t reach = (operand.shape[i] - 1) * operand.strides[i] * bytes;
        (reach < 0 ? extent.begin : extent.end) += reach;
    }
    return extent;
}

Operand packed_operand(int32_t dtype, const std::vector<int64_t>& shape, std::vector<char>* storage) {
    Operand packed = reshaped(Operand{}, shape);
    packed.dtype = dtype;
    storage->resize(static_cast<size_t>(packed.count() * dtype_bytes(dtype)));
    packed.first = storage->data();
    return packed;
}

Operand packed_as(int32_t dtype, const Operand& from, std::vector<char>* storage) {
    const Operand packed = packed_operand(dtype, from.shape, storage);
    copy_view(packed, from);
    return packed;
}

Operand separate_from(const Operand& out, const Operand& in, std::vector<char>* storage) {
    return extent_of(out).overlaps(extent_of(in)) ? packed_as(in.dtype, in, storage) : in;
}

void copy_elements(const Operand& out, const Operand& from) {
    std::vector<char> storage;
    const Operand source = separate_from(out, from, &storage);
    copy_view(out, source.broadcast_to(out.shape));
}

void fill_view(const Operand& out, const aclScalar& value) {
    aclScalar given = value, converted;
    Operand from, item;
    from.dtype = value.dtype;
    from.first = reinterpret_cast<char*>(given.value);
    item.dtype = out.dtype;
    item.first = reinterpret_cast<char*>(converted.value);
    copy_view(item, from);
    copy_view(out, item.broadcast_to(out.shape));
}

aclScalar float_scalar(float value) {
    aclScalar scalar;
    std::memcpy(scalar.value, &value, sizeof value);
    scalar.dtype = kFloat;
    return scalar;
}

void check_indices(const std::vector<int64_t>& indices, const char* argument_name, int64_t limit) {
    for (size_t i = 0; i < indices.size(); ++i)
        if (indices[i] < 0 || indices[i] >= limit)
            throw std::out_of_range(std::string(argument_name) + " must be in [0, " + std::to_string(limit) +
                                    ") but got " + std::to_string(indices[i]) + " in element " + std::to_string(i) +
                                    ".");
}

std::vector<int64_t> indices_of(const Operand& index, const char* argument_name, int64_t limit) {
    std::vector<int64_t> indices = values_of<int64_t>(index);
    check_indices(indices, argument_name, limit);
    return indices;
}

}  // namespace simulated_cann
