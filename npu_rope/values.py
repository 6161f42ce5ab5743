"""Rules of arguments that are single values: flags, integers, numbers, the angle policy."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np

from npu_rope.errors import bad_type, bad_value

AnglePolicy = Literal["exact", "f32", "ggml"]
ANGLE_POLICIES: tuple[AnglePolicy, ...] = get_args(AnglePolicy)
Angle = AnglePolicy | Literal[0, 1, 2]  # a policy's name, or its number in C and in the schemas
Known = Literal["values", "addresses", "layout"]  # what a check may read besides the layout: npu_rope_known


def angle_policy(op: str, angle: Any) -> AnglePolicy:
    """Return the policy of that name or number.

    Raises:
        ValueError: the name or number is unknown.
    """
    for code, policy in enumerate(ANGLE_POLICIES):
        if isinstance(angle, str):
            if angle == policy:
                return policy
        elif isinstance(angle, (int, np.integer)) and not isinstance(angle, bool) and angle == code:
            return policy
    raise bad_value(op, "angle", "be exact (0), f32 (1) or ggml (2)", repr(angle))


def flag(op: str, name: str, value: Any) -> bool:
    """Return a Python or NumPy bool as a bool.

    Raises:
        TypeError: the value is something else.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    got = repr(value) if value is None or isinstance(value, (int, float, str)) else type(value).__name__
    raise bad_type(op, name, "be True or False", got)


def integer(name: str, value: Any, op: str = "rope", *, bits: int = 32) -> int:
    """Return a Python or NumPy integer of at most ``bits`` bits as an int.

    Raises:
        TypeError, ValueError: the value is something else, or does not fit.
    """
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, np.integer)):
        raise bad_type(op, name, "be an integer", repr(value))
    as_int = int(value)
    if not -(2 ** (bits - 1)) <= as_int < 2 ** (bits - 1):
        got = str(as_int) if abs(as_int) < 10**30 else "a number of more than 30 digits"
        raise bad_value(op, name, f"be in the int{bits} range", got)
    return as_int


def number(name: str, value: Any, op: str = "rope") -> float:
    """Return a Python or NumPy number as a float.

    Raises:
        TypeError, ValueError: the value is something else, or an integer beyond float64.
    """
    numbers = int, float, np.integer, np.floating
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, numbers):
        raise bad_type(op, name, "be a number", repr(value))
    try:
        return float(value)
    except OverflowError:
        raise bad_value(op, name, "be finite", "an integer beyond float64") from None


def as_float32(value: float) -> float:
    """Round to float32. ggml, CANN and the tables hold attributes in float32, so the rules judge the rounded
    value, which may be zero or infinite."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return float(np.float32(value))


def require_positive(name: str, value: float, when: str = "", *, op: str = "rope") -> None:
    """Check that a number is positive and finite after rounding to float32.

    Raises:
        ValueError: the number breaks the rule.
    """
    if not (math.isfinite(as_float32(value)) and as_float32(value) > 0):
        raise bad_value(op, name, f"be positive and finite{when}", f"{value:g}")


def rotated_width(op: str, name: str, head: int, width: int) -> int:
    """Return the number of rotated dimensions of a head, from the argument of that name. 0 means all.

    Raises:
        ValueError: the width is odd or wider than the head.
    """
    if width == 0 and (head <= 0 or head % 2):
        raise bad_value(op, "the head size", f"be even and positive where {name} is 0", head)
    if width < 0 or width % 2 or width > head:
        raise bad_value(op, name, f"be 0 or an even number up to the head size {head}", width)
    return width or head
