"""qkv_norm_rope_cache in float64, formula first.

    Normalized = x / sqrt(m + epsilon),   m = mean(x^2) over a head or over all heads of a token
    y          = rotate(Normalized * (scale + scale_offset) + bias)

rotate is rope's rotation (``reference/rope.py``), or the rotation by rows of given tables. Values are neither
normalized nor rotated. A quantized cache holds ``y * quant_scale + quant_offset``, rounded half to even and
limited to [-128, 127].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes
from npu_rope.reference import rope
from npu_rope.rope_attributes import RopeMode
from npu_rope.values import as_float32

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]


def mean_squares(
    x: Wide, call: CallTensors[Array], side: str, attributes: QkvAttributes
) -> tuple[Wide, Wide | float]:
    """Return the mean square of x / power for each head of ``[S,N,D]``, or for all heads of a token together,
    and power, both as ``[S,N or 1,1]``. The power of two keeps the squares from overflow and underflow."""
    tokens, heads, head_size = x.shape
    if (sums := call.other_inputs.get("square_sums")) is not None:
        elements = attributes.ranks * heads * head_size
        given: Wide = sums[:, "qk".index(side)].astype(np.float64) / elements
        return given.reshape(tokens, 1, 1), 1.0
    per_head = call.other_inputs[f"{side}_scale"].shape[0] == head_size
    axes = -1 if per_head else (-2, -1)
    peak = np.max(np.abs(x), axis=axes, keepdims=True, initial=0)
    usable = (peak > 0) & np.isfinite(peak)
    power: Wide = np.exp2(np.clip(np.frexp(np.where(usable, peak, 0.5))[1], -1000, 1000))
    return np.asarray(np.mean((x / power) ** 2, axis=axes, keepdims=True)), power


def normalized(x: Wide, call: CallTensors[Array], side: str, attributes: QkvAttributes) -> Wide:
    """Return q or k ``[S,N,D]`` normalized, times its scale, plus its bias; unchanged if it has no scale."""
    scale, bias = (call.other_inputs.get(f"{side}_{name}") for name in ("scale", "bias"))
    if scale is None or x.size == 0:
        return x
    heads, head_size = x.shape[1:]
    factor = scale.astype(np.float64) + as_float32(attributes.scale_offset)
    shape = (head_size,) if factor.size == head_size else (heads, head_size)
    mean, power = mean_squares(x, call, side, attributes)
    rms = np.sqrt(mean + as_float32(attributes.epsilon) / power / power)
    y: Wide = x / power / rms * factor.reshape(shape)
    return y if bias is None else y + bias.astype(np.float64).reshape(shape)


def tables(call: CallTensors[Array], attributes: QkvAttributes) -> tuple[Wide, Wide, Wide, Wide]:
    """Return c1, s1, c2 and s2 as ``[S,1,pairs]``: cos and sin of the first and of the second lane of each
    pair."""
    params, others = attributes.params, call.other_inputs
    if "cos" not in others:
        planes = rope.position_planes(others["positions"], params)
        cos, sin = rope.cos_sin(planes, params, others.get("freq_factors"), policy=attributes.angle)
        return cos[:, None], sin[:, None], cos[:, None], sin[:, None]
    positions = others.get("positions", np.arange(call.first[1].shape[0]))
    rows = rope.pair_positions(rope.position_planes(positions, params), params)
    first = second = np.arange(params.pairs)
    if others["cos"].shape[1] != params.pairs:  # an entry for each lane
        first, second = (np.arange(2 * params.pairs)[lanes] for lanes in window_lanes(params))
    lanes = first, second
    by_lane = [
        others[name].astype(np.float64)[rows, lane][:, None] for lane in lanes for name in ("cos", "sin")
    ]
    return by_lane[0], by_lane[1], by_lane[2], by_lane[3]


def window_lanes(params: RopeParams) -> tuple[slice, slice]:
    """Return the first and the second lanes of the pairs, counted from the window's begin."""
    if params.rope_mode is RopeMode.NORMAL:
        return slice(0, None, 2), slice(1, None, 2)
    return slice(0, params.pairs), slice(params.pairs, None)


def qkv_norm_rope_cache(call: CallTensors[Array], attributes: QkvAttributes) -> dict[str, Wide]:
    """Return q, k and v of all tokens by name, before they are rounded or quantized."""
    c1, s1, c2, s2 = tables(call, attributes)
    first, second = attributes.params.pair_lanes()
    results = {name: x.astype(np.float64) for name, x in call.xs.items()}
    for side in ("q", "k"):
        with np.errstate(all="ignore"):
            y = normalized(results[side], call, side, attributes).copy()
            x1, x2 = y[..., first].copy(), y[..., second].copy()
            y[..., first], y[..., second] = x1 * c1 - x2 * s1, x2 * c2 + x1 * s2
        results[side] = y
    return results


def by_head(factor: Array) -> Wide:
    """Return a factor or an offset ``[1]``, ``[N]`` or ``[N,D]`` broadcastable to ``[N,D]``."""
    wide: Wide = factor.astype(np.float64)
    return wide[:, None] if wide.ndim == 1 else wide


def quantized(y: Wide, scale: Array, offset: Array | None) -> npt.NDArray[np.int8]:
    """Return values ``[...,N,D]`` as int8. NaN becomes 0.

    >>> quantized(np.array([[0.5, 1.5, -200.0]]), np.float32([1]), None)
    array([[   0,    2, -128]], dtype=int8)
    """
    with np.errstate(all="ignore"):
        value = y * by_head(scale)
        if offset is not None:
            value = value + by_head(offset)
        limited = np.clip(np.rint(value), -128, 127)
    return np.where(np.isnan(value), 0, limited).astype(np.int8)
