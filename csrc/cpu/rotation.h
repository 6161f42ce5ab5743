// Rotate tokens' heads by computed or given tables of cos and sin. Tokens are distributed among threads, and all heads
// of a token share its table.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_check.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rope_kernels.h"
#include "csrc/cpu/streaming.h"

namespace npu_rope {

// A checked call without its tables.
struct Rotation {
    const void* x[2];  // one per side
    void* out[2];      // with rows: the last is the cache
    const void* rows;  // NULL, or each token's row in the cache, into which the last side is stored
    bool rows_are_int64;
    int32_t dtype;      // npu_rope_dtype of x
    int32_t out_dtype;  // dtype, or with rows the type to which float32 is rounded
    Pairing pairing;
    int64_t offset;  // of the window in a head
    int64_t pairs;
    RopeShape shape;
    bool to_cache(int side) const { return rows && side == shape.sides - 1; }
};

namespace rotation {

// Tokens of one batch that a thread processes as one chunk. Source are stepped from position to position inside a chunk
// only, so that a result does not depend on the number of threads.
constexpr int64_t kTokensPerChunk = 64;

// With fewer chunks per thread than this, a token's heads are also split among threads, for even shares.
constexpr int64_t kMinChunksPerThread = 4;

// Source: the source of tokens' tables. Its class OfToken, one object per thread, is constructed from the source, the
// call and the kernels:
//   begin_chunk()               called before a chunk's first token
//   fill(b, s)                  computes the table of a token
//   cos_table(), sin_table()    the table, in the order that its kernel reads
//   entry_per_lane()            whether the table has one entry per lane
template <class Source>
struct Job {
    const Source& source;
    const Rotation& call;
    const RopeKernels& kernels;
    int64_t chunks_per_batch;
    int64_t head_groups;
    int64_t item_bytes, out_bytes;
    bool stream[2];
};

// Whether to write output past the caches. This saves reading output that the caches would not keep. It needs aligned
// heads and windows.
inline bool should_stream(const Rotation& c, int side, int64_t item_bytes) {
    const RopeShape& s = c.shape;
    int64_t bytes = s.B * s.S * s.heads() * s.D * item_bytes;
    if (s.side[side].in_place || c.to_cache(side) || c.dtype == NPU_ROPE_FLOAT64 || 2 * bytes <= kStreamAbove)
        return false;
    int64_t address_bits = reinterpret_cast<intptr_t>(c.out[side]) | (c.offset * item_bytes) | (c.pairs * item_bytes);
    for (int64_t stride : s.side[side].out_stride) address_bits |= stride * item_bytes;
    return address_bits % kStreamAlign == 0;
}

// Buffer for a head that is rounded to the cache's type.
inline std::vector<float>& head_buffer() {
    thread_local std::vector<float> buffer;
    return buffer;
}

// Some heads of one token; strides in elements.
struct Heads {
    const char* x;
    char* y;
    int64_t count, x_stride, y_stride;
};

template <class Source>
void rotate_heads(const Job<Source>& job, const typename Source::OfToken& table, const Heads& heads, bool in_place,
                  bool stream) {
    const Rotation& c = job.call;
    int64_t offset = c.offset * job.item_bytes;
    HeadsJob h;
    h.x = heads.x + offset;
    h.y = heads.y + offset;
    h.x_stride = heads.x_stride;
    h.y_stride = heads.y_stride;
    h.heads = heads.count;
    h.pairs = static_cast<int>(c.pairs);
    h.bytes_before = in_place ? 0 : offset;
    h.bytes_after = in_place ? 0 : (c.shape.D - 2 * c.pairs) * job.item_bytes - offset;
    h.cos_table = table.cos_table();
    h.sin_table = table.sin_table();
    h.stream = stream;
    const auto& rotate = table.entry_per_lane() ? job.kernels.rotate_by_lanes : job.kernels.rotate;
    rotate[c.pairing][c.dtype](h);
}

// Rotates heads of a side by a token's table. An operator with further steps specializes it.
template <class Source>
struct RotateHeads {
    static void run(const Job<Source>& job, const typename Source::OfToken& table, int, const Heads& heads,
                    bool in_place, bool stream) {
        rotate_heads(job, table, heads, in_place, stream);
    }
};

// Rotates heads into the operator's cache. If the type changes, rotates each head into a float32 buffer and rounds it.
template <class Source>
void scatter_heads(const Job<Source>& job, const typename Source::OfToken& table, int side, Heads heads, int64_t row) {
    const Rotation& c = job.call;
    heads.y += row * c.shape.side[side].out_stride[1] * job.out_bytes;
    if (c.out_dtype == c.dtype) return RotateHeads<Source>::run(job, table, side, heads, false, false);
    std::vector<float>& buffer = head_buffer();
    int64_t D = c.shape.D;
    if (static_cast<int64_t>(buffer.size()) < D) buffer.resize(static_cast<size_t>(D));
    for (int64_t h = 0; h < heads.count; ++h) {
        Heads head{heads.x + h * heads.x_stride * job.item_bytes, reinterpret_cast<char*>(buffer.data()), 1, D, D};
        RotateHeads<Source>::run(job, table, side, head, false, false);
        job.kernels.narrow[c.out_dtype](buffer.data(), heads.y + h * heads.y_stride * job.out_bytes, D);
    }
}

// A token: its batch, its place in the batch and, with rows, its row of the cache.
struct Token {
    int64_t b, s, row;
};

// Rotates heads [first, last) of one side; skips a cache's side for a token without a row.
template <class Source>
void rotate_side(const Job<Source>& job, const typename Source::OfToken& table, int side, const Token& token,
                 int64_t first, int64_t last) {
    const Rotation& c = job.call;
    if (first >= last || (c.to_cache(side) && token.row < 0)) return;
    const RopeSide& sd = c.shape.side[side];
    Heads heads;
    heads.x = static_cast<const char*>(c.x[side]) +
              (token.b * sd.x_stride[0] + token.s * sd.x_stride[1] + first * sd.x_stride[2]) * job.item_bytes;
    heads.y = static_cast<char*>(c.out[side]) + first * sd.out_stride[2] * job.out_bytes;
    heads.count = last - first;
    heads.x_stride = sd.x_stride[2];
    heads.y_stride = sd.out_stride[2];
    if (c.to_cache(side)) return scatter_heads(job, table, side, heads, token.row);
    heads.y += (token.b * sd.out_stride[0] + token.s * sd.out_stride[1]) * job.out_bytes;
    RotateHeads<Source>::run(job, table, side, heads, sd.in_place, job.stream[side]);
}

inline Token token_at(const Rotation& c, int64_t b, int64_t s) {
    if (!c.rows) return {b, s, 0};
    return {b, s, index_at(c.rows, c.rows_are_int64, b * c.shape.row_stride[0] + s * c.shape.row_stride[1])};
}

// Rotates one group of a token's heads. Heads are numbered through both sides.
template <class Source>
void rotate_token(const Job<Source>& job, typename Source::OfToken& table, int64_t b, int64_t s, int64_t group) {
    const Rotation& c = job.call;
    int64_t head_count = c.shape.heads(), first_side_heads = c.shape.side[0].N;
    int64_t first = head_count * group / job.head_groups, last = head_count * (group + 1) / job.head_groups;
    if (first == last) return;
    const Token token = token_at(c, b, s);
    if (token.row < 0 && c.to_cache(0)) return;
    table.fill(b, s);
    rotate_side(job, table, 0, token, first, std::min(last, first_side_heads));
    rotate_side(job, table, 1, token, std::max(first, first_side_heads) - first_side_heads, last - first_side_heads);
}

template <class Source>
void run_range(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job<Source>*>(ctx);
    typename Source::OfToken table(job.source, job.call, job.kernels);
    for (int64_t u = begin; u < end; ++u) {
        int64_t chunk = u / job.head_groups, group = u % job.head_groups;
        int64_t b = chunk / job.chunks_per_batch, first = chunk % job.chunks_per_batch * kTokensPerChunk;
        int64_t last = std::min(first + kTokensPerChunk, job.call.shape.S);
        table.begin_chunk();
        for (int64_t s = first; s < last; ++s) rotate_token(job, table, b, s, group);
    }
    // Stores past the caches are unordered.
    if (job.stream[0] || job.stream[1]) std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace rotation

// Rotates every token of a checked call.
template <class Source>
void rotate_all(const Source& source, const Rotation& call) {
    using namespace rotation;

    const RopeShape& s = call.shape;
    if (s.empty()) return;
    int threads = threads_for(s.B * s.S * s.heads() * s.D);
    int64_t chunks_per_batch = (s.S + kTokensPerChunk - 1) / kTokensPerChunk, chunks = s.B * chunks_per_batch;
    int64_t groups = chunks >= kMinChunksPerThread * threads ? 1 : std::min<int64_t>(s.heads(), threads);
    int64_t item_bytes = dtype_bytes(call.dtype);
    Job<Source> job{source,
                    call,
                    active_rope_kernels(),
                    chunks_per_batch,
                    groups,
                    item_bytes,
                    dtype_bytes(call.out_dtype),
                    {should_stream(call, 0, item_bytes), s.sides == 2 && should_stream(call, 1, item_bytes)}};
    parallel_ranges(chunks * groups, threads, run_range<Source>, &job);
}

}  // namespace npu_rope
