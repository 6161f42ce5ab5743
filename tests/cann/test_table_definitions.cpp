// Tests of the definitions of NpuRotaryMul and NpuRotaryMulQk, like those of rope in test_definitions.cpp.
#include "op_host/rotary_tiling.h"
#include "tests/cann/definitions.h"

namespace npu_rope {
namespace {

// One call.
struct Case {
    const char* chip = "Ascend910B1";
    int sides = 1;
    npu_rope_tensor x[2] = {}, out[2] = {}, cos = {}, sin = {}, ids = {};
    bool has_ids = false, forward = true, pass_strides = true;
    RotaryAttributes attributes = {};
    const char* type() const { return sides == 2 ? "NpuRotaryMulQk" : "NpuRotaryMul"; }
};

RotaryTensors tensors_of(const Case& c) {
    RotaryTensors t = c.sides == 2 ? rotary_mul_qk_tensors(&c.x[0], &c.x[1], &c.cos, &c.sin, &c.out[0], &c.out[1])
                                   : rotary_mul_tensors(&c.x[0], &c.cos, &c.sin, &c.out[0]);
    if (c.has_ids) t.position_ids = &c.ids;
    t.known = Known::kLayout;
    return t;
}

void fill_node(const Case& c, Node* node) {
    node->type = c.type();
    node->platform.profile = ascend_sim::find_profile(c.chip);
    std::vector<int64_t> strides;
    auto view = [&](Parameters* to, const npu_rope_tensor& t) {
        add_tensor(to, t);
        strides.insert(strides.end(), t.stride, t.stride + t.ndim);
    };
    for (int k = 0; k < c.sides; ++k) view(&node->inputs, c.x[k]);
    view(&node->inputs, c.cos);
    view(&node->inputs, c.sin);
    if (c.has_ids)
        view(&node->inputs, c.ids);
    else if (c.sides == 1)
        add_none(&node->inputs);
    for (int k = 0; k < c.sides; ++k) view(&node->outputs, c.out[k]);
    node->add_attr(c.attributes.interleaved);
    node->add_attr(c.attributes.rotary_dim);
    node->add_attr(c.attributes.offset);
    node->add_attr(c.forward);
    add_strides(node, strides, c.pass_strides);
}

std::string refusal(const Case& c, const std::function<void(Node*)>& change = nullptr) {
    Node node;
    fill_node(c, &node);
    if (change) change(&node);
    return tiling_error(&node, c.type());
}

Case plain(int sides = 1) {
    Case c;
    c.sides = sides;
    c.x[0] = c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 3, 4, 64});
    c.x[1] = c.out[1] = tensor(NPU_ROPE_FLOAT16, {2, 3, 2, 64});
    c.cos = c.sin = tensor(NPU_ROPE_FLOAT16, {3, 64});
    c.ids = tensor(NPU_ROPE_INT64, {2, 3});
    return c;
}

Case draw(Random* r) {
    Case c = plain(r->chance(40) ? 2 : 1);
    c.chip = r->one_of({"Ascend910B1", "Ascend910B4", "Ascend910_9392", "Ascend950PR_9589", "Ascend310P3"});
    bool is_310p = std::strcmp(c.chip, "Ascend310P3") == 0, batched = r->chance(70);
    int32_t dtype = is_310p ? r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16})
                            : r->one_of({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16});
    int64_t B = batched ? r->in(1, 3) : 1, S = r->chance(10) ? r->in(100, 5000) : r->in(1, 40);
    int64_t D = 2 * r->in(1, r->chance(20) ? 515 : 64);  // sometimes more than a kernel supports
    for (int k = 0; k < 2; ++k) {
        int64_t N = r->in(1, 12);
        c.x[k] = c.out[k] = batched ? tensor(dtype, {B, S, N, D}) : tensor(dtype, {S, N, D});
    }
    int64_t width = r->chance(50) ? D : 2 * r->in(1, D / 2), entries = r->chance(50) ? width : width / 2;
    c.attributes.rotary_dim = width == D && r->chance(50) ? 0 : width;
    c.attributes.offset = r->chance(50) ? 0 : 2 * r->in(0, (D - width) / 2);
    if (r->chance(3)) c.attributes.offset += 1;  // refused
    c.attributes.interleaved = r->chance(50);
    c.has_ids = c.sides == 1 && r->chance(30);
    int32_t table = r->chance(50) ? dtype : int32_t{NPU_ROPE_FLOAT32};
    if (c.has_ids)
        c.cos = tensor(table, {r->in(1, 90), entries});
    else if (batched && r->chance(50))
        c.cos =
            r->chance(50) ? tensor(table, {B, S, entries}) : tensor(table, {r->one_of<int64_t>({1, B}), S, 1, entries});
    else
        c.cos = batched || r->chance(50) ? tensor(table, {S, entries}) : tensor(table, {S, 1, entries});
    c.sin = c.cos;
    c.ids = tensor(NPU_ROPE_INT64, {B, S});
    c.forward = r->chance(70);
    c.pass_strides = r->chance(75);
    if (!c.pass_strides) return c;
    for (npu_rope_tensor* t : {&c.x[0], &c.x[1], &c.out[0], &c.out[1], &c.cos, &c.sin, &c.ids})
        set_random_strides(r, t);
    return c;
}

