// Tests of the definitions of NpuRmsNorm, NpuAddRmsNorm and NpuRmsNormRope, like those of rope in test_definitions.cpp.
#include "op_host/rms_norm_rope_tiling.h"
#include "op_host/rms_norm_tiling.h"
#include "tests/cann/definitions.h"

namespace npu_rope {
namespace {

// Adds tensors to a node, and collects their strides in the definition's order.
class Views {
public:
    void add(Parameters* to, const npu_rope_tensor& t) {
        add_tensor(to, t);
        strides_.insert(strides_.end(), t.stride, t.stride + t.ndim);
    }
    void add_strides_to(Node* node, bool passed) { add_strides(node, strides_, passed); }

private:
    std::vector<int64_t> strides_;
};

const char* random_chip(Random* r) {
    return r->one_of({"Ascend910B1", "Ascend910B4", "Ascend910_9392", "Ascend950PR_9589", "Ascend310P3"});
}

int32_t random_type(Random* r, const char* chip) {
    if (std::strcmp(chip, "Ascend310P3") == 0) return r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16});
    return r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16});
}

// ---- rms_norm and add_rms_norm ------------------------------------------------------------------------

struct NormCase {
    const char* chip = "Ascend910B1";
    bool adds = false, pass_strides = true;
    npu_rope_tensor x = {}, residual = {}, scale = {}, out = {}, sum = {};
    RmsNormAttributes attributes = {-1, 1e-5f, 1};
    const char* type() const { return adds ? "NpuAddRmsNorm" : "NpuRmsNorm"; }
};

void fill_node(const NormCase& c, Node* node) {
    node->type = c.type();
    node->platform.profile = ascend_sim::find_profile(c.chip);
    Views views;
    views.add(&node->inputs, c.x);
    if (c.adds) views.add(&node->inputs, c.residual);
    views.add(&node->inputs, c.scale);
    views.add(&node->outputs, c.out);
    if (c.adds) views.add(&node->outputs, c.sum);
    node->add_attr(c.attributes.axis);
    node->add_attr(static_cast<float>(c.attributes.epsilon));
    node->add_attr(c.attributes.stash_type);
    views.add_strides_to(node, c.pass_strides);
}

Check check_of(const NormCase& c, RmsNormTilingInput* in) {
    RmsNormTensors t = c.adds ? add_rms_norm_tensors(&c.x, &c.residual, &c.scale, &c.out, &c.sum)
                              : rms_norm_tensors(&c.x, &c.scale, &c.out);
    t.known = Known::kLayout;
    RmsNormShape shape;
    const Check check = check_rms_norm(t, c.attributes, &shape);
    *in = rms_norm_tiling_input(t, shape);
    return check;
}

NormCase plain(bool adds = false) {
    NormCase c;
    c.adds = adds;
    c.x = c.residual = c.sum = tensor(NPU_ROPE_FLOAT16, {2, 3, 64});
    c.out = tensor(NPU_ROPE_FLOAT32, {2, 3, 64});
    c.scale = tensor(NPU_ROPE_FLOAT32, {64});
    return c;
}

NormCase draw_norm(Random* r) {
    NormCase c;
    c.adds = r->chance(40);
    c.chip = random_chip(r);
    const int32_t type = random_type(r, c.chip), scale_type = random_type(r, c.chip);
    std::vector<int64_t> shape;
    for (int64_t k = r->in(1, 4); k-- > 0;)
        shape.push_back(r->chance(8) ? r->in(1000, 40000) : r->chance(30) ? r->in(10, 300) : r->in(1, 8));
    const auto ndim = static_cast<int64_t>(shape.size());
    c.attributes.axis = r->in(-ndim, ndim - 1);
    if (r->chance(3)) c.attributes.axis = ndim;  // refused
    c.attributes.epsilon = r->one_of({0.0f, 1e-6f, 1e-5f, 0.5f});
    c.attributes.stash_type = r->one_of<int64_t>({1, 1, 1, 10, 16, 11});
    std::vector<int64_t> scale_shape = shape;
    for (int64_t& size : scale_shape)
        if (r->chance(30)) size = 1;
    scale_shape.erase(scale_shape.begin(), scale_shape.begin() + r->in(0, ndim - 1));
    if (r->chance(50)) scale_shape.assign(shape.end() - std::min<int64_t>(ndim, r->in(1, ndim)), shape.end());
    c.x = c.residual = c.sum = tensor(type, shape);
    c.out = tensor(scale_type, shape);
    c.scale = tensor(scale_type, scale_shape);
    c.pass_strides = r->chance(75);
    if (c.pass_strides)
        for (npu_rope_tensor* t : {&c.x, &c.residual, &c.scale, &c.out, &c.sum})
            if (r->chance(60)) set_random_strides(r, t);
    return c;
}

