"""Record the positions from which a model computed cos and sin. A rotation can then compute exact angles from
the positions instead of using these tables.

The record, called origin, is an attribute of the tensor cos. It is valid only for the two tensors that the
rotary embedding returned, as long as nothing is written to them. Copies, slices and casts have no origin.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from npu_rope.params import RopeParams

_ATTRIBUTE = "_npu_rope_origin"

# The attributes pairs, tables and place of a rotation_form.Form.
FormKey = tuple[str, str, str | None]


@dataclass(frozen=True, eq=False)
class Angles:
    """Parameters of rope that give a rotary embedding's tables.

    Attributes:
        params: the parameters for each form of a rotation by these tables that rope can compute.
        freq_factors: a divisor for each frequency, or None.
        layout: the layout of cos and sin, as ``Form.tables``.
    """

    params: Mapping[FormKey, RopeParams]
    freq_factors: torch.Tensor | None
    layout: str


class _Origin:
    """The positions and angles of a pair of tables."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, angles: Angles) -> None:
        self.positions, self.params = positions, angles.params
        factors = angles.freq_factors
        self.freq_factors = None if factors is None else factors.to(positions.device)
        self.cos, self.sin = weakref.ref(cos), weakref.ref(sin)
        self.versions = cos._version, sin._version

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Make None the origin of a deep copy or a pickle of a table."""
        return type(None), ()


def set_origin(cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, angles: Angles) -> None:
    """Record the positions ``[B,S]``, ``[3,B,S]`` or ``[4,B,S]`` and the angles of these tables. The
    positions must be a tensor that no caller refers to. Tables that do not record writes (inference mode) or
    need gradients get no origin."""
    if not any(t.is_inference() or t.requires_grad for t in (cos, sin)):
        setattr(cos, _ATTRIBUTE, _Origin(cos, sin, positions, angles))


@dataclass
class Uses:
    """How one function of a module has rotated so far, at level ``"positions"``.

    Attributes:
        by_positions: a call was rotated by positions.
        tables_reason: the reason why the last call that used the model's tables did so; empty if none did.
    """

    by_positions: bool = False
    tables_reason: str = ""

    def __str__(self) -> str:
        if not self.tables_reason:
            return "by positions" if self.by_positions else "not called yet"
        return f"by {'positions, and by ' * self.by_positions}tables: {self.tables_reason}"

    def note_compiled(self) -> None:
        """Record that a compiled call rotates by the tables."""
        self.tables_reason = "torch.compile does not keep the identity of tables"

    def find(
        self, cos: torch.Tensor, sin: torch.Tensor, form: FormKey
    ) -> tuple[torch.Tensor, RopeParams, torch.Tensor | None] | None:
        """Return the positions, parameters and frequency factors that replace these tables in a rotation of
        that form, or None if the tables must be used. Record which of the two it is."""
        if torch.compiler.is_compiling():
            self.note_compiled()
            return None
        origin: _Origin | None = getattr(cos, _ATTRIBUTE, None)
        if origin is None or origin.cos() is not cos or origin.sin() is not sin:
            self.tables_reason = "they are not the tensors that a verified rotary embedding made"
        elif origin.versions != (cos._version, sin._version):
            self.tables_reason = "they were written to after the rotary embedding made them"
        elif form not in origin.params:
            self.tables_reason = "rope has no such rotation by the positions of these tables"
        else:
            self.by_positions = True
            return origin.positions, origin.params[form], origin.freq_factors
        return None
