// Softmax, LogSoftmax, their gradients and SoftmaxCrossEntropyWithLogits. The largest element of a row is subtracted
// first.
#include <cmath>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/sums.h"

namespace simulated_cann {
namespace {

template <class Compute>
Compute largest(const std::vector<Compute>& row) {
    Compute result = row[0];
    for (Compute value : row) result = value > result || std::isnan(value) ? value : result;
    return result;
}

// Replaces a row by its softmax, or by the logarithm of its softmax.
template <class Compute>
void softmax_row(std::vector<Compute>* row, bool is_log) {
    const Compute maximum = largest(*row);
    std::vector<Compute> powers(row->size());
    for (size_t i = 0; i < row->size(); ++i) {
        (*row)[i] -= maximum;
        powers[i] = std::exp((*row)[i]);
    }
    const Compute sum = lane_sum(powers.data(), static_cast<int64_t>(powers.size()));
    const Compute log_sum = std::log(sum);
    for (size_t i = 0; i < row->size(); ++i) (*row)[i] = is_log ? (*row)[i] - log_sum : powers[i] / sum;
}

// The rows along one dimension of a packed tensor.
class Rows {
public:
    Rows(const std::vector<int64_t>& shape, size_t dim) : length_(shape.empty() ? 1 : shape[dim]) {
        for (size_t i = 0; i < shape.size(); ++i) count_ *= i == dim ? 1 : shape[i];
        for (size_t i = dim + 1; i < shape.size(); ++i) inner_ *= shape[i];
        if (length_ == 0) count_ = 0;
    }
    int64_t count() const { return count_; }

    template <class Compute>
    std::vector<Compute> row(const std::vector<Compute>& values, int64_t index) const {
        std::vector<Compute> result(static_cast<size_t>(length_));
        for (size_t i = 0; i < result.size(); ++i) result[i] = values[at(index, i)];
        return result;
    }
    template <class Compute>
    void set_row(const std::vector<Compute>& row, int64_t index, std::vector<Compute>* values) const {
        for (size_t i = 0; i < row.size(); ++i) (*values)[at(index, i)] = row[i];
    }

private:
    size_t at(int64_t index, size_t i) const {
        return static_cast<size_t>(index / inner_ * length_ * inner_ + index % inner_) +
               i * static_cast<size_t>(inner_);
    }

