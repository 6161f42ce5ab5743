// qkv_norm_rope_cache in CANN: queries, keys and values from the projection to the cache in one launch. With slots,
// keys and values are stored into rows of k_cache and v_cache, and k_out and v_out are the caches.
//
// CANN chooses a column by the types of the required tensors only. Therefore:
// - q, k, q_scale and positions are required. The attributes has_q, has_k, normalizes_q and has_positions say whether
//   the call has them. If not, the kernel does not read them, and q or k is [1,1,D].
// - k_out and v_out are optional, so that each may have its own type without more columns. A call passes both. An
//   output that the call does not have has the size of its input, without v one element; the kernel does not write it.
#include <utility>

#include "csrc/core/dtype.h"
#include "op_host/qkv_norm_rope_cache_tiling.h"
#include "op_host/rope_cann.h"

namespace optiling {

using namespace npu_rope;

// The types of a column. parameter: of scales, biases, cosines and sines. The tiling checks the types of optional
// tensors; the kernel converts to those of caches.
struct QkvColumn {
    ge::DataType x, parameter, positions;
};

static const std::vector<QkvColumn>& qkv_columns() {
    static const std::vector<QkvColumn> columns = [] {
        std::vector<QkvColumn> list;
        for (const ge::DataType positions : {ge::DT_INT32, ge::DT_INT64})
            for (const ge::DataType x : {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
                for (const bool widens : {false, true})
                    if (!widens || x != ge::DT_FLOAT) list.push_back({x, widens ? ge::DT_FLOAT : x, positions});
        return list;
    }();
    return columns;
}

static Types types_of(ge::DataType QkvColumn::* type) {
    Types types;
    for (const QkvColumn& column : qkv_columns()) types.push_back(column.*type);
    return types;
}

static Types fixed_type(ge::DataType type) { return Types(qkv_columns().size(), type); }

static const Types kX = types_of(&QkvColumn::x), kParameter = types_of(&QkvColumn::parameter),
                   kFloat = fixed_type(ge::DT_FLOAT);

static const Parameters kQkvNormRopeCacheParameters = {
    {"q", kInput, kX},
    {"k", kInput, kX},
    {"v", kOptionalInput, kX},
    {"q_scale", kContiguousInput, kParameter},
    {"k_scale", kOptionalContiguousInput, kParameter},
    {"q_bias", kOptionalContiguousInput, kParameter},
    {"k_bias", kOptionalContiguousInput, kParameter},
    {"square_sums", kOptionalContiguousInput, kFloat},
    {"positions", kInput, types_of(&QkvColumn::positions)},
    {"freq_factors", kOptionalContiguousInput, kFloat},
    {"cos", kOptionalInput, kParameter},
    {"sin", kOptionalInput, kParameter},
    {"slots", kOptionalInput, fixed_type(ge::DT_INT32)},
    {"k_quant_scale", kOptionalContiguousInput, kFloat},
    {"k_quant_offset", kOptionalContiguousInput, kFloat},
    {"v_quant_scale", kOptionalContiguousInput, kFloat},
    {"v_quant_offset", kOptionalContiguousInput, kFloat},
    {"k_cache", kOptionalInput, kX},
    {"v_cache", kOptionalInput, kX},
    {"q_out", kOutput, kX},
    {"k_out", kOptionalOutput, kX},
    {"v_out", kOptionalOutput, kX},
};

// Whether the call has the required tensors.
struct QkvGiven {
    bool q_scale = true, positions = true, q = true, k = true;
};

// Lists rope's attributes, then those of the norm. A: AttributeAdder or CannCall.
template <typename A>
static void qkv_attributes(A* a, npu_rope_params* params, bool* forward, QkvAttributes* qkv, QkvGiven* given) {
    visit_rope_attributes(a, params, forward);
    *qkv = {1e-5, 0, 1, NPU_ROPE_ANGLE_EXACT};
    a->optional("epsilon", &qkv->epsilon);
    a->optional("scale_offset", &qkv->scale_offset);
    a->optional("ranks", &qkv->ranks);
    a->optional("normalizes_q", &given->q_scale);
    a->optional("has_positions", &given->positions);
    a->optional("has_q", &given->q);
    a->optional("has_k", &given->k);
}

static void declare_qkv_attributes(AttributeAdder* adder) {
    npu_rope_params params;
    bool forward = true;
    QkvAttributes qkv;
    QkvGiven given;
    qkv_attributes(adder, &params, &forward, &qkv, &given);
}

// q or k without heads, for a call with these tokens. It is also its own output or cache. one: a tensor of its type and
// head size.
static npu_rope_tensor without_heads(const npu_rope_tensor* one, const npu_rope_tensor* tokens) {
    npu_rope_tensor t = *one;
    if (tokens) t.shape[0] = tokens->shape[0];
    t.shape[1] = 0;
    return t;
}

// Numbers of tensors of the definition.
constexpr size_t kV = 2, kQScale = 3, kKScale = 4, kQBias = 5, kKBias = 6, kCos = 10, kSin = 11, kSlots = 12;
constexpr size_t kInputs = 17, kCaches = 17, kOuts = 19;

// The kernel reads all parameters in the type of q_scale, and writes rows of caches through k_out and v_out. CANN does
// not check these optional tensors.
static Check check_optional_tensors(const char* op, const Tensors& v, const QkvGiven& given) {
    for (const auto& [index, name] : {std::pair{kKScale, "k_scale"}, std::pair{kQBias, "q_bias"},
                                      std::pair{kKBias, "k_bias"}, std::pair{kCos, "cos"}, std::pair{kSin, "sin"}})
        if (v[index] && v[kQScale] && v[index]->dtype != v[kQScale]->dtype)
            return bad_type(op, name, formatted("have q_scale's dtype %s on an NPU", dtype_name(v[kQScale]->dtype)),
                            dtype_name(v[index]->dtype));
    if (!v[kSlots]) return {};
    const bool has_side[] = {given.k, v[kV] != nullptr};
    for (const auto& [side, name] : {std::pair{size_t{0}, "k_out"}, std::pair{size_t{1}, "v_out"}}) {
        const npu_rope_tensor *cache = v[kCaches + side], *out = v[kOuts + 1 + side];
        if (!has_side[side] || !cache) continue;
        if (!out) return bad_value(op, name, "be the cache's memory", "NULL");
        if (out->dtype != cache->dtype)
            return bad_type(op, name, formatted("have the cache's dtype %s", dtype_name(cache->dtype)),
                            dtype_name(out->dtype));
    }
    return {};
}

// The tensors of a call, from those of the definition. empty: memory for q and k without heads.
static QkvTensors tensors_of_call(const Tensors& v, const QkvGiven& given, npu_rope_tensor (&empty)[2]) {
    QkvTensors t = {};
    static_assert(sizeof t.in == kInputs * sizeof(npu_rope_tensor*), "the definition has the order of the C interface");
    std::copy(v.begin(), v.begin() + kInputs, reinterpret_cast<const npu_rope_tensor**>(&t.in));
    if (!given.q_scale) t.in.q_scale = nullptr;
    if (!given.positions) t.in.positions = nullptr;
    t.out = {v[kOuts], v[kOuts + 1], t.in.v ? v[kOuts + 2] : nullptr};
    if (t.in.slots) t.out = {v[kOuts], v[kCaches], v[kCaches + 1]};
    const npu_rope_tensor* tokens = given.q ? t.in.q : given.k ? t.in.k : t.in.v;
    if (!given.q && t.in.q) t.in.q = t.out.q_out = &(empty[0] = without_heads(t.in.q, tokens));
    if (!given.k && t.in.k) t.in.k = t.out.k_out = &(empty[1] = without_heads(t.in.k, tokens));
    t.known = Known::kLayout;
    return t;
}

static Check tile_qkv(gert::TilingContext* context) {
    constexpr const char* op = "qkv_norm_rope_cache";
    CannCall call(op, context);
    npu_rope_params params;
    bool forward = true;
    QkvAttributes qkv;
    QkvGiven given;
    qkv_attributes(&call, &params, &forward, &qkv, &given);
    Tensors v;
    if (Check c = call.tensors(kQkvNormRopeCacheParameters, &v); !c.ok()) return c;
    if (!forward) return bad_value(op, "forward", "be true", "false");
    if (Check c = check_optional_tensors(op, v, given); !c.ok()) return c;
    npu_rope_tensor empty[2];
    const QkvTensors t = tensors_of_call(v, given, empty);
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    TilingResult<QkvNormRopeCacheTilingData> tiled;
    if (Check c = check_and_tile_qkv_norm_rope_cache(t, params, qkv, platform, &tiled); !c.ok()) return c;
    if (!tiled.has_elements()) return empty_tensor_error(op, "q", *t.in.q);
    return pass_to_cann(op, context, tiled);
}

static ge::graphStatus NpuQkvNormRopeCacheTiling(gert::TilingContext* context) {
    return report_to_cann(tile_qkv(context));
}

}  // namespace optiling

namespace ge {

// A cache's output has its shape, another one that of its own input.
static ge::graphStatus NpuQkvNormRopeCacheInferShape(gert::InferShapeContext* context) {
    constexpr size_t kQ = 0, kK = 1, kV = 2, kKCache = 17, kVCache = 18;
    const gert::Shape *q = context->GetRequiredInputShape(kQ), *k = context->GetRequiredInputShape(kK);
    const gert::Shape *v = context->GetOptionalInputShape(kV), *k_cache = context->GetOptionalInputShape(kKCache),
                      *v_cache = context->GetOptionalInputShape(kVCache);
    gert::Shape* outs[] = {context->GetOutputShape(0), context->GetOutputShape(1), context->GetOutputShape(2)};
    if (k_cache != nullptr) k = k_cache;
    if (v_cache != nullptr) v = v_cache;
    const gert::Shape one({1});
    const gert::Shape* shapes[] = {q, k, v != nullptr ? v : &one};
    for (int side = 0; side < 3; ++side) {
        if (outs[side] == nullptr || shapes[side] == nullptr) return ge::GRAPH_FAILED;
        *outs[side] = *shapes[side];
    }
    return ge::GRAPH_SUCCESS;
}

static ge::graphStatus NpuQkvNormRopeCacheInferDataType(gert::InferDataTypeContext* context) {
    constexpr size_t kQ = 0, kKCache = 17, kVCache = 18;
    const ge::DataType x = context->GetRequiredInputDataType(kQ);
    if (x == ge::DT_UNDEFINED) return ge::GRAPH_FAILED;
    const ge::DataType caches[] = {ge::DT_UNDEFINED, context->GetOptionalInputDataType(kKCache),
                                   context->GetOptionalInputDataType(kVCache)};
    for (size_t out = 0; out < std::size(caches); ++out)
        if (context->SetOutputDataType(out, caches[out] == ge::DT_UNDEFINED ? x : caches[out]) != ge::GRAPH_SUCCESS)
            return ge::GRAPH_FAILED;
    return ge::GRAPH_SUCCESS;
}

}  // namespace ge

namespace ops {

class NpuQkvNormRopeCache : public OpDef {
public:
    explicit NpuQkvNormRopeCache(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kQkvNormRopeCacheParameters, optiling::declare_qkv_attributes,
                         optiling::NpuQkvNormRopeCacheTiling);
        this->SetInferShape(ge::NpuQkvNormRopeCacheInferShape).SetInferDataType(ge::NpuQkvNormRopeCacheInferDataType);
    }
};

OP_ADD(NpuQkvNormRopeCache);

}  // namespace ops
