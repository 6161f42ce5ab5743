"""rms_norm in float64, formula first. Source: ``specs/onnx_rms_normalization_23.txt``, and the body of other
operators with which ONNX defines it.

    XU          = X cast to the stash type
    RMS         = sqrt(mean(XU^2) + epsilon), over the dimensions from axis on
    Normalized  = XU / RMS, of the stash type
    Y           = Normalized cast to X's type, times scale, of scale's type

A value is rounded once to each of these types; all other steps are float64.
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
    """The names of x's and of scale's type. They may differ from the arrays' dtypes: bfloat16 values may be
    held in float32 arrays."""

    x: str
    scale: str


PEAK = 16  # exponent of a row's largest element after scaling


def reciprocal_rms(stashed: Wide, axis: int, epsilon: float) -> tuple[Wide, Wide]:
    """Return a power of two for each row, and 1 / (RMS * power). The power is 1 unless squares would leave
    float64's range. Otherwise it brings the largest element near 2^PEAK, so that no
    intermediate value is subnormal if the result is normal."""
    axes = tuple(range(axis, stashed.ndim))
    peak = np.max(np.abs(stashed), axis=axes, keepdims=True, initial=0.0)
    is_extreme = np.isfinite(peak) & ((peak > 2.0**500) | ((peak < 2.0**-450) & (peak > 0) & (epsilon == 0)))
    exponent = np.where(is_extreme, np.minimum(PEAK - np.frexp(np.where(is_extreme, peak, 1.0))[1], 1000), 0)
    power = np.ldexp(1.0, exponent)
    with np.errstate(all="ignore"):
        mean = np.mean(np.square(stashed * power), axis=axes, keepdims=True)
        return power, 1 / np.sqrt(mean + epsilon * power * power)


def normalized(x: Wide, axis: int, a: RmsNormAttributes) -> tuple[Wide, Wide, Wide]:
    """Return XU / RMS before any rounding, and the two factors of 1 / RMS."""
    stashed = rounded_to(x, a.stash_dtype)
    epsilon = a.stashed_epsilon
    power, inverse = reciprocal_rms(stashed, axis, epsilon)
    with np.errstate(all="ignore"):  # 0 / 0, and infinities
        return stashed * power * inverse, power, inverse


def rms_norm(x: Array, scale: Array, dtypes: NormDtypes, axis: int, a: RmsNormAttributes) -> Wide:
    """Return Y before it is rounded to scale's type.

    Args:
        x: any shape.
        scale: broadcastable to it.
        dtypes: the names of x's and scale's types.
        axis: the first normalized dimension, counted from the front.
        a: the attributes.
    """
    if x.size == 0:
        return np.zeros(x.shape)
    exact, _, _ = normalized(x.astype(np.float64), axis, a)
    with np.errstate(all="ignore"):
        return rounded_to(rounded_to(exact, a.stash_dtype), dtypes.x) * scale.astype(np.float64)


def rms_norm_backward(
    grad: Array, x: Array, scale: Array, dtypes: NormDtypes, axis: int, a: RmsNormAttributes
) -> tuple[Wide, Wide]:
    """Return the gradients of x and scale before they are rounded. Y's roundings count as the identity. With
    N = XU / RMS and g = grad * scale::

        dx     = (g - N mean(g N)) / RMS
        dscale = grad * (Normalized cast to x's type), summed over the elements that share an element of scale

    Args:
        grad: Y's gradient.
        x, scale, dtypes, axis, a: the arguments of :func:`rms_norm`.
    """
    if x.size == 0:
        return np.zeros(x.shape), np.zeros(scale.shape)
    exact, power, inverse = normalized(x.astype(np.float64), axis, a)
    # Keep the first factor near 1: the product of a small gradient and a small factor could be subnormal.
    shift = np.where(power == 1, 1, 2.0**PEAK)
    inverse, power = inverse * shift, power / shift
    with np.errstate(all="ignore"):
        wide_grad = grad.astype(np.float64)
        g = wide_grad * scale.astype(np.float64)
        axes = tuple(range(axis, x.ndim))
        dx = (g - exact * np.mean(g * exact, axis=axes, keepdims=True)) * inverse * power
        products = wide_grad * rounded_to(rounded_to(exact, a.stash_dtype), dtypes.x)
    return dx, summed_to(products, scale.shape)


def summed_to(products: Wide, shape: tuple[int, ...]) -> Wide:
    """Sum over the dimensions that were broadcast from this shape."""
    missing = products.ndim - len(shape)
    axes = tuple(k for k in range(products.ndim) if k < missing or shape[k - missing] == 1)
    with np.errstate(all="ignore"):
        return np.asarray(products.sum(axis=axes)).reshape(shape)
