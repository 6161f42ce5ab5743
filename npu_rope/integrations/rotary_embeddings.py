"""Compare a model's rotary embedding with parameters of rope, and record the positions from which it computed
its tables.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch

from npu_rope.errors import BrokenRule
from npu_rope.integrations import rope_forms, rotation_form
from npu_rope.integrations.rope_forms import NotKnown
from npu_rope.integrations.table_origins import Angles, set_origin
from npu_rope.ops.calls import is_plain_cpu_tensor, records_calls
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode

# Positions 0 to 31 are compared, where rounding a model's angles to float32 changes them by less than 4e-6.
PROBED_POSITIONS = 32
SAME_TABLE = 2e-5
SAME_FREQUENCY = 1e-5  # relative tolerance of float32 frequencies, which transformers rounds at every step
ZERO_FREQUENCY = 1e-20  # absolute tolerance of frequencies: a lower frequency does not rotate


def forward_of(module: torch.nn.Module) -> types.FunctionType:
    """Return the forward of the module's class: a function, unless it is TorchScript's or written in C."""
    forward: types.FunctionType = inspect.getattr_static(type(module), "forward")
    return forward


class _Rope:
    """The parameters with which rope computes the same angles as a rotary embedding, for one kind of tables.

    Args:
        module: the rotary embedding.
        kind: its rope_type.
        layer_type: the layers that take these tables.
        prefix: the beginning of the names of the module's attributes.

    Raises:
        NotKnown: the module's tables do not follow from its configuration.
    """

    def __init__(self, module: torch.nn.Module, kind: str, layer_type: str | None, prefix: str) -> None:
        self.prefix, self.layer_argument = prefix, (layer_type,) if prefix else ()
        if "dynamic" in kind or kind == "longrope":
            raise NotKnown(f"rope_type {kind} changes with the length of the sequence")
        config: Any = getattr(module, "config", None)
        if config is None:
            raise NotKnown("it has no config")
        try:
            self.model = RopeParams.from_hf(config, layer_type)
        except BrokenRule as error:
            rule = f"{error.argument} must {error.rule} but got {error.value}"
            raise NotKnown(f"rope has no parameters for its configuration ({rule})") from None
        params, layout = self.model.params, self._compare(module)
        self.has_sections = params.rope_mode.has_sections
        self.has_fourth_plane = params.rope_mode is RopeMode.IMROPE
        by_pairs = {rotation_form.HALF: params}
        if not self.has_sections:  # the function that takes the tables decides which lanes are pairs
            half, neighbours = (_with_mode(params, mode) for mode in (RopeMode.NEOX, RopeMode.NORMAL))
            by_pairs = {rotation_form.HALF: half, rotation_form.INTERLEAVED_TO_HALVES: half}
            by_pairs[rotation_form.INTERLEAVED] = neighbours
        places = (None, rotation_form.FIRST_LANES)
        forms = {(pairs, layout, place): p for pairs, p in by_pairs.items() for place in places}
        factors = self.model.freq_factors
        self.angles = Angles(forms, None if factors is None else torch.from_numpy(factors), layout)
        # For each module: its state at the last comparison of its tables, and the result.
        self.compared = weakref.WeakKeyDictionary({module: (self._state(module), True)})

    def _state(self, module: torch.nn.Module) -> tuple[Any, int, Any]:
        """Return the values on which the module's tables depend besides the positions: its frequencies, their
        version, which every write changes, and the factor of cos and sin."""
        frequencies = getattr(module, f"{self.prefix}inv_freq", None)
        if not isinstance(frequencies, torch.Tensor) or frequencies.is_inference():
            raise NotKnown(f"it has no tensor {self.prefix}inv_freq that records writes")
        return frequencies, frequencies._version, getattr(module, f"{self.prefix}attention_scaling", None)

    def gives_tables_of(self, module: torch.nn.Module) -> bool:
        """Return whether the module's tables are still those of the parameters. A module that was copied,
        moved or changed since the last comparison is compared again."""
        try:
            state = self._state(module)
            last, result = self.compared.get(module, (None, False))
            if last is None or last[0] is not state[0] or last[1:] != state[1:]:
                result = self._compare(module) == self.angles.layout
                self.compared[module] = state, result
        except Exception:  # a foreign module may raise anything
            return False
        return result

    def _compare(self, module: torch.nn.Module) -> str:
        """Compare the module's tables for some positions with those of the parameters; return their layout.

        Raises:
            NotKnown: they differ.
        """
        theirs, _, _ = self._state(module)
        ours = np.asarray(self.model.frequencies(), np.float64)
        if tuple(theirs.shape) != ours.shape:
            raise NotKnown(f"its {self.prefix}inv_freq has another shape")
        largest_difference = SAME_FREQUENCY * np.abs(ours) + ZERO_FREQUENCY
        if (np.abs(theirs.detach().double().cpu().numpy() - ours) > largest_difference).any():
            raise NotKnown("its frequencies are not those of its configuration")
        has_sections, scale = self.model.params.rope_mode.has_sections, self.model.params.mscale()
        count = PROBED_POSITIONS
        axis_count = 3 if has_sections else 1
        positions = np.stack([np.arange(count) * (axis + 1) % count for axis in range(axis_count)])
        x = torch.zeros(1, count, 8, device=theirs.device, dtype=torch.float32)
        ids = torch.from_numpy(positions).to(x.device)
        with torch.no_grad():
            position_ids = ids[:, None] if has_sections else ids
            result = forward_of(module)(module, x, position_ids, *self.layer_argument)
        cos, sin = _as_tables(result)
        axes = self.model.params.axes() % 3 if has_sections else 0
        angles = torch.from_numpy(ours[None] * positions[axes].T.reshape(count, -1))
        for layout, encoded in rope_forms.encodings(angles):
            if _is_near(cos[0], encoded.cos() * scale) and _is_near(sin[0], encoded.sin() * scale):
                return layout
        raise NotKnown("its tables are not those of its configuration")

    def record(self, cos: torch.Tensor, sin: torch.Tensor, ids: torch.Tensor) -> None:
        """Record position_ids as the origin of these tables, if rope takes positions of that shape."""
        if self.has_sections and ids.ndim == 2:
            ids = ids[None].expand(3, -1, -1)
        if ids.shape != (3,) * self.has_sections + cos.shape[:-1] or ids.device != cos.device:
            return
        # Copied, because the caller may write to its tensor, for example a static buffer of positions.
        positions = ids.to(torch.int64, copy=True)
        if self.has_fourth_plane:  # pairs that no section covers rotate by time
            positions = torch.cat((positions, positions[:1]))
        angles = self.angles if _fits_int32(positions) else replace(self.angles, params={})
        set_origin(cos, sin, positions, angles)


def _fits_int32(positions: torch.Tensor) -> bool:
    """Return whether rope takes these positions. Positions on a device are not read, because the host would
    have to wait for the device."""
    if not is_plain_cpu_tensor(positions) or not positions.numel():
        return True
    values = positions.numpy()
    return bool(values.min() >= -(2**31) and values.max() < 2**31)


def remember_positions(module: torch.nn.Module) -> tuple[Callable[..., Any] | None, list[str]]:
    """Return a forward for this rotary embedding that records the positions of its tables, and notes.

    The forward is None if rope cannot compute any of the module's tables from the module's configuration.
    Each kind of tables that rope cannot compute has a note."""
    kinds = getattr(module, "rope_type", "default")
    nested = isinstance(kinds, dict)
    ropes: dict[str | None, _Rope] = {}
    notes = []
    for layer_type, kind in kinds.items() if isinstance(kinds, dict) else ((None, kinds),):
        try:
            ropes[layer_type] = _Rope(module, str(kind), layer_type, f"{layer_type}_" if nested else "")
        except Exception as error:  # a foreign model may raise anything
            reason = error if isinstance(error, NotKnown) else f"{type(error).__name__} was raised ({error})"
            tables = f"tables for {layer_type}" if nested else "tables"
            notes.append(f"{type(module).__name__}'s {tables} are used: {reason}")
    if not ropes:
        return None, notes
    signature = inspect.signature(forward_of(module))

    def forward(module: Any, *given: Any, **named: Any) -> Any:
        original = forward_of(module)
        if torch.compiler.is_compiling() or records_calls():
            return original(module, *given, **named)
        with contextlib.ExitStack() as stack:
            if torch.is_inference_mode_enabled():  # tensors of this mode do not record writes
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.no_grad())
            result = original(module, *given, **named)
            arguments = signature.bind(module, *given, **named).arguments
            ids, found = arguments.get("position_ids"), ropes.get(arguments.get("layer_type"))
            if found and _is_integer(ids) and found.gives_tables_of(module):
                found.record(*_as_tables(result), ids)
        return result

    return forward, notes


def _as_tables(result: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin from the result of a rotary embedding.

    Raises:
        NotKnown: the result is something else.
    """
    tables = result if isinstance(result, (tuple, list)) else (result,)
    if len(tables) != 2 or not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in tables):
        types_of = " and ".join(str(getattr(t, "dtype", type(t).__name__)) for t in tables)
        raise NotKnown(f"they are {types_of.replace('torch.', '')}, not cos and sin")
    return tables[0], tables[1]


def _is_near(table: torch.Tensor, expected: torch.Tensor) -> bool:
    given = table.double().cpu()
    return given.shape == expected.shape and bool((given - expected).abs().max() <= SAME_TABLE)


def _is_integer(ids: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(ids, torch.Tensor) and not (ids.is_floating_point() or ids.is_complex())


def _with_mode(params: RopeParams, mode: RopeMode) -> RopeParams:
    return RopeParams(**{**params.__getstate__(), "mode": mode})
