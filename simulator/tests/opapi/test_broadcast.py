"""Elementwise functions of several tensors that broadcast, against NumPy and torch."""

import numpy as np
import pytest
from operands import (
    HALF_AND_FLOAT,
    NULL,
    NUMBERS,
    REAL,
    TYPES,
    WIDE_UNSIGNED,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    reasons_beyond_document,
    strided,
)
from ulps import assert_close, uniform

INNER_NULLPTR = 561103
ONE = np.float32(1)
FRACTIONS = [*HALF_AND_FLOAT, "float64"]


def pair_of(name):
    """Two tensors that broadcast to [4, 3, 5], one strided."""
    return strided(random_of(name, (3, 1))), random_of(name, (4, 1, 5), seed=1)


@pytest.mark.parametrize("op", ["Maximum", "Minimum"])
def test_extrema_broadcast(opapi, op):
    reference = np.maximum if op == "Maximum" else np.minimum
    names = [name for name in REAL if not (opapi.is_310p and op == "Minimum" and name == "bool")]
    for name in names if opapi.is_310p else [*names, "bfloat16"]:
        a, b = pair_of(name)
        out = strided(np.zeros((4, 3, 5), a.dtype))
        opapi.call(op, {"self": a, "other": b, "out": out})
        assert_same(np.ascontiguousarray(out), reference(a, b).astype(a.dtype))

    def of_type(name):
        return {"self": random_of(name, 3), "other": random_of(name, 3), "out": random_of(name, 3)}

    check_types(opapi, op, of_type, names, ("bfloat16",))


def test_extrema_return_nan_and_promote(opapi):
    a, b = np.array([np.nan, 1, 2], np.float32), np.array([1, 7, 1], np.int64)
    out = np.zeros(3, np.float32)
    opapi.call("Maximum", {"self": a, "other": b, "out": out})
    assert np.isnan(out[0])
    assert out[1:].tolist() == [7, 2]
    opapi.call("Minimum", {"self": b, "other": a, "out": out})
    assert np.isnan(out[0])
    assert out[1:].tolist() == [1, 1]
    message = "out must have a type to which float32, .*, converts but got int64"
    assert_refused(opapi, "Maximum", {"self": a, "other": b, "out": b.copy()}, message)


@pytest.mark.parametrize("op", ["Maximum", "Minimum", "LogicalAnd", "LogicalOr"])
def test_pairs_check_their_arguments(opapi, op):
    x = np.ones((2, 3), np.float32)
    given = {"self": x, "other": x.copy(), "out": x.copy()}
    for name in given:
        assert_refused(opapi, op, {**given, name: None}, f"{name} must not be null", NULL)
    for change, message in (
        ({"other": np.ones(2, np.float32)}, r"other must broadcast with the inputs before it but got \[2\]"),
        ({"other": np.ones((4, 1, 1), np.float32)}, r"out must have the shape \[4,2,3\] but got \[2,3\]"),
        ({"other": np.ones((1,) * 9, np.float32)}, "0 to 8 dimensions but got 9"),
    ):
        assert_refused(opapi, op, {**given, **change}, message)
    empty = np.ones((0, 3), np.float32)
    opapi.call(op, {"self": empty, "other": x[:1], "out": empty.copy()})
    scalar = np.array(2.0, np.float32)
    opapi.call(op, {**given, "other": scalar})


@pytest.mark.parametrize("op", ["LogicalAnd", "LogicalOr"])
def test_logic_takes_any_types_as_bool(opapi, op):
    reference = np.logical_and if op == "LogicalAnd" else np.logical_or
    for name in NUMBERS:
        a, b = random_of(name, (3, 4)), random_of("int8", (3, 4), seed=1)
        a[0], b[:, 0] = 0, 0
        if name in ("complex64", "complex128"):
            a[0, 1] = 1j  # true, though its real part is 0
        expected = reference(a != 0, b != 0)
        for out_name in ("bool", "float32", "complex64", "int64"):
            out = np.zeros((3, 4), TYPES[out_name])
            opapi.call(op, {"self": a, "other": b, "out": out})
            assert_same(out, expected.astype(out.dtype))
        in_place = a.copy()
        opapi.call(f"Inplace{op}", {"self": in_place, "other": b})
        assert_same(in_place, expected.astype(a.dtype))
    check_types(
        opapi,
        op,
        lambda name: {"self": random_of(name, 3), "other": np.ones(3, np.bool_), "out": np.ones(3, np.bool_)},
        NUMBERS,
        ("bfloat16",),
    )
    given = {"self": np.ones(3, np.bool_), "other": np.ones((2, 3), np.bool_)}
    assert_refused(opapi, f"Inplace{op}", given, r"selfRef must have the shape \[2,3\] but got \[3\]")


