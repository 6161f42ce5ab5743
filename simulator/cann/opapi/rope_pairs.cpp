// Rotations of queries and keys: aclnnApplyRotaryPosEmb, aclnnApplyRotaryPosEmbV2, aclnnInterleaveRope and
// aclnnRopeWithSinCosCache. Arithmetic is in float32 and rounded once, except that ApplyRotaryPosEmb computes float16
// in float16 (hicann/ops-transformer posembedding/apply_rotary_pos_emb/op_kernel).
#include <cstring>

#include "cann/opapi/rotation.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

constexpr int64_t kUbBytes = 192 * 1024;  // of Ascend910B and Ascend910_93

void require_not_empty(FirstPhase* call, aclError status, const char* name, const Operand& operand) {
    call->require_inner(status, operand.count() > 0, name, "have elements", shape_text(operand.shape));
}

void require_shape_in_tiling(FirstPhase* call, const char* name, const Operand& operand,
                             const std::vector<int64_t>& shape) {
    call->require_inner(kAclnnTilingError, operand.shape == shape, name, "have the shape " + shape_text(shape),
                        shape_text(operand.shape));
}

// ---- ApplyRotaryPosEmb ----

constexpr int64_t kRotatedHeadSize = 128;
constexpr int64_t kBsnd = 1;

// The bytes of UB for one token: the formula of the documents. Only bfloat16 is converted to float32.
int64_t ub_bytes_of_token(int32_t dtype, int64_t heads) {
    const int64_t item = dtype_bytes(dtype), computed = dtype == kBfloat16 ? 4 : item;
    const int64_t row = kRotatedHeadSize;
    return heads * row * computed * 5 + row * item * 4 + (dtype == kBfloat16 ? row * 4 * 2 : 0);
}

void rotate_in_place(const Operand& x, const Operand& cos, const Operand& sin) {
    RotatedTerms terms = rotated(Pairing::kHalves, values_of<float>(x), table_rows(x.shape, cos.shape),
                                 values_of<float>(cos), values_of<float>(sin), x.shape.back());
    if (x.dtype == kFloat16) {
        round_to(kFloat16, &terms.straight);
        round_to(kFloat16, &terms.crossed);
    }
    set_values(x, terms.sum());
}

// hicann/ops-transformer posembedding/apply_rotary_pos_emb/docs/aclnnApplyRotaryPosEmb.md, aclnnApplyRotaryPosEmbV2.md
// and op_host/apply_rotary_pos_emb_tiling.cpp. The document of V2 lists more layouts and modes; the tiling accepts
// layout 1 only, and the kernel of these chips rotates halves in every mode. The documents do not list Ascend310P, for
// which op_host/apply_rotary_pos_emb_def.cpp has float16 and float32; the limit of UB stays that of the documents.
aclError prepare_apply(const char* name, aclTensor* query_tensor, aclTensor* key_tensor, const aclTensor* cos_tensor,
                       const aclTensor* sin_tensor, int64_t layout, const char* mode, uint64_t* bytes,
                       aclOpExecutor** executor) {
    constexpr size_t kRotatedRank = 4;
    constexpr TypesByChip kTypes = undocumented_on_310p(kHalfAndFloatTypes);
    FirstPhase call(name);
    const Operand query = call.in_place("query", query_tensor, kTypes);
    const Operand key = call.in_place("key", key_tensor, kTypes);
    const Operand cos = call.input("cos", cos_tensor, kTypes);
    const Operand sin = call.input("sin", sin_tensor, kTypes);
    call.require_dtype("key", key, query.dtype);
    call.require_dtype("cos", cos, query.dtype);
    call.require_dtype("sin", sin, query.dtype);
    const struct {
        const char* name;
        const Operand& operand;
    } all[] = {{"query", query}, {"key", key}, {"cos", cos}, {"sin", sin}};
    for (const auto& [argument, operand] : all)
        call.require_inner(kAclnnTilingError, operand.shape.size() == kRotatedRank, argument, "have 4 dimensions",
                           std::to_string(operand.shape.size()));
    call.require_inner(kAclnnTilingError, layout == kBsnd, "layout", "be 1 (BSND)", std::to_string(layout));
    call.require(mode && std::strcmp(mode, "half") == 0, "rotary_mode", "be half", mode ? mode : "NULL");
    for (const auto& [argument, operand] : {std::pair{"query", &query}, std::pair{"key", &key}})
        require_not_empty(&call, kAclnnTilingError, argument, *operand);
    if (call.is_valid()) {
        const std::vector<int64_t>& shape = query.shape;
        call.require_inner(kAclnnTilingError, shape[3] == kRotatedHeadSize, "the last dimension of query", "be 128",
                           std::to_string(shape[3]));
        require_shape_in_tiling(&call, "key", key, {shape[0], shape[1], key.shape[2], shape[3]});
        require_shape_in_tiling(&call, "cos", cos, {shape[0], shape[1], 1, shape[3]});
        require_shape_in_tiling(&call, "sin", sin, cos.shape);
    }
    if (call.is_valid()) {
        const int64_t heads = query.shape[2] + key.shape[2], needed = ub_bytes_of_token(query.dtype, heads);
        call.require_inner(kAclnnTilingError, needed <= kUbBytes, "the heads of query and key",
                           "fit in 196608 bytes of UB", std::to_string(needed) + " bytes");
    }
    auto body = [query, key, cos, sin] {
        rotate_in_place(query, cos, sin);
        rotate_in_place(key, cos, sin);
    };
    return call.finish(body, bytes, executor);
}

