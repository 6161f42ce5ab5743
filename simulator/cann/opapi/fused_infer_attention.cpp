// Checks of the functions FusedInferAttentionScore. attention.h describes the arithmetic.
//
// Sources: hicann/ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV2.md and
// op_host/fused_infer_attention_score_tiling.cpp; attention/prompt_flash_attention/op_host/
// prompt_flash_attention_tiling.cpp for several queries in a head (CheckAttenMaskShape, CheckPseShiftTypeAndShape). The
// document requires contiguous tensors. CANN packs other tensors (fused_infer_attention_score_def.cpp, AutoContiguous),
// so they are accepted here.
#include "cann/opapi/fused_infer_attention.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cann/opapi/attention.h"

namespace simulated_cann {
namespace {

constexpr int64_t kMostBatches = 65536, kMostHeads = 256, kLargestHead = 512, kMostTokens = 20971520;
constexpr int64_t kMostQueryHeadsPerKeyHead = 64, kHeadUnit = 16, kSparseMaskSize = 2048;
enum SparseMode : int64_t { kDefaultMask, kAllMask, kLeftUpCausal, kRightDownCausal, kBand };

// Checks of the tiling, whose errors have the status 561002.
class AttentionCheck {
public:
    AttentionCheck(FirstPhase* call, const AttentionArguments& given) : call_(call), given_(given) {}

    Attention run() {
        read_tensors();
        if (call_->is_valid()) check_heads();
        if (call_->is_valid()) check_shapes();
        if (call_->is_valid()) read_lengths();
        if (call_->is_valid()) check_antiquant_mode();
        if (call_->is_valid()) check_pse();
        if (call_->is_valid()) check_mask();
        if (call_->is_valid()) set_precision();
        return attention_;
    }
    // The mask of sparseMode 2, 3 or 4, which must hide exactly the keys above the diagonal.
    std::optional<Operand> causal_mask() const { return causal_mask_; }

private:
    void require(bool holds, const std::string& argument, const std::string& rule, const std::string& value) {
        call_->require_inner(kAclnnTilingError, holds, argument, rule, value);
    }
    void require(bool holds, const std::string& argument, const std::string& rule, int64_t value) {
        require(holds, argument, rule, std::to_string(value));
    }

    bool is_one_query() const { return attention_.query.shape[2] == 1; }

    void require_rank(const char* name, const Operand& operand, size_t rank) {
        require(operand.shape.size() == rank, name, "have " + std::to_string(rank) + " dimensions",
                static_cast<int64_t>(operand.shape.size()));
    }

    void read_tensors() {
        const std::string layout = given_.layout ? given_.layout : "";
        const TypesByChip types = only_910b(type_set({kFloat16, kBfloat16}));
        const bool is_flat = layout == "BSH";
        require(is_flat || layout == "BSND" || layout == "BNSD" || layout == "BNSD_BSND", "inputLayout",
                "be BSH, BSND, BNSD or BNSD_BSND", layout);
        attention_.query = call_->input("query", given_.query, types);
        const std::vector<Operand> keys = call_->inputs("key", given_.key, types);
        const std::vector<Operand> values = call_->inputs("value", given_.value, types);
        attention_.out = call_->output("attentionOut", given_.out, types);
        if (given_.has_lse) attention_.lse = call_->output("softmaxLse", given_.lse, only_910b(type_set({kFloat})));
        const size_t rank = is_flat ? 3 : 4;
        require_rank("query", attention_.query, rank);
        for (const Operand& key : keys) require_rank("key", key, rank);
        for (const Operand& value : values) require_rank("value", value, rank);
        require_rank("attentionOut", attention_.out, rank);
        if (!call_->is_valid()) return;
        call_->require(keys.size() == values.size() && !keys.empty(), "key and value",
                       "have the same number of tensors, at least one",
                       std::to_string(keys.size()) + " and " + std::to_string(values.size()));
        call_->refuse_unsimulated(keys.size() > 1, "a list of several tensors as key");
        if (!call_->is_valid()) return;
        attention_.key = keys[0];
        attention_.value = values[0];
        call_->report_beyond_document_unless_contiguous("query", attention_.query);
        call_->report_beyond_document_unless_contiguous("key", attention_.key);
        call_->report_beyond_document_unless_contiguous("value", attention_.value);
        call_->require_dtype("key", attention_.key, attention_.query.dtype);
        call_->require_dtype("value", attention_.value, attention_.query.dtype);
        call_->require_dtype("attentionOut", attention_.out, attention_.query.dtype);
    }

