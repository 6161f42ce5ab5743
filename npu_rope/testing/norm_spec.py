"""RMSNormalization, optionally of a sum (add_rms_norm), and the bound of a result, in long double. It follows
``specs/onnx_rms_normalization_23.txt`` and ONNX's function for it operation by operation. Shares no code with
the tested code.

The specification rounds in four places: x to the stash type, Normalized to the stash type and then to x's
type, the product to scale's type. These roundings are applied to every Normalized with an error up to
:func:`npu_rope.testing.bounds.normalized_error`, and all their results are allowed. If no value is near the
middle of two numbers of its type, only the expected result is therefore allowed, bit for bit: a missing cast
is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.testing.bounds import (
    SMALLEST_SUBNORMAL,
    UNIT_ROUNDOFF,
    device_gradient_error,
    device_normalized_error,
    normalized_error,
)

Array = npt.NDArray[Any]
Long = npt.NDArray[np.longdouble]

# Significant bits, exponent of the smallest subnormal, largest number.
FORMATS = {
    "float32": (24, -149, (2 - 2.0**-23) * 2.0**127),
    "float16": (11, -24, 65504.0),
    "bfloat16": (8, -133, (2 - 2.0**-7) * 2.0**127),
    "float64": (53, -1074, float(np.finfo(np.float64).max)),
}
# ONNX's TensorProto.DataType.
STASH = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}


def cast(values: Long, dtype: str) -> Long:
    """Round to the nearest number of a type, ties to even, by arithmetic only."""
    bits, smallest, largest = FORMATS[dtype]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(values), values, 1))
        unit = np.maximum(exponent - bits, smallest)
        rounded = np.ldexp(np.rint(np.ldexp(values, -unit)), unit)
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, values), rounded)
        result: Long = np.where(np.isfinite(values), rounded, values)
    return result


@dataclass(frozen=True)
class NormCall:
    """A call: the arrays, in float64 or the types that are named, and the attributes."""

    x: Array
    scale: Array
    x_dtype: str
    scale_dtype: str
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    @property
    def stash(self) -> str:
        """The stash type's name."""
        return STASH[self.stash_type]

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized dimensions."""
        return tuple(range(self.axis % self.x.ndim, self.x.ndim))

    @property
    def n(self) -> int:
        """Elements of a row."""
        return int(np.prod([self.x.shape[k] for k in self.axes], dtype=np.int64))

    @property
    def all_rows_share_scale(self) -> bool:
        """Whether all rows have the same scale."""
        before = self.axis % self.x.ndim - (self.x.ndim - self.scale.ndim)
        return all(size == 1 for size in self.scale.shape[: max(before, 0)])

    def rms(self, x: Long) -> Long:
        """Return the root mean square of the rows, with epsilon."""
        epsilon = cast(np.asarray(np.float32(self.epsilon), np.longdouble), self.stash)
        with np.errstate(all="ignore"):
            mean = np.sum(x * x, axis=self.axes, keepdims=True) / np.longdouble(self.n)
            root: Long = np.sqrt(mean + epsilon)
        return root

    def normalized(self, precision: str, error: float | None = None) -> tuple[Long, Long, Long]:
        """Return XU / RMS, and its least and largest allowed values for a computation in ``precision``, with
        npu_rope's relative error or the given one."""
        error = normalized_error(self.n, precision) if error is None else error
        x = cast(self.x.astype(np.longdouble), self.stash)
        with np.errstate(all="ignore"):
            value = x / self.rms(x)
            slack = np.abs(value) * np.longdouble(error)
            slack += np.where(value != 0, np.longdouble(SMALLEST_SUBNORMAL[precision]), 0)
        return value, value - slack, value + slack

    def cast_to_x(self, normalized: Long) -> Long:
        """Round Normalized to the stash type and to x's type, as before the product with the scale."""
        return cast(cast(normalized, self.stash), self.x_dtype)


def add(x: Array, residual: Array, dtype: str) -> Array:
    """Return x + residual in their type. The result has no error: 16-bit values are added in float32."""
    with np.errstate(all="ignore"):
        if dtype == "float64":
            return np.asarray(x.astype(np.float64) + residual.astype(np.float64))
        total = cast(x.astype(np.longdouble) + residual.astype(np.longdouble), "float32")
    return cast(total, dtype).astype(np.float64)


