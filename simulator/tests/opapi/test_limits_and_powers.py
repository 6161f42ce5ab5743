"""Clamp and power, against NumPy and torch."""

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
    strided,
)
from ulps import assert_close, uniform

torch = pytest.importorskip("torch")

ONE, TWO = np.float32(1), np.float32(2)
CLAMP_TYPES = [name for name in REAL if name != "bool"]
POWER_TYPES = [name for name in NUMBERS if name != "bool"]


@pytest.mark.parametrize("name", [*CLAMP_TYPES, "bfloat16"])
def test_clamp_limits_both_sides(opapi_910b, name):
    x = uniform(name) if name in ("float16", "float32", "float64", "bfloat16") else random_of(name, (5, 67))
    low, high = TYPES[name](1), TYPES[name](3)
    for op, given, expected in (
        ("Clamp", {"clip_value_min": low, "clip_value_max": high}, np.minimum(np.maximum(x, low), high)),
        ("Clamp", {"clip_value_min": None, "clip_value_max": high}, np.minimum(x, high)),
        ("Clamp", {"clip_value_min": low, "clip_value_max": None}, np.maximum(x, low)),
        ("ClampMin", {"clip_value_min": low}, np.maximum(x, low)),
        ("ClampMax", {"clip_value_max": high}, np.minimum(x, high)),
    ):
        out = np.zeros_like(x)
        opapi_910b.call(op, {"self": strided(x), "out": out, **given})
        assert_same(out, expected.astype(x.dtype))
    out = strided(x)
    opapi_910b.call("InplaceClampMax", {"self": out, "clip_value_max": high})
    assert_same(np.ascontiguousarray(out), np.minimum(x, high))


def test_clamp_casts_the_limits_to_the_type_of_out(opapi):
    x, out = np.array([9, 99], np.int8), np.zeros(2, np.int8)
    opapi.call("ClampMax", {"self": x, "clip_value_max": np.int32(300), "out": out})
    assert out.tolist() == [9, 44]  # 300 - 256


def test_clamp_casts_self_to_out(opapi):
    x, out = np.array([1, 5, 9], np.int32), np.zeros(3, np.float32)
    opapi.call("Clamp", {"self": x, "clip_value_min": np.int32(2), "clip_value_max": np.int32(6), "out": out})
    assert out.tolist() == [2, 5, 6]
    size, _ = opapi.prepare("ClampMin", {"self": x, "clip_value_min": np.int32(2), "out": out})
    assert size == 512
    opapi.free_tensors()
    given = {"self": out, "clip_value_min": ONE, "out": x}
    assert_refused(
        opapi, "ClampMin", given, "out must have a type to which float32, .*, converts but got int32"
    )


def test_clamp_checks_its_arguments(opapi):
    x = np.ones((2, 3), np.float32)
    given = {"self": x, "clip_value_min": ONE, "clip_value_max": TWO, "out": x.copy()}
    check_types(
        opapi,
        "Clamp",
        lambda name: {**given, "self": random_of(name, 3), "out": random_of(name, 3),
                      "clip_value_min": np.int8(1), "clip_value_max": np.int8(2)},
        CLAMP_TYPES,
        ("bfloat16",),
    )  # fmt: skip
    for name in [*REAL, "bfloat16"]:
        change = {**given, "clip_value_min": TYPES[name](1)}
        if name == "bfloat16" and opapi.is_310p:
            assert_refused(opapi, "Clamp", change, "clipValueMin must be .* but got bfloat16")
        else:
            opapi.call("Clamp", change)
    neither = {**given, "clip_value_min": None, "clip_value_max": None}
    assert_refused(opapi, "Clamp", neither, "clipValueMin must not be null", NULL)
    assert_refused(
        opapi, "ClampMin", {**given, "clip_value_min": None}, "clipValueMin must not be null", NULL
    )
    assert_refused(
        opapi, "ClampMax", {**given, "clip_value_max": None}, "clipValueMax must not be null", NULL
    )
    message = r"out must have the shape \[2,3\] but got \[3,2\]"
    assert_refused(opapi, "Clamp", {**given, "out": np.ones((3, 2), np.float32)}, message)
    scalar = np.array(1.0, np.float32)
    assert_refused(
        opapi, "Clamp", {**given, "self": scalar, "out": scalar.copy()}, "1 to 8 dimensions but got 0"
    )
    integers = {**given, "self": np.ones(3, np.int32), "out": np.ones(3, np.int32)}
    assert_refused(
        opapi, "Clamp", integers, "clipValueMin must have a type that converts to int32 but got float32"
    )
    empty = np.ones((0, 3), np.float32)
    opapi.call("Clamp", {**given, "self": empty, "out": empty.copy()})


