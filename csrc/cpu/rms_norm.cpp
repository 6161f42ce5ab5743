// rms_norm on the CPU. Source: specs/onnx_rms_normalization_23.txt and ONNX's definition of the operator as a function.
// For a row of n elements:
//
//   XU          = x rounded to the stash type U
//   Normalized  = XU / sqrt(mean(XU^2) + epsilon), rounded to U
//   y           = Normalized rounded to x's type, times scale, rounded to scale's type
//
// The error of Normalized. Let u = 2^-24, w = 2^-53.
//
// In double (x or scale in float64, U other than float32, rows whose mean square fits_floats() rejects): the sum of a
// block is within 71 w (kSumBlockError). Adding the blocks pairwise takes at most log2(n) - 9 + 2 additions. No term is
// negative, so the relative error of the sum of squares is within (64 + log2 n) w. The mean and its sum with epsilon
// round once each. The root halves the error and rounds; the inverse rounds and is within (35 + log2(n) / 2) w. Its
// product with x rounds once more: before it is rounded to U, Normalized is within (36 + log2(n) / 2) w of XU / RMS.
//
// In float32 (all other rows): groups of squares are added in float32, within 5 u (kSquaresBlock). Squares that
// underflow in float32 lose less than u in total. The additions in double add less than 256 w = 2^-45 for the groups of
// a block, and less than log2(n) w for the blocks, the mean and epsilon. The root halves the error and rounds. The
// inverse rounds in double and in float32, and its product with x rounds in float32: (3 + 2) u + (130 + log2(n) / 2) w,
// less than 5.1 u + log2(n) w.
//
// npu_rope/testing/bounds.py uses these bounds.
//
// Squares of float32 values never overflow double, so the double path needs no scaling for them. With stash type
// float64, a row whose squares leave double's range is first multiplied by a power of two.
#include "csrc/cpu/rms_norm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "csrc/cpu/parallel.h"
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
    Storing storing;
    const char* residual = nullptr;  // residual and sum: add_rms_norm only
    char* sum = nullptr;
    bool stream_sum = false;
};

// Calls f(j, offset) for each element j of a row, with its offset for these strides of the inner dimensions.
template <typename F>
void for_each_inner(const RmsNormShape& s, const int64_t* stride, F f) {
    int64_t j = 0;
    for (int64_t a = 0; a < s.inner[0]; ++a)
        for (int64_t b = 0; b < s.inner[1]; ++b)
            for (int64_t c = 0; c < s.inner[2]; ++c)
                for (int64_t d = 0; d < s.inner[3]; ++d)
                    f(j++, a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]);
}

// The scale of a row as n contiguous elements: the scale itself, or a copy.
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
    RowOffsets(const RmsNormShape& s, int64_t row) : s_(s) {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            index_[k] = s.outer[k] == 1 ? 0 : row % s.outer[k];
            row /= s.outer[k];
            move(k, index_[k]);
        }
    }
    void step() {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            if (++index_[k] < s_.outer[k]) return move(k, 1);
            move(k, 1 - s_.outer[k]);
            index_[k] = 0;
        }
    }
    int64_t x = 0, scale = 0, out = 0, residual = 0, sum = 0;

private:
    void move(int k, int64_t by) {
        x += by * s_.x_stride[k];
        scale += by * s_.scale_stride[k];
        out += by * s_.out_stride[k];
        residual += by * s_.residual_stride[k];
        sum += by * s_.sum_stride[k];
    }

    const RmsNormShape& s_;
    int64_t index_[kMaxOuterDims];
};

// A row to be normalized: a row of x, or the sum of it and the residual's row.
class RowToNormalize {
public:
    explicit RowToNormalize(const Job& job)
        : job_(job), cached_sum_(job.stream_sum ? static_cast<size_t>(job.shape.n * job.format.x_bytes) : 0) {}