    int64_t length_, count_ = 1, inner_ = 1;
};

// Applies softmax_row() along one dimension of a packed tensor.
template <class Compute>
void softmax_along(const std::vector<int64_t>& shape, size_t dim, bool is_log, std::vector<Compute>* values) {
    const Rows rows(shape, dim);
    for (int64_t index = 0; index < rows.count(); ++index) {
        std::vector<Compute> row = rows.row(*values, index);
        softmax_row(&row, is_log);
        rows.set_row(row, index, values);
    }
}

// Softmax rounds its result to the type of self and then converts the result to the type of out. LogSoftmax converts
// self to the type of out first. Sources: hicann/ops-nn activation/softmax_v2/docs/aclnnSoftmax.md and
// op_api/aclnn_softmax.cpp, activation/log_softmax_v2/docs/aclnnLogSoftmax.md and op_api/aclnn_log_softmax.cpp. The
// document of LogSoftmax lists 1 to 8 dimensions; the source also accepts none.
aclError prepare_softmax(const char* name, bool is_log, const aclTensor* self_tensor, int64_t dim_value,
                         const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(name);
    const Operand self = call.input("self", self_tensor, with_bf16_except_310p(kHalfToDoubleTypes));
    const Operand out = call.output("out", out_tensor, with_bf16_except_310p(kHalfToDoubleTypes));
    call.report_beyond_document(is_log && self.shape.empty(), "its document does not list a tensor without dimensions");
    const size_t dim = call.dimension("dim", dim_value, self.shape.size());
    call.require_shape("out", out, self.shape);
    if (self.dtype != out.dtype) call.ask_workspace(self.count() * dtype_bytes(is_log ? out.dtype : self.dtype));
    auto body = [self, out, dim, is_log] {
        const int32_t compute_dtype = is_log ? out.dtype : self.dtype;
        const auto compute = [&](auto zero) {
            auto values = values_of<decltype(zero)>(self);
            if (is_log && self.dtype != out.dtype) round_to(out.dtype, &values);
            softmax_along(self.shape, dim, is_log, &values);
            if (!is_log && self.dtype != out.dtype) round_to(self.dtype, &values);
            set_values(out, values);
        };
        compute_dtype == kDouble ? compute(double{}) : compute(float{});
    };
    return call.finish(body, bytes, executor);
}

// The gradients: (gradOutput - sum(gradOutput * output)) * output for Softmax, and gradOutput - sum(gradOutput) *
// exp(output) for LogSoftmax. Sources: hicann/ops-nn activation/softmax_grad/docs/aclnnSoftmaxBackward.md and
// op_api/aclnn_softmax_backward.cpp, activation/log_softmax_grad/docs/aclnnLogSoftmaxBackward.md and
// op_api/aclnn_logsoftmax_backward.cpp. The document of SoftmaxBackward has more types for out, to which the source
// converts the result. LogSoftmaxBackward casts the result to any type of out. Its document does not list rank 0, which
// the source accepts.
aclError prepare_gradient(const char* name, bool is_log, const aclTensor* gradient_tensor,
                          const aclTensor* output_tensor, int64_t dim_value, const aclTensor* out_tensor,
                          uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(name);
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const Operand gradient = call.input("gradOutput", gradient_tensor, types);
    const Operand output = call.input("output", output_tensor, types);
    const uint32_t more_types =
        is_log ? kNumberTypes | kWideUnsigned : kHalfToDoubleTypes | type_set({kComplex64, kComplex128});
    const Operand out = call.output("out", out_tensor, with_bf16_except_310p(more_types));
    call.report_beyond_document(is_log && gradient_tensor && gradient.shape.empty(),
                                "its document does not list a gradOutput without dimensions");
    const size_t dim = call.dimension("dim", dim_value, gradient.shape.size());
    call.require_dtype("output", output, gradient.dtype);
    call.require_shape("output", output, gradient.shape);
    call.require_shape("out", out, gradient.shape);
    if (gradient.dtype != out.dtype) call.ask_workspace(gradient.count() * dtype_bytes(gradient.dtype));
    auto body = [gradient, output, out, dim, is_log] {
        std::vector<float> result = values_of<float>(gradient);
        const std::vector<float> outputs = values_of<float>(output);
        const Rows rows(gradient.shape, dim);
        for (int64_t index = 0; index < rows.count(); ++index) {
            std::vector<float> row = rows.row(result, index), terms = row;
            const std::vector<float> y = rows.row(outputs, index);
            for (size_t i = 0; i < row.size() && !is_log; ++i) terms[i] *= y[i];
            const float sum = lane_sum(terms.data(), static_cast<int64_t>(terms.size()));
            for (size_t i = 0; i < row.size(); ++i)
                row[i] = is_log ? row[i] - sum * std::exp(y[i]) : (row[i] - sum) * y[i];
            rows.set_row(row, index, &result);
        }
        if (gradient.dtype != out.dtype) round_to(gradient.dtype, &result);
        set_values(out, result);
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-nn activation/softmax_cross_entropy_with_logits/docs/aclnnSoftmaxCrossEntropyWithLogits.md and
// op_api/aclnn_softmax_cross_entropy_with_logits.cpp: for each row, loss = -sum(labels * logsoftmax(features)) and
// backprop = softmax(features) - labels. If features has no elements, the outputs stay as they are.
aclError prepare_cross_entropy(const aclTensor* features_tensor, const aclTensor* labels_tensor,
                               const aclTensor* loss_tensor, const aclTensor* backprop_tensor, uint64_t* bytes,
                               aclOpExecutor** executor) {
    FirstPhase call("aclnnSoftmaxCrossEntropyWithLogits");
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const Operand features = call.input("features", features_tensor, types, {2, 2});
    const Operand labels = call.input("labels", labels_tensor, types, {2, 2});
    const Operand loss = call.output("loss", loss_tensor, types);
    const Operand backprop = call.output("backprop", backprop_tensor, types);
    if (call.is_valid()) {
        const struct {
            const char* name;
            const Operand* operand;
        } others[] = {{"labels", &labels}, {"loss", &loss}, {"backprop", &backprop}};
        for (const auto& other : others) call.require_dtype(other.name, *other.operand, features.dtype);
        call.require_shape("labels", labels, features.shape);
        // The source does not check the shapes of the outputs, and its copy of the results to them fails.
        const struct {
            const char* name;
            const Operand& operand;
            std::vector<int64_t> shape;
        } results[] = {{"loss", loss, {features.shape[0]}}, {"backprop", backprop, features.shape}};
        for (const auto& [name, operand, shape] : results)
            call.require_inner(kAclnnInnerNullptr, operand.shape == shape, name, "have the shape " + shape_text(shape),
                               shape_text(operand.shape));
    }
    auto body = [features, labels, loss, backprop] {
        if (features.count() == 0) return;
        const auto length = static_cast<size_t>(features.shape[1]);
        std::vector<float> logs = values_of<float>(features), targets = values_of<float>(labels);
        softmax_along(features.shape, 1, true, &logs);
        std::vector<float> losses(static_cast<size_t>(features.shape[0])), gradients(logs.size()), terms(length);
        for (size_t row = 0; row < losses.size(); ++row) {
            for (size_t i = 0; i < length; ++i) {
                const size_t at = row * length + i;
                terms[i] = targets[at] * logs[at];
                gradients[at] = std::exp(logs[at]) - targets[at];
            }
            losses[row] = -lane_sum(terms.data(), static_cast<int64_t>(length));
        }
        set_values(loss, losses);
        set_values(backprop, gradients);
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* bytes,
                                                   aclOpExecutor** executor) {
    return simulated_cann::prepare_softmax("aclnnSoftmax", false, self, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSoftmax)

NPU_CANN_API aclError aclnnLogSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out,
                                                      uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_softmax("aclnnLogSoftmax", true, self, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnLogSoftmax)

NPU_CANN_API aclError aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output,
                                                           int64_t dim, aclTensor* out, uint64_t* bytes,
                                                           aclOpExecutor** executor) {
    return simulated_cann::prepare_gradient("aclnnSoftmaxBackward", false, gradOutput, output, dim, out, bytes,
                                            executor);
}
NPU_CANN_SECOND_PHASE(aclnnSoftmaxBackward)

NPU_CANN_API aclError aclnnLogSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output,
                                                              int64_t dim, aclTensor* out, uint64_t* bytes,
                                                              aclOpExecutor** executor) {
    return simulated_cann::prepare_gradient("aclnnLogSoftmaxBackward", true, gradOutput, output, dim, out, bytes,
                                            executor);
}
NPU_CANN_SECOND_PHASE(aclnnLogSoftmaxBackward)

NPU_CANN_API aclError aclnnSoftmaxCrossEntropyWithLogitsGetWorkspaceSize(const aclTensor* features, aclTensor* labels,
                                                                         aclTensor* loss, aclTensor* backprop,
                                                                         uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_cross_entropy(features, labels, loss, backprop, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSoftmaxCrossEntropyWithLogits)
