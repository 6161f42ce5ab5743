// Compute the tables of cos and sin of a token from its positions, once for all its heads.
// Formula: specs/ggml_rope_acltensor.txt section 7.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/cpu/rope_angle.h"
#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace rope_table {

class ComputedTokenTable;

// The data from which the tables of a checked call are computed: a TableSource of rotation.h.
struct ComputedTableSource {
    using Table = ComputedTokenTable;
    const void* positions;
    bool positions_are_int64;
    int32_t mode;
    bool forward;
    UsedConstants constants;
    TokenTables* kept;  // NULL, or of the only token of each batch
};

// Returns the step from position b to position a.
inline TokenPosition operator-(const TokenPosition& a, const TokenPosition& b) {
    TokenPosition step;
    for (int k = 0; k < kRopeAxes; ++k) step.on_axis[k] = a.on_axis[k] - b.on_axis[k];
    return step;
}

// Whether to compute a token's tables by a rotation of the previous token's tables (StepJob). This saves time only if
// the same step occurs again. The tokens of texts and images usually have such steps: 1 on some axes, 0 on the others.
inline bool is_likely_step(const TokenPosition& step) {
    bool moves = false;
    for (int64_t on_axis : step.on_axis) {
        if (on_axis != 0 && on_axis != 1) return false;
        moves |= on_axis == 1;
    }
    return moves;
}

inline TokenPosition position_of(const ComputedTableSource& source, const RopeShape& shape, int64_t b, int64_t s) {
    int64_t at = b * shape.pos_stride[0] + s * shape.pos_stride[1];
    TokenPosition position;
    position.on_axis[0] = index_at(source.positions, source.positions_are_int64, at);
    bool has_sections = rope_has_sections(source.mode);
    for (int k = 1; k < kRopeAxes; ++k)
        position.on_axis[k] = has_sections
                                  ? index_at(source.positions, source.positions_are_int64, at + shape.axis_offset[k])
                                  : position.on_axis[0];
    return position;
}

// A token's tables.
class ComputedTokenTable {
public:
    struct Memory {
        Memory(const ComputedTableSource& source, const RotationCall&, PartMemory& memory)
            : floats(memory.take<float>(4 * table_floats(source.constants->pairs))),
              doubles(memory.take<double>(5 * table_floats(source.constants->pairs))) {}
        float* floats;
        double* doubles;
    };

    ComputedTokenTable(const ComputedTableSource& source, const RotationCall& call, const RopeKernels& kernels,
                       const Memory& memory)
        : source_(source), call_(call), kernels_(kernels), constants_(*source.constants) {
        const int size = table_floats(constants_.pairs);
        own_.natural_cos = memory.floats, own_.natural_sin = own_.natural_cos + size;
        own_.ordered_cos = own_.natural_sin + size, own_.ordered_sin = own_.ordered_cos + size;
        double_cos_ = memory.doubles, double_sin_ = double_cos_ + size;
        step_cos_ = double_sin_ + size, step_sin_ = step_cos_ + size;
        pair_multipliers_ = step_sin_ + size;
    }

    // Discards tables of the previous segment that were computed by a step. The number of threads decides which segment
    // is the previous one, and results must not depend on it.
    void begin_segment() {
        own_.is_filled = own_.is_filled && !is_stepping_;
        may_step_ = false;
    }

    void fill(int64_t b, int64_t s) {
        if (source_.kept) tables_ = &source_.kept[b];
        fill(position_of(source_, call_.shape, b, s));
    }
    // Returns the tables in the order that the kernel of this dtype reads. dtype may be float64 only if the call's
    // dtype is.
    TablePair in_order_of(int32_t dtype) {
        if (dtype == NPU_ROPE_FLOAT64) return {double_cos_, double_sin_};
        const TableOrder order = kernels_.order[call_.pairing][dtype];
        TokenTables& t = *tables_;
        if (order == kNatural) return {t.natural_cos, t.natural_sin};
        // The kernels of a pairing have no other order than this one.
        if (t.ordered_by != &kernels_)
            kernels_.reorder(order, constants_.pairs, t.natural_cos, t.natural_sin, t.ordered_cos, t.ordered_sin);
        t.ordered_by = &kernels_;
        return {t.ordered_cos, t.ordered_sin};
    }
    static constexpr bool entry_per_lane() { return false; }

private:
    void fill(const TokenPosition& position) {
        TokenTables& t = *tables_;
        if (!t.is_filled || !(position == t.position) || t.forward != source_.forward) {
            if (call_.dtype == NPU_ROPE_FLOAT64)
                fill_doubles(position);
            else
                fill_natural(position);
            t.ordered_by = nullptr;
        }
        t.is_filled = may_step_ = true;
        t.position = position;
        t.forward = source_.forward;
    }

    double sin_scale() const { return source_.forward ? constants_.mscale : -constants_.mscale; }

    TableJob table_job(const TokenPosition& position) {
        TableJob job;
        job.turns_hi = constants_.turns_hi.data();
        job.turns_lo = constants_.turns_lo.data();
        job.count = static_cast<int>(constants_.turns_hi.size());
        job.multiplier = static_cast<double>(position.on_axis[0]);
        job.pair_multipliers = nullptr;
        job.cos_scale = constants_.mscale;
        job.sin_scale = sin_scale();
        bool is_f32 = constants_.policy == NPU_ROPE_ANGLE_F32;
        if (!is_f32 && !rope_has_sections(source_.mode)) return job;
        for (int i = 0; i < constants_.pairs; ++i) {
            int64_t pair_position = position.on_axis[constants_.pair_terms[i].axis];
            pair_multipliers_[i] = is_f32 ? double(static_cast<float>(pair_position) * constants_.freq_f32[i])
                                          : static_cast<double>(pair_position);
        }
        std::fill(pair_multipliers_ + constants_.pairs, pair_multipliers_ + job.count, 0.0);
        job.pair_multipliers = pair_multipliers_;
        return job;
    }

