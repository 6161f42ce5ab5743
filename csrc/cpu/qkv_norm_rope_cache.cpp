// qkv_norm_rope_cache on the CPU. A thread takes some heads of a token. It normalizes a head into a buffer in the L1
// cache, in the type of intermediate values (float32; float64 for float64 heads), rotates it there, and rounds it into
// the output. If the output has the type of intermediate values, it takes the place of the buffer.
#include "csrc/cpu/qkv_norm_rope_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "csrc/cpu/given_table.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/qkv_norm_rope_cache_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rope_table.h"

namespace npu_rope {
namespace {

// What a call reads besides positions and tables. Real: the type of intermediate values.
template <typename Real>
struct Side {
    QkvSide shape;
    const char* x = nullptr;
    char* out = nullptr;
    std::vector<Real> scale, bias;  // empty: without; [D] or [N*D]
    const float *quant_factor = nullptr, *quant_offset = nullptr;
    bool rotates = false;
};

template <typename Real>
struct Call {
    QkvShape shape;
    Side<Real> side[3];
    int32_t dtype = 0;
    int64_t item_bytes = 0, ranks = 1;
    const RowFormat format;  // of a head of q or k
    const DoubleRow double_row{format};
    const RopeKernels& rope = active_rope_kernels();
    const QkvKernels& kernels = active_qkv_norm_rope_cache_kernels();
    RotationCall rotation{};
    const void* square_sums = nullptr;
    const void* slots = nullptr;
    bool slots_are_int64 = false;
    int64_t head_groups = 1;  // parts into which a token's heads are split among threads

    explicit Call(const RowFormat& rows) : format(rows) {}
    Call(const Call&) = delete;
};

template <typename Real>
constexpr int32_t kRealType = std::is_same_v<Real, double> ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;

// ---- tables of cos and sin ------------------------------------------------------------------------------

// A token's tables from its positions.
struct Computed {
    rope_table::ComputedTableSource source;
    using Table = rope_table::ComputedTokenTable;
    Table table(const RotationCall& call, const RopeKernels& kernels) const { return Table(source, call, kernels); }
};

// The caller's tables, whose rows the positions select.
struct Given {
    const char *cos, *sin;
    given_table::Format format;
    int64_t cos_row_bytes, sin_row_bytes;
    const void* positions;  // NULL: token s has row s
    bool positions_are_int64;
    std::vector<int> axis_of_pair;  // empty: all pairs have one position

    class Table : public given_table::TokenTable {
    public:
        Table(const Given& given, const RotationCall& call, const RopeKernels& kernels)
            : TokenTable(given.format, kernels, given.axis_of_pair.empty() ? nullptr : given.axis_of_pair.data()),
              given_(given),
              shape_(call.shape) {}
        void begin_segment() {}
        void fill(int64_t, int64_t s) {
            given_table::Rows rows = {};
            const int axes = given_.axis_of_pair.empty() ? 1 : kRopeAxes;
            for (int axis = 0; axis < axes; ++axis) {
                int64_t row = s;
                if (given_.positions)
                    row = index_at(given_.positions, given_.positions_are_int64,
                                   shape_.axis_offset[axis] + s * shape_.pos_stride[1]);
                rows.cos[axis] = given_.cos + row * given_.cos_row_bytes;
                rows.sin[axis] = given_.sin + row * given_.sin_row_bytes;
            }
            read(rows);
        }

