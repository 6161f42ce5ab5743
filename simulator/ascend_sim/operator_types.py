"""Element types of an operator's tensors: NumPy's and CANN's names and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ascend_sim.errors import bad_type


@dataclass(frozen=True)
class ElementType:
    """An element type by its numbers and names.

    Attributes:
        number: of ge::DataType.
        name: of NumPy or ml_dtypes.
        kernel_type: the value of the kernel's macro ``DTYPE_X``.
        enumerator: the value of the kernel's macro ``ORIG_DTYPE_X``.
    """

    number: int
    name: str
    kernel_type: str
    enumerator: str


# asc-devkit cmake/asc/fwk_modules/util/ascendc_impl_build.py, DTYPE_MAP.
TYPES = (
    ElementType(0, "float32", "float", "DT_FLOAT"),
    ElementType(1, "float16", "half", "DT_FLOAT16"),
    ElementType(2, "int8", "int8_t", "DT_INT8"),
    ElementType(3, "int32", "int32_t", "DT_INT32"),
    ElementType(4, "uint8", "uint8_t", "DT_UINT8"),
    ElementType(6, "int16", "int16_t", "DT_INT16"),
    ElementType(7, "uint16", "uint16_t", "DT_UINT16"),
    ElementType(8, "uint32", "uint32_t", "DT_UINT32"),
    ElementType(9, "int64", "int64_t", "DT_INT64"),
    ElementType(10, "uint64", "uint64_t", "DT_UINT64"),
    ElementType(11, "float64", "double", "DT_DOUBLE"),
    ElementType(12, "bool", "bool", "DT_BOOL"),
    ElementType(27, "bfloat16", "bfloat16_t", "DT_BF16"),
    ElementType(29, "int4", "int4b_t", "DT_INT4"),
)
BY_NUMBER = {row.number: row for row in TYPES}
_BY_NAME = {row.name: row for row in TYPES}
# The names of ge::Format by number.
FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 27: "NDHWC", 29: "FRACTAL_NZ", 30: "NCDHW", 47: "NCL"}
ND = 2

Array = npt.NDArray[Any]


def type_of(name: str, array: Array) -> ElementType:
    """Return an array's type; int4 is that of ml_dtypes.

    Raises:
        TypeError: CANN lacks the type.
    """
    if array.dtype.name not in _BY_NAME:
        raise bad_type(f"{name} must be {', '.join(_BY_NAME)} but got {array.dtype}.")
    return _BY_NAME[array.dtype.name]


def name_of(number: int) -> str:
    """Return NumPy's name of a type, or CANN's number if the simulator lacks it."""
    return BY_NUMBER[number].name if number in BY_NUMBER else f"type {number}"


def device_array(array: Array) -> Array:
    """Return the bytes of an array as a device has them: two int4 in each byte, the first in the low bits."""
    if array.dtype.name != "int4":
        return array
    nibbles = array.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
    nibbles = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
    return nibbles[0::2] | (nibbles[1::2] << 4)


def copy_back(array: Array, device: Array) -> None:
    """Copy a device's bytes, made by :func:`device_array`, to the array that they came from."""
    if device is array:
        return
    nibbles = np.stack([device & 0xF, device >> 4], axis=-1).reshape(-1)[: array.size].astype(np.int16)
    numbers = np.where(nibbles > 7, nibbles - 16, nibbles)  # two's complement of 4 bits
    array[...] = numbers.astype(np.int8).astype(array.dtype).reshape(array.shape)
