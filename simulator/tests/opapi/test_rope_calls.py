"""Rotary position embedding of libopapi's stand-ins against float64, with bounds from their roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operands import NULL, TYPES, assert_refused, strided

torch = pytest.importorskip("torch")

TILING = 561002
FLOATS = ["float16", "float32", "bfloat16"]
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}  # largest relative error of a rounding
LEAST = 2.0**-24  # smallest float16; the other types have smaller numbers


def uniform(name: str, shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(TYPES[name])


def changed(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**given, **changes}


def crossed(x: Any, pairing: str) -> Any:
    """rotate(x): the other element of each pair, the first one negated."""
    if pairing == "half":
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([-second, first], axis=-1)
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


def wide(*arrays: Any) -> Any:
    return tuple(array.astype(np.float64) for array in arrays)


def assert_rotated(got: Any, x: Any, cos: Any, sin: Any, pairing: str, in_type: bool = False) -> None:
    """Allow one rounding to the type, and three of float32, or of the type, relative to both products."""
    x, cos, sin = wide(x, cos, sin)
    expected = x * cos + crossed(x, pairing) * sin
    size = np.abs(x * cos) + np.abs(crossed(x, pairing) * sin)
    name = got.dtype.name
    allowed = UNIT[name] * np.abs(expected) + 3 * UNIT[name if in_type else "float32"] * size + 3 * LEAST
    error = np.abs(got.astype(np.float64) - expected)
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


# ---- RotaryPositionEmbedding ----------------------------------------------------------------------------

HALF_SHAPES = [  # x, cos: BSND, BNSD and SBND with the documented tables
    ((2, 5, 3, 64), (1, 5, 1, 64)), ((2, 5, 3, 64), (2, 5, 1, 64)), ((2, 5, 3, 64), (2, 5, 3, 64)),
    ((2, 3, 70, 32), (1, 1, 70, 32)), ((2, 3, 70, 30), (2, 1, 70, 30)), ((5, 2, 3, 8), (5, 1, 1, 8)),
    ((1, 1, 4, 894), (1, 1, 1, 894)), ((1, 512, 1, 2), (1, 512, 1, 2)),
]  # fmt: skip
INTERLEAVE_SHAPES = [
    ((2, 5, 3, 64), (1, 5, 1, 64)), ((2, 3, 5, 32), (1, 1, 5, 32)), ((5, 2, 3, 10), (5, 1, 1, 10)),
]  # fmt: skip


def rotary_call(name: str, shape: Any, table: Any, mode: int) -> dict[str, Any]:
    return {
        "x": uniform(name, shape), "cos": uniform(name, table, 1), "sin": uniform(name, table, 2),
        "mode": mode, "out": np.ones(shape, TYPES[name]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "shapes"),
    [(0, shapes) for shapes in HALF_SHAPES] + [(1, shapes) for shapes in INTERLEAVE_SHAPES],
)
@pytest.mark.parametrize("name", FLOATS)
def test_rotary_position_embedding_is_the_formula(opapi_910b, name, mode, shapes):
    given = rotary_call(name, *shapes, mode)
    opapi_910b.call("RotaryPositionEmbedding", given)
    assert_rotated(given["out"], given["x"], given["cos"], given["sin"], ("half", "interleave")[mode])


def test_rotary_position_embedding_takes_strided_inputs(opapi_910b):
    given = rotary_call("float16", (2, 5, 3, 16), (1, 5, 1, 16), 0)
    views = changed(given, **{name: strided(given[name]) for name in ("x", "cos", "sin")})
    opapi_910b.call("RotaryPositionEmbedding", views)
    assert_rotated(given["out"], given["x"], given["cos"], given["sin"], "half")


def test_rotary_position_embedding_in_place_and_empty(opapi_910b):
    given = rotary_call("float32", (1, 5, 3, 16), (1, 5, 1, 16), 1)
    before = given["x"].copy()
    given["out"] = given["x"]
    opapi_910b.call("RotaryPositionEmbedding", given)
    assert_rotated(given["x"], before, given["cos"], given["sin"], "interleave")
    opapi_910b.call("RotaryPositionEmbedding", rotary_call("float32", (0, 5, 3, 16), (1, 7, 1, 1), 1))


@pytest.mark.parametrize(
    ("mode", "shape", "table", "message"),
    [
        (2, (2, 5, 3, 64), (1, 5, 1, 64), "mode must be 0 or 1 but got 2"),
        (3, (2, 5, 3, 64), (1, 5, 1, 64), "mode must be 0 or 1 but got 3"),
        (0, (2, 5, 3, 896), (1, 5, 1, 896), "the last dimension of x must be even and less than 896"),
        (0, (2, 5, 3, 7), (1, 5, 1, 7), "the last dimension of x must be even"),
        (0, (2, 5, 3, 64), (1, 5, 1, 32), "cos must have a documented shape"),
        (0, (2, 5, 3, 64), (1, 1, 1, 64), "cos must have a documented shape"),
        (0, (2, 5, 3, 64), (1, 5, 3, 64), "cos must have a documented shape"),
        (1, (2, 5, 3, 64), (2, 5, 1, 64), "cos must have a documented shape"),
        (0, (1000, 2, 3, 8), (1, 2, 1, 8), "cos must have a documented shape"),
        (1, (100, 2, 10, 8), (1, 2, 1, 8), "cos must have a documented shape"),
        (0, (2, 9, 2, 32), (1, 1, 2, 32), "x must have a smaller batch . heads"),
        (0, (2, 2, 3, 30), (1, 1, 3, 30), "x must have a smaller batch . heads"),
    ],
)
def test_rotary_position_embedding_refuses_shapes(opapi_910b, mode, shape, table, message):
    given = rotary_call("float32", shape, table, mode)
    assert_refused(opapi_910b, "RotaryPositionEmbedding", given, message, TILING)


def test_rotary_position_embedding_refusals(opapi):
    given = rotary_call("float16", (2, 5, 3, 64), (1, 5, 1, 64), 0)
    if opapi.is_310p:
        assert_refused(opapi, "RotaryPositionEmbedding", given, "the chip must be", NULL)
        gradient = grad_call("float16", (2, 5, 3, 64), (1, 5, 1, 64), 0)
        assert_refused(opapi, "RotaryPositionEmbeddingGrad", gradient, "the chip must be", NULL)
        return
    for name in ("x", "cos", "sin", "out"):
        null = changed(given, **{name: None})
        assert_refused(opapi, "RotaryPositionEmbedding", null, f"{name} must not be null", NULL)
        wrong = changed(given, **{name: given[name].astype(np.float64)})
        assert_refused(opapi, "RotaryPositionEmbedding", wrong, f"{name} must be")
    for name in ("cos", "sin", "out"):
        wrong = changed(given, **{name: given[name].astype(np.float32)})
        assert_refused(opapi, "RotaryPositionEmbedding", wrong, f"{name} must be float16")
    view = changed(given, out=strided(given["out"]))
    assert_refused(opapi, "RotaryPositionEmbedding", view, "out must be contiguous")
    for name in ("x", "cos", "sin"):
        for other in (given[name][0].copy(), given[name].reshape((1,) * 5 + given[name].shape)):
            wrong = changed(given, **{name: other})
            assert_refused(opapi, "RotaryPositionEmbedding", wrong, f"{name} must have 4 dimensions", TILING)


# ---- RotaryPositionEmbeddingGrad ------------------------------------------------------------------------


def grad_call(name: str, shape: Any, table: Any, mode: int, has_x: bool = True) -> dict[str, Any]:
    return {
        "dy": uniform(name, shape), "cos": uniform(name, table, 1), "sin": uniform(name, table, 2),
        "x": uniform(name, shape, 3) if has_x else None, "mode": mode,
        "dx_out": np.ones(shape, TYPES[name]), "dcos_out": np.ones(table, TYPES[name]),
        "dsin_out": np.ones(table, TYPES[name]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "shapes"),
    [(0, shapes) for shapes in HALF_SHAPES] + [(1, shapes) for shapes in INTERLEAVE_SHAPES],
)
@pytest.mark.parametrize("name", FLOATS)
def test_rotary_position_embedding_grad_is_the_gradient(opapi_910b, name, mode, shapes):
    shape, table = shapes
    pairing = ("half", "interleave")[mode]
    given = grad_call(name, shape, table, mode)
    opapi_910b.call("RotaryPositionEmbeddingGrad", given)
    dy, cos, sin, x = wide(*(given[k] for k in ("dy", "cos", "sin", "x")))
    tensors = [torch.tensor(array, requires_grad=True) for array in (x, cos, sin)]
    rotated = tensors[0] * tensors[1] + torch_crossed(tensors[0], pairing) * tensors[2]
    rotated.backward(torch.tensor(dy))
    axes = tuple(i for i in range(4) if table[i] == 1 and shape[i] != 1)
    terms = int(np.prod([shape[i] for i in axes])) if axes else 1
    sizes = [
        np.abs(dy * cos) + np.abs(crossed(dy * sin, pairing)),
        np.abs(dy * x).sum(axes, keepdims=True),
        np.abs(dy * crossed(x, pairing)).sum(axes, keepdims=True),
    ]
    for key, tensor, size in zip(("dx_out", "dcos_out", "dsin_out"), tensors, sizes, strict=True):
        expected = tensor.grad.numpy()
        allowed = UNIT[name] * np.abs(expected) + (terms + 3) * UNIT["float32"] * size + LEAST
        assert np.all(np.abs(given[key].astype(np.float64) - expected) <= allowed), key


def torch_crossed(x: Any, pairing: str) -> Any:
    if pairing == "half":
        first, second = x.chunk(2, dim=-1)
        return torch.cat([-second, first], dim=-1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape(x.shape)


def test_rotary_position_embedding_grad_without_x_writes_dx_alone(opapi_910b):
    given = grad_call("float32", (2, 5, 3, 16), (1, 5, 1, 16), 0, has_x=False)
    opapi_910b.call("RotaryPositionEmbeddingGrad", given)
    dy, cos, sin = given["dy"], given["cos"], given["sin"]
    swapped = np.concatenate([-np.split(sin, 2, -1)[1], -np.split(sin, 2, -1)[0]], -1)
    assert_rotated(given["dx_out"], dy, cos, swapped, "half")
    assert np.all(given["dcos_out"] == 1)
    assert np.all(given["dsin_out"] == 1)


def test_rotary_position_embedding_grad_refusals(opapi_910b):
    function = "RotaryPositionEmbeddingGrad"
    given = grad_call("float16", (2, 5, 3, 64), (1, 5, 1, 64), 0)
    for name in ("dy", "cos", "sin", "dx_out", "dcos_out", "dsin_out"):
        assert_refused(opapi_910b, function, changed(given, **{name: None}), f"{name} must not be null", NULL)
        wrong = changed(given, **{name: given[name].astype(np.float64)})
        assert_refused(opapi_910b, function, wrong, f"{name} must be")
    for name in ("dx_out", "dcos_out", "dsin_out"):
        view = changed(given, **{name: strided(given[name])})
        assert_refused(opapi_910b, function, view, f"{name} must be contiguous")
    for shape, table, has_x, message in [
        ((2, 600, 3, 8), (2, 600, 1, 8), True, ""),
        ((3, 2, 600, 8), (3, 2, 1, 8), True, "be at most 1024"),
        ((3, 2, 600, 8), (3, 2, 1, 8), False, ""),
        ((70, 3, 70, 8), (70, 1, 70, 8), True, "a shape that the tiling knows"),
    ]:
        call = grad_call("float32", shape, table, 0, has_x)
        if message:
            assert_refused(opapi_910b, function, call, message, TILING)
        else:
            opapi_910b.call(function, call)
    for name in ("dy", "cos"):
        for other in (given[name][0].copy(), given[name].reshape((1,) * 5 + given[name].shape)):
            wrong = changed(given, **{name: other})
            assert_refused(opapi_910b, function, wrong, f"{name} must have 4 dimensions", TILING)
    empty = grad_call("float16", (0, 5, 3, 64), (1, 5, 1, 64), 0)
    assert_refused(opapi_910b, function, empty, "dy must have elements", TILING)
    # The tiling does not run if all outputs are empty.
    opapi_910b.call(function, grad_call("float16", (2, 0, 3, 64), (1, 0, 1, 64), 0))


# ---- ApplyRotaryPosEmb ----------------------------------------------------------------------------------


def apply_call(
    name: str, heads: tuple[int, int] = (4, 2), tokens: tuple[int, int] = (2, 5)
) -> dict[str, Any]:
    return {
        "query": uniform(name, (*tokens, heads[0], 128)),
        "key": uniform(name, (*tokens, heads[1], 128), 1),
        "cos": uniform(name, (*tokens, 1, 128), 2), "sin": uniform(name, (*tokens, 1, 128), 3),
        "layout": 1, "rotary_mode": b"half",
    }  # fmt: skip


@pytest.mark.parametrize("function", ["ApplyRotaryPosEmb", "ApplyRotaryPosEmbV2"])
@pytest.mark.parametrize("name", FLOATS)
def test_apply_rotary_pos_emb_rotates_in_place(opapi_910b, function, name):
    given = apply_call(name)
    before = {key: given[key].copy() for key in ("query", "key")}
    opapi_910b.call(function, given)
    for key, x in before.items():  # float16 is computed in float16
        assert_rotated(given[key], x, given["cos"], given["sin"], "half", in_type=name == "float16")


def test_apply_rotary_pos_emb_takes_strided_tensors(opapi_910b):
    packed, views = apply_call("bfloat16"), apply_call("bfloat16")
    for key in ("query", "key", "cos"):
        views[key] = strided(views[key])
    opapi_910b.call("ApplyRotaryPosEmb", packed)
    opapi_910b.call("ApplyRotaryPosEmb", views)
    assert np.array_equal(views["query"].view(np.uint16), packed["query"].view(np.uint16))
    assert np.array_equal(views["key"].view(np.uint16), packed["key"].view(np.uint16))


def test_apply_rotary_pos_emb_refusals(opapi_910b):
    function = "ApplyRotaryPosEmbV2"
    given = apply_call("float16")
    for name in ("query", "key", "cos", "sin"):
        assert_refused(opapi_910b, function, changed(given, **{name: None}), f"{name} must not be null", NULL)
        wrong = changed(given, **{name: given[name].astype(np.float64)})
        assert_refused(opapi_910b, function, wrong, f"{name} must be")
    refused = [
        ({"rotary_mode": b"interleave"}, "rotary_mode must be half but got interleave"),
        ({"key": uniform("float32", (2, 5, 2, 128))}, "key must be float16"),
    ]
    for changes, message in refused:
        assert_refused(opapi_910b, function, changed(given, **changes), message)
    refused = [
        ({"layout": 3}, r"layout must be 1 \(BSND\) but got 3"),
        *(
            ({name: given[name][0]}, f"{name} must have 4 dimensions but got 3")
            for name in ("query", "key", "cos", "sin")
        ),
        ({"cos": uniform("float16", (1, 5, 1, 128))}, r"cos must have the shape \[2,5,1,128\]"),
        ({"sin": uniform("float16", (2, 5, 1, 64))}, r"sin must have the shape \[2,5,1,128\]"),
        ({"key": uniform("float16", (2, 4, 2, 128))}, r"key must have the shape \[2,5,2,128\]"),
        (
            {"query": uniform("float16", (2, 5, 4, 64))},
            "the last dimension of query must be 128 but got 64",
        ),
        ({"query": uniform("float16", (2, 5, 0, 128))}, "query must have elements"),
    ]
    for changes, message in refused:
        assert_refused(opapi_910b, function, changed(given, **changes), message, TILING)
    for name, most in (("float16", 152), ("float32", 76), ("bfloat16", 76)):
        opapi_910b.call(function, apply_call(name, (most - 1, 1), (1, 1)))
        assert_refused(opapi_910b, function, apply_call(name, (most, 1), (1, 1)), "196608 bytes", TILING)


# ---- InterleaveRope -------------------------------------------------------------------------------------


def interleave_call(name: str, shape: Any, table_tokens: int) -> dict[str, Any]:
    table = (shape[0], 1, table_tokens, 64)
    return {
        "x": uniform(name, shape), "cos": uniform(name, table, 1), "sin": uniform(name, table, 2),
        "out": np.ones(shape, TYPES[name]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("table_tokens", [1, 7])
def test_interleave_rope_reorders_and_rotates(opapi_910b, name, table_tokens):
    given = interleave_call(name, (2, 3, 7, 64), table_tokens)
    opapi_910b.call("InterleaveRope", given)
    x = np.concatenate([given["x"][..., ::2], given["x"][..., 1::2]], axis=-1)
    assert_rotated(given["out"], x, given["cos"], given["sin"], "half")


def test_interleave_rope_refusals(opapi):
    given = interleave_call("float16", (2, 3, 7, 64), 7)
    if opapi.is_310p:
        assert_refused(opapi, "InterleaveRope", given, "the chip must be", NULL)
        return
    for name in ("x", "cos", "sin", "out"):
        assert_refused(
            opapi, "InterleaveRope", changed(given, **{name: None}), f"{name} must not be null", NULL
        )
        view = changed(given, **{name: strided(given[name])})
        assert_refused(opapi, "InterleaveRope", view, f"{name} must be contiguous")
        wrong = changed(given, **{name: given[name].astype(np.float32)})
        assert_refused(opapi, "InterleaveRope", wrong, f"{name} must be")
    refused = [
        ({"x": uniform("float16", (2, 3, 7, 32))}, "the last dimension of x must be 64 but got 32"),
        ({"cos": uniform("float16", (1, 1, 7, 64))}, r"cos must have the shape \[2,1,7,64\]"),
        ({"cos": uniform("float16", (2, 3, 7, 64))}, r"cos must have the shape \[2,1,7,64\]"),
        ({"sin": uniform("float16", (2, 1, 1, 64))}, r"sin must have the shape \[2,1,7,64\]"),
        ({"out": uniform("float16", (2, 3, 7, 1))}, r"out must have the shape \[2,3,7,64\]"),
        ({"x": uniform("float16", (2, 7, 64))}, "x must have 4 dimensions"),
    ]
    for changes, message in refused:
        assert_refused(opapi, "InterleaveRope", changed(given, **changes), message, TILING)
