"""Calls that a mutant of rope's kernel must compute correctly. They cover the paths of the kernel.

The exit status is 0 if

* every result is within its bound,
* no rule of the simulator is broken, and
* no call takes longer than with the unchanged kernel on the simulated timeline.

Otherwise it is 1, and one line has the detected problem.

usage: python tests/mutants/mutation_rope_calls.py [OP SOC DTYPE]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# torch is not needed here, and its import takes most of a run's time.
sys.modules["torch"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402
from ascend_sim import Options  # noqa: E402
from ascend_sim import library as simulator  # noqa: E402

from npu_rope.call_tensors import CallTensors  # noqa: E402
from npu_rope.dtypes import bfloat16_bits, bfloat16_values  # noqa: E402
from npu_rope.executors import rotations as executors  # noqa: E402
from npu_rope.params import RopeParams  # noqa: E402
from npu_rope.reference import rope as reference  # noqa: E402
from npu_rope.rope_calls import (  # noqa: E402
    RopeCallAttributes,
    rope_qk_tensors,
    rope_set_rows_tensors,
    rope_tensors,
)
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, rotation_bound, worst_ratio  # noqa: E402

SOC_910B, SOC_310P = "ascend910b", "ascend310p"
BF16, F16, F32 = "bfloat16", "float16", "float32"
# The compiled columns of rope and rms_norm_rope: the dtypes of x and the positions.
POSITION_DTYPES = {
    SOC_910B: {BF16: np.int32, F16: np.int64, F32: np.int32},
    SOC_310P: {F16: np.int32, F32: np.int64},
}
MAX_TIME_RATIO = 1.005  # a call that takes more than this times the unchanged kernel's cycles is a problem
CHECKED_PAD = 2**20  # number of elements after a row, and before the next, that are checked


@dataclass(frozen=True)
class RopeRun:
    """A call of rope, rope_qk or rope_set_rows.

    Attributes:
        order: the order of B, S, N in memory.
        pad: extra elements at the end of each row.
        far: the position furthest from 0.
        keys: in a call of rope_qk, the number of k's heads; otherwise 0.
        cache: in a call of rope_set_rows, the dtype of the cache; otherwise empty.
    """

    soc: str
    dtype: str
    shape: tuple[int, int, int, int]
    params: RopeParams
    order: str = "BSN"
    pad: int = 0
    factors: bool = False
    forward: bool = True
    in_place: bool = False
    far: int = 0
    batch_positions: bool = False
    positions_step: int = 1
    keys: int = 0
    cache: str = ""

    @property
    def op(self) -> str:
        return "rope_qk" if self.keys else "rope_set_rows" if self.cache else "rope"


def yarn(n_dims: int, mode: str) -> RopeParams:
    return RopeParams(n_dims, mode, n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0, attn_factor=1.2)


def sectioned(n_dims: int, mode: str, *sections: int, n_offs: int = 0) -> RopeParams:
    return RopeParams(n_dims, mode, sections=sections, n_offs=n_offs)


def calls() -> list[RopeRun]:
    return [
        # Whole rows: aligned halves, shifts, gather.
        RopeRun(SOC_910B, BF16, (1, 70, 8, 128), RopeParams(128, "neox"), far=4_000_000),
        RopeRun(
            SOC_910B, F16, (2, 33, 4, 64), RopeParams(64, "normal"), far=-4_000_000, batch_positions=True
        ),
        RopeRun(SOC_910B, F32, (1, 40, 6, 128), yarn(128, "neox")),
        RopeRun(SOC_910B, F32, (2, 9, 5, 96), yarn(96, "normal"), forward=False),
        RopeRun(SOC_910B, BF16, (1, 19, 3, 128), yarn(128, "normal"), in_place=True, far=100_000),
        # Few tokens: heads are split. One row. More tokens than a block.
        RopeRun(SOC_910B, BF16, (1, 1, 32, 128), RopeParams(128, "neox"), far=1_000_000),
        RopeRun(SOC_910B, F32, (1, 1, 1, 2), RopeParams(2, "normal"), far=77),
        RopeRun(SOC_910B, F16, (1, 6000, 1, 32), RopeParams(32, "neox"), far=12345),
        RopeRun(SOC_310P, F32, (1, 3, 2, 16), RopeParams(16, "normal"), far=77),
        # Windows, unaligned halves, ragged rows.
        RopeRun(SOC_910B, F16, (1, 21, 3, 80), RopeParams(20, "neox", n_offs=6), far=5000),
        RopeRun(SOC_910B, BF16, (2, 11, 3, 36), RopeParams(36, "neox"), far=9000),
        RopeRun(SOC_910B, BF16, (1, 50, 4, 96), RopeParams(64, "neox", n_offs=16), far=9000),
        RopeRun(SOC_910B, BF16, (1, 17, 2, 70), RopeParams(30, "normal", n_offs=10), far=600),
        RopeRun(SOC_910B, BF16, (1, 17, 2, 128), RopeParams(64, "neox", n_offs=48), far=600),
        RopeRun(SOC_910B, F32, (1, 13, 2, 200), RopeParams(150, "neox", n_offs=2), far=300),
        RopeRun(SOC_910B, F32, (1, 300, 2, 576), RopeParams(64, "neox", n_offs=512), far=300),
        # Strides: heads before tokens, rows with gaps, factors on the device.
        RopeRun(
            SOC_910B, BF16, (2, 130, 4, 64), RopeParams(64, "neox"), order="BNS", factors=True, far=20_000
        ),
        RopeRun(
            SOC_910B,
            F16,
            (1, 45, 3, 64),
            RopeParams(64, "normal"),
            pad=24,
            factors=True,
            in_place=True,
            far=20_000,
        ),
        RopeRun(
            SOC_910B,
            F32,
            (3, 7, 2, 64),
            RopeParams(64, "normal"),
            order="SBN",
            pad=3,
            positions_step=2,
            far=64,
        ),
        # No padding DMA: rows of whole blocks, repacked rows, element by element.
        RopeRun(SOC_310P, F16, (1, 70, 8, 128), RopeParams(128, "neox"), far=4_000_000),
        RopeRun(SOC_310P, F32, (2, 9, 5, 96), yarn(96, "normal"), forward=False, batch_positions=True),
        RopeRun(SOC_310P, F16, (1, 33, 3, 36), RopeParams(36, "neox"), far=9000),
        RopeRun(SOC_310P, F16, (1, 41, 5, 70), RopeParams(30, "normal", n_offs=10), in_place=True, far=600),
        RopeRun(SOC_310P, F32, (1, 19, 3, 50), RopeParams(50, "neox"), factors=True, far=6000),
        RopeRun(SOC_310P, F32, (1, 9, 3, 8), RopeParams(8, "neox"), factors=True, far=6000),
        RopeRun(SOC_310P, F16, (1, 9, 2, 50), RopeParams(40, "normal"), pad=7, far=50),
        RopeRun(SOC_310P, F16, (1, 3, 2, 6), RopeParams(6, "neox"), pad=3, far=50),
        RopeRun(SOC_310P, F16, (2, 70, 4, 64), RopeParams(64, "normal"), order="BNS", far=70_000),
        # Large remainders after the division by factors, several turns per position; strides that an
        # instruction cannot encode, and the largest that it can.
        RopeRun(
            SOC_910B, F32, (1, 9, 2, 64), RopeParams(64, "neox", freq_scale=9.0), factors=True, far=4_000_000
        ),
        RopeRun(SOC_910B, F16, (60, 2, 16, 1024), RopeParams(1024, "neox"), order="BNS", far=50),
        RopeRun(SOC_910B, F16, (1, 200, 2, 1024), RopeParams(512, "neox"), far=50),
        RopeRun(SOC_310P, F16, (1, 200, 2, 1024), RopeParams(512, "neox"), far=50),
        RopeRun(SOC_310P, F32, (1, 3, 1, 128), RopeParams(128, "neox"), pad=524_288, far=50),
        RopeRun(SOC_310P, F32, (1, 3, 1, 128), RopeParams(128, "neox"), pad=524_280, far=50),
        RopeRun(SOC_910B, F16, (48, 3, 4, 680), RopeParams(680, "neox"), order="BNS", far=50),
        RopeRun(SOC_910B, F16, (1, 240, 3, 680), RopeParams(680, "neox"), far=50),
        RopeRun(SOC_910B, F16, (1, 144, 3, 680), RopeParams(680, "neox"), far=50),
        # One tile per core, where each instruction adds to the time.
        RopeRun(SOC_910B, BF16, (1, 144, 2, 128), RopeParams(128, "neox"), far=50),
        RopeRun(SOC_910B, F32, (1, 144, 2, 128), RopeParams(128, "neox"), cache=F16, far=50),
        RopeRun(SOC_310P, F16, (1, 64, 2, 128), RopeParams(128, "neox"), far=50),
        RopeRun(SOC_910B, BF16, (1, 48, 255, 32), RopeParams(32, "neox"), far=50),
        RopeRun(SOC_910B, BF16, (1, 48, 255, 16), RopeParams(8, "neox"), far=50),
        RopeRun(SOC_910B, BF16, (1, 144, 2, 128), RopeParams(64, "neox"), far=50),
        # Planes of positions: halves, swapped lanes, both widths of positions.
        RopeRun(SOC_910B, BF16, (2, 19, 3, 128), sectioned(128, "mrope", 16, 24, 24, 0), far=90_000),
        RopeRun(SOC_910B, F16, (1, 70, 2, 100), sectioned(84, "imrope", 9, 7, 5, 2, n_offs=6), far=90_000),
        RopeRun(SOC_910B, F32, (1, 20, 2, 512), sectioned(256, "vision", 100, 0, 60, 3), far=90_000),
        RopeRun(SOC_310P, F16, (1, 21, 2, 72), sectioned(36, "vision", 10, 10, 0, 0), far=90_000),
        RopeRun(
            SOC_310P,
            F32,
            (2, 9, 2, 64),
            sectioned(64, "imrope", 12, 10, 10, 0),
            batch_positions=True,
            far=900,
        ),
        # Two tensors; tiles of the first and the second, whole and split by heads.
        RopeRun(SOC_910B, F16, (1, 37, 12, 64), RopeParams(64, "neox"), keys=3, far=90_000),
        RopeRun(SOC_910B, F16, (2, 1, 32, 128), RopeParams(128, "normal"), keys=8, far=90_000, in_place=True),
        RopeRun(SOC_910B, F16, (1, 2400, 8, 128), RopeParams(128, "neox"), keys=1, far=900),
        RopeRun(
            SOC_910B, F16, (1, 300, 3, 80), sectioned(40, "mrope", 4, 4, 4, 2), keys=5, far=900, order="BNS"
        ),
        # Into a cache: rounded on the way, rows of other pitches, partly rotated; by scalars.
        RopeRun(SOC_910B, F32, (2, 33, 4, 64), RopeParams(64, "neox"), cache=F16, far=90_000),
        RopeRun(SOC_910B, F32, (1, 41, 3, 72), RopeParams(40, "normal", n_offs=6), cache=F16, far=900),
        RopeRun(SOC_910B, F32, (1, 5, 2, 40), RopeParams(40, "neox"), cache=F16, far=900),
        RopeRun(SOC_910B, F32, (1, 20, 2, 128), RopeParams(64, "neox"), cache=F16, far=900),
        RopeRun(SOC_910B, F32, (1, 600, 16, 128), RopeParams(128, "neox"), cache=F16, far=900),
        RopeRun(SOC_910B, F32, (1, 9, 2, 44), RopeParams(44, "neox"), cache=F16, far=900),
        RopeRun(SOC_310P, F16, (1, 40, 4, 64), RopeParams(64, "neox"), cache=F16, far=90_000),
        RopeRun(SOC_310P, F16, (1, 7, 2, 36), RopeParams(36, "normal"), cache=F16, far=900),
        # Many tiles per core.
        RopeRun(SOC_910B, BF16, (1, 1024, 16, 128), RopeParams(128, "neox"), far=1000),
        RopeRun(SOC_910B, F16, (1, 1024, 16, 128), RopeParams(128, "normal"), far=1000),
        RopeRun(SOC_910B, F32, (1, 1024, 16, 128), RopeParams(64, "neox"), far=1000),
        RopeRun(SOC_310P, F16, (1, 256, 16, 128), RopeParams(128, "neox"), far=1000),
        RopeRun(SOC_310P, F32, (1, 256, 16, 100), RopeParams(64, "neox"), far=1000),
    ]


def laid_out(call: RopeRun, values: np.ndarray) -> np.ndarray:
    """[B,S,N,D] values as a view of memory in the call's order."""
    axes = ["BSN".index(c) for c in call.order]
    shape = [values.shape[i] for i in axes] + [values.shape[3] + call.pad]
    back = [axes.index(i) for i in range(3)]
    view = np.zeros(shape, values.dtype).transpose(*back, 3)[..., : values.shape[3]]
    view[...] = values
    return view


