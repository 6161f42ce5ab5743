// Elementwise operations for the stand-ins of libopapi: tensors with any strides, broadcasting, conversion of types.
// Each run of elements is converted to a compute type, processed, and written back.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cann/runtime/api.h"

namespace simulated_cann {

// The values of aclDataType that the stand-ins support.
enum Dtype : int32_t {
    kFloat = 0,
    kFloat16 = 1,
    kInt8 = 2,
    kInt32 = 3,
    kUint8 = 4,
    kInt16 = 6,
    kUint16 = 7,
    kUint32 = 8,
    kInt64 = 9,
    kUint64 = 10,
    kDouble = 11,
    kBool = 12,
    kComplex64 = 16,
    kComplex128 = 17,
    kBfloat16 = 27,
    kInt4 = 29,  // two elements in a byte; only weights have it (packed_weight.h)
};
// The values of aclFormat that a rule names.
enum Format : int32_t { kNchw = 0, kNhwc = 1, kNd = 2, kHwcn = 16, kNdhwc = 27, kNcl = 47 };
int64_t dtype_bytes(int32_t dtype);  // 0 if the dtype is not supported
bool is_complex(int32_t dtype);
bool is_floating(int32_t dtype);
bool is_contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
std::string shape_text(const std::vector<int64_t>& shape);  // such as "[2,3]"
// Returns "" or the reason why a shape has a negative size or too many bytes for int64. Sizes of 0 do not count.
std::string size_error(const std::string& name, const std::vector<int64_t>& shape, int64_t item_bytes);

// Calls work(Compute{}) with the compute type of a dtype. float16 and bfloat16 are computed as float and rounded once
// when they are written, as in torch on the CPU. Integers and bool are computed as int64_t.
template <class Work>
void call_with_compute_type(int32_t dtype, Work work) {
    if (dtype == kComplex64) return work(std::complex<float>{});
    if (dtype == kComplex128) return work(std::complex<double>{});
    if (dtype == kDouble) return work(double{});
    return is_floating(dtype) ? work(float{}) : work(int64_t{});
}

// Converts integers to unsigned ones, whose arithmetic wraps in two's complement. Returns other types unchanged.
template <class Compute>
constexpr auto to_wrapping(Compute value) {
    if constexpr (std::is_integral_v<Compute>)
        return uint64_t(value);
    else
        return value;
}

// Returns the dtype to which torch promotes two arguments. If only one argument has dimensions, it determines the dtype
// unless the other one has a higher category (bool, integer, floating-point, complex).
int32_t promoted_dtype(int32_t first, bool first_has_dims, int32_t second, bool second_has_dims);

// A tensor argument of a stand-in, whose memory was checked. It is a copy, because the caller may destroy the
// aclTensor.
struct Operand {
    std::vector<int64_t> shape, strides;
    int32_t dtype = 0;
    char* first = nullptr;  // first element of the view

    int64_t count() const;
    int64_t run_stride() const { return shape.empty() ? 1 : strides.back(); }  // stride along a run
    Operand broadcast_to(const std::vector<int64_t>& target_shape) const;
};

// End of the message about a NULL argument. refuse() recognizes such a message by this text.
constexpr const char* kMustNotBeNull = " must not be null.";

// Returns "" or the reason why the stand-in refuses the argument. Fills `out`.
std::string read_argument(const aclTensor* tensor, const char* argument_name, Operand* out);
std::string read_argument(const aclScalar* scalar, const char* argument_name);

// Returns "" or the reason why `from` does not broadcast to `to`.
std::string broadcast_error(const Operand& from, const Operand& to, const char* argument_name);

// Returns "" or the reason why `out` does not have the shape to which the inputs `a` and `b` broadcast.
std::string result_shape_error(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                               const Operand& out);

constexpr int64_t kMaxRunElements = 256;  // elements processed at a time

// Splits tensors of one shape, in row-major order, into runs of up to kMaxRunElements elements. A run goes on in the
// next row if the stride stays the same in all operands. `work` receives the length of a run and the address of its
// first element in each operand. The stride along a run is run_stride().
void for_each_run(const std::vector<const Operand*>& operands,
                  const std::function<void(int64_t count, char* const* addresses)>& work);

// Load and store `count` elements, and convert them as C++ does. `stride` is in elements. A conversion to bool gives
// true for every number except zero. A conversion from complex to real gives the real part.
template <class Compute>
void load(int32_t dtype, const char* from, int64_t stride, int64_t count, Compute* to);
template <class Compute>
void store(int32_t dtype, char* to, int64_t stride, int64_t count, const Compute* from);

// Load and store one element.
template <class Compute>
Compute load_one(int32_t dtype, const char* from);
template <class Compute>
void store_one(int32_t dtype, char* to, Compute value);

// Copies all elements to a packed array of the compute type, or back from it.
template <class Compute>
std::vector<Compute> values_of(const Operand& operand);
template <class Compute>
void set_values(const Operand& operand, const std::vector<Compute>& values);

// Rounds values to a type, as an intermediate tensor of that type does.
template <class Compute>
void round_to(int32_t dtype, std::vector<Compute>* values) {
    std::vector<char> stored(values->size() * static_cast<size_t>(dtype_bytes(dtype)));
    store(dtype, stored.data(), 1, static_cast<int64_t>(values->size()), values->data());
    load(dtype, stored.data(), 1, static_cast<int64_t>(values->size()), values->data());
}

template <class Compute>
Compute rounded_to(int32_t dtype, Compute value) {
    alignas(16) char stored[16];  // the size of complex128, the largest dtype
    store_one(dtype, stored, value);
    return load_one<Compute>(dtype, stored);
}

// The value of a scalar in a compute type.
template <class Compute>
Compute scalar_as(const aclScalar& scalar) {
    return load_one<Compute>(scalar.dtype, reinterpret_cast<const char*>(scalar.value));
}

// Describe memory that the body of a stand-in reads or writes.
MemoryAccess read_access(const char* argument_name, const Operand& operand);
MemoryAccess write_access(const char* argument_name, const Operand& operand);

// Whether an output may share memory with another argument. kNo still allows an output that is the same view as an
// input.
enum class MayOverlap { kNo, kYes };

// Ends the first phase: creates an executor. The second phase queues its body. The workspace has room for
// `more_workspace` bytes and for the packed copies that CANN makes of operands that are not contiguous (hicann/opbase
// src/nnopbase/composite_op/aclnn_engine/op_executor.cpp, aclOpExecutor::GetWorkspaceSize).
aclError finish_first_phase(const char* name, std::vector<MemoryAccess> accesses, std::function<void()> body,
                            uint64_t* workspace_bytes, aclOpExecutor** executor, uint64_t more_workspace = 0,
                            MayOverlap may_overlap = MayOverlap::kNo);
// Ends the first phase with an error: sets its text and returns its status.
aclError refuse(const char* name, const std::string& reason);

}  // namespace simulated_cann

// Defines the second phase, which is the same for every stand-in.
#define NPU_CANN_SECOND_PHASE(name)                                                                      \
    NPU_CANN_API aclError name(void* workspace, uint64_t bytes, aclOpExecutor* executor, void* stream) { \
        return simulated_cann::launch_stand_in(#name, workspace, bytes, executor, stream);               \
    }
