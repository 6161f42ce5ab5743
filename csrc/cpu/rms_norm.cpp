// rms_norm on the CPU. Source: specs/onnx_rms_normalization_23.txt and ONNX's definition of the operator as a function.
// For a row of n elements:
//
//   XU          = x rounded to the stash type U
//   Normalized  = XU / sqrt(mean(XU^2) + epsilon), rounded to U
//   y           = Normalized rounded to x's type, times scale, rounded to scale's type
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
#include <cmath>
#include <cstring>
#include <vector>

#include "csrc/cpu/normalized_heads.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rms_norm_backward_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/streaming.h"

namespace npu_rope {
namespace {

// A checked call.
struct Job {
    const RmsNormShape& shape;
    RowFormat format;
    const char *x, *scale, *grad;
    char* out;
    StoreMode storing;               // of out
    const char* residual = nullptr;  // residual and sum: of add_rms_norm only
    char* sum = nullptr;
    bool stream_sum = false;  // store sum past the caches
};

// Calls f(j, offset) for each element j of a row. offset is the element's offset with these strides of the dimensions
// inside a row.
template <typename F>
void for_each_inner(const RmsNormShape& s, const int64_t* stride, F f) {
    int64_t j = 0;
    for (int64_t a = 0; a < s.inner[0]; ++a)
        for (int64_t b = 0; b < s.inner[1]; ++b)
            for (int64_t c = 0; c < s.inner[2]; ++c)
                for (int64_t d = 0; d < s.inner[3]; ++d)
                    f(j++, a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]);
}

// Returns the scale of a row as n contiguous elements: the scale itself, or a copy.
class ScaleRow {
public:
    explicit ScaleRow(const Job& job) : job_(job) {}

    const char* at(int64_t offset) {
        const char* from = job_.scale + offset * job_.format.scale_bytes;
        if (job_.shape.scale_is_dense) return from;
        if (from != gathered_from_) gather(from);
        return gathered_.data();
    }

private:
    void gather(const char* from) {
        const size_t bytes = static_cast<size_t>(job_.format.scale_bytes);
        gathered_.resize(static_cast<size_t>(job_.shape.n) * bytes);
        for_each_inner(job_.shape, job_.shape.scale_inner_stride, [&](int64_t j, int64_t offset) {
            std::memcpy(gathered_.data() + static_cast<size_t>(j) * bytes, from + offset * job_.format.scale_bytes,
                        bytes);
        });
        gathered_from_ = from;
    }

    const Job& job_;
    std::vector<char> gathered_;
    const char* gathered_from_ = nullptr;
};

// ---- forward -------------------------------------------------------------------------------------------

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
    explicit RowToNormalize(const Job& job)
        : job_(job), cached_sum_(job.stream_sum ? static_cast<size_t>(job.shape.n * job.format.x_bytes) : 0) {}

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
        if (job_.stream_sum) streamed = sum, sum = cached_sum_.data();
        const char* residual = job_.residual + offsets.residual * bytes;
        job_.format.kernels.add[job_.format.x_dtype]({x, residual, sum, job_.shape.n, streamed});
        return sum;
    }

    const Job& job_;
    std::vector<char> cached_sum_;  // copy of a sum that is stored past the caches
    const char* row_ = nullptr;
    double mean_square_plus_epsilon_ = 0;
};

// Distance of a prefetch from the start of the first row that has not been read yet. The prefetch assumes that rows are
// contiguous. Measurements show that reads and arithmetic do not overlap without prefetches.
constexpr int64_t kPrefetchBytes = int64_t{6} << 10;
// Longest row whose mean square is computed before the previous row is written. The processor then overlaps the root of
// one row with the sum of the next. The L1 cache does not hold two longer rows, the prefetched bytes and the scale.
constexpr int64_t kMaxEarlyRowBytes = int64_t{8} << 10;

