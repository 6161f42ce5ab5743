"""rope_qk as a torch operator: opcheck, compile, gradients, tracing."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
from rope_cases import assert_within
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from npu_rope import RopeParams, backends, rope, rope_qk, rope_qk_

OPS = torch.ops.npu_rope
PARAMS = RopeParams(16, "neox", n_offs=4)
ATTRIBUTES = {"n_dims": 16, "rope_mode": 2, "n_offs": 4}
SECTIONED = {"n_dims": 24, "rope_mode": 40, "sections": [4, 4, 4, 0], "forward": False, "angle": 1}

every_choice_of_grads = pytest.mark.parametrize("grads", list(product([False, True], repeat=2)), ids=str)


def qk_of(shape=(2, 5, 3, 24), dtype=torch.float32, grads=(False, False), keys=2):
    """Return q and k. ``shape`` is that of q; k has ``keys`` heads. ``grads``: which need a gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = shape, (*shape[:-2], keys, shape[-1])
    values = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return tuple(x.requires_grad_(grad) for x, grad in zip(values, grads, strict=True))


def two_ropes(q, k, *rest, **options):
    return rope(q, *rest, **options), rope(k, *rest, **options)


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def samples(grads=(False, False)):
    """Yield (q, k, positions, freq_factors, attributes)."""
    factors, planes = torch.linspace(1, 4, 12), torch.arange(20, dtype=torch.int32).reshape(4, 5)
    yield *qk_of(grads=grads), torch.arange(5), None, ATTRIBUTES
    yield *qk_of(grads=grads), planes, factors, SECTIONED
    yield *qk_of((5, 3, 24), torch.bfloat16, grads), torch.arange(5), factors, ATTRIBUTES
    transposed = qk_of((2, 5, 3, 24), torch.float16)
    transposed = (x.transpose(0, 1).requires_grad_(g) for x, g in zip(transposed, grads, strict=True))
    yield *transposed, torch.arange(2), None, ATTRIBUTES
    yield *qk_of((2, 0, 3, 24), torch.float64, grads), torch.arange(0), None, ATTRIBUTES


SAMPLES = range(len(list(samples())))
NEITHER, ONLY_Q, BOTH = (False, False), (True, False), (True, True)
opchecked = pytest.mark.parametrize(
    ("which", "grads"), [*[(n, g) for n in SAMPLES for g in (NEITHER, BOTH)], (0, ONLY_Q), (2, ONLY_Q[::-1])]
)


# ---- opcheck ---------------------------------------------------------------------------------------


@opchecked
def test_opcheck_rope_qk(which, grads):
    *given, attributes = list(samples(grads))[which]
    torch.library.opcheck(OPS.rope_qk.default, tuple(given), attributes)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@opchecked
def test_opcheck_rope_qk_in_place(which, grads):
    q, k, *rest, attributes = list(samples(grads))[which]
    q, k = (x.clone() if x.requires_grad else x for x in (q, k))  # a leaf may not be written
    for x in (q, k):
        if x.requires_grad:
            x.retain_grad()
    torch.library.opcheck(OPS.rope_qk_.default, (q, k, *rest), attributes)


@pytest.mark.parametrize("which", SAMPLES)
def test_opcheck_rope_qk_out(which):
    q, k, *rest, attributes = list(samples())[which]
    outs = {"q_out": torch.empty_like(q), "k_out": torch.empty_like(k)}
    torch.library.opcheck(OPS.rope_qk_out.default, (q, k, *rest), {**attributes, **outs})


@pytest.mark.parametrize("which", [0, 2, 3, 4])
def test_opcheck_rope_qk_packed(which):
    q, k, positions, factors, _ = list(samples())[which]
    packed = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    outs = torch.empty_like(q), torch.empty_like(k)
    torch.library.opcheck(OPS.rope_qk_packed_out.default, (*outs, q, k, positions, packed, factors))
    torch.library.opcheck(OPS.rope_qk_packed_.default, (q.clone(), k.clone(), positions, packed))