class Side:
    """One tensor of a call, and its output."""

    def __init__(self, call: RopeRun, heads: int, rng: np.random.Generator) -> None:
        self.call = call
        b, s, _, d = call.shape
        values = rng.standard_normal((b, s, heads, d), dtype=np.float32)
        self.bits = bfloat16_bits(values) if call.dtype == BF16 else values.astype(call.dtype)
        self.exact = bfloat16_values(self.bits) if call.dtype == BF16 else self.bits
        self.x = laid_out(call, self.bits)
        self.out = self.x if call.in_place else laid_out(call, np.full_like(self.bits, 7))

    def problem(self, got: np.ndarray, cosine: np.ndarray, sine: np.ndarray, dtype: str) -> str:
        call = self.call
        expected = reference.rotate(self.exact, cosine, sine, call.params)
        bound = rotation_bound(self.exact, cosine, sine, expected, call.params, dtype, TABLE_ERROR_DEVICE)
        if dtype != call.dtype:  # lanes that are not rotated are also rounded
            bound = np.maximum(bound, np.abs(expected) * 2.0**-11 + 2.0**-24)
        ratio, at = worst_ratio(got, expected, bound)
        if not ratio <= 1:
            return f"error {ratio:.3g} times its bound at {at} of {call}"
        if not call.in_place and not np.array_equal(self.x, self.bits):
            return "x was written"
        base = self.out.base
        if call.pad and base is not None:
            between = np.moveaxis(base, -1, 0)[call.shape[3] :]
            if np.any(between[:CHECKED_PAD] != 0) or np.any(between[-CHECKED_PAD:] != 0):
                return "memory between the rows was written"
        return ""


