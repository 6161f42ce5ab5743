// aclnnWeightQuantBatchMatmulV2: y = x @ ((weight + antiquantOffset) * antiquantScale) + bias, for a weight of
// integers. The vector unit computes the weight in x's type, or for bfloat16 in float32 with one rounding at the end.
// The cube unit computes the product. Sources: hicann/ops-nn
// matmul/weight_quant_batch_matmul_v2/docs/aclnnWeightQuantBatchMatmulV2.md,
// op_host/op_api/aclnn_weight_quant_batch_matmul_v2.cpp and op_kernel/weight_quant_batch_matmul_v2_common.h.
// Not simulated (200001): quantized results, antiquantScale of 64-bit integers, weights of int32. CANN's other kernels
// for small m are not simulated either.
#include <algorithm>

#include "cann/opapi/cube.h"

namespace simulated_cann {
namespace {

constexpr int64_t kLargestDim = 65535;
constexpr int64_t kLargestRows310p = 512000000;  // m * k
constexpr int64_t kGroupUnit = 32;

struct QuantProduct {
    Operand x, scale, y;
    PackedWeight weight;
    std::optional<Operand> offset, bias;
    int64_t group_size = 0;

    int64_t k() const { return weight.shape[weight.shape.size() - 2]; }
    int64_t n() const { return weight.shape.back(); }
};

// Requires that a scale or an offset of rank 2 has the layout of the weight, contiguous or transposed. One of rank 1
// must be contiguous.
void check_layout(FirstPhase* call, const char* name, const Operand& operand, bool is_weight_transposed) {
    const bool is_packed = is_contiguous(operand.shape, operand.strides);
    const bool fits = operand.shape.size() < 2 || !is_weight_transposed
                          ? is_packed
                          : is_transposed(operand.shape, operand.strides) ||
                                (is_packed && std::count(operand.shape.begin(), operand.shape.end(), 1));
    call->require(fits, name, is_weight_transposed ? "be transposed as weight is" : "be contiguous",
                  "the strides " + shape_text(operand.strides) + " of the shape " + shape_text(operand.shape));
}

void check_scale(FirstPhase* call, const QuantProduct& p) {
    const std::vector<int64_t>& shape = p.scale.shape;
    const int64_t n = p.n();
    if (p.group_size > 0) {
        call->require_shape("antiquantScale", p.scale, {(p.k() + p.group_size - 1) / p.group_size, n});
    } else {
        // On Ascend310P the document lists [n,1] and the source [1,n]. Only [n] satisfies both for a scale with one
        // element for each column.
        const bool is_vector = shape.size() == 1 && (shape[0] == 1 || shape[0] == n);
        const bool is_row =
            shape.size() == 2 && shape[0] == 1 && (shape[1] == 1 || (shape[1] == n && !is_ascend310p()));
        call->require(is_vector || is_row, "antiquantScale",
                      "have the shape [1], [" + std::to_string(n) + "]" +
                          (is_ascend310p() ? " or [1,1]" : ", [1,1] or [1," + std::to_string(n) + "]") +
                          " for antiquantGroupSize 0",
                      shape_text(shape));
    }
    call->require_dtype("antiquantScale", p.scale, p.x.dtype);
    check_layout(call, "antiquantScale", p.scale, p.weight.is_transposed());
    if (!p.offset) return;
    call->require_dtype("antiquantOffsetOptional", *p.offset, p.x.dtype);
    call->require_shape("antiquantOffsetOptional", *p.offset, shape);
    check_layout(call, "antiquantOffsetOptional", *p.offset, p.weight.is_transposed());
}

void check_sizes(FirstPhase* call, const QuantProduct& p) {
    const int64_t m = p.x.shape[p.x.shape.size() - 2], k = p.x.shape.back();
    const bool is_x_transposed = is_transposed(p.x.shape, p.x.strides);
    call->require(k == p.k(), "weight", "have " + std::to_string(k) + " rows", p.k());
    for (int64_t size : {m, k, p.n()}) call->require(size >= 1, "each of m, k and n", "be at least 1", size);
    for (int64_t size : {k, p.n()}) call->require(size <= kLargestDim, "each of k and n", "be at most 65535", size);
    const int64_t most = is_x_transposed ? kLargestDim : INT32_MAX;
    call->require(m <= most, "m", "be at most " + std::to_string(most), m);
    if (is_ascend310p())
        call->require(m <= kLargestRows310p / std::max<int64_t>(k, 1), "m * k", "be at most 512000000", m * k);
    if (p.weight.dtype == kInt4) {
        const int64_t inner = p.weight.is_transposed() ? k : p.n();
        call->require(inner % 2 == 0, "the contiguous dimension of a weight of int4", "be even", inner);
    }
    const bool is_group = p.group_size % kGroupUnit == 0 && p.group_size >= kGroupUnit && p.group_size < k;
    call->require(
        p.group_size == 0 || is_group, "antiquantGroupSize",
        k > kGroupUnit ? "be 0 or a multiple of 32 in [32, " + std::to_string(k - 1) + "]" : "be 0 for k <= 32",
        p.group_size);
    std::vector<int64_t> shape = {m, p.n()};
    const size_t x_batch = p.x.shape.size() - 2, weight_batch = p.weight.shape.size() - 2;
    for (size_t i = 0; i < std::max(x_batch, weight_batch); ++i) {
        const int64_t x_size = i < x_batch ? p.x.shape[x_batch - 1 - i] : 1;
        const int64_t weight_size = i < weight_batch ? p.weight.shape[weight_batch - 1 - i] : 1;
        call->require(x_size == weight_size || x_size == 1 || weight_size == 1, "weight",
                      "broadcast to the batch of x " + shape_text(p.x.shape), shape_text(p.weight.shape));
        shape.insert(shape.begin(), x_size == 1 ? weight_size : x_size);
    }
    call->require_shape("y", p.y, shape);
}

void check_formats(FirstPhase* call, const QuantProduct& p) {
    call->require(is_contiguous(p.x.shape, p.x.strides) || is_transposed(p.x.shape, p.x.strides), "x",
                  "be contiguous or transposed in its last two dimensions", shape_text(p.x.strides));
    call->require(is_contiguous(p.weight.shape, p.weight.strides) || p.weight.is_transposed(), "weight",
                  "be contiguous or transposed in its last two dimensions", shape_text(p.weight.strides));
    call->require_contiguous("y", p.y);
    call->require_dtype("y", p.y, p.x.dtype);
    if (p.weight.is_nz) {
        call->refuse_unsimulated(is_ascend310p(), "the format FRACTAL_NZ on this chip");
        call->require(p.group_size == 0 && p.scale.count() == p.n(), "antiquantScale",
                      "have one element for each column in the format FRACTAL_NZ", shape_text(p.scale.shape));
        // The tiling takes a scale of one element for one that all columns share, and refuses it in this format
        // (op_host/op_tiling/weight_quant_batch_matmul_v2_tiling.cpp, CheckNzSupportedScenarios).
        call->require(p.scale.count() > 1, "antiquantScale", "have more than one element in the format FRACTAL_NZ",
                      p.scale.count());
    }
    if (!p.bias) return;
    call->require_contiguous("biasOptional", *p.bias);
    call->require_dtype("biasOptional", *p.bias, p.x.dtype == kBfloat16 ? static_cast<int32_t>(kFloat) : p.x.dtype);
    const std::vector<int64_t> vector{p.n()}, row{1, p.n()};
    std::vector<int64_t> batched = p.y.shape;  // Ascend310P: a row for each batch of y
    batched[batched.size() - 2] = 1;
    const bool has_batch = is_ascend310p() && batched.size() > 2;
    const std::string shapes = has_batch ? "[n], [1,n] or " + shape_text(batched) : "[n] or [1,n]";
    call->require(p.bias->shape == vector || p.bias->shape == row || (has_batch && p.bias->shape == batched),
                  "biasOptional", "have the shape " + shapes + " with n = " + std::to_string(p.n()),
                  shape_text(p.bias->shape));
}

// The scale or the offset of a group of rows in a column.
float parameter(const std::vector<float>& values, int64_t group, int64_t column, int64_t n) {
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(group * n + column)];
}

// Weights of the columns [column, column + count) in x's type, column by column.
std::vector<float> dequantized_columns(const QuantProduct& p, const Operand& matrix, const std::vector<float>& scales,
                                       const std::vector<float>& offsets, int64_t column, int64_t count) {
    const int64_t k = p.k(), n = p.n(), group_size = p.group_size ? p.group_size : k;
    std::vector<float> values(static_cast<size_t>(k * count));
    for (int64_t j = 0; j < count; ++j)
        load(matrix.dtype, matrix.first + (column + j) * matrix.strides[1], matrix.strides[0], k,
             values.data() + j * k);
    // The type of x holds every int8 exactly.
    if (!offsets.empty()) {
        for (int64_t j = 0; j < count; ++j)
            for (int64_t i = 0; i < k; ++i)
                values[static_cast<size_t>(j * k + i)] += parameter(offsets, i / group_size, column + j, n);
        if (p.x.dtype == kFloat16) round_to(kFloat16, &values);
    }
    for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < k; i += group_size) {
            const float scale = parameter(scales, i / group_size, column + j, n);
            float* first = values.data() + j * k + i;
            for (int64_t l = 0; l < std::min(group_size, k - i); ++l) first[l] *= scale;
        }
    round_to(p.x.dtype, &values);
    return values;
}

