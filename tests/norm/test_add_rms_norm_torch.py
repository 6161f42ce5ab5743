"""add_rms_norm as a torch operator: opcheck, compilation, gradients, meta tensors, given memory, ctypes."""

from __future__ import annotations

import pytest
import torch

from npu_rope import add_rms_norm, rms_norm, rms_norm_backward

OPS = torch.ops.npu_rope


def sample(dtype=torch.float32, scale_dtype=None, shape=(2, 5, 24)):
    generator = torch.Generator().manual_seed(0)
    x, residual, scale = (torch.randn(s, generator=generator) for s in (shape, shape, shape[-1:]))
    return x.to(dtype), residual.to(dtype), scale.to(scale_dtype or dtype)


def separately(x, residual, scale, **attributes):
    """Return rms_norm of the sum, and the sum."""
    total = x + residual
    return rms_norm(total, scale, **attributes), total


@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck(needs_grad):
    x, residual, scale = sample(torch.bfloat16, torch.float32)
    rest, outs = (-1, 1e-5, 1), (torch.empty_like(x, dtype=scale.dtype), torch.empty_like(x))
    given = [t.clone().requires_grad_(needs_grad) for t in (x, residual, scale)]
    torch.library.opcheck(OPS.add_rms_norm.default, (*given, *rest))
    if needs_grad:
        return
    torch.library.opcheck(OPS.add_rms_norm_out.default, (x, residual, scale, *outs, *rest))
    torch.library.opcheck(OPS.add_rms_norm.default, (x, residual, torch.randn(5, 1), 1, 0.5, 11))


def test_the_compiled_graph_gives_the_same_results():
    x, residual, scale = sample()

    def model(x, residual, scale):
        y, total = add_rms_norm(x * 2, residual, scale, epsilon=1e-6)
        return y + 1, total * 3

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(x, residual, scale), model(x, residual, scale), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_compiled_graph_writes_into_given_memory(in_place):
    def model(x, residual, scale, y):
        total = residual if in_place else torch.empty_like(residual)
        add_rms_norm(x, residual, scale, out=(y, total))
        return y * 2, total * 2

    results = []
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        x, residual, scale = sample()
        y = torch.empty_like(x)
        results.append((*function(x, residual, scale, y), y, residual))
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager, compiled)


@pytest.mark.parametrize("execution", ["eager", "compiled"])
@pytest.mark.parametrize("used", ["both", "y", "sum"])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_are_those_of_the_two_operators(dtype, scale_dtype, used, execution):
    def loss(run, *leaves):
        y, total = run(*leaves)
        return (0 if used == "sum" else y.float().pow(2).sum()) + (
            0 if used == "y" else total.float().pow(3).sum()
        )

    grads = []
    for run in (separately, add_rms_norm):
        function = loss
        if execution == "compiled" and run is add_rms_norm:
            function = torch.compile(loss, fullgraph=True, backend="aot_eager")
        leaves = [t.clone().requires_grad_() for t in sample(dtype, scale_dtype)]
        function(run, *leaves).backward()
        grads.append([leaf.grad for leaf in leaves])
        torch._dynamo.reset()
    for expected, got in zip(*grads, strict=True):
        assert (expected is None and got is None) or torch.equal(expected, got)
    assert grads[1][0].data_ptr() != grads[1][1].data_ptr()


def test_the_gradient_adds_those_of_rms_norm_and_of_the_sum():
    x, residual, scale = (t.requires_grad_() for t in sample())
    y_grad, sum_grad = torch.randn(2, 2, 5, 24)
    torch.autograd.backward(add_rms_norm(x, residual, scale), (y_grad, sum_grad))
    dx, dscale = rms_norm_backward(y_grad, (x + residual).detach(), scale.detach())
    assert torch.equal(x.grad, dx + sum_grad)
    assert torch.equal(residual.grad, x.grad)
    assert torch.equal(scale.grad, dscale)


@pytest.mark.parametrize("scale", [(4,), (), (2, 1, 4), (3, 1)])
def test_gradients_have_gradients(scale):
    given = [
        torch.randn(s, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).requires_grad_()
        for k, s in enumerate(((2, 3, 4), (2, 3, 4), scale))
    ]

    def run(*tensors):
        return add_rms_norm(*tensors, axis=1, epsilon=0.25, stash_type=11)

    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


@pytest.mark.parametrize("needs", ["x", "residual", "scale"])
def test_any_single_input_may_need_a_gradient(needs):
    named = dict(zip(("x", "residual", "scale"), sample(), strict=True))
    named[needs].requires_grad_()
    y, total = add_rms_norm(**named)
    (y + total).sum().backward()
    expected = {name: t.detach().requires_grad_(name == needs) for name, t in named.items()}
    y, total = separately(**expected)
    (y + total).sum().backward()
    for name, t in named.items():
        assert (t.grad is not None) == (name == needs)
    assert torch.equal(named[needs].grad, expected[needs].grad)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("outs", ["new", "given", "sum-residual", "y-x", "swapped"])
