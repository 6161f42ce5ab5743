"""Descriptions of an attention module: its norms, its rotations and the parameters of its forward.

:mod:`.attention_probe` makes them, and :mod:`.fused_attention` runs a module by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_rope.integrations import rotation_form
from npu_rope.integrations.norm_forms import NormForm, weight_of
from npu_rope.integrations.rotation_form import Form
from npu_rope.integrations.table_origins import Uses
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode

EMBEDDINGS = "position_embeddings"  # the parameter of forward that gets (cos, sin)
# Names of the parameter that gets the KV cache.
CACHES = ("cache", "past_key_values", "past_key_value", "layer_past")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class HeadNorm:
    """A norm of an attention's queries or keys.

    Attributes:
        name: the attribute of the attention module that contains the norm.
        kind: the norm's class.
        form: what it computes.
        covers_all_heads: it normalizes all heads of a token together, not each head.
    """

    name: str
    kind: type
    form: NormForm
    covers_all_heads: bool

    def of(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return the norm of this module."""
        norm: torch.nn.Module = getattr(module, self.name)
        return norm

    def applies_to(self, norm: torch.nn.Module, x: torch.Tensor) -> bool:
        """Return whether the operator computes this norm of x: its class is still the same, it has no hooks,
        and its weight has x's dtype."""
        return (
            type(norm) is self.kind
            and not any(getattr(norm, hooks) for hooks in HOOKS)
            and weight_of(norm, str(self.form.weight)).dtype == x.dtype
        )

    def __call__(self, norm: torch.nn.Module, heads: torch.Tensor, axis: int) -> torch.Tensor:
        """Return heads normalized by the module itself."""
        if not self.covers_all_heads:
            normalized: torch.Tensor = norm(heads)
            return normalized
        x = rotation_form.tokens_first(heads, axis)
        return rotation_form.tokens_first(norm(x.flatten(-2)).view(x.shape), axis)


@dataclass(frozen=True)
class FusedForm:
    """The step between the projections and the cache in one attention module.

    Attributes:
        norms: the norms of queries and of keys; None: not normalized.
        axis: the axis of heads, HEADS_FIRST or TOKENS_FIRST.
        parameters: the names of forward's positional parameters after self.
        cache: the parameter that gets the KV cache.
        params: the parameters of the rotation by tables, for each number of rotated lanes. They are made in
            advance, because torch.compile cannot trace the checks of RopeParams.
    """

    norms: tuple[HeadNorm | None, HeadNorm | None]
    axis: int
    parameters: tuple[str, ...]
    cache: str
    params: Mapping[int, RopeParams]

    @property
    def norm_names(self) -> tuple[str, ...]:
        """The attributes that contain the norms."""
        return tuple(norm.name for norm in self.norms if norm)

    def __str__(self) -> str:
        if not self.norm_names:
            return "no norm"
        heads = dict.fromkeys(
            "all heads" if norm.covers_all_heads else "each head" for norm in self.norms if norm
        )
        return f"norm of {' and '.join(heads)}: {', '.join(dict.fromkeys(self.norm_names))}"


@dataclass(frozen=True)
class Rotation:
    """A rotation that an attention module calls.

    Attributes:
        function: the model's function.
        form: what it computes.
        unfused: npu_rope's replacement of the function.
        uses: as for :func:`.rope_forms.replacement`.
    """

    function: Callable[..., Any]
    form: Form
    unfused: Callable[..., Any]
    uses: Uses | None


def params_of(form: Form, head: int) -> dict[int, RopeParams]:
    """Return the parameters of a rotation by tables, for each number of lanes of a head that may rotate."""
    mode = RopeMode.NORMAL if form.pairs == rotation_form.INTERLEAVED else RopeMode.NEOX
    is_last = form.place == rotation_form.LAST_LANES
    widths = [head] if form.place is None else range(2, head + 1, 2)
    return {width: RopeParams(width, mode, n_offs=head - width if is_last else 0) for width in widths}