void tilings_of_norms_equal_those_of_the_op_host_functions() {
    g_test = __func__;
    Random r(2028);
    int accepted = 0, refused = 0, in_chunks = 0;
    for (int i = 0; i < 4000 && g_failures < 5; ++i) {
        const NormCase c = draw_norm(&r);
        RmsNormTilingInput in;
        RmsNormTilingData data;
        KernelLaunch launch;
        const Platform chip = platform_of(c.chip);
        Check expected = check_of(c, &in);
        if (expected.ok()) expected = check_rms_norm_on_chip(in, chip);
        if (expected.ok()) expected = rms_norm_tiling(in, chip, &data, &launch);
        Node node;
        fill_node(c, &node);
        check_text(tiling_error(&node, c.type()), expected.message());
        if (!expected.ok()) {
            ++refused;
            continue;
        }
        ++accepted;
        in_chunks += launch.tiling_key == kRmsNormLong;
        check_tiling(node, c.chip, data, launch);
    }
    std::printf("%d tilings of norms compared, %d in chunks, %d refused with the same message\n", accepted, in_chunks,
                refused);
    CHECK(accepted > 1500 && in_chunks > 50 && refused > 300);
}

// CANN's deterministic mode gives rms_norm_backward other tiling keys and a workspace, if several cores work.
void backward_is_tiled_for_the_deterministic_mode_of_cann() {
    g_test = __func__;
    for (const char* chip : {"Ascend910B1", "Ascend310P3", "Ascend950PR_9589"})
        for (int64_t n : {8, 1000, 40000})
            for (bool deterministic : {false, true}) {
                const int64_t rows = n == 8 ? 2 : 100;
                const npu_rope_tensor x = tensor(NPU_ROPE_FLOAT16, {rows, n}), scale = tensor(NPU_ROPE_FLOAT16, {n}),
                                      dscale = tensor(NPU_ROPE_FLOAT32, {n});
                Node node;
                node.type = "NpuRmsNormBackward";
                node.platform.profile = ascend_sim::find_profile(chip);
                node.deterministic = deterministic;
                Views views;
                for (const npu_rope_tensor& t : {x, x, scale, dscale}) views.add(&node.inputs, t);
                for (const npu_rope_tensor& t : {x, dscale}) views.add(&node.outputs, t);
                node.add_attr(int64_t(-1));
                node.add_attr(1e-5f);
                node.add_attr(int64_t(1));
                views.add_strides_to(&node, false);
                check_text(tiling_error(&node, "NpuRmsNormBackward"), "");
                RmsNormTensors t = rms_norm_backward_tensors(&x, &x, &scale, &x, &dscale, true);
                t.known = Known::kLayout;
                RmsNormShape shape;
                CHECK(check_rms_norm(t, {-1, 1e-5f, 1}, &shape).ok());
                RmsNormTilingInput in = rms_norm_tiling_input(t, shape);
                in.deterministic = deterministic;
                RmsNormTilingData data;
                KernelLaunch launch;
                CHECK(rms_norm_tiling(in, platform_of(chip), &data, &launch).ok());
                check_tiling(node, chip, data, launch);
                const bool ordered = deterministic && n > 8;
                const int64_t pitch = n == 1000 ? 1024 : 40064, cores = launch.block_dim;
                CHECK(ordered == launch.cores_wait && (n == 8) == (cores == 1));
                CHECK(launch.workspace_bytes == (ordered ? cores * (4 * pitch + 32) : 0));
                const int32_t key = n == 40000 ? kRmsNormLong : kRmsNormRows;
                CHECK(int32_t(launch.tiling_key) == (ordered ? key + 2 : key));
            }
}

