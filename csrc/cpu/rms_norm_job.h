// A call of rms_norm, rms_norm_backward or add_rms_norm on the CPU: what rms_norm.cpp and rms_norm_backward.cpp share.
#pragma once

#include <cstdint>
#include <cstring>

#include "csrc/core/rms_norm_check.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rms_norm_row.h"

namespace npu_rope {
namespace rms_norm {

// A checked call.
struct Job {
    const RmsNormShape& shape;
    RowFormat format;
    const char *x, *scale, *grad;
    char* out;
    StoreMode storing;               // of out
    const char* residual = nullptr;  // residual and sum: of add_rms_norm only
    char* sum = nullptr;
    bool stream_sum = false;   // store sum past the caches
    bool widen_scale = false;  // read a common scale of float16 as floats
};

// Calls f(j, offset) for each element j of a row. offset is the element's offset with these strides of the dimensions
// inside a row.
template <typename F>
void for_each_inner(const RmsNormShape& s, const int64_t* stride, F f) {
    int64_t j = 0;
    for (int64_t a = 0; a < s.inner[0]; ++a)
        for (int64_t b = 0; b < s.inner[1]; ++b)
            for (int64_t c = 0; c < s.inner[2]; ++c)
                for (int64_t d = 0; d < s.inner[3]; ++d)
                    f(j++, a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]);
}

// Returns the scale of a row as n contiguous elements: the scale itself, or a copy.
class ScaleRow {
public:
    struct Memory {
        Memory(const Job& job, PartMemory& memory)
            : row(job.shape.scale_is_dense ? nullptr : memory.take<char>(job.shape.n * job.format.scale_bytes)) {}
        char* row;
    };

    ScaleRow(const Job& job, const Memory& memory) : job_(job), gathered_(memory.row) {}

    const char* at(int64_t offset) {
        const char* from = job_.scale + offset * job_.format.scale_bytes;
        if (job_.shape.scale_is_dense) return from;
        if (from != gathered_from_) gather(from);
        return gathered_;
    }

private:
    void gather(const char* from) {
        const size_t bytes = static_cast<size_t>(job_.format.scale_bytes);
        for_each_inner(job_.shape, job_.shape.scale_inner_stride, [&](int64_t j, int64_t offset) {
            std::memcpy(gathered_ + static_cast<size_t>(j) * bytes, from + offset * job_.format.scale_bytes, bytes);
        });
        gathered_from_ = from;
    }

    const Job& job_;
    char* const gathered_;
    const char* gathered_from_ = nullptr;
};

// Computes the gradients of a checked call. dscale may be NULL: not needed.
void run_backward(const Job& job, char* dscale);

}  // namespace rms_norm
}  // namespace npu_rope
