// Fuzz the adapter for ggml's CANN backend (integrations/ggml_cann). The bytes make nodes that the adapter supports and
// then break some of their fields. The tensors have addresses that cannot be read, because the adapter reads no data.
//
// This file takes the place of ggml (ggml.h, ggml-impl.h), of CANN (aclnn/acl_meta.h) and of the operators: it records
// what the adapter passes to them, and lets some of their functions fail.
//
// Properties of every call:
// - The status is one of the documented ones, the reason fits its buffer, and all objects of CANN are destroyed.
// - npu_rope_ggml_compute() launches a node exactly if npu_rope_ggml_supports() accepts it and nothing fails.
// - The tensors of a launch lie in the memory of the node's tensors. npu_rope_check_on_chip() accepts the call, unless
//   tensors share memory or are not aligned: npu_rope_ggml_supports() cannot know this, because ggml calls it before it
//   allocates tensors.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "aclnn_npu_add_rms_norm.h"
#include "aclnn_npu_rms_norm.h"
#include "aclnn_npu_rms_norm_rope.h"
#include "aclnn_npu_rope.h"
#include "aclnn_npu_rope_set_rows.h"
#include "ggml_tensor.h"
#include "include/npu_rope.h"
#include "npu_rope_ggml.h"
#include "tests/fuzz/coverage/choices.h"

struct ggml_cgraph {
    std::vector<ggml_tensor*> nodes;
    bool can_fuse;
};

struct aclTensor {
    npu_rope_tensor view;
};

struct aclIntArray {
    std::vector<int64_t> values;
};

namespace {

constexpr int kF32 = 0, kF16 = 1, kI32 = 26, kI64 = 27, kBf16 = 30;  // numbers of ggml_type
const char* const kOps[] = {"NONE", "ROPE", "ROPE_BACK", "RMS_NORM", "MUL", "ADD", "VIEW", "RESHAPE", "SET_ROWS"};
enum Op { kNone, kRope, kRopeBack, kRmsNorm, kMul, kAdd, kView, kReshape, kSetRows };
constexpr int64_t kOneBytes = 32;         // of npu_rope_ggml_target::one
constexpr int kInvalidArgument = 161002;  // ACLNN_ERR_PARAM_INVALID (aclnn/opdev/op_errno.h)

int64_t item_bytes(int type) { return type == kI64 ? 8 : type == kF16 || type == kBf16 ? 2 : 4; }

// The nodes of a call, and what the adapter does with them.
struct Case {
    explicit Case(Choices* choices) : c(*choices) {}
    Choices& c;
    std::vector<std::unique_ptr<ggml_tensor>> tensors;
    ggml_cgraph graph;
    bool has_bfloat16 = true, may_fail = false, failed = false;
    uintptr_t next_address = uintptr_t{1} << 40;
    std::set<const void*> alive;  // objects of CANN
    int first_phases = 0, launches = 0;
    uint64_t workspace = 0;

