"""Torch's gradients of the norms, rms_norm_rope and rotary_mul: second gradients for rows of any magnitude,
torch.func, tangents of gradients, results in given memory, and refusals by a named back end."""

from __future__ import annotations

import pytest
import torch

from npu_rope import (
    RopeParams,
    add_rms_norm,
    qkv_norm_rope_cache,
    rms_norm,
    rms_norm_backward,
    rms_norm_rope,
    rotary_mul,
)
from npu_rope.ops import calls

X, OTHER, GRAD = (torch.randn(3, 8, generator=torch.Generator().manual_seed(k)) for k in range(3))
SCALE = torch.linspace(0.5, 2, 8)
POSITIONS, PARAMS = torch.arange(3), RopeParams(8, "neox")
CALLS = {
    "rms_norm": lambda x: rms_norm(x, SCALE),
    "scale": lambda scale: rms_norm(OTHER[0], scale),
    "add_rms_norm": lambda x: torch.cat(add_rms_norm(x, OTHER, SCALE), -1),
    "rms_norm_rope": lambda x: rms_norm_rope(x[:, None], OTHER[:, None], SCALE, SCALE, POSITIONS, PARAMS)[0],
    "rotary_mul": lambda x: rotary_mul(x.view(1, 3, 1, 8), OTHER[:, :4].cos(), OTHER[:, :4].sin()),
}
with_each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def sum_of_squares(call):
    return lambda x: call(x).square().sum()


def rms_norm_by_torch(x, scale=SCALE):
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


# ---- second gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "stash_type", "size", "epsilon"),
    [
        (torch.float32, 1, 1.0, 1e-5),
        (torch.bfloat16, 1, 1e30, 1e-5),
        (torch.float32, 1, 1e30, 1e-5),
        (torch.float32, 1, 1e-30, 0.0),
        (torch.float64, 1, 1.0, 1e-5),
        (torch.float64, 11, 1e200, 1e-5),
        (torch.float64, 11, 1e-200, 0.0),
        (torch.float64, 11, 1e-320, 0.0),
    ],
)
def test_a_gradient_is_the_same_with_create_graph(dtype, stash_type, size, epsilon):
    """With create_graph torch's operations replace the kernel."""
    x, scale = (X.double() * size).to(dtype).requires_grad_(), SCALE.to(dtype, copy=True).requires_grad_()
    grad = (GRAD.double() * min(size, 1e100)).to(dtype)

    def gradients(**named):
        y = rms_norm(x, scale, epsilon=epsilon, stash_type=stash_type)
        return torch.autograd.grad(y, (x, scale), grad, **named)

    direct = rms_norm_backward(grad, x, scale, epsilon=epsilon, stash_type=stash_type)
    u = torch.finfo(dtype).eps
    for expected, *others in zip(gradients(), gradients(create_graph=True), direct, strict=True):
        assert expected.isfinite().all()
        assert expected.any()
        atol = 8 * u * float(expected.abs().max())
        for other in others:
            assert other.requires_grad
            torch.testing.assert_close(other.detach(), expected, rtol=8 * u, atol=atol)


def test_gradients_of_rms_norm_rope_with_create_graph_are_the_same_for_large_heads():
    q = (X[:, None] * 1e30).requires_grad_()
    y = rms_norm_rope(q, q.detach(), SCALE, SCALE, POSITIONS, PARAMS)[0]
    expected, again = (
        torch.autograd.grad(y, q, torch.full_like(y, 1e30), retain_graph=True, create_graph=graph)[0]
        for graph in (False, True)
    )
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(again.detach(), expected, rtol=1e-5, atol=1e-6)


def second_gradient(call, x, size):
    """Return the gradient of one element of x's gradient with respect to x, scaled twice by ``size``."""
    (first,) = torch.autograd.grad(call(x).sum() * size, x, create_graph=True)
    return torch.autograd.grad(first[0, 0] * size, x)[0]


