"""Results of arithmetic, comparisons, casts, copies, fills and ranges: those of torch on the CPU."""

import itertools

import numpy as np
import pytest
from aclnn import TYPES as NUMBER_OF_TYPE
from ml_dtypes import bfloat16
from operands import TYPES, assert_refused, assert_same, prepared, reasons_beyond_document, strided

torch = pytest.importorskip("torch")

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
NUMBERS = [*FLOATS, *INTEGERS, "bool"]
COMPLEX = ["complex64", "complex128"]
SCALARS = [np.int64(2), np.int64(-3), np.float64(0.5), np.float64(0.1), np.bool_(True)]
# alpha is a power of two: torch adds with FMA, of which the simulated CANN has none.
TWO = np.int64(2)
ARITHMETIC = {
    "Add": lambda x, y: torch.add(x, y, alpha=2),
    "Sub": lambda x, y: torch.sub(x, y, alpha=2),
    "Mul": torch.mul,
    "Div": torch.div,
}
COMPARISONS = {
    "Eq": torch.eq,
    "Ne": torch.ne,
    "Lt": torch.lt,
    "Le": torch.le,
    "Gt": torch.gt,
    "Ge": torch.ge,
}


def values(name, shape, seed):
    """Random numbers, so small that no type overflows, with both signs if the type has them."""
    random = np.random.default_rng(seed)
    if name == "bool":
        return np.asarray(random.random(shape) > 0.5)
    if name in FLOATS:
        return np.asarray(random.normal(0, 3, shape)).astype(TYPES[name])
    if name in COMPLEX:
        return np.asarray(random.normal(0, 3, shape) + 1j * random.normal(0, 3, shape)).astype(TYPES[name])
    return np.asarray(random.integers(-5 if name.startswith("int") else 0, 6, shape)).astype(TYPES[name])


def to_torch(array):
    """A copy as a tensor."""
    array = np.array(array)
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def like(tensor):
    """An array of ones with the type and the shape of a tensor."""
    return np.ones(tuple(tensor.shape), TYPES[str(tensor.dtype).removeprefix("torch.")])


def assert_equal(got, expected, message=None):
    """Bits may differ in NaN only."""
    got = to_torch(got)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), message
    torch.testing.assert_close(
        got, expected, rtol=0, atol=0, equal_nan=True, msg=lambda text: f"{message}: {text}"
    )
    if got.dtype.is_floating_point:
        zeros = expected == 0
        assert torch.equal(torch.signbit(got[zeros]), torch.signbit(expected[zeros])), message


def torch_has(op, x, y):
    """torch does not subtract bool."""
    return not (op == "Sub" and "bool" in (str(np.asarray(x).dtype), str(np.asarray(y).dtype)))


# ---- arithmetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ARITHMETIC)
def test_two_tensors_of_any_types(opapi_910b, op):
    for a, b in itertools.product(NUMBERS, NUMBERS):
        x, y = values(a, (3, 5), 1), values(b, (3, 5), 2)
        if torch_has(op, x, y):
            expected = ARITHMETIC[op](to_torch(x), to_torch(y))
            out = like(expected)
            opapi_910b.call(op, {"self": x, "other": y, "alpha": TWO, "out": out})
            assert_equal(out, expected, (a, b))


@pytest.mark.parametrize("op", ARITHMETIC)
def test_a_tensor_and_a_scalar(opapi_910b, op):
    for name, number in itertools.product(NUMBERS, SCALARS):
        x = values(name, (3, 5), 1)
        if torch_has(op, x, number):
            expected = ARITHMETIC[op](to_torch(x), number.item())
            out = like(expected)
            opapi_910b.call(f"{op}s", {"self": x, "other": number, "alpha": TWO, "out": out})
            assert_equal(out, expected, (name, number))


