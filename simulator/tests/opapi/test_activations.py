"""Activation functions, of one tensor and gated, against torch in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from operands import (
    HALF_AND_FLOAT,
    NULL,
    TYPES,
    UNLISTED_CHIP,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    prepared,
    random_of,
    reasons_beyond_document,
    strided,
)
from ulps import assert_close, uniform

torch = pytest.importorskip("torch")
F = torch.nn.functional

ONE, TWO = np.float32(1), np.float32(2)
ELU = {"alpha": np.float32(1.5), "scale": np.float32(1.25), "input_scale": np.float32(0.5)}


@dataclass(frozen=True)
class Activation:
    """An activation, torch's form of it, and its error in float32: `ulps` of the result and `epsilons` of 1.

    The epsilons cover sums such as exp(x) - 1, whose terms are larger than the result.
    """

    name: str
    reference: Any
    ulps: float
    epsilons: float = 0
    arguments: Any = None
    is_310p_unlisted: bool = False  # by the document; the source accepts the calls
    more_types: tuple[str, ...] = ()
    self_name: str = "self"
    out_name: str = "out"
    undocumented: tuple[str, ...] = ()  # types that only the source has

    def given(self, x: Any, out: Any) -> dict[str, Any]:
        return {self.self_name: x, self.out_name: out, **(self.arguments or {})}


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def elu(x):
    return 1.25 * torch.where(x > 0, x, 1.5 * (torch.exp(0.5 * x) - 1))


# A relative error of one epsilon is at most 2 ulps.
# GELU by tanh: the exponent is at most 11 for |x| <= 4. It has a relative error of 2.5 epsilons: the constant
# and the 3 products of the cubic part, which is below 0.43 of the sum, the sum, and the last product with its
# constant. So exp has a relative error of 28 epsilons. The sum and the quotient add 1 ulp.
# GELU by erfc: the rounded argument has a relative error of 1 epsilon, and the condition of erfc is below 17.
TANH_ULPS, ERFC_ULPS = 2 * 28 + 2, 2 * 17 + 2
ACTIVATIONS = [
    Activation(
        "Relu", torch.relu, 0, is_310p_unlisted=True, more_types=("int8", "int32", "int64"),
        undocumented=("uint8",),
    ),
    Activation("Hardsigmoid", F.hardsigmoid, 1.5, 0.5, is_310p_unlisted=True, more_types=("int32",)),
    Activation("Hardswish", F.hardswish, 3, is_310p_unlisted=True),
    Activation("Gelu", gelu_tanh, TANH_ULPS),
    Activation("GeluV2", F.gelu, ERFC_ULPS, arguments={"approximate": 0}, self_name="x", out_name="y"),
    Activation("GeluV2", gelu_tanh, TANH_ULPS, arguments={"approximate": 1}, self_name="x", out_name="y"),
    Activation("Silu", F.silu, 4),
    Activation("Elu", elu, 3, 4, ELU),
    Activation(
        "LeakyRelu", lambda x: F.leaky_relu(x, 0.125), 1, 0, {"negative_slope": np.float32(0.125)}, True,
        undocumented=("float64",),
    ),
    Activation("Softplus", F.softplus, 3, 1, {"beta": ONE, "threshold": np.float32(20)}),
    Activation(
        "Threshold", lambda x: F.threshold(x, 1, 2), 0, 0,
        {"threshold": np.int8(1), "value": np.int8(2)}, True,
        ("int8", "int16", "int32", "int64", "uint8"),
    ),
]  # fmt: skip
CONVERTING = ("Hardswish", "Elu", "LeakyRelu", "Softplus", "Threshold")


def types_of(device, name, types):
    """The kernel of Threshold on Ascend310P has no int64."""
    return [t for t in types if not (name == "Threshold" and t == "int64" and device.is_310p)]


def named(activation):
    return activation.name + str((activation.arguments or {}).get("approximate", ""))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=named)
def test_activations_are_computed_in_float32_and_rounded_once(opapi_910b, activation):
    for name in [*HALF_AND_FLOAT, "bfloat16"]:
        x = uniform(name)
        out = np.zeros_like(x)
        opapi_910b.call(activation.name, activation.given(strided(x), out))
        expected = activation.reference(torch.from_numpy(x.astype(np.float64))).numpy()
        ulps = activation.ulps + 0.5 if name == "float32" else 1
        assert_close(out, expected, ulps, activation.epsilons)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=named)
def test_arguments_are_checked(opapi, activation):
    x = np.ones((2, 3), np.float32)
    given = activation.given(x, x.copy())

    def of_type(name):
        return activation.given(random_of(name, (2, 3)), np.zeros((2, 3), TYPES[name]))

    check_types(
        opapi,
        activation.name,
        of_type,
        [*HALF_AND_FLOAT, *types_of(opapi, activation.name, activation.more_types)],
        ("bfloat16",),
        activation.undocumented,
        activation.is_310p_unlisted,
    )
    for key in given:
        if key != "approximate":
            assert_refused(opapi, activation.name, {**given, key: None}, "must not be null", NULL)
    wrong = activation.given(x, np.ones((3, 2), np.float32))
    assert_refused(opapi, activation.name, wrong, "must have the shape")
    other = activation.given(x, np.zeros((2, 3), np.float16))
    if activation.name in CONVERTING:
        opapi.call(activation.name, other)
    else:
        assert_refused(opapi, activation.name, other, "must be float32 but got float16")
    deep = np.ones((1,) * 9, np.float32)
    assert_refused(opapi, activation.name, activation.given(deep, deep.copy()), "dimensions but got 9")
    empty = np.ones((0, 3), np.float32)
    opapi.call(activation.name, activation.given(empty, empty.copy()))
    scalar = np.array(0.5, np.float32)
    opapi.call(activation.name, activation.given(scalar, scalar.copy()))


@pytest.mark.parametrize(
    ("name", "more_types"),
    [
        ("Relu", ("int8", "int32", "int64", "uint8")),
        ("Hardsigmoid", ("int32",)),
        ("Hardswish", ()),
        ("Elu", ("float64",)),
        ("LeakyRelu", ("float64",)),
        ("Threshold", ("int8", "int16", "int32", "int64", "uint8")),
    ],
)
def test_activations_work_in_place(opapi, name, more_types):
    activation = next(a for a in ACTIVATIONS if a.name == name)
    op, arguments = f"Inplace{name}", activation.arguments or {}
    check_types(
        opapi,
        op,
        lambda dtype: {"self": random_of(dtype, 3), **arguments},
        [*HALF_AND_FLOAT, *types_of(opapi, name, more_types)],
        ("bfloat16",),
        is_310p_unlisted=activation.is_310p_unlisted,
    )
    for dtype in ("float32", *(["float64"] if "float64" in more_types else [])):
        x = uniform(dtype)
        expected = activation.reference(torch.from_numpy(x.astype(np.float64))).numpy()
        x = strided(x)
        opapi.call(op, {"self": x, **arguments})
        assert_close(np.ascontiguousarray(x), expected, activation.ulps + 0.5, activation.epsilons)


def test_in_place_functions_pack_input_and_result_of_a_view(opapi):
    x, bytes_of_one = strided(np.ones((16, 32), np.float16)), 1024 + 512  # and CANN's padding
    other, mask = np.ones((16, 32), np.float16), np.zeros((16, 32), np.bool_)
    for op, more in (
        ("InplaceHardsigmoid", {}),
        ("InplaceLerp", {"end": other, "weight": other}),
        ("InplaceMaskedFillScalar", {"mask": mask, "value": np.float32(1)}),
    ):
        assert prepared(opapi, op, {"self": x, **more})[0] == 2 * bytes_of_one
        assert prepared(opapi, op, {"self": other.copy(), **more})[0] == 0


def test_relu_keeps_what_is_not_below_zero(opapi):
    """The document's words: a value that is at least 0. This includes -0.0; NaN is not below 0."""
    x = np.array([-0.0, 0.0, -1, 1, np.inf, -np.inf, np.nan], np.float32)
    out, changed = np.ones_like(x), x.copy()
    opapi.call("Relu", {"self": x, "out": out})
    opapi.call("InplaceRelu", {"self": changed})
    expected = np.array([-0.0, 0.0, 0, 1, np.inf, 0, np.nan], np.float32)
    assert_same(out, expected)
    assert_same(changed, expected)