@pytest.mark.parametrize("name", [*NUMBERS, *WIDE_UNSIGNED])
def test_where_selects_and_broadcasts(opapi, name):
    a, b = pair_of(name)
    chosen = random_of("bool", (4, 3, 5))
    for condition in (chosen, ~chosen, random_of("uint8", (1, 5))):
        out = np.zeros((4, 3, 5), a.dtype)
        opapi.call("SWhere", {"condition": condition, "self": a, "other": b, "out": out})
        assert_same(out, np.where(condition != 0, a, b))


def test_where_keeps_the_bits_of_the_largest_integers(opapi):
    a, b = np.array([2**64 - 1, 3], np.uint64), np.array([5, 2**63], np.uint64)
    out = np.zeros(2, np.uint64)
    opapi.call("SWhere", {"condition": np.array([True, False]), "self": a, "other": b, "out": out})
    assert out.tolist() == [2**64 - 1, 2**63]


def test_where_promotes_and_checks_its_arguments(opapi):
    condition, a = np.array([[True], [False]]), np.array([1, 2, 3], np.int32)
    b = np.full((2, 3), 0.5, np.float32)
    given = {"condition": condition, "self": a, "other": b, "out": np.zeros((2, 3), np.float32)}
    opapi.call("SWhere", given)
    assert given["out"].tolist() == [[1, 2, 3], [0.5, 0.5, 0.5]]
    for name in given:
        assert_refused(opapi, "SWhere", {**given, name: None}, f"{name} must not be null", NULL)
    for change, message in (
        ({"condition": a}, "condition must be uint8 or bool on .* but got int32"),
        ({"condition": np.ones((3, 3), np.bool_)}, r"condition must broadcast .* but got \[3,3\]"),
        ({"out": np.zeros((2, 3), np.int32)}, "out must have a type to which float32"),
        ({"out": np.zeros(3, np.float32)}, r"out must have the shape \[2,3\]"),
    ):
        assert_refused(opapi, "SWhere", {**given, **change}, message)
    message = "self and other must have a common type but got uint32 and float32"
    assert_refused(opapi, "SWhere", {**given, "self": a.astype(np.uint32)}, message, INNER_NULLPTR)

    bools = {"self": np.ones(3, np.bool_), "other": np.ones(3, np.bool_)}
    message = "out must be bool but got float32"
    assert_refused(opapi, "SWhere", given | bools, message, INNER_NULLPTR)

    def of_type(name):
        return {"condition": np.ones(3, np.bool_), "self": random_of(name, 3), "other": random_of(name, 3),
                "out": random_of(name, 3)}  # fmt: skip

    check_types(opapi, "SWhere", of_type, [*NUMBERS, *WIDE_UNSIGNED], ("bfloat16",))


FILLED = [*HALF_AND_FLOAT, "int8", "int32", "int64", "bool"]


def test_masked_fill_writes_where_the_mask_is_true(opapi):
    for name in FILLED:
        x, mask = random_of(name, (4, 3)), np.array([True, False, True])
        expected = np.where(mask, TYPES[name](1), x)
        x = strided(x)
        opapi.call("InplaceMaskedFillScalar", {"self": x, "mask": mask, "value": TYPES[name](1)})
        assert_same(np.ascontiguousarray(x), expected)
    x = np.zeros(3, np.float16)
    opapi.call(
        "InplaceMaskedFillScalar", {"self": x, "mask": np.ones(3, np.bool_), "value": np.float32(-1e9)}
    )
    assert np.all(np.isneginf(x))


