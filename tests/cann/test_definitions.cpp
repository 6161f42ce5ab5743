// Tests of the definitions: their registrations and their use of CANN's contexts. For thousands of random calls their
// tilings must equal those of the functions in op_host/*_tiling.h, byte for byte.
#include "op_host/rope_tiling.h"
#include "tests/cann/definitions.h"

using namespace npu_rope;

namespace {

// One call; `out` also has the expected shapes and types of the results.
struct Case {
    const char* type = "NpuRope";
    const char* chip = "Ascend910B1";
    npu_rope_tensor x[2] = {}, out[2] = {}, positions = {}, rows = {}, factors = {};
    bool has_factors = false, forward = true, pass_strides = true;
    npu_rope_params params = {};
    int sides() const { return std::strcmp(type, "NpuRopeQk") == 0 ? 2 : 1; }
    bool scatters() const { return std::strcmp(type, "NpuRopeSetRows") == 0; }
};

RopeTensors tensors_of(const Case& c) {
    const npu_rope_tensor* factors = c.has_factors ? &c.factors : nullptr;
    RopeTensors t = c.scatters()     ? rope_set_rows_tensors(&c.x[0], &c.positions, &c.rows, factors, &c.out[0])
                    : c.sides() == 2 ? rope_qk_tensors(&c.x[0], &c.x[1], &c.positions, factors, &c.out[0], &c.out[1])
                                     : rope_tensors(&c.x[0], &c.positions, factors, &c.out[0]);
    t.known = Known::kLayout;  // tiling sees no addresses or values
    return t;
}

void fill_node(const Case& c, Node* node) {
    node->type = c.type;
    node->platform.profile = ascend_sim::find_profile(c.chip);
    std::vector<int64_t> strides;
    auto add_with_strides = [&](Parameters* to, const npu_rope_tensor& t) {
        add_tensor(to, t);
        strides.insert(strides.end(), t.stride, t.stride + t.ndim);
    };
    for (int k = 0; k < c.sides(); ++k) add_with_strides(&node->inputs, c.x[k]);
    add_with_strides(&node->inputs, c.positions);
    if (c.scatters()) add_with_strides(&node->inputs, c.rows);
    c.has_factors ? add_tensor(&node->inputs, c.factors) : add_none(&node->inputs);
    if (c.scatters()) add_with_strides(&node->inputs, c.out[0]);  // the cache is an input and the output
    for (int k = 0; k < c.sides(); ++k)
        c.scatters() ? add_tensor(&node->outputs, c.out[k]) : add_with_strides(&node->outputs, c.out[k]);

    const npu_rope_params& p = c.params;
    for (int32_t i : {p.n_dims, p.mode, p.n_ctx_orig}) node->add_attr(int64_t{i});
    for (double d : {p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow})
        node->add_attr(static_cast<float>(d));
    int64_t sections[4] = {p.sections[0], p.sections[1], p.sections[2], p.sections[3]};
    node->add_attr_list(sections, 4);
    node->add_attr(c.forward);
    node->add_attr(int64_t{p.n_offs});
    add_strides(node, strides, c.pass_strides);
}

Case plain(const char* type = "NpuRope") {
    Case c;
    c.type = type;
    c.x[0] = c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 3, 4, 64});
    c.x[1] = c.out[1] = tensor(NPU_ROPE_FLOAT16, {2, 3, 2, 64});
    if (c.scatters()) c.out[0] = tensor(NPU_ROPE_FLOAT16, {9, 4, 64});
    c.positions = tensor(NPU_ROPE_INT32, {3});
    c.rows = tensor(NPU_ROPE_INT64, {2, 3});
    c.factors = tensor(NPU_ROPE_FLOAT32, {32});
    c.params = {64, NPU_ROPE_MODE_NEOX, 0, 0, 10000, 1, 0, 1, 32, 1, {}};
    return c;
}

// The definition's message about a refused call, or "".
std::string refusal(const Case& c, const std::function<void(Node*)>& change = nullptr) {
    Node node;
    fill_node(c, &node);
    if (change) change(&node);
    return tiling_error(&node, c.type);
}

// ---- random calls ----------------------------------------------------------------------------------

