// Elementwise work on tensors of any strides, broadcast and converted: what the stand-ins of libopapi are
// made of. Elements are read in runs of one dtype into a compute type, worked on, and written back.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/launch.h"

namespace npu_cann {

// aclDataType, the ones that stand-ins know.
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
int64_t dtype_bytes(int32_t dtype);  // 0: not known
bool is_complex(int32_t dtype);
bool is_floating(int32_t dtype);

// The type that arithmetic is done in: float16 and bfloat16 in float, rounded once when written, as torch
// does on the CPU.
enum class Compute { kInteger, kFloat, kDouble, kComplexFloat, kComplexDouble };
Compute compute_of(int32_t dtype);

// The dtype torch computes these two in: the tensors' by category and width, where one without dimensions
// counts only by category.
int32_t promoted(int32_t a, bool a_has_dims, int32_t b, bool b_has_dims);

// An argument of a stand-in: the tensor by value, so that the handle may go, with its memory checked.
struct Operand {
    std::vector<int64_t> shape, strides;
    int32_t dtype = 0;
    char* first = nullptr;  // of the view

    int64_t count() const;
    Operand broadcast_to(const std::vector<int64_t>& wanted) const;
};

// How a sentence about an argument ends that is NULL: refused() gives it a status of its own.
constexpr const char* kIsNull = " must not be null.";

// "" or why the stand-in cannot take this; fills `out`. `what` names the argument.
std::string take(const aclTensor* tensor, const char* what, Operand* out);
std::string take(const aclScalar* scalar, const char* what);

// "" or why `from` does not broadcast to `to`: copies.
std::string broadcast_rule(const Operand& from, const Operand& to, const char* what);

// "" or why `out` does not have the shape that the inputs, named `a_name` and `b_name`, broadcast to.
std::string result_shape_rule(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                              const Operand& out);

template <class C>
C scalar_as(const aclScalar& scalar);

constexpr int64_t kRun = 256;  // elements worked on at a time

// Runs of up to kRun elements along the last dimension, in the output's order: `work` gets how many there
// are and each operand's address of the run's first element. Strides along the run are strides.back().
void for_each_run(const std::vector<const Operand*>& operands,
                  const std::function<void(int64_t count, char* const* at)>& work);

// `count` elements, `stride` elements apart, converted as C++ does (to bool: not zero; of a complex number
// that becomes a real one, the real part).
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

// The memory that a stand-in's body touches.
MemoryAccess reads(const char* what, const Operand& operand);
MemoryAccess writes(const char* what, const Operand& operand);

// Phase one's end: an executor with this body, for a call that needs no workspace.
aclError prepared(const char* name, std::vector<MemoryAccess> accesses, std::function<void()> body,
                  uint64_t* workspace_bytes, aclOpExecutor** executor);
aclError refused(const char* name, const std::string& why);

}  // namespace npu_cann

// Phase two of aclnn is the same for every stand-in.
#define NPU_CANN_PHASE_TWO(name)                                                                                 \
    NPU_CANN_API aclError name(void* /*workspace*/, uint64_t /*bytes*/, aclOpExecutor* executor, void* stream) { \
        return npu_cann::launch_stand_in(executor, stream);                                                      \
    }
