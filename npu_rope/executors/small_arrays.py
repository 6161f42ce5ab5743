"""Calls on small NumPy arrays without checks in Python: the library reads the arrays itself
(``csrc/capi/python.cpp``)."""

from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np

from npu_rope import native
from npu_rope.params import RopeParams
from npu_rope.values import ANGLE_POLICIES

ANGLE_CODES = {policy: code for code, policy in enumerate(ANGLE_POLICIES)}


def run(
    op: str,
    xs: tuple[Any, ...],
    other_inputs: tuple[Any, ...],
    attributes: tuple[Any, ...],
    outs: tuple[Any, ...] | None,
    *,
    typed: Any = None,
) -> tuple[Any, ...] | None:
    """Run a call on the CPU. Return None if that is not possible; the usual path then runs the call or
    reports its error. NumPy's bfloat16 has no buffers, so it takes the usual path.

    Args:
        op: a key of ``Native.small_entries``.
        xs, other_inputs: its inputs, in the order of its arguments. Each result has the shape of one of xs.
        attributes: values of exactly the types of the operator's rules, and a RopeParams.
        outs: the results' arrays; None: new ones.
        typed: the array that has the results' dtype; None: each of xs that of its result.
    """
    for x in xs:
        if x.__class__ is not np.ndarray:
            return None
    for array in other_inputs if outs is None else (*other_inputs, *outs):
        if array is not None and array.__class__ is not np.ndarray:
            return None
    try:
        if attributes[0].__class__ is RopeParams:
            attributes = attributes[0].__dict__["_c_params"], *attributes[1:-1], ANGLE_CODES[attributes[-1]]
        results = tuple(outs or [np.empty(x.shape, (x if typed is None else typed).dtype) for x in xs])
        status = native.load().small_entries[op](*xs, *other_inputs, *attributes, *results)
    except (KeyError, AttributeError, TypeError, ValueError, BufferError, C.ArgumentError):
        return None
    return results if status == 0 else None