def test_masked_fill_checks_its_arguments(opapi):
    given = {"self": np.zeros((2, 3), np.float32), "mask": np.ones(3, np.bool_), "value": ONE}
    for name in given:
        assert_refused(opapi, "InplaceMaskedFillScalar", {**given, name: None}, "must not be null", NULL)
    for change, message in (
        ({"mask": np.ones(3, np.uint8)}, "mask must be bool"),
        ({"mask": np.ones(2, np.bool_)}, r"mask must broadcast .* but got \[2\]"),
        ({"mask": np.ones((5, 2, 3), np.bool_)}, r"selfRef must have the shape \[5,2,3\]"),
        ({"self": np.zeros(3, np.int32)}, "value must have a type that converts to int32 but got float32"),
        ({"value": np.int16(1)}, "value must be .* but got int16"),
    ):
        assert_refused(opapi, "InplaceMaskedFillScalar", {**given, **change}, message)
    check_types(
        opapi,
        "InplaceMaskedFillScalar",
        lambda name: {"self": random_of(name, 3), "mask": np.ones(3, np.bool_), "value": np.bool_(True)},
        FILLED,
        ("bfloat16",),
    )
    mask = strided(np.array([True, False, True]))
    given = {"self": np.zeros(3, np.float32), "mask": mask, "value": np.float64(2)}
    assert reasons_beyond_document(opapi, "InplaceMaskedFillScalar", given) == [
        "its document does not list float64 for value",
        "its document requires a contiguous mask",
    ]
    opapi.call("InplaceMaskedFillScalar", given)
    assert given["self"].tolist() == [2, 0, 2]


@pytest.mark.parametrize("op", ["Addcdiv", "Addcmul"])
def test_addc_computes_in_float32_and_broadcasts(opapi_910b, op):
    for name in [*FRACTIONS, "bfloat16"]:
        x, a = uniform(name, (4, 3, 5)), uniform(name, (3, 1), seed=1)
        b, value = uniform(name, (4, 1, 5), seed=2, low=0.5), TYPES[name](0.75)
        out = np.zeros((4, 3, 5), x.dtype)
        given = {"tensor1": strided(a), "tensor2": b, "value": value}
        opapi_910b.call(op, {"self": strided(x), **given, "out": out})
        a, b = a.astype(np.float64), b.astype(np.float64)
        term = 0.75 * (a / b if op == "Addcdiv" else a * b)
        expected = x.astype(np.float64) + term
        # Two roundings of the term, which is below 16, and one of the sum.
        assert_close(out, expected, 0.5 if name in ("float32", "float64") else 1, 16)
        opapi_910b.call(f"Inplace{op}", {"self": x, **given})
        assert_same(x, out)


def test_the_value_of_addc_is_rounded_to_the_type_of_the_computation(opapi_910b):
    """0.1 in float16, times 3, is 0.2999; the product of 0.1 and 3 rounds to 0.3."""
    x, three, one = (np.full(1, value, np.float16) for value in (0, 3, 1))
    given = {"self": x, "value": np.float32(0.1)}
    for op, factors in (("Addcmul", (three, one)), ("Addcdiv", (three, one))):
        out = np.zeros(1, np.float16)
        opapi_910b.call(op, given | dict(zip(("tensor1", "tensor2"), factors, strict=True)) | {"out": out})
        assert out == np.float16(np.float32(np.float16(0.1)) * 3) != np.float16(0.3)


def test_addc_of_integers(opapi_910b):
    x, a, b = (np.array(v, np.int64) for v in ([1, 2, 2**62], [7, -7, 2**62], [2, 2, 4]))
    out = np.zeros(3, np.int64)
    opapi_910b.call("Addcdiv", {"self": x, "tensor1": a, "tensor2": b, "value": np.int64(3), "out": out})
    assert out.tolist() == [10, -7, 2**62 + 3 * 2**60]
    opapi_910b.call("Addcmul", {"self": x, "tensor1": a, "tensor2": b, "value": np.int64(3), "out": out})
    assert out.tolist() == [43, -40, 2**62]  # wraps


