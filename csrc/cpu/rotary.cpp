// Rotate heads by tables of cos and sin that the caller gives: rotary_mul, rotary_mul_qk and rotary_embedding.
#include "csrc/cpu/rotary.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace {

class GivenTokenTable;

// The tables that the caller gives: a TableSource of rotation.h.
struct GivenTables {
    using Table = GivenTokenTable;
    const char *cos, *sin;
    int32_t dtype;
    const void* position_ids;  // NULL, or the row of the tables for each token
    bool ids_are_int64;
    const RotaryShape& shape;
    bool forward;
};

// Returns this thread's memory for four tables: cos and sin, in natural order and in the kernel's order. It is kept
// between calls.
template <typename T>
T* scratch(size_t size) {
    thread_local std::vector<T> tables;
    if (tables.size() < 4 * size) tables.resize(4 * size);
    return tables.data();
}

// A token's tables, widened to the type of the arithmetic, in the order that its kernel reads.
class GivenTokenTable {
public:
    GivenTokenTable(const GivenTables& given, const RotationCall& call, const RopeKernels& kernels)
        : given_(given), call_(call), kernels_(kernels), pairs_(static_cast<int>(call.pairs)) {
        size_ = static_cast<size_t>(table_floats(2 * pairs_));
    }

    void begin_segment() {}

    void fill(int64_t b, int64_t s) {
        const RotaryShape& shape = given_.shape;
        if (given_.position_ids) {
            s = index_at(given_.position_ids, given_.ids_are_int64,
                         b * shape.rope.pos_stride[0] + s * shape.rope.pos_stride[1]);
            b = 0;
        }
        int64_t item_bytes = dtype_bytes(given_.dtype);
        const char* cos = given_.cos + (b * shape.cos_stride[0] + s * shape.cos_stride[1]) * item_bytes;
        const char* sin = given_.sin + (b * shape.sin_stride[0] + s * shape.sin_stride[1]) * item_bytes;
        if (cos == last_cos_ && sin == last_sin_) return;
        last_cos_ = cos;
        last_sin_ = sin;
        if (call_.dtype == NPU_ROPE_FLOAT64)
            fill_as<double>(cos, sin);
        else
            fill_as<float>(cos, sin);
    }

    const void* cos_table() const { return cos_table_; }
    const void* sin_table() const { return sin_table_; }
    bool entry_per_lane() const { return entry_per_lane_; }

private:
    template <typename T>
    void fill_as(const char* cos, const char* sin) {
        T *natural_cos = scratch<T>(size_), *natural_sin = natural_cos + size_, *ordered_cos = natural_sin + size_,
          *ordered_sin = ordered_cos + size_;
        int64_t width = given_.shape.entry_per_lane ? 2 * pairs_ : pairs_;
        widen(cos, natural_cos, width);
        widen(sin, natural_sin, width);
        entry_per_lane_ = given_.shape.entry_per_lane && !(pairs_agree(natural_cos) && pairs_agree(natural_sin));
        if (given_.shape.entry_per_lane && !entry_per_lane_ && interleaved()) {
            for (int i = 1; i < pairs_; ++i) natural_cos[i] = natural_cos[2 * i], natural_sin[i] = natural_sin[2 * i];
        }
        if (!given_.forward) transpose(natural_sin, entry_per_lane_);
        cos_table_ = natural_cos;
        sin_table_ = natural_sin;
        if (entry_per_lane_ ? interleaved() : order() != kNatural) {
            if (entry_per_lane_)
                cross(natural_cos, natural_sin, ordered_cos, ordered_sin);
            else
                reorder(natural_cos, natural_sin, ordered_cos, ordered_sin);
            cos_table_ = ordered_cos;
            sin_table_ = ordered_sin;
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

    // Whether the entries of the two lanes of every pair have the same bits. If so, one entry per pair is sufficient,
    // and its kernels are faster.
    template <typename T>
    bool pairs_agree(const T* table) const {
        if (!interleaved()) return std::memcmp(table, table + pairs_, static_cast<size_t>(pairs_) * sizeof *table) == 0;
        for (int i = 0; i < pairs_; ++i)
            if (std::memcmp(table + 2 * i, table + 2 * i + 1, sizeof *table) != 0) return false;
        return true;
    }

    // Transposes the rotation, for the gradient. In y2, s2 is the factor of x1; in the gradient of x1, s2 is the factor
    // of the gradient of y2.
    template <typename T>
    void transpose(T* sin, bool entry_per_lane) const {
        int count = entry_per_lane ? 2 * pairs_ : pairs_, to_partner = interleaved() ? 1 : pairs_,
            pair_stride = interleaved() ? 2 : 1;
        if (entry_per_lane)
            for (int i = 0; i < pairs_; ++i) std::swap(sin[i * pair_stride], sin[i * pair_stride + to_partner]);
        for (int i = 0; i < count; ++i) sin[i] = -sin[i];
    }

    // Writes tables for interleaved heads with one entry per lane, as RopeKernels::rotate_by_lanes reads them.
    template <typename T>
    void cross(const T* cos, const T* sin, T* x1_factors, T* x2_factors) const {
        for (int i = 0; i < 2 * pairs_; i += 2) {
            x1_factors[i] = cos[i], x1_factors[i + 1] = sin[i + 1];
            x2_factors[i] = -sin[i], x2_factors[i + 1] = cos[i + 1];
        }
    }

    // The order of tables with one entry per pair; always kNatural for float64.
    TableOrder order() const { return kernels_.order[call_.pairing][call_.dtype]; }
    void reorder(const float* cos, const float* sin, float* cos_out, float* sin_out) const {
        kernels_.reorder(order(), pairs_, cos, sin, cos_out, sin_out);
    }
    void reorder(const double*, const double*, double*, double*) const {}

    const GivenTables& given_;
    const RotationCall& call_;
    const RopeKernels& kernels_;
    int pairs_;
    size_t size_;  // of one table in scratch()
    const char *last_cos_ = nullptr, *last_sin_ = nullptr;
    const void *cos_table_ = nullptr, *sin_table_ = nullptr;
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
    RotationCall call{};
    for (int k = 0; k < t.sides; ++k) {
        call.x[k] = t.x[k]->data;
        call.out[k] = t.out[k]->data;
    }
    call.dtype = call.out_dtype = t.x[0]->dtype;
    call.pairing = a.interleaved ? kInterleaved : kHalfApart;
    call.offset = a.offset;
    call.pairs = shape.rotary_dim / 2;
    call.shape = shape.rope;
    rotate_all(given, call);
    return {};
}

}  // namespace npu_rope
