// Elementwise operations on tensors with any strides, with broadcasting and conversion, for the stand-ins of
// libopapi. Runs of elements of one dtype are converted to a compute type, processed, and written back.
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
};
int64_t dtype_bytes(int32_t dtype);  // 0: unknown
bool is_complex(int32_t dtype);
bool is_floating(int32_t dtype);

// Calls work(C{}) with the compute type of a dtype. float16 and bfloat16 are computed as float and rounded once when
// they are written, as in torch on the CPU. Integers and bool are computed as int64_t.
template <class Work>
void with_compute_type(int32_t dtype, Work work) {
    if (dtype == kComplex64) return work(std::complex<float>{});
    if (dtype == kComplex128) return work(std::complex<double>{});
    if (dtype == kDouble) return work(double{});
    return is_floating(dtype) ? work(float{}) : work(int64_t{});
}

// torch's promoted dtype of two arguments, by category and width. If only one argument has dimensions, the other one
// counts only by category.
int32_t promoted(int32_t a, bool a_has_dims, int32_t b, bool b_has_dims);

// An argument of a stand-in: a copy of the tensor, so that the handle may be destroyed, with its memory checked.
struct Operand {
    std::vector<int64_t> shape, strides;
    int32_t dtype = 0;
    char* first = nullptr;  // first element of the view

    int64_t count() const;
    int64_t step() const { return shape.empty() ? 1 : strides.back(); }  // stride along a run
    Operand broadcast_to(const std::vector<int64_t>& wanted) const;
};

// End of the message about a NULL argument. refused() selects its status by this text.
constexpr const char* kIsNull = " must not be null.";

// "" or the reason why the stand-in refuses the argument `what`; fills `out`.
std::string read_argument(const aclTensor* tensor, const char* what, Operand* out);
std::string read_argument(const aclScalar* scalar, const char* what);

// "" or the reason why `from` does not broadcast to `to`.
std::string broadcast_rule(const Operand& from, const Operand& to, const char* what);

// "" or the reason why `out` does not have the shape to which the inputs `a_name` and `b_name` broadcast.
std::string result_shape_rule(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                              const Operand& out);

constexpr int64_t kRun = 256;  // elements processed at a time

// Splits tensors of one shape into runs of up to kRun elements along the last dimension. `work` receives the length of
// a run and the address of its first element in each operand. The stride along a run is step().
void for_each_run(const std::vector<const Operand*>& operands,
                  const std::function<void(int64_t count, char* const* at)>& work);

// Load and store `count` elements with stride `stride`, and convert them as C++ does. Numbers other than zero become
// true, and complex numbers become their real part.
template <class C>
void load(int32_t dtype, const char* from, int64_t stride, int64_t count, C* to);
template <class C>
void store(int32_t dtype, char* to, int64_t stride, int64_t count, const C* from);

template <class C>
C scalar_as(const aclScalar& scalar) {
    C value{};
    load(scalar.dtype, reinterpret_cast<const char*>(scalar.value), 1, 1, &value);
    return value;
}

// The memory that a stand-in's body accesses.
MemoryAccess reads(const char* what, const Operand& operand);
MemoryAccess writes(const char* what, const Operand& operand);

// Ends the first phase: creates an executor with this body for a call that needs no workspace.
aclError prepared(const char* name, std::vector<MemoryAccess> accesses, std::function<void()> body,
                  uint64_t* workspace_bytes, aclOpExecutor** executor);
aclError refused(const char* name, const std::string& why);

}  // namespace simulated_cann

// The second phase is the same for every stand-in.
#define NPU_CANN_PHASE_TWO(name)                                                                                 \
    NPU_CANN_API aclError name(void* /*workspace*/, uint64_t /*bytes*/, aclOpExecutor* executor, void* stream) { \
        return simulated_cann::launch_stand_in(executor, stream);                                                \
    }