    void check_heads() {
        const int64_t heads = given_.heads, key_heads = given_.key_heads ? given_.key_heads : heads;
        require(heads >= 1 && heads <= kMostHeads, "numHeads", "be in [1, 256]", heads);
        require(key_heads >= 1 && heads % std::max<int64_t>(key_heads, 1) == 0, "numKeyValueHeads",
                "divide numHeads " + std::to_string(heads), key_heads);
        require(heads <= std::clamp<int64_t>(key_heads, 0, kMostHeads) * kMostQueryHeadsPerKeyHead, "numHeads",
                "be at most 64 times numKeyValueHeads", heads);
        if (!call_->is_valid()) return;
        const std::string layout = given_.layout, out_layout = layout == "BNSD_BSND" ? "BSND" : layout;
        by_heads("query", &attention_.query, layout, heads);
        by_heads("key", &attention_.key, layout, key_heads);
        by_heads("value", &attention_.value, layout, key_heads);
        by_heads("attentionOut", &attention_.out, out_layout, heads);
    }

    // Changes the view of a tensor to [batch, heads, tokens, head size].
    void by_heads(const char* name, Operand* operand, const std::string& layout, int64_t heads) {
        std::vector<int64_t>&shape = operand->shape, &strides = operand->strides;
        if (layout == "BSH") {
            require(shape[2] % heads == 0, name,
                    "have a last dimension that is a multiple of the number of heads, " + std::to_string(heads),
                    shape[2]);
            const int64_t size = shape[2] / heads, step = strides[2];
            shape = {shape[0], heads, shape[1], size};
            strides = {strides[0], size * step, strides[1], step};
            return;
        }
        if (layout == "BSND") {
            std::swap(shape[1], shape[2]);
            std::swap(strides[1], strides[2]);
        }
        require(shape[1] == heads, name, "have " + std::to_string(heads) + " heads", shape[1]);
    }

    void check_shapes() {
        const std::vector<int64_t>&query = attention_.query.shape, &key = attention_.key.shape;
        require(attention_.value.shape == key, "value", "have the shape of key", shape_text(attention_.value.shape));
        require(key[0] == query[0], "key", "have " + std::to_string(query[0]) + " batches", key[0]);
        require(key[3] == query[3], "key", "have heads of " + std::to_string(query[3]) + " elements", key[3]);
        require(attention_.out.shape == query, "attentionOut", "have the shape of query",
                shape_text(attention_.out.shape));
        require(query[0] >= 1 && query[0] <= kMostBatches, "the batch", "be in [1, 65536]", query[0]);
        require(query[3] >= 1 && query[3] <= kLargestHead, "the size of a head", "be in [1, 512]", query[3]);
        require(std::max(query[2], key[2]) <= kMostTokens, "the number of tokens", "be at most 20971520",
                std::max(query[2], key[2]));
        if (!is_one_query()) require(query[3] % kHeadUnit == 0, "the size of a head", "be a multiple of 16", query[3]);
        require(!is_one_query() || std::strcmp(given_.layout, "BNSD_BSND") != 0, "inputLayout",
                "not be BNSD_BSND for one query", given_.layout);
        if (!attention_.lse) return;
        const std::vector<int64_t> lse{query[0], query[1], query[2], 1};
        require(attention_.lse->shape == lse, "softmaxLse", "have the shape " + shape_text(lse),
                shape_text(attention_.lse->shape));
    }

