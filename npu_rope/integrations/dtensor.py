"""Sharding rules for torch's DTensor: the placements of arguments and results that npu_rope's operators
support directly. Importing this module registers them.

Sharding is possible

- along heads (tensor parallel),
- along tokens together with their positions or table rows (sequence and context parallel),
- along batches, and along a norm's rows,

but not inside a head or a row. Stores into caches (rope_set_rows, qkv_norm_rope_cache with slots) can be
sharded along heads only. DTensor gathers arguments with any other placement first. An operator that writes is
refused with other placements, because its argument would be a gathered copy. The gradient of a scale or a
table is a partial sum on each rank.
rotary_position_embedding computes positions as tensors that are not distributed: call it inside torch's
implicit_replication().

Norms over all heads of a token, with scales ``[N*D]``, need sums over all ranks. qk_square_sums of sharded
heads is a partial sum; qkv_norm_rope_cache takes it as ``square_sums``, with the number of parts of the heads
as ``ranks``. With ``ranks=1`` DTensor gathers the heads first, except in an operator that writes, which is
refused. The result is that of full tensors with ``ranks=1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import npu_rope  # noqa: F401 - the operators that the rules are for
from npu_rope.errors import bad_value
from npu_rope.qkv_norm_rope_cache_calls import OP as QKV
from npu_rope.rope_attributes import RopeMode

Rule = tuple[list[Any], list[Any]]  # placements of the results, and of every argument
Given = dict[str, Any]  # an operator's arguments by name
Placements = dict[str, Any]  # placements of arguments by name; Replicate() for all others
BATCH, TOKENS, HEADS = "batch", "tokens", "heads"
LAYOUT = (BATCH, TOKENS, HEADS, "lanes")  # the dimensions of xs; the last three if there are no batches


def _register_rotation(
    op: Any,
    xs: tuple[str, ...],
    place_others: Callable[[Given, str], Placements | None],
    layout: tuple[str, ...] = LAYOUT,
) -> None:
    """Register the rules of an operator that rotates each head of xs separately.

    Args:
        xs: the arguments with heads; results have the first one's placement.
        place_others: returns the placements of the other arguments if xs are sharded along the named
            dimension. None: xs cannot be sharded along it.
        layout: the names of xs' dimensions.
    """
    names = [argument.name for argument in op._schema.arguments]
    written = [n for n in names if n.endswith("out") or n == "Y"]
    returned = len(op._schema.returns)

    @register_sharding(op)  # type: ignore[untyped-decorator]
    def rules(*args: Any, **kwargs: Any) -> list[Rule]:
        given = _given(op, args, kwargs)
        tensors = {n: value for n, value in given.items() if hasattr(value, "tensor_meta")}
        dimensions = layout[len(layout) - len(given[xs[0]].shape) :]
        allowed: list[Placements] = [{}]
        for dimension in (HEADS, TOKENS, BATCH):
            others = place_others(given, dimension) if dimension in dimensions else None
            if others is not None:
                shard = Shard(dimensions.index(dimension))
                allowed.append({**dict.fromkeys((*xs, *written), shard), **others})
        if given.get("ranks", 1) > 1:
            allowed = _with_parts_of_heads(given, allowed)
        if any(argument.alias_info and argument.alias_info.is_write for argument in op._schema.arguments):
            _require_one_of(op, allowed, tensors)
        found = []
        for placements in allowed:
            placed = {n: placements.get(n, Replicate()) for n in tensors}
            passed = [placed.get(n) for n in names[: len(args)]] + [placed[n] for n in kwargs if n in placed]
            found.append(([placed[xs[0]]] * returned, passed))
        return found


def _given(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    """Return all arguments of a call. torch omits arguments that equal their defaults."""
    arguments = op._schema.arguments
    passed = dict(zip((a.name for a in arguments), args, strict=False))
    return {**{a.name: a.default_value for a in arguments}, **passed, **kwargs}


def _require_one_of(op: Any, allowed: list[Placements], tensors: Given) -> None:
    """Require one of the allowed placements. DTensor would gather other tensors, and writes to the gathered
    copy would be lost.

    Raises:
        ValueError: the tensors have other placements.
    """
    for on_one_mesh_dim in zip(*(spec.placements for spec in tensors.values()), strict=True):
        actual = dict(zip(tensors, on_one_mesh_dim, strict=True))
        if not any(all(rule.get(n, Replicate()) == p for n, p in actual.items()) for rule in allowed):
            name = op._schema.name.removeprefix("npu_rope::").removesuffix("_out").removesuffix("_")
            name = QKV if name.startswith(QKV) else name
            got = ", ".join(f"{n} {p}" for n, p in actual.items())
            texts = (", ".join(f"{n} {rule.get(n, Replicate())}" for n in tensors) for rule in allowed)
            raise bad_value(name, "placements", f"be one of ({'; '.join(texts)})", f"({got})")


def _place_positions(given: Given, dimension: str) -> Placements | None:
    """Place positions [S] or [B,S]; with sections [M,S], [M,B,S], or [4*S] (no sharded tokens)."""
    positions, x = given["positions"], given.get("x") or given["q"]
    rank, tokens = len(positions.shape), x.shape[-3]
    has_planes = RopeMode(given["rope_mode"]).has_sections and rank != 1
    if dimension == HEADS:
        return {}
    if dimension == TOKENS:
        return {"positions": Shard(rank - 1)} if positions.shape[-1] == tokens else None
    has_batches = rank - has_planes == 2 and positions.shape[-2] == x.shape[0]
    return {"positions": Shard(rank - 2)} if has_batches and x.shape[0] > 1 else {}


def _place_cache(given: Given, dimension: str) -> Placements | None:
    """Place a cache [R,N,D]: only heads can be sharded, and every rank has all rows' indices."""
    return {"cache": Shard(1)} if dimension == HEADS else None


