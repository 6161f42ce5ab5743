"""rms_norm_rope in long double: RMSNormalization's specification (``norm_spec.py``), then the rotation of
``specs/ggml_rope_acltensor.txt``, and the bound of a result. Shares no code with the tested code.

The bound. For a head of n = D elements let a = N * scale, with N = x / RMS exact, and u the unit roundoff of
the computation's type (2^-24 for float32, 2^-53 for float64).

Without intermediate rounding, the relative error of N is at most e_N
(:func:`npu_rope.testing.bounds.normalized_error`), and its product with the scale rounds once: the error of a
is at most ``(e_N + u) |a|``, up to squares of these (2^-44, which a factor of 1 + 2^-20 on the whole bound
covers), or the smallest subnormal. A lane that does not rotate is rounded to the result's type once: for
float32 and float64 that is the product's own rounding. A pair is rotated by ``y = a1 c - a2 s``: the errors
of a1 and a2 are multiplied by c and s, and those of any rotation (``bounds.py``) are added:
``2 u (|a1 c| + |a2 s|) + e_angle (|a1| + |a2|) + u_out |y| + tiny``.

With intermediate rounding, a is a number of the tensors' type. Where an exact value is near the middle of two
such numbers, a may be either: ``norm_spec.rms_norm`` returns their distance (d, else 0), and a result may
differ by a further ``|d1 c| + |d2 s|``. A lane that does not rotate is a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import E_ANGLE_HOST, SMALLEST_SUBNORMAL, UNIT_ROUNDOFF, normalized_error
from npu_rope.testing.spec import axis_and_power, corr_dim

Array = npt.NDArray[Any]
Long = npt.NDArray[np.longdouble]
Table = tuple[Array, Array]


@dataclass(frozen=True)
class NormRopeCall:
    """The call for queries, or for keys: the arrays, the name of their type, and the attributes.

    Attributes:
        x: ``[B,S,N,D]`` or ``[S,N,D]``.
        scale: ``[D]``.
        positions: in the operator's form.
        error: largest relative error of Normalized against x / RMS; None: that of the CPU.
        table: cos and sin of a token's pairs, ``[S,pairs]`` or ``[B,S,pairs]``; None: the exact ones.
    """

    x: Array
    scale: Array
    positions: Array
    params: RopeParams
    dtype: str
    freq_factors: Array | None = None
    epsilon: float = 1e-5
    intermediate_rounding: bool = False
    table: Table | None = None
    e_angle: float = E_ANGLE_HOST
    error: float | None = None

    @property
    def wide(self) -> str:
        """The type of intermediate values."""
        return "float64" if self.dtype == "float64" else "float32"


def pair_lanes(p: RopeParams) -> tuple[Array, Array]:
    """Section 7: return the lanes of every pair's two elements."""
    width = p.n_dims if int(p.rope_mode) == 24 else p.n_dims // 2
    pair = np.arange(width)
    if int(p.rope_mode) == 0:
        return p.n_offs + 2 * pair, p.n_offs + 2 * pair + 1
    return p.n_offs + pair, p.n_offs + pair + width


def frequencies(p: RopeParams, factors: Array | None) -> tuple[Long, float]:
    """Section 5: return the radians per position of every pair, and the factor of cos and sin."""
    one = np.longdouble(1)
    count = len(pair_lanes(p)[0])
    powers = np.array([axis_and_power(p, i)[1] for i in range(count)], np.longdouble)
    frequency: Long = np.power(np.longdouble(p.freq_base), -2 * powers / p.n_dims)
    if factors is not None:
        frequency = frequency / factors[:count].astype(np.longdouble)
    if p.ext_factor == 0:
        return frequency * np.longdouble(p.freq_scale), p.attn_factor
    low = max(0, np.floor(corr_dim(p, p.beta_fast)))
    high = min(p.n_dims - 1, np.ceil(corr_dim(p, p.beta_slow)))
    ramp = one - np.clip((np.arange(count) - low) / max(0.001, high - low), 0, 1)
    mix = ramp * np.longdouble(p.ext_factor)
    blended: Long = frequency * np.longdouble(p.freq_scale) * (one - mix) + frequency * mix
    return blended, float(p.attn_factor * (1 + 0.1 * np.log(1 / p.freq_scale)))


