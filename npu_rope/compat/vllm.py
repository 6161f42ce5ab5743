"""A function with the name, argument order and in-place semantics of vLLM's rotary operator.

    from npu_rope.compat.vllm import rotary_embedding

    rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox)

Formula and shapes: vLLM's custom operator ``rotary_embedding``. Each token's row of the cache is gathered,
then :func:`npu_rope.rotary_mul_qk_` rotates.
"""

from __future__ import annotations

from typing import Any

from npu_rope.errors import BrokenRule, bad_type, bad_value, renamed
from npu_rope.executors.tensors import require_dense
from npu_rope.ops.rotary_mul import rotary_mul_, rotary_mul_qk_
from npu_rope.optional_torch import torch
from npu_rope.values import flag, integer

OP = "rotary_embedding"
# This function's names for the arguments of rotary_mul_ and rotary_mul_qk_.
_NAMES = {"x": "query", "q": "query", "k": "key", "cos": "cos_sin_cache", "sin": "cos_sin_cache"}


def rotary_embedding(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool
) -> None:
    """Rotate queries and keys in place by the rows of a cache that the positions select.

    Args:
        positions: ``[T]`` or ``[B,S]``, int32 or int64: rows of the cache. Positions on an NPU are not
            checked; a compiled graph checks them when it runs, with a RuntimeError.
        query: ``[T, N*head_size]`` or ``[T, N, head_size]``; for positions ``[B,S]`` with B and S instead of
            T. It may be a slice of a fused projection; other elements do not change. float32, float16,
            bfloat16 or float64; last stride 1.
        key: like query except for its number of heads, or None.
        head_size: D.
        cos_sin_cache: ``[rows, W]``: cos of W/2 pairs, then sin; the first W of a head's dimensions rotate.
            query's dtype or float32.
        is_neox: True: pairs are ``(x[i], x[i + W/2])``; False: ``(x[2i], x[2i+1])``.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.

    >>> import torch
    >>> cache = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # row 1: a quarter of a turn
    >>> query = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> rotary_embedding(torch.tensor([1]), query, None, 2, cache, True)
    >>> query
    tensor([[-2.,  1., -4.,  3.]])
    """
    size, neox = integer("head_size", head_size, OP, bits=64), flag(OP, "is_neox", is_neox)
    _require_tensors(positions=positions, query=query, cos_sin_cache=cos_sin_cache)
    given = {"query": query}
    if key is not None:
        _require_tensors(key=key)
        given["key"] = key
    _check_positions(positions, query, cos_sin_cache)
    width = cos_sin_cache.shape[1]
    if size <= 0 or width > size:
        raise bad_value(OP, "head_size", f"be at least the cache's width {width}", size)
    heads = [_heads(name, x, positions, size) for name, x in given.items()]
    rows = cos_sin_cache[positions.flatten().long()]
    cos, sin = rows.chunk(2, dim=-1)
    if heads[0].dtype != cos.dtype and cos.dtype != torch.float32:
        got = f"{cos_sin_cache.dtype} with {heads[0].dtype}"
        raise bad_type(OP, "cos_sin_cache", "be of query's dtype or float32", got)
    attributes: dict[str, Any] = {"rotary_dim": width, "interleaved": not neox}
    try:
        if key is None:
            rotary_mul_(heads[0], cos, sin, **attributes)
        else:
            rotary_mul_qk_(heads[0], heads[1], cos, sin, **attributes)
    except BrokenRule as error:
        raise renamed(error, OP, _NAMES) from error.__cause__


def _require_tensors(**tensors: Any) -> None:
    for name, tensor in tensors.items():
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise bad_type(OP, name, "be a torch tensor", type(tensor).__name__)
        require_dense(OP, name, tensor)


def _check_positions(positions: Any, query: Any, cache: Any) -> None:
    if positions.dtype not in (torch.int32, torch.int64):
        raise bad_type(OP, "positions", "be int32 or int64", positions.dtype)
    if positions.device != query.device:
        raise bad_value(OP, "positions", f"be on query's device {query.device}", positions.device)
    if positions.ndim not in (1, 2):
        raise bad_value(OP, "positions", "be [T] or [B,S]", list(positions.shape))
    if cache.ndim != 2 or cache.shape[1] % 2 or cache.shape[1] == 0:
        raise bad_value(OP, "cos_sin_cache", "be [rows, W] with an even W", list(cache.shape))
    if positions.device.type != "cpu":
        return
    if torch.compiler.is_compiling():
        inside = ((positions >= 0) & (positions < len(cache))).all()
        torch._assert_async(inside, f"[{OP}] positions must be rows of cos_sin_cache but got others.")
    elif positions.numel():
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= len(cache):
            got = low if low < 0 else high
            raise bad_value(OP, "positions", f"be rows 0 to {len(cache) - 1} of cos_sin_cache", got)


def _heads(name: str, x: Any, positions: Any, size: int) -> Any:
    """Return x as a view [T, N, head_size]."""
    token_shape = positions.shape
    flat = x.ndim == positions.ndim + 1 and x.shape[-1] % size == 0
    if x.shape[: positions.ndim] != token_shape or not (
        flat or (x.ndim == positions.ndim + 2 and x.shape[-1] == size)
    ):
        tokens = ", ".join(map(str, token_shape))
        raise bad_value(OP, name, f"be [{tokens}, N*{size}] or [{tokens}, N, {size}]", list(x.shape))
    if x.numel() and x.shape[-1] > 1 and x.stride(-1) != 1:
        raise bad_value(OP, name, "have unit stride in its last dimension", x.stride(-1))
    heads = x.unflatten(-1, (-1, size)) if flat else x
    if len(token_shape) == 1:
        return heads
    try:
        return heads.view(token_shape[0] * token_shape[1], *heads.shape[2:])
    except RuntimeError:
        raise bad_value(
            OP, f"{name}'s batches", "follow each other in memory", f"strides {x.stride()}"
        ) from None


__all__ = ["rotary_embedding"]
