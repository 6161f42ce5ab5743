// Calls a kernel's entry, whatever its parameters' types are, with the addresses of a launch: for the source that
// ascend_sim/operator_sources.py generates, and ascend_sim_run_call (ascend_sim.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ascend_sim {

// A list of tensors as a kernel gets it: the offset of the addresses in bytes; for each tensor its number of
// dimensions, with its index in the high half, and its sizes; the addresses. Source: asc-devkit
// impl/basic_api/dav_c220/kernel_operator_list_tensor_impl.h, ListTensorDecode.
inline std::vector<uint64_t> tensor_list(const int64_t*& described, uint8_t* const*& addresses) {
    std::vector<uint64_t> list{0}, pointers;
    const int64_t tensors = *described++;
    for (int64_t i = 0; i < tensors; ++i) {
        const int64_t dims = *described++;
        list.push_back(static_cast<uint64_t>(dims) | static_cast<uint64_t>(i) << 32);
        for (int64_t d = 0; d < dims; ++d) list.push_back(static_cast<uint64_t>(*described++));
        pointers.push_back(reinterpret_cast<uint64_t>(*addresses++));
    }
    list[0] = list.size() * sizeof(uint64_t);
    list.insert(list.end(), pointers.begin(), pointers.end());
    return list;
}

template <class... P, size_t... I>
void call_entry(void (*entry)(P...), uint8_t* const* parameters, std::index_sequence<I...>) {
    entry(reinterpret_cast<P>(parameters[I])...);
}

// `described` has for each of the kernel's parameters -1 for a tensor, or the number of tensors in its list, followed
// by the number of dimensions and the sizes of each. `addresses` has those of the tensors, of workspace and tiling.
template <int expected, class... P>
void call_entry(void (*entry)(P...), uint8_t* const* addresses, const int64_t* described) {
    static_assert(sizeof...(P) == expected,
                  "the kernel's entry must take the definition's inputs and outputs, workspace and tiling");
    if constexpr (sizeof...(P) == expected) {
        uint8_t* parameters[expected] = {};
        std::vector<std::vector<uint64_t>> lists;  // their elements keep their addresses when it is moved
        lists.reserve(expected);
        for (int i = 0; i < expected; ++i) {
            if (i >= expected - 2 || *described < 0) {
                parameters[i] = *addresses++;
                described += i < expected - 2;
                continue;
            }
            lists.push_back(tensor_list(described, addresses));
            parameters[i] = reinterpret_cast<uint8_t*>(lists.back().data());
        }
        call_entry(entry, parameters, std::make_index_sequence<expected>());
    }
}

}  // namespace ascend_sim
