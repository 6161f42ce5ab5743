#include "cann/opapi/elements.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cann/runtime/regions.h"

namespace simulated_cann {
namespace {

float float_from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
uint32_t bits_of_float(float value) { return __builtin_bit_cast(uint32_t, value); }

constexpr uint32_t kInfinityBits = 0x7F800000;  // of float32

struct Half {
    uint16_t bits;
    operator float() const {
        // float16 has 5 bits of exponent with bias 15 and 10 bits of fraction, float32 has 8 (bias 127) and 23. So the
        // exponents differ by 112, and the fractions by 13 bits.
        uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
        if (exponent == 31) return float_from_bits(sign | kInfinityBits | fraction << 13);
        if (exponent) return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
        float subnormal = float(fraction) * 0x1p-24f;
        return sign ? -subnormal : subnormal;
    }
};

// Rounds to nearest, ties to even.
Half to_half(float value) {
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7FFFFFFF;
    if (bits > kInfinityBits) return {uint16_t(sign | 0x7E00 | (bits >> 13 & 0x3FF))};  // NaN: keep the payload
    if (bits >= 0x477FF000) return {uint16_t(sign | 0x7C00)};                           // from 65520 on: infinity
    // Below 2^-14: the result is subnormal. The sum with 0.5 (0x3F000000) has its last bit at 2^-24, so it rounds.
    if (bits < 0x38800000) return {uint16_t(sign | (bits_of_float(float_from_bits(bits) + 0.5f) - 0x3F000000))};
    bits += 0xFFF + (bits >> 13 & 1);  // carries into the kept bits if the 13 dropped bits round up
    return {uint16_t(sign | ((bits >> 13) - (112 << 10)))};
}

struct Bfloat16 {
    uint16_t bits;
    operator float() const { return float_from_bits(uint32_t(bits) << 16); }
};

// Rounds to nearest, ties to even.
Bfloat16 to_bfloat16(float value) {
    uint32_t bits = bits_of_float(value);
    if (std::isnan(value)) return {uint16_t(bits >> 16 | 0x40)};  // a quiet NaN, even if only dropped bits were set
    return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

struct Bool {
    uint8_t byte;
    explicit operator bool() const { return byte != 0; }
};

template <class Stored>
constexpr bool is_complex_v =
    std::is_same_v<Stored, std::complex<float>> || std::is_same_v<Stored, std::complex<double>>;

// C++ does not define the conversion of a float that does not fit the integer type. Here values beyond 64 bits
// give INT64_MIN, and the result is truncated to the type's bits, as in torch's CPU kernels on x86 for types
// below 32 bits.
template <class Compute>
int64_t to_integer(Compute value) {
    if constexpr (std::is_integral_v<Compute>) {
        return int64_t(value);
    } else {
        if (!(value >= Compute(-0x1p63) && value < Compute(0x1p63))) return INT64_MIN;
        return int64_t(value);
    }
}

// Converts a number to a compute type. A bool is whether the number is not 0.
template <class Compute, class Number>
Compute converted(Number number) {
    if constexpr (std::is_integral_v<Compute> && !std::is_same_v<Compute, bool>)
        return Compute(to_integer(number));
    else
        return Compute(number);
}

// Converts an element in memory to its compute type.
template <class Stored, class Compute>
Compute to_compute(const Stored& value) {
    if constexpr (is_complex_v<Compute>) {
        using Part = typename Compute::value_type;
        if constexpr (is_complex_v<Stored>)
            return Compute(Part(value.real()), Part(value.imag()));
        else
            return Compute(to_compute<Stored, Part>(value));
    } else if constexpr (is_complex_v<Stored>)
        return converted<Compute>(value.real());
    else if constexpr (std::is_same_v<Stored, Bool>)
        return Compute(bool(value));
    else if constexpr (std::is_same_v<Stored, Half> || std::is_same_v<Stored, Bfloat16>)
        return converted<Compute>(float(value));
    else
        return converted<Compute>(value);
}

// Converts a computed value to the type in memory.
template <class Stored, class Compute>
Stored to_stored(Compute value) {
    if constexpr (std::is_same_v<Stored, Bool>)
        return {uint8_t(value != Compute(0))};
    else if constexpr (is_complex_v<Stored>)
        return to_compute<Compute, Stored>(value);
    else if constexpr (is_complex_v<Compute>)
        return to_stored<Stored>(value.real());
    else if constexpr (std::is_same_v<Stored, Half>)
        return to_half(float(value));
    else if constexpr (std::is_same_v<Stored, Bfloat16>)
        return to_bfloat16(float(value));
    else if constexpr (std::is_integral_v<Stored>)
        return Stored(to_integer(value));
    else
        return Stored(value);
}

// Calls work(value) with a value of the dtype's C++ type.
template <class Work>
void call_with_type(int32_t dtype, Work work) {
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

// torch's order of promotion: 0 bool, 1 integer, 2 floating-point, 3 complex.
int category(int32_t dtype) { return dtype == kBool ? 0 : is_complex(dtype) ? 3 : is_floating(dtype) ? 2 : 1; }

// The bytes of a tensor in a workspace: hicann/opbase src/nnopbase/composite_op/mem_mgr/memory_allocator.cpp, Align.
uint64_t workspace_part(uint64_t bytes) { return bytes ? (bytes + 32 + 511) / 512 * 512 : 0; }

uint64_t packed_bytes(const MemoryAccess& access) {
    int64_t bytes = access.item_bytes;
    for (int64_t size : access.shape) bytes *= size;
    return static_cast<uint64_t>(bytes);
}

// Whether two accesses have the same elements in the same order: the dimensions agree, except those of size 1, or both
// are contiguous.
bool is_same_view(const MemoryAccess& a, const MemoryAccess& b) {
    if (a.first != b.first || a.item_bytes != b.item_bytes) return false;
    const auto layout = [](const MemoryAccess& access) {
        std::vector<int64_t> dims;
        for (size_t i = 0; i < access.shape.size(); ++i)
            if (access.shape[i] != 1) dims.insert(dims.end(), {access.shape[i], access.strides[i]});
        return dims;
    };
    return layout(a) == layout(b) || (is_contiguous(a.shape, a.strides) && is_contiguous(b.shape, b.strides) &&
                                      packed_bytes(a) == packed_bytes(b));
}

// Returns "" or the reason why an output may not use the memory of another argument. CANN's documents and sources do
// not say in which order the cores of a kernel read and write, so a call must not depend on it. torch requires the same
// (ATen/MemoryOverlap.h, assert_no_partial_overlap). Accesses of one argument may overlap.
std::string overlap_error(const std::vector<MemoryAccess>& accesses) {
    for (const MemoryAccess& out : accesses)
        for (const MemoryAccess& other : accesses) {
            if (!out.writes || out.argument == other.argument || !overlap(region_of(out), region_of(other))) continue;
            if (!other.writes && is_same_view(out, other)) continue;
            return out.argument + " must " + (other.writes ? "" : "be the same view as " + other.argument + " or ") +
                   "share no memory with " + (other.writes ? "the output " + other.argument : "it") +
                   " but got memory that overlaps.";
        }
    return "";
}

// Whether shape and strides describe the layout. The formats are undefined, NCHW, NHWC, ND, HWCN, NDHWC, NCDHW, NC,
// NCL.
bool is_strided_format(int32_t format) {
    return format == -1 || format == 0 || format == 1 || format == 2 || format == 16 || format == 27 || format == 30 ||
           format == 35 || format == 47;
}

// Returns the first byte of a view and the byte after its last one, relative to the tensor's data, or nothing if a
// byte's offset does not fit int64. The view has elements.
std::optional<std::pair<int64_t, int64_t>> span_of(const aclTensor& tensor, int64_t item_bytes) {
    int64_t first = tensor.offset, end = tensor.offset, reach;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
        if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach)) return std::nullopt;
        int64_t& edge = reach < 0 ? first : end;
        if (__builtin_add_overflow(edge, reach, &edge)) return std::nullopt;
    }
    if (__builtin_mul_overflow(first, item_bytes, &first) || __builtin_add_overflow(end, 1, &end) ||
        __builtin_mul_overflow(end, item_bytes, &end))
        return std::nullopt;
    return std::make_pair(first, end);
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
    return text + "]";
}

std::string size_error(const std::string& name, const std::vector<int64_t>& shape, int64_t item_bytes) {
    int64_t bytes = item_bytes;
    for (int64_t size : shape)
        if (size < 0) return name + " must have sizes >= 0 but got the shape " + shape_text(shape) + ".";
    for (int64_t size : shape)
        if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))
            return name + " must have fewer than 2^63 bytes but got the shape " + shape_text(shape) + ".";
    return "";
}

