#include "cann/opapi/elementwise.h"

namespace simulated_cann {
namespace {

int32_t kernel_dtype(const UnaryRule& rule, int32_t self, int32_t out) {
    if (is_floating(self) || is_complex(self) || rule.integers == IntegersAs::kSelf) return self;
    if (rule.integers == IntegersAs::kOut) return out;
    return self == kInt64 && rule.integers == IntegersAs::kFloatOrDouble ? kDouble : kFloat;
}

}  // namespace

void ask_workspace_for_casts(FirstPhase* call, int32_t dtype, std::initializer_list<const Operand*> operands) {
    if (!call->is_valid()) return;
    for (const Operand* operand : operands)
        if (operand->dtype != dtype) call->ask_workspace(operand->count() * dtype_bytes(dtype));
}

void ask_workspace_in_place(FirstPhase* call, const Operand& self) {
    if (call->is_valid() && !is_contiguous(self.shape, self.strides))
        call->ask_workspace(self.count() * dtype_bytes(self.dtype));
}

void require_conversion(FirstPhase* call, int32_t dtype, const char* out_name, const Operand& out) {
    if (!call->is_valid()) return;
    call->require(can_cast(dtype, out.dtype), out_name,
                  std::string("have a type to which ") + dtype_name(dtype) + ", the type of the result, converts",
                  dtype_name(out.dtype));
}

void require_conversion(FirstPhase* call, const char* scalar_name, const aclScalar* scalar, int32_t dtype) {
    if (!call->is_valid()) return;
    call->require(can_cast(scalar->dtype, dtype), scalar_name,
                  std::string("have a type that converts to ") + dtype_name(dtype), dtype_name(scalar->dtype));
}

UnaryCall read_unary(const char* function, const UnaryRule& rule, const aclTensor* self, const aclTensor* out) {
    UnaryCall call{FirstPhase(function), {}, {}, 0};
    call.self = call.phase.input(rule.self_name, self, rule.self, rule.ranks);
    call.out = call.phase.output(rule.out_name, out, rule.out, rule.ranks);
    call.dtype = kernel_dtype(rule, call.self.dtype, call.out.dtype);
    if (rule.has_one_format) call.phase.require_format_of(rule.self_name, self, rule.out_name, out);
    if (rule.out_type == OutType::kSelf) call.phase.require_dtype(rule.out_name, call.out, call.self.dtype);
    if (rule.out_type == OutType::kConverted) require_conversion(&call.phase, call.dtype, rule.out_name, call.out);
    call.phase.require_shape(rule.out_name, call.out, call.self.shape);
    if (rule.documents_contiguous_out) call.phase.report_beyond_document_unless_contiguous(rule.out_name, call.out);
    if (rule.out_type != OutType::kAny) ask_workspace_for_casts(&call.phase, call.dtype, {&call.self, &call.out});
    return call;
}

UnaryCall read_in_place(const char* function, const UnaryRule& rule, const aclTensor* self) {
    UnaryCall call{FirstPhase(function), {}, {}, 0};
    call.self = call.out = call.phase.in_place(rule.self_name, self, rule.self, rule.ranks);
    call.dtype = kernel_dtype(rule, call.self.dtype, call.out.dtype);
    ask_workspace_for_casts(&call.phase, call.dtype, {&call.self, &call.out});
    ask_workspace_in_place(&call.phase, call.self);
    return call;
}

void require_broadcast(FirstPhase* call, std::initializer_list<NamedOperand> inputs, const char* out_name,
                       const Operand& out) {
    if (!call->is_valid()) return;
    std::vector<int64_t> common;
    for (const NamedOperand& input : inputs) {
        std::vector<int64_t> shape = input.operand.shape;
        if (shape.size() < common.size()) shape.insert(shape.begin(), common.size() - shape.size(), 1);
        common.insert(common.begin(), shape.size() - common.size(), 1);
        for (size_t i = 0; i < shape.size(); ++i) {
            call->require(shape[i] == common[i] || shape[i] == 1 || common[i] == 1, input.name,
                          "broadcast with the inputs before it", shape_text(input.operand.shape));
            if (common[i] == 1) common[i] = shape[i];
        }
    }
    call->require_shape(out_name, out, common);
}

int32_t require_common_type(FirstPhase* call, const NamedOperand& a, const NamedOperand& b) {
    if (!call->is_valid()) return a.operand.dtype;
    const bool exists = promotion_error(a.operand.dtype, b.operand.dtype).empty();
    call->require(exists, std::string(a.name) + " and " + b.name, "have a common type",
                  dtype_name(a.operand.dtype) + std::string(" and ") + dtype_name(b.operand.dtype));
    return exists ? promoted_dtype(a.operand.dtype, true, b.operand.dtype, true) : a.operand.dtype;
}

}  // namespace simulated_cann