def test_activations_of_special_numbers(opapi):
    """At the bounds of their parts, and of infinity and NaN, as in torch.

    By the documents, Hardswish of -infinity is 0, and Threshold replaces NaN.
    """
    for activation in ACTIVATIONS:
        if activation.name not in ("Relu", "Gelu", "GeluV2", "Silu"):
            least = -4 if activation.name == "Hardswish" else -np.inf
            x = np.array([least, -3, -1, -0.0, 0.0, 1, 3, np.inf, np.nan], np.float32)
            out = np.ones_like(x)
            opapi.call(activation.name, activation.given(x, out))
            expected = activation.reference(torch.from_numpy(x.astype(np.float64))).numpy()
            if activation.name == "Threshold":
                expected[-1] = 2
            assert_close(out, expected, activation.ulps + 0.5, activation.epsilons)


def test_integers(opapi_910b):
    x = np.arange(-5, 6, dtype=np.int32)
    out = np.zeros_like(x)
    opapi_910b.call("Relu", {"self": x, "out": out})
    assert_same(out, np.maximum(x, 0))
    opapi_910b.call("Hardsigmoid", {"self": x, "out": out})  # computed in float32 and truncated
    assert_same(out, (x >= 3).astype(np.int32))
    given = {"self": x, "threshold": np.float64(-0.5), "value": np.int32(7), "out": out}
    opapi_910b.call("Threshold", given)
    assert_same(out, np.where(x > -0.5, x, 7).astype(np.int32))


