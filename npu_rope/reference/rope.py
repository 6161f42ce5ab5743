"""rope in float64, formula first. Source: ``specs/ggml_rope_acltensor.txt`` sections 1-5 and 7.

    theta(p, i) = p * freq(i)
    (y1, y2)    = (x1*c - x2*s, x1*s + x2*c),   c = mscale*cos(theta), s = +-mscale*sin(theta)

with (x1, x2) = (x[2i], x[2i+1]) in mode normal and (x[i], x[i + pairs]) in the others, where x begins at lane
n_offs of the head. Lanes outside the rotated window are copied. In the modes with sections, p is the token's
position on the axis that ``RopeParams.axes`` gives for pair i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import AXES, ggml_angles
from npu_rope.rope_calls import rope_tensors
from npu_rope.values import Angle, AnglePolicy, angle_policy, flag

Array = npt.NDArray[Any]


def angles(
    positions: Array,
    params: RopeParams,
    freq_factors: npt.ArrayLike | None = None,
    policy: AnglePolicy = "exact",
) -> Array:
    """Return theta in radians, ``[..., pairs]``: float32 for ``f32`` and ``ggml``; NumPy's widest float for
    ``exact``, because at a far position float64 has few bits for the angle modulo 2π."""
    positions = np.asarray(positions)
    if policy == "ggml":
        return ggml_angles(positions, params, freq_factors)
    if policy == "exact":
        frequencies = params.extended_frequencies(freq_factors)
    else:
        frequencies = params.frequencies(policy, freq_factors)
    theta: Array = pair_positions(positions, params).astype(frequencies.dtype) * frequencies
    return theta


def pair_positions(positions: Array, params: RopeParams) -> Array:
    """Return the position that rotates each pair, broadcastable to ``[..., pairs]``."""
    if not params.rope_mode.has_sections:
        return positions[..., None]
    return np.moveaxis(positions[params.axes()], 0, -1)


def position_planes(positions: npt.ArrayLike, params: RopeParams) -> Array:
    """Return positions ``[S]`` or ``[B,S]``, or in the modes with sections four planes, ``[4,S]`` or
    ``[4,B,S]``. ggml's flat ``[4*S]`` is divided into planes. If three planes are given, the first one, time,
    is also the fourth.
    """
    positions = np.asarray(positions)
    if not params.rope_mode.has_sections:
        return positions
    if positions.ndim == 1:
        return positions.reshape(AXES, positions.size // AXES)
    return positions if len(positions) == AXES else np.concatenate([positions, positions[:1]])


def cos_sin(
    positions: Array,
    params: RopeParams,
    freq_factors: npt.ArrayLike | None = None,
    *,
    forward: bool = True,
    policy: AnglePolicy = "exact",
) -> tuple[Array, Array]:
    """Return the table (cos, sin) with mscale and sign, ``[..., pairs]`` float64.

    Under policy ``ggml`` cos, sin and their products with mscale are rounded to float32, as in ggml.
    """
    theta = angles(positions, params, freq_factors, policy)
    if policy != "exact":
        theta = theta.astype(np.float64)
    c, s = np.cos(theta).astype(np.float64), np.sin(theta).astype(np.float64)
    mscale = params.mscale(policy)
    if policy == "ggml":
        f = np.float32
        c, s = ((tensor.astype(f) * f(mscale)).astype(np.float64) for tensor in (c, s))
    else:
        c, s = c * mscale, s * mscale
    return c, (s if forward else -s)


def rotate(x: Array, c: Array, s: Array, params: RopeParams) -> npt.NDArray[np.float64]:
    """Rotate x (section 7). x is ``[B,S,N,D]``; c and s are broadcastable to ``[B,S,1,pairs]``."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        y = x.astype(np.float64)
    first, second = params.pair_lanes()
    x1, x2 = y[..., first].copy(), y[..., second].copy()
    with np.errstate(invalid="ignore", over="ignore"):  # 0 * inf and inf - inf are NaN, as they should be
        y[..., first] = x1 * c - x2 * s
        y[..., second] = x1 * s + x2 * c
    return y


def rope(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    params: RopeParams,
    freq_factors: npt.ArrayLike | None = None,
    *,
    forward: bool = True,
    angle: Angle = "exact",
) -> npt.NDArray[np.float64]:
    """Rotate x by its positions. Return float64 values, before any rounding to x's dtype. The rules are not
    checked: ``npu_rope.rope(..., backend="reference")`` checks them.

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``, float32, float16, bfloat16 (ml_dtypes) or float64.
        positions: ``[S]`` or ``[B,S]``, int32 or int64; in the modes mrope, vision and imrope ``[4,S]``,
            its flat form ``[4*S]``, ``[3,S]``, ``[3,B,S]`` or ``[4,B,S]``. With B = 1 all batches have
            the same positions.
        params: the attributes.
        freq_factors: ``[>= pairs]`` float32, or None.
        forward: False rotates by minus the angle, as the gradient does.
        angle: the angle policy.

    >>> x = np.array([[[1.0, 0.0]]])
    >>> rope(x, np.array([1], np.int32), RopeParams(2)).round(4)
    array([[[0.5403, 0.8415]]])
    """
    factors = None if freq_factors is None else np.asarray(freq_factors)
    call = rope_tensors(np.asarray(x), np.asarray(positions), factors, None)
    return rotated(call.xs["x"], call, params, forward=forward, angle=angle)


def rotated(
    x: Array, call: CallTensors[Array], params: RopeParams, *, forward: bool, angle: Angle
) -> npt.NDArray[np.float64]:
    """Return x rotated by the positions of a call."""
    planes = position_planes(call.other_inputs["positions"], params)
    forward, policy = flag(call.op, "forward", forward), angle_policy(call.op, angle)
    factors = call.other_inputs.get("freq_factors")
    cos, sin = cos_sin(planes, params, factors, forward=forward, policy=policy)
    return rotate(x, cos[..., None, :], sin[..., None, :], params)
