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

// A checked call without its tables of cos and sin.
struct RotationCall {
    const void* x[2];  // one per side
    void* out[2];      // the last one is a cache if rows is not NULL
    const void* rows;  // NULL, or the row of the cache for each token of the last side
    bool rows_are_int64;
    int32_t dtype;      // npu_rope_dtype of x
    int32_t out_dtype;  // npu_rope_dtype of out; that of a cache can be narrower than x's
    Pairing pairing;
    int64_t offset;  // of the window in a head
    int64_t pairs;
    RopeShape shape;
    bool out_is_cache(int side) const { return rows && side == shape.sides - 1; }
};

namespace rotation {

// A segment is at most this number of consecutive tokens of one batch; one thread processes it. Tables are computed by
// steps (StepJob) inside a segment only, so that a result does not depend on the number of threads.
constexpr int64_t kTokensPerSegment = 64;

// With fewer segments per thread than this, a token's heads are also split among threads, so that all threads get
// almost equal work.
constexpr int64_t kMinSegmentsPerThread = 4;

// A TableSource holds the data from which the tables of all tokens are computed. Its class Table computes and holds the
// tables of one token. Each thread constructs a Table from the source, the call and the kernels. Functions of Table:
//   begin_segment()             begins a segment; it is called before the segment's first token
//   fill(b, s)                  computes the tables of token s of batch b
//   in_order_of(dtype)          returns the tables, in the order that the kernel of this dtype reads
//   entry_per_lane()            returns whether the tables have one entry per lane
template <class TableSource>
struct Job {
    const TableSource& source;
    const RotationCall& call;
    const RopeKernels& kernels;
    int64_t segments_per_batch;
    int64_t head_groups;  // parts into which a token's heads are split among threads
    int64_t item_bytes, out_bytes;
    bool stream[2];  // of each side: store past the caches
};

// Whether all heads and windows of an output are aligned for stores past the caches. strides: in elements.
inline bool is_aligned(const RotationCall& call, const void* out, const int64_t (&strides)[3]) {
    const int64_t item_bytes = dtype_bytes(call.dtype);
    int64_t address_bits = reinterpret_cast<intptr_t>(out) | (call.offset * item_bytes) | (call.pairs * item_bytes);
    for (int64_t stride : strides) address_bits |= stride * item_bytes;
    return address_bits % kStreamAlignBytes == 0;
}

// Whether to store output past the caches (streaming.h).
inline bool should_stream(const RotationCall& call, int threads, int side, int64_t item_bytes) {
    const RopeShape& shape = call.shape;
    int64_t bytes = shape.B * shape.S * shape.heads() * shape.D * item_bytes;
    return !shape.side[side].in_place && !call.out_is_cache(side) && call.dtype != NPU_ROPE_FLOAT64 &&
           exceeds_caches(threads, 2 * bytes) && is_aligned(call, call.out[side], shape.side[side].out_stride);
}

// This thread's buffer for a head that is rounded to the cache's type.
inline std::vector<float>& head_buffer() {
    thread_local std::vector<float> buffer;
    return buffer;
}

// Some heads of one token. Strides are in elements.
struct Heads {
    const char* x;
    char* y;
    int64_t count, x_stride, y_stride;
};

// Rotates heads of a type by a token's tables.
template <class Table>
void rotate_heads(const RopeKernels& kernels, const RotationCall& call, int32_t dtype, Table& table, const Heads& heads,
                  bool in_place, bool stream) {
    const int64_t item_bytes = dtype_bytes(dtype), offset = call.offset * item_bytes;
    HeadsJob heads_job;
    heads_job.x = heads.x + offset;
    heads_job.y = heads.y + offset;
    heads_job.x_stride = heads.x_stride;
    heads_job.y_stride = heads.y_stride;
    heads_job.heads = heads.count;
    heads_job.pairs = static_cast<int>(call.pairs);
    heads_job.bytes_before = in_place ? 0 : offset;
    heads_job.bytes_after = in_place ? 0 : (call.shape.D - 2 * call.pairs) * item_bytes - offset;
    const TablePair tables = table.in_order_of(dtype);
    heads_job.cos_table = tables.cos;
    heads_job.sin_table = tables.sin;
    heads_job.stream = stream;
    const auto& rotate = table.entry_per_lane() ? kernels.rotate_by_lanes : kernels.rotate;
    rotate[call.pairing][dtype](heads_job);
}

// Rotates heads of a side by a token's tables. An operator that also normalizes the heads specializes this template.
template <class TableSource>
struct RotateHeads {
    static void run(const Job<TableSource>& job, typename TableSource::Table& table, int, const Heads& heads,
                    bool in_place, bool stream) {
        rotate_heads(job.kernels, job.call, job.call.dtype, table, heads, in_place, stream);
    }
};

// Rotates heads into a row of the cache. If the cache has another type than x, the function rotates each head into a
// float32 buffer and rounds it.
template <class TableSource>
void scatter_heads(const Job<TableSource>& job, typename TableSource::Table& table, int side, Heads heads,
                   int64_t row) {
    const RotationCall& call = job.call;
    heads.y += row * call.shape.side[side].out_stride[1] * job.out_bytes;
    if (call.out_dtype == call.dtype) return RotateHeads<TableSource>::run(job, table, side, heads, false, false);
    std::vector<float>& buffer = head_buffer();
    int64_t D = call.shape.D;
    if (static_cast<int64_t>(buffer.size()) < D) buffer.resize(static_cast<size_t>(D));
    for (int64_t h = 0; h < heads.count; ++h) {
        Heads head{heads.x + h * heads.x_stride * job.item_bytes, reinterpret_cast<char*>(buffer.data()), 1, D, D};
        RotateHeads<TableSource>::run(job, table, side, head, false, false);
        job.kernels.narrow[call.out_dtype](buffer.data(), heads.y + h * heads.y_stride * job.out_bytes, D);
    }
}

// A token: its batch b, its index s in the batch and, if the call has rows, its row of the cache.
struct Token {
    int64_t b, s, row;
};

// Rotates heads [first, last) of one side. A token with row -1 is not stored into a cache.
template <class TableSource>
void rotate_side(const Job<TableSource>& job, typename TableSource::Table& table, int side, const Token& token,
                 int64_t first, int64_t last) {
    const RotationCall& call = job.call;
    if (first >= last || (call.out_is_cache(side) && token.row < 0)) return;
    const RopeSide& rope_side = call.shape.side[side];
    Heads heads;
    heads.x = static_cast<const char*>(call.x[side]) +
              (token.b * rope_side.x_stride[0] + token.s * rope_side.x_stride[1] + first * rope_side.x_stride[2]) *
                  job.item_bytes;
    heads.y = static_cast<char*>(call.out[side]) + first * rope_side.out_stride[2] * job.out_bytes;
    heads.count = last - first;
    heads.x_stride = rope_side.x_stride[2];
    heads.y_stride = rope_side.out_stride[2];
    if (call.out_is_cache(side)) return scatter_heads(job, table, side, heads, token.row);
    heads.y += (token.b * rope_side.out_stride[0] + token.s * rope_side.out_stride[1]) * job.out_bytes;
    RotateHeads<TableSource>::run(job, table, side, heads, rope_side.in_place, job.stream[side]);
}

inline Token token_at(const RotationCall& call, int64_t b, int64_t s) {
    if (!call.rows) return {b, s, 0};
    return {b, s,
            index_at(call.rows, call.rows_are_int64, b * call.shape.row_stride[0] + s * call.shape.row_stride[1])};
}

// Rotates one group of a token's heads. The heads of both sides have consecutive numbers.
template <class TableSource>
void rotate_token(const Job<TableSource>& job, typename TableSource::Table& table, int64_t b, int64_t s,
                  int64_t group) {
    const RotationCall& call = job.call;
    int64_t head_count = call.shape.heads(), first_side_heads = call.shape.side[0].N;
    int64_t first = head_count * group / job.head_groups, last = head_count * (group + 1) / job.head_groups;
    if (first == last) return;
    const Token token = token_at(call, b, s);
    if (token.row < 0 && call.out_is_cache(0)) return;
    table.fill(b, s);
    rotate_side(job, table, 0, token, first, std::min(last, first_side_heads));
    rotate_side(job, table, 1, token, std::max(first, first_side_heads) - first_side_heads, last - first_side_heads);
}

template <class TableSource>
void run_range(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job<TableSource>*>(ctx);
    typename TableSource::Table table(job.source, job.call, job.kernels);
    for (int64_t item = begin; item < end; ++item) {
        int64_t segment = item / job.head_groups, group = item % job.head_groups;
        int64_t b = segment / job.segments_per_batch, first = segment % job.segments_per_batch * kTokensPerSegment;
        int64_t last = std::min(first + kTokensPerSegment, job.call.shape.S);
        table.begin_segment();
        for (int64_t s = first; s < last; ++s) rotate_token(job, table, b, s, group);
    }
    // Stores past the caches are unordered.
    if (job.stream[0] || job.stream[1]) std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace rotation

// Rotates every token of a checked call with these kernels.
template <class TableSource>
void rotate_all(const TableSource& source, const RotationCall& call, const RopeKernels& kernels) {
    using namespace rotation;

    const RopeShape& shape = call.shape;
    if (shape.empty()) return;
    int threads = threads_for(shape.B * shape.S * shape.heads() * shape.D);
    int64_t segments_per_batch = (shape.S + kTokensPerSegment - 1) / kTokensPerSegment;
    int64_t segments = shape.B * segments_per_batch;
    int64_t groups = segments >= kMinSegmentsPerThread * threads ? 1 : std::min<int64_t>(shape.heads(), threads);
    int64_t item_bytes = dtype_bytes(call.dtype);
    Job<TableSource> job{
        source,
        call,
        kernels,
        segments_per_batch,
        groups,
        item_bytes,
        dtype_bytes(call.out_dtype),
        {should_stream(call, threads, 0, item_bytes), shape.sides == 2 && should_stream(call, threads, 1, item_bytes)}};
    parallel_ranges(segments * groups, threads, run_range<TableSource>, &job);
}

}  // namespace npu_rope