    // Computes row() and mean_square_plus_epsilon().
    void make(const RowOffsets& offsets, const RowNormalizer& normalizer) {
        row_ = at(offsets);
        mean_square_plus_epsilon_ = normalizer.mean_square_plus_epsilon(row_);
    }
    const char* row() const { return row_; }
    double mean_square_plus_epsilon() const { return mean_square_plus_epsilon_; }

private:
    const char* at(const RowOffsets& offsets) {
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

// Prefetch distance, from the start of the next row that has not been read yet; rows are assumed to be contiguous.
// Measurements show that reads and arithmetic do not overlap without prefetches.
constexpr int64_t kPrefetchBytes = int64_t{6} << 10;
// Longest row, in bytes, whose mean square is computed before the previous row is written. The processor then overlaps
// the root of one row with the sum of the next. For longer rows the L1 cache would not hold two rows, the prefetched
// bytes and the scale.
constexpr int64_t kMaxBytesComputedEarly = int64_t{8} << 10;

void normalize_rows(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job*>(ctx);
    const RmsNormShape& s = job.shape;
    const RowNormalizer normalizer(job.format);
    ScaleRow scales(job);
    RowToNormalize rows[] = {RowToNormalize(job), RowToNormalize(job)};
    RowToNormalize *current = &rows[0], *next = &rows[1];
    RowOffsets offsets(s, begin), next_offsets(s, begin);
    current->make(offsets, normalizer);
    const int64_t row_bytes = s.n * job.format.x_bytes;
    const bool early = row_bytes <= kMaxBytesComputedEarly;
    const int64_t distance = kPrefetchBytes + (early ? row_bytes : 0);
    for (int64_t row = begin; row < end; ++row) {
        const bool has_next = row + 1 < end;
        if (has_next) next_offsets.step();
        if (has_next && early) next->make(next_offsets, normalizer);
        const char *x_ahead = current->row(), *residual_ahead = x_ahead;
        if (has_next) x_ahead = residual_ahead = job.x + next_offsets.x * job.format.x_bytes + distance;
        if (has_next && job.residual)
            residual_ahead = job.residual + next_offsets.residual * job.format.x_bytes + distance;
        char* y = job.out + offsets.out * job.format.scale_bytes;
        normalizer.write(current->row(), current->mean_square_plus_epsilon(), scales.at(offsets.scale), y, job.storing,
                         {x_ahead, residual_ahead});
        if (has_next && !early) next->make(next_offsets, normalizer);
        std::swap(current, next);
        offsets.step();
    }
    // Stores past the caches are unordered.
    if (job.storing == Storing::kStreamed || job.stream_sum) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Total size of a call's tensors, in bytes, above which stores are not plain. One thread then stores past the caches.
// Several threads do so from kStreamAboveBytes on; below it they prefetch the lines that they will write. An unaligned
// output is always prefetched. Measured with a last-level cache of 32 MiB, including a reader of the result: storing
// past the cache is faster from half the cache's size on with one thread, and from its full size on with several.
constexpr int64_t kLargeAboveBytes = kStreamAboveBytes / 2;

// Outputs in place use plain stores, because their lines were just read into the caches.
Storing storing_of(const Job& job, int threads, const char* to, const int64_t* strides, int64_t bytes) {
    const RmsNormShape& s = job.shape;
    const int64_t x_like = job.residual ? 3 : 1,
                  total_bytes = s.rows * s.n * (x_like * job.format.x_bytes + job.format.scale_bytes);
    if (to == job.x || to == job.residual || total_bytes <= kLargeAboveBytes) return Storing::kPlain;
    int64_t address_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
    for (int k = 0; k < kMaxOuterDims; ++k) address_bits |= strides[k] * bytes;
    const bool stream = (threads == 1 || total_bytes >= kStreamAboveBytes) && address_bits % kStreamAlignBytes == 0;
    return stream ? Storing::kStreamed : Storing::kPrefetched;
}

// Largest row of a sum that is stored past the caches: a copy of the row stays in the caches and must fit them.
constexpr int64_t kMaxCachedSumBytes = int64_t{256} << 10;

void run_forward(Job& job) {
    const RmsNormShape& s = job.shape;
    const int threads = s.rows == 1 ? 1 : threads_for(s.rows * s.n);
    job.storing = storing_of(job, threads, job.out, s.out_stride, job.format.scale_bytes);
    // For float32, measurements show that storing both results past the caches is slower than storing one.
    job.stream_sum = job.residual && job.format.x_bytes == 2 && s.n * job.format.x_bytes <= kMaxCachedSumBytes &&
                     storing_of(job, threads, job.sum, s.sum_stride, job.format.x_bytes) == Storing::kStreamed;
    parallel_ranges(s.rows, threads, normalize_rows, &job);
}

Job make_job(const RmsNormShape& shape, const RmsNormTensors& t) {
    auto read = [](const npu_rope_tensor* in) { return in ? static_cast<const char*>(in->data) : nullptr; };
    Job job{shape,          row_format(shape.n, t.x->dtype, t.scale->dtype, shape.stash_dtype, shape.epsilon),
            read(t.x),      read(t.scale),
            read(t.grad),   static_cast<char*>(t.out->data),
            Storing::kPlain};
    job.residual = read(t.residual);
    if (t.sum) job.sum = static_cast<char*>(t.sum->data);
    return job;
}

// ---- backward ------------------------------------------------------------------------------------------
//
// With r = 1/RMS, N = x r and g = grad * scale:
//
//   dx     = r (g - N mean(g N))
//   dscale = sum over the rows that share it of grad * (N as the forward pass rounds it)
//
// all in double. Rows that share a scale are summed in groups. The number of groups depends on the shape only, so
// that the result has the same bits for any number and order of threads.

constexpr int64_t kMinRowsPerGroup = 16, kMaxGroups = 64;

struct BackwardJob {
    Job job;
    char* dscale;
    int64_t scales, rows_per_scale;  // different scales, and rows that share each
    int64_t scale_elements;    // of one scale: the product of the inner sizes along which the scale is not broadcast
    int64_t groups;            // of the rows that share a scale
    std::vector<double> sums;  // [scales, groups, n]; empty where there is one group
};

// The offsets of a row, given the index of its scale and its index among the rows that share this scale.
struct BackwardOffsets {
    int64_t x = 0, grad = 0, scale = 0, dx = 0;
    BackwardOffsets(const RmsNormShape& s, int64_t scale_index, int64_t row_of_scale) {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
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

class BackwardRow {
public:
    explicit BackwardRow(const Job& job) : job_(job), k_(job.format.kernels), wide_(job.format), scales_(job) {}

    // Writes dx and adds to the n sums of dscale.
    void run(const BackwardOffsets& offsets, double* sums) {
        x_ = job_.x + offsets.x * job_.format.x_bytes;
        grad_ = job_.grad + offsets.grad * job_.format.scale_bytes;
        scale_ = scales_.at(offsets.scale);
        factors_ = wide_.factors_of(x_);
        // dx is multiplied by inverse, then by power. `headroom` keeps a small gradient normal after the first product.
        // The second product divides by it.
        const double headroom = factors_.power == 1 ? 1 : std::ldexp(1.0, kPeakExponent);
        const double mean = mean_product();
        char* dx = job_.out + offsets.dx * job_.format.x_bytes;
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            read(at, count);
            k_.scale_difference(g_, normalized_, mean, factors_.inverse * headroom, dx_, count);
            if (factors_.power != 1) k_.scale_by(dx_, factors_.power / headroom, count);
            k_.narrow[job_.format.x_dtype](dx_, dx + at * job_.format.x_bytes, count);
            round_to(k_, job_.shape.stash_dtype, normalized_, count);
            round_to(k_, job_.format.x_dtype, normalized_, count);
            k_.add_product(grad_block_, normalized_, sums + at, count);
        });
    }

private:
    // Reads a block of grad, g and N.
    void read(int64_t at, int64_t count) {
        k_.widen[job_.format.scale_dtype](grad_ + at * job_.format.scale_bytes, grad_block_, count);
        k_.widen[job_.format.scale_dtype](scale_ + at * job_.format.scale_bytes, g_, count);
        k_.multiply(grad_block_, g_, dx_, count);
        std::swap(g_, dx_);
        wide_.normalize(x_, factors_, at, count, false, normalized_);
    }

    double mean_product() {
        PairwiseSum sum;
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            read(at, count);
            sum.add(k_.dot(g_, normalized_, count));
        });
        return sum.total() / static_cast<double>(job_.shape.n);
    }

    const Job& job_;
    const RmsNormKernels& k_;
    const DoubleRow wide_;
    ScaleRow scales_;
    RowFactors factors_;
    const char *x_ = nullptr, *grad_ = nullptr, *scale_ = nullptr;
    double blocks_[4][kSumBlock];
    double *grad_block_ = blocks_[0], *g_ = blocks_[1], *dx_ = blocks_[2], *normalized_ = blocks_[3];
};

// Computes the gradient of one scale. `sums` has one sum for each element of a row. Sums of elements that share an
// element of the scale are added, and the results are rounded.
void write_dscale(const BackwardJob& b, int64_t scale_index, const double* sums) {
    const RmsNormShape& s = b.job.shape;
    int64_t stride[NPU_ROPE_MAX_NDIM], step = 1;
    for (int k = NPU_ROPE_MAX_NDIM - 1; k >= 0; --k) {
        stride[k] = s.scale_inner_is_shared[k] ? 0 : step;
        if (!s.scale_inner_is_shared[k]) step *= s.inner[k];
    }
    char* to = b.dscale + scale_index * b.scale_elements * b.job.format.scale_bytes;
    std::vector<double> element_sums;
    if (b.scale_elements != s.n) {
        element_sums.resize(static_cast<size_t>(b.scale_elements));
        for_each_inner(s, stride, [&](int64_t j, int64_t at) { element_sums[static_cast<size_t>(at)] += sums[j]; });
        sums = element_sums.data();
    }
    b.job.format.kernels.narrow[b.job.format.scale_dtype](sums, to, b.scale_elements);
}

void differentiate_groups(int64_t begin, int64_t end, void* ctx) {
    auto& b = *static_cast<BackwardJob*>(ctx);
    const size_t n = static_cast<size_t>(b.job.shape.n);
    BackwardRow row(b.job);
    std::vector<double> single_group_sums(b.groups == 1 ? n : 0);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t scale_index = item / b.groups, group = item % b.groups;
        double* sums = b.groups == 1 ? single_group_sums.data() : b.sums.data() + static_cast<size_t>(item) * n;
        std::fill_n(sums, n, 0.0);
        const int64_t first = b.rows_per_scale * group / b.groups, last = b.rows_per_scale * (group + 1) / b.groups;
        for (int64_t row_of_scale = first; row_of_scale < last; ++row_of_scale)
            row.run(BackwardOffsets(b.job.shape, scale_index, row_of_scale), sums);
        if (b.groups == 1) write_dscale(b, scale_index, sums);
    }
}