int64_t dtype_bytes(int32_t dtype) {
    int64_t bytes = 0;
    call_with_type(dtype, [&](auto value) { bytes = sizeof value; });
    return bytes;
}

bool is_complex(int32_t dtype) { return dtype == kComplex64 || dtype == kComplex128; }

bool is_floating(int32_t dtype) {
    return dtype == kFloat || dtype == kFloat16 || dtype == kBfloat16 || dtype == kDouble;
}

int32_t promoted_dtype(int32_t first, bool first_has_dims, int32_t second, bool second_has_dims) {
    if (first_has_dims != second_has_dims) {
        int32_t with_dims = first_has_dims ? first : second, without_dims = first_has_dims ? second : first;
        return category(without_dims) > category(with_dims) ? without_dims : with_dims;
    }
    if (first == second) return first;
    if (category(first) != category(second)) {
        if ((first == kDouble && second == kComplex64) || (first == kComplex64 && second == kDouble))
            return kComplex128;
        return category(first) > category(second) ? first : second;
    }
    if (is_floating(first))
        return first == kDouble || second == kDouble ? kDouble : kFloat;  // float16 with bfloat16: float
    if ((first == kUint8 && second == kInt8) || (first == kInt8 && second == kUint8)) return kInt16;
    return dtype_bytes(first) >= dtype_bytes(second) ? first : second;
}