    // Returns the length of each batch. `given` has one length for all batches, or at least one for each; further ones
    // are ignored.
    std::vector<int64_t> lengths(const char* name, const aclIntArray* given, int64_t most) {
        const auto batches = static_cast<size_t>(attention_.query.shape[0]);
        if (!given || given->values.empty()) return std::vector<int64_t>(batches, most);
        const size_t count = given->values.size();
        require(count == 1 || count >= batches, name, "have 1 or at least " + std::to_string(batches) + " elements",
                static_cast<int64_t>(count));
        std::vector<int64_t> result = given->values;
        result.resize(batches, result[0]);
        for (int64_t length : result)
            require(length >= 0 && length <= most, name, "be in [0, " + std::to_string(most) + "]", length);
        return result;
    }

    void read_lengths() {
        const int64_t tokens = attention_.query.shape[2];
        // The document says that actualSeqLengths is ignored for one query.
        attention_.query_lengths = lengths("actualSeqLengths", is_one_query() ? nullptr : given_.query_lengths, tokens);
        attention_.key_lengths = lengths("actualSeqLengthsKv", given_.key_lengths, attention_.key.shape[2]);
    }

    // fused_infer_attention_score_tiling.cpp, CheckDequantParams, which runs only for several queries.
    void check_antiquant_mode() {
        require(is_one_query() || given_.antiquant.both == 0, "antiquantMode", "be 0 for several queries",
                given_.antiquant.both);
        // The tiling ignores the modes of arguments that are not there; the document limits them.
        const int64_t key = given_.antiquant.key, value = given_.antiquant.value;
        const int64_t last = is_one_query() ? 5 : 1;
        call_->report_beyond_document(given_.antiquant.both != 0 && given_.antiquant.both != 1,
                                      "its document limits antiquantMode to 0 and 1");
        call_->report_beyond_document(
            key < 0 || key > last || value < 0 || value > last,
            "its document limits keyAntiquantMode and valueAntiquantMode to 0 to " + std::to_string(last));
        call_->report_beyond_document(key != value && (key != 0 || value != 1),
                                      "its document requires one mode for keyAntiquantMode and valueAntiquantMode");
    }

    void check_pse() {
        if (!given_.pse) return;
        attention_.pse = call_->input("pseShift", given_.pse, only_910b(type_set({kFloat16, kBfloat16})), {4, 4});
        if (!call_->is_valid()) return;
        const std::vector<int64_t>&shape = attention_.pse->shape, &query = attention_.query.shape;
        call_->require_dtype("pseShift", *attention_.pse, attention_.query.dtype);
        call_->report_beyond_document_unless_contiguous("pseShift", *attention_.pse);
        const int64_t keys = attention_.key.shape[2];
        require((shape[0] == 1 || shape[0] == query[0]) && shape[1] == query[1] && shape[2] >= query[2] &&
                    shape[3] >= keys && (!is_one_query() || shape[2] == 1),
                "pseShift",
                "have the shape [1 or " + std::to_string(query[0]) + "," + std::to_string(query[1]) +
                    (is_one_query() ? ",1" : ",>=" + std::to_string(query[2])) + ",>=" + std::to_string(keys) + "]",
                shape_text(shape));
    }

    // For one query, the tiling considers sparseMode only if there is a mask: incre_flash_attention_tiling_check.cpp,
    // ProcessAttenMask.
    int64_t sparse_mode() const {
        const int64_t mode = given_.sparse_mode;
        return is_one_query() && !(given_.mask && (mode == kRightDownCausal || mode == kBand)) ? kDefaultMask : mode;
    }

