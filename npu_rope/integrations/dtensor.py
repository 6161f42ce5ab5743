"""Sharding rules for torch's DTensor: the placements of arguments and results that npu_rope's operators
support directly. Importing this module registers them.

Heads may be sharded (tensor parallel), tokens (sequence and context parallel: the positions or the tables'
rows with them), batches, and a norm's rows. A head's own dimensions and the dimensions that a norm reduces
may not. DTensor gathers arguments with any other placement first. An argument that an operator writes cannot
be gathered; it is refused if it has another placement. (rotary_position_embedding makes positions of its own:
call it inside torch's implicit_replication().) Each rank holds its share of the sum that is a scale's or a
table's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import npu_rope  # noqa: F401 - the operators that the rules are for
from npu_rope.errors import bad_value
from npu_rope.rope_attributes import RopeMode

Rule = tuple[list[Any], list[Any]]  # placements of the results, and of every argument
Given = dict[str, Any]  # an operator's arguments by name
BATCH, TOKENS, HEADS = "batch", "tokens", "heads"
LAYOUT = (BATCH, TOKENS, HEADS, "lanes")  # of heads; the last three without batches


def _turns(
    op: Any,
    xs: tuple[str, ...],
    beside: Callable[[Given, str], Given | None],
    layout: tuple[str, ...] = LAYOUT,
) -> None:
    """Register the rules of an operator that rotates each of xs' heads by itself.

    Args:
        xs: the arguments with heads; results have the first one's placement.
        beside: returns the placements of the other arguments when batches, tokens or heads are sharded; None:
            they cannot be sharded.
        layout: the names of xs' dimensions.
    """
    names = [argument.name for argument in op._schema.arguments]
    written = [n for n in names if n.endswith("out") or n == "Y"]
    returned = len(op._schema.returns)

    @register_sharding(op)  # type: ignore[untyped-decorator]
    def rules(*args: Any, **kwargs: Any) -> list[Rule]:
        given = _given(op, args, kwargs)
        tensors = {n: value for n, value in given.items() if hasattr(value, "tensor_meta")}
        of_x = layout[len(layout) - len(given[xs[0]].shape) :]
        placed: list[Given] = [{}]
        for what in (HEADS, TOKENS, BATCH):
            others = beside(given, what) if what in of_x else None
            if others is not None:
                shared = Shard(of_x.index(what))
                placed.append({**dict.fromkeys((*xs, *written), shared), **others})
        if any(argument.alias_info and argument.alias_info.is_write for argument in op._schema.arguments):
            _require_one_of(op, placed, tensors)
        found = []
        for own in placed:
            where = {n: own.get(n, Replicate()) for n in tensors}
            taken = [where.get(n) for n in names[: len(args)]] + [where[n] for n in kwargs if n in where]
            found.append(([where[xs[0]]] * returned, taken))
        return found


def _given(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    """Return all arguments of a call. torch omits arguments that equal their defaults."""
    arguments = op._schema.arguments
    passed = dict(zip((a.name for a in arguments), args, strict=False))
    return {**{a.name: a.default_value for a in arguments}, **passed, **kwargs}


def _require_one_of(op: Any, placed: list[Given], tensors: Given) -> None:
    """Require placements that are one of the rules. DTensor would gather other tensors, and writes to the
    gathered copy would be lost.

    Raises:
        ValueError: no rule has the tensors' placements.
    """
    for lie in zip(*(spec.placements for spec in tensors.values()), strict=True):
        where = dict(zip(tensors, lie, strict=True))
        if not any(all(own.get(n, Replicate()) == p for n, p in where.items()) for own in placed):
            name = op._schema.name.removeprefix("npu_rope::").removesuffix("_out").removesuffix("_")
            got = ", ".join(f"{n} {p}" for n, p in where.items())
            rules = "; ".join(", ".join(f"{n} {own.get(n, Replicate())}" for n in tensors) for own in placed)
            raise bad_value(name, "placements", f"be one of ({rules})", f"({got})")


def _positions(given: Given, what: str) -> Given | None:
    """Place positions [S] or [B,S]; with sections [M,S], [M,B,S], or [4*S], whose tokens are not sharded."""
    positions, x = given["positions"], given.get("x") or given["q"]
    rank, tokens = len(positions.shape), x.shape[-3]
    planes = RopeMode(given["rope_mode"]).has_sections and rank != 1
    if what == HEADS:
        return {}
    if what == TOKENS:
        return {"positions": Shard(rank - 1)} if positions.shape[-1] == tokens else None
    has_batches = rank - planes == 2 and positions.shape[-2] == x.shape[0]
    return {"positions": Shard(rank - 2)} if has_batches and x.shape[0] > 1 else {}


def _rows(given: Given, what: str) -> Given | None:
    """Place a cache [R,N,D]: only heads can be sharded, and every rank has all rows' indices."""
    return {"cache": Shard(1)} if what == HEADS else None


def _tables(given: Given, what: str) -> Given | None:
    """Place cos and sin [S,W], [B,S,W] or [B,S,1,W]; for x without batches [S,W] or [S,1,W]."""
    x = given.get("x") or given["q"]
    if what == HEADS:
        return {}
    placed = {}
    for name in ("cos", "sin"):
        shape = given[name].shape
        has_head = len(shape) == len(x.shape)
        tokens = len(shape) - (3 if has_head else 2)
        if what == TOKENS:
            placed[name] = Shard(tokens)
        elif tokens > 0 and shape[tokens - 1] == x.shape[0] > 1:
            placed[name] = Shard(tokens - 1)
    return placed


def _onnx_tables(given: Given, what: str) -> Given | None:
    """Place caches [rows,W] with position_ids [B,S], or caches [B,S,W]."""
    if what == HEADS:
        return {}
    at = Shard(1 if what == TOKENS else 0)
    return {"position_ids": at} if given["position_ids"] is not None else {"cos_cache": at, "sin_cache": at}


# ---- norms -------------------------------------------------------------------------------------------


def _normalizes(op: Any, xs: int, results: tuple[bool, ...]) -> None:
    """Register the rules of an operator whose arguments are ``xs`` tensors of x's shape, then a scale.

    Args:
        results: for each result, whether it has x's shape; else it is the scale's gradient, a sum over x's
            rows.
    """

    @register_sharding(op)  # type: ignore[untyped-decorator]
    def rules(*args: Any, **kwargs: Any) -> list[Rule]:
        given = _given(op, args, kwargs)
        tensors = {n: value for n, value in given.items() if hasattr(value, "tensor_meta")}
        x, scale, rank = args[0], args[xs], len(args[0].shape)
        behind = [*args[xs + 1 :], *(value for n, value in kwargs.items() if n in tensors)]
        rest = [Replicate() if hasattr(a, "tensor_meta") else None for a in behind]
        if not results:
            placed: list[Given] = [{}]
            for at, own in _rows_of(x, scale, given["axis"] % rank):
                placed.append({**dict.fromkeys(tensors, Shard(at)), "scale": own})
            _require_one_of(op, placed, tensors)
        found: list[Rule] = [([Replicate()] * len(results), [Replicate()] * (xs + 1) + rest)]
        for at, own in _rows_of(x, scale, given["axis"] % rank):
            of_scale = own if isinstance(own, Shard) else Partial()
            made = [Shard(at) if like_x else of_scale for like_x in results]
            written = [Shard(at) if isinstance(r, Replicate) else r for r in rest]
            found.append((made, [Shard(at)] * xs + [own, *written]))
        return found


def _rows_of(x: Any, scale: Any, axis: int) -> Iterator[tuple[int, Any]]:
    """Yield the dimensions before a norm's axis, and the scale's placement when that dimension is sharded."""
    missing = len(x.shape) - len(scale.shape)
    for at in range(axis):
        own = at - missing
        yield at, Shard(own) if own >= 0 and scale.shape[own] != 1 else Replicate()


def _register() -> None:
    ops = torch.ops.npu_rope
    for name, xs in (("rope", ("x",)), ("rope_qk", ("q", "k"))):
        for kind in ("", "_", "_out"):
            _turns(getattr(ops, name + kind).default, xs, _positions)
    for name, xs in (("rotary_mul", ("x",)), ("rotary_mul_qk", ("q", "k"))):
        for kind in ("", "_", "_out"):
            _turns(getattr(ops, name + kind).default, xs, _tables)
    _turns(ops.rope_set_rows.default, ("x",), _rows)
    _turns(ops.rms_norm_rope.default, ("q", "k"), _positions)
    _turns(ops.rms_norm_rope_out.default, ("q", "k"), _positions)
    _turns(ops.rotary_embedding.default, ("X",), _onnx_tables, (BATCH, HEADS, TOKENS, "lanes"))
    _normalizes(ops.rms_norm.default, 1, (True,))
    _normalizes(ops.rms_norm_out.default, 1, ())
    _normalizes(ops.rms_norm_backward.default, 2, (True, False))
    _normalizes(ops.add_rms_norm.default, 2, (True, True))
    _normalizes(ops.add_rms_norm_out.default, 2, ())


_register()