void normalize_rows(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job*>(ctx);
    const RowNormalizer normalizer(job.format);
    ScaleRow scales(job);
    RowToNormalize rows[] = {RowToNormalize(job), RowToNormalize(job)};
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
        char* y = job.out + offsets.out * job.format.scale_bytes;
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

void normalize_blocks(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job*>(ctx);
    const RowFormat& format = job.format;
    const RowNormalizer normalizer(format);
    const RmsNormRopeKernels& roots = active_rms_norm_rope_kernels();
    const auto sum_squares = format.kernels.sum_squares[format.x_dtype];
    const auto normalize = format.kernels.normalize[format.x_dtype][format.scale_dtype];
    const double n = static_cast<double>(format.n);
    const int64_t row_bytes = format.n * format.x_bytes;
    const int64_t rows_per_block = normalized_heads::heads_per_block(row_bytes);
    ScaleRow scales(job);
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
            const char* scale = scales.at(row_offsets.scale);
            char* y = job.out + row_offsets.out * format.scale_bytes;
            if (all_fit)
                normalize({x, scale, y, format.n, inverses[r], job.storing, {ahead, ahead}});
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

// Selects how to store an output with these strides, whose elements have item_bytes. An output in place has plain
// stores, because its lines were just read into the caches.
StoreMode store_mode_of(const Job& job, int threads, const char* to, const int64_t* strides, int64_t item_bytes) {
    const RmsNormShape& s = job.shape;
    const int64_t x_typed_tensors = job.residual ? 3 : 1;  // x, or x, residual and sum
    const int64_t total_bytes = s.rows * s.n * (x_typed_tensors * job.format.x_bytes + job.format.scale_bytes);
    if (to == job.x || to == job.residual || total_bytes <= kLargeAboveBytes) return StoreMode::kPlain;
    int64_t address_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
    for (int k = 0; k < kMaxOuterDims; ++k) address_bits |= strides[k] * item_bytes;
    const bool stream = exceeds_caches(threads, total_bytes) && address_bits % kStreamAlignBytes == 0;
    return stream ? StoreMode::kStreamed : StoreMode::kPrefetched;
}

// Largest row of a sum that is stored past the caches. A copy of the row must fit the caches, because it is read again.
constexpr int64_t kMaxCachedSumBytes = int64_t{256} << 10;

void run_forward(Job& job) {
    const RmsNormShape& s = job.shape;
    const int threads = s.rows == 1 ? 1 : threads_for(s.rows * s.n);
    job.storing = store_mode_of(job, threads, job.out, s.out_stride, job.format.scale_bytes);
    // For float32, measurements show that storing both results past the caches is slower than storing one.
    job.stream_sum = job.residual && job.format.x_bytes == 2 && s.n * job.format.x_bytes <= kMaxCachedSumBytes &&
                     store_mode_of(job, threads, job.sum, s.sum_stride, job.format.x_bytes) == StoreMode::kStreamed;
    const bool in_blocks =
        !job.residual && computes_in_floats(job.format) && s.n * job.format.x_bytes <= kMaxBlockedRowBytes;
    parallel_ranges(s.rows, threads, in_blocks ? normalize_blocks : normalize_rows, &job);
}

Job make_job(const RmsNormShape& shape, const RmsNormTensors& t) {
    auto read = [](const npu_rope_tensor* in) { return in ? static_cast<const char*>(in->data) : nullptr; };
    Job job{shape,
            row_format(shape.n, t.x->dtype, t.scale->dtype, shape.stash_dtype, shape.epsilon),
            read(t.x),
            read(t.scale),
            read(t.grad),
            static_cast<char*>(t.out->data),
            StoreMode::kPlain};
    job.residual = read(t.residual);
    if (t.sum) job.sum = static_cast<char*>(t.sum->data);
    return job;
}

// ---- backward ------------------------------------------------------------------------------------------
//
// With r = 1/RMS, N = x r and g = grad * scale:
//
//   dx     = r (g - N mean(g N))
//   dscale = the sum of grad * (N as the forward pass rounds it) over the rows that share the scale
//
// All arithmetic is in double. Rows that share a scale are summed in groups. The number of groups depends on the shape
// only, so that the result has the same bits for any number and order of threads.

constexpr int64_t kMinRowsPerGroup = 16, kMaxGroups = 64;

struct BackwardJob {
    Job job;
    char* dscale;              // NULL: not needed
    int64_t scales;            // the number of different scales
    int64_t rows_per_scale;    // the number of rows that share a scale
    int64_t scale_elements;    // of one scale: the product of the inner sizes along which the scale is not broadcast
    int64_t groups;            // into which the rows that share a scale are divided
    std::vector<double> sums;  // [scales, groups, n]; empty if there is one group
};

// The offsets of a row. They are computed from the index of its scale and its index among the rows with this scale.
struct BackwardOffsets {
    int64_t x = 0, grad = 0, scale = 0, dx = 0;
    BackwardOffsets() = default;
    BackwardOffsets(const RmsNormShape& s, int64_t scale_index, int64_t row_of_scale) {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            if (s.outer[k] == 1) continue;
            int64_t& from = s.scale_is_shared[k] ? row_of_scale : scale_index;
            const int64_t i = from % s.outer[k];
            from /= s.outer[k];
            x += i * s.x_stride[k];
            grad += i * s.grad_stride[k];
            scale += i * s.scale_stride[k];
            dx += i * s.out_stride[k];
        }
    }
};

// Computes dx of a row, and the row's share of dscale. g and N are those of the formula above.
class BackwardRow {
public:
    explicit BackwardRow(const Job& job)
        : job_(job),
          kernels_(job.format.kernels),
          narrow_kernels_(active_rms_norm_backward_kernels()),
          double_row_(job.format),
          scales_(job),
          is_narrow_(computes_in_floats(job.format)) {}

    // Writes dx of `count` rows, which share a scale, and adds to the n sums of dscale, row by row. sums may be NULL.
    void run(const BackwardOffsets* offsets, int count, double* sums) {
        scale_ = scales_.at(offsets[0].scale);
        if (is_narrow_) return run_narrow(offsets, count, sums);
        for (int r = 0; r < count; ++r) run_in_doubles(offsets[r], sums);
    }

private:
    void run_in_doubles(const BackwardOffsets& offsets, double* sums) {
        x_ = job_.x + offsets.x * job_.format.x_bytes;
        grad_ = job_.grad + offsets.grad * job_.format.scale_bytes;
        factors_ = double_row_.factors_of(x_);
        // dx is multiplied by inverse, then by power. `headroom` keeps a small gradient normal after the first product.
        // The second factor is therefore divided by it.
        const double headroom = factors_.power == 1 ? 1 : std::ldexp(1.0, kPeakExponent);
        const double mean = mean_product();
        char* dx = job_.out + offsets.dx * job_.format.x_bytes;
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            compute_block(at, count);
            kernels_.scale_difference(scaled_grad_, normalized_, mean, factors_.inverse * headroom, dx_block_, count);
            if (factors_.power != 1) kernels_.scale_by(dx_block_, factors_.power / headroom, count);
            kernels_.narrow[job_.format.x_dtype](dx_block_, dx + at * job_.format.x_bytes, count);
            if (!sums) return;
            round_to(kernels_, job_.shape.stash_dtype, normalized_, count);
            round_to(kernels_, job_.format.x_dtype, normalized_, count);
            kernels_.add_product(grad_block_, normalized_, sums + at, count);
        });
    }

    // Does the same for types that one kernel reads, computes in double and rounds.
    void run_narrow(const BackwardOffsets* offsets, int count, double* sums) {
        const int64_t x_bytes = job_.format.x_bytes, scale_bytes = job_.format.scale_bytes;
        const auto differentiate = narrow_kernels_.differentiate[job_.format.x_dtype][job_.format.scale_dtype];
        GradientRow rows[kGradientRows];
        for (int r = 0; r < count; ++r) rows[r] = narrow_row(offsets[r]);
        for_each_block(job_.shape.n, [&](int64_t at, int64_t elements) {
            GradientBlock block{scale_ + at * scale_bytes, elements, sums ? sums + at : nullptr, 1, {}};
            auto take = [&](int to, const GradientRow& row) {
                block.row[to] = {static_cast<const char*>(row.x) + at * x_bytes,
                                 static_cast<const char*>(row.grad) + at * scale_bytes,
                                 static_cast<char*>(row.dx) + at * x_bytes, row.inverse, row.mean};
            };
            if (count == kGradientRows) {
                block.rows = kGradientRows;
                for (int r = 0; r < count; ++r) take(r, rows[r]);
                return differentiate(block);
            }
            for (int r = 0; r < count; ++r) {
                take(0, rows[r]);
                differentiate(block);
            }
        });
    }

    // Returns a row's addresses, inverse and mean.
    GradientRow narrow_row(const BackwardOffsets& offsets) const {
        const int64_t x_bytes = job_.format.x_bytes, scale_bytes = job_.format.scale_bytes;
        const auto sum_block = narrow_kernels_.sum_block[job_.format.x_dtype][job_.format.scale_dtype];
        const char *x = job_.x + offsets.x * x_bytes, *grad = job_.grad + offsets.grad * scale_bytes;
        PairwiseSum squares, products;
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            const RowSums sums = sum_block(x + at * x_bytes, grad + at * scale_bytes, scale_ + at * scale_bytes, count);
            squares.add(sums.squares);
            products.add(sums.products);
        });
        const auto n = static_cast<double>(job_.shape.n);
        const double inverse = 1 / std::sqrt(squares.total() / n + job_.format.epsilon);
        return {x, grad, job_.out + offsets.dx * x_bytes, inverse, products.total() * inverse / n};
    }

    // Computes a block of grad, g and N.
    void compute_block(int64_t at, int64_t count) {
        kernels_.widen[job_.format.scale_dtype](grad_ + at * job_.format.scale_bytes, grad_block_, count);
        kernels_.widen[job_.format.scale_dtype](scale_ + at * job_.format.scale_bytes, scaled_grad_, count);
        kernels_.multiply(grad_block_, scaled_grad_, dx_block_, count);
        std::swap(scaled_grad_, dx_block_);
        double_row_.normalize(x_, factors_, at, count, /*rounded=*/false, normalized_);
    }

    // Returns mean(g N).
    double mean_product() {
        PairwiseSum sum;
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            compute_block(at, count);
            sum.add(kernels_.dot(scaled_grad_, normalized_, count));
        });
        return sum.total() / static_cast<double>(job_.shape.n);
    }

    const Job& job_;
    const RmsNormKernels& kernels_;
    const RmsNormBackwardKernels& narrow_kernels_;
    const DoubleRow double_row_;
    ScaleRow scales_;
    const bool is_narrow_;  // run_narrow() supports the types
    RowFactors factors_;
    const char *x_ = nullptr, *grad_ = nullptr, *scale_ = nullptr;
    double blocks_[4][kSumBlock];
    double *grad_block_ = blocks_[0], *scaled_grad_ = blocks_[1], *dx_block_ = blocks_[2], *normalized_ = blocks_[3];
};

