// Common code of elementwise functions: the first phase of a function of one tensor, broadcasting, and the loops.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"

namespace simulated_cann {

// The compute types for which a loop exists.
enum class Kinds { kFloating, kReal, kNumbers };

template <Kinds kinds, class Compute>
constexpr bool kIsAmong = kinds == Kinds::kNumbers || std::is_floating_point_v<Compute> ||
                          (kinds == Kinds::kReal && std::is_integral_v<Compute>);

// The values of an operand as the type `dtype`. CANN casts an operand to the type of the kernel before it calls the
// kernel.
template <class Compute>
std::vector<Compute> values_as(int32_t dtype, const Operand& operand) {
    std::vector<Compute> values = values_of<Compute>(operand);
    if (operand.dtype != dtype) round_to(dtype, &values);
    return values;
}

// Writes the result of a kernel of the type `dtype`, which CANN casts to the type of `out`.
template <class Compute>
void set_result(const Operand& out, int32_t dtype, std::vector<Compute>* values) {
    if (out.dtype != dtype) round_to(dtype, values);
    set_values(out, *values);
}

// out[i] = op(self[i]), in the compute type of `dtype`.
template <Kinds kinds, class Op>
void compute(const Operand& out, const Operand& self, int32_t dtype, Op op) {
    call_with_compute_type(dtype, [&](auto zero) {
        using Compute = decltype(zero);
        if constexpr (kIsAmong<kinds, Compute>) {
            std::vector<Compute> values = values_as<Compute>(dtype, self);
            for (Compute& value : values) value = static_cast<Compute>(op(value));
            set_result(out, dtype, &values);
        }
    });
}

// out[i] = op(a[i], b[i]), in the compute type of `dtype`. The operands are broadcast to out.
template <Kinds kinds, class Op>
void compute(const Operand& out, const Operand& a, const Operand& b, int32_t dtype, Op op) {
    call_with_compute_type(dtype, [&](auto zero) {
        using Compute = decltype(zero);
        if constexpr (kIsAmong<kinds, Compute>) {
            std::vector<Compute> values = values_as<Compute>(dtype, a.broadcast_to(out.shape));
            const std::vector<Compute> others = values_as<Compute>(dtype, b.broadcast_to(out.shape));
            for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Compute>(op(values[i], others[i]));
            set_result(out, dtype, &values);
        }
    });
}

// The rule for the type of an output.
enum class OutType { kSelf, kConverted, kAny };

// The type of the kernel for a self of an integer type or bool. For other types, it is the type of self.
enum class IntegersAs { kSelf, kFloat, kFloatOrDouble /* double for int64 */, kOut };

struct UnaryRule {
    TypesByChip self, out = self;
    OutType out_type = OutType::kSelf;
    IntegersAs integers = IntegersAs::kSelf;
    RankRange ranks = {};
    const char* self_name = "self";
    const char* out_name = "out";
    bool documents_contiguous_out = false;  // the document requires a contiguous out, the source does not
    bool has_one_format = false;            // the source refuses an out whose format is not that of self
};

// The rules of a function whose out has the type of self, and of one whose result is converted to the type of out.
constexpr UnaryRule same(TypesByChip types, RankRange ranks = {}) {
    return {types, types, OutType::kSelf, IntegersAs::kSelf, ranks};
}
constexpr UnaryRule converted(TypesByChip self, TypesByChip out, IntegersAs integers) {
    return {self, out, OutType::kConverted, integers};
}
constexpr UnaryRule converted(TypesByChip types) { return converted(types, types, IntegersAs::kSelf); }
constexpr UnaryRule with_one_format(UnaryRule rule) {
    rule.has_one_format = true;
    return rule;
}

// The arguments of a function of one tensor, and the type of its kernel.
struct UnaryCall {
    FirstPhase phase;
    Operand self, out;
    int32_t dtype = 0;

