// The kernels of rms_norm_rope for vectors of W = NPU_ROPE_LANES floats. Every product and every sum is rounded, as in
// rope_kernels.cpp.
#include "csrc/cpu/rms_norm_rope_kernels.h"

#include "csrc/cpu/elements.h"
#include "csrc/cpu/pairs.h"

namespace npu_rope {
namespace {

// Reads elements of a head, from element i on, as normalized and scaled floats.
template <typename E>
struct Scaled {
    using T = typename E::T;
    const T* x;
    const T* scale;
    float inverse;
    explicit Scaled(const NormRopeJob& j)
        : x(static_cast<const T*>(j.x)), scale(static_cast<const T*>(j.scale)), inverse(j.inverse) {}

    VF vector(int64_t i) const { return E::load_v(x + i) * inverse * E::load_v(scale + i); }
    float element(int64_t i) const { return E::get(x[i]) * inverse * E::get(scale[i]); }
    // count: fewer elements than a vector holds.
    VF partial_vector(int64_t i, int64_t count) const {
        return E::load_v(Padded<T>(x + i, count).elements) * inverse * E::load_v(Padded<T>(scale + i, count).elements);
    }
    // Reads 2 W bfloat16 elements. A 32-bit lane holds two of them: one for *even, one for *odd.
    void even_odd(int64_t i, VF* even, VF* odd) const {
        VU v = load<VU>(x + i), s = load<VU>(scale + i);
        *even = as_float(v << 16) * inverse * as_float(s << 16);
        *odd = as_float(v & 0xffff0000u) * inverse * as_float(s & 0xffff0000u);
    }
};

// ---- elements that are not rotated ---------------------------------------------------------------------

template <typename E, bool kStream>
inline void store_outside_window(const Scaled<E>& head, typename E::T* y, int64_t from, int64_t count) {
    const int64_t end = from + count;
    int64_t i = from;
    for (; i + W <= end; i += W) E::template store_v<kStream>(y + i, head.vector(i));
    if (i == end) return;
    Padded<typename E::T> padded;
    E::template store_v<false>(padded.elements, head.partial_vector(i, end - i));
    padded.copy_to(y + i, end - i);
}

// ---- one step of the rotation: kPairs pairs, the first of which is pair i --------------------------------
//
// Each step reads its table (ct: cos, st: sin) in one of the orders of TableOrder. rope_kernels.cpp has the same steps
// without the normalization.

template <typename E>
struct HalfRotation {
    static constexpr int kPairs = W;
    template <bool kStream>
    static void run(const Scaled<E>& head, typename E::T* y, int i, int half, const float* ct, const float* st) {
        VF a = head.vector(i), b = head.vector(half + i), c = load<VF>(ct + i), s = load<VF>(st + i);
        E::template store_v<kStream>(y + i, a * c - b * s);
        E::template store_v<kStream>(y + half + i, a * s + b * c);
    }
};

template <typename E>
struct InterleavedRotation {
    static constexpr int kPairs = W / 2;
    template <bool kStream>
    static void run(const Scaled<E>& head, typename E::T* y, int i, int, const float* ct, const float* st) {
        VF first, second;
        duplicate_pairs(head.vector(2 * i), &first, &second);
        E::template store_v<kStream>(y + 2 * i, first * load<VF>(ct + 2 * i) + second * load<VF>(st + 2 * i));
    }
};

struct Bf16HalfRotation {
    static constexpr int kPairs = 2 * W;
    template <bool kStream>
    static void run(const Scaled<Bf16>& head, uint16_t* y, int i, int half, const float* ct, const float* st) {
        VF ae, ao, be, bo;
        head.even_odd(i, &ae, &ao);
        head.even_odd(half + i, &be, &bo);
        VF ce = load<VF>(ct + i), co = load<VF>(ct + i + W), se = load<VF>(st + i), so = load<VF>(st + i + W);
        put<kStream>(y + i, pack_bf16(ae * ce - be * se, ao * co - bo * so));
        put<kStream>(y + half + i, pack_bf16(ae * se + be * ce, ao * so + bo * co));
    }
};

struct Bf16InterleavedRotation {
    static constexpr int kPairs = W;
    template <bool kStream>
    static void run(const Scaled<Bf16>& head, uint16_t* y, int i, int, const float* ct, const float* st) {
        VF a, b, c = load<VF>(ct + i), s = load<VF>(st + i);
        head.even_odd(2 * i, &a, &b);
        put<kStream>(y + 2 * i, pack_bf16(a * c - b * s, a * s + b * c));
    }
};

// kCross: the tables have the order kCrossed. kStream: HeadsJob::stream.
template <typename E, typename Step, Pairing kPairing, bool kCross, bool kStream>
void rotate_head(const NormRopeJob& j) {
    const Scaled<E> head(j);
    auto* y = static_cast<typename E::T*>(j.y);
    const float *c = j.cos_table, *s = j.sin_table;
    store_outside_window<E, kStream>(head, y, -j.elements_before, j.elements_before);
    int i = 0;
    for (; i + Step::kPairs <= j.pairs; i += Step::kPairs) Step::template run<kStream>(head, y, i, j.pairs, c, s);
    // After the last step of 2 W bfloat16 pairs, W or more pairs may remain. Their table is in natural order.
    if constexpr (kPairing == kHalf && Step::kPairs > W)
        for (; i + W <= j.pairs; i += W) HalfRotation<E>::template run<kStream>(head, y, i, j.pairs, c, s);
    rotate_pairs<E, kPairing, kCross>([&head](int lane) { return head.element(lane); }, y, i, j.pairs, c, s);
    store_outside_window<E, kStream>(head, y, 2 * j.pairs, j.elements_after);
}

template <typename E, typename Step, Pairing kPairing, bool kCross>
void rotate(const NormRopeJob& j) {
    j.stream ? rotate_head<E, Step, kPairing, kCross, true>(j) : rotate_head<E, Step, kPairing, kCross, false>(j);
}

}  // namespace

const RmsNormRopeKernels& NPU_ROPE_OF_ISA(rms_norm_rope_kernels, NPU_ROPE_ISA)() {
    static const RmsNormRopeKernels set = {
        {{nullptr, rotate<F16, HalfRotation<F16>, kHalf, false>, rotate<Bf16, Bf16HalfRotation, kHalf, false>},
         {nullptr, rotate<F16, InterleavedRotation<F16>, kInterleaved, true>,
          rotate<Bf16, Bf16InterleavedRotation, kInterleaved, false>}},
    };
    return set;
}

}  // namespace npu_rope
