"""Calls with given tables that a mutant of rotary_mul's kernel must compute correctly. They cover its paths.

Exit status 0 or 1, as in mutation_rope_calls.py.

usage: python tests/mutants/mutation_rotary_calls.py [OP SOC DTYPE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from mutation_rope_calls import BF16, F16, F32, SOC_310P, SOC_910B, judge_all, laid_out, last_warning

# Import these after the module above, which prevents the import of torch.
import numpy as np  # isort: skip

from ascend_sim import Options  # isort: skip

from npu_rope.call_tensors import CallTensors  # isort: skip
from npu_rope.dtypes import bfloat16_bits, bfloat16_values  # isort: skip
from npu_rope.executors import rotations as executors  # isort: skip
from npu_rope.rotary_calls import (  # isort: skip
    RotaryAttributes,
    rotary_embedding_tensors,
    rotary_mul_qk_tensors,
    rotary_mul_tensors,
)
from npu_rope.testing import rotary_spec  # isort: skip
from npu_rope.testing.bounds import table_bound, worst_ratio  # isort: skip

TABLE_DTYPES = {BF16: F32, F16: F16, F32: F32}  # of the compiled columns, by the dtype of x


@dataclass(frozen=True)
class TableRun:
    """A call of rotary_mul, rotary_mul_qk or rotary_embedding.

    Attributes:
        full: whether the tables have an entry for each lane, not for each pair.
        rows: in a call with position_ids (rotary_embedding's layouts), the rows of the tables; otherwise 0.
        keys: in a call of rotary_mul_qk, the number of k's heads; otherwise 0.
        order, pad: as in mutation_rope_calls.
        table_step: the distance between the rows of neighbouring tokens, in rows.
    """

    soc: str
    dtype: str
    shape: tuple[int, int, int, int]
    full: bool = False
    interleaved: bool = False
    rotary_dim: int = 0
    offset: int = 0
    rows: int = 0
    keys: int = 0
    order: str = "BSN"
    pad: int = 0
    table_step: int = 1
    by_batch: bool = False
    narrow_ids: bool = False
    forward: bool = True
    in_place: bool = False

    @property
    def op(self) -> str:
        return "rotary_mul_qk" if self.keys else "rotary_mul"

    @property
    def width(self) -> int:
        return self.rotary_dim or self.shape[3]


def calls() -> list[TableRun]:
    both = [
        TableRun(soc, dtype, (2, 21, 3, d), full, interleaved, forward=forward)
        for soc, dtype in (
            (SOC_910B, BF16),
            (SOC_910B, F16),
            (SOC_910B, F32),
            (SOC_310P, F16),
            (SOC_310P, F32),
        )
        for full in (False, True)
        for interleaved in (False, True)
        for forward in (True, False)
        for d in (64, 48, 36)
    ]
    return [
        *both,
        # Windows from 32-byte borders on and from others on; more lanes than a repeat.
        TableRun(SOC_910B, BF16, (1, 19, 2, 96), True, False, 64, 16),
        TableRun(SOC_910B, BF16, (1, 19, 2, 96), True, True, 64, 16),
        TableRun(SOC_910B, F16, (1, 19, 2, 70), False, True, 30, 10),
        TableRun(SOC_910B, F16, (1, 19, 2, 70), True, False, 44, 6, forward=False),
        TableRun(SOC_910B, F32, (1, 300, 2, 1024), True, False),
        TableRun(SOC_910B, F32, (1, 30, 2, 200), False, False, 150, 2),
        TableRun(SOC_310P, F16, (1, 19, 3, 50), True, True, 36, 10),
        TableRun(SOC_310P, F32, (1, 9, 3, 6), False, False),
        TableRun(SOC_310P, F16, (1, 70, 2, 10), False, False),
        # Tables of several strides; more tokens than a block; heads before tokens; in place; one token.
        TableRun(SOC_910B, F16, (2, 130, 4, 64), order="BNS", table_step=3, by_batch=True),
        TableRun(SOC_910B, F32, (2, 9, 2, 64), True, table_step=-1, in_place=True),
        TableRun(SOC_910B, BF16, (1, 40, 2, 128), table_step=0),
        TableRun(SOC_310P, F16, (2, 40, 2, 128), table_step=2, by_batch=True),
        TableRun(SOC_310P, F32, (2, 40, 2, 128), table_step=0),
        TableRun(SOC_910B, BF16, (1, 1, 32, 128), True),
        TableRun(SOC_910B, F16, (1, 6000, 1, 32)),
        # Rows that ids of 32 or 64 bits select: with gaps, and of fewer lanes than a head.
        TableRun(SOC_910B, BF16, (2, 21, 3, 64), rows=40),
        TableRun(SOC_910B, F16, (1, 70, 3, 64), rows=9, interleaved=True, narrow_ids=True),
        TableRun(SOC_910B, F32, (2, 9, 2, 80), rows=1000, rotary_dim=36, table_step=2, forward=False),
        TableRun(SOC_310P, F16, (2, 21, 3, 64), rows=40, narrow_ids=True),
        TableRun(SOC_310P, F32, (1, 9, 2, 80), rows=12, rotary_dim=36),
        # Queries and keys.
        TableRun(SOC_910B, F16, (1, 37, 12, 64), True, keys=3),
        TableRun(SOC_910B, F16, (2, 9, 4, 80), False, True, 40, 8, keys=2, by_batch=True),
        TableRun(SOC_910B, F16, (2, 1, 32, 128), True, keys=8, in_place=True),
        # Many tiles per core: calls that are slower on the timeline are problems.
        TableRun(SOC_910B, BF16, (1, 1024, 16, 128), True),
        TableRun(SOC_910B, F16, (1, 1024, 16, 128), False, True),
        TableRun(SOC_910B, F32, (1, 1024, 16, 128), True, True),
        TableRun(SOC_310P, F16, (1, 256, 16, 128), True),
    ]


def rounded(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The values rounded to a type: as they are stored (for bfloat16, the bits), and as numbers."""
    if dtype == BF16:
        bits = bfloat16_bits(values)
        return bits, bfloat16_values(bits)
    stored = values.astype(dtype)
    return stored, stored


def tables_of(call: TableRun, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The stored cos and sin, and their values. The shapes are ``[B or 1, S, W]`` or ``[rows, W]``."""
    b, s, _, _ = call.shape
    batches = (b if call.by_batch else 1,)
    lead = (call.rows,) if call.rows else (*batches, s)
    width = call.width if call.full else call.width // 2
    views, values = [], []
    for extra in (0, 3):  # two strides
        rows = max(1, lead[-1] * abs(call.table_step))
        memory = rng.uniform(-2, 2, (*lead[:-1], rows, width + extra)).astype(np.float32)
        for made, t in zip((views, values), rounded(memory, TABLE_DTYPES[call.dtype]), strict=True):
            if call.table_step == 0:
                t = np.broadcast_to(t, (*lead, t.shape[-1]))
            made.append(t[..., :: call.table_step or 1, :width])
    return views, values


class Rotated:
    """One tensor of a call, and its output."""

    def __init__(self, call: TableRun, heads: int, rng: np.random.Generator) -> None:
        b, s, _, d = call.shape
        values = rng.standard_normal((b, s, heads, d), dtype=np.float32)
        self.bits, self.exact = rounded(values, call.dtype)
        self.x = laid_out(call, self.bits)  # type: ignore[arg-type]
        self.out = self.x if call.in_place else laid_out(call, np.full_like(self.bits, 7))  # type: ignore[arg-type]

    def problem(self, call: TableRun, tables: list[np.ndarray]) -> str:
        got = bfloat16_values(np.ascontiguousarray(self.out)) if call.dtype == BF16 else self.out
        value, magnitude = expected(call, self.exact, tables)
        ratio, at = worst_ratio(got.astype(np.float64), value, table_bound(magnitude, value, call.dtype))
        if not ratio <= 1:
            return f"error {ratio:.3g} times its bound at {at} of {call}"
        if not call.in_place and not np.array_equal(self.x, self.bits):
            return "x was written"
        return ""


def expected(call: TableRun, x: np.ndarray, tables: list[np.ndarray]) -> tuple[Any, Any]:
    """The formula's result and magnitudes. Backward, a pair's sines are exchanged and negated."""
    cos, sin = tables
    if not call.forward:
        sin = -(partners(sin, call.interleaved) if call.full else sin)
    window: dict[str, Any] = {"rotary_dim": call.rotary_dim, "offset": call.offset}
    return rotary_spec.rotary_mul(x, cos, sin, interleaved=call.interleaved, **window)


def partners(t: np.ndarray, interleaved: bool) -> np.ndarray:
    if interleaved:
        return t.reshape(*t.shape[:-1], -1, 2)[..., ::-1].reshape(t.shape)
    return np.concatenate(np.split(t, 2, -1)[::-1], -1)


def check(call: TableRun) -> str:
    """The detected problem, or an empty string."""
    rng = np.random.default_rng(sum(call.shape))
    views, values = tables_of(call, rng)
    rotated = [Rotated(call, heads, rng) for heads in (call.shape[2], call.keys) if heads]
    t: CallTensors[Any]
    if call.rows:
        b, s, _, _ = call.shape
        ids = rng.integers(0, call.rows, (b, s)).astype(np.int32 if call.narrow_ids else np.int64)
        values = [t[ids] for t in values]
        heads_first = [a.transpose(0, 2, 1, 3) for a in (rotated[0].x, rotated[0].out)]
        t = rotary_embedding_tensors(heads_first[0], *views, ids, heads_first[1])
    elif call.keys:
        t = rotary_mul_qk_tensors(rotated[0].x, rotated[1].x, *views, (rotated[0].out, rotated[1].out))
    else:
        t = rotary_mul_tensors(rotated[0].x, *views, rotated[0].out)
    a = RotaryAttributes(call.interleaved, call.rotary_dim, call.offset, 0, call.forward)
    executors.launch_on_sim(Options(call.soc), t, tuple(t.outs.values()), a)
    for side in rotated:
        if problem := side.problem(call, values):
            return problem
    return last_warning()


def main(op: str = "", soc: str = "", dtype: str = "") -> int:
    return judge_all(calls(), check, op, soc, dtype)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
