"""Read the parameters of a kernel's entry from the source's text, and pack arguments that are numbers.

The loader calls an ``extern "C"`` entry whose parameters are addresses. For any other entry, ``compile``
compiles a function that calls it (include/ascend_sim_entry.h, ``call_with_values``).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ascend_sim.errors import bad_type, bad_value

_INTEGER_LIMITS = {
    f"{prefix}int{bits}_t": ((0, 2**bits - 1) if prefix else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for prefix in ("", "u")
    for bits in (8, 16, 32, 64)
} | {
    "bool": (0, 1),
    "int": (-(2**31), 2**31 - 1),
    "unsigned": (0, 2**32 - 1),
    "unsigned int": (0, 2**32 - 1),
    "size_t": (0, 2**64 - 1),
}
_REAL_TYPES = ("float", "half", "bfloat16_t", "double", "float32_t")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class EntryParameter:
    """A parameter of an entry: its type as the source writes it, without ``const``, and its name."""

    type: str
    name: str

    @property
    def is_number(self) -> bool:
        """Whether the parameter is passed as a number, and not as an address."""
        return self.type in _INTEGER_LIMITS or self.type in _REAL_TYPES


def entry_parameters(source: str | os.PathLike[str], entry: str) -> tuple[EntryParameter, ...] | None:
    """Return the parameters of an entry, from the source's text.

    Return None if the text does not have exactly one definition: the entry may be in a header or be defined
    by a macro.

    Args:
        source: the file.
        entry: the function's name; the arguments of a template, such as ``"scale<float>"``, have no effect.
    """
    text = _COMMENT.sub(" ", Path(source).read_text(errors="replace"))
    name = re.escape(entry.partition("<")[0])
    found = re.findall(rf"\b__global__\b[^;{{}}()]*\b{name}\s*\(([^()#]*)\)", text)
    if len(found) != 1:
        return None
    parameters = []
    for declaration in found[0].split(","):
        match = re.fullmatch(r"\s*(.*?[\s*&])(\w+)\s*", declaration, re.DOTALL)
        if match is None:
            return None
        words = re.sub(r"\bconst\b|__restrict__", " ", match[1]).split()
        parameters.append(EntryParameter(" ".join(words), match[2]))
    return tuple(parameters)


def before_tiling(parameters: Sequence[EntryParameter]) -> tuple[EntryParameter, ...]:
    """Return the parameters before workspace and tiling, or all if the last parameter is not the tiling."""
    has_tiling = len(parameters) >= 2 and "tiling" in parameters[-1].name.lower()
    return tuple(parameters[:-2] if has_tiling else parameters)


def packed_number(parameter: EntryParameter, value: float) -> bytes:
    """Return the eight bytes by which ``call_with_values`` gets a number.

    Raises:
        TypeError: the value is not a number, or not an integer although the parameter is one.
        ValueError: the value is beyond the type's limits.
    """
    if parameter.type in _REAL_TYPES:
        return struct.pack("<d", float(value))
    if not float(value).is_integer():
        raise bad_type(f"{parameter.name} must be an integer ({parameter.type}) but got {value}.")
    least, most = _INTEGER_LIMITS[parameter.type]
    if not least <= int(value) <= most:
        raise bad_value(f"{parameter.name} must be {least} .. {most} ({parameter.type}) but got {value}.")
    return struct.pack("<Q", int(value) % 2**64)
