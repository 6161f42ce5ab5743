"""One output element of rope, written straight from ``specs/ggml_rope_acltensor.txt`` in scalar
Python, to judge the reference itself. Shares no code with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from npu_rope.params import RopeParams


def corr_dim(p: RopeParams, beta: float) -> float:
    """Section 2, d(beta)."""
    return p.n_dims / (2 * math.log(p.freq_base)) * math.log(p.n_ctx_orig / (2 * math.pi * beta))


def axis_and_power(p: RopeParams, pair: int) -> tuple[int, int]:
    """Section 6, from the CPU source: return which of a token's positions rotates a pair, and the power of
    theta_scale in its angle. The loop starts at pair 0, as in the source."""
    mode, (time, height, width, extra) = int(p.rope_mode), p.sections
    if not mode & 8:
        return 0, pair
    power, axis = [0, 0, 0, 0], 0
    for i in range(pair + 1):
        sector = i % (time + height + width + extra)
        if mode == 24:  # vision: an axis starts again where its section does
            if sector == 0:
                power[0] = 0
            elif sector == time:
                power[1] = 0
            elif sector == time + height:
                power[2] = 0
            elif sector == time + height + width:
                power[3] = 0
        if mode == 40:  # imrope
            axis = 3
            if sector % 3 == 0 and sector < 3 * time:
                axis = 0
            if sector % 3 == 1 and sector < 3 * height:
                axis = 1
            if sector % 3 == 2 and sector < 3 * width:
                axis = 2
        elif sector < time:
            axis = 0
        elif sector < time + height:
            axis = 1
        elif sector < time + height + width:
            axis = 2
        else:
            axis = 3
        if i < pair:
            power = [n + 1 for n in power]
    return axis, power[axis]


def theta(p: RopeParams, position: int, pair: int, power: int, factor: float) -> tuple[float, float]:
    """Section 5: return the angle of one pair in radians, and the factor of its cos and sin."""
    extrapolated = position * math.pow(p.freq_base, -2.0 * power / p.n_dims) / factor
    interpolated = p.freq_scale * extrapolated
    if p.ext_factor == 0:
        return interpolated, p.attn_factor
    low = max(0, math.floor(corr_dim(p, p.beta_fast)))
    high = min(p.n_dims - 1, math.ceil(corr_dim(p, p.beta_slow)))
    y = (pair - low) / max(0.001, high - low)
    ramp_mix = (1 - min(1, max(0, y))) * p.ext_factor
    angle = interpolated * (1 - ramp_mix) + extrapolated * ramp_mix
    return angle, p.attn_factor * (1 + 0.1 * math.log(1 / p.freq_scale))


def element(
    p: RopeParams, head: Sequence[Any] | Any, positions: Sequence[int], factors: Any, at: int, forward: bool
) -> float:
    """Section 7: return lane ``at`` of one rotated head. ``head`` is the head's input, ``positions`` are the
    token's, one or four."""
    inside = at - p.n_offs
    half = p.n_dims if int(p.rope_mode) == 24 else p.n_dims // 2
    if not 0 <= inside < 2 * half:
        return float(head[at])
    if int(p.rope_mode) == 0:  # normal: (x[2i], x[2i+1])
        pair, is_second = divmod(inside, 2)
        first, second = 2 * pair, 2 * pair + 1
    else:  # the others: (x[i], x[i + half])
        is_second, pair = divmod(inside, half)
        first, second = pair, pair + half
    axis, power = axis_and_power(p, pair)
    factor = 1.0 if factors is None else float(factors[pair])
    angle, scale = theta(p, int(positions[axis]), pair, power, factor)
    c, s = math.cos(angle) * scale, math.sin(angle) * scale * (1 if forward else -1)
    x1, x2 = float(head[p.n_offs + first]), float(head[p.n_offs + second])
    return x1 * s + x2 * c if is_second else x1 * c - x2 * s
