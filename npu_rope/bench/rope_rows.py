"""The rows of the rope benchmark, and npu_rope's own contestants in them.

All tensors have the layout ``[B,S,N,D]``. Prefill has the positions 0..S-1. Decode has the positions
``[B,1]`` from 1000 on, one for each sequence. Rows of grouped-query attention (gqa) rotate q with 32 heads
and k with 8, by one call of the operators for pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import cycle
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready, Unsupported
from npu_rope.bench.verify import ExpectedRotation
from npu_rope.ops import calls
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.testing.bounds import OURS

HEAD_DIM = 128
FIRST_DECODE_POSITION = 1000
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
MODES = ("neox", "normal")
# The group of each row, and B, S and N of its tensors.
_SHAPES: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...] = (
    ("prefill", ((1, 2048, 32),)),
    ("decode", ((1, 1, 32),)),
    ("decode", ((32, 1, 32),)),
    ("gqa prefill", ((1, 2048, 32), (1, 2048, 8))),
    ("gqa decode", ((1, 1, 32), (1, 1, 8))),
)


@dataclass(frozen=True)
class Row:
    """One row of the benchmark: the rotated tensors, the dtype, the mode and the number of threads."""

    group: str
    sizes_bsn: tuple[tuple[int, int, int], ...]  # B, S and N of each tensor
    dtype: str
    mode: str
    threads: int

    @property
    def shape(self) -> str:
        """``[B,S,N,D]``, or those of q, k and v."""
        shapes = [f"[{b},{s},{n},{HEAD_DIM}]" for b, s, n in self.sizes_bsn]
        named = (f"{name}{shape}" for name, shape in zip("qkv", shapes, strict=False))
        return shapes[0] if len(shapes) == 1 else " ".join(named)

    @property
    def name(self) -> str:
        """The name that the pattern of ``--rows`` must match."""
        plural = "" if self.threads == 1 else "s"
        return f"{self.group} {self.shape} {self.dtype} {self.mode} {self.threads} thread{plural}"

    @property
    def is_decode(self) -> bool:
        """Whether there is one token per sequence, so that the call overhead exceeds the memory time."""
        return self.group.endswith("decode")


def rows(dtypes: Sequence[str], modes: Sequence[str], threads: int, pattern: str | None = None) -> list[Row]:
    """Return the rows for one number of threads whose name matches the pattern."""
    all_rows = [
        Row(group, heads, dtype, mode, threads)
        for group, heads in _SHAPES
        for dtype in dtypes
        for mode in modes
    ]
    return [row for row in all_rows if pattern is None or re.search(pattern, row.name)]


class RopeInputs:
    """The tensors of one row; contestants share the tensors that they only read."""

    def __init__(self, row: Row) -> None:
        self.row = row
        generator = torch.Generator().manual_seed(20)
        dtype = getattr(torch, DTYPES[row.dtype])
        self.xs = [torch.randn(b, s, n, HEAD_DIM, generator=generator).to(dtype) for b, s, n in row.sizes_bsn]
        batch, length, _ = row.sizes_bsn[0]
        if row.is_decode:
            first_position = FIRST_DECODE_POSITION
            self.positions = torch.arange(first_position, first_position + batch).view(batch, 1)
        else:
            self.positions = torch.arange(length).expand(batch, length).contiguous()
        self.params = RopeParams(HEAD_DIM, row.mode)

    @cached_property
    def expected(self) -> list[ExpectedRotation]:
        """The expected result of every contestant, per tensor."""
        return [ExpectedRotation(x, self.positions, self.params, DTYPES[self.row.dtype]) for x in self.xs]

    def check(self, table_error: float, rounding_steps: int) -> Callable[[Any], str | None]:
        """Return a contestant's check, which returns None or the error of the result."""

        def check(results: Any) -> str | None:
            for expectation, result in zip(self.expected, results, strict=True):
                if fault := expectation.fault_of(result, table_error, rounding_steps):
                    return fault
            return None

        return check


