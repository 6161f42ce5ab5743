"""Tensors and attributes of a call of qkv_norm_rope_cache. ``csrc/core/qkv_norm_rope_cache_check.cpp`` has
the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_rope.call_tensors import CallTensors, given
from npu_rope.params import RopeParams
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.values import Angle, AnglePolicy, angle_policy, integer, number

OP = "qkv_norm_rope_cache"
# The tensors in the order of npu_rope_qkv_inputs and npu_rope_qkv_outputs. With slots, the last two outputs
# are caches.
XS = ("q", "k", "v")
OTHERS = (
    *("q_scale", "k_scale", "q_bias", "k_bias", "square_sums"),
    *("positions", "freq_factors", "cos", "sin"),
    *("slots", "k_quant_scale", "k_quant_offset", "v_quant_scale", "v_quant_offset"),
)
OUTS = ("q_out", "k_out", "v_out")
CACHES = ("k_cache", "v_cache")


def qkv_tensors(
    xs: Mapping[str, Any], others: Mapping[str, Any], outs: Mapping[str, Any]
) -> CallTensors[Any]:
    """Return a call, without the tensors that are None."""
    xs, outs = given(**xs), given(**outs)
    own_input = dict(zip(OUTS, XS, strict=True))
    in_place = tuple(x for out, x in own_input.items() if out in outs and outs[out] is xs.get(x))
    others = given(**others)
    written = (OUTS[0], *CACHES) if "slots" in others else OUTS
    return CallTensors(OP, xs, others, outs, in_place, (*XS, *OTHERS), written)


@dataclass(frozen=True, slots=True)
class QkvAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        params: the parameters of the rotation.
        epsilon: added to the mean square.
        scale_offset: added to the scales.
        ranks: the number of ranks whose heads ``square_sums`` covers.
        angle: the angle policy.
    """

    params: RopeParams
    epsilon: float = 1e-5
    scale_offset: float = 0.0
    ranks: int = 1
    angle: AnglePolicy = "exact"

    @property
    def checked(self) -> dict[str, Any]:
        """The attributes that csrc/core checks, by name."""
        numbers = {"epsilon": self.epsilon, "scale_offset": self.scale_offset, "ranks": self.ranks}
        return {"params": self.params, "angle": self.angle, **numbers}

    def as_schema(self) -> dict[str, Any]:
        """Return the attributes by their names in torch's schemas."""
        named = RmsNormRopeAttributes(self.params, self.epsilon, angle=self.angle).as_schema()
        del named["intermediate_rounding"]
        return {**named, "scale_offset": self.scale_offset, "ranks": self.ranks}

    def as_aclnn(self) -> dict[str, Any]:
        """Return the attributes by their names in the operator's definition."""
        numbers = {"epsilon": self.epsilon, "scale_offset": self.scale_offset, "ranks": self.ranks}
        return {**RopeCallAttributes(self.params).as_aclnn(), **numbers}


def attributes_of(params: Any, epsilon: Any, scale_offset: Any, ranks: Any, angle: Angle) -> QkvAttributes:
    """Return the attributes of a Python function's call.

    Raises:
        ValueError, TypeError: an attribute breaks its rule.
    """
    return QkvAttributes(
        params,
        number("epsilon", epsilon, OP),
        number("scale_offset", scale_offset, OP),
        integer("ranks", ranks, OP, bits=64),
        angle_policy(OP, angle),
    )
