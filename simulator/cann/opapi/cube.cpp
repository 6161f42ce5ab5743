#include "cann/opapi/cube.h"

#include <algorithm>
#include <cstring>

namespace simulated_cann {
namespace {

constexpr int64_t kPanelColumns = 8, kRowBlock = 4;
using Lanes = float __attribute__((vector_size(kPanelColumns * sizeof(float))));

float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
uint32_t float_to_bits(float value) { return __builtin_bit_cast(uint32_t, value); }

// The conversions have no branches, so that the compiler can vectorize the loops. The factor 2^112 compensates the
// different exponent biases of float16 and float32. The product is exact, and subnormal numbers become normal.
float half_to_float(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFFU, sign = (half & 0x8000U) << 16;
    const uint32_t scaled = float_to_bits(bits_to_float(magnitude << 13) * 0x1p112F);
    const uint32_t special = 0x7F800000U | magnitude << 13;  // infinity or NaN
    return bits_to_float((magnitude >= 0x7C00U ? special : scaled) | sign);
}

float rounded_to_half(float value) {
    const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7FFFFFFFU, sign = bits & 0x80000000U;
    // Below 2^-14, the last bit of a float16 is worth 2^-24, like the last bit of a float32 in [0.5, 1).
    const float small = bits_to_float(magnitude) + 0.5F - 0.5F;
    const uint32_t normal = (magnitude + 0xFFFU + (magnitude >> 13 & 1)) & ~0x1FFFU;
    uint32_t rounded = magnitude < 0x38800000U ? float_to_bits(small) : normal;
    rounded = magnitude >= 0x477FF000U ? 0x7F800000U : rounded;  // from 65520 on: infinity
    rounded = magnitude > 0x7F800000U ? magnitude : rounded;     // NaN
    return bits_to_float(rounded | sign);
}

// Ties round away from zero: hicann/ops-nn matmul/mat_mul_v3/op_kernel/mat_mul_base_kernel.h calls SetHF32(true, 1),
// and hicann/asc-devkit, SetHF32.md, describes the mode 1.
float hf32(float value) {
    const uint32_t bits = float_to_bits(value);
    const bool is_finite = (bits & 0x7FFFFFFFU) < 0x7F800000U;
    return bits_to_float(is_finite ? (bits + 0x800U) & ~0xFFFU : bits);
}

float rounded_to_bfloat16(float value) {
    const uint32_t bits = float_to_bits(value);
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return bits_to_float(is_nan ? bits | 0x400000U : (bits + 0x7FFFU + (bits >> 16 & 1)) & ~0xFFFFU);
}

void round_all(CubeRounding rounding, float* values, int64_t count) {
    if (rounding == CubeRounding::kFloat16)
        for (int64_t i = 0; i < count; ++i) values[i] = rounded_to_half(values[i]);
    if (rounding == CubeRounding::kBfloat16)
        for (int64_t i = 0; i < count; ++i) values[i] = rounded_to_bfloat16(values[i]);
    if (rounding == CubeRounding::kHf32)
        for (int64_t i = 0; i < count; ++i) values[i] = hf32(values[i]);
}

// Converts element i of vector j to to[i * count + j], for all elements of `count` vectors.
template <class Stored, int64_t count, class Convert>
void interleave(const char* const* addresses, int64_t length, int64_t stride, Convert convert, float* to) {
    const int64_t step = stride * static_cast<int64_t>(sizeof(Stored));
    const char* from[count];
    std::copy(addresses, addresses + count, from);
    for (int64_t i = 0; i < length; ++i)
        for (int64_t j = 0; j < count; ++j) {
            Stored stored;
            std::memcpy(&stored, from[j] + i * step, sizeof stored);
            to[i * count + j] = convert(stored);
        }
}

template <int64_t count>
void load_vectors(const Vectors& vectors, const char* const* addresses, CubeRounding rounding, float* to) {
    const int64_t length = vectors.length, stride = vectors.stride;
    if (vectors.dtype == kFloat16)
        interleave<uint16_t, count>(addresses, length, stride, half_to_float, to);
    else if (vectors.dtype == kBfloat16)
        interleave<uint16_t, count>(
            addresses, length, stride, [](uint16_t half) { return bits_to_float(uint32_t{half} << 16); }, to);
    else
        interleave<float, count>(addresses, length, stride, [](float value) { return value; }, to);
    if (vectors.dtype != kFloat16) round_all(rounding, to, length * count);
}

template <int64_t count>
void multiply_block(const float* rows, const float* panel, int64_t length, float* out, int64_t out_stride,
                    int64_t columns) {
    Lanes sums[count] = {};
    for (int64_t k = 0; k < length; ++k) {
        Lanes values;
        std::memcpy(&values, panel + k * kPanelColumns, sizeof values);
        for (int64_t i = 0; i < count; ++i) sums[i] += rows[i * length + k] * values;
    }
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < columns; ++j) out[i * out_stride + j] = sums[i][j];
}

int32_t compute_dtype_910b(int32_t a, int32_t b, int8_t math_type) {
    if (a == kBfloat16 && b == kBfloat16) return kBfloat16;
    if ((a == kFloat16 && b == kFloat16) || math_type == kUseFp16) return kFloat16;
    return kFloat;
}

}  // namespace

float rounded_to_hf32(float value) { return hf32(value); }

void report_ignored_option(FirstPhase* call, int32_t a, int32_t b, int8_t math_type) {
    const bool has_float = a == kFloat || b == kFloat, has_bf16 = a == kBfloat16 || b == kBfloat16;
    call->report_beyond_document(has_bf16 && math_type == kUseFp16,
                                 "its document does not support bfloat16 with cubeMathType 2");
    call->report_beyond_document(!is_ascend310p() && !has_float && math_type == kUseHf32,
                                 "its document does not support cubeMathType 3 without float32");
}

