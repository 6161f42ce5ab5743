"""A form of rotation: its pairs, tables and layouts, and which heads and tables it covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

HALF, INTERLEAVED, INTERLEAVED_TO_HALVES = "halves", "neighbours", "neighbours, written as halves"
TWICE, EACH_TWICE, ONCE = "all entries, then all again", "each entry twice", "one entry per pair"
FIRST_LANES, LAST_LANES = "first lanes", "last lanes"


@dataclass(frozen=True)
class Form:
    """A rotation.

    Attributes:
        pairs: which lanes form a pair, and where they are written.
        tables: the layout of cos and sin: the order of their entries, for each lane or each pair.
        place: which lanes rotate if the tables are narrower than the head; None: they cannot be narrower.
        single: the function takes one tensor, not queries and keys.
        promotes: 16-bit heads with float32 tables become float32.
        tokens_first: heads are ``[B,S,N,D]`` or ``[S,N,D]``.
        flat_axis: where tables ``[S,W]`` get an axis for the heads, HEADS_FIRST or TOKENS_FIRST; None: not
            supported. It may differ from the axis of ``[B,S,W]``: the function's ``cos[:, None]`` inserts an
            axis before the tokens of ``[B,S,W]``, but after those of ``[S,W]``.
        default_unsqueeze_dim: the default of unsqueeze_dim.
    """

    pairs: str
    tables: str
    place: str | None
    single: bool = False
    promotes: bool = False
    tokens_first: bool = False
    flat_axis: int | None = None
    default_unsqueeze_dim: int | None = None

    def __str__(self) -> str:
        where = "" if self.place is None else f", the {self.place} of the head"
        return f"pairs: {self.pairs}; tables: {self.tables}{where}"


# ---- layouts ---------------------------------------------------------------------------------------------

HEADS_FIRST, TOKENS_FIRST = -3, -2  # the axis of heads in tables that broadcast to [B,N,S,D] or [B,S,N,D]
_UNSQUEEZED = {1: HEADS_FIRST, 2: TOKENS_FIRST}


def fit(
    form: Form,
    heads: Sequence[torch.Tensor],
    cos: torch.Tensor,
    sin: torch.Tensor,
    unsqueeze_dim: int | None,
) -> tuple[int, int] | None:
    """Return the axis of heads in the tables, and the number of rotated lanes of each head. None: the
    recognition did not cover heads and tables of these shapes and types."""
    if heads[-1] is None:
        return None
    first, tables = heads[0], cos.shape
    axis = heads_axis(form, unsqueeze_dim, len(tables))
    if axis is None or tables != sin.shape or cos.dtype != sin.dtype:
        return None
    head, width = first.shape[-1], tables[-1] * (2 if form.tables == ONCE else 1)
    fits = width == head if form.place is None else width <= head and width % 2 == 0
    if not fits or not match_tokens(tables, heads, axis):
        return None
    if cos.dtype != first.dtype and (cos.dtype != torch.float32 or first.dtype not in _NARROW):
        return None
    return axis, width


_NARROW = (torch.float16, torch.bfloat16)


def heads_axis(form: Form, unsqueeze_dim: int | None, dims: int) -> int | None:
    """Return where tables of ``dims`` dimensions get an axis for the heads. None: not supported."""
    if dims == 2:
        return form.flat_axis if unsqueeze_dim == form.default_unsqueeze_dim else None
    if unsqueeze_dim is None:
        return TOKENS_FIRST if form.tokens_first else HEADS_FIRST
    return _UNSQUEEZED.get(unsqueeze_dim)


def match_tokens(tables: Sequence[int], heads: Sequence[torch.Tensor], axis: int) -> bool:
    """Return whether tables of these sizes have a row for each token of all heads, and all heads have one
    dtype and width. Tables [B,S,W] need heads of B batches, or of any number if B is 1; tables [S,W] take
    heads with or without batches."""
    first = heads[0]
    shape, dtype, dims = first.shape, first.dtype, len(tables)
    head_dims = len(shape)
    if dims == 3:
        if head_dims != 4 or tables[0] not in (1, shape[0]):
            return False
    elif dims != 2 or head_dims not in (3, 4):
        return False
    tokens = -2 if axis == HEADS_FIRST else -3
    token_count = shape[tokens]
    if token_count != tables[-2]:
        return False
    for other in heads[1:]:
        sizes = other.shape
        if other.dtype != dtype or len(sizes) != head_dims or sizes[-1] != shape[-1]:
            return False
        if sizes[tokens] != token_count or (head_dims == 4 and sizes[0] != shape[0]):
            return False
    return True


def tokens_first(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Transpose [B,N,S,D] to [B,S,N,D], or back, if the axis is HEADS_FIRST. Return other heads unchanged."""
    return x.transpose(-3, -2) if axis == HEADS_FIRST else x
