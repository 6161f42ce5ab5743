#include "cann/opapi/norm_rows.h"

#include <algorithm>

namespace simulated_cann {

NormRows norm_rows(const std::vector<int64_t>& shape, size_t normalized_rank) {
    NormRows result;
    const size_t leading_rank = shape.size() - normalized_rank;
    for (size_t i = 0; i < shape.size(); ++i) {
        const bool is_leading = i < leading_rank;
        (is_leading ? result.rows : result.columns) *= shape[i];
        if (is_leading) result.leading.push_back(shape[i]);
        result.kept.push_back(is_leading ? shape[i] : 1);
    }
    return result;
}

bool ends_with(const std::vector<int64_t>& shape, const std::vector<int64_t>& ending) {
    return ending.size() <= shape.size() && std::equal(ending.rbegin(), ending.rend(), shape.rbegin());
}

void require_gamma_shape(FirstPhase* call, aclError status, const char* x_name, const Operand& x,
                         const Operand& gamma) {
    call->require_inner(status, ends_with(x.shape, gamma.shape), "gamma",
                        "have the last dimensions of " + std::string(x_name) + ", " + shape_text(x.shape) + ",",
                        shape_text(gamma.shape));
}

void require_shape_with(FirstPhase* call, aclError status, const char* name, const Operand& operand,
                        const std::vector<int64_t>& shape) {
    call->require_inner(status, operand.shape == shape, name, "have the shape " + shape_text(shape),
                        shape_text(operand.shape));
}

void require_rank(FirstPhase* call, aclError status, const char* name, const Operand& operand, RankRange ranks) {
    const size_t rank = operand.shape.size();
    call->require_inner(status, rank >= ranks.least && rank <= ranks.most, name,
                        "have " + (ranks.least == ranks.most ? "" : std::to_string(ranks.least) + " to ") +
                            std::to_string(ranks.most) + " dimensions",
                        std::to_string(rank));
}

void require_float_at_least(FirstPhase* call, aclError status, const char* name, double value, double least) {
    call->require_inner(status, value >= least, name, "be at least " + number_text(least), number_text(value));
}

}  // namespace simulated_cann
