"""The bounds hold for correct arithmetic and reject slightly wrong results."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_rope import RopeParams, rope
from npu_rope.reference import rope as reference
from npu_rope.testing.bounds import (
    SMALLEST_SUBNORMAL,
    TABLE_ERROR_DEVICE,
    TABLE_ERROR_HOST,
    TABLE_ERROR_NONE,
    UNIT_ROUNDOFF,
    float32_angle_error,
    int8_expectation,
    is_device,
    rotation_bound,
    within_one_ulp,
    worst_ratio,
)

DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
YARN = RopeParams(64, "neox", n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0, n_offs=8)
FACTORS = np.linspace(1, 8, 32, dtype=np.float32)
POSITIONS = np.arange(1, 9) * 13


def data(dtype, shape=(8, 3, 80), seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def ratio_of(got, x, params, dtype, *, factors=None, positions=POSITIONS, table_error=TABLE_ERROR_HOST):
    """Return the largest error of got, as a multiple of the bound."""
    c, s = reference.cos_sin(positions, params, factors)
    c, s = c[..., None, :], s[..., None, :]
    expected = reference.rotate(x, c, s, params)
    bound = rotation_bound(x, c, s, expected, params, dtype, table_error)
    return worst_ratio(got, expected, bound)[0]


def correct(x, params, dtype, factors=None, positions=POSITIONS, forward=True):
    with np.errstate(over="ignore"):
        return reference.rope(x, positions, params, factors, forward=forward).astype(DTYPES[dtype])


# ---- accepted -----------------------------------------------------------------------------------


def pairs_and_table(n, dtype, rng):
    """Return n heads of one pair, over a wide range of sizes, and cos and sin. In half of them the products
    almost cancel."""
    size = np.exp2(rng.uniform(-6, 6, (n, 1, 1)))
    x = (rng.standard_normal((n, 1, 2)) * size).astype(DTYPES[dtype])
    angle = rng.uniform(-np.pi, np.pi, n)
    cancels = rng.random(n) < 0.5  # x1*cos = x2*sin, except for a few bits
    wide = x.astype(np.float64)
    cancelling = np.arctan2(wide[:, 0, 0], wide[:, 0, 1])
    angle[cancels] = cancelling[cancels] * (1 + rng.integers(-64, 65, cancels.sum()) * 2.0**-24)
    table = np.float64 if dtype == "float64" else np.float32
    return x, np.cos(angle).astype(table)[:, None, None], np.sin(angle).astype(table)[:, None, None]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_without_angle_error_holds_for_a_million_pairs(dtype):
    """The arithmetic is two products, one sum and one rounding."""
    compute = np.float64 if dtype == "float64" else np.float32
    params = RopeParams(2)
    x, c, s = pairs_and_table(1_000_000, dtype, np.random.default_rng(7))
    a, b = x[..., :1].astype(compute), x[..., 1:].astype(compute)
    y = np.concatenate([a * c - b * s, a * s + b * c], -1).astype(DTYPES[dtype])
    extended = np.longdouble if dtype == "float64" else np.float64
    wide_a, wide_b = a.astype(extended), b.astype(extended)
    expected = np.concatenate([wide_a * c - wide_b * s, wide_a * s + wide_b * c], -1)
    bound = rotation_bound(
        x,
        c.astype(np.float64),
        s.astype(np.float64),
        expected.astype(np.float64),
        params,
        dtype,
        TABLE_ERROR_NONE,
    )
    error = np.abs(y.astype(extended) - expected)
    worst = float((error / bound).max())
    assert 0.5 < worst <= 1


def test_lanes_outside_the_window_must_be_unchanged():
    x = data("float32")
    y = correct(x, YARN, "float32")
    assert ratio_of(y, x, YARN, "float32") <= 1
    for place in (0, 7, 72, 79):
        spoiled = y.copy()
        spoiled[3, 1, place] = np.nextafter(spoiled[3, 1, place], np.float32(9))
        assert ratio_of(spoiled, x, YARN, "float32") == np.inf


# ---- rejected ----------------------------------------------------------------------------------


def wrong_sin_sign(x, dtype):
    return correct(x, YARN, dtype, FACTORS, forward=False)


def one_position_off(x, dtype):
    return correct(x, YARN, dtype, FACTORS, positions=POSITIONS + 1)


def pairing_swapped(x, dtype):
    return correct(x, dataclasses.replace(YARN, mode="normal"), dtype, FACTORS)


def mscale_forgotten(x, dtype):
    return correct(x, dataclasses.replace(YARN, attn_factor=1 / YARN.mscale()), dtype, FACTORS)


def ramp_reversed(x, dtype):
    """Interpolate where YaRN extrapolates, and the reverse."""
    own = RopeParams(64).frequencies("exact", FACTORS)
    low, high = YARN.corr_dims()
    mix = np.clip((np.arange(32) - low) / (high - low), 0, 1)
    theta = POSITIONS[:, None] * (own * YARN.freq_scale * (1 - mix) + own * mix)
    c, s = np.cos(theta) * YARN.mscale(), np.sin(theta) * YARN.mscale()
    return reference.rotate(x, c[:, None], s[:, None], YARN).astype(DTYPES[dtype])


def n_offs_ignored(x, dtype):
    return correct(x, dataclasses.replace(YARN, n_offs=0), dtype, FACTORS)


def factors_multiplied(x, dtype):
    return correct(x, YARN, dtype, (1 / FACTORS).astype(np.float32))


def factors_ignored(x, dtype):
    return correct(x, YARN, dtype)


def ext_factor_ignored(x, dtype):
    return correct(x, dataclasses.replace(YARN, ext_factor=0.0, attn_factor=YARN.mscale()), dtype, FACTORS)


def base_slightly_off(x, dtype):
    return correct(x, dataclasses.replace(YARN, freq_base=10100.0), dtype, FACTORS)


WRONG = [
    wrong_sin_sign,
    one_position_off,
    pairing_swapped,
    mscale_forgotten,
    ramp_reversed,
    n_offs_ignored,
    factors_multiplied,
    factors_ignored,
    ext_factor_ignored,
    base_slightly_off,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_correct_result_is_accepted(dtype, backend):
    x = data(dtype)
    assert ratio_of(correct(x, YARN, dtype, FACTORS), x, YARN, dtype, factors=FACTORS) <= 1
    if is_device(backend) and dtype in ("float64", "bfloat16"):
        return  # not every device has the type; tests/rope runs those that have it
    y = rope(x, POSITIONS, YARN, FACTORS, backend=backend)
    table_error = TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST
    assert ratio_of(y, x, YARN, dtype, factors=FACTORS, table_error=table_error) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda f: f.__name__)
def test_a_wrong_operator_is_rejected(wrong, dtype):
    x = data(dtype)
    assert ratio_of(wrong(x, dtype), x, YARN, dtype, factors=FACTORS) > 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_ulp_beyond_the_bound_is_rejected_at_every_element(dtype):
    """In each result one element is just beyond its bound, above or below."""
    x, params = data(dtype, (2, 1, 80)), YARN
    positions = POSITIONS[:2]
    c, s = reference.cos_sin(positions, params)
    c, s = c[..., None, :], s[..., None, :]
    expected = reference.rotate(x, c, s, params)
    bound = rotation_bound(x, c, s, expected, params, dtype, TABLE_ERROR_NONE)
    for sign in (1, -1):
        edge = expected + sign * bound
        past = np.array(edge, DTYPES[dtype])
        target = sign * np.inf
        for _ in range(2):  # past may be rounded to the inside of the edge
            inside = sign * (past.astype(np.float64) - edge) <= 0
            past = np.where(inside, np.nextafter(past, DTYPES[dtype].type(target)), past)
        for at in np.ndindex(x.shape):
            got = correct(x, params, dtype, positions=positions)
            got[at] = past[at]
            ratio, where = worst_ratio(got, expected, bound)
            assert ratio > 1
            assert where == at


# ---- the terms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_roundoff_and_subnormals_are_the_types_own(dtype):
    info = ml_dtypes.finfo(DTYPES[dtype])
    assert UNIT_ROUNDOFF[dtype] == float(info.eps) / 2
    assert SMALLEST_SUBNORMAL[dtype] == float(info.smallest_subnormal)


def test_the_bound_equals_its_formula_by_hand():
    """Every term of the formula for the pair (3, 5) at cos 0.6 and sin -0.8, in float16."""
    x, params = np.array([[[3.0, 5.0, 9.0]]]), RopeParams(2)
    c, s = np.full((1, 1, 1), 0.6), np.full((1, 1, 1), -0.8)
    expected = reference.rotate(x, c, s, params)
    bound = rotation_bound(x, c, s, expected, params, "float16", 2.0**-20)
    first = 2 * 2.0**-24 * (3 * 0.6 + 5 * 0.8) + 2.0**-20 * 8 + 2.0**-11 * 5.8 + 2.0**-24
    second = 2 * 2.0**-24 * (3 * 0.8 + 5 * 0.6) + 2.0**-20 * 8 + 2.0**-11 * 0.6 + 2.0**-24
    np.testing.assert_allclose(bound[0, 0], [first, second, 0], rtol=1e-14)


def test_the_angles_error_grows_with_mscale():
    x, c, s = np.ones((1, 1, 2)), np.zeros((1, 1, 1)), np.zeros((1, 1, 1))
    expected = np.zeros((1, 1, 2))
    plain, scaled = (
        rotation_bound(x, c, s, expected, RopeParams(2, attn_factor=a), "float32", 2.0**-10)[0, 0, 0]
        for a in (1.0, -3.0)
    )
    assert plain == 2.0**-9 + 2.0**-149
    assert scaled == 3 * 2.0**-9 + 2.0**-149


def test_worst_ratio_returns_the_index():
    expected, bound = np.zeros((2, 3)), np.ones((2, 3))
    got = np.array([[0, 0.5, 0], [0, 0, -2.0]])
    assert worst_ratio(got, expected, bound) == (2.0, (1, 2))
    assert worst_ratio(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3))) == (0.0, ())


def test_worst_ratio_accepts_only_equal_nan_and_infinity():
    bound = np.ones(1)
    for got, expected, ratio in [
        (np.nan, np.nan, 0),
        (np.inf, np.inf, 0),
        (np.inf, -np.inf, np.inf),
        (np.nan, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (np.inf, 1.0, np.inf),
    ]:
        assert worst_ratio(np.array([got]), np.array([expected]), bound)[0] == ratio


def test_a_broken_bound_of_zero_is_infinitely_wrong():
    assert worst_ratio(np.array([1e-300]), np.zeros(1), np.zeros(1))[0] == np.inf
    assert worst_ratio(np.zeros(1), np.zeros(1), np.zeros(1))[0] == 0


# ---- within one ulp of another 16-bit result --------------------------------------------------------

HALVES = ["float16", "bfloat16"]


def mover(values, dtype):
    """Return a function that moves each value by a number of steps of the type."""
    bits = values.astype(DTYPES[dtype]).view(np.uint16).astype(np.int32)
    ordered = np.where(bits & 0x8000, -(bits & 0x7FFF), bits)

    def moved(steps):
        other = ordered + steps
        return np.where(other < 0, 0x8000 | -other, other).astype(np.uint16).view(DTYPES[dtype])

    return moved


@pytest.mark.parametrize("dtype", HALVES)
def test_equal_and_neighbouring_values_are_within_one_ulp(dtype):
    x = data(dtype).ravel()
    moved = mover(x, dtype)
    for steps in (0, 1, -1):
        assert within_one_ulp(moved(steps), x, dtype) == 1
        assert within_one_ulp(x.astype(np.float32), moved(steps).astype(np.float32), dtype) == 1


@pytest.mark.parametrize("dtype", HALVES)
def test_two_ulp_are_not_within_one(dtype):
    x = data(dtype).ravel()
    moved = mover(x, dtype)
    for steps in (2, -2, 3, 100):
        assert within_one_ulp(moved(steps), x, dtype) == 0


@pytest.mark.parametrize("dtype", HALVES)
def test_the_ulp_is_the_types_own_across_powers_of_two_and_zero(dtype):
    """The step doubles at 1. The neighbours of 0 are the two smallest subnormals."""
    one, zero = np.ones(1, DTYPES[dtype]), np.zeros(1, DTYPES[dtype])
    for value in (one, zero):
        moved = mover(value, dtype)
        assert within_one_ulp(moved(1), value, dtype) == 1
        assert within_one_ulp(moved(1), moved(-1), dtype) == 0
    assert within_one_ulp(-zero, zero, dtype) == 1


@pytest.mark.parametrize("dtype", HALVES)
def test_a_sign_error_is_not_within_one_ulp(dtype):
    x = data(dtype).ravel()
    assert within_one_ulp(-x, x, dtype) == 0


@pytest.mark.parametrize("dtype", HALVES)
def test_nan_is_within_one_ulp_of_nan_only(dtype):
    nan, infinity = (np.full(1, value, DTYPES[dtype]) for value in (np.nan, np.inf))
    assert within_one_ulp(nan, -nan, dtype) == 1
    nan_next_to_infinity = (infinity.view(np.uint16) + 1).view(DTYPES[dtype])
    assert within_one_ulp(nan_next_to_infinity, infinity, dtype) == 0
    for number in (infinity, -infinity, np.zeros(1, DTYPES[dtype]), data(dtype).ravel()[:1]):
        assert within_one_ulp(nan, number, dtype) == within_one_ulp(number, nan, dtype) == 0
        assert within_one_ulp(-nan, number, dtype) == within_one_ulp(number, -nan, dtype) == 0


@pytest.mark.parametrize("dtype", HALVES)
def test_within_one_ulp_is_a_share_of_the_elements(dtype):
    x = data(dtype).ravel()[:200]
    other = x.copy()
    other[:3] = mover(x, dtype)(2)[:3]
    assert within_one_ulp(other, x, dtype) == 197 / 200
    assert within_one_ulp(x[:0], x[:0], dtype) == 1


# ---- angles in float32 -----------------------------------------------------------------------------

SECTIONS = RopeParams(128, "mrope", n_ctx_orig=512, freq_scale=1.5, ext_factor=0.75, sections=(16, 24, 24, 0))
VISION = RopeParams(40, "vision", sections=(20, 20, 0, 0))


@pytest.mark.parametrize("policy", ["ggml", "f32"])
@pytest.mark.parametrize(
    "params",
    [RopeParams(128, "normal"), RopeParams(128, "neox", freq_scale=0.25), YARN, SECTIONS, VISION],
    ids=str,
)
@pytest.mark.parametrize("last", [512, 131072])
def test_errors_of_float32_angles_are_between_a_fiftieth_and_all_of_their_bound(policy, params, last):
    rng = np.random.default_rng(1)
    shape = (4, 2000) if params.rope_mode.has_sections else (2000,)
    positions = rng.integers(0, last, shape)
    factors = rng.uniform(0.9, 1.1, params.pairs).astype(np.float32)
    allowed = float32_angle_error(reference.pair_positions(positions, params), params, factors)
    exact = np.stack(reference.cos_sin(positions, params, factors))
    got = np.stack(reference.cos_sin(positions, params, factors, policy=policy))
    ratio = np.abs(got - exact) / (allowed * max(1.0, params.mscale()))
    assert 0.02 < ratio.max() <= 1


def test_the_bound_of_float32_angles_rejects_a_position_off_by_one_and_a_wrong_frequency():
    params = RopeParams(128, "neox")
    positions = np.arange(512)
    allowed = float32_angle_error(reference.pair_positions(positions, params), params, None)
    exact = np.stack(reference.cos_sin(positions, params))
    for wrong in (
        np.stack(reference.cos_sin(positions + 1, params)),
        np.stack(reference.cos_sin(positions, dataclasses.replace(params, freq_base=10010.0))),
    ):
        assert (np.abs(wrong - exact) / allowed).max() > 10


@given(
    value=st.floats(-400, 400),
    bound=st.floats(0, 3),
    share=st.floats(-1, 1),
)
def test_int8_expectation_accepts_every_rounding_from_within_the_bound(value, bound, share):
    got = np.clip(np.rint(value + share * bound), -128, 127)
    exact, allowed = int8_expectation(np.array([value]), np.array([bound]))
    assert abs(got - exact[0]) <= allowed[0] * (1 + 1e-12)


def test_int8_expectation_accepts_only_the_integer_at_a_zero_bound():
    values = np.arange(-128.0, 128.0)
    exact, bound = int8_expectation(values, np.zeros_like(values))
    assert np.array_equal(exact, values)
    assert bound.max() < 1
