// Rotate heads by tables of cos and sin that the caller passes: rotary_mul and rotary_embedding.
#include "csrc/cpu/rotary.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace {

class TokenTable;

// The tables of a checked call.
struct GivenTables {
    using OfToken = TokenTable;
    const char *cos, *sin;
    int32_t dtype;
    const void* position_ids;  // NULL: each token has its own row
    bool ids_are_int64;
    const RotaryShape& shape;
    bool forward;
};

// One thread's tables, kept between calls: cos and sin, in natural and in the kernel's order.
template <typename T>
T* scratch(size_t size) {
    thread_local std::vector<T> tables;
    if (tables.size() < 4 * size) tables.resize(4 * size);
    return tables.data();
}

// A token's tables, widened, in the order that its kernel reads.
class TokenTable {
public:
    TokenTable(const GivenTables& given, const Rotation& call, const RopeKernels& kernels)
        : given_(given), call_(call), kernels_(kernels), pairs_(static_cast<int>(call.pairs)) {
        size_ = static_cast<size_t>(table_floats(2 * pairs_));
    }

    void begin_chunk() {}

    void fill(int64_t b, int64_t s) {
        const RotaryShape& sh = given_.shape;
        if (given_.position_ids) {
            s = index_at(given_.position_ids, given_.ids_are_int64,
                         b * sh.rope.pos_stride[0] + s * sh.rope.pos_stride[1]);
            b = 0;
        }
        int64_t item = dtype_bytes(given_.dtype);
        const char* cos = given_.cos + (b * sh.cos_stride[0] + s * sh.cos_stride[1]) * item;
        const char* sin = given_.sin + (b * sh.sin_stride[0] + s * sh.sin_stride[1]) * item;
        if (cos == last_cos_ && sin == last_sin_) return;
        last_cos_ = cos;
        last_sin_ = sin;
        if (call_.dtype == NPU_ROPE_FLOAT64)
            fill_as<double>(cos, sin);
        else
            fill_as<float>(cos, sin);
    }

    const void* cos_table() const { return cos_; }
    const void* sin_table() const { return sin_; }
    bool entry_per_lane() const { return entry_per_lane_; }

private:
    template <typename T>
    void fill_as(const char* cos, const char* sin) {
        T *c = scratch<T>(size_), *s = c + size_, *ordered_c = s + size_, *ordered_s = ordered_c + size_;
        int64_t width = given_.shape.entry_per_lane ? 2 * pairs_ : pairs_;
        widen(cos, c, width);
        widen(sin, s, width);
        entry_per_lane_ = given_.shape.entry_per_lane && !(pairs_agree(c) && pairs_agree(s));
        if (given_.shape.entry_per_lane && !entry_per_lane_ && interleaved()) {
            for (int i = 1; i < pairs_; ++i) c[i] = c[2 * i], s[i] = s[2 * i];
        }
        if (!given_.forward) transpose(s, entry_per_lane_);
        cos_ = c;
        sin_ = s;
        if (entry_per_lane_ ? interleaved() : order() != kNatural) {
            if (entry_per_lane_)
                cross(c, s, ordered_c, ordered_s);
            else
                reorder(c, s, ordered_c, ordered_s);
            cos_ = ordered_c;
            sin_ = ordered_s;
        }
    }

    bool interleaved() const { return call_.pairing == kInterleaved; }

    void widen(const char* from, float* to, int64_t count) const { kernels_.widen[given_.dtype](from, to, count); }
    void widen(const char* from, double* to, int64_t count) const {
        if (given_.dtype == NPU_ROPE_FLOAT64)
            return void(std::memcpy(to, from, static_cast<size_t>(count) * sizeof *to));
        auto* floats = reinterpret_cast<const float*>(from);
        std::copy(floats, floats + count, to);
    }

    // Whether the two lanes of every pair have the same bits. Then a table of half the width and its faster kernels
    // suffice.
    template <typename T>
    bool pairs_agree(const T* t) const {
        if (!interleaved()) return std::memcmp(t, t + pairs_, static_cast<size_t>(pairs_) * sizeof *t) == 0;
        for (int i = 0; i < pairs_; ++i)
            if (std::memcmp(t + 2 * i, t + 2 * i + 1, sizeof *t) != 0) return false;
        return true;
    }

    // Transposes the rotation: the factor of x1 in y2 becomes that of y2's gradient in x1's gradient.
    template <typename T>
    void transpose(T* s, bool entry_per_lane) const {
        int count = entry_per_lane ? 2 * pairs_ : pairs_, partner = interleaved() ? 1 : pairs_,
            step = interleaved() ? 2 : 1;
        if (entry_per_lane)
            for (int i = 0; i < pairs_; ++i) std::swap(s[i * step], s[i * step + partner]);
        for (int i = 0; i < count; ++i) s[i] = -s[i];
    }

    template <typename T>
    void cross(const T* c, const T* s, T* from_first, T* from_second) const {
        for (int i = 0; i < 2 * pairs_; i += 2) {
            from_first[i] = c[i], from_first[i + 1] = s[i + 1];
            from_second[i] = -s[i], from_second[i + 1] = c[i + 1];
        }
    }

    // Always natural for float64.
    TableOrder order() const { return kernels_.order[call_.pairing][call_.dtype]; }
    void reorder(const float* c, const float* s, float* c_out, float* s_out) const {
        kernels_.reorder(order(), pairs_, c, s, c_out, s_out);
    }
    void reorder(const double*, const double*, double*, double*) const {}

    const GivenTables& given_;
    const Rotation& call_;
    const RopeKernels& kernels_;
    int pairs_;
    size_t size_;
    const char *last_cos_ = nullptr, *last_sin_ = nullptr;
    const void *cos_ = nullptr, *sin_ = nullptr;
    bool entry_per_lane_ = false;
};

}  // namespace

Check run_rotary_cpu(const RotaryTensors& t, const RotaryAttributes& a, bool forward) {
    RotaryShape shape;
    if (Check c = check_rotary(t, a, &shape); !c.ok()) return c;
    const npu_rope_tensor* ids = t.position_ids;
    GivenTables given{static_cast<const char*>(t.cos->data),
                      static_cast<const char*>(t.sin->data),
                      t.cos->dtype,
                      ids ? ids->data : nullptr,
                      ids && ids->dtype == NPU_ROPE_INT64,
                      shape,
                      forward};
    Rotation call{};
    for (int k = 0; k < t.sides; ++k) {
        call.x[k] = t.x[k]->data;
        call.out[k] = t.out[k]->data;
    }
    call.dtype = call.out_dtype = t.x[0]->dtype;
    call.pairing = a.interleaved ? kInterleaved : kHalf;
    call.offset = a.offset;
    call.pairs = shape.rotary_dim / 2;
    call.shape = shape.rope;
    rotate_all(given, call);
    return {};
}

}  // namespace npu_rope