def rms_norm(call: NormCall, error: float | None = None) -> tuple[Array, Array]:
    """Return the result in scale's type and the bound of another result's error, both as float64.

    Args:
        call: the call to compute.
        error: largest relative error of Normalized against XU / RMS; None: npu_rope's.
    """
    if call.x.size == 0:
        return np.zeros(call.x.shape), np.zeros(call.x.shape)
    scale = call.scale.astype(np.longdouble)
    # npu_rope rounds a product to float32 before 16 bits. For wider results only long double rounds here.
    wide = call.scale_dtype in ("float32", "float64")
    product_error = np.longdouble(2.0**-62 if wide else UNIT_ROUNDOFF["float32"])
    precision = "float64" if call.stash == "float64" else "float32"
    normalized = [call.cast_to_x(v) for v in call.normalized(precision, error)]
    with np.errstate(all="ignore"):
        value = cast(normalized[0] * scale, call.scale_dtype)
        ends = [
            cast(v * scale * (1 + sign * product_error), call.scale_dtype)
            for v in normalized[1:]
            for sign in (-1, 1)
        ]
        bound = np.max([np.abs(end - value) for end in ends], axis=0)
    return value.astype(np.float64), np.asarray(bound, np.float64)


def rms_norm_backward(
    call: NormCall, grad: Array, *, on_device: bool = False
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the gradients of x and scale, each with the bound of another result's error.

    On the CPU all intermediate values are double. dx is a difference whose parts have errors of a few times
    :func:`normalized_error` and the error of the mean of products, together less than ``(200 + 4 log2 n)
    2^-53``. In dscale a Normalized may be rounded to the neighbouring number, and the rows' products are
    added in double; each addition rounds once.

    On the device they are float32. The bound is :func:`device_gradient_error`, and for R rows R roundings of
    dscale's terms; values below float32's smallest number are lost.
    """
    if call.x.size == 0:
        zeros = np.zeros(call.x.shape), np.zeros(call.scale.shape)
        return (zeros[0], zeros[0]), (zeros[1], zeros[1])
    precision = "float32" if on_device else "float64"
    u, smallest = (np.longdouble(t[precision]) for t in (UNIT_ROUNDOFF, SMALLEST_SUBNORMAL))
    rows_per_scale = call.x.size // max(call.scale.size, 1)
    x = cast(call.x.astype(np.longdouble), call.stash)
    given, rms = grad.astype(np.longdouble), call.rms(x)
    with np.errstate(all="ignore"):
        g, normalized = given * call.scale.astype(np.longdouble), x / rms
        mean = np.mean(g * normalized, axis=call.axes, keepdims=True)
        dx = (g - normalized * mean) / rms
        magnitude = np.mean(np.abs(g * normalized), axis=call.axes, keepdims=True)
        parts = (np.abs(g) + np.abs(normalized) * magnitude) / rms
        error = device_gradient_error(call.n) if on_device else (200 + 4 * np.log2(call.n)) * u
        dx_bound = error * parts
        off = device_normalized_error(call.n) if on_device else None
        if on_device:
            dx_bound += smallest * (4 + np.abs(normalized)) * (4 + magnitude) / rms
        value, low, high = (call.cast_to_x(v) for v in call.normalized(precision, off))
        dscale = _summed(given * value, call.scale.shape)
        flips = _summed(np.abs(given) * np.maximum(high - value, value - low), call.scale.shape)
        roundings = rows_per_scale * u if on_device else (rows_per_scale + 16) * u
        added = _summed(np.abs(given * value), call.scale.shape) * roundings
        if on_device:
            added += smallest * rows_per_scale
    return (
        _rounded_expectation(dx, dx_bound, call.x_dtype),
        _rounded_expectation(dscale, flips + added, call.scale_dtype),
    )


def _rounded_expectation(value: Long, bound: Long, dtype: str) -> tuple[Array, Array]:
    """Return value and bound after rounding; values beyond the type's largest number become infinite."""
    with np.errstate(all="ignore"):
        rounded = bound + UNIT_ROUNDOFF[dtype] * (np.abs(value) + bound) + SMALLEST_SUBNORMAL[dtype]
        beyond = np.isinf(cast(value, dtype))
        return (
            np.asarray(np.where(beyond, np.copysign(np.inf, value), value), np.float64),
            np.asarray(rounded * (1 + 2.0**-50), np.float64),
        )


def _summed(products: Long, shape: tuple[int, ...]) -> Long:
    """Sum over the dimensions along which a shape was broadcast."""
    while products.ndim > len(shape):
        products = products.sum(0)
    for k, size in enumerate(shape):
        if size == 1:
            products = products.sum(k, keepdims=True)
    return products
