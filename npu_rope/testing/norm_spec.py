"""RMSNormalization, optionally of a sum (add_rms_norm), and the bound of a result, in long double.

The code follows ``specs/onnx_rms_normalization_23.txt`` and ONNX's function for it operation by operation. It
shares no code with the tested code. The specification's names are XU for x in the stash type, and Normalized
for XU / RMS.

The specification rounds in four places: x to the stash type, Normalized to the stash type and then to x's
type, and the product to scale's type. The computed Normalized may have an error up to
:func:`npu_rope.testing.bounds.normalized_error` before these roundings. Every result that such a value gives
is allowed. If no value is near the middle of two numbers of its type, only one result is allowed, bit for
bit. A missing cast is then an error.
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
    is_device,
    normalized_error,
    normalized_error_on,
)

Array = npt.NDArray[Any]
Long = npt.NDArray[np.longdouble]

# The number of significant bits, the exponent of the smallest subnormal, and the largest number.
FORMATS = {
    "float32": (24, -149, (2 - 2.0**-23) * 2.0**127),
    "float16": (11, -24, 65504.0),
    "bfloat16": (8, -133, (2 - 2.0**-7) * 2.0**127),
    "float64": (53, -1074, float(np.finfo(np.float64).max)),
}
# The stash types, by their number in ONNX's TensorProto.DataType.
STASH = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}


def cast(values: Long, dtype: str) -> Long:
    """Round to the nearest number of a type, ties to even. A 16-bit type is rounded to by arithmetic only."""
    with np.errstate(all="ignore"):
        if dtype in ("float32", "float64"):
            return values.astype(dtype).astype(np.longdouble)
        bits, smallest, largest = FORMATS[dtype]
        odd = _round_to_odd(values)
        _, exponent = np.frexp(odd)
        # The last bit of the sum has the weight of the type's last bit.
        addend = np.ldexp(0.75, np.clip(exponent, smallest + bits, _MOST_EXPONENT) + (53 - bits))
        rounded = np.copysign((np.abs(odd) + addend) - addend, odd)
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, odd), rounded)
    return rounded.astype(np.longdouble)


_MOST_EXPONENT = 200  # more than any 16-bit type has


def _round_to_odd(values: Long) -> Array:
    """Round to float64. An inexact result has an odd last bit, so rounding it again to fewer bits gives the
    result of one rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    nearest = values.astype(np.float64)
    error = (values - nearest.astype(np.longdouble)).astype(np.float64)
    encoding = nearest.view(np.int64)
    is_even = np.isfinite(nearest) & (error != 0) & (encoding & 1 == 0)
    step = np.where(np.signbit(error) == np.signbit(nearest), 1, -1)  # to the other side of the value
    odd: Array = (encoding + step * is_even).view(np.float64)
    return odd


@dataclass(frozen=True)
class NormCall:
    """A call: the arrays, in float64 or in the named types, and the attributes."""

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
        return int(np.prod([self.x.shape[dimension] for dimension in self.axes], dtype=np.int64))

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
        """Return XU / RMS, and its least and largest allowed values for a computation in ``precision``.
        ``error`` is the largest relative error; None selects npu_rope's."""
        error = normalized_error(self.n, precision) if error is None else error
        x = cast(self.x.astype(np.longdouble), self.stash)
        with np.errstate(all="ignore"):
            value = x / self.rms(x)
            allowed_error = np.abs(value) * np.longdouble(error)
            allowed_error += np.where(value != 0, np.longdouble(SMALLEST_SUBNORMAL[precision]), 0)
        return value, value - allowed_error, value + allowed_error

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
    # A product with a 16-bit result is first rounded to float32. A wider one is rounded only here, to long
    # double.
    is_wide = call.scale_dtype in ("float32", "float64")
    product_error = np.longdouble(2.0**-62 if is_wide else UNIT_ROUNDOFF["float32"])
    precision = "float64" if call.stash == "float64" else "float32"
    normalized = [call.cast_to_x(normalized_value) for normalized_value in call.normalized(precision, error)]
    with np.errstate(all="ignore"):
        value = cast(normalized[0] * scale, call.scale_dtype)
        extremes = [
            cast(normalized_value * scale * (1 + sign * product_error), call.scale_dtype)
            for normalized_value in normalized[1:]
            for sign in (-1, 1)
        ]
        bound = np.max([np.abs(extreme - value) for extreme in extremes], axis=0)
    return value.astype(np.float64), np.asarray(bound, np.float64)


# Limits of the rows whose gradients the CPU computes in float32, of 1 / RMS and of the mean of g N
# (csrc/cpu/rms_norm_backward.cpp). A row near a limit may be computed in either type.
LEAST_INVERSE, MOST_INVERSE, MOST_MEAN, NEAR = 2.0**-64, 2.0**10, 2.0**60, 1 + 2.0**-20


def computes_gradients_in_floats(call: NormCall) -> bool:
    """Return whether the CPU computes the gradients of rows of usual magnitude in float32."""
    return (
        call.stash == "float32"
        and call.x_dtype == call.scale_dtype
        and call.x_dtype in ("float16", "bfloat16")
    )


