"""Export to ONNX: translations of npu_rope's operators for ``torch.onnx.export(dynamo=True)``.

The operators of :func:`translations` become standard nodes of opset 23, which any runtime can run:
RMSNormalization, or RotaryEmbedding, whose tables are an initialiser, an input or a small subgraph that
computes them from the positions. Needs ``pip install 'npu-rope[onnx]'``.

    from npu_rope.integrations import onnx_export

    onnx_export.export(model, (x, positions), "model.onnx")

or, with other options,

    torch.onnx.export(
        model, args, "model.onnx", dynamo=True, opset_version=23,
        custom_translation_table=onnx_export.translations(),
    )
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from onnx import numpy_helper
from onnxscript import DOUBLE, FLOAT, INT64, opset23

import npu_rope  # noqa: F401  # defines the operators
from npu_rope.params import RopeParams
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.rope_attributes import RopeMode

op: Any = opset23  # Any, because its annotations declare arrays instead of graph values
OPSET = 23
_FLOAT, _DOUBLE = FLOAT.dtype, DOUBLE.dtype


def export(model: Any, args: Any = (), file: Any = None, **options: Any) -> Any:
    """Call ``torch.onnx.export`` with npu_rope's translations and dynamo, for opset 23 or a higher
    ``opset_version``.

    Args:
        model, args, file: as for torch.onnx.export.
        options: other options of torch.onnx.export; its custom_translation_table overrides npu_rope's
            translations.

    Returns:
        torch's ONNXProgram.

    Raises:
        ValueError: ``opset_version`` is below 23 or ``dynamo`` false.
    """
    opset = options.pop("opset_version", None) or OPSET
    if opset < OPSET:
        raise ValueError(f"[onnx_export] opset_version must be at least {OPSET} but got {opset}.")
    if not options.pop("dynamo", True):
        raise ValueError("[onnx_export] dynamo must be True but got False.")
    table = {**translations(), **(options.pop("custom_translation_table", None) or {})}
    return torch.onnx.export(
        model, args, file, dynamo=True, opset_version=opset, custom_translation_table=table, **options
    )


def translations() -> dict[Any, Callable[..., Any]]:
    """Return the table for ``torch.onnx.export(custom_translation_table=...)``, by operator."""
    ours = torch.ops.npu_rope
    return {
        ours.rope.default: _rope,
        ours.rope_qk.default: _rope_qk,
        ours.rotary_mul.default: _rotary_mul,
        ours.rotary_mul_qk.default: _rotary_mul_qk,
        ours.rotary_embedding.default: _rotary_embedding,
        ours.rms_norm.default: _rms_norm,
        ours.add_rms_norm.default: _add_rms_norm,
    }


# ---- rotation ------------------------------------------------------------------------------------------


def _ints(values: Sequence[int]) -> Any:
    return op.Constant(value_ints=list(values))


def _rank(x: Any) -> int:
    return len(x.shape)


def _static(name: str, size: Any) -> int:
    if isinstance(size, int):
        return size
    raise ValueError(f"[onnx_export] {name} must be a number known at export but got {size}.")


def _slice(x: Any, first: int, last: int) -> Any:
    """Slice the last dimension."""
    return op.Slice(x, _ints([first]), _ints([last]), _ints([-1]))


class _Window(NamedTuple):
    """The lanes of a head that rotate."""

    interleaved: bool
    width: int
    offset: int


def _rotated(x: Any, cos: Any, sin: Any, window: _Window) -> Any:
    """Rotate ``[B,S,N,D]`` or ``[S,N,D]`` by tables ``[B or 1, S, width/2]`` of float32 or double."""
    heads, head = _static("the number of heads", x.shape[-2]), _static("the head size", x.shape[-1])
    return _rotated_as(x, x.dtype, (_rank(x) == 4, heads, head), cos, sin, window)


def _rotated_as(x: Any, dtype: Any, sizes: tuple[bool, int, int], cos: Any, sin: Any, window: _Window) -> Any:
    """Rotate as :func:`_rotated`. A new graph value has no dtype or shape, so they are arguments.

    The rotation is computed in float32, as in npu_rope, and rounded once: 16-bit tables would be inaccurate.
    """
    batched, heads, head = sizes  # whether x has batches, the number of heads, the head size
    interleaved, width, offset = window
    lanes = x if (offset, width) == (0, head) else _slice(x, offset, offset + width)
    flat = op.Reshape(lanes, _ints([0, 0, heads * width] if batched else [1, -1, heads * width]))
    if dtype == _DOUBLE:
        rotated = _by_formula(flat, cos, sin, interleaved, heads, width)
    else:
        wide = flat if dtype == _FLOAT else op.Cast(flat, to=_FLOAT)
        tokens = op.Shape(flat, start=0, end=2)
        shape = op.Concat(tokens, _ints([width // 2]), axis=0)
        rotated = op.RotaryEmbedding(
            wide,
            op.Expand(cos, shape),
            op.Expand(sin, shape),
            interleaved=int(interleaved),
            num_heads=heads,
            rotary_embedding_dim=width,
        )
        rotated = rotated if dtype == _FLOAT else op.Cast(rotated, to=dtype)
    rotated = op.Reshape(rotated, _ints([0, 0, heads, width]) if batched else _ints([-1, heads, width]))
    parts = [_slice(x, 0, offset)] if offset else []
    parts += [rotated] + ([_slice(x, offset + width, head)] if offset + width < head else [])
    return op.Concat(*parts, axis=-1) if len(parts) > 1 else rotated


def _by_formula(x: Any, cos: Any, sin: Any, interleaved: bool, heads: int, width: int) -> Any:
    """Rotate ``[B,S,N*width]`` of double by the formula: RotaryEmbedding does not support double."""
    pair = [width // 2, 2] if interleaved else [2, width // 2]
    pairs = op.Reshape(x, _ints([0, 0, heads, *pair]))
    axis = -1 if interleaved else -2
    first, second = (op.Gather(pairs, op.Constant(value_int=n), axis=axis) for n in (0, 1))
    c, s = op.Unsqueeze(cos, _ints([2])), op.Unsqueeze(sin, _ints([2]))
    y1 = op.Sub(op.Mul(first, c), op.Mul(second, s))
    y2 = op.Add(op.Mul(first, s), op.Mul(second, c))
    both = op.Concat(op.Unsqueeze(y1, _ints([axis])), op.Unsqueeze(y2, _ints([axis])), axis=axis)
    return op.Reshape(both, _ints([0, 0, heads * width]))


def _signed(sin: Any, forward: bool) -> Any:
    return sin if forward else op.Neg(sin)


# ---- rope: tables from positions -----------------------------------------------------------------------


def _params(attributes: Mapping[str, Any]) -> tuple[RopeParams, bool]:
    named = dict(attributes)
    forward, angle = named.pop("forward", True), named.pop("angle", 0)
    mode = named.pop("rope_mode", 0)
    if angle == 2:
        raise ValueError("[onnx_export] angle must be exact (0) or f32 (1) but got ggml (2).")
    named["sections"] = tuple(named.get("sections") or (0, 0, 0, 0))
    return RopeParams(mode=mode, **named), forward


def _tables(positions: Any, factors: Any, params: RopeParams, wide: int) -> tuple[Any, Any]:
    """Return cos and sin, ``[B or 1, S, pairs]``. Angles are computed in double, in turns. They are reduced
    to at most half a turn, so that cos and sin in float32 are accurate at far positions."""
    turns = params.frequencies("exact") / (2 * math.pi)
    by_pair = _positions_of_pairs(positions, params)
    angle = op.Mul(op.Cast(by_pair, to=_DOUBLE), op.Constant(value=_tensor(turns)))
    if factors is not None:
        divisors = op.Cast(op.Slice(factors, _ints([0]), _ints([params.pairs]), _ints([0])), to=_DOUBLE)
        angle = op.Div(angle, divisors)
    angle = op.Sub(angle, op.Floor(op.Add(angle, op.Constant(value=_tensor(np.float64(0.5))))))
    angle = op.Cast(op.Mul(angle, op.Constant(value=_tensor(np.float64(2 * math.pi)))), to=_FLOAT)
    cos, sin = op.Cos(angle), op.Sin(angle)
    scale = params.mscale()
    if scale != 1.0:
        factor = op.Constant(value=_tensor(np.float32(scale)))
        cos, sin = op.Mul(cos, factor), op.Mul(sin, factor)
    return (op.Cast(cos, to=wide), op.Cast(sin, to=wide)) if wide == _DOUBLE else (cos, sin)


def _positions_of_pairs(positions: Any, params: RopeParams) -> Any:
    """Return each pair's position, ``[B or 1, S, pairs]``, or ``[B or 1, S, 1]`` if all pairs share it."""
    rank = _rank(positions)
    if not params.rope_mode.has_sections:
        by_batch = positions if rank == 2 else op.Unsqueeze(positions, _ints([0]))
        return op.Unsqueeze(by_batch, _ints([2]))
    count = 4 if rank == 1 else _static("the number of a token's positions", positions.shape[0])
    if rank == 1:  # ggml's flat [4*S]
        positions = op.Reshape(positions, _ints([4, 1, -1]))
    elif rank == 2:
        positions = op.Unsqueeze(positions, _ints([1]))
    axes = params.axes()
    if count == 3:
        axes = np.where(axes == 3, 0, axes)  # without a fourth plane, the first one replaces it
    return op.Transpose(op.Gather(positions, _ints(axes.tolist()), axis=0), perm=[1, 2, 0])


