"""rms_norm_rope as a torch operator: opcheck, compilation, gradients, meta tensors, given memory, views; and
without the registration, over ctypes.
"""

from __future__ import annotations

import pytest
import torch

from npu_rope import RopeParams, rms_norm, rms_norm_rope, rope_qk

OPS = torch.ops.npu_rope
PARAMS = RopeParams(16, "neox", n_offs=4)
ATTRIBUTES = {"n_dims": 16, "rope_mode": 2, "n_offs": 4, "epsilon": 1e-6}
SECTIONED = {
    "n_dims": 24,
    "rope_mode": 40,
    "sections": [4, 4, 4, 0],
    "intermediate_rounding": True,
    "angle": 1,
}
NAMES = ("q", "k", "q_scale", "k_scale")


def inputs_of(dtype=torch.float32, needs_grad=False, shape=(2, 5, 3, 24), keys=2):
    """Return q, k and their scales. ``shape`` is that of q; k has ``keys`` heads."""
    generator = torch.Generator().manual_seed(0)
    shapes = shape, (*shape[:-2], keys, shape[-1]), shape[-1:], shape[-1:]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return [t.requires_grad_(needs_grad) for t in tensors]


def separately(q, k, q_scale, k_scale, positions, params, *rest, epsilon=1e-5):
    q, k = rms_norm(q, q_scale, epsilon=epsilon), rms_norm(k, k_scale, epsilon=epsilon)
    return rope_qk(q, k, positions, params, *rest)


def all_equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def samples(needs_grad=False):
    """Yield tuples (inputs, positions, freq_factors, attributes)."""
    factors, planes = torch.linspace(1, 4, 12), torch.arange(20, dtype=torch.int32).reshape(4, 5)
    yield inputs_of(needs_grad=needs_grad), torch.arange(5), None, ATTRIBUTES
    yield inputs_of(torch.bfloat16, needs_grad), planes, factors, SECTIONED
    yield inputs_of(torch.float16, needs_grad, (5, 3, 24)), torch.arange(5), factors, ATTRIBUTES
    yield inputs_of(torch.float64, needs_grad, (2, 0, 3, 24)), torch.arange(0), None, ATTRIBUTES


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_opcheck(which, needs_grad):
    given, positions, factors, attributes = list(samples(needs_grad))[which]
    torch.library.opcheck(OPS.rms_norm_rope.default, (*given, positions, factors), attributes)


@pytest.mark.parametrize("which", range(4))
def test_opcheck_of_the_operators_that_write(which):
    given, positions, factors, attributes = list(samples())[which]
    outs = {"q_out": torch.empty_like(given[0]), "k_out": torch.empty_like(given[1])}
    torch.library.opcheck(OPS.rms_norm_rope_out.default, (*given, positions, factors), {**attributes, **outs})
    *lead, keys, head = given[1].shape
    count = int(torch.tensor(lead).prod())
    rows, cache = torch.arange(count).reshape(lead), torch.zeros(count + 2, keys, head, dtype=given[1].dtype)
    scattered = (*given, positions, rows, cache, factors)
    torch.library.opcheck(OPS.rms_norm_rope_set_rows.default, scattered, attributes)
    outs = {"q_out": torch.empty_like(given[0])}
    torch.library.opcheck(OPS.rms_norm_rope_set_rows_out.default, scattered, {**attributes, **outs})


# ---- compilation -----------------------------------------------------------------------------------------


def compiled(model, backend="aot_eager"):
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_the_compiled_graph_gives_the_same_results(needs_grad):
    def model(q, k, q_scale, k_scale, p):
        q, k = rms_norm_rope(q * 2, k, q_scale, k_scale, p, PARAMS, epsilon=1e-6)
        return q + 1, k

    results = []
    for run in (model, compiled(model)):
        given = inputs_of(needs_grad=needs_grad)
        ys = run(*given, torch.arange(5))
        if needs_grad:
            sum(y.pow(2).sum() for y in ys).backward()
        results.append([*ys, *(t.grad for t in given if needs_grad)])
    assert all_equal(*results)