@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_in_place(opapi_910b, op):
    for name in NUMBERS:
        x, y, number = values(name, (3, 5), 1), values(name, (3, 5), 2), TYPES[name](1)
        if (op == "Div" and name not in FLOATS) or not torch_has(op, x, y):
            continue
        for form, other, torch_other in ((op, y, to_torch(y)), (f"{op}s", number, number.item())):
            changed = strided(x)
            opapi_910b.call(f"Inplace{form}", {"self": changed, "other": other, "alpha": TWO})
            assert_equal(changed, ARITHMETIC[op](to_torch(x), torch_other), (form, name))


def test_the_factor_of_an_integer_may_be_a_fraction(opapi_910b):
    """aclnn_mul.cpp, InferTensorScalarDtype: the product is computed in the common type and then cast."""
    x = np.arange(-9, 10, dtype=np.int32)
    out, in_place = np.ones_like(x), x.copy()
    opapi_910b.call("Muls", {"self": x, "other": np.float64(0.75), "out": out})
    opapi_910b.call("InplaceMuls", {"self": in_place, "other": np.float64(0.75)})
    expected = np.trunc(x * 0.75).astype(np.int32)
    assert_same(out, expected)
    assert_same(in_place, expected)


def test_a_quotient_of_integers_is_truncated(opapi_910b):
    """C++ does not define quotients by 0 and of the least number by -1: both are the negative dividend."""
    least = np.iinfo(np.int64).min
    x = np.array([7, -7, 7, -7, 6, 0, 9, -9, 5, -5, 0, least, least, least], np.int64)
    y = np.array([2, 2, -2, -2, 3, 3, -1, -1, 0, 0, 0, -1, 0, 2], np.int64)
    expected = np.array([3, -3, -3, 3, 2, 0, -9, 9, -5, 5, 0, least, least, least // 2], np.int64)
    out = np.ones_like(x)
    opapi_910b.call("Div", {"self": x, "other": y, "out": out})
    assert_same(out, expected)
    opapi_910b.call("InplaceDiv", {"self": x, "other": y})
    assert_same(x, expected)


def test_integers_wrap(opapi_910b):
    x = np.array([127, -128, 100], np.int8)
    big = np.array([2**63 - 1, -(2**63)], np.int64)
    for op, given, expected in (
        ("Add", {"self": x, "other": x.copy(), "alpha": np.int64(1)}, x + x),
        ("Muls", {"self": x, "other": np.int64(3)}, x * np.int8(3)),
        ("Adds", {"self": big, "other": np.int64(1), "alpha": np.int64(1)}, big + 1),
        ("Subs", {"self": big, "other": np.int64(1), "alpha": np.int64(1)}, big - 1),
        ("Neg", {"self": big}, -big),
    ):
        out = np.zeros_like(given["self"])
        opapi_910b.call(op, {**given, "out": out})
        assert_same(out, expected)


def test_negation(opapi_910b):
    for name in [*FLOATS, "int8", "int32", "int64", *COMPLEX]:
        x = values(name, (3, 5), 1)
        out, changed = np.ones_like(x), strided(x)
        opapi_910b.call("Neg", {"self": x, "out": out})
        assert_equal(out, -to_torch(x))
        opapi_910b.call("InplaceNeg", {"self": changed})
        assert_equal(changed, -to_torch(x))


@pytest.mark.parametrize("op", ARITHMETIC)
def test_complex_numbers(opapi_910b, op):
    """The products and quotients of torch and of C++ round differently."""
    for a, b in itertools.product(COMPLEX, [*COMPLEX, "float32", "float64", "int32"]):
        x, y = values(a, (3, 5), 1), values(b, (3, 5), 2)
        for one, other in ((x, y), (y, x)):
            expected = ARITHMETIC[op](to_torch(one), to_torch(other))
            out = like(expected)
            opapi_910b.call(op, {"self": one, "other": other, "alpha": TWO, "out": out})
            torch.testing.assert_close(to_torch(out), expected)
    x = values("complex64", (3, 5), 1)
    expected = ARITHMETIC[op](to_torch(x), 2 - 1j)
    out = like(expected)
    opapi_910b.call(f"{op}s", {"self": x, "other": np.complex64(2 - 1j), "alpha": TWO, "out": out})
    torch.testing.assert_close(to_torch(out), expected)


def test_float64_keeps_its_precision(opapi_910b):
    x, out = values("float64", 7, 1), np.zeros(7)
    opapi_910b.call("Adds", {"self": x, "other": np.float64(1e-12), "alpha": TWO, "out": out})
    assert_same(out, x + 2e-12)


SHAPES = (
    ((2, 1, 4), (3, 1)),
    ((4,), (2, 3, 4)),
    ((), (3, 2)),
    ((3, 2), ()),
    ((1,), ()),
    ((), ()),
    ((0, 3), (3,)),
    ((2, 300), (1,)),
    ((2, 1), (2, 513)),
)


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_operands_broadcast(opapi_910b, a, b):
    x, y = values("float32", a, 1), values("float32", b, 2)
    expected = to_torch(x) * to_torch(y)
    for out in (like(expected), strided(like(expected))):
        opapi_910b.call("Mul", {"self": x, "other": y, "out": out})
        assert_equal(out, expected)


def promoted(one, other):
    types = (getattr(torch, name) for name in (one, other))
    return str(torch.promote_types(*types)).removeprefix("torch.")


def test_the_common_type_is_torchs(opapi_910b):
    """A refused call names it."""
    for a, b in itertools.product([*NUMBERS, *COMPLEX], repeat=2):
        if (a, b) != ("bool", "bool"):
            x, y, out = (np.ones(2, TYPES[name]) for name in (a, b, "bool"))
            message = f"out must have a type to which {promoted(a, b)}, the type of the result,"
            assert_refused(opapi_910b, "Mul", {"self": x, "other": y, "out": out}, message)


@pytest.mark.parametrize(
    ("name", "scalar", "out", "common"),
    [
        ("int32", "float64", "int32", "float64"),
        ("int32", "float64", "bool", "float64"),
        ("int32", "float16", "int32", "float16"),
        ("int32", "float32", "int64", "float32"),
        ("int8", "int64", "bool", "int8"),
        ("int8", "bool", "bool", "int8"),
        ("bool", "int64", "bool", "int64"),
        ("bool", "float64", "int32", "float64"),
        ("float16", "float64", "int32", "float16"),
        ("float16", "int64", "bool", "float16"),
        ("float16", "complex64", "float16", "complex64"),
        ("float64", "complex64", "float64", "complex128"),
        ("complex64", "float64", "float32", "complex128"),
        ("complex64", "int64", "float32", "complex64"),
    ],
)
def test_the_common_type_with_a_scalar(opapi_910b, name, scalar, out, common):
    """hicann/ops-math math/add/op_api/aclnn_add.cpp, PromoteTypeScalar. A refused call names it."""
    given = {"self": np.ones(2, TYPES[name]), "other": TYPES[scalar](1), "out": np.ones(2, TYPES[out])}
    message = f"out must have a type to which {common}, the type of the result,"
    for op in ("Adds", "Subs"):
        assert_refused(opapi_910b, op, {**given, "alpha": np.bool_(True)}, message)


def test_a_double_scalar_has_the_type_of_a_float32_out(opapi_910b):
    x, out = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)
    opapi_910b.call("Adds", {"self": x, "other": np.float64(0.5), "alpha": np.float32(1), "out": out})
    assert_same(out, x.astype(np.float32) + np.float32(0.5))


# ---- comparisons ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_of_any_types(opapi_910b, op):
    for a, b in itertools.product(NUMBERS, NUMBERS):
        x, y = values(a, (3, 5), 1), values(b, (3, 5), 2)
        out = np.zeros((3, 5), np.bool_)
        opapi_910b.call(f"{op}Tensor", {"self": x, "other": y, "out": out})
        assert_equal(out, COMPARISONS[op](to_torch(x), to_torch(y)), (a, b))
    for name, number in itertools.product(NUMBERS, SCALARS):
        x = values(name, (3, 5), 1)
        opapi_910b.call(f"{op}Scalar", {"self": x, "other": number, "out": out})
        assert_equal(out, COMPARISONS[op](to_torch(x), number.item()), (name, number))


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_in_place(opapi_910b, op):
    """The result has the type of self."""
    for name in NUMBERS:
        x, y = values(name, (3, 5), 1), values(name, (3, 5), 2)
        for form, other, torch_other in (("Tensor", y, to_torch(y)), ("Scalar", TYPES[name](1), 1)):
            changed = strided(x)
            opapi_910b.call(f"Inplace{op}{form}", {"self": changed, "other": other})
            expected = COMPARISONS[op](to_torch(x), torch_other).to(to_torch(x).dtype)
            assert_equal(changed, expected, (form, name))


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_of_special_numbers(opapi_910b, op):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    for y in (np.ascontiguousarray(x[::-1]), x.copy(), np.roll(x, 1)):
        out = np.zeros(5, np.float32)  # the result, bool, converts to every type
        opapi_910b.call(f"{op}Tensor", {"self": x, "other": y, "out": out})
        assert_equal(out, COMPARISONS[op](to_torch(x), to_torch(y)).float())


def test_complex_numbers_are_equal_in_both_parts(opapi_910b):
    x = np.array([1 + 2j, 1 + 2j, 1 + 2j, 2j], np.complex64)
    for y in (np.array([1 + 2j, 1 - 2j, 2 + 2j, 0], np.complex128), np.array([1, 1, 2, 0], np.float32)):
        for op, expected in (("Eq", x == y), ("Ne", x != y)):
            out = np.zeros(4, np.bool_)
            opapi_910b.call(f"{op}Tensor", {"self": x, "other": y, "out": out})
            assert_same(out, expected)


def test_a_tensor_without_dimensions_keeps_the_type_of_the_other(opapi_910b):
    """As in torch, unless it has a higher category of types."""
    big = 2**53 + 1
    for x, y in (
        (np.array([0.1, 0.2], np.float32), np.array(0.1)),
        (np.array([big, big - 1], np.int64), np.array(float(big - 1), np.float64)),
        (np.array([0.5, 1.0], np.float64), np.array(1, np.int64)),
        (np.array([big, big - 1], np.int64), np.array(5, np.int8)),
        (np.array([1, 2], np.int32), np.array(1.5, np.float32)),
    ):
        for one, other in ((x, y), (y, x)):
            out = np.zeros(2, np.bool_)
            for op in ("Eq", "Lt", "Ge"):
                opapi_910b.call(f"{op}Tensor", {"self": one, "other": other, "out": out})
                assert_equal(out, COMPARISONS[op](to_torch(one), to_torch(other)), (one, other))


def test_a_scalar_is_compared_in_the_type_of_the_tensor(opapi_910b):
    for name in FLOATS:
        x, out = np.array([0.1, 0.2]).astype(TYPES[name]), np.zeros(2, np.bool_)
        opapi_910b.call("EqScalar", {"self": x, "other": np.float64(0.1), "out": out})
        assert out.tolist() == [True, False], name


# ---- casts and copies ----------------------------------------------------------------------------

ALL = [*NUMBERS, *COMPLEX, "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("a", ALL)
def test_casts_of_every_pair(opapi_910b, a):
    """uint8 is not negative; the parts of complex numbers are those of torch."""
    for b in ALL:
        x = values(a, (2, 7), 1)
        if b.startswith("u") and a != "bool":
            x = abs(x).astype(TYPES[a])
        out, copied = np.ones((2, 7), TYPES[b]), np.ones((2, 7), TYPES[b])
        opapi_910b.call("Cast", {"self": strided(x), "dtype": NUMBER_OF_TYPE[b], "out": out})
        opapi_910b.call("InplaceCopy", {"self": copied, "src": x})
        assert_same(copied, out)
        real = x.real if a in COMPLEX and b not in COMPLEX and b != "bool" else x
        assert_same(out, real.astype(TYPES[b]))


@np.errstate(over="ignore")
def test_halves_round_to_nearest_even(opapi_910b):
    """Every finite float16, the midpoints between neighbours, and values that overflow or underflow."""
    half = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.sort(half[np.isfinite(half)].astype(np.float32))
    between = (finite[1:] + finite[:-1]) / 2
    ends = np.array([65519, 65520, 1e30, -1e30, 1e-8, 3e-8, 0, -0.0, np.inf, -np.inf], np.float32)
    around = [np.nextafter(between, np.float32(to)) for to in (np.inf, -np.inf)]
    x = np.concatenate([finite, between, ends, *around])
    for name in ("float16", "bfloat16"):
        out = np.zeros(x.shape, TYPES[name])
        opapi_910b.call("Cast", {"self": x, "dtype": NUMBER_OF_TYPE[name], "out": out})
        assert_same(out, x.astype(TYPES[name]))
    wide = np.zeros(half.shape, np.float32)
    opapi_910b.call("Cast", {"self": half, "dtype": NUMBER_OF_TYPE["float32"], "out": wide})
    assert_same(wide, half.astype(np.float32))


def test_nan_stays_nan_in_a_shorter_type(opapi_910b):
    """The sign and the first bits of the fraction stay. If only other bits are set, the NaN becomes quiet."""
    x = np.array([0x7FC00000, 0xFFC02000, 0x7F800001, 0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    for name, expected in (
        ("float16", [0x7E00, 0xFE01, 0x7E00, 0xFE00, 0x7FFF]),
        ("bfloat16", [0x7FC0, 0xFFC0, 0x7FC0, 0xFFC0, 0x7FFF]),
    ):
        out = np.zeros(x.shape, TYPES[name])
        opapi_910b.call("Cast", {"self": x, "dtype": NUMBER_OF_TYPE[name], "out": out})
        assert out.view(np.uint16).tolist() == expected


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_floats_become_integers(opapi_910b, name):
    """They are truncated. Beyond 64 bits: the least int64. Shorter types have the last bits of an int64."""
    least, below = -(2**63), 2**63 - (2**39 if name == "float32" else 2**10)
    x = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 2**63, -(2**63), -(2**64), below, 300.5], TYPES[name])
    integers = [1, -1, least, least, least, least, least, least, below, 300]
    for to in INTEGERS:
        out = np.zeros(x.shape, TYPES[to])
        opapi_910b.call("Cast", {"self": x, "dtype": NUMBER_OF_TYPE[to], "out": out})
        assert_same(out, np.array(integers, np.int64).astype(TYPES[to]))


def test_a_cast_has_the_type_of_its_argument(opapi):
    x = np.ones(3, np.float32)
    given = {"self": x, "dtype": NUMBER_OF_TYPE["float16"], "out": x.copy()}
    assert_refused(opapi, "Cast", given, "out must have the data type of the argument dtype")
    given = {"self": x, "dtype": NUMBER_OF_TYPE["float16"], "out": np.ones((2, 3), np.float16)}
    assert_refused(opapi, "Cast", given, r"out must have the shape \[3\] but got \[2,3\]")


def test_a_copy_broadcasts(opapi_910b):
    for shape in ((3,), (1, 3), (2, 1), (), (2, 3)):
        x, out = values("float32", shape, 1), strided(np.ones((2, 3), np.float16))
        opapi_910b.call("InplaceCopy", {"self": out, "src": x})
        assert_same(np.ascontiguousarray(out), np.broadcast_to(x, (2, 3)).astype(np.float16))
    given = {"self": np.ones((2, 3), np.float32), "src": np.ones((2,), np.float32)}
    assert_refused(opapi_910b, "InplaceCopy", given, r"src must broadcast to \[2,3\] but got \[2\]")


def test_an_overlapping_copy_reads_the_old_values(opapi_910b):
    for to, source in ((slice(1, 601), slice(0, 600)), (slice(0, 600), slice(1, 601))):
        x = values("float32", 601, 1)
        expected = x.copy()
        expected[to] = x[source]
        opapi_910b.call("InplaceCopy", {"self": x[to], "src": x[source]})
        assert_same(x, expected)


@pytest.mark.parametrize("part", ["float32", "float64"])
def test_complex_has_two_parts(opapi_910b, part):
    out_type = {"float32": np.complex64, "float64": np.complex128}[part]
    for a, b in (((2, 5), (2, 5)), ((5,), (2, 1)), ((), (2, 5))):
        real, imag = values(part, a, 1), values(part, b, 2)
        for out in (np.ones((2, 5), out_type), strided(np.ones((2, 5), out_type))):
            opapi_910b.call("Complex", {"real": strided(real), "imag": imag, "out": out})
            assert_same(np.ascontiguousarray(out), (real + 1j * imag).astype(out_type))
    x = np.ones(3, np.float32)
    for name in ("real", "imag"):
        given = {"real": x, "imag": x.copy(), "out": np.ones(3, np.complex64)}
        given[name] = np.ones(3)
        assert_refused(opapi_910b, "Complex", given, "real and imag must be float32, as the parts of out")


# ---- fills and ranges ----------------------------------------------------------------------------


@np.errstate(over="ignore")
def test_fills(opapi_910b):
    numbers = [np.int64(-3), np.int64(2**53 + 1), np.float64(0.1), np.bool_(True), np.complex64(2 - 1j)]
    for name, number in itertools.product([*NUMBERS, *COMPLEX], numbers):
        if (name == "uint8" and number == -3) or (np.iscomplexobj(number) and name not in COMPLEX):
            continue
        for shape in ((2, 300), ()):
            out = strided(np.zeros(shape, TYPES[name]))
            opapi_910b.call("InplaceFillScalar", {"self": out, "value": number})
            expected = np.full(shape, np.asarray(number).astype(TYPES[name]))
            assert_same(np.ascontiguousarray(out).reshape(shape), expected)
            for value in (np.asarray(number), np.asarray(number)[None]):
                out = strided(np.zeros(shape, TYPES[name]))
                opapi_910b.call("InplaceFillTensor", {"self": out, "value": value})
                assert_same(np.ascontiguousarray(out).reshape(shape), expected)


def test_zeros_and_ones(opapi_910b):
    for op, value, names in (("Zero", 0, [*NUMBERS, *COMPLEX, "uint16"]), ("One", 1, NUMBERS)):
        for name in names:
            out = strided(np.full((2, 300), 5).astype(TYPES[name]))
            opapi_910b.call(f"Inplace{op}", {"self": out})
            assert_same(np.ascontiguousarray(out), np.full((2, 300), value).astype(TYPES[name]))


def test_zeros_of_bfloat16_go_beyond_the_document_on_ascend310p(opapi):
    reasons = ["its document does not list bfloat16 for self"] if opapi.is_310p else []
    given = {"self": np.ones(3, TYPES["bfloat16"])}
    assert reasons_beyond_document(opapi, "InplaceZero", given) == reasons
    assert reasons_beyond_document(opapi, "InplaceZero", {"self": np.ones(3, np.float16)}) == []


def test_a_value_that_fills_has_one_element(opapi):
    given = {"self": np.ones(3, np.float32)}
    for value in (np.ones(2, np.float32), np.ones(0, np.float32), np.ones((1, 1), np.float32)):
        message = (
            "value must have one element and at most one dimension but got "
            rf"{value.size} element\(s\) in {value.ndim} dimension\(s\)"
        )
        assert_refused(opapi, "InplaceFillTensor", {**given, "value": value}, message)


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("uint16", "int64", True),
        ("uint64", "float32", True),
        ("float16", "uint16", True),
        ("float32", "uint64", True),
        ("complex64", "uint32", True),
        ("uint32", "complex64", False),
        ("uint32", "uint32", False),
    ],
)
def test_the_value_of_a_wide_unsigned_tensor_has_a_common_type(opapi_910b, name, value, is_refused):
    given = {"self": np.ones(3, TYPES[name]), "value": TYPES[value](1)}
    if is_refused:
        message = f"self and value must have a common type but got {name} and {value}[.]"
        assert_refused(opapi_910b, "InplaceFillScalar", given, message)
    else:
        prepared(opapi_910b, "InplaceFillScalar", given)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int32", "int64"])
