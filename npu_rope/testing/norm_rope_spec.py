"""rms_norm_rope in long double: RMSNormalization's specification (``norm_spec.py``), then the rotation of
``specs/ggml_rope_acltensor.txt``, and the bound of a result. This file shares no code with the tested code.

The bound: let N = x / RMS be exact and a = N * scale. u is the unit roundoff of the computation's type (2^-24
for float32, 2^-53 for float64). e_N is the largest relative error of N
(:func:`npu_rope.testing.bounds.normalized_error`).

Without intermediate rounding, the product of N and scale rounds once. The error of a is thus at most
``(e_N + u) |a|``, or the smallest subnormal. The squares of these errors (2^-44) are covered by a factor of
1 + 2^-20 on the whole bound. A lane that does not rotate is rounded once to the result's type; for float32
and float64 this is the rounding of the product.

A pair rotates by ``y = a1 c - a2 s``, which multiplies the errors of a1 and a2 by c and s. The errors of any
rotation (``bounds.py``) are added: ``2 u (|a1 c| + |a2 s|) + table_error (|a1| + |a2|) + u_out |y| + tiny``.

With intermediate rounding, a is a number of the tensors' type. If an exact value is near the middle of two
such numbers, a may be either. ``norm_spec.rms_norm`` returns their distance d, or 0 for other values. A
result may then differ by a further ``|d1 c| + |d2 s|``. A lane that does not rotate has the value a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import SMALLEST_SUBNORMAL, TABLE_ERROR_HOST, UNIT_ROUNDOFF, normalized_error
from npu_rope.testing.spec import HAS_SECTIONS, NORMAL, VISION, axis_and_power, corr_dim

Array = npt.NDArray[Any]
Long = npt.NDArray[np.longdouble]
CosSin = tuple[Array, Array]


@dataclass(frozen=True)
class NormRopeCall:
    """A call for queries or for keys: the arrays, the name of their type, and the attributes.

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
    table: CosSin | None = None
    table_error: float = TABLE_ERROR_HOST
    error: float | None = None

    @property
    def wide(self) -> str:
        """The type of intermediate values."""
        return "float64" if self.dtype == "float64" else "float32"


def pair_lanes(params: RopeParams) -> tuple[Array, Array]:
    """Return the first lane and the second lane of every pair (section 7 of ggml's specification)."""
    width = params.n_dims if int(params.rope_mode) == VISION else params.n_dims // 2
    pair = np.arange(width)
    if int(params.rope_mode) == NORMAL:
        return params.n_offs + 2 * pair, params.n_offs + 2 * pair + 1
    return params.n_offs + pair, params.n_offs + pair + width


def frequencies(params: RopeParams, factors: Array | None) -> tuple[Long, float]:
    """Return the radians per position of every pair, and the factor of cos and sin (section 5)."""
    one = np.longdouble(1)
    count = len(pair_lanes(params)[0])
    powers = np.array([axis_and_power(params, i)[1] for i in range(count)], np.longdouble)
    frequency: Long = np.power(np.longdouble(params.freq_base), -2 * powers / params.n_dims)
    if factors is not None:
        frequency = frequency / factors[:count].astype(np.longdouble)
    if params.ext_factor == 0:
        return frequency * np.longdouble(params.freq_scale), params.attn_factor
    low = max(0, np.floor(corr_dim(params, params.beta_fast)))
    high = min(params.n_dims - 1, np.ceil(corr_dim(params, params.beta_slow)))
    ramp = one - np.clip((np.arange(count) - low) / max(0.001, high - low), 0, 1)
    mix = ramp * np.longdouble(params.ext_factor)
    blended: Long = frequency * np.longdouble(params.freq_scale) * (one - mix) + frequency * mix
    return blended, float(params.attn_factor * (1 + 0.1 * np.log(1 / params.freq_scale)))


def exact_table(positions: Array, params: RopeParams, factors: Array | None = None) -> tuple[Long, Long]:
    """Return cos and sin of every token's pairs, ``[..., S, pairs]``."""
    radians, scale = frequencies(params, factors)
    if int(params.rope_mode) & HAS_SECTIONS:
        axes = [axis_and_power(params, i)[0] for i in range(len(radians))]
        planes = positions.reshape(4, -1) if positions.ndim == 1 else positions
        pair_positions = np.stack([planes[axis if axis < len(planes) else 0] for axis in axes], -1)
    else:
        pair_positions = positions[..., None]
    angle = pair_positions.astype(np.longdouble) * radians
    return np.cos(angle) * np.longdouble(scale), np.sin(angle) * np.longdouble(scale)


