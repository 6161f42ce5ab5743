"""add_rms_norm in float64, formula first.

    Sum = X + residual, rounded to X's type
    Y   = rms_norm of Sum (``rms_norm.py``)

A float64 sum rounded to X's type equals a float32 sum rounded to X's type: float64 and float32 have at least
two bits more than twice the bits of any narrower type, so that rounding twice changes nothing.
"""

from __future__ import annotations

import numpy as np

from npu_rope.dtypes import rounded_to
from npu_rope.reference.rms_norm import Array, NormDtypes, Wide, rms_norm
from npu_rope.rms_norm_calls import RmsNormAttributes


def add_rms_norm(
    x: Array, residual: Array, scale: Array, dtypes: NormDtypes, axis: int, attributes: RmsNormAttributes
) -> tuple[Wide, Wide]:
    """Return Y before it is rounded to scale's type, and Sum.

    Args:
        x, residual: any shape.
        scale, dtypes, axis, attributes: as for :func:`npu_rope.reference.rms_norm.rms_norm`.
    """
    with np.errstate(all="ignore"):  # infinities
        total = rounded_to(x.astype(np.float64) + residual.astype(np.float64), dtypes.x)
    return rms_norm(total, scale, dtypes, axis, attributes), total
