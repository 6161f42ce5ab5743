#include "cann/host/device_view.h"

#include <algorithm>
#include <cstring>

#include "cann/runtime/objects.h"

namespace simulated_cann {
namespace {

// Calls visit(first, bytes) for contiguous runs that together cover all elements, in order.
template <typename Visit>
void each_run(const DeviceView& v, Visit visit) {
    if (v.empty()) return;
    size_t dims = v.shape.size();
    int64_t run = v.item_bytes;
    while (dims > 0 && (v.shape[dims - 1] == 1 || v.strides[dims - 1] * v.item_bytes == run)) run *= v.shape[--dims];
    std::vector<int64_t> index(dims, 0);
    for (;;) {
        int64_t offset = 0;
        for (size_t d = 0; d < dims; ++d) offset += index[d] * v.strides[d];
        visit(v.first + offset * v.item_bytes, run);
        size_t d = dims;
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
        int64_t& edge = reach < 0 ? below : above;
        if (__builtin_add_overflow(edge, reach, &edge)) return false;
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
    std::vector<bool> own_bytes(static_cast<size_t>(to - from));
    auto at = [&](char* byte) { return own_bytes.begin() + (byte - from); };
    each_run(*this, [&](char* run, int64_t bytes) {
        char *begin = std::max(run, from), *end = std::min(run + bytes, to);
        if (begin < end) std::fill(at(begin), at(end), true);
    });
    bool shares = false;
    each_run(other, [&](char* run, int64_t bytes) {
        char *begin = std::max(run, from), *end = std::min(run + bytes, to);
        shares = shares || (begin < end && std::find(at(begin), at(end), true) != at(end));
    });
    return shares;
}

void DeviceView::unpack_from(const char* memory) const {
    each_run(*this, [&](char* run, int64_t bytes) {
        std::memcpy(run, memory, static_cast<size_t>(bytes));
        memory += bytes;
    });
}

bool is_in_one_allocation(char* low, char* high) {
    void* begin = nullptr;
    uint64_t bytes = 0;
    return find_allocation(low, &begin, &bytes) && low >= begin && high <= static_cast<char*>(begin) + bytes;
}

bool DeviceView::is_in_one_allocation() const { return empty() || simulated_cann::is_in_one_allocation(low, high); }

uint64_t DeviceView::packed_size() const {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    return static_cast<uint64_t>(elements * item_bytes);
}

DeviceView DeviceView::packed_into(char* memory) const {
    DeviceView copy = *this;
    char* to = memory;
    each_run(*this, [&](char* run, int64_t bytes) {
        std::memcpy(to, run, static_cast<size_t>(bytes));
        to += bytes;
    });
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) copy.strides[d] = step;
    copy.first = memory;
    copy.find_span();
    return copy;
}

}  // namespace simulated_cann
