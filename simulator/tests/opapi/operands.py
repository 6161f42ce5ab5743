"""Random operands for tests of the stand-ins, views with unusual strides, and checks of refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aclnn import Device, RefusedPhase
from ml_dtypes import bfloat16

INVALID, NULL = 161002, 161001
TYPES = {
    "float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": bfloat16,
    "int8": np.int8,
    "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint16": np.uint16,
    "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_, "complex64": np.complex64,
    "complex128": np.complex128,
}  # fmt: skip
HALF_AND_FLOAT = ["float16", "float32"]
REAL = [*HALF_AND_FLOAT, "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
NUMBERS = [*REAL, "complex64", "complex128"]
WIDE_UNSIGNED = ["uint16", "uint32", "uint64"]


def random_of(name: str, shape: Any, seed: int = 0) -> Any:
    """An array of distinct-looking values that every type represents exactly."""
    values = np.random.default_rng(seed).integers(0, 2 if name == "bool" else 100, shape)
    return np.asarray(values).astype(TYPES[name])


def strided(array: Any) -> Any:
    """A view with the same elements and shape: every second element of a larger array, with an offset."""
    owner = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    view = owner[tuple(slice(1, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint8)


def assert_same(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    assert np.array_equal(bits(got), bits(expected))


def assert_refused(
    device: Device, op: str, given: dict[str, Any], message: str, status: int = INVALID
) -> None:
    """The first phase refuses the call with this status and a message that matches."""
    with pytest.raises(RefusedPhase, match=message) as refused:
        device.prepare(op, given)
    device.free_tensors()
    assert refused.value.status == status


def check_types(
    device: Device, op: str, given_of: Any, names: list[str], on_910b: tuple[str, ...] = ()
) -> None:
    """Accept `given_of(name)` for `names`, and for `on_910b` but on Ascend310P; refuse every other type."""
    accepted = {*names, *(() if device.is_310p else on_910b)}
    for name in TYPES:
        given = given_of(name)
        if name in accepted:
            device.prepare(op, given)
            device.free_tensors()
        else:
            assert_refused(device, op, given, "must be .* but got " + name)
