"""rope_set_rows on every back end: rope, a rounding to the cache's type, a write into rows of the cache."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest
import rope_cases
import torch
from ascend_sim import library as simulator
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from rope_cases import (
    NUMPY_DTYPES,
    Case,
    bytes_of,
    dtype_name,
    element_strides,
    expected_and_bound,
    factors_of,
    layout_strides,
    params_of,
    positions_of,
    shape_of,
    table_error_of,
    to_torch,
    values_of,
)
from together import together

from npu_rope import RopeParams, rope, rope_set_rows
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.chip_types import has_bfloat16

BEFORE = 7  # the cache's values before the call


@dataclass(frozen=True)
class RowsCase(Case):
    """A call of rope_set_rows."""

    cache: str = "same"  # the dtype of the cache; "same" is x's
    rows: str = "scattered"
    rows_dtype: str = "int64"
    cache_layout: str = "contiguous"


FACTORS = {
    **{name: rope_cases.FACTORS[name] for name in ("dtype", "mode", "framework", "rank", "window")},
    **{name: rope_cases.FACTORS[name] for name in ("sections", "planes", "freq_factors")},
    "scaling": ["none", "yarn"],
    "forward": [True, False],
    "positions": ["ascending", "int64", "per-batch", "negative", "strided", "extreme"],
    "x_layout": ["contiguous", "bnsd", "fused-qkv", "gaps", "shared-batch", "non-unit", "reversed"],
    "angle": ["exact", "f32", "ggml"],
    "cache": ["same", "float16", "bfloat16"],
    "rows": ["scattered", "ascending", "descending", "skipped", "none", "all", "strided"],
    "rows_dtype": ["int64", "int32"],
    "cache_layout": ["contiguous", "layer", "heads-first", "gaps", "reversed"],
}


def possible(case):
    if case.cache != "same" and case.dtype != "float32":
        return False
    if case.framework == "torch" and case.cache_layout == "reversed":
        return False
    return rope_cases.possible(case)


def cache_dtype(case):
    return NUMPY_DTYPES[case.dtype if case.cache == "same" else case.cache]


def rows_of(case, rng):
    """Return rows, and the cache's number of rows."""
    B, S = case.sizes[:2]
    shape, count = ((B, S), B * S) if case.rank == 4 else ((S,), S)
    cache_rows = count if case.rows == "all" else count + 5
    rows = rng.permutation(cache_rows)[:count]
    if case.rows == "ascending":
        rows = np.arange(count) + 3
    elif case.rows == "descending":
        rows = np.arange(count)[::-1] + 3
    elif case.rows == "skipped":
        rows[rng.random(count) < 0.5] = -1
    elif case.rows == "none":
        rows[:] = -1
    rows = rows.reshape(shape).astype(case.rows_dtype)
    if case.rows == "strided":
        rows = np.repeat(rows, 2, axis=-1)[..., ::2]
    return rows, cache_rows


def make_cache(case, guarded, rows):
    """Return a cache. "layer" is one of two layers whose rows alternate in memory, "heads-first" a transposed
    [N,R,D]."""
    N, D = case.sizes[2:]
    strides = {
        "contiguous": (N * D, D, 1),
        "layer": (2 * N * D, D, 1),
        "heads-first": (D, rows * D, 1),
        "gaps": (N * (D + 3) + 5, D + 3, 1),
        "reversed": (-N * D, D, 1),
    }[case.cache_layout]
    cache = guarded.empty((rows, N, D), cache_dtype(case), strides)
    cache[...] = BEFORE
    return cache


@dataclass
class SetRowsArrays:
    """A case's arrays in guarded memory."""

    params: RopeParams
    x: np.ndarray
    positions: np.ndarray
    factors: np.ndarray | None
    rows: np.ndarray
    cache: np.ndarray


def make_inputs(case, guarded, seed=0):
    rng = np.random.default_rng(seed)
    params, shape, dtype = params_of(case), shape_of(case), NUMPY_DTYPES[case.dtype]
    positions, factors = positions_of(case, rng), factors_of(case, params, rng)
    values = rng.standard_normal(shape).astype(dtype)
    if case.x_layout == "shared-batch" and case.rank == 4:
        values[...] = values[:1]
    rows, cache_rows = rows_of(case, rng)
    return SetRowsArrays(
        params,
        guarded.input(values, layout_strides(case.x_layout, shape)),
        guarded.input(positions, element_strides(positions)),
        None if factors is None else guarded.input(factors, element_strides(factors)),
        guarded.input(rows, element_strides(rows)),
        make_cache(case, guarded, cache_rows),
    )


