// Rotate tokens' heads by computed or given tables of cos and sin. Tokens are distributed among threads, and all heads
// of a token share its table.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

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

// A segment is this number of consecutive tokens of one batch, or the batch's rest. Tables are computed by steps
// (StepJob) inside a segment only, so that a result does not depend on the number of threads.
constexpr int64_t kTokensPerSegment = 64;

// A unit is a part of a segment: the least that a thread processes.
constexpr int64_t kTokensPerUnit = 16;

inline int64_t units_of(int64_t tokens) { return (tokens + kTokensPerUnit - 1) / kTokensPerUnit; }

// A TableSource holds the data from which the tables of all tokens are computed. Its class Table computes and holds the
// tables of one token. Each part of a call constructs a Table from the source, the call, the kernels and a
// Table::Memory(source, call, memory). Functions of Table:
//   begin_segment()             begins a segment; it is called before the segment's first token
//   fill(b, s)                  computes the tables of token s of batch b
//   in_order_of(dtype)          returns the tables, in the order that the kernel of this dtype reads
//   entry_per_lane()            returns whether the tables have one entry per lane
template <class TableSource>
struct Job {
    const TableSource& source;
    const RotationCall& call;
    const RopeKernels& kernels;
    int64_t item_bytes, out_bytes;
    bool stream[2];   // of each side: store past the caches
    bool prefetches;  // heads ahead of the one that is rotated
};

// Whether all heads and windows of an output are aligned for stores past the caches. strides: in elements.
inline bool is_aligned(const RotationCall& call, const void* out, const int64_t (&strides)[3]) {
    const int64_t item_bytes = dtype_bytes(call.dtype);
    int64_t address_bits = reinterpret_cast<intptr_t>(out) | (call.offset * item_bytes) | (call.pairs * item_bytes);
    for (int64_t stride : strides) address_bits |= stride * item_bytes;
    return address_bits % kStreamAlignBytes == 0;
}

// Size of all 16-bit tensors from which several threads store past the caches. Measured with two threads: with stores
// into the caches, a call of 32 MiB takes as long or up to 25 % less, also if its result is read afterwards, and one of
// 40 MiB takes as long or longer. In float32, a call of 32 MiB takes up to 25 % longer with them.
constexpr int64_t kThreadsStreamHalvesFromBytes = kCacheBytes / 8 * 9;

// Whether to store output past the caches (streaming.h). bytes: of all inputs and outputs.
inline bool should_stream(const RotationCall& call, int threads, int side, int64_t item_bytes, int64_t bytes) {
    const RopeShape& shape = call.shape;
    const int64_t size_of_threads = item_bytes == 2 ? kThreadsStreamHalvesFromBytes : kCacheBytes;
    return !shape.side[side].in_place && !call.out_is_cache(side) && call.dtype != NPU_ROPE_FLOAT64 &&
           exceeds_caches(threads, bytes, size_of_threads) &&
           is_aligned(call, call.out[side], shape.side[side].out_stride);
}

// Whether to prefetch heads. The halves of a head are two sequences of addresses, which the processor does not always
// prefetch in time. Measured with 32 MiB of float32 in mode neox, one thread of an AMD EPYC of family 26: 1.15 ms
// instead of 1.5, in place 1.0 instead of 1.2 to 1.3. In mode normal, a call in place takes 6 to 8 % less. In 16 bits
// nothing changes.
constexpr int64_t kPrefetchedHeads = 8;
inline bool should_prefetch(const RotationCall& call, int threads, int64_t bytes) {
    return call.dtype == NPU_ROPE_FLOAT32 && exceeds_caches(threads, bytes);
}

// Some heads of one token. Strides are in elements.
struct Heads {
    const char* x;
    char* y;
    int64_t count, x_stride, y_stride;
    int64_t prefetch_distance = 0;  // HeadsJob's
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
    heads_job.prefetch_distance = heads.prefetch_distance;
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
// block_bytes() returns the bytes of `block`, which run() may use.
template <class TableSource>
struct RotateHeads {
    static int64_t block_bytes(const Job<TableSource>&) { return 0; }
    static void run(const Job<TableSource>& job, typename TableSource::Table& table, char* /*block*/, int,
                    const Heads& heads, bool in_place, bool stream) {
        rotate_heads(job.kernels, job.call, job.call.dtype, table, heads, in_place, stream);
    }
};

// A token: its batch b, its index s in the batch and, if the call has rows, its row of the cache.
struct Token {
    int64_t b, s, row;
};

inline Token token_at(const RotationCall& call, int64_t b, int64_t s) {
    if (!call.rows) return {b, s, 0};
    return {b, s,
            index_at(call.rows, call.rows_are_int64, b * call.shape.row_stride[0] + s * call.shape.row_stride[1])};
}

// Processes units [begin, end) of batches of S tokens: calls process(b, s, true) for each of their tokens. If the first
// unit is not the first of its segment, calls process(b, s, false) for the segment's tokens before it, which only fills
// the table: the tables of a token may be computed from those of the token before it.
template <class Table, typename Process>
void run_units(int64_t begin, int64_t end, int64_t S, Table& table, Process process) {
    const int64_t units_per_batch = units_of(S);
    for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t b = unit / units_per_batch, first = unit % units_per_batch * kTokensPerUnit;
        const int64_t segment = first / kTokensPerSegment * kTokensPerSegment;
        if (unit == begin || first == segment) {
            table.begin_segment();
            for (int64_t s = segment; s < first; ++s) process(b, s, false);
        }
        for (int64_t s = first; s < std::min(first + kTokensPerUnit, S); ++s) process(b, s, true);
    }
}

