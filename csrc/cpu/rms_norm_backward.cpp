// rms_norm_backward on the CPU. With r = 1/RMS, N = x r and g = grad * scale:
//
//   dx     = r (g - N mean(g N))
//   dscale = the sum of grad * (N as the forward pass rounds it) over the rows that share the scale
//
// If all tensors have the same 16-bit type, the arithmetic is in float32, and the terms of dscale of up to four rows
// are added in float32 before they are added in double. Otherwise all arithmetic is in double. Rows that share a scale
// are summed in groups. The number of groups depends on the shape only, so that the result has the same bits for any
// number and order of threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "csrc/cpu/parallel.h"
#include "csrc/cpu/rms_norm_backward_kernels.h"
#include "csrc/cpu/rms_norm_job.h"

namespace npu_rope {
namespace rms_norm {
namespace {

constexpr int64_t kMinRowsPerGroup = 16, kMaxGroups = 64;

// The rows that are computed in float32: limits of r, and of the magnitude of mean(g N).
constexpr double kMinInverse = 0x1p-64, kMaxInverse = 0x1p10, kMaxMean = 0x1p60;

struct BackwardJob {
    Job job;
    char* dscale;            // NULL: not needed
    int64_t scales;          // the number of different scales
    int64_t rows_per_scale;  // the number of rows that share a scale
    int64_t scale_elements;  // of one scale: the product of the inner sizes along which the scale is not broadcast
    int64_t groups;          // into which the rows that share a scale are divided
    double* sums;            // [scales, groups, n]; NULL if there is one group
};

// Iterates over the rows that share a scale: the offset of the current row in each tensor, in elements.
class BackwardOffsets {
public:
    BackwardOffsets(const RmsNormShape& shape, int64_t scale_index, int64_t row_of_scale) : shape_(shape) {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            if (shape.outer[k] <= 1) continue;
            int64_t& from = shape.scale_is_shared[k] ? row_of_scale : scale_index;
            index_[k] = from % shape.outer[k];
            from /= shape.outer[k];
            move(k, index_[k]);
            scale += index_[k] * shape.scale_stride[k];
        }
    }
    void advance() {
        for (int k = kMaxOuterDims - 1; k >= 0; --k) {
            if (!shape_.scale_is_shared[k]) continue;
            if (++index_[k] < shape_.outer[k]) return move(k, 1);
            move(k, 1 - shape_.outer[k]);
            index_[k] = 0;
        }
    }
    int64_t x = 0, grad = 0, scale = 0, dx = 0;

private:
    void move(int k, int64_t by) {
        x += by * shape_.x_stride[k];
        grad += by * shape_.grad_stride[k];
        dx += by * shape_.out_stride[k];
    }

    const RmsNormShape& shape_;
    int64_t index_[kMaxOuterDims] = {};
};

// Computes dx of rows that share a scale, and their share of dscale, if no type is wider than float32 and the stash
// type is float32. g and N are those of the formula above.
class FloatRows {
    // Rows are read twice. A block of short rows, as float32, stays in the first-level cache, and one of long rows in
    // the second-level cache.
    static constexpr int64_t kBlockElements = 8 * kSumBlock, kLongBlockElements = int64_t{32} << 10;

public:
    // Blocks of the scale, x and the gradient. They are too large for the stack of some threads.
    struct Memory {
        Memory(const Job& job, PartMemory& memory)
            : scale(job, memory),
              wide_scale(memory.take<double>(kSumBlock)),
              float_scale(memory.take<float>(kSumBlock)),
              wide_x(memory.take<float>(kBlockElements)),
              wide_grad(memory.take<float>(kBlockElements)) {}
        ScaleRow::Memory scale;
        double* wide_scale;
        float *float_scale, *wide_x, *wide_grad;
    };

    FloatRows(const Job& job, const Memory& memory)
        : job_(job),
          kernels_(active_rms_norm_backward_kernels()),
          memory_(memory),
          scales_(job, memory.scale),
          rows_per_block_(rows_per_block(job.shape.n)) {}

    // Writes dx of `count` rows, and adds to the n sums of dscale. sums may be NULL.
    void run(BackwardOffsets offsets, int64_t count, double* sums) {
        const int64_t x_bytes = job_.format.x_bytes, scale_bytes = job_.format.scale_bytes;
        scale_ = scales_.at(offsets.scale);
        scale_at_ = float_scale_at_ = -1;
        for (int64_t first = 0; first < count; first += rows_per_block_) {
            rows_ = static_cast<int>(std::min(rows_per_block_, count - first));
            for (int r = 0; r < rows_; ++r, offsets.advance())
                addresses_[r] = {job_.x + offsets.x * x_bytes, job_.grad + offsets.grad * scale_bytes,
                                 job_.out + offsets.dx * x_bytes};
            if (computes_in_floats_) run_block_in_floats(sums);
            if (rows_ > 0) run_block(sums);
        }
    }

private:
    struct Addresses {
        const char *x, *grad;
        char* dx;
    };

