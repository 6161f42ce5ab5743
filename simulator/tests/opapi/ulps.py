"""Distances in units in the last place, and the operands of tests of elementwise functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from operands import TYPES

# The number of fraction bits, and the exponent of the smallest normal number.
FORMATS = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022)}


def ulp(values: Any, name: str) -> Any:
    fraction_bits, least_exponent = FORMATS[name]
    exponents = np.frexp(np.abs(values))[1] - 1
    return np.ldexp(1.0, np.maximum(exponents, least_exponent) - fraction_bits)


def assert_close(got: Any, expected: Any, ulps: float, epsilons: float = 0.0) -> None:
    """Compare with a float64 array. The permitted error is `ulps` units in the last place of got's type, plus
    `epsilons` machine epsilons of the compute type: float64 for float64, else float32."""
    assert got.shape == expected.shape
    name = got.dtype.name
    got = got.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    is_finite = np.isfinite(expected)
    is_infinite = np.isinf(expected)
    assert np.array_equal(got[is_infinite], expected[is_infinite])
    error = np.abs(got[is_finite] - expected[is_finite])
    allowed = ulps * ulp(expected[is_finite], name)
    allowed += epsilons * 2.0 ** (-52 if name == "float64" else -23)
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


def uniform(name: str, shape: Any = (5, 67), seed: int = 0, low: float = -4, high: float = 4) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(TYPES[name])
