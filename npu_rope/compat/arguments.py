"""Rules of Python arguments that functions of several libraries share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from npu_rope.errors import bad_type, bad_value
from npu_rope.optional_torch import torch
from npu_rope.values import integer


def integer_or_symbol(op: str, name: str, value: Any) -> Any:
    """Return an integer as an int, or a symbolic size of a trace as it is.

    Raises:
        TypeError, ValueError: the value is neither, or is not in the int64 range.
    """
    if torch is not None and isinstance(value, torch.SymInt):
        return value
    return integer(name, value, op, bits=64)


def integers(op: str, name: str, given: Any, count: str) -> list[Any]:
    """Return the integers of a sequence.

    Args:
        count: the number of integers as a word, for the error. The caller checks the number.

    Raises:
        TypeError, ValueError: the argument is no sequence, or one of its elements is no integer.
    """
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise bad_type(op, name, f"be {count} integers", repr(given))
    return [integer_or_symbol(op, f"{name}[{i}]", n) for i, n in enumerate(given)]


def require_one_of(op: str, name: str, value: Any, names: Collection[str]) -> None:
    """Raise ValueError if a value is not one of the names."""
    if not (isinstance(value, str) and value in names):
        raise bad_value(op, name, f"be one of {', '.join(names)}", repr(value))
