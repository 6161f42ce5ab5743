"""rms_norm_rounded_last: types of x and scale, sizes around vectors and blocks, instruction sets, the ends of
the types' ranges, errors, and the calls that compute it in another way.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from instruction_sets import SUPPORTED

from npu_rope import rms_norm
from npu_rope.ops import calls
from npu_rope.ops.rms_norm import rms_norm_rounded_last
from npu_rope.testing import norm_spec

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (1, 7, 16, 31, 33, 64, 128, 200, 513, 1040, 4100)
PAIRS = list(itertools.product(DTYPES, DTYPES))
MAGNITUDES = (1.0, 1e-3, 1e2, 3e4)


def OPERATOR(x, scale, axis=-1, epsilon=1e-5, scale_offset=0.0):
    packed = calls.packed_attributes("rms_norm_rounded_last", (axis, epsilon, scale_offset))
    return torch.ops.npu_rope.rms_norm_rounded_last(x, scale, packed)


def sample(dtype, scale_dtype, n, rows=5):
    generator = torch.Generator().manual_seed(n)
    magnitudes = torch.tensor(MAGNITUDES).repeat(rows)[:rows, None]
    x = (torch.randn(rows, n, generator=generator) * magnitudes).clamp(-6e4, 6e4)
    return x.to(dtype), torch.randn(n, generator=generator).to(scale_dtype)


def ends_of(x, scale, epsilon, scale_offset):
    """Return the least and largest allowed results: of the norm in float32, rounded to x's type."""
    name = str(x.dtype).removeprefix("torch.")
    total = (scale.float() + scale_offset).double().numpy()
    call = norm_spec.NormCall(x.double().numpy(), total, "float32", "float32", epsilon=epsilon)
    value, bound = norm_spec.rms_norm(call)
    return [norm_spec.cast((value + side * bound).astype(np.longdouble), name) for side in (-1, 1)]


def assert_within_ends(y, x, scale, epsilon, scale_offset):
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    least, largest = ends_of(x, scale, epsilon, scale_offset)
    got = y.double().numpy()
    assert ((least <= got) & (got <= largest)).all()


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("scale_offset", [0.0, 1.0, -0.3])
@pytest.mark.parametrize(("dtype", "scale_dtype"), PAIRS)
def test_results_are_within_their_bounds(dtype, scale_dtype, scale_offset, isa, force_isa):
    force_isa(isa)
    for n in SIZES:
        x, scale = sample(dtype, scale_dtype, n)
        y = OPERATOR(x, scale, -1, 1e-6, scale_offset)
        assert_within_ends(y, x, scale, 1e-6, scale_offset)
        if dtype != torch.bfloat16:  # whose squares are added in another order
            expected = rms_norm(x.float(), scale.float() + scale_offset, epsilon=1e-6).to(dtype)
            assert torch.equal(y, expected)


@pytest.mark.parametrize(("dtype", "scale_dtype"), PAIRS)
def test_rows_that_are_computed_in_double_are_within_their_bounds(dtype, scale_dtype):
    """Rows of tiny or huge elements, between rows of usual ones."""
    x, scale = sample(dtype, scale_dtype, 40, rows=6)
    for row, magnitude in ((1, 2.0**-24), (3, 2.0**-126), (4, 2.0**100)):
        if magnitude >= torch.finfo(dtype).smallest_normal * 2.0**-10 and magnitude < torch.finfo(dtype).max:
            x[row] = (x[row].double() / MAGNITUDES[row % 4] * magnitude).to(dtype)
    for epsilon in (0.0, 1e-30):
        assert_within_ends(OPERATOR(x, scale, -1, epsilon, 1.0), x, scale, epsilon, 1.0)


def test_the_offset_scale_of_a_row_in_double_is_rounded_to_float32():
    x, scale = torch.randn(4, 1040) * 2.0**-60, torch.randn(1040)
    assert torch.equal(OPERATOR(x, scale, -1, 0.0, 1.0), rms_norm(x, scale + 1.0, epsilon=0.0))


