"""rms_norm in float64. Sources: ``specs/onnx_rms_normalization_23.txt`` and the operator's function in ONNX.

    XU          = X rounded to the stash type
    RMS         = sqrt(mean(XU^2) + epsilon), where the mean is over the dimensions from axis on
    Normalized  = XU / RMS, rounded to the stash type
    Y           = (Normalized rounded to X's type) times scale, rounded to scale's type

Epsilon is rounded to float32 and then to the stash type. All other steps are float64. Callers round Y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.dtypes import rounded_to
from npu_rope.rms_norm_calls import RmsNormAttributes

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NormDtypes:
    """The dtypes of x and scale in the call. The arrays may have others: a float32 array may hold bfloat16
    values."""

    x: str
    scale: str


PEAK = 16  # frexp's exponent of a scaled row's largest element


def reciprocal_rms(stashed: Wide, axis: int, epsilon: float) -> tuple[Wide, Wide]:
    """Return a power of two for each row of XU (``stashed``), and 1 / (RMS * power).

    The power is 1 unless the row is very large, or very small with epsilon 0: its squares could then leave
    float64's range. The power, at most 2^1000, brings such a row's largest element near 2^PEAK. XU * power is
    then a normal number if the result is one."""
    axes = tuple(range(axis, stashed.ndim))
    peak = np.max(np.abs(stashed), axis=axes, keepdims=True, initial=0.0)
    is_extreme = np.isfinite(peak) & ((peak > 2.0**500) | ((peak < 2.0**-450) & (peak > 0) & (epsilon == 0)))
    exponent = np.where(is_extreme, np.minimum(PEAK - np.frexp(np.where(is_extreme, peak, 1.0))[1], 1000), 0)
    power = np.ldexp(1.0, exponent)
    with np.errstate(all="ignore"):
        mean = np.mean(np.square(stashed * power), axis=axes, keepdims=True)
        return power, 1 / np.sqrt(mean + epsilon * power * power)


def normalized(x: Wide, axis: int, attributes: RmsNormAttributes) -> tuple[Wide, Wide, Wide]:
    """Return XU / RMS before it is rounded, and the two factors of 1 / RMS from reciprocal_rms."""
    stashed = rounded_to(x, attributes.stash_dtype)
    epsilon = attributes.stashed_epsilon
    power, inverse = reciprocal_rms(stashed, axis, epsilon)
    with np.errstate(all="ignore"):  # zero rows without epsilon, and infinities
        return stashed * power * inverse, power, inverse


def rms_norm(x: Array, scale: Array, dtypes: NormDtypes, axis: int, attributes: RmsNormAttributes) -> Wide:
    """Return Y before it is rounded to scale's type.

    Args:
        x: any shape.
        scale: broadcastable to x's shape.
        dtypes: the dtypes of x and scale in the call.
        axis: the first normalized dimension, counted from the front.
        attributes: the attributes; ``axis`` replaces ``attributes.axis``.
    """
    if x.size == 0:
        return np.zeros(x.shape)
    unrounded, _, _ = normalized(x.astype(np.float64), axis, attributes)
    with np.errstate(all="ignore"):
        return rounded_to(rounded_to(unrounded, attributes.stash_dtype), dtypes.x) * scale.astype(np.float64)


def rms_norm_backward(
    grad: Array, x: Array, scale: Array, dtypes: NormDtypes, axis: int, attributes: RmsNormAttributes
) -> tuple[Wide, Wide]:
    """Return the gradients of x and scale before they are rounded. Gradients pass unchanged through the
    roundings of the forward pass. With N = XU / RMS and g = grad * scale::

        dx     = (g - N mean(g N)) / RMS
        dscale = grad * (Normalized rounded to x's type), summed where an element of scale is shared

    Args:
        grad: Y's gradient.
        x, scale, dtypes, axis, attributes: the arguments of :func:`rms_norm`.
    """
    if x.size == 0:
        return np.zeros(x.shape), np.zeros(scale.shape)
    unrounded, power, inverse = normalized(x.astype(np.float64), axis, attributes)
    # A scaled row's inverse is about 2^-PEAK. Shift it to about 1: its product with a small gradient could
    # otherwise be subnormal.
    shift = np.where(power == 1, 1, 2.0**PEAK)
    inverse, power = inverse * shift, power / shift
    with np.errstate(all="ignore"):
        wide_grad = grad.astype(np.float64)
        g = wide_grad * scale.astype(np.float64)
        axes = tuple(range(axis, x.ndim))
        dx = (g - unrounded * np.mean(g * unrounded, axis=axes, keepdims=True)) * inverse * power
        products = wide_grad * rounded_to(rounded_to(unrounded, attributes.stash_dtype), dtypes.x)
    return dx, summed_to(products, scale.shape)


def summed_to(products: Wide, shape: tuple[int, ...]) -> Wide:
    """Sum the products over the dimensions along which an array of this shape was broadcast."""
    missing = products.ndim - len(shape)
    axes = tuple(k for k in range(products.ndim) if k < missing or shape[k - missing] == 1)
    with np.errstate(all="ignore"):
        return np.asarray(products.sum(axis=axes)).reshape(shape)
