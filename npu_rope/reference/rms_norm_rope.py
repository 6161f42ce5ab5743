"""rms_norm_rope in float64, formula first: RMS normalization of each head (``reference/rms_norm.py``), then
rope of queries and keys (``reference/rope.py``).

    Normalized = x / sqrt(mean(x^2) + epsilon), over a head
    y          = rope(Normalized * scale)

With intermediate rounding, Normalized and its product with the scale are rounded to x's type as in rms_norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import rounded_to
from npu_rope.reference import rms_norm
from npu_rope.reference.rms_norm import NormDtypes
from npu_rope.reference.rope import rotated
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, scales_of

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]


def normalized_heads(x: Array, scale: Array, dtype: str, attributes: RmsNormRopeAttributes) -> Wide:
    """Return Normalized times scale.

    Args:
        x: ``[..., D]``.
        scale: ``[D]``.
        dtype: the name of x's type; bfloat16 values may be held in an array of another dtype.
    """
    norm = RmsNormAttributes(-1, attributes.epsilon, attributes.norm_stash_type(dtype))
    if attributes.intermediate_rounding:
        rounded = rms_norm.rms_norm(x, scale, NormDtypes(dtype, dtype), x.ndim - 1, norm)
        return rounded_to(rounded, dtype)
    if x.size == 0:
        return np.zeros(x.shape)
    exact, _, _ = rms_norm.normalized(x.astype(np.float64), x.ndim - 1, norm)
    with np.errstate(all="ignore"):
        product: Wide = exact * scale.astype(np.float64)
    return product


def rms_norm_rope(
    call: CallTensors[Array], dtype: str, attributes: RmsNormRopeAttributes
) -> tuple[Wide, Wide]:
    """Return queries and keys before they are rounded, for all tokens, including those that rows skips.

    Args:
        call: the call's arrays.
        dtype: the name of q's and k's type; bfloat16 values may be held in arrays of another dtype.
        attributes: the call's attributes.
    """
    sides = zip(call.xs.values(), scales_of(call), strict=True)
    heads = (normalized_heads(x, scale, dtype, attributes) for x, scale in sides)
    q, k = (rotated(h, call, attributes.params, forward=True, angle=attributes.angle) for h in heads)
    return q, k