def test_ranges(opapi_910b, name):
    for bounds in ((0, 5, 1), (2, 9, 1), (0, 10, 3), (10, 0, -3), (5, 5, 1), (0, 601, 1)):
        start, end, step = map(np.int64, bounds)
        expected = np.arange(*bounds).astype(TYPES[name])
        for out in (np.ones_like(expected), strided(np.ones_like(expected))):
            opapi_910b.call("Arange", {"start": start, "end": end, "step": step, "out": out})
            assert_same(np.ascontiguousarray(out), expected)


def test_a_range_of_fractions(opapi_910b):
    bounds = {"start": np.float32(0.5), "end": np.float64(1.25), "step": np.float64(0.1)}
    for name in FLOATS:
        out = np.ones((2, 4), TYPES[name])
        opapi_910b.call("Arange", {**bounds, "out": out})
        assert_same(out, (0.5 + np.arange(8) * 0.1).reshape(2, 4).astype(TYPES[name]))


def test_a_range_of_large_integers_is_exact(opapi_910b):
    start = 2**62 + 1
    out = np.ones(2, np.int64)
    bounds = {"start": np.int64(start), "end": np.int64(start + 2**60), "step": np.int64(2**59)}
    opapi_910b.call("Arange", {**bounds, "out": out})
    assert out.tolist() == [start, start + 2**59]