def _tensor(values: Any) -> Any:
    return numpy_helper.from_array(np.asarray(values))


def _rope(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> Any:
    return _rope_all((x,), positions, freq_factors, attributes)[0]


def _rope_qk(q: Any, k: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> Any:
    return _rope_all((q, k), positions, freq_factors, attributes)


def _rope_all(
    xs: tuple[Any, ...], positions: Any, freq_factors: Any, attributes: Mapping[str, Any]
) -> tuple[Any, ...]:
    params, forward = _params(attributes)
    cos, sin = _tables(positions, freq_factors, params, _DOUBLE if xs[0].dtype == _DOUBLE else _FLOAT)
    sin = _signed(sin, forward)
    window = _Window(params.rope_mode is RopeMode.NORMAL, 2 * params.pairs, params.n_offs)
    return tuple(_rotated(x, cos, sin, window) for x in xs)


# ---- given tables --------------------------------------------------------------------------------------


def _rotary_mul(x: Any, cos: Any, sin: Any, *attributes: Any) -> Any:
    return _rotary_mul_all((x,), cos, sin, *attributes)[0]


def _rotary_mul_qk(q: Any, k: Any, cos: Any, sin: Any, *attributes: Any) -> Any:
    return _rotary_mul_all((q, k), cos, sin, *attributes)


def _rotary_mul_all(
    xs: tuple[Any, ...],
    cos: Any,
    sin: Any,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    forward: bool = True,
) -> tuple[Any, ...]:
    width = rotary_dim or _static("the head size", xs[0].shape[-1])
    if cos.shape[-1] != width // 2:
        raise ValueError(
            f"[onnx_export] cos must have one entry per pair, W = {width // 2}, but got {cos.shape[-1]}"
            " (RotaryEmbedding has no tables with one entry per lane)."
        )
    wide = _DOUBLE if xs[0].dtype == _DOUBLE else _FLOAT
    c, s = (_as_table(tensor, width // 2, _rank(xs[0]) == 4, wide) for tensor in (cos, sin))
    return tuple(_rotated(x, c, _signed(s, forward), _Window(interleaved, width, offset)) for x in xs)


def _as_table(tensor: Any, half: int, batched: bool, wide: int) -> Any:
    """Return a table as ``[B or 1, S, half]``."""
    by_batch = batched and _rank(tensor) > 2
    return op.Reshape(op.Cast(tensor, to=wide), _ints([0, 0, half] if by_batch else [1, -1, half]))


def _rotary_embedding(
    X: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    forward: bool = True,
) -> Any:
    heads = {"num_heads": num_heads} if _rank(X) == 3 else {}  # ignored for four dimensions
    head = X.shape[-1] if _rank(X) == 4 else X.shape[-1] // num_heads
    half = (rotary_embedding_dim or _static("the head size", head)) // 2
    sin_cache = _signed(sin_cache, forward)
    if cos_cache.shape[-1] != half:
        cos_cache, sin_cache = (_slice(tensor, 0, half) for tensor in (cos_cache, sin_cache))
    if position_ids is not None and position_ids.dtype != INT64.dtype:
        position_ids = op.Cast(position_ids, to=INT64.dtype)
    if X.dtype == _FLOAT:
        return op.RotaryEmbedding(
            X,
            cos_cache,
            sin_cache,
            position_ids,
            interleaved=int(interleaved),
            rotary_embedding_dim=rotary_embedding_dim,
            **heads,
        )
    # Rotate other dtypes as [B,S,N,D], by gathered rows of the tables.
    wide = _DOUBLE if X.dtype == _DOUBLE else _FLOAT
    tables = [op.Cast(tensor, to=wide) for tensor in (cos_cache, sin_cache)]
    if position_ids is not None:
        tables = [op.Gather(tensor, position_ids, axis=0) for tensor in tables]
    flat = _rank(X) == 3
    x = op.Reshape(X, _ints([0, 0, num_heads, head])) if flat else op.Transpose(X, perm=[0, 2, 1, 3])
    sizes = True, num_heads if flat else _static("the number of heads", X.shape[1]), head
    y = _rotated_as(x, X.dtype, sizes, tables[0], tables[1], _Window(interleaved, 2 * half, 0))
    return op.Reshape(y, _ints([0, 0, num_heads * head])) if flat else op.Transpose(y, perm=[0, 2, 1, 3])


# ---- norms ---------------------------------------------------------------------------------------------


def _rms_norm(x: Any, scale: Any, *attributes: Any) -> Any:
    return _normalized(x, x, scale, RmsNormAttributes(*attributes))


def _add_rms_norm(x: Any, residual: Any, scale: Any, *attributes: Any) -> tuple[Any, Any]:
    wide = _wide(x.dtype)
    total = _cast(op.Add(_cast(x, x.dtype, wide), _cast(residual, x.dtype, wide)), wide, x.dtype)
    return _normalized(total, x, scale, RmsNormAttributes(*attributes)), total


def _normalized(x: Any, like: Any, scale: Any, attributes: RmsNormAttributes) -> Any:
    """Return the RMSNormalization of x, which has the dtype and shape of ``like``.

    One node is enough if all dtypes are float32, or all double. Otherwise explicit nodes around it do the
    specification's casts: runtimes omit them, ignore ``stash_type``, or have no kernel for 16 bits.
    """
    wide, dtype, stash_type = _wide(attributes.stash_type), like.dtype, attributes.stash_type
    axis = attributes.axis % _rank(like)
    node_attributes = {"axis": axis, "epsilon": attributes.stashed_epsilon, "stash_type": int(wide)}
    if dtype == scale.dtype == wide == stash_type and tuple(scale.shape) == tuple(like.shape[axis:]):
        return op.RMSNormalization(x, scale, **node_attributes)
    stashed = _cast(_cast(x, dtype, stash_type), stash_type, wide)
    ones = np.ones([_static("a normalized size", n) for n in like.shape[axis:]])
    unit_scale = op.Constant(value=_tensor(ones.astype(np.float64 if wide == _DOUBLE else np.float32)))
    normalized = op.RMSNormalization(stashed, unit_scale, **node_attributes)
    normalized = _cast(_cast(normalized, wide, stash_type), stash_type, dtype)
    product = max(_wide(dtype), _wide(scale.dtype))
    return _cast(
        op.Mul(_cast(normalized, dtype, product), _cast(scale, scale.dtype, product)), product, scale.dtype
    )


def _wide(dtype: int) -> int:
    """Return the dtype in which values of a dtype are computed: double for double, else float32."""
    return _DOUBLE if dtype == _DOUBLE else _FLOAT


def _cast(x: Any, dtype: int, to: int) -> Any:
    return x if dtype == to else op.Cast(x, to=int(to))
