#include "simulator/cann/host/device_view.h"

#include <algorithm>
#include <cstring>

namespace npu_cann {
namespace {

// Calls visit(offset) with the byte offset of every element.
template <typename Visit>
void each_element(const DeviceView& v, Visit visit) {
    std::vector<int64_t> index(v.shape.size(), 0);
    if (v.empty()) return;
    for (;;) {
        int64_t offset = 0;
        for (size_t d = 0; d < index.size(); ++d) offset += index[d] * v.strides[d];
        visit(offset * v.item_bytes);
        size_t d = index.size();
        while (d > 0 && ++index[d - 1] == v.shape[d - 1]) index[--d] = 0;
        if (d == 0) return;
    }
}

}  // namespace

bool DeviceView::find_span() {
    int64_t below = 0, above = item_bytes;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] < 0) return false;
        if (shape[d] == 0) {
            low = high = first;
            return true;
        }
        int64_t reach;
        if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach)) return false;
        if (__builtin_mul_overflow(reach, item_bytes, &reach)) return false;
        int64_t& side = reach < 0 ? below : above;
        if (__builtin_add_overflow(side, reach, &side)) return false;
    }
    low = first + below;
    high = first + above;
    return true;
}

bool DeviceView::contiguous() const {
    if (empty()) return true;
    int64_t expected = 1;
    for (size_t d = shape.size(); d-- > 0;) {
        if (shape[d] != 1 && strides[d] != expected) return false;
        expected *= shape[d];
    }
    return true;
}

bool DeviceView::same_as(const DeviceView& other) const {
    if (first != other.first || item_bytes != other.item_bytes || shape != other.shape) return false;
    for (size_t d = 0; d < shape.size(); ++d)
        if (shape[d] != 1 && strides[d] != other.strides[d]) return false;
    return true;
}

bool DeviceView::shares_memory_with(const DeviceView& other) const {
    char *from = std::max(low, other.low), *to = std::min(high, other.high);
    if (from >= to) return false;
    std::vector<bool> mine(static_cast<size_t>(to - from));
    auto in_both = [&](char* byte) { return byte >= from && byte < to; };
    each_element(*this, [&](int64_t offset) {
        for (char* b = first + offset; b < first + offset + item_bytes; ++b)
            if (in_both(b)) mine[static_cast<size_t>(b - from)] = true;
    });
    bool shares = false;
    each_element(other, [&](int64_t offset) {
        for (char* b = other.first + offset; b < other.first + offset + other.item_bytes; ++b)
            shares = shares || (in_both(b) && mine[static_cast<size_t>(b - from)]);
    });
    return shares;
}

DeviceView DeviceView::packed_copy() const {
    DeviceView copy = *this;
    copy.packed.clear();
    each_element(*this, [&](int64_t offset) {
        copy.packed.insert(copy.packed.end(), first + offset, first + offset + item_bytes);
    });
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) copy.strides[d] = step;
    copy.first = copy.packed.data();
    copy.find_span();
    return copy;
}

}  // namespace npu_cann
