"""Given tables, and PMX's operator: each size on both sides of 65,536, strides beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from far_sizes import (
    BORDERS,
    FAR,
    PAIR_SHAPES,
    far_array,
    far_ones,
    far_runs,
    normal_values,
    refuses_head,
    two_of,
)
from rope_cases import NUMPY_DTYPES, table_error_of

from npu_rope import (
    rotary_embedding,
    rotary_mul,
    rotary_mul_backward,
    rotary_mul_qk,
)
from npu_rope.testing import pmx, rotary_spec
from npu_rope.testing.bounds import table_bound, worst_ratio
from npu_rope.testing.pmx import PmxCase


def tables_of(shape, dtype):
    """Return cos and sin. They differ in each row and lane, and are not limited to [-1, 1]."""
    return normal_values(shape, dtype, 1), normal_values(shape, dtype, 2)


def judge(got, expected, dtype):
    """Require the bound of a rotation by given tables. expected: value and magnitude of rotary_spec."""
    value, magnitude = expected
    assert (got.shape, got.dtype) == (value.shape, NUMPY_DTYPES[dtype])
    ratio, at = worst_ratio(got, value, table_bound(magnitude, value, dtype))
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


def judge_pmx(case, xs, got, backend):
    """Require the bound of the specification's loop."""
    expected = pmx.expectation(case, *xs, pmx.angles_of(case), table_error_of(backend))
    ratio, at = worst_ratio(np.concatenate(got, -2), expected.value, expected.bound)
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


# ---- rotary_mul, rotary_mul_qk -------------------------------------------------------------------------

