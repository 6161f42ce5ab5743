"""rope as a torch operator: opcheck, compile, gradients, tracing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from rope_cases import assert_within, values_of
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from npu_rope import RopeParams, backends, rope, rope_, rope_qk, rope_set_rows
from npu_rope.errors import InvalidType, InvalidValue

OPS = torch.ops.npu_rope
PARAMS = RopeParams(16, "neox", n_offs=4)
ATTRIBUTES = {"n_dims": 16, "rope_mode": 2, "n_offs": 4}
YARN = {
    "n_dims": 24,
    "rope_mode": 0,
    "n_ctx_orig": 4096,
    "freq_scale": 0.25,
    "ext_factor": 1.0,
    "attn_factor": 1.1,
    "sections": [0, 0, 0, 0],
    "forward": False,
    "angle": 1,
}


def x_of(shape=(2, 5, 3, 24), dtype=torch.float32, grad=False):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def samples(grad):
    """Yield (x, positions, freq_factors, attributes)."""
    factors = torch.linspace(1, 4, 12)
    yield x_of(grad=grad), torch.arange(5), None, ATTRIBUTES
    yield x_of(grad=grad), torch.arange(10, dtype=torch.int32).reshape(2, 5), factors, YARN
    yield x_of((5, 3, 24), torch.bfloat16, grad), torch.arange(5), factors, ATTRIBUTES
    transposed = x_of((2, 5, 3, 24), torch.float16).transpose(0, 1).requires_grad_(grad)
    yield transposed, torch.arange(2), None, ATTRIBUTES
    yield x_of((2, 0, 3, 24), torch.float64, grad), torch.arange(0), None, ATTRIBUTES


SAMPLES = range(len(list(samples(False))))


# ---- opcheck -------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", SAMPLES)
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck_rope(which, grad):
    x, positions, factors, attributes = list(samples(grad))[which]
    torch.library.opcheck(OPS.rope.default, (x, positions, factors), attributes)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("which", SAMPLES)
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck_rope_in_place(which, grad):
    x, positions, factors, attributes = list(samples(grad))[which]
    if grad:
        x = x.clone()  # a leaf that needs a gradient may not be written
        x.retain_grad()
    torch.library.opcheck(OPS.rope_.default, (x, positions, factors), attributes)


@pytest.mark.parametrize("which", SAMPLES)
def test_opcheck_rope_out(which):
    x, positions, factors, attributes = list(samples(False))[which]
    attributes = {**attributes, "out": torch.empty_like(x)}
    torch.library.opcheck(OPS.rope_out.default, (x, positions, factors), attributes)


@pytest.mark.parametrize("which", SAMPLES)
def test_opcheck_rope_packed(which):
    x, positions, factors, _ = list(samples(False))[which]
    packed = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    torch.library.opcheck(OPS.rope_packed_out.default, (torch.empty_like(x), x, positions, packed, factors))
    torch.library.opcheck(OPS.rope_packed_.default, (x.clone(), positions, packed))


def test_rope_packed_rotates_in_place_and_into_given_memory():
    x, positions, factors, _ = next(iter(samples(False)))
    packed = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    out, in_place = torch.empty_like(x), x.clone()
    OPS.rope_packed_out.default(out, x, positions, packed, factors)
    assert torch.equal(out, OPS.rope_packed.default(x, positions, packed, factors))
    OPS.rope_packed_out.default(in_place, in_place, positions, packed, factors)
    assert torch.equal(out, in_place)
    without_factors = x.clone()
    OPS.rope_packed_.default(without_factors, positions, packed)
    assert torch.equal(without_factors, OPS.rope_packed.default(x, positions, packed))
    assert not torch.equal(without_factors, x)


# ---- torch.compile ---------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    """Return torch.compile without graph breaks, and without code generation, which is not under test."""
    torch._dynamo.reset()
    yield lambda f, **options: torch.compile(f, fullgraph=True, backend="aot_eager", **options)
    torch._dynamo.reset()


def test_compile_gives_the_same_result(compiled):
    x, positions = x_of(), torch.arange(5)
    f = compiled(lambda x, p: rope(x * 2, p, PARAMS) + 1)
    assert torch.equal(f(x, positions), rope(x * 2, positions, PARAMS) + 1)


def test_compile_gives_the_same_gradient(compiled):
    positions = torch.arange(5)
    gradients = []
    for wrap in (compiled, lambda f: f):
        x = x_of(grad=True)
        wrap(lambda x, p: rope(x.sin(), p, PARAMS).square().sum())(x, positions).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("grad", [False, True])
def test_compile_in_place_gives_the_same_result(grad, compiled):
    positions = torch.arange(5)

    def f(x, p):
        y = x * 3
        rope_(y, p, PARAMS)
        return y.sum(-1)

    x = x_of(grad=grad)
    assert torch.equal(compiled(f)(x, positions), f(x, positions))


def test_compile_in_place_on_an_input_writes_it(compiled):
    def f(x, p):
        return rope_(x, p, PARAMS)

    x, positions = x_of(), torch.arange(5)
    expected = rope(x, positions, PARAMS)
    compiled(f)(x, positions)
    assert torch.equal(x, expected)


def test_compile_with_out_writes_it(compiled):
    x, positions, out = x_of(), torch.arange(5), torch.zeros(2, 5, 3, 24)
    compiled(lambda x, p, o: rope(x, p, PARAMS, out=o))(x, positions, out)
    assert torch.equal(out, rope(x, positions, PARAMS))


@pytest.mark.parametrize("grad", [False, True])
def test_compile_with_dynamic_shapes_compiles_once(grad, compiled):
    count = CompileCounter()
    f = torch.compile(lambda x, p: rope(x, p, PARAMS), fullgraph=True, dynamic=True, backend=count)
    for S in (5, 7, 11):
        x, positions = x_of((2, S, 3, 24), grad=grad), torch.arange(S)
        assert torch.equal(f(x, positions), rope(x, positions, PARAMS))
    assert count.frame_count == 1


def test_compile_follows_a_change_of_params(compiled):
    x, positions = x_of(), torch.arange(5)
    f = compiled(lambda x, p, params: rope(x, p, params))
    for params in (PARAMS, RopeParams(24), RopeParams(16, freq_base=500.0)):
        assert torch.equal(f(x, positions, params), rope(x, positions, params))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_compile_down_to_generated_code():
    torch._dynamo.reset()
    x, positions = x_of(grad=True), torch.arange(5)
    f = torch.compile(lambda x, p: rope(x * 2, p, PARAMS) + 1, fullgraph=True)
    y = f(x, positions)
    assert torch.equal(y, rope(x * 2, positions, PARAMS) + 1)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * rope(torch.ones(y.shape), positions, PARAMS, forward=False))


# ---- gradients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("params", [PARAMS, RopeParams(24, attn_factor=1.5)], ids=repr)
def test_gradcheck_and_gradgradcheck(params, forward):
    x, positions = x_of((2, 3, 2, 24), torch.float64, grad=True), torch.tensor([[0, 1, 900], [-5, 7, 30]])
    factors = torch.linspace(1, 3, 12)

    def f(x):
        return rope(x, positions, params, factors, forward=forward)

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


def test_gradcheck_in_place():
    x, positions = x_of((3, 2, 24), torch.float64, grad=True), torch.arange(3)

    def f(x):
        y = x * 2
        rope_(y, positions, PARAMS)
        return y * y

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


def test_the_gradient_is_the_rotation_by_minus_the_angle():
    x, positions = x_of(grad=True), torch.arange(5) * 1000
    weight = x_of().flip(0)
    (rope(x, positions, PARAMS) * weight).sum().backward()
    assert_within(x.grad, weight.numpy(), positions.numpy(), PARAMS, dtype="float32", forward=False)


def test_in_place_on_a_non_leaf_gives_the_same_gradient():
    positions, gradients = torch.arange(5), []
    for in_place in (True, False):
        x = x_of(grad=True)
        y = x * 2
        y = rope_(y, positions, PARAMS) if in_place else rope(y, positions, PARAMS)
        y.square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_in_place_on_a_view_reaches_its_base():
    """x is a slice of a projection. The write and the gradient reach the whole projection."""
    positions, gradients, results = torch.arange(5), [], []
    for in_place in (True, False):
        x = x_of((5, 9, 24), grad=True)
        qkv = x * 1
        if in_place:
            rope_(qkv[:, 3:6], positions, PARAMS)
        else:
            qkv = torch.cat([qkv[:, :3], rope(qkv[:, 3:6], positions, PARAMS), qkv[:, 6:]], 1)
        (qkv * torch.arange(24)).sum().backward()
        gradients.append(x.grad)
        results.append(qkv.detach())
    assert torch.equal(*results)
    assert torch.equal(*gradients)


def test_in_place_on_a_saved_result_is_detected():
    x = x_of(grad=True)
    y = x.exp()  # exp keeps its result for the gradient
    rope_(y, torch.arange(5), PARAMS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("direct", [False, True])
def test_in_place_on_a_leaf_raises_torchs_own_error(direct):
    x = x_of(grad=True)
    before = x.detach().clone()
    run = (lambda p: OPS.rope_(x, p, **ATTRIBUTES)) if direct else (lambda p: rope_(x, p, PARAMS))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        run(torch.arange(5))
    assert torch.equal(x, before)


def test_in_place_on_a_view_of_a_leaf_raises_torchs_own_error():
    x = x_of(grad=True)
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        rope_(x[:, :, 1:], torch.arange(5), PARAMS)
    assert torch.equal(x, before)


def test_out_is_refused_if_a_gradient_is_needed():
    x = x_of(grad=True)
    with pytest.raises(ValueError, match="out must be None or x itself where a gradient is needed"):
        rope(x, torch.arange(5), PARAMS, out=torch.empty(x.shape))


def test_16_bit_gradients_have_the_dtype_of_x():
    for dtype in (torch.float16, torch.bfloat16):
        x = x_of(dtype=dtype, grad=True)
        rope(x, torch.arange(5), PARAMS).sum().backward()
        assert x.grad.dtype == dtype


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_give_the_same_results(mode):
    x, positions = x_of(grad=True), torch.arange(5)
    expected = rope(x.detach(), positions, PARAMS)
    with mode():
        y = rope(x, positions, PARAMS)
        assert not y.requires_grad
        assert torch.equal(y, expected)
        z = x.clone()
        assert rope_(z, positions, PARAMS) is z
        assert torch.equal(z, expected)
        assert torch.equal(rope(x, positions, PARAMS, out=torch.empty(x.shape)), expected)
    assert y.is_inference() == (mode is torch.inference_mode)


def test_in_place_under_no_grad_on_a_leaf_is_allowed():
    x = x_of(grad=True)
    expected = rope(x.detach(), torch.arange(5), PARAMS)
    with torch.no_grad():
        rope_(x, torch.arange(5), PARAMS)
    assert torch.equal(x.detach(), expected)


@pytest.mark.parametrize("function", ["rope_", "rope(out=)", "ops.rope_", "ops.rope_out"])
def test_a_write_to_a_tensor_saved_for_a_gradient_is_detected(function):
    params, positions = RopeParams(4), torch.arange(2)
    w = torch.ones(1, 2, 1, 4, requires_grad=True)
    saved = w.exp()  # exp keeps its result for the gradient
    with torch.no_grad():
        if function == "rope_":
            rope_(saved, positions, params)
        elif function == "rope(out=)":
            rope(torch.ones(1, 2, 1, 4), positions, params, out=saved)
        elif function == "ops.rope_":
            torch.ops.npu_rope.rope_(saved, positions, n_dims=4, rope_mode=0)
        else:
            torch.ops.npu_rope.rope_out(torch.ones(1, 2, 1, 4), positions, n_dims=4, rope_mode=0, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_out_of_the_operator_is_refused_if_a_gradient_is_needed():
    x = torch.ones(1, 2, 1, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="out must be None or x itself where a gradient is needed"):
        torch.ops.npu_rope.rope_out(x, torch.arange(2), n_dims=4, rope_mode=0, out=torch.empty(1, 2, 1, 4))


# ---- functional transforms -----------------------------------------------------------------------------


def test_func_grad_rotates_by_minus_the_angle():
    x, positions = x_of((3, 2, 24), torch.float64), torch.arange(3)
    gradient = torch.func.grad(lambda x: rope(x, positions, PARAMS).square().sum() / 2)(x)
    back = rope(rope(x, positions, PARAMS), positions, PARAMS, forward=False)
    assert torch.equal(gradient, back)


@pytest.mark.parametrize("op", ["rope", "rope_qk"])
def test_the_gradient_of_torch_func_can_be_differentiated_outside(op):
    """The operator keeps the graph of the levels outside torch.func."""
    positions, x = torch.tensor([3, 500]), x_of((2, 3, 24))
    weight = torch.linspace(-1, 1, 24).requires_grad_()

    def sum_of_cubes(x):
        rotated = x * weight
        ys = rope(rotated, positions, PARAMS) if op == "rope" else sum(rope_qk(rotated, x, positions, PARAMS))
        return ys.pow(3).sum()

    leaf = x.clone().requires_grad_()
    (inner,) = torch.autograd.grad(sum_of_cubes(leaf), leaf, create_graph=True)
    expected = torch.autograd.grad(inner.square().sum(), weight)[0]
    gradient, value = torch.func.grad_and_value(sum_of_cubes)(x)
    penalty = gradient.square().sum()
    torch.testing.assert_close(torch.autograd.grad(penalty, weight, retain_graph=True)[0], expected)
    torch.testing.assert_close(
        torch.autograd.grad(value, weight)[0], torch.autograd.grad(sum_of_cubes(x), weight)[0]
    )


def test_func_vjp_rotates_by_minus_the_angle():
    x, positions = x_of((3, 2, 24)), torch.arange(3)
    y, pullback = torch.func.vjp(lambda x: rope(x, positions, PARAMS), x)
    assert torch.equal(y, rope(x, positions, PARAMS))
    assert torch.equal(pullback(y)[0], rope(y, positions, PARAMS, forward=False))


def test_func_vmap_rotates_each_sample():
    x, positions = x_of((4, 3, 2, 24)), torch.arange(3)
    y = torch.func.vmap(lambda x: rope(x, positions, PARAMS))(x)
    assert torch.equal(y, rope(x, positions, PARAMS))


def test_vmap_of_rope_set_rows_is_refused():
    x, caches, positions = x_of((4, 3, 2, 24)), torch.zeros(4, 3, 2, 24), torch.arange(3)
    with pytest.raises(RuntimeError, match="Batching rule not implemented for npu_rope::rope_set_rows"):
        torch.func.vmap(lambda x, cache: rope_set_rows(x, positions, positions, cache, PARAMS))(x, caches)
    assert not torch.any(caches)


def test_operators_and_compiled_calls_raise_runtime_errors_with_the_same_message():
    x, far = x_of((3, 2, 24)), torch.tensor([0, 2**31, 0])
    messages = []
    for call, kind in (
        (lambda: rope(x, far, PARAMS), ValueError),
        (lambda: torch.ops.npu_rope.rope(x, far, n_dims=8, rope_mode=0), RuntimeError),
        (
            lambda: torch.compile(lambda x: rope(x, far, PARAMS), fullgraph=True, backend="eager")(x),
            RuntimeError,
        ),
    ):
        with pytest.raises(kind) as caught:
            call()
        messages.append(str(caught.value).splitlines()[0])
    assert messages == ["[rope] positions must be in the int32 range but got 2147483648."] * 3


def test_an_operator_on_meta_tensors_raises_errors_with_parts():
    x, positions = torch.ones(3, 2, 24, device="meta"), torch.arange(3, device="meta")
    with pytest.raises(InvalidValue, match=r"^\[rope\] n_dims must be a positive even number but got 63\.$"):
        torch.ops.npu_rope.rope(x, positions, n_dims=63)
    with pytest.raises(InvalidType, match=r"^\[rope\] x must be float32, .* but got int32\.$"):
        torch.ops.npu_rope.rope(x.int(), positions, n_dims=8)


def test_func_grad_of_rope_in_place_rotates_by_minus_the_angle():
    x, positions = x_of((3, 2, 24), torch.float64), torch.arange(3)

    def f(x):
        y = x * 1
        rope_(y, positions, PARAMS)
        return y.square().sum() / 2

    back = rope(rope(x, positions, PARAMS), positions, PARAMS, forward=False)
    assert torch.equal(torch.func.grad(f)(x), back)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_forward_mode_gives_the_rotated_tangent():
    positions = torch.arange(5)
    x, v = x_of().double(), x_of().double().flip(0)
    primal, tangent = torch.func.jvp(lambda x: rope(x, positions, PARAMS), (x,), (v,))
    assert torch.equal(primal, rope(x, positions, PARAMS))
    assert torch.equal(tangent, rope(v, positions, PARAMS))  # the operator is linear
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        _, tangent = torch.autograd.forward_ad.unpack_dual(rope(dual, positions, PARAMS))
        assert torch.equal(tangent, rope(v, positions, PARAMS))


def test_the_hessian_of_the_squared_length_is_twice_the_identity():
    params, positions = RopeParams(4), torch.tensor([3])
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda x: rope(x, positions, params).square().sum(), x)
    expected = 2 * torch.eye(4, dtype=torch.float64).reshape(1, 1, 4, 1, 1, 4)  # a rotation keeps lengths
    assert (hessian - expected).abs().max() < torch.finfo(torch.float64).eps * 8


# ---- tracing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 5, 3, 24), (5, 3, 24)])
def test_a_fake_result_has_the_shape_and_strides_of_the_real_one(shape):
    for dtype in (torch.float32, torch.bfloat16):
        for transposed in (False, True):
            x = x_of(shape, dtype)
            x = x.transpose(-3, -2) if transposed else x
            real = rope(x, torch.arange(x.shape[-3]), PARAMS)
            with FakeTensorMode() as mode:
                fake = rope(mode.from_tensor(x), mode.from_tensor(torch.arange(x.shape[-3])), PARAMS)
            assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_fake_tensors_are_checked_by_the_same_rules():
    with FakeTensorMode():
        x = torch.empty(5, 3, 24)
        with pytest.raises(ValueError, match=r"positions must have shape \[S\] = \[5\] but got \[4\]"):
            rope(x, torch.empty(4, dtype=torch.int32), PARAMS)
        with pytest.raises(ValueError, match="n_dims must be at most the head size 24 but got 26"):
            OPS.rope(x, torch.empty(5, dtype=torch.int32), n_dims=26, rope_mode=0)


def test_meta_tensors_give_meta_results():
    x = torch.empty(5, 3, 24, device="meta")
    y = rope(x, torch.empty(5, dtype=torch.int64, device="meta"), PARAMS)
    assert (y.device.type, y.shape) == ("meta", x.shape)


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_a_trace_keeps_the_operator(tracing):
    graph = make_fx(lambda x, p: rope(x, p, PARAMS), tracing_mode=tracing)(x_of(), torch.arange(5))
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [OPS.rope.default]
    x = x_of().flip(0)
    assert torch.equal(graph(x, torch.arange(5)), rope(x, torch.arange(5), PARAMS))


def test_export_keeps_the_operator():
    class RopeModule(torch.nn.Module):
        def forward(self, x, positions):
            return rope(x, positions, PARAMS)

    program = torch.export.export(RopeModule(), (x_of(), torch.arange(5)))
    assert OPS.rope.default in [n.target for n in program.graph.nodes]
    assert torch.equal(program.module()(x_of(), torch.arange(5)), rope(x_of(), torch.arange(5), PARAMS))


# ---- strides ------------------------------------------------------------------------------------------


def test_non_unit_last_stride_is_copied_by_rope_and_refused_by_rope_in_place():
    x, positions = x_of((2, 5, 3, 48))[..., ::2], torch.arange(5)
    y = rope(x, positions, PARAMS)
    assert torch.equal(y, rope(x.contiguous(), positions, PARAMS))
    before = x.clone()
    text = r"x must have unit stride in its last dimension but got 2\."
    with pytest.raises(ValueError, match=text):
        rope_(x, positions, PARAMS)
    with pytest.raises((RuntimeError, ValueError), match=text):  # from C++ or ctypes
        OPS.rope_(x, positions, **ATTRIBUTES)
    assert torch.equal(x, before)


def test_direct_calls_take_freq_factors_and_may_omit_sections():
    x, positions, factors = x_of(), torch.arange(5), torch.full((12,), 3.0)
    y = OPS.rope(x, positions, factors, n_dims=24, rope_mode=0, sections=[0, 0, 0, 0])
    assert_within(y, x.numpy(), positions.numpy(), RopeParams(24), factors.numpy(), dtype="float32")
    assert np.array_equal(values_of(OPS.rope(x, positions, factors, n_dims=24, rope_mode=0)), values_of(y))


# ---- params after use ------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_of_params_after_use_give_the_same_result(duplicate):
    params = RopeParams(16, "neox", freq_base=500.0)
    x, positions = x_of(), torch.arange(5)
    expected = rope(x, positions, params)
    other = duplicate(params)
    assert other == params
    assert hash(other) == hash(params)
    assert repr(other) == repr(params)
    assert torch.equal(rope(x, positions, other), expected)


def test_a_replaced_field_is_not_hidden_by_cached_values():
    from dataclasses import replace

    params, x, positions = RopeParams(16), x_of(), torch.arange(5)
    rope(x, positions, params)
    other = replace(params, freq_base=77.0)
    assert_within(rope(x, positions, other), x.numpy(), positions.numpy(), other, dtype="float32")
