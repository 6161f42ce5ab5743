// qkv_norm_rope_cache for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/qkv_norm_rope_cache.py; the functions here call the kernel.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "csrc/npu/rope_call.h"
#include "op_host/qkv_norm_rope_cache_tiling.h"

namespace npu_rope::qkv {
namespace {

// The tensors of a call, in the order of the definition.
enum : size_t {
    kQ,
    kK,
    kV,
    kQScale,
    kKScale,
    kQBias,
    kKBias,
    kSquareSums,
    kPositions,
    kFreqFactors,
    kCos,
    kSin,
    kSlots,
    kKQuantScale,
    kKQuantOffset,
    kVQuantScale,
    kVQuantOffset,
    kKCache,
    kVCache,
    kQOut,
    kKOut,
    kVOut,
    kCount
};
constexpr size_t kParameters[] = {kQScale, kKScale, kQBias, kKBias, kCos, kSin};  // of one type in the definition

using QkvCall = std::array<OptionalTensor, kCount>;

// The tensors for a launch. The definition has the outputs q_out, k_out and v_out; a call with caches passes k_cache
// and v_cache as the last two.
LaunchTensors launch_tensors(const QkvCall& call) {
    using T = LaunchTensor;
    constexpr const char* kNames[kCount] = {"q",
                                            "k",
                                            "v",
                                            "q_scale",
                                            "k_scale",
                                            "q_bias",
                                            "k_bias",
                                            "square_sums",
                                            "positions",
                                            "freq_factors",
                                            "cos",
                                            "sin",
                                            "slots",
                                            "k_quant_scale",
                                            "k_quant_offset",
                                            "v_quant_scale",
                                            "v_quant_offset",
                                            "k_cache",
                                            "v_cache",
                                            "q_out",
                                            "k_out",
                                            "v_out"};
    std::vector<LaunchTensor> tensors;
    for (size_t i = 0; i < kCount; ++i) {
        T::Form form = T::kAsIs;
        const at::Tensor* out = &*call[kQOut];
        if (i <= kV || i == kCos || i == kSin) form = T::kUnitStride;
        if ((i >= kQScale && i <= kSquareSums) || i == kFreqFactors || (i >= kKQuantScale && i <= kVQuantOffset))
            form = T::kContiguous;
        if (i == kSlots) form = T::kInt32;
        if (i == kK) out = given(call[kKOut]);
        if (i == kV && call[kVOut].has_value()) out = given(call[kVOut]);
        tensors.push_back({kNames[i], given(call[i]), form, out});
    }
    return {"qkv_norm_rope_cache", std::move(tensors)};
}

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
bool check_qkv(const LaunchTensors& tensors, const Attributes& a, const QkvAttributes& qkv) {
    QkvTensors t = {};
    const npu_rope_tensor* views[sizeof t.in / sizeof(npu_rope_tensor*)];
    for (size_t i = 0; i < std::size(views); ++i) views[i] = tensors.view(i);
    std::copy(std::begin(views), std::end(views), reinterpret_cast<const npu_rope_tensor**>(&t.in));
    t.out = {tensors.view(kQOut), tensors.view(kKOut), t.in.v ? tensors.view(kVOut) : nullptr};
    t.known = Known::kAddresses;
    TilingResult<QkvNormRopeCacheTilingData> tiled;
    raise_on(check_and_tile_qkv_norm_rope_cache(t, params_of(a), qkv, platform("qkv_norm_rope_cache"), &tiled));
    return tiled.has_elements();
}

// The tensors of each side: itself, its parameters, its cache and its output.
constexpr std::initializer_list<size_t> kSides[] = {
    {kQ, kQScale, kQBias, kQOut},
    {kK, kKScale, kKBias, kKQuantScale, kKQuantOffset, kKCache, kKOut},
    {kV, kVQuantScale, kVQuantOffset, kVCache, kVOut},
};

// Removes the sides without elements, which aclnn does not take. Gives the launch the tensors that the definition
// requires: parameters of one type, and a tensor of the right type and shape for each parameter that the call lacks.
// The kernel does not read or write these.
void complete(QkvCall* call) {
    const at::TensorOptions options = (*call)[kQ]->options();
    const int64_t head_size = (*call)[kQ]->size(2);
    for (const auto& side : kSides)
        if (const at::Tensor* x = given((*call)[*side.begin()]); x && x->numel() == 0)
            for (const size_t i : side) (*call)[i] = std::nullopt;
    OptionalTensor* parameter = nullptr;
    bool widens = false;
    for (const size_t i : kParameters) {
        if (!(*call)[i].has_value()) continue;
        widens |= parameter && (*parameter)->scalar_type() != (*call)[i]->scalar_type();
        parameter = &(*call)[i];
    }
    for (const size_t i : kParameters)
        if (widens && (*call)[i].has_value()) (*call)[i] = (*call)[i]->to(at::kFloat);
    if (!(*call)[kQScale].has_value()) (*call)[kQScale] = at::empty({1}, parameter ? (*parameter)->options() : options);
    if (!(*call)[kPositions].has_value()) (*call)[kPositions] = at::empty({1}, options.dtype(at::kInt));
    for (const auto& [x, out] : {std::pair{kQ, kQOut}, {kK, kKOut}})
        if (!(*call)[x].has_value()) (*call)[x] = (*call)[out] = at::empty({1, 1, head_size}, options);
    if (!(*call)[kV].has_value()) (*call)[kVOut] = at::empty({1}, options);
}

// tensors: with slots, kKOut and kVOut are the caches.
void launch(QkvCall tensors, const Attributes& a, double epsilon, double scale_offset, int64_t ranks) {
    const QkvAttributes qkv{epsilon, scale_offset, ranks, angle_of(a)};
    if (!check_qkv(launch_tensors(tensors), a, qkv)) return;
    if (tensors[kSlots].has_value()) {
        tensors[kKCache] = tensors[kKOut];
        tensors[kVCache] = tensors[kVOut];
    }
    const bool has_q = tensors[kQ]->numel() > 0, has_k = tensors[kK]->numel() > 0;
    const bool normalizes_q = has_q && tensors[kQScale].has_value(), has_positions = tensors[kPositions].has_value();
    complete(&tensors);
    LaunchTensors t = launch_tensors(tensors);
    t.copy_inputs();
    const at::IntArrayRef sections(a.sections), strides = t.strides();
    NPU_ROPE_LAUNCH(aclnnNpuQkvNormRopeCache, t[kQ], t[kK], t.optional(kV), t[kQScale], t.optional(kKScale),
                    t.optional(kQBias), t.optional(kKBias), t.optional(kSquareSums), t[kPositions],
                    t.optional(kFreqFactors), t.optional(kCos), t.optional(kSin), t.optional(kSlots),
                    t.optional(kKQuantScale), t.optional(kKQuantOffset), t.optional(kVQuantScale),
                    t.optional(kVQuantOffset), t.optional(kKCache), t.optional(kVCache),
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), epsilon, scale_offset, ranks, normalizes_q,
                    has_positions, has_q, has_k, t[kQOut], t[kKOut], t[kVOut]);
}

constexpr bool forward = true;  // NPU_ROPE_ATTRIBUTES uses this name; the operator has no other direction

#define NPU_ROPE_QKV_PARAMETERS                                                                                    \
    int64_t n_dims, int64_t rope_mode, int64_t n_ctx_orig, double freq_base, double freq_scale, double ext_factor, \
        double attn_factor, double beta_fast, double beta_slow, at::OptionalIntArrayRef sections, int64_t n_offs,  \
        double epsilon, int64_t angle, double scale_offset, int64_t ranks
#define NPU_ROPE_QKV_ATTRIBUTES NPU_ROPE_ATTRIBUTES, epsilon, scale_offset, ranks
#define NPU_ROPE_QKV_NORM_AND_ANGLES                                                                      \
    const OptionalTensor &q_scale, const OptionalTensor &k_scale, const OptionalTensor &q_bias,           \
        const OptionalTensor &k_bias, const OptionalTensor &square_sums, const OptionalTensor &positions, \
        const OptionalTensor &freq_factors, const OptionalTensor &cos, const OptionalTensor &sin
#define NPU_ROPE_QKV_INPUTS                                                                                     \
    const at::Tensor &q, const at::Tensor &k, const OptionalTensor &v, NPU_ROPE_QKV_NORM_AND_ANGLES,            \
        const OptionalTensor &slots, const OptionalTensor &k_quant_scale, const OptionalTensor &k_quant_offset, \
        const OptionalTensor &v_quant_scale, const OptionalTensor &v_quant_offset
#define NPU_ROPE_QKV_CALL(q_out, k_out, v_out)                                                                      \
    QkvCall {                                                                                                       \
        q, k, v, q_scale, k_scale, q_bias, k_bias, square_sums, positions, freq_factors, cos, sin, slots,           \
            k_quant_scale, k_quant_offset, v_quant_scale, v_quant_offset, std::nullopt, std::nullopt, q_out, k_out, \
            v_out                                                                                                   \
    }

std::tuple<at::Tensor, at::Tensor> qkv_norm_rope_cache(const at::Tensor& q, const at::Tensor& k,
                                                       NPU_ROPE_QKV_NORM_AND_ANGLES, NPU_ROPE_QKV_PARAMETERS) {
    const OptionalTensor v, slots, k_quant_scale, k_quant_offset, v_quant_scale, v_quant_offset;
    at::Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
    launch(NPU_ROPE_QKV_CALL(q_out, k_out, std::nullopt), NPU_ROPE_QKV_ATTRIBUTES);
    return {q_out, k_out};
}

at::Tensor qkv_norm_rope_cache_set_rows(NPU_ROPE_QKV_INPUTS, const at::Tensor& k_cache, const OptionalTensor& v_cache,
                                        NPU_ROPE_QKV_PARAMETERS) {
    at::Tensor q_out = at::empty(q.sizes(), q.options());
    launch(NPU_ROPE_QKV_CALL(q_out, k_cache, v_cache), NPU_ROPE_QKV_ATTRIBUTES);
    return q_out;
}

void qkv_norm_rope_cache_out(NPU_ROPE_QKV_INPUTS, NPU_ROPE_QKV_PARAMETERS, const at::Tensor& q_out,
                             const at::Tensor& k_out, const OptionalTensor& v_out) {
    launch(NPU_ROPE_QKV_CALL(q_out, k_out, v_out), NPU_ROPE_QKV_ATTRIBUTES);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("qkv_norm_rope_cache", &qkv_norm_rope_cache);
    m.impl("qkv_norm_rope_cache_set_rows", &qkv_norm_rope_cache_set_rows);
    m.impl("qkv_norm_rope_cache_out", &qkv_norm_rope_cache_out);
}

}  // namespace npu_rope::qkv