void add_groups(BackwardJob& b) {
    const size_t n = static_cast<size_t>(b.job.shape.n);
    for (int64_t scale_index = 0; scale_index < b.scales; ++scale_index) {
        double* sums = b.sums.data() + static_cast<size_t>(scale_index * b.groups) * n;
        for (int64_t group = 1; group < b.groups; ++group)
            for (size_t j = 0; j < n; ++j) sums[j] += sums[static_cast<size_t>(group) * n + j];
        write_dscale(b, scale_index, sums);
    }
}

void run_backward(const Job& job, char* dscale) {
    const RmsNormShape& shape = job.shape;
    BackwardJob b{job, dscale, 1, 1, 1, 1, {}};
    for (int k = 0; k < kMaxOuterDims; ++k) (shape.scale_is_shared[k] ? b.rows_per_scale : b.scales) *= shape.outer[k];
    for (int k = 0; k < NPU_ROPE_MAX_NDIM; ++k)
        if (!shape.scale_inner_is_shared[k]) b.scale_elements *= shape.inner[k];
    if (b.scales * b.scale_elements == 0) return;
    const int64_t max_groups = std::max<int64_t>(kMaxGroups / b.scales, 1);
    b.groups = std::clamp<int64_t>(b.rows_per_scale / kMinRowsPerGroup, 1, max_groups);
    if (b.groups > 1) b.sums.resize(static_cast<size_t>(b.scales * b.groups * shape.n));
    parallel_ranges(b.scales * b.groups, threads_for(shape.rows * shape.n), differentiate_groups, &b);
    if (b.groups > 1) add_groups(b);
}

}  // namespace

Check run_rms_norm_cpu(const RmsNormTensors& t, const RmsNormAttributes& a) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    Job job = make_job(shape, t);
    if (t.backward)
        run_backward(job, static_cast<char*>(t.dscale->data));
    else if (shape.rows * shape.n != 0)
        run_forward(job);
    return {};
}

}  // namespace npu_rope
