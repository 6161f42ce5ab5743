"""torch_npu's functions that store into KV caches, by their names, on ``qkv_norm_rope_cache``.

:mod:`npu_rope.compat.torch_npu` exports them. Sources:

- op-plugin ``config/op_plugin_functions.yaml``: signatures; ``docs/zh/custom_APIs/torch_npu/
  torch_npu-npu_kv_rmsnorm_rope_cache.md``: formula, cache modes and limits;
- ops-transformer ``posembedding/kv_rms_norm_rope_cache/docs/aclnnKvRmsNormRopeCacheV2.md``: argument v, index
  -1 and quantization; ``posembedding/qkv_rms_norm_rope_cache/docs/aclnnQkvRmsNormRopeCache.md``: the other
  function, which has no page in op-plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_rope.call_tensors import CallTensors, given
from npu_rope.errors import BrokenRule, bad_type, bad_value, renamed
from npu_rope.executors import qkv_norm_rope_cache as executors
from npu_rope.executors import rules
from npu_rope.executors.tensors import spec_of
from npu_rope.ops import calls, gradients
from npu_rope.ops.qkv_norm_rope_cache import qkv_norm_rope_cache
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import OTHERS, QkvAttributes, qkv_tensors

COLUMN_BYTES = 32  # a column of the layout FRACTAL_NZ
UNROTATED = RopeParams(2, "neox")  # with positions 0


@dataclass(frozen=True)
class _CacheMode:
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
    "Norm": _CacheMode(paged=False),
    "PA": _CacheMode(),
    "PA_BNSD": _CacheMode(),
    "PA_NZ": _CacheMode(nz=True),
    "PA_BLK_BNSD": _CacheMode(by_block=True),
    "PA_BLK_NZ": _CacheMode(by_block=True, nz=True),
}


def npu_kv_rmsnorm_rope_cache(
    kv: Any,
    gamma: Any,
    cos: Any,
    sin: Any,
    index: Any,
    k_cache: Any,
    ckv_cache: Any,
    *,
    k_rope_scale: Any = None,
    c_kv_scale: Any = None,
    k_rope_offset: Any = None,
    c_kv_offset: Any = None,
    v: Any = None,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Normalize a part of each token, rotate another part, and store both into caches, as DeepSeek's latent
    attention does. A rotated part is reordered first: its even dimensions, then its odd ones; then its two
    halves rotate.

    Args:
        kv: ``[B,N,S,Dv+Dk]``: Dv dimensions to normalize, then Dk to rotate. With v ``[B,N,S,Dk]``: all are
            normalized, then the first W rotate.
        gamma: ``[Dv]``, with v ``[Dk]``; kv's dtype or float32.
        cos, sin: ``[B or 1, N or 1, S or 1, W]``, W even; both of kv's dtype or both float32. Without v, W is
            Dk.
        index: int64 or int32; -1 leaves a token or a block of tokens out. No two tokens have the same row.
            ``Norm``: ``[B,S]``, rows of the token's batch. ``PA``, ``PA_BNSD``, ``PA_NZ``: ``[B*S]``, rows of
            all blocks. ``PA_BLK_BNSD``, ``PA_BLK_NZ``: ``[B*ceil(S/block_size)]``: the block that has this
            row takes the next block_size tokens of a sequence.
        k_cache, ckv_cache: for Dk and for Dv dimensions D, written in place. ``Norm``: ``[B,N,rows,D]``.
            Otherwise ``[blocks, block_size, N, D]``; in the modes NZ the elements of a block are in the order
            ``[N, D/w, block_size, w]``, w elements being 32 bytes. kv's dtype, float32, float16, bfloat16 or
            int8. Each shares no memory with another argument.
        k_rope_scale, c_kv_scale: factors of an int8 cache, ``[D]``, ``[N,D]`` or ``[1]``, float32. The cache
            gets ``y * factor + offset``, rounded half to even and limited to [-128, 127].
        k_rope_offset, c_kv_offset: float32, of the shapes of the factors, or None.
        v: ``[B,N,S,Dv]`` of kv's dtype: stored into ckv_cache as it is. None: see kv.
        epsilon: added to the mean square.
        cache_mode: a name of ``CACHE_MODES``.
        is_output_kv: return the parts before they are quantized.

    Returns:
        k_cache and ckv_cache themselves; with is_output_kv the parts ``[B,N,S,Dk]`` and ``[B,N,S,Dv]`` in
        kv's dtype, else None twice (torch_npu returns tensors without values).

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.

    >>> import torch
    >>> kv = torch.tensor([3.0, 3.0, 1.0, 2.0]).view(1, 1, 1, 4)  # two to normalize, two to rotate
    >>> cos, sin = torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2)  # a quarter of a turn
    >>> caches, index = (torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)), torch.tensor([[1]])
    >>> k, ckv, *_ = npu_kv_rmsnorm_rope_cache(kv, torch.ones(2), cos, sin, index, *caches, epsilon=0.0)
    >>> k.tolist(), ckv.tolist()
    ([[[[0.0, 0.0], [-2.0, 1.0]]]], [[[[0.0, 0.0], [1.0, 1.0]]]])
    """
    op = "npu_kv_rmsnorm_rope_cache"
    if cache_mode not in CACHE_MODES:
        raise bad_value(op, "cache_mode", f"be one of {', '.join(CACHE_MODES)}", repr(cache_mode))
    mode = CACHE_MODES[cache_mode]
    inputs = {"kv": kv, "gamma": gamma, "cos": cos, "sin": sin, "index": index, "v": v}
    inputs |= {"k_rope_scale": k_rope_scale, "k_rope_offset": k_rope_offset}
    inputs |= {"c_kv_scale": c_kv_scale, "c_kv_offset": c_kv_offset}
    _check_tensors(op, inputs, {"k_cache": k_cache, "ckv_cache": ckv_cache})
    _check_kv(op, kv, gamma, cos, sin, v)
    normalized = gamma.shape[0]
    k, ckv = (kv[..., normalized:], kv[..., :normalized]) if v is None else (kv, v)
    targets = [
        _kv_target(op, mode, "k_cache", k_cache, k, ("k_rope", k_rope_scale, k_rope_offset)),
        _kv_target(op, mode, "ckv_cache", ckv_cache, ckv, ("c_kv", c_kv_scale, c_kv_offset)),
    ]
    slots = _slots(op, mode, index, k, targets[0].rows)
    parts = [_by_token(x) for x in (k, ckv)]
    names = _KV_NAMES if v is None else {**_KV_NAMES, "v": "v"}
    _check_stores(op, names, parts, targets, slots)
    width = cos.shape[-1]
    rotation: dict[str, Any] = {"params": RopeParams(width, "neox"), "output": is_output_kv}
    rotated, y = [], None
    if v is None:
        unrotated = {"positions": torch.zeros_like(slots), "k_scale": gamma, "epsilon": epsilon}
        ckv_only = [parts[1]], [targets[1]], slots, UNROTATED
        y = _named(op, _CKV_NAMES, _store, *ckv_only, output=is_output_kv, **unrotated)
        parts, targets = [_halves_first(parts[0], width)], targets[:1]
    else:
        rotation |= {"k_scale": _halves_first(gamma, width), "epsilon": epsilon}
        parts[0], y = _halves_first(parts[0], width), v.clone() if is_output_kv else None
    batches, heads, tokens = kv.shape[:3]
    together = heads if cos.shape[1] == 1 else 1  # the heads that have the same rows of the tables
    for first in range(0, heads, together):
        some = slice(first, first + together)
        rows = {
            n: t[:, first].expand(batches, tokens, width).flatten(0, 1)
            for n, t in (("cos", cos), ("sin", sin))
        }
        xs, places = [x[:, some] for x in parts], [target.heads(some) for target in targets]
        rotated.append(_named(op, names, _store, xs, places, slots, **rotation, **rows))
    if not is_output_kv:
        return k_cache, ckv_cache, None, None
    k_embed = torch.cat(rotated, dim=1) if len(rotated) > 1 else rotated[0]
    by_batch = [k_embed, y] if v is None else [k_embed]
    results = [x.unflatten(0, (batches, tokens)).transpose(1, 2).contiguous() for x in by_batch]
    return k_cache, ckv_cache, results[0], results[1] if v is None else y


