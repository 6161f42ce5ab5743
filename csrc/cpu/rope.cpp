// Tokens are shared out among threads; a token's cos/sin table is made once and serves all its
// heads. Formula: specs/ggml_rope_acltensor.txt section 7.
#include "csrc/cpu/rope.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {
namespace {

// Below this many elements a second thread costs more than it saves (a team's fork and join is
// a few microseconds; one core rotates 64 Ki elements in about as long).
constexpr int64_t kElementsPerThread = 32 * 1024;

// Heads are split among threads only where there are fewer tokens than threads.
struct Job {
    const RopeCall& call;
    const KernelSet& kernels;
    Pairing pairing;
    int64_t head_groups;
    int64_t item_bytes;
};

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
        if (scratch.doubles.size() < 3 * n) scratch.doubles.resize(3 * n);
        natural_ = scratch.floats.data();
        ordered_ = natural_ + 2 * n;
        doubles_ = scratch.doubles.data();
        n_ = n;
    }

    void fill(int64_t position) {
        if (filled_ && position == position_) return;
        filled_ = true;
        position_ = position;
        if (job_.call.dtype == NPU_ROPE_FLOAT64) return fill_doubles(position);
        fill_floats(position);
        TableOrder order = job_.kernels.order[job_.pairing][job_.call.dtype];
        cos_ = natural_;
        sin_ = natural_ + n_;
        if (order == kNatural) return;
        job_.kernels.reorder(order, a_.pairs, natural_, natural_ + n_, ordered_, ordered_ + n_);
        cos_ = ordered_;
        sin_ = ordered_ + n_;
    }

    const void* cos_table() const { return cos_; }
    const void* sin_table() const { return sin_; }

private:
    double sin_sign() const { return job_.call.forward ? 1.0 : -1.0; }

    TableJob table_job(int64_t position) {
        TableJob t;
        t.turns_hi = a_.turns_hi.data();
        t.turns_lo = a_.turns_lo.data();
        t.count = static_cast<int>(a_.turns_hi.size());
        t.m = static_cast<double>(position);
        t.m_each = nullptr;
        t.cos_scale = a_.mscale;
        t.sin_scale = a_.mscale * sin_sign();
        if (a_.policy == NPU_ROPE_ANGLE_F32) {
            double* m = doubles_ + 2 * n_;
            for (int i = 0; i < t.count; ++i) m[i] = double(static_cast<float>(position) * a_.freq_f32[i]);
            t.m_each = m;
        }
        return t;
    }

    void fill_floats(int64_t position) {
        if (a_.policy == NPU_ROPE_ANGLE_GGML) {
            ggml_cos_sin(a_, position, natural_, natural_ + n_);
            if (!job_.call.forward)
                for (int i = 0; i < a_.pairs; ++i) natural_[n_ + i] = -natural_[n_ + i];
            return;
        }
        job_.kernels.table_f32(table_job(position), natural_, natural_ + n_);
    }

    void fill_doubles(int64_t position) {
        cos_ = doubles_;
        sin_ = doubles_ + n_;
        if (a_.policy != NPU_ROPE_ANGLE_GGML) {
            job_.kernels.table_f64(table_job(position), doubles_, doubles_ + n_);
            return;
        }
        fill_floats(position);
        for (int i = 0; i < a_.pairs; ++i) {
            doubles_[i] = natural_[i];
            doubles_[n_ + i] = natural_[n_ + i];
        }
    }

    const Job& job_;
    const RopeAngles& a_;
    float *natural_, *ordered_;
    double* doubles_;
    size_t n_;
    const void *cos_ = nullptr, *sin_ = nullptr;
    int64_t position_ = 0;
    bool filled_ = false;
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
    job.kernels.rotate[job.pairing][c.dtype](heads);
}

void run_range(int64_t begin, int64_t end, void* ctx) {
    const Job& job = *static_cast<const Job*>(ctx);
    TokenTable table(job);
    int64_t tokens_per_batch = job.call.shape.S;
    for (int64_t u = begin; u < end; ++u) {
        int64_t token = u / job.head_groups, group = u % job.head_groups;
        rotate_token(job, table, token / tokens_per_batch, token % tokens_per_batch, group);
    }
}

}  // namespace

void rope_cpu(const RopeCall& call) {
    const RopeShape& s = call.shape;
    int64_t tokens = s.B * s.S, elements = tokens * s.N * s.D;
    if (elements == 0) return;
    int64_t useful = elements / kElementsPerThread;
    int threads = useful <= 1 ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), useful));
    int64_t groups = tokens >= threads ? 1 : std::min<int64_t>(s.N, (threads + tokens - 1) / tokens);
    Job job{call, active_kernels(), call.mode == NPU_ROPE_MODE_NEOX ? kHalf : kInterleaved, groups,
            dtype_bytes(call.dtype)};
    parallel_ranges(tokens * groups, threads, run_range, &job);
}

}  // namespace npu_rope
