"""Calls that a mutant of qkv_norm_rope_cache's kernel must compute correctly. They cover its paths.

Exit status 0 or 1, as in mutation_rope_calls.py. Results are compared with float64, within the bounds of
npu_rope/testing/qkv.py. The inputs, the padding between rows and the cache's other rows must not change.

usage: python tests/mutants/mutation_qkv_calls.py [OP SOC TYPES]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from mutation_rope_calls import BF16, F16, F32, SOC_310P, SOC_910B, judge_all, sectioned

# Import these after the module above, which prevents the import of torch.
import numpy as np  # isort: skip

from ascend_sim import Options
from ascend_sim import library as simulator

from mutation_rotary_calls import rounded  # isort: skip
from npu_rope.dtypes import bfloat16_values  # isort: skip
from npu_rope.executors import qkv_norm_rope_cache as executors  # isort: skip
from npu_rope.params import RopeParams  # isort: skip
from npu_rope.qkv_norm_rope_cache_calls import CACHES, OP, OUTS, QkvAttributes, qkv_tensors  # isort: skip
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, worst_ratio  # isort: skip
from npu_rope.testing.qkv import expected_results, in_cache  # isort: skip

INT8 = "int8"
# The compiled columns: SoC, dtype of x, dtype of scales, biases and tables; and their dtype of positions.
POSITION_DTYPES = {
    (SOC_910B, BF16, BF16): np.int32,
    (SOC_910B, F16, F32): np.int64,
    (SOC_910B, F32, F32): np.int32,
    (SOC_310P, F16, F16): np.int32,
    (SOC_310P, F32, F32): np.int32,
}
TABLE_ROWS = 90
FILL = 7  # of outputs before the call
ROWS, PAGED, HEADS_FIRST = "rows", "paged", "heads first"  # layouts of caches
BLOCK_SIZE = 4  # rows of a cache's block


@dataclass(frozen=True)
class QkvRun:
    """A call of qkv_norm_rope_cache.

    Attributes:
        x, parameter: dtypes of q, k and v, and of scales, biases and tables.
        heads: numbers of heads of q, k and, unless it is absent, v.
        norms: of q and of k: none, of each ``head``, or of all heads of a ``token``.
        ranks: if not 0, the call has square_sums, of this number of ranks.
        tables: if not empty, the call has tables with an entry for each ``pair`` or ``lane``.
        rows_by_token: token t has row t of the tables instead of a position.
        cache: the layout of the caches; empty for a call without caches.
        out: dtype of the caches.
        quantization: scales of int8 caches of k and v, for the ``tensor``, each ``head`` or each ``channel``.
        pad: elements after each row of inputs and outputs.
        power: the rows are multiplied by 2 to this power.
        cores: maximum number of cores; 0 for all.
    """

    soc: str
    x: str
    parameter: str
    params: RopeParams
    tokens: int
    heads: tuple[int, ...]
    head_size: int
    norms: tuple[str, str] = ("", "")
    bias: bool = False
    scale_offset: float = 0.0
    epsilon: float = 1e-6
    ranks: int = 0
    tables: str = ""
    rows_by_token: bool = False
    factors: bool = False
    cache: str = ""
    out: str = ""
    quantization: tuple[str, str] = ("", "")
    quant_offset: bool = False
    pad: int = 0
    in_place: bool = False
    power: int = 0
    cores: int = 0
    op: str = OP

    @property
    def dtype(self) -> str:
        """The name of the call's column."""
        return f"{self.x}/{self.parameter}"


NEOX, NORMAL = RopeParams(128, "neox"), RopeParams(64, "normal")
HEAD, TOKEN = ("head", "head"), ("token", "token")


def calls() -> list[QkvRun]:
    return [*_bfloat16_calls(), *_float16_calls(), *_float32_calls(), *_calls_on_310p()]


