// RMS norms: aclnnRmsNorm, aclnnGemmaRmsNorm, aclnnAddRmsNorm, aclnnInplaceAddRmsNorm and aclnnRmsNormGrad.
// Arithmetic is in float32. AddRmsNorm rounds x = x1 + x2, x * rstd and the product with gamma to the type of x, as its
// kernel does (hicann/ops-nn norm/add_rms_norm/op_kernel/add_rms_norm.h).
#include "cann/opapi/norm_rows.h"

namespace simulated_cann {
namespace {

constexpr int64_t kRmsNormWorkspaceBytes = (16 << 20) + 256;  // of the tilings in rms_norm_tiling.cpp
constexpr int64_t kLeastLastBytes310p = 32;                   // of the last dimension of x and gamma on Ascend310P

bool is_16_bit(int32_t dtype) { return dtype == kFloat16 || dtype == kBfloat16; }

// Requires that gamma has the type of x. If x has a 16-bit type, gamma may also be float32, but not on Ascend310P.
void require_gamma_type(FirstPhase* call, const Operand& x, const Operand& gamma) {
    const bool may_be_float = is_16_bit(x.dtype) && !is_ascend310p();
    call->require(gamma.dtype == x.dtype || (gamma.dtype == kFloat && may_be_float), "gamma",
                  std::string("be ") + dtype_name(x.dtype) + (may_be_float ? " or float32" : ""),
                  dtype_name(gamma.dtype));
}

void require_310p_row(FirstPhase* call, const char* name, const Operand& operand) {
    if (!call->is_valid() || !is_ascend310p()) return;
    const int64_t bytes = operand.shape.back() * dtype_bytes(operand.dtype);
    call->require_inner(kAclnnTilingError, bytes >= kLeastLastBytes310p, std::string("the last dimension of ") + name,
                        "have at least 32 bytes on Ascend310P", std::to_string(bytes));
}

// No check of CANN refuses a shorter row, but the kernel of AddRmsNorm on Ascend310P writes its last 32 bytes in one
// piece, and so memory before the row: hicann/ops-nn norm/add_rms_norm/op_kernel/add_rms_norm_base.h, DataCopyCustom.
void require_310p_row_of_kernel(FirstPhase* call, const Operand& gamma) {
    if (!call->is_valid() || !is_ascend310p()) return;
    const int64_t bytes = gamma.count() * dtype_bytes(gamma.dtype);
    call->require_inner(kAclnnTilingError, bytes == 0 || bytes >= kLeastLastBytes310p, "gamma",
                        "have at least 32 bytes on Ascend310P", std::to_string(bytes));
}

// y = x * rstd * factor, where factor is gamma, or for Gemma 1 + gamma.
void write_rms_norm(const Operand& x_operand, const Operand& gamma_operand, float epsilon, float added_to_gamma,
                    const Operand& y_operand, const Operand& rstd_operand) {
    const NormRows shape = norm_rows(x_operand.shape, gamma_operand.shape.size());
    const std::vector<float> x = values_of<float>(x_operand);
    std::vector<float> factor = values_of<float>(gamma_operand), y(x.size()), rstd;
    for (float& value : factor) value = added_to_gamma + value;
    for (int64_t row = 0; row < shape.rows; ++row) {
        const float* from = x.data() + row * shape.columns;
        float* to = y.data() + row * shape.columns;
        rstd.push_back(reciprocal_rms(from, shape.columns, epsilon));
        for (int64_t i = 0; i < shape.columns; ++i) to[i] = from[i] * rstd.back() * factor[static_cast<size_t>(i)];
    }
    set_values(y_operand, y);
    set_values(rstd_operand, rstd);
}

// hicann/ops-nn norm/rms_norm/docs/aclnnRmsNorm.md, norm/gemma_rms_norm/docs/aclnnGemmaRmsNorm.md and
// norm/rms_norm/op_host/rms_norm_tiling.cpp, CheckInputShape4RmsNorm, which both use. The tiling refuses an empty
// gamma. An empty x is documented. The documents list outputs that are not contiguous, but a generated function writes
// packed memory: hicann/opbase src/nnopbase/individual_op/executor/indv_executor_tensor.cpp, NnopbaseExecutorAddTensor,
// packs only inputs.
aclError prepare_rms_norm(const char* name, bool is_gemma, const aclTensor* x_tensor, const aclTensor* gamma_tensor,
                          double epsilon, const aclTensor* y_tensor, const aclTensor* rstd_tensor, uint64_t* bytes,
                          aclOpExecutor** executor) {
    FirstPhase call(name);
    if (is_gemma) call.refuse_310p();  // no AddConfig in norm/gemma_rms_norm/op_host/gemma_rms_norm_def.cpp
    const Operand x = call.input("x", x_tensor, kNormTypes, kAnyRank);
    const Operand gamma = call.input("gamma", gamma_tensor, kNormTypes, kAnyRank);
    const Operand y = call.output("y_out", y_tensor, kNormTypes, kAnyRank);
    const Operand rstd = call.output("rstd_out", rstd_tensor, kFloatOnly, kAnyRank);
    if (is_gemma) {
        call.require_dtype("gamma", gamma, x.dtype);
    } else {
        require_gamma_type(&call, x, gamma);
    }
    call.require_dtype("y_out", y, x.dtype);
    call.require_contiguous("y_out", y);
    call.require_contiguous("rstd_out", rstd);
    require_rank(&call, kAclnnTilingError, "x", x, kNormRanks);
    require_rank(&call, kAclnnTilingError, "gamma", gamma, kNormRanks);
    require_gamma_shape(&call, kAclnnTilingError, "x", x, gamma);
    call.require_inner(kAclnnTilingError, gamma.count() > 0, "gamma", "have elements", shape_text(gamma.shape));
    require_shape_with(&call, kAclnnTilingError, "y_out", y, x.shape);
    if (call.is_valid()) {
        // rstd may have ones for the normalized dimensions, or lack these dimensions: the tiling checks the axes that
        // rstd has. The document of GemmaRmsNorm shows both forms, that of RmsNorm only the first one.
        const int64_t rows = norm_rows(x.shape, gamma.shape.size()).rows;
        bool fits = rstd.shape.size() <= x.shape.size() && rstd.count() == rows;
        for (size_t i = 0; fits && i < rstd.shape.size(); ++i) fits = rstd.shape[i] == 1 || rstd.shape[i] == x.shape[i];
        call.require_inner(kAclnnTilingError, fits, "rstd_out",
                           "have " + std::to_string(rows) + " elements, and in each axis 1 or the size of x",
                           shape_text(rstd.shape));
        call.report_beyond_document(!is_gemma && rstd.shape.size() < x.shape.size(),
                                    "its document requires as many dimensions as x has for rstd_out");
    }
    require_310p_row(&call, "x", x);
    require_float_at_least(&call, kAclnnTilingError, "epsilon", epsilon, 0);
    if (call.is_valid() && x.count() > 0) call.ask_workspace(kRmsNormWorkspaceBytes);
    const auto epsilon_float = static_cast<float>(epsilon);
    const float added_to_gamma = is_gemma ? 1.0F : 0.0F;
    return call.finish([=] { write_rms_norm(x, gamma, epsilon_float, added_to_gamma, y, rstd); }, bytes, executor);
}

// The operands of AddRmsNorm. InplaceAddRmsNorm writes y to x1 and x to x2.
struct AddedNorm {
    Operand x1, x2, gamma, y;
    std::optional<Operand> rstd, x;
    float epsilon = 0;
};

void add_and_normalize(const AddedNorm& in) {
    const int32_t dtype = in.x1.dtype;
    std::vector<float> sum = values_of<float>(in.x1);
    const std::vector<float> x2 = values_of<float>(in.x2), gamma = values_of<float>(in.gamma);
    const auto columns = static_cast<int64_t>(gamma.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x2[i];
    std::vector<float> rounded = sum, y, rstd;
    round_to(dtype, &rounded);
    // The kernel adds float16 in float16. It normalizes a sum of bfloat16 values before it rounds the sum.
    if (dtype == kFloat16) sum = rounded;
    y.resize(sum.size());
    for (size_t first = 0; first < sum.size(); first += gamma.size()) {
        rstd.push_back(reciprocal_rms(&sum[first], columns, in.epsilon));
        for (size_t i = 0; i < gamma.size(); ++i) y[first + i] = sum[first + i] * rstd.back();
    }
    round_to(dtype, &y);
    for (size_t first = 0; first < y.size(); first += gamma.size())
        for (size_t i = 0; i < gamma.size(); ++i) y[first + i] *= gamma[i];
    set_values(in.y, y);
    if (in.x) set_values(*in.x, rounded);
    if (in.rstd && !is_ascend310p()) set_values(*in.rstd, rstd);  // on Ascend310P rstd is documented as invalid
}

// Without rstd, gamma is a row [1, columns] and the types are the 16-bit ones.
constexpr TypesByChip kTypesWithoutRstd = with_bf16_except_310p(type_set({kFloat16}));

// hicann/ops-nn norm/add_rms_norm/docs/aclnnAddRmsNorm.md, op_host/op_api/aclnn_add_rms_norm.cpp (CheckParams) and
// op_host/add_rms_norm_tiling.cpp (CheckInputOutputShape). The document gives 161002 for every broken rule. A call with
// an empty x1 or gamma does nothing.
aclError prepare_add_rms_norm(const aclTensor* x1_tensor, const aclTensor* x2_tensor, const aclTensor* gamma_tensor,
                              double epsilon, const aclTensor* y_tensor, const aclTensor* rstd_tensor,
                              const aclTensor* x_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnAddRmsNorm");
    const bool has_rstd = rstd_tensor != nullptr;
    const TypesByChip types = has_rstd ? kNormTypes : kTypesWithoutRstd;
    AddedNorm in;
    in.x1 = call.input("x1", x1_tensor, types, kNormRanks);
    in.x2 = call.input("x2", x2_tensor, types, kNormRanks);
    in.gamma = call.input("gamma", gamma_tensor, types, kNormRanks);
    in.y = call.output("y_out", y_tensor, types, kNormRanks);
    in.rstd = call.optional_output("rstd_out", rstd_tensor, kFloatOnly, kNormRanks);
    if (has_rstd)
        in.x = call.output("x_out", x_tensor, types, kNormRanks);
    else
        in.x = call.optional_output("x_out", x_tensor, types, kNormRanks);
    call.require_dtype("x2", in.x2, in.x1.dtype);
    call.require_dtype("gamma", in.gamma, in.x1.dtype);
    call.require_dtype("y_out", in.y, in.x1.dtype);
    call.require_shape("x2", in.x2, in.x1.shape);
    call.require_shape("y_out", in.y, in.x1.shape);
    if (in.x) {
        call.require_dtype("x_out", *in.x, in.x1.dtype);
        call.require_shape("x_out", *in.x, in.x1.shape);
    }
    if (call.is_valid() && has_rstd) {
        require_gamma_shape(&call, kAclnnInvalidParam, "x1", in.x1, in.gamma);
        if (call.is_valid())
            call.require_shape("rstd_out", *in.rstd, norm_rows(in.x1.shape, in.gamma.shape.size()).kept);
    } else if (call.is_valid()) {
        call.require_shape("gamma", in.gamma, {1, in.x1.shape.back()});
    }
    require_float_at_least(&call, kAclnnInvalidParam, "epsilon", epsilon, 0);
    in.epsilon = static_cast<float>(epsilon);
    require_310p_row_of_kernel(&call, in.gamma);
    const bool is_empty = in.x1.count() == 0 || in.gamma.count() == 0;
    return call.finish(
        [in, is_empty] {
            if (!is_empty) add_and_normalize(in);
        },
        bytes, executor);
}

// hicann/ops-nn norm/inplace_add_rms_norm/docs/aclnnInplaceAddRmsNorm.md. The function uses the kernel and the tiling
// of AddRmsNorm. A wrong shape is therefore an error of the tiling.
aclError prepare_inplace_add_rms_norm(aclTensor* x1_tensor, aclTensor* x2_tensor, const aclTensor* gamma_tensor,
                                      double epsilon, const aclTensor* rstd_tensor, uint64_t* bytes,
                                      aclOpExecutor** executor) {
    FirstPhase call("aclnnInplaceAddRmsNorm");
    AddedNorm in;
    in.x1 = call.in_place("x1", x1_tensor, kNormTypes, kAnyRank);
    in.x2 = call.in_place("x2", x2_tensor, kNormTypes, kAnyRank);
    in.gamma = call.input("gamma", gamma_tensor, kNormTypes, kAnyRank);
    in.rstd = call.output("rstd_out", rstd_tensor, kFloatOnly, kAnyRank);
    call.require_dtype("x2", in.x2, in.x1.dtype);
    call.require_dtype("gamma", in.gamma, in.x1.dtype);
    const struct {
        const char* name;
        const Operand* operand;
    } all[] = {{"x1", &in.x1}, {"x2", &in.x2}, {"gamma", &in.gamma}, {"rstd_out", &*in.rstd}};
    for (const auto& [name, operand] : all) {
        call.require_contiguous(name, *operand);
        require_rank(&call, kAclnnTilingError, name, *operand, kNormRanks);
        call.require_inner(kAclnnTilingError, operand->count() > 0, name, "have elements", shape_text(operand->shape));
    }
    require_shape_with(&call, kAclnnTilingError, "x2", in.x2, in.x1.shape);
    require_gamma_shape(&call, kAclnnTilingError, "x1", in.x1, in.gamma);
    if (call.is_valid())
        require_shape_with(&call, kAclnnTilingError, "rstd_out", *in.rstd,
                           norm_rows(in.x1.shape, in.gamma.shape.size()).kept);
    require_float_at_least(&call, kAclnnTilingError, "epsilon", epsilon, 0);
    in.epsilon = static_cast<float>(epsilon);
    require_310p_row_of_kernel(&call, in.gamma);
    in.y = in.x1;
    in.x = in.x2;
    return call.finish([in] { add_and_normalize(in); }, bytes, executor);
}

void rms_norm_gradients(const Operand& dy_operand, const Operand& x_operand, const Operand& rstd_operand,
                        const Operand& gamma_operand, const Operand& dx_operand, const Operand& dgamma_operand) {
    const std::vector<float> dy = values_of<float>(dy_operand), x = values_of<float>(x_operand),
                             rstd = values_of<float>(rstd_operand), gamma = values_of<float>(gamma_operand);
    const size_t columns = gamma.size();
    std::vector<float> dx(x.size()), dgamma(columns), products(columns);
    for (size_t row = 0; row < rstd.size(); ++row) {
        const float *dy_row = &dy[row * columns], *x_row = &x[row * columns];
        for (size_t i = 0; i < columns; ++i) products[i] = dy_row[i] * gamma[i] * (x_row[i] * rstd[row]);
        const float mean = lane_sum(products.data(), static_cast<int64_t>(columns)) / static_cast<float>(columns);
        for (size_t i = 0; i < columns; ++i) {
            const float normalized = x_row[i] * rstd[row];
            dx[row * columns + i] = (dy_row[i] * gamma[i] - normalized * mean) * rstd[row];
            dgamma[i] += dy_row[i] * normalized;
        }
    }
    set_values(dx_operand, dx);
    set_values(dgamma_operand, dgamma);
}

// hicann/ops-nn norm/rms_norm_grad/docs/aclnnRmsNormGrad.md and op_host/rms_norm_grad_tiling.cpp
// (CheckInputShape4RmsNormGrad). rstd has the leading dimensions of x; torch_npu appends ones, which the tiling
// accepts. The tiling refuses empty tensors, which the document allows. It does not run if all outputs are empty
// (hicann/opbase src/nnopbase/individual_op/executor/indv_executor.cpp, NnopbaseExecutorMatchCache).
aclError prepare_rms_norm_grad(const aclTensor* dy_tensor, const aclTensor* x_tensor, const aclTensor* rstd_tensor,
                               const aclTensor* gamma_tensor, const aclTensor* dx_tensor,
                               const aclTensor* dgamma_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    constexpr RankRange kWholeRanks{2, 8}, kPartRanks{1, 7};
    FirstPhase call("aclnnRmsNormGrad");
    const Operand dy = call.input("dy", dy_tensor, kNormTypes, kAnyRank);
    const Operand x = call.input("x", x_tensor, kNormTypes, kAnyRank);
    const Operand rstd = call.input("rstd", rstd_tensor, kFloatOnly, kAnyRank);
    const Operand gamma = call.input("gamma", gamma_tensor, kNormTypes, kAnyRank);
    const Operand dx = call.output("dx_out", dx_tensor, kNormTypes, kAnyRank);
    const Operand dgamma = call.output("dgamma_out", dgamma_tensor, kFloatOnly, kAnyRank);
    call.require_dtype("x", x, dy.dtype);
    call.require_dtype("dx_out", dx, dy.dtype);
    require_gamma_type(&call, x, gamma);
    if (call.is_valid() && dx.count() == 0 && dgamma.count() == 0) return call.finish([] {}, bytes, executor);
    require_rank(&call, kAclnnTilingError, "x", x, kWholeRanks);
    require_rank(&call, kAclnnTilingError, "gamma", gamma, kPartRanks);
    require_rank(&call, kAclnnTilingError, "rstd", rstd, kPartRanks);
    require_shape_with(&call, kAclnnTilingError, "x", x, dy.shape);
    require_shape_with(&call, kAclnnTilingError, "dx_out", dx, dy.shape);
    require_gamma_shape(&call, kAclnnTilingError, "x", x, gamma);
    require_shape_with(&call, kAclnnTilingError, "dgamma_out", dgamma, gamma.shape);
    call.require_inner(kAclnnTilingError, dy.count() > 0, "dy", "have elements", shape_text(dy.shape));
    if (call.is_valid()) {
        const NormRows shape = norm_rows(x.shape, gamma.shape.size());
        if (rstd.shape != shape.kept) require_shape_with(&call, kAclnnTilingError, "rstd", rstd, shape.leading);
    }
    require_310p_row(&call, "x", x);
    return call.finish([=] { rms_norm_gradients(dy, x, rstd, gamma, dx, dgamma); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon,
                                                   const aclTensor* y, const aclTensor* rstd, uint64_t* bytes,
                                                   aclOpExecutor** executor) {
    return prepare_rms_norm("aclnnRmsNorm", false, x, gamma, epsilon, y, rstd, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRmsNorm)

NPU_CANN_API aclError aclnnGemmaRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon,
                                                        const aclTensor* y, const aclTensor* rstd, uint64_t* bytes,
                                                        aclOpExecutor** executor) {
    return prepare_rms_norm("aclnnGemmaRmsNorm", true, x, gamma, epsilon, y, rstd, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGemmaRmsNorm)

NPU_CANN_API aclError aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
                                                      double epsilon, aclTensor* y, aclTensor* rstd, aclTensor* x,
                                                      uint64_t* bytes, aclOpExecutor** executor) {
    return prepare_add_rms_norm(x1, x2, gamma, epsilon, y, rstd, x, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnAddRmsNorm)

NPU_CANN_API aclError aclnnInplaceAddRmsNormGetWorkspaceSize(aclTensor* x1, aclTensor* x2, const aclTensor* gamma,
                                                             double epsilon, const aclTensor* rstd, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    return prepare_inplace_add_rms_norm(x1, x2, gamma, epsilon, rstd, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceAddRmsNorm)

NPU_CANN_API aclError aclnnRmsNormGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* x, const aclTensor* rstd,
                                                       const aclTensor* gamma, const aclTensor* dx,
                                                       const aclTensor* dgamma, uint64_t* bytes,
                                                       aclOpExecutor** executor) {
    return prepare_rms_norm_grad(dy, x, rstd, gamma, dx, dgamma, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnRmsNormGrad)