    void check_mask() {
        const auto batches = static_cast<size_t>(attention_.query.shape[0]);
        attention_.bands.resize(batches);
        const int64_t mode = sparse_mode();
        require(mode >= kDefaultMask && mode <= kBand, "sparseMode", "be in [0, 4]", mode);
        require(given_.mask || mode == kDefaultMask, "attenMask", "not be null for sparseMode " + std::to_string(mode),
                "null");
        if (!given_.mask || !call_->is_valid()) return;
        // The operator's definition lists float16, which the tiling refuses.
        require(given_.mask->dtype != kFloat16, "attenMask", "be int8, uint8 or bool", dtype_name(kFloat16));
        const Operand mask =
            call_->input("attenMask", given_.mask, only_910b(kBoolType | type_set({kInt8, kUint8})), {2, 4});
        if (!call_->is_valid()) return;
        call_->report_beyond_document_unless_contiguous("attenMask", mask);
        if (mode >= kLeftUpCausal)
            check_causal_mask(mask);
        else
            attention_.mask = mask_by_batch(mask);
        if (is_one_query()) return;
        for (size_t batch = 0; batch < batches; ++batch) {
            if (mode == kDefaultMask || mode == kBand) check_tokens(mode, batch);
            attention_.bands[batch] = band(mode, batch);
        }
    }

    // prompt_flash_attention_tiling.cpp, RunBigKernelTilingWithParams. The tiling compares a negative number with the
    // length of the tensor as well, which is at least the length of the batch.
    void check_tokens(int64_t mode, size_t batch) {
        const int64_t before = std::max(given_.previous_tokens, -INT64_MAX);
        const int64_t after = std::max(given_.next_tokens, -INT64_MAX);
        const int64_t queries = attention_.query_lengths[batch], keys = attention_.key_lengths[batch];
        const std::string tokens = std::to_string(before) + " and " + std::to_string(after);
        require(before >= 0 || after >= 0, "preTokens and nextTokens",
                "not both be negative for sparseMode " + std::to_string(mode), tokens);
        require(-after <= before, "preTokens and nextTokens", "have a sum of at least 0", tokens);
        const int64_t least_before = mode == kBand ? queries : keys, least_after = mode == kBand ? keys : queries;
        require(before >= 0 || -before < least_before, "preTokens",
                "be greater than -" + std::to_string(least_before) + " for sparseMode " + std::to_string(mode), before);
        require(after >= 0 || -after < least_after, "nextTokens",
                "be greater than -" + std::to_string(least_after) + " for sparseMode " + std::to_string(mode), after);
    }

    AttentionBand band(int64_t mode, size_t batch) const {
        // Distance of the last key from the last query.
        const int64_t corner = attention_.key_lengths[batch] - attention_.query_lengths[batch];
        AttentionBand band;
        if (mode == kDefaultMask || mode == kBand) {
            const int64_t offset = mode == kBand ? corner : 0;
            band.first = offset - std::clamp<int64_t>(given_.previous_tokens, INT32_MIN, INT32_MAX);
            band.last = offset + std::clamp<int64_t>(given_.next_tokens, INT32_MIN, INT32_MAX);
        }
        if (mode == kLeftUpCausal) band.last = 0;
        if (mode == kRightDownCausal) band.last = corner;
        return band;
    }

    void check_causal_mask(const Operand& mask) {
        const size_t rank = mask.shape.size();
        bool fits = mask.shape[rank - 1] == kSparseMaskSize && mask.shape[rank - 2] == kSparseMaskSize;
        for (size_t i = 0; i + 2 < rank; ++i) fits = fits && mask.shape[i] == 1;
        fits = fits && (rank == 2 || !is_one_query());
        require(fits, "attenMask",
                std::string("have the shape [2048,2048]") + (is_one_query() ? "" : ", with leading dimensions of 1,") +
                    " for sparseMode 2, 3 and 4",
                shape_text(mask.shape));
        call_->refuse_unsimulated(is_one_query(), "sparseMode 3 or 4 with a mask for one query");
        if (!fits) return;
        causal_mask_ = Operand{{kSparseMaskSize, kSparseMaskSize},
                               {mask.strides[rank - 2], mask.strides[rank - 1]},
                               mask.dtype,
                               mask.first};
    }

