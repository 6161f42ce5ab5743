"""The reference against a slow loop written from the specification's text, and rounding to bfloat16."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from npu_rope import RopeParams, rope
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import ggml_angles
from npu_rope.testing.bounds import rotation_bound, worst_ratio


def rope_by_scalars(x, positions, p, factors, forward):
    """Return rope by specs/ggml_rope_acltensor.txt, sections 1 to 5 and 7, one scalar at a time."""
    B, S, N, _ = x.shape
    y = x.copy()
    n = p.n_dims
    theta_scale = p.freq_base ** (-2 / n)
    low = high = 0.0
    if p.ext_factor != 0:

        def d(beta):
            return n / (2 * math.log(p.freq_base)) * math.log(p.n_ctx_orig / (2 * math.pi * beta))

        low, high = max(0, math.floor(d(p.beta_fast))), min(n - 1, math.ceil(d(p.beta_slow)))
    sin_sign = 1.0 if forward else -1.0
    for b in range(B):
        for s in range(S):
            position = int(positions[b, s])
            for i0 in range(0, n, 2):
                extrapolated = position * theta_scale ** (i0 / 2) / float(factors[i0 // 2])
                theta = p.freq_scale * extrapolated
                attn_factor = p.attn_factor
                if p.ext_factor != 0:
                    ramp = (i0 / 2 - low) / max(0.001, high - low)
                    ramp_mix = (1 - min(1, max(0, ramp))) * p.ext_factor
                    theta = theta * (1 - ramp_mix) + extrapolated * ramp_mix
                    attn_factor *= 1 + 0.1 * math.log(1 / p.freq_scale)
                cos, sin = math.cos(theta) * attn_factor, math.sin(theta) * attn_factor * sin_sign
                first, second = (i0 // 2, i0 // 2 + n // 2) if p.mode == 2 else (i0, i0 + 1)
                first, second = first + p.n_offs, second + p.n_offs
                for h in range(N):
                    x1, x2 = x[b, s, h, first], x[b, s, h, second]
                    y[b, s, h, first] = x1 * cos - x2 * sin
                    y[b, s, h, second] = x1 * sin + x2 * cos
    return y


PARAMS = [
    {},
    {"n_dims": 12},
    {"n_dims": 12, "n_offs": 6},
    {"freq_scale": 0.25, "attn_factor": 1.3},
    {"freq_scale": 0.25, "ext_factor": 1.0, "n_ctx_orig": 4096},
    {"freq_scale": 0.1, "ext_factor": 0.7, "n_ctx_orig": 512, "beta_fast": 16.0, "beta_slow": 0.5},
    {"freq_base": 3.0, "attn_factor": -2.0},
]


@pytest.mark.parametrize("changed", PARAMS, ids=str)
@pytest.mark.parametrize("mode", ["normal", "neox"])
@pytest.mark.parametrize("forward", [True, False])
def test_the_reference_equals_a_loop_by_the_specification(changed, mode, forward):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 2, 21))
    positions = rng.integers(-50, 1000, (2, 3))
    p = RopeParams(**{"n_dims": 20, "mode": mode, **changed})
    for factors in (None, rng.uniform(0.5, 8, 11).astype(np.float32)):
        expected = rope_by_scalars(x, positions, p, np.ones(10) if factors is None else factors, forward)
        got = reference.rope(x, positions, p, factors, forward=forward)
        c, s = reference.cos_sin(positions, p, factors, forward=forward)
        # The bound is for a float64 angle of at most 2000 radians after a few roundings.
        bound = rotation_bound(x, c[..., None, :], s[..., None, :], expected, p, "float64", 2.0**-38)
        assert worst_ratio(got, expected, bound)[0] <= 1


@pytest.mark.parametrize("shape", [(3, 2, 4), (1, 3, 2, 4), (2, 0, 2, 4), (0, 3, 2, 4), (2, 3, 0, 4)])
def test_the_reference_returns_float64_in_the_shape_of_x(shape):
    y = reference.rope(np.ones(shape, np.float16), np.arange(shape[-3]), RopeParams(4))
    assert (y.shape, y.dtype) == (shape, np.float64)


def test_the_reference_does_not_change_x():
    x = np.random.default_rng(1).standard_normal((3, 2, 8))
    before = x.copy()
    reference.rope(x, np.arange(3), RopeParams(8, "neox"))
    assert np.array_equal(x, before)


def test_the_fused_yarn_sum_differs_from_the_plain_one_by_at_most_two_ulps():
    """The fused sum rounds once less, which changes some angles."""
    p = RopeParams(128, n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0)
    positions = np.arange(0, 131_072, 997)
    plain, fused = (ggml_angles(positions, p, fused=f) for f in (False, True))
    different = plain != fused
    assert different.any()
    assert np.all(np.abs(plain - fused) <= 2 * np.spacing(np.maximum(plain, fused)))


# ---- bfloat16 -------------------------------------------------------------------------------------


def bits_of(values):
    return values.view(np.uint16)


def nearest_even(value):
    """Return the bfloat16 nearest to a float64, ties to even, computed without other roundings."""
    if not math.isfinite(value) or value == 0:
        return ml_dtypes.bfloat16(value)
    size = abs(value)
    exponent = max(math.frexp(size)[1] - 8, -133)
    scaled = math.ldexp(size, -exponent)  # exact: a power of two
    integer = math.floor(scaled)
    rest = scaled - integer
    integer += rest > 0.5 or (rest == 0.5 and integer % 2 == 1)
    rounded = math.ldexp(integer, exponent)
    return ml_dtypes.bfloat16(math.copysign(math.inf if rounded > 3.3895313892515355e38 else rounded, value))


def hard_values():
    """Return the finite bfloat16 values, midpoints, larger values, and the float64 neighbours of all."""
    all_bits = np.arange(2**16, dtype=np.uint16)
    values = bfloat16_values(all_bits)
    finite = np.sort(values[np.isfinite(values)]).astype(np.float64)
    halfway = (finite[1:] + finite[:-1]) / 2
    top = 3.3895313892515355e38
    overflow = np.array([top * (1 + 2.0**-9), top + 2.0**119, 3.4e38, 3.5e38, 1e300])
    hard = np.concatenate([finite, halfway, overflow, -overflow])
    return np.concatenate([hard, np.nextafter(hard, np.inf), np.nextafter(hard, -np.inf)])


def test_bfloat16_bits_round_hard_values_once():
    hard = hard_values()
    got = bfloat16_bits(hard)
    expected = bits_of(np.array([nearest_even(v) for v in hard.tolist()], ml_dtypes.bfloat16))
    assert np.array_equal(got, expected)


def test_bfloat16_bits_agree_with_ml_dtypes_from_float32():
    """ml_dtypes rounds float32 values only once, so the expected values are correct."""
    rng = np.random.default_rng(2)
    bits = np.concatenate([rng.integers(0, 2**32, 2**18), np.arange(0, 2**32, 2**15)]).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    assert np.array_equal(bfloat16_bits(values), bits_of(values.astype(ml_dtypes.bfloat16)))


def test_bfloat16_keeps_nan_infinity_zero_and_their_signs():
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
    back = bfloat16_values(bfloat16_bits(values))
    assert np.array_equal(back, values, equal_nan=True)
    assert np.array_equal(np.signbit(back), np.signbit(values))


def test_bfloat16_to_float32_and_back_is_exact():
    bits = np.arange(2**16, dtype=np.uint16)
    values = bfloat16_values(bits)
    is_number = ~np.isnan(values)
    assert np.array_equal(bfloat16_bits(values)[is_number], bits[is_number])


def test_the_reference_backend_rounds_once_for_numpy_and_torch():
    """1 + 2**-8 + 2**-30 is above a tie and rounds up. A rounding to float32 first would give the tie."""
    import torch

    factor = 1 + 2.0**-8 + 2.0**-30
    params, positions = RopeParams(2, attn_factor=factor), np.array([0])
    x = np.array([[[1.0, 0.0]]], ml_dtypes.bfloat16)
    y = rope(x, positions, params, backend="reference")
    t = rope(
        torch.tensor([[[1.0, 0.0]]], dtype=torch.bfloat16), torch.tensor([0]), params, backend="reference"
    )
    assert float(y[0, 0, 0]) == 1 + 2.0**-7
    assert t[0, 0, 0].item() == 1 + 2.0**-7
