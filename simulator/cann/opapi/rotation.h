// Rotation of pairs by tables of cosines and sines, which the stand-ins of rotary position embedding share.
#pragma once

#include "cann/opapi/first_phase.h"

namespace simulated_cann {

// These operators have no kernel on Ascend310P: hicann/ops-transformer posembedding/*/op_host/*_def.cpp, AddConfig.
// ApplyRotaryPosEmb has one and declares its own types.
constexpr TypesByChip kRopeTypes = only_910b(kHalfAndFloatTypes | kBf16);

// Which two elements of a row of D elements are a pair: (i, i + D/2), or (2i, 2i + 1).
enum class Pairing { kHalves, kNeighbours };

struct RotatedPair {
    int64_t first, second;
};
inline RotatedPair rotated_pair(Pairing pairing, int64_t i, int64_t row_size) {
    if (pairing == Pairing::kNeighbours) return {2 * i, 2 * i + 1};
    return {i, i + row_size / 2};
}

// The two products of each element of a rotated row: x * cos, and the pair's other element * sin. Their sum is the
// result. The kernels round the two products separately.
struct RotatedTerms {
    std::vector<float> straight, crossed;

    explicit RotatedTerms(size_t count) : straight(count), crossed(count) {}
    std::vector<float> sum() const;
};

// Computes the terms of one row, whose first element has the index `offset` in the terms. cos and sin have one value
// for each element.
void rotate_row(Pairing pairing, const float* x, const float* cos, const float* sin, int64_t row_size, int64_t offset,
                RotatedTerms* terms);

// The row of a table that each row of x uses. Each dimension of the table has the size of x or 1. The last dimension is
// the row itself.
std::vector<int64_t> table_rows(const std::vector<int64_t>& x_shape, const std::vector<int64_t>& table_shape);

// Rotates each row of x by its row of the tables.
RotatedTerms rotated(Pairing pairing, const std::vector<float>& x, const std::vector<int64_t>& rows,
                     const std::vector<float>& cos, const std::vector<float>& sin, int64_t row_size);

}  // namespace simulated_cann
