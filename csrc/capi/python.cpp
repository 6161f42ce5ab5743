// Call operators on small NumPy arrays and on small torch tensors of the CPU, for the Python package only. A call takes
// a third or less of the time of a decode-sized call through ctypes or through torch's operators.
//
// The calls are Python functions that take Python objects and have the interpreter's lock. They read an array through
// the buffer protocol (docs.python.org, "Buffer Protocol"), and a torch tensor through DLPack's exchange interface
// (github.com/dmlc/dlpack, include/dlpack/dlpack.h, DLPackExchangeAPI; pytorch/pytorch#169724). All functions and
// structs of Python that are used here are part of its stable ABI from 3.11 on and are the same in 3.10. Therefore this
// file needs neither Python's headers nor a library for each version of Python or of torch.
//
// A call that such a function cannot run is refused, and nothing is written. The caller then takes the usual path,
// which runs the call or reports its error.
#include <cstddef>
#include <cstring>

#include "csrc/capi/common.h"
#include "csrc/core/dtype.h"
#include "csrc/core/packed_attributes.h"

namespace npu_rope::python_calls {
namespace {

// Py_buffer of Python's pybuffer.h.
struct Buffer {
    void* data;
    void* owner;
    ptrdiff_t bytes, item_bytes;
    int readonly, ndim;
    char* format;
    ptrdiff_t *shape, *strides, *suboffsets;
    void* internal;
};
// PyBUF_FORMAT | PyBUF_STRIDES, and PyBUF_WRITABLE
constexpr int kRead = 0x4 | 0x18, kWrite = kRead | 0x1;

// PyMethodDef of Python's methodobject.h, with the flag METH_FASTCALL.
using Function = void* (*)(void* self, void* const* arguments, ptrdiff_t count);
struct Method {
    const char* name;
    Function function;
    int flags;
    const char* documentation;
};
constexpr int kFastCall = 0x80;

// DLTensor and DLPackExchangeAPI of dlpack.h, version 1. Only the first member of a version's struct is the same in all
// versions; older versions follow as a list.
struct DlTensor {
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct DlExchange {
    uint32_t major_version, minor_version;
    const DlExchange* older;
    void *allocate, *export_managed, *import_managed;
    int (*export_tensor)(void* object, DlTensor* tensor);  // may be NULL
    void* current_stream;
};
constexpr uint32_t kDlVersion = 1;
constexpr int32_t kDlCpu = 1;
enum DlTypeCode : uint8_t { kDlInt = 0, kDlFloat = 2, kDlBfloat = 4 };

// Python's functions and objects. The Python package passes them.
struct Python {
    int (*get_buffer)(void* object, Buffer* buffer, int flags);
    void (*release_buffer)(Buffer* buffer);
    int (*get_bytes)(void* object, char** bytes, ptrdiff_t* count);
    void* (*new_function)(Method* method, void* self, void* module);
    void (*add_reference)(void* object);
    void (*drop_reference)(void* object);
    void* (*call)(void* function);
    void* (*call_on)(void* function, ...);  // objects, and NULL after the last
    int (*is_true)(void* object);
    void (*clear_error)();
    void *none, *true_object, *false_object;
};
Python g_python = {};

// Takes the result of a function of Python. Returns whether it is a true object, or an error.
bool answers_true(void* result) {
    if (result == g_python.false_object || result == g_python.none) {
        g_python.drop_reference(result);
        return false;
    }
    const int answer = result ? g_python.is_true(result) : -1;
    if (result) g_python.drop_reference(result);
    if (answer < 0) g_python.clear_error();
    return answer != 0;
}

// torch's interface for tensors, the function torch.Tensor.is_neg, and functions of torch that return a false object
// unless a part of torch, such as a profiler, has to see each call.
const DlExchange* g_exchange = nullptr;
void* g_is_negative = nullptr;
constexpr size_t kMostWatchers = 8;
void* g_watchers[kMostWatchers] = {};

// Larger tensors take the usual path, which releases the interpreter's lock. Positions have a limit of their own,
// because the sines of a token can take longer than its rotation.
constexpr int64_t kMostBytes = 512 << 10, kMostIndexBytes = 2 << 10;

int64_t most_bytes(int32_t dtype) {
    return dtype == NPU_ROPE_INT32 || dtype == NPU_ROPE_INT64 ? kMostIndexBytes : kMostBytes;
}

// ---- arrays and tensors -----------------------------------------------------------------------------

// Returns the type of a buffer's elements in the machine's byte order, or -1. struct's characters: docs.python.org.
int32_t dtype_of(const Buffer& buffer) {
    const char *formats = "fe?dilb", *format = buffer.format;  // by npu_rope_dtype; NumPy has no bfloat16
    if (*format == '@' || *format == '=') ++format;
    if (std::strlen(format) != 1 || *format == '?') return -1;
    const char* found = std::strchr(formats, *format == 'q' ? 'l' : *format);
    if (!found) return -1;
    const auto dtype = static_cast<int32_t>(found - formats);
    return buffer.item_bytes == dtype_bytes(dtype) ? dtype : -1;
}

// A NumPy array, whose buffer this object holds.
class Array {
public:
    static constexpr bool kAsksForWriting = true;  // read() fails for an output that is read-only

