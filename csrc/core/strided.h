// Find out whether strided views share memory, for the rules about calls in place and about overlap.
#pragma once

#include <cstdint>

namespace npu_rope {

constexpr int kMaxDims = 4;

// A view: base address and byte strides. The strides of dimensions of size 1 are ignored.
struct StridedView {
    uintptr_t base = 0;
    int64_t item_bytes = 0;
    int ndim = 0;
    int64_t size[kMaxDims] = {};
    int64_t stride_bytes[kMaxDims] = {};
    bool empty() const {
        for (int k = 0; k < ndim; ++k)
            if (size[k] == 0) return true;
        return false;
    }
};

// Whether the dimensions from `first` on are contiguous. Strides of dimensions of size 1 are ignored.
inline bool is_dense_from(int64_t first, int64_t ndim, const int64_t* size, const int64_t* stride) {
    int64_t expected = 1;
    for (int64_t k = ndim - 1; k >= first; --k) {
        if (size[k] > 1 && stride[k] != expected) return false;
        expected *= size[k];
    }
    return true;
}

// Whether all elements of the view have different bytes. The result is exact for nested strides: each stride is at
// least the extent of the dimensions with smaller strides. Other views, as torch's expand and as_strided make them,
// give false.
bool is_injective(const StridedView& v);

// Whether a and b may have a byte in common. The result is exact if their elements have the same size and the strides
// of both views together are nested, as those of slices of one buffer are. Otherwise the result depends on the address
// ranges only.
bool may_share_memory(const StridedView& a, const StridedView& b);

// Whether each element of a has the same memory as the element of b with the same indices.
bool is_same_view(const StridedView& a, const StridedView& b);

}  // namespace npu_rope
