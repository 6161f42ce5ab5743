"""torch_npu's rotary functions and RMS norms in float64, by the formulas of their documentation.

``npu_rope.compat.torch_npu`` and torch_npu itself round intermediate results in different places, so each has
its own bounds. CANN's kernels are the source of torch_npu's roundings:

- hicann/ops-transformer ``posembedding/*/op_kernel``: the rotations compute in float32 and round once.
  apply_rotary_pos_emb computes float16 in float16.
- hicann/ops-nn ``norm/*/op_kernel``: the norms compute in float32 and round once. add_rms_norm rounds the
  sum, the normalized sum and the product with gamma. In float16 it normalizes the rounded sum, in the other
  types the float32 sum.
- ops-transformer ``posembedding/kv_rms_norm_rope_cache/op_kernel`` and ``qkv_rms_norm_rope_cache/op_kernel``:
  norm, rotation and quantization compute in float32, and round once, half to even.
- hicann/ascend-transformer-boost, RopeOperation: float16 with float32 tables is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import (
    SMALLEST_SUBNORMAL,
    UNIT_ROUNDOFF,
    int8_expectation,
    normalized_error,
    normalized_error_on,
    table_bound,
)
from npu_rope.testing.cases import rounded
from npu_rope.testing.norm_spec import NormCall
from npu_rope.testing.outcomes import Expectation
from npu_rope.testing.rotary_spec import rotate_every_two, rotate_half

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]

# ---- rotations -----------------------------------------------------------------------------------------


def rotate(x: Wide, mode: str) -> Wide:
    """Return the partner of each lane with its sign."""
    if mode == "quarter":
        return np.concatenate([rotate_half(half) for half in np.split(x, 2, axis=-1)], axis=-1)
    return rotate_half(x) if mode == "half" else rotate_every_two(x)


def rotation(x: Array, cos: Array, sin: Array, mode: str, dtype: str, compute: str = "") -> Expectation:
    """Return ``x * cos + rotate(x) * sin`` and its bound. The lanes after the tables' width are copied.

    Args:
        x: ``[..., D]``.
        cos, sin: ``[..., W]``, broadcastable to the first W lanes of x.
        mode: ``"half"``, ``"interleave"`` or ``"quarter"``.
        dtype: name of the result's dtype.
        compute: dtype of intermediate values; empty: float32.
    """
    wide, c, s = (np.asarray(array, np.float64) for array in (x, cos, sin))
    width = c.shape[-1]
    straight, crossed = wide[..., :width] * c, rotate(wide[..., :width], mode) * s
    value, magnitude = wide.copy(), np.zeros(wide.shape)
    value[..., :width] = straight + crossed
    magnitude[..., :width] = np.abs(straight) + np.abs(crossed)
    return Expectation(value, table_bound(magnitude, value, dtype, compute))


def evens_first(x: Array) -> Array:
    """Return heads with their even lanes first, then their odd ones."""
    return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)


def rows_of_cache(
    cache: Array, positions: Array, sections: Sequence[int], cache_mode: str, mode: str
) -> tuple[Array, Array]:
    """Return cos and sin of each token, ``[T, 1, W]``, for npu_mrope's arguments.

    With sections, positions are ``[M, T]``. Mode ``default`` gives consecutive pairs to each of the M kinds.
    Mode ``interleave`` gives pair i to kind ``i mod M`` while that kind has pairs left, else to kind 0.
    """
    pairs = cache.shape[1] // 2
    kinds = np.zeros(pairs, int)
    if any(sections) and cache_mode == "default":
        kinds = np.repeat(np.arange(len(sections)), sections)
    elif any(sections):
        lane = np.arange(pairs)
        kind = lane % len(sections)
        kinds = np.where(lane // len(sections) < np.asarray(sections)[kind], kind, 0)
    rows = np.atleast_2d(positions)[kinds]  # [pairs, T]
    lanes = np.arange(pairs)[:, None]
    tables = []
    for first in (0, pairs):
        half = cache[rows, first + lanes].T[:, None, :]
        doubled = np.repeat(half, 2, -1) if mode == "interleave" else np.concatenate([half, half], axis=-1)
        tables.append(doubled)
    return tables[0], tables[1]


# ---- norms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Norm:
    """The arguments of a norm: x and gamma in float64, their dtypes, and epsilon."""

    x: Wide
    gamma: Wide
    dtype: str
    gamma_dtype: str
    epsilon: float

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized dimensions."""
        return tuple(range(-self.gamma.ndim, 0))

    def rstd(self, x: Wide) -> Wide:
        """Return ``1 / sqrt(mean(x^2) + epsilon)`` of each row."""
        mean: Wide = np.mean(x * x, self.axes, keepdims=True)
        return 1 / np.sqrt(mean + self.epsilon)

    def rstd_of_compat(self, x: Wide, backend: str) -> Expectation:
        """Return the expectation of npu_rope's rstd: float32 on an NPU, otherwise rounded from float64."""
        value = self.rstd(x)
        error = self.float32_error if backend == "npu" else UNIT_ROUNDOFF["float32"] * (1 + 2.0**-20)
        return Expectation(value, error * value)

    @property
    def float32_error(self) -> float:
        """The largest relative error of rstd, and of x * rstd * gamma before its rounding, in CANN's kernels.

        The mean square has ``n/64 + 10`` roundings: the square, n/64 additions in each of 64 lanes, the sum
        of the lanes (6), the product with 1/n (2) and epsilon (1). The root halves their error. The root and
        the division may each be off by one unit in the last place (4 roundings). The two products round once
        each.
        """
        return (self.gamma.size / 128 + 11) * UNIT_ROUNDOFF["float32"]


