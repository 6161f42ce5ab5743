"""rope's cos and sin against exact values (mpmath) and, for policy ggml, against libm's.

A rotated pair (1, 0) is (cos, sin). mpmath computes the exact values with 120 bits. Their frequencies follow
the specification's formula, not this project's float64 values.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from guarded_memory import before_inaccessible_memory
from rope_cases import DEVICE_REACH, try_rope

from npu_rope import RopeParams, rope
from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import MAX_FREQUENCY, ggml_angles
from npu_rope.testing.bounds import is_device

# Bounds of |cos error| and |sin error| of policy exact for float32 (docs/ops/rope.md): on the host at every
# int32 position, on the device at those below 2^22.
EXACT_FLOAT32 = 2.0**-23
EXACT_DEVICE = 2.0**-20
# Measured for float64 input: frequencies have 64 bits, so the error of the angle grows with the position.
EXACT_FLOAT64_NEAR, NEAR = 2.0**-36, 2**24
EXACT_FLOAT64_FAR = 2.0**-29

BITS = 120
BASES = [10000.0, 500000.0, 1e6, 160.0, 10000000.0]


def as_stored(number, backend):
    """Return the value that an attribute has on the back end: CANN stores float32."""
    return float(np.float32(number)) if is_device(backend) else number


def exact_bound(backend):
    return EXACT_DEVICE if is_device(backend) else EXACT_FLOAT32


def reach(backend):
    """Return the limit of positions, in magnitude."""
    return DEVICE_REACH if is_device(backend) else 2**31


def table(positions, params, backend, dtype=np.float32, angle="exact", factors=None):
    """Return rope's (cos, sin), each [tokens, pairs]; None if the back end does not support the call."""
    x = np.zeros((len(positions), 1, params.n_dims), dtype)
    x[..., 0::2] = 1
    y = try_rope(x, positions, params, factors, backend=backend, angle=angle)
    return None if y is None else (y[:, 0, 0::2].astype(np.float64), y[:, 0, 1::2].astype(np.float64))