def test_rope_qk_packed_out_rotates_a_tensor_that_is_its_own_output_in_place():
    q, k, positions, factors, _ = next(iter(samples()))
    packed = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    expected = two_ropes(q, k, positions, PARAMS)
    for has_inputs in product([False, True], repeat=2):
        sides = list(zip((q, k), has_inputs, strict=True))
        outs = [torch.empty_like(x) if has_input else x.clone() for x, has_input in sides]
        inputs = [x if has_input else out for (x, has_input), out in zip(sides, outs, strict=True)]
        OPS.rope_qk_packed_out.default(*outs, *inputs, positions, packed, factors)
        assert equal(outs, expected)
    in_place = q.clone(), k.clone()
    OPS.rope_qk_packed_.default(*in_place, positions, packed)
    assert equal(in_place, expected)


def test_a_packed_tensor_of_the_wrong_size_is_refused():
    q, k, positions, _, _ = next(iter(samples()))
    with pytest.raises(
        (RuntimeError, ValueError), match=r"\[rope_qk\] packed must be the \d+ contiguous bytes"
    ):
        OPS.rope_qk_packed_.default(q, k, positions, torch.zeros(7, dtype=torch.uint8))


# ---- torch.compile ---------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    """Return torch.compile without graph breaks, and without code generation, which is not under test."""
    torch._dynamo.reset()
    yield lambda f, **options: torch.compile(f, fullgraph=True, backend="aot_eager", **options)
    torch._dynamo.reset()


def functional(q, k, p):
    q, k = rope_qk(q * 2, k.sin(), p, PARAMS)
    return q + 1, k.square()


def in_place(q, k, p):
    q, k = q * 2, k.sin()
    rope_qk_(q, k, p, PARAMS)
    return q.sum(-1), k.square()


@pytest.mark.parametrize("f", [functional, in_place])
@every_choice_of_grads
def test_compile_gives_the_same_results_and_gradients(f, grads, compiled):
    results = []
    for wrap in (compiled, lambda f: f):
        q, k = qk_of(grads=grads)
        ys = wrap(f)(q, k, torch.arange(5))
        needing = [y.sum() for y in ys if y.requires_grad]
        assert [y.requires_grad for y in ys] == list(grads)
        if needing:
            sum(needing).backward()
        results.append([*ys, *[x.grad for x in (q, k) if x.requires_grad]])
    assert equal(*results)


def test_compile_in_place_on_inputs_writes_them(compiled):
    q, k = qk_of()
    expected = two_ropes(q, k, torch.arange(5), PARAMS)
    compiled(lambda q, k, p: rope_qk_(q, k, p, PARAMS))(q, k, torch.arange(5))
    assert equal((q, k), expected)


def test_compile_in_place_on_slices_of_an_input_writes_them(compiled):
    qkv = torch.randn(5, 9, 24)
    expected = qkv.clone()
    rope_qk_(expected[:, :5], expected[:, 5:7], torch.arange(5), PARAMS)
    compiled(lambda t, p: rope_qk_(t[:, :5], t[:, 5:7], p, PARAMS))(qkv, torch.arange(5))
    assert torch.equal(qkv, expected)


@pytest.mark.parametrize("in_place", [(False, False), (True, False), (False, True)])
def test_compile_with_out_writes_it(in_place, compiled):
    q, k = qk_of()
    expected = two_ropes(q, k, torch.arange(5), PARAMS)
    out = [x if is_own else torch.zeros_like(x) for x, is_own in zip((q, k), in_place, strict=True)]
    compiled(lambda q, k, p, *out: rope_qk(q, k, p, PARAMS, out=out))(q, k, torch.arange(5), *out)
    assert equal(out, expected)


@every_choice_of_grads
def test_compile_with_dynamic_shapes_compiles_once(grads):
    torch._dynamo.reset()
    count = CompileCounter()
    f = torch.compile(lambda q, k, p: rope_qk(q, k, p, PARAMS), fullgraph=True, dynamic=True, backend=count)
    for S in (5, 7, 11):
        q, k = qk_of((2, S, 3, 24), grads=grads)
        assert equal(f(q, k, torch.arange(S)), rope_qk(q, k, torch.arange(S), PARAMS))
    assert count.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
@pytest.mark.parametrize("f", [functional, in_place])
def test_compile_down_to_generated_code(f):
    torch._dynamo.reset()
    q, k = qk_of(grads=(True, True))
    ys = torch.compile(f, fullgraph=True)(q, k, torch.arange(5))
    expected = f(q, k, torch.arange(5))
    assert all(
        (a - b).abs().max() <= torch.finfo(a.dtype).eps * 64 for a, b in zip(ys, expected, strict=True)
    )
    gradients, expected = (
        torch.autograd.grad(sum(y.sum() for y in results), (q, k)) for results in (ys, expected)
    )
    torch.testing.assert_close(gradients, expected)


