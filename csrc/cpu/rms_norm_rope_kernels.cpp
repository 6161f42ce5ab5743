// The kernels of rms_norm_rope for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. Every product and every sum is
// rounded, as in rope_kernels.cpp.
#include "csrc/cpu/rms_norm_rope_kernels.h"

#include "csrc/cpu/elements.h"
#include "csrc/cpu/pairs.h"
#include "csrc/cpu/rms_norm_kernels.h"

namespace npu_rope {
namespace {

bool invert_roots(const double* sums, int64_t heads, double n, double epsilon, float* inverses) {
    constexpr int kDoubles = W / 2;
    Int64Vec fits = {};
    fits = ~fits;
    for (int64_t h = 0; h < heads; h += kDoubles) {
        const DoubleVec mean_square_plus_epsilon = load<DoubleVec>(sums + h) / n + epsilon;
        fits &= (mean_square_plus_epsilon >= kMinMeanSquare) & (mean_square_plus_epsilon <= kMaxMeanSquare);
        store(inverses + h, to_floats(1.0 / square_root(mean_square_plus_epsilon)));
    }
    bool all_fit = true;
    for (int i = 0; i < kDoubles; ++i) all_fit &= fits[i] != 0;
    return all_fit;
}

// ---- elements that are not rotated ---------------------------------------------------------------------

template <typename Element, bool kStream>
inline void store_outside_window(const typename Element::T* x, typename Element::T* y, float inverse,
                                 const float* scale, int64_t from, int64_t count) {
    using T = typename Element::T;
    const int64_t end = from + count;
    int64_t i = from;
    for (; i + W <= end; i += W)
        Element::template store_vector<kStream>(y + i,
                                                Element::load_vector(x + i) * inverse * load<FloatVec>(scale + i));
    if (i == end) return;
    const FloatVec rest = Element::load_vector(Padded<T>(x + i, end - i).elements);
    Padded<T> padded;
    Element::template store_vector<false>(padded.elements,
                                          rest * inverse * load<FloatVec>(Padded<float>(scale + i, end - i).elements));
    padded.copy_to(y + i, end - i);
}

// ---- rotators -------------------------------------------------------------------------------------------
//
// A rotator normalizes and rotates kPairs pairs (a, b), from pair i on. It keeps their scale, cosines c and sines s in
// registers. The tables have one of the orders of TableOrder. rope_kernels.cpp has the same rotators without the
// normalization.

template <typename Element>
struct HalfApartRotator {
    using T = typename Element::T;
    static constexpr int kPairs = W;
    FloatVec c, s, scale_a, scale_b;
    void load_factors(const NormRopeJob& job, int i) {
        c = load<FloatVec>(job.cos_table + i), s = load<FloatVec>(job.sin_table + i);
        scale_a = load<FloatVec>(job.scale + i), scale_b = load<FloatVec>(job.scale + job.pairs + i);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int pairs, float inverse) const {
        const FloatVec a = Element::load_vector(x + i) * inverse * scale_a,
                       b = Element::load_vector(x + pairs + i) * inverse * scale_b;
        Element::template store_vector<kStream>(y + i, a * c - b * s);
        Element::template store_vector<kStream>(y + pairs + i, a * s + b * c);
    }
};

// The tables have the order kPerLane.
template <typename Element>
struct InterleavedRotator {
    using T = typename Element::T;
    static constexpr int kPairs = W / 2;
    FloatVec c, s, scale;
    void load_factors(const NormRopeJob& job, int i) {
        c = load<FloatVec>(job.cos_table + 2 * i), s = load<FloatVec>(job.sin_table + 2 * i);
        scale = load<FloatVec>(job.scale + 2 * i);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int, float inverse) const {
        const FloatVec v = Element::load_vector(x + 2 * i) * inverse * scale;
        Element::template store_vector<kStream>(y + 2 * i, v * c + swap_pairs(v) * s);
    }
};

// 2 W bfloat16 elements. A 32-bit word of a vector holds two of them: one for `even`, one for `odd`.
struct EvenOdd {
    FloatVec even, odd;
    EvenOdd() = default;
    // Reads a scale or a table in the order kEvenOdd.
    explicit EvenOdd(const float* p) : even(load<FloatVec>(p)), odd(load<FloatVec>(p + W)) {}
    EvenOdd(const uint16_t* x, float inverse, const EvenOdd& scale) {
        const Uint32Vec words = load<Uint32Vec>(x);
        even = as_float(words << 16) * inverse * scale.even;
        odd = as_float(words & 0xffff0000u) * inverse * scale.odd;
    }
};

struct Bf16HalfApartRotator {
    static constexpr int kPairs = 2 * W;
    EvenOdd c, s, scale_a, scale_b;
    void load_factors(const NormRopeJob& job, int i) {
        c = EvenOdd(job.cos_table + i), s = EvenOdd(job.sin_table + i);
        scale_a = EvenOdd(job.scale + i), scale_b = EvenOdd(job.scale + job.pairs + i);
    }
    template <bool kStream>
    void run(const uint16_t* x, uint16_t* y, int i, int pairs, float inverse) const {
        const EvenOdd a(x + i, inverse, scale_a), b(x + pairs + i, inverse, scale_b);
        Uint32Vec first, second;
        pack_bf16_twice(a.even * c.even - b.even * s.even, a.odd * c.odd - b.odd * s.odd,
                        a.even * s.even + b.even * c.even, a.odd * s.odd + b.odd * c.odd, &first, &second);
        put<kStream>(y + i, first);
        put<kStream>(y + pairs + i, second);
    }
};

struct Bf16InterleavedRotator {
    static constexpr int kPairs = W;
    FloatVec c, s;
    EvenOdd scale;
    void load_factors(const NormRopeJob& job, int i) {
        c = load<FloatVec>(job.cos_table + i), s = load<FloatVec>(job.sin_table + i);
        scale = EvenOdd(job.scale + 2 * i);
    }
    template <bool kStream>
    void run(const uint16_t* x, uint16_t* y, int i, int, float inverse) const {
        const EvenOdd x1_x2(x + 2 * i, inverse, scale);
        const FloatVec a = x1_x2.even, b = x1_x2.odd;
        put<kStream>(y + 2 * i, pack_bf16(a * c - b * s, a * s + b * c));
    }
};

// ---- heads ----------------------------------------------------------------------------------------------

// Rotates the window of a head whose pairs exactly fill kRotators rotators. The rotators are loaded once for all heads.
template <typename Rotator, int kRotators, bool kStream>
struct FixedWindow {
    Rotator rotators[kRotators];
    explicit FixedWindow(const NormRopeJob& job) {
        for (int k = 0; k < kRotators; ++k) rotators[k].load_factors(job, k * Rotator::kPairs);
    }
    template <typename T>
    void rotate(const T* x, T* y, float inverse) const {
#pragma GCC unroll 8
        for (int k = 0; k < kRotators; ++k)
            rotators[k].template run<kStream>(x, y, k * Rotator::kPairs, kRotators * Rotator::kPairs, inverse);
    }
};

// Rotates the window of a head of any size. kPerLaneTable: the tables have the order kPerLane.
template <typename Element, typename Rotator, Pairing kPairing, bool kPerLaneTable, bool kStream>
struct AnyWindow {
    using T = typename Element::T;
    const NormRopeJob& job;
    explicit AnyWindow(const NormRopeJob& job) : job(job) {}
    void rotate(const T* x, T* y, float inverse) const {
        int i = rotate_whole<Rotator>(x, y, 0, inverse);
        // After the last rotation of 2 W bfloat16 pairs, W or more pairs may remain. Their table is in natural order.
        if constexpr (kPairing == kHalfApart && Rotator::kPairs > W)
            i = rotate_whole<HalfApartRotator<Element>>(x, y, i, inverse);
        auto normalized = [&](int lane) { return Element::to_float(x[lane]) * inverse * job.scale[lane]; };
        rotate_pairs<Element, kPairing, kPerLaneTable>(normalized, y, i, job.pairs, job.cos_table, job.sin_table);
    }

private:
    // Rotates from pair i on, as long as the pairs fill a rotator. Returns the first pair that is not rotated.
    template <typename R>
    int rotate_whole(const T* x, T* y, int i, float inverse) const {
        for (; i + R::kPairs <= job.pairs; i += R::kPairs) {
            R rotator;
            rotator.load_factors(job, i);
            rotator.template run<kStream>(x, y, i, job.pairs, inverse);
        }
        return i;
    }
};

// Rotates all heads, and prefetches another head with each of them.
template <typename Element, bool kStream, typename Window>
void rotate_heads(const NormRopeJob& job) {
    using T = typename Element::T;
    const Window window(job);
    auto* x = static_cast<const T*>(job.x);
    auto* y = static_cast<T*>(job.y);
    const int64_t before = job.elements_before, window_end = 2 * job.pairs, after = job.elements_after;
    const int64_t bytes = (before + window_end + after) * int64_t{sizeof(T)};
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        prefetch_bytes(reinterpret_cast<const char*>(x - before) + job.prefetch_distance, bytes);
        const float inverse = job.inverses[h];
        if (before) store_outside_window<Element, kStream>(x, y, inverse, job.scale, -before, before);
        window.rotate(x, y, inverse);
        if (after) store_outside_window<Element, kStream>(x, y, inverse, job.scale, window_end, after);
    }
}

template <typename Element, typename Rotator, Pairing kPairing, bool kPerLaneTable, bool kStream>
void rotate_stream(const NormRopeJob& job) {
    if (job.pairs == 64)
        return rotate_heads<Element, kStream, FixedWindow<Rotator, 64 / Rotator::kPairs, kStream>>(job);
    if (job.pairs == 32)
        return rotate_heads<Element, kStream, FixedWindow<Rotator, 32 / Rotator::kPairs, kStream>>(job);
    rotate_heads<Element, kStream, AnyWindow<Element, Rotator, kPairing, kPerLaneTable, kStream>>(job);
}

template <typename Element, typename Rotator, Pairing kPairing, bool kPerLaneTable>
void rotate(const NormRopeJob& job) {
    job.stream ? rotate_stream<Element, Rotator, kPairing, kPerLaneTable, true>(job)
               : rotate_stream<Element, Rotator, kPairing, kPerLaneTable, false>(job);
}

}  // namespace

const RmsNormRopeKernels& NPU_ROPE_OF_ISA(rms_norm_rope_kernels, NPU_ROPE_ISA)() {
    static const RmsNormRopeKernels set = {
        invert_roots,
        {{rotate<F32, HalfApartRotator<F32>, kHalfApart, false>, rotate<F16, HalfApartRotator<F16>, kHalfApart, false>,
          rotate<Bf16, Bf16HalfApartRotator, kHalfApart, false>},
         {rotate<F32, InterleavedRotator<F32>, kInterleaved, true>,
          rotate<F16, InterleavedRotator<F16>, kInterleaved, true>,
          rotate<Bf16, Bf16InterleavedRotator, kInterleaved, false>}},
    };
    return set;
}

}  // namespace npu_rope