def true_frequencies(params, factors=None):
    """Return the specification's frequencies, computed with 120 bits."""
    with mpmath.workprec(BITS):
        base = mpmath.mpf(params.freq_base)
        return [
            mpmath.power(base, mpmath.mpf(-2 * i) / params.n_dims)
            * mpmath.mpf(params.freq_scale)
            / (mpmath.mpf(float(factors[i])) if factors is not None else 1)
            for i in range(params.n_dims // 2)
        ]


def exact_cos_sin(positions, frequencies):
    with mpmath.workprec(BITS):
        exact = [[mpmath.cos_sin(int(p) * f) for f in frequencies] for p in positions]
        return np.array(exact, np.float64).transpose(2, 0, 1)


def errors_of_table(positions, params, backend, dtype=np.float32, factors=None):
    """Return the larger of the errors of cos and sin; None if the back end does not support the call."""
    computed = table(positions, params, backend, dtype, factors=factors)
    if computed is None:
        return None
    c, s = computed
    true_c, true_s = exact_cos_sin(positions, true_frequencies(params, factors))
    return np.maximum(np.abs(c - true_c), np.abs(s - true_s))


def far_positions(n, seed, backend):
    """Return the ends of the back end's range, positions around 2^22, 2^24 and 0, and n random ones."""
    rng, limit = np.random.default_rng(seed), reach(backend)
    edges = [-(2**31), 2**31 - 1, 2**31 - 2, 2**24, 2**24 + 1, -(2**24), 2**22 - 1, 1 - 2**22, 0, 1, -1]
    edges = [p for p in edges if abs(p) < limit or limit == 2**31]
    return np.concatenate([edges, rng.integers(1 - limit, limit, n)])


@pytest.mark.parametrize("base", BASES)
def test_exact_meets_its_bound_at_far_positions(base, backend):
    """The positions are random ones of the whole range, its ends, and those around 2^22 and 2^24."""
    params = RopeParams(128, freq_base=base)
    positions = far_positions(30, int(base), backend)
    assert errors_of_table(positions, params, backend).max() <= exact_bound(backend)


@pytest.mark.parametrize(
    ("host", "ext_factor"), [("cpu", 1e9), ("cpu", -1e9), ("reference", 500), ("reference", -500)]
)
def test_the_large_terms_of_yarn_cancel_within_the_bound(ext_factor, host):
    """With freq_scale 1 YaRN changes no angle, whatever ext_factor is."""
    plain = RopeParams(128, freq_base=10000.0)
    positions = far_positions(30, 5, host)
    c, s = table(positions, replace(plain, n_ctx_orig=4096, ext_factor=ext_factor), host, np.float32)
    true_c, true_s = exact_cos_sin(positions, true_frequencies(plain))
    assert max(np.abs(c - true_c).max(), np.abs(s - true_s).max()) <= EXACT_FLOAT32


@pytest.mark.parametrize("base", BASES[:2])
def test_exact_meets_its_closer_bounds_in_float64(base, backend):
    params = RopeParams(64, freq_base=base)
    positions = far_positions(40, int(base), backend)
    errors = errors_of_table(positions, params, backend, np.float64)
    if errors is None:
        return
    near = np.abs(positions) <= NEAR
    assert errors[near].max() <= EXACT_FLOAT64_NEAR
    assert errors.max() <= EXACT_FLOAT64_FAR


def test_exact_meets_its_bound_with_freq_factors_and_scaling(backend):
    """Factors like Llama 3.1's: they grow from 1 to 8 over the pairs."""
    params = RopeParams(64, freq_base=500000.0, freq_scale=0.25)
    factors = np.linspace(1, 8, 32, dtype=np.float32)
    positions = far_positions(40, 3, backend)
    assert errors_of_table(positions, params, backend, factors=factors).max() <= exact_bound(backend)


@pytest.mark.parametrize("angle", ["exact", "ggml"])
def test_factors_and_positions_are_read_within_their_memory(angle):
    params = RopeParams(64)
    x, positions = np.ones((3, 2, 64), np.float32), np.arange(3, dtype=np.int32)
    factors = np.linspace(1, 8, 32, dtype=np.float32)
    within = [before_inaccessible_memory(a) for a in (x, positions, factors)]
    expected = rope(x, positions, params, factors, angle=angle, backend="cpu")
    found = rope(*within[:2], params, within[2], angle=angle, backend="cpu")
    np.testing.assert_array_equal(found, expected)


def test_constants_of_strided_factors_are_not_those_of_others():
    """A thread keeps the constants of its last calls, by their factors."""
    params, x, positions = RopeParams(64), np.ones((3, 2, 64)), np.arange(3, dtype=np.int32)
    memory = np.linspace(1, 8, 64, dtype=np.float32)
    for factors in (memory[::2], memory[np.arange(32) // 2], memory[:32], memory[::2]):
        found = rope(x, positions, params, factors, backend="cpu")
        expected = rope(x, positions, params, factors.copy(), backend="reference")
        np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT_FLOAT64_NEAR)


def near_positions(n, limit):
    """Return positions below the limit: powers of two with their neighbours, both ends, and n random ones."""
    powers = 2 ** np.arange(25)
    chosen = np.concatenate([powers - 1, powers, powers + 1, np.arange(512), limit - np.arange(512)])
    chosen = np.concatenate([chosen, np.random.default_rng(6).integers(0, limit, n)])
    return np.unique(chosen[chosen < limit])


@pytest.mark.parametrize("sign", [1, -1])
def test_exact_meets_its_bound_at_many_positions_below_2_to_the_24(sign, backend):
    """The head has two pairs. On the device, the positions are below 2^22."""
    params = RopeParams(4, freq_base=3.0)
    positions = sign * near_positions(1500, min(2**24, reach(backend)))
    assert errors_of_table(positions, params, backend).max() <= exact_bound(backend)


@pytest.mark.slow
def test_the_frequencies_of_a_huge_head_have_all_their_bits():
    """The error of the first frequency grows with the power of the pair, here to 2^19 - 1."""
    params, position, pairs = RopeParams(2**20, freq_base=0.01), 2**31 - 1, [2**18, 2**19 - 1]
    cos, sin = table(np.array([position]), params, "cpu", np.float64)
    with mpmath.workprec(300):
        for pair in pairs:
            angle = position * mpmath.power(mpmath.mpf(0.01), mpmath.mpf(-2 * pair) / params.n_dims)
            true_cos, true_sin = mpmath.cos_sin(angle)
            assert max(abs(cos[0, pair] - true_cos), abs(sin[0, pair] - true_sin)) <= 2.0**-34


def test_a_token_at_the_position_of_the_one_before_has_its_table():
    """The third token's table follows by a step from the second one's, and the fourth has the same."""
    x = np.ones((1, 4, 1, 2048), np.float32)
    y = rope(x, 12345678 + np.array([0, 1, 2, 2]), RopeParams(2048, "neox"), backend="cpu")
    assert np.array_equal(y[0, 2], y[0, 3])


def test_a_refused_call_leaves_no_constants():
    """The constants of a thread's last calls are kept. A refused call takes the place of the oldest ones."""
    x, positions = np.random.default_rng(0).standard_normal((4, 1, 16)), np.arange(4)
    kept = [RopeParams(16, freq_base=20000.0 + k) for k in range(8)]
    before = [rope(x, positions, params, backend="cpu") for params in kept]
    with pytest.raises(ValueError, match="frequencies must be at most"):
        rope(x, positions, RopeParams(16, freq_scale=2e9), backend="cpu")
    for params, expected in zip(kept, before, strict=True):
        assert np.array_equal(rope(x, positions, params, backend="cpu"), expected)


@pytest.mark.long
def test_cpu_and_reference_agree_at_every_third_position_below_2_to_the_24():
    """mpmath is too slow for millions of positions. The tests above compare the reference with mpmath."""
    params = RopeParams(4, freq_base=3.0)
    for start in range(0, 2**24, 2**20):
        positions = np.arange(start, start + 2**20, 3)
        c, s = table(positions, params, "cpu", np.float32)
        true_c, true_s = reference.cos_sin(positions, params)
        assert np.abs(c - true_c).max() <= EXACT_FLOAT32
        assert np.abs(s - true_s).max() <= EXACT_FLOAT32


def test_exact_meets_its_bound_in_runs_of_positions(backend):
    params = RopeParams(16, freq_base=10000.0)
    for start in (0, 2**22 - 150, 2**24 - 100, 2**31 - 150):
        positions = np.arange(start, start + 140)
        if positions[-1] < reach(backend):
            assert errors_of_table(positions, params, backend).max() <= exact_bound(backend)


def test_exact_matches_yarn_computed_by_mpmath(backend):
    """Sections 2 and 5 of the specification with 120 bits, for DeepSeek's constants."""
    params = RopeParams(
        64, n_ctx_orig=4096, freq_base=10000.0, freq_scale=1 / 40, ext_factor=1.0, beta_fast=32, beta_slow=1
    )
    scale = as_stored(1 / 40, backend)
    with mpmath.workprec(BITS):
        unscaled = [mpmath.power(10000, mpmath.mpf(-2 * i) / 64) for i in range(32)]

        def dim(beta):
            return 64 * mpmath.log(4096 / (2 * mpmath.pi * beta)) / (2 * mpmath.log(10000))

        low, high = mpmath.floor(dim(32)), mpmath.ceil(dim(1))
        assert (int(low), int(high)) == (10, 23)
        mixed = []
        for i, f in enumerate(unscaled):
            ramp = 1 - min(mpmath.mpf(1), max(mpmath.mpf(0), (i - low) / (high - low)))
            mixed.append(f * mpmath.mpf(scale) * (1 - ramp) + f * ramp)
        mscale = float(1 + mpmath.mpf(1) / 10 * mpmath.log(1 / mpmath.mpf(scale)))
    positions = far_positions(20, 9, backend)
    c, s = table(positions, params, backend)
    true_c, true_s = exact_cos_sin(positions, mixed)
    assert np.abs(c - mscale * true_c).max() <= exact_bound(backend) * mscale
    assert np.abs(s - mscale * true_s).max() <= exact_bound(backend) * mscale


YARN = {"n_ctx_orig": 4096, "ext_factor": 1.0}
VARIANTS = {
    "llama": (RopeParams(128), None),
    "llama-3": (RopeParams(128, freq_base=500000.0), None),
    "llama-3.1's factors": (RopeParams(128, freq_base=500000.0), np.linspace(1, 8, 64)),
    "factors from 1/2 to 64": (RopeParams(128), np.geomspace(0.5, 64, 64)),
    "qwen3": (RopeParams(128, freq_base=1e6), None),
    "deepseek's yarn": (RopeParams(64, freq_scale=1 / 40, **YARN), None),
    "yarn, factors, mscale": (
        RopeParams(96, freq_scale=0.125, attn_factor=-2.5, **YARN),
        np.geomspace(64, 0.5, 48),
    ),
    "scaled up": (RopeParams(64, freq_base=160.0, freq_scale=7.0), None),
    "factors of 1/16": (RopeParams(16, freq_base=1.3), np.full(8, 1 / 16)),  # 16 radians per position
    "frequencies near 1": (RopeParams(32, freq_base=1.5), np.linspace(0.9, 1.1, 16)),
}


@pytest.mark.long
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", VARIANTS)
def test_cos_and_sin_meet_their_bound_over_many_positions(name, sign, backend):
    """Positions are below the device's reach: dense at both ends, around powers of two, and random."""
    if backend == "reference":
        return  # it gives the expected values; the tests above compare it with exact ones
    params, factors = VARIANTS[name]
    factors = None if factors is None else factors.astype(np.float32)
    positions = sign * near_positions(2500, DEVICE_REACH)
    c, s = table(positions, params, backend, factors=factors)
    names = ("freq_base", "freq_scale", "attn_factor")
    params = replace(params, **{name: as_stored(getattr(params, name), backend) for name in names})
    true_c, true_s = reference.cos_sin(positions, params, factors)
    bound = exact_bound(backend) * max(1.0, abs(params.mscale()))
    assert max(np.abs(c - true_c).max(), np.abs(s - true_s).max()) <= bound


def test_frequencies_above_the_limit_are_refused(backend):
    x, params = np.ones((1, 1, 2), np.float32), RopeParams(2, freq_scale=MAX_FREQUENCY)
    rope(x, np.array([1]), params, backend=backend)
    with pytest.raises(ValueError, match=r"frequencies must be at most 1e\+09 radians per position"):
        rope(x, np.array([1]), RopeParams(2, freq_scale=2 * MAX_FREQUENCY), backend=backend)


# ---- policy f32 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES[:3])
def test_f32_is_the_float32_product_of_position_and_frequency(base, backend):
    """The frequency and the product are rounded to float32; cos and sin are exact for that angle."""
    params = RopeParams(64, freq_base=base)
    positions = np.concatenate([np.arange(40), np.random.default_rng(8).integers(-(2**31), 2**31, 40)])
    frequencies = np.array(true_frequencies(params), np.float64).astype(np.float32)
    angles = positions.astype(np.float32)[:, None] * frequencies
    with mpmath.workprec(BITS):
        exact = [[mpmath.cos_sin(mpmath.mpf(float(a))) for a in row] for row in angles]
    true_c, true_s = np.array(exact, np.float64).transpose(2, 0, 1)
    computed = table(positions, params, backend, angle="f32")
    if computed is None:
        return
    c, s = computed
    assert np.abs(c - true_c).max() <= EXACT_FLOAT32
    assert np.abs(s - true_s).max() <= EXACT_FLOAT32


def test_f32_differs_from_exact_at_a_far_position(backend):
    """The float32 roundings of frequency and product change cos by 1.5e-3 at this position."""
    params, positions = RopeParams(128), np.array([131_071])
    exact, rounded = (table(positions, params, backend, angle=a) for a in ("exact", "f32"))
    assert rounded is None or 1e-3 < np.abs(exact[0] - rounded[0]).max() < 1e-2


# ---- policy ggml ------------------------------------------------------------------------------------


def libm(name):
    """Return a function that applies libm's function of this name to each element."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype = ctypes.c_float
    function.argtypes = [ctypes.c_float]
    return lambda values: np.array([function(float(v)) for v in values.ravel()], np.float32).reshape(
        values.shape
    )


GGML = [
    RopeParams(128),
    RopeParams(128, freq_base=500000.0),
    RopeParams(64, freq_base=1e6, freq_scale=0.25, attn_factor=1.25),
    RopeParams(64, n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0),
    RopeParams(96, n_ctx_orig=4096, freq_scale=0.125, ext_factor=0.6, attn_factor=1.1, beta_slow=2.0),
    RopeParams(386, freq_base=160.0),  # glibc's powf does not give the nearest number
]


@pytest.mark.parametrize("params", GGML, ids=repr)
@pytest.mark.parametrize("with_factors", [False, True])
def test_ggml_is_libms_cosf_and_sinf_of_ggmls_angles_bit_for_bit(params, with_factors):
    rng = np.random.default_rng(10)
    positions = np.concatenate([np.arange(70), rng.integers(0, 131_072, 60), [131_071, -5]])
    factors = rng.uniform(1, 8, params.n_dims // 2).astype(np.float32) if with_factors else None
    theta = ggml_angles(positions, params, factors)
    mscale = np.float32(params.mscale("ggml"))
    c, s = table(positions, params, "cpu", np.float32, "ggml", factors)
    assert np.array_equal(c.astype(np.float32), libm("cosf")(theta) * mscale)
    assert np.array_equal(s.astype(np.float32), libm("sinf")(theta) * mscale)


def test_ggml_differs_from_exact_at_a_far_position(backend):
    """The recurrence in float32 changes cos by 1.1e-2 at this position."""
    params, positions = RopeParams(128), np.array([131_072])
    exact, stepped = (table(positions, params, backend, angle=a) for a in ("exact", "ggml"))
    assert stepped is None or 1e-3 < np.abs(exact[0] - stepped[0]).max() < 5e-2
