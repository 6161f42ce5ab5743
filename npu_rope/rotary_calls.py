"""Tensors, attributes and layouts of a call of rotary_mul, rotary_mul_qk or rotary_embedding.
``csrc/core/rotary_check.cpp`` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from npu_rope.call_tensors import CallTensors, call_of, given, named_outs
from npu_rope.values import flag, integer

T = TypeVar("T")


def rotary_mul_tensors(x: T, cos: T, sin: T, out: T | None) -> CallTensors[T]:
    """Return a call of rotary_mul."""
    return call_of("rotary_mul", {"x": x}, {"cos": cos, "sin": sin}, given(out=out))


def rotary_mul_qk_tensors(q: T, k: T, cos: T, sin: T, out: tuple[T, T] | None) -> CallTensors[T]:
    """Return a call of rotary_mul_qk."""
    outs = named_outs(("q_out", "k_out"), out)
    return call_of("rotary_mul_qk", {"q": q, "k": k}, {"cos": cos, "sin": sin}, outs)


def rotary_embedding_tensors(
    x: T, cos_cache: T, sin_cache: T, position_ids: T | None, out: T | None
) -> CallTensors[T]:
    """Return a call of rotary_embedding."""
    other_inputs = {"cos_cache": cos_cache, "sin_cache": sin_cache, **given(position_ids=position_ids)}
    return call_of("rotary_embedding", {"X": x}, other_inputs, given(Y=out))


def is_onnx(call: CallTensors[Any]) -> bool:
    """Return whether the call has ONNX's layouts and rules."""
    return call.op == "rotary_embedding"


def tables_of(call: CallTensors[T]) -> dict[str, T]:
    """Return cos and sin, by their names in the call."""
    return {name: table for name, table in call.other_inputs.items() if name != "position_ids"}


@dataclass(frozen=True, slots=True)
class RotaryAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        interleaved: pairs are (x[2i], x[2i+1]); otherwise (x[i], x[i + width/2]).
        rotary_dim: rotated width; 0: the whole head.
        offset: first lane of the rotated window in a head.
        num_heads: the number of heads of rotary_embedding's ``[B,S,N*D]``.
        forward: True rotates by the tables; False applies the transposed rotation, for the gradient.
    """

    interleaved: bool = False
    rotary_dim: int = 0
    offset: int = 0
    num_heads: int = 0
    forward: bool = True

    @property
    def checked(self) -> dict[str, int]:
        """The attributes that csrc/core checks, by name."""
        return {"rotary_dim": self.rotary_dim, "offset": self.offset, "num_heads": self.num_heads}

    def as_aclnn(self) -> dict[str, Any]:
        """Return the attributes by their names in the operators' definitions."""
        names = ("interleaved", "rotary_dim", "offset", "forward")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class RotarySizes:
    """Sizes of a checked call."""

    batch: int
    tokens: int
    heads: int  # of x or q
    head_size: int
    width: int  # rotated
    has_entry_per_lane: bool  # of the tables; otherwise they have an entry for each pair


# ---- attributes ----------------------------------------------------------------------------------------


def attributes_of(
    op: str, interleaved: Any, rotary_dim: Any, offset: Any = 0, num_heads: Any = 0, forward: Any = True
) -> RotaryAttributes:
    """Return the attributes of a Python function's call.

    Raises:
        ValueError, TypeError: an attribute has the wrong type, or an integer has more than 64 bits.
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
    """Return whether a value is the integer 0 or 1, as ONNX's attribute has it."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value in (0, 1)


# ---- layouts, of arrays and tensors alike ----------------------------------------------------------------


def sizes_of(call: CallTensors[Any], attributes: RotaryAttributes) -> RotarySizes:
    """Return the sizes of a checked call."""
    _, x = call.first
    if not is_onnx(call):
        batch, (tokens, heads, head) = x.shape[0] if x.ndim == 4 else 1, x.shape[-3:]
    elif x.ndim == 4:
        batch, heads, tokens, head = x.shape
    else:
        (batch, tokens, hidden), heads = x.shape, attributes.num_heads
        head = hidden // heads
    width = attributes.rotary_dim or head
    table_width = next(iter(call.other_inputs.values())).shape[-1]
    has_entry_per_lane = not is_onnx(call) and table_width != width // 2
    return RotarySizes(batch, tokens, heads, head, width, has_entry_per_lane)


def lanes(width: int, interleaved: bool) -> tuple[slice, slice]:
    """Return the first lanes and the second lanes of the rotated window's pairs."""
    if interleaved:
        return slice(0, width, 2), slice(1, width, 2)
    return slice(0, width // 2), slice(width // 2, width)


def as_heads(call: CallTensors[Any], x: Any, sizes: RotarySizes) -> Any:
    """Return a view ``[B,S,N,D]`` of a rotated tensor in any of the supported layouts."""
    if not is_onnx(call):
        return x if x.ndim == 4 else x[None]
    if x.ndim == 4:
        # torch.vmap has a rule for transpose and none for swapaxes.
        return x.swapaxes(1, 2) if isinstance(x, np.ndarray) else x.transpose(1, 2)
    return x.reshape(sizes.batch, sizes.tokens, sizes.heads, sizes.head_size)


def serves_all_batches(call: CallTensors[Any], table: Any, sizes: RotarySizes) -> bool:
    """Return whether all batches share a table of rotary_mul."""
    return bool(table.ndim == 2 or table.shape[0] != sizes.batch or call.first[1].ndim == 3)