    bool fails() {
        const bool fails = may_fail && c.chance(4);
        failed = failed || fails;
        return fails;
    }
};

Case* current;

[[noreturn]] void fail(const std::string& property) {
    std::fprintf(stderr, "broken: %s\n", property.c_str());
    for (const ggml_tensor* node : current->graph.nodes) {
        std::fprintf(stderr, " %s\n", node->op >= 0 && node->op <= kSetRows ? kOps[node->op] : "?");
        for (const ggml_tensor* t :
             {static_cast<const ggml_tensor*>(node), static_cast<const ggml_tensor*>(node->src[0]),
              static_cast<const ggml_tensor*>(node->src[1]), static_cast<const ggml_tensor*>(node->src[2])})
            if (t)
                std::fprintf(stderr, "  type %d at %p: %lld*%zu %lld*%zu %lld*%zu %lld*%zu\n", t->type, t->data,
                             static_cast<long long>(t->ne[0]), t->nb[0], static_cast<long long>(t->ne[1]), t->nb[1],
                             static_cast<long long>(t->ne[2]), t->nb[2], static_cast<long long>(t->ne[3]), t->nb[3]);
        for (int32_t p : node->op_params) std::fprintf(stderr, " %d", p);
        std::fprintf(stderr, "\n");
    }
    std::abort();
}

void require(bool holds, const char* property) {
    if (!holds) fail(property);
}

// ---- what a launch passes to an operator ---------------------------------------------------------------

// The first byte of a view and the byte after the last one.
struct Extent {
    __int128 first, end;
    bool contains(const Extent& other) const { return other.first >= first && other.end <= end; }
};

Extent extent_of(const npu_rope_tensor& t) {
    const __int128 item = t.dtype == NPU_ROPE_INT64                                  ? 8
                          : t.dtype == NPU_ROPE_FLOAT32 || t.dtype == NPU_ROPE_INT32 ? 4
                                                                                     : 2;
    __int128 first = reinterpret_cast<uintptr_t>(t.data), end = first + item;
    for (int k = 0; k < t.ndim; ++k) {
        const __int128 reach = (static_cast<__int128>(t.shape[k]) - 1) * t.stride[k] * item;
        (reach < 0 ? first : end) += reach;
    }
    return {first, end};
}

Extent extent_of(const ggml_tensor& t) {
    const __int128 first = reinterpret_cast<uintptr_t>(t.data);
    __int128 end = first + item_bytes(t.type);
    for (int d = 0; d < 4; ++d) end += (static_cast<__int128>(t.ne[d]) - 1) * static_cast<__int128>(t.nb[d]);
    return {first, end};
}

const float kOne[kOneBytes / sizeof(float)] = {1};

using Tensors = std::vector<const aclTensor*>;

// Checks the call of a first phase, and returns its status.
int first_phase(const char* op, const Tensors& inputs, const Tensors& outputs, const npu_rope_params* params,
                double epsilon, uint64_t* workspace, aclOpExecutor** executor) {
    ++current->first_phases;
    npu_rope_call call{};
    call.op = op;
    call.known = NPU_ROPE_KNOWN_ADDRESSES;
    call.params = params;
    call.epsilon = epsilon;
    call.axis = -1;
    call.stash_type = 1;
    for (size_t k = 0; k < inputs.size(); ++k) call.inputs[k] = inputs[k] ? &inputs[k]->view : nullptr;
    for (size_t k = 0; k < outputs.size(); ++k) call.outputs[k] = &outputs[k]->view;
    const char* chip = current->has_bfloat16 ? "Ascend910B3" : "Ascend310P3";
    if (npu_rope_check_on_chip(&call, chip) != NPU_ROPE_OK) {
        const std::string error = npu_rope_last_error();
        if (error.find("memory") == std::string::npos && error.find("address") == std::string::npos)
            fail("the operator accepts what the adapter accepts: " + error);
        current->failed = true;
        return kInvalidArgument;
    }
    for (const Tensors* tensors : {&inputs, &outputs})
        for (const aclTensor* t : *tensors) {
            if (!t || t->view.data == kOne) continue;
            const Extent extent = extent_of(t->view);
            const bool lies_inside = std::any_of(current->tensors.begin(), current->tensors.end(),
                                                 [&](const auto& given) { return extent_of(*given).contains(extent); });
            require(lies_inside, "a tensor of a launch lies in the memory of a node's tensor");
        }
    if (current->fails()) return kInvalidArgument;
    *workspace = current->workspace = current->c.one_of<uint64_t>({0, 512});
    *executor = reinterpret_cast<aclOpExecutor*>(current);
    return ACL_SUCCESS;
}

int second_phase(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) {
    require(reinterpret_cast<Case*>(executor) == current && stream == current, "a launch uses its executor and stream");
    require(bytes == current->workspace && (workspace != nullptr) == (bytes > 0), "a launch has its workspace");
    if (current->fails()) return 507899;  // ACL_ERROR_RT_INTERNAL_ERROR
    ++current->launches;
    return ACL_SUCCESS;
}

void* allocate(void* context, uint64_t bytes) {
    require(context == current && bytes == current->workspace, "a workspace has the size of the first phase");
    return current->fails() ? nullptr : current;
}

#define PARAMS                                                                                                     \
    int64_t n_dims, int64_t mode, int64_t n_ctx_orig, double freq_base, double freq_scale, double ext_factor,      \
        double attn_factor, double beta_fast, double beta_slow, const aclIntArray *sections, bool, int64_t n_offs, \
        const aclIntArray *
#define PARAMS_GIVEN                                                                                          \
    params_of(n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, \
              sections, n_offs)

npu_rope_params params_of(int64_t n_dims, int64_t mode, int64_t n_ctx_orig, double freq_base, double freq_scale,
                          double ext_factor, double attn_factor, double beta_fast, double beta_slow,
                          const aclIntArray* sections, int64_t n_offs) {
    npu_rope_params p = npu_rope_default_params(static_cast<int32_t>(n_dims), static_cast<npu_rope_mode>(mode));
    p.n_ctx_orig = static_cast<int32_t>(n_ctx_orig), p.n_offs = static_cast<int32_t>(n_offs);
    p.freq_base = static_cast<float>(freq_base), p.freq_scale = static_cast<float>(freq_scale);
    p.ext_factor = static_cast<float>(ext_factor), p.attn_factor = static_cast<float>(attn_factor);
    p.beta_fast = static_cast<float>(beta_fast), p.beta_slow = static_cast<float>(beta_slow);
    require(sections->values.size() == 4, "sections are four numbers");
    std::transform(sections->values.begin(), sections->values.end(), p.sections,
                   [](int64_t section) { return static_cast<int32_t>(section); });
    return p;
}

}  // namespace

