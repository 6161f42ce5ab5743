"""torch_npu's RMS norms on npu_rope, compared with the specification and torch_npu's documented formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from norm_cases import assert_within, on_hosts, values_of

from npu_rope import backends
from npu_rope.compat import torch_npu
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import SMALLEST_SUBNORMAL, UNIT_ROUNDOFF
from npu_rope.testing.norm_spec import NormCall

DTYPES = ["float32", "float16", "bfloat16"]
SHAPES = [((24, 1, 128), (128,)), ((2, 3, 5, 17), (5, 17)), ((7,), (7,)), ((2, 2, 1, 3, 2, 40), (2, 40))]


@pytest.fixture(autouse=True)
def default_backend(request, monkeypatch):
    """Make the fixture `backend` the default one. Tests without it use the tensors' device."""
    if "backend" in request.fixturenames:
        monkeypatch.setattr(backends, "default_backend", request.getfixturevalue("backend"))


def randn(shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))


def sample(shapes, dtype, gamma_dtype=None):
    shape, gamma_shape = shapes
    return randn(shape, dtype, 0), randn(shape, dtype, 1), randn(gamma_shape, gamma_dtype or dtype, 2)


def assert_rstd(rstd, x, gamma, epsilon):
    """Check that rstd is float32, rounded once from double, with size 1 in each of gamma's dimensions."""
    axes = tuple(range(x.dim() - gamma.dim(), x.dim()))
    expected = 1 / np.sqrt(np.mean(values_of(x) ** 2, axes, keepdims=True) + epsilon)
    assert rstd.dtype == torch.float32
    assert tuple(rstd.shape) == (*x.shape[: x.dim() - gamma.dim()], *(1,) * gamma.dim())
    assert np.all(np.abs(values_of(rstd) - expected) <= 1.01 * UNIT_ROUNDOFF["float32"] * expected)


def spec_of(x, gamma, epsilon):
    """Return the specification's y in gamma's dtype and its bound."""
    dtypes = (str(t.dtype).removeprefix("torch.") for t in (x, gamma))
    return norm_spec.rms_norm(
        NormCall(values_of(x), values_of(gamma), *dtypes, axis=-gamma.dim(), epsilon=epsilon)
    )


@on_hosts
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_meets_the_specification(dtype, shapes, backend):
    x, _, gamma = sample(shapes, dtype)
    y, rstd = torch_npu.npu_rms_norm(x, gamma, 1e-5)
    assert_within(y, spec_of(x, gamma, 1e-5), dtype)
    assert_rstd(rstd, x, gamma, 1e-5)


@on_hosts
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_meets_the_specification(dtype, shapes, backend):
    x1, x2, gamma = sample(shapes, dtype)
    y, rstd, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
    assert torch.equal(x, x1 + x2)
    assert_within(y, spec_of(x, gamma, 1e-6), dtype)
    assert_rstd(rstd, x, gamma, 1e-6)