def test_the_compiled_graph_writes_into_given_memory():
    def model(q, k, q_scale, k_scale, p, q_out, k_out):
        rms_norm_rope(q, k, q_scale, k_scale, p, PARAMS, out=(q_out, k_out))
        return q_out * 2, k_out

    given, results = inputs_of(), []
    for run in (model, compiled(model)):
        outs = [torch.empty_like(t) for t in given[:2]]
        results.append([*run(*given, torch.arange(5), *outs), *outs])
    assert all_equal(*results)


def test_the_compiled_graph_writes_in_place():
    def model(q, k, q_scale, k_scale, p):
        q, k = q * 2, k * 2
        return rms_norm_rope(q, k, q_scale, k_scale, p, PARAMS, out=(q, k))

    given = (*inputs_of(), torch.arange(5))
    assert all_equal(model(*given), compiled(model)(*given))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # from inductor
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
@pytest.mark.parametrize("with_out", [False, True])
def test_the_compiled_graph_writes_into_a_cache(with_out, compiler):
    rows = torch.tensor([[4, -1, 0, 7, 2], [1, 9, -1, 3, 8]])

    def model(q, k, q_scale, k_scale, p, cache, out):
        options = {"out": out} if with_out else {}
        q, cache = rms_norm_rope(q, k, q_scale, k_scale, p, PARAMS, rows=rows, cache=cache, **options)
        return q, cache

    given, results = inputs_of(), []
    for run in (model, compiled(model, compiler)):
        cache, out = torch.ones(11, 2, 24), torch.empty(2, 5, 3, 24)
        results.append([*run(*given, torch.arange(5), cache, out), cache])
    assert all_equal(*results)


# ---- gradients -------------------------------------------------------------------------------------------


def test_gradients_agree_with_finite_differences():
    given = inputs_of(torch.float64, needs_grad=True, shape=(1, 3, 2, 6), keys=1)
    params = RopeParams(4, "normal", n_offs=2)

    def run(*given):
        return rms_norm_rope(*given, torch.arange(3), params, epsilon=1e-2)

    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_equal_those_of_the_separate_operators(dtype, rounding):
    grads = []
    for run, options in ((separately, {}), (rms_norm_rope, {"intermediate_rounding": rounding})):
        given = inputs_of(dtype, needs_grad=True)
        q, k = run(*given, torch.arange(5), PARAMS, epsilon=1e-6, **options)
        weights = [torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype) for y in (q, k)]
        torch.autograd.backward((q, k), weights)
        grads.append([t.grad for t in given])
    assert all_equal(*grads)


@pytest.mark.parametrize("index", range(4))
def test_any_single_input_may_need_a_gradient(index):
    given = inputs_of()
    given[index].requires_grad_()
    q, k = rms_norm_rope(*given, torch.arange(5), PARAMS)
    (q.sum() + k.pow(3).sum()).backward()
    assert [t.grad is not None for t in given] == [n == index for n in range(4)]
    expected = inputs_of()
    expected[index].requires_grad_()
    q, k = separately(*expected, torch.arange(5), PARAMS)
    (q.sum() + k.pow(3).sum()).backward()
    assert torch.equal(given[index].grad, expected[index].grad)


def test_freq_factors_and_sections_reach_the_gradient():
    factors, planes = torch.linspace(1, 4, 12), torch.arange(20).reshape(4, 5)
    params = RopeParams(24, "imrope", sections=(4, 4, 4, 0))
    grads = []
    for run in (separately, rms_norm_rope):
        given = inputs_of(needs_grad=True)
        q, _ = run(*given, planes, params, factors)
        (q.pow(2) * torch.arange(24)).sum().backward()
        grads.append([t.grad for t in given[:1]])
    assert all_equal(*grads)


# ---- tensors of other kinds --------------------------------------------------------------------------------


def test_meta_tensors_give_shapes_and_types():
    q, k = rms_norm_rope(
        *(t.to("meta") for t in inputs_of(torch.float16)), torch.arange(5, device="meta"), PARAMS
    )
    assert (q.device.type, q.shape, q.dtype) == ("meta", (2, 5, 3, 24), torch.float16)
    assert (k.device.type, k.shape, k.dtype) == ("meta", (2, 5, 2, 24), torch.float16)


