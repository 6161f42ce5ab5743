"""Padding and triangles, against NumPy."""

import numpy as np
import pytest
from aclnn import Stored
from operands import (
    NULL,
    NUMBERS,
    REAL,
    TYPES,
    UNLISTED_CHIP,
    WIDE_UNSIGNED,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    strided,
)


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "complex64"])
@pytest.mark.parametrize("pads", [((1, 2), (0, 3)), ((0, 0), (2, 0)), ((0, 0), (0, 0))])
def test_constant_pad_surrounds_the_elements(opapi, name, pads):
    x = strided(random_of(name, (2, 3, 4)))
    expected = np.pad(x, ((0, 0), *pads), constant_values=1)
    out = strided(np.zeros_like(expected))
    pad = [count for pair in reversed(pads) for count in pair]
    opapi.call("ConstantPadNd", {"self": x, "pad": pad, "value": np.float32(1), "out": out})
    assert_same(out, expected)


def test_a_negative_constant_pad_removes_elements(opapi):
    x = random_of("float16", (3, 5))
    out = np.zeros((4, 3), np.float16)
    opapi.call("ConstantPadNd", {"self": x, "pad": [-1, -1, 1, 0], "value": np.float32(7), "out": out})
    assert_same(out, np.pad(x[:, 1:4], ((1, 0), (0, 0)), constant_values=7))


def test_constant_pad_of_an_empty_tensor_is_the_value(opapi):
    out = np.zeros((2, 3), np.float32)
    given = {"self": np.zeros((0, 3), np.float32), "pad": [0, 0, 1, 1], "value": np.float32(5), "out": out}
    opapi.call("ConstantPadNd", given)
    assert_same(out, np.full((2, 3), 5, np.float32))


def test_constant_pad_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
    given = {"self": x, "pad": [0, 1], "value": np.float32(0), "out": out}
    for change, message in (
        ({"pad": [1]}, "pad must have an even number of elements up to 4 but got 1"),
        ({"pad": [0] * 6}, "pad must have an even number of elements up to 4 but got 6"),
        ({"pad": [-2, -2]}, "pad must not remove more elements than dimension 1 has"),
        ({"pad": [1, 1]}, r"out must have the shape \[2,5\]"),
        (
            {"pad": [-3, 0, 1, 0], "out": np.zeros((3, 0), np.float32)},
            "pad must not be positive if out has no",
        ),
        ({"value": np.uint32(0)}, "value must have a common type with float32 but got uint32"),
    ):
        assert_refused(opapi, "ConstantPadNd", given | change, message)
    for name in ("self", "pad", "value", "out"):
        assert_refused(opapi, "ConstantPadNd", given | {name: None}, f"{name} must not be null", NULL)
    check_types(
        opapi,
        "ConstantPadNd",
        lambda name: given
        | {
            "self": x.astype(TYPES[name]),
            "out": out.astype(TYPES[name]),
            "value": np.zeros((), TYPES[name])[()],
        },
        NUMBERS + WIDE_UNSIGNED,
        ("bfloat16",),
    )


@pytest.mark.parametrize("padding", [(0, 0), (2, 1), (3, 3), (0, 2)])
@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 4)])
def test_reflection_pad_mirrors_the_last_dimension(opapi, padding, shape):
    x = strided(random_of("float32", shape))
    expected = np.pad(x, [(0, 0)] * (len(shape) - 1) + [padding], mode="reflect")
    out = strided(np.zeros_like(expected))
    opapi.call("ReflectionPad1d", {"self": x, "padding": list(padding), "out": out})
    assert_same(out, expected)


def test_reflection_pad_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 5), np.float32)
    given = {"self": x, "padding": [1, 1], "out": out}
    for change, message in (
        ({"padding": [1]}, "padding must have 2 elements but got 1"),
        ({"padding": [3, 0]}, r"padding must be in \[0, 3\) but got 3"),
        ({"padding": [1, 2]}, r"out must have the shape \[2,6\]"),
        ({"self": np.zeros((0, 3), np.float32)}, "self must have no empty dimension"),
        ({"self": np.zeros(3, np.float32)}, "self must have 2 to 3 dimensions but got 1"),
    ):
        assert_refused(opapi, "ReflectionPad1d", given | change, message)
    check_types(
        opapi,
        "ReflectionPad1d",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        REAL,
        ("bfloat16", "complex64", "complex128"),
    )


ND, NCHW, NHWC = 2, 0, 1


