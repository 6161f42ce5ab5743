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
from typing import Any

from npu_rope.call_tensors import given
from npu_rope.compat.arguments import require_one_of
from npu_rope.compat.torch_npu_cache_layouts import CACHE_MODES, Target, kv_target, nz_target, slots_of
from npu_rope.compat.torch_npu_cache_rules import (
    UNROTATED,
    check_factor,
    check_kv,
    check_qkv,
    check_stores,
    check_tensors,
)
from npu_rope.errors import BrokenRule, bad_value, renamed
from npu_rope.ops.qkv_norm_rope_cache import qkv_norm_rope_cache
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import flag


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
        kv: ``[B,N,S,Dv+Dk]``, N >= 1: Dv dimensions to normalize, then Dk to rotate. With v
            ``[B,N,S,Dk]``: all are normalized, then the first W rotate.
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
    require_one_of(op, "cache_mode", cache_mode, CACHE_MODES)
    mode, is_output_kv = CACHE_MODES[cache_mode], flag(op, "is_output_kv", is_output_kv)
    inputs = {"kv": kv, "gamma": gamma, "cos": cos, "sin": sin, "index": index}
    optional = {"v": v, "k_rope_scale": k_rope_scale, "k_rope_offset": k_rope_offset}
    optional |= {"c_kv_scale": c_kv_scale, "c_kv_offset": c_kv_offset}
    check_tensors(op, {**inputs, **given(**optional)}, {"k_cache": k_cache, "ckv_cache": ckv_cache})
    check_kv(op, kv, gamma, cos, sin, v)
    normalized = gamma.shape[0]
    k, ckv = (kv[..., normalized:], kv[..., :normalized]) if v is None else (kv, v)
    targets = [
        kv_target(op, mode, "k_cache", k_cache, k, ("k_rope", k_rope_scale, k_rope_offset)),
        kv_target(op, mode, "ckv_cache", ckv_cache, ckv, ("c_kv", c_kv_scale, c_kv_offset)),
    ]
    slots = slots_of(op, mode, index, k, targets[0].rows)
    parts = [_by_token(x) for x in (k, ckv)]
    names = _KV_NAMES if v is None else {**_KV_NAMES, "v": "v"}
    check_stores(op, names, parts, targets, slots)
    width = cos.shape[-1]
    places = _row_numbers(slots) if mode.nz else None
    rotation: dict[str, Any] = {"params": RopeParams(width, "neox"), "output": is_output_kv}
    rotated, y = [], None
    if v is None:
        unrotated = {"positions": torch.zeros_like(slots), "k_scale": gamma, "epsilon": epsilon}
        ckv_only = [parts[1]], [targets[1]], slots, places, UNROTATED
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
        xs, caches = [x[:, some] for x in parts], [target.heads(some) for target in targets]
        rotated.append(_named(op, names, _store, xs, caches, slots, places, **rotation, **rows))
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
            gets ``y / divisor + offset``, rounded half to even and limited to [-128, 127]. On an NPU their
            values are not checked.
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
    is_output_qkv = flag(op, "is_output_qkv", is_output_qkv)
    inputs = {"qkv": qkv, "q_gamma": q_gamma, "k_gamma": k_gamma, "cos": cos, "sin": sin, "index": index}
    optional = given(k_scale=k_scale, k_offset=k_offset, v_scale=v_scale, v_offset=v_offset)
    check_tensors(op, {**inputs, **optional}, {"q_out": q_out, "k_cache": k_cache, "v_cache": v_cache})
    sizes = check_qkv(op, qkv, cos, sin, index, q_out, qkv_size, head_nums)
    size = sizes[-1]
    for name, gamma in (("q_gamma", q_gamma), ("k_gamma", k_gamma)):
        if tuple(gamma.shape) != (size,):
            raise bad_value(op, name, f"have shape [D] = [{size}]", list(gamma.shape))
        check_factor(op, name, gamma, qkv)
    q, k, v = (x.unflatten(1, (-1, size)) for x in qkv.split([n * size for n in sizes[:3]], dim=1))
    targets = [
        nz_target(op, k_cache, k.shape[1], size, "k", k_scale, k_offset),
        nz_target(op, v_cache, v.shape[1], size, "v", v_scale, v_offset),
    ]
    norm = {"cos": cos, "sin": sin, "q_scale": q_gamma, "k_scale": k_gamma}
    params, out = RopeParams(cos.shape[1], "neox"), q_out.unflatten(1, (-1, size))
    check_stores(op, _QKV_NAMES, [k, v], targets, index, q, out)
    heads = [q, k, v], targets, index, _row_numbers(index), params
    _named(op, _QKV_NAMES, _store_nz, *heads, out=out, epsilon=epsilon, **norm)
    if not is_output_qkv:
        return None, None, None
    only_k = {"cos": cos, "sin": sin, "q_scale": k_gamma, "epsilon": epsilon}
    keys = k, k[:, :0], None, None, params
    rotated, _, _ = _named(op, _QKV_NAMES, qkv_norm_rope_cache, *keys, **only_k)
    return q_out.clone(), rotated.flatten(1), v.flatten(1).clone()


