// rms_norm on the CPU. Source: specs/onnx_rms_normalization_23.txt and ONNX's definition of the operator as a function.
// For a row of n elements:
//
//   XU          = x rounded to the stash type U
//   Normalized  = XU / sqrt(mean(XU^2) + epsilon), rounded to U
//   y           = Normalized rounded to x's type, times scale, rounded to scale's type
//
// rms_norm_rounded_last: y = Normalized * (scale + scale_offset), rounded to x's type. U is float32, and the sum and
// the product are rounded to float32 as well.
//
// The error of Normalized. Let u = 2^-24 and w = 2^-53, the largest relative errors of one rounding in float32 and
// double.
//
// In double (x or scale in float64, U other than float32, rows whose mean square fits_floats() rejects): the error of a
// block's sum is at most 38 w (kSumBlockError); the bound allows 71 w. Adding the blocks pairwise takes at most
// log2(n) - 9 + 2 additions. No term is negative, so the relative error of the sum of squares is at most
// (64 + log2 n) w. The mean and its sum with epsilon round once each. The root halves the error and rounds. The inverse
// rounds, and its error is at most (35 + log2(n) / 2) w. Its product with x rounds once more. Before Normalized is
// rounded to U, its error relative to XU / RMS, where RMS is the root, is at most (36 + log2(n) / 2) w.
//
// In float32 (all other rows): groups of squares are added in float32 with an error of at most 5 u (kSquaresBlock).
// Squares that underflow in float32 lose less than u in total. The additions in double add less than 256 w = 2^-45 for
// the groups of a block, and less than log2(n) w for the blocks, the mean and epsilon. The root halves the error and
// rounds. The inverse rounds in double and in float32, and its product with x rounds in float32. The sum of these
// errors is (3 + 2) u + (130 + log2(n) / 2) w, which is less than 5.1 u + log2(n) w.
//
// npu_rope/testing/bounds.py uses these bounds.
//
// Squares of float32 values never overflow double, so rows in double need a scaling only with stash type float64. A row
// whose squares leave double's range is then first multiplied by a power of two.
#include "csrc/cpu/rms_norm.h"

#include <algorithm>
#include <atomic>

#include "csrc/cpu/normalized_heads.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rms_norm_job.h"
#include "csrc/cpu/streaming.h"

namespace npu_rope {
namespace {

using rms_norm::Job;
using rms_norm::ScaleRow;

// Iterates over rows: the offset of the current row in each tensor, in elements.
class RowOffsets {
public:
    RowOffsets(const RmsNormShape& shape, int64_t row) : shape_(shape) {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            index_[k] = shape.outer[k] == 1 ? 0 : row % shape.outer[k];
            row /= shape.outer[k];
            move(k, index_[k]);
        }
    }
    void advance() {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            if (++index_[k] < shape_.outer[k]) return move(k, 1);
            move(k, 1 - shape_.outer[k]);
            index_[k] = 0;
        }
    }
    int64_t x = 0, scale = 0, out = 0, residual = 0, sum = 0;

private:
    void move(int k, int64_t by) {
        x += by * shape_.x_stride[k];
        scale += by * shape_.scale_stride[k];
        out += by * shape_.out_stride[k];
        residual += by * shape_.residual_stride[k];
        sum += by * shape_.sum_stride[k];
    }

    const RmsNormShape& shape_;
    int64_t index_[kMaxOuterDims];
};

// A row to be normalized: a row of x, or its sum with the residual's row.
class RowToNormalize {
public:
    struct Memory {
        Memory(const Job& job, PartMemory& memory)
            : sum(job.stream_sum ? memory.take<char>(job.shape.n * job.format.x_bytes) : nullptr) {}
        char* sum;
    };

    RowToNormalize(const Job& job, const Memory& memory) : job_(job), cached_sum_(memory.sum) {}

    // Computes the row at these offsets, and its mean square.
    void compute(const RowOffsets& offsets, const RowNormalizer& normalizer) {
        row_ = row_at(offsets);
        mean_square_plus_epsilon_ = normalizer.mean_square_plus_epsilon(row_);
    }
    const char* row() const { return row_; }
    double mean_square_plus_epsilon() const { return mean_square_plus_epsilon_; }

private:
    const char* row_at(const RowOffsets& offsets) {
        const int64_t bytes = job_.format.x_bytes;
        const char* x = job_.x + offsets.x * bytes;
        if (!job_.residual) return x;
        char *sum = job_.sum + offsets.sum * bytes, *streamed = nullptr;
        if (job_.stream_sum) streamed = sum, sum = cached_sum_;
        const char* residual = job_.residual + offsets.residual * bytes;
        job_.format.kernels.add[job_.format.x_dtype]({x, residual, sum, job_.shape.n, streamed});
        return sum;
    }

    const Job& job_;
    char* const cached_sum_;  // copy of a sum that is stored past the caches
    const char* row_ = nullptr;
    double mean_square_plus_epsilon_ = 0;
};

// The scale of a row, widened if Job::widen_scale.
class ForwardScale {
public:
    struct Memory {
        Memory(const Job& job, PartMemory& memory)
            : row(job, memory), floats(job.widen_scale ? memory.take<float>(job.shape.n) : nullptr) {}
        ScaleRow::Memory row;
        float* floats;
    };