def positions_of(call: RopeRun, rng: np.random.Generator) -> np.ndarray:
    b, s, _, _ = call.shape
    dtype = POSITION_DTYPES[call.soc][call.dtype] if call.op == "rope" else np.int32
    rows = (b, s) if call.batch_positions else (s,)
    planes = (4,) if call.params.rope_mode.has_sections else ()
    low, high = sorted((call.far, 0))
    wide = rng.integers(low, high + 1, (*planes, *rows[:-1], rows[-1] * call.positions_step)).astype(dtype)
    return wide[..., :: call.positions_step]


def check(call: RopeRun) -> str:
    """The detected problem, or an empty string."""
    rng = np.random.default_rng(sum(call.shape))
    positions = positions_of(call, rng)
    factors = rng.uniform(0.5, 8, call.params.pairs).astype(np.float32) if call.factors else None
    sides = [Side(call, heads, rng) for heads in (call.shape[2], call.keys) if heads]
    planes = reference.position_planes(positions, call.params)
    cosine, sine = reference.cos_sin(planes, call.params, factors, forward=call.forward)
    cosine, sine = cosine[..., None, :], sine[..., None, :]
    if call.cache:
        return check_cache(call, sides[0], positions, factors, cosine, sine)
    outs = tuple(side.out for side in sides)
    if call.keys:
        t = rope_qk_tensors(sides[0].x, sides[1].x, positions, factors, (outs[0], outs[1]))
    else:
        t = rope_tensors(sides[0].x, positions, factors, outs[0])
    launch(call, t, outs)
    for side in sides:
        got = bfloat16_values(np.ascontiguousarray(side.out)) if call.dtype == BF16 else side.out
        if problem := side.problem(got, cosine, sine, call.dtype):
            return problem
    return last_warning()