    Array() = default;
    Array(const Array&) = delete;
    ~Array() {
        if (buffer_.owner) g_python.release_buffer(&buffer_);
    }

    // Fills *t. Returns false for an array that is refused.
    bool read(void* object, bool is_output, npu_rope_tensor* t) {
        if (g_python.get_buffer(object, &buffer_, is_output ? kWrite : kRead) != 0) {
            buffer_.owner = nullptr;
            g_python.clear_error();
            return false;
        }
        t->data = buffer_.data;
        t->dtype = dtype_of(buffer_);
        t->ndim = buffer_.ndim;
        if (t->dtype < 0 || t->ndim > NPU_ROPE_MAX_NDIM || buffer_.bytes > most_bytes(t->dtype)) return false;
        for (int d = 0; d < t->ndim; ++d) {
            if (buffer_.strides[d] % buffer_.item_bytes != 0) return false;
            t->shape[d] = buffer_.shape[d];
            t->stride[d] = buffer_.strides[d] / buffer_.item_bytes;
        }
        return true;
    }

    static bool is_watched() { return false; }

private:
    Buffer buffer_ = {};
};

int32_t dtype_of(const DlTensor& tensor) {
    if (tensor.type_lanes != 1) return -1;
    switch (tensor.type_code << 8 | tensor.type_bits) {
        case kDlFloat << 8 | 32:
            return NPU_ROPE_FLOAT32;
        case kDlFloat << 8 | 16:
            return NPU_ROPE_FLOAT16;
        case kDlBfloat << 8 | 16:
            return NPU_ROPE_BFLOAT16;
        case kDlFloat << 8 | 64:
            return NPU_ROPE_FLOAT64;
        case kDlInt << 8 | 32:
            return NPU_ROPE_INT32;
        case kDlInt << 8 | 64:
            return NPU_ROPE_INT64;
        default:
            return -1;
    }
}

// A torch tensor, which the caller's reference keeps alive. The caller has excluded subclasses. The elements of a
// tensor with the negative bit are not those in its memory.
class Tensor {
public:
    static constexpr bool kAsksForWriting = false;

    bool read(void* object, bool /*is_output*/, npu_rope_tensor* t) {
        DlTensor tensor;
        if (answers_true(g_python.call_on(g_is_negative, object, nullptr))) return false;
        if (g_exchange->export_tensor(object, &tensor) != 0) {
            g_python.clear_error();
            return false;
        }
        if (tensor.device_type != kDlCpu || tensor.ndim > NPU_ROPE_MAX_NDIM) return false;
        t->data = static_cast<char*>(tensor.data) + tensor.byte_offset;
        t->dtype = dtype_of(tensor);
        t->ndim = tensor.ndim;
        if (t->dtype < 0 || (t->ndim > 0 && !tensor.strides)) return false;
        int64_t bytes = dtype_bytes(t->dtype);
        const int64_t most = most_bytes(t->dtype);
        for (int d = 0; d < t->ndim; ++d) {
            t->shape[d] = tensor.shape[d];
            t->stride[d] = tensor.strides[d];
            if (__builtin_mul_overflow(bytes, t->shape[d], &bytes) || bytes > most) return false;
        }
        return true;
    }