    ForwardScale(const Job& job, const Memory& memory) : row_(job, memory.row), floats_(memory.floats) {
        if (floats_) active_rope_kernels().widen[job.format.scale_dtype](row_.at(0), floats_, job.shape.n);
    }
    Scale at(int64_t offset) { return {row_.at(offset), floats_}; }

private:
    ScaleRow row_;
    float* const floats_;
};

// Rows of a thread from which on their common scale is widened once, not with each row.
constexpr int64_t kMinRowsOfWideScale = 4;

bool widens_scale(const Job& job, int threads) {
    const RmsNormShape& s = job.shape;
    const RowFormat& format = job.format;
    const auto& shared = s.scale_is_shared;
    return std::find(shared, shared + kMaxOuterDims, false) == shared + kMaxOuterDims &&
           format.x_dtype == NPU_ROPE_FLOAT16 && format.scale_dtype == NPU_ROPE_FLOAT16 && computes_in_floats(format) &&
           format.kernels.normalize_f16_by_floats && s.rows >= kMinRowsOfWideScale * threads;
}

// Distance of a prefetch from the start of the first row that has not been read yet. The prefetch assumes that rows are
// contiguous. Measurements show that reads and arithmetic do not overlap without prefetches.
constexpr int64_t kPrefetchBytes = int64_t{6} << 10;
// Longest row whose mean square is computed before the previous row is written. The processor then overlaps the root of
// one row with the sum of the next. The L1 cache does not hold two longer rows, the prefetched bytes and the scale.
constexpr int64_t kMaxEarlyRowBytes = int64_t{8} << 10;

struct RowsMemory {
    RowsMemory(const Job& job, PartMemory& memory)
        : scale(job, memory), rows{RowToNormalize::Memory(job, memory), RowToNormalize::Memory(job, memory)} {}
    ForwardScale::Memory scale;
    RowToNormalize::Memory rows[2];
};

