"""How much vector work the device's kernels spend on a rotated element, counted by the simulator.

A full pass is one vector repeat for each 64 float32 lanes of a head; instructions on half of the lanes
count half. The table's share is kept out by comparing calls of many heads with calls of few.
"""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from npu_rope import RopeParams, native_sim, rope

TOKENS, FEW, MANY, D = 480, 32, 64, 128


def work(dtype, mode, heads, backend):
    """Vector repeats of all cores, and the busiest core's by instruction."""
    sections = (16, 24, 24, 0) if mode == "mrope" else None
    positions = np.arange(TOKENS, dtype=np.int32)
    rope(
        np.ones((1, TOKENS, heads, D), dtype),
        np.stack([positions] * 4) if sections else positions,
        RopeParams(D, mode, sections=sections),
        backend=backend,
    )
    summary = native_sim.load().report()["summary"]
    return summary["vector_repeats"], Counter({a["api"]: a["repeats"] for a in summary["apis"]})


def repeats_per_head(dtype, mode, backend="sim"):
    few, _ = work(dtype, mode, FEW, backend)
    many, _ = work(dtype, mode, MANY, backend)
    return (many - few) / (TOKENS * (MANY - FEW))


# Of a head of 128 (full passes: halve): what docs/benchmarks.md names, instruction by instruction.
@pytest.mark.parametrize(
    ("dtype", "mode", "repeats"),
    [
        (ml_dtypes.bfloat16, "neox", 10),  # widen 2, products 4, sums 2, round 2
        (np.float16, "neox", 10),
        (ml_dtypes.bfloat16, "mrope", 10),
        (np.float32, "neox", 6),  # nothing to widen or round
        (ml_dtypes.bfloat16, "normal", 15),  # shifts and or 3, widen twice 4, products 4, sum 2, round 2
        (np.float16, "normal", 15),
        (np.float32, "normal", 8),  # gather 2, products 4, sum 2
    ],
    ids=str,
)
def test_a_rotated_head_costs_so_many_repeats(dtype, mode, repeats):
    assert repeats_per_head(dtype, mode) == pytest.approx(repeats, abs=0.01)


def test_no_gather_where_shifts_do_it():
    few, many = (work(ml_dtypes.bfloat16, "normal", heads, "sim")[1] for heads in (FEW, MANY))
    assert few["Gather"] == many["Gather"] <= 4  # the setup's, of the frequencies
    assert many["ShiftLeft"] > few["ShiftLeft"] > 0


def test_halves_are_addressed_not_swapped():
    _, apis = work(ml_dtypes.bfloat16, "neox", MANY, "sim")
    assert not {"Gather", "Copy", "GatherMask", "ShiftLeft"} & set(apis)


VIEWS = {
    "heads before tokens": lambda d: np.ones((1, 32, 200, d), np.float16).transpose(0, 2, 1, 3),
    "q of a fused projection": lambda d: np.ones((1, 200, 48, d), np.float16)[:, :, :32],
    "a corner of a larger tensor": lambda d: np.ones((1, 300, 40, 2 * d), np.float16)[:, :200, :32, :d],
    "the second half of wider rows": lambda d: np.ones((1, 200, 32, 2 * d), np.float16)[..., d:],
    "one batch for two": lambda d: np.broadcast_to(np.ones((1, 100, 32, d), np.float16), (2, 100, 32, d)),
}


@pytest.mark.parametrize("backend", ["sim", "sim:ascend310p"])
@pytest.mark.parametrize("d", [64, 36])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_read_and_written_where_it_lies(name, d, backend):
    """Global memory moves each element once in and once out: no copy is made of any of these."""
    x = VIEWS[name](d)
    out = np.empty(x.shape, x.dtype)
    before = native_sim.load().lib.npu_sim_launches()
    rope(x, np.arange(x.shape[1]), RopeParams(d, "neox"), backend=backend, out=out)
    assert native_sim.load().lib.npu_sim_launches() == before + 1
    summary = native_sim.load().report()["summary"]
    # A run that is no whole number of 32-byte blocks ends twice where no DMA pads (310P).
    most = x.size * 2 * (1 if d == 64 or backend == "sim" else 2)
    overhead = 48 * 4096 + 8 * x.shape[1] * 48  # positions and the tiling's frequencies, core by core
    assert x.size * 2 <= summary["bytes_read"] <= most + overhead
    assert x.size * 2 <= summary["bytes_written"] <= most