Case draw(Random* r) {
    Case c = plain(r->one_of({"NpuRope", "NpuRopeQk", "NpuRopeSetRows"}));
    c.chip = r->one_of({"Ascend910B1", "Ascend910B4", "Ascend910_9392", "Ascend950PR_9589", "Ascend310P3"});
    bool is_310p = std::strcmp(c.chip, "Ascend310P3") == 0;
    int32_t dtype = is_310p ? r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16})
                            : r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16});
    int64_t B = r->in(1, 3), S = r->chance(10) ? r->in(100, 5000) : r->in(1, 40),
            D = 2 * r->in(1, r->chance(20) ? 512 : 64);
    bool batched = r->chance(70);
    if (!batched) B = 1;
    for (int k = 0; k < 2; ++k) {
        int64_t N = r->in(1, 12);
        c.x[k] = c.out[k] = batched ? tensor(dtype, {B, S, N, D}) : tensor(dtype, {S, N, D});
    }
    if (c.scatters()) {
        int32_t narrow = is_310p ? NPU_ROPE_FLOAT16 : r->one_of({NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16});
        c.out[0] = tensor(dtype == NPU_ROPE_FLOAT32 && r->chance(40) ? narrow : dtype,
                          {B * S + r->in(0, 5), c.x[0].shape[batched + 1], D});
    }
    c.params.mode = r->one_of({0, 2, 8, 24, 40});
    bool vision = c.params.mode == NPU_ROPE_MODE_VISION, sectioned = c.params.mode >= 8;
    if (vision && D % 4 != 0) c.params.mode = 8, vision = false;
    c.params.n_dims = static_cast<int32_t>(vision ? D / 2 : 2 * r->in(1, D / 2));
    c.params.n_offs = static_cast<int32_t>(vision || r->chance(60) ? 0 : 2 * r->in(0, (D - c.params.n_dims) / 2));
    c.params.freq_base = static_cast<float>(r->one_of({10000.0, 500000.0, 1e6}));
    c.params.freq_scale = static_cast<float>(r->one_of({1.0, 0.25, 0.1}));
    if (r->chance(30)) c.params.ext_factor = 1, c.params.n_ctx_orig = 4096;
    c.params.attn_factor = static_cast<float>(r->one_of({1.0, 1.2}));
    if (sectioned)
        for (int32_t& s : c.params.sections) s = static_cast<int32_t>(r->in(0, std::max<int64_t>(1, D / 8)));
    if (sectioned && c.params.sections[0] == 0) c.params.sections[0] = 1;
    int32_t index_dtype = r->one_of({NPU_ROPE_INT32, NPU_ROPE_INT64});
    bool by_batch = batched && r->chance(50);
    if (!sectioned)
        c.positions = by_batch ? tensor(index_dtype, {B, S}) : tensor(index_dtype, {S});
    else
        c.positions = by_batch ? tensor(index_dtype, {r->in(3, 4), B, S}) : tensor(index_dtype, {r->in(3, 4), S});
    c.rows = batched ? tensor(NPU_ROPE_INT64, {B, S}) : tensor(NPU_ROPE_INT64, {S});
    c.has_factors = r->chance(30);
    c.factors = tensor(NPU_ROPE_FLOAT32, {D});
    c.forward = r->chance(70);
    c.pass_strides = r->chance(75);
    if (!c.pass_strides) return c;
    for (npu_rope_tensor* t : {&c.x[0], &c.x[1], &c.out[0], &c.out[1], &c.positions, &c.rows}) set_random_strides(r, t);
    return c;
}

void test_tilings_equal_those_of_the_op_host_functions() {
    g_test = __func__;
    Random r(2026);
    int accepted = 0, refused = 0;
    for (int i = 0; i < 4000 && g_failures < 5; ++i) {
        Case c = draw(&r);
        RopeTensors t = tensors_of(c);
        RopeTilingInput in;
        RopeTilingData data;
        KernelLaunch launch;
        Check expected = check_rope(t, &c.params, NPU_ROPE_ANGLE_EXACT, &in.shape);
        in.op = t.op;
        in.x_name = t.x_name[0];
        in.dtype = c.x[0].dtype;
        in.out_dtype = c.out[0].dtype;
        in.positions_int64 = c.positions.dtype == NPU_ROPE_INT64;
        in.has_factors = c.has_factors;
        in.scatters = c.scatters();
        in.rows_int64 = in.scatters;
        in.forward = c.forward;
        in.params = c.params;
        if (expected.ok()) expected = rope_tiling(in, platform_of(c.chip), &data, &launch);

        Node node;
        fill_node(c, &node);
        std::string message = tiling_error(&node, c.type);
        check_text(message, expected.message());
        if (!expected.ok()) {
            ++refused;
            continue;
        }
        ++accepted;
        check_tiling(node, c.chip, data, launch);
    }
    std::printf("%d tilings compared, %d refused with the same message\n", accepted, refused);
    CHECK(accepted > 2500);
}

