// Functions that call a kernel's entry with the arguments of a launch. They convert each argument to the parameter's
// type. operator_sources.py and kernels.py in ascend_sim/ generate sources that include this header. Each source
// defines a function that calls an entry. The Python code passes that function to ascend_sim_run_call (ascend_sim.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ascend_sim {

// Returns a list of tensors, as CANN passes it to a kernel, and moves both arguments past the tensors. The list begins
// with the offset of the addresses in bytes. Then each tensor has one word, followed by the tensor's sizes. The word
// has the number of dimensions in its low half and the tensor's index in its high half. The addresses come last.
// Source: asc-devkit impl/basic_api/dav_c220/kernel_operator_list_tensor_impl.h, ListTensorDecode.
inline std::vector<uint64_t> make_tensor_list(const int64_t*& descriptions, uint8_t* const*& addresses) {
    std::vector<uint64_t> list{0}, tensor_addresses;
    const int64_t tensor_count = *descriptions++;
    for (int64_t i = 0; i < tensor_count; ++i) {
        const int64_t dimensions = *descriptions++;
        list.push_back(static_cast<uint64_t>(dimensions) | static_cast<uint64_t>(i) << 32);
        for (int64_t j = 0; j < dimensions; ++j) list.push_back(static_cast<uint64_t>(*descriptions++));
        tensor_addresses.push_back(reinterpret_cast<uint64_t>(*addresses++));
    }
    list[0] = list.size() * sizeof(uint64_t);
    list.insert(list.end(), tensor_addresses.begin(), tensor_addresses.end());
    return list;
}

template <class... Parameters, size_t... I>
void call_entry(void (*entry)(Parameters...), uint8_t* const* parameters, std::index_sequence<I...>) {
    entry(reinterpret_cast<Parameters>(parameters[I])...);
}

// `descriptions` has -1 for each parameter that is a tensor. For a list it has the number of tensors, and for each
// tensor its number of dimensions and sizes. `addresses` has the addresses of the tensors, of workspace and tiling.
template <int parameter_count, class... Parameters>
void call_entry(void (*entry)(Parameters...), uint8_t* const* addresses, const int64_t* descriptions) {
    static_assert(sizeof...(Parameters) == parameter_count,
                  "the kernel's entry must take the definition's inputs and outputs, workspace and tiling");
    if constexpr (sizeof...(Parameters) == parameter_count) {
        uint8_t* parameters[parameter_count] = {};
        std::vector<std::vector<uint64_t>> lists;  // a list keeps the address of its elements when it is moved
        lists.reserve(parameter_count);
        for (int i = 0; i < parameter_count; ++i) {
            if (i >= parameter_count - 2 || *descriptions < 0) {
                parameters[i] = *addresses++;
                descriptions += i < parameter_count - 2;
                continue;
            }
            lists.push_back(make_tensor_list(descriptions, addresses));
            parameters[i] = reinterpret_cast<uint8_t*>(lists.back().data());
        }
        call_entry(entry, parameters, std::make_index_sequence<parameter_count>());
    }
}

// Returns the next argument, converted to `Parameter`. A pointer is the next element of `addresses`. A number is the
// next eight bytes of `values`: an int64_t for an integer type, a double for other types.
template <class Parameter>
Parameter next_argument(uint8_t* const*& addresses, const uint8_t*& values) {
    if constexpr (std::is_pointer_v<Parameter>) {
        return reinterpret_cast<Parameter>(*addresses++);
    } else {
        std::conditional_t<std::is_integral_v<Parameter>, int64_t, double> value;
        std::memcpy(&value, values, sizeof value);
        values += sizeof value;
        if constexpr (std::is_integral_v<Parameter> || std::is_same_v<Parameter, double>)
            return Parameter(value);
        else
            return Parameter(float(value));
    }
}

// `values` has eight bytes for each parameter that is a number.
template <class... Parameters>
void call_with_values(void (*entry)(Parameters...), uint8_t* const* addresses, const uint8_t* values) {
    const std::tuple<Parameters...> arguments{next_argument<Parameters>(addresses, values)...};
    std::apply(entry, arguments);
}

}  // namespace ascend_sim