@pytest.mark.parametrize("exponent", [-300, -120, -60, 60, 120, 300])
def test_second_gradients_do_not_depend_on_the_size_of_float64_rows(exponent):
    def second(size):
        x = (X.double() * size).requires_grad_()
        return second_gradient(lambda x: rms_norm(x, SCALE.double(), epsilon=0.0, stash_type=11), x, size)

    torch.testing.assert_close(second(10.0**exponent), second(1.0))


@pytest.mark.parametrize("stash_type", [1, 10])
def test_second_gradients_do_not_round_to_float16_in_between(stash_type):
    """The scale's gradient exceeds float16's range; x's does not."""
    x, scale = (X * 1000).half().requires_grad_(), SCALE.clone().requires_grad_()
    y = rms_norm(x, scale, stash_type=stash_type)
    (scale_grad,) = torch.autograd.grad(y, scale, torch.full_like(y, 2.0**18), create_graph=True)
    (got,) = torch.autograd.grad(scale_grad[0], x)
    exact = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(rms_norm_by_torch(exact, 1.0)[:, 0].sum() * 2.0**18, exact)
    torch.testing.assert_close(got.double(), expected, rtol=2e-3, atol=2e-3 * float(expected.abs().max()))


def test_results_that_do_not_depend_on_a_leaf_need_no_gradient():
    scale, k = SCALE.clone().requires_grad_(), X[:, None].clone().requires_grad_()
    assert [y.requires_grad for y in add_rms_norm(X, OTHER, scale)] == [True, False]
    ys = rms_norm_rope(X[:, None], k, SCALE, SCALE, POSITIONS, PARAMS)
    assert [y.requires_grad for y in ys] == [False, True]
    ys[1].sum().backward()
    alone = X.clone().requires_grad_()
    CALLS["rms_norm_rope"](alone).sum().backward()
    torch.testing.assert_close(k.grad[:, 0], alone.grad)


# ---- scales without a gradient --------------------------------------------------------------------------


def sum_of_rotated(q, k):
    return q.square().sum() + k.square().sum()


# By operator: a loss of x and of the scales of two norms, and the number of norms.
LOSSES = {
    "rms_norm": (lambda x, scale, _: rms_norm(x, scale).square().sum(), 1),
    "rms_norm of five dimensions": (
        lambda x, scale, _: rms_norm(x.view(1, 3, 1, 1, 8).expand(2, 3, 2, 2, 8), scale).square().sum(),
        1,
    ),
    "add_rms_norm": (lambda x, scale, _: add_rms_norm(x, OTHER, scale)[0].square().sum(), 1),
    "rms_norm_rope": (
        lambda x, q, k: sum_of_rotated(*rms_norm_rope(x[:, None], x[:, None], q, k, POSITIONS, PARAMS)),
        2,
    ),
    "qkv_norm_rope_cache": (
        lambda x, q, k: sum_of_rotated(
            *qkv_norm_rope_cache(x[:, None], x[:, None], None, POSITIONS, PARAMS, q_scale=q, k_scale=k)[:2]
        ),
        2,
    ),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("trained", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("loss", "norms"), LOSSES.values(), ids=LOSSES)
def test_the_gradient_of_a_scale_is_computed_only_where_it_is_needed(
    loss, norms, trained, create_graph, monkeypatch
):
    def gradients(trained):
        x, *scales = X.clone().requires_grad_(), SCALE.clone(), SCALE.clone()
        for scale, is_trained in zip(scales, trained, strict=True):
            scale.requires_grad_(is_trained)
        leaves = [leaf for leaf in (x, *scales) if leaf.requires_grad]
        given = loss(x, *scales), leaves
        found = iter(torch.autograd.grad(*given, create_graph=create_graph, allow_unused=True))
        return [next(found) if leaf.requires_grad else None for leaf in (x, *scales)]

    called, callable_named = [], calls.callable_named
    expected = gradients((True, True))
    monkeypatch.setattr(calls, "callable_named", lambda op: called.append(op) or callable_named(op))
    for got, wanted, is_needed in zip(gradients(trained), expected, (True, *trained), strict=True):
        assert (got is not None) == (is_needed and wanted is not None)
        assert got is None or torch.equal(got, wanted)
    if not create_graph:  # else torch's operations compute the gradients
        with_scale = sum(trained[:norms])
        assert called.count("rms_norm_backward") == with_scale
        assert called.count("rms_norm_backward_dx") == norms - with_scale


def test_torch_checks_the_operator_without_the_scales_gradient():
    operator = torch.ops.npu_rope.rms_norm_backward_dx.default
    given = GRAD.clone().requires_grad_(), X.clone().requires_grad_(), SCALE.clone().requires_grad_()
    torch.library.opcheck(operator, given)
    assert torch.autograd.gradcheck(
        operator, [v.detach().double().requires_grad_() for v in given] + [-1, 1e-5, 11]
    )


def test_a_bad_call_without_the_scales_gradient_has_the_message_of_rms_norm_backward():
    message = r"^\[rms_norm_backward\] scale must be broadcastable to x's shape \[3, 8\] but got "
    with pytest.raises((ValueError, RuntimeError), match=message):
        torch.ops.npu_rope.rms_norm_backward_dx(GRAD, X, SCALE[:3])


# ---- torch.func -------------------------------------------------------------------------------------------


@with_each_call
def test_torch_func_gives_the_gradients_of_autograd(call):
    x = SCALE if call is CALLS["scale"] else X
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum_of_squares(call)(leaf), leaf)
    assert torch.equal(torch.func.grad(sum_of_squares(call))(x), expected)
    value, pull_back = torch.func.vjp(call, x)
    assert torch.equal(pull_back(2 * value)[0], expected)


@pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning")
def test_torch_func_differentiates_each_element_of_a_batch():
    expected = torch.func.grad(sum_of_squares(CALLS["rms_norm"]))(X)
    assert torch.equal(torch.vmap(torch.func.grad(sum_of_squares(CALLS["rms_norm"])))(X), expected)
    jacobian, expected = (torch.func.jacrev(f)(X) for f in (CALLS["rms_norm"], rms_norm_by_torch))
    torch.testing.assert_close(jacobian, expected)


@with_each_call
def test_an_outer_gradient_passes_through_torch_func_grad(call):
    """A gradient penalty needs this. The value that grad_and_value returns also has its gradient."""
    x, weight = (SCALE if call is CALLS["scale"] else X), torch.linspace(-1, 2, 8).requires_grad_()

    def cubes(x):
        return call(x * weight).pow(3).sum()

    leaf = x.clone().requires_grad_()
    (inner,) = torch.autograd.grad(cubes(leaf), leaf, create_graph=True)
    expected = torch.autograd.grad(inner.square().sum(), weight)[0]
    assert expected.abs().max() > 0.1
    penalty = torch.func.grad(cubes)(x).square().sum()
    torch.testing.assert_close(torch.autograd.grad(penalty, weight)[0], expected)
    value_grad = torch.autograd.grad(torch.func.grad_and_value(cubes)(x)[1], weight)[0]
    torch.testing.assert_close(value_grad, torch.autograd.grad(cubes(x), weight)[0])


# ---- tangents of gradients --------------------------------------------------------------------------------


def tangent_by_dual_numbers(call):
    """Return the tangent of x's gradient along GRAD, where the result's gradient has the tangent OTHER."""
    x = X.clone().requires_grad_()
    with torch.autograd.forward_ad.dual_level():
        weight = torch.autograd.forward_ad.make_dual(GRAD, OTHER)
        (gradient,) = torch.autograd.grad((call(x) * weight).sum(), x)
        return torch.autograd.forward_ad.unpack_dual(gradient).tangent


def tangent_by_jvp(call):
    x = X.clone().requires_grad_()
    y = call(x)
    return torch.func.jvp(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0], (GRAD,), (OTHER,))[1]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("tangent", [tangent_by_dual_numbers, tangent_by_jvp])