// hicann/ops-nn matmul/common/op_host/op_api/matmul_util.cpp: Dav2201MatMulRule and NeedEnableFp32Output on Ascend910B,
// DefaultMatMulRule on Ascend310P, which refuses 0 and 3 for float32 and has no entry for 4. The documents do not
// support 3 on Ascend310P at all.
CubeTypes cube_types(FirstPhase* call, int32_t a, int32_t b, int32_t out, int8_t math_type, bool takes_fp32_add) {
    const bool has_float = a == kFloat || b == kFloat;
    if (is_ascend310p()) {
        call->report_beyond_document(math_type == kUseHf32,
                                     "its document does not support cubeMathType 3 on this chip");
        if (has_float)
            call->require(math_type == kAllowDownPrecision || math_type == kUseFp16, "cubeMathType",
                          "be 1 or 2 for float32 on " + std::string(soc_name()), math_type);
        call->require(math_type >= kKeepDtype && math_type <= kUseHf32, "cubeMathType",
                      "be in [0, 3] on " + std::string(soc_name()), math_type);
        return {CubeRounding::kFloat16, kFloat16, out == kFloat ? kFloat : kFloat16};
    }
    call->require(math_type >= kKeepDtype && math_type <= kUseFp32Add, "cubeMathType", "be in [0, 4]", math_type);
    if (math_type == kUseFp32Add && !takes_fp32_add) math_type = kKeepDtype;
    const int32_t compute = compute_dtype_910b(a, b, math_type);
    CubeTypes types;
    types.compute = compute;
    if (compute == kFloat16) types.rounding = CubeRounding::kFloat16;
    if (compute == kFloat && (math_type == kAllowDownPrecision || math_type == kUseHf32))
        types.rounding = CubeRounding::kHf32;
    const bool keeps_sums = out == kFloat && (math_type != kUseFp16 || (a == b && a != kFloat));
    types.result = keeps_sums ? static_cast<int32_t>(kFloat) : compute;
    return types;
}

void multiply(const Vectors& rows, const Vectors& columns, CubeRounding rounding, float* out) {
    const auto row_count = static_cast<int64_t>(rows.addresses.size());
    const auto column_count = static_cast<int64_t>(columns.addresses.size());
    const int64_t length = rows.length;
    std::vector<float> row_values(static_cast<size_t>(row_count * length));
    for (int64_t i = 0; i < row_count; ++i)
        load_vectors<1>(rows, &rows.addresses[static_cast<size_t>(i)], rounding, row_values.data() + i * length);
    std::vector<float> panel(static_cast<size_t>(length * kPanelColumns));
    for (int64_t j = 0; j < column_count; j += kPanelColumns) {
        const int64_t width = std::min(kPanelColumns, column_count - j);
        const char* addresses[kPanelColumns];
        for (int64_t lane = 0; lane < kPanelColumns; ++lane)
            addresses[lane] = columns.addresses[static_cast<size_t>(j + std::min(lane, width - 1))];
        load_vectors<kPanelColumns>(columns, addresses, rounding, panel.data());
        int64_t i = 0;
        for (; i + kRowBlock <= row_count; i += kRowBlock)
            multiply_block<kRowBlock>(row_values.data() + i * length, panel.data(), length, out + i * column_count + j,
                                      column_count, width);
        for (; i < row_count; ++i)
            multiply_block<1>(row_values.data() + i * length, panel.data(), length, out + i * column_count + j,
                              column_count, width);
    }
}

std::vector<float> batched_product(const Operand& a, const Operand& b, CubeRounding rounding) {
    const size_t batch_dims = a.shape.size() - 2;
    const int64_t row_count = a.shape[batch_dims], column_count = b.shape[batch_dims + 1];
    const int64_t a_bytes = dtype_bytes(a.dtype), b_bytes = dtype_bytes(b.dtype);
    std::vector<int64_t> batch_shape(batch_dims);
    int64_t batches = 1;
    for (size_t i = 0; i < batch_dims; ++i) {
        batch_shape[i] = a.shape[i] == 1 ? b.shape[i] : a.shape[i];
        batches *= batch_shape[i];
    }
    // Address of the matrix of a batch.
    const auto matrix = [&](const Operand& operand, int64_t batch) {
        const char* address = operand.first;
        for (size_t i = batch_dims; i-- > 0; batch /= batch_shape[i])
            if (operand.shape[i] != 1)
                address += batch % batch_shape[i] * operand.strides[i] * dtype_bytes(operand.dtype);
        return address;
    };
    std::vector<float> out(static_cast<size_t>(batches * row_count * column_count));
    if (out.empty() || a.shape.back() == 0) return out;
    for (int64_t batch = 0; batch < batches;) {
        const char* b_matrix = matrix(b, batch);
        Vectors rows{{}, a.shape.back(), a.strides.back(), a.dtype};
        Vectors columns{{}, a.shape.back(), b.strides[batch_dims], b.dtype};
        float* to = out.data() + batch * row_count * column_count;
        // Batches that follow each other and have the same second matrix are one product.
        for (; batch < batches && matrix(b, batch) == b_matrix; ++batch)
            for (int64_t i = 0; i < row_count; ++i)
                rows.addresses.push_back(matrix(a, batch) + i * a.strides[batch_dims] * a_bytes);
        for (int64_t j = 0; j < column_count; ++j)
            columns.addresses.push_back(b_matrix + j * b.strides[batch_dims + 1] * b_bytes);
        multiply(rows, columns, rounding, to);
    }
    return out;
}

}  // namespace simulated_cann
