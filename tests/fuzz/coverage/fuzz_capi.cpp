// Fuzz the C interface (include/npu_rope.h). The bytes make a valid call of an operator and then break some of its
// descriptors and attributes. Each tensor has an allocation of exactly its extent, so that AddressSanitizer finds each
// access outside it. A tensor whose extent is not allocated has an address that cannot be read. Such a call runs only
// if the checks must refuse it by its descriptors. A tensor with strides of 0 can have so many elements that a call
// takes longer than the limit of a run: qk_square_sums of 2^53 heads. Such a call runs only if the checks refuse it.
//
// Properties of every call:
// - The status is not NPU_ROPE_INTERNAL_ERROR, and an error is "[op] argument must RULE but got VALUE."
// - A refused call writes nothing. An accepted call writes its outputs only.
// - npu_rope_check() gives the operator's verdict and message. With less knowledge, or without a chip, it refuses less.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "csrc/core/dtype.h"
#include "include/npu_rope.h"
#include "tests/fuzz/coverage/choices.h"

namespace {

#define REQUIRE(call, condition) ((condition) ? void() : fail(#condition, call))

constexpr int64_t kMostBytes = 1 << 16;     // of an allocation
constexpr int64_t kMostElements = 1 << 22;  // of a tensor of an accepted call

// What a tensor is, which determines its shape, its type and its values in a valid call.
enum class Role {
    kHeads,
    kKeys,
    kValues,
    kTable,
    kPositions,
    kIndices,
    kRows,
    kFactors,
    kScale,
    kNormed,
    kCache,
    kSums
};

struct Argument {
    const char* name;
    Role role;
    bool optional;
};

struct Operator {
    const char* name;
    std::vector<Argument> inputs, outputs;
};

const Operator kOperators[] = {
    {"rope",
     {{"x", Role::kHeads, false}, {"positions", Role::kPositions, false}, {"freq_factors", Role::kFactors, true}},
     {{"out", Role::kHeads, false}}},
    {"rope_qk",
     {{"q", Role::kHeads, false},
      {"k", Role::kKeys, false},
      {"positions", Role::kPositions, false},
      {"freq_factors", Role::kFactors, true}},
     {{"q_out", Role::kHeads, false}, {"k_out", Role::kKeys, false}}},
    {"rope_set_rows",
     {{"x", Role::kHeads, false},
      {"positions", Role::kPositions, false},
      {"rows", Role::kRows, false},
      {"freq_factors", Role::kFactors, true}},
     {{"cache", Role::kCache, false}}},
    {"rotary_mul",
     {{"x", Role::kHeads, false}, {"cos", Role::kTable, false}, {"sin", Role::kTable, false}},
     {{"out", Role::kHeads, false}}},
    {"rotary_mul_qk",
     {{"q", Role::kHeads, false},
      {"k", Role::kKeys, false},
      {"cos", Role::kTable, false},
      {"sin", Role::kTable, false}},
     {{"q_out", Role::kHeads, false}, {"k_out", Role::kKeys, false}}},
    {"rotary_embedding",
     {{"X", Role::kHeads, false},
      {"cos_cache", Role::kTable, false},
      {"sin_cache", Role::kTable, false},
      {"position_ids", Role::kIndices, true}},
     {{"Y", Role::kHeads, false}}},
    {"rms_norm", {{"x", Role::kNormed, false}, {"scale", Role::kScale, false}}, {{"out", Role::kNormed, false}}},
    {"rms_norm_backward",
     {{"grad", Role::kNormed, false}, {"x", Role::kNormed, false}, {"scale", Role::kScale, false}},
     {{"dx", Role::kNormed, false}, {"dscale", Role::kScale, false}}},
    {"add_rms_norm",
     {{"x", Role::kNormed, false}, {"residual", Role::kNormed, false}, {"scale", Role::kScale, false}},
     {{"out", Role::kNormed, false}, {"sum", Role::kNormed, false}}},
    {"rms_norm_rope",
     {{"q", Role::kHeads, false},
      {"k", Role::kKeys, false},
      {"q_scale", Role::kScale, false},
      {"k_scale", Role::kScale, false},
      {"positions", Role::kPositions, false},
      {"freq_factors", Role::kFactors, true}},
     {{"q_out", Role::kHeads, false}, {"k_out", Role::kKeys, false}}},
    {"rms_norm_rope_set_rows",
     {{"q", Role::kHeads, false},
      {"k", Role::kKeys, false},
      {"q_scale", Role::kScale, false},
      {"k_scale", Role::kScale, false},
      {"positions", Role::kPositions, false},
      {"rows", Role::kRows, false},
      {"freq_factors", Role::kFactors, true}},
     {{"q_out", Role::kHeads, false}, {"cache", Role::kCache, false}}},
    {"qkv_norm_rope_cache",
     {{"q", Role::kHeads, false},
      {"k", Role::kKeys, false},
      {"v", Role::kValues, true},
      {"q_scale", Role::kScale, true},
      {"k_scale", Role::kScale, true},
      {"q_bias", Role::kScale, true},
      {"k_bias", Role::kScale, true},
      {"square_sums", Role::kSums, true},
      {"positions", Role::kPositions, true},
      {"freq_factors", Role::kFactors, true},
      {"cos", Role::kTable, true},
      {"sin", Role::kTable, true},
      {"slots", Role::kRows, true},
      {"k_quant_scale", Role::kFactors, true},
      {"k_quant_offset", Role::kFactors, true},
      {"v_quant_scale", Role::kFactors, true},
      {"v_quant_offset", Role::kFactors, true}},
     {{"q_out", Role::kHeads, false}, {"k_out", Role::kCache, false}, {"v_out", Role::kCache, true}}},
    {"qk_square_sums", {{"q", Role::kHeads, false}, {"k", Role::kKeys, false}}, {{"out", Role::kSums, false}}},
    {"rms_norm_rounded_last",
     {{"x", Role::kNormed, false}, {"scale", Role::kScale, false}},
     {{"out", Role::kNormed, false}}},
};

// A tensor, and the allocation that its view lies in.
struct Tensor {
    npu_rope_tensor view{};
    bool given = true;       // not NULL
    bool is_valid = true;    // it has a known dtype and at most 4 dimensions of sizes >= 0
    bool allocated = false;  // all its elements can be read
    bool endless = false;    // it has more than kMostElements
    std::vector<char> before;
    char* memory = nullptr;  // NULL if another tensor owns it
    size_t bytes = 0;
};

struct Call {
    const Operator* op = nullptr;
    std::vector<Tensor> inputs, outputs;
    npu_rope_params params{};
    bool has_params = true;
    npu_rope_call check{};
    int32_t interleaved = 0, forward = 1, intermediate_rounding = 0;
    int64_t rows = 0;  // of a cache

