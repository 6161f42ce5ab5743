#include "cann/opapi/elements.h"

#include <algorithm>
#include <cmath>

namespace simulated_cann {
namespace {

float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
uint32_t to_bits(float value) { return __builtin_bit_cast(uint32_t, value); }

struct Half {
    uint16_t bits;
    operator float() const {
        uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
        if (exponent == 31) return from_bits(sign | 0x7F800000 | fraction << 13);
        if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
        float small = float(fraction) * 0x1p-24f;
        return sign ? -small : small;
    }
};

// Rounds to nearest, ties to even, by an addition that drops the excess bits.
Half to_half(float value) {
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return {uint16_t(sign | 0x7E00 | (bits >> 13 & 0x3FF))};
    if (bits >= 0x477FF000) return {uint16_t(sign | 0x7C00)};
    if (bits < 0x38800000) return {uint16_t(sign | (to_bits(from_bits(bits) + 0.5f) - 0x3F000000))};
    bits += 0xFFF + (bits >> 13 & 1);
    return {uint16_t(sign | ((bits >> 13) - (112 << 10)))};
}

struct Bfloat16 {
    uint16_t bits;
    operator float() const { return from_bits(uint32_t(bits) << 16); }
};

Bfloat16 to_bfloat16(float value) {
    uint32_t bits = to_bits(value);
    if (std::isnan(value)) return {uint16_t(bits >> 16 | 0x40)};
    return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

struct Bool {
    uint8_t byte;
    explicit operator bool() const { return byte != 0; }
};

template <class T>
constexpr bool is_complex_v = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <class T, class C>
C read(const T& value) {
    if constexpr (is_complex_v<C>) {
        using Part = typename C::value_type;
        if constexpr (is_complex_v<T>)
            return C(Part(value.real()), Part(value.imag()));
        else
            return C(read<T, Part>(value));
    } else if constexpr (is_complex_v<T>)
        return C(value.real());
    else if constexpr (std::is_same_v<T, Bool>)
        return C(bool(value));
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>)
        return C(float(value));
    else
        return C(value);
}

// C++ does not define the conversion of a float that does not fit the integer type. Here values beyond 64 bits
// give INT64_MIN, and the result is truncated to the type's bits, as in torch's CPU kernels on x86 for types
// below 32 bits.
template <class C>
int64_t to_integer(C value) {
    if constexpr (std::is_integral_v<C>) {
        return int64_t(value);
    } else {
        if (!(value >= C(-0x1p63) && value < C(0x1p63))) return INT64_MIN;
        return int64_t(value);
    }
}

template <class T, class C>
T written(C value) {
    if constexpr (std::is_same_v<T, Bool>)
        return {uint8_t(value != C(0))};
    else if constexpr (is_complex_v<T>)
        return read<C, T>(value);
    else if constexpr (is_complex_v<C>)
        return written<T>(value.real());
    else if constexpr (std::is_same_v<T, Half>)
        return to_half(float(value));
    else if constexpr (std::is_same_v<T, Bfloat16>)
        return to_bfloat16(float(value));
    else if constexpr (std::is_integral_v<T>)
        return T(to_integer(value));
    else
        return T(value);
}

// Calls work(T{}) with the C++ type of the dtype.
template <class Work>
void with_type(int32_t dtype, Work work) {
    const auto try_type = [&](Dtype candidate, auto value) {
        if (candidate == dtype) work(value);
    };
    try_type(kFloat, float{});
    try_type(kFloat16, Half{});
    try_type(kBfloat16, Bfloat16{});
    try_type(kDouble, double{});
    try_type(kComplex64, std::complex<float>{});
    try_type(kComplex128, std::complex<double>{});
    try_type(kBool, Bool{});
    try_type(kInt8, int8_t{});
    try_type(kUint8, uint8_t{});
    try_type(kInt16, int16_t{});
    try_type(kUint16, uint16_t{});
    try_type(kInt32, int32_t{});
    try_type(kUint32, uint32_t{});
    try_type(kInt64, int64_t{});
    try_type(kUint64, uint64_t{});
}

int category(int32_t dtype) { return dtype == kBool ? 0 : is_complex(dtype) ? 3 : is_floating(dtype) ? 2 : 1; }

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
    return text + "]";
}

// Whether the strides describe the layout: formats undefined, NCHW, NHWC, ND, HWCN, NDHWC, NCDHW, NC and NCL.
bool is_plain(int32_t format) {
    return format == -1 || format == 0 || format == 1 || format == 2 || format == 16 || format == 27 || format == 30 ||
           format == 35 || format == 47;
}

}  // namespace