# ---- powers --------------------------------------------------------------------------------------


def power_of(base, exponent):
    base, exponent = (torch.from_numpy(np.asarray(v).astype(np.float64)) for v in (base, exponent))
    return torch.pow(base, exponent).numpy()


@pytest.mark.parametrize("name", [*HALF_AND_FLOAT, "float64", "bfloat16"])
def test_powers_of_fractions(opapi_910b, name):
    base, exponent = uniform(name, (5, 67), low=0.1), uniform(name, (67,), seed=1)
    ulps = 1.5 if name in ("float32", "float64") else 1
    out = np.zeros_like(base)
    opapi_910b.call("PowTensorTensor", {"self": strided(base), "exponent": exponent, "out": out})
    assert_close(out, power_of(base, exponent), ulps)
    opapi_910b.call("PowTensorScalar", {"self": base, "exponent": TYPES[name](1.5), "out": out})
    assert_close(out, power_of(base, TYPES[name](1.5)), ulps)
    opapi_910b.call("PowScalarTensor", {"self": TYPES[name](0.75), "exponent": base, "out": out})
    assert_close(out, power_of(TYPES[name](0.75), base), ulps)
    in_place = base.copy()
    opapi_910b.call("InplacePowTensorTensor", {"self": in_place, "exponent": exponent})
    assert_close(in_place, power_of(base, exponent), ulps)
    in_place = base.copy()
    opapi_910b.call("InplacePowTensorScalar", {"self": in_place, "exponent": TYPES[name](1.5)})
    assert_close(in_place, power_of(base, TYPES[name](1.5)), ulps)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8"])
def test_powers_of_integers_wrap(opapi, name):
    base, exponent = random_of(name, (6, 7)), random_of(name, (6, 7), seed=1) % 7
    exponent = exponent.astype(base.dtype)
    out = np.zeros_like(base)
    opapi.call("PowTensorTensor", {"self": base, "exponent": exponent, "out": out})
    assert_same(out, torch.pow(torch.from_numpy(base), torch.from_numpy(exponent)).numpy())
    opapi.call("PowTensorScalar", {"self": base, "exponent": TYPES[name](3), "out": out})
    assert_same(out, torch.pow(torch.from_numpy(base), 3).numpy())


def test_negative_exponents_of_integers_truncate(opapi):
    base, out = np.array([-2, -1, -1, 0, 1, 2], np.int32), np.zeros(6, np.int32)
    exponent = np.array([-1, -1, -2, 3, -5, -1], np.int32)
    opapi.call("PowTensorTensor", {"self": base, "exponent": exponent, "out": out})
    assert out.tolist() == [0, -1, 1, 0, 1, 0]


def test_complex_powers(opapi):
    base = np.array([1 + 2j, -0.5j], np.complex64)
    out = np.zeros_like(base)
    opapi.call("PowTensorScalar", {"self": base, "exponent": np.complex64(2), "out": out})
    assert np.all(np.abs(out - base**2) <= 1e-5)