def test_gradients_carry_tangents(tangent):
    def added(x):
        return add_rms_norm(x, torch.zeros_like(x), SCALE)[0]

    def rotated(x):
        y = rms_norm_rope(x[:, None], X[:, None], SCALE, SCALE, torch.zeros(3, dtype=torch.int64), PARAMS)[0]
        return y[:, 0]

    expected = tangent(rms_norm_by_torch)
    for call in (CALLS["rms_norm"], added, rotated):
        torch.testing.assert_close(tangent(call), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_raw_operators_refuse_tangents():
    operator = torch.ops.npu_rope.rms_norm
    with pytest.raises(NotImplementedError, match=r"\[rms_norm\] x must carry no tangent"):
        torch.func.jvp(lambda x: operator(x, SCALE, -1, 1e-5, 1), (X,), (X,))


def test_raw_operators_that_write_refuse_a_scale_or_table_that_needs_a_gradient():
    scale, out = SCALE.clone().requires_grad_(), torch.empty_like(X)
    cos, sin = OTHER[:, :4].cos().requires_grad_(), OTHER[:, :4].sin()
    q, ops = X.view(1, 3, 1, 8), torch.ops.npu_rope
    for name, call in {
        "scale": lambda: ops.rms_norm_out(X, scale, out=out),
        "cos": lambda: ops.rotary_mul_out(q, cos, sin, out=out.view(q.shape)),
    }.items():
        with pytest.raises(RuntimeError, match=rf"\] {name} must not need a gradient"):
            call()
        with torch.no_grad():
            call()


# ---- given memory -----------------------------------------------------------------------------------------


def test_a_call_in_place_through_another_view_has_the_same_gradient():
    leaf = X.clone().requires_grad_()
    x = leaf * 1
    rms_norm(x, SCALE, out=x[:]).backward(GRAD)
    again = X.clone().requires_grad_()
    rms_norm(again, SCALE).backward(GRAD)
    assert torch.equal(leaf.grad, again.grad)


@pytest.mark.parametrize("backend", [None, "reference", "sim"])
def test_an_inference_tensor_is_written_outside_inference_mode(backend):
    with torch.inference_mode():
        out, total, cache = torch.zeros(3, 8), torch.zeros(3, 8), torch.zeros(4, 1, 8)
    add_rms_norm(X, OTHER, SCALE, out=(out, total), backend=backend)
    assert torch.equal(total, X + OTHER)
    rms_norm(X, SCALE, out=out, backend=backend)
    torch.testing.assert_close(out, rms_norm_by_torch(X))
    q = X[:, None]
    rms_norm_rope(q, q, SCALE, SCALE, POSITIONS, PARAMS, rows=POSITIONS + 1, cache=cache, backend=backend)
    torch.testing.assert_close(cache[1, 0], rms_norm_by_torch(X)[0])
    assert not cache[0].any()


# ---- named back ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "sim", "sim:ascend310p"])
def test_a_named_backend_refuses_a_gradient_of_a_scale_or_table(backend):
    scale, q = SCALE.clone().requires_grad_(), X[:, None]
    cos, sin = OTHER[:, :4].cos().requires_grad_(), OTHER[:, :4].sin()
    for name, call in (
        ("[rms_norm] scale", lambda: rms_norm(X, scale, backend=backend)),
        ("[rms_norm] scale", lambda: rms_norm(X, scale, out=torch.empty(3, 8), backend=backend)),
        ("[add_rms_norm] scale", lambda: add_rms_norm(X, OTHER, scale, backend=backend)),
        ("[rms_norm_backward] scale", lambda: rms_norm_backward(GRAD, X, scale, backend=backend)),
        (
            "[rms_norm_rope] k_scale",
            lambda: rms_norm_rope(q, q, SCALE, scale, POSITIONS, PARAMS, backend=backend),
        ),
        ("[rotary_mul] cos", lambda: rotary_mul(X.view(1, 3, 1, 8), cos, sin, backend=backend)),
    ):
        with pytest.raises(ValueError, match="must not need a gradient") as caught:
            call()
        text = f"{name} must not need a gradient for backend {backend} but got requires_grad."
        assert str(caught.value) == text
        with torch.no_grad():
            call()
