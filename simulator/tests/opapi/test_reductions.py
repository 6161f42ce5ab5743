"""Reductions and cumulative sums, against NumPy in float64.

A sum of n numbers in float32 has an error of at most (n - 1) * 2^-24 * sum(|x|), in any order. The result is
then rounded once to the output, with a relative error of at most 2^-11 for float16 and 2^-8 for bfloat16.
"""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from operands import (
    NULL,
    NUMBERS,
    TYPES,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    strided,
)

CODES = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "int64": 9, "float64": 11,
         "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27, "uint16": 7, "uint32": 8,
         "uint64": 10}  # fmt: skip
HALF_ULP = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
FLOATS = ["float16", "float32", "float64"]


def normal_of(name, shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[name])


def assert_near(got, expected, summed, n, name):
    """Check the bound of a sum of n numbers, whose magnitudes add up to `summed`, in float32 or float64."""
    unit = HALF_ULP["float64" if name == "float64" else "float32"]
    sum_error = n * unit * summed
    subnormal = 2.0**-25 if name == "float16" else 0
    bound = sum_error + HALF_ULP[name] * (np.abs(expected) + sum_error) + subnormal
    assert np.all(np.abs(got.astype(np.float64) - expected) <= bound)


@pytest.mark.parametrize("dims", [(0,), (-1,), (0, 2), (1, 0, 2), ()])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("keeps", [True, False])
def test_reduce_sum_adds(opapi, name, dims, keeps):
    x = strided(normal_of(name, (5, 70, 9)))
    axes = dims or (0, 1, 2)
    wide = x.astype(np.float64)
    expected = wide.sum(axes, keepdims=keeps)
    out = np.zeros(expected.shape, x.dtype)
    opapi.call(
        "ReduceSum", {"self": x, "dims": list(dims), "keep_dims": keeps, "dtype": CODES[name], "out": out}
    )
    n = np.prod([x.shape[axis] for axis in axes])
    assert_near(out, expected, np.abs(wide).sum(axes, keepdims=keeps), n, name)


def test_reduce_sum_of_integers_wraps_and_of_bool_is_any(opapi):
    x = random_of("int8", (4, 50)) + np.int8(20)
    out = np.zeros(4, np.int8)
    opapi.call("ReduceSum", {"self": x, "dims": [1], "keep_dims": False, "dtype": CODES["int8"], "out": out})
    assert_same(out, x.sum(1, dtype=np.int8))
    mask, any_of = np.array([[0, 0], [1, 1]], bool), np.zeros(2, bool)
    given = {"self": mask, "dims": [1], "keep_dims": False, "dtype": CODES["bool"], "out": any_of}
    opapi.call("ReduceSum", given)
    assert any_of.tolist() == [False, True]


def test_reduce_sum_rounds_its_input_to_dtype_first(opapi):
    x = np.array([2049, 1, -2048], np.float32)  # 2049 is 2048 in float16
    out = np.zeros(1, np.float16)
    opapi.call(
        "ReduceSum", {"self": x, "dims": [0], "keep_dims": True, "dtype": CODES["float16"], "out": out}
    )
    assert out == 1


def test_reduce_sum_of_an_empty_tensor_is_zero(opapi):
    given = {"self": np.zeros((0, 3), np.float32), "dims": [0], "keep_dims": False, "dtype": 0}
    out = np.ones(3, np.float32)
    opapi.call("ReduceSum", given | {"out": out})
    assert not out.any()
    given |= {"dtype": CODES["complex64"], "out": out.astype(np.complex64)}
    assert_refused(opapi, "ReduceSum", given, "out must be real for an empty self")


def test_reduce_sum_of_a_scalar_is_the_scalar(opapi):
    out = np.array(0, np.float32)
    given = {"self": np.array(3, np.int32), "dims": [-1], "keep_dims": True, "dtype": 0, "out": out}
    opapi.call("ReduceSum", given)
    assert out == 3


def test_one_result_may_have_any_shape_of_one_element(opapi):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for function, names, expected in (
        ("ReduceSum", ("dims", "keep_dims"), 15),
        ("Mean", ("dim", "keep_dim"), 2.5),
    ):
        out = np.zeros((1, 1, 1), np.float32)
        given = {"self": x, names[0]: [0, 1], names[1]: False, "dtype": 0, "out": out}
        assert_beyond_document(
            opapi, function, given, "its document requires the shape of the result for out"
        )
        opapi.call(function, given)
        assert out == expected
        assert_refused(
            opapi, function, given | {"out": np.zeros(2, np.float32)}, r"out must have the shape \[\]"
        )
    given = {"self": x, "p_scalar": np.float32(2), "dim": [0, 1], "keepdim": False, "out": out}
    assert_refused(opapi, "Norm", given, r"out must have the shape \[\]")


