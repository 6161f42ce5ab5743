"""rope on every back end: defaults, one factor changed, every pair of factors, and random calls."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from rope_cases import (
    FACTORS,
    NUMPY_DTYPES,
    Case,
    assert_within,
    expected_and_bound,
    possible,
    run_and_judge,
    table_error_of,
    to_torch,
    try_rope,
    values_of,
    with_sizes,
)
from together import together

from npu_rope import RopeParams, rope_
from npu_rope.testing.bounds import rotation_bound, worst_ratio

DTYPES = FACTORS["dtype"]
MODES, SECTIONED = FACTORS["mode"][:2], FACTORS["mode"][2:]
BASE_FACTORS = {"dtype": DTYPES, "mode": FACTORS["mode"], "framework": FACTORS["framework"]}
BASES = [Case(dtype=d, mode=m, framework=f) for d in DTYPES for m in MODES for f in BASE_FACTORS["framework"]]
BASES += [Case(mode=m) for m in SECTIONED]
BASES += [Case(d, m, f) for d, m, f in zip(DTYPES[1:], SECTIONED, ("numpy", "torch", "numpy"), strict=True)]
ONE_FACTOR = BASES + [
    replace(base, **{name: value})
    for base in BASES
    for name, values in FACTORS.items()
    if name not in BASE_FACTORS
    for value in values[1:]
]
PAIRWISE = pairwise(FACTORS, Case, possible)

# Numbers of pairs around every vector width. The test also adds lanes that do not rotate.
PAIRS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 96, 128, 288]


def cases(candidates):
    return together("case", [c for c in candidates if possible(c)], share=True)


@pytest.mark.long
@cases(ONE_FACTOR)
def test_one_factor_changed_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@cases(PAIRWISE)
def test_every_pair_of_factors_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@together("pairs", PAIRS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_head_sizes_around_the_vector_width_meet_the_bound(pairs, mode, dtype, backend, guarded):
    for extra in (0, 1, 5):
        for out in ("given", "in-place"):
            D = 2 * pairs + extra
            case = Case(dtype=dtype, mode=mode, sizes=(1, 3, 2, D), out=out)
            run_and_judge(case, backend, guarded, seed=pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@together("B, N, S", itertools.product([0, 1, 3], [0, 1, 71], [0, 1, 70]))
def test_sizes_from_zero_to_many_meet_the_bound(B, N, S, dtype, backend, guarded):
    for framework in ("numpy", "torch"):
        case = Case(dtype=dtype, mode="neox", framework=framework, out="given")
        run_and_judge(with_sizes(case, B, S, N, 18), backend, guarded)


DEVICE_FACTORS = {
    **FACTORS,
    "dtype": ["float32", "float16"],
    "positions": [p for p in FACTORS["positions"] if p != "extreme"],
    "angle": ["exact"],
}


@st.composite
def any_case(draw, factors=FACTORS):
    case = Case(**{name: draw(st.sampled_from(values)) for name, values in factors.items()})
    sizes = (
        draw(st.integers(0, 3)),
        draw(st.integers(0, 20)),
        draw(st.integers(0, 9)),
        draw(st.integers(2, 150)),
    )
    return replace(case, sizes=sizes)


@settings(max_examples=150)
@given(case=any_case().filter(possible), seed=st.integers(0, 2**16))
def test_any_call_meets_the_bound(case, seed, backend):
    run_and_judge(case, backend, GuardedMemory(), seed)


@settings(max_examples=100)
@given(case=any_case(DEVICE_FACTORS).filter(possible), seed=st.integers(0, 2**16))
def test_any_call_of_the_device_meets_the_bound(case, seed, backend):
    """Draw only calls that a device runs. A device refuses most calls of the test above."""
    run_and_judge(case, backend, GuardedMemory(), seed)


# ---- sizes that models have ----------------------------------------------------------------------

MAX_ELEMENTS = 300_000
SIZES = {
    "D": [2, 6, 36, 64, 70, 80, 96, 112, 128, 192, 576, 1024],
    "N": [1, 2, 3, 8, 32, 71, 512],
    "S": [1, 2, 37, 300],
    "B": [1, 3],
    "dtype": DTYPES,
    "mode": FACTORS["mode"],
    "window": FACTORS["window"],
    "sections": FACTORS["sections"],
    "planes": FACTORS["planes"],
    "x_layout": FACTORS["x_layout"][:4],
    "out": FACTORS["out"],
    "freq_factors": ["none", "given"],
}


def sized(B, S, N, D, **row):
    """Return a row of SIZES as a case. S is reduced to keep x below MAX_ELEMENTS if that is possible."""
    S = max(1, min(S, MAX_ELEMENTS // (B * N * D)))
    return with_sizes(Case(**row), B, S, N, D)


@cases(pairwise(SIZES, sized, possible))
def test_sizes_that_models_have_meet_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


DECODE_AND_PREFILL = [(1, 1, 32, 128), (64, 1, 8, 128), (3, 1, 128, 192), (1, 400, 8, 128), (2, 700, 1, 576)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", [*MODES, "imrope"])
@pytest.mark.parametrize("sizes", DECODE_AND_PREFILL, ids=str)
def test_decode_and_prefill_meet_the_bound(sizes, mode, dtype, backend, guarded):
    case = Case(dtype=dtype, mode=mode, sizes=sizes, window="back" if sizes[3] == 576 else "full")
    run_and_judge(case, backend, guarded)


# ---- hand-computed values ----------------------------------------------------------------------


# cos and sin of 2 and of 0.02, from printed tables.
COS = np.array([-0.41614683654714238700, 0.99980000666657777841])
SIN = np.array([0.90929742682568169540, 0.01999866669333307936])


def by_hand(x, first_pair, second_pair):
    (c1, c2), (s1, s2) = COS, SIN
    a, b, c, d = x
    if (first_pair, second_pair) == ((0, 1), (2, 3)):
        return [a * c1 - b * s1, a * s1 + b * c1, c * c2 - d * s2, c * s2 + d * c2]
    return [a * c1 - c * s1, b * c2 - d * s2, a * s1 + c * c1, b * s2 + d * c2]


@pytest.mark.parametrize(
    ("mode", "pairs"), [("normal", ((0, 1), (2, 3))), ("neox", ((0, 2), (1, 3)))], ids=["normal", "neox"]
)
def test_each_mode_rotates_the_pairs_of_its_definition(mode, pairs, backend):
    x, params = np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), RopeParams(4, mode)
    expected = np.array([[[*by_hand(x[0, 0, :4], *pairs), 5.0]]])
    for dtype in DTYPES:
        bound = rotation_bound(x, COS, SIN, expected, params, dtype, table_error_of(backend))
        y = try_rope(x.astype(NUMPY_DTYPES[dtype]), np.array([2]), params, backend=backend)
        assert y is None or worst_ratio(y, expected, bound)[0] <= 1


def test_a_mode_with_sections_rotates_each_pair_by_its_axis(backend):
    """The axes have the positions 2, 3, 5 and 7. All frequencies are 1, so the angles equal them."""
    x = np.zeros((1, 1, 16), np.float32)
    x[..., :8] = 1
    positions = np.array([[2], [3], [5], [7]], np.int32)
    rotated = {
        ("mrope", (1, 2, 1, 2)): [2, 3, 3, 5, 7, 7, 2, 3],
        ("mrope", (0, 0, 3, 0)): [5] * 8,
        ("imrope", (3, 2, 1, 2)): [2, 3, 5, 2, 3, 7, 2, 7],
        ("vision", (2, 1, 0, 1)): [2, 2, 3, 7, 2, 2, 3, 7],
    }
    for (mode, sections), angles in rotated.items():
        n_dims = 8 if mode == "vision" else 16
        params = RopeParams(n_dims, mode, sections=sections, freq_base=1.0)
        y = try_rope(x, positions, params, backend=backend)
        expected = np.concatenate([np.cos(angles), np.sin(angles)])
        assert np.abs(y[0, 0] - expected).max() <= 2 * table_error_of(backend)


def test_vision_restarts_its_frequencies_at_each_section(backend):
    """Frequencies are powers of 0.01. An empty section and the next one begin at the same pair. There the
    powers restart for the empty section only (ggml's rule)."""
    x = np.zeros((1, 1, 16), np.float32)
    x[..., :8] = 1
    positions = np.ones((4, 1), np.int32)
    powers_of = {
        (2, 2, 0, 0): [0, 1, 0, 1, 0, 1, 0, 1],
        (3, 1, 4, 0): [0, 1, 2, 0, 0, 1, 2, 3],
        (2, 0, 2, 0): [0, 1, 2, 3, 0, 1, 6, 7],
        (0, 2, 1, 1): [0, 1, 0, 0, 4, 5, 0, 0],
    }
    for sections, powers in powers_of.items():
        params = RopeParams(8, "vision", sections=sections, freq_base=1e8)
        y = try_rope(x, positions, params, backend=backend)
        angles = 0.01 ** np.array(powers, float)
        expected = np.concatenate([np.cos(angles), np.sin(angles)])
        assert np.abs(y[0, 0] - expected).max() <= 2 * table_error_of(backend)


@pytest.mark.parametrize("mode", SECTIONED)
def test_all_forms_of_positions_give_the_same_result(mode, backend, guarded):
    """Four planes may also be flat or have a batch. If there are three, the first is also the fourth."""
    rng = np.random.default_rng(5)
    x, planes = rng.standard_normal((2, 7, 2, 32)).astype(np.float32), rng.integers(0, 999, (4, 7))
    params = RopeParams(16 if mode == "vision" else 32, mode, sections=(4, 2, 2, 3))

    def run(positions):
        return try_rope(x, positions, params, backend=backend)

    batched = np.broadcast_to(planes[:, None], (4, 2, 7))
    for same in (planes.reshape(-1), planes.astype(np.int32), batched, np.asfortranarray(planes)):
        assert np.array_equal(run(same), run(planes))
    assert np.array_equal(run(planes[:3]), run(planes[[0, 1, 2, 0]]))
    assert np.array_equal(run(batched[:3]), run(planes[[0, 1, 2, 0]]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_position_zero_leaves_x_unchanged(dtype, mode, backend):
    x = np.random.default_rng(0).standard_normal((4, 3, 48)).astype(NUMPY_DTYPES[dtype])
    y = try_rope(x, np.zeros(4, np.int32), RopeParams(40, mode), backend=backend)
    assert y is None or np.array_equal(y.view(np.uint8), x.view(np.uint8))


# ---- forward and backward -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_forward_then_backward_gives_x_back(dtype, mode, backend):
    """The second rotation also rotates the error of the first rotation, and adds an error."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 9, 3, 72)).astype(NUMPY_DTYPES[dtype])
    positions, params = rng.integers(-(2**20), 2**20, (2, 9)), RopeParams(64, mode, n_offs=4)
    y = try_rope(x, positions, params, backend=backend)
    if y is None:
        return
    back = try_rope(y, positions, params, backend=backend, forward=False)
    options = {"dtype": dtype, "table_error": table_error_of(backend)}
    _, first_bound = expected_and_bound(x, positions, params, None, **options)
    _, second_bound = expected_and_bound(y, positions, params, None, forward=False, **options)
    # Each component of a rotated error (e1, e2) is at most |e1| + |e2|.
    window = first_bound[..., 4:68]
    partner = (
        np.roll(window, 32, -1) if mode == "neox" else window.reshape(*window.shape[:-1], 32, 2)[..., ::-1]
    )
    rotated = first_bound.copy()
    rotated[..., 4:68] += partner.reshape(window.shape)
    assert np.all(np.abs(values_of(back) - values_of(x)) <= rotated + second_bound)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_rope_in_place_returns_x_itself(framework, backend):
    x = np.random.default_rng(2).standard_normal((3, 2, 16)).astype(np.float32)
    before, positions, params = x.copy(), np.arange(3), RopeParams(16)
    convert = to_torch if framework == "torch" else np.asarray
    passed = convert(x)
    assert rope_(passed, convert(positions), params, backend=backend) is passed
    assert_within(x, before, positions, params, dtype="float32", backend=backend)


# ---- special values ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_stay_in_their_pair(dtype, mode, bad, backend):
    """The value is in lane d of token d. Only that lane and its partner become non-finite."""
    D, n_dims, n_offs, half = 44, 36, 4, 18
    x = np.ones((D, 1, D), NUMPY_DTYPES[dtype])
    x[np.arange(D), 0, np.arange(D)] = bad
    positions = np.full(D, 3, np.int32)
    y = try_rope(x, positions, RopeParams(n_dims, mode, n_offs=n_offs), backend=backend)
    if y is None:
        return
    non_finite = ~np.isfinite(values_of(y)[:, 0])
    for d in range(D):
        i = d - n_offs
        affected = {d}
        if 0 <= i < n_dims:
            affected |= {n_offs + ((i + half) % n_dims if mode == "neox" else i ^ 1)}
        assert set(np.flatnonzero(non_finite[d])) == affected


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_outside_the_window_is_copied_bit_for_bit(dtype, backend):
    x = np.full((1, 2, 10), np.nan, NUMPY_DTYPES[dtype])
    x[..., 4:6] = 1
    y = try_rope(x, np.array([7]), RopeParams(2, n_offs=4), backend=backend)
    outside = [0, 1, 2, 3, 6, 7, 8, 9]
    assert y is None or y[..., outside].tobytes() == x[..., outside].tobytes()


@pytest.mark.parametrize("D", [64, 70, 6])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_bit_pattern_outside_the_window_is_copied(dtype, mode, D, backend, guarded):
    """These include NaNs with any payload, subnormals and both zeros."""
    patterns = np.arange(65536, dtype=np.uint16)
    if backend == "reference":  # the conversion to float64 makes signalling NaNs quiet
        with np.errstate(invalid="ignore"):  # NumPy's conversion of a signalling NaN on aarch64
            patterns[np.isnan(patterns.view(NUMPY_DTYPES[dtype]).astype(np.float32))] |= 0x240
    rows = -(-patterns.size // (D - 2))
    bits = np.full((1, rows, 1, D), 0x3C00, np.uint16)
    outside = [d for d in range(D) if d not in (2, 3)]
    bits[..., outside] = np.resize(patterns, rows * (D - 2)).reshape(1, rows, 1, D - 2)
    for strides in (None, (0, D + 5, D, 1)):
        x = guarded.input(bits.view(NUMPY_DTYPES[dtype]), strides)
        out = guarded.empty(x.shape, x.dtype, strides)
        params = RopeParams(2, mode, n_offs=2)
        if try_rope(x, np.arange(rows), params, backend=backend, out=out) is not None:
            assert np.array_equal(out.view(np.uint16)[..., outside], bits[..., outside])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_overflow_of_the_result_gives_infinity(dtype, backend):
    """Each lane is the type's largest number. At 45 degrees, x1*sin + x2*cos is 1.41 times as large."""
    largest = float(np.finfo(dtype).max if dtype != "bfloat16" else 3.3895313892515355e38)
    x = np.full((1, 1, 64), largest, NUMPY_DTYPES[dtype])
    params = RopeParams(64, freq_scale=np.pi / 4, freq_base=1.0)
    y = try_rope(x, np.array([1], np.int32), params, backend=backend)
    if y is None:
        return
    y = values_of(y)
    assert np.all(y[0, 0, 1::2] == np.inf)
    assert np.all(np.abs(y[0, 0, 0::2]) <= 1e-6 * largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_subnormals_are_rotated_not_flushed(dtype, mode, backend, guarded):
    tiny = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}[dtype]
    rng = np.random.default_rng(3)
    x = (rng.integers(-100, 100, (5, 2, 64)) * tiny).astype(NUMPY_DTYPES[dtype])
    positions, params = np.arange(5), RopeParams(64, mode)
    y = try_rope(guarded.input(x), positions, params, backend=backend)
    if y is None:
        return
    assert_within(y, x, positions, params, dtype=dtype, backend=backend)
    assert np.array_equal(y[0], x[0])
    assert np.count_nonzero(values_of(y)) > 500