void normalize_rows(int64_t begin, int64_t end, const Job& job, const RowsMemory& memory) {
    const RowNormalizer normalizer(job.format);
    ForwardScale scales(job, memory.scale);
    RowToNormalize rows[] = {RowToNormalize(job, memory.rows[0]), RowToNormalize(job, memory.rows[1])};
    RowToNormalize *current = &rows[0], *next = &rows[1];
    RowOffsets offsets(job.shape, begin), next_offsets(job.shape, begin);
    current->compute(offsets, normalizer);
    const int64_t row_bytes = job.shape.n * job.format.x_bytes;
    const bool computes_next_early = row_bytes <= kMaxEarlyRowBytes;
    const int64_t distance = kPrefetchBytes + (computes_next_early ? row_bytes : 0);
    for (int64_t row = begin; row < end; ++row) {
        const bool has_next = row + 1 < end;
        if (has_next) next_offsets.advance();
        if (has_next && computes_next_early) next->compute(next_offsets, normalizer);
        const char *x_ahead = current->row(), *residual_ahead = x_ahead;
        if (has_next) x_ahead = residual_ahead = job.x + next_offsets.x * job.format.x_bytes + distance;
        if (has_next && job.residual)
            residual_ahead = job.residual + next_offsets.residual * job.format.x_bytes + distance;
        char* y = job.out + offsets.out * job.format.y_bytes();
        normalizer.write(current->row(), current->mean_square_plus_epsilon(), scales.at(offsets.scale), y, job.storing,
                         {x_ahead, residual_ahead});
        if (has_next && !computes_next_early) next->compute(next_offsets, normalizer);
        std::swap(current, next);
        offsets.advance();
    }
    // Stores past the caches are unordered.
    if (job.storing == StoreMode::kStreamed || job.stream_sum) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Longest row that is normalized in a block of rows, as a head of a query. The inverse roots of a block are computed by
// vectors, because the root and the division of one row take longer than its sum. The results have the same bits.
constexpr int64_t kMaxBlockedRowBytes = 2048;

void normalize_blocks(int64_t begin, int64_t end, const Job& job, const ForwardScale::Memory& memory) {
    const RowFormat& format = job.format;
    const RowNormalizer normalizer(format);
    const RmsNormRopeKernels& roots = active_rms_norm_rope_kernels();
    const auto sum_squares = format.kernels.sum_squares[format.x_dtype];
    const double n = static_cast<double>(format.n);
    const int64_t row_bytes = format.n * format.x_bytes;
    const int64_t rows_per_block = normalized_heads::heads_per_block(row_bytes);
    ForwardScale scales(job, memory);
    RowOffsets offsets(job.shape, begin);
    for (int64_t first = begin; first < end; first += rows_per_block) {
        const int64_t count = std::min(rows_per_block, end - first);
        RowOffsets row_offsets = offsets;
        double sums[normalized_heads::kMaxHeadsPerBlock];
        float inverses[normalized_heads::kMaxHeadsPerBlock];
        for (int64_t r = 0; r < count; ++r, offsets.advance())
            sum_squares(job.x + offsets.x * format.x_bytes, format.n, /*rows=*/1, 0, &sums[r]);
        const bool all_fit = normalized_heads::invert_roots(roots, sums, count, format.n, format.epsilon, inverses);
        for (int64_t r = 0; r < count; ++r, row_offsets.advance()) {
            const char* x = job.x + row_offsets.x * format.x_bytes;
            const char* ahead = x + rows_per_block * row_bytes;
            const Scale scale = scales.at(row_offsets.scale);
            char* y = job.out + row_offsets.out * format.y_bytes();
            if (all_fit)
                normalizer.write_by_inverse(x, inverses[r], scale, y, job.storing, {ahead, ahead});
            else
                normalizer.write(x, sums[r] / n + format.epsilon, scale, y, job.storing, {ahead, ahead});
        }
    }
    // Stores past the caches are unordered.
    if (job.storing == StoreMode::kStreamed) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Total size of a call's tensors above which stores are not plain. If they do not go past the caches (streaming.h), as
// those of an unaligned output, the lines that will be written are prefetched.
constexpr int64_t kLargeAboveBytes = kCacheBytes / 2;

// Shortest row that is stored past the caches if it does not fill the vectors of every instruction set. The elements
// that do not fill a vector are stored into the caches, and a cache line with both kinds of stores takes about 150 ns.
constexpr int64_t kMinStreamedRowBytes = int64_t{4} << 10;
constexpr int64_t kMaxVectorFloats = 16;

// Selects how to store an output with these strides, whose elements have item_bytes. An output in place has plain
// stores, because its lines were just read into the caches.
StoreMode store_mode_of(const Job& job, int threads, const char* to, const int64_t* strides, int64_t item_bytes) {
    const RmsNormShape& s = job.shape;
    // x; x and dx; or x, residual and sum
    const int64_t x_typed_tensors = job.residual ? 3 : job.grad ? 2 : 1;
    const int64_t total_bytes = s.rows * s.n * (x_typed_tensors * job.format.x_bytes + job.format.y_bytes());
    if (to == job.x || to == job.residual || total_bytes <= kLargeAboveBytes) return StoreMode::kPlain;
    int64_t address_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
    for (int k = 0; k < kMaxOuterDims; ++k) address_bits |= strides[k] * item_bytes;
    const bool stream = exceeds_caches(threads, total_bytes) && address_bits % kStreamAlignBytes == 0 &&
                        (s.n % kMaxVectorFloats == 0 || s.n * item_bytes >= kMinStreamedRowBytes);
    return stream ? StoreMode::kStreamed : StoreMode::kPrefetched;
}

// Largest row of a sum that is stored past the caches. A copy of the row must fit the caches, because it is read again.
constexpr int64_t kMaxCachedSumBytes = int64_t{256} << 10;

void run_forward(Job& job) {
    const RmsNormShape& s = job.shape;
    const int threads = s.rows == 1 ? 1 : threads_for(s.rows * s.n);
    job.storing = store_mode_of(job, threads, job.out, s.out_stride, job.format.y_bytes());
    // For float32, measurements show that storing both results past the caches is slower than storing one.
    job.stream_sum = job.residual && job.format.x_bytes == 2 && s.n * job.format.x_bytes <= kMaxCachedSumBytes &&
                     store_mode_of(job, threads, job.sum, s.sum_stride, job.format.x_bytes) == StoreMode::kStreamed;
    job.widen_scale = widens_scale(job, threads);
    const bool in_blocks =
        !job.residual && computes_in_floats(job.format) && s.n * job.format.x_bytes <= kMaxBlockedRowBytes;
    if (in_blocks)
        run_parts<ForwardScale::Memory, normalize_blocks>(s.rows, threads, job);
    else
        run_parts<RowsMemory, normalize_rows>(s.rows, threads, job);
}

Job make_job(const RmsNormShape& shape, const RmsNormTensors& t, double scale_offset) {
    auto read = [](const npu_rope_tensor* in) { return in ? static_cast<const char*>(in->data) : nullptr; };
    Job job{shape,
            row_format(shape.n, t.x->dtype, t.scale->dtype, shape.stash_dtype, shape.epsilon),
            read(t.x),
            read(t.scale),
            read(t.grad),
            static_cast<char*>(t.out->data),
            StoreMode::kPlain};
    job.format.rounds_last = t.rounds_last;
    job.format.scale_offset = static_cast<float>(scale_offset);
    job.residual = read(t.residual);
    if (t.sum) job.sum = static_cast<char*>(t.sum->data);
    return job;
}

}  // namespace

Check run_rms_norm_cpu(const RmsNormTensors& t, const RmsNormAttributes& a) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    Job job = make_job(shape, t, a.scale_offset);
    if (t.backward) {
        job.storing =
            store_mode_of(job, threads_for(shape.rows * shape.n), job.out, shape.out_stride, job.format.x_bytes);
        rms_norm::run_backward(job, t.dscale ? static_cast<char*>(t.dscale->data) : nullptr);
    } else if (shape.rows * shape.n != 0)
        run_forward(job);
    return {};
}

}  // namespace npu_rope
