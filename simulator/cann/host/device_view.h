// A tensor in device memory: the bytes it occupies, and whether two tensors share bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace simulated_cann {

struct DeviceView {
    std::string name;
    std::vector<int64_t> shape, strides;  // strides in elements
    int64_t item_bytes = 1;
    char* first = nullptr;                 // the first element
    char *low = nullptr, *high = nullptr;  // range of the occupied bytes, after find_span(); equal if empty

    // Sets low and high from the other members; false if they do not fit the address space.
    bool find_span();
    bool empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
    bool contiguous() const;
    bool same_as(const DeviceView& other) const;
    // Compares the occupied bytes, not only their ranges.
    bool shares_memory_with(const DeviceView& other) const;
    // Whether the tensor's bytes belong to one allocation now; false if the memory was freed.
    bool is_in_one_allocation() const;
    uint64_t packed_size() const;  // bytes of the elements without gaps
    // Copy the elements to and from contiguous memory of packed_size() bytes. The first returns the copy's view.
    DeviceView packed_into(char* memory) const;
    void unpack_from(const char* memory) const;
};

// Whether these bytes, from `low` to before `high`, belong to one allocation of device memory.
bool is_in_one_allocation(char* low, char* high);

}  // namespace simulated_cann
