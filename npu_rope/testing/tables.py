"""Suites ``onnx`` and ``torch_npu`` of ``npu-rope validate``: heads that given tables rotate.

``rotary_spec.py`` computes ONNX's algorithm and torch_npu's formula in float64. The case's name seeds the
generator of its values. A form is a kind of call; each form has a case for each dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.executors import rotations as executors
from npu_rope.rotary_calls import (
    RotaryAttributes,
    rotary_embedding_tensors,
    rotary_mul_qk_tensors,
    rotary_mul_tensors,
)
from npu_rope.testing import outcomes, rotary_spec
from npu_rope.testing.bits import run_on_bits
from npu_rope.testing.bounds import is_device, table_bound
from npu_rope.testing.cases import SHORT, generator_of, rounded
from npu_rope.testing.chip_types import chip_lacks
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import CaseResult, Expectation, Judgement

Array = npt.NDArray[Any]
T = TypeVar("T")
DTYPES = ("float32", "float16", "bfloat16")
_SOURCE = {
    "onnx": "ONNX RotaryEmbedding-23",
    "torch_npu": "documentation of torch_npu.npu_rotary_mul",
}


@dataclass(frozen=True)
class TableCase:
    """One call of rotary_embedding, rotary_mul or (with keys) rotary_mul_qk.

    Attributes:
        name: unique within its suite.
        shape: the shape of X, x or q.
        keys: the number of k's heads; 0: no k.
        table: the tables' shape without their last dimension. The default () is (rows,) or (B, S) for ONNX,
            and (S,) for torch_npu.
        full: tables have an entry for each lane; otherwise, for each pair.
        wide: tables are float32 for every dtype of x.
        rows: the number of table rows from which position_ids select; 0: no position_ids.
        scale: the factor of cos and sin (YaRN's attention factor); 0: random tables instead of cos and sin.
        start: the least position of a token; with rows, at most the last row.
    """

    name: str
    suite: str
    dtype: str
    shape: tuple[int, ...]
    keys: int = 0
    table: tuple[int, ...] = ()
    full: bool = False
    wide: bool = False
    rows: int = 0
    scale: float = 1.0
    start: int = 0
    interleaved: bool = False
    rotary_dim: int = 0
    offset: int = 0
    num_heads: int = 0
    in_place: bool = False

    @property
    def op(self) -> str:
        """The name of the operation in reports."""
        return "ROTARY_EMBEDDING" if self.suite == "onnx" else "ROTARY_MUL"

    @property
    def source(self) -> str:
        """The source of the formula."""
        return _SOURCE[self.suite]

    @property
    def attributes(self) -> RotaryAttributes:
        """The attributes in the operators' form."""
        return RotaryAttributes(self.interleaved, self.rotary_dim, self.offset, self.num_heads)

    @property
    def width(self) -> int:
        """The number of lanes that rotate."""
        head = self.shape[-1] // self.num_heads if self.num_heads and len(self.shape) == 3 else self.shape[-1]
        return self.rotary_dim or head


# ---- the cases -----------------------------------------------------------------------------------------

# The name of each form, and its differences from a prefill of 16 tokens.
_ONNX: dict[str, dict[str, Any]] = {
    "prefill": {"rows": 64},
    "decode": {"shape": (8, 32, 1, 128), "rows": 4096, "start": 4000},
    "no-ids": {},
    "no-ids-interleaved": {"interleaved": True},
    "interleaved": {"interleaved": True, "rows": 64},
    "flat": {"shape": (2, 16, 512), "num_heads": 4, "rows": 64},
    "flat-interleaved": {"shape": (2, 16, 512), "num_heads": 4, "interleaved": True},
    "partial": {"rotary_dim": 32, "rows": 64},
    "partial-interleaved": {"rotary_dim": 32, "rows": 64, "interleaved": True},
    "flat-partial": {"shape": (2, 16, 512), "num_heads": 4, "rotary_dim": 64, "rows": 64},
    "d64": {"shape": (2, 71, 9, 64), "rows": 300, "start": 200},
    "d80": {"shape": (1, 4, 16, 80), "rows": 64},
    "d256": {"shape": (1, 8, 9, 256), "rows": 64},
    "d2": {"shape": (2, 3, 9, 2), "rows": 64},
    "more-tokens-than-rows": {"rows": 5},
    "one-head": {"shape": (1, 1, 16, 128), "rows": 64},
    "yarn": {"rows": 64, "scale": 1.35},
    "float32-tables": {"rows": 64, "wide": True},
}
_TORCH_NPU: dict[str, dict[str, Any]] = {
    "half": {"full": True},
    "half-width": {},
    "interleave": {"full": True, "interleaved": True},
    "interleave-half-width": {"interleaved": True},
    "each-lane": {"full": True, "scale": 0.0},
    "each-lane-interleave": {"full": True, "scale": 0.0, "interleaved": True},
    "by-batch": {"table": (2, 16, 1), "full": True},
    "for-all": {"table": (1, 16, 1), "full": True},
    "decode": {"shape": (8, 1, 32, 128), "table": (8, 1, 1), "full": True, "start": 131_000},
    "packed": {"shape": (40, 8, 128), "table": (40, 1), "full": True},
    "queries-and-keys": {"keys": 2, "full": True},
    "queries-and-keys-decode": {"shape": (8, 1, 32, 128), "keys": 8, "table": (8, 1)},
    "partial": {"rotary_dim": 64},
    "window": {"rotary_dim": 64, "offset": 64, "full": True},
    "window-interleave": {"rotary_dim": 36, "offset": 10, "interleaved": True},
    "d64": {"shape": (2, 16, 71, 64), "full": True},
    "d1024": {"shape": (1, 16, 2, 1024), "full": True},
    "d6": {"shape": (2, 16, 3, 6), "full": True},
    "yarn": {"full": True, "scale": 1.35},
    "float32-tables": {"full": True, "wide": True},
    "in-place": {"full": True, "in_place": True},
    "queries-and-keys-in-place": {"keys": 2, "in_place": True},
}


def _cases(suite: str, forms: dict[str, dict[str, Any]], shape: tuple[int, ...]) -> Iterator[TableCase]:
    for form, differences in forms.items():
        for dtype in DTYPES:
            case = TableCase("", suite, dtype, **{"shape": shape, **differences})
            if suite == "torch_npu" and not case.table:
                case = replace(case, table=(case.shape[-3],))
            sizes = str(list(case.shape)).replace(" ", "")
            yield replace(case, name=f"{form}(type={SHORT[dtype]},shape={sizes})")


def onnx_cases() -> Iterator[TableCase]:
    """Yield every form of ONNX's RotaryEmbedding in every type."""
    yield from _cases("onnx", _ONNX, (2, 4, 16, 128))


def torch_npu_cases() -> Iterator[TableCase]:
    """Yield every form of rotary_mul in every type."""
    yield from _cases("torch_npu", _TORCH_NPU, (2, 16, 8, 128))


# ---- data ----------------------------------------------------------------------------------------------


@dataclass
class TableData:
    """A case's arrays; bfloat16 as float32 values."""

    xs: list[Array]
    cos: Array
    sin: Array
    position_ids: Array | None


def make_data(case: TableCase) -> TableData:
    """Return the case's values, rounded to its types."""
    generator = generator_of(case)
    shapes = [case.shape] + ([(*case.shape[:-2], case.keys, case.shape[-1])] if case.keys else [])
    xs = [rounded(generator.uniform(-1, 1, shape), case.dtype) for shape in shapes]
    half = case.width // 2
    table_shape = case.table or ((case.rows,) if case.rows else _tokens(case))
    positions = generator.integers(case.start, case.start + 50, table_shape).astype(np.float64)
    if case.rows:
        positions = np.arange(case.rows, dtype=np.float64)
    angles = positions[..., None] * 10000.0 ** (-np.arange(half) / half)
    if case.scale == 0:  # each lane has its own random value
        tables = generator.uniform(-2, 2, (2, *table_shape, 2 * half))
    else:
        tables = case.scale * np.stack([np.cos(angles), np.sin(angles)])
        if case.full:
            tables = np.repeat(tables, 2, -1) if case.interleaved else np.concatenate((tables, tables), -1)
    cos, sin = (rounded(table, "float32" if case.wide else case.dtype) for table in tables)
    position_ids = None
    if case.rows:
        position_ids = generator.integers(min(case.start, case.rows - 1), case.rows, _tokens(case))
    return TableData(xs, cos, sin, position_ids)


def _tokens(case: TableCase) -> tuple[int, int]:
    """Return B and S of ONNX's layouts."""
    return (case.shape[0], case.shape[1 if len(case.shape) == 3 else 2])


def expectation(case: TableCase, data: TableData) -> list[Expectation]:
    """Return the formula's result for each tensor of ``data.xs``, with the bound of an executor's error."""
    expected = []
    for x in data.xs:
        if case.suite == "onnx":
            value, magnitude = rotary_spec.rotary_embedding(
                x,
                data.cos,
                data.sin,
                data.position_ids,
                interleaved=case.interleaved,
                num_heads=case.num_heads,
                rotary_embedding_dim=case.rotary_dim,
            )
        else:
            window = {"rotary_dim": case.rotary_dim, "offset": case.offset}
            value, magnitude = rotary_spec.rotary_mul(
                x, data.cos, data.sin, interleaved=case.interleaved, **window
            )
        expected.append(Expectation(value, table_bound(magnitude, value, case.dtype)))
    return expected


# ---- judging -------------------------------------------------------------------------------------------


def judge_tables(case: TableCase, backends: list[str], ggml: GgmlProcess | None = None) -> CaseResult:
    """Run and judge one case; ggml has no such operator."""
    data = make_data(case)
    judge = partial(_judge, case, data, expectation(case, data))
    return outcomes.judge_each(case, backends, partial(_unsupported_reason, case), judge)


def _unsupported_reason(case: TableCase, backend: str) -> str:
    """Return in words why the back end does not support the case; empty if it does."""
    return chip_lacks(case.dtype, backend) if is_device(backend) else ""


def _judge(case: TableCase, data: TableData, expected: list[Expectation], backend: str) -> Judgement:
    got = _execute(case, data, backend)
    judgement = outcomes.compare_all(backend, got, expected, [_index_names(case)] * len(got))
    if is_device(backend) and case.dtype != "float32":
        both = (got, _execute(case, data, "cpu"))
        flat, on_cpu = (np.concatenate([result.ravel() for result in results]) for results in both)
        outcomes.require_near_cpu(judgement, flat, on_cpu, case.dtype)
    return judgement


def call_of(
    case: TableCase, xs: Sequence[T], cos: T, sin: T, position_ids: T | None, outs: Any
) -> CallTensors[T]:
    """Return the case's call with these tensors. ``outs``: a tensor for each result, or None."""
    if case.suite == "onnx":
        return rotary_embedding_tensors(xs[0], cos, sin, position_ids, outs and outs[0])
    if case.keys:
        return rotary_mul_qk_tensors(xs[0], xs[1], cos, sin, outs)
    return rotary_mul_tensors(xs[0], cos, sin, outs and outs[0])


def _execute(case: TableCase, data: TableData, backend: str) -> list[Array]:
    """Run a case. NumPy has no bfloat16, so the reference receives float32 values and native code receives
    bits."""
    as_bits = case.dtype == "bfloat16" and backend != "reference"
    copy_of = bfloat16_bits if as_bits else np.copy
    xs = [copy_of(x) for x in data.xs]
    cos, sin = (table if case.wide else copy_of(table) for table in (data.cos, data.sin))
    # Without in_place the call must not write its inputs.
    outs = xs if case.in_place else [np.empty_like(x) for x in xs]
    tensors = call_of(case, xs, cos, sin, data.position_ids, outs)
    with outcomes.unwritten([] if case.in_place else xs):
        if as_bits:
            run_on_bits(backend, tensors, case.attributes)
        else:
            executors.run(backend, tensors, case.attributes)
    results = list(tensors.outs.values())
    if as_bits:
        return [bfloat16_values(result) for result in results]
    if case.dtype == "bfloat16":
        return [rounded(result.astype(np.float64), "bfloat16") for result in results]
    return results


def _index_names(case: TableCase) -> str:
    if case.suite == "onnx":
        return "(b, n, s, d)" if len(case.shape) == 4 else "(b, s, n*D + d)"
    return "(b, s, n, d)" if len(case.shape) == 4 else "(t, n, d)"
