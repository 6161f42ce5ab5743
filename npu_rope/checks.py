"""Rules of the tensors of rope, rope_qk and rope_set_rows for the Python paths (reference, fake tensors).

The native paths state the same rules in ``csrc/core/rope_check.cpp``; a test compares the words.
The rules work on anything that has a shape, strides in elements and a dtype name, so they are the same for
arrays, torch tensors and fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode, check_freq_factors
from npu_rope.strided import StridedView, TensorSpec, is_injective, is_same_view, may_share_memory
from npu_rope.values import Angle, angle_policy

FLOAT_DTYPES = ("float32", "float16", "bfloat16", "float64")
INDEX_DTYPES = ("int32", "int64")
# Dtypes that a cache may have besides the dtype of its input.
NARROWER = {"float32": ("float16", "bfloat16")}


# ---- one call's tensors ---------------------------------------------------------------------------

T = TypeVar("T")
U = TypeVar("U")


class CallTensors(Generic[T]):
    """One call's tensors, as its caller passed them, by their names in error messages.

    Attributes:
        op: the operator's name.
        xs: the main inputs, by name.
        outs: the outputs, by name, one for each of xs; empty if the operator allocates them.
        in_place: the names of those of xs that are their own output.
    """

    __slots__ = ()
    op: str
    xs: Mapping[str, T]
    outs: Mapping[str, T]
    in_place: tuple[str, ...]

    @property
    def scatters(self) -> bool:
        """Whether the last output is rows of a cache."""
        return "cache" in self.outs

    @property
    def first(self) -> tuple[str, T]:
        """Name and tensor of x or q, with which the other tensors are compared."""
        return next(iter(self.xs.items()))

    def beside(self) -> dict[str, T]:
        """Return the other inputs that the call has, by name."""
        raise NotImplementedError

    def with_beside(self, **named: T) -> Any:
        """Return the call with the other inputs replaced."""
        raise NotImplementedError

    def differentiable(self) -> dict[str, T]:
        """Return the tensors that may need a gradient, by name: all except the frequency factors."""
        named = {**self.xs, **self.beside(), **self.outs}
        named.pop("freq_factors", None)
        return named


@dataclass(slots=True)
class RopeTensors(CallTensors[T]):
    """A call of rope, rope_qk or rope_set_rows.

    Attributes:
        op: the operator's name.
        xs: the rotated inputs, by name: one tensor, or queries and keys.
        positions, freq_factors: their positions, and the factors or None.
        outs: the outputs, by name, one for each of xs; empty if the operator allocates them.
        rows: the rows to write of the cache, which is then the only one of outs; or None.
        in_place: the names of those of xs that are their own output.
        narrower: dtypes that a cache may have besides the dtype of its input.
    """

    narrower: ClassVar[Mapping[str, Sequence[str]]] = NARROWER
    op: str
    xs: Mapping[str, T]
    positions: T
    freq_factors: T | None = None
    outs: Mapping[str, T] = field(default_factory=dict)
    rows: T | None = None
    in_place: tuple[str, ...] = ()

    def beside(self) -> dict[str, T]:
        """Return the other inputs, by name; the factors only if the call has them."""
        named: dict[str, Any] = {"positions": self.positions}
        if self.scatters:
            named["rows"] = self.rows
        if self.freq_factors is not None:
            named["freq_factors"] = self.freq_factors
        return named

    def with_beside(self, **named: T) -> RopeTensors[T]:
        """Return the call with the other inputs replaced."""
        rows, factors = named.get("rows"), named.get("freq_factors")
        return replace(self, positions=named["positions"], rows=rows, freq_factors=factors)

    def map(self, see: Callable[[T], U]) -> RopeTensors[U]:
        """Return the call with ``see`` applied to each tensor."""
        return RopeTensors(
            self.op,
            {name: see(t) for name, t in self.xs.items()},
            see(self.positions),
            None if self.freq_factors is None else see(self.freq_factors),
            {name: see(t) for name, t in self.outs.items()},
            None if self.rows is None else see(self.rows),
            self.in_place,
        )


def rope_tensors(x: T, positions: T, freq_factors: T | None, out: T | None) -> RopeTensors[T]:
    """Return a call of rope."""
    outs = {} if out is None else {"out": out}
    return RopeTensors("rope", {"x": x}, positions, freq_factors, outs, in_place=("x",) if out is x else ())


def rope_qk_tensors(
    q: T, k: T, positions: T, freq_factors: T | None, out: tuple[T, T] | None
) -> RopeTensors[T]:
    """Return a call of rope_qk."""
    xs, outs = {"q": q, "k": k}, {} if out is None else {"q_out": out[0], "k_out": out[1]}
    in_place = tuple(name for (name, x), o in zip(xs.items(), outs.values(), strict=False) if o is x)
    return RopeTensors("rope_qk", xs, positions, freq_factors, outs, in_place=in_place)


def rope_set_rows_tensors(x: T, positions: T, rows: T, freq_factors: T | None, cache: T) -> RopeTensors[T]:
    """Return a call of rope_set_rows."""
    return RopeTensors("rope_set_rows", {"x": x}, positions, freq_factors, {"cache": cache}, rows)


def check_call(t: RopeTensors[TensorSpec], params: RopeParams, angle: Angle) -> None:
    """Check every rule that needs neither an element's value nor an address."""
    angle_policy(t.op, angle)
    like = None
    for name, x in t.xs.items():
        check_x(x, params, unit_stride=name in t.in_place, op=t.op, name=name, like=like)
        like = t.first
    _, first = t.first
    check_positions(t.positions, first, params, op=t.op)
    if t.rows is not None:
        check_rows(t.rows, first, op=t.op)
    if t.freq_factors is not None:
        check_freq_factors(t.freq_factors, params, op=t.op)
    for (name, out), (x_name, x) in zip(t.outs.items(), t.xs.items(), strict=False):
        if name == "cache":
            check_cache(out, x, op=t.op, x_name=x_name, narrower=t.narrower)
        else:
            check_out(out, x, op=t.op, name=name, x_name=x_name)


