"""The layouts of torch_npu's KV caches, and the same caches and rows as ``qkv_norm_rope_cache`` takes them.

:mod:`.torch_npu_caches` names the sources of the layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npu_rope.errors import bad_type, bad_value
from npu_rope.ops import calls
from npu_rope.optional_torch import torch

COLUMN_BYTES = 32  # a column of the layout FRACTAL_NZ


@dataclass(frozen=True)
class CacheMode:
    """How index and a cache are arranged.

    Attributes:
        paged: caches are ``[blocks, block_size, N, D]``; otherwise ``[B, N, rows, D]``.
        by_block: index has the first row of each block of a sequence; otherwise the row of each token.
        nz: the elements of a block are arranged in columns.
    """

    paged: bool = True
    by_block: bool = False
    nz: bool = False


CACHE_MODES = {
    "Norm": CacheMode(paged=False),
    "PA": CacheMode(),
    "PA_BNSD": CacheMode(),
    "PA_NZ": CacheMode(nz=True),
    "PA_BLK_BNSD": CacheMode(by_block=True),
    "PA_BLK_NZ": CacheMode(by_block=True, nz=True),
}


@dataclass(frozen=True)
class Target:
    """A cache as :func:`qkv_norm_rope_cache` takes it.

    Attributes:
        rows: a view ``[blocks, block_size, heads, width]``. In the layout NZ each column is a head.
        scale, offset: factors and offsets of an int8 cache, ``[heads, width]``.
        columns: the columns of a head; 0: the layout is not NZ.
    """

    rows: Any
    scale: Any
    offset: Any
    columns: int

    def heads(self, some: slice) -> Target:
        """Return the part of some heads."""
        columns = self.columns or 1
        rows = slice(some.start * columns, some.stop * columns)
        scale, offset = (None if t is None else t[rows] for t in (self.scale, self.offset))
        return Target(self.rows[:, :, rows], scale, offset, self.columns)

    def as_stored(self, x: Any) -> Any:
        """Return heads ``[T,N,D]`` as ``[T, heads, width]``."""
        return x.flatten(1).unflatten(1, self.rows.shape[2:]) if self.columns else x

    def named(self, name: str) -> dict[str, Any]:
        """Return the arguments of qkv_norm_rope_cache for this cache of k or v."""
        quantization = {f"{name}_quant_scale": self.scale, f"{name}_quant_offset": self.offset}
        return {f"{name}_cache": self.rows, **quantization}


def kv_target(
    op: str, mode: CacheMode, name: str, cache: Any, x: Any, quantization: tuple[str, Any, Any]
) -> Target:
    """Return the target of x ``[B,N,S,D]``."""
    batches, heads, _, size = x.shape
    known = (None, None, heads, size) if mode.paged else (batches, heads, None, size)
    texts = ("blocks", "block_size", heads, size) if mode.paged else (batches, heads, "rows", size)
    fits = cache.dim() == 4 and all(n in (None, got) for n, got in zip(known, cache.shape, strict=True))
    if not fits or (mode.paged and cache.shape[1] == 0):
        raise bad_value(op, name, f"have shape [{', '.join(map(str, texts))}]", list(cache.shape))
    prefix, scale, offset = quantization
    scale, offset = (
        _factors(op, f"{prefix}_{n}", t, heads, size) for n, t in (("scale", scale), ("offset", offset))
    )
    if not mode.nz:
        return Target(cache.transpose(1, 2) if not mode.paged else cache, scale, offset, 0)
    blocks, block_size = cache.shape[:2]
    width = _column(op, name, cache, size)
    if not cache.is_contiguous():
        raise bad_value(op, name, "be contiguous in the modes NZ", f"strides {list(cache.stride())}")
    columns = cache.view(blocks, heads * size // width, block_size, width).transpose(1, 2)
    return _in_columns(columns, scale, offset, size // width)


def nz_target(op: str, cache: Any, heads: int, size: int, name: str, scale: Any, offset: Any) -> Target:
    """Return the target for a cache ``[blocks, heads*size/w, block_size, w]``."""
    width = _column(op, f"{name}_cache", cache, size)
    count = heads * size // width
    if cache.dim() != 4 or (cache.shape[1], cache.shape[3]) != (count, width) or cache.shape[2] == 0:
        raise bad_value(
            op, f"{name}_cache", f"have shape [blocks, {count}, block_size, {width}]", list(cache.shape)
        )
    factors, offset = (
        _factors(op, f"{name}_{n}", t, heads, size) for n, t in (("scale", scale), ("offset", offset))
    )
    if factors is not None:
        _require_divisors(op, f"{name}_scale", scale)
        factors = 1 / factors
    return _in_columns(cache.transpose(1, 2), factors, offset, size // width)


def _column(op: str, name: str, cache: Any, size: int) -> int:
    """Return the number of elements of a column."""
    width = COLUMN_BYTES // int(cache.element_size())
    if size % width:
        raise bad_value(
            op, name, f"have heads of a multiple of {width} elements of {str(cache.dtype)[6:]}", size
        )
    return width


def _in_columns(rows: Any, scale: Any, offset: Any, columns: int) -> Target:
    scale, offset = (None if t is None else t.reshape(rows.shape[2:]) for t in (scale, offset))
    return Target(rows, scale, offset, columns)


def _factors(op: str, name: str, factors: Any, heads: int, size: int) -> Any:
    """Return factors or offsets as ``[heads, size]``, or None."""
    if factors is None:
        return None
    if tuple(factors.shape) not in ((1,), (size,), (heads, size)):
        rule = f"have shape [1], [{size}] or [{heads}, {size}]"
        raise bad_value(op, name, rule, list(factors.shape))
    if factors.dtype != torch.float32:
        raise bad_type(op, name, "be float32", str(factors.dtype)[6:])
    return factors.expand(heads, size).contiguous()


def _require_divisors(op: str, name: str, scale: Any) -> None:
    """Raise ValueError if one of the divisors is 0. On an NPU values are not checked: to read them, the host
    would wait for the device."""
    if calls.has_values(scale) and not scale.all():
        raise bad_value(op, name, "not be 0", f"0 at index {(scale == 0).nonzero()[0].tolist()}")


# ---- rows --------------------------------------------------------------------------------------------


def slots_of(op: str, mode: CacheMode, index: Any, x: Any, rows: Any) -> Any:
    """Return each token's row of the cache, or -1, ``[B*S]``, for x ``[B,N,S,D]``."""
    batches, _, tokens, _ = x.shape
    block_size = rows.shape[1]
    blocks = -(-tokens // block_size) if mode.by_block else tokens
    wanted = (batches * blocks,) if mode.paged else (batches, blocks)
    if tuple(index.shape) != wanted:
        raise bad_value(op, "index", f"have shape {list(wanted)}", list(index.shape))
    if index.dtype not in (torch.int32, torch.int64):
        raise bad_type(op, "index", "be int32 or int64", str(index.dtype)[6:])
    if not mode.paged:
        if calls.has_values(index) and index.numel() and int(index.max()) >= block_size:
            rule = f"be -1 or a row of the {block_size} of each batch"
            raise bad_value(op, "index", rule, int(index.max()))
        first = torch.arange(batches, device=index.device)[:, None] * block_size
        return (index + (index >= 0) * first).flatten()
    if not mode.by_block:
        return index
    # On an NPU an index by a tensor and a remainder would each be a launch: broadcasting needs neither.
    of_block = index.unflatten(0, (batches, blocks))[..., None]
    row = of_block // block_size * block_size + torch.arange(block_size, device=index.device)
    return torch.where(of_block < 0, of_block, row).flatten(1)[:, :tokens].flatten()
