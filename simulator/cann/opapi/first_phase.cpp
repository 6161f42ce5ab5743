#include "cann/opapi/first_phase.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cann/runtime/report.h"

namespace simulated_cann {

std::string number_text(double value) {
    constexpr int kShort = 6, kExact = 17;
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", kShort, value);
    if (std::strtod(text, nullptr) != value) std::snprintf(text, sizeof text, "%.*g", kExact, value);
    return text;
}

void BeyondDocument::add(bool is_beyond, const std::string& reason) {
    const bool is_new = std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end();
    if (is_beyond && is_new) reasons_.push_back(reason);
}

void BeyondDocument::report(const char* function) const {
    for (const std::string& reason : reasons_) count_beyond_document(function, reason);
}

// CANN checks all arguments for NULL before it makes any other check: hicann/ops-math math/mul/op_api/aclnn_mul.cpp,
// CheckParams, and the same function of the other operators.
void FirstPhase::refuse_null(const char* name) {
    if (!has_null_) error_ = name + std::string(kMustNotBeNull);
    has_null_ = true;
}

void FirstPhase::require(bool holds, const std::string& argument, const std::string& rule, const std::string& value) {
    if (!holds && error_.empty()) error_ = argument + " must " + rule + " but got " + value + ".";
}

void FirstPhase::require(bool holds, const std::string& argument, const std::string& rule, int64_t value) {
    require(holds, argument, rule, std::to_string(value));
}

int64_t FirstPhase::repeated_size(int64_t repeats, int64_t size) {
    int64_t repeated = 0;
    require(!__builtin_mul_overflow(repeats, size, &repeated), "repeats", "give fewer than 2^63 elements", repeats);
    return repeated;
}

void FirstPhase::require_inner(aclError status, bool holds, const std::string& argument, const std::string& rule,
                               const std::string& value) {
    if (!holds && is_valid()) inner_status_ = status;
    require(holds, argument, rule, value);
}

void FirstPhase::require_shape(const char* name, const Operand& operand, const std::vector<int64_t>& shape) {
    require(operand.shape == shape, name, "have the shape " + shape_text(shape), shape_text(operand.shape));
}

void FirstPhase::require_shape_or_one_element(const char* name, const Operand& operand,
                                              const std::vector<int64_t>& shape) {
    const bool has_one = std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size == 1; });
    if (!is_valid() || !has_one || operand.count() != 1) return require_shape(name, operand, shape);
    report_beyond_document(operand.shape != shape,
                           std::string("its document requires the shape of the result for ") + name);
}

void FirstPhase::require_dtype(const char* name, const Operand& operand, int32_t dtype) {
    require(operand.dtype == dtype, name, std::string("be ") + dtype_name(dtype), dtype_name(operand.dtype));
}

void FirstPhase::require_format_of(const char* other_name, const aclTensor* other, const char* name,
                                   const aclTensor* tensor) {
    if (!is_valid()) return;
    require(tensor->format == other->format, name,
            "have the format " + std::to_string(other->format) + " of " + other_name, tensor->format);
}

void FirstPhase::refuse_310p(aclError status) {
    require_inner(status, !is_ascend310p(), "the chip", "be of the series Ascend910B or Ascend910_93", soc_name());
}

void FirstPhase::require_contiguous(const char* name, const Operand& operand) {
    require(is_contiguous(operand.shape, operand.strides), name, "be contiguous",
            "the strides " + shape_text(operand.strides) + " of the shape " + shape_text(operand.shape));
}

void FirstPhase::report_beyond_document(bool is_beyond, const std::string& reason) {
    beyond_document_.add(is_beyond, reason);
}

void FirstPhase::report_beyond_document_on_310p() { report_beyond_document(is_ascend310p(), kUnlistedChip); }

void FirstPhase::report_beyond_document_unless_contiguous(const char* name, const Operand& operand) {
    report_beyond_document(!is_contiguous(operand.shape, operand.strides),
                           std::string("its document requires a contiguous ") + name);
}

void FirstPhase::refuse_unsimulated(bool is_used, const char* option) {
    if (!is_used || !is_valid()) return;
    count_not_simulated(std::string(function_) + " with " + option);
    inner_status_ = kNotSupported;
    error_ = std::string(option) + " is not simulated.";
}

size_t FirstPhase::dimension(const char* name, int64_t value, size_t rank) {
    const auto dims = static_cast<int64_t>(rank ? rank : 1);
    require(value >= -dims && value < dims, name, "be in [" + std::to_string(-dims) + ", " + std::to_string(dims) + ")",
            value);
    return is_valid() ? static_cast<size_t>(value < 0 ? value + dims : value) : 0;
}

void FirstPhase::ask_workspace(int64_t bytes) { more_workspace_ += static_cast<uint64_t>(bytes); }