def _bfloat16_calls() -> list[QkvRun]:
    run = lambda *a, **k: QkvRun(SOC_910B, BF16, BF16, *a, **k)  # noqa: E731
    norm: dict[str, Any] = {"epsilon": 0.1, "scale_offset": 1.0}
    return [
        # Several tiles of each side on a core.
        run(NEOX, 50, (6, 2, 2), 128, HEAD, True, **norm, cache=PAGED, out=BF16, cores=2),
        run(NORMAL, 33, (4, 3, 2), 64, TOKEN, True, **norm, pad=16, cores=3),
        run(RopeParams(32, "normal", n_offs=16), 40, (3, 2, 1), 64, in_place=True, cores=2),
        run(NORMAL, 40, (5, 2, 1), 64, cache=ROWS, out=F32, cores=2),
        run(RopeParams(64, "neox", n_offs=16), 21, (3, 2, 2), 96, pad=8, cache=ROWS, out=F16),
        # Given tables: halves, shifts, gather.
        run(NEOX, 12, (3, 2, 2), 128, ("token", ""), tables="lane", pad=4),
        run(NORMAL, 20, (3, 2, 1), 64, tables="pair", rows_by_token=True, cores=1),
        run(RopeParams(34, "neox"), 3, (8, 4, 4), 34, TOKEN, True, ranks=2, tables="pair", cache=PAGED,
            out=F32),
        run(RopeParams(30, "normal", n_offs=10), 17, (3, 2), 70, ("", "head"), tables="lane"),
        # Several planes of given tables: both halves at the same lanes of a mask, and at others; gather.
        run(sectioned(64, "mrope", 8, 12, 12, 0), 19, (3, 2, 2), 64, tables="pair"),
        run(sectioned(160, "mrope", 20, 30, 20, 10), 19, (3, 2), 160, tables="lane", cores=2),
        run(sectioned(36, "imrope", 6, 6, 6, 0), 19, (3, 2), 40, HEAD, tables="pair", cores=2),
        run(sectioned(84, "mrope", 14, 14, 10, 4, n_offs=2), 9, (3, 2), 90, tables="lane"),
        # A table has as many lanes as a mask may have.
        run(sectioned(1024, "mrope", 128, 192, 192, 0), 5, (2, 1), 1024, tables="lane", cores=1),
        # Few tokens: the heads of a token are divided among the cores.
        run(NEOX, 1, (32, 8, 8), 128, HEAD, **norm, cache=HEADS_FIRST, out=BF16),
        run(NEOX, 2, (16, 8, 8), 128, TOKEN, True, **norm, ranks=3, cache=ROWS, out=INT8,
            quantization=("channel", "head"), quant_offset=True),
        # Norms of different numbers of elements; long rows, whose squares leave the range of float32.
        run(NEOX, 9, (6, 6), 128, ("head", "token"), factors=True, power=90, epsilon=0.0),
        run(RopeParams(36, "neox"), 20, (3, 2, 2), 36, HEAD, True, cache=ROWS, out=F32, pad=3),
        # Scales and biases that do not fit UB with the tiles: each tile loads its own.
        run(NEOX, 3, (64, 64, 1), 128, TOKEN, True, **norm, ranks=2, cores=1),
        # The most rows of one instruction, and long rows. Tiles that fill their buffers.
        run(RopeParams(8, "neox"), 1, (255, 2, 1), 16, cores=1),
        run(RopeParams(64, "neox"), 5, (2, 2, 1), 256, cores=1),
        run(RopeParams(16, "neox"), 64, (8, 8, 8), 16, HEAD, cache=ROWS, out=INT8,
            quantization=("tensor", "tensor"), cores=1),
        run(NEOX, 64, (4, 4, 4), 128, HEAD, cache=ROWS, out=F32, cores=1),
    ]  # fmt: skip


