// aclnnKvRmsNormRopeCache: for each token of kv, the RMS norm of its first 512 elements and the rotation of its last 64
// elements are written to two caches. Arithmetic is in float32; a result is rounded once, or quantized with a scale to
// int8.
//
// Sources: op-plugin docs/zh/custom_APIs/torch_npu/torch_npu-npu_kv_rmsnorm_rope_cache.md for the sizes and the outputs
// of a mode, and hicann/ops-transformer posembedding/kv_rms_norm_rope_cache/docs/aclnnKvRmsNormRopeCache.md for the
// values of index, the block sizes, the scales and the status codes. The tiling,
// op_host/kv_rms_norm_rope_cache_base_tiling.cpp and kv_rms_norm_rope_cache_ds_tiling.cpp, checks ranks and shapes,
// takes no mode as Norm, and refuses scales in the mode Norm. An output of a generated function must be contiguous,
// because CANN packs only its inputs and the tensors that it reads and writes: hicann/opbase
// src/nnopbase/individual_op/executor/indv_executor_tensor.cpp, NnopbaseExecutorAddTensor.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "cann/opapi/norm_rows.h"
#include "cann/opapi/rotation.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

constexpr int64_t kNormSize = 512, kRopeSize = 64;

struct CacheMode {
    const char* name;
    bool is_paged, has_block_indices, is_nz;
};
constexpr CacheMode kModes[] = {
    {"Norm", false, false, false},      {"PA", true, false, false},   {"PA_BNSD", true, false, false},
    {"PA_BLK_BNSD", true, true, false}, {"PA_NZ", true, false, true}, {"PA_BLK_NZ", true, true, true},
};

const CacheMode* find_mode(const char* name) {
    for (const CacheMode& mode : kModes)
        if (name && std::strcmp(name, mode.name) == 0) return &mode;
    return nullptr;
}

// A cache, the scale of an int8 cache, and the output without quantization.
struct Target {
    int64_t size = 0;  // elements of a token
    Operand cache, out;
    std::optional<Operand> scale;
};

struct KvCall {
    Operand kv, gamma, cos, sin, index;
    Target key{kRopeSize, {}, {}, {}}, norm{kNormSize, {}, {}, {}};
    CacheMode mode{};
    float epsilon = 0;
    bool has_output = false;

    int64_t batches() const { return kv.shape[0]; }
    int64_t tokens() const { return kv.shape[2]; }
    int64_t block_size() const { return key.cache.shape[1]; }
    int64_t blocks_of_batch() const { return (tokens() + block_size() - 1) / block_size(); }
};

// The row of the caches to which each token is written, or -1 for a token that is not written.
std::vector<int64_t> cache_rows(const KvCall& call) {
    const std::vector<int64_t> index = values_of<int64_t>(call.index);
    const int64_t rows = call.mode.is_paged ? call.key.cache.shape[0] * call.block_size() : call.key.cache.shape[2];
    std::vector<int64_t> written = index;
    written.erase(std::remove(written.begin(), written.end(), -1), written.end());
    check_indices(written, "index", rows);
    std::vector<int64_t> result;
    for (int64_t batch = 0; batch < call.batches(); ++batch)
        for (int64_t token = 0; token < call.tokens(); ++token) {
            const int64_t position = batch * call.tokens() + token;
            if (!call.mode.is_paged) {
                const int64_t row = index[static_cast<size_t>(position)];
                result.push_back(row < 0 ? row : batch * rows + row);
            } else if (!call.mode.has_block_indices) {
                result.push_back(index[static_cast<size_t>(position)]);
            } else {
                const int64_t size = call.block_size();
                const int64_t first = index[static_cast<size_t>(batch * call.blocks_of_batch() + token / size)];
                result.push_back(first < 0 ? first : first / size * size + token % size);
            }
        }
    std::vector<int64_t> sorted = result;
    sorted.erase(std::remove(sorted.begin(), sorted.end(), -1), sorted.end());
    std::sort(sorted.begin(), sorted.end());
    const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
    if (repeated != sorted.end())
        throw std::out_of_range("index must not repeat a row of the cache but got row " + std::to_string(*repeated) +
                                " twice.");
    return result;
}

