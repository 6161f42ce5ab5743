#include "csrc/core/strided.h"

#include <algorithm>

namespace npu_rope {
namespace {

struct Dim {
    int64_t size, stride;
};

// Fills dims with the dimensions of more than one element, widest stride first. Strides become positive: *low, which is
// <= 0, is the offset of the lowest element from the base.
int widest_first(const StridedView& v, Dim* dims, int64_t* low) {
    int n = 0;
    *low = 0;
    for (int k = 0; k < v.ndim; ++k) {
        if (v.size[k] <= 1) continue;
        int64_t s = v.stride_bytes[k];
        if (s < 0) *low += (v.size[k] - 1) * s;
        dims[n++] = {v.size[k], s < 0 ? -s : s};
    }
    std::sort(dims, dims + n, [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
    return n;
}

// Whether each stride is at least the extent of the dimensions inside it.
bool nested(const Dim* dims, int n, int64_t item_bytes) {
    int64_t inner = item_bytes;
    for (int k = n - 1; k >= 0; --k) {
        if (dims[k].stride < inner) return false;
        inner = (dims[k].size - 1) * dims[k].stride + inner;
    }
    return true;
}

int64_t extent(const Dim* dims, int n, int64_t item_bytes) {
    int64_t e = item_bytes;
    for (int k = 0; k < n; ++k) e += (dims[k].size - 1) * dims[k].stride;
    return e;
}

// A stride that one or both of two views have, and each view's size along it; 1 if the view lacks it.
struct SharedDim {
    int64_t stride, size_a, size_b;
};

// Merges the strides of two views, widest first.
int merge(const Dim* a, int na, const Dim* b, int nb, SharedDim* both) {
    int n = 0;
    for (int i = 0, j = 0; i < na || j < nb;) {
        const bool from_a = i < na && (j >= nb || a[i].stride >= b[j].stride);
        const bool from_b = j < nb && (i >= na || b[j].stride >= a[i].stride);
        both[n++] = {from_a ? a[i].stride : b[j].stride, from_a ? a[i].size : 1, from_b ? b[j].size : 1};
        i += from_a;
        j += from_b;
    }
    return n;
}

// Whether an element of a and an element of b have a byte in common. delta is the first byte of b minus that of a.
// d[k], the index in a minus the index in b, satisfies -size_b < d[k] < size_a. Such elements exist if
// |delta - sum d[k]*stride[k]| < item_bytes for some d. With nested strides, only the two multiples next to delta are
// possible at each level.
bool reachable(const SharedDim* dims, int n, int64_t delta, int64_t item_bytes) {
    if (n == 0) return delta > -item_bytes && delta < item_bytes;
    int64_t q = delta / dims[0].stride;
    if (delta % dims[0].stride < 0) --q;
    for (int64_t d = q; d <= q + 1; ++d) {
        if (d <= -dims[0].size_b || d >= dims[0].size_a) continue;
        if (reachable(dims + 1, n - 1, delta - d * dims[0].stride, item_bytes)) return true;
    }
    return false;
}

}  // namespace

bool StridedView::empty() const {
    for (int k = 0; k < ndim; ++k)
        if (size[k] == 0) return true;
    return false;
}

bool is_injective(const StridedView& v) {
    if (v.empty()) return true;
    Dim dims[kMaxDims];
    int64_t low;
    int n = widest_first(v, dims, &low);
    return nested(dims, n, v.item_bytes);
}

bool may_share_memory(const StridedView& a, const StridedView& b) {
    if (a.empty() || b.empty()) return false;
    Dim da[kMaxDims], db[kMaxDims];
    int64_t low_a, low_b;
    int na = widest_first(a, da, &low_a), nb = widest_first(b, db, &low_b);
    auto first_a = static_cast<int64_t>(a.base) + low_a, first_b = static_cast<int64_t>(b.base) + low_b;
    if (first_a + extent(da, na, a.item_bytes) <= first_b) return false;
    if (first_b + extent(db, nb, b.item_bytes) <= first_a) return false;
    if (a.item_bytes != b.item_bytes) return true;
    SharedDim both[2 * kMaxDims];
    Dim widest[2 * kMaxDims];
    int n = merge(da, na, db, nb, both);
    for (int k = 0; k < n; ++k) widest[k] = {std::max(both[k].size_a, both[k].size_b), both[k].stride};
    if (!nested(widest, n, a.item_bytes)) return true;
    return reachable(both, n, first_b - first_a, a.item_bytes);
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