def _place_tables(given: Given, dimension: str) -> Placements | None:
    """Place cos and sin [S,W], [B,S,W] or [B,S,1,W]; for x without batches [S,W] or [S,1,W]."""
    x = given.get("x") or given["q"]
    if dimension == HEADS:
        return {}
    placed = {}
    for name in ("cos", "sin"):
        shape = given[name].shape
        has_head = len(shape) == len(x.shape)
        tokens = len(shape) - (3 if has_head else 2)
        if dimension == TOKENS:
            placed[name] = Shard(tokens)
        elif tokens > 0 and shape[tokens - 1] == x.shape[0] > 1:
            placed[name] = Shard(tokens - 1)
    return placed


def _place_onnx_tables(given: Given, dimension: str) -> Placements | None:
    """Place caches [rows,W] with position_ids [B,S], or caches [B,S,W]."""
    if dimension == HEADS:
        return {}
    shard = Shard(1 if dimension == TOKENS else 0)
    if given["position_ids"] is not None:
        return {"position_ids": shard}
    return {"cos_cache": shard, "sin_cache": shard}


# ---- qkv_norm_rope_cache -----------------------------------------------------------------------------


def _place_qkv(given: Given, dimension: str) -> Placements | None:
    """Place the other arguments of qkv_norm_rope_cache, whose q is ``[S,N,D]``."""
    if dimension == TOKENS:
        return _place_tokens_of_qkv(given)
    size, placed = given["q"].shape[2], Placements()
    for side in "qk":
        scale = given[f"{side}_scale"]
        if scale is not None and scale.shape[0] != size:  # a norm over all heads
            if given["ranks"] == 1:
                return None
            placed |= dict.fromkeys((f"{side}_scale", f"{side}_bias"), Shard(0))
    if given.get("slots") is None:
        return placed
    for side in "kv":
        cache = given.get(f"{side}_cache") or given.get(f"{side}_out")
        if cache is not None and "q_out" in given and len(cache.shape) == 4:
            # DTensor requires the n-th output of such an operator to have the placement of its n-th argument.
            rule = "have shape [rows,N,D] where q_out is given and tensors are distributed"
            raise bad_value(QKV, f"{side}_cache", rule, list(cache.shape))
        if cache is not None and "q_out" not in given:
            placed[f"{side}_cache"] = Shard(len(cache.shape) - 2)
        scale = given[f"{side}_quant_scale"]
        if scale is not None and scale.shape[0] != 1:
            placed |= dict.fromkeys((f"{side}_quant_scale", f"{side}_quant_offset"), Shard(0))
    return placed


def _place_tokens_of_qkv(given: Given) -> Placements | None:
    if given.get("slots") is not None:
        return None
    if given["positions"] is not None:
        placed = _place_positions(given, TOKENS)
    else:  # row s of the tables for token s
        is_row_per_token = given["cos"].shape[0] == given["q"].shape[0]
        placed = dict.fromkeys(("cos", "sin"), Shard(0)) if is_row_per_token else None
    return None if placed is None else {**placed, "square_sums": Shard(0)}


def _with_parts_of_heads(given: Given, allowed: list[Placements]) -> list[Placements]:
    """Return the rules that keep the placements of q, whose heads are in ``ranks`` parts: the operator
    divides sums over all heads by ``ranks`` and the number of its own heads.

    Raises:
        ValueError: the heads have another number of parts.
    """
    q, ranks = given["q"], given["ranks"]
    parts = math.prod(n for n, p in zip(q.mesh.shape, q.placements, strict=True) if p == Shard(1))
    if ranks != parts:
        rule = f"be the number of parts of q's heads, {parts}"
        raise bad_value(QKV, "ranks", rule, ranks)
    return [rule for rule in allowed if rule.get("q", Replicate()) in q.placements]


