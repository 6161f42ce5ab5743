"""Recognize attention modules whose step between projections and KV cache qkv_norm_rope_cache computes.

A copy of the module is called. In the copy, each projection before the rotation returns random numbers, and
each one after the rotation returns its input. Therefore neither the size nor the device of the weights
matters. The copy shows which
tensors reach the rotation and the cache. Then its results, with and without the operator, must agree.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from npu_rope.integrations import fused_attention, norm_forms, rope_forms, rotation_form
from npu_rope.integrations.attention_forms import (
    CACHES,
    EMBEDDINGS,
    HOOKS,
    FusedForm,
    HeadNorm,
    Rotation,
    params_of,
)
from npu_rope.integrations.function_copies import with_globals
from npu_rope.integrations.norm_forms import NormForm
from npu_rope.integrations.rope_forms import NotKnown, or_not_known

# A result that differs by more than this share of its largest element comes from another computation.
SAME_RESULT = 2e-5
LENGTH = 12  # tokens of a preallocated cache
MAX_COPIED = 1 << 20  # elements of parameters that a copy of a module may have besides its projections
NormForms = Callable[[torch.nn.Module], "NormForm | str"]


def classify(
    module: torch.nn.Module,
    forward: types.FunctionType,
    rotations: Mapping[str, Rotation],
    norm_form: NormForms,
) -> FusedForm:
    """Return the form of an attention module.

    Args:
        module: the module.
        forward: the forward of its class.
        rotations: the recognized rotations that forward calls, by their names.
        norm_form: returns a norm's form, or the reason why it has none.

    Raises:
        NotKnown: it has another form, or raises an exception. The message has the reason.
    """

    def classified(module: torch.nn.Module) -> FusedForm:
        return _Probe(module, forward, rotations, norm_form).form()

    form: FusedForm = or_not_known(classified, module)
    return form


class _Projection(torch.nn.Module):
    """Return random numbers, or the input if the projection follows the rotation."""

    def __init__(self, probe: _Probe, name: str, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.project = partial(probe.project, name)

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        return self.project(x, self.out_features)


class _Cache:
    """A preallocated KV cache of one layer ``[B,N,LENGTH,D]`` that records what it gets."""

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0, dtype=torch.float32)
        self.length = 0
        self.got: list[tuple[Any, torch.Tensor]] = []

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.got.append((keys, values))
        if not self.length:
            self.keys, self.values = (
                torch.zeros(*x.shape[:2], LENGTH, x.shape[-1], dtype=x.dtype) for x in (keys, values)
            )
        index = torch.arange(keys.shape[2]) + self.length
        self.length += keys.shape[2]
        self.keys.index_copy_(2, index, keys)
        self.values.index_copy_(2, index, values)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class _HeadSize(Exception):
    """The rotation was called, with heads of this size."""

    def __init__(self, head: int) -> None:
        super().__init__()
        self.head = head


@dataclass(frozen=True)
class _Rotated:
    """A call of a rotation: its name, its unsqueeze_dim or None, queries and keys before and after it."""

    name: str
    dim: int | None
    heads: tuple[torch.Tensor, torch.Tensor]
    results: tuple[torch.Tensor, torch.Tensor]


class _Probe:
    """The copy of a module, and what its forward did."""

    def __init__(
        self,
        module: torch.nn.Module,
        forward: types.FunctionType,
        rotations: Mapping[str, Rotation],
        norm_form: NormForms,
    ) -> None:
        self.kind, self.forward, self.rotations = type(module), forward, rotations
        self.parameters, self.cache = _parameters(forward)
        self.norms: dict[str, tuple[torch.nn.Module, NormForm | str]] = {}
        self.random: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
        self.projected: list[torch.Tensor] = []  # the results of the last call's projections
        self.outputs: set[str] = set()  # the projections after the rotation
        self.is_rotated = False
        self.copy = self._copied(module, norm_form)

    # ---- the copy

    def _copied(self, module: torch.nn.Module, norm_form: NormForms) -> torch.nn.Module:
        """Return the copy. It shares nothing with the module that a forward may write."""
        copied = torch.nn.Module()
        copied.__class__ = self.kind
        own = {name: value for name, value in vars(module).items() if name not in vars(copied)}
        copied.__dict__.update({n: v for n, v in own.items() if n != "forward"})
        if (config := getattr(module, "config", None)) is not None:
            copied.config = copy.deepcopy(config)
            if hasattr(config, "_attn_implementation"):
                copied.config._attn_implementation = "eager"  # type: ignore[union-attr]
        generator = torch.Generator().manual_seed(0)
        for kind in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, kind).items():
                getattr(copied, kind)[name] = None if tensor is None else self._small(name, tensor)
        for name, child in module.named_children():
            if isinstance(out_features := getattr(child, "out_features", None), int):
                copied._modules[name] = _Projection(self, name, out_features)
                continue
            copied._modules[name] = self._child(name, child)
            if norm_forms.looks_like_norm(child):
                norm = copied._modules[name]
                assert norm is not None
                for parameter in norm.parameters():  # weights of 1 would hide a norm of all heads
                    values = torch.rand(parameter.shape, generator=generator, dtype=torch.float32) + 0.5
                    parameter.data.copy_(values)
                self.norms[name] = norm, norm_form(child)
        return copied.train(False)

    def _small(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a parameter or buffer."""
        if tensor.numel() > MAX_COPIED:
            raise NotKnown(f"{name} is no projection and has {tensor.numel()} elements")
        copied = tensor.detach().to("cpu", copy=True)
        return copied.float() if copied.is_floating_point() else copied

    def _child(self, name: str, child: torch.nn.Module) -> torch.nn.Module:
        for parameter in child.parameters():
            self._small(name, parameter)
        copied = copy.deepcopy(child).to("cpu").float()
        for part in copied.modules():
            part.__dict__.pop("forward", None)
            for hooks in HOOKS:
                getattr(part, hooks).clear()
        return copied

    def project(self, name: str, x: torch.Tensor, out_features: int) -> torch.Tensor:
        """Return a projection's result."""
        if self.is_rotated:
            self.outputs.add(name)
        if name in self.outputs:
            return x
        shape = (*x.shape[:-1], out_features)
        if (name, shape) not in self.random:
            generator = torch.Generator().manual_seed(len(self.random))
            self.random[name, shape] = torch.randn(shape, generator=generator, dtype=torch.float32)
        self.projected.append(self.random[name, shape].clone())
        return self.projected[-1]

    # ---- calls of the copy

    def _call(
        self, forward: Callable[..., Any], angles: torch.Tensor, batch: int, cache: Any
    ) -> list[torch.Tensor]:
        """Call a forward and return the tensors of its results.

        Args:
            forward: the forward of the class, or a substitute.
            angles: cos and sin of these are the tables ``[B or 1,S,W]``.
            batch: B.
            cache: the KV cache, or None.
        """
        self.is_rotated, self.projected = False, []
        x = torch.zeros(batch, angles.shape[1], 8, dtype=torch.float32)
        named = {EMBEDDINGS: (angles.cos(), angles.sin()), self.cache: cache}
        if "attention_mask" in self.parameters:
            named["attention_mask"] = None
        with torch.no_grad():
            return list(_tensors(forward(self.copy, x, **named)))

    def _observing(self, observe: Callable[[_Rotated], None]) -> types.FunctionType:
        """Return the forward, in which ``observe`` gets each call of a rotation."""

        def observed(name: str, rotation: Rotation) -> Callable[..., Any]:
            def rotate(heads: Any, cos: Any, sin: Any, dim: Any) -> Any:
                if rotation.form.single:
                    raise NotKnown(f"{name} takes one tensor, not queries and keys")
                if rotation.form.pairs == rotation_form.INTERLEAVED_TO_HALVES:
                    raise NotKnown(f"{name} moves the lanes of a pair")
                named = {} if dim is None else {"unsqueeze_dim": dim}
                results = rotation.function(*heads, cos, sin, **named)
                observe(_Rotated(name, dim, tuple(heads), tuple(results)))
                self.is_rotated = True
                return results

            return rope_forms.with_parameters(rotate, rotation.function, rotation.form)

        return with_globals(self.forward, {n: observed(n, r) for n, r in self.rotations.items()})

    def form(self) -> FusedForm:
        """Return the module's form.

        Raises:
            NotKnown: it has no known form.
        """
        head = self._head_size()
        name, form = self._observed_form(head)
        place = self.rotations[name].form.place
        for width in (head,) if place is None else (head, head // 2):
            self._require_same_results(name, form, width)
        return form

    def _head_size(self) -> int:
        """Return the size of a head."""

        def stop(name: str) -> Callable[..., Any]:
            def rotate(heads: Any, *_: Any) -> Any:
                raise _HeadSize(heads[0].shape[-1])

            rotation = self.rotations[name]
            return rope_forms.with_parameters(rotate, rotation.function, rotation.form)

        try:
            forward = with_globals(self.forward, {name: stop(name) for name in self.rotations})
            self._call(forward, torch.zeros(2, 5, 8, dtype=torch.float32), 2, None)
        except _HeadSize as found:
            return found.head
        raise NotKnown("its forward called no rotation")

    def _observed_form(self, head: int) -> tuple[str, FusedForm]:
        """Return the rotation's name and the form that a call of the module shows."""
        rotated: list[_Rotated] = []
        normalized: list[tuple[str, torch.Tensor, torch.Tensor]] = []  # norm, input, result

        def record(name: str) -> Callable[..., None]:
            return lambda _, given, result: normalized.append((name, given[0], result))

        hooks = [norm.register_forward_hook(record(name)) for name, (norm, _) in self.norms.items()]
        cache = _Cache()
        try:
            angles = _angles(next(iter(self.rotations.values())).form, 2, 5, head)
            self._call(self._observing(rotated.append), angles, 2, cache)
        finally:
            for hook in hooks:
                hook.remove()
        if len(rotated) != 1:
            raise NotKnown(f"its forward calls a rotation {len(rotated)} times")
        if len(cache.got) != 1:
            raise NotKnown(f"its forward updates its cache {len(cache.got)} times")
        call, (keys, values) = rotated[0], cache.got[0]
        if keys is not call.results[1]:
            raise NotKnown("the keys that it stores are not its rotation's result but made from it")
        projected = {_memory(x) for x in self.projected}
        if _memory(values) not in projected:
            raise NotKnown("its values are changed between projection and cache")
        form = self.rotations[call.name].form
        axis = rotation_form.heads_axis(form, call.dim, 3)
        if axis is None:
            raise NotKnown(f"{call.name} gets unsqueeze_dim {call.dim}")
        norms = []
        for what, x in zip(("queries", "keys"), call.heads, strict=True):
            norm, given = next(((n, g) for n, g, y in normalized if _memory(y) == _memory(x)), ("", x))
            if _memory(given) not in projected:
                raise NotKnown(f"its {what} are changed between projection and rotation")
            count = rotation_form.tokens_first(x, axis).shape[-2]
            norms.append(self._head_norm(norm, x, count) if norm else None)
        params = params_of(form, head)
        return call.name, FusedForm((norms[0], norms[1]), axis, self.parameters, self.cache, params)

    def _head_norm(self, name: str, heads: torch.Tensor, count: int) -> HeadNorm:
        """Return a norm of ``count`` heads."""
        norm, form = self.norms[name]
        if isinstance(form, str):
            raise NotKnown(f"{name}: {form}")
        if form.weight is None:
            raise NotKnown(f"{name} has no weight")
        size = norm_forms.weight_of(norm, form.weight).numel()
        head = heads.shape[-1]
        if size not in (head, count * head):
            raise NotKnown(f"{name} normalizes neither each head nor all heads")
        return HeadNorm(name, type(norm), form, size != head)

    def _require_same_results(self, name: str, form: FusedForm, width: int) -> None:
        """Require that the fused forward gives the results and the cache of the module's own code.

        Raises:
            NotKnown: they differ.
        """
        rotation = self.rotations[name]
        probed = {name: Rotation(rotation.function, rotation.form, _refused, None)}
        original = self._observing(lambda *_: None)
        ours = fused_attention.fused_forward(
            self.forward, self.forward, probed, form, takes_rows=lambda *_: True, unwritten=_nan_like
        )
        for batch, table_batch in ((2, 2), (2, 1), (1, 1)):
            caches = _Cache(), _Cache()
            for tokens, kept in ((5, (None, None)), (4, caches), (1, caches), (3, caches)):
                angles = _angles(rotation.form, table_batch, tokens, width)
                expected = self._call(original, angles, batch, kept[0])
                got = self._call(ours, angles, batch, kept[1])
                if not _are_same(expected, got):
                    raise NotKnown("its results change if one operator normalizes, rotates and stores")
            if not _are_same(*([c.keys, c.values] for c in caches)):
                raise NotKnown("its cache changes if one operator normalizes, rotates and stores")


def _refused(*_: Any, **__: Any) -> Any:
    """Take the place of the separate operators: a probe must take the fused one."""
    raise NotKnown("its rotation or its norms do not fit the operator")


def _nan_like(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose use before it is written shows in every result."""
    return torch.full_like(x, torch.nan)


def _parameters(forward: types.FunctionType) -> tuple[tuple[str, ...], str]:
    """Return the names of forward's positional parameters after self, and that of the cache."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    cache = next((name for name in CACHES if name in names), None)
    if cache is None or EMBEDDINGS not in names:
        raise NotKnown(f"its forward does not take {EMBEDDINGS} and a cache")
    known = {names[0], EMBEDDINGS, cache, "attention_mask"}
    if more := [
        p.name for p in parameters if p.name in names and p.default is p.empty and p.name not in known
    ]:
        raise NotKnown(f"its forward takes {', '.join(more)} as well")
    return names, cache


def _angles(form: rotation_form.Form, batch: int, tokens: int, width: int) -> torch.Tensor:
    """Return angles in the layout of the rotation's tables for ``width`` lanes."""
    generator = torch.Generator().manual_seed(batch * 100 + tokens)
    angles = torch.rand(batch, tokens, width // 2, generator=generator, dtype=torch.float32) * 6
    return dict(rope_forms.encodings(angles))[form.tables]


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in _tensors(part)]
    return []


def _are_same(expected: list[torch.Tensor], got: list[torch.Tensor]) -> bool:
    """Return whether tensors have the same shapes and, within rounding errors, the same elements."""
    if [x.shape for x in expected] != [x.shape for x in got]:
        return False
    return all(
        bool((e - g).abs().max() <= SAME_RESULT * e.abs().max()) for e, g in zip(expected, got, strict=True)
    )