def test_the_common_type_of_threshold_should_convert_to_out(opapi):
    """The source checks the type of self only. The document of the form in place does not have this rule."""
    x = np.ones(3, np.int32)
    given = {"self": x, "threshold": np.int32(1), "value": np.int32(2)}
    unlisted = [UNLISTED_CHIP] if opapi.is_310p else []
    reason = "its document requires an out to which the common type of self, threshold and value converts"
    for changes in ({}, {"value": ONE}, {"threshold": np.float16(1)}):
        expected = [*unlisted, reason] if changes else unlisted
        found = reasons_beyond_document(opapi, "Threshold", given | changes | {"out": x.copy()})
        assert found == expected
        assert reasons_beyond_document(opapi, "InplaceThreshold", given | changes) == unlisted


def test_elu_with_infinite_factors_replaces_what_is_not_positive(opapi):
    x, out = np.array([-2, 0, 3], np.float16), np.zeros(3, np.float16)
    given = {"self": x, "alpha": TWO, "scale": np.float32(3), "input_scale": np.float32(np.inf), "out": out}
    opapi.call("Elu", given)
    assert out.tolist() == [-6, -6, 9]


def test_scalars_of_elu_and_softplus_convert_to_float(opapi):
    x = np.ones(3, np.float32)
    for op, given, name in (
        ("Elu", {**ELU, "self": x, "out": x.copy()}, "alpha"),
        ("Softplus", {"beta": ONE, "threshold": ONE, "self": x, "out": x.copy()}, "beta"),
    ):
        opapi.call(op, {**given, name: np.float64(1)})
        refused = {**given, name: np.complex64(1)}
        assert_refused(opapi, op, refused, f"{name} must be .* but got complex64")


