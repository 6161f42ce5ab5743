"""One output element of rope, written straight from ``specs/ggml_rope_acltensor.txt`` in scalar
Python: what the reference itself is judged by. Shares no code with it, on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from npu_rope.params import RopeParams


def corr_dim(p: RopeParams, beta: float) -> float:
    """Section 2, d(beta)."""
    return p.n_dims / (2 * math.log(p.freq_base)) * math.log(p.n_ctx_orig / (2 * math.pi * beta))


def theta(p: RopeParams, position: int, pair: int, factor: float) -> tuple[float, float]:
    """Section 5: the angle of one pair in radians, and what multiplies its cos and sin."""
    extrapolated = position * math.pow(p.freq_base, -2.0 * pair / p.n_dims) / factor
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
    p: RopeParams, head: Sequence[Any] | Any, position: int, factors: Any, at: int, forward: bool
) -> float:
    """Section 7: dimension ``at`` of one rotated head; ``head`` is the whole head's input."""
    inside = at - p.n_offs
    if not 0 <= inside < p.n_dims:
        return float(head[at])
    if int(p.rope_mode) == 0:  # normal: (x[2i], x[2i+1])
        pair, is_second = divmod(inside, 2)
        first, second = 2 * pair, 2 * pair + 1
    else:  # neox: (x[i], x[i + n/2])
        is_second, pair = divmod(inside, p.n_dims // 2)
        first, second = pair, pair + p.n_dims // 2
    angle, scale = theta(p, position, pair, 1.0 if factors is None else float(factors[pair]))
    c, s = math.cos(angle) * scale, math.sin(angle) * scale * (1 if forward else -1)
    x1, x2 = float(head[p.n_offs + first]), float(head[p.n_offs + second])
    return x1 * s + x2 * c if is_second else x1 * c - x2 * s
