// Tokens are shared out among threads; a token's cos/sin table is made once and serves all its
// heads. Formula: specs/ggml_rope_acltensor.txt section 7.
#include "csrc/cpu/rope.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rope_kernels.h"
#include "op_host/dtype.h"

namespace npu_rope {
namespace {

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

// Alignment that every kernel set's streaming store is content with.
constexpr int64_t kStreamAlign = 64;

struct Job {
    const RopeCall& call;
    const KernelSet& kernels;
    Pairing pairing;
    int64_t chunks_per_row;
    int64_t head_groups;
    int64_t item_bytes;
    bool stream;
};

// Output that will not be found in the caches anyway is written past them, which saves reading
// it first. Only where every rotated row is whole cache lines.
bool should_stream(const RopeCall& c, int64_t item_bytes) {
    const RopeShape& s = c.shape;
    int64_t bytes = s.B * s.S * s.N * s.D * item_bytes;
    if (s.in_place || c.dtype == NPU_ROPE_FLOAT64 || 2 * bytes <= kStreamAbove) return false;
    int64_t window = reinterpret_cast<intptr_t>(c.out) + c.n_offs * item_bytes;
    int64_t odd = window | (c.n_dims / 2 * item_bytes);
    for (int64_t stride : s.out_stride) odd |= stride * item_bytes;
    return odd % kStreamAlign == 0;
}

// One thread's tables, kept between calls.
struct Scratch {
    std::vector<double> doubles;
    std::vector<float> floats;
};

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

    void fill(int64_t position) {
        if (!filled_ || position != position_) {
            if (job_.call.dtype == NPU_ROPE_FLOAT64)
                fill_doubles(position);
            else
                fill_floats(position);
        }
        filled_ = may_step_ = true;
        position_ = position;
    }

    const void* cos_table() const { return cos_; }
    const void* sin_table() const { return sin_; }

private:
    double sin_scale() const { return job_.call.forward ? a_.mscale : -a_.mscale; }

    TableJob table_job(int64_t position) {
        TableJob t;
        t.turns_hi = a_.turns_hi.data();
        t.turns_lo = a_.turns_lo.data();
        t.count = static_cast<int>(a_.turns_hi.size());
        t.m = static_cast<double>(position);
        t.m_each = nullptr;
        t.cos_scale = a_.mscale;
        t.sin_scale = sin_scale();
        if (a_.policy == NPU_ROPE_ANGLE_F32) {
            for (int i = 0; i < t.count; ++i) each_[i] = double(static_cast<float>(position) * a_.freq_f32[i]);
            t.m_each = each_;
        }
        return t;
    }

    void unscaled(int64_t position, double* c, double* s) {
        TableJob t = table_job(position);
        t.cos_scale = t.sin_scale = 1;
        job_.kernels.table_f64(t, c, s);
    }

    // The first token comes from scratch; once a second one follows it, the float64 state is
    // made and every next position is one step.
    void fill_exact(int64_t position) {
        bool follows = may_step_ && position == position_ + 1;
        if (follows && !stepping_) {
            if (!has_step_) unscaled(1, step_c_, step_s_);
            has_step_ = true;
            unscaled(position_, c_, s_);
        }
        stepping_ = follows;
        if (!follows) return job_.kernels.table_f32(table_job(position), natural_c_, natural_s_);
        StepJob step{c_, s_, step_c_, step_s_, static_cast<int>(a_.turns_hi.size()), a_.mscale, sin_scale()};
        job_.kernels.step(step, natural_c_, natural_s_);
    }

    void fill_natural(int64_t position) {
        if (a_.policy == NPU_ROPE_ANGLE_EXACT) return fill_exact(position);
        if (a_.policy == NPU_ROPE_ANGLE_F32) return job_.kernels.table_f32(table_job(position), natural_c_, natural_s_);
        ggml_cos_sin(a_, position, natural_c_, natural_s_);
        if (!job_.call.forward)
            for (int i = 0; i < a_.pairs; ++i) natural_s_[i] = -natural_s_[i];
    }

    void fill_floats(int64_t position) {
        fill_natural(position);
        TableOrder order = job_.kernels.order[job_.pairing][job_.call.dtype];
        cos_ = order == kNatural ? natural_c_ : ordered_c_;
        sin_ = order == kNatural ? natural_s_ : ordered_s_;
        if (order != kNatural) job_.kernels.reorder(order, a_.pairs, natural_c_, natural_s_, ordered_c_, ordered_s_);
    }