    ~Call() {
        for (auto* tensors : {&inputs, &outputs})
            for (Tensor& t : *tensors) std::free(t.memory);
    }
};

void print(const char* name, const Tensor& t) {
    const npu_rope_tensor& v = t.view;
    if (!t.given) return;
    std::fprintf(stderr, "  %s: dtype %d ndim %d data %p%s\n   ", name, v.dtype, v.ndim, v.data,
                 t.allocated ? "" : " (not allocated)");
    for (int k = 0; k < NPU_ROPE_MAX_NDIM; ++k)
        std::fprintf(stderr, " %lld*%lld", static_cast<long long>(v.shape[k]), static_cast<long long>(v.stride[k]));
    std::fprintf(stderr, "\n");
}

[[noreturn]] void fail(const char* property, const Call& call) {
    const npu_rope_params& p = call.params;
    std::fprintf(stderr, "broken: %s\n%s on %s: %s\n", property, call.op->name, npu_rope_isa(), npu_rope_last_error());
    for (size_t k = 0; k < call.inputs.size(); ++k) print(call.op->inputs[k].name, call.inputs[k]);
    for (size_t k = 0; k < call.outputs.size(); ++k) print(call.op->outputs[k].name, call.outputs[k]);
    std::fprintf(stderr, "  n_dims %d mode %d n_offs %d base %g scale %g ext %g angle %d axis %lld stash %lld\n",
                 p.n_dims, p.mode, p.n_offs, p.freq_base, p.freq_scale, p.ext_factor, call.check.angle,
                 static_cast<long long>(call.check.axis), static_cast<long long>(call.check.stash_type));
    std::abort();
}

// ---- a valid call ------------------------------------------------------------------------------------

// The sizes and types that a call's tensors share.
struct Sizes {
    int64_t B, S, N, keys, D, pairs, rows;
    bool has_batch, entry_per_lane, whole_token_scale, int64_indices, by_ids;
    int32_t dtype, table_dtype, cache_dtype, scale_dtype;
    int planes;
};

void set_shape(npu_rope_tensor* t, std::initializer_list<int64_t> shape) {
    t->ndim = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t->shape);
}