// ---- rms_norm_rope ----------------------------------------------------------------------------------

struct FusedCase {
    const char* chip = "Ascend910B1";
    npu_rope_tensor x[2] = {}, scale[2] = {}, out[2] = {}, positions = {}, rows = {}, factors = {};
    bool has_cache = false, has_factors = false, forward = true, pass_strides = true;
    npu_rope_params params = {};
    HeadNormAttributes norm = {1e-5f, false};
};

RmsNormRopeTensors tensors_of(const FusedCase& c) {
    const npu_rope_tensor* factors = c.has_factors ? &c.factors : nullptr;
    RmsNormRopeTensors t = c.has_cache
                               ? rms_norm_rope_set_rows_tensors(&c.x[0], &c.x[1], &c.scale[0], &c.scale[1],
                                                                &c.positions, &c.rows, factors, &c.out[0], &c.out[1])
                               : rms_norm_rope_tensors(&c.x[0], &c.x[1], &c.scale[0], &c.scale[1], &c.positions,
                                                       factors, &c.out[0], &c.out[1]);
    t.rope.known = Known::kLayout;
    return t;
}

void fill_node(const FusedCase& c, Node* node) {
    node->type = "NpuRmsNormRope";
    node->platform.profile = ascend_sim::find_profile(c.chip);
    Views views;
    views.add(&node->inputs, c.x[0]);
    views.add(&node->inputs, c.x[1]);
    for (const npu_rope_tensor& scale : c.scale) add_tensor(&node->inputs, scale);
    views.add(&node->inputs, c.positions);
    if (c.has_cache)
        views.add(&node->inputs, c.rows);
    else
        add_none(&node->inputs);
    c.has_factors ? add_tensor(&node->inputs, c.factors) : add_none(&node->inputs);
    if (c.has_cache)
        views.add(&node->inputs, c.out[1]);
    else
        add_none(&node->inputs);
    views.add(&node->outputs, c.out[0]);
    views.add(&node->outputs, c.out[1]);
    const npu_rope_params& p = c.params;
    for (int64_t v : {p.n_dims, p.mode, p.n_ctx_orig}) node->add_attr(v);
    for (double v : {p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow})
        node->add_attr(static_cast<float>(v));
    const int64_t sections[] = {p.sections[0], p.sections[1], p.sections[2], p.sections[3]};
    node->add_attr_list(sections, 4);
    node->add_attr(c.forward);
    node->add_attr(int64_t{p.n_offs});
    views.add_strides_to(node, c.pass_strides);
    node->add_attr(static_cast<float>(c.norm.epsilon));
    node->add_attr(c.norm.intermediate_rounding);
}

FusedCase plain_fused() {
    FusedCase c;
    c.x[0] = c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 3, 4, 64});
    c.x[1] = c.out[1] = tensor(NPU_ROPE_FLOAT16, {2, 3, 2, 64});
    c.scale[0] = c.scale[1] = tensor(NPU_ROPE_FLOAT16, {64});
    c.positions = tensor(NPU_ROPE_INT32, {3});
    c.rows = tensor(NPU_ROPE_INT64, {2, 3});
    c.factors = tensor(NPU_ROPE_FLOAT32, {32});
    c.params = {64, NPU_ROPE_MODE_NEOX, 0, 0, 10000.0f, 1, 0, 1, 32, 1, {}};
    return c;
}

