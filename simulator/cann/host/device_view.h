// A tensor in device memory. Finds the bytes that it occupies, and whether it shares bytes with another tensor.
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
    char *low = nullptr, *high = nullptr;  // range of the occupied bytes, set by find_span(); equal if empty

    // Sets low and high from the other members. Returns false if the tensor does not fit the address space.
    bool find_span();
    bool empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
    bool is_contiguous() const;
    // Whether both have the same elements at the same addresses.
    bool is_same_as(const DeviceView& other) const;
    // Compares the occupied bytes, not only their ranges.
    bool shares_memory_with(const DeviceView& other) const;
    // Whether the tensor's bytes belong to one allocation now; false if the memory was freed.
    bool is_in_one_allocation() const;
    uint64_t packed_size() const;  // bytes of the elements without gaps
    // Copies the elements to contiguous memory of packed_size() bytes. Returns the view of the copy.
    DeviceView pack_into(char* memory) const;
    // Copies the elements back from that memory.
    void unpack_from(const char* memory) const;
};

// Whether these bytes, from `low` to before `high`, belong to one allocation of device memory.
bool is_in_one_allocation(char* low, char* high);

}  // namespace simulated_cann
