// qkv_norm_rope_cache on the CPU. A thread takes some heads of a token, and computes the heads of each side by one of
// these paths:
//
// - kCopy: values, if the output has their type.
// - kRotate: heads without a norm, if the output has their type: rope's kernel.
// - kPass: heads with a norm of their own and no bias, if the output has their type: rms_norm_rope's kernel. float64
//   has none.
// - kByHead: all others. The thread normalizes a head into a buffer in the L1 cache, in the type of intermediate values
//   (float32; float64 for float64 heads), rotates it there, and rounds it into the output. If the output has the type
//   of intermediate values, it takes the place of the buffer.
//
// All paths round the same products and sums, and a result has the same bits by each of them.
#include "csrc/cpu/qkv_norm_rope_cache.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "csrc/cpu/given_table.h"
#include "csrc/cpu/normalized_heads.h"
#include "csrc/cpu/parallel.h"
#include "csrc/cpu/qkv_norm_rope_cache_kernels.h"
#include "csrc/cpu/rms_norm_row.h"
#include "csrc/cpu/rope_table.h"

namespace npu_rope {
namespace {

enum class Path { kCopy, kRotate, kPass, kByHead };

// One side of a call: the heads of q, k or v, and what they are computed with. Real: the type of intermediate values.
template <typename Real>
struct Side {
    QkvSide shape;
    const char* x = nullptr;
    char* out = nullptr;
    std::vector<Real> scale, bias;     // [D] or [N*D]; empty if the call has none
    std::vector<float> ordered_scale;  // of kPass
    const float *quant_factor = nullptr, *quant_offset = nullptr;
    bool rotates = false;
    Path path = Path::kByHead;
    bool stream = false;  // store past the caches; not of kByHead
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
    const RmsNormRopeKernels& rms_norm_rope = active_rms_norm_rope_kernels();
    const QkvKernels& kernels = active_qkv_norm_rope_cache_kernels();
    RotationCall rotation{};
    const void* square_sums = nullptr;
    const void* slots = nullptr;
    bool slots_are_int64 = false;

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
    Table::Memory memory(const RotationCall& call, PartMemory& memory) const { return {source, call, memory}; }
    Table table(const RotationCall& call, const RopeKernels& kernels, const Table::Memory& memory) const {
        return {source, call, kernels, memory};
    }
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
        Table(const Given& given, const RotationCall& call, const RopeKernels& kernels, const Memory& memory)
            : TokenTable(given.format, kernels, memory,
                         given.axis_of_pair.empty() ? nullptr : given.axis_of_pair.data()),
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
    Table::Memory memory(const RotationCall&, PartMemory& memory) const { return {format, memory}; }
    Table table(const RotationCall& call, const RopeKernels& kernels, const Table::Memory& memory) const {
        return {*this, call, kernels, memory};
    }
};

// ---- norm -------------------------------------------------------------------------------------------------

// The factors of a normalized head. in_floats: power is 1, and float32 holds all values.
struct Factors : RowFactors {
    bool in_floats = false;
};

// Finds the factors of `heads` heads that are normalized together.
template <typename Real>
Factors factors_of(const Call<Real>& call, const char* x, int64_t heads, int64_t stride_bytes) {
    if constexpr (std::is_same_v<Real, float>) {
        PairwiseSum sum;
        for (int64_t h = 0; h < heads; ++h) sum.add(sum_squares_in_floats(call.format, x + h * stride_bytes));
        const double mean = sum.total() / static_cast<double>(heads * call.format.n) + call.format.epsilon;
        if (fits_floats(mean)) return {{1, 1 / std::sqrt(mean)}, true};
    }
    return {call.double_row.factors_of(x, heads, stride_bytes), false};
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

// Computes one head of a side by kByHead. `buffer` has memory for a head.
template <typename Real, class Table>
void compute_head(const Call<Real>& call, const Side<Real>& side, Table& table, Real* buffer, const char* x,
                  const Factors& factors, int64_t head, char* out) {
    const bool out_is_real = side.shape.out_dtype == kRealType<Real>;
    Real* y = out_is_real ? reinterpret_cast<Real*>(out) : buffer;
    char* bytes = reinterpret_cast<char*>(y);
    widen_head(call, side, x, factors, head, y);
    if (side.rotates)
        rotation::rotate_heads(call.rope, call.rotation, kRealType<Real>, table, {bytes, bytes, 1, 0, 0},
                               /*in_place=*/true, /*stream=*/false);
    if (!out_is_real) store_head(call, side, head, y, out);
}

template <typename Real>
void copy_heads(const Call<Real>& call, const Side<Real>& side, const rotation::Heads& heads) {
    if (side.shape.in_place) return;
    const int64_t D = side.shape.D, head_bytes = D * call.item_bytes;
    if (head_bytes == 0) return;
    CopyJob job;
    job.x = heads.x;
    job.y = heads.y;
    job.count = heads.count;
    job.bytes = head_bytes;
    job.x_step = heads.x_stride * call.item_bytes;
    job.y_step = heads.y_stride * call.item_bytes;
    job.prefetch_distance = normalized_heads::heads_per_block(head_bytes) * job.x_step;
    job.stream = side.stream;
    if (heads.x_stride == D && heads.y_stride == D) job.bytes *= job.count, job.count = 1;
    call.kernels.copy(job);
}

// ---- tokens -----------------------------------------------------------------------------------------------

template <typename Real>
Factors factors_of_token(const Call<Real>& call, int k, const char* x, int64_t s) {
    const Side<Real>& side = call.side[k];
    if (!call.square_sums) return factors_of(call, x, side.shape.N, side.shape.x_stride[1] * call.item_bytes);
    const double sum = static_cast<const Real*>(call.square_sums)[s * call.shape.square_sum_stride + k];
    const double elements = static_cast<double>(call.ranks) * static_cast<double>(side.shape.N * side.shape.D);
    const double mean = sum / elements + call.format.epsilon;
    return {{1, 1 / std::sqrt(mean)}, std::is_same_v<Real, float> && fits_floats(mean)};
}

// Computes the heads of a side of token s. slot: its row of the caches.
template <typename Real, class Table>
void compute_heads(const Call<Real>& call, int k, Table& table, Real* buffer, int64_t s, int64_t slot) {
    const Side<Real>& side = call.side[k];
    const bool is_cache = call.slots && k > 0;
    if (side.shape.N == 0 || (is_cache && slot < 0)) return;
    const int64_t head_bytes = side.shape.x_stride[1] * call.item_bytes, out_bytes = dtype_bytes(side.shape.out_dtype);
    const char* x = side.x + s * side.shape.x_stride[0] * call.item_bytes;
    const int64_t row = is_cache ? slot / side.shape.block_size * side.shape.out_stride[0] +
                                       slot % side.shape.block_size * side.shape.out_stride[1]
                                 : s * side.shape.out_stride[0];
    const rotation::Heads heads{x, side.out + row * out_bytes, side.shape.N, side.shape.x_stride[1],
                                side.shape.out_stride[2]};
    if (side.path == Path::kCopy) return copy_heads(call, side, heads);
    if (side.path == Path::kRotate)
        return rotation::rotate_heads(call.rope, call.rotation, call.dtype, table, heads, side.shape.in_place,
                                      side.stream);
    if (side.path == Path::kPass && !table.entry_per_lane()) {
        normalized_heads::Pass pass(call.rms_norm_rope, call.format, call.rotation, side.ordered_scale.data(),
                                    table.in_order_of(call.dtype), heads, side.stream);
        return pass.run([&](const char* head, char* y) {
            compute_head(call, side, table, buffer, head, factors_of(call, head, 1, 0), 0, y);
        });
    }
    Factors factors;
    if (side.shape.norm == QkvNorm::kAllHeads) factors = factors_of_token(call, k, x, s);
    for (int64_t h = 0; h < heads.count; ++h) {
        const char* head = heads.x + h * head_bytes;
        if (side.shape.norm == QkvNorm::kHead) factors = factors_of(call, head, 1, 0);
        compute_head(call, side, table, buffer, head, factors, h, heads.y + h * heads.y_stride * out_bytes);
    }
}

template <typename Real, class Source>
struct Job {
    const Call<Real>& call;
    const Source& source;
};

// A part of a call: some units of tokens.
template <typename Real, class Source>
class Part {
public:
    struct Memory {
        Memory(const Job<Real, Source>& job, PartMemory& memory) : table(job.source.memory(job.call.rotation, memory)) {
            int64_t D = 0;
            for (const Side<Real>& side : job.call.side) D = std::max(D, side.shape.D);
            head = memory.take<Real>(D);
        }
        typename Source::Table::Memory table;
        Real* head;
    };

    Part(const Job<Real, Source>& job, const Memory& memory)
        : call_(job.call),
          table_(job.source.table(job.call.rotation, job.call.rope, memory.table)),
          head_(memory.head) {}

    void run(int64_t begin, int64_t end) {
        rotation::run_units(begin, end, call_.shape.rope.S, table_, [&](int64_t, int64_t s, bool computes) {
            table_.fill(0, s);
            if (!computes) return;
            const int64_t slot =
                call_.slots ? index_at(call_.slots, call_.slots_are_int64, s * call_.shape.slot_stride) : 0;
            for (int k = 0; k < 3; ++k) compute_heads(call_, k, table_, head_, s, slot);
        });
        // Stores past the caches are unordered.
        if (std::any_of(std::begin(call_.side), std::end(call_.side),
                        [](const Side<Real>& side) { return side.stream; }))
            std::atomic_thread_fence(std::memory_order_seq_cst);
    }

private:
    const Call<Real>& call_;
    typename Source::Table table_;
    Real* head_;
};

// Whether a side can be stored past the caches (streaming.h).
template <typename Real>
bool may_stream(const Call<Real>& call, const Side<Real>& side) {
    return side.x && side.path != Path::kByHead && !side.shape.in_place && call.dtype != NPU_ROPE_FLOAT64 &&
           rotation::is_aligned(call.rotation, side.out, side.shape.out_stride);
}

template <typename Real, class Source>
void run_all(Call<Real>* call, const Source& source) {
    if (call->shape.empty()) return;
    int64_t elements = 0;
    for (const Side<Real>& side : call->side) elements += side.shape.N * side.shape.D;
    elements *= call->shape.rope.S;
    const int threads = threads_for(elements);
    for (Side<Real>& side : call->side)
        side.stream = exceeds_caches(threads, 2 * elements * call->item_bytes) && may_stream(*call, side);
    Job<Real, Source> job{*call, source};
    using OfCall = Part<Real, Source>;
    run_parts<typename OfCall::Memory, rotation::run_part<OfCall, Job<Real, Source>>>(
        rotation::units_of(call->shape.rope.S), threads, job);
}

// ---- calls ------------------------------------------------------------------------------------------------

template <typename Real>
Path path_of(const Call<Real>& call, const Side<Real>& side) {
    if (side.shape.out_dtype != call.dtype) return Path::kByHead;
    if (!side.rotates) return Path::kCopy;
    if (side.scale.empty()) return Path::kRotate;
    const bool is_plain_norm = side.shape.norm == QkvNorm::kHead && side.bias.empty();
    return is_plain_norm && std::is_same_v<Real, float> ? Path::kPass : Path::kByHead;
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
        if (scale[k]) side.scale = widened<Real>(*scale[k], call->format.kernels);
        for (Real& factor : side.scale) factor += static_cast<Real>(scale_offset);
        if (bias[k]) side.bias = widened<Real>(*bias[k], call->format.kernels);
        side.quant_factor = floats(factor[k]);
        side.quant_offset = floats(offset[k]);
        side.rotates = k < 2;
        side.path = path_of(*call, side);
        if constexpr (std::is_same_v<Real, float>)
            if (side.path == Path::kPass)
                side.ordered_scale = normalized_heads::ordered_scale(side.scale, call->rotation, call->rope);
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
    call.rotation.dtype = call.dtype;
    call.rotation.pairing = rope_table::pairing_of(params.mode);
    call.rotation.offset = params.n_offs;
    call.rotation.pairs = shape.pairs;
    call.rotation.shape = shape.rope;
    fill_sides(&call, t, attributes.scale_offset);
    if (t.in.cos) {
        run_all(&call, given_tables(t, shape, params, call.rotation));
        return {};
    }
    Computed computed;
    if (Check c = rope_table::fill_source(params, t.in.positions, t.in.freq_factors, /*forward=*/true,
                                          attributes.angle_policy, call.dtype, shape.rope, &computed.source);
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
    const auto body = [](int64_t begin, int64_t end, PartMemory, const void* checked) {
        const Job& job = *static_cast<const Job*>(checked);
        for (int64_t s = begin; s < end; ++s)
            for (int side = 0; side < 2; ++side) {
                const npu_rope_tensor& x = *job.x[side];
                PairwiseSum sum;
                const int64_t heads = x.shape[2] ? x.shape[1] : 0;  // an empty tensor can have any number of heads
                for (int64_t h = 0; h < heads; ++h) {
                    const char* head = static_cast<const char*>(x.data) +
                                       (s * used_stride(x, 0) + h * used_stride(x, 1)) * job.format.x_bytes;
                    sum.add(job.row.sum_squares(head, 1));
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
    parallel_ranges(S, threads, 0, body, &job);
    return {};
}

}  // namespace npu_rope