@on_hosts
@pytest.mark.parametrize("gamma_dtype", ["own", "float32"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gemma_rms_norm_is_rounded_once(dtype, shapes, gamma_dtype, backend):
    x, _, gamma = sample(shapes, dtype, None if gamma_dtype == "own" else gamma_dtype)
    y, rstd = torch_npu.npu_gemma_rms_norm(x, gamma)
    factor = 1 + gamma.float()
    value, bound = spec_of(x.float(), factor, 1e-6)
    assert_within(y, (value, bound + UNIT_ROUNDOFF[dtype] * np.abs(value) + SMALLEST_SUBNORMAL[dtype]), dtype)
    assert_rstd(rstd, x, gamma, 1e-6)


@on_hosts
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gemma_rms_norm_nearly_always_has_transformers_bits(dtype, backend):
    """Gemma rounds no intermediate value; rounding x * rstd, as Llama does, gives other results."""
    modeling = pytest.importorskip("transformers.models.gemma.modeling_gemma")
    x, _, gamma = sample(((64, 256), (256,)), dtype)
    norm = modeling.GemmaRMSNorm(256, eps=1e-6)
    norm.weight.data = gamma
    with torch.no_grad():
        theirs = norm(x)
    y, _ = torch_npu.npu_gemma_rms_norm(x, gamma)
    assert (y == theirs).float().mean() > 0.999
    rounded, _ = torch_npu.npu_rms_norm(x, (1 + gamma.float()).to(gamma.dtype))
    assert (rounded == theirs).float().mean() < 0.9


@on_hosts
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gamma_may_be_float32(dtype, backend):
    x1, x2, gamma = sample(SHAPES[0], dtype, "float32")
    for given, (y, *_) in (
        (x1, torch_npu.npu_rms_norm(x1, gamma)),
        (x1 + x2, torch_npu.npu_add_rms_norm(x1, x2, gamma)),
    ):
        value, bound = spec_of(given, gamma, 1e-6)
        assert_within(y, (value, bound + UNIT_ROUNDOFF[dtype] * np.abs(value)), dtype)


def test_float64_is_not_rounded_to_float32():
    x, gamma = torch.randn(3, 9, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    norm = (x.square().mean(-1, keepdim=True) + float(np.float32(1e-6))).rsqrt()
    for y, factor in (
        (torch_npu.npu_rms_norm(x, gamma)[0], gamma),
        (torch_npu.npu_gemma_rms_norm(x, gamma)[0], 1 + gamma),
        (torch_npu.npu_add_rms_norm(x / 2, x / 2, gamma)[0], gamma),
    ):
        torch.testing.assert_close(y, x * norm * factor, rtol=1e-14, atol=1e-14)


def test_gradients_flow_from_y_and_x_but_not_from_rstd():
    x1, x2, gamma = (t.double().requires_grad_() for t in sample(((3, 2, 4), (2, 4)), "float32"))
    assert torch.autograd.gradcheck(lambda *t: torch_npu.npu_rms_norm(*t, 0.25)[0], (x1, gamma))
    assert torch.autograd.gradcheck(lambda *t: torch_npu.npu_gemma_rms_norm(*t, 0.25)[0], (x1, gamma))
    assert torch.autograd.gradcheck(lambda *t: torch_npu.npu_add_rms_norm(*t, 0.25)[::2], (x1, x2, gamma))
    results = torch_npu.npu_add_rms_norm(x1, x2, gamma)
    assert [t.requires_grad for t in results] == [True, False, True]


def test_the_functions_compile_without_graph_breaks():
    x1, x2, gamma = sample(SHAPES[0], "bfloat16")

    def model(x1, x2, gamma):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
        return torch_npu.npu_gemma_rms_norm(y + x, gamma)[0], torch_npu.npu_rms_norm(y, gamma)[1]

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(x1, x2, gamma), model(x1, x2, gamma), strict=True):
        assert torch.equal(a, b)


X, GAMMA = torch.ones(2, 5, 8), torch.ones(8)
BAD = {
    "input": (lambda: torch_npu.npu_rms_norm([1], GAMMA), "input must be a torch tensor but got list."),
    "gamma": (lambda: torch_npu.npu_rms_norm(X, None), "gamma must be a torch tensor but got NoneType."),
    "size": (
        lambda: torch_npu.npu_rms_norm(X, GAMMA[:1]),
        "gamma must have input's last dimensions, of [2, 5, 8], but got [1].",
    ),
    "rank": (
        lambda: torch_npu.npu_gemma_rms_norm(X, torch.ones(1, 2, 5, 8)),
        "gamma must have input's last dimensions, of [2, 5, 8], but got [1, 2, 5, 8].",
    ),
    "0d": (
        lambda: torch_npu.npu_gemma_rms_norm(X, torch.tensor(1.0)),
        "gamma must have input's last dimensions, of [2, 5, 8], but got [].",
    ),
    "dtype": (
        lambda: torch_npu.npu_rms_norm(X, GAMMA.half()),
        "gamma must be float32 but got float16.",
    ),
    "x2": (
        lambda: torch_npu.npu_add_rms_norm(X, X[:1], GAMMA),
        "x2 must be [2, 5, 8] of float32 like x1 but got [1, 5, 8] of float32.",
    ),
    "x2-dtype": (
        lambda: torch_npu.npu_add_rms_norm(X, X.half(), GAMMA),
        "x2 must be [2, 5, 8] of float32 like x1 but got [2, 5, 8] of float16.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_call_is_refused(case):
    run, text = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        run()
    assert re.fullmatch(r"\[npu_\w+\] " + re.escape(text), str(caught.value))


def test_a_bad_dtype_is_refused_by_rms_norm():
    with pytest.raises(TypeError, match=r"^\[rms_norm\] x must be float32, .* but got int32\.$"):
        torch_npu.npu_rms_norm(X.int(), GAMMA)
