"""The vector repeats that a rotated head costs on the device, counted by the simulator."""

from __future__ import annotations

from collections import Counter

import numpy as np
from ascend_sim import library as simulator

from npu_rope import RopeParams, rope

TOKENS, FEW, MANY, D = 240, 32, 64, 128
DEVICES = ("sim", "sim:ascend310p")
SECTIONS = {"mrope": (16, 24, 24, 0), "imrope": (24, 20, 20, 0), "vision": (32, 32, 0, 0)}
MODES = ("normal", "neox", *SECTIONS)


def params_of(mode, d, n_offs=0):
    """The whole head, or what n_offs leaves of it; sections that cover its pairs."""
    n_dims = d // 2 if mode == "vision" else d - 2 * n_offs
    pairs = n_dims if mode == "vision" else n_dims // 2
    width, rest = pairs // 3, pairs - 2 * (pairs // 3)
    sections = (rest, width, width, 0) if mode in SECTIONS else None
    return RopeParams(n_dims, mode, sections=sections, n_offs=n_offs)


def positions_of(mode, tokens):
    """Four planes that differ, in the modes with sections."""
    positions = np.arange(tokens, dtype=np.int32)
    return positions * np.array([[1], [2], [3], [5]], np.int32) if mode in SECTIONS else positions


def work(dtype, mode, heads, backend):
    """Vector repeats of all cores, and the busiest core's by instruction."""
    rope(
        np.ones((1, TOKENS, heads, D), dtype),
        positions_of(mode, TOKENS),
        RopeParams(D // 2 if mode == "vision" else D, mode, sections=SECTIONS.get(mode)),
        backend=backend,
    )
    summary = simulator.load().report()["summary"]
    return summary["vector_repeats"], Counter({a["api"]: a["repeats"] for a in summary["apis"]})


def repeats_by_instruction(dtype, mode, backend="sim"):
    """Return the repeats of a rotated head, by instruction."""
    few, few_apis = work(dtype, mode, FEW, backend)
    many, many_apis = work(dtype, mode, MANY, backend)
    head = (many - few) / (TOKENS * (MANY - FEW))
    more = {api: many_apis[api] - few_apis[api] for api in many_apis if many_apis[api] != few_apis[api]}
    return head, {api: head * count / sum(more.values()) for api, count in more.items()}
