"""Rules of the tensors and attributes of rotary_mul, rotary_mul_qk and rotary_embedding for the Python paths.

The native paths state the same rules in ``csrc/core/rotary_check.cpp``; a test compares the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from npu_rope.checks import (
    FLOAT_DTYPES,
    INDEX_DTYPES,
    CallTensors,
    check_like,
    check_out,
    check_same,
    check_unit_stride,
)
from npu_rope.errors import bad_type, bad_value
from npu_rope.strided import TensorSpec
from npu_rope.values import flag, integer, rotated_width

T = TypeVar("T")
U = TypeVar("U")


@dataclass(slots=True)
class RotaryTensors(CallTensors[T]):
    """A call of rotary_mul, rotary_mul_qk or rotary_embedding.

    Attributes:
        op: the operator's name.
        xs: the rotated inputs, by name: one tensor, or queries and keys.
        tables: cos and sin, by their names in the call.
        position_ids: rotary_embedding's, or None.
        outs: the outputs, by name, one for each of xs; empty if the operator allocates them.
        in_place: the names of those of xs that are their own output.
    """

    op: str
    xs: Mapping[str, T]
    tables: Mapping[str, T]
    position_ids: T | None = None
    outs: Mapping[str, T] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()

    @property
    def onnx(self) -> bool:
        """Whether the call has ONNX's layouts and rules."""
        return self.op == "rotary_embedding"

    def beside(self) -> dict[str, T]:
        """Return the tables, and the positions if the call has them, by name."""
        named = dict(self.tables)
        if self.position_ids is not None:
            named["position_ids"] = self.position_ids
        return named

    def with_beside(self, **named: T) -> RotaryTensors[T]:
        """Return the call with the other inputs replaced."""
        tables = {name: named[name] for name in self.tables}
        return replace(self, tables=tables, position_ids=named.get("position_ids"))

    def map(self, see: Callable[[T], U]) -> RotaryTensors[U]:
        """Return the call with ``see`` applied to each tensor."""
        return RotaryTensors(
            self.op,
            {name: see(t) for name, t in self.xs.items()},
            {name: see(t) for name, t in self.tables.items()},
            None if self.position_ids is None else see(self.position_ids),
            {name: see(t) for name, t in self.outs.items()},
            self.in_place,
        )


def rotary_mul_tensors(x: T, cos: T, sin: T, out: T | None) -> RotaryTensors[T]:
    """Return a call of rotary_mul."""
    outs, in_place = {} if out is None else {"out": out}, ("x",) if out is x else ()
    return RotaryTensors("rotary_mul", {"x": x}, {"cos": cos, "sin": sin}, None, outs, in_place)


def rotary_mul_qk_tensors(q: T, k: T, cos: T, sin: T, out: tuple[T, T] | None) -> RotaryTensors[T]:
    """Return a call of rotary_mul_qk."""
    xs, outs = {"q": q, "k": k}, {} if out is None else {"q_out": out[0], "k_out": out[1]}
    in_place = tuple(name for (name, x), o in zip(xs.items(), outs.values(), strict=False) if o is x)
    return RotaryTensors("rotary_mul_qk", xs, {"cos": cos, "sin": sin}, None, outs, in_place)


def rotary_embedding_tensors(
    x: T, cos_cache: T, sin_cache: T, position_ids: T | None, out: T | None
) -> RotaryTensors[T]:
    """Return a call of rotary_embedding."""
    outs, in_place = {} if out is None else {"Y": out}, ("X",) if out is x else ()
    tables = {"cos_cache": cos_cache, "sin_cache": sin_cache}
    return RotaryTensors("rotary_embedding", {"X": x}, tables, position_ids, outs, in_place)


@dataclass(frozen=True, slots=True)
class RotaryAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        interleaved: pairs (x[2i], x[2i+1]) rather than halves.
        rotary_dim: rotated width; 0: the whole head.
        offset: first lane of the rotated window in a head.
        num_heads: of rotary_embedding's ``[B,S,hidden]``.
        forward: True rotates by the tables; False applies the transposed rotation, for the gradient.
    """

    interleaved: bool = False
    rotary_dim: int = 0
    offset: int = 0
    num_heads: int = 0
    forward: bool = True


@dataclass(frozen=True, slots=True)
class RotarySizes:
    """Sizes of a checked call."""

    batch: int
    tokens: int
    heads: tuple[int, ...]  # of each of xs
    head: int
    width: int  # rotated
    full: bool  # the tables have an entry for each lane


# ---- attributes ----------------------------------------------------------------------------------------


def attributes_of(
    op: str, interleaved: Any, rotary_dim: Any, offset: Any = 0, num_heads: Any = 0, forward: Any = True
) -> RotaryAttributes:
    """Return the attributes of a Python call.

    Raises:
        TypeError: an attribute has the wrong type.
    """
    onnx = op == "rotary_embedding"
    return RotaryAttributes(
        bool(interleaved) if _is_bit(interleaved) else flag(op, "interleaved", interleaved),
        integer("rotary_embedding_dim" if onnx else "rotary_dim", rotary_dim, op, bits=64),
        integer("offset", offset, op, bits=64),
        integer("num_heads", num_heads, op, bits=64),
        flag(op, "forward", forward),
    )


def _is_bit(value: Any) -> bool:
    """Return whether a value of ONNX's attribute is 0 or 1."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value in (0, 1)


