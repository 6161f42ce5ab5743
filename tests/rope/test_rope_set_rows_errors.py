"""Bad calls of rope_set_rows raise the same error on every path (paths.py) and write nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paths import (
    C_PATHS,
    NUMPY,
    PATHS,
    PYTHON,
    SET_ROWS,
    BadCall,
    PathCall,
    assert_refused,
    bad_calls_of,
    c_arguments,
    c_status,
    each_bad_call,
    make_ones,
    make_sentinels,
    make_strided,
)
from rope_bad_calls import SENTINEL, sentinels
from rope_cases import chip_of, to_torch

from npu_rope import BackendUnavailable, RopeParams, rope_set_rows
from npu_rope.native import c_tensor

B, S, N, D, R = 2, 3, 2, 8, 9
X, CACHE = (B, S, N, D), (R, N, D)
ROWS = [[4, 0, -1], [8, 1, 2]]


def call(attributes=None, angle=0, **changed):
    """Return a correct call in which the given arguments are changed."""
    tensors = {
        "x": np.ones(X, np.float32),
        "positions": np.arange(S, dtype=np.int32),
        "rows": np.array(ROWS),
        "freq_factors": None,
        "cache": sentinels(CACHE),
    }
    new_call = PathCall(SET_ROWS, {**tensors, **changed}, angle=angle)
    new_call.attributes.update(attributes or {})
    return new_call


bad = bad_calls_of(call)


def make_rows(*values, dtype=np.int64):
    """Return a function that makes the argument rows."""
    return lambda: np.array(values, dtype)


# ---- inputs ----------------------------------------------------------------------------------------

TYPES = "x must be float32, float16, bfloat16 or float64 but got"
ROWS_SHAPE = "rows must have shape [B, S] = [2, 3] but got"
ROWS_TYPE = "rows must be int32 or int64 but got"
ROWS_RANGE = "rows must be -1 or a row of the cache's 9 but got"
TWICE = "rows must differ from each other but got"
WITHOUT_BATCH = {"x": make_ones(S, N, D), "positions": np.arange(S)}

INPUTS = [
    bad("x-int32", f"{TYPES} int32.", kind=TypeError, x=make_ones(*X, dtype=np.int32)),
    bad("x-int16", f"{TYPES} int16.", kind=TypeError, x=make_ones(*X, dtype=np.int16), paths=PYTHON),
    bad("x-2d", "x must have shape [B,S,N,D] or [S,N,D] but got [3, 8].", x=make_ones(3, 8)),
    bad(
        "positions-long",
        "positions must have shape [S] = [3], [B, S] = [2, 3] or [1, S] but got [4].",
        positions=lambda: np.arange(4),
    ),
    bad(
        "positions-far",
        "positions must be in the int32 range but got -2147483649.",
        positions=lambda: np.array([0, 1, -(2**31) - 1]),
    ),
    bad("rows-of-tokens", f"{ROWS_SHAPE} [3].", rows=make_rows(1, 2, 3)),
    bad("rows-transposed", f"{ROWS_SHAPE} [3, 2].", rows=lambda: np.arange(6).reshape(3, 2)),
    bad("rows-flat", f"{ROWS_SHAPE} [6].", rows=lambda: np.arange(6)),
    bad("rows-scalar", f"{ROWS_SHAPE} [].", rows=lambda: np.array(1)),
    bad("rows-3d", f"{ROWS_SHAPE} [1, 2, 3].", rows=lambda: np.arange(6).reshape(1, 2, 3)),
    bad(
        "rows-batched-without-batch",
        "rows must have shape [S] = [3] but got [1, 3].",
        rows=make_rows([1, 2, 3]),
        **WITHOUT_BATCH,
    ),
    bad(
        "rows-of-one-batch",
        "rows must have shape [B, S] = [1, 3] or [S] = [3] but got [4].",
        x=make_ones(1, S, N, D),
        rows=lambda: np.arange(4),
    ),
    bad("rows-float", f"{ROWS_TYPE} float32.", kind=TypeError, rows=make_ones(B, S)),
    bad(
        "rows-int16",
        f"{ROWS_TYPE} int16.",
        kind=TypeError,
        rows=make_ones(B, S, dtype=np.int16),
        paths=PYTHON,
    ),
    bad("rows-bool", f"{ROWS_TYPE} bool.", kind=TypeError, rows=make_ones(B, S, dtype=bool), paths=PYTHON),
    bad("rows-beyond", f"{ROWS_RANGE} 9.", rows=make_rows([4, 0, -1], [9, 1, 2])),
    bad("rows-before", f"{ROWS_RANGE} -2.", rows=make_rows([4, 0, -2], [8, 1, 2])),
    bad("rows-far", f"{ROWS_RANGE} 4294967296.", rows=make_rows([4, 0, 2**32], [8, 1, 2])),
    bad(
        "rows-int32-beyond",
        f"{ROWS_RANGE} 2147483647.",
        rows=make_rows([4, 0, 2**31 - 1], [8, 1, 2], dtype=np.int32),
    ),
    bad("rows-least-int64", f"{ROWS_RANGE} {-(2**63)}.", rows=make_rows([4, 0, -(2**63)], [8, 1, 2])),
    bad("rows-beyond-and-twice", f"{ROWS_RANGE} 9.", rows=make_rows([4, 4, 9], [8, 1, 2])),
    bad("rows-twice", f"{TWICE} 4 twice.", rows=make_rows([4, 0, -1], [8, 4, 2])),
    bad("rows-twice-in-a-row", f"{TWICE} 2 twice.", rows=make_rows([1, 2, 2], [-1, 3, 4], dtype=np.int32)),
    bad("rows-several-twice", f"{TWICE} 0 twice.", rows=make_rows([8, 0, 8], [5, 0, 5])),
    bad(
        "rows-of-an-empty-cache",
        "rows must be -1 or a row of the cache's 0 but got 4.",
        cache=make_sentinels(0, N, D),
    ),
    bad(
        "rows-on-meta",
        "rows must be on x's device cpu but got meta.",
        rows=lambda: torch.zeros((B, S), dtype=torch.int64, device="meta"),
        paths=("torch-cpu", "torch-default", "torch-ops"),
    ),
    bad(
        "factors-short",
        "freq_factors must have one dimension of at least n_dims/2 = 4 elements but got shape [3].",
        freq_factors=make_ones(3),
    ),
    bad(
        "factors-negative",
        "freq_factors must be positive and finite but got -2.5 at index 1.",
        freq_factors=lambda: np.float32([1, -2.5, 1, 1]),
    ),
    bad(
        "n_offs-too-far",
        "n_offs + n_dims must be at most the head size 8 but got 10.",
        attributes={"n_offs": 2},
    ),
    bad("angle-unknown", "angle must be exact (0), f32 (1) or ggml (2) but got 3.", angle=3),
    # Checks of parameters do not depend on the operator; their errors name rope.
    bad(
        "n_offs-odd",
        "n_offs must be an even number >= 0 but got 1.",
        attributes={"n_offs": 1},
        operator="rope",
    ),
]

# ---- outputs ---------------------------------------------------------------------------------------


def cache_over(name):
    def make():
        new_call = call(freq_factors=np.ones(4, np.float32))
        inside = new_call.tensors["cache"].ravel()[6:]
        if name == "x":
            new_call.tensors["x"] = inside[: int(np.prod(X))].reshape(X)
        elif name == "rows":
            new_call.tensors["rows"] = inside[:12].view(np.int64).reshape(B, S)
            new_call.tensors["rows"][...] = ROWS
        else:
            new_call.tensors[name] = inside.view(np.int32)[:S] if name == "positions" else inside[:4]
            new_call.tensors[name][...] = 1
        return new_call

    return make


def tokens_as_their_own_cache():
    x = np.ones(CACHE, np.float32)
    return call(x=x, positions=np.arange(R), rows=np.arange(R), cache=x)


def off_by_a_byte():
    return np.zeros(4 * R * N * D + 1, np.uint8)[1:].view(np.float32).reshape(CACHE)


def read_only():
    cache = sentinels(CACHE)
    cache.flags.writeable = False
    return cache


CACHE_SHAPE = "cache must have shape [R,N,D] = [R, 2, 8] but got"
UNIT_STRIDE = "cache must have unit stride in its last dimension but got"
OVERLAP = "cache must share no memory with {} but got overlapping memory."
OUTPUTS = [
    bad(
        "cache-float64",
        "cache must have x's dtype float32, float16 or bfloat16 but got float64.",
        kind=TypeError,
        cache=make_sentinels(*CACHE, dtype=np.float64),
    ),
    bad(
        "cache-int8",
        "cache must have x's dtype float32, float16 or bfloat16 but got int8.",
        kind=TypeError,
        cache=make_sentinels(*CACHE, dtype=np.int8),
        paths=PYTHON,
    ),
    bad(
        "cache-wider",
        "cache must have x's dtype float16 but got float32.",
        kind=TypeError,
        x=make_ones(*X, dtype=np.float16),
    ),
    bad("cache-flat", f"{CACHE_SHAPE} [9, 16].", cache=make_sentinels(R, N * D)),
    bad("cache-4d", f"{CACHE_SHAPE} [1, 9, 2, 8].", cache=make_sentinels(1, *CACHE)),
    bad("cache-5d", f"{CACHE_SHAPE} [1, 1, 9, 2, 8].", cache=make_sentinels(1, 1, *CACHE), paths=PYTHON),
    bad("cache-other-heads", f"{CACHE_SHAPE} [9, 3, 8].", cache=make_sentinels(R, 3, D)),
    bad("cache-other-head-size", f"{CACHE_SHAPE} [9, 2, 10].", cache=make_sentinels(R, N, 10)),
    bad("cache-heads-first", f"{CACHE_SHAPE} [2, 9, 8].", cache=make_sentinels(N, R, D)),
    bad(
        "cache-read-only", "cache must be writeable but got a read-only array.", cache=read_only, paths=NUMPY
    ),
    bad("cache-spaced", f"{UNIT_STRIDE} 2.", cache=make_strided(CACHE, (32, 16, 2))),
    bad(
        "cache-backwards",
        f"{UNIT_STRIDE} -1.",
        cache=lambda: sentinels(CACHE)[..., ::-1],
        paths=(*NUMPY, *C_PATHS),
    ),
    bad(
        "cache-folded",
        "cache must not overlap itself but got strides [8, 8, 1].",
        cache=make_strided(CACHE, (8, 8, 1)),
    ),
    bad(
        "cache-of-one-row",
        "cache must not overlap itself but got strides [0, 8, 1].",
        cache=make_strided(CACHE, (0, 8, 1)),
    ),
    bad(
        "cache-unaligned",
        "cache must be aligned to its 4-byte elements but got an address that is not.",
        cache=off_by_a_byte,
    ),
    BadCall("cache-is-x", tokens_as_their_own_cache, OVERLAP.format("x")),
    *[
        BadCall(f"cache-over-{name}", cache_over(name), OVERLAP.format(name))
        for name in ("x", "positions", "rows", "freq_factors")
    ],
]


@each_bad_call([*INPUTS, *OUTPUTS])
def test_a_bad_call_raises_its_error_and_writes_nothing(bad, path):
    assert_refused(bad, path)


@pytest.mark.parametrize("path", PATHS)
def test_a_valid_call_writes_its_rows_only(path):
    new_call = call(freq_factors=np.ones(4, np.float32))
    PATHS[path](new_call)
    untouched = np.all(new_call.tensors["cache"] == SENTINEL, (1, 2))
    assert np.flatnonzero(~untouched).tolist() == [0, 1, 2, 4, 8]


@pytest.mark.parametrize("path", PATHS)
def test_rows_of_one_batch_may_omit_the_batch_dimension(path):
    for shape, make in [
        ((1, S, N, D), make_rows(3, 4, 5)),
        ((1, S, N, D), make_rows([3, 4, 5])),
        ((S, N, D), make_rows(3, 4, 5)),
    ]:
        new_call = call(x=np.ones(shape, np.float32), rows=make())
        PATHS[path](new_call)
        assert np.all(new_call.tensors["cache"][3:6] != SENTINEL)


@pytest.mark.parametrize("path", PATHS)
def test_a_call_without_tokens_accepts_an_empty_cache(path):
    no_tokens = {"x": np.ones((0, N, D), np.float32), "positions": np.arange(0), "rows": np.arange(0)}
    for cache_rows in (0, R):
        new_call = call(**no_tokens, cache=sentinels((cache_rows, N, D)))
        PATHS[path](new_call)
        assert np.all(new_call.tensors["cache"] == SENTINEL)


@pytest.mark.parametrize("path", PATHS)
def test_a_cache_in_the_gaps_of_its_tokens_is_no_overlap(path):
    """Keys from one half of each row of a buffer go to the other half."""
    buffer = np.full((6, 2, N, D), SENTINEL, np.float32)
    buffer[:, 0] = 1
    tokens, cache = buffer[:, 0], buffer[:, 1]
    PATHS[path](
        call(x=tokens, positions=np.zeros(6, np.int32), rows=np.array([3, -1, 1, 0, 5, 4]), cache=cache)
    )
    assert np.flatnonzero(cache[:, 0, 0] == 1).tolist() == [0, 1, 3, 4, 5]
    assert np.all(tokens == 1)


# ---- errors that only C can raise ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "positions", "rows", "params", "cache"])
def test_null_arguments_are_named(name):
    new_call = call()
    status, message = c_status(SET_ROWS, {**c_arguments(new_call), name: None})
    kind = "struct" if name == "params" else "tensor"
    assert (status, message) == (1, f"[rope_set_rows] {name} must be a {kind} but got NULL.")
    assert np.all(new_call.tensors["cache"] == SENTINEL)


@pytest.mark.parametrize("name", ["x", "rows", "cache"])
def test_null_data_is_refused(name):
    new_call = call()
    dtype, shape = ("int64", (B, S)) if name == "rows" else ("float32", X if name == "x" else CACHE)
    no_data = c_tensor(0, dtype, shape, (1,) * len(shape))
    status, message = c_status(SET_ROWS, {**c_arguments(new_call), name: no_data})
    assert (status, message) == (1, f"[rope_set_rows] {name} must have data but got NULL.")


# ---- errors that only Python can raise -------------------------------------------------------------


def arguments_of(framework):
    arrays = np.ones(X, np.float32), np.arange(S), np.array(ROWS), sentinels(CACHE)
    return arrays if framework == "numpy" else tuple(map(to_torch, arrays))


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
@pytest.mark.parametrize("index", [1, 2, 3])
def test_arrays_in_a_call_with_a_tensor_are_refused(index, backend_name):
    arguments = list(arguments_of("torch"))
    arguments[index] = arguments[index].numpy()
    name = ["x", "positions", "rows", "cache"][index]
    text = rf"^\[rope_set_rows\] {name} must be a torch tensor like x but got ndarray\.$"
    with pytest.raises(TypeError, match=text):
        rope_set_rows(*arguments, RopeParams(8), backend=backend_name)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
@pytest.mark.parametrize("name", ["rows", "cache"])
def test_rows_and_cache_are_required(name, backend_name, framework):
    x, positions, rows, cache = arguments_of(framework)
    rows, cache = (None, cache) if name == "rows" else (rows, None)
    kind = (
        "a torch tensor like x"
        if framework == "torch"
        else "an array"
        if name == "rows"
        else "a NumPy array like x"
    )
    with pytest.raises(TypeError) as caught:
        rope_set_rows(x, positions, rows, cache, RopeParams(8), backend=backend_name)
    assert str(caught.value) == f"[rope_set_rows] {name} must be {kind} but got NoneType."


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_a_tensor_as_the_cache_of_an_array_is_refused(backend_name):
    x, positions, rows, cache = arguments_of("numpy")
    with pytest.raises(
        TypeError, match=r"^\[rope_set_rows\] cache must be a NumPy array like x but got Tensor\.$"
    ):
        rope_set_rows(x, positions, rows, to_torch(cache), RopeParams(8), backend=backend_name)


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_a_cache_of_the_other_byte_order_is_refused(backend_name):
    x, positions, rows, cache = arguments_of("numpy")
    cache = cache.astype(cache.dtype.newbyteorder())
    with pytest.raises(
        TypeError, match=r"^\[rope_set_rows\] cache must be in the machine's byte order but got"
    ):
        rope_set_rows(x, positions, rows, cache, RopeParams(8), backend=backend_name)
    assert np.all(cache == SENTINEL)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
def test_params_must_be_rope_params(framework, backend_name):
    with pytest.raises(
        TypeError, match=r"^\[rope_set_rows\] params must be a RopeParams but got NoneType\.$"
    ):
        rope_set_rows(*arguments_of(framework), None, backend=backend_name)


def test_x_must_be_an_array_or_a_tensor():
    _, *rest = arguments_of("numpy")
    text = r"^\[rope_set_rows\] x must be a torch tensor or a NumPy array but got list\.$"
    with pytest.raises(TypeError, match=text):
        rope_set_rows([[[1.0, 2.0]]], *rest, RopeParams(2))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_unknown_and_absent_backends_are_named(framework, monkeypatch):
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    text = r"^\[rope_set_rows\] backend must be one of reference, cpu, sim.* got 'cuda'\.$"
    with pytest.raises(ValueError, match=text):
        rope_set_rows(*arguments_of(framework), RopeParams(8), backend="cuda")
    with pytest.raises(BackendUnavailable, match=r"^\[npu\] backend must be available but "):
        rope_set_rows(*arguments_of(framework), RopeParams(8), backend="npu")


# ---- the device's own errors -----------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_a_call_that_the_device_cannot_run_is_refused_and_nothing_is_written(device, framework):
    convert = to_torch if framework == "torch" else lambda a: a
    reach = "positions must be between -4194303 and 4194303 on the device but got 4194304."
    floats = "float32 or float16" if "310p" in device else "float32, float16 or bfloat16"
    refusals = [
        (
            np.float64,
            np.arange(S),
            "exact",
            TypeError,
            f"x must be {floats} on {chip_of(device)} but got float64.",
        ),
        (np.float32, np.int64([0, 2**22, 1]), "exact", ValueError, reach),
        (np.float32, np.arange(S), "f32", ValueError, "angle must be exact (0) on an NPU but got f32."),
    ]
    for dtype, positions, angle, kind, text in refusals:
        cache = sentinels(CACHE, dtype)
        arrays = np.ones(X, dtype), positions, np.array(ROWS), cache
        with pytest.raises(kind) as caught:
            rope_set_rows(*map(convert, arrays), RopeParams(8), backend=device, angle=angle)
        assert str(caught.value) == f"[rope_set_rows] {text}"
        assert np.all(cache == SENTINEL)


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_a_negating_view_is_refused_as_cache(device):
    x, positions, rows, cache = arguments_of("torch")
    text = r"^\[rope_set_rows\] cache must hold its own values but got a view that negates them\.$"
    with pytest.raises(ValueError, match=text):
        rope_set_rows(x, positions, rows, torch._neg_view(cache), RopeParams(8), backend=device)
    assert torch.all(cache == SENTINEL)
