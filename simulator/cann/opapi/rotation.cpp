#include "cann/opapi/rotation.h"

namespace simulated_cann {

std::vector<float> RotatedTerms::sum() const {
    std::vector<float> result(straight.size());
    for (size_t i = 0; i < result.size(); ++i) result[i] = straight[i] + crossed[i];
    return result;
}

void rotate_row(Pairing pairing, const float* x, const float* cos, const float* sin, int64_t row_size, int64_t offset,
                RotatedTerms* terms) {
    float *straight = terms->straight.data() + offset, *crossed = terms->crossed.data() + offset;
    for (int64_t i = 0; i < row_size; ++i) straight[i] = x[i] * cos[i];
    for (int64_t i = 0; i < row_size / 2; ++i) {
        const RotatedPair pair = rotated_pair(pairing, i, row_size);
        crossed[pair.first] = -x[pair.second] * sin[pair.first];
        crossed[pair.second] = x[pair.first] * sin[pair.second];
    }
}

std::vector<int64_t> table_rows(const std::vector<int64_t>& x_shape, const std::vector<int64_t>& table_shape) {
    std::vector<int64_t> rows{0};
    for (size_t dim = 0; dim + 1 < x_shape.size(); ++dim) {
        std::vector<int64_t> more;
        more.reserve(rows.size() * static_cast<size_t>(x_shape[dim]));
        for (int64_t row : rows)
            for (int64_t i = 0; i < x_shape[dim]; ++i)
                more.push_back(row * table_shape[dim] + (table_shape[dim] == 1 ? 0 : i));
        rows = std::move(more);
    }
    return rows;
}

RotatedTerms rotated(Pairing pairing, const std::vector<float>& x, const std::vector<int64_t>& rows,
                     const std::vector<float>& cos, const std::vector<float>& sin, int64_t row_size) {
    RotatedTerms terms(x.size());
    for (size_t row = 0; row < rows.size(); ++row) {
        const int64_t offset = static_cast<int64_t>(row) * row_size, table_offset = rows[row] * row_size;
        rotate_row(pairing, &x[static_cast<size_t>(offset)], &cos[static_cast<size_t>(table_offset)],
                   &sin[static_cast<size_t>(table_offset)], row_size, offset, &terms);
    }
    return terms;
}

}  // namespace simulated_cann
