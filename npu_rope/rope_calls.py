"""Tensors and attributes of a call of rope, rope_qk or rope_set_rows. ``csrc/core/rope_check.cpp`` has the
rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from npu_rope.call_tensors import CallTensors, call_of, given, named_outs
from npu_rope.params import RopeParams
from npu_rope.values import ANGLE_POLICIES, AnglePolicy

T = TypeVar("T")

# The numeric parameters. They have the same names in schemas and definitions.
_NUMBERS = (
    *("n_dims", "n_offs", "n_ctx_orig", "freq_base", "freq_scale", "ext_factor", "attn_factor"),
    *("beta_fast", "beta_slow"),
)


def rope_tensors(x: T, positions: T, freq_factors: T | None, out: T | None) -> CallTensors[T]:
    """Return a call of rope."""
    other_inputs = {"positions": positions, **given(freq_factors=freq_factors)}
    return call_of("rope", {"x": x}, other_inputs, given(out=out))


def rope_qk_tensors(
    q: T, k: T, positions: T, freq_factors: T | None, out: tuple[T, T] | None
) -> CallTensors[T]:
    """Return a call of rope_qk."""
    other_inputs = {"positions": positions, **given(freq_factors=freq_factors)}
    return call_of("rope_qk", {"q": q, "k": k}, other_inputs, named_outs(("q_out", "k_out"), out))


def rope_set_rows_tensors(x: T, positions: T, rows: T, freq_factors: T | None, cache: T) -> CallTensors[T]:
    """Return a call of rope_set_rows."""
    other_inputs = {"positions": positions, "rows": rows, **given(freq_factors=freq_factors)}
    return call_of("rope_set_rows", {"x": x}, other_inputs, {"cache": cache})


@dataclass(slots=True)
class RopeCallAttributes:
    """Arguments of a call besides its tensors."""

    params: RopeParams
    forward: bool = True
    angle: AnglePolicy = "exact"

    @property
    def checked(self) -> dict[str, Any]:
        """The attributes that csrc/core checks, by name."""
        return {"params": self.params, "angle": self.angle}

    def as_schema(self) -> dict[str, Any]:
        """Return the attributes by their names in torch's schemas."""
        p = self.params
        return {
            **{name: getattr(p, name) for name in _NUMBERS},
            "rope_mode": int(p.rope_mode),
            "sections": list(p.sections) if any(p.sections) else None,
            "forward": self.forward,
            "angle": ANGLE_POLICIES.index(self.angle),
        }

    def as_aclnn(self) -> dict[str, Any]:
        """Return the attributes by their names in the operators' definitions (op_host/rope_cann.cpp)."""
        named = self.as_schema()
        del named["angle"]
        mode = named.pop("rope_mode")
        return {**named, "mode": mode, "sections": list(self.params.sections)}