# ---- gradients -------------------------------------------------------------------------------------


@every_choice_of_grads
@pytest.mark.parametrize("sectioned", [False, True])
def test_gradcheck_and_gradgradcheck(sectioned, grads):
    q, k = qk_of((2, 2, 2, 8), torch.float64, grads=grads, keys=1)
    params = RopeParams(4, "neox", n_offs=2)
    if sectioned:
        params = RopeParams(8, "imrope", sections=(2, 1, 1, 0), attn_factor=1.5)
    positions = torch.tensor([[0, 900], [-5, 7]])
    positions = torch.stack([positions, positions + 1, positions + 2]) if sectioned else positions
    factors = torch.linspace(1, 3, 4)

    def functional(q, k):
        return rope_qk(q, k, positions, params, factors)

    def in_place(q, k):
        q, k = q * 2, k * 3
        rope_qk_(q, k, positions, params, factors, forward=False)
        return q * q, k * k

    for f in (functional, in_place):
        if any(grads):
            assert torch.autograd.gradcheck(f, (q, k))
            assert torch.autograd.gradgradcheck(f, (q, k))
        assert [y.requires_grad for y in f(q, k)] == list(grads)


@pytest.mark.parametrize("used", ["q", "k", "both"])
def test_gradients_are_the_rotations_by_minus_the_angle(used):
    q, k = qk_of(grads=(True, True))
    positions, weights = torch.arange(5) * 1000, [x.detach().flip(0) for x in (q, k)]
    ys = dict(zip("qk", rope_qk(q, k, positions, PARAMS), strict=True))
    sum((ys[n] * w).sum() for n, w in zip("qk", weights, strict=True) if used in (n, "both")).backward()
    for name, x, w in zip("qk", (q, k), weights, strict=True):
        if used not in (name, "both"):
            assert x.grad is None
            continue
        assert_within(x.grad, w.numpy(), positions.numpy(), PARAMS, dtype="float32", forward=False)


def test_one_call_gives_both_gradients():
    calls = []

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "npu_rope":
                calls.append(func.overloadpacket)
            return func(*args, **(kwargs or {}))

    q, k = qk_of(grads=(True, True))
    with Record():
        sum(y.sum() for y in rope_qk(q, k, torch.arange(5), PARAMS)).backward()
    assert calls == [OPS.rope_qk, OPS.rope_qk]


@every_choice_of_grads
@pytest.mark.parametrize("views", [False, True])
def test_in_place_gives_the_gradient_of_two_ropes(views, grads):
    """If q and k are slices of a projection, the gradient reaches the whole projection."""
    gradients, results = [], []
    for rotate in (rope_qk_, two_ropes):
        q, k = qk_of(grads=grads)
        if views:
            qkv = torch.cat([q, k, k], 2) * 2
            q1, k1 = qkv[:, :, :3], qkv[:, :, 3:5]
            rotated = rotate(q1, k1, torch.arange(5), PARAMS)
            projection = qkv if rotate is rope_qk_ else torch.cat([*rotated, qkv[:, :, 5:]], 2)
            ys = [(projection * torch.arange(24))]
        else:
            ys = [y.square() for y in rotate(q * 2, k * 2, torch.arange(5), PARAMS)]
        if any(grads):
            sum(y.sum() for y in ys if y.requires_grad).backward()
        results.append([y.detach() for y in ys])
        gradients.append([x.grad for x in (q, k) if x.requires_grad])
    assert equal(*results)
    assert equal(*gradients)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", ["leaf", "view of a leaf", "one of several views"])
def test_in_place_where_torch_forbids_it_raises_torchs_own_error_and_writes_nothing(kind, which):
    tensors = list(qk_of())
    x = tensors[which]
    tensors[which] = {
        "leaf": lambda: x.requires_grad_(),
        "view of a leaf": lambda: x.requires_grad_()[:, :, 0:],
        "one of several views": lambda: (x.requires_grad_() * 1).unbind(0)[0],
    }[kind]()
    if kind == "one of several views":
        tensors[1 - which] = tensors[1 - which][0]
    before = [t.detach().clone() for t in tensors]
    text = (
        "modified inplace" if kind == "one of several views" else f"a {kind.replace('leaf', 'leaf Variable')}"
    )
    with pytest.raises(RuntimeError, match=text):
        rope_qk_(*tensors, torch.arange(5), PARAMS)
    assert equal([t.detach() for t in tensors], before)


