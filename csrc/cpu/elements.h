// The element types in memory. A kernel loads them as vectors of W floats and rounds the vectors when it stores them.
// Compiled for one instruction set, as vec.h is.
#pragma once

#include <cstdint>
#include <cstring>

#include "csrc/cpu/vec.h"

namespace npu_rope {
namespace {

struct F32 {
    using T = float;
    static FloatVec load_vector(const T* p) { return load<FloatVec>(p); }
    template <bool kStream>
    static void store_vector(T* p, FloatVec v) {
        put<kStream>(p, v);
    }
    static float to_float(T v) { return v; }
    static T from_float(float v) { return v; }
};
struct F16 {
    using T = uint16_t;
    static FloatVec load_vector(const T* p) { return load_f16(p); }
    template <bool kStream>
    static void store_vector(T* p, FloatVec v) {
        store_f16<kStream>(p, v);
    }
    static float to_float(T v) { return f16_to_float(v); }
    static T from_float(float v) { return float_to_f16(v); }
};
struct Bf16 {
    using T = uint16_t;
    static FloatVec load_vector(const T* p) { return load_bf16(p); }
    template <bool kStream>
    static void store_vector(T* p, FloatVec v) {
        store_bf16<kStream>(p, v);
    }
    static float to_float(T v) { return bf16_to_float(v); }
    static T from_float(float v) { return float_to_bf16(v); }
};

// Rounds to a type, and returns the result as floats.
template <typename Element>
inline FloatVec rounded(FloatVec v) {
    typename Element::T narrow[W];
    Element::template store_vector<false>(narrow, v);
    return Element::load_vector(narrow);
}
template <>
inline FloatVec rounded<F32>(FloatVec v) {
    return v;
}
// Rounds to nearest, ties away from zero. Ties need not go to even: the number was rounded before, so both neighbours
// are within the error bound.
template <>
inline FloatVec rounded<Bf16>(FloatVec v) {
    return as_float((as_bits(v) + 0x8000) & 0xffff0000u);
}

// The last elements of a row, fewer than W, padded with zeros to a whole vector.
template <typename T>
struct Padded {
    T elements[W] = {};
    Padded() = default;
    Padded(const T* from, int64_t count) { std::memcpy(elements, from, static_cast<size_t>(count) * sizeof(T)); }
    void copy_to(T* to, int64_t count) const { std::memcpy(to, elements, static_cast<size_t>(count) * sizeof(T)); }
};

}  // namespace
}  // namespace npu_rope