def test_scalars_of_other_types_are_refused(opapi_910b):
    x = np.ones(3, np.float32)
    given = {"self": x, "threshold": ONE, "value": TWO, "out": x.copy()}
    for name in ("threshold", "value"):
        refused = {**given, name: np.bool_(True)}
        assert_refused(opapi_910b, "Threshold", refused, f"{name} must be .* but got bool")
    slope = {"self": x, "negative_slope": np.complex64(1), "out": x.copy()}
    assert_refused(opapi_910b, "LeakyRelu", slope, "negativeSlope must be .* but got complex64")


def test_a_double_scalar_goes_beyond_the_documents(opapi_910b):
    """The sources of LeakyRelu and Threshold accept every scalar, and PyTorch passes a double."""
    x, out = np.array([-2, 3], np.float32), np.zeros(2, np.float32)
    given = {"self": x, "negative_slope": np.float64(0.25), "out": out}
    reason = "its document does not list float64 for negativeSlope"
    assert_beyond_document(opapi_910b, "LeakyRelu", given, reason)
    opapi_910b.call("LeakyRelu", given)
    assert out.tolist() == [-0.5, 3]
    given = {"self": x, "threshold": np.float64(0), "value": np.float64(7), "out": out}
    reasons = reasons_beyond_document(opapi_910b, "Threshold", given)
    assert reasons == [f"its document does not list float64 for {name}" for name in ("threshold", "value")]


def test_softplus_above_the_threshold_is_linear(opapi):
    x, out = np.array([0.5, 1, 2], np.float32), np.zeros(3, np.float32)
    opapi.call("Softplus", {"self": x, "beta": TWO, "threshold": np.float32(2), "out": out})
    expected = F.softplus(torch.from_numpy(x.astype(np.float64)), 2, 2).numpy()
    assert out[2] == 2
    assert_close(out, expected, 3.5, 1)


def test_gelu_v2_has_two_approximations(opapi):
    x = np.ones(3, np.float32)
    given = {"x": x, "approximate": 2, "y": x.copy()}
    assert_refused(opapi, "GeluV2", given, "approximate must be 0 or 1 but got 2")


# ---- gated ---------------------------------------------------------------------------------------


def halves(x, dim):
    return (half.numpy() for half in torch.from_numpy(x.astype(np.float64)).chunk(2, dim))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("approximate", [0, 1])
def test_geglu_multiplies_a_half_by_gelu_of_the_other(opapi_910b, dim, approximate):
    reference = gelu_tanh if approximate else F.gelu
    for name in [*HALF_AND_FLOAT, "bfloat16"]:
        x = uniform(name, (4, 6, 8))
        a, b = halves(x, dim)
        for op, left in (("GeGlu", False), ("GeGluV3", False), ("GeGluV3", True)):
            gate, other = (a, b) if left else (b, a)
            gelu = reference(torch.from_numpy(gate)).numpy()
            out, out_gelu = np.zeros(a.shape, x.dtype), strided(np.zeros(a.shape, x.dtype))
            given = {"self": strided(x), "dim": dim, "approximate": approximate, "activate_left": left}
            opapi_910b.call(op, {**given, "out": out, "out_gelu": out_gelu})
            # float32: the activation and one product. float16: GELU is rounded before the product.
            ulps = (TANH_ULPS if approximate else ERFC_ULPS) + 1
            assert_close(np.ascontiguousarray(out_gelu), gelu, ulps if name == "float32" else 1)
            assert_close(out, gelu * other, {"float32": ulps, "float16": 2.5}.get(name, 1))


def test_float16_geglu_rounds_gelu_before_the_product(opapi):
    x = uniform("float16", (4, 200))
    out, out_gelu = np.zeros((4, 100), np.float16), np.zeros((4, 100), np.float16)
    opapi.call("GeGlu", {"self": x, "dim": 1, "approximate": 1, "out": out, "out_gelu": out_gelu})
    assert_same(out, x[:, :100] * out_gelu)


