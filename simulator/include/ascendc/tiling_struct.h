// Checks that a tiling struct is plain data with the same layout in the host's compiler and in CANN's.
//
// Aggregate initialisation finds the fields: the struct is initialised from as many objects as it takes, and each
// object converts to any type. The conversion records the size and alignment of the field. A struct with constructors
// hides its fields.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ascendc/runtime.h"

namespace ascend_sim {

// The layout of the fields added so far, if each field is aligned to its size.
struct FieldLayout {
    uint64_t end = 0, alignment = 1;
    bool has_pointer = false;

    constexpr void add(uint64_t bytes, uint64_t align) {
        end = (end + align - 1) / align * align + bytes;
        alignment = align > alignment ? align : alignment;
    }
    constexpr uint64_t bytes() const { return (end + alignment - 1) / alignment * alignment; }
};

template <class S>
constexpr FieldLayout field_layout();

// An object that converts to the type of any field.
struct AnyField {
    FieldLayout* layout = nullptr;
    template <class T>
    constexpr operator T() const {
        if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
            const FieldLayout inner = field_layout<T>();
            layout->add(inner.bytes(), inner.alignment);
            layout->has_pointer = layout->has_pointer || inner.has_pointer;
        } else {
            layout->add(sizeof(T), std::is_arithmetic_v<T> || std::is_enum_v<T> ? sizeof(T) : alignof(T));
            layout->has_pointer = layout->has_pointer || std::is_pointer_v<T> || std::is_member_pointer_v<T>;
        }
        return T{};
    }
};

// Whether S takes as many initialisers as the sequence has.
template <class S, size_t... I>
constexpr auto takes_initialisers(std::index_sequence<I...>) -> decltype(S{(void(I), AnyField())...}, true) {
    return true;
}
template <class S, size_t... I>
constexpr bool takes_initialisers(...) {
    return false;
}

// The largest number of initialisers that S takes, by bisection. It is at least `low` and less than `high`.
template <class S, size_t low, size_t high>
constexpr size_t max_initialisers() {
    if constexpr (low + 1 == high)
        return low;
    else if constexpr (takes_initialisers<S>(std::make_index_sequence<(low + high) / 2>()))
        return max_initialisers<S, (low + high) / 2, high>();
    else
        return max_initialisers<S, low, (low + high) / 2>();
}

template <class S, size_t... I>
constexpr FieldLayout layout_of_fields(std::index_sequence<I...>) {
    FieldLayout layout;
    const S initialised{(void(I), AnyField{&layout})...};
    (void)initialised;
    return layout;
}

template <class S>
constexpr FieldLayout field_layout() {
    if constexpr (std::is_aggregate_v<S>)
        return layout_of_fields<S>(std::make_index_sequence<max_initialisers<S, 0, sizeof(S) + 1>()>());
    else
        return {sizeof(S), alignof(S), false};
}

// Checks a tiling struct or a struct inside it.
template <class S>
constexpr bool check_tiling_struct() {
    static_assert(std::is_trivially_copyable_v<S> && std::is_standard_layout_v<S>,
                  "a tiling struct is plain data that the host and the kernel share");
    if constexpr (std::is_trivially_copyable_v<S> && std::is_standard_layout_v<S>) {
        constexpr FieldLayout kLayout = field_layout<S>();
        static_assert(!kLayout.has_pointer, "a tiling struct has no pointers: a kernel cannot use the host's");
        static_assert(kLayout.bytes() <= sizeof(S), "a tiling struct's fields lie at multiples of their sizes");
    }
    return true;
}

}  // namespace ascend_sim