    template <Kinds kinds, class Op>
    aclError finish(Op op, uint64_t* bytes, aclOpExecutor** executor) {
        return phase.finish([self = self, out = out, dtype = dtype, op] { compute<kinds>(out, self, dtype, op); },
                            bytes, executor);
    }
};

UnaryCall read_unary(const char* function, const UnaryRule& rule, const aclTensor* self, const aclTensor* out);
// Reads the tensor of a function that works in place. `rule.self` has the types of the tensor.
UnaryCall read_in_place(const char* function, const UnaryRule& rule, const aclTensor* self);

// Asks for workspace for one intermediate tensor of the type `dtype` for each operand of another type.
void ask_workspace_for_casts(FirstPhase* call, int32_t dtype, std::initializer_list<const Operand*> operands);
// Asks for the packed result of a function that writes `self` in place, if self is not contiguous. CANN also packs the
// input, which FirstPhase counts.
void ask_workspace_in_place(FirstPhase* call, const Operand& self);

// Refuses the call unless a result of the type `dtype` converts to the type of out.
void require_conversion(FirstPhase* call, int32_t dtype, const char* out_name, const Operand& out);
// Refuses a scalar whose type does not convert to `dtype`.
void require_conversion(FirstPhase* call, const char* scalar_name, const aclScalar* scalar, int32_t dtype);

struct NamedOperand {
    const char* name;
    const Operand& operand;
};
// Refuses the call unless the inputs broadcast to one shape and out has it.
void require_broadcast(FirstPhase* call, std::initializer_list<NamedOperand> inputs, const char* out_name,
                       const Operand& out);

// The common type of two inputs. Refuses inputs without one. Ranks have no influence: hicann/opbase
// include/nnopbase/opdev/data_type_utils.h, PromoteType.
int32_t require_common_type(FirstPhase* call, const NamedOperand& a, const NamedOperand& b);

}  // namespace simulated_cann

// Define both phases of a function of one tensor without other arguments, and of its in-place form. `kinds` is a
// name in Kinds.
#define NPU_CANN_UNARY(name, rule, kinds, op)                                                                  \
    NPU_CANN_API aclError name##GetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t* bytes, \
                                                 aclOpExecutor** executor) {                                   \
        using namespace simulated_cann;                                                                        \
        return read_unary(#name, rule, self, out).finish<Kinds::kinds>(op, bytes, executor);                   \
    }                                                                                                          \
    NPU_CANN_SECOND_PHASE(name)
#define NPU_CANN_IN_PLACE(name, rule, kinds, op)                                                                     \
    NPU_CANN_API aclError name##GetWorkspaceSize(const aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) { \
        using namespace simulated_cann;                                                                              \
        return read_in_place(#name, rule, self).finish<Kinds::kinds>(op, bytes, executor);                           \
    }                                                                                                                \
    NPU_CANN_SECOND_PHASE(name)

// Define both phases of aclnnNAME(self, out) and of aclnnInplaceNAME(self). The function `prepare` ends the first phase
// of a UnaryCall.
#define NPU_CANN_UNARY_PAIR(name, rule, in_place_rule, prepare)                                                       \
    NPU_CANN_API aclError aclnn##name##GetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t* bytes, \
                                                        aclOpExecutor** executor) {                                   \
        using namespace simulated_cann;                                                                               \
        return prepare(read_unary("aclnn" #name, rule, self, out), bytes, executor);                                  \
    }                                                                                                                 \
    NPU_CANN_SECOND_PHASE(aclnn##name)                                                                                \
    NPU_CANN_API aclError aclnnInplace##name##GetWorkspaceSize(const aclTensor* self, uint64_t* bytes,                \
                                                               aclOpExecutor** executor) {                            \
        using namespace simulated_cann;                                                                               \
        return prepare(read_in_place("aclnnInplace" #name, in_place_rule, self), bytes, executor);                    \
    }                                                                                                                 \
    NPU_CANN_SECOND_PHASE(aclnnInplace##name)