def _float16_calls() -> list[QkvRun]:
    run = lambda *a, **k: QkvRun(SOC_910B, F16, F32, *a, out=k.pop("out", INT8), **k)  # noqa: E731
    return [
        run(NEOX, 50, (6, 2, 2), 128, HEAD, True, cache=PAGED, quantization=("head", "tensor"), cores=2),
        run(RopeParams(40, "normal"), 33, (4, 3, 2), 40, TOKEN, True, 0.5, 0.1, cache=ROWS, pad=3,
            quantization=("channel", "channel"), quant_offset=True, cores=3),
        run(RopeParams(36, "neox"), 20, (3, 2, 2), 36, HEAD, True, 1.0, cache=HEADS_FIRST,
            quantization=("tensor", "head"), quant_offset=True),
        run(RopeParams(36, "neox"), 20, (3, 2, 2), 36, TOKEN, True, 1.0, out=""),
        run(RopeParams(64, "neox", n_offs=16), 21, (3, 2, 2), 96, tables="pair", cache=PAGED, pad=8,
            quantization=("channel", "tensor"), cores=2),
        run(RopeParams(24, "normal", n_offs=8), 20, (3, 2, 1), 72, tables="lane", cache=ROWS, out=F32),
        run(RopeParams(24, "normal", n_offs=8), 20, (3, 2, 1), 72, tables="pair", out="", cores=2),
        run(RopeParams(34, "neox"), 3, (8, 4, 4), 34, TOKEN, ranks=1, tables="pair", cache=PAGED,
            quantization=("head", "channel")),
        run(NEOX, 1, (32, 8, 8), 128, TOKEN, True, ranks=2, cache=PAGED, out=F16),
        run(NORMAL, 40, (5, 2, 1), 64, ("", "head"), cache=ROWS, out=BF16, cores=2),
        # Tiles that fill their buffers.
        run(NEOX, 64, (4, 4, 4), 128, HEAD, cache=ROWS, quantization=("tensor", "tensor"), cores=1),
        run(RopeParams(16, "neox"), 64, (8, 8, 8), 16, HEAD, cache=ROWS, quantization=("head", "tensor"),
            quant_offset=True, cores=1),
        # Factors that each tile loads, whole rows and rows with padding.
        run(NEOX, 3, (64, 64, 64), 128, TOKEN, True, ranks=2, cache=ROWS,
            quantization=("channel", "channel"), quant_offset=True, cores=1),
        run(RopeParams(36, "neox"), 3, (200, 200, 2), 36, TOKEN, True, 1.0, ranks=2, cache=ROWS,
            quantization=("channel", "head"), quant_offset=True, cores=1),
    ]  # fmt: skip


def _float32_calls() -> list[QkvRun]:
    run = lambda *a, **k: QkvRun(SOC_910B, F32, F32, *a, **k)  # noqa: E731
    return [
        run(NEOX, 50, (6, 2, 2), 128, HEAD, True, 1.0, 0.1, cache=PAGED, out=F16, cores=2),
        run(RopeParams(36, "normal"), 33, (4, 3, 2), 36, TOKEN, True, cache=ROWS, out=F16, pad=3, cores=3),
        run(RopeParams(64, "neox", n_offs=16), 21, (3, 2, 2), 96, cache=ROWS, out=F32, pad=8),
        run(RopeParams(36, "neox"), 20, (3, 2, 2), 36, HEAD, cache=ROWS, out=INT8, pad=4,
            quantization=("channel", "head"), quant_offset=True, cores=2),
        run(NEOX, 12, (3, 2, 2), 128, tables="lane", in_place=True, cores=2),
        run(NORMAL, 20, (3, 2, 1), 64, ("token", "head"), tables="pair", rows_by_token=True),
        run(NORMAL, 20, (3, 2, 2), 64, cache=PAGED, out=BF16, cores=2),
        run(NEOX, 2, (16, 8, 8), 128, TOKEN, True, ranks=3, cache=HEADS_FIRST, out=F16),
        # Cores that have only values.
        run(NEOX, 2, (4, 4, 16), 128, cache=ROWS, out=INT8, quantization=("tensor", "head")),
    ]  # fmt: skip


def _calls_on_310p() -> list[QkvRun]:
    run = lambda *a, **k: QkvRun(SOC_310P, F16, F16, *a, **k)  # noqa: E731
    return [
        run(NEOX, 30, (6, 2, 2), 128, HEAD, True, 1.0, 0.1, cache=PAGED, out=INT8,
            quantization=("channel", "tensor"), quant_offset=True, cores=2),
        run(RopeParams(36, "normal"), 13, (4, 3, 2), 36, TOKEN, True, cache=ROWS, out=INT8,
            quantization=("channel", "head"), quant_offset=True),
        run(NORMAL, 20, (3, 2, 1), 64, tables="pair", cache=ROWS, out=F32, cores=2),
        run(RopeParams(36, "neox"), 13, (3, 2), 36, HEAD, in_place=True),
        run(NEOX, 2, (16, 8, 8), 128, TOKEN, ranks=3, cache=HEADS_FIRST, out=F16),
        # Factors that the scalar unit loads into their place.
        QkvRun(SOC_310P, F32, F32, RopeParams(36, "normal"), 8, (3, 2, 2), 36, TOKEN, True, cache=ROWS,
               out=INT8, quantization=("channel", "head"), quant_offset=True),
        # Factors that each tile loads, whole rows and rows with padding.
        run(NEOX, 2, (64, 64, 1), 128, TOKEN, True, 1.0, ranks=2, cores=1),
        QkvRun(SOC_310P, F32, F32, RopeParams(68, "neox"), 2, (250, 250, 2), 68, TOKEN, True, 1.0, ranks=2,
               cores=1),
    ]  # fmt: skip