    private:
        const Given& given_;
        const RopeShape& shape_;
    };
    Table table(const RotationCall& call, const RopeKernels& kernels) const { return Table(*this, call, kernels); }
};

// ---- norm -------------------------------------------------------------------------------------------------

// The factors of a normalized head: x * power * inverse. in_floats: power is 1, and float32 holds all values.
struct Factors {
    double power = 1, inverse = 0;
    bool in_floats = false;
};

// Finds the factors of `count` heads that are normalized together. given_sum: NULL, or the sum of their squares and of
// those of other ranks; `elements` is the number of all these elements.
template <typename Real>
Factors factors_of(const Call<Real>& call, const char* x, int64_t count, int64_t stride_bytes, const double* given_sum,
                   double elements) {
    const RowFormat& format = call.format;
    auto sum_over_heads = [&](auto sum_of_head) {
        PairwiseSum sum;
        for (int64_t h = 0; h < count; ++h) sum.add(sum_of_head(x + h * stride_bytes));
        return sum.total();
    };
    auto sum_in_doubles = [&](double power) {
        return sum_over_heads(
            [&](const char* head) { return call.double_row.mean_square(head, power) * static_cast<double>(format.n); });
    };
    if constexpr (std::is_same_v<Real, float>) {
        const double sum = given_sum
                               ? *given_sum
                               : sum_over_heads([&](const char* head) { return sum_squares_in_floats(format, head); });
        const double mean = sum / elements + format.epsilon;
        if (fits_floats(mean)) return {1, 1 / std::sqrt(mean), true};
        if (given_sum) return {1, 1 / std::sqrt(mean), false};
    }
    const double mean = (given_sum ? *given_sum : sum_in_doubles(1)) / elements;
    const bool overflows = std::isinf(mean), underflows = format.epsilon == 0 && mean < kMinDoubleMeanSquare;
    if (!given_sum && call.dtype == NPU_ROPE_FLOAT64 && (overflows || underflows)) {
        double peak = 0;
        for (int64_t h = 0; h < count; ++h) peak = std::max(peak, call.double_row.peak_of(x + h * stride_bytes));
        if (std::isfinite(peak) && peak > 0) {
            const double power = power_of_peak(peak);
            return {power, 1 / std::sqrt(sum_in_doubles(power) / elements + format.epsilon * power * power), false};
        }
    }
    return {1, 1 / std::sqrt(mean + format.epsilon), false};
}

// Widens a head to Real and normalizes it, in double.
template <typename Real>
void normalize_in_doubles(const Call<Real>& call, const char* x, const Factors& factors, const Real* scale,
                          const Real* bias, int64_t count, Real* y) {
    double block[kSumBlock];
    for_each_block(count, [&](int64_t at, int64_t n) {
        call.format.kernels.widen[call.dtype](x + at * call.item_bytes, block, n);
        for (int64_t i = 0; i < n; ++i) {
            double value = block[i];
            if (scale) value = value * factors.power * factors.inverse * static_cast<double>(scale[at + i]);
            if (bias) value += static_cast<double>(bias[at + i]);
            y[at + i] = static_cast<Real>(value);
        }
    });
}

// ---- heads ------------------------------------------------------------------------------------------------

// This thread's buffer for a head.
template <typename Real>
Real* head_buffer(int64_t count) {
    thread_local std::vector<Real> buffer;
    if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(static_cast<size_t>(count));
    return buffer.data();
}

template <typename Real>
void widen_head(const Call<Real>& call, const Side<Real>& side, const char* x, const Factors& factors, int64_t head,
                Real* y) {
    const int64_t D = side.shape.D, at = side.shape.norm == QkvNorm::kAllHeads ? head * D : 0;
    const Real* scale = side.scale.empty() ? nullptr : side.scale.data() + at;
    const Real* bias = side.bias.empty() ? nullptr : side.bias.data() + at;
    if constexpr (std::is_same_v<Real, float>)
        if (!scale || factors.in_floats)
            return call.kernels.widen[call.dtype]({x, scale, bias, y, D, static_cast<float>(factors.inverse)});
    normalize_in_doubles(call, x, factors, scale, bias, D, y);
}

template <typename Real>
void quantize_head(const Call<Real>& call, const Side<Real>& side, int64_t head, const Real* y, int8_t* out) {
    const int64_t at = head * side.shape.quant_stride[0], stride = side.shape.quant_stride[1];
    const float *factor = side.quant_factor + at, *offset = side.quant_offset ? side.quant_offset + at : nullptr;
    if constexpr (std::is_same_v<Real, float>) {
        call.kernels.quantize({y, factor, offset, stride, out, side.shape.D});
    } else {
        for (int64_t i = 0; i < side.shape.D; ++i) {
            double value = y[i] * static_cast<double>(factor[i * stride]);
            if (offset) value += static_cast<double>(offset[i * stride]);
            const double limited = std::min(127.0, std::max(-128.0, value));
            out[i] = std::isnan(value) ? int8_t{0} : static_cast<int8_t>(std::nearbyint(limited));
        }
    }
}

template <typename Real>
void store_head(const Call<Real>& call, const Side<Real>& side, int64_t head, const Real* y, char* out) {
    if (side.shape.out_dtype == NPU_ROPE_INT8)
        return quantize_head(call, side, head, y, reinterpret_cast<int8_t*>(out));
    if constexpr (std::is_same_v<Real, float>)
        call.rope.narrow[side.shape.out_dtype](y, out, side.shape.D);
    else
        call.format.kernels.narrow[side.shape.out_dtype](y, out, side.shape.D);
}

template <typename Real, class Table>
void rotate_head(const Call<Real>& call, const Table& table, const char* x, char* y) {
    const RotationCall& rotation = call.rotation;
    const int64_t offset = rotation.offset * static_cast<int64_t>(sizeof(Real));
    HeadsJob job;
    job.x = x + offset;
    job.y = y + offset;
    job.x_stride = job.y_stride = 0;
    job.heads = 1;
    job.pairs = static_cast<int>(rotation.pairs);
    job.bytes_before = x == y ? 0 : offset;
    job.bytes_after =
        x == y ? 0 : (rotation.shape.D - rotation.offset - 2 * rotation.pairs) * static_cast<int64_t>(sizeof(Real));
    job.cos_table = table.cos_table();
    job.sin_table = table.sin_table();
    job.stream = false;
    const auto& rotate = table.entry_per_lane() ? call.rope.rotate_by_lanes : call.rope.rotate;
    rotate[rotation.pairing][kRealType<Real>](job);
}

// Computes one head of a side.
template <typename Real, class Table>
void compute_head(const Call<Real>& call, const Side<Real>& side, const Table& table, const char* x,
                  const Factors& factors, int64_t head, char* out) {
    const bool normalizes = !side.scale.empty();
    if (!normalizes && !side.rotates && side.shape.out_dtype == call.dtype) {
        if (!side.shape.in_place) std::memcpy(out, x, static_cast<size_t>(side.shape.D * call.item_bytes));
        return;
    }
    const bool out_is_real = side.shape.out_dtype == kRealType<Real>;
    if (!normalizes && side.rotates && out_is_real && call.dtype == kRealType<Real>)
        return rotate_head(call, table, x, out);
    Real* y = out_is_real ? reinterpret_cast<Real*>(out) : head_buffer<Real>(side.shape.D);
    widen_head(call, side, x, factors, head, y);
    if (side.rotates) rotate_head(call, table, reinterpret_cast<char*>(y), reinterpret_cast<char*>(y));
    if (!out_is_real) store_head(call, side, head, y, out);
}

// ---- tokens -----------------------------------------------------------------------------------------------

template <typename Real>
Factors factors_of_token(const Call<Real>& call, int k, const char* x, int64_t s) {
    const Side<Real>& side = call.side[k];
    const double elements = static_cast<double>(call.ranks) * static_cast<double>(side.shape.N * side.shape.D);
    if (!call.square_sums)
        return factors_of(call, x, side.shape.N, side.shape.x_stride[1] * call.item_bytes, nullptr, elements);
    const double sum = static_cast<const Real*>(call.square_sums)[s * call.shape.square_sum_stride + k];
    return factors_of(call, x, side.shape.N, 0, &sum, elements);
}

// Computes heads [first, last) of a side of token s. slot: its row of the caches.
template <typename Real, class Table>
void compute_heads(const Call<Real>& call, int k, const Table& table, int64_t s, int64_t slot, int64_t first,
                   int64_t last) {
    const Side<Real>& side = call.side[k];
    const bool is_cache = call.slots && k > 0;
    if (first >= last || (is_cache && slot < 0)) return;
    const int64_t head_bytes = side.shape.x_stride[1] * call.item_bytes, out_bytes = dtype_bytes(side.shape.out_dtype);
    const char* x = side.x + s * side.shape.x_stride[0] * call.item_bytes;
    const int64_t row = is_cache ? slot / side.shape.block_size * side.shape.out_stride[0] +
                                       slot % side.shape.block_size * side.shape.out_stride[1]
                                 : s * side.shape.out_stride[0];
    Factors factors;
    if (side.shape.norm == QkvNorm::kAllHeads) factors = factors_of_token(call, k, x, s);
    for (int64_t h = first; h < last; ++h) {
        if (side.shape.norm == QkvNorm::kHead)
            factors = factors_of(call, x + h * head_bytes, 1, 0, nullptr, static_cast<double>(side.shape.D));
        compute_head(call, side, table, x + h * head_bytes, factors, h,
                     side.out + (row + h * side.shape.out_stride[2]) * out_bytes);
    }
}

template <typename Real, class Source>
struct Job {
    const Call<Real>& call;
    const Source& source;
};

// Computes a range of groups of heads. The heads of q, k and v of a token have consecutive numbers.
template <typename Real, class Source>
void run_range(int64_t begin, int64_t end, void* ctx) {
    const auto& job = *static_cast<const Job<Real, Source>*>(ctx);
    const Call<Real>& call = job.call;
    const int64_t groups = call.head_groups, segments_of = rotation::kTokensPerSegment;
    auto table = job.source.table(call.rotation, call.rope);
    const int64_t heads = call.side[0].shape.N + call.side[1].shape.N + call.side[2].shape.N;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t group = item % groups, first_token = item / groups * segments_of;
        const int64_t last_token = std::min(first_token + segments_of, call.shape.rope.S);
        table.begin_segment();
        for (int64_t s = first_token; s < last_token; ++s) {
            const int64_t slot =
                call.slots ? index_at(call.slots, call.slots_are_int64, s * call.shape.slot_stride) : 0;
            table.fill(0, s);
            int64_t first = heads * group / groups, last = heads * (group + 1) / groups;
            for (int k = 0; k < 3; ++k) {
                const int64_t N = call.side[k].shape.N;
                compute_heads(call, k, table, s, slot, std::clamp<int64_t>(first, 0, N),
                              std::clamp<int64_t>(last, 0, N));
                first -= N;
                last -= N;
            }
        }
    }
}

template <typename Real, class Source>
void run_all(Call<Real>* call, const Source& source) {
    if (call->shape.empty()) return;
    int64_t elements = 0, heads = 0;
    for (const Side<Real>& side : call->side) {
        elements += side.shape.N * side.shape.D;
        heads += side.shape.N;
    }
    const int threads = threads_for(elements * call->shape.rope.S);
    const int64_t segments = (call->shape.rope.S + rotation::kTokensPerSegment - 1) / rotation::kTokensPerSegment;
    // If a token's heads are normalized together in place, no other thread may overwrite them in the meantime.
    const bool needs_whole_tokens =
        !call->square_sums && std::any_of(std::begin(call->side), std::end(call->side), [](const Side<Real>& side) {
            return side.shape.in_place && side.shape.norm == QkvNorm::kAllHeads;
        });
    const bool has_enough_segments = segments >= rotation::kMinSegmentsPerThread * threads;
    call->head_groups = needs_whole_tokens || has_enough_segments ? 1 : std::min<int64_t>(heads, threads);
    Job<Real, Source> job{*call, source};
    parallel_ranges(segments * call->head_groups, threads, run_range<Real, Source>, &job);
}

// ---- calls ------------------------------------------------------------------------------------------------

// Returns a scale or a bias as Real, plus `addend`.
template <typename Real>
std::vector<Real> widened(const npu_rope_tensor* t, const RmsNormKernels& kernels, double addend) {
    if (!t) return {};
    const auto count = static_cast<size_t>(t->shape[0]);
    std::vector<double> doubles(count);
    kernels.widen[t->dtype](t->data, doubles.data(), t->shape[0]);
    std::vector<Real> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<Real>(doubles[i]) + static_cast<Real>(addend);
    return values;
}

template <typename Real>
void fill_sides(Call<Real>* call, const QkvTensors& t, double scale_offset) {
    const npu_rope_qkv_inputs& in = t.in;
    const npu_rope_tensor *x[3] = {in.q, in.k, in.v}, *out[3] = {t.out.q_out, t.out.k_out, t.out.v_out},
                          *scale[3] = {in.q_scale, in.k_scale, nullptr}, *bias[3] = {in.q_bias, in.k_bias, nullptr},
                          *factor[3] = {nullptr, in.k_quant_scale, in.v_quant_scale},
                          *offset[3] = {nullptr, in.k_quant_offset, in.v_quant_offset};
    auto floats = [](const npu_rope_tensor* tensor) {
        return tensor ? static_cast<const float*>(tensor->data) : nullptr;
    };
    for (int k = 0; k < 3; ++k) {
        Side<Real>& side = call->side[k];
        side.shape = call->shape.side[k];
        if (!x[k]) continue;
        side.x = static_cast<const char*>(x[k]->data);
        side.out = static_cast<char*>(out[k]->data);
        side.scale = widened<Real>(scale[k], call->format.kernels, scale_offset);
        side.bias = widened<Real>(bias[k], call->format.kernels, 0);
        side.quant_factor = floats(factor[k]);
        side.quant_offset = floats(offset[k]);
        side.rotates = k < 2;
    }
}

Given given_tables(const QkvTensors& t, const QkvShape& shape, const npu_rope_params& params,
                   const RotationCall& rotation) {
    Given given;
    const npu_rope_tensor &cos = *t.in.cos, &sin = *t.in.sin;
    given.cos = static_cast<const char*>(cos.data);
    given.sin = static_cast<const char*>(sin.data);
    given.format = {cos.dtype,      shape.entry_per_lane, /*forward=*/true,
                    rotation.dtype, rotation.pairing,     static_cast<int>(rotation.pairs)};
    given.cos_row_bytes = shape.cos_stride * dtype_bytes(cos.dtype);
    given.sin_row_bytes = shape.sin_stride * dtype_bytes(sin.dtype);
    given.positions = t.in.positions ? t.in.positions->data : nullptr;
    given.positions_are_int64 = t.in.positions && t.in.positions->dtype == NPU_ROPE_INT64;
    if (rope_has_sections(params.mode))
        for (const RopePairTerms& terms : rope_pair_terms(params)) given.axis_of_pair.push_back(terms.axis);
    return given;
}

template <typename Real>
Check run(const QkvTensors& t, const npu_rope_params& params, const QkvAttributes& attributes, const QkvShape& shape) {
    const double epsilon = static_cast<double>(static_cast<float>(attributes.epsilon));
    Call<Real> call(row_format(shape.rope.D, t.in.q->dtype, t.in.q->dtype, kRealType<Real>, epsilon));
    call.shape = shape;
    call.dtype = t.in.q->dtype;
    call.item_bytes = dtype_bytes(call.dtype);
    call.ranks = attributes.ranks;
    call.square_sums = t.in.square_sums ? t.in.square_sums->data : nullptr;
    call.slots = t.in.slots ? t.in.slots->data : nullptr;
    call.slots_are_int64 = t.in.slots && t.in.slots->dtype == NPU_ROPE_INT64;
    fill_sides(&call, t, attributes.scale_offset);
    call.rotation.dtype = kRealType<Real>;
    call.rotation.pairing = rope_table::pairing_of(params.mode);
    call.rotation.offset = params.n_offs;
    call.rotation.pairs = shape.pairs;
    call.rotation.shape = shape.rope;
    if (t.in.cos) {
        run_all(&call, given_tables(t, shape, params, call.rotation));
        return {};
    }
    Computed computed;
    if (Check c = rope_table::fill_source(params, t.in.positions, t.in.freq_factors, /*forward=*/true,
                                          attributes.angle_policy, &computed.source);
        !c.ok())
        return c;
    run_all(&call, computed);
    return {};
}

}  // namespace

