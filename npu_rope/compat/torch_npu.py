"""Functions with the names, argument orders and results of torch_npu's rotary functions, RMS norms and stores
into KV caches.

A port changes one import:

    import npu_rope.compat.torch_npu as torch_npu

    query = torch_npu.npu_rotary_mul(query, cos, sin)

Unlike torch_npu's, the functions support

- any even head size, any number of heads, and every layout in every mode,
- gradients,
- float32 tables with 16-bit tensors, and cos and sin beyond [-1, 1],
- norms of any number of dimensions.

Formulas: the documentation of torch_npu and of aclnnRotaryPositionEmbedding, aclnnApplyRotaryPosEmbV2,
aclnnInterleaveRope, aclnnRopeWithSinCosCache, aclnnRmsNorm, aclnnGemmaRmsNorm and aclnnAddRmsNorm; op-plugin
``op_plugin/ops/atb/RopeAtb.cpp`` for _npu_rotary_embedding, which has no page; for the stores those in
:mod:`.torch_npu_caches`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from npu_rope.compat.arguments import require_one_of
from npu_rope.compat.torch_npu_caches import npu_kv_rmsnorm_rope_cache, npu_qkv_rms_norm_rope_cache
from npu_rope.errors import BrokenRule, bad_type, bad_value, renamed
from npu_rope.ops import calls
from npu_rope.ops.add_rms_norm import add_rms_norm
from npu_rope.ops.rms_norm import rms_norm
from npu_rope.ops.rotary_mul import rotary_mul, rotary_mul_, rotary_mul_qk, rotary_mul_qk_
from npu_rope.optional_torch import torch
from npu_rope.values import flag, integer

ROTARY_MODES = ("half", "interleave", "quarter")


def npu_rotary_mul(input: Any, r1: Any, r2: Any, rotary_mode: str = "half", rotate: Any = None) -> Any:
    """Return ``input * r1 + rotate(input) * r2``.

    Args:
        input: ``[..., D]`` of three or four dimensions (BSND, BNSD, SBND, TND), D even; floating point.
        r1, r2: cos and sin, input's shape with 1 where they are broadcast (``[1,S,1,D]``, ``[1,1,S,D]``,
            ``[B,S,1,D]``, ``[T,1,D]``, ...); input's dtype or float32.
        rotary_mode: ``"half"``: rotate(x) is ``(-x2, x1)`` of the two halves; ``"interleave"``: of
            neighbours; ``"quarter"``: ``(-x2, x1, -x4, x3)`` of the four quarters.
        rotate: None, or the mode's rotation matrix ``[D,D]``, with which ``rotate(x) = x @ rotate``, as in
            torch_npu's examples. It does not change the result.

    Returns:
        A new tensor of input's shape and dtype. Gradients flow to input, r1 and r2.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "npu_rotary_mul"
    _check_mode(op, rotary_mode)
    calls.require_tensors(op, input=input, r1=r1, r2=r2)
    if rotate is not None:
        _check_rotate(op, rotate, input.shape[-1], rotary_mode)
    x, cos, sin, back = _as_tokens(op, "input", input, r1, r2)
    return back(_rotated(x, cos, sin, rotary_mode)).contiguous()


def npu_apply_rotary_pos_emb(
    query: Any, key: Any, cos: Any, sin: Any, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Any, Any]:
    """Rotate queries and keys in place, as torch_npu does.

    Args:
        query, key: tensors of the layout, last stride 1; they are overwritten.
        cos, sin: ``[B,S,1,W]`` or ``[1,S,1,W]`` (BSND), transposed for SBND and BNSD, ``[T,1,W]`` (TND);
            W is the number of dimensions of a head that rotate.
        layout: ``"BSND"``, ``"SBND"``, ``"BNSD"`` or ``"TND"``.
        rotary_mode: as in :func:`npu_rotary_mul`.

    Returns:
        query and key themselves.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
    """
    op = "npu_apply_rotary_pos_emb"
    _check_mode(op, rotary_mode)
    calls.require_tensors(op, query=query, key=key, cos=cos, sin=sin)
    layouts = {"BSND": (0, 1, 2, 3), "SBND": (1, 0, 2, 3), "BNSD": (0, 2, 1, 3), "TND": (0, 1, 2)}
    require_one_of(op, "layout", layout, layouts)
    order = layouts[layout]
    for name, tensor in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        if tensor.dim() != len(order):
            raise bad_value(op, name, f"have {len(order)} dimensions in layout {layout}", tensor.dim())
    q, k, c, s = (tensor.permute(order) for tensor in (query, key, cos, sin))
    for part in _rotated_parts(c.shape[-1], rotary_mode):
        rotary_mul_qk(q, k, c[..., part.tables], s[..., part.tables], **part.attributes, out=(q, k))
    return query, key