# The shapes of x and of the tables in which one size is at the border.
SHAPES = {
    "B": lambda size: ((size, 1, 1, 16), (size, 1, 8)),
    "B of one table": lambda size: ((size, 1, 1, 16), (1, 1, 1, 16)),
    "S": lambda size: ((1, size, 1, 16), (size, 16)),
    "S without B": lambda size: ((size, 1, 16), (size, 1, 8)),
    "N": lambda size: ((1, 2, size, 16), (2, 8)),
    "D": lambda size: ((1, 2, 1, size), (2, size // 2 * 2)),
    "pairs": lambda size: ((1, 2, 1, 2 * size), (2, size)),
}


def window_of(shape, interleaved):
    """Return the attributes of a rotation of the whole head, except for the last lane of an odd one."""
    return {"interleaved": interleaved, "rotary_dim": shape[-1] // 2 * 2}


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "interleaved"), [("float32", False), ("float16", True)])
@pytest.mark.parametrize("dimension", SHAPES)
def test_each_size_may_be_65536(dimension, dtype, interleaved, backend):
    for size in BORDERS:
        shape, table_shape = SHAPES[dimension](size)
        x, tables = normal_values(shape, dtype), tables_of(table_shape, dtype)
        window = window_of(shape, interleaved)

        def run(arrays=(x, *tables), window=window):
            return rotary_mul(*arrays, **window, backend=backend)

        if not refuses_head(run, "rotary_mul", "x", shape[-1], backend):
            judge(run(), rotary_spec.rotary_mul(x, *tables, **window), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", PAIR_SHAPES)
def test_queries_and_keys_of_each_size(dimension, backend):
    for size in BORDERS:
        shapes = PAIR_SHAPES[dimension](size)
        xs, window = [normal_values(shape, "float16") for shape in shapes], window_of(shapes[0], True)
        tables = tables_of((shapes[0][1], window["rotary_dim"]), "float32")

        def run(arrays=(*xs, *tables), window=window):
            return rotary_mul_qk(*arrays, **window, backend=backend)

        if not refuses_head(run, "rotary_mul_qk", "q", shapes[0][-1], backend):
            for y, x in zip(run(), xs, strict=True):
                judge(y, rotary_spec.rotary_mul(x, *tables, **window), "float16")


# ---- the gradients of rotary_mul -----------------------------------------------------------------------


def integers_of(shape, dtype, seed):
    """Return small integers: their products and sums are exact in the types of the gradients."""
    return np.random.default_rng((seed, *shape)).integers(-3, 4, shape).astype(NUMPY_DTYPES[dtype])


def gradients_by_definition(grad, x, cos, sin):
    """Return the gradients for tables with an entry for each pair of halves, in float64."""
    grad, x, cos, sin = (t.astype(np.float64) for t in (grad, x, cos, sin))
    pairs = cos.shape[-1]
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    to_heads = cos.shape if cos.ndim == x.ndim else (*cos.shape[:-1], 1, pairs)
    c, s = cos.reshape(to_heads), sin.reshape(to_heads)
    g1, g2, x1, x2 = grad[..., first], grad[..., second], x[..., first], x[..., second]
    dx = grad.copy()
    dx[..., first], dx[..., second] = g1 * c + g2 * s, g2 * c - g1 * s
    sums = []
    for lanes in (g1 * x1 + g2 * x2, g2 * x1 - g1 * x2):
        shared = tuple(range(lanes.ndim - len(to_heads)))  # the dimensions that the tables lack
        ones = tuple(a for a, n in enumerate(to_heads, len(shared)) if n == 1)
        sums.append(lanes.sum(shared + ones).reshape(cos.shape))
    return dx, *sums


GRADIENT_SHAPES = {
    **SHAPES,
    "B of one table": lambda size: ((size, 1, 1, 16), (1, 1, 1, 8)),
    "S": lambda size: ((1, size, 1, 16), (size, 8)),
    "D": lambda size: ((1, 2, 1, size), (2, size // 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dimension", GRADIENT_SHAPES)
def test_gradients_of_each_size(dimension, backend):
    """They equal the sums of the definition, which are exact here."""
    for size in BORDERS:
        shape, table_shape = GRADIENT_SHAPES[dimension](size)
        grad, x = (integers_of(shape, "float16", seed) for seed in range(2))
        tables = [integers_of(table_shape, "float32", seed) for seed in (2, 3)]
        window = window_of(shape, False)

        def run(arrays=(grad, x, *tables), window=window, backend=backend):
            return rotary_mul_backward(*arrays, **window, backend=backend)

        if refuses_head(run, "rotary_mul", "x", shape[-1], backend):
            continue
        expected = gradients_by_definition(grad, x, *tables)
        results = [run()]
        if backend == "cpu":
            tensors = [torch.from_numpy(t) for t in (grad, x, *tables)]
            results.append([t.numpy() for t in run(tensors, backend=None)])
        for gradients in results:
            for got, value, like in zip(gradients, expected, (x, *tables), strict=True):
                assert got.dtype == like.dtype
                assert np.array_equal(got, value)


# ---- rotary_embedding ----------------------------------------------------------------------------------

HEADS = {65535: 4369, 65536: 4096, 65537: 1}  # of a hidden size, which they divide

# The shapes of X and of the caches, and the number of heads of an X of rank 3. A cache of rank 2 has rows.
ONNX_SHAPES = {
    "B": lambda size: ((size, 1, 1, 16), (size, 1, 8), 0),
    "N": lambda size: ((1, size, 2, 16), (1, 2, 8), 0),
    "S": lambda size: ((1, 2, size, 16), (1, size, 8), 0),
    "S, with rows": lambda size: ((1, 2, size, 16), (7, 8), 0),
    "D": lambda size: ((1, 1, 2, size), (1, 2, size // 2), 0),
    "rows": lambda size: ((2, 1, 300, 16), (size, 8), 0),
    "entries": lambda size: ((1, 1, 2, 16), (1, 2, size), 0),
    "entries, with rows": lambda size: ((1, 1, 2, 16), (3, size), 0),
    "num_heads": lambda size: ((1, 2, 4 * size), (1, 2, 2), size),
    "S of rank 3": lambda size: ((1, size, 32), (1, size, 8), 2),
    "hidden": lambda size: ((1, 2, size), (1, 2, size // HEADS[size] // 2), HEADS[size]),
}


def position_rows(shape, rows):
    """Return position_ids that have the first rows, the last ones and random rows between them."""
    tokens = (shape[0], shape[-2])
    ids = np.random.default_rng(rows).integers(0, rows, tokens)
    ends = [0, 1, rows // 2, rows - 3, rows - 2, rows - 1]
    ids.flat[: len(ends)] = ends[: ids.size]
    ids.flat[-1] = rows - 1
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("dimension", ONNX_SHAPES)
def test_onnx_rotation_of_each_size(dimension, backend):
    for size in BORDERS:
        shape, cache_shape, heads = ONNX_SHAPES[dimension](size)
        X, caches = normal_values(shape, "float16"), tables_of(cache_shape, "float16")
        ids = position_rows(shape, cache_shape[0]) if len(cache_shape) == 2 else None
        head = shape[-1] // heads if heads else shape[-1]
        attributes = {"num_heads": heads, "rotary_embedding_dim": head // 2 * 2}

        def run(arrays=(X, *caches, ids), attributes=attributes):
            return rotary_embedding(*arrays, **attributes, backend=backend)

        if not refuses_head(run, "rotary_embedding", "X", head, backend):
            spec = rotary_spec.rotary_embedding(X, *caches, ids, interleaved=False, **attributes)
            judge(run(), spec, "float16")


@pytest.mark.parametrize("size", BORDERS)
def test_a_row_behind_the_last_of_a_cache_is_refused(size, backend):
    X, cache, ids = (
        normal_values((1, 1, 2, 16), "float32"),
        np.ones((size, 8), np.float32),
        np.array([[0, size]]),
    )
    rule = rf"^\[rotary_embedding\] position_ids must be rows 0 to {size - 1} of cos_cache but got {size}\.$"
    with pytest.raises(ValueError, match=rule):
        rotary_embedding(X, cache, cache, ids, backend=backend)


# ---- rotary_position_embedding ---------------------------------------------------------------------------

# The fields of a case in which one size is at the border.
PMX_CASES = {
    "B": lambda size: {"query_shape": (size, 1, 1, 16), "pad_len": tuple(range(size))},
    "S": lambda size: {"query_shape": (1, size, 1, 16)},
    "N": lambda size: {"query_shape": (1, 2, size, 16)},
    "keys": lambda size: {"query_shape": (1, 2, 1, 16), "key_heads": size},
    "D": lambda size: {"query_shape": (1, 2, 1, size), "rotary_dim": size // 2 * 2},
    "packed tokens": lambda size: {"query_shape": (size, 1, 16), "start_pos": (3,), "seqlens": (size,)},
    "sequences": lambda size: {
        "query_shape": (size + 1, 1, 16),
        "start_pos": tuple(range(size)),
        "seqlens": (2, *(1,) * (size - 1)),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "dtype"), [*((name, "float16") for name in PMX_CASES), ("S", "int8"), ("N", "int8")]
)
def test_pmx_rotation_of_each_size(dimension, dtype, backend):
    for size in BORDERS:
        case = PmxCase("sizes", dtype, **{"key_heads": 1, "start_pos": 5, **PMX_CASES[dimension](size)})
        xs = pmx.make_data(case)

        def run(case=case, xs=xs):
            return case.call(*xs, backend)

        if not refuses_head(run, "rotary_position_embedding", "query", case.query_shape[-1], backend):
            judge_pmx(case, xs, run(), backend)


# ---- strides beyond 2**31 elements ---------------------------------------------------------------------


@pytest.mark.slow
@far_runs("B", "S", "N")
def test_strides_beyond_2_31_elements(dimension, backend):
    shape = two_of(dimension, "BSN")
    x, out = normal_values(shape, "float16"), far_array(shape)
    tables = tables_of((*shape[:2], 128), "float16")
    attributes = {"interleaved": True}
    arrays = far_ones([x, *tables], backend)
    assert rotary_mul(*arrays, **attributes, out=out, backend=backend) is out
    judge(out, rotary_spec.rotary_mul(x, *tables, **attributes), "float16")
    xs, outs = far_ones([x, x[::-1]], backend), far_ones([np.zeros(shape, np.float16)] * 2, backend)
    rotary_mul_qk(*xs, *tables, **attributes, out=tuple(outs), backend=backend)
    for y, expected_x in zip(outs, (x, x[::-1]), strict=True):
        judge(y, rotary_spec.rotary_mul(expected_x, *tables, **attributes), "float16")


@pytest.mark.slow
@far_runs("B", "S", "N")
def test_gradients_with_strides_beyond_2_31_elements(dimension, backend):
    shape = two_of(dimension, "BSN")
    grad, x = (integers_of(shape, "float16", seed) for seed in range(2))
    tables = [integers_of((*shape[:2], 64), "float16", seed) for seed in (2, 3)]
    got = rotary_mul_backward(*far_ones([grad, x, *tables], backend), backend=backend)
    for gradient, value in zip(got, gradients_by_definition(grad, x, *tables), strict=True):
        assert np.array_equal(gradient, value)


@pytest.mark.slow
@pytest.mark.parametrize("has_rows", [False, True])
@far_runs("B", "N", "S")
def test_onnx_strides_beyond_2_31_elements(dimension, has_rows, backend):
    B, _, S, _ = shape = two_of(dimension, "BNS")
    X, out = normal_values(shape, "float16"), far_array(shape)
    caches = tables_of((2, 64) if has_rows else (B, S, 64), "float16")
    ids = np.arange(B * S)[::-1].reshape(B, S) if has_rows else None
    rotary_embedding(*far_ones([X, *caches], backend), ids, out=out, backend=backend)
    judge(out, rotary_spec.rotary_embedding(X, *caches, ids, interleaved=False), "float16")


@pytest.mark.slow
@far_runs("B", "S", "N")
def test_pmx_strides_beyond_2_31_elements(dimension, backend):
    case = PmxCase("strides", "float16", two_of(dimension, "BSN"), 2 if dimension == "N" else 1, 70_000)
    xs = pmx.make_data(case)
    judge_pmx(case, xs, case.call(*far_ones(xs, backend), backend), backend)


@pytest.mark.slow
def test_caches_of_more_than_2_31_elements_are_read():
    """Two caches of 4 GiB, of which only the chosen rows take memory."""
    rows = FAR // 64 + 1
    chosen = np.array([[0, 1, 2**24, 2**25 - 1, 2**25, rows - 1]])  # around 2**30 and 2**31 elements
    X, entries = normal_values((1, 2, chosen.size, 128), "float16"), tables_of((chosen.size, 64), "float16")
    caches = [np.zeros((rows, 64), np.float16) for _ in entries]
    for cache, values in zip(caches, entries, strict=True):
        cache[chosen[0]] = values
    got = rotary_embedding(X, *caches, chosen, backend="cpu")
    ids = np.arange(chosen.size)[None]
    judge(got, rotary_spec.rotary_embedding(X, *entries, ids, interleaved=False), "float16")