void make_shape(Choices* c, const Sizes& s, const Call& call, Role role, npu_rope_tensor* t) {
    const std::string op = call.op->name;
    const bool is_qkv = op == "qkv_norm_rope_cache";
    const auto heads = [&](int64_t n) {
        if (s.has_batch)
            op == "rotary_embedding" ? set_shape(t, {s.B, n, s.S, s.D}) : set_shape(t, {s.B, s.S, n, s.D});
        else
            op == "rotary_embedding" ? set_shape(t, {s.B, s.S, n * s.D}) : set_shape(t, {s.S, n, s.D});
    };
    t->dtype = s.dtype;
    switch (role) {
        case Role::kHeads:
            return heads(s.N);
        case Role::kKeys:
        case Role::kValues:
            return heads(s.keys);
        case Role::kTable: {
            const int64_t width = s.entry_per_lane ? 2 * s.pairs : s.pairs;
            t->dtype = s.table_dtype;
            if (is_qkv || s.by_ids) return set_shape(t, {s.rows, width});
            if (op == "rotary_embedding") return set_shape(t, {s.B, s.S, width});
            return s.has_batch && c->chance(2) ? set_shape(t, {s.B, s.S, 1, width}) : set_shape(t, {s.S, width});
        }
        case Role::kPositions:
            t->dtype = s.int64_indices ? NPU_ROPE_INT64 : NPU_ROPE_INT32;
            if (s.planes == 1 && (is_qkv || !s.has_batch || c->chance(2))) return set_shape(t, {s.S});
            if (s.planes == 1) return set_shape(t, {s.B, s.S});
            if (s.has_batch && !is_qkv && c->chance(2)) return set_shape(t, {s.planes, s.B, s.S});
            return set_shape(t, {s.planes, s.S});
        case Role::kIndices:
        case Role::kRows:
            t->dtype = s.int64_indices ? NPU_ROPE_INT64 : NPU_ROPE_INT32;
            return s.has_batch || role == Role::kIndices ? set_shape(t, {s.B, s.S}) : set_shape(t, {s.S});
        case Role::kFactors:
            t->dtype = NPU_ROPE_FLOAT32;
            return set_shape(t, {is_qkv && t != &call.inputs[9].view ? c->one_of<int64_t>({1, s.keys}) : s.pairs});
        case Role::kScale:
            if (is_qkv || op[8] == '_') {  // rms_norm_rope
                if (is_qkv) t->dtype = s.scale_dtype;
                return set_shape(t, {s.whole_token_scale && is_qkv ? s.D * s.keys : s.D});
            }
            t->dtype = s.scale_dtype;
            return c->chance(2) ? set_shape(t, {s.keys, s.D}) : set_shape(t, {s.D});
        case Role::kNormed:
            return s.has_batch ? set_shape(t, {s.B, s.S, s.keys, s.D}) : set_shape(t, {s.keys, s.D});
        case Role::kCache:
            t->dtype = s.cache_dtype;
            if (is_qkv && !call.inputs[12].given) return heads(s.keys);
            if (is_qkv && c->chance(2)) return set_shape(t, {2, s.rows, s.keys, s.D});
            return set_shape(t, {s.rows, op == "rope_set_rows" ? s.N : s.keys, s.D});
        case Role::kSums:
            t->dtype = s.dtype == NPU_ROPE_FLOAT64 ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;
            return set_shape(t, {s.S, 2});
    }
}

void make_strides(Choices* c, npu_rope_tensor* t) {
    int order[NPU_ROPE_MAX_NDIM] = {3, 2, 1, 0};
    if (t->ndim > 2 && c->chance(4)) std::swap(order[NPU_ROPE_MAX_NDIM - t->ndim + 1], order[NPU_ROPE_MAX_NDIM - 1]);
    int64_t next = 1;
    for (int k : order) {
        if (k >= t->ndim) continue;
        t->stride[k] = next;
        if (k != t->ndim - 1 && c->chance(8)) t->stride[k] += c->up_to(9);
        next = t->stride[k] * std::max<int64_t>(t->shape[k], 1);
        if (k != t->ndim - 1 && c->chance(16)) t->stride[k] = c->chance(2) ? 0 : -t->stride[k];
    }
}