    // Returns the mask as [batch or 1, queries, keys]. The argument is [queries, keys], [batch, queries, keys] or
    // [batch, 1, queries, keys]. For one query it is [batch, keys], [batch, 1, keys] or [batch, 1, 1, keys].
    Operand mask_by_batch(const Operand& mask) {
        Operand result = mask;
        std::vector<int64_t>&shape = result.shape, &strides = result.strides;
        if (shape.size() == 2) {
            const auto at = is_one_query() ? 1 : 0;
            shape.insert(shape.begin() + at, 1);
            strides.insert(strides.begin() + at, 0);
        }
        const bool has_one_head = shape.size() < 4 || shape[1] == 1;
        if (shape.size() == 4) {
            shape.erase(shape.begin() + 1);
            strides.erase(strides.begin() + 1);
        }
        const std::vector<int64_t>& query = attention_.query.shape;
        const int64_t keys = attention_.key.shape[2];
        const bool fits_batch = shape[0] == query[0] || (shape[0] == 1 && !is_one_query());
        require(has_one_head, "attenMask", "have one head", shape_text(mask.shape));
        // The tiling accepts more rows, but the kernel reads the mask of batch i at i times the last dimension:
        // incre_flash_attention_tiling_check.cpp, ProcessAttenMask, and op_kernel/incre_flash_attention_preload.h.
        require(!is_one_query() || shape[1] == 1, "attenMask", "have one row for each batch of one query",
                shape_text(mask.shape));
        require(fits_batch && shape[1] >= query[2] && shape[2] >= keys, "attenMask",
                "have " + std::string(query[0] == 1 || is_one_query() ? "" : "1 or ") + std::to_string(query[0]) +
                    " batches, at least " + std::to_string(query[2]) + " queries and at least " + std::to_string(keys) +
                    " keys",
                shape_text(mask.shape));
        return result;
    }

    void set_precision() {
        const int64_t last = is_one_query() ? 1 : 3;
        require(given_.inner_precise >= 0 && given_.inner_precise <= last, "innerPrecise",
                "be in [0, " + std::to_string(last) + "]" + (is_one_query() ? " for one query" : ""),
                given_.inner_precise);
        attention_.scale = static_cast<float>(given_.scale);
        attention_.is_high_performance =
            attention_.query.dtype == kFloat16 && (given_.inner_precise & 1) && !attention_.pse;
        attention_.zeroes_blind_queries = given_.inner_precise & 2;
    }

    FirstPhase* call_;
    const AttentionArguments& given_;
    Attention attention_;
    std::optional<Operand> causal_mask_;
};

void check_triangle(const Operand& mask) {
    for (int64_t i = 0; i < kSparseMaskSize; ++i)
        for (int64_t j = 0; j < kSparseMaskSize; ++j) {
            const bool hides = mask.first[i * mask.strides[0] + j * mask.strides[1]] != 0;
            if (hides != (j > i))
                throw std::invalid_argument(
                    "attenMask must be 1 above the diagonal and 0 elsewhere for sparseMode 2, 3 "
                    "and 4 but got " +
                    std::to_string(hides) + " in row " + std::to_string(i) + ", column " + std::to_string(j) + ".");
        }
}

// Bytes of the workspace, in which the kernel keeps the scores of a block of keys.
constexpr int64_t kScoreBytes = 1 << 20;

}  // namespace

aclError finish_attention(FirstPhase* call, const AttentionArguments& given, uint64_t* bytes,
                          aclOpExecutor** executor) {
    // The operator is defined for Ascend910B and Ascend910_93 only: op_host/fused_infer_attention_score_def.cpp.
    call->refuse_310p();
    AttentionCheck check(call, given);
    const Attention attention = check.run();
    call->ask_workspace(kScoreBytes);
    auto body = [attention, causal_mask = check.causal_mask()] {
        if (causal_mask) check_triangle(*causal_mask);
        if (attention.out.count()) run_attention(attention);
    };
    return call->finish(body, bytes, executor);
}

}  // namespace simulated_cann