// ---- CANN ----------------------------------------------------------------------------------------------

extern "C" {

aclTensor* aclCreateTensor(const int64_t* shape, uint64_t dims, aclDataType type, const int64_t* strides,
                           int64_t offset, aclFormat format, const int64_t*, uint64_t, void* data) {
    require(dims <= NPU_ROPE_MAX_NDIM && offset == 0 && format == ACL_FORMAT_ND, "a tensor is a plain view");
    if (current->fails()) return nullptr;
    auto* tensor = new aclTensor{};
    npu_rope_tensor& view = tensor->view;
    view.data = data;
    view.ndim = static_cast<int32_t>(dims);
    view.dtype = type == ACL_FLOAT     ? NPU_ROPE_FLOAT32
                 : type == ACL_FLOAT16 ? NPU_ROPE_FLOAT16
                 : type == ACL_BF16    ? NPU_ROPE_BFLOAT16
                 : type == ACL_INT64   ? NPU_ROPE_INT64
                                       : NPU_ROPE_INT32;
    std::copy_n(shape, dims, view.shape);
    std::copy_n(strides, dims, view.stride);
    current->alive.insert(tensor);
    return tensor;
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
    require(!tensor || current->alive.erase(tensor) == 1, "a tensor is destroyed once");
    delete tensor;
    return ACL_SUCCESS;
}

aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
    if (current->fails()) return nullptr;
    auto* array = new aclIntArray{{values, values + count}};
    current->alive.insert(array);
    return array;
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
    require(!array || current->alive.erase(array) == 1, "an array is destroyed once");
    delete array;
    return ACL_SUCCESS;
}

const char* aclGetRecentErrMsg() { return current->c.chance(2) ? nullptr : "a message of CANN"; }

aclnnStatus aclnnNpuRopeGetWorkspaceSize(const aclTensor* x, const aclTensor* positions, const aclTensor* factors,
                                         PARAMS, const aclTensor* out, uint64_t* workspace, aclOpExecutor** executor) {
    const npu_rope_params params = PARAMS_GIVEN;
    return first_phase("rope", {x, positions, factors}, {out}, &params, 0, workspace, executor);
}
aclnnStatus aclnnNpuRopeSetRowsGetWorkspaceSize(const aclTensor* x, const aclTensor* positions, const aclTensor* rows,
                                                const aclTensor* factors, aclTensor* cache, PARAMS, uint64_t* workspace,
                                                aclOpExecutor** executor) {
    const npu_rope_params params = PARAMS_GIVEN;
    return first_phase("rope_set_rows", {x, positions, rows, factors}, {cache}, &params, 0, workspace, executor);
}
aclnnStatus aclnnNpuRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* scale, int64_t, double epsilon,
                                            int64_t, const aclIntArray*, const aclTensor* out, uint64_t* workspace,
                                            aclOpExecutor** executor) {
    return first_phase("rms_norm", {x, scale}, {out}, nullptr, epsilon, workspace, executor);
}
aclnnStatus aclnnNpuAddRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* residual, const aclTensor* scale,
                                               int64_t, double epsilon, int64_t, const aclIntArray*,
                                               const aclTensor* out, const aclTensor* sum, uint64_t* workspace,
                                               aclOpExecutor** executor) {
    return first_phase("add_rms_norm", {x, residual, scale}, {out, sum}, nullptr, epsilon, workspace, executor);
}
aclnnStatus aclnnNpuRmsNormRopeGetWorkspaceSize(const aclTensor* q, const aclTensor* k, const aclTensor* q_scale,
                                                const aclTensor* k_scale, const aclTensor* positions, const aclTensor*,
                                                const aclTensor* factors, const aclTensor*, PARAMS, double epsilon,
                                                bool, const aclTensor* q_out, const aclTensor* k_out,
                                                uint64_t* workspace, aclOpExecutor** executor) {
    const npu_rope_params params = PARAMS_GIVEN;
    return first_phase("rms_norm_rope", {q, k, q_scale, k_scale, positions, factors}, {q_out, k_out}, &params, epsilon,
                       workspace, executor);
}