// ---- InterleaveRope ----

// hicann/ops-transformer posembedding/interleave_rope/README.md and op_host/interleave_rope_tiling.cpp. In the result,
// a row has its even elements first, then its odd ones.
aclError prepare_interleave(const aclTensor* x_tensor, const aclTensor* cos_tensor, const aclTensor* sin_tensor,
                            const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    constexpr RankRange kFour{4, 4};
    constexpr int64_t kHeadSize = 64, kTilingWorkspaceBytes = 32;
    constexpr TypesByChip kTypes = only_910b(type_set({kFloat16, kBfloat16}));
    FirstPhase call("aclnnInterleaveRope");
    call.refuse_310p();
    const Operand x = call.input("x", x_tensor, kTypes, kAnyRank);
    const Operand cos = call.input("cos", cos_tensor, kTypes, kAnyRank);
    const Operand sin = call.input("sin", sin_tensor, kTypes, kAnyRank);
    const Operand out = call.output("out", out_tensor, kTypes, kAnyRank);
    const struct {
        const char* name;
        const Operand& operand;
    } all[] = {{"x", x}, {"cos", cos}, {"sin", sin}, {"out", out}};
    for (const auto& [name, operand] : all) {
        call.require_dtype(name, operand, x.dtype);
        call.require_contiguous(name, operand);
        call.require_inner(kAclnnTilingError, operand.shape.size() == kFour.most, name, "have 4 dimensions",
                           std::to_string(operand.shape.size()));
        require_not_empty(&call, kAclnnTilingError, name, operand);
    }
    if (call.is_valid()) {
        const std::vector<int64_t>& shape = x.shape;
        call.require_inner(kAclnnTilingError, shape[3] == kHeadSize, "the last dimension of x", "be 64",
                           std::to_string(shape[3]));
        const std::vector<int64_t> table{shape[0], 1, cos.shape[2] == 1 ? 1 : shape[2], shape[3]};
        call.require_inner(kAclnnTilingError, cos.shape == table, "cos", "have the shape " + shape_text(table),
                           shape_text(cos.shape));
        call.require_inner(kAclnnTilingError, sin.shape == cos.shape, "sin", "have the shape " + shape_text(cos.shape),
                           shape_text(sin.shape));
        call.require_inner(kAclnnTilingError, out.shape == shape, "out", "have the shape " + shape_text(shape),
                           shape_text(out.shape));
    }
    if (call.is_valid()) call.ask_workspace(kTilingWorkspaceBytes);
    auto body = [x, cos, sin, out] {
        const std::vector<float> values = values_of<float>(x);
        std::vector<float> split(values.size());
        for (size_t row = 0; row < values.size(); row += kHeadSize)
            for (size_t i = 0; i < kHeadSize; ++i) split[row + i / 2 + (i % 2) * kHeadSize / 2] = values[row + i];
        set_values(out, rotated(Pairing::kHalves, split, table_rows(x.shape, cos.shape), values_of<float>(cos),
                                values_of<float>(sin), kHeadSize)
                            .sum());
    };
    return call.finish(body, bytes, executor);
}

// ---- RopeWithSinCosCache ----

struct CachedRope {
    Operand positions, cache, inputs[2], outputs[2];
    std::vector<int64_t> sections;  // empty without mrope
    int64_t head_size = 0;
    Pairing pairing = Pairing::kHalves;
};

// One row of cosines and one of sines for each token, with one value for each rotated element. Section k of the pairs
// uses the positions of row k.
struct TokenTables {
    std::vector<float> cos, sin;
};

