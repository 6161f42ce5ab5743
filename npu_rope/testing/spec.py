"""One output element of rope, in scalar Python, to judge the reference itself.

The code follows ``specs/ggml_rope_acltensor.txt``, whose sections the docstrings name. It shares no code with
the reference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from npu_rope.params import RopeParams

# ggml's numbers of modes, and the bit of the modes with sections.
NORMAL, VISION, IMROPE = 0, 24, 40
HAS_SECTIONS = 8


def corr_dim(params: RopeParams, beta: float) -> float:
    """Return d(beta) of section 2, the pair at which YaRN's ramp has an end."""
    return (
        params.n_dims / (2 * math.log(params.freq_base)) * math.log(params.n_ctx_orig / (2 * math.pi * beta))
    )


def axis_and_power(params: RopeParams, pair: int) -> tuple[int, int]:
    """Return the axis of the position that rotates a pair, and the power of theta_scale in its angle.

    This is section 6, which follows ggml's CPU source. The loop starts at pair 0, as in the source.
    """
    mode = int(params.rope_mode)
    return _axis_and_power(mode, tuple(params.sections), pair) if mode & HAS_SECTIONS else (0, pair)


@functools.lru_cache(maxsize=4096)
def _axis_and_power(mode: int, sections: tuple[int, ...], pair: int) -> tuple[int, int]:
    time, height, width, extra = sections
    power, axis = [0, 0, 0, 0], 0
    for i in range(pair + 1):
        sector = i % (time + height + width + extra)
        if mode == VISION:  # the power of an axis starts again where its section starts
            if sector == 0:
                power[0] = 0
            elif sector == time:
                power[1] = 0
            elif sector == time + height:
                power[2] = 0
            elif sector == time + height + width:
                power[3] = 0
        if mode == IMROPE:
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
            power = [power_of_axis + 1 for power_of_axis in power]
    return axis, power[axis]


def theta(params: RopeParams, position: int, pair: int, power: int, factor: float) -> tuple[float, float]:
    """Return the angle of one pair in radians, and the factor of its cos and sin (section 5)."""
    extrapolated = position * math.pow(params.freq_base, -2.0 * power / params.n_dims) / factor
    interpolated = params.freq_scale * extrapolated
    if params.ext_factor == 0:
        return interpolated, params.attn_factor
    low = max(0, math.floor(corr_dim(params, params.beta_fast)))
    high = min(params.n_dims - 1, math.ceil(corr_dim(params, params.beta_slow)))
    y = (pair - low) / max(0.001, high - low)
    ramp_mix = (1 - min(1, max(0, y))) * params.ext_factor
    angle = interpolated * (1 - ramp_mix) + extrapolated * ramp_mix
    return angle, params.attn_factor * (1 + 0.1 * math.log(1 / params.freq_scale))


def element(
    params: RopeParams,
    head: Sequence[Any] | Any,
    positions: Sequence[int],
    factors: Any,
    lane: int,
    forward: bool,
) -> float:
    """Return one lane of a rotated head (section 7).

    Args:
        params: the parameters.
        head: the values of the head before the rotation.
        positions: the token's position, or its four positions in the modes with sections.
        factors: the freq_factors, or None.
        lane: the number of the lane.
        forward: whether the rotation is by the angle, not by minus the angle.
    """
    window_lane = lane - params.n_offs
    half = params.n_dims if int(params.rope_mode) == VISION else params.n_dims // 2
    if not 0 <= window_lane < 2 * half:
        return float(head[lane])
    if int(params.rope_mode) == NORMAL:  # (x[2i], x[2i+1])
        pair, is_second = divmod(window_lane, 2)
        first, second = 2 * pair, 2 * pair + 1
    else:  # the others: (x[i], x[i + half])
        is_second, pair = divmod(window_lane, half)
        first, second = pair, pair + half
    axis, power = axis_and_power(params, pair)
    factor = 1.0 if factors is None else float(factors[pair])
    angle, scale = theta(params, int(positions[axis]), pair, power, factor)
    c, s = math.cos(angle) * scale, math.sin(angle) * scale * (1 if forward else -1)
    x1, x2 = float(head[params.n_offs + first]), float(head[params.n_offs + second])
    return x1 * s + x2 * c if is_second else x1 * c - x2 * s
