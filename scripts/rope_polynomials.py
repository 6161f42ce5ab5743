"""Fit rope's device polynomials and write op_kernel/rotation/polynomials.h.

With r in [-1/2, 1/2] turns and z = r*r, the kernel computes, in float32,

    s  = sin(pi r)   = 2 r + r (a0 + a1 z + .. + a4 z^4)
    c2 = 2 cos(pi r) = b0 + b1 z + .. + b5 z^5
    sin(2 pi r) = s c2,   cos(2 pi r) = 1 - 2 s^2

2 r is separate from the odd polynomial because it is exact. The polynomial is therefore near 0 if |s| is near
1, where the cosine's error is four times the error of s. Each fit starts as the near-minimax polynomial in z.
Then each coefficient moves by one to three float32 steps if this reduces the largest measured error.

usage: rope_polynomials.py [--check]
    --check   write nothing; fail if the header differs from the generated one
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mpmath
import numpy as np

HEADER = Path(__file__).resolve().parents[1] / "op_kernel" / "rotation" / "polynomials.h"
LARGEST_Z = 0.2505  # with rounding, |r| may slightly exceed 1/2
SINE_DEGREE, COSINE_DEGREE = 4, 5  # in z
STEPS = (-3, -2, -1, 1, 2, 3)  # float32 steps by which a coefficient may move

F32 = np.float32
Coefficients = list[np.float32]


def sine_part(z: mpmath.mpf) -> mpmath.mpf:
    """Return (sin(pi r) - 2 r) / r as a function of z."""
    root = mpmath.sqrt(z)
    return (mpmath.sin(mpmath.pi * root) / root if z > 0 else mpmath.pi) - 2


def cosine_part(z: mpmath.mpf) -> mpmath.mpf:
    return 2 * mpmath.cos(mpmath.pi * mpmath.sqrt(z))


def near_minimax(function: object, degree: int) -> Coefficients:
    with mpmath.workdps(50):
        return [
            F32(float(coefficient))
            for coefficient in mpmath.chebyfit(function, [0, LARGEST_Z], degree + 1)[::-1]
        ]


def evaluate(r: np.ndarray, sine: Coefficients, cosine: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Return (sin, cos) of r turns, each step rounded to float32, in the kernel's order."""
    z = r * r
    s, c2 = z * sine[-1], z * cosine[-1]
    for coefficient in sine[-2:0:-1]:
        s = (s + coefficient) * z
    s = (s + sine[0]) * r
    s = s + F32(2) * r
    for coefficient in cosine[-2:0:-1]:
        c2 = (c2 + coefficient) * z
    c2 = c2 + cosine[0]
    return s * c2, (s * s) * F32(-2) + F32(1)


class ErrorMeter:
    """Measures the largest errors against extended precision on a dense grid of float32 turns."""

    def __init__(self, points: int) -> None:
        self.turns = np.linspace(-0.5, 0.5, points).astype(F32)
        angle = self.turns.astype(np.longdouble) * (
            2 * np.longdouble("3.14159265358979323846264338327950288")
        )
        self.sin, self.cos = np.sin(angle), np.cos(angle)

    def errors(self, sine: Coefficients, cosine: Coefficients) -> tuple[float, float]:
        sine_value, cosine_value = evaluate(self.turns, sine, cosine)
        return float(np.abs(sine_value - self.sin).max()), float(np.abs(cosine_value - self.cos).max())


def polish(sine: Coefficients, cosine: Coefficients) -> None:
    """Move each coefficient by one to three float32 steps if this reduces the largest error.
    cosine[0] stays 2, so that position 0 is exact."""
    error_meter = ErrorMeter(100_001)
    least_error = max(error_meter.errors(sine, cosine))
    for polynomial, first in ((sine, 0), (cosine, 1)):
        for i in range(first, len(polynomial)):
            for steps in STEPS:
                before = polynomial[i]
                for _ in range(abs(steps)):
                    polynomial[i] = np.nextafter(polynomial[i], F32(np.copysign(np.inf, steps)))
                largest_error = max(error_meter.errors(sine, cosine))
                if largest_error < least_error:
                    least_error = largest_error
                else:
                    polynomial[i] = before


def header(sine: Coefficients, cosine: Coefficients, errors: tuple[float, float]) -> str:
    def lines(name: str, polynomial: Coefficients) -> str:
        return "\n".join(
            f"constexpr float {name}{i} = {float(coefficient):.9g}f;"
            for i, coefficient in enumerate(polynomial)
        )

    return f"""\
// Written by scripts/rope_polynomials.py; do not edit. With r in [-1/2, 1/2] turns and z = r*r:
// sin(pi r) = 2 r + r (kSin0 + .. + kSin4 z^4), 2 cos(pi r) = kCos0 + .. + kCos5 z^5.
// Largest error in float32 of sin(2 pi r): {errors[0]:.2e}, of cos(2 pi r): {errors[1]:.2e}.
#pragma once

namespace rotation {{

{lines("kSin", sine)}

{lines("kCos", cosine)}

}}  // namespace rotation
""".replace(" = 2f;", " = 2.0f;")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fit rope's device polynomials and write their header.")
    parser.add_argument("--check", action="store_true", help="fail if the header differs; write nothing")
    check = parser.parse_args().check
    sine, cosine = near_minimax(sine_part, SINE_DEGREE), near_minimax(cosine_part, COSINE_DEGREE)
    polish(sine, cosine)
    errors = ErrorMeter(2_000_001).errors(sine, cosine)
    print(f"largest error in float32: sin {errors[0]:.3e}, cos {errors[1]:.3e}; 2^-20 is {2.0**-20:.3e}")
    text = header(sine, cosine, errors)
    if not check:
        HEADER.write_text(text)
        return 0
    if not HEADER.exists() or HEADER.read_text() != text:
        print(f"{HEADER} differs from the generated header: run this script without --check", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