def launch(call: RopeRun, t: CallTensors[Any], outs: tuple[Any, ...]) -> None:
    attributes = RopeCallAttributes(call.params, call.forward)
    executors.launch_on_sim(Options(call.soc), t, outs, attributes)


def check_cache(
    call: RopeRun, side: Side, positions: np.ndarray, factors: Any, cosine: np.ndarray, sine: np.ndarray
) -> str:
    """Check a scatter of shuffled tokens into a larger cache; every fifth token is left out."""
    b, s, n, d = call.shape
    rng = np.random.default_rng(b + s)
    dtype = np.dtype("int64" if call.soc == "ascend910b" else "int32")
    rows = rng.permutation(b * s + 7)[: b * s].reshape(b, s).astype(dtype)
    rows[..., ::5] = -1
    cache = np.full((b * s + 7, n, d), 5, call.cache)
    launch(call, rope_set_rows_tensors(side.x, positions, rows, factors, cache), (cache,))
    got = np.where((rows < 0)[..., None, None], 0, cache[rows]).astype(call.cache)
    is_stored = rows >= 0
    cosine, sine = (np.broadcast_to(t, (b, s, 1, t.shape[-1])) for t in (cosine, sine))
    zeroed = Side.__new__(Side)
    zeroed.call, zeroed.x, zeroed.bits, zeroed.out = call, side.x, side.bits, side.out
    zeroed.exact = np.where(is_stored[..., None, None], side.exact, 0)
    if problem := zeroed.problem(got, cosine, sine, call.cache):
        return problem
    others = np.setdiff1d(np.arange(len(cache)), rows[is_stored])
    return "another row of the cache was written" if np.any(cache[others] != 5) else last_warning()