bool is_contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    for (int64_t size : shape)
        if (!size) return true;
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != step) return false;
        step *= shape[i];
    }
    return true;
}

int64_t Operand::count() const {
    int64_t product = 1;
    for (int64_t size : shape) product *= size;
    return product;
}

Operand Operand::broadcast_to(const std::vector<int64_t>& target_shape) const {
    Operand out = *this;
    out.shape = target_shape;
    out.strides.assign(target_shape.size(), 0);
    size_t added_dims = target_shape.size() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) out.strides[added_dims + i] = shape[i] == 1 ? 0 : strides[i];
    return out;
}

std::string read_argument(const aclTensor* tensor, const char* argument_name, Operand* out) {
    std::string name = argument_name;
    if (!tensor) return name + kMustNotBeNull;
    int64_t bytes = dtype_bytes(tensor->dtype);
    if (!bytes)
        return name + " must be of a dtype that is simulated but got aclDataType " + std::to_string(tensor->dtype) +
               "; add it in simulator/cann/opapi/elements.cpp.";
    if (!is_strided_format(tensor->format))
        return name + " must be in a plain format but got aclFormat " + std::to_string(tensor->format) + ".";
    out->shape = tensor->shape;
    out->strides = tensor->strides;
    const bool is_empty = std::find(tensor->shape.begin(), tensor->shape.end(), 0) != tensor->shape.end();
    for (size_t i = 0; i < out->strides.size(); ++i)
        if (is_empty || tensor->shape[i] == 1) out->strides[i] = 0;  // unused, and any number
    out->dtype = tensor->dtype;
    if (const std::string error = size_error(name, out->shape, bytes); !error.empty()) return error;
    if (out->count() == 0) return "";
    void* allocation = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(tensor->data, &allocation, &allocation_bytes))
        return name + " must be in device memory but its address is not the simulated device's.";
    const std::string rule = name + " must lie inside its allocation of " + std::to_string(allocation_bytes) + " bytes";
    const auto span = span_of(*tensor, bytes);
    if (!span) return rule + " but its strides and its offset reach beyond 2^63 bytes.";
    const int64_t before = static_cast<char*>(tensor->data) - static_cast<char*>(allocation);
    const int64_t after = int64_t(allocation_bytes) - before;
    if (span->first < -before) return rule + " but reaches byte " + std::to_string(before + span->first) + ".";
    if (span->second > after)
        return rule + " but reaches byte " + std::to_string(uint64_t(before) + uint64_t(span->second)) + ".";
    out->first = static_cast<char*>(tensor->data) + tensor->offset * bytes;
    return "";
}

std::string read_argument(const aclScalar* scalar, const char* argument_name) {
    if (!scalar) return argument_name + std::string(kMustNotBeNull);
    if (dtype_bytes(scalar->dtype)) return "";
    return std::string(argument_name) + " must be of a dtype that is simulated but got aclDataType " +
           std::to_string(scalar->dtype) + ".";
}