int64_t dtype_bytes(int32_t dtype) {
    int64_t bytes = 0;
    with_type(dtype, [&](auto value) { bytes = sizeof value; });
    return bytes;
}

bool is_complex(int32_t dtype) { return dtype == kComplex64 || dtype == kComplex128; }

bool is_floating(int32_t dtype) {
    return dtype == kFloat || dtype == kFloat16 || dtype == kBfloat16 || dtype == kDouble;
}

int32_t promoted(int32_t a, bool a_has_dims, int32_t b, bool b_has_dims) {
    if (a_has_dims != b_has_dims) {
        int32_t with = a_has_dims ? a : b, without = a_has_dims ? b : a;
        return category(without) > category(with) ? without : with;
    }
    if (a == b) return a;
    if (category(a) != category(b)) {
        if ((a == kDouble && b == kComplex64) || (a == kComplex64 && b == kDouble)) return kComplex128;
        return category(a) > category(b) ? a : b;
    }
    if (is_floating(a)) return a == kDouble || b == kDouble ? kDouble : kFloat;  // float16 with bfloat16: float
    if ((a == kUint8 && b == kInt8) || (a == kInt8 && b == kUint8)) return kInt16;
    return dtype_bytes(a) >= dtype_bytes(b) ? a : b;
}

int64_t Operand::count() const {
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    return n;
}

Operand Operand::broadcast_to(const std::vector<int64_t>& wanted) const {
    Operand out = *this;
    out.shape = wanted;
    out.strides.assign(wanted.size(), 0);
    size_t lead = wanted.size() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) out.strides[lead + i] = shape[i] == 1 ? 0 : strides[i];
    return out;
}

std::string read_argument(const aclTensor* tensor, const char* what, Operand* out) {
    std::string name = what;
    if (!tensor) return name + kIsNull;
    int64_t bytes = dtype_bytes(tensor->dtype);
    if (!bytes)
        return name + " must be of a dtype that is simulated but got aclDataType " + std::to_string(tensor->dtype) +
               "; add it in simulator/cann/opapi/elements.cpp.";
    if (!is_plain(tensor->format))
        return name + " must be in a plain format but got aclFormat " + std::to_string(tensor->format) + ".";
    out->shape = tensor->shape;
    out->strides = tensor->strides;
    out->dtype = tensor->dtype;
    if (out->count() == 0) return "";
    int64_t low = tensor->offset, high = tensor->offset;
    for (size_t i = 0; i < out->shape.size(); ++i)
        (out->strides[i] < 0 ? low : high) += (out->shape[i] - 1) * out->strides[i];
    out->first = static_cast<char*>(tensor->data) + tensor->offset * bytes;
    void* allocation = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(tensor->data, &allocation, &allocation_bytes))
        return name + " must be in device memory but its address is not the simulated device's.";
    int64_t before = static_cast<char*>(tensor->data) - static_cast<char*>(allocation);
    if (before + low * bytes < 0 || before + (high + 1) * bytes > int64_t(allocation_bytes))
        return name + " must lie inside its allocation of " + std::to_string(allocation_bytes) +
               " bytes but reaches byte " + std::to_string(before + (high + 1) * bytes) + ".";
    return "";
}

std::string read_argument(const aclScalar* scalar, const char* what) {
    if (!scalar) return what + std::string(kIsNull);
    if (dtype_bytes(scalar->dtype)) return "";
    return std::string(what) + " must be of a dtype that is simulated but got aclDataType " +
           std::to_string(scalar->dtype) + ".";
}

std::string broadcast_rule(const Operand& from, const Operand& to, const char* what) {
    bool fits = from.shape.size() <= to.shape.size();
    for (size_t i = 0; fits && i < from.shape.size(); ++i) {
        int64_t a = from.shape[from.shape.size() - 1 - i], b = to.shape[to.shape.size() - 1 - i];
        fits = a == b || a == 1;
    }
    if (fits) return "";
    return std::string(what) + " must broadcast to " + shape_text(to.shape) + " but got " + shape_text(from.shape) +
           ".";
}

// hicann/ops-math math/add/op_api/aclnn_add.cpp, CheckShape and CheckShapeScalar; the other functions of two inputs
// have the same rule in their own source.
std::string result_shape_rule(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                              const Operand& out) {
    const Operand &longer = a.shape.size() >= b.shape.size() ? a : b, &shorter = &longer == &a ? b : a;
    std::vector<int64_t> common = longer.shape;
    const size_t lead = longer.shape.size() - shorter.shape.size();
    for (size_t i = 0; i < shorter.shape.size(); ++i) {
        const int64_t one = shorter.shape[i];
        int64_t& size = common[lead + i];
        if (one != size && one != 1 && size != 1)
            return std::string(a_name) + " and " + b_name + " must broadcast to one shape but got " +
                   shape_text(a.shape) + " and " + shape_text(b.shape) + ".";
        if (size == 1) size = one;
    }
    if (out.shape == common) return "";
    return "out must have the shape " + shape_text(common) + " but got " + shape_text(out.shape) + ".";
}

