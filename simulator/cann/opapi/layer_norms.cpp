// Norms with a mean: aclnnLayerNorm and aclnnGroupNorm. Arithmetic is in float32.
#include "cann/opapi/norm_rows.h"

namespace simulated_cann {
namespace {

// The operands of a norm of `rows` rows. Element i of row r is multiplied by element n of weight, and element n of bias
// is added, where n = (r * columns + i) / run % size and size is the number of elements of weight or bias. The run is 1
// for LayerNorm. For GroupNorm, it is the number of elements of a channel.
struct NormWithMean {
    Operand in, out;
    std::optional<Operand> weight, bias, mean, rstd;
    int64_t rows = 0, columns = 0, run = 1;
    float epsilon = 0;
};

void set_optional(const std::optional<Operand>& operand, const std::vector<float>& values) {
    if (operand) set_values(*operand, values);
}

void write_norm_with_mean(const NormWithMean& norm) {
    std::vector<float> x = values_of<float>(norm.in), means, rstds;
    const std::vector<float> weight = norm.weight ? values_of<float>(*norm.weight) : std::vector<float>{1.0F};
    const std::vector<float> bias = norm.bias ? values_of<float>(*norm.bias) : std::vector<float>{0.0F};
    size_t element = 0;
    for (int64_t row = 0; row < norm.rows; ++row) {
        // For rows without elements, the mean is 0 and rstd is NaN, as in ops-nn's op_api sources.
        if (norm.columns == 0) {
            means.push_back(0);
            rstds.push_back(NAN);
            continue;
        }
        const Moments row_moments = moments(&x[element], norm.columns, norm.epsilon);
        means.push_back(row_moments.mean);
        rstds.push_back(row_moments.rstd);
        for (int64_t i = 0; i < norm.columns; ++i, ++element) {
            const size_t channel = element / static_cast<size_t>(norm.run);
            x[element] = (x[element] - row_moments.mean) * row_moments.rstd * weight[channel % weight.size()] +
                         bias[channel % bias.size()];
        }
    }
    set_values(norm.out, x);
    set_optional(norm.mean, means);
    set_optional(norm.rstd, rstds);
}

// Requires that weight or bias has `shape`, and the type of the input. If both are given, they may also be float32.
void require_affine(FirstPhase* call, const char* name, const std::optional<Operand>& operand, bool is_alone,
                    const Operand& input, const std::vector<int64_t>& shape) {
    if (!operand || !call->is_valid()) return;
    call->require(
        operand->dtype == input.dtype || (operand->dtype == kFloat && !is_alone), name,
        std::string("be ") + dtype_name(input.dtype) + (is_alone || input.dtype == kFloat ? "" : " or float32"),
        dtype_name(operand->dtype));
    call->require_shape(name, *operand, shape);
}

// hicann/ops-nn norm/layer_norm_v4/docs/aclnnLayerNorm&aclnnLayerNormWithImplMode.md and
// op_host/op_api/aclnn_layer_norm.cpp. The document does not list Ascend310P, for which op_host/layer_norm_v4_def.cpp
// and CANN 8.1 (LayerNormV3) have kernels. The document gives mean and rstd the type of the input. The source also
// accepts float32, and torch_npu passes it.
aclError prepare_layer_norm(const aclTensor* input_tensor, const aclIntArray* normalized_shape,
                            const aclTensor* weight_tensor, const aclTensor* bias_tensor, double epsilon,
                            aclTensor* out_tensor, aclTensor* mean_tensor, aclTensor* rstd_tensor, uint64_t* bytes,
                            aclOpExecutor** executor) {
    FirstPhase call("aclnnLayerNorm");
    NormWithMean norm;
    norm.in = call.input("input", input_tensor, kNormTypes, kNormRanks);
    const std::vector<int64_t> normalized = call.integers("normalized_shape", normalized_shape);
    norm.weight = call.optional_input("weight", weight_tensor, kNormTypes, kNormRanks);
    norm.bias = call.optional_input("bias", bias_tensor, kNormTypes, kNormRanks);
    norm.out = call.output("out", out_tensor, kNormTypes, kNormRanks);
    norm.mean = call.optional_output("mean_out", mean_tensor, kNormTypes, kNormRanks);
    norm.rstd = call.optional_output("rstd_out", rstd_tensor, kNormTypes, kNormRanks);
    call.report_beyond_document_on_310p();
    const bool is_alone = norm.weight.has_value() != norm.bias.has_value();
    call.require(!normalized.empty() && ends_with(norm.in.shape, normalized), "normalized_shape",
                 "be the last dimensions of input, " + shape_text(norm.in.shape) + ",", shape_text(normalized));
    require_affine(&call, "weight", norm.weight, is_alone, norm.in, normalized);
    require_affine(&call, "bias", norm.bias, is_alone, norm.in, normalized);
    if (norm.weight && norm.bias) call.require_dtype("bias", *norm.bias, norm.weight->dtype);
    call.require_dtype("out", norm.out, norm.in.dtype);
    call.require_shape("out", norm.out, norm.in.shape);
    if (call.is_valid()) {
        const NormRows shape = norm_rows(norm.in.shape, normalized.size());
        norm.rows = shape.rows;
        norm.columns = shape.columns;
        for (const auto& [name, operand] : {std::pair{"mean_out", &norm.mean}, std::pair{"rstd_out", &norm.rstd}}) {
            if (!*operand) continue;
            if ((*operand)->dtype != kFloat) call.require_dtype(name, **operand, norm.in.dtype);
            call.report_beyond_document((*operand)->dtype != norm.in.dtype,
                                        std::string("its document requires the type of input for ") + name);
            call.require_shape(name, **operand, shape.kept);
        }
    }
    norm.epsilon = static_cast<float>(epsilon);
    return call.finish([norm] { write_norm_with_mean(norm); }, bytes, executor);
}

// hicann/ops-nn norm/group_norm/docs/aclnnGroupNorm.md and op_host/op_api/aclnn_group_norm.cpp. gamma and beta may be
// NULL. CheckFormat has the rules for formats. The workspace is that of norm/group_norm_silu/op_host/
// group_norm_silu_tiling.cpp; the source runs the kernel GroupNormSilu.
aclError prepare_group_norm(const aclTensor* self_tensor, const aclTensor* gamma_tensor, const aclTensor* beta_tensor,
                            int64_t n, int64_t c, int64_t h_by_w, int64_t group, double eps, aclTensor* out_tensor,
                            aclTensor* mean_tensor, aclTensor* rstd_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    constexpr RankRange kImageRanks{2, 8}, kVector{1, 1}, kMatrix{2, 2};
    FirstPhase call("aclnnGroupNorm");
    NormWithMean norm;
    norm.in = call.input("self", self_tensor, kNormTypes, kImageRanks);
    norm.weight = call.optional_input("gamma", gamma_tensor, kNormTypes, kVector);
    norm.bias = call.optional_input("beta", beta_tensor, kNormTypes, kVector);
    norm.out = call.output("out", out_tensor, kNormTypes, kImageRanks);
    norm.mean = call.output("mean_out", mean_tensor, kNormTypes, kMatrix);
    norm.rstd = call.output("rstd_out", rstd_tensor, kNormTypes, kMatrix);
    const struct {
        const char* name;
        const std::optional<Operand>& operand;
    } others[] = {{"gamma", norm.weight},
                  {"beta", norm.bias},
                  {"out", norm.out},
                  {"mean_out", norm.mean},
                  {"rstd_out", norm.rstd}};
    for (const auto& [name, operand] : others)
        if (operand) call.require_dtype(name, *operand, norm.in.dtype);
    call.require(group > 0, "group", "be greater than 0", group);
    call.require(group > 0 && c % group == 0, "C", "be divisible by group, " + std::to_string(group) + ",", c);
    call.require(eps > 0, "eps", "be greater than 0", number_text(eps));
    call.require_format_of("self", self_tensor, "out", out_tensor);
    if (call.is_valid()) {
        const int32_t format = self_tensor->format;
        call.require(format != kNhwc && format != kHwcn && format != kNdhwc, "self", "have its channels in dimension 1",
                     "the format " + std::to_string(format));
    }
    call.require_shape("out", norm.out, norm.in.shape);
    call.require_shape("mean_out", *norm.mean, {n, group});
    call.require_shape("rstd_out", *norm.rstd, {n, group});
    if (call.is_valid()) {
        const int64_t inner = norm_rows(norm.in.shape, norm.in.shape.size() - 2).columns;
        const std::vector<int64_t> sizes{norm.in.shape[0], norm.in.shape[1], inner}, wanted{n, c, h_by_w};
        call.require(sizes == wanted, "self", "have the sizes N, C and HxW of " + shape_text(wanted),
                     shape_text(sizes));
    }
    if (norm.weight) call.require_shape("gamma", *norm.weight, {c});
    if (norm.bias) call.require_shape("beta", *norm.bias, {c});
    if (call.is_valid()) {
        norm.rows = n * group;
        norm.columns = c / group * h_by_w;
        norm.run = h_by_w;
        norm.epsilon = static_cast<float>(eps);
        if (norm.in.count() > 0) call.ask_workspace(is_ascend310p() ? 2 << 20 : 16 << 20);
    }
    return call.finish([norm] { write_norm_with_mean(norm); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnLayerNormGetWorkspaceSize(const aclTensor* input, const aclIntArray* normalized_shape,
                                                     const aclTensor* weight, const aclTensor* bias, double epsilon,
                                                     aclTensor* out, aclTensor* mean, aclTensor* rstd, uint64_t* bytes,
                                                     aclOpExecutor** executor) {
    return simulated_cann::prepare_layer_norm(input, normalized_shape, weight, bias, epsilon, out, mean, rstd, bytes,
                                              executor);
}
NPU_CANN_SECOND_PHASE(aclnnLayerNorm)

NPU_CANN_API aclError aclnnGroupNormGetWorkspaceSize(const aclTensor* self, const aclTensor* gamma,
                                                     const aclTensor* beta, int64_t n, int64_t c, int64_t h_by_w,
                                                     int64_t group, double eps, aclTensor* out, aclTensor* mean,
                                                     aclTensor* rstd, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_group_norm(self, gamma, beta, n, c, h_by_w, group, eps, out, mean, rstd, bytes,
                                              executor);
}
NPU_CANN_SECOND_PHASE(aclnnGroupNorm)
