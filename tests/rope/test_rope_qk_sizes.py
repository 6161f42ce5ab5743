"""rope_qk and rope_set_rows: each size on both sides of 65,536, and strides beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
from far_sizes import (
    BORDERS,
    FAR_ROWS,
    PAIR_SHAPES,
    far,
    far_array,
    far_ones,
    far_runs,
    normal_values,
    refuses_head,
    rows_of,
    two_of,
)
from rope_cases import assert_within, expected_and_bound, table_error_of

from npu_rope import RopeParams, rope_qk, rope_set_rows
from npu_rope.testing.bounds import worst_ratio

UNWRITTEN = 7  # the values of a cache before the call


# ---- rope_qk -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "mode"), [("float16", "neox"), ("float32", "normal")])
@pytest.mark.parametrize("dimension", PAIR_SHAPES)
def test_queries_and_keys_of_each_size(dimension, dtype, mode, backend):
    for size in BORDERS:
        xs = [normal_values(shape, dtype) for shape in PAIR_SHAPES[dimension](size)]
        B, S, _, D = xs[0].shape
        angles = np.arange(B * S).reshape(B, S), RopeParams(D // 2 * 2, mode)

        def run(arguments=(*xs, *angles)):
            return rope_qk(*arguments, backend=backend)

        if not refuses_head(run, "rope_qk", "q", D, backend):
            for y, x in zip(run(), xs, strict=True):
                assert_within(y, x, *angles, dtype=dtype, backend=backend)


@pytest.mark.slow
@far_runs("B", "S", "N")
def test_queries_and_keys_with_strides_beyond_2_31_elements(dimension, backend):
    shape = two_of(dimension, "BSN")
    xs = [normal_values(shape, "float16", seed) for seed in range(2)]
    outs = far_ones([np.zeros(shape, np.float16)] * 2, backend)
    angles = np.arange(shape[1]) + 1000, RopeParams(128, "neox")
    rope_qk(*far_ones(xs, backend), *angles, out=tuple(outs), backend=backend)
    for y, x in zip(outs, xs, strict=True):
        assert_within(y, x, *angles, dtype="float16", backend=backend)


# ---- rope_set_rows -------------------------------------------------------------------------------------

# The shape of x, and the number of the cache's rows, if it is not the number of tokens and two more.
ROWS_SHAPES = {
    "B": lambda size: ((size, 1, 1, 16), 0),
    "S": lambda size: ((1, size, 1, 16), 0),
    "N": lambda size: ((1, 2, size, 16), 0),
    "D": lambda size: ((1, 2, 1, size), 0),
    "rows": lambda size: ((2, 3, 2, 16), size),
    "all rows": lambda size: ((1, size, 1, 16), size),
}


def judge_rows(written, x, positions, params, backend):
    """Require the rows ``[tokens,N,D]`` of a cache to meet the bounds of a rotation rounded to its type."""
    name, heads = written.dtype.name, x.shape[2:]
    expected, bound = expected_and_bound(
        x, positions, params, None, dtype=name, table_error=table_error_of(backend)
    )
    rotated = params.n_dims
    expected[..., rotated:] = x[..., rotated:].astype(written.dtype)  # only rounded
    ratio, at = worst_ratio(written, expected.reshape(-1, *heads), bound.reshape(-1, *heads))
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", ROWS_SHAPES)
def test_writes_into_rows_of_each_size(dimension, dtype, backend):
    """The cache is float16."""
    for size in BORDERS:
        shape, cache_rows = ROWS_SHAPES[dimension](size)
        B, S, N, D = shape
        cache = np.full((cache_rows or B * S + 2, N, D), UNWRITTEN, np.float16)
        rows = rows_of(B * S, len(cache)).reshape(B, S)
        x, positions = normal_values(shape, dtype), np.arange(B * S).reshape(B, S)
        params = RopeParams(D // 2 * 2)

        def run(arguments=(x, positions, rows, cache, params)):
            return rope_set_rows(*arguments, backend=backend)

        if not refuses_head(run, "rope_set_rows", "x", D, backend):
            run()
            judge_rows(cache[rows.ravel()], x, positions, params, backend)
            assert (np.delete(cache, rows.ravel(), axis=0) == UNWRITTEN).all()
        else:
            assert (cache == UNWRITTEN).all()


@pytest.mark.parametrize("size", BORDERS)
def test_a_row_behind_the_last_of_a_cache_is_refused(size, backend):
    x, cache = normal_values((1, 2, 1, 16), "float32"), np.full((size, 1, 16), UNWRITTEN, np.float32)
    rule = rf"^\[rope_set_rows\] rows must be -1 or a row of the cache's {size} but got {size}\.$"
    with pytest.raises(ValueError, match=rule):
        rope_set_rows(x, np.arange(2), np.array([0, size]), cache, RopeParams(16), backend=backend)
    assert (cache == UNWRITTEN).all()


@pytest.mark.slow
@far_runs("B", "S", "N")
def test_writes_into_rows_with_strides_beyond_2_31_elements(dimension, backend):
    B, S, N, _ = shape = two_of(dimension, "BSN")
    x, cache = normal_values(shape, "float16"), far_array((B * S, N, 128))
    positions, params = np.arange(B * S).reshape(B, S) + 1000, RopeParams(128, "neox")
    rows = np.arange(B * S)[::-1].reshape(B, S)
    rope_set_rows(far(x), positions, rows, cache, params, backend=backend)
    judge_rows(cache[rows.ravel()], x, positions, params, backend)


@pytest.mark.slow
def test_rows_of_a_cache_of_more_than_2_31_elements_are_written():
    """4 GiB, of which only the written rows take memory."""
    cache = np.zeros((FAR_ROWS.max() + 2, 1, 128), np.float16)
    x, positions = normal_values((1, FAR_ROWS.size, 1, 128), "float16"), np.arange(FAR_ROWS.size)
    params = RopeParams(128, "neox")
    rope_set_rows(x, positions, FAR_ROWS, cache, params, backend="cpu")
    judge_rows(cache[FAR_ROWS], x, positions, params, "cpu")
    for row in np.setdiff1d(FAR_ROWS[:, None] + np.array([-1, 1]), [*FAR_ROWS, -1]):
        assert not cache[row].any()
