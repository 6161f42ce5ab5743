"""Softmax, LogSoftmax and SoftmaxCrossEntropyWithLogits of libopapi's stand-ins against torch in float64."""

import re

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import INVALID, NULL, assert_beyond_document, assert_refused

torch = pytest.importorskip("torch")

BF16 = ml_dtypes.bfloat16
INNER_NULLPTR = 561103
FRACTION_BITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def random(shape, dtype, seed=0, scale=3):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def reference(x, dim, *, log=False):
    function = torch.log_softmax if log else torch.softmax
    return function(torch.from_numpy(x.astype(np.float64)), dim).numpy()


def check(out, expected, n, *, scale=None):
    """The exponents, their sum and the quotient err by at most n + 8 units of the compute type.

    The result is rounded once. `scale` is the size of the terms if they cancel.
    """
    name = out.dtype.name
    unit = 2.0 ** -FRACTION_BITS[name]
    compute = 2.0**-52 if name == "float64" else 2.0**-23
    size = np.abs(expected) if scale is None else scale
    bound = size * (n + 8) * compute + np.maximum(
        np.abs(expected) * unit, 2.0**-24 if name == "float16" else 0
    )
    assert np.all(np.abs(out.astype(np.float64) - expected) <= bound)


def types(device):
    return [np.float16, np.float32, np.float64] + ([] if device.is_310p else [BF16])


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_along_each_dimension(opapi, name, dim):
    for dtype in types(opapi):
        x, out = random((4, 70, 9), dtype), np.zeros((4, 70, 9), dtype)
        opapi.call(name, {"self": x, "dim": dim, "out": out})
        log = name == "LogSoftmax"
        # A logarithm is a difference of numbers up to 30.
        check(out, reference(x, dim, log=log), x.shape[dim], scale=30 if log else None)


def test_softmax_of_strided_scalar_empty_and_large_inputs(opapi):
    x = random((6, 8), np.float32)
    out = np.zeros((16, 3), np.float32)[::4].T
    opapi.call("Softmax", {"self": x[::2, ::-2], "dim": 1, "out": out})
    check(out, reference(x[::2, ::-2].copy(), 1), 4)
    one = np.zeros((), np.float32)
    opapi.call("Softmax", {"self": np.full((), 7, np.float32), "dim": 0, "out": one})
    assert one == 1
    empty = np.zeros((2, 0), np.float32)
    opapi.call("Softmax", {"self": empty, "dim": 1, "out": empty.copy()})
    big = np.array([3e38, 3e38, -3e38, -np.inf], np.float32)
    result = np.zeros(4, np.float32)
    opapi.call("Softmax", {"self": big, "dim": 0, "out": result})
    assert result.tolist() == [0.5, 0.5, 0, 0]
    opapi.call("Softmax", {"self": np.array([1, np.nan], np.float32), "dim": 0, "out": result[:2]})
    assert np.isnan(result[:2]).all()


