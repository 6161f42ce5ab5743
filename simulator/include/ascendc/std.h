// AscendC::Std: the parts of the C++ standard library that kernels have, under CANN's names.
//
// Rules: max and min take two values of one type (their pages).
// Source: asc-devkit include/utils/std.
#pragma once

#include <cmath>
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ascendc/types.h"

namespace AscendC::Std {

using std::add_const, std::add_cv, std::add_lvalue_reference, std::add_pointer, std::add_rvalue_reference,
    std::add_volatile, std::conditional, std::decay, std::enable_if, std::remove_const, std::remove_cv,
    std::remove_extent, std::remove_pointer, std::remove_reference, std::remove_volatile;
using std::add_const_t, std::add_cv_t, std::add_lvalue_reference_t, std::add_pointer_t, std::add_rvalue_reference_t,
    std::add_volatile_t, std::conditional_t, std::decay_t, std::enable_if_t, std::remove_const_t, std::remove_cv_t,
    std::remove_extent_t, std::remove_pointer_t, std::remove_reference_t, std::remove_volatile_t;
using std::bool_constant, std::false_type, std::integral_constant, std::is_array, std::is_base_of, std::is_class,
    std::is_const, std::is_convertible, std::is_floating_point, std::is_function, std::is_integral, std::is_pointer,
    std::is_reference, std::is_same, std::is_union, std::is_void, std::true_type;
using std::declval, std::forward, std::index_sequence, std::integer_sequence, std::make_index_sequence,
    std::make_integer_sequence, std::move;
using std::get, std::ignore, std::make_tuple, std::tie, std::tuple, std::tuple_element, std::tuple_element_t,
    std::tuple_size, std::tuple_size_v;
using std::is_array_v, std::is_base_of_v, std::is_class_v, std::is_const_v, std::is_convertible_v,
    std::is_floating_point_v, std::is_function_v, std::is_integral_v, std::is_pointer_v, std::is_reference_v,
    std::is_same_v, std::is_union_v, std::is_void_v;

template <class T>
using remove_cvref = std::remove_cv<std::remove_reference_t<T>>;
template <class T>
using remove_cvref_t = typename remove_cvref<T>::type;

template <class>
struct is_tuple : false_type {};
template <class... T>
struct is_tuple<tuple<T...>> : true_type {};
template <class T>
constexpr bool is_tuple_v = is_tuple<T>::value;

template <class T, class... Types>
struct is_one_of : bool_constant<(is_same_v<T, Types> || ...)> {};
template <class T, class... Types>
constexpr bool is_one_of_v = is_one_of<T, Types...>::value;
template <class T, T value, T... values>
struct is_one_of_value : bool_constant<((value == values) || ...)> {};
template <class T, T value, T... values>
constexpr bool is_one_of_value_v = is_one_of_value<T, value, values...>::value;

template <class T, class U>
constexpr auto max(const T& src0, const U& src1) {
    static_assert(is_same_v<T, U>, "Std::max: both values have one type");
    return src0 > src1 ? src0 : src1;
}
template <class T, class U>
constexpr auto min(const T& src0, const U& src1) {
    static_assert(is_same_v<T, U>, "Std::min: both values have one type");
    return src0 < src1 ? src0 : src1;
}
template <class T>
T sqrt(T src) {
    static_assert(ascend_sim::kIs950 && is_one_of_v<T, float, int64_t>, "Std::sqrt: Ascend950, float or int64_t");
    return T(std::sqrt(src));
}
template <class T>
T abs(T src) {
    static_assert(ascend_sim::kIs950 && is_one_of_v<T, int8_t, int16_t, int32_t, int64_t, float>,
                  "Std::abs: Ascend950, signed integers or float");
    return src < T(0) ? T(-src) : src;
}
template <class T, class U>
constexpr auto ceil_division(const T& num1, const U& num2) {
    return (num1 + num2 - 1) / num2;
}
template <class T, class U>
constexpr auto ceil_align(const T& num1, const U& num2) {
    return ceil_division(num1, num2) * num2;
}

}  // namespace AscendC::Std
