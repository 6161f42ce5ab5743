// ConstantPadNd, ReflectionPad1d, and the triangles of Tril and Triu.
#include <algorithm>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

struct Padding {
    int64_t before = 0, after = 0;  // negative if elements are removed
};

// hicann/ops-math conversion/pad_v3/docs/aclnnConstantPadNd.md and op_api/aclnn_constant_pad_nd.cpp. `pad` starts with
// the last dimension.
aclError prepare_constant_pad(const aclTensor* self_tensor, const aclIntArray* pad_array, const aclScalar* value,
                              const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnConstantPadNd");
    const TypesByChip types = with_bf16_except_310p(kRealTypes | type_set({kComplex64, kComplex128}) | kWideUnsigned);
    const Operand self = call.input("self", self_tensor, types);
    const std::vector<int64_t> pad = call.integers("pad", pad_array);
    call.scalar<float>("value", value, types);
    const Operand out = call.output("out", out_tensor, types);
    call.require_dtype("out", out, self.dtype);
    if (call.is_valid() && self_tensor->format != kNd) call.require_format_of("self", self_tensor, "out", out_tensor);
    const size_t rank = self.shape.size();
    call.require(pad.size() % 2 == 0 && pad.size() <= 2 * rank, "pad",
                 "have an even number of elements up to " + std::to_string(2 * rank), static_cast<int64_t>(pad.size()));
    constexpr int64_t kMostPadding = int64_t{1} << 60;  // so that int64 holds each size of out
    for (int64_t number : pad)
        call.require(number > -kMostPadding && number < kMostPadding, "pad", "have numbers of less than 2^60", number);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const std::string promotion = promotion_error(self.dtype, value->dtype);
    call.require(promotion.empty(), "value", std::string("have a common type with ") + dtype_name(self.dtype),
                 dtype_name(value->dtype));
    std::vector<Padding> paddings(rank);
    std::vector<int64_t> shape = self.shape;
    bool has_positive = false, has_zero = false;
    for (size_t i = 0; i < pad.size() / 2; ++i) {
        const size_t dim = rank - 1 - i;
        const Padding padding{pad[2 * i], pad[2 * i + 1]};
        paddings[dim] = padding;
        const int64_t least = std::min({padding.before, padding.after, padding.before + padding.after});
        call.require(self.shape[dim] + least >= 0, "pad",
                     "not remove more elements than dimension " + std::to_string(dim) + " has", shape_text(pad));
        shape[dim] += padding.before + padding.after;
        has_positive |= padding.before > 0 || padding.after > 0;
        has_zero |= shape[dim] == 0;
    }
    call.require(!has_zero || !has_positive, "pad", "not be positive if out has no elements", shape_text(pad));
    call.require_shape("out", out, shape);
    auto body = [self, out, paddings, value = *value] {
        std::vector<char> storage;
        Operand from = separate_from(out, self, &storage), to = out;
        fill_view(out, value);
        if (out.count() == 0 || self.count() == 0) return;
        for (size_t dim = 0; dim < paddings.size(); ++dim) {
            const auto [before, after] = paddings[dim];
            const int64_t skipped = std::max<int64_t>(-before, 0), first = std::max<int64_t>(before, 0);
            const int64_t count = from.shape[dim] - skipped - std::max<int64_t>(-after, 0);
            from = narrow(from, dim, skipped, count);
            to = narrow(to, dim, first, count);
        }
        copy_view(to, from);
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math conversion/mirror_pad/docs/aclnnReflectionPad1d.md and op_api/aclnn_reflection_pad1d.cpp. The
// document does not define negative paddings, which are refused.
aclError prepare_reflection_pad(const aclTensor* self_tensor, const aclIntArray* padding_array,
                                const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnReflectionPad1d");
    const TypesByChip types = by_chip(kNumberTypes | kBf16, kRealTypes);
    const Operand self = call.input("self", self_tensor, types, {2, 3});
    const std::vector<int64_t> padding = call.integers("padding", padding_array);
    const Operand out = call.output("out", out_tensor, types, {2, 3});
    call.require_dtype("out", out, self.dtype);
    call.require_format_of("self", self_tensor, "out", out_tensor);
    call.require(padding.size() == 2, "padding", "have 2 elements", static_cast<int64_t>(padding.size()));
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const size_t last = self.shape.size() - 1;
    const int64_t size = self.shape[last], before = padding[0], after = padding[1];
    for (size_t dim = last == 2 ? 1 : 0; dim <= last; ++dim)
        call.require(self.shape[dim] > 0, "self", "have no empty dimension except the first of three",
                     shape_text(self.shape));
    for (int64_t count : padding)
        call.require(count >= 0 && count < size, "padding", "be in [0, " + std::to_string(size) + ")", count);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    std::vector<int64_t> shape = self.shape;
    shape[last] += before + after;
    call.require_shape("out", out, shape);
    auto body = [self, out, last, size, before, after] {
        if (out.count() == 0) return;
        std::vector<char> storage;
        const Operand from = separate_from(out, self, &storage);
        copy_view(narrow(out, last, before, size), from);
        if (before) copy_view(narrow(out, last, 0, before), narrow(from, last, before, before, -1));
        if (after) copy_view(narrow(out, last, before + size, after), narrow(from, last, size - 2, after, -1));
    };
    return call.finish(body, bytes, executor);
}

enum class Triangle { kLower, kUpper };

// Sets the elements of the last two dimensions that are outside the triangle to 0.
void clear_outside(const Operand& out, Triangle triangle, int64_t diagonal) {
    if (out.count() == 0) return;
    const size_t rows = out.shape.size() - 2, columns = rows + 1;
    for (int64_t row = 0; row < out.shape[rows]; ++row) {
        const Operand line = narrow(out, rows, row, 1);
        // The diagonal is clamped first, so that the sum with the row cannot overflow.
        const int64_t size = out.shape[columns];
        const int64_t shift = std::min(std::max(diagonal, -out.shape[rows] - 1), size + 1);
        const int64_t column = std::min(std::max<int64_t>(row + shift + (triangle == Triangle::kLower), 0), size);
        fill_view(triangle == Triangle::kLower ? narrow(line, columns, column, size - column)
                                               : narrow(line, columns, 0, column),
                  float_scalar(0));
    }
}

constexpr TypesByChip triangle_types(Triangle triangle) {
    constexpr uint32_t all = kRealTypes | kWideUnsigned;
    return triangle == Triangle::kLower ? undocumented_on_310p(all) : with_bf16_except_310p(all);
}
constexpr RankRange kMatrices{2, 8};

// hicann/ops-math conversion/tril/docs/aclnnTril&aclnnInplaceTril.md and
// conversion/triu/docs/aclnnTriu&aclnnInplaceTriu.md. A rank of 0 is refused, because each document that names it in
// one place excludes it in another one. The document of Tril does not list Ascend310P, but op_api/aclnn_tril.cpp has a
// list of types for this chip, and CANN 8.1 has a kernel. The documents require contiguous tensors, except for self of
// Tril; the sources pack self and copy the result to an out of any strides.
aclError prepare_triangle(const char* function, Triangle triangle, const aclTensor* self_tensor, int64_t diagonal,
                          const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const Operand self = call.input("self", self_tensor, triangle_types(triangle), kMatrices);
    const Operand out = call.output("out", out_tensor, triangle_types(triangle), kMatrices);
    call.require_dtype("out", out, self.dtype);
    call.require_format_of("self", self_tensor, "out", out_tensor);
    call.require_shape("out", out, self.shape);
    if (triangle == Triangle::kUpper) call.report_beyond_document_unless_contiguous("self", self);
    call.report_beyond_document_unless_contiguous("out", out);
    auto body = [triangle, self, out, diagonal] {
        copy_elements(out, self);
        clear_outside(out, triangle, diagonal);
    };
    return call.finish(body, bytes, executor);
}

aclError prepare_inplace_triangle(const char* function, Triangle triangle, const aclTensor* self_tensor,
                                  int64_t diagonal, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    const Operand self = call.in_place("selfRef", self_tensor, triangle_types(triangle), kMatrices);
    if (triangle == Triangle::kUpper) call.report_beyond_document_unless_contiguous("selfRef", self);
    return call.finish([triangle, self, diagonal] { clear_outside(self, triangle, diagonal); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnConstantPadNdGetWorkspaceSize(const aclTensor* self, const aclIntArray* pad,
                                                         const aclScalar* value, aclTensor* out, uint64_t* bytes,
                                                         aclOpExecutor** executor) {
    return simulated_cann::prepare_constant_pad(self, pad, value, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnConstantPadNd)

NPU_CANN_API aclError aclnnReflectionPad1dGetWorkspaceSize(const aclTensor* self, const aclIntArray* padding,
                                                           aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_reflection_pad(self, padding, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnReflectionPad1d)

#define NPU_CANN_TRIANGLE(name, triangle, InplaceSelf)                                                              \
    NPU_CANN_API aclError aclnn##name##GetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out,    \
                                                        uint64_t* bytes, aclOpExecutor** executor) {                \
        return simulated_cann::prepare_triangle("aclnn" #name, simulated_cann::Triangle::triangle, self, diagonal,  \
                                                out, bytes, executor);                                              \
    }                                                                                                               \
    NPU_CANN_SECOND_PHASE(aclnn##name)                                                                              \
    NPU_CANN_API aclError aclnnInplace##name##GetWorkspaceSize(InplaceSelf self, int64_t diagonal, uint64_t* bytes, \
                                                               aclOpExecutor** executor) {                          \
        return simulated_cann::prepare_inplace_triangle("aclnnInplace" #name, simulated_cann::Triangle::triangle,   \
                                                        self, diagonal, bytes, executor);                           \
    }                                                                                                               \
    NPU_CANN_SECOND_PHASE(aclnnInplace##name)

NPU_CANN_TRIANGLE(Tril, kLower, const aclTensor*)
NPU_CANN_TRIANGLE(Triu, kUpper, aclTensor*)
