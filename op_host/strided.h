// Which bytes a strided view touches: what the in-place and overlap rules are decided with.
#pragma once

#include <cstdint>

namespace npu_rope {

constexpr int kMaxDims = 4;

// A view: base address and byte strides. Dimensions of size 1 have no stride that matters.
struct StridedView {
    uintptr_t base = 0;
    int64_t item_bytes = 0;
    int ndim = 0;
    int64_t size[kMaxDims] = {};
    int64_t stride_bytes[kMaxDims] = {};
    bool empty() const;
};

// True where two different index tuples of the view surely name different bytes. Views whose
// strides nest (each at least the extent of the smaller ones) are decided exactly; others,
// which only as_strided makes, count as overlapping.
bool is_injective(const StridedView& v);

// True where a and b may touch a common byte. Exact for two views whose strides nest when taken
// together (slices of one buffer, of any sizes); by address range otherwise.
bool may_share_memory(const StridedView& a, const StridedView& b);

// True where a and b are element by element the same memory.
bool is_same_view(const StridedView& a, const StridedView& b);

}  // namespace npu_rope