def npu_qkv_rms_norm_rope_cache(
    qkv: Any,
    q_gamma: Any,
    k_gamma: Any,
    cos: Any,
    sin: Any,
    index: Any,
    q_out: Any,
    k_cache: Any,
    v_cache: Any,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: Any = None,
    v_scale: Any = None,
    k_offset: Any = None,
    v_offset: Any = None,
    epsilon: float = 1e-6,
    cache_mode: str = "PA_NZ",
    is_output_qkv: bool = False,
) -> tuple[Any, Any, Any]:
    """Split a fused projection, normalize and rotate each head of queries and keys, and store keys and values
    into caches.

    Args:
        qkv: ``[B*S, (Nq+Nk+Nv)*D]``.
        q_gamma, k_gamma: ``[D]``, of qkv's dtype or float32.
        cos, sin: ``[B*S, W]``, W even: the first W dimensions of a head rotate, in two halves; both of qkv's
            dtype or both float32.
        index: ``[B*S]``, int64 or int32: rows of all blocks; -1 leaves a token out. No two tokens have the
            same row.
        q_out: ``[B*S, Nq*D]`` of qkv's dtype: written.
        k_cache, v_cache: ``[blocks, N*D/w, block_size, w]`` for N = Nk and Nv, w elements being 32 bytes;
            contiguous; written in place. qkv's dtype, float32, float16, bfloat16 or int8. Caches and q_out
            share no memory with another argument.
        qkv_size: ``[B, S, Nq+Nk+Nv, D]``.
        head_nums: ``[Nq, Nk, Nv]``.
        k_scale, v_scale: divisors of an int8 cache, ``[N,D]``, ``[D]`` or ``[1]``, float32, not 0. The cache
            gets ``y / divisor + offset``, rounded half to even and limited to [-128, 127].
        k_offset, v_offset: float32, of the shapes of the divisors, or None.
        epsilon: added to the mean square.
        cache_mode: ``"PA_NZ"``, the only one that CANN documents.
        is_output_qkv: return the parts before they are quantized.

    Returns:
        With is_output_qkv q, k and v, ``[B*S, N*D]`` of qkv's dtype, else None three times, as in torch_npu.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
    """
    op = "npu_qkv_rms_norm_rope_cache"
    if cache_mode != "PA_NZ":
        raise bad_value(op, "cache_mode", "be PA_NZ", repr(cache_mode))
    inputs = {"qkv": qkv, "q_gamma": q_gamma, "k_gamma": k_gamma, "cos": cos, "sin": sin, "index": index}
    inputs |= {"k_scale": k_scale, "k_offset": k_offset, "v_scale": v_scale, "v_offset": v_offset}
    _check_tensors(op, inputs, {"q_out": q_out, "k_cache": k_cache, "v_cache": v_cache})
    sizes = _check_qkv(op, qkv, cos, sin, index, q_out, qkv_size, head_nums)
    size = sizes[-1]
    for name, gamma in (("q_gamma", q_gamma), ("k_gamma", k_gamma)):
        if tuple(gamma.shape) != (size,):
            raise bad_value(op, name, f"have shape [D] = [{size}]", list(gamma.shape))
        _check_factor(op, name, gamma, qkv)
    q, k, v = (x.unflatten(1, (-1, size)) for x in qkv.split([n * size for n in sizes[:3]], dim=1))
    targets = [
        _nz_target(op, k_cache, k.shape[1], size, "k", k_scale, k_offset),
        _nz_target(op, v_cache, v.shape[1], size, "v", v_scale, v_offset),
    ]
    norm = {"cos": cos, "sin": sin, "q_scale": q_gamma, "k_scale": k_gamma}
    params, out = RopeParams(cos.shape[1], "neox"), q_out.unflatten(1, (-1, size))
    _check_stores(op, _QKV_NAMES, [k, v], targets, index, q, out)
    heads = [q, k, v], targets, index, params
    _named(op, _QKV_NAMES, _store_nz, *heads, out=out, epsilon=epsilon, **norm)
    if not is_output_qkv:
        return None, None, None
    only_k = {"cos": cos, "sin": sin, "q_scale": k_gamma, "epsilon": epsilon}
    keys = k, k[:, :0], None, None, params
    rotated, _, _ = _named(op, _QKV_NAMES, qkv_norm_rope_cache, *keys, **only_k)
    return q_out.clone(), rotated.flatten(1), v.flatten(1).clone()