def exact_table(positions: Array, p: RopeParams, factors: Array | None = None) -> tuple[Long, Long]:
    """Return cos and sin of every token's pairs, ``[..., S, pairs]``."""
    radians, scale = frequencies(p, factors)
    if int(p.rope_mode) & 8:
        axes = [axis_and_power(p, i)[0] for i in range(len(radians))]
        planes = positions.reshape(4, -1) if positions.ndim == 1 else positions
        pair_positions = np.stack([planes[axis if axis < len(planes) else 0] for axis in axes], -1)
    else:
        pair_positions = positions[..., None]
    angle = pair_positions.astype(np.longdouble) * radians
    return np.cos(angle) * np.longdouble(scale), np.sin(angle) * np.longdouble(scale)


def heads(call: NormRopeCall) -> tuple[Long, Long, Long]:
    """Return Normalized times scale, the bound of its error, and the bound in lanes that do not rotate, which
    are rounded to the result's type."""
    scale = call.scale.astype(np.longdouble)
    stash = 11 if call.dtype == "float64" and not call.intermediate_rounding else 1
    norm = norm_spec.NormCall(
        call.x, call.scale, call.dtype, call.dtype, epsilon=call.epsilon, stash_type=stash
    )
    if call.intermediate_rounding:
        value, bound = (v.astype(np.longdouble) for v in norm_spec.rms_norm(norm, call.error))
        return value, bound, bound
    with np.errstate(all="ignore"):
        value = norm.normalized(call.wide)[0] * scale
        u, subnormal = UNIT_ROUNDOFF[call.wide], SMALLEST_SUBNORMAL[call.wide]
        tiny = subnormal * (1 + np.abs(scale))
        error = normalized_error(norm.n, call.wide) if call.error is None else call.error
        off = np.abs(value) * np.longdouble(error + u) + tiny
        rounds_again = 0.0 if call.wide == call.dtype else UNIT_ROUNDOFF[call.dtype]
        unrotated_bound = off + rounds_again * (np.abs(value) + off) + SMALLEST_SUBNORMAL[call.dtype]
    return value, off, unrotated_bound


def rms_norm_rope(call: NormRopeCall) -> tuple[Array, Array]:
    """Return the result and the bound of another result's error, in float64."""
    if call.x.size == 0:
        return np.zeros(call.x.shape), np.zeros(call.x.shape)
    a, off, unrotated_bound = heads(call)
    table = call.table or exact_table(call.positions, call.params, call.freq_factors)
    c, s = (t.astype(np.longdouble)[..., None, :] for t in table)
    first, second = pair_lanes(call.params)
    value, bound = a.copy(), np.broadcast_to(unrotated_bound, a.shape).copy()
    x1, x2, d1, d2 = a[..., first], a[..., second], off[..., first], off[..., second]
    e_angle = call.e_angle * max(1.0, abs(frequencies(call.params, None)[1]))
    with np.errstate(all="ignore"):
        value[..., first], value[..., second] = x1 * c - x2 * s, x1 * s + x2 * c
        ends = [np.abs(v) + d for v, d in ((x1, d1), (x2, d2))]
        for lanes, (p, q) in ((first, (c, s)), (second, (s, c))):
            p, q = np.abs(p), np.abs(q)
            products = ends[0] * p + ends[1] * q
            carried = d1 * p + d2 * q
            rounded = 2 * UNIT_ROUNDOFF[call.wide] * products + e_angle * (ends[0] + ends[1]) + carried
            size = np.abs(value[..., lanes]) + rounded
            bound[..., lanes] = rounded + UNIT_ROUNDOFF[call.dtype] * size + SMALLEST_SUBNORMAL[call.dtype]
        if not call.intermediate_rounding:
            bound *= 1 + 2.0**-20
        beyond = np.isinf(norm_spec.cast(value, call.dtype)) & ~np.isinf(value)
        # Values that may round to infinity or to the largest number.
        edge = np.isfinite(value) & (np.abs(value) + bound >= norm_spec.FORMATS[call.dtype][2])
        bound = np.where(edge, np.inf, bound)
        value = np.where(beyond, np.copysign(np.inf, value), value)
    return value.astype(np.float64), bound.astype(np.float64)


__all__ = ["NormRopeCall", "exact_table", "frequencies", "heads", "pair_lanes", "rms_norm_rope"]