FusedCase draw_fused(Random* r) {
    FusedCase c = plain_fused();
    c.chip = random_chip(r);
    const int32_t type = random_type(r, c.chip);
    const int64_t B = r->in(1, 3), S = r->chance(10) ? r->in(100, 5000) : r->in(1, 40);
    const int64_t D = 2 * r->in(1, r->chance(20) ? 515 : 64);  // sometimes more than a kernel supports
    for (int k = 0; k < 2; ++k) {
        c.x[k] = c.out[k] = tensor(type, {B, S, r->in(1, 12), D});
        c.scale[k] = tensor(type, {r->chance(3) ? D + 1 : D});  // sometimes refused
    }
    c.has_cache = r->chance(40);
    if (c.has_cache) c.out[1] = tensor(type, {B * S + r->in(0, 9), c.x[1].shape[2], D});
    c.positions = r->chance(50) ? tensor(NPU_ROPE_INT32, {S}) : tensor(NPU_ROPE_INT64, {B, S});
    c.rows = tensor(NPU_ROPE_INT64, {B, S});
    c.has_factors = r->chance(20);
    c.factors = tensor(NPU_ROPE_FLOAT32, {D / 2});
    const int64_t width = r->chance(50) ? D : 2 * r->in(1, D / 2);
    c.params.n_dims = static_cast<int32_t>(width);
    c.params.n_offs = static_cast<int32_t>(r->chance(50) ? 0 : 2 * r->in(0, (D - width) / 2));
    c.params.mode = r->one_of<int32_t>({NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX});
    c.norm = {r->one_of({0.0f, 1e-6f, 1e-5f}), r->chance(50)};
    c.pass_strides = r->chance(75);
    if (c.pass_strides)
        for (npu_rope_tensor* t : {&c.x[0], &c.x[1], &c.out[0], &c.out[1], &c.positions, &c.rows})
            set_random_strides(r, t);
    return c;
}

void tilings_of_rms_norm_rope_equal_those_of_the_op_host_functions() {
    g_test = __func__;
    Random r(2029);
    int accepted = 0, refused = 0, with_cache = 0;
    for (int i = 0; i < 3000 && g_failures < 5; ++i) {
        const FusedCase c = draw_fused(&r);
        const RmsNormRopeTensors t = tensors_of(c);
        RopeShape shape;
        RmsNormRopeTilingData data;
        KernelLaunch launch;
        Check expected = check_rms_norm_rope(t, &c.params, c.norm.epsilon, NPU_ROPE_ANGLE_EXACT, &shape);
        if (expected.ok())
            expected = rms_norm_rope_tiling(rms_norm_rope_tiling_input(t, shape, c.params, c.norm), platform_of(c.chip),
                                            &data, &launch);
        Node node;
        fill_node(c, &node);
        check_text(tiling_error(&node, "NpuRmsNormRope"), expected.message());
        if (!expected.ok()) {
            ++refused;
            continue;
        }
        ++accepted;
        with_cache += c.has_cache;
        check_tiling(node, c.chip, data, launch);
    }
    std::printf("%d tilings of rms_norm_rope compared, %d with a cache, %d refused with the same message\n", accepted,
                with_cache, refused);
    CHECK(accepted > 1500 && with_cache > 300 && refused > 50);
}

// ---- registrations, results and refusals -------------------------------------------------------------