@pytest.mark.parametrize("op", ["GeGlu", "GeGluV3"])
def test_geglu_checks_its_arguments(opapi, op):
    def given(**change):
        x, half = np.ones((3, 4), np.float32), np.ones((3, 2), np.float32)
        base = {"self": x, "dim": 1, "approximate": 0, "activate_left": True}
        return {**base, "out": half, "out_gelu": half.copy(), **change}

    wrong, half = np.ones((3, 4), np.float32), np.ones((3, 2), np.float16)
    for change, message in (
        ({"dim": 2}, r"dim must be in \[-2, 2\) but got 2"),
        ({"dim": 0}, "self must have an even size along dim but got 3"),
        ({"approximate": 2}, "approximate must be 0 or 1 but got 2"),
        ({"out": wrong}, r"out must have the shape \[3,2\]"),
        ({"out_gelu": wrong}, r"outGelu must have the shape \[3,2\]"),
        ({"out_gelu": half}, "outGelu must be float32 but got float16"),
        ({"self": np.array(1.0, np.float32)}, "1 to 8 dimensions but got 0"),
    ):
        assert_refused(opapi, op, given(**change), message)
    assert_refused(opapi, op, given(out_gelu=None), "outGelu must not be null", NULL)

    def of_type(name):
        x, half = random_of(name, (3, 4)), random_of(name, (3, 2))
        return given(self=x, out=half, out_gelu=half.copy())

    check_types(opapi, op, of_type, HALF_AND_FLOAT, ("bfloat16",))
    empty = np.ones((0, 2), np.float32)
    opapi.call(op, given(self=np.ones((0, 4), np.float32), out=empty, out_gelu=empty.copy()))


def swiglu(x, dim):
    a, b = torch.from_numpy(x.astype(np.float64)).chunk(2, dim)
    return (F.silu(a) * b).numpy()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_swiglu_multiplies_the_second_half_by_silu_of_the_first(opapi, dim):
    for name in HALF_AND_FLOAT if opapi.is_310p else [*HALF_AND_FLOAT, "bfloat16"]:
        x = uniform(name, (4, 6, 64))
        expected = swiglu(x, dim)
        out = np.zeros(expected.shape, x.dtype)
        opapi.call("SwiGlu", {"x": x, "dim": dim, "out": out})
        assert_close(out, expected, 5 if name == "float32" else 1)


@pytest.mark.parametrize("dim", [0, 1])
def test_swiglu_grad_is_torchs_gradient(opapi, dim):
    for name in HALF_AND_FLOAT if opapi.is_310p else [*HALF_AND_FLOAT, "bfloat16"]:
        x, grad = uniform(name, (4, 64)), uniform(name, (4, 64), seed=1)
        grad = grad[: 2 if dim == 0 else 4, : 64 if dim == 0 else 32].copy()
        leaf = torch.from_numpy(x.astype(np.float64)).requires_grad_()
        a, b = leaf.chunk(2, dim)
        (F.silu(a) * b).backward(torch.from_numpy(grad.astype(np.float64)))
        out = np.zeros_like(x)
        opapi.call("SwiGluGrad", {"y_grad": grad, "x": strided(x), "dim": dim, "out": out})
        # The terms of the derivative are below 1.2, and 16 bounds the other factors: 4 * 4.
        assert_close(out, leaf.grad.numpy(), 6 if name == "float32" else 1, 16 * 4)


def test_swiglu_grad_of_one_dimension_is_that_of_a_row(opapi):
    x, grad = uniform("float32", (1, 64)), uniform("float32", (1, 32), seed=1)
    of_row, of_one = np.zeros_like(x), np.zeros(64, np.float32)
    opapi.call("SwiGluGrad", {"y_grad": grad, "x": x, "dim": 1, "out": of_row})
    opapi.call("SwiGluGrad", {"y_grad": grad[0], "x": x[0], "dim": 0, "out": of_one})
    assert np.array_equal(of_row[0], of_one)


