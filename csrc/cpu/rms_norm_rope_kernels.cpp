// The kernels of rms_norm_rope for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. Every product and every sum is
// rounded, as in rope_kernels.cpp.
#include "csrc/cpu/rms_norm_rope_kernels.h"

#include "csrc/cpu/elements.h"
#include "csrc/cpu/pairs.h"

namespace npu_rope {
namespace {

// Reads elements of a head, from element i on, as normalized and scaled floats.
template <typename Element>
struct NormalizedHead {
    using T = typename Element::T;
    const T* x;
    const T* scale;
    float inverse;
    explicit NormalizedHead(const NormRopeJob& job)
        : x(static_cast<const T*>(job.x)), scale(static_cast<const T*>(job.scale)), inverse(job.inverse) {}

    FloatVec vector(int64_t i) const { return Element::load_vector(x + i) * inverse * Element::load_vector(scale + i); }
    float element(int64_t i) const { return Element::to_float(x[i]) * inverse * Element::to_float(scale[i]); }
    // count: fewer elements than a vector holds.
    FloatVec partial_vector(int64_t i, int64_t count) const {
        return Element::load_vector(Padded<T>(x + i, count).elements) * inverse *
               Element::load_vector(Padded<T>(scale + i, count).elements);
    }
    // Reads 2 W bfloat16 elements. A 32-bit word of a vector holds two of them: one for *even, one for *odd.
    void even_odd(int64_t i, FloatVec* even, FloatVec* odd) const {
        Uint32Vec x_words = load<Uint32Vec>(x + i), scale_words = load<Uint32Vec>(scale + i);
        *even = as_float(x_words << 16) * inverse * as_float(scale_words << 16);
        *odd = as_float(x_words & 0xffff0000u) * inverse * as_float(scale_words & 0xffff0000u);
    }
};

// ---- elements that are not rotated ---------------------------------------------------------------------

template <typename Element, bool kStream>
inline void store_outside_window(const NormalizedHead<Element>& head, typename Element::T* y, int64_t from,
                                 int64_t count) {
    const int64_t end = from + count;
    int64_t i = from;
    for (; i + W <= end; i += W) Element::template store_vector<kStream>(y + i, head.vector(i));
    if (i == end) return;
    Padded<typename Element::T> padded;
    Element::template store_vector<false>(padded.elements, head.partial_vector(i, end - i));
    padded.copy_to(y + i, end - i);
}

// ---- rotators -------------------------------------------------------------------------------------------
//
// A rotator rotates kPairs pairs (a, b), from pair i on. It reads its cosines c and sines s in one of the orders of
// TableOrder. rope_kernels.cpp has the same rotators without the normalization.

template <typename Element>
struct HalfApartRotator {
    static constexpr int kPairs = W;
    template <bool kStream>
    static void run(const NormalizedHead<Element>& head, typename Element::T* y, int i, int pairs,
                    const float* cos_table, const float* sin_table) {
        FloatVec a = head.vector(i), b = head.vector(pairs + i), c = load<FloatVec>(cos_table + i),
                 s = load<FloatVec>(sin_table + i);
        Element::template store_vector<kStream>(y + i, a * c - b * s);
        Element::template store_vector<kStream>(y + pairs + i, a * s + b * c);
    }
};

// The tables are crossed: cos_table holds the factors of x1, sin_table those of x2.
template <typename Element>
struct InterleavedRotator {
    static constexpr int kPairs = W / 2;
    template <bool kStream>
    static void run(const NormalizedHead<Element>& head, typename Element::T* y, int i, int, const float* cos_table,
                    const float* sin_table) {
        FloatVec x1, x2;
        duplicate_pairs(head.vector(2 * i), &x1, &x2);
        Element::template store_vector<kStream>(
            y + 2 * i, x1 * load<FloatVec>(cos_table + 2 * i) + x2 * load<FloatVec>(sin_table + 2 * i));
    }
};

struct Bf16HalfApartRotator {
    static constexpr int kPairs = 2 * W;
    template <bool kStream>
    static void run(const NormalizedHead<Bf16>& head, uint16_t* y, int i, int pairs, const float* cos_table,
                    const float* sin_table) {
        FloatVec a_even, a_odd, b_even, b_odd;
        head.even_odd(i, &a_even, &a_odd);
        head.even_odd(pairs + i, &b_even, &b_odd);
        FloatVec cos_even = load<FloatVec>(cos_table + i), cos_odd = load<FloatVec>(cos_table + i + W),
                 sin_even = load<FloatVec>(sin_table + i), sin_odd = load<FloatVec>(sin_table + i + W);
        put<kStream>(y + i, pack_bf16(a_even * cos_even - b_even * sin_even, a_odd * cos_odd - b_odd * sin_odd));
        put<kStream>(y + pairs + i,
                     pack_bf16(a_even * sin_even + b_even * cos_even, a_odd * sin_odd + b_odd * cos_odd));
    }
};

struct Bf16InterleavedRotator {
    static constexpr int kPairs = W;
    template <bool kStream>
    static void run(const NormalizedHead<Bf16>& head, uint16_t* y, int i, int, const float* cos_table,
                    const float* sin_table) {
        FloatVec a, b, c = load<FloatVec>(cos_table + i), s = load<FloatVec>(sin_table + i);
        head.even_odd(2 * i, &a, &b);
        put<kStream>(y + 2 * i, pack_bf16(a * c - b * s, a * s + b * c));
    }
};

// kCrossedTable: the tables have the order kCrossed. kStream: HeadsJob::stream.
template <typename Element, typename Rotator, Pairing kPairing, bool kCrossedTable, bool kStream>
void rotate_head(const NormRopeJob& job) {
    const NormalizedHead<Element> head(job);
    auto* y = static_cast<typename Element::T*>(job.y);
    const float *c = job.cos_table, *s = job.sin_table;
    store_outside_window<Element, kStream>(head, y, -job.elements_before, job.elements_before);
    int i = 0;
    for (; i + Rotator::kPairs <= job.pairs; i += Rotator::kPairs)
        Rotator::template run<kStream>(head, y, i, job.pairs, c, s);
    // After the last rotation of 2 W bfloat16 pairs, W or more pairs may remain. Their table is in natural order.
    if constexpr (kPairing == kHalfApart && Rotator::kPairs > W)
        for (; i + W <= job.pairs; i += W)
            HalfApartRotator<Element>::template run<kStream>(head, y, i, job.pairs, c, s);
    rotate_pairs<Element, kPairing, kCrossedTable>([&head](int lane) { return head.element(lane); }, y, i, job.pairs, c,
                                                   s);
    store_outside_window<Element, kStream>(head, y, 2 * job.pairs, job.elements_after);
}

template <typename Element, typename Rotator, Pairing kPairing, bool kCrossedTable>
void rotate(const NormRopeJob& job) {
    job.stream ? rotate_head<Element, Rotator, kPairing, kCrossedTable, true>(job)
               : rotate_head<Element, Rotator, kPairing, kCrossedTable, false>(job);
}

}  // namespace

const RmsNormRopeKernels& NPU_ROPE_OF_ISA(rms_norm_rope_kernels, NPU_ROPE_ISA)() {
    static const RmsNormRopeKernels set = {
        {{nullptr, rotate<F16, HalfApartRotator<F16>, kHalfApart, false>,
          rotate<Bf16, Bf16HalfApartRotator, kHalfApart, false>},
         {nullptr, rotate<F16, InterleavedRotator<F16>, kInterleaved, true>,
          rotate<Bf16, Bf16InterleavedRotator, kInterleaved, false>}},
    };
    return set;
}

}  // namespace npu_rope
