#include "cann/opapi/packed_weight.h"

#include <algorithm>
#include <cstring>

namespace simulated_cann {
namespace {

constexpr int64_t kBlockRows = 16, kBlockBytes = 32;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// A batch of matrices in FRACTAL_NZ.
struct NzLayout {
    NzLayout(const std::vector<int64_t>& shape, int64_t item_bytes_)
        : item_bytes(item_bytes_), rows(shape[shape.size() - 2]), columns(shape.back()) {
        for (size_t i = 0; i + 2 < shape.size(); ++i) matrices *= shape[i];
        block_columns = kBlockBytes / item_bytes;
        padded_rows = rounded_up(rows, kBlockRows);
        matrix_bytes = padded_rows * rounded_up(columns, block_columns) * item_bytes;
    }

    // Calls copy(offset in FRACTAL_NZ, offset in plain storage, bytes) for each run of elements that is contiguous in
    // both.
    template <class Copy>
    void for_each_run(Copy copy) const {
        for (int64_t matrix = 0; matrix < matrices; ++matrix)
            for (int64_t column = 0; column < columns; column += block_columns)
                for (int64_t row = 0; row < rows; ++row)
                    copy(matrix * matrix_bytes + (column / block_columns * padded_rows + row) * kBlockBytes,
                         ((matrix * rows + row) * columns + column) * item_bytes,
                         std::min(block_columns, columns - column) * item_bytes);
    }

    int64_t item_bytes, rows, columns, matrices = 1, block_columns, padded_rows, matrix_bytes;
};

// The shape of the storage of a transposed view.
std::vector<int64_t> with_last_two_swapped(std::vector<int64_t> shape) {
    std::swap(shape[shape.size() - 2], shape.back());
    return shape;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return strides;
}

// Sign-extends the element `index` of packed int4. The lower half of a byte is the element with the even index
// (hicann/asc-devkit, int4b_t).
int8_t int4_at(const char* first, int64_t index) {
    const auto byte = static_cast<uint8_t>(first[index / 2]);
    const int nibble = index % 2 ? byte >> 4 : byte & 15;
    return static_cast<int8_t>(nibble >= 8 ? nibble - 16 : nibble);
}

}  // namespace

bool is_transposed(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    if (shape.size() < 2 || shape.size() > 6) return false;
    const size_t last = shape.size() - 1, second = last - 1;
    if (strides[second] != 1 || strides[last] != shape[second]) return false;
    int64_t matrix = shape[last] * shape[second];
    for (size_t i = second; i-- > 0;) {
        if (strides[i] != matrix) return false;
        matrix *= shape[i];
    }
    return shape[last] != 1 || shape[second] != 1;
}

bool PackedWeight::is_transposed() const { return simulated_cann::is_transposed(shape, strides); }

Operand PackedWeight::unpacked(std::vector<char>* storage) const {
    Operand operand{shape, strides, dtype == kInt4 ? static_cast<int32_t>(kInt8) : dtype, first};
    if (operand.count() == 0 || (!is_nz && dtype != kInt4)) return operand;
    if (is_nz) {
        *storage = from_nz(first, is_transposed() ? with_last_two_swapped(shape) : shape, dtype_bytes(dtype));
    } else {
        storage->resize(static_cast<size_t>(operand.count()));
        for (size_t i = 0; i < storage->size(); ++i)
            (*storage)[i] = static_cast<char>(int4_at(first, static_cast<int64_t>(i)));
    }
    operand.first = storage->data();
    return operand;
}

int64_t nz_bytes(const std::vector<int64_t>& shape, int64_t item_bytes) {
    const NzLayout layout(shape, item_bytes);
    return layout.matrices * layout.matrix_bytes;
}

std::vector<char> to_nz(const std::vector<char>& plain, const std::vector<int64_t>& shape, int64_t item_bytes) {
    std::vector<char> nz(static_cast<size_t>(nz_bytes(shape, item_bytes)));
    NzLayout(shape, item_bytes).for_each_run([&](int64_t nz_offset, int64_t plain_offset, int64_t bytes) {
        std::memcpy(nz.data() + nz_offset, plain.data() + plain_offset, static_cast<size_t>(bytes));
    });
    return nz;
}

std::vector<char> from_nz(const char* nz, const std::vector<int64_t>& shape, int64_t item_bytes) {
    int64_t count = item_bytes;
    for (int64_t size : shape) count *= size;
    std::vector<char> plain(static_cast<size_t>(count));
    NzLayout(shape, item_bytes).for_each_run([&](int64_t nz_offset, int64_t plain_offset, int64_t bytes) {
        std::memcpy(plain.data() + plain_offset, nz + nz_offset, static_cast<size_t>(bytes));
    });
    return plain;
}

std::string allocation_error(const char* first, int64_t bytes, const char* argument_name) {
    void* allocation = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(first, &allocation, &allocation_bytes))
        return std::string(argument_name) + " must be in device memory but its address is not the simulated device's.";
    const int64_t end = first - static_cast<char*>(allocation) + bytes;
    if (end <= static_cast<int64_t>(allocation_bytes)) return "";
    return std::string(argument_name) + " must lie inside its allocation of " + std::to_string(allocation_bytes) +
           " bytes but reaches byte " + std::to_string(end) + ".";
}