def refusal(backend, case, inputs):
    """Return (class, message) of the error if the back end does not support the call, else None."""
    if case.cache == "bfloat16" and not has_bfloat16(backend) and case.angle == "exact":
        rule = f"cache must be float32 or float16 on {rope_cases.chip_of(backend)}"
        return TypeError, f"[rope_set_rows] {rule} but got bfloat16."
    size = inputs.x.size
    refused = rope_cases.refusal(backend, case.dtype, positions=inputs.positions, angle=case.angle, size=size)
    return refused and (refused[0], refused[1].replace("[rope]", "[rope_set_rows]"))


def run(case, inputs, backend):
    convert = to_torch if case.framework == "torch" else lambda a: a
    arrays = [convert(t) for t in (inputs.x, inputs.positions, inputs.rows)]
    cache, factors = convert(inputs.cache), convert(inputs.factors)
    options = {"backend": backend, "forward": case.forward, "angle": case.angle}
    assert rope_set_rows(*arrays, cache, inputs.params, factors, **options) is cache


def call(case, inputs, backend):
    """Return whether the back end supports the call. If not, require the right error and an unchanged
    cache."""
    refused = refusal(backend, case, inputs)
    if refused is None:
        run(case, inputs, backend)
        return True
    before = inputs.cache.copy()
    with pytest.raises(refused[0]) as caught:
        run(case, inputs, backend)
    assert str(caught.value) == refused[1]
    assert bytes_of(inputs.cache) == bytes_of(before)
    return False


def run_and_judge(case, backend, guarded, seed=0):
    """Require the written rows to meet their bounds, and all other rows to stay unchanged."""
    inputs = make_inputs(case, guarded, seed)
    written = call(case, inputs, backend)
    guarded.check()
    if not written:
        return
    expected, bound = expected_and_bound(
        inputs.x,
        inputs.positions,
        inputs.params,
        inputs.factors,
        dtype=cache_dtype(case).name,
        forward=case.forward,
        angle=case.angle,
        table_error=table_error_of(backend),
    )
    outside = np.ones(inputs.x.shape[-1], bool)  # lanes outside the window are only rounded
    for lanes in inputs.params.pair_lanes():
        outside[lanes] = False
    expected[..., outside] = inputs.x[..., outside].astype(cache_dtype(case)).astype(np.float64)
    rows, heads = inputs.rows.ravel(), expected.shape[-2:]
    has_row = rows >= 0
    got = values_of(inputs.cache)[rows[has_row]]
    expected, bound = (t.reshape(rows.size, *heads)[has_row] for t in (expected, bound))
    ratio, at = worst_ratio(got, expected, bound)
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"
    others = np.delete(inputs.cache, rows[has_row], axis=0)
    assert np.all(others.astype(np.float32) == BEFORE)


def cases(candidates):
    return together("case", [c for c in candidates if possible(c)], share=True)


BASES = [
    RowsCase(),
    RowsCase("float16", "neox", "torch"),
    RowsCase("bfloat16", "imrope"),
    RowsCase(cache="float16", mode="neox"),
    RowsCase(cache="bfloat16", framework="torch", mode="vision"),
]
ONE_FACTOR = BASES + [
    replace(base, **{name: value})
    for base in BASES
    for name, values in FACTORS.items()
    for value in values
    if value != getattr(base, name)
]