#define SECOND_PHASE(name)                                                                           \
    aclnnStatus name(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) { \
        return second_phase(workspace, bytes, executor, stream);                                     \
    }
SECOND_PHASE(aclnnNpuRope)
SECOND_PHASE(aclnnNpuRopeSetRows)
SECOND_PHASE(aclnnNpuRmsNorm)
SECOND_PHASE(aclnnNpuAddRmsNorm)
SECOND_PHASE(aclnnNpuRmsNormRope)

// ---- ggml ----------------------------------------------------------------------------------------------

const char* ggml_op_name(int op) { return op >= 0 && op <= kSetRows ? kOps[op] : nullptr; }
int ggml_graph_n_nodes(ggml_cgraph* graph) { return static_cast<int>(graph->nodes.size()); }
ggml_tensor* ggml_graph_node(ggml_cgraph* graph, int index) {
    require(index >= 0 && index < ggml_graph_n_nodes(graph), "the graph has the node");
    return graph->nodes[static_cast<size_t>(index)];
}
bool ggml_can_fuse_subgraph_ext(const ggml_cgraph* graph, const int* indices, int count, const int*, const int* outputs,
                                int num_outputs) {
    for (int k = 0; k < count; ++k)
        require(indices[k] < static_cast<int>(graph->nodes.size()), "the graph has the nodes");
    for (int k = 0; k < num_outputs; ++k) require(outputs[k] <= indices[count - 1], "the form has the outputs");
    return graph->can_fuse;
}

}  // extern "C"

namespace {

// ---- nodes that the adapter supports -------------------------------------------------------------------

void place(Case* k, ggml_tensor* t) {
    t->data = reinterpret_cast<void*>(k->next_address);
    const Extent extent = extent_of(*t);
    k->next_address += static_cast<uintptr_t>(extent.end - extent.first) + 64;
}

ggml_tensor* make_tensor(Case* k, int type, std::initializer_list<int64_t> sizes, bool dense) {
    k->tensors.push_back(std::make_unique<ggml_tensor>());
    ggml_tensor* t = k->tensors.back().get();
    t->type = type;
    std::fill_n(t->ne, 4, 1);
    std::copy(sizes.begin(), sizes.end(), t->ne);
    const auto item = static_cast<size_t>(item_bytes(type));
    int order[4] = {0, 1, 2, 3};
    if (!dense && k->c.chance(4)) std::swap(order[1], order[2]);  // as ggml_permute
    size_t next = item;
    for (int d : order) {
        t->nb[d] = next;
        if (!dense && d > 0 && k->c.chance(8)) t->nb[d] += item * static_cast<size_t>(k->c.up_to(9));
        next = t->nb[d] * static_cast<size_t>(t->ne[d]);
    }
    place(k, t);
    return t;
}

// A result of x's shape: in place, or in memory of its own.
ggml_tensor* make_result(Case* k, const ggml_tensor& x, Op op) {
    ggml_tensor* t = make_tensor(k, x.type, {x.ne[0], x.ne[1], x.ne[2], x.ne[3]}, !k->c.chance(4));
    t->op = op;
    if (k->c.chance(4)) {
        std::copy_n(x.nb, 4, t->nb);
        t->data = x.data;
    }
    k->graph.nodes.push_back(t);
    return t;
}

struct Sizes {
    int64_t D, N, S, B;
};

void set_float(ggml_tensor* t, int index, double value) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(t->op_params + index, &narrow, sizeof narrow);
}