constexpr int64_t kColumnsAtATime = 128;

// Computes x @ weight for one matrix of the weight and the given rows of x.
void multiply_quantized(const QuantProduct& p, const Operand& matrix, const Vectors& rows, float* out) {
    const int64_t n = p.n(), k = p.k();
    const std::vector<float> scales = values_of<float>(p.scale);
    const std::vector<float> offsets = p.offset ? values_of<float>(*p.offset) : std::vector<float>();
    const auto row_count = static_cast<int64_t>(rows.addresses.size());
    for (int64_t column = 0; column < n; column += kColumnsAtATime) {
        const int64_t count = std::min(kColumnsAtATime, n - column);
        const std::vector<float> weights = dequantized_columns(p, matrix, scales, offsets, column, count);
        Vectors columns{{}, k, 1, kFloat};
        for (int64_t j = 0; j < count; ++j)
            columns.addresses.push_back(reinterpret_cast<const char*>(weights.data() + j * k));
        std::vector<float> products(static_cast<size_t>(row_count * count));
        multiply(rows, columns, CubeRounding::kNone, products.data());
        for (int64_t i = 0; i < row_count; ++i) std::copy_n(products.data() + i * count, count, out + i * n + column);
    }
}

void run(const QuantProduct& p) {
    std::vector<char> storage;
    const Operand weight = p.weight.unpacked(&storage);
    const int64_t m = p.x.shape[p.x.shape.size() - 2], n = p.n();
    const int64_t batches = p.y.count() / (m * n);
    const size_t y_batch = p.y.shape.size() - 2;
    // Address of the matrix of a batch. Dimensions of one element broadcast.
    const auto matrix = [&](const Operand& operand, int64_t batch) {
        char* address = operand.first;
        const size_t dims = operand.shape.size() - 2;
        for (size_t i = 0; i < y_batch; ++i) {
            const int64_t size = p.y.shape[y_batch - 1 - i], index = batch % size;
            batch /= size;
            if (i < dims && operand.shape[dims - 1 - i] != 1)
                address += index * operand.strides[dims - 1 - i] * dtype_bytes(operand.dtype);
        }
        return address;
    };
    std::vector<float> values(static_cast<size_t>(p.y.count()));
    const std::vector<float> bias = p.bias ? values_of<float>(*p.bias) : std::vector<float>();
    for (int64_t batch = 0; batch < batches; ++batch) {
        const size_t dims = weight.shape.size() - 2;
        const Operand one{
            {p.k(), n}, {weight.strides[dims], weight.strides[dims + 1]}, weight.dtype, matrix(weight, batch)};
        Vectors rows{{}, p.k(), p.x.strides.back(), p.x.dtype};
        for (int64_t i = 0; i < m; ++i)
            rows.addresses.push_back(matrix(p.x, batch) +
                                     i * p.x.strides[p.x.shape.size() - 2] * dtype_bytes(p.x.dtype));
        multiply_quantized(p, one, rows, values.data() + batch * m * n);
    }
    const auto columns = static_cast<size_t>(n), matrix_size = static_cast<size_t>(m * n);
    if (!bias.empty())
        for (size_t i = 0; i < values.size(); ++i)
            values[i] += bias[(i / matrix_size * columns + i % columns) % bias.size()];
    set_values(p.y, values);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(
    const aclTensor* x, const aclTensor* weight, const aclTensor* antiquantScale,
    const aclTensor* antiquantOffsetOptional, const aclTensor* quantScaleOptional, const aclTensor* quantOffsetOptional,
    const aclTensor* biasOptional, int antiquantGroupSize, const aclTensor* y, uint64_t* bytes,
    aclOpExecutor** executor) {
    using namespace simulated_cann;
    FirstPhase call("aclnnWeightQuantBatchMatmulV2");
    // CheckOptionalNotNull has the status of a NULL argument.
    for (const auto& [name, tensor] :
         {std::pair("quantScaleOptional", quantScaleOptional), std::pair("quantOffsetOptional", quantOffsetOptional)})
        call.require_inner(kAclnnNullptr, !is_ascend310p() || !tensor, name, "be NULL on Ascend310P", "a tensor");
    const TypesByChip types = with_bf16_except_310p(type_set({kFloat16}));
    const TypesByChip weight_types = by_chip(type_set({kInt8, kInt4, kInt32}), type_set({kInt8}));
    const uint32_t kWideScale = type_set({kInt64, kUint64});
    const TypesByChip scale_types = by_chip(types.on_910b | kWideScale, types.on_310p);
    const TypesByChip offset_types = by_chip(types.on_910b | type_set({kInt32}), types.on_310p);
    const RankRange ranks{2, is_ascend310p() ? 6U : 2U};
    QuantProduct p;
    p.x = call.input("x", x, types, ranks);
    p.weight = call.weight("weight", weight, weight_types, ranks);
    p.scale = call.input("antiquantScale", antiquantScale, scale_types, {1, 2});
    p.offset = call.optional_input("antiquantOffsetOptional", antiquantOffsetOptional, offset_types, {1, 2});
    p.bias = call.optional_input("biasOptional", biasOptional, with_bf16_except_310p(kHalfAndFloatTypes),
                                 {1, is_ascend310p() ? 6U : 2U});
    p.y = call.output("y", y, types, ranks);
    p.group_size = antiquantGroupSize;
    call.refuse_unsimulated(quantScaleOptional || quantOffsetOptional, "quantScaleOptional");
    call.refuse_unsimulated(kWideScale >> p.scale.dtype & 1, "antiquantScale of 64-bit integers");
    call.refuse_unsimulated(p.weight.dtype == kInt32, "a weight of int32");
    for (const auto& [name, tensor] :
         {std::pair("antiquantScale", antiquantScale), std::pair("antiquantOffsetOptional", antiquantOffsetOptional)})
        if (call.is_valid() && tensor)
            call.require(tensor->format == kNd, name, "have the format ND (2)", tensor->format);
    if (call.is_valid()) {
        check_formats(&call, p);
        check_sizes(&call, p);
        check_scale(&call, p);
    }
    // The kernel keeps the weight in x's type in the workspace.
    if (call.is_valid()) call.ask_workspace(p.k() * p.n() * dtype_bytes(p.x.dtype));
    return call.finish([p] { run(p); }, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnWeightQuantBatchMatmulV2)
