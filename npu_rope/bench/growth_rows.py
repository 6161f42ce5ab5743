"""How the time of rope grows with the number of tokens, the number of heads, and the size of a head.

A row has one size of one dimension; the other dimensions are fixed. Its contestants are a copy of the same
bytes, an operator that computes almost nothing, and rope. The rows of a dimension, a dtype and a number of
threads are a curve of :mod:`npu_rope.bench.growth_plot`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready, Unsupported
from npu_rope.bench.rope_rows import DTYPES, OUT, Row
from npu_rope.bench.verify import ExpectedRotation
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.testing.bounds import OURS

GROUP = "growth"
TOKENS, HEADS, LANES = "tokens", "heads", "head size"
MODES = (TOKENS, HEADS, LANES)
FLOOR, CALL = "copy_", "empty call"
# The sizes of each growing dimension, and the shape [1,S,N,D] around it.
SIZES = {
    TOKENS: (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, 262144, 1000000),
    HEADS: (1, 2, 4, 8, 16, 32, 64, 128, 256),
    LANES: (16, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024),
}
SYMBOLS = {TOKENS: "S", HEADS: "N", LANES: "D"}
_SHAPES = {TOKENS: (None, 8, 128), HEADS: (256, None, 128), LANES: (256, 32, None)}
CHECKED_TOKENS = 256


@dataclass(frozen=True)
class GrowthRow(Row):
    """A row of one size of the dimension that the mode names."""

    size: int

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """B, S, N and D."""
        tokens, heads, lanes = (self.size if length is None else length for length in _SHAPES[self.mode])
        return 1, tokens, heads, lanes

    @property
    def shape(self) -> str:
        """The shape with the symbol of the growing dimension. A table has the rows of all sizes."""
        lengths = (SYMBOLS[self.mode] if length is None else str(length) for length in _SHAPES[self.mode])
        return f"[1,{','.join(lengths)}]"

    @property
    def name(self) -> str:
        """The name that the pattern of ``--rows`` must match."""
        sized = ",".join(map(str, self.dimensions))
        return super().name.replace(self.shape, f"[{sized}]")


def rows(dtypes: Sequence[str], threads: int) -> list[Row]:
    """Return every row for one number of threads."""
    unused_heads = ((1, 1, 1),)
    return [
        GrowthRow(GROUP, unused_heads, dtype, mode, threads, size)
        for mode in MODES
        for dtype in dtypes
        for size in SIZES[mode]
    ]


def name_of(row: GrowthRow, contestant: str) -> str:
    """Return the name of a contestant in a row, such as ``S=16: copy_``."""
    return f"{SYMBOLS[row.mode]}={row.size}: {contestant}"


def size_of(figure: dict[str, Any]) -> int:
    """Return the size of the growing dimension.

    >>> size_of({"contestant": "S=16: copy_"})
    16
    """
    return int(figure["contestant"].partition(":")[0].partition("=")[2])


def has_size(figure: dict[str, Any]) -> bool:
    """Return whether an entry of a file has a growing dimension and its size, at least 1."""
    is_named = re.fullmatch(r"[SND]=[1-9]\d{0,9}: .+", figure["contestant"], re.DOTALL)
    return figure["mode"] in MODES and is_named is not None


def contestants(row: GrowthRow) -> Iterator[Contestant]:
    """Yield the copy, the empty call and rope. All write into kept memory."""
    inputs = _Inputs(row)
    yield Contestant(name_of(row, FLOOR), "floor", inputs.copy)
    yield Contestant(name_of(row, CALL), "call", inputs.empty_call)
    yield Contestant(name_of(row, OUT), "ours", inputs.rope, inputs.check)


class _Inputs:
    """The tensors of a row, made when the first contestant is prepared."""

    def __init__(self, row: GrowthRow) -> None:
        self.row = row
        self.params = RopeParams(row.dimensions[-1], "neox")
        self.x: Any = None
        self.out: Any = None
        self.positions: Any = None

    def _make(self) -> tuple[Any, Any, Any]:
        if self.x is None:
            dtype = getattr(torch, DTYPES[self.row.dtype])
            _, tokens, heads, lanes = self.row.dimensions
            _require_memory(2 * tokens * heads * lanes * dtype.itemsize)
            self.x = torch.empty(1, tokens, heads, lanes, dtype=dtype)
            self.x.normal_(generator=torch.Generator().manual_seed(22))
            self.out = torch.empty_like(self.x)
            self.positions = torch.arange(tokens).view(1, tokens)
        return self.x, self.out, self.positions

    def copy(self) -> Ready:
        x, out, _ = self._make()
        call = partial(out.copy_, x)
        return Ready(call, call)

    def empty_call(self) -> Ready:
        call = partial(torch.empty_like, self._make()[0][:, :1, :1])
        return Ready(call, call)

    def rope(self) -> Ready:
        x, out, positions = self._make()
        call: Callable[[], Any] = partial(npu_rope.rope, x, positions, self.params, out=out)
        return Ready(call, call)

    def check(self, result: Any) -> str | None:
        """Return the fault of the first, the last and some other tokens, or None."""
        x, _, positions = self._make()
        tokens = positions.shape[1]
        chosen = torch.linspace(0, tokens - 1, min(tokens, CHECKED_TOKENS), dtype=torch.float64).long()
        expected = ExpectedRotation(x[:, chosen], positions[:, chosen], self.params, DTYPES[self.row.dtype])
        return expected.fault_of(result[:, chosen], *OURS)


def _require_memory(size: int) -> None:
    """Refuse a row whose tensors need more than half of this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory // 2:
        raise Unsupported(f"needs {size >> 20} MiB, more than half of this machine's memory")
