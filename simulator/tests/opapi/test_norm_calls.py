"""Norms of libopapi's stand-ins against float64, with bounds from their roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operands import (
    INVALID,
    NULL,
    TYPES,
    UNLISTED_CHIP,
    assert_beyond_document,
    assert_refused,
    prepared,
    reasons_beyond_document,
    strided,
)

torch = pytest.importorskip("torch")

TILING = 561002
EPSILON = 1e-6
FLOATS = ["float16", "float32", "bfloat16"]
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}  # largest relative error of a rounding
LEAST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}  # smallest number


def uniform(name: str, shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-4, 4, shape).astype(TYPES[name])


def types_of(device: Any) -> list[str]:
    return FLOATS[:2] if device.is_310p else FLOATS


def assert_near(got: Any, expected: Any, columns: int, roundings: int = 1, scale: Any = None) -> None:
    """Allow `roundings` to the type of `got`, and the float32 error of a norm, relative to `scale`.

    A sum of n squares in 64 lanes has n / 64 + 7 roundings of positive numbers; 9 more are in the mean, the
    square root, the reciprocal and the products.
    """
    assert got.shape == expected.shape
    name = got.dtype.name
    size = np.abs(expected) if scale is None else scale
    allowed = roundings * (UNIT[name] * size + LEAST[name]) + (columns / 64 + 16) * UNIT["float32"] * size
    error = np.abs(got.astype(np.float64) - expected)
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


def rms(x: Any, rank: int, epsilon: float = EPSILON) -> Any:
    axes = tuple(range(x.ndim - rank, x.ndim))
    return 1 / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=axes, keepdims=True) + epsilon)


def rms_call(name: str, shape: Any, rank: int = 1, gamma_name: str | None = None) -> dict[str, Any]:
    kept = (*shape[: len(shape) - rank], *[1] * rank)
    return {
        "x": uniform(name, shape),
        "gamma": uniform(gamma_name or name, shape[len(shape) - rank :], 1),
        "epsilon": EPSILON,
        "y_out": np.ones(shape, TYPES[name]),
        "rstd_out": np.ones(kept, np.float32),
    }


def added_call(name: str, shape: Any, rank: int = 1) -> dict[str, Any]:
    given = rms_call(name, shape, rank)
    given["x1"] = given.pop("x")
    return {**given, "x2": uniform(name, shape, 2), "x_out": np.ones(shape, TYPES[name])}


def changed(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**given, **changes}


# ---- RmsNorm and GemmaRmsNorm ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "rank"), [((3, 4096), 1), ((2, 3, 5, 16), 2), ((7, 33), 1), ((40,), 1), ((0, 64), 1)]
)
def test_rms_norm_is_the_formula_in_float32_rounded_once(opapi, shape, rank):
    for name in types_of(opapi):
        given = rms_call(name, shape, rank)
        opapi.call("RmsNorm", given)
        x, gamma = given["x"].astype(np.float64), given["gamma"].astype(np.float64)
        assert_near(given["y_out"], x * rms(x, rank) * gamma, gamma.size)
        assert_near(given["rstd_out"], rms(x, rank), gamma.size)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rms_norm_takes_a_float32_gamma_beside_16_bits(opapi_910b, name):
    given = rms_call(name, (5, 70), gamma_name="float32")
    opapi_910b.call("RmsNorm", given)
    x = given["x"].astype(np.float64)
    assert_near(given["y_out"], x * rms(x, 1) * given["gamma"], 70)


def test_rms_norm_takes_an_rstd_of_fewer_dimensions(opapi):
    """The tiling accepts it. The document of RmsNorm requires the dimensions of x."""
    given = rms_call("float32", (3, 4, 48))
    given["rstd_out"] = np.ones((3, 4), np.float32)
    reason = "its document requires as many dimensions as x has for rstd_out"
    assert reasons_beyond_document(opapi, "RmsNorm", given) == [reason]
    if not opapi.is_310p:
        assert reasons_beyond_document(opapi, "GemmaRmsNorm", given) == []
    opapi.call("RmsNorm", given)
    assert_near(given["rstd_out"], rms(given["x"], 1)[..., 0], 48)


def test_rms_norm_takes_strided_inputs(opapi):
    given = rms_call("float32", (3, 4, 48))
    packed = changed(given)
    opapi.call("RmsNorm", packed)
    views = changed(given, x=strided(given["x"]), gamma=strided(given["gamma"]))
    views |= {name: np.zeros_like(given[name]) for name in ("y_out", "rstd_out")}
    opapi.call("RmsNorm", views)
    assert np.array_equal(views["y_out"], packed["y_out"])
    assert np.array_equal(views["rstd_out"], packed["rstd_out"])


def test_rms_norm_in_place(opapi):
    given = rms_call("float32", (3, 64))
    x = given["x"].astype(np.float64)
    given["y_out"] = given["x"]
    opapi.call("RmsNorm", given)
    assert_near(given["y_out"], x * rms(x, 1) * given["gamma"], 64)


def test_gemma_rms_norm_adds_one_to_gamma(opapi_910b):
    for name in FLOATS:
        given = rms_call(name, (4, 96))
        given["rstd_out"] = np.ones(4, np.float32)
        opapi_910b.call("GemmaRmsNorm", given)
        x, factor = given["x"].astype(np.float64), 1 + given["gamma"].astype(np.float64)
        assert_near(given["y_out"], x * rms(x, 1) * factor, 96)
        assert_near(given["rstd_out"], rms(x, 1)[:, 0], 96)


@pytest.mark.parametrize("function", ["RmsNorm", "GemmaRmsNorm"])
def test_rms_norm_refusals(opapi_910b, function):
    given = rms_call("float16", (2, 3, 32))
    for name in ("x", "gamma", "y_out", "rstd_out"):
        assert_refused(opapi_910b, function, changed(given, **{name: None}), f"{name} must not be null", NULL)
        wrong = given[name].astype(np.float64)
        assert_refused(opapi_910b, function, changed(given, **{name: wrong}), f"{name} must be")
    refused = [
        ({"gamma": uniform("float16", 16)}, r"gamma must have the last dimensions of x, \[2,3,32\]"),
        ({"gamma": np.zeros((2, 2, 3, 32), np.float16)}, "gamma must have the last dimensions"),
        ({"gamma": np.ones((), np.float16)}, "gamma must have 1 to 8 dimensions"),
        ({"y_out": np.zeros((2, 3, 31), np.float16)}, r"y_out must have the shape \[2,3,32\]"),
        (
            {"rstd_out": np.zeros((2, 3, 32), np.float32)},
            r"rstd_out must have 6 elements, and in each axis 1 or the size of x but got",
        ),
        ({"epsilon": -1.0}, r"epsilon must be at least 0 but got -1\.$"),
    ]
    nine = (1,) * 6 + (2, 3, 32)
    refused += [
        ({"x": uniform("float16", nine)}, "x must have 1 to 8 dimensions but got 9"),
        ({"x": uniform("float16", (1,) * 16 + nine)}, "x must have 1 to 8 dimensions but got 25"),
        ({"gamma": uniform("float16", nine)}, "gamma must have 1 to 8 dimensions but got 9"),
        ({"y_out": uniform("float16", nine)}, r"y_out must have the shape \[2,3,32\]"),
        ({"rstd_out": np.zeros((1,) * 9, np.float32)}, "rstd_out must have 6 elements"),
    ]
    for changes, message in refused:
        assert_refused(opapi_910b, function, changed(given, **changes), message, TILING)
    many = changed(given, x=uniform("float16", (1,) * 17 + nine))
    assert_refused(opapi_910b, function, many, "x must have 0 to 25 dimensions but got 26")
    for name in ("y_out", "rstd_out"):
        view = changed(given, **{name: strided(given[name])})
        assert_refused(opapi_910b, function, view, f"{name} must be contiguous but got the strides")
    bf16_gamma = changed(given, gamma=uniform("bfloat16", 32))
    assert_refused(opapi_910b, function, bf16_gamma, "gamma must be float16")
    empty = rms_call("float16", (2, 0))
    assert_refused(opapi_910b, function, empty, "gamma must have elements", TILING)
    if function == "GemmaRmsNorm":
        mixed = rms_call("float16", (2, 32), gamma_name="float32")
        assert_refused(opapi_910b, function, mixed, "gamma must be float16 but got float32")


def test_norms_ask_for_the_workspace_of_their_tilings(opapi):
    given = rms_call("float16", (2, 32))
    for function in ("RmsNorm",) if opapi.is_310p else ("RmsNorm", "GemmaRmsNorm"):
        assert prepared(opapi, function, given)[0] == (16 << 20) + 512
    group = group_call("float16", (2, 6, 5), 3, True)
    assert (
        prepared(opapi, "GroupNorm", group)[0] == (2 << 20 if opapi.is_310p else 16 << 20) + 512
    )  # with CANN's padding


def test_rms_norm_limits_of_ascend310p(opapi):
    if not opapi.is_310p:
        opapi.call("RmsNorm", rms_call("float16", (2, 15)))
        return
    assert_refused(opapi, "RmsNorm", rms_call("float16", (2, 15)), "at least 32 bytes", TILING)
    assert_refused(opapi, "RmsNorm", rms_call("float32", (2, 7)), "at least 32 bytes", TILING)
    mixed = rms_call("float16", (2, 32), gamma_name="float32")
    assert_refused(opapi, "RmsNorm", mixed, "gamma must be float16 but got float32")
    for name in FLOATS:
        assert_refused(opapi, "GemmaRmsNorm", rms_call(name, (2, 32)), "the chip must be", NULL)


# ---- AddRmsNorm and InplaceAddRmsNorm -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "rank"), [("float16", (2, 15), 1), ("float32", (2, 7), 1), ("float32", (4, 1, 7), 2)]
)
def test_add_rms_norm_of_short_rows_on_ascend310p(opapi, name, shape, rank):
    message = r"gamma must have at least 32 bytes on Ascend310P but got (28|30)[.]"
    for function in ("AddRmsNorm", "InplaceAddRmsNorm"):
        given = added_call(name, shape, rank)
        if function == "InplaceAddRmsNorm":
            given = {key: given[key] for key in ("x1", "x2", "gamma", "epsilon", "rstd_out")}
        if opapi.is_310p:
            assert_refused(opapi, function, given, message, TILING)
        else:
            prepared(opapi, function, given)


def assert_added_norm(given: dict[str, Any], y: Any, x: Any, rank: int) -> None:
    """Compare with float64. y has three roundings of 16 bits: those of the sum, of x * rstd and of y."""
    total = given["x1"].astype(np.float64) + given["x2"].astype(np.float64)
    gamma = given["gamma"].astype(np.float64)
    scale = (np.abs(total) + UNIT[x.dtype.name] * np.abs(total)) * rms(total, rank) * np.abs(gamma)
    # A rounded sum also changes the root mean square, by at most its own relative error.
    assert_near(y, total * rms(total, rank) * gamma, gamma.size, roundings=4, scale=scale)
    rounded_sum = given["x1"].astype(np.float32) + given["x2"].astype(np.float32)
    assert np.array_equal(x, rounded_sum.astype(x.dtype))


@pytest.mark.parametrize(("shape", "rank"), [((3, 4096), 1), ((2, 3, 5, 16), 2), ((40,), 1)])
def test_add_rms_norm_is_the_formula_with_the_kernels_roundings(opapi, shape, rank):
    for name in types_of(opapi):
        given = added_call(name, shape, rank)
        opapi.call("AddRmsNorm", given)
        assert_added_norm(given, given["y_out"], given["x_out"], rank)
        rounded = (given["x1"].astype(np.float64) + given["x2"]).astype(np.float64)
        if opapi.is_310p:  # rstd is documented as invalid there
            assert np.all(given["rstd_out"] == 1)
        else:
            assert_near(given["rstd_out"], rms(rounded, rank), given["gamma"].size + 64 * 2**14)


def test_add_rms_norm_of_rows_of_one_element(opapi_910b):
    given = added_call("float32", (3, 1))
    opapi_910b.call("AddRmsNorm", given)
    assert_added_norm(given, given["y_out"], given["x_out"], 1)


@pytest.mark.parametrize("with_x", [True, False])
def test_add_rms_norm_without_rstd_takes_a_row_of_gamma(opapi, with_x):
    for name in types_of(opapi):
        given = added_call(name, (3, 2, 32))
        given.update(rstd_out=None, gamma=given["gamma"][None])
        x_out = given["x_out"]
        if not with_x:
            given["x_out"] = None
        if name == "float32":
            assert_refused(opapi, "AddRmsNorm", given, "x1 must be float16")
            continue
        opapi.call("AddRmsNorm", given)
        if not with_x:
            x_out[...] = given["x1"] + given["x2"]
        assert_added_norm(given, given["y_out"], x_out, 1)
        wrong_gamma = changed(given, gamma=given["gamma"][0].copy())
        assert_refused(opapi, "AddRmsNorm", wrong_gamma, r"gamma must have the shape \[1,32\]")


def test_add_rms_norm_with_an_empty_tensor_does_nothing(opapi):
    opapi.call("AddRmsNorm", added_call("float16", (0, 32)))
    given = added_call("float16", (3, 0))
    opapi.call("AddRmsNorm", given)
    assert np.all(given["rstd_out"] == 1)


def test_add_rms_norm_refusals(opapi):
    given = added_call("float16", (2, 3, 32))
    for name in ("x1", "x2", "gamma", "y_out"):
        assert_refused(opapi, "AddRmsNorm", changed(given, **{name: None}), f"{name} must not be null", NULL)
    assert_refused(opapi, "AddRmsNorm", changed(given, x_out=None), "x_out must not be null", NULL)
    for name in ("x2", "gamma", "y_out", "x_out"):
        wrong = given[name].astype(np.float32)
        assert_refused(opapi, "AddRmsNorm", changed(given, **{name: wrong}), f"{name} must be float16")
    refused = [
        ({"x2": np.zeros((2, 3, 1), np.float16)}, r"x2 must have the shape \[2,3,32\]"),
        ({"gamma": np.zeros(3, np.float16)}, "gamma must have the last dimensions of x1"),
        (
            {"rstd_out": np.zeros((2, 3), np.float32)},
            r"rstd_out must have the shape \[2,3,1\]",
        ),
        ({"x_out": np.zeros((2, 3), np.float16)}, r"x_out must have the shape \[2,3,32\]"),
        ({"epsilon": -1e-7}, r"epsilon must be at least 0 but got -1e-07\.$"),
    ]
    for changes, message in refused:
        assert_refused(opapi, "AddRmsNorm", changed(given, **changes), message)


def test_inplace_add_rms_norm_overwrites_both_inputs(opapi):
    for name in types_of(opapi):
        before = added_call(name, (2, 5, 48))
        del before["x_out"], before["y_out"]
        given = {
            key: value.copy() if isinstance(value, np.ndarray) else value for key, value in before.items()
        }
        opapi.call("InplaceAddRmsNorm", given)
        assert_added_norm(before, given["x1"], given["x2"], 1)


def test_inplace_add_rms_norm_refusals(opapi):
    given = added_call("float16", (2, 3, 32))
    for name in ("x1", "x2", "gamma", "rstd_out"):
        assert_refused(opapi, "InplaceAddRmsNorm", changed(given, **{name: None}), "must not be null", NULL)
        view = strided(given[name])
        assert_refused(
            opapi, "InplaceAddRmsNorm", changed(given, **{name: view}), f"{name} must be contiguous"
        )
    wrong = changed(given, x2=np.zeros((2, 3, 16), np.float16))
    assert_refused(opapi, "InplaceAddRmsNorm", wrong, r"x2 must have the shape \[2,3,32\]", TILING)
    empty = added_call("float16", (0, 32))
    assert_refused(opapi, "InplaceAddRmsNorm", empty, "x1 must have elements", TILING)


# ---- RmsNormGrad ----------------------------------------------------------------------------------------


def grad_call(name: str, shape: Any, rank: int = 1, gamma_name: str | None = None) -> dict[str, Any]:
    given = rms_call(name, shape, rank, gamma_name)
    return {
        "dy": uniform(name, shape, 3),
        "x": given["x"],
        "rstd": rms(given["x"], rank).astype(np.float32),
        "gamma": given["gamma"],
        "dx_out": np.ones(shape, TYPES[name]),
        "dgamma_out": np.ones(given["gamma"].shape, np.float32),
    }


def assert_gradients(given: dict[str, Any], rank: int) -> None:
    """Compare with torch's gradients in float64. Scales are the sums of the terms' absolute values."""
    x, gamma = (torch.tensor(given[name].astype(np.float64), requires_grad=True) for name in ("x", "gamma"))
    dy = given["dy"].astype(np.float64)
    axes = tuple(range(-rank, 0))
    y = x * (x.square().mean(axes, keepdim=True) + EPSILON).rsqrt() * gamma
    y.backward(torch.tensor(dy))
    normalized = np.abs(given["x"].astype(np.float64)) * rms(given["x"], rank)
    weighted = np.abs(dy * given["gamma"].astype(np.float64))
    mean = (weighted * normalized).mean(axes, keepdims=True)
    scale = (weighted + normalized * mean) * rms(given["x"], rank)
    columns = given["gamma"].size
    assert_near(given["dx_out"], x.grad.numpy(), columns, scale=scale)
    rows = dy.size // columns
    sums = (np.abs(dy) * normalized).reshape(rows, -1).sum(0).reshape(gamma.shape)
    assert_near(given["dgamma_out"], gamma.grad.numpy(), 64 * rows, scale=sums)


@pytest.mark.parametrize(("shape", "rank"), [((6, 256), 1), ((2, 3, 5, 16), 2)])
def test_rms_norm_grad_is_the_gradient(opapi, shape, rank):
    for name in types_of(opapi):
        given = grad_call(name, shape, rank)
        opapi.call("RmsNormGrad", given)
        assert_gradients(given, rank)
    if not opapi.is_310p:
        mixed = grad_call("bfloat16", shape, rank, "float32")
        mixed["rstd"] = mixed["rstd"].reshape(shape[: len(shape) - rank])
        opapi.call("RmsNormGrad", mixed)
        assert_gradients(mixed, rank)


def test_rms_norm_grad_refusals(opapi):
    given = grad_call("float16", (3, 4, 32))
    for name in ("dy", "x", "rstd", "gamma", "dx_out", "dgamma_out"):
        assert_refused(opapi, "RmsNormGrad", changed(given, **{name: None}), f"{name} must not be null", NULL)
    wrong = changed(given, dgamma_out=given["gamma"])
    assert_refused(opapi, "RmsNormGrad", wrong, "dgamma_out must be float32")
    refused = [
        ({"rstd": np.ones((3, 1, 1), np.float32)}, r"rstd must have the shape \[3,4\]"),
        ({"dy": np.zeros((3, 4, 16), np.float16)}, r"x must have the shape \[3,4,16\]"),
        ({"gamma": np.zeros(16, np.float16)}, "gamma must have the last dimensions of x"),
        ({"dgamma_out": np.zeros(16, np.float32)}, r"dgamma_out must have the shape \[32\]"),
    ]
    for changes, message in refused:
        assert_refused(opapi, "RmsNormGrad", changed(given, **changes), message, TILING)
    assert_refused(opapi, "RmsNormGrad", grad_call("float16", (32,)), "x must have 2 to 8 dimensions", TILING)
    assert_refused(opapi, "RmsNormGrad", grad_call("float16", (0, 32)), "dy must have elements", TILING)
    # The tiling does not run if all outputs are empty.
    names = ("dy", "x", "gamma", "dx_out", "dgamma_out")
    opapi.call("RmsNormGrad", changed(given, **{name: given[name][..., :0].copy() for name in names}))
    nine = (1,) * 6 + (3, 4, 32)
    assert_refused(opapi, "RmsNormGrad", grad_call("float16", nine), "x must have 2 to 8 dimensions", TILING)
    for name, at in (("rstd", (1,) * 9), ("gamma", (1,) * 8 + (32,))):
        wrong = changed(given, **{name: np.ones(at, given[name].dtype)})
        assert_refused(opapi, "RmsNormGrad", wrong, f"{name} must have 1 to 7 dimensions but got 9", TILING)
    if opapi.is_310p:
        assert_refused(opapi, "RmsNormGrad", grad_call("float16", (2, 15)), "at least 32 bytes", TILING)


# ---- LayerNorm and GroupNorm ----------------------------------------------------------------------------


def layer_call(name: str, shape: Any, rank: int, affine: str | None, moments: str | None) -> dict[str, Any]:
    normalized = shape[len(shape) - rank :]
    kept = (*shape[: len(shape) - rank], *[1] * rank)
    return {
        "input": uniform(name, shape),
        "normalized_shape": list(normalized),
        "weight": None if affine is None else uniform(affine, normalized, 1),
        "bias": None if affine is None else uniform(affine, normalized, 2),
        "eps": 1e-5,
        "out": np.ones(shape, TYPES[name]),
        "mean_out": None if moments is None else np.ones(kept, TYPES[moments]),
        "rstd_out": None if moments is None else np.ones(kept, TYPES[moments]),
    }


def assert_normalized(out: Any, x: Any, weight: Any, bias: Any, mean: Any, rstd: Any, columns: int) -> None:
    """The difference to the mean has an error relative to the largest element, of columns / 64 roundings."""
    x = x.astype(np.float64)
    size = np.abs(x).max()
    scale = (np.abs(x) + size) * rstd * np.abs(weight) + np.abs(bias)
    # The error of the variance is relative too, and that of rstd half of it.
    allowed_columns = 3 * columns
    expected = (x - mean) * rstd * weight + bias
    error = np.abs(out.astype(np.float64) - expected)
    unit, least = UNIT[out.dtype.name], LEAST[out.dtype.name]
    allowed = unit * np.abs(expected) + least + (allowed_columns / 64 + 24) * UNIT["float32"] * scale
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


@pytest.mark.parametrize(("shape", "rank"), [((3, 1024), 1), ((2, 3, 4, 17), 2), ((50,), 1)])
@pytest.mark.parametrize("name", FLOATS)
def test_layer_norm_is_the_formula(opapi_910b, shape, rank, name):
    for affine, moments in ((name, name), ("float32", "float32"), (None, None)):
        given = layer_call(name, shape, rank, affine, moments)
        opapi_910b.call("LayerNorm", given)
        x = given["input"].astype(np.float64)
        axes = tuple(range(-rank, 0))
        mean = x.mean(axes, keepdims=True)
        rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        weight, bias = (
            (1.0, 0.0) if affine is None else (given[k].astype(np.float64) for k in ("weight", "bias"))
        )
        columns = int(np.prod(given["normalized_shape"]))
        assert_normalized(given["out"], x, weight, bias, mean, rstd, columns)
        if moments is not None:
            assert_near(given["mean_out"], mean, columns, scale=np.abs(x).mean(axes, keepdims=True))
            assert_near(given["rstd_out"], rstd, 3 * columns)


def test_layer_norm_of_no_columns_has_mean_0(opapi_910b):
    given = layer_call("float32", (2, 0), 1, None, "float32")
    opapi_910b.call("LayerNorm", given)
    assert np.all(given["mean_out"] == 0)
    assert np.all(np.isnan(given["rstd_out"]))


def test_layer_norm_refusals(opapi):
    given = layer_call("float16", (2, 3, 32), 1, "float16", "float16")
    if opapi.is_310p:
        assert_beyond_document(opapi, "LayerNorm", given, UNLISTED_CHIP)
        bf16 = layer_call("bfloat16", (2, 3, 32), 1, "bfloat16", "bfloat16")
        assert_refused(opapi, "LayerNorm", bf16, "input must be float32 or float16")
        return
    for name in ("input", "normalized_shape", "out"):
        assert_refused(opapi, "LayerNorm", changed(given, **{name: None}), f"{name} must not be null", NULL)
    refused = [
        ({"normalized_shape": [3]}, "normalized_shape must be the last dimensions of input"),
        ({"normalized_shape": []}, "normalized_shape must be the last dimensions of input"),
        ({"weight": uniform("float16", 16)}, r"weight must have the shape \[32\]"),
        ({"weight": uniform("bfloat16", 32)}, "weight must be float16 or float32"),
        ({"bias": uniform("float32", 32)}, "bias must be float16 but got float32"),
        ({"weight": uniform("float32", 32), "bias": None}, "weight must be float16 but got float32"),
        ({"out": np.zeros((2, 3, 32), np.float32)}, "out must be float16"),
        ({"mean_out": np.zeros((2, 3), np.float16)}, r"mean_out must have the shape \[2,3,1\]"),
        ({"rstd_out": uniform("bfloat16", (2, 3, 1))}, "rstd_out must be float16"),
    ]
    for changes, message in refused:
        assert_refused(opapi, "LayerNorm", changed(given, **changes), message)


def group_call(name: str, shape: Any, group: int, has_affine: bool) -> dict[str, Any]:
    channels, inner = shape[1], int(np.prod(shape[2:]))
    return {
        "self": uniform(name, shape),
        "gamma": uniform(name, channels, 1) if has_affine else None,
        "beta": uniform(name, channels, 2) if has_affine else None,
        "n": shape[0], "c": channels, "hx_w": inner, "group": group, "eps": 1e-5,
        "out": np.ones(shape, TYPES[name]),
        "mean_out": np.ones((shape[0], group), TYPES[name]),
        "rstd_out": np.ones((shape[0], group), TYPES[name]),
    }  # fmt: skip


@pytest.mark.parametrize(("shape", "group"), [((2, 6, 5, 7), 3), ((3, 4), 2), ((1, 64, 16, 4), 32)])
@pytest.mark.parametrize("has_affine", [True, False])
def test_group_norm_is_the_formula(opapi, shape, group, has_affine):
    for name in types_of(opapi):
        given = group_call(name, shape, group, has_affine)
        opapi.call("GroupNorm", given)
        x = given["self"].astype(np.float64).reshape(shape[0], group, -1)
        mean, rstd = x.mean(-1, keepdims=True), 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        weight = given["gamma"].astype(np.float64) if has_affine else np.ones(shape[1])
        bias = given["beta"].astype(np.float64) if has_affine else np.zeros(shape[1])
        inner = given["hx_w"]
        weight, bias = (np.repeat(v, inner).reshape(1, group, -1) for v in (weight, bias))
        assert_normalized(given["out"].reshape(x.shape), x, weight, bias, mean, rstd, x.shape[-1])
        assert_near(given["mean_out"], mean[..., 0], x.shape[-1], scale=np.abs(x).mean(-1))
        # The variance of few numbers can be small beside their squares: its error is relative to them.
        scale = rstd[..., 0] * (1 + (x**2).mean(-1) * rstd[..., 0] ** 2)
        assert_near(given["rstd_out"], rstd[..., 0], 3 * x.shape[-1], scale=scale)


def test_group_norm_refusals(opapi):
    given = group_call("float16", (2, 6, 5), 3, True)
    for name in ("self", "out", "mean_out", "rstd_out"):
        assert_refused(opapi, "GroupNorm", changed(given, **{name: None}), f"{name} must not be null", NULL)
    refused = [
        ({"group": 4}, "C must be divisible by group, 4, but got 6"),
        ({"group": 0}, "group must be greater than 0 but got 0"),
        ({"eps": -0.0078125}, r"eps must be greater than 0 but got -0.0078125\.$"),
        ({"hx_w": 4}, r"self must have the sizes N, C and HxW of \[2,6,4\]"),
        ({"c": 3}, r"self must have the sizes N, C and HxW of \[2,3,5\]"),
        ({"gamma": uniform("float16", 3)}, r"gamma must have the shape \[6\]"),
        ({"beta": uniform("float32", 6)}, "beta must be float16 but got float32"),
        ({"mean_out": np.zeros((2, 2), np.float16)}, r"mean_out must have the shape \[2,3\]"),
        ({"self": uniform("float16", 6)}, "self must have 2 to 8 dimensions"),
    ]
    for changes, message in refused:
        assert_refused(opapi, "GroupNorm", changed(given, **changes), message, INVALID)


def test_each_norm_adds_epsilon(opapi):
    """The squares of the elements have the mean 1/4, to which epsilon adds 3/4."""
    x = np.tile(np.array([0.5, -0.5], np.float32), (4, 16))
    ones, zeros, epsilon = np.ones(32, np.float32), np.zeros(32, np.float32), 0.75

    def moments(*shape):
        return np.full(shape, 7, np.float32)

    rms = {"x": x, "gamma": ones, "epsilon": epsilon, "y_out": moments(4, 32), "rstd_out": moments(4, 1)}
    added = {**rms, "x1": x, "x2": np.zeros_like(x), "x_out": moments(4, 32)}
    del added["x"]
    layer = {"input": x, "normalized_shape": [32], "weight": ones, "bias": zeros, "eps": epsilon,
             "out": moments(4, 32), "mean_out": moments(4, 1), "rstd_out": moments(4, 1)}  # fmt: skip
    group = {"self": x, "gamma": ones, "beta": zeros, "n": 4, "c": 32, "hx_w": 1, "group": 2, "eps": epsilon,
             "out": moments(4, 32), "mean_out": moments(4, 2), "rstd_out": moments(4, 2)}  # fmt: skip
    in_place = {"x1": x.copy(), "x2": np.zeros_like(x), "gamma": ones, "epsilon": epsilon,
                "rstd_out": moments(4, 1)}  # fmt: skip
    calls = {"RmsNorm": rms, "AddRmsNorm": added, "InplaceAddRmsNorm": in_place, "LayerNorm": layer}
    if not opapi.is_310p:
        calls |= {"GemmaRmsNorm": {**rms, "gamma": zeros}, "GroupNorm": group}
    for op, given in calls.items():
        out = given.get("y_out", given.get("out", given.get("x1")))
        out[...] = x if op == "InplaceAddRmsNorm" else 7
        opapi.call(op, given)
        assert np.array_equal(out, x), op
        if not (opapi.is_310p and "Add" in op):  # whose rstd is documented as invalid
            assert np.all(given["rstd_out"] == 1), op
        if "mean_out" in given:
            assert np.all(given["mean_out"] == 0), op