void tilings_equal_those_of_the_op_host_functions() {
    g_test = __func__;
    Random r(2027);
    int accepted = 0, refused = 0, with_ids = 0;
    for (int i = 0; i < 3000 && g_failures < 5; ++i) {
        Case c = draw(&r);
        RotaryTensors t = tensors_of(c);
        RotaryShape shape;
        RotaryTilingData data;
        KernelLaunch launch;
        Check expected = check_rotary(t, c.attributes, &shape);
        if (expected.ok())
            expected = rotary_tiling(rotary_tiling_input(t, c.attributes, shape, c.forward), platform_of(c.chip), &data,
                                     &launch);
        Node node;
        fill_node(c, &node);
        check_text(tiling_error(&node, c.type()), expected.message());
        if (!expected.ok()) {
            ++refused;
            continue;
        }
        ++accepted;
        with_ids += c.has_ids;
        check_tiling(node, c.chip, data, launch);
    }
    std::printf("%d tilings of given tables compared, %d with position_ids, %d refused with the same message\n",
                accepted, with_ids, refused);
    CHECK(accepted > 2000 && with_ids > 300 && refused > 20);
}

void each_operator_registers_functions_that_infer_its_results() {
    g_test = __func__;
    for (int sides : {1, 2}) {
        Case c = plain(sides);
        const simulated_cann::OpFunctions& f = simulated_cann::find_functions(c.type());
        CHECK(f.tiling && f.infer_shape && f.infer_data_type);
        CHECK((DefReader::socs(c.type()) ==
               std::vector<std::string>{"ascend310p", "ascend910_93", "ascend910b", "ascend950"}));
        Node node;
        fill_node(c, &node);
        clear_shapes_and_types(&node.outputs);
        CHECK(node.infer_shape(f.infer_shape) == ge::GRAPH_SUCCESS);
        CHECK(node.infer_data_type(f.infer_data_type) == ge::GRAPH_SUCCESS);
        CHECK(static_cast<int>(node.outputs.size()) == sides);
        for (int k = 0; k < sides; ++k) {
            const Node::Tensor& output = *node.output(static_cast<size_t>(k));
            CHECK(output.value.GetOriginShape().GetDim(2) == c.out[k].shape[2]);
            CHECK(output.desc.GetDataType() == ge::DT_FLOAT16);
        }
    }
}

void refusals_have_the_operators_messages() {
    g_test = __func__;
    Case c = plain();
    check_text(refusal(c), "");
    c.cos = c.sin = tensor(NPU_ROPE_FLOAT16, {3, 48});
    check_text(
        refusal(c),
        "[rotary_mul] cos must have shape [S,W], [B,S,W] or [B,S,1,W] with S = 3, B = 2 or 1 and W = 32 or 64 but "
        "got [3, 48].");
    c.has_ids = true;
    check_text(
        refusal(c),
        "[rotary_mul] cos must have shape [rows, W] with W = 32 or 64 where position_ids is given but got [3, 48].");
    c.cos = c.sin = tensor(NPU_ROPE_FLOAT16, {0, 64});
    check_text(refusal(c), "[rotary_mul] cos must have a row where position_ids is given but got [0, 64].");
    c = plain(2);
    c.out[1].stride[1] = 0;
    check_text(refusal(c), "[rotary_mul_qk] k_out must not overlap itself but got strides [384, 0, 64, 1].");
    c = plain();
    c.x[0] = c.out[0] = tensor(NPU_ROPE_FLOAT16, {2, 3, 0, 64});
    check_text(refusal(c), "[rotary_mul] x must have elements on an NPU but got shape [2, 3, 0, 64].");
    c = plain();
    c.attributes.rotary_dim = 7;
    check_text(refusal(c), "[rotary_mul] rotary_dim must be 0 or an even number up to the head size 64 but got 7.");
    c = plain();
    check_text(refusal(c, [](Node* node) { node->attrs.resize(3); }),
               "[rotary_mul] forward must be an attribute of the node but got none.");
}

}  // namespace

size_t test_table_definitions() {
    void (*tests[])() = {tilings_equal_those_of_the_op_host_functions,
                         each_operator_registers_functions_that_infer_its_results,
                         refusals_have_the_operators_messages};
    for (void (*test)() : tests) test();
    return sizeof tests / sizeof *tests;
}

}  // namespace npu_rope