def compat_norm(norm: Norm, factor_dtype: str, factor: Wide, x_dtype: str, backend: str) -> Expectation:
    """Return the expectation of npu_rope's y: ONNX's RMSNormalization, rounded to the dtype of x if the
    factor has another dtype."""
    call = NormCall(
        norm.x, factor, x_dtype, factor_dtype, axis=-norm.gamma.ndim, epsilon=float(np.float32(norm.epsilon))
    )
    value, bound = norm_spec.rms_norm(call, normalized_error_on(backend, call.n))
    if factor_dtype != norm.dtype:
        bound = bound + UNIT_ROUNDOFF[norm.dtype] * (np.abs(value) + bound) + SMALLEST_SUBNORMAL[norm.dtype]
    return Expectation(value, bound)


def rms_norm(norm: Norm, backend: str) -> list[Expectation]:
    """Return y and rstd of npu_rms_norm; ``backend`` is that of npu_rope, or empty for torch_npu."""
    if backend:
        y = compat_norm(norm, norm.gamma_dtype, norm.gamma, norm.dtype, backend)
        return [y, norm.rstd_of_compat(norm.x, backend)]
    return _once_rounded(norm, norm.gamma)


def gemma_rms_norm(norm: Norm, backend: str) -> list[Expectation]:
    """Return y and rstd of npu_gemma_rms_norm. Both implementations round 1 + gamma to float32."""
    factor = np.asarray(1 + norm.gamma, np.float32).astype(np.float64)
    if backend:
        y = compat_norm(norm, "float32", factor, "float32", backend)
        return [y, norm.rstd_of_compat(norm.x, backend)]
    return _once_rounded(norm, factor)


def _once_rounded(norm: Norm, factor: Wide) -> list[Expectation]:
    rstd = norm.rstd(norm.x)
    value = norm.x * rstd * factor
    error = UNIT_ROUNDOFF[norm.dtype] + norm.float32_error
    return [
        Expectation(value, error * np.abs(value) + SMALLEST_SUBNORMAL[norm.dtype]),
        Expectation(rstd, norm.float32_error * rstd),
    ]


def add_rms_norm(norm: Norm, other: Wide, backend: str) -> list[Expectation]:
    """Return y, rstd and x of npu_add_rms_norm. ``norm.x`` is x1, and ``other`` is x2."""
    total = np.asarray(norm_spec.add(norm.x, other, norm.dtype), np.float64)
    x = Expectation(total, np.zeros(total.shape))
    if backend:
        summed = Norm(total, norm.gamma, norm.dtype, norm.gamma_dtype, norm.epsilon)
        return [*rms_norm(summed, backend), x]
    if norm.dtype == "bfloat16":
        total = rounded(norm.x + other, "float32").astype(np.float64)
    rstd = norm.rstd(total)
    value = total * rstd * norm.gamma
    # Both the normalized sum and its product with gamma are rounded.
    error = 2 * UNIT_ROUNDOFF[norm.dtype] * (1 + UNIT_ROUNDOFF[norm.dtype]) + norm.float32_error
    lost = SMALLEST_SUBNORMAL[norm.dtype] * (1 + np.abs(norm.gamma))
    return [
        Expectation(value, error * np.abs(value) + lost),
        Expectation(rstd, norm.float32_error * rstd),
        x,
    ]


