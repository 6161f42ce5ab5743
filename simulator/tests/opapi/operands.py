"""Random operands for tests of the stand-ins, views with unusual strides, and checks of refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aclnn import TYPES as NUMBER_OF_TYPE
from aclnn import Device, RefusedPhase, Stored
from ml_dtypes import bfloat16

INVALID, NULL = 161002, 161001
NOT_SUPPORTED = 200001  # of an option that the stand-in lacks
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


def random_of(name: str, shape: Any, seed: int = 0, limit: int = 100) -> Any:
    """An array of integers below `limit`, which every type represents exactly."""
    values = np.random.default_rng(seed).integers(0, 2 if name == "bool" else limit, shape)
    return np.asarray(values).astype(TYPES[name])


def strided(array: Any) -> Any:
    """A view with the same elements and shape: every second element of a larger array of ones."""
    owner = np.ones([2 * n + 1 for n in array.shape], array.dtype)
    view = owner[(..., *(slice(1, None, 2) for _ in array.shape))]
    view[...] = array
    return view


def formatted(array: Any, form: int) -> Stored:
    """A contiguous array as a tensor of a plain format."""
    steps = tuple(step // array.itemsize for step in array.strides)
    return Stored(array, NUMBER_OF_TYPE[array.dtype.name], array.shape, steps, form)


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


UNLISTED_CHIP = "its document does not list the chip"


def prepared(device: Device, op: str, given: dict[str, Any]) -> tuple[int, list[str]]:
    """Run the first phase. Return the bytes of workspace, and how the call goes beyond the function's
    document, by the report."""
    before = device.calls_beyond_documents()
    try:
        size, _ = device.prepare(op, given)
    finally:
        device.free_tensors()
    counted = {call: n - before.get(call, 0) for call, n in device.calls_beyond_documents().items()}
    new = [call for call, n in counted.items() if n]
    prefix = f"aclnn{op} on {device.soc}: "
    assert all(call.startswith(prefix) and counted[call] == 1 for call in new)
    return size, [call.removeprefix(prefix) for call in new]


def reasons_beyond_document(device: Device, op: str, given: dict[str, Any]) -> list[str]:
    """The first phase accepts the call. Return how it goes beyond the function's document."""
    return prepared(device, op, given)[1]


def assert_beyond_document(device: Device, op: str, given: dict[str, Any], reason: str) -> None:
    """The first phase accepts the call, and reports one reason that its document excludes it."""
    assert reason in reasons_beyond_document(device, op, given)


def check_types(
    device: Device,
    op: str,
    given_of: Any,
    names: list[str],
    on_910b: tuple[str, ...] = (),
    undocumented: tuple[str, ...] = (),
    is_310p_unlisted: bool = False,
    unsimulated: tuple[str, ...] = (),
) -> None:
    """Accept `given_of(name)` for `names`, and for `on_910b` but on Ascend310P; refuse every other type.

    Types in `undocumented` are accepted and reported. If `is_310p_unlisted`, so is every call on Ascend310P.
    CANN accepts the types in `unsimulated`, and the stand-in does not.
    """
    documented = {*names, *(() if device.is_310p else on_910b)} - {*undocumented}
    for name in TYPES:
        given = given_of(name)
        if name in unsimulated:
            assert_refused(device, op, given, "is not simulated", NOT_SUPPORTED)
            continue
        if name not in documented | {*undocumented}:
            assert_refused(device, op, given, "must be .* but got " + name)
            continue
        reasons = reasons_beyond_document(device, op, given)
        if device.is_310p and is_310p_unlisted:
            assert UNLISTED_CHIP in reasons
        else:
            assert bool(reasons) == (name in undocumented), (op, name, reasons)