@pytest.mark.parametrize(("dtype", "scale_dtype"), PAIRS)
def test_a_nan_of_the_scale_stays_a_nan_whatever_its_bits(dtype, scale_dtype):
    bits = torch.int32 if scale_dtype == torch.float32 else torch.int16
    for n in (5, 32, 41):
        x, scale = sample(dtype, scale_dtype, n)
        # In float32, this NaN rounds to -0 if a carry reaches the sign.
        scale.view(bits)[::3] = 0x7FFFFFFF if scale_dtype == torch.float32 else 0x7FFF
        for tiny in (1.0, 0.0):
            y = OPERATOR(x * tiny, scale, -1, 0.0 if tiny else 1e-5, 1.0)
            assert torch.equal(y.isnan(), scale.isnan().expand_as(y))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.view(2, 3, 4, 40).transpose(0, 2),
        lambda x: x.view(24, 40)[::2],
        lambda x: x.view(2, 1, 3, 1, 4, 40),
        lambda x: x.view(3, 8, 40)[:0],
        lambda x: x.view(24, 40).flip(0).expand(2, 24, 40),
    ],
)
def test_layouts(layout):
    for dtype in DTYPES:
        x, scale = sample(dtype, torch.bfloat16, 40, rows=24)
        x = layout(x)
        y = OPERATOR(x, scale, -1, 1e-5, 1.0)
        assert y.is_contiguous()
        assert torch.equal(y, OPERATOR(x.contiguous(), scale, -1, 1e-5, 1.0))
        assert y.shape == x.shape


@pytest.mark.parametrize("threads", [1, 2])
def test_large_tensors_have_the_bits_of_their_rows(threads):
    """Their stores go past the caches."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n in (128, 2048):
            x = torch.randn((40 << 20) // n, n).bfloat16()
            scale = torch.randn(n)
            y = OPERATOR(x, scale, -1, 1e-5, 1.0)
            for rows in (slice(0, 8), slice(len(x) // 2 - 4, len(x) // 2 + 4), slice(len(x) - 8, len(x))):
                assert torch.equal(y[rows], OPERATOR(x[rows].contiguous(), scale, -1, 1e-5, 1.0))
    finally:
        torch.set_num_threads(before)


def called_operators(monkeypatch):
    """Record the names of operators on the hot path."""
    from npu_rope.ops import calls

    names, original = [], calls.try_hot_path
    monkeypatch.setattr(calls, "try_hot_path", lambda op, *a, **n: names.append(op) or original(op, *a, **n))
    return names


def test_a_call_without_gradient_is_one_operator(monkeypatch):
    x, scale = sample(torch.bfloat16, torch.bfloat16, 64)
    names = called_operators(monkeypatch)
    with torch.no_grad():
        y = rms_norm_rounded_last(x, torch.nn.Parameter(scale), 1e-6, 1.0)
    assert names == ["rms_norm_rounded_last"]
    assert torch.equal(y, OPERATOR(x, scale, -1, 1e-6, 1.0))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_gradients_are_those_of_its_operations(dtype):
    x, scale = sample(dtype, torch.float32, 48)
    grad = torch.randn(x.shape).to(dtype)
    found = []
    for run in (
        rms_norm_rounded_last,
        lambda x, s, e, o: (torch.nn.functional.rms_norm(x.double(), (48,), None, e) * (s.double() + o)).to(
            x.dtype
        ),
    ):
        leaves = x.clone().requires_grad_(), scale.clone().requires_grad_()
        y = run(*leaves, 1e-6, 1.0)
        y.backward(grad)
        found.append((y.detach(), leaves[0].grad, leaves[1].grad))
    error = 4 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    for got, expected in zip(*found, strict=True):
        assert ((got - expected).abs() <= error * expected.abs().amax()).all()


def test_a_traced_or_compiled_call_has_the_same_result():
    x, scale = sample(torch.bfloat16, torch.bfloat16, 64)
    run = torch.compile(
        lambda x: rms_norm_rounded_last(x, scale, 1e-6, 1.0), backend="aot_eager", fullgraph=True
    )
    assert torch.allclose(run(x), OPERATOR(x, scale, -1, 1e-6, 1.0), rtol=2**-7, atol=0)
    packed = calls.packed_attributes("rms_norm_rounded_last", (-1, 1e-6, 1.0))
    operator = torch.ops.npu_rope.rms_norm_rounded_last.default
    torch.library.opcheck(operator, (x, scale, packed), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, s: OPERATOR(x, s[:3]), "scale must be broadcastable to x's shape [5, 8] but got [3]."),
        (lambda x, s: OPERATOR(x, s, 2), "axis must be in [-2, 1] but got 2."),
        (lambda x, s: OPERATOR(x, s, -1, -1.0), "epsilon must be >= 0 and finite in float32 but got -1."),
        (
            lambda x, s: OPERATOR(x, s, -1, 1e-5, float("nan")),
            "scale_offset must be finite in float32 but got nan.",
        ),
        (
            lambda x, s: OPERATOR(x.double(), s),
            "x must be float32, float16 or bfloat16 but got float64.",
        ),
    ],
)
def test_errors(call, message):
    x, scale = sample(torch.float32, torch.float32, 8)
    with pytest.raises((RuntimeError, ValueError, TypeError)) as error:
        call(x, scale)
    assert f"[rms_norm_rounded_last] {message}" in str(error.value)