def test_softmax_converts_after_and_log_softmax_before(opapi):
    x, out = random((3, 50), np.float32), np.zeros((3, 50), np.float16)
    opapi.call("Softmax", {"self": x, "dim": 1, "out": out})
    check(out, reference(x, 1), 50)
    opapi.call("LogSoftmax", {"self": x, "dim": 1, "out": out})
    check(out, reference(x.astype(np.float16), 1, log=True), 50, scale=30)
    same = np.zeros((3, 50), np.float16)
    opapi.call("LogSoftmax", {"self": x.astype(np.float16), "dim": 1, "out": same})
    assert np.array_equal(out, same)
    wide = np.zeros((3, 50), np.float32)
    opapi.call("Softmax", {"self": x.astype(np.float16), "dim": 1, "out": wide})
    assert np.array_equal(wide, wide.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_refuses_wrong_arguments(opapi, name):
    x = random((2, 3), np.float32)
    for given, text in (
        ({"self": None, "dim": 0, "out": x}, "self must not be null"),
        ({"self": x, "dim": 2, "out": x}, "dim must be in [-2, 2) but got 2"),
        ({"self": x, "dim": 0, "out": x.T}, "out must have the shape [2,3]"),
        ({"self": x.astype(np.int32), "dim": 0, "out": x}, "self must be float32"),
        ({"self": np.zeros((1,) * 9, np.float32), "dim": 0, "out": x}, "dimensions but got 9"),
    ):
        with pytest.raises(RefusedPhase) as caught:
            opapi.call(name, given)
        assert text in str(caught.value)
    if opapi.is_310p:
        with pytest.raises(RefusedPhase, match="but got bfloat16"):
            opapi.call(name, {"self": x.astype(BF16), "dim": 0, "out": x})


@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("name", ["SoftmaxBackward", "LogSoftmaxBackward"])
def test_gradients(opapi, name, dim):
    log = name == "LogSoftmaxBackward"
    for dtype in types(opapi):
        if dtype is np.float64:
            continue
        gradient, y = (
            random((4, 70, 9), dtype),
            reference(random((4, 70, 9), dtype, 1), dim, log=log).astype(dtype),
        )
        out = np.zeros((4, 70, 9), dtype)
        opapi.call(name, {"grad_output": gradient, "output": y, "dim": dim, "out": out})
        g, exact = gradient.astype(np.float64), y.astype(np.float64)
        terms, weights = (g, np.exp(exact)) if log else (g * exact, exact)
        expected = (
            g - terms.sum(dim, keepdims=True) * weights
            if log
            else (g - terms.sum(dim, keepdims=True)) * weights
        )
        scale = np.abs(g) + np.abs(terms).sum(dim, keepdims=True) * weights
        check(out, expected, y.shape[dim], scale=scale)


def test_the_gradient_of_softmax_converts_to_wider_types(opapi):
    """The document of SoftmaxBackward has float64 and complex64 for out."""
    gradient, y = random((3, 4), np.float16), np.full((3, 4), 0.25, np.float16)
    given = {"grad_output": gradient, "output": y, "dim": 1}
    half = np.zeros((3, 4), np.float16)
    opapi.call("SoftmaxBackward", given | {"out": half})
    for dtype in (np.float64, np.complex64, np.complex128):
        out = np.zeros((3, 4), dtype)
        opapi.call("SoftmaxBackward", given | {"out": out})
        assert np.array_equal(out, half.astype(dtype))
    message = "out must be .* but got"
    assert_refused(opapi, "SoftmaxBackward", given | {"out": np.zeros((3, 4), np.int32)}, message)


def test_log_softmax_backward_casts_to_the_type_of_out(opapi):
    x, y = np.array([[8, 2, 2]], np.float16), np.zeros((1, 3), np.float16)  # whose exponential is 1
    for dtype in (np.float32, np.int8, np.uint16, np.complex64):
        out = np.ones((1, 3), dtype)
        opapi.call(
            "LogSoftmaxBackward", {"grad_output": x[:, :] + 12, "output": y - np.inf, "dim": 1, "out": out}
        )
        assert out.tolist() == [[20, 14, 14]]
    one = {"grad_output": np.array(3, np.float32), "output": np.array(0, np.float32), "dim": 0,
           "out": np.array(7, np.float32)}  # fmt: skip
    reason = "its document does not list a gradOutput without dimensions"
    assert_beyond_document(opapi, "LogSoftmaxBackward", one, reason)
    opapi.call("LogSoftmaxBackward", one)
    assert one["out"] == 0


def test_gradients_refuse_other_shapes_and_types(opapi):
    x = random((2, 3), np.float32)
    for given, text in (
        ({"grad_output": x, "output": x.T, "dim": 0, "out": x}, "output must have the shape [2,3]"),
        ({"grad_output": x, "output": x.astype(np.float16), "dim": 0, "out": x}, "output must be float32"),
        ({"grad_output": x, "output": x, "dim": -3, "out": x}, "dim must be in [-2, 2) but got -3"),
        ({"grad_output": x, "output": x, "dim": 0, "out": x.T}, "out must have the shape [2,3]"),
        (
            {"grad_output": x.astype(np.float64), "output": x, "dim": 0, "out": x},
            "gradOutput must be float32",
        ),
        ({"grad_output": x, "output": None, "dim": 0, "out": x}, "output must not be null"),
    ):
        for name in ("SoftmaxBackward", "LogSoftmaxBackward"):
            with pytest.raises(RefusedPhase) as caught:
                opapi.call(name, given)
            assert text in str(caught.value)


def test_cross_entropy_gives_loss_and_gradient(opapi):
    for dtype in types(opapi):
        if dtype is np.float64:
            continue
        x, labels = random((5, 40), dtype), np.abs(random((5, 40), dtype, 1))
        loss, backprop = np.zeros(5, dtype), np.zeros((5, 40), dtype)
        opapi.call(
            "SoftmaxCrossEntropyWithLogits",
            {"features": x, "labels": labels, "loss": loss, "backprop": backprop},
        )
        y, log = labels.astype(np.float64), reference(x, 1, log=True)
        check(loss, -(y * log).sum(1), 40, scale=(y * 30).sum(1))
        check(backprop, np.exp(log) - y, 40, scale=30 * np.exp(log) + y)


def test_cross_entropy_refuses_other_shapes_and_types(opapi):
    x, loss = random((5, 4), np.float32), np.zeros(5, np.float32)
    good = {"features": x, "labels": x.copy(), "loss": loss, "backprop": x.copy()}
    for change, text in (
        ({"labels": x[:4]}, f"{INVALID} labels must have the shape [5,4]"),
        ({"loss": loss[:4]}, f"{INNER_NULLPTR} loss must have the shape [5]"),
        ({"loss": x[:, :1].copy()}, f"{INNER_NULLPTR} loss must have the shape [5]"),
        ({"backprop": x.T}, f"{INNER_NULLPTR} backprop must have the shape [5,4]"),
        ({"backprop": x[:, None]}, f"{INNER_NULLPTR} backprop must have the shape [5,4]"),
        ({"labels": x.astype(np.float16)}, f"{INVALID} labels must be float32 but got float16"),
        ({"loss": loss.astype(np.float16)}, f"{INVALID} loss must be float32"),
        ({"features": x[0]}, f"{INVALID} features must have 2 dimensions"),
        ({"loss": None}, f"{NULL} loss must not be null"),
    ):
        status, _, message = text.partition(" ")
        assert_refused(opapi, "SoftmaxCrossEntropyWithLogits", good | change, re.escape(message), int(status))