def npu_interleave_rope(x: Any, cos: Any, sin: Any) -> Any:
    """Reorder each head, its even dimensions first, then its odd ones, and rotate the two halves, as DeepSeek
    does.

    Args:
        x: ``[B,N,S,D]``, D even.
        cos, sin: ``[B or 1, 1, S or 1, D]``.

    Returns:
        A new tensor of x's shape and dtype.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "npu_interleave_rope"
    calls.require_tensors(op, x=x, cos=cos, sin=sin)
    if x.dim() != 4 or x.shape[-1] % 2:
        raise bad_value(op, "x", "have shape [B,N,S,D] with an even D", list(x.shape))
    halves = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return npu_rotary_mul(halves, cos, sin)


def npu_mrope(
    positions: Any,
    query: Any,
    key: Any,
    cos_sin_cache: Any,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str = "half",
    cache_mode: str = "default",
) -> tuple[Any, Any]:
    """Rotate queries and keys by rows of a cache, selected by one kind of positions or by several.

    Args:
        positions: ``[T]``, or with sections ``[M,T]``, int32 or int64: rows of the cache.
        query, key: ``[T, N*head_size]``.
        cos_sin_cache: ``[rows, W]``: cos of W/2 pairs, then sin; W is the number of dimensions of a head that
            rotate.
        head_size: D.
        mrope_section: the number of pairs that each of the M kinds of positions rotates; their sum is W/2.
            None or zeros: there is one kind.
        rotary_mode: ``"half"``, ``"interleave"`` or its synonym ``"interleaved"``.
        cache_mode: how pairs are assigned to the kinds: ``"default"``: consecutive pairs to each kind;
            ``"interleave"``: pair i to kind ``i mod M`` while that kind has pairs left, else to the first.

    Returns:
        New tensors of query's and key's shapes and dtypes.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "npu_mrope"
    calls.require_tensors(op, positions=positions, query=query, key=key, cos_sin_cache=cos_sin_cache)
    rotary_mode = "half" if rotary_mode is None else rotary_mode
    if rotary_mode not in ("half", "interleave", "interleaved"):
        raise bad_value(op, "rotary_mode", "be half or interleave", repr(rotary_mode))
    if cache_mode not in ("default", "interleave"):
        raise bad_value(op, "cache_mode", "be default or interleave", repr(cache_mode))
    head_size = integer("head_size", head_size, op, bits=64)
    if mrope_section is not None and not isinstance(mrope_section, (list, tuple)):
        raise bad_type(op, "mrope_section", "be a list of integers", repr(mrope_section))
    sections = [integer("mrope_section", n, op, bits=64) for n in (mrope_section or ())]
    _check_mrope(op, positions, query, key, cos_sin_cache, head_size, sections)
    width = cos_sin_cache.shape[-1]
    rows = cos_sin_cache[positions.long()]
    cos, sin = rows.chunk(2, dim=-1)
    if any(sections):
        kinds = torch.tensor(_kinds(width // 2, sections, cache_mode), device=rows.device)
        cos, sin = (tensor.gather(0, kinds.expand(1, tensor.shape[1], -1))[0] for tensor in (cos, sin))
    q, k = (tensor.unflatten(-1, (-1, head_size)) for tensor in (query, key))
    attributes: dict[str, Any] = {"rotary_dim": width, "interleaved": rotary_mode != "half"}
    rotated_q, rotated_k = rotary_mul_qk(q, k, cos, sin, **attributes)
    return rotated_q.flatten(-2), rotated_k.flatten(-2)


def _npu_rotary_embedding(
    positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox_style: bool
) -> None:
    """Rotate queries and keys in place by rows of a cache, as ATB does for vllm-ascend.

    Unlike torch_npu's, the function uses the cache of every call (torch_npu uses that of the first call of
    the process), and heads may be wider than the cache.

    Args:
        positions: of T elements, int32 or int64: rows of the cache.
        query, key: ``[T, N*head_size]``, or ``[T, N, head_size]`` with any number of dimensions that have T
            elements in place of T (``[B,S,N,D]``); last stride 1. They are overwritten.
        head_size: D.
        cos_sin_cache: ``[rows, W]``: cos of W/2 pairs, then sin; the first W of a head's dimensions rotate.
            query's dtype or float32.
        is_neox_style: True: pairs are ``(x[i], x[i + W/2])``; False: ``(x[2i], x[2i+1])``.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
    """
    op = "_npu_rotary_embedding"
    calls.require_tensors(op, positions=positions, query=query, key=key, cos_sin_cache=cos_sin_cache)
    size, neox = integer("head_size", head_size, op, bits=64), flag(op, "is_neox_style", is_neox_style)
    rows, width = positions.flatten(), cos_sin_cache.shape[-1]
    _check_cache(op, rows, cos_sin_cache, size)
    heads = []
    for name, x in (("query", query), ("key", key)):
        per_head = x.dim() > 2 and x.shape[-1] == size
        tokens = x.shape[: -2 if per_head else -1]
        if x.dim() < 2 or math.prod(tokens) != len(rows) or x.shape[-1] % size:
            rule = f"have shape [{len(rows)}, N*{size}] or [{len(rows)}, N, {size}]"
            raise bad_value(op, name, rule, list(x.shape))
        by_head = x if per_head else x.unflatten(-1, (-1, size))
        try:
            heads.append(by_head.view(len(rows), *by_head.shape[-2:]))
        except RuntimeError:
            rule = "have tokens that follow each other in memory"
            raise bad_value(op, name, rule, f"strides {list(x.stride())}") from None
    cos, sin = cos_sin_cache[rows.long()].chunk(2, dim=-1)
    try:
        rotary_mul_qk_(heads[0], heads[1], cos, sin, rotary_dim=width, interleaved=not neox)
    except BrokenRule as error:
        names = {"q": "query", "k": "key", "cos": "cos_sin_cache", "sin": "cos_sin_cache"}
        raise renamed(error, op, names) from error.__cause__


# ---- norms ---------------------------------------------------------------------------------------------


def npu_rms_norm(input: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any]:
    """Return ``y = input * rstd * gamma`` and ``rstd = 1 / sqrt(mean(input^2) + epsilon)``.

    Args:
        input: floating point; ``input * rstd`` is rounded to its dtype, then multiplied by gamma.
        gamma: input's last dimensions, over which the mean is taken; input's dtype, or float32.
        epsilon: added to the mean square.

    Returns:
        y, of input's shape and dtype, and rstd, float32, of input's shape with 1 for each of gamma's
        dimensions. Gradients flow from y to input and gamma. rstd has no gradient, as in torch_npu.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    axis = _check_gamma("npu_rms_norm", gamma, "input", input)
    y = rms_norm(input, gamma, axis=axis, epsilon=epsilon, stash_type=_stash_type(input.dtype))
    return y.to(input.dtype), _rstd(input, axis, epsilon)


def npu_gemma_rms_norm(input: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any]:
    """Return ``y = input * rstd * (1 + gamma)`` and rstd, as Gemma does: in float32, rounded once.

    Args:
        input, gamma, epsilon: as in :func:`npu_rms_norm`.

    Returns:
        y and rstd, as npu_rms_norm.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    axis = _check_gamma("npu_gemma_rms_norm", gamma, "input", input)
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    factor = 1 + gamma.to(wide)
    y = rms_norm(input.to(wide), factor, axis=axis, epsilon=epsilon, stash_type=_stash_type(wide))
    return y.to(input.dtype), _rstd(input, axis, epsilon)


def npu_add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any, Any]:
    """Return :func:`npu_rms_norm` of ``x = x1 + x2``, rounded to their dtype, and x.

    Args:
        x1, x2: of one shape and dtype.
        gamma, epsilon: as in :func:`npu_rms_norm`.

    Returns:
        y, rstd and x. Gradients flow from y and x to x1, x2 and gamma.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "npu_add_rms_norm"
    axis = _check_gamma(op, gamma, "x1", x1)
    calls.require_tensors(op, x2=x2)
    if x2.shape != x1.shape or x2.dtype != x1.dtype:
        wanted, got = (f"{list(tensor.shape)} of {str(tensor.dtype)[6:]}" for tensor in (x1, x2))
        raise bad_value(op, "x2", f"be {wanted} like x1", got)
    y, x = add_rms_norm(x1, x2, gamma, axis=axis, epsilon=epsilon, stash_type=_stash_type(x1.dtype))
    return y.to(x1.dtype), _rstd(x, axis, epsilon), x


def _check_gamma(op: str, gamma: Any, name: str, x: Any) -> int:
    """Check gamma. Return the first axis of x that gamma has."""
    calls.require_tensors(op, **{name: x, "gamma": gamma})
    if not 1 <= gamma.dim() <= x.dim() or gamma.shape != x.shape[x.dim() - gamma.dim() :]:
        rule = f"{name}'s last dimensions, of {list(x.shape)},"
        raise bad_value(op, "gamma", f"have {rule}", list(gamma.shape))
    if gamma.dtype not in (x.dtype, torch.float32):
        rule = " or ".join(dict.fromkeys((str(x.dtype)[6:], "float32")))
        raise bad_type(op, "gamma", f"be {rule}", str(gamma.dtype)[6:])
    return -int(gamma.dim())


def _stash_type(dtype: Any) -> int:
    return 11 if dtype == torch.float64 else 1


def _rstd(x: Any, axis: int, epsilon: float) -> Any:
    """Return ``1 / sqrt(mean(x^2) + epsilon)``. vector_norm adds squares in double without copying x, but not
    on an NPU: aclnnLinalgVectorNorm has no double."""
    if x.device.type == "npu":
        mean = x.detach().float().square().mean(tuple(range(axis, 0)), keepdim=True)
        return (mean + epsilon).rsqrt()
    axes, count = tuple(range(axis, 0)), math.prod(x.shape[axis:])
    norm = torch.linalg.vector_norm(x.detach(), dim=axes, keepdim=True, dtype=torch.float64)
    return (norm.square() / count + epsilon).rsqrt().float()


# ---- common parts --------------------------------------------------------------------------------------


def _check_mode(op: str, mode: Any) -> None:
    require_one_of(op, "rotary_mode", mode, ROTARY_MODES)


def _check_rotate(op: str, rotate: Any, D: int, mode: str) -> None:
    calls.require_tensors(op, rotate=rotate)
    if tuple(rotate.shape) != (D, D):
        raise bad_value(op, "rotate", f"have shape [D, D] = [{D}, {D}]", list(rotate.shape))
    if not calls.has_values(rotate):
        return
    one, zero = torch.eye(D, device="cpu"), torch.zeros(1, D, device="cpu")
    expected = npu_rotary_mul(one[None], zero[None], torch.ones_like(zero)[None], mode)[0]
    if not torch.equal(rotate.detach().to("cpu", torch.float32), expected):
        raise bad_value(op, "rotate", f"be mode {mode}'s rotation matrix", "another")


class _RotatedPart:
    """The table entries and the attributes of a part of a head that rotates separately."""

    def __init__(self, first: int, width: int, interleaved: bool) -> None:
        self.tables = slice(first, first + width)
        self.attributes: dict[str, Any] = {"rotary_dim": width, "offset": first, "interleaved": interleaved}


def _rotated_parts(width: int, mode: str) -> list[_RotatedPart]:
    if mode == "quarter":
        return [_RotatedPart(0, width // 2, False), _RotatedPart(width // 2, width // 2, False)]
    return [_RotatedPart(0, width, mode == "interleave")]


def _rotated(x: Any, cos: Any, sin: Any, mode: str) -> Any:
    y = x
    for part in _rotated_parts(cos.shape[-1], mode):
        # The first part makes a new tensor, which the second part may overwrite.
        rotate = rotary_mul if y is x or torch.is_grad_enabled() else rotary_mul_
        y = rotate(y, cos[..., part.tables], sin[..., part.tables], **part.attributes)
    return y


def _as_tokens(op: str, name: str, x: Any, cos: Any, sin: Any) -> tuple[Any, Any, Any, Any]:
    """Return x as ``[B,S,N,D]`` or ``[S,N,D]``, the tables as ``[B or 1,S,1,D]`` or ``[S,1,D]``, and a
    function that restores x's layout. The tables' dimensions of size 1 determine the order of dimensions."""
    rule = f"{name}'s shape {list(x.shape)} with 1 where they are broadcast"
    if x.dim() not in (3, 4):
        raise bad_value(op, name, "have three or four dimensions", list(x.shape))
    for table_name, tensor in (("r1", cos), ("r2", sin)):
        sizes, x_sizes = tuple(tensor.shape), tuple(x.shape)
        fits = all(size in (1, x_size) for size, x_size in zip(sizes, x_sizes, strict=False))
        if len(sizes) != len(x_sizes) or sizes[-1] != x_sizes[-1] or not fits:
            raise bad_value(op, table_name, f"have {rule}", list(sizes))
    if sin.shape != cos.shape:
        raise bad_value(op, "r2", f"have r1's shape {list(cos.shape)}", list(sin.shape))
    row_dims = [d for d in range(x.dim() - 1) if cos.shape[d] != 1]
    broadcast_dims = [d for d in range(x.dim() - 1) if d not in row_dims]
    if not row_dims:  # all heads share one row of the tables
        flat = x.reshape(1, -1, x.shape[-1])
        return flat, cos.reshape(1, -1), sin.reshape(1, -1), lambda y: y.reshape(x.shape)
    if not broadcast_dims:  # each head has its own row
        flat = x.reshape(-1, 1, x.shape[-1])
        tables = (tensor.reshape(-1, x.shape[-1]) for tensor in (cos, sin))
        return flat, *tables, lambda y: y.reshape(x.shape)
    # The tokens are the last dimension in which the tables have rows. The heads are the last dimension in
    # which the tables are broadcast. Any other dimension is the batch.
    tokens, heads = row_dims[-1], broadcast_dims[-1]
    batch = [d for d in range(x.dim() - 1) if d not in (tokens, heads)]
    order = (*batch, tokens, heads, x.dim() - 1)
    back = [order.index(d) for d in range(x.dim())]
    return *(tensor.permute(order) for tensor in (x, cos, sin)), lambda y: y.permute(back)


def _kinds(pairs: int, sections: Sequence[int], cache_mode: str) -> list[list[list[int]]]:
    """Return the kind of position that rotates each pair, ``[1][1][pairs]``."""
    if cache_mode == "default":
        return [[[kind for kind, count in enumerate(sections) for _ in range(count)]]]
    kinds = len(sections)
    return [[[i % kinds if i // kinds < sections[i % kinds] else 0 for i in range(pairs)]]]


def _check_mrope(
    op: str, positions: Any, query: Any, key: Any, cache: Any, head_size: Any, sections: Sequence[int]
) -> None:
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != 2 or head_size <= 0 or tensor.shape[1] % head_size:
            raise bad_value(op, name, f"have shape [T, N*{head_size}]", list(tensor.shape))
    _check_cache(op, positions, cache, head_size)
    tokens, kinds = query.shape[0], len(sections) if any(sections) else 0
    wanted = (kinds, tokens) if kinds else (tokens,)
    if tuple(positions.shape) != wanted:
        raise bad_value(op, "positions", f"have shape {list(wanted)}", list(positions.shape))
    if kinds and (min(sections) < 0 or sum(sections) != cache.shape[1] // 2):
        rule = f"numbers >= 0 that add up to W/2 = {cache.shape[1] // 2}"
        raise bad_value(op, "mrope_section", f"be {rule}", list(sections))


def _check_cache(op: str, positions: Any, cache: Any, head_size: int) -> None:
    """Check a cache of tables, and positions, which are its rows."""
    if positions.dtype not in (torch.int32, torch.int64):
        raise bad_type(op, "positions", "be int32 or int64", str(positions.dtype)[6:])
    if cache.dim() != 2 or cache.shape[1] % 2 or not 2 <= cache.shape[1] <= head_size:
        rule = f"[rows, W] with an even W up to the head size {head_size}"
        raise bad_value(op, "cos_sin_cache", f"have shape {rule}", list(cache.shape))
    if calls.has_values(positions) and positions.numel():
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= cache.shape[0]:
            wrong = low if low < 0 else high
            raise bad_value(op, "positions", f"be rows 0 to {cache.shape[0] - 1} of cos_sin_cache", wrong)


__all__ = [
    "_npu_rotary_embedding",
    "npu_add_rms_norm",
    "npu_apply_rotary_pos_emb",
    "npu_gemma_rms_norm",
    "npu_interleave_rope",
    "npu_kv_rmsnorm_rope_cache",
    "npu_mrope",
    "npu_qkv_rms_norm_rope_cache",
    "npu_rms_norm",
    "npu_rotary_mul",
]