void for_each_run(const std::vector<const Operand*>& operands,
                  const std::function<void(int64_t count, char* const* at)>& work) {
    const std::vector<int64_t>& shape = operands[0]->shape;
    if (operands[0]->count() == 0) return;
    const size_t outer = shape.empty() ? 0 : shape.size() - 1;
    const int64_t inner = shape.empty() ? 1 : shape.back();
    std::vector<int64_t> index(outer, 0);
    std::vector<char*> row(operands.size()), at(operands.size());
    for (size_t k = 0; k < operands.size(); ++k) row[k] = operands[k]->first;
    for (;;) {
        for (int64_t done = 0; done < inner; done += kRun) {
            for (size_t k = 0; k < operands.size(); ++k) {
                int64_t stride = shape.empty() ? 0 : operands[k]->strides.back();
                at[k] = row[k] + done * stride * dtype_bytes(operands[k]->dtype);
            }
            work(std::min(kRun, inner - done), at.data());
        }
        size_t d = outer;
        for (; d-- > 0;) {
            for (size_t k = 0; k < operands.size(); ++k)
                row[k] += operands[k]->strides[d] * dtype_bytes(operands[k]->dtype);
            if (++index[d] < shape[d]) break;
            index[d] = 0;
            for (size_t k = 0; k < operands.size(); ++k)
                row[k] -= shape[d] * operands[k]->strides[d] * dtype_bytes(operands[k]->dtype);
        }
        if (d == size_t(-1)) return;
    }
}

template <class C>
void load(int32_t dtype, const char* from, int64_t stride, int64_t count, C* to) {
    with_type(dtype, [&](auto type) {
        const auto* values = reinterpret_cast<const decltype(type)*>(from);
        for (int64_t i = 0; i < count; ++i) to[i] = read<decltype(type), C>(values[i * stride]);
    });
}

template <class C>
void store(int32_t dtype, char* to, int64_t stride, int64_t count, const C* from) {
    with_type(dtype, [&](auto type) {
        auto* values = reinterpret_cast<decltype(type)*>(to);
        for (int64_t i = 0; i < count; ++i) values[i * stride] = written<decltype(type), C>(from[i]);
    });
}

template void load(int32_t, const char*, int64_t, int64_t, float*);
template void load(int32_t, const char*, int64_t, int64_t, double*);
template void load(int32_t, const char*, int64_t, int64_t, int64_t*);
template void load(int32_t, const char*, int64_t, int64_t, std::complex<float>*);
template void load(int32_t, const char*, int64_t, int64_t, std::complex<double>*);
template void store(int32_t, char*, int64_t, int64_t, const float*);
template void store(int32_t, char*, int64_t, int64_t, const double*);
template void store(int32_t, char*, int64_t, int64_t, const int64_t*);
template void store(int32_t, char*, int64_t, int64_t, const std::complex<float>*);
template void store(int32_t, char*, int64_t, int64_t, const std::complex<double>*);

MemoryAccess reads(const char* what, const Operand& operand) {
    return {what, operand.first, operand.shape, operand.strides, dtype_bytes(operand.dtype), true, false};
}

MemoryAccess writes(const char* what, const Operand& operand) {
    return {what, operand.first, operand.shape, operand.strides, dtype_bytes(operand.dtype), false, true};
}

aclError prepared(const char* name, std::vector<MemoryAccess> accesses, std::function<void()> body,
                  uint64_t* workspace_bytes, aclOpExecutor** executor) {
    if (!workspace_bytes || !executor) return failed(kAclnnNullptr, std::string(name) + ": executor must not be null.");
    *workspace_bytes = 0;
    auto run = [body = std::move(body)](void*, uint64_t) {
        body();
        return int32_t(kSuccess);
    };
    *executor = new aclOpExecutor{name, std::move(run), nullptr, std::move(accesses)};
    return kSuccess;
}

// A NULL argument gives 161001, every other error of an argument 161002 (hicann/ops-math
// math/mul/op_api/aclnn_mul.cpp, CheckParams, and its neighbours).
aclError refused(const char* name, const std::string& why) {
    const std::string ending = kIsNull;
    const bool is_null =
        why.size() > ending.size() && why.compare(why.size() - ending.size(), ending.size(), ending) == 0;
    return failed(is_null ? kAclnnNullptr : kAclnnInvalidParam, std::string(name) + ": " + why);
}

}  // namespace simulated_cann