# ---- tensors -------------------------------------------------------------------------------------------


def check_call(t: RotaryTensors[TensorSpec], a: RotaryAttributes) -> RotarySizes:
    """Check every rule that needs neither an element's value nor an address. Return the sizes."""
    sizes, like = None, None
    for name, x in t.xs.items():
        sizes = _check_x(t, name, x, like, a, sizes)
        like = t.first
    assert sizes is not None
    for name in t.tables:
        sizes = _check_table(t, name, sizes)
    if t.position_ids is not None:
        _check_position_ids(t, t.position_ids, sizes)
    for (name, out), (x_name, x) in zip(t.outs.items(), t.xs.items(), strict=False):
        check_out(out, x, op=t.op, name=name, x_name=x_name)
    return sizes


def _check_x(
    t: RotaryTensors[TensorSpec],
    name: str,
    x: TensorSpec,
    like: tuple[str, TensorSpec] | None,
    a: RotaryAttributes,
    before: RotarySizes | None,
) -> RotarySizes:
    op = t.op
    if x.dtype not in FLOAT_DTYPES:
        raise bad_type(op, name, "be float32, float16, bfloat16 or float64", x.dtype)
    if len(x.shape) not in (3, 4):
        rule = "[B,N,S,D] or [B,S,hidden]" if t.onnx else "[B,S,N,D] or [S,N,D]"
        raise bad_value(op, name, f"have shape {rule}", x.text())
    if like is not None:
        check_like(x, name, *like, op)
    if t.onnx:
        batch, tokens, heads, head = _onnx_sizes(op, x, a.num_heads)
    else:
        batch, (tokens, heads, head) = (x.shape[0] if len(x.shape) == 4 else 1), x.shape[-3:]
    width = _check_window(t, head, a)
    if name in t.in_place:
        check_unit_stride(name, x, op=op)
    return RotarySizes(batch, tokens, (*(before.heads if before else ()), heads), head, width, False)


def _onnx_sizes(op: str, x: TensorSpec, num_heads: int) -> tuple[int, int, int, int]:
    if len(x.shape) == 4:
        batch, heads, tokens, head = x.shape
        return batch, tokens, heads, head
    batch, tokens, hidden = x.shape
    if num_heads <= 0:
        raise bad_value(op, "num_heads", "be positive where X has shape [B,S,hidden]", num_heads)
    if hidden % num_heads:
        raise bad_value(op, "num_heads", f"divide X's hidden size {hidden}", num_heads)
    return batch, tokens, num_heads, hidden // num_heads


def _check_window(t: RotaryTensors[TensorSpec], head: int, a: RotaryAttributes) -> int:
    name = "rotary_embedding_dim" if t.onnx else "rotary_dim"
    width = rotated_width(t.op, name, head, a.rotary_dim)
    if a.offset < 0 or a.offset % 2:
        raise bad_value(t.op, "offset", "be an even number >= 0", a.offset)
    if a.offset > head - width:
        rule = f"at most the head size {head} less the rotated {width}"
        raise bad_value(t.op, "offset", f"be {rule}", a.offset)
    return width