def test_scalars_follow_the_tensor_unless_their_kind_is_higher(opapi):
    base = np.array([2, 3], np.int32)
    out = np.zeros(2, np.float32)
    opapi.call("PowTensorScalar", {"self": base, "exponent": np.float32(0.5), "out": out})
    assert_close(out, np.sqrt(base.astype(np.float64)), 1.5)
    given = {"self": base, "exponent": np.float32(0.5), "out": base.copy()}
    assert_refused(opapi, "PowTensorScalar", given, "out must have a type to which float32, .*, converts")
    half = np.array([2, 3], np.float16)
    opapi.call("PowTensorScalar", {"self": half, "exponent": np.float64(2), "out": half.copy()})
    # The common type must convert to out, although an exponent of float64 and an out of float32 give float32.
    wide, single = np.ones(2, np.float64), np.ones(2, np.float32)
    for op, given in (
        ("PowTensorScalar", {"self": np.ones(2, np.complex64), "exponent": np.float64(2)}),
        ("PowScalarTensor", {"self": np.complex64(2), "exponent": wide}),
    ):
        message = "out must have a type to which complex128, the type of the result, converts but got float32"
        assert_refused(opapi, op, {**given, "out": single}, message)
    opapi.call("PowScalarTensor", {"self": np.float64(2), "exponent": wide, "out": single})
    # ggml: the slopes of ALiBi.
    slopes = np.zeros(4, np.float32)
    exponent = np.arange(1, 5, dtype=np.float32)
    opapi.call("PowScalarTensor", {"self": np.float32(0.5), "exponent": exponent, "out": slopes})
    assert slopes.tolist() == [0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize("op", ["PowTensorTensor", "PowTensorScalar", "PowScalarTensor"])
def test_powers_accept_the_listed_types(opapi, op):
    def given(name):
        x, out = random_of(name, (2, 3)), np.zeros((2, 3), TYPES[name])
        first = TYPES[name](1) if op == "PowScalarTensor" else x
        second = np.int8(2) if op == "PowTensorScalar" else x.astype(np.int8) if name == "bool" else x
        if name == "bool":
            out = out.astype(np.int8)
        return {"self": first, "exponent": second, "out": out}

    if op == "PowScalarTensor":
        check_types(opapi, op, given, POWER_TYPES, ("bfloat16",))
    else:
        check_types(opapi, op, given, NUMBERS, ("bfloat16",))
        bools = {"self": np.ones(3, np.bool_), "out": np.ones(3, np.bool_)}
        bools["exponent"] = np.ones(3, np.bool_) if op == "PowTensorTensor" else np.bool_(True)
        assert_refused(opapi, op, bools, "self and exponent must not both be bool")
    for name in WIDE_UNSIGNED:
        x = np.ones(3, np.int32)
        arguments = {
            "self": np.int32(1) if op == "PowScalarTensor" else x,
            "exponent": np.int32(1) if op == "PowTensorScalar" else x,
        }
        opapi.call(op, {**arguments, "out": np.zeros(3, TYPES[name])})


def test_powers_in_place_refuse_bool(opapi):
    for name in ("bool", "uint32"):
        message = f"must be .* but got {name}"
        x = random_of(name, 3)
        assert_refused(opapi, "InplacePowTensorTensor", {"self": x, "exponent": np.ones(3, np.int8)}, message)
        assert_refused(opapi, "InplacePowTensorScalar", {"self": x, "exponent": np.int8(1)}, message)
    given = {"self": np.ones(3, np.int32), "exponent": np.float32(2)}
    assert_refused(opapi, "InplacePowTensorScalar", given, "out must have a type to which float32")


def test_powers_check_shapes_and_exponents(opapi):
    x = np.ones((2, 3), np.float32)
    out = x.copy()
    for op, given, message in (
        (
            "PowTensorTensor",
            {"exponent": np.ones(2, np.float32)},
            r"exponent must broadcast .* but got \[2\]",
        ),
        (
            "PowTensorTensor",
            {"exponent": np.ones((4, 2, 3), np.float32)},
            r"out must have the shape \[4,2,3\]",
        ),
        ("InplacePowTensorTensor", {"exponent": np.ones((4, 2, 3), np.float32)}, r"out must have the shape"),
        (
            "PowTensorScalar",
            {"exponent": TWO, "out": np.ones(3, np.float32)},
            r"out must have the shape \[2,3\]",
        ),
    ):
        assert_refused(opapi, op, {"self": x, "out": out, **given}, message)
    integers = np.ones(3, np.int8)
    for exponent, message in ((-1, "not be negative but got -1"), (200, "in the range of int8 but got 200")):
        given = {"self": integers, "exponent": np.int32(exponent), "out": integers.copy()}
        assert_refused(opapi, "PowTensorScalar", given, message)
    half = np.ones(3, np.float16)
    given = {"self": half, "exponent": np.float32(1e5), "out": half.copy()}
    assert_refused(
        opapi, "PowTensorScalar", given, r"exponent must be in the range of float16 but got 100000\.$"
    )
    for op in ("PowTensorTensor", "PowTensorScalar", "PowScalarTensor"):
        values = {
            "self": ONE if op == "PowScalarTensor" else x,
            "exponent": ONE if op == "PowTensorScalar" else x,
            "out": out,
        }
        for name in values:
            assert_refused(opapi, op, {**values, name: None}, f"{name} must not be null", NULL)
    empty = np.ones((0, 3), np.float32)
    opapi.call("PowTensorTensor", {"self": empty, "exponent": x[:1], "out": empty.copy()})
