// rms_norm_backward on the CPU. With r = 1/RMS, N = x r and g = grad * scale:
//
//   dx     = r (g - N mean(g N))
//   dscale = the sum of grad * (N as the forward pass rounds it) over the rows that share the scale
//
// All arithmetic is in double. Rows that share a scale are summed in groups. The number of groups depends on the shape
// only, so that the result has the same bits for any number and order of threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rms_norm_backward_kernels.h"
#include "csrc/cpu/rms_norm_job.h"

namespace npu_rope {
namespace rms_norm {
namespace {

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

}  // namespace

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

}  // namespace rms_norm
}  // namespace npu_rope
