// The first phase of a stand-in of libopapi. Each call of FirstPhase reads and checks one argument. After the first
// error the later calls return empty values and check nothing but NULL. finish() returns the error, or creates the
// executor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cann/opapi/packed_weight.h"
#include "cann/opapi/type_sets.h"

namespace simulated_cann {

struct RankRange {
    size_t least = 0, most = 8;  // 8: CANN's limit for functions without another one
};
// For functions that CANN generates: the tiling checks the ranks. 25 is the limit of CANN's shapes (hicann/opbase
// src/nnopbase/individual_op/executor/indv_executor.h, MAX_DIM_NUM).
constexpr RankRange kAnyRank{0, 25};

// Returns the number with 6 significant digits, such as "0" and "1e-05", or with 17 if 6 do not determine it.
std::string number_text(double value);

// The reasons why a function's document excludes a call that CANN's source accepts.
class BeyondDocument {
public:
    void add(bool is_beyond, const std::string& reason);
    // Adds the reasons to the report of the process, after the first phase of `function` has accepted the call.
    void report(const char* function) const;

private:
    std::vector<std::string> reasons_;
};

class FirstPhase {
public:
    explicit FirstPhase(const char* function) : function_(function) {}

    // A tensor that the function reads, writes, or both. NULL is an error.
    Operand input(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks = {});
    Operand output(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks = {});
    Operand in_place(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks = {});
    // A tensor that may be NULL.
    std::optional<Operand> optional_input(const char* name, const aclTensor* tensor, const TypesByChip& types,
                                          RankRange ranks = {});
    std::optional<Operand> optional_output(const char* name, const aclTensor* tensor, const TypesByChip& types,
                                           RankRange ranks = {});
    // A tensor that the function reads and that may be of type int4 or in the format FRACTAL_NZ.
    PackedWeight weight(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks = {});
    // Declares that the function writes `bytes` contiguous bytes that are not a tensor's view.
    void writes(const char* name, char* first, int64_t bytes);
    // A list of tensors that the function reads or writes. A NULL list or element is an error.
    std::vector<Operand> inputs(const char* name, const aclTensorList* list, const TypesByChip& types,
                                RankRange ranks = {});
    std::vector<Operand> outputs(const char* name, const aclTensorList* list, const TypesByChip& types,
                                 RankRange ranks = {});
    std::vector<int64_t> integers(const char* name, const aclIntArray* array);
    template <class Compute>
    Compute scalar(const char* name, const aclScalar* scalar, const TypesByChip& types) {
        return is_valid_scalar(name, scalar, types) ? scalar_as<Compute>(*scalar) : Compute{};
    }

    // Refuses the call if `holds` is false: "ARGUMENT must RULE but got VALUE."
    void require(bool holds, const std::string& argument, const std::string& rule, const std::string& value);
    void require(bool holds, const std::string& argument, const std::string& rule, int64_t value);
    // Returns repeats * size, and requires that int64 holds it.
    int64_t repeated_size(int64_t repeats, int64_t size);
    // Like require(), for a rule that CANN's first phase reports with `status`, such as a rule of the tiling.
    void require_inner(aclError status, bool holds, const std::string& argument, const std::string& rule,
                       const std::string& value);
    void require_shape(const char* name, const Operand& operand, const std::vector<int64_t>& shape);
    // Like require_shape(), for a function whose source accepts every shape of one element if the result has one:
    // ops-math common/inc/op_api/aclnn_check.h, CheckShapeAndScalarSame.
    void require_shape_or_one_element(const char* name, const Operand& operand, const std::vector<int64_t>& shape);
    void require_dtype(const char* name, const Operand& operand, int32_t dtype);
    // Refuses a tensor whose format differs from that of `other`. Used if the function's source compares the formats.
    void require_format_of(const char* other_name, const aclTensor* other, const char* name, const aclTensor* tensor);
    // Refuses the call on the chips Ascend310P, for which CANN has no kernel. 161001 is the status of the functions
    // that CANN generates from the operator's definition: hicann/opbase
    // src/nnopbase/individual_op/executor/indv_executor_ext.cpp, NnopbaseExecutorSetRegInfo.
    void refuse_310p(aclError status = kAclnnNullptr);
    // Refuses a tensor that is not contiguous. Used if CANN's source refuses such a tensor or is not available.
    void require_contiguous(const char* name, const Operand& operand);
    // If `is_beyond`, reports that CANN's source accepts the call although the function's document excludes it. Has no
    // effect if the call is refused.
    void report_beyond_document(bool is_beyond, const std::string& reason);
    // Reports a call on the chips Ascend310P, for which the function has a kernel but which its document does not list.
    void report_beyond_document_on_310p();
    // Reports a tensor that is not contiguous: CANN's source packs it, but the document requires a contiguous one.
    void report_beyond_document_unless_contiguous(const char* name, const Operand& operand);
    // Refuses a call that uses an option which CANN has but the stand-in lacks. The report counts such calls.
    void refuse_unsimulated(bool is_used, const char* option);
    // Converts a dimension in [-rank, rank) to one in [0, rank). A tensor of rank 0 has dimension 0.
    size_t dimension(const char* name, int64_t value, size_t rank);
    // Adds bytes to the workspace, in addition to those for operands that are not contiguous.
    void ask_workspace(int64_t bytes);

    // Whether no check has failed. Compute shapes for later checks only if it is true.
    bool is_valid() const { return error_.empty(); }
    // `body` runs when the stream reaches the call. It must copy what it uses, except memory of the device.
    aclError finish(std::function<void()> body, uint64_t* workspace_bytes, aclOpExecutor** executor);

private:
    enum class Use { kRead, kWrite, kBoth };
    Operand tensor(const char* name, const aclTensor* tensor, const TypesByChip& types, RankRange ranks, Use use);
    void check_type(const char* name, int32_t dtype, const TypesByChip& types);
    void check_rank(const char* name, size_t rank, RankRange ranks);
    bool is_valid_scalar(const char* name, const aclScalar* scalar, const TypesByChip& types);
    std::vector<Operand> tensors(const char* name, const aclTensorList* list, const TypesByChip& types, RankRange ranks,
                                 Use use);
    void refuse_null(const char* name);

    const char* function_;
    std::string error_;
    bool has_null_ = false;
    aclError inner_status_ = kSuccess;  // set by require_inner() and refuse_unsimulated()
    BeyondDocument beyond_document_;
    std::vector<MemoryAccess> accesses_;
    uint64_t more_workspace_ = 0;
};

}  // namespace simulated_cann