def last_warning() -> str:
    """The first warning of the last launch, or an empty string."""
    return next((str(warning["text"]) for warning in simulator.load().report()["warnings"]), "")


class Times:
    """Each call's cycles on the simulated timeline. The file that NPU_ROPE_MUTATION_CYCLES names holds the
    cycles of the unchanged kernel; if the file does not exist, ``write`` writes it."""

    def __init__(self) -> None:
        name = os.environ.get("NPU_ROPE_MUTATION_CYCLES")
        self.path = Path(name) if name else None
        self.cycles_by_call: dict[str, float] = {}
        self.compares = self.path is not None and self.path.is_file()
        if self.path is not None and self.compares:
            self.cycles_by_call = json.loads(self.path.read_text())

    def slowdown(self, call: Any) -> str:
        """The problem if the last launch, that of this call, took too long; otherwise an empty string."""
        cycles = simulator.load().report()["summary"]["cycles"]
        if not self.compares:
            self.cycles_by_call[str(call)] = cycles
        unchanged = self.cycles_by_call[str(call)]
        return (
            f"{cycles:.0f} cycles instead of {unchanged:.0f} of {call}"
            if cycles > MAX_TIME_RATIO * unchanged
            else ""
        )

    def write(self) -> None:
        if self.path is not None and not self.compares:
            self.path.write_text(json.dumps(self.cycles_by_call))


def judge_all(calls: Iterable[Any], check: Callable[[Any], str], op: str, soc: str, dtype: str) -> int:
    """Run the calls of an operator, SoC and type, where empty means any; return the exit status."""
    times = Times()
    for call in calls:
        if op not in ("", call.op) or soc not in ("", call.soc) or dtype not in ("", call.dtype):
            continue
        try:
            problem = check(call) or times.slowdown(call)
        except (RuntimeError, ValueError, TypeError) as error:
            problem = str(error).splitlines()[0]
        if problem:
            print(problem)
            return 1
    times.write()
    return 0


def main(op: str = "", soc: str = "", dtype: str = "") -> int:
    return judge_all(calls(), check, op, soc, dtype)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