def test_views_give_the_results_of_contiguous_tensors():
    qkv = torch.randn(2, 5, 7 * 24)
    heads = qkv.view(2, 5, 7, 24)
    scale, positions = torch.randn(24), torch.arange(5)
    views = heads[:, :, :3], heads[:, :, 3:5]
    expected = rms_norm_rope(*(v.contiguous() for v in views), scale, scale, positions, PARAMS)
    assert all_equal(rms_norm_rope(*views, scale, scale, positions, PARAMS), expected)
    spaced = [torch.stack([v, v], -1).flatten(-2)[..., ::2] for v in views]
    wide = torch.stack([scale, scale], -1).flatten()[::2]
    assert all_equal(rms_norm_rope(*spaced, wide, wide, positions, PARAMS), expected)
    negative = torch.complex(torch.randn(24), -scale).conj().imag
    assert negative.is_neg()
    assert all_equal(rms_norm_rope(*views, negative, scale, positions, PARAMS), expected)


def test_a_write_invalidates_tensors_saved_for_backward():
    q, k, q_scale, k_scale = inputs_of()
    product = q.requires_grad_() * 1
    y = product * product
    with torch.no_grad():
        rms_norm_rope(product, k, q_scale, k_scale, torch.arange(5), PARAMS, out=(product, k))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_attributes_of_one_call_do_not_affect_another():
    """Packed attributes are cached in params by their values; 1.0 equals True, and 0 equals False."""
    q, k, *scales = inputs_of()
    given = q, k, *scales, torch.arange(5), PARAMS
    for epsilon in (1e-6, 1.0, 1e-6):
        q_out, _ = rms_norm_rope(*given, epsilon=epsilon)
        assert torch.equal(q_out, separately(*given, epsilon=epsilon)[0])
    with pytest.raises(TypeError, match="intermediate_rounding must be True or False but got 0"):
        rms_norm_rope(*given, epsilon=1.0, intermediate_rounding=0)
    with pytest.raises(TypeError, match="epsilon must be a number but got True"):
        rms_norm_rope(*given, epsilon=True)


SCRIPT = """
import torch
from npu_rope import RopeParams, backends, rms_norm_rope

assert backends.torch_registration() is None
OPS, params = torch.ops.npu_rope, RopeParams(6, "neox")
q, k, scale, p = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 2, 8), torch.randn(8), torch.arange(3)
rows = torch.tensor([[4, 0, -1], [1, 2, 3]])
wanted = [torch.from_numpy(y) for y in rms_norm_rope(
    q.numpy(), k.numpy(), scale.numpy(), scale.numpy(), p.numpy(), params)]


def check(*got):
    for y, want in zip(got, wanted):
        assert torch.equal(y, want)


check(*rms_norm_rope(q, k, scale, scale, p, params))
check(*OPS.rms_norm_rope(q, k, scale, scale, p, n_dims=6, rope_mode=2))
outs = torch.empty_like(q), torch.empty_like(k)
OPS.rms_norm_rope_out(q, k, scale, scale, p, n_dims=6, rope_mode=2, q_out=outs[0], k_out=outs[1])
check(*outs)
outs = q.clone(), k.clone()
check(*rms_norm_rope(*outs, scale, scale, p, params, out=outs))
spaced = [torch.stack([t, t], -1).flatten(-2)[..., ::2] for t in (q, k, scale)]
check(*rms_norm_rope(*spaced, spaced[2], p, params))
caches = torch.zeros(2, 6, 2, 8)
y, cache = rms_norm_rope(q, k, scale, scale, p, params, rows=rows, cache=caches[0])
check(y)
check(OPS.rms_norm_rope_set_rows(q, k, scale, scale, p, rows, caches[1], n_dims=6, rope_mode=2))
assert cache is not None and torch.equal(caches[0], caches[1])
assert torch.equal(caches[0][[4, 0]], wanted[1][0, :2]) and (caches[0][5] == 0).all()
leaf = scale.clone().requires_grad_()
rms_norm_rope(q, k, leaf, scale, p, params)[0].sum().backward()
assert leaf.grad.abs().max() > 0
try:
    rms_norm_rope(q, k, scale[:3], scale, p, params)
except ValueError as error:
    print(error)
"""


@pytest.mark.torch
def test_the_operator_works_over_ctypes_without_the_registration(run_without_registration):
    output = run_without_registration(SCRIPT)
    assert output == "[rms_norm_rope] q_scale must have shape [D] = [8] but got [3].\n"
