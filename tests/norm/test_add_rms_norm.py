"""add_rms_norm for every type, rank, broadcast and layout, and in place. The sum is correctly rounded, and y
differs from the specification by at most its bound. On the CPU, sum and y equal the results of an addition
and rms_norm bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_sets import SUPPORTED
from norm_cases import (
    NUMPY_DTYPES,
    NormSetup,
    assert_within,
    bytes_of,
    converted,
    filled,
    has_contiguous_rows,
    make_inputs,
    spec_call,
    strides_of,
    to_torch,
    unless_refused,
    values_of,
)
from pairwise import pairwise
from together import together

from npu_rope import add_rms_norm, rms_norm
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import normalized_error_on

DTYPES = tuple(NUMPY_DTYPES)
# Destinations of y and sum. "new": add_rms_norm allocates both. "sum-x": the sum is written to x.
OUTS = (
    "new",
    "given",
    "gaps",
    "sum-x",
    "sum-residual",
    "y-x",
    "y-residual",
    "y-x-sum-residual",
    "y-residual-sum-x",
)
FACTORS = {
    "dtype": DTYPES,
    "scale_dtype": ("own", *DTYPES),
    "framework": ("numpy", "torch"),
    "shape": (
        (3, 5, 40),
        (33,),
        (2, 130),
        (2, 3, 4, 17),
        (2, 3, 2, 2, 9),
        (2, 1, 3, 2, 2, 5),
        (3, 0, 4),
        (4, 0),
    ),
    "axis": (-1, -2, 0),
    "scale": ("normalized", "last", "one", "own", "tokens", "inner-one"),
    "epsilon": (1e-5, 0.0),
    "stash_type": (1, 10, 11, 16),
    "layout": ("contiguous", "gaps", "non-unit", "reversed", "transposed"),
    "out": OUTS,
}


def is_valid(call):
    rank = len(call.shape)
    if not -rank <= call.axis < rank or (call.framework == "torch" and call.layout == "reversed"):
        return False
    rows_are_last = call.axis % rank == rank - 1
    if call.out == "gaps":
        return rows_are_last and rank <= 4
    if "y-" in call.out and call.scale_type != call.dtype:
        return False
    in_place = call.out not in ("new", "given")
    return not in_place or call.layout == "contiguous" or has_contiguous_rows(call)


def for_each_valid(setups):
    return together("call", [c for c in setups if is_valid(c)], share=True)


def outs_of(call, x, residual, guarded):
    """Return the arrays for y and sum, or None if add_rms_norm allocates them."""
    if call.out == "new":
        return None
    layout = "gaps" if call.out == "gaps" else "contiguous"
    dtypes = {"y": NUMPY_DTYPES[call.scale_type], "sum": x.dtype}
    inputs = {"x": x, "residual": residual}
    words = call.out.split("-")
    in_place = dict(zip(words[::2], words[1::2], strict=False))  # such as {"y": "x"}
    return tuple(
        inputs[in_place[name]] if name in in_place else filled(guarded, call.shape, dtype, layout, 3)
        for name, dtype in dtypes.items()
    )


def run_and_judge(call, backend, guarded, seed=0, x=None, residual=None):
    """Require results within bounds and no other writes. Return them; None if the back end lacks a type."""
    inputs = make_inputs(replace(call, out="new"), guarded, seed, x)
    if residual is None:
        residual = np.random.default_rng(seed + 1).standard_normal(call.shape)
    residual = filled(guarded, call.shape, inputs.x.dtype, call.layout, residual)
    total = norm_spec.add(inputs.x, residual, call.dtype)
    spec = replace(spec_call(call, inputs), x=total)
    y_and_bound = norm_spec.rms_norm(spec, normalized_error_on(backend, spec.n))
    expected = y_and_bound, (total, np.zeros(call.shape))
    outs = outs_of(call, inputs.x, residual, guarded)
    unchanged = [a for a in (inputs.x, residual) if not any(a is out for out in outs or ())]
    before = [bytes_of(a) for a in unchanged]
    by_id = {id(a): converted(call, a) for a in (inputs.x, residual, *(outs or ()))}
    given_outs = None if outs is None else tuple(by_id[id(out)] for out in outs)
    given = by_id[id(inputs.x)], by_id[id(residual)], converted(call, inputs.scale)
    results = unless_refused(
        backend,
        (call.dtype, call.scale_type, spec.stash),
        lambda: add_rms_norm(*given, **call.attributes, out=given_outs, backend=backend),
    )
    if results is None:
        guarded.check()
        assert before == [bytes_of(a) for a in unchanged]
        return None
    assert outs is None or all(y is out for y, out in zip(results, given_outs, strict=True))
    guarded.check()
    assert before == [bytes_of(a) for a in unchanged]
    for y, value_and_bound, dtype in zip(results, expected, (call.scale_type, call.dtype), strict=True):
        assert_within(y, value_and_bound, dtype)
    return results


BASES = [
    NormSetup(),
    NormSetup("float16", framework="torch", shape=(2, 3, 4, 17), axis=1),
    NormSetup("bfloat16", "float32", framework="torch", shape=(2, 130)),
    NormSetup("float64", stash_type=11, scale="tokens"),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@for_each_valid(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@for_each_valid(pairwise(FACTORS, NormSetup, is_valid))
def test_every_pair_of_factors_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@settings(max_examples=30)
@given(
    call=st.builds(NormSetup, **{name: st.sampled_from(values) for name, values in FACTORS.items()}),
    n=st.integers(1, 200),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(call, n, seed, backend):
    call = replace(call, shape=(*call.shape[:-1], n))
    if not is_valid(call):
        call = replace(call, axis=-1, out="new", layout="gaps")
    run_and_judge(call, backend, GuardedMemory(), seed)


# ---- the two operators: an addition, then rms_norm -------------------------------------------------------

ROW_SIZES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 257, 513, 4097, 16384)


def x_and_residual(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    magnitudes = 10.0 ** rng.uniform(-2, 2, (*shape[:-1], 1))
    return [to_torch((rng.standard_normal(shape) * magnitudes).astype(NUMPY_DTYPES[dtype])) for _ in range(2)]


def assert_equals_the_two_operators(x, residual, scale, **attributes):
    """Compare all bits with x + residual and its rms_norm. torch also adds 16-bit types in float32."""
    y, total = add_rms_norm(x, residual, scale, **attributes)
    assert bytes_of(total) == bytes_of(x + residual)
    assert bytes_of(y) == bytes_of(rms_norm(total, scale, **attributes))


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("scale_dtype", ["own", "float32"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_equal_the_two_operators_bit_for_bit(isa, dtype, scale_dtype, force_isa):
    force_isa(isa)
    for n in ROW_SIZES:
        x, residual = x_and_residual(dtype, (3, n), n)
        scale = torch.linspace(-2, 2, n).to(x.dtype if scale_dtype == "own" else torch.float32)
        assert_equals_the_two_operators(x, residual, scale)


@pytest.mark.parametrize("stash_type", [1, 10, 11, 16])
@pytest.mark.parametrize("scale_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_combination_of_types_equals_the_two_operators(dtype, scale_dtype, stash_type):
    x, residual = x_and_residual(dtype, (2, 3, 700))
    for scale in (torch.linspace(-2, 2, 700), torch.linspace(-2, 2, 6).view(2, 3, 1)):
        assert_equals_the_two_operators(
            x, residual, scale.to(getattr(torch, scale_dtype)), stash_type=stash_type, epsilon=1e-6
        )


@pytest.mark.parametrize(
    ("dtype", "rows"), [("float32", 700), ("float16", 1400), ("bfloat16", 1400), ("bfloat16", 800)]
)
def test_large_results_in_place_equal_those_in_new_memory(dtype, rows):
    """In new memory y is stored past the caches, and so is a 16-bit sum. With 800 rows and several threads, y
    is stored into prefetched cache lines. In place both are stored into the caches."""
    x, residual = x_and_residual(dtype, (rows, 4096))
    scale = torch.linspace(-2, 2, 4096).to(x.dtype)
    assert_equals_the_two_operators(x, residual, scale)
    y, total = add_rms_norm(x, residual, scale)
    for y_in_place in (False, True):
        x, residual = x_and_residual(dtype, (rows, 4096))
        y_out = x if y_in_place else torch.empty_like(x)
        add_rms_norm(x, residual, scale, out=(y_out, residual))
        assert torch.equal(y_out, y)
        assert torch.equal(residual, total)


def test_the_number_of_threads_changes_no_bit():
    x, residual = x_and_residual("float32", (500, 1001))
    scale = torch.linspace(-2, 2, 1001)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(add_rms_norm(x, residual, scale))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bit_numbers_are_rounded_once(dtype, backend):
    """Each value of the type is added to three random ones. The sums include ties and subnormals."""
    numpy_dtype = NUMPY_DTYPES[dtype]
    x = np.repeat(np.arange(2**16, dtype=np.uint16).view(numpy_dtype)[None], 3, 0)
    residual = np.random.default_rng(0).permuted(x, axis=1)
    given = x, residual, np.ones(1, numpy_dtype)
    results = unless_refused(backend, [dtype], lambda: add_rms_norm(*given, backend=backend))
    if results is None:
        return
    total = results[1]
    with np.errstate(all="ignore"):
        expected = norm_spec.add(x, residual, dtype)
        total = total.astype(np.float64)
    numbers = ~np.isnan(expected)
    assert np.array_equal(~np.isnan(total), numbers)
    assert np.array_equal(total[numbers], expected[numbers])
    assert np.array_equal(np.signbit(total[numbers]), np.signbit(expected[numbers]))


# ---- special values, aliased inputs and layouts --------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_sums_stay_in_their_rows(dtype, backend, guarded):
    """The rows have zeros, cancellation, a large sum, an overflow, opposite infinities and a NaN."""
    largest = norm_spec.FORMATS[dtype][2]
    x, residual = np.random.default_rng(0).standard_normal((2, 6, 37))
    x[0] = residual[0] = 0
    residual[1] = -x[1]
    x[2] = residual[2] = largest / 4
    x[3, 5] = residual[3, 5] = largest
    x[4, 0], residual[4, 0] = np.inf, -np.inf
    residual[5, 1] = np.nan
    call = NormSetup(dtype, shape=(6, 37), stash_type=11 if dtype == "float64" else 1)
    results = run_and_judge(call, backend, guarded, x=x, residual=residual)
    if results is None:
        return
    y, total = (values_of(r) for r in results)
    assert np.all(y[:2] == 0)
    assert np.all(np.isfinite(y[2]))
    assert np.isinf(total[3, 5])
    assert np.isnan(y[3, 5])
    assert np.all(np.isnan(y[4:]))


def test_float32_rows_whose_squares_overflow_are_normalized(backend):
    x = np.full((1, 8), 1e30, np.float32)
    y, _ = add_rms_norm(x, x, np.float32(1), backend=backend)
    assert np.array_equal(y, np.ones((1, 8)))


def test_x_may_be_its_own_residual(backend, guarded):
    x = guarded.empty((3, 40), np.float32)
    x[...] = np.random.default_rng(0).standard_normal(x.shape)
    scale = np.linspace(-2, 2, 40, dtype=np.float32)
    doubled = 2 * x
    expected = rms_norm(doubled, scale, backend=backend)
    y, total = add_rms_norm(x, x, scale, out=(np.empty_like(x), x), backend=backend)
    assert np.array_equal(total, doubled)
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_x_and_residual_may_have_different_layouts(framework, guarded):
    rng = np.random.default_rng(0)
    for x_layout, residual_layout in (
        ("non-unit", "gaps"),
        ("transposed", "contiguous"),
        ("gaps", "transposed"),
    ):
        shape = (3, 4, 10)
        x, residual = (
            filled(guarded, shape, np.dtype(np.float32), layout, rng.standard_normal(shape))
            for layout in (x_layout, residual_layout)
        )
        scale = np.ones(10, np.float32)
        given = [to_torch(a) if framework == "torch" else a for a in (x, residual, scale)]
        y, total = add_rms_norm(*given)
        assert np.array_equal(values_of(total), x + residual)
        assert np.array_equal(values_of(y), rms_norm(x + residual, scale))
        guarded.check()


def test_given_memory_may_have_gaps_or_be_transposed(guarded):
    rng = np.random.default_rng(0)
    shape = (5, 7, 12)
    x, residual = rng.standard_normal((2, *shape)).astype(np.float32)
    outs = [guarded.empty(shape, np.float32, strides_of(layout, shape)) for layout in ("gaps", "transposed")]
    expected = add_rms_norm(x, residual, np.ones(12, np.float32))
    add_rms_norm(x, residual, np.ones(12, np.float32), out=tuple(outs))
    assert all(np.array_equal(a, b) for a, b in zip(outs, expected, strict=True))
