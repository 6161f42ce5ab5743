"""Rounding of float64 results to dtypes, including bfloat16, which NumPy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def bfloat16_bits(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint16]:
    """Convert float64 (or narrower) values to bfloat16's bits, rounding once, to nearest even.

    The intermediate float32 is rounded to odd, so that the second rounding gives the result of a single one
    (Boldo & Melquiond 2008: 24 >= 8 + 2 bits).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # invalid: a signalling NaN
        wide = np.atleast_1d(np.asarray(values, np.float64))
        narrow = wide.astype(np.float32)
    bits = narrow.view(np.uint32).copy()
    widened = narrow.astype(np.float64)
    inexact = np.isfinite(widened) & (widened != wide)
    # Round to odd: truncate where float32 rounded away from zero, then set the last bit.
    away = inexact & (np.abs(widened) > np.abs(wide))
    bits[away] -= 1
    bits[inexact] |= 1
    overflowed = np.isinf(narrow) & np.isfinite(wide)
    bits[overflowed] = (bits[overflowed] & 0x80000000) | 0x7F7FFFFF
    nan = np.isnan(wide)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    out = (rounded >> 16).astype(np.uint16)
    out[nan] = ((bits[nan] >> 16) | 0x40).astype(np.uint16)
    return out.reshape(np.shape(values))


def bfloat16_values(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert bfloat16's bits to float32 values, which is exact."""
    return (np.atleast_1d(bits).astype(np.uint32) << 16).view(np.float32).reshape(np.shape(bits))


def rounded_to(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    """Round float64 values once, to nearest even, to values of a dtype; return them as float64."""
    if dtype == "bfloat16":
        return bfloat16_values(bfloat16_bits(values)).astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(dtype).astype(np.float64)