// A part of a call: some units.
template <class TableSource>
class Part {
public:
    struct Memory {
        Memory(const Job<TableSource>& job, PartMemory& memory)
            : table(job.source, job.call, memory),
              head(job.call.out_dtype == job.call.dtype ? nullptr : memory.take<float>(job.call.shape.D)),
              block(memory.take<char>(RotateHeads<TableSource>::block_bytes(job))) {}
        typename TableSource::Table::Memory table;
        float* head;  // one that is rounded to the cache's type
        char* block;  // of RotateHeads
    };

    Part(const Job<TableSource>& job, const Memory& memory)
        : job_(job),
          table_(job.source, job.call, job.kernels, memory.table),
          head_(memory.head),
          block_(memory.block) {}

    void run(int64_t begin, int64_t end) {
        const RotationCall& call = job_.call;
        run_units(begin, end, call.shape.S, table_, [&](int64_t b, int64_t s, bool rotates) {
            const Token token = token_at(call, b, s);
            if (token.row < 0 && call.out_is_cache(0)) return;
            table_.fill(b, s);
            for (int side = 0; rotates && side < call.shape.sides; ++side) rotate_side(side, token);
        });
        // Stores past the caches are unordered.
        if (job_.stream[0] || job_.stream[1]) std::atomic_thread_fence(std::memory_order_seq_cst);
    }

private:
    // Rotates a token's heads of one side. A token with row -1 is not stored into a cache.
    void rotate_side(int side, const Token& token) {
        const RotationCall& call = job_.call;
        if (call.out_is_cache(side) && token.row < 0) return;
        const RopeSide& rope_side = call.shape.side[side];
        Heads heads;
        heads.x = static_cast<const char*>(call.x[side]) +
                  (token.b * rope_side.x_stride[0] + token.s * rope_side.x_stride[1]) * job_.item_bytes;
        heads.y = static_cast<char*>(call.out[side]);
        heads.count = rope_side.N;
        heads.x_stride = rope_side.x_stride[2];
        heads.y_stride = rope_side.out_stride[2];
        if (job_.prefetches) heads.prefetch_distance = kPrefetchedHeads * heads.x_stride * job_.item_bytes;
        if (call.out_is_cache(side)) return scatter_heads(side, heads, token.row);
        heads.y += (token.b * rope_side.out_stride[0] + token.s * rope_side.out_stride[1]) * job_.out_bytes;
        rotate(side, heads, rope_side.in_place, job_.stream[side]);
    }

    // Rotates heads into a row of the cache. If the cache has another type than x, the function rotates each head into
    // a float32 buffer and rounds it.
    void scatter_heads(int side, Heads heads, int64_t row) {
        const RotationCall& call = job_.call;
        heads.y += row * call.shape.side[side].out_stride[1] * job_.out_bytes;
        if (call.out_dtype == call.dtype) return rotate(side, heads, false, false);
        const int64_t D = call.shape.D;
        for (int64_t h = 0; h < heads.count; ++h) {
            rotate(side, {heads.x + h * heads.x_stride * job_.item_bytes, reinterpret_cast<char*>(head_), 1, D, D},
                   false, false);
            job_.kernels.narrow[call.out_dtype](head_, heads.y + h * heads.y_stride * job_.out_bytes, D);
        }
    }

    void rotate(int side, const Heads& heads, bool in_place, bool stream) {
        RotateHeads<TableSource>::run(job_, table_, block_, side, heads, in_place, stream);
    }

    const Job<TableSource>& job_;
    typename TableSource::Table table_;
    float* head_;
    char* block_;
};

template <class Part, class Job>
void run_part(int64_t begin, int64_t end, const Job& job, const typename Part::Memory& memory) {
    Part(job, memory).run(begin, end);
}

}  // namespace rotation

// Rotates every token of a checked call with these kernels.
template <class TableSource>
void rotate_all(const TableSource& source, const RotationCall& call, const RopeKernels& kernels) {
    using namespace rotation;

    const RopeShape& shape = call.shape;
    if (shape.empty()) return;
    const int64_t elements = shape.B * shape.S * shape.heads() * shape.D;
    const int threads = threads_for(elements);
    const int64_t item_bytes = dtype_bytes(call.dtype), bytes = 2 * elements * item_bytes;
    Job<TableSource> job{source,
                         call,
                         kernels,
                         item_bytes,
                         dtype_bytes(call.out_dtype),
                         {should_stream(call, threads, 0, item_bytes, bytes),
                          shape.sides == 2 && should_stream(call, threads, 1, item_bytes, bytes)},
                         should_prefetch(call, threads, bytes)};
    run_parts<typename Part<TableSource>::Memory, run_part<Part<TableSource>, Job<TableSource>>>(
        shape.B * units_of(shape.S), threads, job);
}

}  // namespace npu_rope
