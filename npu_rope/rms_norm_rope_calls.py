"""Tensors and attributes of a call of rms_norm_rope. ``csrc/core/rms_norm_rope_check.cpp`` has the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from npu_rope.call_tensors import CallTensors, call_of, given, named_outs
from npu_rope.params import RopeParams
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.values import Angle, AnglePolicy, angle_policy, flag, number

T = TypeVar("T")

OP = "rms_norm_rope"


def rms_norm_rope_tensors(
    q: T,
    k: T,
    q_scale: T,
    k_scale: T,
    positions: T,
    freq_factors: T | None = None,
    out: tuple[T, T] | None = None,
    rows: T | None = None,
) -> CallTensors[T]:
    """Return a call of rms_norm_rope. With rows, the second of ``out`` is a cache."""
    other_inputs = {"q_scale": q_scale, "k_scale": k_scale, "positions": positions}
    other_inputs |= given(rows=rows, freq_factors=freq_factors)
    outs = named_outs(("q_out", "k_out" if rows is None else "cache"), out)
    return call_of(OP, {"q": q, "k": k}, other_inputs, outs)


def scales_of(call: CallTensors[T]) -> tuple[T, T]:
    """Return q_scale and k_scale, the factors of the normalized heads."""
    return call.other_inputs["q_scale"], call.other_inputs["k_scale"]


@dataclass(frozen=True, slots=True)
class RmsNormRopeAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        params: the parameters of the rotation.
        epsilon: added to the mean square.
        intermediate_rounding: each step rounds to the tensors' type.
        angle: the angle policy.
    """

    params: RopeParams
    epsilon: float = 1e-5
    intermediate_rounding: bool = False
    angle: AnglePolicy = "exact"

    @property
    def checked(self) -> dict[str, Any]:
        """The attributes that csrc/core checks, by name."""
        return {"params": self.params, "epsilon": self.epsilon, "angle": self.angle}

    def as_schema(self) -> dict[str, Any]:
        """Return the attributes by their names in torch's schemas."""
        named = RopeCallAttributes(self.params, angle=self.angle).as_schema()
        del named["forward"]
        return {**named, "epsilon": self.epsilon, "intermediate_rounding": self.intermediate_rounding}

    def as_aclnn(self) -> dict[str, Any]:
        """Return the attributes by their names in the operator's definition."""
        named = RopeCallAttributes(self.params).as_aclnn()
        return {**named, "epsilon": self.epsilon, "intermediate_rounding": self.intermediate_rounding}

    def norm_stash_type(self, dtype: str) -> int:
        """Return the stash type of rms_norm on heads of that dtype, by ONNX's number: float64 for float64
        data without intermediate rounding, else float32."""
        return 11 if dtype == "float64" and not self.intermediate_rounding else 1


def attributes_of(
    params: RopeParams, epsilon: Any, intermediate_rounding: Any, angle: Angle
) -> RmsNormRopeAttributes:
    """Return the attributes of a Python function's call.

    Raises:
        ValueError, TypeError: an attribute breaks its rule.
    """
    rounding = flag(OP, "intermediate_rounding", intermediate_rounding)
    return RmsNormRopeAttributes(params, number("epsilon", epsilon, OP), rounding, angle_policy(OP, angle))