def _check_table(t: RotaryTensors[TensorSpec], name: str, sizes: RotarySizes) -> RotarySizes:
    """Check one of the tables. The second must be like the first."""
    op, table, (x_name, x) = t.op, t.tables[name], t.first
    first_name, first = next(iter(t.tables.items()))
    if name != first_name:
        if table.dtype != first.dtype:
            raise bad_type(op, name, f"have {first_name}'s dtype {first.dtype}", table.dtype)
        if table.shape != first.shape:
            raise bad_value(op, name, f"have {first_name}'s shape {first.text()}", table.text())
    if table.dtype not in (x.dtype, "float32"):
        wider = "" if x.dtype == "float32" else " or float32"
        raise bad_type(op, name, f"have {x_name}'s dtype {x.dtype}{wider}", table.dtype)
    if t.onnx:
        _check_cache_shape(t, name, table, sizes)
        return sizes
    _check_table_shape(op, name, table, sizes, batched=len(x.shape) == 4)
    return replace(sizes, full=table.shape[-1] != sizes.width // 2)


def _check_table_shape(op: str, name: str, table: TensorSpec, sizes: RotarySizes, *, batched: bool) -> None:
    batch, tokens, half = sizes.batch, sizes.tokens, sizes.width // 2
    width = table.shape[-1] if table.shape else -1
    allowed: list[tuple[int, ...]] = [(tokens, width)]
    if batched:
        allowed += [(b, *rest) for b in (1, batch) for rest in ((tokens, width), (tokens, 1, width))]
        rule = f"[S,W], [B,S,W] or [B,S,1,W] with S = {tokens}, B = {batch} or 1"
    else:
        allowed += [(tokens, 1, width)]
        rule = f"[S,W] or [S,1,W] with S = {tokens}"
    if width not in (half, 2 * half) or table.shape not in allowed:
        raise bad_value(op, name, f"have shape {rule} and W = {half} or {2 * half}", table.text())


def _check_cache_shape(
    t: RotaryTensors[TensorSpec], name: str, table: TensorSpec, sizes: RotarySizes
) -> None:
    half = sizes.width // 2
    if t.position_ids is not None:
        if len(table.shape) != 2 or table.shape[1] < half:
            rule = f"[rows, W] with W >= {half} where position_ids is given"
            raise bad_value(t.op, name, f"have shape {rule}", table.text())
        return
    if len(table.shape) != 3 or table.shape[:2] != (sizes.batch, sizes.tokens) or table.shape[2] < half:
        rule = (
            f"[B,S,W] = [{sizes.batch}, {sizes.tokens}, W] with W >= {half} where position_ids is not given"
        )
        raise bad_value(t.op, name, f"have shape {rule}", table.text())


def _check_position_ids(t: RotaryTensors[TensorSpec], ids: TensorSpec, sizes: RotarySizes) -> None:
    op = t.op
    if ids.dtype not in INDEX_DTYPES:
        raise bad_type(op, "position_ids", "be int64 or int32", ids.dtype)
    if ids.shape != (sizes.batch, sizes.tokens):
        rule = f"[B, S] = [{sizes.batch}, {sizes.tokens}]"
        raise bad_value(op, "position_ids", f"have shape {rule}", ids.text())
    name, cos = next(iter(t.tables.items()))
    if sizes.batch * sizes.tokens > 0 and cos.shape[0] == 0:
        raise bad_value(op, name, "have a row where position_ids is given", cos.text())


def check_position_id_values(op: str, ids: npt.NDArray[np.integer], rows: int) -> None:
    """Check that each element is a row of the caches."""
    outside = ids[(ids < 0) | (ids >= rows)]
    if outside.size:
        raise bad_value(op, "position_ids", f"be rows of the caches' {rows}", outside.flat[0])


def check_grad(
    t: RotaryTensors[Any], grad: Any, a: RotaryAttributes, see: Callable[[Any], TensorSpec]
) -> RotarySizes:
    """Check that a result's gradient is like x. Also checks the forward call."""
    specs = t.map(see)
    sizes = check_call(specs, a)
    name, x = specs.first
    check_same(see(grad), x, op=t.op, name="grad", x_name=name)
    return sizes


# ---- layouts, of arrays and tensors alike ----------------------------------------------------------------


def lanes(width: int, interleaved: bool) -> tuple[slice, slice]:
    """Return the first lanes and the second lanes of the rotated window's pairs."""
    if interleaved:
        return slice(0, width, 2), slice(1, width, 2)
    return slice(0, width // 2), slice(width // 2, width)


def as_heads(t: RotaryTensors[Any], x: Any, sizes: RotarySizes) -> Any:
    """Return a view ``[B,S,N,D]`` of a rotated tensor in any of the supported layouts."""
    if not t.onnx:
        return x if x.ndim == 4 else x[None]
    if x.ndim == 4:
        return x.swapaxes(1, 2)
    return x.reshape(sizes.batch, sizes.tokens, sizes.heads[0], sizes.head)


def serves_all_batches(t: RotaryTensors[Any], table: Any, sizes: RotarySizes) -> bool:
    """Return whether a table of rotary_mul has no batch, or one for all."""
    return bool(table.ndim == 2 or table.shape[0] != sizes.batch or t.first[1].ndim == 3)