def test_swiglu_packs_a_strided_x(opapi):
    x = uniform("float32", (4, 64))
    packed, from_view = np.zeros((4, 32), np.float32), np.zeros((4, 32), np.float32)
    opapi.call("SwiGlu", {"x": x, "dim": -1, "out": packed})
    given = {"x": strided(x), "dim": -1, "out": from_view}
    assert_beyond_document(opapi, "SwiGlu", given, "its document requires a contiguous x")
    opapi.call("SwiGlu", given)
    assert np.array_equal(packed, from_view)


def test_swiglu_checks_its_arguments(opapi):
    def given(**change):
        return {"x": np.ones((3, 32), np.float32), "dim": -1, "out": np.ones((3, 16), np.float32), **change}

    for change, message in (
        ({"dim": 2}, r"dim must be in \[-2, 2\) but got 2"),
        ({"dim": 0}, "x must have an even size along dim but got 3"),
        ({"out": np.ones((3, 32), np.float32)}, r"out must have the shape \[3,16\]"),
        ({"out": np.ones((3, 16), np.float16)}, "out must be float32 but got float16"),
        ({"out": strided(np.ones((3, 16), np.float32))}, "out must be contiguous"),
        ({"x": np.array(1.0, np.float32)}, "1 to 8 dimensions but got 0"),
    ):
        assert_refused(opapi, "SwiGlu", given(**change), message)
    assert_refused(opapi, "SwiGlu", given(out=None), "out must not be null", NULL)

    def of_type(name):
        return given(x=random_of(name, (3, 64)), out=random_of(name, (3, 32)))

    check_types(opapi, "SwiGlu", of_type, HALF_AND_FLOAT, ("bfloat16",))
    empty = given(x=np.ones((0, 32), np.float32), out=np.ones((0, 16), np.float32))
    odd = given(x=np.ones((3, 30), np.float32), out=np.ones((3, 15), np.float32))
    if opapi.is_310p:
        assert_refused(opapi, "SwiGlu", empty, r"x must not be empty but got \[0,32\]")
        message = "a half of x must have rows of a multiple of 64 bytes but got 60"
        assert_refused(opapi, "SwiGlu", odd, message, status=561002)
    else:
        opapi.call("SwiGlu", empty)
        opapi.call("SwiGlu", odd)


def test_swiglu_grad_checks_its_arguments(opapi):
    def given(**change):
        x, half = np.ones((3, 32), np.float32), np.ones((3, 16), np.float32)
        return {"y_grad": half, "x": x, "dim": 1, "out": x.copy(), **change}

    for change, message in (
        ({"y_grad": np.ones((3, 8), np.float32)}, r"yGrad must have the shape \[3,16\]"),
        ({"y_grad": strided(np.ones((3, 16), np.float32))}, "yGrad must be contiguous"),
        ({"y_grad": np.ones((3, 16), np.float16)}, "yGrad must be float32 but got float16"),
        ({"out": np.ones((3, 16), np.float32)}, r"out must have the shape \[3,32\]"),
        ({"out": strided(np.ones((3, 32), np.float32))}, "out must be contiguous"),
        ({"out": np.ones((3, 32), np.float16)}, "out must be float32 but got float16"),
    ):
        assert_refused(opapi, "SwiGluGrad", given(**change), message)
    empty = np.ones((0, 32), np.float32)
    given_empty = given(x=empty, out=empty.copy(), y_grad=np.ones((0, 16), np.float32))
    assert_refused(opapi, "SwiGluGrad", given_empty, "x must not be empty")
    odd = np.ones((3, 30), np.float32)
    given_odd = given(x=odd, out=odd.copy(), y_grad=np.ones((3, 15), np.float32))
    assert_refused(opapi, "SwiGluGrad", given_odd, "64 bytes but got 60", status=561002)
