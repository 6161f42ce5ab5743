"""Each family of transformers' models before and after ``apply_npu_rope``, and with nothing in its place.

A family has seven rows: its first norm and its first rotation with the tensors of a decode step, a decode
step after CONTEXT tokens, a prefill of PROMPT tokens, a training step, and the compiled decode step and
prefill. The floor of these rows is transformers' own module, function or model. The rows of models have a
ceiling: the same model whose rotations and norms return their inputs. A patch of rotations and norms cannot
make the model faster than that.

All models of a row share their parameters, so they also share the caches.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from npu_rope.bench.harness import Call, Contestant, Ready, Unsupported
from npu_rope.bench.patched_rows import (
    PATCHED,
    PROMPT,
    UNPATCHED,
    DecodeStep,
    ModelCheck,
    applied,
    tokens_of,
    with_parameters,
)
from npu_rope.bench.peers import require
from npu_rope.bench.rope_rows import DTYPES, Row
from npu_rope.optional_torch import torch
from npu_rope.testing.families import MODELS, ModelSizes, make

GROUP = "patched families"
NORM, ROTATION, DECODE, PREFILL, TRAINING = "norm", "rotation", "decode step", "prefill", "training step"
COMPILED_DECODE, COMPILED_PREFILL = f"compiled {DECODE}", f"compiled {PREFILL}"
EAGER = {COMPILED_DECODE: DECODE, COMPILED_PREFILL: PREFILL}  # by compiled mode
MODES = (NORM, ROTATION, DECODE, PREFILL, TRAINING, *EAGER)
CEILING = "rotation and norms replaced by nothing"
FAMILIES = tuple(name for name in MODELS if name != "llama3")  # llama3 runs the code of llama
SIZES = ModelSizes(
    vocab_size=512,
    hidden_size=512,
    intermediate_size=1024,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=16 * PROMPT,  # the windows of sliding attention have PROMPT tokens
)
TRAINED = 256  # tokens of a training step
MAX_MODULE_ERROR = 4  # of a norm or rotation, in epsilons of the dtype times the largest element


@dataclass(frozen=True)
class FamilyRow(Row):
    """A row of one family."""

    family: str

    @property
    def shape(self) -> str:
        """The model's layers and width. A table has the families with the same shape, dtype and mode."""
        return f"{SIZES.num_hidden_layers} layers of {SIZES.hidden_size}"

    @property
    def name(self) -> str:
        """The name that the pattern of ``--rows`` must match."""
        return super().name.replace(GROUP, f"{GROUP} {self.family}")


def row(family: str, dtype: str, threads: int, mode: str) -> FamilyRow:
    """Return the row of one family, dtype and mode."""
    unused_heads = ((1, 1, 1),)
    return FamilyRow(GROUP, unused_heads, dtype, mode, threads, family)


def rows(dtypes: Sequence[str], threads: int) -> list[Row]:
    """Return every row for one number of threads. Models compute in float32 or bfloat16."""
    used = [dtype for dtype in dtypes if dtype != "f16"]
    return [row(family, dtype, threads, mode) for mode in MODES for family in FAMILIES for dtype in used]


def name_of(family: str, contestant: str) -> str:
    """Return the name of a family's contestant."""
    return f"{family}: {contestant}"


def contestants(bench_row: FamilyRow) -> Iterator[Contestant]:
    """Return transformers' own module, function or model, the patched one, and for a model the ceiling."""
    family, name = _Family(bench_row), partial(name_of, bench_row.family)
    if bench_row.mode in (NORM, ROTATION):
        prepare = family.prepare_norm if bench_row.mode == NORM else family.prepare_rotation
        own, ours = partial(prepare, patched=False), partial(prepare, patched=True)
        yield Contestant(name(UNPATCHED), "floor", own)
        yield Contestant(name(PATCHED), "ours", ours, family.module_check(own))
        return
    eager = EAGER.get(bench_row.mode, bench_row.mode)
    step = {DECODE: DecodeStep, PREFILL: _Prefill, TRAINING: _TrainingStep}[eager]

    def ready(model: Any) -> Ready:
        prepared = step(model)
        if bench_row.mode in EAGER:  # only now: a step may have filled its cache by the model
            model.forward = torch.compile(model.forward, dynamic=False)
        return _ready(prepared)

    yield Contestant(name(UNPATCHED), "floor", lambda: ready(family.copied()))
    check = ModelCheck(family.dtype, family.model_of, lambda model: _ready(step(model)).result)
    yield Contestant(name(PATCHED), "ours", lambda: ready(applied(family.copied())), check)
    yield Contestant(name(CEILING), "call", lambda: ready(_emptied(family.copied())))


def _ready(step: Any) -> Ready:
    trains = isinstance(step, _TrainingStep)
    result = step.gradients if trains else step
    return Ready(step, result, torch.enable_grad if trains else torch.no_grad)


class _Prefill:
    """A model with an empty cache; a call adds PROMPT tokens to a new one."""

    def __init__(self, model: Any) -> None:
        self.model, self.tokens = model, tokens_of(PROMPT)

    def __call__(self) -> Any:
        return self.model(self.tokens, logits_to_keep=1).logits


