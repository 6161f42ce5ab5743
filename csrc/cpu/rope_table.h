// cos and sin of a token's positions, computed once for all its heads.
// Formula: specs/ggml_rope_acltensor.txt section 7.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csrc/cpu/rope_angle.h"
#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace rope_table {

class TokenTable;

// The data from which the tables of a call are computed, after its arguments were checked; a Source of rotation.h.
struct Angles {
    using OfToken = TokenTable;
    const void* positions;
    bool positions_are_int64;
    int32_t mode;
    bool forward;
    const RopeAngles* angles;
};

// A token's positions, one per axis; equal on all axes in the modes without sections.
struct Place {
    int64_t at[kRopeAxes];
    bool operator==(const Place& o) const { return std::equal(at, at + kRopeAxes, o.at); }
};

// The step from the place of one token to the place of the next.
inline Place operator-(const Place& a, const Place& b) {
    Place d;
    for (int k = 0; k < kRopeAxes; ++k) d.at[k] = a.at[k] - b.at[k];
    return d;
}

// Whether to compute the next table by a rotation of this one by the step. It pays only if the step occurs again, so at
// least one axis must advance by one, and the others must not change, as in text and images.
inline bool is_likely_step(const Place& d) {
    int64_t advances = 0;
    for (int64_t n : d.at) {
        if (n != 0 && n != 1) return false;
        advances |= n;
    }
    return advances != 0;
}

// One thread's tables, kept between calls.
struct Scratch {
    std::vector<double> doubles;
    std::vector<float> floats;
};

inline Place place_at(const Angles& c, const RopeShape& sh, int64_t b, int64_t s) {
    int64_t at = b * sh.pos_stride[0] + s * sh.pos_stride[1];
    Place place;
    place.at[0] = index_at(c.positions, c.positions_are_int64, at);
    bool has_sections = rope_has_sections(c.mode);
    for (int k = 1; k < kRopeAxes; ++k)
        place.at[k] = has_sections ? index_at(c.positions, c.positions_are_int64, at + sh.pos_axis[k]) : place.at[0];
    return place;
}

// A token's tables, in the order that its kernel reads.
class TokenTable {
public:
    TokenTable(const Angles& source, const Rotation& call, const RopeKernels& kernels)
        : source_(source), call_(call), kernels_(kernels), a_(*source.angles) {
        thread_local Scratch scratch;
        size_t n = static_cast<size_t>(table_floats(a_.pairs));
        if (scratch.floats.size() < 4 * n) scratch.floats.resize(4 * n);
        if (scratch.doubles.size() < 5 * n) scratch.doubles.resize(5 * n);
        float* f = scratch.floats.data();
        natural_c_ = f, natural_s_ = f + n, ordered_c_ = f + 2 * n, ordered_s_ = f + 3 * n;
        double* d = scratch.doubles.data();
        c_ = d, s_ = d + n, step_c_ = d + 2 * n, step_s_ = d + 3 * n, m_each_ = d + 4 * n;
    }

    // The result must not depend on the division into chunks, so a table of the previous chunk is dropped if it was
    // computed by a step.
    void begin_chunk() {
        filled_ = filled_ && !stepping_;
        may_step_ = false;
    }

    void fill(int64_t b, int64_t s) { fill(place_at(source_, call_.shape, b, s)); }
    const void* cos_table() const { return cos_; }
    const void* sin_table() const { return sin_; }
    static constexpr bool entry_per_lane() { return false; }

private:
    void fill(const Place& place) {
        if (!filled_ || !(place == place_)) {
            if (call_.dtype == NPU_ROPE_FLOAT64)
                fill_doubles(place);
            else
                fill_floats(place);
        }
        filled_ = may_step_ = true;
        place_ = place;
    }

    double sin_scale() const { return source_.forward ? a_.mscale : -a_.mscale; }

    // m_each, if it is needed, holds each pair's angle under policy f32, else each pair's position in modes with
    // sections.
    TableJob table_job(const Place& place) {
        TableJob t;
        t.turns_hi = a_.turns_hi.data();
        t.turns_lo = a_.turns_lo.data();
        t.count = static_cast<int>(a_.turns_hi.size());
        t.m = static_cast<double>(place.at[0]);
        t.m_each = nullptr;
        t.cos_scale = a_.mscale;
        t.sin_scale = sin_scale();
        bool f32 = a_.policy == NPU_ROPE_ANGLE_F32;
        if (!f32 && !rope_has_sections(source_.mode)) return t;
        for (int i = 0; i < a_.pairs; ++i) {
            int64_t position = place.at[a_.rules[i].axis];
            m_each_[i] = f32 ? double(static_cast<float>(position) * a_.freq_f32[i]) : static_cast<double>(position);
        }
        std::fill(m_each_ + a_.pairs, m_each_ + t.count, 0.0);
        t.m_each = m_each_;
        return t;
    }