void FirstPhase::check_type(const char* name, int32_t dtype, const TypesByChip& types) {
    if (is_valid()) error_ = type_error(name, types, dtype);
    const std::string reason = undocumented_type(name, types, dtype);
    report_beyond_document(!reason.empty(), reason);
}

void FirstPhase::check_rank(const char* name, size_t rank, RankRange ranks) {
    const std::string range = ranks.least == ranks.most
                                  ? std::to_string(ranks.least)
                                  : std::to_string(ranks.least) + " to " + std::to_string(ranks.most);
    require(rank >= ranks.least && rank <= ranks.most, name, "have " + range + " dimensions",
            static_cast<int64_t>(rank));
}

Operand FirstPhase::tensor(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks,
                           Use use) {
    Operand operand;
    if (!tensor) {
        refuse_null(name);
        return operand;
    }
    if (!is_valid()) return operand;
    // A type that CANN's function lacks is refused for that reason, whether it is simulated or not.
    check_type(name, tensor->dtype, types);
    if (is_valid()) error_ = read_argument(tensor, name, &operand);
    check_rank(name, operand.shape.size(), ranks);
    if (!is_valid()) return {};
    MemoryAccess access = use == Use::kRead ? read_access(name, operand) : write_access(name, operand);
    access.reads = use != Use::kWrite;
    accesses_.push_back(std::move(access));
    return operand;
}

PackedWeight FirstPhase::weight(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks) {
    PackedWeight weight;
    if (!tensor) refuse_null(name);
    if (!is_valid()) return weight;
    MemoryAccess access;
    check_type(name, tensor->dtype, types);
    if (is_valid()) error_ = read_weight(tensor, name, &weight, &access);
    check_rank(name, weight.shape.size(), ranks);
    if (!is_valid()) return {};
    accesses_.push_back(std::move(access));
    return weight;
}

void FirstPhase::writes(const char* name, char* first, int64_t bytes) {
    accesses_.push_back({name, first, {bytes}, {1}, 1, false, true});
}

Operand FirstPhase::input(const char* name, const aclTensor* value, const TypesByChip& types, RankRange ranks) {
    return tensor(name, value, types, ranks, Use::kRead);
}

Operand FirstPhase::output(const char* name, const aclTensor* value, const TypesByChip& types, RankRange ranks) {
    return tensor(name, value, types, ranks, Use::kWrite);
}

Operand FirstPhase::in_place(const char* name, const aclTensor* value, const TypesByChip& types, RankRange ranks) {
    return tensor(name, value, types, ranks, Use::kBoth);
}

std::optional<Operand> FirstPhase::optional_input(const char* name, const aclTensor* value, const TypesByChip& types,
                                                  RankRange ranks) {
    if (!value) return std::nullopt;
    return tensor(name, value, types, ranks, Use::kRead);
}

std::optional<Operand> FirstPhase::optional_output(const char* name, const aclTensor* value, const TypesByChip& types,
                                                   RankRange ranks) {
    if (!value) return std::nullopt;
    return tensor(name, value, types, ranks, Use::kWrite);
}

std::vector<Operand> FirstPhase::tensors(const char* name, const aclTensorList* list, const TypesByChip& types,
                                         RankRange ranks, Use use) {
    std::vector<Operand> operands;
    if (!list) {
        refuse_null(name);
        return operands;
    }
    for (const aclTensor* item : list->values) operands.push_back(tensor(name, item, types, ranks, use));
    return operands;
}

std::vector<Operand> FirstPhase::inputs(const char* name, const aclTensorList* list, const TypesByChip& types,
                                        RankRange ranks) {
    return tensors(name, list, types, ranks, Use::kRead);
}

std::vector<Operand> FirstPhase::outputs(const char* name, const aclTensorList* list, const TypesByChip& types,
                                         RankRange ranks) {
    return tensors(name, list, types, ranks, Use::kWrite);
}

std::vector<int64_t> FirstPhase::integers(const char* name, const aclIntArray* array) {
    if (array) return array->values;
    refuse_null(name);
    return {};
}

bool FirstPhase::is_valid_scalar(const char* name, const aclScalar* scalar, const TypesByChip& types) {
    if (!scalar) refuse_null(name);
    if (is_valid()) check_type(name, scalar->dtype, types);
    if (is_valid()) error_ = read_argument(scalar, name);
    return is_valid();
}

aclError FirstPhase::finish(std::function<void()> body, uint64_t* workspace_bytes, aclOpExecutor** executor) {
    if (inner_status_ && !has_null_) return fail(inner_status_, std::string(function_) + ": " + error_);
    if (!is_valid()) return refuse(function_, error_);
    report_beyond_document(is_ascend950(), "the simulated rules are those of Ascend910B, whose kernels differ");
    const aclError status = finish_first_phase(function_, std::move(accesses_), std::move(body), workspace_bytes,
                                               executor, more_workspace_);
    if (status == kSuccess) beyond_document_.report(function_);
    return status;
}

}  // namespace simulated_cann