void make_valid(Choices* c, Call* call) {
    Sizes s;
    const std::string op = call->op->name;
    npu_rope_params& p = call->params;
    const int32_t mode = c->one_of(
        {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_MROPE, NPU_ROPE_MODE_IMROPE, NPU_ROPE_MODE_VISION});
    const bool has_sections = (mode & NPU_ROPE_MODE_MROPE) != 0;
    s.has_batch = c->chance(2) && op.rfind("qk", 0) != 0;
    s.B = s.has_batch ? c->up_to(3) : op == "rotary_embedding" ? 2 : 1;
    s.S = 1 + c->up_to(8);
    s.N = 1 + c->up_to(5);
    s.keys = 1 + c->up_to(3);
    s.D = c->one_of<int64_t>({64, 8, 2, 16, 34, 40, 128, 1 + c->up_to(300)});
    if (mode == NPU_ROPE_MODE_VISION) s.D = (s.D + 3) / 4 * 4;
    s.dtype = c->one_of<int32_t>({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16, NPU_ROPE_FLOAT64});
    s.table_dtype = c->chance(2) ? NPU_ROPE_FLOAT32 : s.dtype;
    s.scale_dtype = c->chance(2) ? NPU_ROPE_FLOAT32 : s.dtype;
    s.cache_dtype = s.dtype;
    if (c->chance(3))
        s.cache_dtype = c->one_of<int32_t>({NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16, NPU_ROPE_INT8, NPU_ROPE_FLOAT32});
    s.entry_per_lane = c->chance(2), s.whole_token_scale = c->chance(3), s.int64_indices = c->chance(2);
    s.planes = has_sections ? (c->chance(2) ? 4 : 3) : 1;
    call->rows = s.rows = s.B * s.S + c->up_to(4);

    p = npu_rope_default_params(static_cast<int32_t>(mode == NPU_ROPE_MODE_VISION ? s.D / 2 : s.D / 2 * 2),
                                static_cast<npu_rope_mode>(mode));
    if (mode != NPU_ROPE_MODE_VISION && s.D > 1 && c->chance(3)) {
        p.n_dims = static_cast<int32_t>(2 + 2 * c->up_to(s.D / 2 - 1));
        p.n_offs = static_cast<int32_t>(2 * c->up_to((s.D - p.n_dims) / 2));
    }
    s.pairs = mode == NPU_ROPE_MODE_VISION ? p.n_dims : p.n_dims / 2;
    if (has_sections)
        for (int32_t& section : p.sections) section = 1 + static_cast<int32_t>(c->up_to(3));
    if (c->chance(4)) p.ext_factor = 1, p.freq_scale = 0.25, p.n_ctx_orig = 4096;

    npu_rope_call& k = call->check;
    k.angle = c->one_of<int32_t>({NPU_ROPE_ANGLE_EXACT, NPU_ROPE_ANGLE_F32, NPU_ROPE_ANGLE_GGML});
    k.epsilon = 1e-6;
    k.ranks = 1;
    k.axis = c->chance(2) ? -2 : -1;
    k.stash_type = c->one_of<int64_t>({1, 10, 16, 11});
    k.rotary_dim = c->chance(2) ? 0 : p.n_dims;
    k.num_heads = s.N;
    k.scale_offset = c->chance(2);
    call->interleaved = mode == NPU_ROPE_MODE_NORMAL;
    call->forward = !c->chance(3);
    call->intermediate_rounding = c->chance(3);
    if (op[0] == 'r' && op[1] == 'o' && op[2] == 't') k.offset = k.rotary_dim == 0 ? 0 : p.n_offs;
    if (op == "rotary_embedding") k.offset = 0;
    if (k.rotary_dim == 0 && op[2] == 't') s.pairs = s.D / 2;

    call->inputs.resize(call->op->inputs.size());
    call->outputs.resize(call->op->outputs.size());
    // qkv_norm_rope_cache has many optional tensors: those of a way to norm, rotate and store are given together.
    const bool by_table = c->chance(2), with_slots = c->chance(2), quantized = c->chance(3), with_v = c->chance(2);
    const bool with_scales = !c->chance(3);
    for (size_t i = 0; i < call->inputs.size(); ++i) {
        const std::string name = call->op->inputs[i].name;
        Tensor& t = call->inputs[i];
        t.given = !call->op->inputs[i].optional || c->chance(2);
        if (op != "qkv_norm_rope_cache") continue;
        if (name == "cos" || name == "sin") t.given = by_table;
        if (name == "positions") t.given = !by_table || c->chance(2);
        if (name == "freq_factors") t.given &= !by_table;
        if (name == "v") t.given = with_v;
        if (name == "slots") t.given = with_slots;
        if (name == "q_scale" || name == "k_scale") t.given = with_scales;
        if (name == "q_bias" || name == "k_bias") t.given &= with_scales;
        if (name == "square_sums") t.given = s.whole_token_scale && c->chance(2);
        if (name[1] == '_' && name[2] == 'q') t.given = with_slots && quantized && (name[0] == 'k' || with_v);
    }
    if (op == "qkv_norm_rope_cache") {
        call->outputs[2].given = with_v;
        if (quantized && with_slots) s.cache_dtype = NPU_ROPE_INT8;
        if (!with_slots) s.cache_dtype = s.dtype;
        if (s.whole_token_scale) s.N = s.keys;
    }
    s.by_ids = op == "rotary_embedding" && call->inputs[3].given;
    for (size_t i = 0; i < call->inputs.size(); ++i) {
        make_shape(c, s, *call, call->op->inputs[i].role, &call->inputs[i].view);
        make_strides(c, &call->inputs[i].view);
    }
    for (size_t i = 0; i < call->outputs.size(); ++i) {
        npu_rope_tensor* t = &call->outputs[i].view;
        make_shape(c, s, *call, call->op->outputs[i].role, t);
        if (op != "rms_norm_rounded_last" && op.find("rms_norm") != std::string::npos &&
            call->op->outputs[i].name == std::string("out"))
            t->dtype = s.scale_dtype;
        make_strides(c, t);
    }
    if (op == "rms_norm_backward") {
        call->inputs[0].view.dtype = s.scale_dtype;
        std::copy_n(call->inputs[2].view.shape, NPU_ROPE_MAX_NDIM, call->outputs[1].view.shape);
        call->outputs[1].view.ndim = call->inputs[2].view.ndim;
        make_strides(c, &call->outputs[1].view);
    }
}

