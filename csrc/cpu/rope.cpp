// Tokens are shared out among threads; a token's cos/sin table is made once and serves all its
// heads. Formula: specs/ggml_rope_acltensor.txt section 7.
#include "csrc/cpu/rope.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rope_angle.h"
#include "csrc/cpu/rope_kernels.h"
#include "op_host/dtype.h"

namespace npu_rope {
namespace {

// A checked call.
struct RopeCall {
    const void* x[2];  // of each side
    void* out[2];      // with rows: the cache
    const void* positions;
    bool positions_are_int64;
    const void* rows;  // NULL, or each token's row in the cache
    bool rows_are_int64;
    int32_t dtype;      // npu_rope_dtype of x
    int32_t out_dtype;  // the same, or with rows what float32 is rounded to
    int32_t mode;
    int32_t n_offs;
    bool forward;
    RopeShape shape;
    const RopeAngles* angles;
};

// Below this many elements a second thread costs more than it saves (a team's fork and join is
// a few microseconds; one core rotates 64 Ki elements in about as long).
constexpr int64_t kElementsPerThread = 32 * 1024;

// Tokens of one batch row that one thread takes in one go. Tables are stepped from position to
// position inside a chunk only, so that a result does not depend on the number of threads.
constexpr int64_t kTokensPerChunk = 64;

// With fewer chunks a thread than this, heads are split as well, to even the shares out.
constexpr int64_t kChunksPerThread = 4;

// Input and output together above this are taken not to stay in the caches. A constant: what
// sysconf reports as the last level is off by a factor of ten inside some virtual machines.
constexpr int64_t kStreamAbove = int64_t{32} << 20;

struct Job {
    const RopeCall& call;
    const KernelSet& kernels;
    Pairing pairing;
    int64_t chunks_per_row;
    int64_t head_groups;
    int64_t item_bytes, out_bytes;
    bool stream[2];
};

// Output that will not be found in the caches anyway is written past them, which saves reading
// it first. Only where the parts of a rotated row are aligned for it.
bool should_stream(const RopeCall& c, int side, int64_t item_bytes) {
    const RopeShape& s = c.shape;
    int64_t bytes = s.B * s.S * s.heads() * s.D * item_bytes;
    if (s.side[side].in_place || c.rows || c.dtype == NPU_ROPE_FLOAT64 || 2 * bytes <= kStreamAbove) return false;
    int64_t odd = reinterpret_cast<intptr_t>(c.out[side]) | (c.n_offs * item_bytes) | (c.angles->pairs * item_bytes);
    for (int64_t stride : s.side[side].out_stride) odd |= stride * item_bytes;
    return odd % kStreamAlign == 0;
}

// A token's positions: one on every axis, the same one in the modes without sections.
struct Place {
    int64_t at[kRopeAxes];
    bool operator==(const Place& o) const { return std::equal(at, at + kRopeAxes, o.at); }
};

// From one token's place to the next one's.
Place operator-(const Place& a, const Place& b) {
    Place d;
    for (int k = 0; k < kRopeAxes; ++k) d.at[k] = a.at[k] - b.at[k];
    return d;
}

// A step that tables are turned by, because it is likely to come again: none of an image's and a
// text's axes goes back, some go on by one.
bool is_stride(const Place& d) {
    int64_t moved = 0;
    for (int64_t n : d.at) {
        if (n != 0 && n != 1) return false;
        moved |= n;
    }
    return moved != 0;
}

// One thread's tables, kept between calls.
struct Scratch {
    std::vector<double> doubles;
    std::vector<float> floats;
};

// Heads on their way to another type.
std::vector<float>& row_scratch() {
    thread_local std::vector<float> rows;
    return rows;
}

// A token's tables, in the order its kernel reads.
class TokenTable {
public:
    explicit TokenTable(const Job& job) : job_(job), a_(*job.call.angles) {
        thread_local Scratch scratch;
        size_t n = static_cast<size_t>(table_floats(a_.pairs));
        if (scratch.floats.size() < 4 * n) scratch.floats.resize(4 * n);
        if (scratch.doubles.size() < 5 * n) scratch.doubles.resize(5 * n);
        float* f = scratch.floats.data();
        natural_c_ = f, natural_s_ = f + n, ordered_c_ = f + 2 * n, ordered_s_ = f + 3 * n;
        double* d = scratch.doubles.data();
        c_ = d, s_ = d + n, step_c_ = d + 2 * n, step_s_ = d + 3 * n, each_ = d + 4 * n;
    }

    // Of the chunk before, only a table made from scratch may be used again.
    void begin_chunk() {
        filled_ = filled_ && !stepping_;
        may_step_ = false;
    }

    void fill(const Place& place) {
        if (!filled_ || !(place == place_)) {
            if (job_.call.dtype == NPU_ROPE_FLOAT64)
                fill_doubles(place);
            else
                fill_floats(place);
        }
        filled_ = may_step_ = true;
        place_ = place;
    }

    const void* cos_table() const { return cos_; }
    const void* sin_table() const { return sin_; }

private:
    double sin_scale() const { return job_.call.forward ? a_.mscale : -a_.mscale; }

    // Each pair's own position where they differ; under policy f32 the whole angle.
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
        if (!f32 && !rope_has_sections(job_.call.mode)) return t;
        for (int i = 0; i < a_.pairs; ++i) {
            int64_t position = place.at[a_.rules[i].axis];
            each_[i] = f32 ? double(static_cast<float>(position) * a_.freq_f32[i]) : static_cast<double>(position);
        }
        std::fill(each_ + a_.pairs, each_ + t.count, 0.0);
        t.m_each = each_;
        return t;
    }

    void unscaled(const Place& place, double* c, double* s) {
        TableJob t = table_job(place);
        t.cos_scale = t.sin_scale = 1;
        job_.kernels.table_f64(t, c, s);
    }

    // The first token comes from scratch; once a second one follows it, the float64 state is
    // made and every next token by the same stride is one step.
    void fill_exact(const Place& place) {
        Place stride = place - place_;
        bool follows = may_step_ && is_stride(stride);
        bool same_step = has_step_ && stride == step_;
        if (follows && !(stepping_ && same_step)) {
            if (!same_step) unscaled(stride, step_c_, step_s_);
            has_step_ = true;
            step_ = stride;
            unscaled(place_, c_, s_);
        }
        stepping_ = follows;
        if (!follows) return job_.kernels.table_f32(table_job(place), natural_c_, natural_s_);
        StepJob step{c_, s_, step_c_, step_s_, static_cast<int>(a_.turns_hi.size()), a_.mscale, sin_scale()};
        job_.kernels.step(step, natural_c_, natural_s_);
    }

    void fill_natural(const Place& place) {
        if (a_.policy == NPU_ROPE_ANGLE_EXACT) return fill_exact(place);
        if (a_.policy == NPU_ROPE_ANGLE_F32) return job_.kernels.table_f32(table_job(place), natural_c_, natural_s_);
        ggml_cos_sin(a_, place.at, natural_c_, natural_s_);
        if (!job_.call.forward)
            for (int i = 0; i < a_.pairs; ++i) natural_s_[i] = -natural_s_[i];
    }

    void fill_floats(const Place& place) {
        fill_natural(place);
        TableOrder order = job_.kernels.order[job_.pairing][job_.call.dtype];
        cos_ = order == kNatural ? natural_c_ : ordered_c_;
        sin_ = order == kNatural ? natural_s_ : ordered_s_;
        if (order != kNatural) job_.kernels.reorder(order, a_.pairs, natural_c_, natural_s_, ordered_c_, ordered_s_);
    }

    void fill_doubles(const Place& place) {
        cos_ = c_;
        sin_ = s_;
        if (a_.policy != NPU_ROPE_ANGLE_GGML) return job_.kernels.table_f64(table_job(place), c_, s_);
        fill_natural(place);
        std::copy(natural_c_, natural_c_ + a_.pairs, c_);
        std::copy(natural_s_, natural_s_ + a_.pairs, s_);
    }

    const Job& job_;
    const RopeAngles& a_;
    float *natural_c_, *natural_s_, *ordered_c_, *ordered_s_;
    double *c_, *s_, *step_c_, *step_s_, *each_;
    const void *cos_ = nullptr, *sin_ = nullptr;
    Place place_ = {}, step_ = {};
    bool filled_ = false, may_step_ = false, stepping_ = false, has_step_ = false;
};

Place place_at(const RopeCall& c, int64_t b, int64_t s) {
    const RopeShape& sh = c.shape;
    int64_t at = b * sh.pos_stride[0] + s * sh.pos_stride[1];
    Place place;
    place.at[0] = index_at(c.positions, c.positions_are_int64, at);
    bool four = rope_has_sections(c.mode);
    for (int k = 1; k < kRopeAxes; ++k)
        place.at[k] = four ? index_at(c.positions, c.positions_are_int64, at + sh.pos_axis[k]) : place.at[0];
    return place;
}

// Some heads of one token; strides in elements.
struct Heads {
    const char* x;
    char* y;
    int64_t count, x_stride, y_stride;
};

void rotate_heads(const Job& job, const TokenTable& table, const Heads& heads, bool in_place, bool stream) {
    const RopeCall& c = job.call;
    int64_t offset = c.n_offs * job.item_bytes, pairs = c.angles->pairs;
    HeadsJob h;
    h.x = heads.x + offset;
    h.y = heads.y + offset;
    h.x_stride = heads.x_stride;
    h.y_stride = heads.y_stride;
    h.heads = heads.count;
    h.pairs = static_cast<int>(pairs);
    h.before = in_place ? 0 : offset;
    h.after = in_place ? 0 : (c.shape.D - 2 * pairs) * job.item_bytes - offset;
    h.cos_table = table.cos_table();
    h.sin_table = table.sin_table();
    h.stream = stream;
    job.kernels.rotate[job.pairing][c.dtype](h);
}

// Into the cache, by way of float32 rows that stay in the caches where the type changes.
void scatter_heads(const Job& job, const TokenTable& table, Heads heads, int64_t row) {
    const RopeCall& c = job.call;
    heads.y += row * c.shape.side[0].out_stride[1] * job.out_bytes;
    if (c.out_dtype == c.dtype) return rotate_heads(job, table, heads, false, false);
    std::vector<float>& rows = row_scratch();
    int64_t D = c.shape.D;
    if (static_cast<int64_t>(rows.size()) < D) rows.resize(static_cast<size_t>(D));
    for (int64_t h = 0; h < heads.count; ++h) {
        Heads one{heads.x + h * heads.x_stride * job.item_bytes, reinterpret_cast<char*>(rows.data()), 1, D, D};
        rotate_heads(job, table, one, false, false);
        job.kernels.narrow[c.out_dtype](rows.data(), heads.y + h * heads.y_stride * job.out_bytes, D);
    }
}

// A token: its batch, its place in it, and with rows the one it goes to.
struct Token {
    int64_t b, s, row;
};

// Heads [first, last) of one side.
void rotate_side(const Job& job, const TokenTable& table, int side, const Token& token, int64_t first, int64_t last) {
    if (first >= last) return;
    const RopeCall& c = job.call;
    const RopeSide& sd = c.shape.side[side];
    Heads heads;
    heads.x = static_cast<const char*>(c.x[side]) +
              (token.b * sd.x_stride[0] + token.s * sd.x_stride[1] + first * sd.x_stride[2]) * job.item_bytes;
    heads.y = static_cast<char*>(c.out[side]) + first * sd.out_stride[2] * job.out_bytes;
    heads.count = last - first;
    heads.x_stride = sd.x_stride[2];
    heads.y_stride = sd.out_stride[2];
    if (c.rows) return scatter_heads(job, table, heads, token.row);
    heads.y += (token.b * sd.out_stride[0] + token.s * sd.out_stride[1]) * job.out_bytes;
    rotate_heads(job, table, heads, sd.in_place, job.stream[side]);
}

Token token_at(const RopeCall& c, int64_t b, int64_t s) {
    if (!c.rows) return {b, s, 0};
    return {b, s, index_at(c.rows, c.rows_are_int64, b * c.shape.row_stride[0] + s * c.shape.row_stride[1])};
}

// One group of a token's heads, which count through both sides.
void rotate_token(const Job& job, TokenTable& table, int64_t b, int64_t s, int64_t group) {
    const RopeCall& c = job.call;
    int64_t all = c.shape.heads(), split = c.shape.side[0].N;
    int64_t first = all * group / job.head_groups, last = all * (group + 1) / job.head_groups;
    if (first == last) return;
    const Token token = token_at(c, b, s);
    if (token.row < 0) return;
    table.fill(place_at(c, b, s));
    rotate_side(job, table, 0, token, first, std::min(last, split));
    rotate_side(job, table, 1, token, std::max(first, split) - split, last - split);
}

void run_range(int64_t begin, int64_t end, void* ctx) {
    const Job& job = *static_cast<const Job*>(ctx);
    TokenTable table(job);
    for (int64_t u = begin; u < end; ++u) {
        int64_t chunk = u / job.head_groups, group = u % job.head_groups;
        int64_t b = chunk / job.chunks_per_row, first = chunk % job.chunks_per_row * kTokensPerChunk;
        int64_t last = std::min(first + kTokensPerChunk, job.call.shape.S);
        table.begin_chunk();
        for (int64_t s = first; s < last; ++s) rotate_token(job, table, b, s, group);
    }
    // Stores past the caches are in no order of their own.
    if (job.stream[0] || job.stream[1]) std::atomic_thread_fence(std::memory_order_seq_cst);
}

Check make_call(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle, RopeCall* call) {
    if (Check c = check_rope(t, params, angle, &call->shape); !c.ok()) return c;
    const npu_rope_tensor* f = t.freq_factors;
    const float* factors = f ? static_cast<const float*>(f->data) : nullptr;
    if (Check c = cached_rope_angles(*params, factors, f ? f->stride[0] : 0, angle, &call->angles); !c.ok()) return c;
    for (int k = 0; k < t.sides; ++k) {
        call->x[k] = t.x[k]->data;
        call->out[k] = t.out[k]->data;
    }
    call->positions = t.positions->data;
    call->positions_are_int64 = t.positions->dtype == NPU_ROPE_INT64;
    call->rows = t.rows ? t.rows->data : nullptr;
    call->rows_are_int64 = t.rows && t.rows->dtype == NPU_ROPE_INT64;
    call->dtype = t.x[0]->dtype;
    call->out_dtype = t.out[0]->dtype;
    call->mode = params->mode;
    call->n_offs = params->n_offs;
    call->forward = forward != 0;
    return {};
}

void run(const RopeCall& call) {
    const RopeShape& s = call.shape;
    if (s.empty()) return;
    int64_t elements = s.B * s.S * s.heads() * s.D;
    int64_t useful = elements / kElementsPerThread;
    int threads = useful <= 1 ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), useful));
    int64_t chunks_per_row = (s.S + kTokensPerChunk - 1) / kTokensPerChunk, chunks = s.B * chunks_per_row;
    int64_t groups = chunks >= kChunksPerThread * threads ? 1 : std::min<int64_t>(s.heads(), threads);
    int64_t item_bytes = dtype_bytes(call.dtype);
    Job job{call,
            active_kernels(),
            call.mode == NPU_ROPE_MODE_NORMAL ? kInterleaved : kHalf,
            chunks_per_row,
            groups,
            item_bytes,
            dtype_bytes(call.out_dtype),
            {should_stream(call, 0, item_bytes), s.sides == 2 && should_stream(call, 1, item_bytes)}};
    parallel_ranges(chunks * groups, threads, run_range, &job);
}

}  // namespace

Check run_rope_cpu(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle) {
    RopeCall call;
    if (Check c = make_call(t, params, forward, angle, &call); !c.ok()) return c;
    run(call);
    return {};
}

}  // namespace npu_rope