void shapes_and_types_of_results_are_inferred() {
    g_test = __func__;
    for (bool adds : {false, true}) {
        const NormCase c = plain(adds);
        const simulated_cann::OpFunctions& f = simulated_cann::find_functions(c.type());
        CHECK((DefReader::socs(c.type()) ==
               std::vector<std::string>{"ascend310p", "ascend910_93", "ascend910b", "ascend950"}));
        Node node;
        fill_node(c, &node);
        clear_shapes_and_types(&node.outputs);
        CHECK(node.infer_shape(f.infer_shape) == ge::GRAPH_SUCCESS);
        CHECK(node.infer_data_type(f.infer_data_type) == ge::GRAPH_SUCCESS);
        CHECK(node.output(0)->value.GetOriginShape().GetDim(1) == 3);
        CHECK(node.output(0)->desc.GetDataType() == ge::DT_FLOAT);
        if (adds) CHECK(node.output(1)->desc.GetDataType() == ge::DT_FLOAT16);
    }
    for (bool has_cache : {false, true}) {
        FusedCase c = plain_fused();
        c.has_cache = has_cache;
        if (has_cache) c.out[1] = tensor(NPU_ROPE_FLOAT16, {9, 2, 64});
        const simulated_cann::OpFunctions& f = simulated_cann::find_functions("NpuRmsNormRope");
        Node node;
        fill_node(c, &node);
        clear_shapes_and_types(&node.outputs);
        CHECK(node.infer_shape(f.infer_shape) == ge::GRAPH_SUCCESS);
        CHECK(node.infer_data_type(f.infer_data_type) == ge::GRAPH_SUCCESS);
        CHECK(node.output(0)->value.GetOriginShape().GetDim(2) == 4);
        CHECK(node.output(1)->value.GetOriginShape().GetDim(0) == (has_cache ? 9 : 2));
        CHECK(node.output(1)->desc.GetDataType() == ge::DT_FLOAT16);
    }
}

void refusals_have_the_operators_messages() {
    g_test = __func__;
    auto refusal = [](const auto& c, const char* type, const std::function<void(Node*)>& change = nullptr) {
        Node node;
        fill_node(c, &node);
        if (change) change(&node);
        return tiling_error(&node, type);
    };
    NormCase c = plain();
    check_text(refusal(c, "NpuRmsNorm"), "");
    c.attributes.stash_type = 11;
    check_text(refusal(c, "NpuRmsNorm"),
               "[rms_norm] stash_type must be 1 (float32), 10 (float16) or 16 (bfloat16) on Ascend910B but got 11 "
               "(float64).");
    c.attributes.stash_type = 16;
    c.chip = "Ascend310P3";
    check_text(refusal(c, "NpuRmsNorm"),
               "[rms_norm] stash_type must be 1 (float32) or 10 (float16) on Ascend310P but got 16 (bfloat16).");
    c = plain();
    c.scale = tensor(NPU_ROPE_FLOAT32, {63});
    check_text(refusal(c, "NpuRmsNorm"),
               "[rms_norm] scale must be broadcastable to x's shape [2, 3, 64] but got [63].");
    c = plain(true);
    c.x = c.residual = c.sum = tensor(NPU_ROPE_FLOAT16, {0, 64});
    c.out = tensor(NPU_ROPE_FLOAT32, {0, 64});
    check_text(refusal(c, "NpuAddRmsNorm"), "[add_rms_norm] x must have elements on an NPU but got shape [0, 64].");
    FusedCase f = plain_fused();
    check_text(refusal(f, "NpuRmsNormRope"), "");
    f.forward = false;
    check_text(refusal(f, "NpuRmsNormRope"), "[rms_norm_rope] forward must be true but got false.");
    f = plain_fused();
    check_text(
        refusal(f, "NpuRmsNormRope", [](Node* node) { node->inputs[5] = {Node::make_tensor(ge::DT_INT64, {2, 3})}; }),
        "[rms_norm_rope] cache must be given with rows but got one of the two.");
    check_text(refusal(f, "NpuRmsNormRope", [](Node* node) { node->attrs.resize(13); }),
               "[rms_norm_rope] epsilon must be an attribute of the node but got none.");
}

}  // namespace

size_t test_norm_definitions() {
    void (*tests[])() = {tilings_of_norms_equal_those_of_the_op_host_functions,
                         backward_is_tiled_for_the_deterministic_mode_of_cann,
                         tilings_of_rms_norm_rope_equal_those_of_the_op_host_functions,
                         shapes_and_types_of_results_are_inferred, refusals_have_the_operators_messages};
    for (void (*test)() : tests) test();
    return sizeof tests / sizeof *tests;
}

}  // namespace npu_rope