// ---- breaking it -------------------------------------------------------------------------------------

int64_t hostile_number(Choices* c) {
    switch (c->up_to(5)) {
        case 0:
            return c->up_to(20);
        case 1:
            return -c->up_to(20);
        case 2:
            return (int64_t{1} << c->up_to(62)) + c->between(-2, 2);
        case 3:
            return -(int64_t{1} << c->up_to(62)) + c->between(-2, 2);
        case 4:
            return c->one_of<int64_t>({INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, INT64_MAX / 2, INT64_MAX / 8});
        default:
            return static_cast<int64_t>(c->bits(8));
    }
}

double hostile_real(Choices* c) {
    switch (c->up_to(3)) {
        case 0:
            return c->one_of({0.0, -1.0, 1e-320, 1e300, -1e300, 1e-30, HUGE_VAL, -HUGE_VAL, std::nan("")});
        case 1:
            return static_cast<double>(c->up_to(1000)) / 16;
        case 2:
            return std::ldexp(1.0, static_cast<int>(c->between(-1074, 1023)));
        default:
            uint64_t bits = c->bits(8);
            double value;
            std::memcpy(&value, &bits, sizeof value);
            return value;
    }
}

void break_tensor(Choices* c, Call* call) {
    const int64_t count = static_cast<int64_t>(call->inputs.size() + call->outputs.size());
    const auto pick = [&]() -> Tensor& {
        const auto i = static_cast<size_t>(c->up_to(count - 1));
        return i < call->inputs.size() ? call->inputs[i] : call->outputs[i - call->inputs.size()];
    };
    Tensor& t = pick();
    const auto k = static_cast<size_t>(c->up_to(NPU_ROPE_MAX_NDIM - 1));
    switch (c->up_to(7)) {
        case 0:
            t.view.shape[k] = hostile_number(c);
            return;
        case 1:
            t.view.stride[k] = hostile_number(c);
            return;
        case 2:
            t.view.shape[k] = c->up_to(12);
            return;
        case 3:
            t.view.dtype = c->chance(2) ? static_cast<int32_t>(c->up_to(7))
                                        : static_cast<int32_t>(c->chance(2) ? 1001 + c->up_to(5) : hostile_number(c));
            return;
        case 4:
            t.view.ndim = static_cast<int32_t>(c->chance(2) ? hostile_number(c) : c->up_to(5));
            return;
        case 5:
            t.given = !t.given;
            return;
        case 6: {  // the size of a dimension in all tensors
            const int64_t size = c->chance(2) ? 0 : hostile_number(c), old = t.view.shape[k];
            for (auto* tensors : {&call->inputs, &call->outputs})
                for (Tensor& other : *tensors)
                    for (int64_t& each : other.view.shape)
                        if (each == old) each = size;
            return;
        }
        default:
            t.view = pick().view;
    }
}