    void fill_unscaled(const Place& place, double* c, double* s) {
        TableJob t = table_job(place);
        t.cos_scale = t.sin_scale = 1;
        kernels_.table_f64(t, c, s);
    }

    // A table is computed from positions, unless a likely step leads to it from the chunk's previous token. When a new
    // step begins, the float64 tables of the previous token and of the step are computed; each token that follows by
    // the same step then costs one rotation.
    void fill_exact(const Place& place) {
        Place step = place - place_;
        bool follows = may_step_ && is_likely_step(step);
        bool same_step = has_step_ && step == step_;
        if (follows && !(stepping_ && same_step)) {
            if (!same_step) fill_unscaled(step, step_c_, step_s_);
            has_step_ = true;
            step_ = step;
            fill_unscaled(place_, c_, s_);
        }
        stepping_ = follows;
        if (!follows) return kernels_.table_f32(table_job(place), natural_c_, natural_s_);
        StepJob job{c_, s_, step_c_, step_s_, static_cast<int>(a_.turns_hi.size()), a_.mscale, sin_scale()};
        kernels_.step(job, natural_c_, natural_s_);
    }

    void fill_natural(const Place& place) {
        if (a_.policy == NPU_ROPE_ANGLE_EXACT) return fill_exact(place);
        if (a_.policy == NPU_ROPE_ANGLE_F32) return kernels_.table_f32(table_job(place), natural_c_, natural_s_);
        ggml_cos_sin(a_, place.at, natural_c_, natural_s_);
        if (!source_.forward)
            for (int i = 0; i < a_.pairs; ++i) natural_s_[i] = -natural_s_[i];
    }

    void fill_floats(const Place& place) {
        fill_natural(place);
        TableOrder order = kernels_.order[call_.pairing][call_.dtype];
        cos_ = order == kNatural ? natural_c_ : ordered_c_;
        sin_ = order == kNatural ? natural_s_ : ordered_s_;
        if (order != kNatural) kernels_.reorder(order, a_.pairs, natural_c_, natural_s_, ordered_c_, ordered_s_);
    }

    void fill_doubles(const Place& place) {
        cos_ = c_;
        sin_ = s_;
        if (a_.policy != NPU_ROPE_ANGLE_GGML) return kernels_.table_f64(table_job(place), c_, s_);
        fill_natural(place);
        std::copy(natural_c_, natural_c_ + a_.pairs, c_);
        std::copy(natural_s_, natural_s_ + a_.pairs, s_);
    }

    const Angles& source_;
    const Rotation& call_;
    const RopeKernels& kernels_;
    const RopeAngles& a_;
    float *natural_c_, *natural_s_, *ordered_c_, *ordered_s_;
    double *c_, *s_, *step_c_, *step_s_, *m_each_;
    const void *cos_ = nullptr, *sin_ = nullptr;
    Place place_ = {}, step_ = {};
    bool filled_ = false, may_step_ = false, stepping_ = false, has_step_ = false;
};

// Fills *call and *source from the tensors and parameters of a call whose arguments were checked.
inline Check fill_call(const RopeTensors& t, const npu_rope_params& params, int32_t forward, int32_t angle,
                       Angles* source, Rotation* call) {
    const npu_rope_tensor* f = t.freq_factors;
    const float* factors = f ? static_cast<const float*>(f->data) : nullptr;
    if (Check c = cached_rope_angles(params, factors, f ? f->stride[0] : 0, angle, &source->angles); !c.ok()) return c;
    for (int k = 0; k < t.sides; ++k) {
        call->x[k] = t.x[k]->data;
        call->out[k] = t.out[k]->data;
    }
    source->positions = t.positions->data;
    source->positions_are_int64 = t.positions->dtype == NPU_ROPE_INT64;
    call->rows = t.rows ? t.rows->data : nullptr;
    call->rows_are_int64 = t.rows && t.rows->dtype == NPU_ROPE_INT64;
    call->dtype = t.x[0]->dtype;
    call->out_dtype = t.out[0]->dtype;
    call->pairing = params.mode == NPU_ROPE_MODE_NORMAL ? kInterleaved : kHalf;
    call->offset = params.n_offs;
    call->pairs = source->angles->pairs;
    source->mode = params.mode;
    source->forward = forward != 0;
    return {};
}

}  // namespace rope_table
}  // namespace npu_rope