    // Returns whether torch has to see calls.
    static bool is_watched() {
        for (void* watcher : g_watchers)
            if (watcher && answers_true(g_python.call(watcher))) return true;
        return false;
    }
};

// ---- operators --------------------------------------------------------------------------------------

// A call's tensors, outputs last. NULL is an absent one.
template <size_t N>
using Tensors = const npu_rope_tensor* const (&)[N];

npu_rope_status run(const PackedRope& a, Tensors<4> t) {
    return npu_rope_rope(t[0], t[1], t[2], &a.params, a.forward, a.angle, t[3]);
}
npu_rope_status run(const PackedRope& a, Tensors<6> t) {
    return npu_rope_rope_qk(t[0], t[1], t[2], t[3], &a.params, a.forward, a.angle, t[4], t[5]);
}
npu_rope_status run(const PackedTables& a, Tensors<4> t) {
    return npu_rope_rotary_mul(t[0], t[1], t[2], a.interleaved, a.rotary_dim, a.offset, a.forward, t[3]);
}
npu_rope_status run(const PackedNorm& a, Tensors<3> t) {
    return npu_rope_rms_norm(t[0], t[1], a.axis, a.epsilon, a.stash_type, t[2]);
}
npu_rope_status run(const PackedNorm& a, Tensors<5> t) {
    return npu_rope_add_rms_norm(t[0], t[1], t[2], a.axis, a.epsilon, a.stash_type, t[3], t[4]);
}
npu_rope_status run(const PackedNormRope& a, Tensors<8> t) {
    return npu_rope_rms_norm_rope(t[0], t[1], t[2], t[3], t[4], t[5], &a.params, a.epsilon, a.intermediate_rounding,
                                  a.angle, t[6], t[7]);
}

// Runs a call of Python: function(attributes, tensor...). The last kOutputs of kTensors tensors are written.
template <class Attributes, size_t kTensors, size_t kOutputs, class Object>
bool runs(void* const* arguments) {
    if (Object::is_watched()) return false;
    char* bytes;
    ptrdiff_t count;
    if (g_python.get_bytes(arguments[0], &bytes, &count) != 0) {
        g_python.clear_error();
        return false;
    }
    Attributes attributes;
    if (count != ptrdiff_t{sizeof attributes}) return false;
    std::memcpy(&attributes, bytes, sizeof attributes);
    Object objects[kTensors];
    npu_rope_tensor memory[kTensors];
    const npu_rope_tensor* tensors[kTensors] = {};
    for (size_t k = 0; k < kTensors; ++k) {
        if (arguments[1 + k] == g_python.none) continue;
        // An object that is passed twice has one struct, so that the library checks its memory once.
        size_t same = 0;
        while (arguments[1 + same] != arguments[1 + k]) ++same;
        const bool is_read = same < k && !Object::kAsksForWriting;
        if (!is_read && !objects[k].read(arguments[1 + k], k + kOutputs >= kTensors, &memory[k])) return false;
        tensors[k] = &memory[same];
    }
    return run(attributes, tensors) == NPU_ROPE_OK;
}

template <class Attributes, size_t kTensors, size_t kOutputs, class Object>
void* function(void* /*self*/, void* const* arguments, ptrdiff_t count) {
    const bool done = count == 1 + kTensors && runs<Attributes, kTensors, kOutputs, Object>(arguments);
    void* const result = done ? g_python.true_object : g_python.false_object;
    g_python.add_reference(result);
    return result;
}

template <class Attributes, size_t kTensors, size_t kOutputs>
struct Methods {
    Method methods[2];  // for arrays, for tensors
    explicit constexpr Methods(const char* name)
        : methods{{name, function<Attributes, kTensors, kOutputs, Array>, kFastCall, nullptr},
                  {name, function<Attributes, kTensors, kOutputs, Tensor>, kFastCall, nullptr}} {}
};
Methods<PackedRope, 4, 1> g_rope("rope");
Methods<PackedRope, 6, 2> g_rope_qk("rope_qk");
Methods<PackedTables, 4, 1> g_rotary_mul("rotary_mul");
Methods<PackedNorm, 3, 1> g_rms_norm("rms_norm");
Methods<PackedNorm, 5, 2> g_add_rms_norm("add_rms_norm");
Methods<PackedNormRope, 8, 2> g_rms_norm_rope("rms_norm_rope");

}  // namespace
}  // namespace npu_rope::python_calls

extern "C" {

// Gives Python's functions and objects, in the order of the struct Python.
NPU_ROPE_API void npu_rope_python_use(void* const* functions_and_objects) {
    std::memcpy(&npu_rope::python_calls::g_python, functions_and_objects, sizeof npu_rope::python_calls::g_python);
}

// Gives the struct in torch.Tensor's capsule, torch.Tensor.is_neg and the functions of g_watchers. Returns whether this
// library can read tensors by the struct.
NPU_ROPE_API int32_t npu_rope_python_use_torch(const void* exchange, void* is_negative, void* const* watchers,
                                               size_t count) {
    using namespace npu_rope::python_calls;
    const auto* found = static_cast<const DlExchange*>(exchange);
    while (found && found->major_version != kDlVersion) found = found->older;
    if (!found || !found->export_tensor || count > kMostWatchers) return 0;
    g_exchange = found;
    g_is_negative = is_negative;
    // Objects call the library until the process ends, after Python has cleared its modules.
    g_python.add_reference(is_negative);
    for (size_t k = 0; k < count; ++k) g_python.add_reference(g_watchers[k] = watchers[k]);
    return 1;
}

// Returns a new Python function for an operator on arrays, or on tensors. NULL if the operator has none, or with
// Python's error.
NPU_ROPE_API void* npu_rope_python_function(const char* op, int32_t on_tensors) {
    using namespace npu_rope::python_calls;
    for (Method* methods : {g_rope.methods, g_rope_qk.methods, g_rotary_mul.methods, g_rms_norm.methods,
                            g_add_rms_norm.methods, g_rms_norm_rope.methods})
        if (std::strcmp(op, methods->name) == 0)
            return g_python.new_function(&methods[on_tensors != 0], nullptr, nullptr);
    return nullptr;
}

}  // extern "C"