@pytest.mark.parametrize(
    ("name", "step", "message"),
    [
        ("int32", 0.1, "step must not be 0 after its conversion to int64[.]"),
        ("int64", 0.1, "step must not be 0 after its conversion to int64[.]"),
        ("float32", 1e-60, "step must not be 0[.]"),
        ("float16", 1e-60, "step must not be 0[.]"),
    ],
)
def test_the_step_of_a_range_is_checked_in_the_type_of_the_range(opapi_910b, name, step, message):
    given = {"start": np.float64(0.5), "end": np.float64(0.5 + 8 * step), "step": np.float64(step)}
    given["out"] = np.ones(8 if step == 0.1 else 0, TYPES[name])
    assert_refused(opapi_910b, "Arange", given, message)


@pytest.mark.parametrize(
    ("bounds", "count", "message"),
    [
        ((0, 5, 0), 5, "step must not be 0"),
        ((0, 5, -1), 5, "end must lie in step's direction from start"),
        ((5, 0, 1), 5, "end must lie in step's direction from start"),
        ((0, 5, 1), 4, "out must have 5 elements but got 4"),
        ((0, 5, 2), 2, "out must have 3 elements but got 2"),
        ((0, -5, -2), 4, "out must have 3 elements but got 4"),
    ],
)
def test_ranges_that_are_refused(opapi, bounds, count, message):
    start, end, step = map(np.int64, bounds)
    given = {"start": start, "end": end, "step": step, "out": np.ones(count, np.int64)}
    assert_refused(opapi, "Arange", given, message)