void break_attribute(Choices* c, Call* call) {
    npu_rope_params& p = call->params;
    npu_rope_call& k = call->check;
    switch (c->up_to(9)) {
        case 0:
            *c->one_of({&p.n_dims, &p.mode, &p.n_ctx_orig, &p.n_offs}) = static_cast<int32_t>(hostile_number(c));
            return;
        case 1:
            p.n_dims = static_cast<int32_t>(2 * c->up_to(64));
            return;
        case 2:
        case 3:
            *c->one_of({&p.freq_base, &p.freq_scale, &p.ext_factor, &p.attn_factor, &p.beta_fast, &p.beta_slow}) =
                hostile_real(c);
            return;
        case 4:
            p.sections[c->up_to(3)] = static_cast<int32_t>(hostile_number(c));
            return;
        case 5:
            *c->one_of({&k.axis, &k.stash_type, &k.rotary_dim, &k.offset, &k.num_heads, &k.ranks}) = hostile_number(c);
            return;
        case 6:
            *c->one_of({&k.epsilon, &k.scale_offset}) = hostile_real(c);
            return;
        case 7:
            k.angle = static_cast<int32_t>(c->chance(2) ? c->between(0, 2) : hostile_number(c));
            return;
        case 8:
            call->has_params = false;
            return;
        default:
            *c->one_of({&k.axis, &k.rotary_dim, &k.offset, &k.num_heads, &k.ranks}) = c->between(-4, 130);
    }
}

// ---- memory ------------------------------------------------------------------------------------------

// Gives the tensor its memory: an allocation of its extent, the memory of another tensor, or an address that cannot be
// read.
void allocate(Choices* c, Call* call, Tensor* t) {
    npu_rope_tensor& v = t->view;
    v.data = reinterpret_cast<void*>(uintptr_t{64} + c->up_to(3));
    if (!t->given) return;
    t->is_valid = npu_rope::is_known_dtype(v.dtype) && v.ndim >= 0 && v.ndim <= NPU_ROPE_MAX_NDIM;
    __int128 low = 0, high = 0;  // of an element's index
    bool is_empty = false;
    int64_t elements = 1;  // at most kMostElements + 1
    for (int k = 0; t->is_valid && k < v.ndim; ++k) {
        t->is_valid = v.shape[k] >= 0;
        is_empty = is_empty || v.shape[k] == 0;
        elements *= std::clamp<int64_t>(v.shape[k], 1, kMostElements + 1);
        elements = std::min(elements, kMostElements + 1);
        (v.stride[k] < 0 ? low : high) += (static_cast<__int128>(v.shape[k]) - 1) * v.stride[k];
    }
    if (!t->is_valid) return;
    if (is_empty) {
        t->allocated = true;
        return;
    }
    if (high - low >= kMostBytes / 8) return;
    t->allocated = true;
    t->endless = elements > kMostElements;
    const size_t item = static_cast<size_t>(npu_rope::dtype_bytes(v.dtype));
    const size_t bytes = static_cast<size_t>(high - low + 1) * item;
    const auto first = static_cast<size_t>(-low) * item;
    if (c->chance(8))  // share an allocation
        for (auto* tensors : {&call->inputs, &call->outputs})
            for (Tensor& other : *tensors)
                if (other.memory && other.bytes >= bytes) {
                    const size_t room = (other.bytes - bytes) / item;
                    v.data = other.memory + first + item * static_cast<size_t>(c->up_to(static_cast<int64_t>(room)));
                    return;
                }
    const size_t shift = c->chance(32) ? 1 : 0;  // a misaligned address
    t->bytes = bytes + shift;
    t->memory = static_cast<char*>(std::malloc(t->bytes));
    v.data = t->memory + shift + first;
    if (c->chance(64)) v.data = nullptr, t->is_valid = false;
}