def _register_square_sums(op: Any) -> None:
    @register_sharding(op)  # type: ignore[untyped-decorator]
    def rules(*args: Any) -> list[Rule]:
        placements = (Replicate(), Replicate()), (Shard(1), Partial()), (Shard(0), Shard(0))
        return [([of_sums], [of_heads] * len(args)) for of_heads, of_sums in placements]


# ---- norms -------------------------------------------------------------------------------------------


def _register_norm(op: Any, n_xs: int, results: tuple[bool, ...]) -> None:
    """Register the rules of an operator whose arguments are ``n_xs`` tensors of x's shape, then a scale.

    Args:
        results: for each result, whether it has x's shape. A result of another shape is the scale's gradient,
            a sum over x's rows.
    """

    @register_sharding(op)  # type: ignore[untyped-decorator]
    def rules(*args: Any, **kwargs: Any) -> list[Rule]:
        given = _given(op, args, kwargs)
        tensors = {n: value for n, value in given.items() if hasattr(value, "tensor_meta")}
        x, scale, rank = args[0], args[n_xs], len(args[0].shape)
        after_scale = [*args[n_xs + 1 :], *(value for n, value in kwargs.items() if n in tensors)]
        rest = [Replicate() if hasattr(a, "tensor_meta") else None for a in after_scale]
        if not results:
            allowed: list[Placements] = [{}]
            for dim, scale_placement in _row_dimensions(x, scale, given["axis"] % rank):
                allowed.append({**dict.fromkeys(tensors, Shard(dim)), "scale": scale_placement})
            _require_one_of(op, allowed, tensors)
        found: list[Rule] = [([Replicate()] * len(results), [Replicate()] * (n_xs + 1) + rest)]
        for dim, scale_placement in _row_dimensions(x, scale, given["axis"] % rank):
            gradient_placement = scale_placement if isinstance(scale_placement, Shard) else Partial()
            result_placements = [Shard(dim) if like_x else gradient_placement for like_x in results]
            written = [Shard(dim) if isinstance(r, Replicate) else r for r in rest]
            found.append((result_placements, [Shard(dim)] * n_xs + [scale_placement, *written]))
        return found


def _row_dimensions(x: Any, scale: Any, axis: int) -> Iterator[tuple[int, Any]]:
    """Yield each dimension before a norm's axis, with the scale's placement if x is sharded along it."""
    missing = len(x.shape) - len(scale.shape)
    for dim in range(axis):
        scale_dim = dim - missing
        is_sharded = scale_dim >= 0 and scale.shape[scale_dim] != 1
        yield dim, Shard(scale_dim) if is_sharded else Replicate()


def _register() -> None:
    ops = torch.ops.npu_rope
    for name, xs in (("rope", ("x",)), ("rope_qk", ("q", "k"))):
        for kind in ("", "_", "_out"):
            _register_rotation(getattr(ops, name + kind).default, xs, _place_positions)
    for name, xs in (("rotary_mul", ("x",)), ("rotary_mul_qk", ("q", "k"))):
        for kind in ("", "_", "_out"):
            _register_rotation(getattr(ops, name + kind).default, xs, _place_tables)
    _register_rotation(ops.rope_set_rows.default, ("x",), _place_cache)
    _register_rotation(ops.rms_norm_rope.default, ("q", "k"), _place_positions)
    _register_rotation(ops.rms_norm_rope_out.default, ("q", "k"), _place_positions)
    for kind in ("", "_set_rows", "_out"):
        _register_rotation(getattr(ops, f"qkv_norm_rope_cache{kind}").default, ("q", "k", "v"), _place_qkv)
    _register_square_sums(ops.qk_square_sums.default)
    onnx_layout = BATCH, HEADS, TOKENS, "lanes"
    _register_rotation(ops.rotary_embedding.default, ("X",), _place_onnx_tables, onnx_layout)
    _register_norm(ops.rms_norm.default, 1, (True,))
    _register_norm(ops.rms_norm_out.default, 1, ())
    _register_norm(ops.rms_norm_backward.default, 2, (True, False))
    _register_norm(ops.rms_norm_backward_dx.default, 2, (True,))
    _register_norm(ops.add_rms_norm.default, 2, (True, True))
    _register_norm(ops.add_rms_norm_out.default, 2, ())


_register()