    void fill_unscaled(const TokenPosition& position, double* cos, double* sin) {
        TableJob job = table_job(position);
        job.cos_scale = job.sin_scale = 1;
        kernels_.table_f64(job, cos, sin);
    }

    // Computes tables from the position, or by a likely step from the segment's previous token. When a new step begins,
    // the function computes the float64 tables of the previous token and of the step. Each token that follows by the
    // same step then costs one rotation.
    void fill_exact(const TokenPosition& position) {
        TokenPosition step = position - tables_->position;
        bool follows = may_step_ && is_likely_step(step);
        bool is_same_step = has_step_ && step == step_;
        if (follows && !(is_stepping_ && is_same_step)) {
            if (!is_same_step) fill_unscaled(step, step_cos_, step_sin_);
            has_step_ = true;
            step_ = step;
            fill_unscaled(tables_->position, double_cos_, double_sin_);
        }
        is_stepping_ = follows;
        if (!follows) return kernels_.table_f32(table_job(position), tables_->natural_cos, tables_->natural_sin);
        const int count = static_cast<int>(constants_.turns_hi.size());
        StepJob job{double_cos_, double_sin_, step_cos_, step_sin_, count, constants_.mscale, sin_scale()};
        kernels_.step(job, tables_->natural_cos, tables_->natural_sin);
    }

    void fill_natural(const TokenPosition& position) {
        if (constants_.policy == NPU_ROPE_ANGLE_EXACT) return fill_exact(position);
        if (constants_.policy == NPU_ROPE_ANGLE_F32)
            return kernels_.table_f32(table_job(position), tables_->natural_cos, tables_->natural_sin);
        float* sin = tables_->natural_sin;
        ggml_cos_sin(constants_, position.on_axis, tables_->natural_cos, sin);
        if (!source_.forward)
            for (int i = 0; i < constants_.pairs; ++i) sin[i] = -sin[i];
    }

    void fill_doubles(const TokenPosition& position) {
        if (constants_.policy != NPU_ROPE_ANGLE_GGML)
            return kernels_.table_f64(table_job(position), double_cos_, double_sin_);
        fill_natural(position);
        std::copy(tables_->natural_cos, tables_->natural_cos + constants_.pairs, double_cos_);
        std::copy(tables_->natural_sin, tables_->natural_sin + constants_.pairs, double_sin_);
    }

    const ComputedTableSource& source_;
    const RotationCall& call_;
    const RopeKernels& kernels_;
    const AngleConstants& constants_;
    TokenTables own_;
    TokenTables* tables_ = &own_;                               // of the last token
    double *double_cos_, *double_sin_, *step_cos_, *step_sin_;  // in natural order
    double* pair_multipliers_;
    TokenPosition step_ = {};
    bool may_step_ = false;     // the last token is of this segment
    bool is_stepping_ = false;  // the tables were computed by a step
    bool has_step_ = false;     // step_cos_ and step_sin_ are those of step_
};

inline Pairing pairing_of(int32_t mode) { return mode == NPU_ROPE_MODE_NORMAL ? kInterleaved : kHalfApart; }

// Fills *source from the arguments of a call that were checked. dtype: of the heads. freq_factors may be NULL.
inline Check fill_source(const npu_rope_params& params, const npu_rope_tensor* positions,
                         const npu_rope_tensor* freq_factors, bool forward, int32_t angle_policy, int32_t dtype,
                         const RopeShape& shape, ComputedTableSource* source) {
    const float* factors = freq_factors ? static_cast<const float*>(freq_factors->data) : nullptr;
    source->positions = positions->data;
    source->positions_are_int64 = positions->dtype == NPU_ROPE_INT64;
    source->mode = params.mode;
    source->forward = forward;
    Check c = cached_angle_constants(params, factors, factors ? freq_factors->stride[0] : 0, angle_policy,
                                     &source->constants);
    if (!c.ok()) return c;
    // Parts of a call do not share tables, and tables that were computed by a step depend on the tokens before.
    const bool keeps = shape.S == 1 && dtype != NPU_ROPE_FLOAT64;
    source->kept = keeps ? source->constants.kept_tables(shape.B) : nullptr;
    return {};
}

// Fills *source and the rest of *call from the tensors and parameters of a call whose arguments were checked.
inline Check fill_call(const RopeTensors& t, const npu_rope_params& params, int32_t forward, int32_t angle_policy,
                       ComputedTableSource* source, RotationCall* call) {
    if (Check c = fill_source(params, t.positions, t.freq_factors, forward != 0, angle_policy, t.x[0]->dtype,
                              call->shape, source);
        !c.ok())
        return c;
    for (int k = 0; k < t.sides; ++k) {
        call->x[k] = t.x[k]->data;
        call->out[k] = t.out[k]->data;
    }
    call->rows = t.rows ? t.rows->data : nullptr;
    call->rows_are_int64 = t.rows && t.rows->dtype == NPU_ROPE_INT64;
    call->dtype = t.x[0]->dtype;
    call->out_dtype = t.out[0]->dtype;
    call->pairing = pairing_of(params.mode);
    call->offset = params.n_offs;
    call->pairs = source->constants->pairs;
    return {};
}

}  // namespace rope_table
}  // namespace npu_rope