// ---- registrations, results and refusals -------------------------------------------------------------

void test_each_operator_registers_all_its_functions() {
    g_test = __func__;
    for (const char* type : {"NpuRope", "NpuRopeQk", "NpuRopeSetRows"}) {
        const simulated_cann::OpFunctions& f = simulated_cann::find_functions(type);
        CHECK(f.tiling && f.infer_shape && f.infer_data_type);
        CHECK((DefReader::socs(type) ==
               std::vector<std::string>{"ascend310p", "ascend910_93", "ascend910b", "ascend950"}));
    }
}

// A kernel reads its tiling data through an address, which a kernel for static shapes does not get.
void test_kernels_are_compiled_for_dynamic_shapes() {
    g_test = __func__;
    for (const std::string& type : DefReader::op_types())
        for (const std::string& soc : DefReader::socs(type)) {
            OpRecord def;
            CHECK(DefReader::read(type, soc, &def));
            int flags = 0;
            for (const auto& [key, value] : def.items)
                if (key == "dynamicCompileStatic.flag") flags += value == "false";
            CHECK(flags == 1);
        }
}

void test_outputs_have_the_shapes_and_types_of_their_inputs() {
    g_test = __func__;
    for (const char* type : {"NpuRope", "NpuRopeQk", "NpuRopeSetRows"})
        for (bool has_factors : {false, true}) {  // without freq_factors, later inputs have another index
            Case c = plain(type);
            c.has_factors = has_factors;
            if (c.scatters()) c.out[0].dtype = NPU_ROPE_BFLOAT16;
            Node node;
            fill_node(c, &node);
            clear_shapes_and_types(&node.outputs);
            CHECK(node.infer_shape(simulated_cann::find_functions(type).infer_shape) == ge::GRAPH_SUCCESS);
            CHECK(node.infer_data_type(simulated_cann::find_functions(type).infer_data_type) == ge::GRAPH_SUCCESS);
            CHECK(static_cast<int>(node.outputs.size()) == c.sides());
            for (int k = 0; k < c.sides(); ++k) {
                const gert::Shape& shape = node.output(static_cast<size_t>(k))->value.GetOriginShape();
                CHECK(shape.GetDimNum() == static_cast<size_t>(c.out[k].ndim));
                for (int d = 0; d < c.out[k].ndim; ++d)
                    CHECK(shape.GetDim(static_cast<size_t>(d)) == c.out[k].shape[d]);
                CHECK(node.output(static_cast<size_t>(k))->desc.GetDataType() == ge_type(c.out[k].dtype));
            }
        }
}

void test_views_are_tiled_by_their_origin_shape() {
    g_test = __func__;
    Case c = plain();
    std::string message = refusal(c, [](Node* node) {
        for (Node::Parameter* p : {&node->inputs[0], &node->outputs[0]})
            p->front().value.MutableStorageShape() = {1536};
    });
    check_text(message, "");
}