def values_of(stored: np.ndarray) -> np.ndarray:
    """The numbers in an array; a uint16 array holds bfloat16's bits."""
    return bfloat16_values(stored) if stored.dtype == np.uint16 else stored


class Inputs:
    """The inputs of a call, by name. q, k and v are views of one tensor."""

    def __init__(self, call: QkvRun) -> None:
        self.call = call
        self.rng = np.random.default_rng([call.tokens, call.head_size, *call.heads])
        ends = np.cumsum(call.heads)
        self.fused = self.random((call.tokens, ends[-1], call.head_size + call.pad), call.x)
        parts = np.split(self.fused, ends[:-1], axis=1)
        self.xs = {name: part[..., : call.head_size] for name, part in zip("qkv", parts, strict=False)}
        self.others: dict[str, Any] = {}
        self.add_norms()
        self.add_angles()
        if call.cache:
            self.others["slots"] = self.slots()
        if call.out == INT8 and call.cache:
            self.add_quantization()

    def random(self, shape: tuple[int, ...], dtype: str, size: float = 1.0) -> np.ndarray:
        values = self.rng.standard_normal(shape) * size
        return rounded((values * 2.0**self.call.power).astype(np.float32), dtype)[0]

    def parameter(self, *shape: int) -> np.ndarray:
        return rounded(self.rng.uniform(-2, 2, shape).astype(np.float32), self.call.parameter)[0]

    def add_norms(self) -> None:
        call = self.call
        for name, heads, norm in zip("qk", call.heads, call.norms, strict=False):
            if norm:
                elements = call.head_size * (heads if norm == "token" else 1)
                self.others[f"{name}_scale"] = self.parameter(elements)
                if call.bias:
                    self.others[f"{name}_bias"] = self.parameter(elements)
        if call.ranks:
            elements = call.ranks * call.head_size * np.array(call.heads[:2])
            sums = self.rng.uniform(0.5, 2, (call.tokens, 2)) * elements
            self.others["square_sums"] = sums.astype(np.float32)

    def add_angles(self) -> None:
        call = self.call
        if call.tables:
            width = call.params.pairs * (2 if call.tables == "lane" else 1)
            for name, extra in (("cos", 0), ("sin", 5)):  # two strides
                self.others[name] = self.parameter(TABLE_ROWS, width + extra)[:, :width]
        if call.factors:
            self.others["freq_factors"] = self.rng.uniform(0.5, 4, call.params.pairs).astype(np.float32)
        if not call.rows_by_token:
            planes = (4,) if call.params.rope_mode.has_sections else ()
            low, high = (0, TABLE_ROWS) if call.tables else (-9, 4000)
            dtype = POSITION_DTYPES[call.soc, call.x, call.parameter]
            self.others["positions"] = self.rng.integers(low, high, (*planes, call.tokens)).astype(dtype)

    def slots(self) -> np.ndarray:
        """Shuffled rows of the caches. One of five tokens is left out, and so is token 2, whose row is after
        the last one."""
        count = cache_blocks(self.call) * BLOCK_SIZE
        slots = self.rng.permutation(count)[: self.call.tokens].astype(np.int32)
        slots[1::5] = -1
        if self.call.tokens > 2:
            slots[2] = count
        return slots

    def add_quantization(self) -> None:
        call = self.call
        for name, heads, kind in zip("kv", call.heads[1:], call.quantization, strict=True):
            shape = {"tensor": (1,), "head": (heads,), "channel": (heads, call.head_size)}[kind]
            self.others[f"{name}_quant_scale"] = self.rng.uniform(30, 150, shape).astype(np.float32)
            if call.quant_offset:
                self.others[f"{name}_quant_offset"] = self.rng.uniform(-30, 30, shape).astype(np.float32)


