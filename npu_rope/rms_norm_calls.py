"""Tensors and attributes of a call of rms_norm, rms_norm_rounded_last, rms_norm_backward or add_rms_norm.
The rules are those of ``csrc/core/rms_norm_check.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from npu_rope.call_tensors import CallTensors, TensorSpec, call_of, given
from npu_rope.dtypes import rounded_to
from npu_rope.errors import bad_value
from npu_rope.values import integer, number

T = TypeVar("T")

# ONNX's numbers (TensorProto.DataType) of the types that stash_type may be.
STASH_DTYPES: Mapping[int, str] = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
FORWARD, BACKWARD, ADD = "rms_norm", "rms_norm_backward", "add_rms_norm"
ROUNDED_LAST = "rms_norm_rounded_last"
BACKWARD_DX = "rms_norm_backward_dx"  # torch's operator for a scale that needs no gradient
MAX_NATIVE_NDIM = 4  # NPU_ROPE_MAX_NDIM


def rms_norm_tensors(x: T, scale: T, out: T | None = None) -> CallTensors[T]:
    """Return a call of rms_norm."""
    return call_of(FORWARD, {"x": x}, {"scale": scale}, given(out=out))


def rms_norm_rounded_last_tensors(x: T, scale: T) -> CallTensors[T]:
    """Return a call of rms_norm_rounded_last."""
    return CallTensors(ROUNDED_LAST, {"x": x}, {"scale": scale})


def rms_norm_backward_tensors(grad: T, x: T, scale: T) -> CallTensors[T]:
    """Return a call of rms_norm_backward."""
    return CallTensors(BACKWARD, {"x": x, "grad": grad}, {"scale": scale})


def add_rms_norm_tensors(x: T, residual: T, scale: T, outs: tuple[T, ...] = ()) -> CallTensors[T]:
    """Return a call of add_rms_norm. ``outs`` holds out and sum, or is empty; each may be x or residual."""
    xs = {"x": x, "residual": residual}
    in_place = tuple(name for name, value in xs.items() if any(out is value for out in outs))
    return CallTensors(ADD, xs, {"scale": scale}, dict(zip(("out", "sum"), outs, strict=False)), in_place)


@dataclass(frozen=True, slots=True)
class RmsNormAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        axis: the first normalized dimension; if negative, counted from the end.
        epsilon: added to the mean square.
        stash_type: ONNX's number of the type in which the norm is computed.
        scale_offset: of rms_norm_rounded_last: added to the scale.
    """

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1
    scale_offset: float = 0.0

    @property
    def checked(self) -> dict[str, Any]:
        """The attributes that csrc/core checks, by name."""
        numbers = {"axis": self.axis, "epsilon": self.epsilon, "stash_type": self.stash_type}
        return {**numbers, "scale_offset": self.scale_offset}

    @property
    def stash_dtype(self) -> str:
        """The name of the stash type."""
        return STASH_DTYPES[self.stash_type]

    @property
    def stashed_epsilon(self) -> float:
        """Epsilon in float32, as ONNX stores it, rounded to the stash type."""
        with np.errstate(over="ignore"):
            in_float32 = np.asarray(np.float32(self.epsilon), np.float64)
        return float(rounded_to(in_float32, self.stash_dtype))


def attributes_of(op: str, axis: Any, epsilon: Any, stash_type: Any) -> RmsNormAttributes:
    """Return the attributes of a Python call.

    Raises:
        ValueError, TypeError: an attribute has the wrong type, or an integer has more than 64 bits.
    """
    return RmsNormAttributes(
        integer("axis", axis, op, bits=64),
        number("epsilon", epsilon, op),
        integer("stash_type", stash_type, op, bits=64),
    )


# ---- more dimensions than the C interface has ------------------------------------------------------------


def check_many_sizes(call: CallTensors[TensorSpec], attributes: RmsNormAttributes) -> None:
    """Check the rules that need all sizes, for a call with more dimensions than the C interface allows.

    This function and :func:`joined_sizes` repeat ``csrc/core/rms_norm_dims.h``, because arrays reach C
    code only through that interface.
    """
    x, scale = call.x, call.scale
    ndim = len(x.shape)
    if not -ndim <= attributes.axis < ndim:
        raise bad_value(call.op, "axis", f"be in [{-ndim}, {ndim - 1}]", attributes.axis)
    if not broadcasts(scale.shape, x.shape):
        raise bad_value(call.op, "scale", f"be broadcastable to x's shape {x.text()}", scale.text())
    for name, tensor in {**call.xs, **call.outs}.items():
        if tensor.shape != x.shape:
            raise bad_value(call.op, name, f"have x's shape {x.text()}", tensor.text())
    for name, out in call.outs.items():
        if not is_dense_from(0, out):
            raise bad_value(call.op, name, "be contiguous", f"strides {list(out.strides)}")


def broadcasts(scale: tuple[int, ...], x: tuple[int, ...]) -> bool:
    """Return whether each size of scale, counted from the last, is 1 or x's size."""
    return len(scale) <= len(x) and all(
        s in (1, n) for s, n in zip(reversed(scale), reversed(x), strict=False)
    )


def is_dense_from(axis: int, tensor: TensorSpec) -> bool:
    """Return whether the dimensions from axis on are contiguous in memory."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape[axis:]), reversed(tensor.strides[axis:]), strict=True):
        if size > 1 and stride != expected and 0 not in tensor.shape:
            return False
        expected *= size
    return True


def joined_sizes(x: tuple[int, ...], scale: tuple[int, ...], axis: int) -> tuple[list[int], list[int], int]:
    """Return the sizes of x and scale, and axis, after adjacent dimensions are joined. Two dimensions are
    joined if both or neither are normalized, and scale varies along both or neither."""
    missing_dims = len(x) - len(scale)
    joined_x: list[int] = []
    joined_scale: list[int] = []
    last_varies: bool | None = None
    joined_axis = 0
    for k, size in enumerate(x):
        if k == axis:
            joined_axis, last_varies = len(joined_x), None
        varies = k >= missing_dims and scale[k - missing_dims] != 1
        if size == 1:
            continue
        if varies != last_varies:
            joined_x.append(1)
            joined_scale.append(1)
        joined_x[-1] *= size
        if varies:
            joined_scale[-1] *= size
        last_varies = varies
    if len(joined_x) == joined_axis:
        joined_x.append(1)
        joined_scale.append(1)
    return joined_x, joined_scale, joined_axis
