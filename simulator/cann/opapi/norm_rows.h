// Parts that the stand-ins of the norms share: the shapes of a norm over the last dimensions, and sums of rows.
#pragma once

#include <cmath>

#include "cann/opapi/first_phase.h"
#include "cann/opapi/sums.h"

namespace simulated_cann {

constexpr TypesByChip kNormTypes = with_bf16_except_310p(kHalfAndFloatTypes);
constexpr TypesByChip kFloatOnly = on_all(type_set({kFloat}));
constexpr RankRange kNormRanks{1, 8};

// `x` as a matrix: each row is normalized.
struct NormRows {
    int64_t rows = 1, columns = 1;
    std::vector<int64_t> leading;  // the dimensions that are not normalized
    std::vector<int64_t> kept;     // the same, with 1 for each normalized dimension: the shape of rstd
};

// Splits `shape` into rows, of which the last `normalized_rank` dimensions are the columns. `normalized_rank` is at
// most the rank.
NormRows norm_rows(const std::vector<int64_t>& shape, size_t normalized_rank);

// Whether `shape` ends with the dimensions of `ending`.
bool ends_with(const std::vector<int64_t>& shape, const std::vector<int64_t>& ending);

// Requires that gamma has the last dimensions of x. Here and in the functions below, `status` is the status of a call
// that breaks the rule.
void require_gamma_shape(FirstPhase* call, aclError status, const char* x_name, const Operand& x, const Operand& gamma);
void require_shape_with(FirstPhase* call, aclError status, const char* name, const Operand& operand,
                        const std::vector<int64_t>& shape);
void require_rank(FirstPhase* call, aclError status, const char* name, const Operand& operand, RankRange ranks);
void require_float_at_least(FirstPhase* call, aclError status, const char* name, double value, double least);

// 1 / sqrt(mean(row^2) + epsilon), in float32 as in the kernels of the RMS norms (hicann/ops-nn
// norm/rms_norm/op_kernel/rms_norm.h, Compute).
inline float reciprocal_rms(const float* row, int64_t columns, float epsilon) {
    const float sum = lane_sum(row, columns, [](float value) { return value * value; });
    return 1.0F / std::sqrt(sum * (1.0F / static_cast<float>(columns)) + epsilon);
}

// The mean of a row and 1 / sqrt(variance + epsilon), in float32. The variance is the mean of the squared differences
// from the mean.
struct Moments {
    float mean, rstd;
};
inline Moments moments(const float* row, int64_t columns, float epsilon) {
    const auto count = static_cast<float>(columns);
    const float mean = lane_sum(row, columns) / count;
    const float squares = lane_sum(row, columns, [mean](float value) { return (value - mean) * (value - mean); });
    return {mean, 1.0F / std::sqrt(squares / count + epsilon)};
}

}  // namespace simulated_cann