def test_reduce_sum_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    given = {"self": x, "dims": [1], "keep_dims": True, "dtype": 0, "out": out}
    for change, message in (
        ({"dims": [2]}, r"dims must be in \[-2, 2\) but got 2"),
        ({"dims": [1, -1]}, "dims must contain each dimension at most once"),
        ({"keep_dims": False}, r"out must have the shape \[2\]"),
        ({"dtype": CODES["float16"]}, "out must be float16 but got float32"),
        ({"dtype": CODES["uint16"]}, "dtype must be a type that the function computes but got uint16"),
    ):
        assert_refused(opapi, "ReduceSum", given | change, message)
    for name in ("self", "dims", "out"):
        assert_refused(opapi, "ReduceSum", given | {name: None}, f"{name} must not be null", NULL)
    check_types(
        opapi,
        "ReduceSum",
        lambda name: given
        | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name]), "dtype": CODES[name]},
        NUMBERS,
        ("bfloat16",),
    )


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dims", [(2,), (0, 1), ()])
def test_mean_divides_the_sum(opapi, name, dims):
    x = strided(normal_of(name, (5, 70, 9)))
    axes = dims or (0, 1, 2)
    wide = x.astype(np.float64)
    expected = wide.mean(axes)
    out = strided(np.zeros(expected.shape, x.dtype)) if expected.shape else np.zeros((), x.dtype)
    opapi.call("Mean", {"self": x, "dim": list(dims), "keep_dim": False, "dtype": CODES[name], "out": out})
    n = np.prod([x.shape[axis] for axis in axes])
    assert_near(out, expected, np.abs(wide).mean(axes), n + 2, name)


def test_mean_of_nothing_is_nan(opapi):
    out = np.zeros(3, np.float32)
    given = {"self": np.zeros((0, 3), np.float32), "dim": [0], "keep_dim": False, "dtype": 0, "out": out}
    opapi.call("Mean", given)
    assert np.isnan(out).all()


def test_mean_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    given = {"self": x, "dim": [1], "keep_dim": False, "dtype": 0, "out": out}
    for change, message in (
        (
            {"dtype": CODES["int32"], "out": out.astype(np.int32)},
            "dtype must be a type to which float32 converts",
        ),
        ({"out": out.astype(np.int32)}, "out must have a type to which float32 converts but got int32"),
        ({"dim": [-3]}, "dim must be in"),
        ({"keep_dim": True}, r"out must have the shape \[2,1\]"),
        ({"self": x.astype(bool)}, "self must be .* but got bool"),
    ):
        assert_refused(opapi, "Mean", given | change, message)


@pytest.mark.parametrize("p", [0, 1, 2, 3, np.inf, -np.inf])
@pytest.mark.parametrize("dims", [(1,), (0, 1)])
def test_norm_of_rows(opapi, p, dims):
    x = strided(normal_of("float32", (6, 70)))
    magnitudes = np.abs(x.astype(np.float64))
    expected = {0: (magnitudes != 0).sum(dims, dtype=np.float64), 1: magnitudes.sum(dims),
                np.inf: magnitudes.max(dims), -np.inf: magnitudes.min(dims)}.get(p)  # fmt: skip
    if expected is None:
        expected = (magnitudes**p).sum(dims) ** (1 / p)
    out = np.zeros(expected.shape, np.float32)
    opapi.call(
        "Norm", {"self": x, "p_scalar": np.float32(p), "dim": list(dims), "keepdim": False, "out": out}
    )
    # Every term is positive, so the sum has a relative error of n * 2^-24. Each power adds at most 4 * 2^-24.
    n = x[0].size * (x.shape[0] if len(dims) > 1 else 1)
    assert np.all(np.abs(out - expected) <= (n + 10) * 2.0**-24 * expected)


def test_norm_of_half_precision_is_rounded_once(opapi):
    x = np.full((1, 4096), 2, np.float16)
    out = np.zeros((1, 1), np.float16)
    opapi.call("Norm", {"self": x, "p_scalar": np.float32(2), "dim": [1], "keepdim": True, "out": out})
    assert out == 128
    if not opapi.is_310p:
        half = np.zeros((1, 1), bfloat16)
        given = {"self": x.astype(bfloat16), "p_scalar": np.float32(2), "dim": [1], "keepdim": True}
        opapi.call("Norm", given | {"out": half})
        assert half == 128


def test_norm_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    given = {"self": x, "p_scalar": np.float32(2), "dim": [1], "keepdim": True, "out": out}
    for change, message in (
        ({"dim": [1, 1]}, "dim must contain each dimension at most once"),
        ({"p_scalar": np.int32(2)}, "pScalar must be float32 on .* but got int32"),
        ({"keepdim": False}, r"out must have the shape \[2\]"),
    ):
        assert_refused(opapi, "Norm", given | change, message)
    check_types(
        opapi,
        "Norm",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        ["float16", "float32"],
        ("bfloat16",),
    )


@pytest.mark.parametrize("name", [*FLOATS, "int32", "uint8"])
@pytest.mark.parametrize("dim", [0, 1, -1, -3])
def test_cumsum_adds_along_a_dimension(opapi, name, dim):
    x = strided(random_of(name, (3, 5, 4)))  # integers up to 100: every partial sum is exact
    out = strided(np.zeros_like(x))
    opapi.call("Cumsum", {"self": x, "dim": dim, "dtype": CODES[name], "out": out})
    assert_same(out, np.cumsum(x, dim, dtype=x.dtype))


def test_cumsum_converts_its_input(opapi):
    x, out = np.array([1, 2, 3], np.int32), np.zeros(3, np.float32)
    opapi.call("Cumsum", {"self": x, "dim": 0, "dtype": 0, "out": out})
    assert_same(out, np.array([1, 3, 6], np.float32))
    given = {"self": out, "dim": 0, "dtype": CODES["int32"], "out": x}
    assert_refused(opapi, "Cumsum", given, "out must have a type to which float32 converts but got int32")
    assert_refused(opapi, "Cumsum", given | {"dim": 1}, "out must have a type|dim must be in")
    given = {"self": out, "dim": 1, "dtype": 0, "out": out.copy()}
    assert_refused(opapi, "Cumsum", given, r"dim must be in \[-1, 1\) but got 1")