// Writes the gradient of one scale, rounded. `sums` has one sum for each element of a row. If elements of a row share
// an element of the scale, their sums are added.
void write_dscale(const BackwardJob& backward, int64_t scale_index, const double* sums) {
    const RmsNormShape& shape = backward.job.shape;
    int64_t stride[NPU_ROPE_MAX_NDIM], step = 1;
    for (int k = NPU_ROPE_MAX_NDIM - 1; k >= 0; --k) {
        stride[k] = shape.scale_inner_is_shared[k] ? 0 : step;
        if (!shape.scale_inner_is_shared[k]) step *= shape.inner[k];
    }
    char* to = backward.dscale + scale_index * backward.scale_elements * backward.job.format.scale_bytes;
    std::vector<double> element_sums;
    if (backward.scale_elements != shape.n) {
        element_sums.resize(static_cast<size_t>(backward.scale_elements));
        for_each_inner(shape, stride, [&](int64_t j, int64_t at) { element_sums[static_cast<size_t>(at)] += sums[j]; });
        sums = element_sums.data();
    }
    backward.job.format.kernels.narrow[backward.job.format.scale_dtype](sums, to, backward.scale_elements);
}

void differentiate_groups(int64_t begin, int64_t end, void* ctx) {
    auto& backward = *static_cast<BackwardJob*>(ctx);
    const size_t n = static_cast<size_t>(backward.job.shape.n);
    BackwardRow row(backward.job);
    std::vector<double> single_group_sums(backward.dscale && backward.groups == 1 ? n : 0);
    BackwardOffsets offsets[kGradientRows];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t scale_index = item / backward.groups, group = item % backward.groups;
        double* sums = nullptr;
        if (backward.dscale) {
            sums =
                backward.groups == 1 ? single_group_sums.data() : backward.sums.data() + static_cast<size_t>(item) * n;
            std::fill_n(sums, n, 0.0);
        }
        const int64_t first = backward.rows_per_scale * group / backward.groups,
                      last = backward.rows_per_scale * (group + 1) / backward.groups;
        for (int64_t row_of_scale = first; row_of_scale < last; row_of_scale += kGradientRows) {
            const int count = static_cast<int>(std::min<int64_t>(kGradientRows, last - row_of_scale));
            for (int r = 0; r < count; ++r)
                offsets[r] = BackwardOffsets(backward.job.shape, scale_index, row_of_scale + r);
            row.run(offsets, count, sums);
        }
        if (backward.dscale && backward.groups == 1) write_dscale(backward, scale_index, sums);
    }
}