@pytest.mark.parametrize("op", ["Addcdiv", "Addcmul"])
def test_addc_checks_its_arguments(opapi, op):
    x = np.ones((2, 3), np.float32)
    given = {"self": x, "tensor1": x.copy(), "tensor2": x.copy(), "value": ONE, "out": x.copy()}
    for name in given:
        assert_refused(opapi, op, {**given, name: None}, f"{name} must not be null", NULL)
    integers = np.ones((2, 3), np.int64)
    for change, message in (
        ({"tensor2": np.ones(2, np.float32)}, r"tensor2 must broadcast .* but got \[2\]"),
        ({"out": np.ones(3, np.float32)}, r"out must have the shape \[2,3\]"),
        ({"out": integers}, "out must have a type to which float32"),
        ({"tensor1": np.ones(3, np.bool_)}, "tensor1 must be .* but got bool"),
    ):
        assert_refused(opapi, op, {**given, **change}, message)
    all_integers = {
        "self": integers,
        "tensor1": integers.copy(),
        "tensor2": integers.copy(),
        "out": integers.copy(),
    }
    message = "value must have a type that converts to int64 but got float32"
    assert_refused(opapi, op, {**given, **all_integers}, message)
    names = [*FRACTIONS, "int64"] if op == "Addcdiv" else [*FRACTIONS, "int8", "uint8", "int32", "int64"]

    def of_type(name):
        tensors = {key: random_of(name, 3) for key in ("self", "tensor1", "tensor2", "out")}
        return {**tensors, "value": np.int64(1)}

    check_types(opapi, op, of_type, names, ("bfloat16",), is_310p_unlisted=True)
    if op == "Addcmul":
        bytes_ = {
            "self": np.ones(3, np.int8),
            "tensor1": np.ones(3, np.uint8),
            "tensor2": np.ones(3, np.int8),
        }
        mixed = {**bytes_, "value": np.int64(1), "out": np.ones(3, np.int32)}
        assert_refused(opapi, op, mixed, "the common type .* but got int16")


def test_lerp_interpolates_and_broadcasts(opapi):
    for name in HALF_AND_FLOAT if opapi.is_310p else [*HALF_AND_FLOAT, "bfloat16"]:
        x, end = uniform(name, (4, 3, 5)), uniform(name, (3, 1), seed=1)
        weight = uniform(name, (4, 1, 5), seed=2, low=0, high=1)
        start, stop, part = (v.astype(np.float64) for v in (x, end, weight))
        out = np.zeros_like(x)
        opapi.call("Lerp", {"self": strided(x), "end": strided(end), "weight": weight, "out": out})
        # Two roundings of the term, which is below 8, and one of the sum.
        assert_close(out, start + part * (stop - start), 0.5 if name == "float32" else 1, 8)
        opapi.call("InplaceLerp", {"self": x, "end": end, "weight": weight})
        assert_same(x, out)


def test_lerp_checks_its_arguments(opapi):
    x = np.ones((2, 3), np.float32)
    given = {"self": x, "end": x.copy(), "weight": x.copy(), "out": x.copy()}
    for name in given:
        assert_refused(opapi, "Lerp", {**given, name: None}, f"{name} must not be null", NULL)
    half = np.ones((2, 3), np.float16)
    for change, message in (
        ({"end": half}, "end must be float32 but got float16"),
        ({"weight": half}, "weight must be float32 but got float16"),
        ({"out": half}, "out must be float32 but got float16"),
        ({"weight": np.ones(2, np.float32)}, r"weight must broadcast .* but got \[2\]"),
        ({"out": np.ones(3, np.float32)}, r"out must have the shape \[2,3\]"),
    ):
        assert_refused(opapi, "Lerp", {**given, **change}, message)
    check_types(
        opapi,
        "Lerp",
        lambda name: {key: random_of(name, 3) for key in given},
        HALF_AND_FLOAT,
        ("bfloat16",),
    )