@cases(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@cases(pairwise(FACTORS, RowsCase, possible))
def test_every_pair_of_factors_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@settings(max_examples=60)
@given(
    case=st.builds(
        RowsCase,
        **{name: st.sampled_from(values) for name, values in FACTORS.items()},
        sizes=st.tuples(
            st.integers(1, 3), st.integers(0, 9), st.integers(0, 9), st.sampled_from([16, 36, 64, 70, 128])
        ),
    ).filter(possible),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(case, seed, backend):
    run_and_judge(case, backend, GuardedMemory(), seed)


@pytest.mark.parametrize("D", [2, 6, 36, 70, 80, 96, 112, 192, 576, 1024])
@pytest.mark.parametrize("cache", ["same", "float16", "bfloat16"])
def test_head_sizes_that_models_have_meet_the_bound(D, cache, backend, guarded):
    for layout in ("contiguous", "layer"):
        run_and_judge(
            RowsCase(mode="neox", sizes=(1, 5, 3, D), cache=cache, cache_layout=layout), backend, guarded
        )


@pytest.mark.parametrize("sizes", [(0, 3, 2, 16), (2, 0, 2, 16), (2, 3, 0, 16), (1, 1, 1, 16)], ids=str)
def test_sizes_of_zero_and_one_meet_the_bound(sizes, backend, guarded):
    for framework in ("numpy", "torch"):
        for rows in ("scattered", "all"):
            run_and_judge(RowsCase(framework=framework, sizes=sizes, rows=rows), backend, guarded)


@pytest.mark.parametrize("cache", ["same", "float16"])
def test_many_tokens_on_several_threads_and_cores_meet_the_bound(cache, backend, guarded):
    case = RowsCase("float32", "neox", sizes=(2, 300, 8, 128), cache=cache, rows="skipped")
    run_and_judge(case, backend, guarded)


# ---- one call instead of three ---------------------------------------------------------------------


def in_three_steps(case, inputs, backend):
    """Return the cache after rope, a cast by NumPy and an assignment by index."""
    y = rope(
        inputs.x,
        inputs.positions,
        inputs.params,
        inputs.factors,
        backend=backend,
        forward=case.forward,
        angle=case.angle,
    )
    cache, rows = inputs.cache.copy(), inputs.rows.ravel()
    with np.errstate(over="ignore", under="ignore"):
        y = y.astype(cache.dtype).reshape(rows.size, *cache.shape[1:])
    cache[rows[rows >= 0]] = y[rows >= 0]
    return cache


@cases(pairwise({**FACTORS, "framework": ["numpy"]}, RowsCase, possible, seed=1))
def test_it_equals_rope_a_cast_and_an_assignment_bit_for_bit(case, backend, guarded):
    if backend == "reference":  # rope_set_rows rounds float64 once, while rope rounds to x's type first
        return
    inputs = make_inputs(case, guarded)
    if refusal(backend, case, inputs) is not None:
        return
    expected = in_three_steps(case, inputs, backend)
    run(case, inputs, backend)
    assert bytes_of(inputs.cache) == bytes_of(expected)


@pytest.mark.parametrize("cache", ["float16", "bfloat16"])
def test_the_cast_rounds_to_nearest_even_and_overflows_to_infinity(cache, backend):
    """At position 0 the cache gets the rounded x."""
    if cache == "bfloat16" and not has_bfloat16(backend):
        return
    step = 2.0 ** {"float16": -10, "bfloat16": -7}[cache]
    ties = [1 + step * (n + 0.5) for n in range(-4, 4)]
    largest = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}[cache]
    tiny = {"float16": 2.0**-24, "bfloat16": 2.0**-133}[cache]
    values = [
        *ties,
        *(t * (1 + 2.0**-20) for t in ties),
        largest * (1 + step / 2.5),
        -largest * (1 + step / 1.5),
    ]
    values += [tiny, tiny / 2, tiny * 1.5, -tiny * 0.75, 0.0, -0.0, np.inf, -np.inf]
    with np.errstate(over="ignore"):
        x = np.array(values, np.float32).reshape(1, 1, -1)
        expected = x.astype(NUMPY_DTYPES[cache])
    got = np.zeros((1, 1, x.size), NUMPY_DTYPES[cache])
    rope_set_rows(x, np.array([0]), np.array([0]), got, RopeParams(2, n_offs=8), backend=backend)
    assert bytes_of(got) == bytes_of(expected)


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
@pytest.mark.parametrize(
    "case", [RowsCase(), RowsCase(cache="float16", mode="mrope", framework="torch", rows="skipped")], ids=str
)
def test_a_call_is_one_launch(case, device, guarded):
    inputs = make_inputs(case, guarded)
    before = simulator.load().launches()
    run(case, inputs, device)
    assert simulator.load().launches() == before + 1


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_only_the_selected_rows_are_moved(device):
    """The cache has a thousand rows for each token."""
    x, cache = np.ones((1, 4, 8, 128), np.float32), np.zeros((4000, 8, 128), np.float16)
    rope_set_rows(x, np.arange(4), np.array([[7, -1, 3999, 0]]), cache, RopeParams(128), backend=device)
    summary = simulator.load().report()["summary"]
    assert summary["bytes_written"] == 3 * 8 * 128 * 2
    assert summary["bytes_read"] < 2 * x.nbytes
    assert np.flatnonzero(cache.any((1, 2))).tolist() == [0, 7, 3999]


def test_a_torch_call_allocates_no_tensor():
    kv = torch.randn(64, 2 * 8, 128)
    cache = torch.zeros(4096, 2, 8, 128)
    tensors = kv[:, :8], torch.arange(64), torch.arange(64) * 3, cache[:, 1]
    params = RopeParams(128, "neox")
    rope_set_rows(*tensors, params)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        rope_set_rows(*tensors, params)
    assert sum(max(0, e.self_cpu_memory_usage) for e in profile.key_averages()) < 4096


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_large_cache_is_not_copied(name):
    """NumPy and Python allocate only a small part of the cache's 64 MiB."""
    x, cache = np.ones((1, 4, 8, 128), np.float32), np.zeros((32768, 8, 128), np.float16)
    arguments = x, np.arange(4), np.array([[7, -1, 32767, 0]]), cache, RopeParams(128)
    tracemalloc.start()
    try:
        rope_set_rows(*arguments, backend=name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20
    assert np.flatnonzero(cache.any((1, 2))).tolist() == [0, 7, 32767]


# ---- the cache -------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_one_of_two_layers_is_written_and_the_other_stays_unchanged(framework, backend):
    layers = np.full((9, 2, 3, 16), np.nan, np.float32)
    x, rows = np.ones((4, 3, 16), np.float32), np.array([8, 0, -1, 3])
    convert = to_torch if framework == "torch" else lambda a: a
    tensors = convert(x), convert(np.zeros(4, np.int32)), convert(rows), convert(layers[:, 1])
    rope_set_rows(*tensors, RopeParams(16), backend=backend)
    assert np.all(np.isnan(layers[:, 0]))
    assert np.flatnonzero(~np.isnan(layers[:, 1, 0, 0])).tolist() == [0, 3, 8]
    assert np.all(layers[[0, 3, 8], 1] == 1)


def test_slots_of_a_paged_cache_are_rows(backend):
    """A slot in vLLM is block * block_size + offset. -1 pads the batch."""
    paged = np.zeros((5, 4, 2, 16), np.float16)
    slots = np.array([[3 * 4 + 1, 3 * 4 + 2, -1], [0, 4 * 4 + 3, -1]])
    x = np.arange(6, dtype=np.float16).reshape(2, 3, 1, 1) + np.ones((2, 3, 2, 16), np.float16)
    flat = paged.reshape(20, 2, 16)
    rope_set_rows(x, np.zeros((2, 3), np.int32), slots, flat, RopeParams(16), backend=backend)
    written = {slot: value for slot, value in zip(slots.ravel(), range(1, 7), strict=True) if slot >= 0}
    assert {int(r): int(flat[r, 0, 0]) for r in np.flatnonzero(flat.any((1, 2)))} == written


def test_nans_of_a_skipped_token_are_not_written(backend):
    x, cache = np.ones((3, 1, 8), np.float32), np.zeros((2, 1, 8), np.float32)
    x[1] = np.nan
    rope_set_rows(x, np.array([0, 99, 0]), np.array([1, -1, 0]), cache, RopeParams(8), backend=backend)
    assert np.all(cache == 1)


def test_rows_of_both_integer_types_and_any_strides_give_the_same_result(backend, guarded):
    x = np.random.default_rng(0).standard_normal((2, 6, 2, 16)).astype(np.float32)
    rows, results = np.array([[3, -1, 11, 0, 8, 5], [1, 2, -1, 10, 9, 4]]), []
    for dtype in (np.int32, np.int64):
        for strides in [(6, 1), (1, 2), (-6, -1), (20, 3)]:
            cache = np.zeros((12, 2, 16), np.float32)
            strided = guarded.input(rows.astype(dtype), strides)
            rope_set_rows(x, np.arange(6), strided, cache, RopeParams(16), backend=backend)
            results.append(cache)
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_positions_and_rows_may_be_lists(backend):
    x, cache = np.ones((1, 2, 1, 8), np.float32), np.zeros((4, 1, 8), np.float32)
    rope_set_rows(x, [0, 0], [3, 1], cache, RopeParams(8), backend=backend)
    assert np.flatnonzero(cache[:, 0, 0]).tolist() == [1, 3]


def test_arrays_of_the_other_byte_order_give_the_same_result(backend):
    x = np.random.default_rng(0).standard_normal((3, 2, 8)).astype(np.float32)
    rows, caches = np.array([2, 0, 3]), [np.zeros((4, 2, 8), np.float32) for _ in range(2)]
    rope_set_rows(x, np.arange(3), rows, caches[0], RopeParams(8), backend=backend)
    rope_set_rows(
        x.astype(">f4"), np.arange(3), rows.astype(">i8"), caches[1], RopeParams(8), backend=backend
    )
    assert np.array_equal(*caches)


def test_the_cache_keeps_its_own_dtype(backend):
    for cache_name in ("float32", "float16"):
        cache = np.zeros((1, 1, 8), cache_name)
        got = rope_set_rows(
            np.full((1, 1, 8), 0.1, np.float32), [0], [0], cache, RopeParams(8), backend=backend
        )
        assert dtype_name(got) == cache_name
        assert np.all(got == np.float32(0.1).astype(cache_name))