def rms_norm_backward(
    call: NormCall, grad: Array, backend: str = "cpu"
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the gradients of x and scale, each with the bound of another result's error.

    dx is the gradient of x, dscale that of scale. On the CPU all intermediate values are double. dx is a
    difference of two terms. Their errors are a few times :func:`normalized_error`, plus the error of the mean
    of products: together less than ``(200 + 4 log2 n) 2^-53``. In dscale, a Normalized may be rounded to the
    neighbouring number, and each addition of a row's product rounds once.

    If x and scale have the same 16-bit type, the CPU computes rows of usual magnitude in float32:
    csrc/cpu/rms_norm_backward.cpp derives the error of dx, ``16 * 2^-24``, and the limits of such rows.

    On the device all intermediate values are float32. The bound of dx is :func:`device_gradient_error`. A sum
    of R rows in dscale has R roundings. Values below float32's smallest number are lost.
    """
    on_device = is_device(backend)
    if call.x.size == 0:
        zeros = np.zeros(call.x.shape), np.zeros(call.scale.shape)
        return (zeros[0], zeros[0]), (zeros[1], zeros[1])
    precision = "float32" if on_device else "float64"
    u, smallest = (np.longdouble(table[precision]) for table in (UNIT_ROUNDOFF, SMALLEST_SUBNORMAL))
    rows_per_scale = call.x.size // max(call.scale.size, 1)
    x = cast(call.x.astype(np.longdouble), call.stash)
    grad_long, rms = grad.astype(np.longdouble), call.rms(x)
    with np.errstate(all="ignore"):
        g, normalized = grad_long * call.scale.astype(np.longdouble), x / rms
        mean = np.mean(g * normalized, axis=call.axes, keepdims=True)
        dx = (g - normalized * mean) / rms
        magnitude = np.mean(np.abs(g * normalized), axis=call.axes, keepdims=True)
        magnitude_sum = (np.abs(g) + np.abs(normalized) * magnitude) / rms
        error = device_gradient_error(call.n, backend) if on_device else (200 + 4 * np.log2(call.n)) * u
        dx_bound = error * magnitude_sum
        halves = backend == "cpu" and computes_gradients_in_floats(call)
        if halves:
            fits = (1 / rms <= MOST_INVERSE * NEAR) & (NEAR / rms >= LEAST_INVERSE)
            fits &= np.abs(mean) - 8 * UNIT_ROUNDOFF["float32"] * magnitude <= MOST_MEAN * NEAR
            lost = SMALLEST_SUBNORMAL["float32"] * (
                (4 + np.abs(normalized)) * (4 + magnitude + 1 / rms) / rms + 1
            )
            dx_bound = np.where(fits, 16 * UNIT_ROUNDOFF["float32"] * magnitude_sum + lost, dx_bound)
        normalized_error_bound = normalized_error_on(backend, call.n)
        if on_device:
            dx_bound += smallest * (4 + np.abs(normalized)) * (4 + magnitude) / rms
        allowed_values = call.normalized("float32" if halves else precision, normalized_error_bound)
        value, low, high = (call.cast_to_x(normalized_value) for normalized_value in allowed_values)
        dscale = _summed(grad_long * value, call.scale.shape)
        normalized_dscale_bound = _summed(
            np.abs(grad_long) * np.maximum(high - value, value - low), call.scale.shape
        )
        sum_error = rows_per_scale * u if on_device else (rows_per_scale + 16) * u
        if halves:
            sum_error += 2 * UNIT_ROUNDOFF["float32"]
        sum_dscale_bound = _summed(np.abs(grad_long * value), call.scale.shape) * sum_error
        if on_device or halves:
            sum_dscale_bound += SMALLEST_SUBNORMAL["float32"] * rows_per_scale
    return (
        _rounded_expectation(dx, dx_bound, call.x_dtype),
        _rounded_expectation(dscale, normalized_dscale_bound + sum_dscale_bound, call.scale_dtype),
    )


def _rounded_expectation(value: Long, bound: Long, dtype: str) -> tuple[Array, Array]:
    """Return value and bound after rounding; values beyond the type's largest number become infinite."""
    with np.errstate(all="ignore"):
        rounded = bound + UNIT_ROUNDOFF[dtype] * (np.abs(value) + bound) + SMALLEST_SUBNORMAL[dtype]
        is_infinite = np.isinf(cast(value, dtype))
        return (
            np.asarray(np.where(is_infinite, np.copysign(np.inf, value), value), np.float64),
            np.asarray(rounded * (1 + 2.0**-50), np.float64),
        )


def _summed(products: Long, shape: tuple[int, ...]) -> Long:
    """Sum over the dimensions along which a shape was broadcast."""
    while products.ndim > len(shape):
        products = products.sum(0)
    for dimension, size in enumerate(shape):
        if size == 1:
            products = products.sum(dimension, keepdims=True)
    return products