    // Differentiates the rows of a block that fit float32. The others stay in addresses_.
    //
    // The error of dx, in units of 2^-24 of (|g| + |N| mean|g N|) / RMS: squares and g are exact. Adding a group's
    // squares rounds three times (GroupSums), so the inverse has 1.5 and as a float 2.5, and N has 3.5. A product of g
    // x has 1, and its group 4. The mean of g N has 1.5 + 4 and as a float 6.5, its product with N 6.5 + 3.5 + 1, the
    // difference 1 more, and the last product 2.5 + 1: together at most 16. A term of dscale has at most 2 from the
    // rows whose terms are added in float32.
    //
    // With the limits above, no number overflows but a dx that is beyond its type, and terms of dscale, which are then
    // added in double. Below 2^-126 a rounding is at most 2^-150 instead. All of these together are less than
    // 2^-149 ((4 + |N|) (4 + mean|g N| + 1 / RMS) / RMS + 1).
    void run_block_in_floats(double* sums) {
        rows_at_ = -1;
        const int64_t n = job_.shape.n;
        const int32_t dtype = job_.format.x_dtype;
        compute_factors(kernels_.sum_rows_in_floats[dtype], &FloatRows::narrow_columns);
        Addresses others[kMaxGradientRows];
        int fitting = 0, unfit = 0;
        for (int r = 0; r < rows_; ++r) {
            const double inverse = row_[r].inverse, mean = row_[r].mean;
            if (inverse >= kMinInverse && inverse <= kMaxInverse && std::fabs(mean) <= kMaxMean) {
                addresses_[fitting] = addresses_[r];
                row_[fitting].inverse = inverse, row_[fitting].mean = mean;
                ++fitting;
            } else {
                others[unfit++] = addresses_[r];
            }
        }
        if (unfit > 0) rows_at_ = -1;
        rows_ = fitting;
        for_each_block(n, [&](int64_t at, int64_t count) {
            GradientBlock block = narrow_columns(at, count);
            if (sums) block.sums = sums + at;
            kernels_.differentiate_in_floats[dtype][static_cast<int>(job_.storing)][sums != nullptr](block);
        });
        rows_ = unfit;
        std::copy_n(others, unfit, addresses_);
    }

    void run_block(double* sums) {
        rows_at_ = -1;
        compute_factors(kernels_.sum_rows, &FloatRows::columns);
        for_each_block(job_.shape.n, [&](int64_t at, int64_t count) {
            GradientBlock block = columns(at, count);
            if (sums) block.sums = sums + at;
            kernels_.differentiate[job_.format.x_dtype][static_cast<int>(job_.storing)][sums != nullptr](block);
        });
    }

    // Computes `inverse` and `mean` of the block's rows, from sums of blocks of columns.
    void compute_factors(void (*sum_rows)(const GradientBlock&, RowSums*),
                         GradientBlock (FloatRows::*columns)(int64_t, int64_t)) {
        const int64_t n = job_.shape.n;
        RowSums sums = {};
        if (n <= kSumBlock) {
            sum_rows((this->*columns)(0, n), &sums);
        } else {
            PairwiseSum squares[kMaxGradientRows], products[kMaxGradientRows];
            for_each_block(n, [&](int64_t at, int64_t count) {
                sum_rows((this->*columns)(at, count), &sums);
                for (int r = 0; r < rows_; ++r) squares[r].add(sums.squares[r]), products[r].add(sums.products[r]);
            });
            for (int r = 0; r < rows_; ++r)
                sums.squares[r] = squares[r].total(), sums.products[r] = products[r].total();
        }
        kernels_.set_factors(sums, n, job_.format.epsilon, row_, rows_);
    }

    // Returns columns of the block's rows. They are widened, unless the last call returned the same columns.
    GradientBlock columns(int64_t at, int64_t count) {
        const int32_t x_dtype = job_.format.x_dtype, scale_dtype = job_.format.scale_dtype;
        const int64_t scale_bytes = job_.format.scale_bytes;
        if (std::exchange(scale_at_, at) != at)
            job_.format.kernels.widen[scale_dtype](scale_ + at * scale_bytes, memory_.wide_scale, count);
        const GradientBlock block{row_, rows_, count, memory_.wide_scale, nullptr, scale_bytes};
        if (std::exchange(rows_at_, at) == at) return block;
        set_addresses(at);
        for (int r = 0; r < rows_; ++r) {
            row_[r].x = widened(x_dtype, row_[r].x, memory_.wide_x + r * count, count);
            row_[r].grad = widened(scale_dtype, row_[r].grad, memory_.wide_grad + r * count, count);
        }
        return block;
    }