# ---- stores into caches ------------------------------------------------------------------------------


def normalized(norm: Norm, backend: str) -> Expectation:
    """Return ``x * rstd * gamma`` before it is rounded; ``backend`` is that of npu_rope, or empty for
    torch_npu. npu_rope rounds twice after Normalized: gamma + 0, and the product with it."""
    value = norm.x * norm.rstd(norm.x) * norm.gamma
    error = norm.float32_error
    if backend:
        of_x = normalized_error_on(backend, norm.gamma.size) or normalized_error(norm.gamma.size, "float32")
        error = of_x + 2 * UNIT_ROUNDOFF["float32"]
    return Expectation(value, error * np.abs(value))


def exact(x: Array) -> Expectation:
    """Return the expectation of values that are not computed."""
    wide = np.asarray(x, np.float64)
    return Expectation(wide, np.zeros(wide.shape))


def rotated(x: Expectation, cos: Array, sin: Array) -> Expectation:
    """Return the halves of the first W lanes of x rotated, before they are rounded. The errors of x are
    rotated like x; products and sums add theirs."""
    c, s = (np.asarray(array, np.float64) for array in (cos, sin))
    width = c.shape[-1]
    head, error = x.value[..., :width], x.bound[..., :width]
    straight, crossed = head * c, rotate_half(head) * s
    value, bound = x.value.copy(), x.bound.copy()
    value[..., :width] = straight + crossed
    of_x = np.abs(c) * error + np.abs(s * rotate_half(error))
    roundings = 2 * UNIT_ROUNDOFF["float32"] * (np.abs(straight) + np.abs(crossed))
    bound[..., :width] = _HIGHER_ORDERS * (of_x + roundings)
    return Expectation(value, bound)


def stored(y: Expectation, dtype: str, factor: Wide | None = None, offset: Wide | None = None) -> Expectation:
    """Return y rounded to its type, or with a factor ``y * factor + offset`` rounded to int8. The factor has
    an error of one rounding, because npu_rope computes it from a divisor."""
    if factor is None:
        is_exact = not y.bound.any()
        rounding = UNIT_ROUNDOFF[dtype] * (np.abs(y.value) + y.bound) + SMALLEST_SUBNORMAL[dtype]
        return y if is_exact else Expectation(y.value, y.bound + rounding)
    product = y.value * factor
    value = product if offset is None else product + offset
    u = UNIT_ROUNDOFF["float32"]
    bound = y.bound * np.abs(factor) + 2 * u * np.abs(product) + u * np.abs(value)
    return Expectation(*int8_expectation(value, _HIGHER_ORDERS * bound))


# The bounds add first-order errors; their products are smaller than this share of the sum.
_HIGHER_ORDERS = 1.001


def in_rows(
    before: Array, tokens: Expectation, index: Array, block_size: int, cache_mode: str, width: int
) -> Expectation:
    """Return the expectation of a cache with these contents before the call.

    Args:
        before: ``[B,N,rows,D]`` in mode Norm, else ``[blocks, block_size, N, D]``; for
            npu_qkv_rms_norm_rope_cache ``[blocks, N*D/width, block_size, width]``.
        tokens: the stored values of each token, ``[B,N,S,D]``.
        index: as npu_kv_rmsnorm_rope_cache takes it in that mode.
        width: the elements of a column in the modes NZ.
    """
    value, bound = np.array(before, np.float64), np.zeros(before.shape)
    batches, heads, length, size = tokens.value.shape
    rows, columns = np.asarray(index).reshape(batches, -1), size // width
    by_block = "BLK" in cache_mode
    for batch, head, token in np.ndindex(batches, heads, length):
        row = int(rows[batch, token // block_size if by_block else token])
        if row < 0:
            continue
        block, inner = row // block_size, (token if by_block else row) % block_size
        for result, source in ((value, tokens.value), (bound, tokens.bound)):
            x = source[batch, head, token]
            if cache_mode == "Norm":
                result[batch, head, row] = x
            elif not cache_mode.endswith("NZ"):
                result[block, inner, head] = x
            else:
                in_columns = result.reshape(-1, heads * columns, block_size, width)  # a view
                in_columns[block, head * columns : (head + 1) * columns, inner] = x.reshape(columns, width)
    return Expectation(value, bound)
