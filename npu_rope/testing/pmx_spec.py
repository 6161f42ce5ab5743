"""PMX's RotaryPositionEmbedding, token by token and pair by pair, in float64.

The code follows ``specs/pmx_rotary_position_embedding.txt``, and PMX's Python operators for scaling and
packing. It shares no code with the tested code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class PmxSequence(NamedTuple):
    """Consecutive tokens: the position of the first one (``start_pos - pad_len[b]``), and their number."""

    first: int
    length: int


def positions(sequences: list[PmxSequence]) -> npt.NDArray[np.int64]:
    """Return every token's position, ``[tokens]``: start_pos + s - pad_len[b]."""
    return np.array(
        [sequence.first + index for sequence in sequences for index in range(sequence.length)], np.int64
    )


def angles(
    sequences: list[PmxSequence],
    pivot: int,
    theta: float,
    scaling: tuple[str, float, int],
    round_attribute: Callable[[float], float] = float,
) -> npt.NDArray[np.float64]:
    """Return the angles ``m * theta ** (-2i / pivot)`` of position m and pair i, ``[tokens, pivot/2]``.

    Args:
        pivot: the number of lanes that rotate.
        scaling: the type of the scaling, its factor, and the largest position without scaling.
        round_attribute: rounds a scaled theta and the factor of positions as the back end does. CANN rounds
            an operator's attributes to float32.
    """
    kind, factor, longest = scaling
    rows = []
    for first, length in sequences:
        scaled_theta, end = theta, first + length
        if kind == "dynamic" and end > longest:
            scaled_theta = theta * ((factor * end / longest) - (factor - 1)) ** (pivot / (pivot - 2))
        scaled_theta = round_attribute(scaled_theta)
        for index in range(length):
            offset = (
                (first + index) * round_attribute(1.0 / factor) if kind == "linear" else float(first + index)
            )
            rows.append([offset * scaled_theta ** (-2.0 * i / pivot) for i in range(pivot // 2)])
    return np.array(rows, np.float64).reshape(len(rows), pivot // 2)


def rotate(x: npt.NDArray[Any], cos: npt.NDArray[Any], sin: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the specification's ``f(q, m)``: each pair (a, b) = (x[2i], x[2i+1]) becomes
    (a cos - b sin, a sin + b cos). Lanes from the pivot on are unchanged.

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