TokenTables token_tables(const CachedRope& cached, int64_t tokens) {
    const std::vector<int64_t> rows = indices_of(cached.positions, "positions", cached.cache.shape[0]);
    const std::vector<float> cache = values_of<float>(cached.cache);
    const int64_t width = cached.cache.shape[1], pairs = width / 2;
    std::vector<int64_t> position_row(static_cast<size_t>(pairs));
    int64_t first = 0;
    for (size_t k = 0; k < cached.sections.size(); first += cached.sections[k++])
        for (int64_t i = 0; i < cached.sections[k]; ++i)
            position_row[static_cast<size_t>(first + i)] = static_cast<int64_t>(k);
    TokenTables tables{std::vector<float>(static_cast<size_t>(tokens * width)),
                       std::vector<float>(static_cast<size_t>(tokens * width))};
    for (int64_t token = 0; token < tokens; ++token)
        for (int64_t i = 0; i < pairs; ++i) {
            const int64_t row = rows[static_cast<size_t>(position_row[static_cast<size_t>(i)] * tokens + token)];
            const float *cos = &cache[static_cast<size_t>(row * width + i)], *sin = cos + pairs;
            const RotatedPair pair = rotated_pair(cached.pairing, i, width);
            for (int64_t element : {pair.first, pair.second}) {
                tables.cos[static_cast<size_t>(token * width + element)] = *cos;
                tables.sin[static_cast<size_t>(token * width + element)] = *sin;
            }
        }
    return tables;
}

void rotate_tokens(const CachedRope& cached) {
    const int64_t tokens = cached.inputs[0].shape[0], width = cached.cache.shape[1];
    const TokenTables tables = token_tables(cached, tokens);
    for (int which = 0; which < 2; ++which) {
        std::vector<float> x = values_of<float>(cached.inputs[which]);
        const int64_t row_size = cached.inputs[which].shape[1];
        RotatedTerms terms(static_cast<size_t>(width));
        for (int64_t head = 0; head < static_cast<int64_t>(x.size()); head += cached.head_size) {
            const auto table = static_cast<size_t>(head / row_size * width);
            float* values = &x[static_cast<size_t>(head)];
            rotate_row(cached.pairing, values, &tables.cos[table], &tables.sin[table], width, 0, &terms);
            for (int64_t i = 0; i < width; ++i)
                values[i] = terms.straight[static_cast<size_t>(i)] + terms.crossed[static_cast<size_t>(i)];
        }
        set_values(cached.outputs[which], x);
    }
}

// Checks the sizes. The source checks head_size 0 and the tokens of key_in; the other rules are those of the tiling,
// whose status the source ignores (op_host/op_api/rope_with_sin_cos_cache.cpp). The document gives 561002 for them.
// op_host/rope_with_sin_cos_cache_tiling.cpp divides by the number of tokens that fit in UB. If no
// token fits, this division by 0 ends the process.
void require_sizes(FirstPhase* call, const CachedRope& cached) {
    const Operand &query = cached.inputs[0], &key = cached.inputs[1];
    const int64_t tokens = query.shape[0], width = cached.cache.shape[1], size = cached.head_size;
    const int64_t multiple = query.dtype == kFloat ? 16 : 32;
    const auto is_size = [multiple](int64_t value) { return value >= 16 && value <= 128 && value % multiple == 0; };
    const std::string sizes = "be a multiple of " + std::to_string(multiple) + " from 16 to 128";
    call->require(size != 0, "head_size", "not be 0", size);
    const std::string rows = "have the shape [" + std::to_string(tokens) + ",N*" + std::to_string(size) + "]";
    call->require(key.shape[0] == tokens, "key_in", rows, shape_text(key.shape));
    call->require_inner(kAclnnTilingError, is_size(size), "head_size", sizes, std::to_string(size));
    call->require_inner(kAclnnTilingError, is_size(width) && width <= size, "the last dimension of cos_sin_cache",
                        sizes + " and at most head_size", std::to_string(width));
    if (!call->is_valid()) return;
    for (const auto& [name, operand] : {std::pair{"query_in", &query}, std::pair{"key_in", &key}})
        call->require_inner(kAclnnTilingError, operand->shape[1] % size == 0, name, rows, shape_text(operand->shape));
    const bool has_sections = !cached.sections.empty();
    const std::vector<int64_t> positions =
        has_sections ? std::vector<int64_t>{3, tokens} : std::vector<int64_t>{tokens};
    call->require_inner(kAclnnTilingError, cached.positions.shape == positions, "positions",
                        "have the shape " + shape_text(positions), shape_text(cached.positions.shape));
    call->require_inner(kAclnnTilingError, !has_sections || width == 128, "the last dimension of cos_sin_cache",
                        "be 128 with mrope_section", std::to_string(width));
    const int64_t heads = std::max(query.shape[1], key.shape[1]) / size;
    const int64_t ub_bytes = heads * (width * (cached.pairing == Pairing::kHalves ? 8 : 10) + size) * 4;
    call->require_inner(kAclnnTilingError, ub_bytes <= kUbBytes, "the heads of a token", "fit in 196608 bytes of UB",
                        std::to_string(ub_bytes) + " bytes");
}

