"""Tensors and attributes of a call of rms_norm_rope. ``csrc/core/rms_norm_rope_check.cpp`` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from npu_rope.checks import RopeTensors
from npu_rope.params import RopeParams
from npu_rope.values import Angle, AnglePolicy, angle_policy, flag, number

T = TypeVar("T")
U = TypeVar("U")

OP = "rms_norm_rope"


@dataclass(slots=True)
class RmsNormRopeTensors(RopeTensors[T]):
    """A call of rms_norm_rope.

    Attributes:
        scales: the factors of q's and k's normalized heads, ``q_scale`` and ``k_scale``.
        outs: ``q_out`` and ``k_out``, or with rows ``q_out`` and ``cache``; empty if the operator allocates
            both.
    """

    scales: Mapping[str, T] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """The name of the call's C function, without its prefix."""
        return f"{OP}_set_rows" if self.scatters else OP

    def beside(self) -> dict[str, T]:
        """Return the other inputs, by name, in the C interface's order."""
        return {**self.scales, **RopeTensors.beside(self)}

    def with_beside(self, **named: T) -> RmsNormRopeTensors[T]:
        """Return the call with the other inputs replaced."""
        rows, factors = named.get("rows"), named.get("freq_factors")
        scales = {name: named[name] for name in self.scales}
        return replace(self, scales=scales, positions=named["positions"], rows=rows, freq_factors=factors)

    def map(self, see: Callable[[T], U]) -> RmsNormRopeTensors[U]:
        """Return the call with ``see`` applied to each tensor."""
        seen: RopeTensors[U] = RopeTensors.map(self, see)
        return RmsNormRopeTensors(
            seen.op,
            seen.xs,
            seen.positions,
            seen.freq_factors,
            seen.outs,
            seen.rows,
            seen.in_place,
            {name: see(t) for name, t in self.scales.items()},
        )


def rms_norm_rope_tensors(
    q: T,
    k: T,
    q_scale: T,
    k_scale: T,
    positions: T,
    freq_factors: T | None = None,
    out: tuple[T, T] | None = None,
    rows: T | None = None,
) -> RmsNormRopeTensors[T]:
    """Return a call of rms_norm_rope. With rows the second of ``out`` is a cache."""
    xs, outs = {"q": q, "k": k}, {}
    if out is not None:
        outs = {"q_out": out[0], "k_out" if rows is None else "cache": out[1]}
    in_place = tuple(
        x_name
        for (x_name, x), (name, o) in zip(xs.items(), outs.items(), strict=False)
        if o is x and name != "cache"
    )
    scales = {"q_scale": q_scale, "k_scale": k_scale}
    return RmsNormRopeTensors(OP, xs, positions, freq_factors, outs, rows, in_place, scales)


@dataclass(frozen=True, slots=True)
class RmsNormRopeAttributes:
    """Arguments of a call besides its tensors.

    Attributes:
        params: of the rotation.
        epsilon: added to the mean square.
        intermediate_rounding: each step rounds to the tensors' type.
        angle: the angle policy.
    """

    params: RopeParams
    epsilon: float = 1e-5
    intermediate_rounding: bool = False
    angle: AnglePolicy = "exact"

    @property
    def rules(self) -> dict[str, Any]:
        """The arguments that have rules."""
        return {"params": self.params, "epsilon": self.epsilon, "angle": self.angle}

    def norm_stash_type(self, dtype: str) -> int:
        """Return the stash type of rms_norm on heads of that dtype, by ONNX's number: float64 for float64
        data without intermediate rounding, else float32."""
        return 11 if dtype == "float64" and not self.intermediate_rounding else 1


def attributes_of(
    params: RopeParams, epsilon: Any, intermediate_rounding: Any, angle: Angle
) -> RmsNormRopeAttributes:
    """Return the attributes of a Python call.

    Raises:
        ValueError, TypeError: an attribute breaks its rule.
    """
    rounding = flag(OP, "intermediate_rounding", intermediate_rounding)
    return RmsNormRopeAttributes(params, number("epsilon", epsilon, OP), rounding, angle_policy(OP, angle))
