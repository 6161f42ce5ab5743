// Weights of matrix products whose elements are not at strides in whole bytes: those of type int4, with two elements in
// a byte, and those in the private format FRACTAL_NZ.
//
// FRACTAL_NZ stores a matrix of R rows and C columns as blocks of 16 rows and 32 bytes of columns. The blocks of one
// column of blocks follow each other; the rows of a block are contiguous. Elements beyond R and C are zero. The
// matrices of a batch follow each other. Sources: hicann/ops-nn matmul/mat_mul_v3/op_host/op_api/aclnn_matmul.cpp,
// GetWeightNzShape, and docs/zh/context/data_format.md.
#pragma once

#include <string>
#include <vector>

#include "cann/opapi/elements.h"

namespace simulated_cann {

constexpr int32_t kFormatNz = 29;  // ACL_FORMAT_FRACTAL_NZ

struct PackedWeight {
    std::vector<int64_t> shape, strides;  // of the view, in elements
    int32_t dtype = 0;
    bool is_nz = false;
    char* first = nullptr;

    // Whether the view exchanges the last two dimensions of contiguous storage. False if both dimensions have size 1.
    bool is_transposed() const;
    // Returns an operand of the same shape whose elements lie at strides. int4 becomes int8. Unpacked elements are in
    // `storage`.
    Operand unpacked(std::vector<char>* storage) const;
};

// Whether a view exchanges the last two dimensions of contiguous storage: hicann/ops-nn
// matmul/common/op_host/op_api/matmul_util.cpp, IsTransposeLastTwoDims.
bool is_transposed(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);

// Bytes of a contiguous tensor of this shape in the format FRACTAL_NZ.
int64_t nz_bytes(const std::vector<int64_t>& shape, int64_t item_bytes);
// Convert the elements of a contiguous tensor, of 1 or 2 bytes each, to FRACTAL_NZ and back.
std::vector<char> to_nz(const std::vector<char>& plain, const std::vector<int64_t>& shape, int64_t item_bytes);
std::vector<char> from_nz(const char* nz, const std::vector<int64_t>& shape, int64_t item_bytes);

// Returns "" or the reason why the stand-in refuses the tensor. Fills `out`, and `access` with the memory that the
// function reads.
std::string read_weight(const aclTensor* tensor, const char* argument_name, PackedWeight* out, MemoryAccess* access);

// Returns "" or the reason why the bytes [first, first + bytes) are not in one allocation of the device.
std::string allocation_error(const char* first, int64_t bytes, const char* argument_name);

}  // namespace simulated_cann