void add_groups(BackwardJob& backward) {
    const size_t n = static_cast<size_t>(backward.job.shape.n);
    for (int64_t scale_index = 0; scale_index < backward.scales; ++scale_index) {
        double* sums = backward.sums.data() + static_cast<size_t>(scale_index * backward.groups) * n;
        for (int64_t group = 1; group < backward.groups; ++group)
            for (size_t j = 0; j < n; ++j) sums[j] += sums[static_cast<size_t>(group) * n + j];
        write_dscale(backward, scale_index, sums);
    }
}

void run_backward(const Job& job, char* dscale) {
    const RmsNormShape& shape = job.shape;
    BackwardJob backward{job, dscale, 1, 1, 1, 1, {}};
    for (int k = 0; k < kMaxOuterDims; ++k)
        (shape.scale_is_shared[k] ? backward.rows_per_scale : backward.scales) *= shape.outer[k];
    for (int k = 0; k < NPU_ROPE_MAX_NDIM; ++k)
        if (!shape.scale_inner_is_shared[k]) backward.scale_elements *= shape.inner[k];
    if (backward.scales * backward.scale_elements == 0) return;
    const int64_t max_groups = std::max<int64_t>(kMaxGroups / backward.scales, 1);
    backward.groups = std::clamp<int64_t>(backward.rows_per_scale / kMinRowsPerGroup, 1, max_groups);
    const bool has_partial_sums = dscale && backward.groups > 1;
    if (has_partial_sums) backward.sums.resize(static_cast<size_t>(backward.scales * backward.groups * shape.n));
    parallel_ranges(backward.scales * backward.groups, threads_for(shape.rows * shape.n), differentiate_groups,
                    &backward);
    if (has_partial_sums) add_groups(backward);
}

}  // namespace

Check run_rms_norm_cpu(const RmsNormTensors& t, const RmsNormAttributes& a) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    Job job = make_job(shape, t);
    if (t.backward)
        run_backward(job, t.dscale ? static_cast<char*>(t.dscale->data) : nullptr);
    else if (shape.rows * shape.n != 0)
        run_forward(job);
    return {};
}

}  // namespace npu_rope