// Writes a row of a cache. In the format NZ, a block consists of columns that are 32 bytes wide.
void store_row(const KvCall& call, const Target& target, int64_t row, const float* values) {
    const Operand& cache = target.cache;
    const int64_t item = dtype_bytes(cache.dtype), rows = call.mode.is_paged ? cache.shape[1] : cache.shape[2];
    const int64_t outer = row / rows, inner = row % rows;
    if (!call.mode.is_nz) {
        const int64_t offset = outer * cache.strides[0] + inner * cache.strides[call.mode.is_paged ? 1 : 2];
        return store(cache.dtype, cache.first + offset * item, cache.strides[3], target.size, values);
    }
    const int64_t width = 32 / item;
    for (int64_t i = 0; i < target.size; i += width)
        store(cache.dtype, cache.first + (outer * rows * target.size + (i / width * rows + inner) * width) * item, 1,
              width, values + i);
}

void write_rows(const KvCall& call, const Target& target, const std::vector<int64_t>& rows, std::vector<float> values) {
    if (call.has_output) set_values(target.out, values);
    if (target.scale) {
        const std::vector<float> scale = values_of<float>(*target.scale);
        for (size_t i = 0; i < values.size(); ++i) {
            const float scaled = std::nearbyint(values[i] * scale[i % scale.size()]);
            values[i] = std::min(std::max(scaled, -128.0F), 127.0F);
        }
    }
    for (size_t token = 0; token < rows.size(); ++token)
        if (rows[token] >= 0) store_row(call, target, rows[token], &values[token * static_cast<size_t>(target.size)]);
}

void update_caches(const KvCall& call) {
    const std::vector<int64_t> rows = cache_rows(call);
    const std::vector<float> kv = values_of<float>(call.kv), gamma = values_of<float>(call.gamma),
                             cos = values_of<float>(call.cos), sin = values_of<float>(call.sin);
    std::vector<float> normalized, split(rows.size() * kRopeSize);
    std::vector<int64_t> tables;
    for (size_t token = 0; token < rows.size(); ++token) {
        const float* row = &kv[token * (kNormSize + kRopeSize)];
        const float rstd = reciprocal_rms(row, kNormSize, call.epsilon);
        for (size_t i = 0; i < kNormSize; ++i) normalized.push_back(row[i] * rstd * gamma[i]);
        for (size_t i = 0; i < kRopeSize; ++i)
            split[token * kRopeSize + i / 2 + (i % 2) * kRopeSize / 2] = row[kNormSize + i];
        tables.push_back(static_cast<int64_t>(token));
    }
    write_rows(call, call.key, rows, rotated(Pairing::kHalves, split, tables, cos, sin, kRopeSize).sum());
    write_rows(call, call.norm, rows, std::move(normalized));
}

// Reads the arguments of one cache.
void read_target(FirstPhase* call, Target* target, const char* const (&names)[4], const aclTensor* cache,
                 const aclTensor* scale, const aclTensor* offset, const aclTensor* out) {
    constexpr TypesByChip k16BitTypes = only_910b(type_set({kFloat16, kBfloat16}));
    target->cache = call->in_place(names[0], cache, only_910b(type_set({kFloat16, kBfloat16, kInt8})), kAnyRank);
    target->scale = call->optional_input(names[1], scale, kFloatOnly, kAnyRank);
    call->require(!offset, names[2], "be NULL", "a tensor");  // asymmetric quantization is documented as unsupported
    target->out = call->output(names[3], out, k16BitTypes, kAnyRank);
    call->require_contiguous(names[3], target->out);  // the document allows strides, which CANN ignores
}

