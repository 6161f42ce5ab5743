"""Mathematical functions, rounding and logic of one tensor, against torch in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from aclnn import Device
from operands import (
    HALF_AND_FLOAT,
    INVALID,
    NULL,
    NUMBERS,
    REAL,
    TYPES,
    WIDE_UNSIGNED,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    reasons_beyond_document,
    strided,
)
from ulps import assert_close, uniform

torch = pytest.importorskip("torch")

FRACTIONS = [*HALF_AND_FLOAT, "float64"]
COMPLEX = ["complex64", "complex128"]
STRIDED_OUT = "its document requires a contiguous out"
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]

BEYOND_SIGMOID = ("float64", *INTEGERS, "bool", *COMPLEX)


@dataclass(frozen=True)
class Function:
    """A function, torch's form of it, its types, and its error in float32 ulps before the result is rounded.

    A function of glibc has an error below 1 ulp, and an operation after it adds 0.5 ulp.
    """

    name: str
    reference: Any
    inputs: list[str]
    ulps: float = 0
    low: float = -4
    is_310p_unlisted: bool = False  # by the document; the source accepts the calls
    undocumented: tuple[str, ...] = ()  # types that only the source has
    self_name: str = "self"
    out_name: str = "out"

    def given(self, x: Any, out: Any) -> dict[str, Any]:
        return {self.self_name: x, self.out_name: out}


MATH = [
    Function("Cos", torch.cos, NUMBERS, 1, self_name="input"),
    Function("Sin", torch.sin, NUMBERS, 1),
    Function("Exp", torch.exp, [*FRACTIONS, *COMPLEX, "bool", "int64"], 1, is_310p_unlisted=True),
    Function("Log", torch.log, NUMBERS, 1, low=0.01, is_310p_unlisted=True),
    Function("Sqrt", torch.sqrt, NUMBERS, 0.5, low=0, is_310p_unlisted=True),
    Function("Rsqrt", torch.rsqrt, NUMBERS, 1.5, low=0.01),
    Function("Reciprocal", torch.reciprocal, NUMBERS, 0.5, low=0.01),
    Function("Tanh", torch.tanh, [*HALF_AND_FLOAT, *INTEGERS, "bool"], 1, is_310p_unlisted=True),
    Function("Erf", torch.erf, [*FRACTIONS, "bool", "int64"], 1, is_310p_unlisted=True),
    Function("Sigmoid", torch.sigmoid, HALF_AND_FLOAT, 2.5, undocumented=BEYOND_SIGMOID),
]
ROUNDING = [
    Function("Abs", torch.abs, REAL),
    Function(
        "Sign", torch.sign, [*FRACTIONS, "int32", "int64", "bool"], is_310p_unlisted=True, out_name="result"
    ),
    Function("Floor", torch.floor, [*FRACTIONS, *INTEGERS, *WIDE_UNSIGNED], is_310p_unlisted=True),
    Function("Ceil", torch.ceil, FRACTIONS),
    Function("Round", torch.round, [*FRACTIONS, "int32", "int64"], is_310p_unlisted=True),
    Function("Trunc", torch.trunc, HALF_AND_FLOAT),
]
ALL = [*MATH, *ROUNDING]
IN_PLACE = {  # types
    "Cos": [*FRACTIONS, *COMPLEX],
    "Sin": HALF_AND_FLOAT,
    "Exp": [*FRACTIONS, *COMPLEX],
    "Log": [*FRACTIONS, *COMPLEX],
    "Sqrt": [*FRACTIONS, *COMPLEX],
    "Rsqrt": [*FRACTIONS, *COMPLEX],
    "Reciprocal": [*FRACTIONS, *COMPLEX],
    "Tanh": HALF_AND_FLOAT,
    "Erf": FRACTIONS,
    "Sigmoid": [*FRACTIONS, *COMPLEX],
    "Floor": [*FRACTIONS, *INTEGERS, *WIDE_UNSIGNED],
    "Ceil": FRACTIONS,
    "Round": [*FRACTIONS, "int32", "int64"],
    "Trunc": HALF_AND_FLOAT,
}


def named(function):
    return function.name


def expected_of(function, x, name="float64"):
    return function.reference(torch.from_numpy(x.astype(TYPES[name]))).numpy()


def ulps_of(function, name):
    """The last rounding adds 0.5 ulp. The error in float32 is below 0.5 ulp of a 16-bit type."""
    return function.ulps + 0.5 if name in ("float32", "float64") else 1


@pytest.mark.parametrize("function", MATH, ids=named)
def test_mathematical_functions_are_computed_in_float32_and_rounded_once(opapi_910b, function):
    for name in [*(n for n in FRACTIONS if n in function.inputs), "bfloat16"]:
        x = uniform(name, low=function.low)
        out = np.zeros_like(x)
        opapi_910b.call(function.name, function.given(strided(x), out))
        assert_close(out, expected_of(function, x), ulps_of(function, name))


@pytest.mark.parametrize("function", [f for f in MATH if "int64" in f.inputs], ids=named)
def test_integers_are_computed_as_float32(opapi_910b, function):
    for name in [n for n in ("int8", "int16", "int32", "int64", "uint8", "bool") if n in function.inputs]:
        x = random_of(name, (3, 50)) if name == "bool" else random_of(name, (3, 50)) % 5 + 1
        x = x.astype(TYPES[name])
        out = np.zeros(x.shape, np.float32)
        opapi_910b.call(function.name, function.given(x, out))
        assert_close(out, expected_of(function, x), function.ulps + 0.5)


@pytest.mark.parametrize("function", [f for f in MATH if "complex64" in f.inputs], ids=named)
def test_complex_numbers_are_computed_as_torch_does(opapi_910b, function):
    for name in COMPLEX:
        part = "float32" if name == "complex64" else "float64"
        x = (uniform(part, low=0.25) + 1j * uniform(part, seed=1, low=0.25)).astype(name)
        out = np.zeros_like(x)
        opapi_910b.call(function.name, function.given(x, out))
        expected = expected_of(function, x, "complex128")
        # Each part has an error of a few roundings of the magnitude.
        assert np.all(np.abs(out - expected) <= 16 * np.finfo(part).eps * np.abs(expected))


def test_the_kernel_has_the_type_of_self_and_its_result_is_cast(opapi):
    """float16 in, float32 out: the result is a float16 number."""
    x, out = uniform("float16"), np.zeros((5, 67), np.float32)
    opapi.call("Cos", {"input": x, "out": out})
    assert np.array_equal(out, out.astype(np.float16))
    rounded = np.zeros_like(x)
    opapi.call("Cos", {"input": x, "out": rounded})
    assert np.array_equal(out, rounded)


def test_sin_and_cos_round_the_angle_to_float32_only(opapi):
    """A rotary angle in float32: sin and cos of the float32 number, not of the number that it rounds."""
    x = np.array([np.float32(54321.0) * np.float32(0.7316), 1e7, 65504.0], np.float32)
    for op, name, reference in (("Cos", "input", np.cos), ("Sin", "self", np.sin)):
        out = np.zeros_like(x)
        opapi.call(op, {name: x, "out": out})
        assert_close(out, reference(x.astype(np.float64)), 1.5)


def test_rsqrt_casts_integers_to_the_type_of_out(opapi):
    """2053 rounds to 2052, and their results differ in float16."""
    x, out = np.array([2053], np.int64), np.zeros(1, np.float16)
    opapi.call("Rsqrt", {"self": x, "out": out})
    assert out[0] == np.float16(1 / np.sqrt(np.float32(2052)))


def test_sqrt_of_int64_is_computed_in_float64(opapi_910b):
    x = np.array([2**53 + 1, 3], np.int64)
    out = np.zeros(2)
    opapi_910b.call("Sqrt", {"self": x, "out": out})
    assert np.array_equal(out, np.sqrt(x.astype(np.float64)))


@pytest.mark.parametrize("function", ROUNDING, ids=named)
def test_roundings_are_exact(opapi_910b, function):
    for name in [*function.inputs, "bfloat16"]:
        x = uniform(name, low=-9, high=9) if name in (*FRACTIONS, "bfloat16") else random_of(name, (5, 67))
        if name in ("int8", "int16", "int32", "int64"):
            x = (x - 50).astype(TYPES[name])
        out = np.zeros_like(x)
        opapi_910b.call(function.name, function.given(x, out))
        if name in (*FRACTIONS, "bfloat16"):
            expected = expected_of(function, x).astype(x.dtype)
        elif function.name in ("Abs", "Sign"):
            expected = np.abs(x) if function.name == "Abs" else np.sign(x.astype(np.int64)).astype(x.dtype)
        else:
            expected = x
        assert_same(out, expected)


def test_round_takes_the_even_neighbour_of_a_tie(opapi_910b):
    x, out = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float16), np.zeros(6, np.float16)
    opapi_910b.call("Round", {"self": x, "out": out})
    assert out.tolist() == [-2, -2, 0, 0, 2, 2]


def test_large_integers_stay_exact(opapi_910b):
    x = np.array([2**62 + 1, -(2**62) - 1, -(2**63)], np.int64)
    for op in ("Floor", "Round", "Abs"):
        out = np.zeros_like(x)
        opapi_910b.call(op, {"self": x, "out": out})
        assert_same(out, np.abs(x) if op == "Abs" else x)


def test_abs_of_complex64_is_float32(opapi_910b):
    x, out = np.array([3 + 4j, -5j], np.complex64), np.zeros(2, np.float32)
    opapi_910b.call("Abs", {"self": x, "out": out})
    assert out.tolist() == [5, 5]
    assert_refused(opapi_910b, "Abs", {"self": x, "out": x.copy()}, "out must be .* but got complex64")


@pytest.mark.parametrize("function", ALL, ids=named)
def test_types_of_the_source_are_taken_and_others_refused(opapi, function):
    is_converted = function in MATH

    def given(name):
        x = random_of(name, (2, 3))
        out_name = name if not is_converted or name in (*FRACTIONS, *COMPLEX, "bfloat16") else "float32"
        if function.name == "Abs" and name == "complex64":
            out_name = "float32"
        return function.given(x, np.zeros((2, 3), TYPES[out_name]))

    on_910b = ["bfloat16", *(["complex64"] if function.name == "Abs" else [])]
    undocumented = function.undocumented
    if function.name == "Erf" and not opapi.is_310p:  # documented for Ascend910_93 only
        undocumented = ("bfloat16",)
    check_types(
        opapi,
        function.name,
        given,
        function.inputs,
        tuple(on_910b),
        undocumented,
        function.is_310p_unlisted,
        tuple(COMPLEX) if function.name == "Sign" else (),
    )


def undocumented_in_place(device, name):
    if name == "Sin":
        return ("float64", *COMPLEX)
    return ("bfloat16",) if name == "Erf" and not device.is_310p else ()


@pytest.mark.parametrize("name", IN_PLACE)
def test_functions_work_in_place(opapi, name):
    function = next(f for f in ALL if f.name == name)
    op, self_name = f"Inplace{name}", "input" if name == "Cos" else "self"
    check_types(
        opapi,
        op,
        lambda dtype: {self_name: random_of(dtype, (2, 3))},
        IN_PLACE[name],
        ("bfloat16",),
        undocumented_in_place(opapi, name),
        function.is_310p_unlisted,
    )
    x = uniform("float16", low=function.low)
    out = strided(x)
    opapi.call(op, {self_name: out})
    assert_close(np.ascontiguousarray(out), expected_of(function, x), 1)


@pytest.mark.parametrize("function", ALL, ids=named)
def test_arguments_are_checked(opapi_910b, function):
    x = np.ones((2, 3), np.float32)
    given = function.given(x, x.copy())
    assert_refused(opapi_910b, function.name, {**given, function.self_name: None}, "must not be null", NULL)
    assert_refused(opapi_910b, function.name, {**given, function.out_name: None}, "must not be null", NULL)
    wrong = np.ones((3, 2), np.float32)
    assert_refused(
        opapi_910b, function.name, function.given(x, wrong), r"must have the shape \[2,3\] but got \[3,2\]"
    )
    deep = np.ones((1,) * 9, np.float32)
    assert_refused(opapi_910b, function.name, function.given(deep, deep.copy()), "dimensions but got 9")
    if function in ROUNDING:
        other = np.ones((2, 3), np.float16)
        assert_refused(opapi_910b, function.name, function.given(x, other), "must be float32 but got float16")
    elif "complex64" in function.inputs:
        complex_x = x.astype(np.complex64)
        assert_refused(
            opapi_910b,
            function.name,
            function.given(complex_x, x),
            "a type to which complex64, the type of the result, converts but got float32",
        )


@pytest.mark.parametrize("function", ALL, ids=named)
def test_empty_tensors_and_scalars(opapi_910b, function):
    empty = np.ones((0, 3), np.float32)
    opapi_910b.call(function.name, function.given(empty, empty.copy()))
    x, out = np.array(1.0, np.float32), np.array(0.0, np.float32)
    if function.name in ("Log", "Sign"):
        given = function.given(x, out)
        assert_refused(opapi_910b, function.name, given, "1 to 8 dimensions but got 0")
    else:
        opapi_910b.call(function.name, function.given(x, out))
        assert_close(out, expected_of(function, x), 3)


def test_sigmoid_in_place_needs_a_dimension(opapi):
    assert_refused(
        opapi, "InplaceSigmoid", {"self": np.array(1.0, np.float32)}, "1 to 8 dimensions but got 0"
    )


def test_wide_unsigned_integers_of_floor_are_contiguous(opapi_910b):
    x = strided(random_of("uint32", (2, 3)))
    assert_refused(opapi_910b, "Floor", {"self": x, "out": np.zeros((2, 3), np.uint32)}, "must be contiguous")


def test_a_strided_output_of_log_goes_beyond_the_document(opapi_910b):
    x, out = np.full((2, 3), 2, np.float32), strided(np.zeros((2, 3), np.float32))
    assert_beyond_document(opapi_910b, "Log", {"self": x, "out": out}, STRIDED_OUT)
    opapi_910b.call("Log", {"self": x, "out": out})
    assert np.array_equal(out, np.log(x))


def test_bfloat16_of_erf_is_documented_for_ascend910_93_only():
    x = np.ones(3, TYPES["bfloat16"])
    for chip, reasons in (
        ("Ascend910B1", ["its document lists bfloat16 for Ascend910_93 only"]),
        ("Ascend910_9391", []),
    ):
        assert (
            reasons_beyond_document(Device.of_stand_ins(chip), "Erf", {"self": x, "out": x.copy()}) == reasons
        )


def test_is_finite_writes_bool(opapi):
    x, out = np.array([1, np.inf, -np.inf, np.nan, 65504], np.float16), np.zeros(5, np.bool_)
    opapi.call("IsFinite", {"self": x, "out": out})
    assert out.tolist() == [True, False, False, False, True]
    assert_refused(opapi, "IsFinite", {"self": x, "out": np.zeros(5, np.uint8)}, "out must be bool")
    check_types(
        opapi,
        "IsFinite",
        lambda name: {"self": random_of(name, 3), "out": np.zeros(3, np.bool_)},
        FRACTIONS,
        ("bfloat16",),
        (*INTEGERS, "bool"),
        is_310p_unlisted=True,
    )
    out = np.zeros(3, np.bool_)
    opapi.call("IsFinite", {"self": np.zeros(3, np.int32), "out": out})
    assert out.tolist() == [True] * 3


@pytest.mark.parametrize(("name", "status"), [("bfloat16", 561103), ("float16", INVALID)])
def test_the_status_of_another_result_type_of_sign(opapi_910b, name, status):
    """The source compares the types unless self is bfloat16, whose result it cannot copy to another type."""
    given = {"self": np.ones(3, TYPES[name]), "result": np.ones(3, np.float32)}
    assert_refused(opapi_910b, "Sign", given, f"result must be {name} but got float32", status)


def test_out_of_sigmoid_is_bfloat16_on_both_chips(opapi):
    given = {"self": np.array([0, 9], np.float32), "out": np.zeros(2, TYPES["bfloat16"])}
    assert reasons_beyond_document(opapi, "Sigmoid", given) == []
    opapi.call("Sigmoid", given)
    assert given["out"].tolist() == [0.5, 1]


def test_sigmoid_casts_integers_to_the_type_of_out(opapi):
    given = {"self": np.array([-3, 0, 2], np.int64), "out": np.zeros(3, np.float16)}
    assert_beyond_document(opapi, "Sigmoid", given, "its document does not list int64 for self")
    opapi.call("Sigmoid", given)
    assert_close(given["out"], 1 / (1 + np.exp(-given["self"].astype(np.float64))), 1)


def test_logical_not_accepts_any_real_types(opapi):
    for name in REAL:
        x = random_of(name, (4, 5), seed=1)
        x[0, :2] = 0
        for out_name in ("bool", "float16", "int64"):
            out = np.zeros((4, 5), TYPES[out_name])
            opapi.call("LogicalNot", {"self": strided(x), "out": out})
            assert_same(out, np.logical_not(x).astype(TYPES[out_name]))
    x = random_of("int32", (4, 5))
    expected = np.logical_not(x).astype(np.int32)
    opapi.call("InplaceLogicalNot", {"self": x})
    assert_same(x, expected)
    check_types(
        opapi,
        "LogicalNot",
        lambda name: {"self": random_of(name, 3), "out": random_of(name, 3)},
        REAL,
        ("bfloat16",),
    )


def test_logical_not_asks_for_the_casts_to_and_from_bool(opapi):
    x, out = np.ones(100, np.float32), np.zeros(100, np.bool_)
    size, _ = opapi.prepare("LogicalNot", {"self": x, "out": out})
    opapi.free_tensors()
    assert size == 512  # 100 bytes of bool


def test_bitwise_not_inverts_bits_and_bools(opapi):
    for name in ("int8", "int16", "int32", "int64", "uint8", "bool"):
        x = random_of(name, (4, 5))
        out = np.zeros_like(x)
        opapi.call("BitwiseNot", {"self": strided(x), "out": out})
        assert_same(out, np.invert(x))
    check_types(
        opapi,
        "BitwiseNot",
        lambda name: {"self": random_of(name, 3), "out": random_of(name, 3)},
        [*INTEGERS, "bool"],
    )
    x = random_of("int8", (4, 5))
    out = strided(np.zeros_like(x))
    assert_beyond_document(opapi, "BitwiseNot", {"self": x, "out": out}, STRIDED_OUT)
    opapi.call("BitwiseNot", {"self": x, "out": out})
    assert_same(np.ascontiguousarray(out), np.invert(x))


@pytest.mark.parametrize(
    ("name", "out", "is_reported"),
    [("bool", "complex64", True), ("int64", "complex128", True), ("int64", "float32", False),
     ("float32", "complex64", False)],
)  # fmt: skip
def test_a_complex_exponential_of_integers_is_reported(opapi_910b, name, out, is_reported):
    given = {"self": np.ones(3, TYPES[name]), "out": np.ones(3, TYPES[out])}
    reason = "its document requires a floating-point out for an integer or bool self"
    assert reasons_beyond_document(opapi_910b, "Exp", given) == [reason] * is_reported