@pytest.mark.parametrize("name", ["q", "k", "q_out", "k_out"])
@pytest.mark.parametrize("direct", [False, True])
def test_out_is_refused_if_a_gradient_is_needed(name, direct):
    q, k = qk_of()
    t = {"q": q, "k": k, "q_out": torch.zeros_like(q), "k_out": torch.zeros_like(k)}
    t[name].requires_grad_()
    outs = {n: t[n] for n in ("q_out", "k_out")}
    text = r"^\[rope_qk\] out must be None or \(q, k\) where a gradient is needed but got other tensors\."
    inputs = q, k, torch.arange(5)
    operator = partial(OPS.rope_qk_out, *inputs, **ATTRIBUTES, **outs)
    function = partial(rope_qk, *inputs, PARAMS, out=tuple(outs.values()))
    with pytest.raises(RuntimeError if direct else ValueError, match=text):
        operator() if direct else function()
    assert not any(out.any() for out in outs.values())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_give_the_same_results(mode):
    q, k = qk_of(grads=(True, True))
    expected = two_ropes(q.detach(), k.detach(), torch.arange(5), PARAMS)
    with mode():
        got = rope_qk(q, k, torch.arange(5), PARAMS)
        assert not any(y.requires_grad for y in got)
        assert equal(got, expected)
        assert equal(rope_qk_(q.clone(), k.clone(), torch.arange(5), PARAMS), expected)
        out = torch.empty_like(q), torch.empty_like(k)
        assert equal(rope_qk(q, k, torch.arange(5), PARAMS, out=out), expected)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("function", ["rope_qk_", "rope_qk(out=)", "ops.rope_qk_", "ops.rope_qk_out", "sim"])
def test_a_write_to_a_tensor_saved_for_a_gradient_is_detected(function, which):
    w = torch.ones(1, 2, 1, 4, requires_grad=True)
    saved = w.exp()  # exp keeps its result for the gradient
    pair, positions = [torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4)], torch.arange(2)
    pair[which] = saved
    fresh, attributes = (torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4)), {"n_dims": 4, "rope_mode": 0}
    with torch.no_grad():
        {
            "rope_qk_": lambda: rope_qk_(*pair, positions, RopeParams(4)),
            "rope_qk(out=)": lambda: rope_qk(*fresh, positions, RopeParams(4), out=pair),
            "ops.rope_qk_": lambda: OPS.rope_qk_(*pair, positions, **attributes),
            "ops.rope_qk_out": lambda: OPS.rope_qk_out(
                *fresh, positions, **attributes, q_out=pair[0], k_out=pair[1]
            ),
            "sim": lambda: rope_qk(*fresh, positions, RopeParams(4), out=pair, backend="sim"),
        }[function]()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_16_bit_gradients_have_the_dtype_of_their_tensor():
    for dtype in (torch.float16, torch.bfloat16):
        q, k = qk_of(dtype=dtype, grads=(True, True))
        sum(y.sum() for y in rope_qk(q, k, torch.arange(5), PARAMS)).backward()
        assert q.grad.dtype == k.grad.dtype == dtype


# ---- functional transforms -------------------------------------------------------------------------


def test_func_grad_and_vjp_equal_those_of_two_ropes():
    (q, k), positions = qk_of((3, 2, 24), torch.float64), torch.arange(3)

    def half_squared_length(q, k, rotate):
        return sum(y.square().sum() for y in rotate(q, k, positions, PARAMS)) / 2

    def in_place(q, k, *rest):
        return rope_qk_(q * 1, k * 1, *rest)

    expected = torch.func.grad(half_squared_length, (0, 1))(q, k, two_ropes)
    assert equal(torch.func.grad(half_squared_length, (0, 1))(q, k, rope_qk), expected)
    assert equal(torch.func.grad(half_squared_length, (0, 1))(q, k, in_place), expected)
    assert torch.equal(torch.func.grad(half_squared_length, 1)(q, k, rope_qk), expected[1])
    ys, pullback = torch.func.vjp(lambda q, k: rope_qk(q, k, positions, PARAMS), q, k)
    assert equal(pullback(ys), two_ropes(*ys, positions, PARAMS, forward=False))