void require_target(FirstPhase* phase, const KvCall& call, const Target& target, const char* const (&names)[4]) {
    const int64_t size = target.size;
    phase->require_dtype(names[0], target.cache, target.scale ? int32_t{kInt8} : call.kv.dtype);
    phase->require_dtype(names[3], target.out, call.kv.dtype);
    if (target.scale && target.scale->shape != std::vector<int64_t>{1, size})
        require_shape_with(phase, kAclnnTilingError, names[1], *target.scale, {size});
    require_shape_with(phase, kAclnnTilingError, names[3], target.out, {call.batches(), 1, call.tokens(), size});
    const std::vector<int64_t>& shape = target.cache.shape;
    if (call.mode.is_nz) phase->require_contiguous(names[0], target.cache);
    if (!call.mode.is_paged) {
        require_shape_with(phase, kAclnnTilingError, names[0], target.cache, {call.batches(), 1, shape[2], size});
        phase->require_inner(kAclnnTilingError, shape[2] >= call.tokens(), names[0],
                             "have at least " + std::to_string(call.tokens()) + " rows for each batch",
                             std::to_string(shape[2]));
        return;
    }
    const int64_t multiple = 32 / dtype_bytes(target.cache.dtype);
    require_shape_with(phase, kAclnnTilingError, names[0], target.cache, {shape[0], shape[1], 1, size});
    phase->require_inner(kAclnnTilingError, shape[1] > 0 && shape[1] % multiple == 0,
                         "the block size of " + std::string(names[0]), "be a multiple of " + std::to_string(multiple),
                         std::to_string(shape[1]));
    if (!phase->is_valid()) return;
    const int64_t needed = call.blocks_of_batch() * call.batches();
    phase->require_inner(kAclnnTilingError, shape[0] >= needed, names[0],
                         "have at least " + std::to_string(needed) + " blocks", std::to_string(shape[0]));
}