    void fill_doubles(int64_t position) {
        cos_ = c_;
        sin_ = s_;
        if (a_.policy != NPU_ROPE_ANGLE_GGML) return job_.kernels.table_f64(table_job(position), c_, s_);
        fill_natural(position);
        std::copy(natural_c_, natural_c_ + a_.pairs, c_);
        std::copy(natural_s_, natural_s_ + a_.pairs, s_);
    }

    const Job& job_;
    const RopeAngles& a_;
    float *natural_c_, *natural_s_, *ordered_c_, *ordered_s_;
    double *c_, *s_, *step_c_, *step_s_, *each_;
    const void *cos_ = nullptr, *sin_ = nullptr;
    int64_t position_ = 0;
    bool filled_ = false, may_step_ = false, stepping_ = false, has_step_ = false;
};

int64_t position_at(const RopeCall& c, int64_t b, int64_t s) {
    int64_t at = b * c.shape.pos_stride[0] + s * c.shape.pos_stride[1];
    return c.positions_are_int64 ? static_cast<const int64_t*>(c.positions)[at]
                                 : static_cast<const int32_t*>(c.positions)[at];
}

// The dimensions outside the rotated window.
void copy_rest(const Job& job, const char* x, char* y, int64_t heads) {
    const RopeCall& c = job.call;
    int64_t before = c.n_offs * job.item_bytes, from = (c.n_offs + c.n_dims) * job.item_bytes;
    int64_t after = c.shape.D * job.item_bytes - from;
    int64_t x_step = c.shape.x_stride[2] * job.item_bytes, y_step = c.shape.out_stride[2] * job.item_bytes;
    for (int64_t h = 0; h < heads; ++h, x += x_step, y += y_step) {
        if (before) std::memcpy(y, x, static_cast<size_t>(before));
        if (after) std::memcpy(y + from, x + from, static_cast<size_t>(after));
    }
}

void rotate_token(const Job& job, TokenTable& table, int64_t b, int64_t s, int64_t group) {
    const RopeCall& c = job.call;
    const RopeShape& sh = c.shape;
    int64_t first = sh.N * group / job.head_groups, last = sh.N * (group + 1) / job.head_groups;
    if (first == last) return;
    table.fill(position_at(c, b, s));
    const char* x = static_cast<const char*>(c.x) +
                    (b * sh.x_stride[0] + s * sh.x_stride[1] + first * sh.x_stride[2]) * job.item_bytes;
    char* y = static_cast<char*>(c.out) +
              (b * sh.out_stride[0] + s * sh.out_stride[1] + first * sh.out_stride[2]) * job.item_bytes;
    if (!sh.in_place && c.n_dims < sh.D) copy_rest(job, x, y, last - first);
    HeadsJob heads;
    heads.x = x + c.n_offs * job.item_bytes;
    heads.y = y + c.n_offs * job.item_bytes;
    heads.x_stride = sh.x_stride[2];
    heads.y_stride = sh.out_stride[2];
    heads.heads = last - first;
    heads.pairs = c.n_dims / 2;
    heads.cos_table = table.cos_table();
    heads.sin_table = table.sin_table();
    heads.stream = job.stream;
    job.kernels.rotate[job.pairing][c.dtype](heads);
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
}

}  // namespace

void rope_cpu(const RopeCall& call) {
    const RopeShape& s = call.shape;
    int64_t elements = s.B * s.S * s.N * s.D;
    if (elements == 0) return;
    int64_t useful = elements / kElementsPerThread;
    int threads = useful <= 1 ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), useful));
    int64_t chunks_per_row = (s.S + kTokensPerChunk - 1) / kTokensPerChunk, chunks = s.B * chunks_per_row;
    int64_t groups = chunks >= kChunksPerThread * threads ? 1 : std::min<int64_t>(s.N, threads);
    int64_t item_bytes = dtype_bytes(call.dtype);
    Job job{call,
            active_kernels(),
            call.mode == NPU_ROPE_MODE_NEOX ? kHalf : kInterleaved,
            chunks_per_row,
            groups,
            item_bytes,
            should_stream(call, item_bytes)};
    parallel_ranges(chunks * groups, threads, run_range, &job);
}

}  // namespace npu_rope