ggml_tensor* make_rope(Case* k, ggml_tensor* x, const Sizes& s) {
    Choices& c = k->c;
    ggml_tensor* rope = make_result(k, *x, c.chance(4) ? kRopeBack : kRope);
    const int32_t mode = c.one_of(
        {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_MROPE, NPU_ROPE_MODE_IMROPE, NPU_ROPE_MODE_VISION});
    const bool vision = mode == NPU_ROPE_MODE_VISION;
    int32_t* p = rope->op_params;
    p[1] = static_cast<int32_t>(vision ? s.D / 2 : s.D / 2 * 2), p[2] = mode, p[4] = 4096;
    if (!vision && s.D > 1 && c.chance(3)) {
        p[1] = static_cast<int32_t>(2 + 2 * c.up_to(s.D / 2 - 1));
        p[15] = static_cast<int32_t>(2 * c.up_to((s.D - p[1]) / 2));
    }
    const double floats[] = {10000, 1, c.chance(3) ? 1.0 : 0.0, 1, 32, 1};
    for (int i = 0; i < 6; ++i) set_float(rope, 5 + i, floats[i]);
    for (int i = 0; i < 4; ++i) p[11 + i] = static_cast<int32_t>(s.D > 8 ? 1 + c.up_to(3) : i == 0);
    rope->src[0] = x;
    rope->src[1] = make_tensor(k, kI32, {s.S * ((mode & NPU_ROPE_MODE_MROPE) ? 4 : 1)}, true);
    if (c.chance(3)) rope->src[2] = make_tensor(k, kF32, {s.D / 2 + c.up_to(3)}, true);
    return rope;
}

ggml_tensor* make_norm(Case* k, ggml_tensor* x) {
    ggml_tensor* norm = make_result(k, *x, kRmsNorm);
    norm->src[0] = x;
    set_float(norm, 0, 1e-6);
    return norm;
}

ggml_tensor* make_mul(Case* k, ggml_tensor* norm, const Sizes& s, bool one_row) {
    ggml_tensor* mul = make_result(k, *norm, kMul);
    ggml_tensor* weight = make_tensor(k, kF32, {s.D, one_row || k->c.chance(2) ? 1 : s.N}, true);
    const bool first = k->c.chance(4);
    mul->src[first] = norm, mul->src[!first] = weight;
    return mul;
}

void make_rope_set_rows(Case* k, ggml_tensor* x, const Sizes& s) {
    ggml_tensor* rope = make_rope(k, x, s);
    ggml_tensor* view = make_tensor(k, x->type, {s.D * s.N, s.S * s.B}, true);
    view->op = k->c.chance(2) ? kReshape : kView;
    view->src[0] = rope;
    view->data = rope->data;
    k->graph.nodes.push_back(view);
    const int narrow = k->c.chance(2) ? kF16 : kBf16;
    ggml_tensor* cache = make_tensor(k, x->type == kF32 && k->c.chance(2) ? narrow : x->type,
                                     {s.D * s.N, s.S * s.B + k->c.up_to(4)}, !k->c.chance(3));
    cache->op = kSetRows;
    cache->src[0] = view;
    cache->src[1] = make_tensor(k, kI64, {s.S * s.B}, true);
    k->graph.nodes.push_back(cache);
}

void make_nodes(Case* k) {
    Choices& c = k->c;
    const Sizes s{c.one_of<int64_t>({64, 8, 2, 40, 128, 4 + 4 * c.up_to(70)}), 1 + c.up_to(5), 1 + c.up_to(5),
                  1 + c.up_to(2)};
    const int form = static_cast<int>(c.up_to(6));
    const int type = form == 0 || form == 5 ? c.one_of({kF32, kF16, kBf16}) : kF32;
    ggml_tensor* x = make_tensor(k, type, {s.D, s.N, s.S, s.B}, !c.chance(2));
    if (form == 0) {
        make_rope(k, x, s);
        return;
    }
    if (form == 5) return make_rope_set_rows(k, x, s);
    if (form >= 3 && form != 6) {
        ggml_tensor* sum = make_result(k, *x, kAdd);
        sum->src[0] = x;
        sum->src[1] = make_tensor(k, kF32, {s.D, s.N, s.S, s.B}, !c.chance(2));
        x = sum;
    }
    ggml_tensor* norm = make_norm(k, x);
    if (form == 1 || form == 3) return;
    ggml_tensor* mul = make_mul(k, norm, s, form == 6);
    if (form == 6) make_rope(k, mul, s);
}

// ---- breaking them -------------------------------------------------------------------------------------

int64_t hostile_number(Choices* c) {
    switch (c->up_to(4)) {
        case 0:
            return c->between(-4, 20);
        case 1:
            return (int64_t{1} << c->up_to(62)) + c->between(-2, 2);
        case 2:
            return -(int64_t{1} << c->up_to(62)) + c->between(-2, 2);
        case 3:
            return c->one_of<int64_t>({INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, INT64_MAX / 4});
        default:
            return static_cast<int64_t>(c->bits(8));
    }
}

