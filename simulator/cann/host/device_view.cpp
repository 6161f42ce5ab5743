#include "cann/host/device_view.h"

#include <algorithm>
#include <cstring>

#include "cann/runtime/objects.h"

namespace simulated_cann {
namespace {

// Calls visit(first, bytes) for contiguous runs that together cover all elements, in order.
template <typename Visit>
void for_each_run(const DeviceView& view, Visit visit) {
    if (view.empty()) return;
    size_t dims = view.shape.size();
    int64_t run_bytes = view.item_bytes;
    while (dims > 0 && (view.shape[dims - 1] == 1 || view.strides[dims - 1] * view.item_bytes == run_bytes))
        run_bytes *= view.shape[--dims];
    std::vector<int64_t> index(dims, 0);
    for (;;) {
        int64_t offset = 0;
        for (size_t dim = 0; dim < dims; ++dim) offset += index[dim] * view.strides[dim];
        visit(view.first + offset * view.item_bytes, run_bytes);
        size_t dim = dims;
        while (dim > 0 && ++index[dim - 1] == view.shape[dim - 1]) index[--dim] = 0;
        if (dim == 0) return;
    }
}

}  // namespace

bool DeviceView::find_span() {
    int64_t bytes_below = 0, bytes_above = item_bytes;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
        if (shape[dim] < 0) return false;
        if (shape[dim] == 0) {
            low = high = first;
            return true;
        }
        int64_t reach;
        if (__builtin_mul_overflow(shape[dim] - 1, strides[dim], &reach)) return false;
        if (__builtin_mul_overflow(reach, item_bytes, &reach)) return false;
        int64_t& edge = reach < 0 ? bytes_below : bytes_above;
        if (__builtin_add_overflow(edge, reach, &edge)) return false;
    }
    low = first + bytes_below;
    high = first + bytes_above;
    return true;
}

bool DeviceView::is_contiguous() const {
    if (empty()) return true;
    int64_t expected = 1;
    for (size_t dim = shape.size(); dim-- > 0;) {
        if (shape[dim] != 1 && strides[dim] != expected) return false;
        expected *= shape[dim];
    }
    return true;
}

bool DeviceView::is_same_as(const DeviceView& other) const {
    if (first != other.first || item_bytes != other.item_bytes || shape != other.shape) return false;
    for (size_t dim = 0; dim < shape.size(); ++dim)
        if (shape[dim] != 1 && strides[dim] != other.strides[dim]) return false;
    return true;
}

bool DeviceView::shares_memory_with(const DeviceView& other) const {
    char *overlap_begin = std::max(low, other.low), *overlap_end = std::min(high, other.high);
    if (overlap_begin >= overlap_end) return false;
    std::vector<bool> is_own_byte(static_cast<size_t>(overlap_end - overlap_begin));
    auto flag_of = [&](char* byte) { return is_own_byte.begin() + (byte - overlap_begin); };
    for_each_run(*this, [&](char* run, int64_t bytes) {
        char *begin = std::max(run, overlap_begin), *end = std::min(run + bytes, overlap_end);
        if (begin < end) std::fill(flag_of(begin), flag_of(end), true);
    });
    bool shares = false;
    for_each_run(other, [&](char* run, int64_t bytes) {
        char *begin = std::max(run, overlap_begin), *end = std::min(run + bytes, overlap_end);
        shares = shares || (begin < end && std::find(flag_of(begin), flag_of(end), true) != flag_of(end));
    });
    return shares;
}

void DeviceView::unpack_from(const char* memory) const {
    for_each_run(*this, [&](char* run, int64_t bytes) {
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

DeviceView DeviceView::pack_into(char* memory) const {
    DeviceView copy = *this;
    char* next = memory;
    for_each_run(*this, [&](char* run, int64_t bytes) {
        std::memcpy(next, run, static_cast<size_t>(bytes));
        next += bytes;
    });
    int64_t step = 1;
    for (size_t dim = shape.size(); dim-- > 0; step *= shape[dim]) copy.strides[dim] = step;
    copy.first = memory;
    copy.find_span();
    return copy;
}

}  // namespace simulated_cann
