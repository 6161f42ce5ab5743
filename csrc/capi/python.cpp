// Call operators on small NumPy arrays, for the Python package only. A decode-sized call on arrays that are described
// in Python takes five times as long.
//
// The functions take Python objects and are called with the interpreter's lock. They read an object through the buffer
// protocol, whose two functions and whose struct are part of Python's stable ABI from 3.11 on and are the same in 3.10
// (docs.python.org, "Buffer Protocol"). Therefore they need neither Python's headers nor a library for each version.
// A call that such a function cannot run is refused, and nothing is written. The caller then takes the usual path,
// which runs the call or reports its error.
#include <cstddef>
#include <cstring>

#include "csrc/capi/common.h"
#include "csrc/core/dtype.h"

namespace npu_rope {
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

struct Python {
    int (*get_buffer)(void* object, Buffer* buffer, int flags);
    void (*release_buffer)(Buffer* buffer);
    void* none;
};
Python g_python = {};

// Larger arrays take the usual path, which releases the interpreter's lock.
constexpr ptrdiff_t kMostBytes = 256 << 10;
constexpr npu_rope_status kRefused = NPU_ROPE_INVALID_VALUE;  // of a call without small arrays only

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

// The arrays of a call. None is an absent one.
template <size_t N>
class Arrays {
public:
    // outputs: the number of the last objects that are written. Each object is an array or None.
    Arrays(void* const (&objects)[N], size_t outputs) {
        for (size_t k = 0; k < N && is_small_; ++k)
            if (objects[k] != g_python.none) is_small_ = read(objects[k], k, k + outputs < N ? kRead : kWrite);
    }
    ~Arrays() {
        for (Buffer& buffer : buffers_)
            if (buffer.owner) g_python.release_buffer(&buffer);
    }
    Arrays(const Arrays&) = delete;
    Arrays& operator=(const Arrays&) = delete;

    bool is_small() const { return is_small_; }
    const npu_rope_tensor* operator[](size_t k) const { return buffers_[k].owner ? &tensors_[k] : nullptr; }

private:
    bool read(void* object, size_t k, int flags) {
        Buffer& buffer = buffers_[k];
        if (g_python.get_buffer(object, &buffer, flags) != 0) {
            buffer.owner = nullptr;
            return false;  // ctypes raises Python's error
        }
        if (buffer.ndim > NPU_ROPE_MAX_NDIM || buffer.bytes > kMostBytes) return false;
        npu_rope_tensor& t = tensors_[k];
        t.data = buffer.data;
        t.dtype = dtype_of(buffer);
        t.ndim = buffer.ndim;
        if (t.dtype < 0) return false;
        for (int d = 0; d < t.ndim; ++d) {
            if (buffer.strides[d] % buffer.item_bytes != 0) return false;
            t.shape[d] = buffer.shape[d];
            t.stride[d] = buffer.strides[d] / buffer.item_bytes;
        }
        return true;
    }

    Buffer buffers_[N] = {};
    npu_rope_tensor tensors_[N] = {};
    bool is_small_ = true;
};

}  // namespace
}  // namespace npu_rope

extern "C" {

// Gives the functions PyObject_GetBuffer and PyBuffer_Release, and the object None.
NPU_ROPE_API void npu_rope_python_use(void* get_buffer, void* release_buffer, void* none) {
    using namespace npu_rope;
    g_python = {reinterpret_cast<decltype(g_python.get_buffer)>(get_buffer),
                reinterpret_cast<decltype(g_python.release_buffer)>(release_buffer), none};
}

NPU_ROPE_API npu_rope_status npu_rope_python_rope(void* x, void* positions, void* freq_factors,
                                                  const npu_rope_params* params, int32_t forward, npu_rope_angle angle,
                                                  void* out) {
    const npu_rope::Arrays<4> a({x, positions, freq_factors, out}, 1);
    return a.is_small() ? npu_rope_rope(a[0], a[1], a[2], params, forward, angle, a[3]) : npu_rope::kRefused;
}

NPU_ROPE_API npu_rope_status npu_rope_python_rope_qk(void* q, void* k, void* positions, void* freq_factors,
                                                     const npu_rope_params* params, int32_t forward,
                                                     npu_rope_angle angle, void* q_out, void* k_out) {
    const npu_rope::Arrays<6> a({q, k, positions, freq_factors, q_out, k_out}, 2);
    return a.is_small() ? npu_rope_rope_qk(a[0], a[1], a[2], a[3], params, forward, angle, a[4], a[5])
                        : npu_rope::kRefused;
}

NPU_ROPE_API npu_rope_status npu_rope_python_rotary_mul(void* x, void* cos, void* sin, int32_t interleaved,
                                                        int64_t rotary_dim, int64_t offset, int32_t forward,
                                                        void* out) {
    const npu_rope::Arrays<4> a({x, cos, sin, out}, 1);
    return a.is_small() ? npu_rope_rotary_mul(a[0], a[1], a[2], interleaved, rotary_dim, offset, forward, a[3])
                        : npu_rope::kRefused;
}

NPU_ROPE_API npu_rope_status npu_rope_python_rms_norm(void* x, void* scale, int64_t axis, double epsilon,
                                                      int64_t stash_type, void* out) {
    const npu_rope::Arrays<3> a({x, scale, out}, 1);
    return a.is_small() ? npu_rope_rms_norm(a[0], a[1], axis, epsilon, stash_type, a[2]) : npu_rope::kRefused;
}

NPU_ROPE_API npu_rope_status npu_rope_python_rms_norm_rope(void* q, void* k, void* q_scale, void* k_scale,
                                                           void* positions, void* freq_factors,
                                                           const npu_rope_params* params, double epsilon,
                                                           int32_t intermediate_rounding, npu_rope_angle angle,
                                                           void* q_out, void* k_out) {
    const npu_rope::Arrays<8> a({q, k, q_scale, k_scale, positions, freq_factors, q_out, k_out}, 2);
    return a.is_small() ? npu_rope_rms_norm_rope(a[0], a[1], a[2], a[3], a[4], a[5], params, epsilon,
                                                 intermediate_rounding, angle, a[6], a[7])
                        : npu_rope::kRefused;
}

}  // extern "C"