def in_order(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """Return the only call, or a call that runs both in order."""
    if len(calls) == 1:
        return calls[0]
    first, second = calls

    def call_both() -> None:
        first()
        second()

    return call_both


def ready_from_writes(
    calls: Sequence[Callable[[], object]], result: Callable[[], Any], **options: Any
) -> Ready:
    """Prepare one or two calls that run in order. ``result`` returns the written tensors; ``options`` are
    other fields of Ready."""
    call = in_order(calls)

    def call_and_return() -> Any:
        call()
        return result()

    return Ready(call, call_and_return, **options)


# ---- floor and call cost ---------------------------------------------------------------------------


def floor(xs: Sequence[Any]) -> Contestant:
    """Return the memory floor: torch copies the same bytes into preallocated memory on the same threads."""

    def prepare() -> Ready:
        return ready_from_writes([partial(torch.empty_like(x).copy_, x) for x in xs], lambda: None)

    return Contestant("memory floor: torch copy_", "floor", prepare)


def empty_call(inputs: RopeInputs) -> Contestant:
    """Return the call floor: a C++ torch operator that computes almost nothing."""

    def prepare() -> Ready:
        return ready_from_writes([partial(torch.empty_like, x) for x in inputs.xs], lambda: None)

    return Contestant(CALL_FLOOR, "call", prepare)


# ---- ours ------------------------------------------------------------------------------------------


def _prepare_call(
    inputs: RopeInputs,
    call_of: Callable[[Sequence[Any], Sequence[Any]], Callable[[], object]],
    *,
    in_place: bool = False,
    **options: Any,
) -> Ready:
    """Prepare ``call_of(xs, outs)``, which writes into preallocated memory or in place into copies."""
    outs = [x.clone() if in_place else torch.empty_like(x) for x in inputs.xs]
    call = call_of(outs if in_place else inputs.xs, outs)
    return ready_from_writes([call], lambda: outs, **options)


def _function_of(xs: Sequence[Any]) -> Callable[..., Any]:
    return npu_rope.rope if len(xs) == 1 else npu_rope.rope_qk


def _one_or_both(outs: Sequence[Any]) -> Any:
    return outs[0] if len(outs) == 1 else tuple(outs)


def _rope(inputs: RopeInputs, *, in_place: bool = False) -> Ready:
    def call_of(xs: Sequence[Any], outs: Sequence[Any]) -> Callable[[], object]:
        return partial(_function_of(xs), *xs, inputs.positions, inputs.params, out=_one_or_both(outs))

    return _prepare_call(inputs, call_of, in_place=in_place)


def _other_positions(inputs: RopeInputs) -> Ready:
    """Prepare calls in place whose positions differ from those of the call before."""
    turns = cycle((inputs.positions, inputs.positions + 1))
    function = _function_of(inputs.xs)

    def call_of(xs: Sequence[Any], outs: Sequence[Any]) -> Callable[[], object]:
        out = _one_or_both(outs)
        return lambda: function(*xs, next(turns), inputs.params, out=out)

    return _prepare_call(inputs, call_of, in_place=True)


def _new_tensors(inputs: RopeInputs) -> Ready:
    call = partial(_function_of(inputs.xs), *inputs.xs, inputs.positions, inputs.params)
    return Ready(call, lambda: [call()] if len(inputs.xs) == 1 else call())


def _packed_operator(inputs: RopeInputs, *, in_place: bool = False) -> Ready:
    op = "rope" if len(inputs.xs) == 1 else "rope_qk"
    packed = calls.packed_of(op, inputs.params, True, "exact")
    operator = getattr(torch.ops.npu_rope, f"{op}_packed_" if in_place else f"{op}_packed_out").default

    def call_of(xs: Sequence[Any], outs: Sequence[Any]) -> Callable[[], object]:
        return partial(operator, *(outs if in_place else (*outs, *xs)), inputs.positions, packed)

    return _prepare_call(inputs, call_of, in_place=in_place)


def _schema_operator(inputs: RopeInputs) -> Ready:
    attributes = {"n_dims": HEAD_DIM, "rope_mode": int(inputs.params.rope_mode)}
    operator = torch.ops.npu_rope.rope_ if len(inputs.xs) == 1 else torch.ops.npu_rope.rope_qk_

    def call_of(xs: Sequence[Any], outs: Sequence[Any]) -> Callable[[], object]:
        return partial(operator.default, *outs, inputs.positions, **attributes)

    return _prepare_call(inputs, call_of, in_place=True, around=torch.inference_mode)


def _numpy(inputs: RopeInputs) -> Ready:
    if inputs.row.dtype == "bf16":
        raise Unsupported("NumPy has no bfloat16")
    xs = [x.numpy() for x in inputs.xs]
    outs = [x.copy() for x in xs]
    positions = inputs.positions.numpy()
    call = partial(_function_of(xs), *xs, positions, inputs.params, out=_one_or_both(outs))
    return ready_from_writes([call], lambda: [torch.from_numpy(out) for out in outs])


def _given_tables(inputs: RopeInputs) -> Ready:
    """Prepare rotary_mul with float32 tables for the positions of this row."""
    pairs = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
    angles = inputs.positions.double()[..., None] * inputs.params.freq_base**-pairs
    cos, sin = angles.cos().float(), angles.sin().float()
    options: dict[str, Any] = {"interleaved": inputs.row.mode == "normal"}
    outs = [torch.empty_like(x) for x in inputs.xs]
    if len(outs) == 2:
        q, k = inputs.xs
        call = partial(npu_rope.rotary_mul_qk, q, k, cos, sin, **options, out=(outs[0], outs[1]))
    else:
        call = partial(npu_rope.rotary_mul, inputs.xs[0], cos, sin, **options, out=outs[0])
    return ready_from_writes([call], lambda: outs)


# Names of the contestants.
CALL_FLOOR = "call floor: torch.empty_like"
OUT, IN_PLACE, NEW_TENSOR = "npu_rope.rope(out=)", "npu_rope.rope_ in place", "npu_rope.rope, new tensor"
OTHER_POSITIONS = "npu_rope.rope_, other positions each time"
PACKED, PACKED_IN_PLACE = "torch.ops rope_packed_out", "torch.ops rope_packed_"
SCHEMA = "torch.ops rope_, inference_mode"
NUMPY = "npu_rope.rope(out=) on NumPy"
GIVEN_TABLES = "npu_rope.rotary_mul(out=), tables given"


def for_pairs(name: str) -> str:
    """Return the name of a contestant of ours in rows of queries and keys.

    >>> for_pairs(OUT), for_pairs(PACKED)
    ('npu_rope.rope_qk(out=)', 'torch.ops rope_qk_packed_out')
    """
    return re.sub(r"\b(rope|rotary_mul)(?=[_(, ])", r"\1_qk", name)


def ours(inputs: RopeInputs) -> Iterator[Contestant]:
    """Yield npu_rope's contestants, one for each interface to its kernel."""
    interfaces: list[tuple[str, Callable[[RopeInputs], Ready]]] = [
        (OUT, _rope),
        (IN_PLACE, partial(_rope, in_place=True)),
        (NEW_TENSOR, _new_tensors),
        (PACKED, _packed_operator),
        (PACKED_IN_PLACE, partial(_packed_operator, in_place=True)),
        (SCHEMA, _schema_operator),
        (GIVEN_TABLES, _given_tables),
    ]
    if inputs.row.is_decode:
        interfaces += [(OTHER_POSITIONS, _other_positions), (NUMPY, _numpy)]
    for name, prepare in interfaces:
        shown = name if len(inputs.xs) == 1 else for_pairs(name)
        yield Contestant(shown, "ours", partial(prepare, inputs), inputs.check(*OURS))