void break_tensor(Case* k) {
    Choices& c = k->c;
    const auto pick = [&] {
        return k->tensors[static_cast<size_t>(c.up_to(static_cast<int64_t>(k->tensors.size()) - 1))].get();
    };
    ggml_tensor* t = pick();
    const auto d = static_cast<size_t>(c.up_to(3));
    const auto param = static_cast<size_t>(c.up_to(15));
    switch (c.up_to(8)) {
        case 0:
            t->ne[d] = c.chance(2) ? c.up_to(6) : hostile_number(&c);
            return;
        case 1:
            t->nb[d] = c.chance(2) ? static_cast<size_t>(c.up_to(600)) : static_cast<size_t>(hostile_number(&c));
            return;
        case 2:
            t->type = c.chance(2) ? c.one_of({kF32, kF16, kBf16, kI32, kI64}) : static_cast<int>(hostile_number(&c));
            return;
        case 3:
            t->src[c.up_to(2)] = c.chance(2) ? nullptr : pick();
            return;
        case 4:
            t->op = static_cast<int>(c.chance(8) ? hostile_number(&c) : c.up_to(kSetRows));
            return;
        case 5:
            t->op_params[param] = static_cast<int32_t>(c.chance(2) ? c.up_to(128) : hostile_number(&c));
            return;
        case 6:
            set_float(t, static_cast<int>(param),
                      c.chance(2) ? std::ldexp(1.0, static_cast<int>(c.between(-149, 127)))
                                  : c.one_of({0.0, -1.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-45, 3e38}));
            return;
        case 7:
            t->data = static_cast<char*>(pick()->data) + c.up_to(64);
            return;
        default:
            k->graph.nodes[static_cast<size_t>(c.up_to(static_cast<int64_t>(k->graph.nodes.size()) - 1))] = pick();
    }
}

// ---- a call --------------------------------------------------------------------------------------------

// A reason's buffer of exactly its size, or NULL.
struct Why {
    explicit Why(Choices* c) : bytes(static_cast<size_t>(c->one_of<int64_t>({200, 0, 1, 20}))) {
        if (bytes) text = std::make_unique<char[]>(bytes);
        std::fill_n(text.get(), bytes, '?');
    }
    void require_end() const {
        require(!bytes || std::find(text.get(), text.get() + bytes, '\0') != text.get() + bytes, "a reason has an end");
    }
    size_t bytes;
    std::unique_ptr<char[]> text;
};

void run(Case* k) {
    Choices& c = k->c;
    k->has_bfloat16 = !c.chance(3);
    k->graph.can_fuse = !c.chance(8);
    make_nodes(k);
    for (int64_t breaks = c.up_to(3); breaks > 0; --breaks) break_tensor(k);
    k->may_fail = c.chance(4);
    const npu_rope_ggml_target target{k->has_bfloat16, k, kOne, allocate, k};
    Why why(&c);
    const auto require_end_of_call = [&](bool launched) {
        why.require_end();
        require(k->alive.empty(), "all objects of CANN are destroyed");
        require(k->launches == launched && k->first_phases <= 1,
                "a call launches at most once, and its status says so");
        k->launches = k->first_phases = 0;
        k->failed = false;
    };
    for (const ggml_tensor* node : k->graph.nodes) {
        const int supports = npu_rope_ggml_supports(node, k->has_bfloat16, why.text.get(), why.bytes);
        require(supports == NPU_ROPE_GGML_OK || supports == NPU_ROPE_GGML_UNSUPPORTED, "a node is supported or not");
        require_end_of_call(false);
        const bool is_empty = std::any_of(node->ne, node->ne + 4, [](int64_t size) { return size == 0; });
        const int status = npu_rope_ggml_compute(node, &target, why.text.get(), why.bytes);
        require(status == (k->failed ? int{NPU_ROPE_GGML_FAILED} : supports), "a supported node is launched or fails");
        require_end_of_call(status == NPU_ROPE_GGML_OK && !is_empty);
    }
    const int nodes = static_cast<int>(k->graph.nodes.size());
    for (int index = 0; index < nodes; ++index) {
        const int count = npu_rope_ggml_compute_fused(&k->graph, index, &target, why.text.get(), why.bytes);
        require(k->failed ? count == -1 : count >= 0 && count != 1 && index + count <= nodes, "a form has its nodes");
        require_end_of_call(count > 0);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
    Choices c(bytes, count);
    Case k(&c);
    current = &k;
    run(&k);
    return 0;
}