std::string broadcast_error(const Operand& from, const Operand& to, const char* argument_name) {
    bool fits = from.shape.size() <= to.shape.size();
    for (size_t i = 0; fits && i < from.shape.size(); ++i) {
        int64_t from_size = from.shape[from.shape.size() - 1 - i], to_size = to.shape[to.shape.size() - 1 - i];
        fits = from_size == to_size || from_size == 1;
    }
    if (fits) return "";
    return std::string(argument_name) + " must broadcast to " + shape_text(to.shape) + " but got " +
           shape_text(from.shape) + ".";
}

// Source: hicann/ops-math math/add/op_api/aclnn_add.cpp, CheckShape and CheckShapeScalar. The other functions of two
// inputs have the same rule in their own source.
std::string result_shape_error(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                               const Operand& out) {
    const Operand &longer = a.shape.size() >= b.shape.size() ? a : b, &shorter = &longer == &a ? b : a;
    std::vector<int64_t> common = longer.shape;
    const size_t added_dims = longer.shape.size() - shorter.shape.size();
    for (size_t i = 0; i < shorter.shape.size(); ++i) {
        const int64_t shorter_size = shorter.shape[i];
        int64_t& common_size = common[added_dims + i];
        if (shorter_size != common_size && shorter_size != 1 && common_size != 1)
            return std::string(a_name) + " and " + b_name + " must broadcast to one shape but got " +
                   shape_text(a.shape) + " and " + shape_text(b.shape) + ".";
        if (common_size == 1) common_size = shorter_size;
    }
    if (out.shape == common) return "";
    return "out must have the shape " + shape_text(common) + " but got " + shape_text(out.shape) + ".";
}

// Merges trailing dimensions into one if all operands step through them with one stride. Returns the number of elements
// along the merged dimension and decrements `outer_dims` for each merged one.
static int64_t merged_size(const std::vector<const Operand*>& operands, size_t* outer_dims) {
    const std::vector<int64_t>& shape = operands[0]->shape;
    int64_t size = shape.back();
    const auto continues_run = [&](const Operand* operand) {
        return operand->strides[*outer_dims - 1] == operand->strides.back() * size;
    };
    while (*outer_dims && std::all_of(operands.begin(), operands.end(), continues_run)) size *= shape[--*outer_dims];
    return size;
}

void for_each_run(const std::vector<const Operand*>& operands,
                  const std::function<void(int64_t count, char* const* addresses)>& work) {
    const std::vector<int64_t>& shape = operands[0]->shape;
    if (operands[0]->count() == 0) return;
    size_t outer_dims = shape.empty() ? 0 : shape.size() - 1;
    const int64_t inner_size = shape.empty() ? 1 : merged_size(operands, &outer_dims);
    std::vector<int64_t> outer_index(outer_dims, 0), item_bytes(operands.size());
    std::vector<char*> row_addresses(operands.size()), addresses(operands.size());
    for (size_t operand = 0; operand < operands.size(); ++operand) {
        row_addresses[operand] = operands[operand]->first;
        item_bytes[operand] = dtype_bytes(operands[operand]->dtype);
    }
    for (;;) {
        for (int64_t done = 0; done < inner_size; done += kMaxRunElements) {
            for (size_t operand = 0; operand < operands.size(); ++operand) {
                int64_t stride = shape.empty() ? 0 : operands[operand]->strides.back();
                addresses[operand] = row_addresses[operand] + done * stride * item_bytes[operand];
            }
            work(std::min(kMaxRunElements, inner_size - done), addresses.data());
        }
        size_t dim = outer_dims;
        for (; dim-- > 0;) {
            for (size_t operand = 0; operand < operands.size(); ++operand)
                row_addresses[operand] += operands[operand]->strides[dim] * item_bytes[operand];
            if (++outer_index[dim] < shape[dim]) break;
            outer_index[dim] = 0;
            for (size_t operand = 0; operand < operands.size(); ++operand)
                row_addresses[operand] -= shape[dim] * operands[operand]->strides[dim] * item_bytes[operand];
        }
        if (dim == size_t(-1)) return;
    }
}

template <class Compute>
Compute load_one(int32_t dtype, const char* from) {
    Compute value{};
    call_with_type(dtype, [&](auto type) {
        value = to_compute<decltype(type), Compute>(*reinterpret_cast<const decltype(type)*>(from));
    });
    return value;
}

template <class Compute>
void store_one(int32_t dtype, char* to, Compute value) {
    call_with_type(
        dtype, [&](auto type) { *reinterpret_cast<decltype(type)*>(to) = to_stored<decltype(type), Compute>(value); });
}