# ---- caches ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Target:
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

    def heads(self, some: slice) -> _Target:
        """Return the part of some heads."""
        columns = self.columns or 1
        rows = slice(some.start * columns, some.stop * columns)
        scale, offset = (None if t is None else t[rows] for t in (self.scale, self.offset))
        return _Target(self.rows[:, :, rows], scale, offset, self.columns)

    def as_stored(self, x: Any) -> Any:
        """Return heads ``[T,N,D]`` as ``[T, heads, width]``."""
        return x.flatten(1).unflatten(1, self.rows.shape[2:]) if self.columns else x

    def named(self, name: str) -> dict[str, Any]:
        """Return the arguments of qkv_norm_rope_cache for this cache of k or v."""
        quantization = {f"{name}_quant_scale": self.scale, f"{name}_quant_offset": self.offset}
        return {f"{name}_cache": self.rows, **quantization}


def _kv_target(
    op: str, mode: _CacheMode, name: str, cache: Any, x: Any, quantization: tuple[str, Any, Any]
) -> _Target:
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
        return _Target(cache.transpose(1, 2) if not mode.paged else cache, scale, offset, 0)
    blocks, block_size = cache.shape[:2]
    width = _column(op, name, cache, size)
    if not cache.is_contiguous():
        raise bad_value(op, name, "be contiguous in the modes NZ", f"strides {list(cache.stride())}")
    columns = cache.view(blocks, heads * size // width, block_size, width).transpose(1, 2)
    return _in_columns(columns, scale, offset, size // width)


def _nz_target(op: str, cache: Any, heads: int, size: int, name: str, scale: Any, offset: Any) -> _Target:
    """Return the target for a cache ``[blocks, heads*size/w, block_size, w]``."""
    width = _column(op, f"{name}_cache", cache, size)
    count = heads * size // width
    if cache.dim() != 4 or (cache.shape[1], cache.shape[3]) != (count, width) or cache.shape[2] == 0:
        raise bad_value(
            op, f"{name}_cache", f"have shape [blocks, {count}, block_size, {width}]", list(cache.shape)
        )
    scale, offset = (
        _factors(op, f"{name}_{n}", t, heads, size) for n, t in (("scale", scale), ("offset", offset))
    )
    return _in_columns(cache.transpose(1, 2), None if scale is None else 1 / scale, offset, size // width)


def _column(op: str, name: str, cache: Any, size: int) -> int:
    """Return the number of elements of a column."""
    width = COLUMN_BYTES // int(cache.element_size())
    if size % width:
        raise bad_value(
            op, name, f"have heads of a multiple of {width} elements of {str(cache.dtype)[6:]}", size
        )
    return width


def _in_columns(rows: Any, scale: Any, offset: Any, columns: int) -> _Target:
    scale, offset = (None if t is None else t.reshape(rows.shape[2:]) for t in (scale, offset))
    return _Target(rows, scale, offset, columns)


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


# ---- rows --------------------------------------------------------------------------------------------


def _slots(op: str, mode: _CacheMode, index: Any, x: Any, rows: Any) -> Any:
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


# ---- the calls ---------------------------------------------------------------------------------------


def _store(
    xs: Sequence[Any],
    targets: Sequence[_Target],
    slots: Any,
    params: RopeParams,
    *,
    output: bool,
    **named: Any,
) -> Any:
    """Normalize and rotate k, and store it, and v if xs has it. With ``output`` return k's result in its
    dtype."""
    k = xs[0]
    q = k if output else k[:, :0]
    if output:
        named = {**named, "q_scale": named.get("k_scale")}
    return (_store_nz if targets[0].columns else _store_rows)([q, *xs], targets, slots, params, **named)


def _store_rows(
    xs: Sequence[Any], targets: Sequence[_Target], slots: Any, params: RopeParams, **named: Any
) -> Any:
    q, k, v = (*xs, None)[:3]
    positions = named.pop("positions", None)
    for name, target in zip("kv", targets, strict=False):
        named |= target.named(name)
    return qkv_norm_rope_cache(q, k, v, positions, params, slots=slots, **named)[0]


def _store_nz(
    xs: Sequence[Any], targets: Sequence[_Target], slots: Any, params: RopeParams, **named: Any
) -> Any:
    """As :func:`_store_rows`. A rotation needs whole heads, and the caches have columns: the results go into
    float32 rows, then each column is stored."""
    wide = torch.promote_types(xs[1].dtype, torch.float32)
    rows = [x.new_empty(x.shape, dtype=wide) for x in xs[1:]]
    tokens = torch.arange(len(rows[0]), device=rows[0].device)
    q = _store_rows(xs, [_Target(x[:, None], None, None, 0) for x in rows], tokens, params, **named)
    nothing = rows[0].new_empty((len(tokens), 0, 2))
    for x, target in zip(rows, targets, strict=True):
        count = target.rows.shape[0] * target.rows.shape[1]
        positions, cache = torch.zeros_like(tokens), nothing.new_empty((count, 0, 2))
        values = target.as_stored(x), target.named("v")
        qkv_norm_rope_cache(
            nothing, nothing, values[0], positions, UNROTATED, slots=slots, k_cache=cache, **values[1]
        )
    return q


def _by_token(x: Any) -> Any:
    """Return ``[B,N,S,D]`` as ``[B*S,N,D]``."""
    return x.transpose(1, 2).flatten(0, 1)


def _halves_first(x: Any, width: int) -> Any:
    """Return x with the even ones of the first ``width`` of its last dimension, then the odd ones, then the
    others."""
    halves = x[..., :width].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return halves if width == x.shape[-1] else torch.cat((halves, x[..., width:]), dim=-1)


# ---- rules -------------------------------------------------------------------------------------------

# The arguments of qkv_norm_rope_cache by the names that the caller knows.
_KV_NAMES = {
    "q": "kv",
    "k": "kv",
    "v": "kv",
    "q_scale": "gamma",
    "k_scale": "gamma",
    "slots": "index",
    "v_cache": "ckv_cache",
    "k_quant_scale": "k_rope_scale",
    "k_quant_offset": "k_rope_offset",
    "v_quant_scale": "c_kv_scale",
    "v_quant_offset": "c_kv_offset",
}
# In the launch that stores the normalized part as keys.
_CKV_NAMES = {
    **_KV_NAMES,
    "k_cache": "ckv_cache",
    "k_quant_scale": "c_kv_scale",
    "k_quant_offset": "c_kv_offset",
}
_QKV_NAMES = {
    "q": "qkv",
    "k": "qkv",
    "v": "qkv",
    "q_scale": "q_gamma",
    "k_scale": "k_gamma",
    "slots": "index",
    "k_quant_scale": "k_scale",
    "k_quant_offset": "k_offset",
    "v_quant_scale": "v_scale",
    "v_quant_offset": "v_offset",
}


def _named(op: str, names: Mapping[str, str], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on qkv_norm_rope_cache. Its errors have the caller's names."""
    try:
        return call(*args, **kwargs)
    except BrokenRule as error:
        raise renamed(error, op, names) from None


def _check_tensors(op: str, inputs: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    """Check what all arguments have in common, before the first launch: they are tensors on one device, none
    needs a gradient, and those that are written share no memory with another one.

    Args:
        inputs: the tensors that are read; None: not given. The first one is given.
        written: the caches and outputs.
    """
    read = given(**inputs)
    tensors = {**read, **written}
    calls.require_tensors(op, **tensors)
    calls.check_devices(CallTensors(op, read, outs=written))
    gradients.refuse_tangents(op, tensors)
    for name, tensor in tensors.items():
        if torch.is_grad_enabled() and tensor.requires_grad:
            remedy = "Call it under torch.no_grad(), or detach the tensor: this function has no gradient."
            raise bad_value(op, name, "not need a gradient", "one that does", remedy=remedy)
    if any(calls.known_of(tensor) == "layout" for tensor in tensors.values()):
        return
    others = {name: np.asarray(_Memory(tensor)) for name, tensor in tensors.items()}
    for name in reversed(list(written)):
        memory = others.pop(name)
        for other_name, other in others.items():
            if _may_share_memory(memory, other, max_work=_OVERLAP_WORK):
                raise bad_value(op, name, f"share no memory with {other_name}", "overlapping memory")


# Views of one buffer take NumPy less. Beyond it, they count as views that share memory.
_OVERLAP_WORK = 10_000
_may_share_memory: Any = np.may_share_memory  # NumPy's type stubs have no max_work above 0


class _Memory:
    """The addresses of a tensor for NumPy, which compares them and does not read them: they may be those of
    an NPU."""

    def __init__(self, tensor: Any) -> None:
        size = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": tuple(tensor.shape),
            "strides": tuple(n * size for n in tensor.stride()),
            "data": (tensor.data_ptr(), True),
        }


def _check_stores(
    op: str,
    names: Mapping[str, str],
    xs: Sequence[Any],
    targets: Sequence[_Target],
    slots: Any,
    q: Any = None,
    q_out: Any = None,
) -> None:
    """Check the rules of both caches in one call, so that nothing is written if either breaks one or if the
    chip does not support it. Rules of values are checked for CPU tensors only, and compiled calls not at all.
    The calls that follow check all rules again.

    Args:
        names: the caller's names of qkv_norm_rope_cache's arguments.
        xs: the values to store, ``[T,N,D]``.
        q, q_out: ``[T,N,D]`` and where its result is written, or None.
    """
    if torch.compiler.is_compiling():
        return
    k, v = (target.as_stored(x) for x, target in zip(xs, targets, strict=True))
    known = calls.known_of(k)
    no_heads = k[:, :0], k.new_empty((len(k), 0, k.shape[2]))
    with_q = no_heads if q is None else [x.flatten(1).unflatten(1, (-1, k.shape[2])) for x in (q, q_out)]
    # A launch that fills positions would be of no use where values are not read.
    positions = torch.zeros_like(slots) if known == "values" else torch.empty_like(slots)
    others: dict[str, Any] = {**dict.fromkeys(OTHERS), "slots": slots, "positions": positions}
    outs = {"q_out": with_q[1]}
    for name, target in zip("kv", targets, strict=True):
        arguments = target.named(name)
        outs[f"{name}_cache"] = arguments.pop(f"{name}_cache")
        others |= arguments
    call = qkv_tensors({"q": with_q[0], "k": k, "v": v}, others, outs)
    heads = qkv_tensors({"q": xs[0], "k": xs[0][:, :0], "v": xs[1]}, {"positions": positions}, {})
    chip, attributes = calls.chip_of(k), QkvAttributes(UNROTATED)
    try:
        for each in (call, heads):
            if known == "layout":
                rules.check_layout(each.map(spec_of), attributes.checked, chip)
            else:
                executors.check(each, attributes, chip, known)
    except BrokenRule as error:
        raise renamed(error, op, names) from None


def _check_kv(op: str, kv: Any, gamma: Any, cos: Any, sin: Any, v: Any) -> None:
    if kv.dim() != 4:
        raise bad_value(op, "kv", "have shape [B,N,S,D]", list(kv.shape))
    if gamma.dim() != 1:
        raise bad_value(op, "gamma", "have one dimension", list(gamma.shape))
    batches, heads, tokens, size = kv.shape
    normalized = gamma.shape[0]
    wanted = ((1, batches), (1, heads), (1, tokens))
    if cos.dim() != 4 or any(n not in allowed for n, allowed in zip(cos.shape, wanted, strict=False)):
        rule = f"have shape [{batches} or 1, {heads} or 1, {tokens} or 1, W]"
        raise bad_value(op, "cos", rule, list(cos.shape))
    width = cos.shape[3]
    if width < 2 or width % 2:
        raise bad_value(op, "cos", "have an even number of at least two entries in a row", width)
    if v is None:
        if normalized < 2 or normalized + width != size:
            rule = f"have {normalized} + {width} elements in a row, those of gamma and of cos"
            raise bad_value(op, "kv", rule, size)
    else:
        if v.dim() != 4 or v.shape[:3] != kv.shape[:3]:
            raise bad_value(op, "v", f"have shape [{batches}, {heads}, {tokens}, Dv]", list(v.shape))
        if normalized != size or width > size:
            rule = f"have gamma's {normalized} elements in a row and at least cos's {width}, where v is given"
            raise bad_value(op, "kv", rule, size)
    for name, tensor in (("gamma", gamma), ("cos", cos)):
        _check_factor(op, name, tensor, kv)
    _check_sin(op, cos, sin)
    if v is not None and v.dtype != kv.dtype:
        raise bad_type(op, "v", f"have kv's dtype {str(kv.dtype)[6:]}", str(v.dtype)[6:])


def _check_sin(op: str, cos: Any, sin: Any) -> None:
    if sin.shape != cos.shape:
        raise bad_value(op, "sin", f"have cos's shape {list(cos.shape)}", list(sin.shape))
    if sin.dtype != cos.dtype:
        raise bad_type(op, "sin", f"have cos's dtype {str(cos.dtype)[6:]}", str(sin.dtype)[6:])


def _check_factor(op: str, name: str, factor: Any, x: Any) -> None:
    if factor.dtype not in (x.dtype, torch.float32):
        rule = " or ".join(dict.fromkeys((str(x.dtype)[6:], "float32")))
        raise bad_type(op, name, f"be {rule}", str(factor.dtype)[6:])


def _check_qkv(
    op: str,
    qkv: Any,
    cos: Any,
    sin: Any,
    index: Any,
    q_out: Any,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
) -> tuple[int, int, int, int]:
    """Check the shapes. Return Nq, Nk, Nv and D."""
    for name, numbers, count in (("qkv_size", qkv_size, 4), ("head_nums", head_nums, 3)):
        if len(numbers) != count or min(numbers) < 1:
            raise bad_value(op, name, f"be {count} numbers of at least 1", list(numbers))
    batches, tokens, heads, size = qkv_size
    if sum(head_nums) != heads:
        raise bad_value(op, "head_nums", f"add up to the {heads} heads of qkv_size", list(head_nums))
    rows = batches * tokens
    if tuple(qkv.shape) != (rows, heads * size):
        raise bad_value(op, "qkv", f"have shape [{rows}, {heads * size}]", list(qkv.shape))
    if cos.dim() != 2 or cos.shape[0] != rows or cos.shape[1] % 2 or not 2 <= cos.shape[1] <= size:
        raise bad_value(op, "cos", f"have shape [{rows}, W] with an even W up to {size}", list(cos.shape))
    _check_factor(op, "cos", cos, qkv)
    _check_sin(op, cos, sin)
    if tuple(index.shape) != (rows,):
        raise bad_value(op, "index", f"have shape [{rows}]", list(index.shape))
    if tuple(q_out.shape) != (rows, head_nums[0] * size):
        raise bad_value(op, "q_out", f"have shape [{rows}, {head_nums[0] * size}]", list(q_out.shape))
    return head_nums[0], head_nums[1], head_nums[2], size