def cache_blocks(call: QkvRun) -> int:
    """The blocks of a cache with a few more rows than tokens."""
    return call.tokens // BLOCK_SIZE + 2


def new_output(call: QkvRun, heads: int, dtype: str, cache: str = "") -> np.ndarray:
    """An output full of FILL, as a view of memory with padding after each row."""
    shape: tuple[int, ...] = (call.tokens, heads, call.head_size)
    if cache:
        blocks = cache_blocks(call)
        rows = (blocks * BLOCK_SIZE,) if cache == ROWS else (blocks, BLOCK_SIZE)
        shape = (*rows, heads, call.head_size)
    axes = (0, 2, 1, 3) if cache == HEADS_FIRST else tuple(range(len(shape)))
    whole = np.empty((*(shape[axis] for axis in axes[:-1]), call.head_size + call.pad), storage_of(dtype))
    whole[...] = FILL
    return whole.transpose(axes)[..., : call.head_size]


def storage_of(dtype: str) -> Any:
    return np.uint16 if dtype == BF16 else np.dtype(dtype)


def outputs_of(call: QkvRun, xs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if call.in_place:
        return dict(zip(OUTS, xs.values(), strict=False))
    outs = {"q_out": new_output(call, call.heads[0], call.x)}
    names, dtype = (CACHES, call.out) if call.cache else (OUTS[1:], call.x)
    for name, heads in zip(names, call.heads[1:], strict=False):
        outs[name] = new_output(call, heads, dtype, call.cache)
    return outs


def expectations(call: QkvRun, inputs: Inputs, outs: dict[str, np.ndarray], a: QkvAttributes) -> list[Any]:
    """The values and the bounds of the outputs."""
    tensors = qkv_tensors(
        *({n: values_of(t).copy() for n, t in ts.items()} for ts in (inputs.xs, inputs.others)), {}
    )
    dtypes = dict.fromkeys("qkv", call.x) | (dict.fromkeys("kv", call.out) if call.cache else {})
    results = expected_results(tensors, a, call.x, dtypes, TABLE_ERROR_DEVICE)
    if call.cache:
        slots = inputs.others["slots"]
        slots = np.where(slots < cache_blocks(call) * BLOCK_SIZE, slots, -1)
        for name, cache in zip("kv", CACHES, strict=True):
            if cache in outs:
                results[name] = in_cache(values_of(outs[cache]), results[name], slots)
    return list(results.values())


def warnings() -> list[str]:
    """The warnings of the last launch. Without values, one of them is that v_out was not written."""
    return [str(warning["text"]) for warning in simulator.load().report()["warnings"]]


def check(call: QkvRun) -> str:
    """The detected problem, or an empty string."""
    inputs = Inputs(call)
    outs = outputs_of(call, inputs.xs)
    t = qkv_tensors(inputs.xs, inputs.others, outs)
    a = QkvAttributes(call.params, call.epsilon, call.scale_offset, max(1, call.ranks))
    expected = expectations(call, inputs, outs, a)
    before = inputs.fused.copy()
    executors.launch_on_sim(Options(call.soc, most_cores=call.cores), t, tuple(outs.values()), a)
    for (name, out), (value, bound) in zip(outs.items(), expected, strict=True):
        ratio, at = worst_ratio(values_of(out), value, bound)
        if not ratio <= 1:
            return f"error {ratio:.3g} times its bound at {at} of {name} of {call}"
        if not call.in_place and np.any(out.base[..., call.head_size :] != FILL):
            return f"memory between the rows of {name} was written"
    changed = inputs.fused != before
    if np.any(changed[..., call.head_size if call.in_place else 0 :]):
        return "an input was written"
    return next((text for text in warnings() if len(call.heads) == 3 or "`v_out`" not in text), "")


def main(op: str = "", soc: str = "", types: str = "") -> int:
    return judge_all(calls(), check, op, soc, types)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
