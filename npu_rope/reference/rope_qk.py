"""rope_qk in float64: rope (``reference/rope.py``) of queries, then of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.reference.rope import rope
from npu_rope.values import Angle


def rope_qk(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    positions: npt.ArrayLike,
    params: RopeParams,
    freq_factors: npt.ArrayLike | None = None,
    *,
    forward: bool = True,
    angle: Angle = "exact",
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Rotate q and k by their positions. Return float64 values, before any rounding.

    Args:
        q, k: ``[B,S,N,D]`` or ``[S,N,D]`` of one dtype, with the same sizes except for N.
        positions, params, freq_factors, forward, angle: as for :func:`npu_rope.reference.rope.rope`.

    >>> q, k = rope_qk(np.eye(2)[None], np.ones((1, 1, 2)), np.array([1]), RopeParams(2))
    >>> q.round(4).tolist(), k.round(4).tolist()
    ([[[0.5403, 0.8415], [-0.8415, 0.5403]]], [[[-0.3012, 1.3818]]])
    """
    options: dict[str, Any] = {"forward": forward, "angle": angle}
    rotated_q, rotated_k = (rope(x, positions, params, freq_factors, **options) for x in (q, k))
    return rotated_q, rotated_k