class _TrainingStep:
    """Forward, backward and an optimizer's step. The learning rate is 0, so that every call is the same."""

    def __init__(self, model: Any) -> None:
        self.model, self.tokens = model.train(), tokens_of(TRAINED)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def __call__(self) -> None:
        self.model(self.tokens, labels=self.tokens, use_cache=False).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def gradients(self) -> Any:
        """Return the gradients of all parameters, in one dimension."""
        with torch.enable_grad():
            loss = self.model(self.tokens, labels=self.tokens, use_cache=False).loss
            used = [p for p in self.model.parameters() if p.requires_grad]
            found = torch.autograd.grad(loss, used, allow_unused=True)
        return torch.cat([g.flatten() for g in found if g is not None])


class _Family:
    """The models of one row, and the first norm and rotation of its decode step."""

    def __init__(self, bench_row: FamilyRow) -> None:
        self.name, self.dtype = bench_row.family, getattr(torch, DTYPES[bench_row.dtype])

    def model_of(self, dtype: Any) -> Any:
        """Return the model in a dtype. In every dtype it has the same weights, rounded."""
        require("transformers")
        return with_parameters(make(self.name, sizes=SIZES, std=0.02), dtype)

    @cached_property
    def _model(self) -> Any:
        return self.model_of(self.dtype)

    def copied(self) -> Any:
        """Return a copy of the model with the same parameters."""
        return copy.deepcopy(self._model, {id(p): p for p in self._model.parameters()})

    @cached_property
    def _first_calls(self) -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """The first norm and the first rotation of a decode step, with their arguments."""
        model = self.copied()
        calls: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

        def recording(mode: str, called: Any, call: Callable[..., Any]) -> Callable[..., Any]:
            def record(*given: Any, **named: Any) -> Any:
                calls.setdefault(mode, (called, given, named))
                return call(*given, **named)

            return record

        step = DecodeStep(model)
        _replace(
            model,
            lambda module: recording(NORM, module, types.MethodType(type(module).forward, module)),
            lambda function: recording(ROTATION, function, function),
        )
        with torch.no_grad():
            step()
        return calls

    def prepare_norm(self, *, patched: bool) -> Ready:
        """Prepare the first norm, before or after the patch."""
        if NORM not in self._first_calls:
            raise Unsupported("its norms are no RMS norms")
        module, given, named = self._first_calls[NORM]
        module = copy.deepcopy(module, {id(p): p for p in module.parameters()})
        del module.__dict__["forward"]
        if patched:
            applied(torch.nn.Sequential(module))
        return _module_ready(partial(module, *given, **named))

    def prepare_rotation(self, *, patched: bool) -> Ready:
        """Prepare the first rotation, before or after the patch."""
        function, given, named = self._first_calls[ROTATION]
        if patched:
            rope_forms = _rope_forms()
            function = rope_forms.replacement(function, rope_forms.classify(function))
        return _module_ready(partial(function, *given, **named))

    def module_check(self, own: Callable[[], Ready]) -> Callable[[Any], str | None]:
        """Return the check of a norm's or rotation's results against transformers' own."""

        def check(results: Any) -> str | None:
            with torch.no_grad():
                expected = own().result()
            for got, wanted in zip(results, expected, strict=True):
                if got.shape != wanted.shape or got.dtype != wanted.dtype:
                    return f"its result is {got.dtype} {list(got.shape)}"
                largest = MAX_MODULE_ERROR * torch.finfo(wanted.dtype).eps * wanted.abs().max().item()
                error = (got.double() - wanted.double()).abs().max().item()
                if not error <= largest:
                    return f"its result differs by {error:.3g} from transformers', more than {largest:.3g}"
            return None

        return check


def _module_ready(call: Call) -> Ready:
    def result() -> tuple[Any, ...]:
        results: Any = call()
        return results if isinstance(results, tuple) else (results,)

    return Ready(call, result, torch.no_grad)


def _emptied(model: Any) -> Any:
    """Replace each rotation and norm that apply_npu_rope would replace by the identity; return the model."""
    _replace(model, lambda module: lambda hidden_states: hidden_states, _identity_of)
    return model


def _identity_of(function: Any) -> Callable[..., Any]:
    if _rope_forms().classify(function).single:
        return lambda x, *_, **__: x
    return lambda q, k, *_, **__: (q, k)


def _replace(model: Any, norm_of: Callable[[Any], Any], rotation_of: Callable[[Any], Any]) -> None:
    """Replace each norm and rotation that apply_npu_rope would replace by ``norm_of(module)`` and
    ``rotation_of(function)``."""
    integration: Any = importlib.import_module("npu_rope.integrations.transformers")
    copies: Any = importlib.import_module("npu_rope.integrations.function_copies")
    report = integration.apply_npu_rope(model)
    integration.unpatch(model)
    for name in {entry.module: None for entry in report.replaced}:
        module, entries = model.get_submodule(name), [e for e in report.replaced if e.module == name]
        if entries[0].is_norm:
            module.forward = norm_of(module)
            continue
        forward = type(module).forward
        known = inspect.unwrap(forward).__globals__
        functions = {entry.function: rotation_of(known[entry.function]) for entry in entries}
        module.forward = types.MethodType(copies.with_globals(forward, functions), module)


def _rope_forms() -> Any:
    return importlib.import_module("npu_rope.integrations.rope_forms")
