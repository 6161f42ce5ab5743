#include "cann/hccl/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cann/opapi/elements.h"

namespace simulated_cann {
namespace {

template <class T>
T load_number(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

// Sums and products of integers wrap around, because they are computed with unsigned integers.
template <class T>
T combine(HcclReduceOp op, T left, T right) {
    if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        if (op == HCCL_REDUCE_SUM) return T(Unsigned(uint64_t(left) + uint64_t(right)));
        if (op == HCCL_REDUCE_PROD) return T(Unsigned(uint64_t(left) * uint64_t(right)));
    } else {
        if (op == HCCL_REDUCE_SUM) return left + right;
        if (op == HCCL_REDUCE_PROD) return left * right;
        if (std::isnan(left) || std::isnan(right)) return std::isnan(left) ? left : right;
    }
    if (op == HCCL_REDUCE_MAX) return left < right ? right : left;
    return right < left ? right : left;
}

template <class T>
void reduce_numbers(HcclReduceOp op, char* result, const char* next, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, result += sizeof(T), next += sizeof(T)) {
        const T value = combine(op, load_number<T>(result), load_number<T>(next));
        std::memcpy(result, &value, sizeof(T));
    }
}

// float16 and bfloat16 are computed as float and rounded once in each step.
void reduce_short_floats(Dtype dtype, HcclReduceOp op, char* result, const char* next, uint64_t count) {
    constexpr uint64_t kBlock = 256;
    float left[kBlock], right[kBlock];
    for (; count; count -= std::min(count, kBlock), result += 2 * kBlock, next += 2 * kBlock) {
        const auto length = static_cast<int64_t>(std::min(count, kBlock));
        load(dtype, result, 1, length, left);
        load(dtype, next, 1, length, right);
        for (int64_t i = 0; i < length; ++i) left[i] = combine(op, left[i], right[i]);
        store(dtype, result, 1, length, left);
    }
}

}  // namespace

uint64_t bytes_of_type(HcclDataType type) {
    switch (type) {
        case HCCL_DATA_TYPE_INT8:
        case HCCL_DATA_TYPE_UINT8:
            return 1;
        case HCCL_DATA_TYPE_INT16:
        case HCCL_DATA_TYPE_UINT16:
        case HCCL_DATA_TYPE_FP16:
        case HCCL_DATA_TYPE_BFP16:
            return 2;
        case HCCL_DATA_TYPE_INT32:
        case HCCL_DATA_TYPE_UINT32:
        case HCCL_DATA_TYPE_FP32:
            return 4;
        case HCCL_DATA_TYPE_INT64:
        case HCCL_DATA_TYPE_UINT64:
        case HCCL_DATA_TYPE_FP64:
            return 8;
        default:
            return 0;
    }
}

const char* name_of_type(HcclDataType type) {
    static const char* const names[] = {"int8",   "int16",   "int32",    "float16",     "float32",     "int64",
                                        "uint64", "uint8",   "uint16",   "uint32",      "float64",     "bfloat16",
                                        "int128", "type 13", "hifloat8", "float8_e4m3", "float8_e5m2", "float8_e8m0"};
    const auto number = static_cast<uint32_t>(type);
    return number < sizeof(names) / sizeof(*names) ? names[number] : "a type that does not exist";
}

const char* name_of_reduction(HcclReduceOp op) {
    static const char* const names[] = {"sum", "prod", "max", "min"};
    const auto number = static_cast<uint32_t>(op);
    return number < 4 ? names[number] : "a reduction that does not exist";
}

void reduce(HcclDataType type, HcclReduceOp op, char* result, const char* next, uint64_t count) {
    switch (type) {
        case HCCL_DATA_TYPE_INT8:
            return reduce_numbers<int8_t>(op, result, next, count);
        case HCCL_DATA_TYPE_INT16:
            return reduce_numbers<int16_t>(op, result, next, count);
        case HCCL_DATA_TYPE_INT32:
            return reduce_numbers<int32_t>(op, result, next, count);
        case HCCL_DATA_TYPE_INT64:
            return reduce_numbers<int64_t>(op, result, next, count);
        case HCCL_DATA_TYPE_FP32:
            return reduce_numbers<float>(op, result, next, count);
        case HCCL_DATA_TYPE_FP16:
            return reduce_short_floats(kFloat16, op, result, next, count);
        default:
            return reduce_short_floats(kBfloat16, op, result, next, count);
    }
}

}  // namespace simulated_cann