    // Returns columns of the block's rows in their own type.
    GradientBlock narrow_columns(int64_t at, int64_t count) {
        const int64_t scale_bytes = job_.format.scale_bytes;
        if (std::exchange(float_scale_at_, at) != at)
            kernels_.widen[job_.format.scale_dtype](scale_ + at * scale_bytes, memory_.float_scale, count);
        if (std::exchange(rows_at_, at) != at) set_addresses(at);
        return {row_, rows_, count, memory_.float_scale, nullptr, scale_bytes};
    }

    void set_addresses(int64_t at) {
        const int64_t x_bytes = job_.format.x_bytes, scale_bytes = job_.format.scale_bytes;
        for (int r = 0; r < rows_; ++r) {
            const Addresses& from = addresses_[r];
            row_[r].x = from.x + at * x_bytes;
            row_[r].grad = from.grad + at * scale_bytes;
            row_[r].dx = from.dx + at * x_bytes;
            row_[r].x_ahead = from.x + (at + ahead_) * x_bytes;
            row_[r].grad_ahead = from.grad + (at + ahead_) * scale_bytes;
            row_[r].dx_ahead = from.dx + (at + ahead_) * x_bytes;
        }
    }

    // Returns elements as float32: themselves, or a copy.
    const void* widened(int32_t dtype, const void* from, float* to, int64_t count) const {
        if (dtype == NPU_ROPE_FLOAT32) return from;
        kernels_.widen[dtype](from, to, count);
        return to;
    }

    static int64_t rows_per_block(int64_t n) {
        const int64_t of_columns = kBlockElements / std::clamp<int64_t>(n, 1, kSumBlock);
        const int64_t of_rows = std::max<int64_t>(kLongBlockElements / std::max<int64_t>(n, 1), 4);
        return std::min<int64_t>({of_columns, of_rows, kMaxGradientRows});
    }

    const Job& job_;
    const RmsNormBackwardKernels& kernels_;
    const Memory memory_;
    ScaleRow scales_;
    const bool computes_in_floats_ =
        job_.format.x_dtype != NPU_ROPE_FLOAT32 && job_.format.scale_dtype == job_.format.x_dtype;
    const int64_t rows_per_block_;
    const int64_t ahead_ = rows_per_block_ * job_.shape.n;  // to the next block, if rows are contiguous
    const char* scale_ = nullptr;
    int rows_ = 0;
    Addresses addresses_[kMaxGradientRows];
    GradientRow row_[kMaxGradientRows] = {};
    // The first columns of wide_scale, float_scale and row_; -1: of another scale or block.
    int64_t scale_at_ = -1, float_scale_at_ = -1, rows_at_ = -1;
};

// Computes the same for every combination of types.
class DoubleRows {
public:
    struct Memory {
        Memory(const Job& job, PartMemory& memory) : scale(job, memory), blocks(memory.take<double>(4 * kSumBlock)) {}
        ScaleRow::Memory scale;
        double* blocks;
    };

    DoubleRows(const Job& job, const Memory& memory)
        : job_(job),
          kernels_(job.format.kernels),
          double_row_(job.format),
          scales_(job, memory.scale),
          grad_block_(memory.blocks),
          scaled_grad_(memory.blocks + kSumBlock),
          dx_block_(memory.blocks + 2 * kSumBlock),
          normalized_(memory.blocks + 3 * kSumBlock) {}