aclError prepare_kv_rope_cache(const aclTensor* kv, const aclTensor* gamma, const aclTensor* cos, const aclTensor* sin,
                               const aclTensor* index, aclTensor* k_cache, aclTensor* ckv_cache,
                               const aclTensor* k_rope_scale, const aclTensor* c_kv_scale,
                               const aclTensor* k_rope_offset, const aclTensor* c_kv_offset, double epsilon,
                               const char* cache_mode, bool has_output, const aclTensor* k_rope_out,
                               const aclTensor* c_kv_out, uint64_t* bytes, aclOpExecutor** executor) {
    constexpr TypesByChip k16BitTypes = only_910b(type_set({kFloat16, kBfloat16}));
    constexpr RankRange kFour{4, 4};
    constexpr int64_t kTilingWorkspaceBytes = 32;  // op_host/kv_rms_norm_rope_cache_tiling.h, DEFAULT_WORKSPACE_SIZE
    constexpr const char* kRopeNames[] = {"k_cache", "k_rope_scale", "k_rope_offset", "k_rope_out"};
    constexpr const char* kNormNames[] = {"ckv_cache", "c_kv_scale", "c_kv_offset", "c_kv_out"};
    FirstPhase phase("aclnnKvRmsNormRopeCache");
    phase.refuse_310p();  // no kernel in the list of CANN 8.1, opp/built-in/op_impl/ai_core/tbe/config/ascend310p
    KvCall call;
    call.kv = phase.input("kv", kv, k16BitTypes, kAnyRank);
    call.gamma = phase.input("gamma", gamma, k16BitTypes, kAnyRank);
    call.cos = phase.input("cos", cos, k16BitTypes, kAnyRank);
    call.sin = phase.input("sin", sin, k16BitTypes, kAnyRank);
    call.index = phase.input("index", index, on_all(type_set({kInt64})), kAnyRank);
    read_target(&phase, &call.key, kRopeNames, k_cache, k_rope_scale, k_rope_offset, k_rope_out);
    read_target(&phase, &call.norm, kNormNames, ckv_cache, c_kv_scale, c_kv_offset, c_kv_out);
    for (const auto& [name, operand] :
         {std::pair{"gamma", &call.gamma}, std::pair{"cos", &call.cos}, std::pair{"sin", &call.sin}})
        phase.require_dtype(name, *operand, call.kv.dtype);
    for (const auto& [name, operand] :
         {std::pair{"kv", &call.kv}, std::pair{"cos", &call.cos}, std::pair{"sin", &call.sin},
          std::pair{"k_cache", &call.key.cache}, std::pair{"ckv_cache", &call.norm.cache}})
        require_rank(&phase, kAclnnTilingError, name, *operand, kFour);
    const CacheMode* mode = find_mode(cache_mode ? cache_mode : "Norm");
    phase.require_inner(kAclnnTilingError, mode, "cache_mode", "be Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ",
                        cache_mode ? cache_mode : "NULL");
    if (phase.is_valid()) {
        call.mode = *mode;
        const int64_t batches = call.batches(), tokens = call.tokens();
        require_shape_with(&phase, kAclnnTilingError, "kv", call.kv, {batches, 1, tokens, kNormSize + kRopeSize});
        phase.require_inner(kAclnnTilingError, call.kv.count() > 0, "kv", "have elements", shape_text(call.kv.shape));
        require_shape_with(&phase, kAclnnTilingError, "gamma", call.gamma, {kNormSize});
        phase.require_inner(kAclnnTilingError, mode->is_paged || !(call.key.scale || call.norm.scale), "cache_mode",
                            "be a paged mode with k_rope_scale or c_kv_scale", mode->name);
        // The tiling and the document accept such tables. The sources do not show how the kernels read them.
        const std::vector<int64_t> one_row{batches, 1, 1, kRopeSize};
        phase.refuse_unsimulated(tokens > 1 && call.cos.shape == one_row && call.sin.shape == one_row,
                                 "one row of cos and sin for the tokens of a batch");
        require_shape_with(&phase, kAclnnTilingError, "cos", call.cos, {batches, 1, tokens, kRopeSize});
        require_shape_with(&phase, kAclnnTilingError, "sin", call.sin, {batches, 1, tokens, kRopeSize});
        require_target(&phase, call, call.key, kRopeNames);
        require_target(&phase, call, call.norm, kNormNames);
        if (phase.is_valid()) {
            std::vector<int64_t> expected_key_cache = call.norm.cache.shape;
            expected_key_cache.back() = kRopeSize;
            require_shape_with(&phase, kAclnnTilingError, "k_cache", call.key.cache, expected_key_cache);
            const std::vector<int64_t> indices =
                !mode->is_paged
                    ? std::vector<int64_t>{batches, tokens}
                    : std::vector<int64_t>{batches * (mode->has_block_indices ? call.blocks_of_batch() : tokens)};
            require_shape_with(&phase, kAclnnTilingError, "index", call.index, indices);
        }
    }
    if (phase.is_valid()) phase.ask_workspace(kTilingWorkspaceBytes);
    call.epsilon = static_cast<float>(epsilon);
    call.has_output = has_output && mode && mode->is_paged;  // documented for the paged modes only
    return phase.finish([call] { update_caches(call); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnKvRmsNormRopeCacheGetWorkspaceSize(
    const aclTensor* kv, const aclTensor* gamma, const aclTensor* cos, const aclTensor* sin, const aclTensor* index,
    aclTensor* k_cache, aclTensor* ckv_cache, const aclTensor* k_rope_scale, const aclTensor* c_kv_scale,
    const aclTensor* k_rope_offset, const aclTensor* c_kv_offset, double epsilon, char* cache_mode, bool is_output_kv,
    const aclTensor* k_rope_out, const aclTensor* c_kv_out, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_kv_rope_cache(kv, gamma, cos, sin, index, k_cache, ckv_cache, k_rope_scale,
                                                 c_kv_scale, k_rope_offset, c_kv_offset, epsilon, cache_mode,
                                                 is_output_kv, k_rope_out, c_kv_out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnKvRmsNormRopeCache)
