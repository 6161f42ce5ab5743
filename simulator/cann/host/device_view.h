// A tensor in device memory: which bytes it touches, and whether two tensors touch the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu_cann {

struct DeviceView {
    std::string name;
    std::vector<int64_t> shape, strides;  // strides in elements
    int64_t item_bytes = 1;
    char* first = nullptr;                 // the first element
    char *low = nullptr, *high = nullptr;  // of all touched bytes; equal where there are none
    std::vector<char> packed;              // a contiguous copy, where one was asked for

    // Sets low and high from the rest; false where they do not fit the address space.
    bool find_span();
    bool empty() const { return low == high; }
    bool contiguous() const;
    bool same_as(const DeviceView& other) const;
    // Exact, byte by byte.
    bool shares_memory_with(const DeviceView& other) const;
    // Elements one behind the other, in a memory of its own.
    DeviceView packed_copy() const;
};

}  // namespace npu_cann