def heads(call: NormRopeCall) -> tuple[Long, Long, Long]:
    """Return Normalized times scale, the bound of its error, and the bound for lanes that do not rotate. The
    last bound includes the rounding to the result's type."""
    scale = call.scale.astype(np.longdouble)
    # ONNX's numbers of float64 and float32.
    stash = 11 if call.dtype == "float64" and not call.intermediate_rounding else 1
    norm = norm_spec.NormCall(
        call.x, call.scale, call.dtype, call.dtype, epsilon=call.epsilon, stash_type=stash
    )
    if call.intermediate_rounding:
        value, bound = (array.astype(np.longdouble) for array in norm_spec.rms_norm(norm, call.error))
        return value, bound, bound
    with np.errstate(all="ignore"):
        value = norm.normalized(call.wide)[0] * scale
        u, subnormal = UNIT_ROUNDOFF[call.wide], SMALLEST_SUBNORMAL[call.wide]
        tiny = subnormal * (1 + np.abs(scale))
        error = normalized_error(norm.n, call.wide) if call.error is None else call.error
        error_bound = np.abs(value) * np.longdouble(error + u) + tiny
        rounds_again = 0.0 if call.wide == call.dtype else UNIT_ROUNDOFF[call.dtype]
        unrotated_bound = error_bound + rounds_again * (np.abs(value) + error_bound)
        unrotated_bound += SMALLEST_SUBNORMAL[call.dtype]
    return value, error_bound, unrotated_bound


def rms_norm_rope(call: NormRopeCall) -> tuple[Array, Array]:
    """Return the result and the bound of another result's error, in float64."""
    if call.x.size == 0:
        return np.zeros(call.x.shape), np.zeros(call.x.shape)
    scaled, error_bound, unrotated_bound = heads(call)
    cos_sin = call.table or exact_table(call.positions, call.params, call.freq_factors)
    c, s = (table.astype(np.longdouble)[..., None, :] for table in cos_sin)
    first, second = pair_lanes(call.params)
    value, bound = scaled.copy(), np.broadcast_to(unrotated_bound, scaled.shape).copy()
    x1, x2 = scaled[..., first], scaled[..., second]
    d1, d2 = error_bound[..., first], error_bound[..., second]  # the errors of x1 and x2
    table_error = call.table_error * max(1.0, abs(frequencies(call.params, None)[1]))
    with np.errstate(all="ignore"):
        value[..., first], value[..., second] = x1 * c - x2 * s, x1 * s + x2 * c
        largest_x1, largest_x2 = np.abs(x1) + d1, np.abs(x2) + d2
        for lanes, factor1, factor2 in ((first, np.abs(c), np.abs(s)), (second, np.abs(s), np.abs(c))):
            products = largest_x1 * factor1 + largest_x2 * factor2
            error = 2 * UNIT_ROUNDOFF[call.wide] * products + table_error * (largest_x1 + largest_x2)
            error += d1 * factor1 + d2 * factor2
            size = np.abs(value[..., lanes]) + error
            bound[..., lanes] = error + UNIT_ROUNDOFF[call.dtype] * size + SMALLEST_SUBNORMAL[call.dtype]
        if not call.intermediate_rounding:
            bound *= 1 + 2.0**-20
        is_infinite = np.isinf(norm_spec.cast(value, call.dtype)) & ~np.isinf(value)
        # Values that may round to infinity or to the largest number.
        may_be_infinite = np.isfinite(value) & (np.abs(value) + bound >= norm_spec.FORMATS[call.dtype][2])
        bound = np.where(may_be_infinite, np.inf, bound)
        value = np.where(is_infinite, np.copysign(np.inf, value), value)
    return value.astype(np.float64), bound.astype(np.float64)


__all__ = ["NormRopeCall", "exact_table", "frequencies", "heads", "pair_lanes", "rms_norm_rope"]