def in_format(array, number):
    """A tensor of float32 or complex64 in this plain format."""
    dtype = 16 if np.iscomplexobj(array) else 0
    strides = tuple(step // array.itemsize for step in array.strides)
    return Stored(array, dtype, array.shape, strides, number)


@pytest.mark.parametrize(
    ("op", "more", "names"),
    [
        ("ReflectionPad1d", {"padding": [0, 0]}, ["self", "out"]),
        ("ConstantPadNd", {"pad": [0, 0], "value": np.float32(0)}, ["self", "out"]),
        ("Tril", {"diagonal": 0}, ["self", "out"]),
        ("Triu", {"diagonal": 0}, ["self", "out"]),
        ("Tanh", {}, ["self", "out"]),
        ("Abs", {}, ["self", "out"]),
        ("Reciprocal", {}, ["self", "out"]),
        ("Hardsigmoid", {}, ["self", "out"]),
        ("IndexCopy", {"dim": 0, "index": np.zeros(2, np.int32), "source": np.zeros((2, 2), np.float32)},
         ["self", "out"]),
        ("Baddbmm", {"self": np.zeros((1, 2, 2), np.float32), "beta": np.float32(1),
                     "alpha": np.float32(1), "cube_math_type": 1}, ["batch1", "batch2", "out"]),
        ("InplaceBaddbmm", {"beta": np.float32(1), "alpha": np.float32(1), "cube_math_type": 1},
         ["batch1", "batch2", "self"]),
        ("GroupNorm", {"gamma": None, "beta": None, "n": 2, "c": 2, "hx_w": 1, "group": 1, "eps": 1e-5,
                       "mean_out": np.zeros((2, 1), np.float32), "rstd_out": np.zeros((2, 1), np.float32)},
         ["self", "out"]),
        ("Complex", {}, ["real", "imag", "out"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_tensors_have_one_format(opapi, op, more, names):
    """The sources of these functions compare the formats of tensors."""
    shape = (1, 2, 2) if "addbmm" in op else (2, 2)
    out_type = np.complex64 if op == "Complex" else np.float32
    arrays = {name: np.zeros(shape, out_type if name == "out" else np.float32) for name in names}
    opapi.prepare(op, more | {name: in_format(array, NCHW) for name, array in arrays.items()})
    opapi.free_tensors()
    for at, other in enumerate(names):
        for usual, changed in ((ND, NCHW), (NCHW, ND)):
            formats = dict.fromkeys(names, usual) | {other: changed}
            given = more | {name: in_format(array, formats[name]) for name, array in arrays.items()}
            if op == "ConstantPadNd" and formats["self"] == ND:
                opapi.prepare(op, given)
                opapi.free_tensors()
                continue
            expected = changed if at == 0 else usual
            message = f"must have the format {expected} of .* but got|must have one format but got"
            assert_refused(opapi, op, given, message)


def test_group_norm_has_its_channels_in_dimension_1(opapi):
    x, moments = np.zeros((2, 2), np.float32), np.zeros((2, 1), np.float32)
    image = in_format(x, NHWC)
    given = {"self": image, "gamma": None, "beta": None, "n": 2, "c": 2, "hx_w": 1, "group": 1, "eps": 1e-5,
             "out": image, "mean_out": moments, "rstd_out": moments.copy()}  # fmt: skip
    message = "self must have its channels in dimension 1 but got the format 1"
    assert_refused(opapi, "GroupNorm", given, message)


@pytest.mark.parametrize("diagonal", [0, 1, -2, 9, -9, 2**62, -(2**62)])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (5, 3)])
def test_triangles_keep_one_side_of_the_diagonal(opapi, diagonal, shape):
    x = random_of("int32", shape) + 1
    near = max(-9, min(9, diagonal))
    for op, expected in (("Tril", np.tril(x, near)), ("Triu", np.triu(x, near))):
        out, in_place = np.zeros_like(x), x.copy()
        opapi.call(op, {"self": strided(x) if op == "Tril" else x, "diagonal": diagonal, "out": out})
        opapi.call(f"Inplace{op}", {"self": in_place, "diagonal": diagonal})
        assert_same(out, expected)
        assert_same(in_place, expected)


def test_triangles_check_their_arguments(opapi):
    x = np.zeros((3, 4), np.float32)
    given = {"self": x, "diagonal": 0, "out": x.copy()}
    if opapi.is_310p:
        assert_beyond_document(opapi, "Tril", given, UNLISTED_CHIP)
        assert_beyond_document(opapi, "InplaceTril", given, UNLISTED_CHIP)
    views = given | {"self": strided(x), "out": strided(x)}
    for name in ("self", "out"):
        assert_beyond_document(opapi, "Triu", views, f"its document requires a contiguous {name}")
    assert_refused(opapi, "Triu", given | {"self": x[0]}, "self must have 2 to 8 dimensions but got 1")
    assert_refused(opapi, "Triu", given | {"out": x.T.copy()}, r"out must have the shape \[3,4\]")
    check_types(
        opapi,
        "Triu",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": x.astype(TYPES[name])},
        [*REAL, *WIDE_UNSIGNED],
        ("bfloat16",),
    )
