"""Rounding float64 results to the dtypes NumPy lacks or would round twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def bfloat16_bits(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint16]:
    """float64 (or narrower) to bfloat16's bits, rounded once, to nearest even.

    Going through float32 would round twice; here the float32 step rounds to odd, after which the
    second rounding is as good as a single one (Boldo & Melquiond 2008: 24 >= 8 + 2 bits).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # invalid: a signalling NaN
        wide = np.atleast_1d(np.asarray(values, np.float64))
        near = wide.astype(np.float32)
    bits = near.view(np.uint32).copy()
    back = near.astype(np.float64)
    inexact = np.isfinite(back) & (back != wide)
    # Truncate toward zero where float32 rounded away, then set the last bit: round to odd.
    away = inexact & (np.abs(back) > np.abs(wide))
    bits[away] -= 1
    bits[inexact] |= 1
    overflowed = np.isinf(near) & np.isfinite(wide)
    bits[overflowed] = (bits[overflowed] & 0x80000000) | 0x7F7FFFFF
    nan = np.isnan(wide)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    out = (rounded >> 16).astype(np.uint16)
    out[nan] = ((bits[nan] >> 16) | 0x40).astype(np.uint16)
    return out.reshape(np.shape(values))


def bfloat16_values(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """bfloat16's bits as the float32 values they stand for (exact)."""
    return (np.atleast_1d(bits).astype(np.uint32) << 16).view(np.float32).reshape(np.shape(bits))


def rounded_to(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    """float64 rounded once, to nearest even, to what a type can hold; still as float64."""
    if dtype == "bfloat16":
        return bfloat16_values(bfloat16_bits(values)).astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(dtype).astype(np.float64)