# ---- the calls ---------------------------------------------------------------------------------------


def _store(
    xs: Sequence[Any],
    targets: Sequence[Target],
    slots: Any,
    places: Any,
    params: RopeParams,
    *,
    output: bool,
    **named: Any,
) -> Any:
    """Normalize and rotate k, and store it, and v if xs has it. With ``output`` return k's result in its
    dtype. ``places`` as in :func:`_store_nz`, or None for other layouts."""
    k = xs[0]
    q = k if output else k[:, :0]
    if output:
        named = {**named, "q_scale": named.get("k_scale")}
    if places is None:
        return _store_rows([q, *xs], targets, slots, params, **named)
    return _store_nz([q, *xs], targets, slots, places, params, **named)


def _store_rows(
    xs: Sequence[Any], targets: Sequence[Target], slots: Any, params: RopeParams, **named: Any
) -> Any:
    q, k, v = (*xs, None)[:3]
    positions = named.pop("positions", None)
    for name, target in zip("kv", targets, strict=False):
        named |= target.named(name)
    return qkv_norm_rope_cache(q, k, v, positions, params, slots=slots, **named)[0]


def _store_nz(
    xs: Sequence[Any], targets: Sequence[Target], slots: Any, places: Any, params: RopeParams, **named: Any
) -> Any:
    """As :func:`_store_rows`. A rotation needs whole heads, and the caches have columns: the results go into
    float32 rows, then each column is stored.

    Args:
        places: the rows' numbers, :func:`_row_numbers` of slots.
    """
    wide = torch.promote_types(xs[1].dtype, torch.float32)
    rows = [x.new_empty(x.shape, dtype=wide) for x in xs[1:]]
    q = _store_rows(xs, [Target(x[:, None], None, None, 0) for x in rows], places, params, **named)
    nothing = rows[0].new_empty((len(places), 0, 2))
    for x, target in zip(rows, targets, strict=True):
        count = target.rows.shape[0] * target.rows.shape[1]
        values, cache = target.as_stored(x), nothing.new_empty((count, 0, 2))
        stored = {"slots": slots, "k_cache": cache, **target.named("v")}
        # Nothing rotates, so the positions have no effect. Zeros would be another launch on an NPU.
        qkv_norm_rope_cache(nothing, nothing, values, places, UNROTATED, **stored)
    return q


def _row_numbers(slots: Any) -> Any:
    """Return the numbers of as many rows as there are slots."""
    return torch.arange(len(slots), device=slots.device)


def _by_token(x: Any) -> Any:
    """Return ``[B,N,S,D]`` as ``[B*S,N,D]``."""
    return x.transpose(1, 2).flatten(0, 1)


def _halves_first(x: Any, width: int) -> Any:
    """Return x with the even ones of the first ``width`` of its last dimension, then the odd ones, then the
    others."""
    halves = x[..., :width].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return halves if width == x.shape[-1] else torch.cat((halves, x[..., width:]), dim=-1)


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