// Fills an allocation with numbers of the tensor's type. The last index may be the row just behind a cache.
void fill(Choices* c, const Call& call, Tensor* t) {
    if (!t->memory) return;
    const int32_t dtype = t->view.dtype;
    const auto item = static_cast<size_t>(npu_rope::dtype_bytes(dtype));
    const size_t count = t->bytes / item;
    const bool is_integer = dtype == NPU_ROPE_INT32 || dtype == NPU_ROPE_INT64;
    const uint64_t seed = c->bits(1);
    uint64_t state = seed * 0x9e3779b97f4a7c15;
    const bool any_bits = c->chance(8);
    std::memset(t->memory, 0, t->bytes);
    for (size_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const auto small = static_cast<float>(1 + (state >> 61)) / 4;
        uint64_t bits = any_bits ? state ^ state >> 29 : 0;
        if (!any_bits && is_integer) bits = i;
        if (!any_bits && !is_integer) {
            const double wide = small;
            uint32_t narrow;
            std::memcpy(&narrow, &small, 4);
            if (dtype == NPU_ROPE_FLOAT64) std::memcpy(&bits, &wide, 8);
            if (dtype == NPU_ROPE_FLOAT32) bits = narrow;
            if (dtype == NPU_ROPE_BFLOAT16) bits = narrow >> 16;
            if (dtype == NPU_ROPE_FLOAT16) bits = ((narrow >> 13) - (112 << 10)) & 0x7fff;
            if (dtype == NPU_ROPE_INT8) bits = i;
        }
        std::memcpy(t->memory + i * item, &bits, item);
    }
    if (!any_bits && is_integer && count > 0 && seed % 8 == 7)
        std::memcpy(t->memory + (count - 1) * item, &call.rows, item);
    for (int64_t k = c->up_to(2); k > 0 && count > 0; --k) {  // single numbers
        const auto at = static_cast<size_t>(c->up_to(static_cast<int64_t>(count) - 1));
        const int64_t number = is_integer ? hostile_number(c) : static_cast<int64_t>(c->bits(8));
        std::memcpy(t->memory + at * item, &number, item);
    }
}

// ---- the call ----------------------------------------------------------------------------------------

const npu_rope_tensor* pointer(const Tensor& t) { return t.given ? &t.view : nullptr; }

npu_rope_status run(Call* call) {
    const npu_rope_call& k = call->check;
    const npu_rope_tensor *const *in = k.inputs, *const *out = k.outputs;
    const npu_rope_params* p = k.params;
    const int32_t forward = call->forward, rounds = call->intermediate_rounding, interleaved = call->interleaved;
    switch (call->op - kOperators) {
        case 0:
            return npu_rope_rope(in[0], in[1], in[2], p, forward, k.angle, out[0]);
        case 1:
            return npu_rope_rope_qk(in[0], in[1], in[2], in[3], p, forward, k.angle, out[0], out[1]);
        case 2:
            return npu_rope_rope_set_rows(in[0], in[1], in[2], in[3], p, forward, k.angle, out[0]);
        case 3:
            return npu_rope_rotary_mul(in[0], in[1], in[2], interleaved, k.rotary_dim, k.offset, forward, out[0]);
        case 4:
            return npu_rope_rotary_mul_qk(in[0], in[1], in[2], in[3], interleaved, k.rotary_dim, k.offset, forward,
                                          out[0], out[1]);
        case 5:
            return npu_rope_rotary_embedding(in[0], in[1], in[2], in[3], interleaved, k.num_heads, k.rotary_dim,
                                             forward, out[0]);
        case 6:
            return npu_rope_rms_norm(in[0], in[1], k.axis, k.epsilon, k.stash_type, out[0]);
        case 7:
            return npu_rope_rms_norm_backward(in[0], in[1], in[2], k.axis, k.epsilon, k.stash_type, out[0], out[1]);
        case 8:
            return npu_rope_add_rms_norm(in[0], in[1], in[2], k.axis, k.epsilon, k.stash_type, out[0], out[1]);
        case 9:
            return npu_rope_rms_norm_rope(in[0], in[1], in[2], in[3], in[4], in[5], p, k.epsilon, rounds, k.angle,
                                          out[0], out[1]);
        case 10:
            return npu_rope_rms_norm_rope_set_rows(in[0], in[1], in[2], in[3], in[4], in[5], in[6], p, k.epsilon,
                                                   rounds, k.angle, out[0], out[1]);
        case 11: {
            npu_rope_qkv_inputs inputs;
            static_assert(sizeof inputs == sizeof k.inputs);
            std::memcpy(&inputs, in, sizeof inputs);
            const npu_rope_qkv_outputs outputs = {out[0], out[1], out[2]};
            return npu_rope_qkv_norm_rope_cache(&inputs, p, k.epsilon, k.scale_offset, k.ranks, k.angle, &outputs);
        }
        case 12:
            return npu_rope_qk_square_sums(in[0], in[1], out[0]);
        default:
            return npu_rope_rms_norm_rounded_last(in[0], in[1], k.axis, k.epsilon, k.scale_offset, out[0]);
    }
}

void require_error(const Call& call, npu_rope_status status) {
    REQUIRE(call, status == NPU_ROPE_OK || status == NPU_ROPE_INVALID_VALUE || status == NPU_ROPE_INVALID_TYPE);
    if (status == NPU_ROPE_OK) return;
    const std::string text = npu_rope_last_error();
    const size_t must = text.find(" must "), got = text.find(" but got ", must == std::string::npos ? 0 : must);
    REQUIRE(call, text[0] == '[' && must != std::string::npos && got != std::string::npos && text.back() == '.');
    REQUIRE(call, npu_rope_last_error_parts().status == status);
}