template <class Compute>
void load(int32_t dtype, const char* from, int64_t stride, int64_t count, Compute* to) {
    call_with_type(dtype, [&](auto type) {
        const auto* values = reinterpret_cast<const decltype(type)*>(from);
        for (int64_t i = 0; i < count; ++i) to[i] = to_compute<decltype(type), Compute>(values[i * stride]);
    });
}

template <class Compute>
void store(int32_t dtype, char* to, int64_t stride, int64_t count, const Compute* from) {
    call_with_type(dtype, [&](auto type) {
        auto* values = reinterpret_cast<decltype(type)*>(to);
        for (int64_t i = 0; i < count; ++i) values[i * stride] = to_stored<decltype(type), Compute>(from[i]);
    });
}

template <class Compute>
std::vector<Compute> values_of(const Operand& operand) {
    std::vector<Compute> values(static_cast<size_t>(operand.count()));
    Compute* next = values.data();
    for_each_run({&operand}, [&](int64_t count, char* const* addresses) {
        load(operand.dtype, addresses[0], operand.run_stride(), count, next);
        next += count;
    });
    return values;
}

template <class Compute>
void set_values(const Operand& operand, const std::vector<Compute>& values) {
    const Compute* next = values.data();
    for_each_run({&operand}, [&](int64_t count, char* const* addresses) {
        store(operand.dtype, addresses[0], operand.run_stride(), count, next);
        next += count;
    });
}

#define NPU_CANN_INSTANTIATE(Compute)                                      \
    template std::vector<Compute> values_of(const Operand&);               \
    template void set_values(const Operand&, const std::vector<Compute>&); \
    template void load(int32_t, const char*, int64_t, int64_t, Compute*);  \
    template void store(int32_t, char*, int64_t, int64_t, const Compute*); \
    template Compute load_one(int32_t, const char*);                       \
    template void store_one(int32_t, char*, Compute);
NPU_CANN_INSTANTIATE(float)
NPU_CANN_INSTANTIATE(double)
NPU_CANN_INSTANTIATE(int64_t)
NPU_CANN_INSTANTIATE(std::complex<float>)
NPU_CANN_INSTANTIATE(std::complex<double>)
#undef NPU_CANN_INSTANTIATE

MemoryAccess read_access(const char* argument_name, const Operand& operand) {
    return {argument_name, operand.first, operand.shape, operand.strides, dtype_bytes(operand.dtype), true, false};
}

MemoryAccess write_access(const char* argument_name, const Operand& operand) {
    return {argument_name, operand.first, operand.shape, operand.strides, dtype_bytes(operand.dtype), false, true};
}

aclError finish_first_phase(const char* name, std::vector<MemoryAccess> accesses, std::function<void()> body,
                            uint64_t* workspace_bytes, aclOpExecutor** executor, uint64_t more_workspace,
                            MayOverlap may_overlap) {
    if (!workspace_bytes) return refuse(name, std::string("workspaceSize") + kMustNotBeNull);
    if (!executor) return refuse(name, std::string("executor") + kMustNotBeNull);
    const std::string error = may_overlap == MayOverlap::kNo ? overlap_error(accesses) : "";
    if (!error.empty()) return refuse(name, error);
    *workspace_bytes = workspace_part(more_workspace);
    for (const MemoryAccess& access : accesses)
        if (!is_contiguous(access.shape, access.strides)) *workspace_bytes += workspace_part(packed_bytes(access));
    auto run = [body = std::move(body)](void*, uint64_t) {
        body();
        return int32_t(kSuccess);
    };
    *executor = keep_executor(std::unique_ptr<aclOpExecutor>(
        new aclOpExecutor{name, std::move(run), nullptr, std::move(accesses), *workspace_bytes}));
    return kSuccess;
}

// Returns 161001 for a NULL argument and 161002 for every other error of an argument (hicann/ops-math
// math/mul/op_api/aclnn_mul.cpp, CheckParams, and the same function of the other operators).
aclError refuse(const char* name, const std::string& reason) {
    const std::string ending = kMustNotBeNull;
    const bool is_null =
        reason.size() > ending.size() && reason.compare(reason.size() - ending.size(), ending.size(), ending) == 0;
    return fail(is_null ? kAclnnNullptr : kAclnnInvalidParam, std::string(name) + ": " + reason);
}

}  // namespace simulated_cann
