"""Count the vector repeats of each rotated head on the simulated device."""

from __future__ import annotations

from collections import Counter

import numpy as np
from ascend_sim import library as simulator

from npu_rope import RopeParams, rope

TOKENS, FEW_HEADS, MANY_HEADS, D = 240, 32, 64, 128
DEVICES = ("sim", "sim:ascend310p")
SECTIONS = {"mrope": (16, 24, 24, 0), "imrope": (24, 20, 20, 0), "vision": (32, 32, 0, 0)}
MODES = ("normal", "neox", *SECTIONS)


def params_of(mode, d, n_offs=0):
    """Return parameters that rotate the head except n_offs lanes at each end; sections cover all pairs."""
    n_dims = d // 2 if mode == "vision" else d - 2 * n_offs
    pairs = n_dims if mode == "vision" else n_dims // 2
    third = pairs // 3
    sections = (pairs - 2 * third, third, third, 0) if mode in SECTIONS else None
    return RopeParams(n_dims, mode, sections=sections, n_offs=n_offs)


def positions_of(mode, tokens):
    """Return positions; in the modes with sections, four planes that differ."""
    positions = np.arange(tokens, dtype=np.int32)
    return positions * np.array([[1], [2], [3], [5]], np.int32) if mode in SECTIONS else positions


def count_repeats(dtype, mode, heads, backend):
    """Run rope; return the vector repeats of all cores, and those of the slowest core by instruction."""
    rope(
        np.ones((1, TOKENS, heads, D), dtype),
        positions_of(mode, TOKENS),
        RopeParams(D // 2 if mode == "vision" else D, mode, sections=SECTIONS.get(mode)),
        backend=backend,
    )
    summary = simulator.load().report()["summary"]
    return summary["vector_repeats"], Counter({row["api"]: row["repeats"] for row in summary["apis"]})


def repeats_by_instruction(dtype, mode, backend="sim"):
    """Return the repeats of a rotated head: their number, and a dict by instruction.

    Both come from the difference between two calls, so the cost of the table cancels out.
    """
    fewer, fewer_by_api = count_repeats(dtype, mode, FEW_HEADS, backend)
    more, more_by_api = count_repeats(dtype, mode, MANY_HEADS, backend)
    per_head = (more - fewer) / (TOKENS * (MANY_HEADS - FEW_HEADS))
    changes = {api: count - fewer_by_api[api] for api, count in more_by_api.items()}
    added = {api: count for api, count in changes.items() if count}
    return per_head, {api: per_head * count / sum(added.values()) for api, count in added.items()}
