"""Calls on small NumPy arrays and torch tensors without checks in Python: the library reads them itself
(``csrc/capi/python.cpp``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npu_rope import native
from npu_rope.params import RopeParams
from npu_rope.values import ANGLE_POLICIES


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
            try:
                packed = attributes[0].__dict__["_packed_bytes"][attributes[1:]]
            except KeyError:
                packed = packed_with_params(op, *attributes)
        else:
            packed = native.packed_values(op, *attributes)
        results = tuple(outs or [np.empty(x.shape, (x if typed is None else typed).dtype) for x in xs])
        done = native.load().small_entries[op](packed, *xs, *other_inputs, *results)
    except (LookupError, AttributeError, TypeError, ValueError):
        return None
    return results if done else None


def packed_with_params(op: str, params: RopeParams, *values: Any) -> bytes:
    """Return the attributes of an operator as :func:`npu_rope.native.packed` does, cached in params.

    Args:
        values: the attributes after params, the last of which is the angle policy or its number.

    Raises:
        TypeError, ValueError, IndexError: params is no RopeParams, or the angle policy is unknown.
    """
    if params.__class__ is not RopeParams:
        raise TypeError(params)
    cached: dict[Any, bytes] = params.__dict__.setdefault("_packed_bytes", {})
    *others, angle = values
    if angle.__class__ is int and angle >= 0:
        angle = ANGLE_POLICIES[angle]
    if angle.__class__ is not str:  # a key of the number 1 would be found for True
        raise TypeError(angle)
    key = *others, angle
    packed = cached.get(key)
    if packed is None:
        policy = ANGLE_POLICIES.index(angle)
        packed = cached[key] = bytes(native.packed_type(op)(native.c_params(params), *others, policy))
    return packed


def functions_on_tensors(
    tensor: Any, watchers: Sequence[Callable[[], Any]]
) -> dict[str, Callable[..., bool]]:
    """Return :func:`npu_rope.native.small_entries` for tensors.

    Raises:
        BackendUnavailable: the library is unavailable.
    """
    return native.small_entries(native.load().path, tensor, watchers)
