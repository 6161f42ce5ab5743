// A token's tables of cos and sin from rows that the caller gives, for rotary_mul, rotary_embedding and
// qkv_norm_rope_cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {
namespace given_table {

// What the tables of all tokens of a call share.
struct Format {
    int32_t dtype;        // npu_rope_dtype of the entries
    bool entry_per_lane;  // an entry for each lane of the window; otherwise, for each pair
    bool forward;
    int32_t head_dtype;  // of the heads that the tables rotate
    Pairing pairing;
    int pairs;
};

// The rows of a token: one for each axis in the modes with sections; otherwise only the first entries are used.
struct Rows {
    const char *cos[kRopeAxes], *sin[kRopeAxes];
};

// A token's tables, widened to the type of the arithmetic.
class TokenTable {
public:
    // Four tables: cos and sin, in natural order and in the kernel's order.
    struct Memory {
        Memory(const Format& format, PartMemory& memory) {
            const int64_t elements = 4 * table_floats(2 * format.pairs);
            if (format.head_dtype == NPU_ROPE_FLOAT64)
                tables = memory.take<double>(elements);
            else
                tables = memory.take<float>(elements);
        }
        void* tables;
    };

    // axis_of_pair: NULL, or the axis whose row has the entries of each pair.
    TokenTable(const Format& format, const RopeKernels& kernels, const Memory& memory,
               const int* axis_of_pair = nullptr)
        : format_(format),
          kernels_(kernels),
          axis_of_pair_(axis_of_pair),
          size_(table_floats(2 * format.pairs)),
          tables_(memory.tables) {}

    void read(const Rows& rows) {
        if (rows.cos[0] == last_.cos[0] && rows.sin[0] == last_.sin[0] && !axis_of_pair_) return;
        last_ = rows;
        if (format_.head_dtype == NPU_ROPE_FLOAT64)
            fill_as<double>(rows);
        else
            fill_as<float>(rows);
    }

    // Returns the tables in the order that the kernel of this dtype reads. dtype is float64 if the heads are float64.
    TablePair in_order_of(int32_t dtype) {
        return dtype == NPU_ROPE_FLOAT64 ? in_order<double>(kNatural)
                                         : in_order<float>(kernels_.order[format_.pairing][dtype]);
    }
    // Whether the tables have an entry for each lane, and RopeKernels::rotate_by_lanes reads them.
    bool entry_per_lane() const { return entry_per_lane_; }

private:
    template <typename T>
    void fill_as(const Rows& rows) {
        T *natural_cos = static_cast<T*>(tables_), *natural_sin = natural_cos + size_,
          *row_of_axis = natural_sin + size_;
        const int pairs = format_.pairs;
        widen_rows(rows.cos, natural_cos, row_of_axis);
        widen_rows(rows.sin, natural_sin, row_of_axis);
        entry_per_lane_ = format_.entry_per_lane && !(pairs_agree(natural_cos) && pairs_agree(natural_sin));
        if (format_.entry_per_lane && !entry_per_lane_ && interleaved()) {
            for (int i = 1; i < pairs; ++i) natural_cos[i] = natural_cos[2 * i], natural_sin[i] = natural_sin[2 * i];
        }
        if (!format_.forward) transpose(natural_sin, entry_per_lane_);
        is_ordered_ = false;
    }

    // order: of tables with one entry per pair.
    template <typename T>
    TablePair in_order(TableOrder order) {
        T *natural_cos = static_cast<T*>(tables_), *natural_sin = natural_cos + size_,
          *ordered_cos = natural_sin + size_, *ordered_sin = ordered_cos + size_;
        if (entry_per_lane_ ? !interleaved() : order == kNatural) return {natural_cos, natural_sin};
        if (!is_ordered_) {
            if (entry_per_lane_)
                negate_first_lanes(natural_sin, ordered_sin);
            else
                reorder(order, natural_cos, natural_sin, ordered_cos, ordered_sin);
        }
        is_ordered_ = true;
        return {entry_per_lane_ ? natural_cos : ordered_cos, ordered_sin};
    }

    // Widens a token's entries. In the modes with sections each pair has the entries of its axis's row.
    template <typename T>
    void widen_rows(const char* const* rows, T* to, T* row_of_axis) const {
        const int64_t pairs = format_.pairs, width = format_.entry_per_lane ? 2 * pairs : pairs;
        widen(rows[0], to, width);
        if (!axis_of_pair_) return;
        for (int axis = 1; axis < kRopeAxes; ++axis) {
            if (rows[axis] == rows[0]) continue;
            widen(rows[axis], row_of_axis, width);
            for (int64_t i = 0; i < pairs; ++i) {
                if (axis_of_pair_[i] != axis) continue;
                to[i] = row_of_axis[i];
                if (format_.entry_per_lane) to[pairs + i] = row_of_axis[pairs + i];
            }
        }
    }

    bool interleaved() const { return format_.pairing == kInterleaved; }

    void widen(const char* from, float* to, int64_t count) const { kernels_.widen[format_.dtype](from, to, count); }
    void widen(const char* from, double* to, int64_t count) const {
        if (format_.dtype == NPU_ROPE_FLOAT64)
            return void(std::memcpy(to, from, static_cast<size_t>(count) * sizeof *to));
        auto* floats = reinterpret_cast<const float*>(from);
        std::copy(floats, floats + count, to);
    }

    // Whether the entries of the two lanes of every pair have the same bits. If so, one entry per pair is sufficient,
    // and the kernels for such tables are faster.
    template <typename T>
    bool pairs_agree(const T* table) const {
        if (!interleaved())
            return std::memcmp(table, table + format_.pairs, static_cast<size_t>(format_.pairs) * sizeof *table) == 0;
        for (int i = 0; i < format_.pairs; ++i)
            if (std::memcmp(table + 2 * i, table + 2 * i + 1, sizeof *table) != 0) return false;
        return true;
    }

    // Transposes the rotation, for the gradient. In y2, s2 is the factor of x1; in the gradient of x1, s2 is the factor
    // of the gradient of y2.
    template <typename T>
    void transpose(T* sin, bool entry_per_lane) const {
        int count = entry_per_lane ? 2 * format_.pairs : format_.pairs, to_partner = interleaved() ? 1 : format_.pairs,
            pair_stride = interleaved() ? 2 : 1;
        if (entry_per_lane)
            for (int i = 0; i < format_.pairs; ++i) std::swap(sin[i * pair_stride], sin[i * pair_stride + to_partner]);
        for (int i = 0; i < count; ++i) sin[i] = -sin[i];
    }

    // Writes the sines of interleaved heads with one entry per lane, as RopeKernels::rotate_by_lanes reads them.
    template <typename T>
    void negate_first_lanes(const T* sin, T* to) const {
        for (int i = 0; i < 2 * format_.pairs; i += 2) to[i] = -sin[i], to[i + 1] = sin[i + 1];
    }

    void reorder(TableOrder order, const float* cos, const float* sin, float* cos_out, float* sin_out) const {
        kernels_.reorder(order, format_.pairs, cos, sin, cos_out, sin_out);
    }
    void reorder(TableOrder, const double*, const double*, double*, double*) const {}

    const Format format_;
    const RopeKernels& kernels_;
    const int* axis_of_pair_;
    const int64_t size_;  // of one table
    void* const tables_;
    Rows last_ = {};
    bool entry_per_lane_ = false;
    bool is_ordered_ = false;  // the tables in another order than kNatural are those of last_
};

}  // namespace given_table
}  // namespace npu_rope
