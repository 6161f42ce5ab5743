"""Compare a contestant's result with the float64 reference before its time is measured.

The bound is :func:`npu_rope.testing.bounds.rotation_bound`. Peers have coarser angles, and some of them round
their tables and every product to the tensor's dtype. Their bound therefore has a larger ``table_error`` and
more roundings (npu_rope/testing/bounds.py). A wrong sign, pairing or position exceeds both bounds by far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.reference import rope as reference
from npu_rope.testing.bounds import UNIT_ROUNDOFF, rotation_bound, worst_ratio


def as_float64(x: Any) -> npt.NDArray[np.float64]:
    """Widen a torch tensor of any floating dtype, exactly."""
    wide: npt.NDArray[np.float64] = x.detach().to(torch.float64).numpy()
    return wide


class ExpectedRotation:
    """The reference's result for one tensor, and the values for its bound."""

    def __init__(self, x: Any, positions: Any, params: RopeParams, dtype: str) -> None:
        self.params, self.dtype = params, dtype
        self.x = as_float64(x)
        c, s = reference.cos_sin(reference.position_planes(positions.numpy(), params), params)
        self.c, self.s = c[..., None, :], s[..., None, :]
        self.y = reference.rotate(self.x, self.c, self.s, params)
        self._bounds: dict[tuple[float, int], npt.NDArray[np.float64]] = {}

    def _bound(self, table_error: float, roundings: int) -> npt.NDArray[np.float64]:
        key = (table_error, roundings)
        if key not in self._bounds:
            widened_table_error = table_error + roundings * UNIT_ROUNDOFF[self.dtype]
            self._bounds[key] = rotation_bound(
                self.x, self.c, self.s, self.y, self.params, self.dtype, widened_table_error
            )
        return self._bounds[key]

    def fault_of(self, result: Any, table_error: float, roundings: int) -> str | None:
        """Return None if the result is within its bound, else its error in words."""
        got = as_float64(result)
        if got.shape != self.y.shape:
            return f"result has shape {list(got.shape)} instead of {list(self.y.shape)}"
        ratio, worst_index = worst_ratio(got, self.y, self._bound(table_error, roundings))
        if ratio <= 1.0:
            return None
        error = float(np.nanmax(np.abs(got - self.y))) if not np.isnan(got).all() else float("nan")
        return f"{ratio:.3g} times its bound at {list(worst_index)}; max error {error:.3g}"