bool shares_memory(const Tensor& a, const Tensor& owner) {
    const char* data = static_cast<const char*>(a.view.data);
    return a.given && a.allocated && data >= owner.memory && data < owner.memory + owner.bytes;
}

void require_written(const Call& call, bool accepted) {
    for (const auto* tensors : {&call.inputs, &call.outputs})
        for (const Tensor& t : *tensors) {
            if (!t.memory) continue;
            bool may_change = false;
            for (const Tensor& out : call.outputs) may_change |= accepted && shares_memory(out, t);
            REQUIRE(call, may_change || std::memcmp(t.memory, t.before.data(), t.bytes) == 0);
        }
}

npu_rope_status check(Call* call, npu_rope_known known, const char* chip = nullptr) {
    call->check.known = known;
    const npu_rope_status status = chip ? npu_rope_check_on_chip(&call->check, chip) : npu_rope_check(&call->check);
    require_error(*call, status);
    return status;
}

void judge(Choices* c, Call* call) {
    bool is_runnable = true, is_endless = false, has_outputs = true;
    for (auto* tensors : {&call->inputs, &call->outputs})
        for (Tensor& t : *tensors) {
            is_runnable = is_runnable && (!t.given || !t.is_valid || t.allocated);
            is_endless = is_endless || t.endless;
            if (t.memory) t.before.assign(t.memory, t.memory + t.bytes);
        }
    npu_rope_call& k = call->check;
    k.op = call->op->name;
    k.params = call->has_params ? &call->params : nullptr;
    for (size_t i = 0; i < call->inputs.size(); ++i) k.inputs[i] = pointer(call->inputs[i]);
    for (size_t i = 0; i < call->outputs.size(); ++i) {
        k.outputs[i] = pointer(call->outputs[i]);
        has_outputs = has_outputs && k.outputs[i];
    }
    const npu_rope_status by_layout = check(call, NPU_ROPE_KNOWN_LAYOUT);
    const npu_rope_status by_address = check(call, NPU_ROPE_KNOWN_ADDRESSES);
    REQUIRE(*call, by_address != NPU_ROPE_OK || by_layout == NPU_ROPE_OK);
    const char* chip = c->one_of({"Ascend910B3", "Ascend310P3", "Ascend950PR_9589", "Ascend910B2C"});
    const npu_rope_status on_chip = check(call, NPU_ROPE_KNOWN_LAYOUT, chip);
    REQUIRE(*call, on_chip != NPU_ROPE_OK || by_layout == NPU_ROPE_OK);
    check(call, NPU_ROPE_KNOWN_ADDRESSES, chip);
    if (!is_runnable) return;
    const npu_rope_status by_value = check(call, NPU_ROPE_KNOWN_VALUES);
    REQUIRE(*call, by_value != NPU_ROPE_OK || by_address == NPU_ROPE_OK);
    const std::string message = npu_rope_last_error();
    require_written(*call, false);
    if (is_endless && by_value == NPU_ROPE_OK) return;
    const npu_rope_status status = run(call);
    require_error(*call, status);
    if (has_outputs) REQUIRE(*call, status == by_value && (status == NPU_ROPE_OK || message == npu_rope_last_error()));
    require_written(*call, status == NPU_ROPE_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
    Choices c(bytes, count);
    Call call;
    call.op = &kOperators[c.up_to(sizeof kOperators / sizeof *kOperators - 1)];
    const char* isas[] = {"baseline", "avx2", "avx512", "avx512_bf16", "neon"};
    npu_rope_force_isa(nullptr);
    npu_rope_force_isa(isas[c.up_to(4)]);  // has no effect if the machine lacks it
    const int64_t broken_attributes = c.chance(3) ? 1 + c.up_to(2) : 0,
                  broken_tensors = c.chance(2) ? 1 + c.up_to(2) : 0;
    make_valid(&c, &call);
    for (int64_t k = 0; k < broken_attributes; ++k) break_attribute(&c, &call);
    for (int64_t k = 0; k < broken_tensors; ++k) break_tensor(&c, &call);
    for (auto* tensors : {&call.inputs, &call.outputs})
        for (Tensor& t : *tensors) allocate(&c, &call, &t);
    for (auto* tensors : {&call.inputs, &call.outputs})
        for (Tensor& t : *tensors) fill(&c, call, &t);
    judge(&c, &call);
    return 0;
}
