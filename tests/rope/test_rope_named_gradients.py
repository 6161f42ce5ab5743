"""Gradients of calls that name a back end: that back end also runs the backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ascend_sim import library as simulator

from npu_rope import RopeParams, rope, rope_, rope_qk, rope_set_rows
from npu_rope.ops import gradients

BACKENDS = ["reference", "sim", "sim:ascend310p"]
PARAMS = {
    "normal": RopeParams(8, "normal", n_offs=2),
    "neox": RopeParams(12, "neox", attn_factor=1.3),
    "mrope": RopeParams(12, "mrope", sections=(2, 2, 2, 0)),
    "imrope": RopeParams(12, "imrope", sections=(2, 2, 2, 0)),
    "vision": RopeParams(6, "vision", sections=(3, 3, 0, 0)),
}
every_mode = pytest.mark.parametrize("mode", PARAMS)


def positions_of(mode):
    positions = torch.tensor([3, 900, 17])
    return (
        torch.stack([positions, positions + 5, 2 * positions])
        if mode not in ("normal", "neox")
        else positions
    )


def leaf(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@every_mode
@pytest.mark.parametrize("forward", [True, False])
def test_gradcheck_on_the_reference(mode, forward):
    factors = torch.linspace(1, 2, 6)
    q, k = leaf(2, 3, 2, 12, dtype=torch.float64), leaf(2, 3, 1, 12, dtype=torch.float64, seed=1)
    options = {"backend": "reference", "forward": forward}
    rotation = positions_of(mode), PARAMS[mode], factors
    check = {"check_forward_ad": False, "fast_mode": True}
    assert torch.autograd.gradcheck(lambda x: rope(x, *rotation, **options), (q,), **check)
    assert torch.autograd.gradcheck(lambda q, k: rope_qk(q, k, *rotation, **options), (q, k), **check)
    assert torch.autograd.gradgradcheck(lambda x: rope(x, *rotation, **options), (q,), fast_mode=True)


@every_mode
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_the_gradient_equals_the_cpus(backend_name, mode):
    grads = {}
    for backend in (backend_name, "cpu"):
        x, q, k = leaf(2, 3, 2, 12), leaf(2, 3, 4, 12, seed=1), leaf(2, 3, 1, 12, seed=2)
        weights = [torch.randn(t.shape, generator=torch.Generator().manual_seed(7)) for t in (x, q, k)]
        ys = (
            rope(x, positions_of(mode), PARAMS[mode], backend=backend),
            *rope_qk(q, k, positions_of(mode), PARAMS[mode], backend=backend),
        )
        sum((y * w).sum() for y, w in zip(ys, weights, strict=True)).backward()
        grads[backend] = [t.grad for t in (x, q, k)]
    for got, expected in zip(grads[backend_name], grads["cpu"], strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=2.0**-17)


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_the_backward_runs_on_the_same_back_end(backend_name, monkeypatch):
    runs, original = [], gradients.executors.run
    monkeypatch.setattr(
        gradients.executors,
        "run",
        lambda backend, t, *rest: runs.append((backend, t.op)) or original(backend, t, *rest),
    )
    before = simulator.load().launches()
    x = leaf(3, 2, 8)
    rope(x, torch.arange(3), RopeParams(8), backend=backend_name).sum().backward()
    assert runs == [(backend_name, "rope")] * 2
    assert simulator.load().launches() - before == (2 if backend_name.startswith("sim") else 0)


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize("differentiated", ["q", "k"])
def test_one_of_q_and_k_may_need_no_gradient(differentiated, backend_name):
    t = {"q": leaf(3, 2, 8).detach(), "k": leaf(3, 1, 8).detach()}
    t[differentiated].requires_grad_()
    ys = dict(
        zip("qk", rope_qk(t["q"], t["k"], torch.arange(3), RopeParams(8), backend=backend_name), strict=True)
    )
    assert [ys[name].requires_grad for name in "qk"] == [name == differentiated for name in "qk"]
    ys[differentiated].sum().backward()
    ones = torch.ones_like(t[differentiated])
    expected = rope(ones, torch.arange(3), RopeParams(8), backend=backend_name, forward=False)
    assert torch.equal(t[differentiated].grad, expected)


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_positions_that_change_before_the_backward_are_detected(backend_name):
    x, positions = leaf(3, 2, 8), torch.arange(3)
    y = rope(x, positions, RopeParams(8), backend=backend_name)
    positions += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_calls_that_write_into_existing_memory_refuse_gradients(backend_name):
    x, positions, params = leaf(3, 2, 8), torch.arange(3), RopeParams(8)
    text = rf"^\[rope_?\] x must not need a gradient for backend {backend_name} but got requires_grad\.$"
    for call in (
        lambda: rope(x, positions, params, backend=backend_name, out=torch.empty(3, 2, 8)),
        lambda: rope_(x, positions, params, backend=backend_name),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ValueError, match=r"^\[rope_set_rows\] x must not need a gradient"):
        rope_set_rows(x, positions, positions, torch.empty(3, 2, 8), params, backend=backend_name)
    with torch.no_grad():
        rope_(x, positions, params, backend=backend_name)


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_a_bad_call_with_a_gradient_raises_its_error(backend_name):
    with pytest.raises(
        ValueError, match=r"^\[rope\] positions must have shape \[S\] = \[3\] but got \[4\]\.$"
    ):
        rope(leaf(3, 2, 8), torch.arange(4), RopeParams(8), backend=backend_name)
    with pytest.raises(
        TypeError, match=r"^\[rope_qk\] positions must be a torch tensor like q but got ndarray\.$"
    ):
        rope_qk(leaf(3, 2, 8), leaf(3, 2, 8), np.arange(3), RopeParams(8), backend=backend_name)
