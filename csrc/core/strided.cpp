#include "csrc/core/strided.h"

#include <algorithm>

namespace npu_rope {
namespace {

struct Dim {
    int64_t size, stride;
};

// Fills dims with the dimensions of more than one element, widest stride first, and returns their number. The strides
// in dims are positive.
int sort_dims(const StridedView& v, Dim* dims) {
    int n = 0;
    for (int k = 0; k < v.ndim; ++k) {
        if (v.size[k] <= 1) continue;
        const Dim dim = {v.size[k], v.stride_bytes[k] < 0 ? -v.stride_bytes[k] : v.stride_bytes[k]};
        int at = n++;
        for (; at > 0 && dims[at - 1].stride < dim.stride; --at) dims[at] = dims[at - 1];  // most views are in order
        dims[at] = dim;
    }
    return n;
}

// Whether each stride is at least the extent in bytes of the dimensions after it, which have smaller strides.
bool is_nested(const Dim* dims, int n, int64_t item_bytes) {
    int64_t inner = item_bytes;
    for (int k = n - 1; k >= 0; --k) {
        int64_t span;
        if (dims[k].stride < inner || __builtin_mul_overflow(dims[k].size - 1, dims[k].stride, &span) ||
            __builtin_add_overflow(inner, span, &inner))
            return false;
    }
    return true;
}

// The addresses of a view: of its first byte, and behind its last one. Those of an empty view are meaningless.
struct AddressRange {
    int64_t first, end;
    explicit AddressRange(const StridedView& v)
        : first(static_cast<int64_t>(v.base)), end(static_cast<int64_t>(v.base) + v.item_bytes) {
        for (int k = 0; k < v.ndim; ++k) {
            const int64_t span = (v.size[k] - 1) * v.stride_bytes[k];
            (span < 0 ? first : end) += span;
        }
    }
};

// A stride that at least one of views a and b has, and the size of each view along it, which is 1 if the view does not
// have the stride.
struct MergedDim {
    int64_t stride, size_a, size_b;
};

// Merges the strides of two views, widest first, and returns their number.
int merge(const Dim* a, int count_a, const Dim* b, int count_b, MergedDim* both) {
    int n = 0;
    for (int i = 0, j = 0; i < count_a || j < count_b;) {
        const bool from_a = i < count_a && (j >= count_b || a[i].stride >= b[j].stride);
        const bool from_b = j < count_b && (i >= count_a || b[j].stride >= a[i].stride);
        both[n++] = {from_a ? a[i].stride : b[j].stride, from_a ? a[i].size : 1, from_b ? b[j].size : 1};
        i += from_a;
        j += from_b;
    }
    return n;
}

// Whether an element of a and an element of b have a byte in common. distance: from the first byte of a to that of b.
// Let d[k] be an element's index in a minus the other's index in b, so that -size_b < d[k] < size_a. Two such elements
// exist if |distance - sum of d[k] * stride[k]| < item_bytes for some d. With nested strides, only the two multiples of
// the widest stride that are next to the distance are possible, so the function tries both and recurses.
bool have_common_byte(const MergedDim* dims, int n, int64_t distance, int64_t item_bytes) {
    if (n == 0) return distance > -item_bytes && distance < item_bytes;
    int64_t quotient = distance / dims[0].stride;
    if (distance % dims[0].stride < 0) --quotient;
    for (int64_t d = quotient; d <= quotient + 1; ++d) {
        if (d <= -dims[0].size_b || d >= dims[0].size_a) continue;
        if (have_common_byte(dims + 1, n - 1, distance - d * dims[0].stride, item_bytes)) return true;
    }
    return false;
}

}  // namespace

bool is_injective(const StridedView& v) {
    if (v.empty()) return true;
    Dim dims[kMaxDims];
    const int n = sort_dims(v, dims);
    return is_nested(dims, n, v.item_bytes);
}

bool may_share_memory(const StridedView& a, const StridedView& b) {
    const AddressRange range_a(a), range_b(b);
    if (range_a.end <= range_b.first || range_b.end <= range_a.first || a.empty() || b.empty()) return false;
    if (a.item_bytes != b.item_bytes) return true;
    Dim dims_a[kMaxDims], dims_b[kMaxDims];
    const int count_a = sort_dims(a, dims_a), count_b = sort_dims(b, dims_b);
    MergedDim both[2 * kMaxDims];
    Dim widest[2 * kMaxDims];
    int n = merge(dims_a, count_a, dims_b, count_b, both);
    for (int k = 0; k < n; ++k) widest[k] = {std::max(both[k].size_a, both[k].size_b), both[k].stride};
    if (!is_nested(widest, n, a.item_bytes)) return true;
    return have_common_byte(both, n, range_b.first - range_a.first, a.item_bytes);
}

bool is_same_view(const StridedView& a, const StridedView& b) {
    if (a.base != b.base || a.ndim != b.ndim || a.item_bytes != b.item_bytes) return false;
    for (int k = 0; k < a.ndim; ++k) {
        if (a.size[k] != b.size[k]) return false;
        if (a.size[k] > 1 && a.stride_bytes[k] != b.stride_bytes[k]) return false;
    }
    return true;
}

}  // namespace npu_rope