def test_func_vmap_rotates_each_sample():
    (q, k), positions = qk_of((4, 3, 2, 24)), torch.arange(3)
    got = torch.func.vmap(lambda q, k: rope_qk(q, k, positions, PARAMS))(q, k)
    assert equal(got, two_ropes(q, k, positions, PARAMS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("has_tangent", [(True, True), (True, False), (False, True)])
def test_forward_mode_gives_the_rotated_tangents(has_tangent, in_place):
    q, k = qk_of(dtype=torch.float64)
    positions, forward_ad = torch.arange(5), torch.autograd.forward_ad
    tangents = [x.flip(0) if has else None for x, has in zip((q, k), has_tangent, strict=True)]
    with forward_ad.dual_level():
        duals = [
            x.clone() if t is None else forward_ad.make_dual(x.clone(), t.clone())
            for x, t in zip((q, k), tangents, strict=True)
        ]
        ys = (rope_qk_ if in_place else rope_qk)(*duals, positions, PARAMS)
        got = [forward_ad.unpack_dual(y) for y in ys]
    assert equal([y.primal for y in got], two_ropes(q, k, positions, PARAMS))
    for y, tangent in zip(got, tangents, strict=True):
        if tangent is None:
            assert y.tangent is None or not y.tangent.any()
        else:
            assert torch.equal(y.tangent, rope(tangent, positions, PARAMS))


# ---- tracing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
def test_fake_results_have_the_shapes_and_strides_of_real_ones(transposed):
    for dtype in (torch.float32, torch.bfloat16):
        q, k = (x.transpose(0, 1) if transposed else x for x in qk_of(dtype=dtype))
        positions = torch.arange(q.shape[1])
        with FakeTensorMode() as mode:
            fake = rope_qk(*[mode.from_tensor(t) for t in (q, k, positions)], PARAMS)
        for a, b in zip(fake, rope_qk(q, k, positions, PARAMS), strict=True):
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


def test_fake_tensors_are_checked_by_the_same_rules():
    with FakeTensorMode():
        q, k = torch.empty(5, 3, 24), torch.empty(4, 2, 24)
        with pytest.raises(ValueError, match=r"\[rope_qk\] k must have q's shape \[5, 3, 24\] except for"):
            rope_qk(q, k, torch.empty(5, dtype=torch.int32), PARAMS)
        with pytest.raises(ValueError, match="n_dims must be at most the head size 24 but got 26"):
            OPS.rope_qk(q, q, torch.empty(5, dtype=torch.int32), n_dims=26, rope_mode=0)


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_a_trace_keeps_the_operator(tracing):
    (q, k), positions = qk_of(), torch.arange(5)
    graph = make_fx(lambda q, k, p: rope_qk(q, k, p, PARAMS), tracing_mode=tracing)(q, k, positions)
    assert OPS.rope_qk.default in [n.target for n in graph.graph.nodes]
    assert equal(graph(q, k, positions), rope_qk(q, k, positions, PARAMS))


def test_export_keeps_the_operator():
    class QkModule(torch.nn.Module):
        def forward(self, q, k, positions):
            return rope_qk(q, k, positions, PARAMS)

    given = (*qk_of(), torch.arange(5))
    program = torch.export.export(QkModule(), given)
    assert OPS.rope_qk.default in [n.target for n in program.graph.nodes]
    assert equal(program.module()(*given), rope_qk(*given, PARAMS))


# ---- strides ---------------------------------------------------------------------------------------


def test_non_unit_last_strides_are_copied_and_in_place_refused():
    q, k = (x[..., ::2] for x in qk_of((2, 5, 3, 48)))
    positions = torch.arange(5)
    expected = two_ropes(q, k, positions, PARAMS)
    assert equal(rope_qk(q, k, positions, PARAMS), expected)
    assert equal(OPS.rope_qk(q, k, positions, **ATTRIBUTES), expected)
    before = [x.clone() for x in (q, k)]
    with pytest.raises(
        ValueError, match=r"^\[rope_qk_\] k must have unit stride in its last dimension but got 2\."
    ):
        rope_qk_(q.contiguous(), k, positions, PARAMS)
    assert equal((q, k), before)


def test_negating_views_are_read_as_the_negated_values(backend):
    q, k = qk_of()
    got = rope_qk(torch._neg_view(q), torch._neg_view(k), torch.arange(5), PARAMS, backend=backend)
    assert equal(got, rope_qk(-q, -k, torch.arange(5), PARAMS, backend=backend))