std::string read_weight(const aclTensor* tensor, const char* argument_name, PackedWeight* out, MemoryAccess* access) {
    const std::string name = argument_name;
    if (tensor->format != kFormatNz && tensor->dtype != kInt4) {
        Operand operand;
        const std::string error = read_argument(tensor, argument_name, &operand);
        *out = {operand.shape, operand.strides, operand.dtype, false, operand.first};
        *access = read_access(argument_name, operand);
        return error;
    }
    *out = {tensor->shape, tensor->strides, tensor->dtype, tensor->format == kFormatNz, nullptr};
    if (out->is_nz && (tensor->dtype == kInt4 || dtype_bytes(tensor->dtype) > 2 || !dtype_bytes(tensor->dtype)))
        return name + " must be of a dtype of 1 or 2 bytes in the format FRACTAL_NZ but got " + "aclDataType " +
               std::to_string(tensor->dtype) + ".";
    if (out->shape.size() < 2) return name + " must have at least 2 dimensions.";
    // In FRACTAL_NZ, an element takes a block at most.
    if (const std::string error = size_error(name, out->shape, kBlockRows * kBlockBytes); !error.empty()) return error;
    Operand view{out->shape, out->strides, out->dtype, nullptr};
    // A dimension of one element may have any stride.
    for (size_t i = 0; i + 2 < view.shape.size(); ++i)
        if (view.shape[i] == 1) view.strides[i] = contiguous_strides(view.shape)[i];
    if (!is_contiguous(view.shape, view.strides) && !is_transposed(view.shape, view.strides))
        return name + " must be contiguous or transposed in its last two dimensions but got the strides " +
               shape_text(out->strides) + " of the shape " + shape_text(out->shape) + ".";
    out->strides = view.strides;
    const int64_t count = view.count();
    if (count == 0) return "";
    if (out->dtype == kInt4 && tensor->offset % 2) return name + " must start at a whole byte.";
    const int64_t bytes = !out->is_nz ? (count + 1) / 2
                                      : nz_bytes(out->is_transposed() ? with_last_two_swapped(out->shape) : out->shape,
                                                 dtype_bytes(out->dtype));
    // Unsigned, because an offset may be any number; allocation_error() checks the address.
    const auto offset_bytes =
        out->is_nz ? static_cast<uintptr_t>(tensor->offset) * static_cast<uintptr_t>(dtype_bytes(out->dtype))
                   : static_cast<uintptr_t>(tensor->offset / 2);
    out->first = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(tensor->data) + offset_bytes);
    *access = {argument_name, out->first, {bytes}, {1}, 1, true, false};
    return allocation_error(out->first, bytes, argument_name);
}

}  // namespace simulated_cann