def test_gradients_flow_through_results_in_given_memory(outs, compiled):
    def run(leaf, other, scale):
        x, residual = leaf * 2, other * 3
        out = {
            "new": None,
            "given": (torch.empty_like(x), torch.empty_like(x)),
            "sum-residual": (torch.empty_like(x), residual),
            "y-x": (x, torch.empty_like(x)),
            "swapped": (residual, x),
        }[outs]
        y, total = add_rms_norm(x, residual, scale, out=out)
        return y.pow(3).sum() + total.pow(2).sum()

    def expected(leaf, other, scale):
        y, total = separately(leaf * 2, other * 3, scale)
        return y.pow(3).sum() + total.pow(2).sum()

    grads = []
    for function in (expected, torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run):
        leaves = [t.clone().requires_grad_() for t in sample()]
        function(*leaves).backward()
        grads.append([leaf.grad for leaf in leaves])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_a_leaf_that_needs_a_gradient_is_not_written():
    x, residual, scale = sample()
    x.requires_grad_()
    before = x.detach().clone()
    y = torch.full_like(residual, 7)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        add_rms_norm(x, residual, scale, out=(y, x))
    assert torch.equal(x.detach(), before)
    assert torch.all(y == 7)


def test_a_write_invalidates_tensors_saved_for_backward():
    x, residual, scale = sample()
    product = residual.clone().requires_grad_() * 1
    y = product * product
    with torch.no_grad():
        add_rms_norm(x, product, scale, out=(torch.empty_like(x), product))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_raw_operator_refuses_to_write_where_a_gradient_flows():
    x, residual, scale = sample()
    outs = {"out": torch.empty_like(x), "sum": torch.empty_like(x).requires_grad_()}
    with pytest.raises(RuntimeError, match=r"\[add_rms_norm\] sum must not need a gradient where memory"):
        OPS.add_rms_norm_out(x, residual, scale, **outs)


def test_meta_tensors_give_shapes_and_types():
    x, residual, scale = (t.to("meta") for t in sample(torch.float16, torch.float64))
    y, total = add_rms_norm(x, residual, scale)
    assert (y.device.type, y.shape, y.dtype) == ("meta", x.shape, torch.float64)
    assert (total.device.type, total.shape, total.dtype) == ("meta", x.shape, torch.float16)


def test_views_give_the_results_of_contiguous_tensors():
    big = torch.randn(7, 3, 2, 24)
    for view in (big[::2, 1], big.transpose(0, 2), big[..., 1], big.transpose(1, 3)):
        residual, scale = torch.randn(view.shape), torch.randn(view.shape[-1])
        expected = separately(view.contiguous(), residual, scale)
        for given in ((view, residual), (residual, view)):
            assert all(map(torch.equal, add_rms_norm(*given, scale), expected))
    x, residual = torch.randn(2, 2, 1, 3, 2, 2, 5)
    for scale in (torch.randn(5), torch.randn(3, 1, 1, 5), torch.randn(2, 1, 3, 1, 2, 1)):
        swapped = residual.transpose(0, 3).contiguous().transpose(0, 3)
        for a, b in zip(add_rms_norm(x, swapped, scale), separately(x, residual, scale), strict=True):
            assert torch.equal(a, b)


def test_negative_views_are_resolved():
    x = torch.complex(torch.randn(3, 8), torch.randn(3, 8)).conj().imag
    assert x.is_neg()
    scale = torch.randn(8)
    for a, b in zip(
        add_rms_norm(x, x, scale), separately(x.resolve_neg(), x.resolve_neg(), scale), strict=True
    ):
        assert torch.equal(a, b)


SCRIPT = """
import torch
from npu_rope import add_rms_norm, backends, rms_norm

assert backends.torch_registration() is None
x, residual, scale = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(8).bfloat16()
y, total = add_rms_norm(x, residual, scale)
assert torch.equal(total, x + residual)
assert torch.equal(y, rms_norm(total, scale))
in_place = residual.clone()
given = add_rms_norm(x, in_place, scale, out=(torch.empty_like(y), in_place))
assert given[1] is in_place and torch.equal(in_place, total) and torch.equal(given[0], y)
five = add_rms_norm(x.view(2, 1, 3, 1, 8), residual.view(2, 1, 3, 1, 8), scale)
assert torch.equal(five[0].view(2, 3, 8), y) and torch.equal(five[1].view(2, 3, 8), total)
leaf = x.clone().requires_grad_()
add_rms_norm(leaf, residual, scale)[0].float().sum().backward()
assert leaf.grad is not None
try:
    add_rms_norm(x, residual[:1], scale)
except ValueError as error:
    print(error)
"""


@pytest.mark.torch
def test_the_operator_works_over_ctypes_without_the_registration(run_without_registration):
    output = run_without_registration(SCRIPT)
    assert output == "[add_rms_norm] residual must have x's shape [2, 3, 8] but got [1, 3, 8].\n"