    void run(BackwardOffsets offsets, int64_t count, double* sums) {
        scale_ = scales_.at(offsets.scale);
        for (int64_t row = 0; row < count; ++row, offsets.advance()) run_row(offsets, sums);
    }

private:
    void run_row(const BackwardOffsets& offsets, double* sums) {
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
    const DoubleRow double_row_;
    ScaleRow scales_;
    RowFactors factors_;
    const char *x_ = nullptr, *grad_ = nullptr, *scale_ = nullptr;
    double *const grad_block_, *scaled_grad_, *dx_block_, *const normalized_;
};

// The number of sums of write_dscale().
int64_t element_sums_of(const BackwardJob& backward) {
    return backward.dscale && backward.scale_elements != backward.job.shape.n ? backward.scale_elements : 0;
}

// Writes the gradient of one scale, rounded. `sums` has one sum for each element of a row. If elements of a row share
// an element of the scale, their sums are added in element_sums, which has memory for element_sums_of() sums.
void write_dscale(const BackwardJob& backward, int64_t scale_index, const double* sums, double* element_sums) {
    const RmsNormShape& shape = backward.job.shape;
    int64_t stride[NPU_ROPE_MAX_NDIM], step = 1;
    for (int k = NPU_ROPE_MAX_NDIM - 1; k >= 0; --k) {
        stride[k] = shape.scale_inner_is_shared[k] ? 0 : step;
        if (!shape.scale_inner_is_shared[k]) step *= shape.inner[k];
    }
    char* to = backward.dscale + scale_index * backward.scale_elements * backward.job.format.scale_bytes;
    if (element_sums_of(backward) > 0) {
        std::fill_n(element_sums, backward.scale_elements, 0.0);
        for_each_inner(shape, stride, [&](int64_t j, int64_t at) { element_sums[at] += sums[j]; });
        sums = element_sums;
    }
    backward.job.format.kernels.narrow[backward.job.format.scale_dtype](sums, to, backward.scale_elements);
}

template <typename Rows>
struct GroupsMemory {
    GroupsMemory(const BackwardJob& backward, PartMemory& memory) : rows(backward.job, memory) {
        if (!backward.dscale || backward.groups > 1) return;
        sums = memory.take<double>(backward.job.shape.n);
        element_sums = memory.take<double>(element_sums_of(backward));
    }
    typename Rows::Memory rows;
    double *sums = nullptr, *element_sums = nullptr;  // if there is one group
};

template <typename Rows>
void differentiate_groups(int64_t begin, int64_t end, const BackwardJob& backward, const GroupsMemory<Rows>& memory) {
    const size_t n = static_cast<size_t>(backward.job.shape.n);
    Rows rows(backward.job, memory.rows);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t scale_index = item / backward.groups, group = item % backward.groups;
        double* sums = nullptr;
        if (backward.dscale) {
            sums = backward.groups == 1 ? memory.sums : backward.sums + static_cast<size_t>(item) * n;
            std::fill_n(sums, n, 0.0);
        }
        const int64_t first = backward.rows_per_scale * group / backward.groups,
                      last = backward.rows_per_scale * (group + 1) / backward.groups;
        rows.run(BackwardOffsets(backward.job.shape, scale_index, first), last - first, sums);
        if (backward.dscale && backward.groups == 1) write_dscale(backward, scale_index, sums, memory.element_sums);
    }
    // Stores past the caches are unordered.
    if (backward.job.storing == StoreMode::kStreamed) std::atomic_thread_fence(std::memory_order_seq_cst);
}

void add_groups(const BackwardJob& backward, double* element_sums) {
    const size_t n = static_cast<size_t>(backward.job.shape.n);
    for (int64_t scale_index = 0; scale_index < backward.scales; ++scale_index) {
        double* sums = backward.sums + static_cast<size_t>(scale_index * backward.groups) * n;
        for (int64_t group = 1; group < backward.groups; ++group)
            for (size_t j = 0; j < n; ++j) sums[j] += sums[static_cast<size_t>(group) * n + j];
        write_dscale(backward, scale_index, sums, element_sums);
    }
}

}  // namespace

void run_backward(const Job& job, char* dscale) {
    const RmsNormShape& shape = job.shape;
    BackwardJob backward{job, dscale, 1, 1, 1, 1, nullptr};
    for (int k = 0; k < kMaxOuterDims; ++k)
        (shape.scale_is_shared[k] ? backward.rows_per_scale : backward.scales) *= shape.outer[k];
    for (int k = 0; k < NPU_ROPE_MAX_NDIM; ++k)
        if (!shape.scale_inner_is_shared[k]) backward.scale_elements *= shape.inner[k];
    const int64_t scale_elements = backward.scales * backward.scale_elements;
    if (scale_elements == 0) return;
    if (shape.rows * shape.n == 0) {  // a row of an empty tensor may be longer than any memory
        if (dscale) std::memset(dscale, 0, static_cast<size_t>(scale_elements * job.format.scale_bytes));
        return;
    }
    const int64_t max_groups = std::max<int64_t>(kMaxGroups / backward.scales, 1);
    backward.groups = std::clamp<int64_t>(backward.rows_per_scale / kMinRowsPerGroup, 1, max_groups);
    const bool has_partial_sums = dscale && backward.groups > 1;
    std::vector<double> sums, element_sums;
    if (has_partial_sums) {
        sums.resize(static_cast<size_t>(backward.scales * backward.groups * shape.n));
        element_sums.resize(static_cast<size_t>(element_sums_of(backward)));
        backward.sums = sums.data();
    }
    const int64_t items = backward.scales * backward.groups;
    const int threads = threads_for(shape.rows * shape.n);
    if (computes_in_floats(job.format))
        run_parts<GroupsMemory<FloatRows>, differentiate_groups<FloatRows>>(items, threads, backward);
    else
        run_parts<GroupsMemory<DoubleRows>, differentiate_groups<DoubleRows>>(items, threads, backward);
    if (has_partial_sums) add_groups(backward, element_sums.data());
}

}  // namespace rms_norm
}  // namespace npu_rope