// hicann/ops-transformer posembedding/rope_with_sin_cos_cache/docs/aclnnRopeWithSinCosCache.md, README.md and
// op_host/op_api/aclnn_rope_with_sin_cos_cache.cpp. The source accepts a pitch between the rows of query and key, and
// packs neither these tensors nor the positions. torch_npu passes three zeros if there are no sections.
aclError prepare_cached_rope(const aclTensor* positions, const aclTensor* query, const aclTensor* key,
                             const aclTensor* cache, const aclIntArray* sections, int64_t head_size, bool is_neox,
                             const aclTensor* query_out, const aclTensor* key_out, uint64_t* bytes,
                             aclOpExecutor** executor) {
    constexpr RankRange kMatrix{2, 2};
    FirstPhase call("aclnnRopeWithSinCosCache");
    call.refuse_310p(kAclnnInvalidParam);
    CachedRope cached;
    cached.positions = call.input("positions", positions, on_all(type_set({kInt64})), {1, 2});
    cached.inputs[0] = call.input("query_in", query, kRopeTypes, kMatrix);
    cached.inputs[1] = call.input("key_in", key, kRopeTypes, kMatrix);
    cached.cache = call.input("cos_sin_cache", cache, kRopeTypes, kMatrix);
    cached.outputs[0] = call.output("query_out", query_out, kRopeTypes, kMatrix);
    cached.outputs[1] = call.output("key_out", key_out, kRopeTypes, kMatrix);
    if (sections) cached.sections = sections->values;
    const bool has_zeros = cached.sections == std::vector<int64_t>{0, 0, 0};
    call.require(cached.sections.empty() || has_zeros || cached.sections == std::vector<int64_t>{16, 24, 24},
                 "mrope_section", "be [16,24,24] or NULL", shape_text(cached.sections));
    if (has_zeros) cached.sections.clear();
    const int32_t dtype = cached.inputs[0].dtype;
    call.require_dtype("key_in", cached.inputs[1], dtype);
    call.require_dtype("cos_sin_cache", cached.cache, dtype);
    call.require_contiguous("positions", cached.positions);
    const char* names[2][2] = {{"query_in", "query_out"}, {"key_in", "key_out"}};
    for (int which = 0; which < 2; ++which) {
        const Operand &in = cached.inputs[which], &out = cached.outputs[which];
        call.require_dtype(names[which][1], out, dtype);
        call.require_shape(names[which][1], out, in.shape);
        call.require_contiguous(names[which][1], out);
        if (!call.is_valid()) continue;
        require_not_empty(&call, kAclnnTilingError, names[which][0], in);
        const int64_t stride = (which == 0 ? query : key)->strides[1];  // compared even in a dimension of size 1
        call.require(stride == 1, std::string("the last stride of ") + names[which][0], "be 1", stride);
    }
    require_not_empty(&call, kAclnnTilingError, "cos_sin_cache", cached.cache);
    cached.head_size = head_size;
    cached.pairing = is_neox ? Pairing::kHalves : Pairing::kNeighbours;
    if (call.is_valid()) require_sizes(&call, cached);
    return call.finish([cached] { rotate_tokens(cached); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclnnApplyRotaryPosEmbGetWorkspaceSize(aclTensor* query, aclTensor* key, const aclTensor* cos,
                                                             const aclTensor* sin, int64_t layout, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    return prepare_apply("aclnnApplyRotaryPosEmb", query, key, cos, sin, layout, "half", bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnApplyRotaryPosEmb)

NPU_CANN_API aclError aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor* query, aclTensor* key, const aclTensor* cos,
                                                               const aclTensor* sin, int64_t layout, char* mode,
                                                               uint64_t* bytes, aclOpExecutor** executor) {
    return prepare_apply("aclnnApplyRotaryPosEmbV2", query, key, cos, sin, layout, mode, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnApplyRotaryPosEmbV2)

NPU_CANN_API aclError aclnnInterleaveRopeGetWorkspaceSize(const aclTensor* x, const aclTensor* cos,
                                                          const aclTensor* sin, aclTensor* out, uint64_t* bytes,
                                                          aclOpExecutor** executor) {
    return prepare_interleave(x, cos, sin, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInterleaveRope)

NPU_CANN_API aclError aclnnRopeWithSinCosCacheGetWorkspaceSize(const aclTensor* positions, const aclTensor* query,
                                                               const aclTensor* key, const aclTensor* cache,
                                                               const aclIntArray* sections, int64_t head_size,
                                                               bool is_neox, aclTensor* query_out, aclTensor* key_out,
                                                               uint64_t* bytes, aclOpExecutor** executor) {
    return prepare_cached_rope(positions, query, key, cache, sections, head_size, is_neox, query_out, key_out, bytes,
                               executor);
}
NPU_CANN_SECOND_PHASE(aclnnRopeWithSinCosCache)