def check_memory(t: CallTensors[StridedView]) -> None:
    """Check the memory of the outputs. An output must be aligned and must not overlap itself. It is its own
    input, or it shares no memory with any input or other output."""
    for side, (name, out) in enumerate(t.outs.items()):
        check_aligned(name, out, op=t.op)
        if not is_injective(out):
            strides = [s // out.item_bytes for s in out.strides]
            raise bad_value(t.op, name, "not overlap itself", f"strides {strides}")
        own = list(t.xs)[side]
        others = {} if name != "cache" and is_same_view(out, t.xs[own]) else {own: t.xs[own]}
        for other, (x_name, out_name) in enumerate(zip(t.xs, t.outs, strict=True)):
            if other != side:
                others[x_name] = t.xs[x_name]
            if other < side:
                others[out_name] = t.outs[out_name]
        _check_apart(t, name, own, {**others, **t.beside()})


def _check_apart(t: CallTensors[StridedView], name: str, own: str, others: Mapping[str, StridedView]) -> None:
    itself = "" if name == "cache" else f"be {own} itself or "
    for other, view in others.items():
        if may_share_memory(t.outs[name], view):
            raise bad_value(t.op, name, f"{itself}share no memory with {other}", "memory that they share")


# ---- one tensor each ---------------------------------------------------------------------------------


def check_x(
    x: TensorSpec,
    params: RopeParams,
    *,
    unit_stride: bool,
    op: str = "rope",
    name: str = "x",
    like: tuple[str, TensorSpec] | None = None,
) -> None:
    """Check a rotated tensor's dtype, its shape, and that the rotated window fits its heads. With ``like``,
    its dtype and its shape except for the number of heads must be those of the other tensor."""
    if x.dtype not in FLOAT_DTYPES:
        raise bad_type(op, name, "be float32, float16, bfloat16 or float64", x.dtype)
    if len(x.shape) not in (3, 4):
        raise bad_value(op, name, "have shape [B,S,N,D] or [S,N,D]", x.text())
    if like is not None:
        check_like(x, name, *like, op)
    _check_window(x.shape[-1], params, op)
    if unit_stride:
        check_unit_stride(name, x, op=op)


def check_like(x: TensorSpec, name: str, other_name: str, other: TensorSpec, op: str) -> None:
    """Check for the other tensor's dtype, and for its shape except for the number of heads."""
    if x.dtype != other.dtype:
        raise bad_type(op, name, f"have {other_name}'s dtype {other.dtype}", x.dtype)
    if (x.shape[:-2], x.shape[-1]) != (other.shape[:-2], other.shape[-1]):
        rule = f"{other_name}'s shape {other.text()} except for the heads"
        raise bad_value(op, name, f"have {rule}", x.text())


def _check_window(head: int, params: RopeParams, op: str) -> None:
    """Check that the rotated window and the sections fit into a head."""
    if params.n_dims > head:
        raise bad_value(op, "n_dims", f"be at most the head size {head}", params.n_dims)
    if params.n_offs + params.n_dims > head:
        end = params.n_offs + params.n_dims
        raise bad_value(op, "n_offs + n_dims", f"be at most the head size {head}", end)
    if params.rope_mode is RopeMode.VISION and 2 * params.n_dims != head:
        raise bad_value(op, "n_dims", "be half the head size in mode vision", f"{params.n_dims} of {head}")
    if sum(params.sections) > head:
        raise bad_value(op, "sections", f"add up to at most the head size {head}", list(params.sections))


def check_unit_stride(name: str, t: TensorSpec, *, op: str = "rope") -> None:
    """Check that the last dimension is contiguous, if it has more than one element."""
    if 0 not in t.shape and t.shape[-1] > 1 and t.strides[-1] != 1:
        raise bad_value(op, name, "have unit stride in its last dimension", t.strides[-1])


def check_positions(positions: TensorSpec, x: TensorSpec, params: RopeParams, *, op: str = "rope") -> None:
    """Check positions: int32 or int64; ``[S]``, and ``[B,S]`` or ``[1,S]`` if x has a batch. In the modes
    with sections four or three planes of positions: ``[4,S]``, flat ``[4*S]``, ``[3,S]``, ``[4,B,S]``,
    ``[3,B,S]``, ``[4,1,S]`` or ``[3,1,S]``."""
    if positions.dtype not in INDEX_DTYPES:
        raise bad_type(op, "positions", "be int32 or int64", positions.dtype)
    batch, tokens = x.shape[0] if len(x.shape) == 4 else 0, x.shape[-3]
    allowed: Sequence[tuple[int, ...]]
    if params.rope_mode.has_sections:
        allowed = [(4 * tokens,), (4, tokens), (3, tokens)]
        rule = f"[4,S] = [4, {tokens}], [4*S] or [3,S]"
        if len(x.shape) == 4:
            allowed += [(4, batch, tokens), (3, batch, tokens), (4, 1, tokens), (3, 1, tokens)]
            rule = f"[4,S] = [4, {tokens}], [4*S], [3,S], [4,B,S] = [4, {batch}, {tokens}],"
            rule += " [3,B,S], [4,1,S] or [3,1,S]"
        rule += f" in mode {params.rope_mode.name.lower()}"
    elif len(x.shape) == 4:
        allowed = [(tokens,), (batch, tokens), (1, tokens)]
        rule = f"[S] = [{tokens}], [B, S] = [{batch}, {tokens}] or [1, S]"
    else:
        allowed = [(tokens,)]
        rule = f"[S] = [{tokens}]"
    if positions.shape not in allowed:
        raise bad_value(op, "positions", f"have shape {rule}", positions.text())


def check_position_values(positions: npt.NDArray[np.integer], *, op: str = "rope") -> None:
    """Check that every position is in the int32 range."""
    outside = positions[(positions < -(2**31)) | (positions >= 2**31)]
    if outside.size:
        raise bad_value(op, "positions", "be in the int32 range", outside.flat[0])


def check_out(
    out: TensorSpec, x: TensorSpec, *, op: str = "rope", name: str = "out", x_name: str = "x"
) -> None:
    """Check out: x's dtype and shape, unit last stride. (:func:`check_memory` has the rules of addresses.)"""
    check_same(out, x, op=op, name=name, x_name=x_name)
    check_unit_stride(name, out, op=op)


def check_same(out: TensorSpec, x: TensorSpec, *, op: str, name: str, x_name: str) -> None:
    """Check for x's dtype and shape."""
    if out.dtype != x.dtype:
        raise bad_type(op, name, f"have {x_name}'s dtype {x.dtype}", out.dtype)
    if out.shape != x.shape:
        raise bad_value(op, name, f"have {x_name}'s shape {x.text()}", out.text())


def check_aligned(name: str, t: StridedView, *, op: str = "rope") -> None:
    """Check that the address of every element is a multiple of its size."""
    whole = all(s % t.item_bytes == 0 for n, s in zip(t.sizes, t.strides, strict=True) if n > 1)
    if not t.is_empty() and not (t.base % t.item_bytes == 0 and whole):
        raise bad_value(op, name, f"be aligned to its {t.item_bytes}-byte elements", "an address that is not")


# ---- a cache and its rows ------------------------------------------------------------------------------


def check_rows(rows: TensorSpec, x: TensorSpec, *, op: str = "rope_set_rows") -> None:
    """Check rows: int32 or int64; ``[B,S]``, or ``[S]`` if B is 1."""
    if rows.dtype not in INDEX_DTYPES:
        raise bad_type(op, "rows", "be int32 or int64", rows.dtype)
    batched, tokens = len(x.shape) == 4, x.shape[-3]
    rule = f"[B, S] = [{x.shape[0]}, {tokens}]" if batched else f"[S] = [{tokens}]"
    if batched and x.shape[0] == 1:
        rule += f" or [S] = [{tokens}]"
    alone = rows.shape == (tokens,) and (not batched or x.shape[0] == 1)
    if not alone and not (batched and rows.shape == (x.shape[0], tokens)):
        raise bad_value(op, "rows", f"have shape {rule}", rows.text())


def check_cache(
    cache: TensorSpec,
    x: TensorSpec,
    *,
    op: str = "rope_set_rows",
    x_name: str = "x",
    narrower: Mapping[str, Sequence[str]] = NARROWER,
) -> None:
    """Check the cache: ``[R,N,D]`` of x's dtype, or of a narrower one for float32; unit last stride."""
    others = narrower.get(x.dtype, ())
    if cache.dtype not in (x.dtype, *others):
        rule = " or ".join([", ".join([x.dtype, *others[:-1]]), *others[-1:]])
        raise bad_type(op, "cache", f"have {x_name}'s dtype {rule}", cache.dtype)
    heads, head = x.shape[-2:]
    if len(cache.shape) != 3 or cache.shape[1:] != (heads, head):
        rule = f"[R,N,D] = [R, {heads}, {head}]"
        raise bad_value(op, "cache", f"have shape {rule}", cache.text())
    check_unit_stride("cache", cache, op=op)


def check_row_values(rows: npt.NDArray[np.integer], cache_rows: int, *, op: str = "rope_set_rows") -> None:
    """Check that each element is -1 or a row of the cache, and that no row occurs twice."""
    outside = rows[(rows < -1) | (rows >= cache_rows)]
    if outside.size:
        raise bad_value(op, "rows", f"be -1 or a row of the cache's {cache_rows}", outside.flat[0])
    distinct, counts = np.unique(rows[rows >= 0], return_counts=True)
    if np.any(counts > 1):
        twice = distinct[counts > 1][0]
        raise bad_value(op, "rows", "differ from each other", f"{twice} twice")
