"""PMX's RotaryPositionEmbedding, written straight from ``specs/pmx_rotary_position_embedding.txt`` and, for
scaling and packing, from PMX's Python operators: token by token and pair by pair, in float64. Shares no
code with the tested code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Sequence(NamedTuple):
    """Consecutive tokens: the first one's position (``start_pos - pad_len[b]``), and their number."""

    first: int
    length: int


def positions(sequences: list[Sequence]) -> npt.NDArray[np.int64]:
    """Return every token's position, ``[tokens]``: start_pos + s - pad_len[b]."""
    return np.array([q.first + s for q in sequences for s in range(q.length)], np.int64)


def angles(
    sequences: list[Sequence],
    pivot: int,
    theta: float,
    scaling: tuple[str, float, int],
    round_attribute: Callable[[float], float] = float,
) -> npt.NDArray[np.float64]:
    """Return ``m * theta ** (-2i / pivot)``, ``[tokens, pivot/2]``. ``round_attribute`` rounds a scaled theta
    and the factor of positions to the back end's precision (a CANN operator's attributes are float32).
    """
    kind, factor, longest = scaling
    rows = []
    for first, length in sequences:
        base, end = theta, first + length
        if kind == "dynamic" and end > longest:
            base = theta * ((factor * end / longest) - (factor - 1)) ** (pivot / (pivot - 2))
        base = round_attribute(base)
        for s in range(length):
            offset = (first + s) * round_attribute(1.0 / factor) if kind == "linear" else float(first + s)
            rows.append([offset * base ** (-2.0 * i / pivot) for i in range(pivot // 2)])
    return np.array(rows, np.float64).reshape(len(rows), pivot // 2)


def rotate(x: npt.NDArray[Any], cos: npt.NDArray[Any], sin: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ``f(q, m)``: each pair (a, b) = (x[2i], x[2i+1]) becomes (a cos - b sin, a sin + b cos). Lanes
    from the pivot on are unchanged.

    Args:
        x: ``[..., N, D]``.
        cos, sin: ``[..., 1, pivot/2]``.
    """
    y = x.astype(np.float64).copy()
    for i in range(cos.shape[-1]):
        a, b = x[..., 2 * i].astype(np.float64), x[..., 2 * i + 1].astype(np.float64)
        y[..., 2 * i] = a * cos[..., i] - b * sin[..., i]
        y[..., 2 * i + 1] = a * sin[..., i] + b * cos[..., i]
    return y