void test_refusals_have_the_operators_messages() {
    g_test = __func__;
    Case c = plain();
    check_text(refusal(c), "");
    c.params.n_dims = 7;
    check_text(refusal(c), "[rope] n_dims must be a positive even number but got 7.");
    c = plain();
    c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 3, 4, 32});
    check_text(refusal(c), "[rope] out must have x's shape [2, 3, 4, 64] but got [2, 3, 4, 32].");
    c = plain();
    c.x[0].stride[3] = 2;
    check_text(refusal(c), "[rope] x must have unit stride in its last dimension but got 2.");
    c = plain();
    c.out[0].stride[1] = 0;
    check_text(refusal(c), "[rope] out must not overlap itself but got strides [768, 0, 64, 1].");
    c = plain();
    c.x[0].dtype = c.out[0].dtype = NPU_ROPE_FLOAT64;
    check_text(refusal(c), "[rope] x must be float32, float16 or bfloat16 on Ascend910B but got float64.");
    c = plain("NpuRopeQk");
    c.chip = "Ascend310P3";
    for (npu_rope_tensor* t : {&c.x[0], &c.x[1], &c.out[0], &c.out[1]}) t->dtype = NPU_ROPE_BFLOAT16;
    check_text(refusal(c), "[rope_qk] q must be float32 or float16 on Ascend310P but got bfloat16.");
    c = plain("NpuRopeSetRows");
    c.out[0] = tensor(NPU_ROPE_FLOAT16, {9, 3, 64});
    check_text(refusal(c), "[rope_set_rows] cache must have shape [R,N,D] = [R, 4, 64] but got [9, 3, 64].");
    c = plain();
    c.x[0] = c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 0, 4, 64});
    c.positions = tensor(NPU_ROPE_INT32, {0});
    check_text(refusal(c), "[rope] x must have elements on an NPU but got shape [2, 0, 4, 64].");
}

void test_invalid_attributes_are_refused() {
    g_test = __func__;
    Case c = plain();
    const size_t n_dims = 0, n_ctx_orig = 2, sections = 9, strides = 12;
    auto integer = [](size_t at, int64_t value) {
        return [=](Node* node) { std::memcpy(node->attrs[at].data(), &value, sizeof value); };
    };
    check_text(refusal(c, integer(n_dims, int64_t{1} << 40)),
               "[rope] n_dims must be in the int32 range but got 1099511627776.");
    check_text(refusal(c, integer(n_ctx_orig, int64_t{1} << 32)),
               "[rope] n_ctx_orig must be in the int32 range but got 4294967296.");
    auto list = [](size_t at, std::vector<int64_t> values) {
        return [=](Node* node) {
            node->add_attr_list(values.data(), values.size());
            std::swap(node->attrs[at], node->attrs.back());
            node->attrs.pop_back();
        };
    };
    check_text(refusal(c, list(sections, {1, 2, 3})), "[rope] sections must be four integers >= 0 but got 3 integers.");
    check_text(refusal(c, list(sections, {0, 0, -(int64_t{1} << 40), 0})),
               "[rope] sections must be in the int32 range but got -1099511627776.");
    check_text(refusal(c, list(sections, {})), "");
    check_text(
        refusal(c, list(strides, {768, 256, 64, 1})),
        "[rope] strides must be empty, [0] or the strides of all 9 dimensions of the tensors but got 4 numbers.");
    check_text(refusal(c, [](Node* node) { node->attrs.resize(7); }),
               "[rope] beta_fast must be an attribute of the node but got none.");
}

void test_too_little_room_for_the_tiling_data_is_an_error() {
    g_test = __func__;
    std::string message = refusal(plain(), [](Node* node) { node->tiling.Init(2048, node->tiling_bytes.data()); });
    check_text(message, formatted("[rope] the capacity of CANN's tiling data must be at least %zu bytes but got 2048.",
                                  sizeof(RopeTilingData)));
}

void test_an_soc_without_kernels_is_refused() {
    g_test = __func__;
    Case c = plain();
    check_text(refusal(c,
                       [](Node* node) {
                           static ascend_sim::Profile other = *node->platform.profile;
                           other.arch = 100;  // of Ascend910, which has no vector cores
                           node->platform.profile = &other;
                       }),
               "[rope] soc must be Ascend910B, Ascend910_93, Ascend950 or Ascend310P but got another.");
}

}  // namespace

int main() {
    void (*tests[])() = {test_tilings_equal_those_of_the_op_host_functions,
                         test_each_operator_registers_all_its_functions,
                         test_kernels_are_compiled_for_dynamic_shapes,
                         test_outputs_have_the_shapes_and_types_of_their_inputs,
                         test_views_are_tiled_by_their_origin_shape,
                         test_refusals_have_the_operators_messages,
                         test_invalid_attributes_are_refused,
                         test_too_little_room_for_the_tiling_data_is_an_error,
                         test_an_soc_without_kernels_is_refused};
    for (void (*test)() : tests) test();
    size_t count = sizeof tests / sizeof *tests + test_table_definitions() + test_norm_definitions();
    std::printf("%zu tests, %d failure(s)\n", count, g_failures);
    return g_failures != 0;
}
