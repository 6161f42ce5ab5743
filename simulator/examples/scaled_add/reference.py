"""ScaledAdd in NumPy, for ``ascend-sim kernel --reference``."""

from __future__ import annotations

from typing import Any

import numpy as np


def scaled_add(x: Any, y: Any, bias: Any = None, scale: float = 1.0) -> dict[str, Any]:
    """Return z in float64 and the largest permitted error of each element.

    The kernel rounds the scale, the product and each sum to the type. The limit is at least twice their total
    error.
    """
    exact = x.astype(np.float64) + np.float64(scale) * y
    sizes = np.abs(x.astype(np.float64)) + 2 * np.abs(scale * y.astype(np.float64))
    if bias is not None:
        exact, sizes = exact + bias, sizes + np.abs(bias)
    return {"z": (exact, 2 * sizes * np.finfo(x.dtype).eps)}
