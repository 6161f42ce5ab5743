"""rope_set_rows in float64: rope (``reference/rope.py``), then cache[rows[t]] = the token's heads.

ggml's fused ROPE, VIEW and SET_ROWS has the same order of operations. A row of -1 skips a token, as in vLLM's
slot mapping.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.reference.rope import rope
from npu_rope.values import Angle


def rope_set_rows(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    rows: npt.ArrayLike,
    cache: npt.ArrayLike,
    params: RopeParams,
    freq_factors: npt.ArrayLike | None = None,
    *,
    forward: bool = True,
    angle: Angle = "exact",
) -> npt.NDArray[np.float64]:
    """Return the cache after the call, in float64, before any rounding to its dtype.

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``.
        rows: ``[B,S]``, or ``[S]`` if B is 1; int32 or int64. Each is the index of a row of the cache, or -1
            to skip the token. Two tokens must not have the same row.
        cache: ``[R,N,D]`` of x's dtype, or float16 or bfloat16 for float32 x.
        positions, params, freq_factors, forward, angle: as for :func:`npu_rope.reference.rope.rope`.

    >>> x, cache = np.ones((2, 1, 2)), np.zeros((3, 1, 2))
    >>> rope_set_rows(x, np.array([0, 1]), np.array([-1, 2]), cache, RopeParams(2)).round(4).tolist()
    [[[0.0, 0.0]], [[0.0, 0.0]], [[-0.3012, 1.3818]]]
    """
    rows, cache = np.asarray(rows), np.asarray(cache)
    y = rope(x, positions, params, freq_factors, forward=forward, angle=angle)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        after = cache.astype(np.float64)
    for token, row in zip(y.reshape(rows.size, *y.shape[-2:]), rows.ravel(), strict=True):
        if row >= 0:
            after[row] = token
    return after
