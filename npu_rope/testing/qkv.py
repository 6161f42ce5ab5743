"""Expected results of qkv_norm_rope_cache with bounds of their errors on the CPU.

A head that is normalized has the relative error of Normalized (``bounds.normalized_error``), of its factor
(scale + scale_offset), and of their product; the sum with the bias rounds once more. The rotation adds
these errors of both lanes, times |cos| and |sin|, to its own (``bounds.rotation_bound``). An int8 value
also has the errors of the product with the factor, of the sum with the offset, and half a unit of the
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes
from npu_rope.reference import qkv_norm_rope_cache as reference
from npu_rope.testing.bounds import (
    SMALLEST_SUBNORMAL,
    TABLE_ERROR_HOST,
    UNIT_ROUNDOFF,
    int8_expectation,
    normalized_error,
    square_sums_bound,
)

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]

# The bounds add first-order errors; their products are smaller than this share of the sum.
_HIGHER_ORDERS = 1.001


class Expected(NamedTuple):
    """A result in float64, and the largest allowed error of each element."""

    value: Wide
    bound: Wide


def expected_results(
    call: CallTensors[Array],
    attributes: QkvAttributes,
    dtype: str,
    out_dtypes: dict[str, str],
    table_error: float = TABLE_ERROR_HOST,
) -> dict[str, Expected]:
    """Return the expectation for q, k and v ``[S,N,D]`` of all tokens by name, before they are stored.

    Args:
        call: the call's arrays; bfloat16 values are held in float32 arrays.
        attributes: the call's attributes.
        dtype: the name of q's type.
        out_dtypes: the names of the outputs' types by ``q``, ``k`` and ``v``.
        table_error: largest error of a computed sine or cosine.
    """
    values = reference.qkv_norm_rope_cache(call, attributes)
    results = {}
    for name in call.xs:
        exact = values[name]
        error = np.zeros(exact.shape)
        if name in "qk":
            error = _rotated_error(call, attributes, name, dtype, table_error)
        results[name] = _stored(call, name, Expected(exact, error * _HIGHER_ORDERS), dtype, out_dtypes[name])
    return results


def _rotated_error(
    call: CallTensors[Array], attributes: QkvAttributes, name: str, dtype: str, table_error: float
) -> Wide:
    """Return the error of q or k before it is rounded to its output's type."""
    u = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    x = call.xs[name].astype(np.float64)
    head = reference.normalized(x, call, name, attributes)
    scale, bias = (call.other_inputs.get(f"{name}_{part}") for part in ("scale", "bias"))
    error = np.zeros(x.shape)
    if scale is not None:
        per_head = scale.shape[0] == x.shape[2]
        elements = x.shape[2] if per_head else x.shape[1] * x.shape[2]
        product = head if bias is None else head - bias.astype(np.float64).reshape(-1, x.shape[2])
        precision = "float64" if dtype == "float64" else "float32"
        error = np.abs(product) * (normalized_error(elements, precision) + 2 * u)
        if bias is not None:
            error = error + u * np.abs(head)
    c1, s1, c2, s2 = (np.abs(t) for t in reference.tables(call, attributes))
    first, second = attributes.params.pair_lanes()
    x1, x2, e1, e2 = (np.abs(t[..., lanes]) for t in (head, error) for lanes in (first, second))
    if "cos" in call.other_inputs:
        table_error = 0.0
    table_error *= max(1.0, abs(attributes.params.mscale()))
    rotated = error.copy()
    sums = table_error * (x1 + x2)
    rotated[..., first] = c1 * e1 + s1 * e2 + 2 * u * (x1 * c1 + x2 * s1) + sums
    rotated[..., second] = c2 * e2 + s2 * e1 + 2 * u * (x2 * c2 + x1 * s2) + sums
    return rotated


def _stored(call: CallTensors[Array], name: str, y: Expected, dtype: str, out_dtype: str) -> Expected:
    """Return the expectation of a result that is rounded to its output's type."""
    if out_dtype != "int8":
        is_exact = name == "v" and out_dtype == dtype
        rounding = UNIT_ROUNDOFF[out_dtype] * np.abs(y.value) + SMALLEST_SUBNORMAL[out_dtype]
        return Expected(y.value, y.bound if is_exact else y.bound + rounding)
    u = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    factor, offset = (call.other_inputs.get(f"{name}_quant_{part}") for part in ("scale", "offset"))
    assert factor is not None  # the rules demand it
    wide_factor = reference.by_head(factor)
    product = y.value * wide_factor
    value = product if offset is None else product + reference.by_head(offset)
    bound = y.bound * np.abs(wide_factor) + _HIGHER_ORDERS * u * (np.abs(product) + np.abs(value))
    return Expected(*int8_expectation(value, bound))


def in_cache(before: Array, tokens: Expected, slots: Array) -> Expected:
    """Return the expectation of a cache ``[rows,N,D]`` or ``[blocks,block_size,N,D]`` with these contents
    before the call. Rows without a token stay unchanged."""
    value, bound = before.astype(np.float64), np.zeros(before.shape)
    used, rows = slots >= 0, token_rows(before, slots)
    value[rows], bound[rows] = tokens.value[used], tokens.bound[used]
    return Expected(value, bound)


def token_rows(cache: Array, slots: Array) -> Any:
    """Return the index of the rows of a cache ``[rows,N,D]`` or ``[blocks,block_size,N,D]`` that receive
    tokens."""
    used = slots[slots >= 0]
    return used if cache.ndim == 3 else np.divmod(used, cache.shape[1])


def square_sums_expectation(heads: Sequence[Array], dtype: str, backend: str) -> Expected:
    """Return the expectation for qk_square_sums ``[S,2]`` of queries and keys ``[S,N,D]`` on a back end. Sums
    that float32 cannot represent are infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.stack([(x.astype(np.float64) ** 2).sum((1, 2)) for x in heads], axis=1)
        if dtype != "float64":
            sums[np.isinf(sums.astype(np.float32))] = np.inf
    bounds = [
        square_sums_bound(sums[:, side], x.shape[1] * x.shape[2], dtype, backend)
        for side, x in enumerate(heads)
    ]
    return Expected(sums, np.stack(bounds, axis=1))
