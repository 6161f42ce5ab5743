"""A kernel's arguments on a command line: ``in:x.npy``, ``in:float16[8,2048]``, ``out:float32[3]=y.npy``."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ascend_sim.errors import bad_value
from ascend_sim.files import bytes_of, cause_of, unwritable
from ascend_sim.kernels import Argument, ArrayArgument, In, InOut, Out, Part, Sum
from ascend_sim.operator_types import TYPES

ROLES: dict[str, Any] = {"in": In, "out": Out, "part": Part, "inout": InOut, "sum": Sum}
# Format characters of the module struct for the fields of `--tiling`, by C type.
_STRUCT_FORMATS = {
    "int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H", "int32_t": "i", "uint32_t": "I",
    "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d",
}  # fmt: skip
_INTEGERS = tuple(c_type.removesuffix("_t") for c_type in _STRUCT_FORMATS if c_type.endswith("_t"))
MOST_BYTES = 2**32  # of an array
MOST_TILING_BYTES = 1 << 20  # of a struct; CANN's own are below 64 KiB
MOST_DIMS = 32  # NumPy 1.26 has no more
_UNTYPED = ("|V1", "|V2")  # .npy has no names for 8-bit floats and bfloat16
_CHUNK_ELEMENTS = 1 << 20
DTYPES = ("float16", "float32", "bfloat16", "bool", *_INTEGERS)
_NEW_ARRAY = re.compile(r"(\w+)\[([0-9,]*)\]")
_NEGATIVE_SIZES = re.compile(r"\w+\[[-0-9, ]*-[-0-9, ]*\]")


@dataclass
class _Pipe:
    """A stream as NumPy writes a pipe: through ``write`` only, without a position."""

    stream: Any

    def write(self, data: Any) -> int:
        return int(self.stream.write(data))


@dataclass
class KernelArgument:
    """One argument of the kernel, and the file for its result."""

    text: str
    argument: Argument
    file: Path | None = None

    def write(self, stream: IO[bytes]) -> None:
        """Write the result."""
        if isinstance(self.argument, ArrayArgument):
            np.save(_Pipe(stream), self.argument.array)


def arguments_of(texts: Sequence[str], seed: int) -> list[KernelArgument]:
    """Return the kernel's arguments in order. New inputs hold random numbers, new outputs 0.

    Raises:
        ValueError: a text has another form, a file cannot be read or written, or a dtype is unknown.
    """
    random = np.random.default_rng(seed)
    return [_parse_argument(text, random) for text in texts]


def _parse_argument(text: str, random: np.random.Generator) -> KernelArgument:
    if text == "null":
        return KernelArgument(text, None)
    role, colon, rest = text.partition(":")
    if role == "value" and rest:
        return KernelArgument(text, _number_of(rest))
    if role not in ROLES or not colon or not rest:
        raise bad_value(
            f"argument must be ROLE:FILE.npy, ROLE:DTYPE[SIZES] or ROLE:DTYPE[SIZES]=FILE.npy with a role of "
            f"{', '.join(ROLES)}, or value:NUMBER, or null, but got {text}."
        )
    source, equals, file = rest.partition("=")
    new_array_match = _NEW_ARRAY.fullmatch(source)
    if _NEGATIVE_SIZES.fullmatch(source):
        raise bad_value(f"argument must have sizes that are not negative but got {text}.")
    if new_array_match:
        dtype_name, sizes = new_array_match.groups()
        array = new_array(dtype_name, sizes, None if role in ("out", "part") else random, text)
    else:
        array = read_array(source)
    target = Path(file) if equals else None
    if role == "in" and target is not None:
        raise bad_value(f"argument with the role in must not name a result file but got {text}.")
    if equals and not file:
        raise bad_value(f"argument must name a file after = but got {text}.")
    if target is not None and (fault := unwritable(target)):
        raise bad_value(f"argument {fault}")
    return KernelArgument(text, ROLES[role](array, text), target)


def _number_of(text: str) -> float:
    for number_type in (lambda t: int(t, 0), float):
        try:
            return number_type(text)
        except ValueError:
            continue
    raise bad_value(f"argument must be value:NUMBER but got value:{text}.")


def macros_of(texts: Sequence[str]) -> dict[str, str]:
    """Return macros from texts such as ``NAME=VALUE``."""
    for text in texts:
        if not re.match(r"[A-Za-z_]\w*(\([^()]*\))?(=|$)", text):
            raise bad_value(f"define must be a macro, NAME=VALUE, but got {text}.")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def headers_of(folders: Sequence[Path] | None) -> Sequence[Path]:
    """Return folders of headers, which exist."""
    for folder in folders or ():
        if not folder.is_dir():
            raise bad_value(f"include must be a folder but got {folder}.")
    return folders or ()


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise bad_value(
                "dtype must have ml_dtypes to be bfloat16 but got none: pip install ml_dtypes"
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    if name not in DTYPES:
        raise bad_value(f"dtype must be one of {', '.join(DTYPES)} but got {name}.")
    return np.dtype(name)


def new_array(dtype_name: str, sizes: str, random: np.random.Generator | None, text: str) -> Any:
    """Return an array with random numbers, or zeros without a generator."""
    dtype = _dtype(dtype_name)
    shape = tuple(int(size) for size in sizes.split(",") if size)
    # Also the product without the sizes that are 0, because NumPy computes it.
    if math.prod(size or 1 for size in shape) * dtype.itemsize > MOST_BYTES:
        raise bad_value(f"argument must have at most 4 GiB but got {text}.")
    if len(shape) > MOST_DIMS:
        raise bad_value(f"argument must have at most {MOST_DIMS} dimensions but got {text}.")
    if random is None:
        return np.zeros(shape, dtype)
    array = np.empty(shape, dtype)
    elements = array.reshape(-1)
    for begin in range(0, elements.size, _CHUNK_ELEMENTS):  # the float32 values need little memory
        chunk = elements[begin : begin + _CHUNK_ELEMENTS]
        values = random.standard_normal(chunk.size, dtype=np.float32)
        if dtype.kind == "b":
            chunk[:] = values > 0
        elif dtype.kind in "fV":  # V is the kind of ml_dtypes' bfloat16
            chunk[:] = values.astype(dtype)
        else:
            chunk[:] = (values * 100).astype(np.int64).astype(dtype)  # integers of several digits
    return array


def read_array(file: str, other_form: str = "DTYPE[SIZES]") -> Any:
    """Return the array of a ``.npy`` file, in the byte order of this machine.

    ``other_form`` is how the argument names a new array. The dtype is one of CANN's, or bytes without a type,
    as which NumPy writes the dtypes of ml_dtypes.
    """
    try:
        # Mapped and not read, so that a header with larger sizes than the file's is refused before memory is
        # asked for. Python objects and archives (.npz) cannot be mapped.
        mapped = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:  # NumPy's reader of headers passes on those of tokenize and ast, and others
        cause = cause_of(error).rstrip(".") or type(error).__name__
        raise bad_value(f"argument must be a .npy file or {other_form} but got {file}: {cause}.") from None
    dtype = mapped.dtype.newbyteorder("=")
    names = [each.name for each in TYPES]
    if dtype.name not in names and dtype.str not in _UNTYPED:
        raise bad_value(f"argument must have a dtype of {', '.join(names)} but got {dtype} in {file}.")
    if mapped.nbytes > MOST_BYTES:
        raise bad_value(f"argument must have at most 4 GiB but got {file}.")
    return np.array(mapped, dtype, order="C", ndmin=1, subok=False)


def struct_of(texts: Sequence[str]) -> bytes:
    """Return the bytes of the tiling struct, of which a command line has at most one."""
    if len(texts) > 1:
        raise bad_value(f"tiling must be one struct but got {texts[0]} and {texts[1]}.")
    return tiling_of(texts[0]) if texts else b""


def tiling_of(text: str) -> bytes:
    """Return the tiling struct's bytes, from a file (``@FILE``), hexadecimal digits or typed fields.

    >>> tiling_of("uint32_t=1003,uint32_t=128").hex()
    'eb03000080000000'

    Padding between and after the fields is that of a C struct.

    Raises:
        ValueError: the text has another form, or a number does not fit its type.
    """
    if text.startswith("@"):
        try:
            return bytes_of(Path(text[1:]), MOST_TILING_BYTES)
        except (OSError, ValueError) as error:
            raise bad_value(
                f"tiling must be a file that can be read but got {text}: {cause_of(error)}."
            ) from None
    if "=" not in text:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise bad_value(
                f"tiling must be @FILE, hexadecimal digits or fields such as uint32_t=8,float=1.5 "
                f"but got {text}."
            ) from None
    formats, values = "", []
    for field in text.split(","):
        c_type, _, number = field.partition("=")
        if c_type not in _STRUCT_FORMATS:
            raise bad_value(f"tiling must have fields of {', '.join(_STRUCT_FORMATS)} but got {field}.")
        formats += _STRUCT_FORMATS[c_type]
        try:
            values.append(float(number) if c_type in ("float", "double") else int(number, 0))
            struct.pack(_STRUCT_FORMATS[c_type], values[-1])
        except (ValueError, struct.error):
            raise bad_value(f"tiling must have a {c_type} but got {field}.") from None
    # Zero elements of the largest type pad the end as in C.
    largest_format = max(formats, key=struct.calcsize)
    return struct.pack(f"{formats}0{largest_format}", *values)
