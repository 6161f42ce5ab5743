"""The arguments of vllm-ascend's functions: their rules, and their parts as ``qkv_norm_rope_cache`` takes
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_rope.compat.arguments import integer_or_symbol, integers
from npu_rope.errors import bad_value
from npu_rope.ops import calls

Three = tuple[Any, Any, Any]

# The functions' parameters of the norms, and qkv_norm_rope_cache's names of them.
PARAMETERS = {"q_weight": "q_scale", "k_weight": "k_scale", "q_bias": "q_bias", "k_bias": "k_bias"}


def require_shape(op: str, name: str, tensor: Any, shape: tuple[int, ...], rule: str) -> None:
    """Raise an error if an argument is not a tensor of that shape. ``rule``: the shape by its names."""
    calls.require_tensors(op, **{name: tensor})
    if tuple(tensor.shape) != shape:
        raise bad_value(op, name, f"be {rule} = {list(shape)}", list(tensor.shape))


def _positive(op: str, name: str, value: Any) -> Any:
    """Return a size, which must be positive."""
    size = integer_or_symbol(op, name, value)
    if size <= 0:
        raise bad_value(op, name, "be positive", size)
    return size


def rotated_width(op: str, name: str, value: Any) -> Any:
    """Return the number of rotated dimensions of a head, which must be positive and even."""
    width = integer_or_symbol(op, name, value)
    if width <= 0 or width % 2:
        raise bad_value(op, name, "be a positive even number", width)
    return width


def sections_of(op: str, given: Any, pairs: int) -> list[Any]:
    """Return mrope_section's three numbers, which add up to the number of pairs."""
    sections = integers(op, "mrope_section", given, "three")
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        rule = f"be three numbers >= 0 that add up to {pairs}"
        raise bad_value(op, "mrope_section", rule, sections)
    return sections


def split_heads(
    op: str, name: str, fused: Any, sizes: Mapping[str, Any], head_name: str, head_size: Any
) -> Three:
    """Return q, k and v of a fused projection as views ``[T, N, head_size]``.

    Args:
        name: the projection's name.
        sizes: the widths of q and of k and v, by their names.
        head_name: head_size's name.
    """
    calls.require_tensors(op, **{name: fused})
    head_size = _positive(op, head_name, head_size)
    sizes = {size_name: integer_or_symbol(op, size_name, size) for size_name, size in sizes.items()}
    for size_name, size in sizes.items():
        if size < 0 or size % head_size:
            raise bad_value(op, size_name, f"be a multiple of {head_name} = {head_size}, at least 0,", size)
    q_size, kv_size = sizes.values()
    if fused.ndim != 2 or fused.shape[1] != q_size + 2 * kv_size:
        raise bad_value(op, name, f"be [T, {q_size + 2 * kv_size}]", list(fused.shape))
    q, k, v = fused.split([q_size, kv_size, kv_size], dim=1)
    return q.unflatten(1, (-1, head_size)), k.unflatten(1, (-1, head_size)), v.unflatten(1, (-1, head_size))


def norm_of_heads(op: str, head_name: str, size: int, *given: Any) -> dict[str, Any]:
    """Return the norm's arguments of qkv_norm_rope_cache, from q_weight, k_weight, q_bias, k_bias and eps."""
    *parameters, eps = given
    for name, parameter in zip(PARAMETERS, parameters, strict=True):
        if parameter is not None or name.endswith("weight"):
            require_shape(op, name, parameter, (size,), f"[{head_name}]")
    return dict(zip(PARAMETERS.values(), parameters, strict=True)) | {"epsilon": eps}


def halves_of(op: str, cache: Any) -> tuple[Any, Any]:
    """Return cos and sin of a cache ``[rows, W]``."""
    calls.require_tensors(op, cos_sin_cache=cache)
    if cache.ndim != 2 or cache.shape[1] % 2 or cache.shape[1] == 0:
        raise bad_value(op, "cos_sin_cache", "be [rows, W] with an even W", list(cache.shape))
    cos, sin = cache.chunk(2, dim=-1)
    return cos, sin


def by_token(op: str, name: str, table: Any, tokens: int, width: int) -> Any:
    """Return a table as ``[T, width/2]``."""
    calls.require_tensors(op, **{name: table})
    pairs, rows = width // 2, [n for n in table.shape[:-1] if n != 1]
    if table.ndim < 1 or table.shape[-1] not in (pairs, width) or rows != [n for n in (tokens,) if n != 1]:
        rule = f"be [T, rotary_dim/2] = [{tokens}, {pairs}] or [T, rotary_dim] = [{tokens}, {width}]"
        raise bad_value(op, name, rule, list(table.shape))
    return table.reshape(tokens, table.shape[-1])[:, :pairs]


def as_heads(op: str, name: str, x: Any, head_size: Any) -> Any:
    """Return queries or keys as ``[T, N, head_size]``."""
    calls.require_tensors(op, **{name: x})
    head_size = _positive(op, "head_size", head_size)
    if x.ndim not in (2, 3) or x.shape[-1] % head_size:
        raise bad_value(op, name, f"be [T, N*{head_size}] or [T, N, {head_size}]", list(x.shape))
    return x.reshape(len(x), x.shape[1:].numel() // head_size, head_size)
