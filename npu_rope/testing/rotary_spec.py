"""Rotation by given tables in float64.

The code follows torch_npu's documentation (``x * cos + rotate(x) * sin``) and the algorithm of
``specs/onnx_rotary_embedding_23.txt``. It shares no code with the tested code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]


def rotate_half(x: Array) -> Array:
    """Map the halves (x1, x2) to (-x2, x1)."""
    x1, x2 = np.split(x, 2, axis=-1)
    return np.concatenate((-x2, x1), axis=-1)


def rotate_every_two(x: Array) -> Array:
    """Map neighbours (x1, x2) to (-x2, x1)."""
    y = np.empty_like(x)
    y[..., 0::2], y[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    return y


def rotary_mul(
    x: Array, cos: Array, sin: Array, *, interleaved: bool, rotary_dim: int = 0, offset: int = 0
) -> tuple[Wide, Wide]:
    """Return ``x * cos + rotate(x) * sin`` and the sum of the products' magnitudes (0 for unrotated lanes).

    Args:
        x: ``[..., S, N, D]``.
        cos, sin: ``[S,W]`` or ``[..., S, W]`` or ``[..., S, 1, W]``, where W is the number of pairs or lanes.
    """
    wide = x.astype(np.float64)
    width = rotary_dim or x.shape[-1]
    window = wide[..., offset : offset + width]
    tables = []
    for table in (cos, sin):
        t = table.astype(np.float64)
        if t.shape[-1] != width:
            t = np.repeat(t, 2, axis=-1) if interleaved else np.concatenate((t, t), axis=-1)
        if t.ndim < 4 and not (t.ndim == x.ndim == 3 and t.shape[1] == 1):
            t = np.expand_dims(t, -2)
        tables.append(t)
    c, s = tables
    rotated = rotate_every_two(window) if interleaved else rotate_half(window)
    value, magnitude = wide.copy(), np.zeros(x.shape)
    value[..., offset : offset + width] = window * c + rotated * s
    magnitude[..., offset : offset + width] = np.abs(window * c) + np.abs(rotated * s)
    return value, magnitude


def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None,
    *,
    interleaved: bool,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> tuple[Wide, Wide]:
    """Return the result of ONNX's algorithm, and the magnitudes as :func:`rotary_mul` does."""
    if x.ndim == 4:
        heads = np.transpose(x, (0, 2, 1, 3))
    else:
        heads = np.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))
    half = (rotary_embedding_dim or heads.shape[3]) // 2
    cos, sin = (t if position_ids is None else t[position_ids] for t in (cos_cache, sin_cache))
    both = rotary_mul(
        heads, cos[:, :, :half], sin[:, :, :half], interleaved=interleaved, rotary_dim=rotary_embedding_dim
    )
    value, magnitude = (
        np.transpose(y, (0, 2, 1, 3)) if x.ndim == 4 else np.reshape(y, x.shape) for y in both
    )
    return value, magnitude