Check run_qkv_norm_rope_cache_cpu(const QkvTensors& t, const npu_rope_params* params, const QkvAttributes& attributes) {
    QkvShape shape;
    if (Check c = check_qkv_norm_rope_cache(t, params, attributes, &shape); !c.ok()) return c;
    return t.in.q->dtype == NPU_ROPE_FLOAT64 ? run<double>(t, *params, attributes, shape)
                                             : run<float>(t, *params, attributes, shape);
}

Check run_qk_square_sums_cpu(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* out) {
    if (Check c = check_qk_square_sums(q, k, out, Known::kValues, false); !c.ok()) return c;
    const int32_t dtype = q->dtype;
    const RowFormat format = row_format(q->shape[2], dtype, dtype, NPU_ROPE_FLOAT64, 0);
    const DoubleRow double_row(format);
    struct Job {
        const npu_rope_tensor *x[2], *out;
        const DoubleRow& row;
        const RowFormat& format;
    } job{{q, k}, out, double_row, format};
    auto body = [](int64_t begin, int64_t end, void* ctx) {
        const Job& job = *static_cast<const Job*>(ctx);
        for (int64_t s = begin; s < end; ++s)
            for (int side = 0; side < 2; ++side) {
                const npu_rope_tensor& x = *job.x[side];
                PairwiseSum sum;
                for (int64_t h = 0; h < x.shape[1]; ++h) {
                    const char* head = static_cast<const char*>(x.data) +
                                       (s * used_stride(x, 0) + h * used_stride(x, 1)) * job.format.x_bytes;
                    sum.add(job.row.mean_square(head, 1) * static_cast<double>(job.format.n));
                }
                const double total = sum.total();
                char* to = static_cast<char*>(job.out->data) +
                           (s * used_stride(*job.out, 0) + side) * dtype_bytes(job.out->dtype);
                if (job.out->dtype == NPU_ROPE_FLOAT64)
                    std::memcpy(to, &total, sizeof total);
                else {
                    const auto narrow = static_cast<float>(total);
                    std::memcpy(to, &narrow, sizeof narrow);
                }
            }
    };
    const int64_t S = q->shape[0];
    const int threads = threads_for(S * (q->shape[1] + k->shape[1]) * q->shape[2]);
    parallel_ranges(S, threads, body, &job);
    return {};
}

}  // namespace npu_rope
