"""Replace the rotations and RMS norms of one instance of a transformers model by npu_rope's, in one line.

>>> import transformers
>>> from npu_rope.integrations.transformers import apply_npu_rope, unpatch
>>> size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 100}
>>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **size))
>>> print(apply_npu_rope(model))
2 rotations and 5 norms replaced, level tables; 0 left
replaced  2 x LlamaAttention: apply_rotary_pos_emb (pairs: halves; tables: all entries, then all again)
replaced  5 x LlamaRMSNorm (weight; rounded, then times the weight)
>>> unpatch(model)
7
"""

from __future__ import annotations

import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from npu_rope.errors import bad_type, bad_value
from npu_rope.integrations import attention_probe, norm_forms, rope_forms, rotation_form
from npu_rope.integrations.attention_forms import FusedForm, Rotation
from npu_rope.integrations.function_copies import with_globals
from npu_rope.integrations.fused_attention import fused_forward
from npu_rope.integrations.rope_forms import OP, NotKnown
from npu_rope.integrations.rotary_embeddings import forward_of, remember_positions
from npu_rope.integrations.table_origins import Uses

LEVELS = ("tables", "positions")
MARK = "_npu_rope_patch"  # this attribute marks the functions that replace a module's forward
_REPLACED = "its forward is not its class's: someone else replaced it"
NAMES_A_ROTATION = re.compile(r"rotary|rope", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """A rotation or norm in a model, replaced or left.

    Attributes:
        module: the module's name in the model.
        kind: the name of the module's class.
        function: the name of the rotation's function; empty for a norm.
        form_or_reason: the recognized form, or the reason why it was left.
        replaced: whether it was replaced.
        is_norm: whether it is a norm.
        uses: for a replaced rotation at level ``"positions"``, how its calls have rotated so far, including
            those of deep copies of the model; else None.
    """

    module: str
    kind: str
    function: str
    form_or_reason: str
    replaced: bool
    is_norm: bool = False
    uses: Uses | None = None

    def text(self) -> str:
        """Return the entry's line in the report."""
        used = "" if self.uses is None else f"; {self.uses}"
        return f"{self.kind}{': ' * bool(self.function)}{self.function} ({self.form_or_reason}{used})"

    def told(self) -> str:
        """The old name of :meth:`text`."""
        warnings.warn("Entry.told() is Entry.text() now.", DeprecationWarning, stacklevel=2)
        return self.text()

    @property
    def what(self) -> str:
        """The old name of ``function``."""
        warnings.warn("Entry.what is Entry.function now.", DeprecationWarning, stacklevel=2)
        return self.function

    @property
    def how(self) -> str:
        """The old name of ``form_or_reason``."""
        warnings.warn("Entry.how is Entry.form_or_reason now.", DeprecationWarning, stacklevel=2)
        return self.form_or_reason


@dataclass
class Report:
    """The report of :func:`apply_npu_rope`. At level ``"positions"`` it also shows whether the calls of each
    function have rotated by positions or by tables so far, and why.

    Attributes:
        level: ``"tables"`` or ``"positions"``, as requested.
        entries: every rotation and every norm that was examined.
        notes: deviations from the request, with their reasons.
        attentions: with ``fuse``, every module that calls a rotation. ``replaced`` means that it is fused.
    """

    level: str
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    attentions: list[Entry] = field(default_factory=list)

    @property
    def replaced(self) -> list[Entry]:
        """The entries that run on npu_rope now."""
        return [e for e in self.entries if e.replaced]

    @property
    def left(self) -> list[Entry]:
        """The entries that were left unchanged."""
        return [e for e in self.entries if not e.replaced]

    @property
    def fused(self) -> list[Entry]:
        """The attention modules that run :func:`npu_rope.qkv_norm_rope_cache` now."""
        return [e for e in self.attentions if e.replaced]

    @property
    def not_fused(self) -> list[Entry]:
        """The attention modules that run separate operators, with the reasons."""
        return [e for e in self.attentions if not e.replaced]

    def __str__(self) -> str:
        norms = sum(e.is_norm for e in self.replaced)
        rotations = len(self.replaced) - norms
        summary = (
            f"{rotations} rotations and {norms} norms replaced, level {self.level}; {len(self.left)} left"
        )
        if self.attentions:
            summary += f"; {len(self.fused)} attentions fused"
        lines = [summary]
        kinds = {
            "replaced ": self.replaced,
            "left     ": self.left,
            "fused    ": self.fused,
            "not fused": self.not_fused,
        }
        for word, entries in kinds.items():
            lines += [f"{word} {n} x {line}" for line, n in Counter(e.text() for e in entries).items()]
        return "\n".join(lines + [f"note      {note}" for note in self.notes])


def apply_npu_rope(
    model: torch.nn.Module,
    rope: bool = True,
    rms_norm: bool = True,
    level: str = "tables",
    fuse: bool = False,
) -> Report:
    """Replace the rotations and RMS norms of this instance of a model by npu_rope's. No other instance, class
    or Python module changes, and neither do parameters, buffers and saved states.

    Two kinds of candidates are tried: functions with "rotary" or "rope" in their name that a module's forward
    calls, and modules whose class is named like a norm, except LayerNorm. They are recognized by the results
    of trial calls, not by their names. The report lists those that are not recognized; they stay. The patched
    model works with generate(), training, gradient checkpointing, torch.compile and deepcopy. Pickling and
    loading a model removes the patch: apply it again. A shallow copy of a module calls the original's forward
    with the original's attributes, so make such copies before.

    Args:
        model: a transformers model, or any module that contains one.
        rope: replace the rotations.
        rms_norm: replace the RMS norms.
        level: ``"tables"``: :func:`npu_rope.rotary_mul_qk` rotates by the model's own cos and sin.
            ``"positions"``: :func:`npu_rope.rope_qk` rotates by the positions, with the same accuracy at all
            positions of a long context, also in 16 bits. The rotation must get the same tensors cos and sin
            that a rotary embedding returned, without writes to them. The tables must follow from the model's
            configuration. The model's tables are used in every other case, and under torch.compile. Writes
            that torch does not record (``cos.data``, ``cos.numpy()``) are not detected.
        fuse: also let attention modules run the norms of queries and keys, the rotation and, without
            gradients, the store into a static or paged KV cache as one :func:`npu_rope.qkv_norm_rope_cache`.
            Needs ``rope`` and ``rms_norm``. A module is fused if trial calls of a copy give the results of
            its own code; ``report.not_fused`` has the others and the reasons. In 16 bits the results are
            rounded once, not after each norm and rotation.

    Returns:
        The entries that were replaced, and those that were left with the reasons.

    Raises:
        TypeError, ValueError: an argument breaks its rule; nothing was changed.
    """
    if not isinstance(model, torch.nn.Module):
        raise bad_type(OP, "model", "be a torch.nn.Module", type(model).__name__)
    if level not in LEVELS:
        raise bad_value(OP, "level", f"be one of {', '.join(LEVELS)}", repr(level))
    for name, value in (("rope", rope), ("rms_norm", rms_norm), ("fuse", fuse)):
        if not isinstance(value, bool):
            raise bad_type(OP, name, "be True or False", repr(value))
    if fuse and not (rope and rms_norm):
        raise bad_value(OP, "fuse", "be False where rope or rms_norm is False", repr(fuse))
    if any(p.is_meta for p in model.parameters()):
        raise bad_value(OP, "model", "have its weights", "parameters on device meta")
    unpatch(model)
    report = Report(level)
    try:
        with torch.device("cpu"):  # where trial calls make their tensors, whatever the program has set
            norms = _Norms(model, report)
            if rope:
                _Rotations(model, report, norms if fuse else None).replace()
            if rms_norm:
                norms.replace()
    except BaseException:  # leave no model half replaced
        unpatch(model)
        raise
    return report


def unpatch(model: torch.nn.Module) -> int:
    """Undo :func:`apply_npu_rope`. Return the number of modules whose forward was restored."""
    if not isinstance(model, torch.nn.Module):
        raise bad_type("unpatch", "model", "be a torch.nn.Module", type(model).__name__)
    count = 0
    for module in model.modules():
        function = getattr(module.__dict__.get("forward"), "__func__", None)
        if getattr(function, MARK, False):
            del module.__dict__["forward"]
            count += 1
        elif function is not None and function is forward_of(module):  # pickle has bound the class's forward
            del module.__dict__["forward"]
    return count


def _bind(module: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Set this instance's own forward. pickle and deepcopy handle a method of that name."""
    setattr(forward, MARK, True)
    module.__dict__["forward"] = types.MethodType(forward, module)


# ---- norms -------------------------------------------------------------------------------------------


class _Norms:
    """Replacement of a model's norms."""

    def __init__(self, model: torch.nn.Module, report: Report) -> None:
        self.model, self.report = model, report
        self.forms: dict[Any, norm_forms.NormForm | str] = {}
        self.replacement = cache(norm_forms.replacement)  # modules of one form and class share it

    def form(self, module: torch.nn.Module) -> norm_forms.NormForm | str:
        """Return the module's form, or the reason why it has none."""
        # Instances of one class with equal attributes have the same form.
        plain = {n: v for n, v in vars(module).items() if v is None or isinstance(v, (bool, int, float, str))}
        parameters = tuple((n, tuple(p.shape)) for n, p in module.named_parameters())
        key = type(module), parameters, "forward" in module.__dict__, tuple(sorted(plain.items(), key=str))
        if key not in self.forms:
            self.forms[key] = _norm_form(module)
        return self.forms[key]

    def replace(self) -> None:
        for name, module in self.model.named_modules():
            if not norm_forms.looks_like_norm(module):
                continue
            form = self.form(module)
            replaced = isinstance(form, norm_forms.NormForm)
            if isinstance(form, norm_forms.NormForm):
                _bind(module, self.replacement(form, forward_of(module)))
            self.report.entries.append(
                Entry(name, type(module).__name__, "", str(form), replaced, is_norm=True)
            )


def _norm_form(module: torch.nn.Module) -> norm_forms.NormForm | str:
    """Return the module's form, or the reason why it has none."""
    if "forward" in module.__dict__:
        return _REPLACED
    try:
        return norm_forms.classify(module)
    except NotKnown as error:
        return str(error)


# ---- rotations ---------------------------------------------------------------------------------------


class _Rotations:
    """Replacement of the rotations that a model's modules call.

    Args:
        model: the model.
        report: gets the entries.
        norms: the forms of its norms, to fuse them with the rotations; None: fuse nothing.
    """

    def __init__(self, model: torch.nn.Module, report: Report, norms: _Norms | None) -> None:
        self.model, self.report, self.norms = model, report, norms
        self.forms: dict[int, rotation_form.Form | str] = {}
        self.unfused: dict[int, Callable[..., Any]] = {}  # replacements by tables, by the function
        self.forwards: dict[tuple[Any, ...], types.FunctionType] = {}  # by the original and its replacements

    def form(self, function: Callable[..., Any]) -> rotation_form.Form | str:
        """Return the function's form, or the reason why it has none."""
        if id(function) not in self.forms:
            try:
                self.forms[id(function)] = rope_forms.classify(function)
            except NotKnown as error:
                self.forms[id(function)] = str(error)
        return self.forms[id(function)]

    def replace(self) -> None:
        for name, module in self.model.named_modules():
            original = forward_of(module)
            if not isinstance(original, types.FunctionType):  # of TorchScript, or written in C
                continue
            functions = dict(_rotations_of(original))
            entry = partial(Entry, name, type(module).__name__)
            fusion = partial(entry, "qkv_norm_rope_cache")
            if functions and "forward" in module.__dict__:
                self.report.entries.append(entry(", ".join(functions), _REPLACED, False))
                if self.norms is not None:
                    self.report.attentions.append(fusion(_REPLACED, False))
                continue
            ours: dict[str, Rotation] = {}
            for called_name, function in functions.items():
                form = self.form(function)
                is_known = isinstance(form, rotation_form.Form)
                uses = Uses() if is_known and self.report.level == "positions" else None
                if isinstance(form, rotation_form.Form):
                    unfused = self._unfused(function, form, uses)
                    ours[called_name] = Rotation(function, form, unfused, uses)
                self.report.entries.append(entry(called_name, str(form), is_known, uses=uses))
            replacements = {called_name: rotation.unfused for called_name, rotation in ours.items()}
            forward: Callable[..., Any] = self._forward(original, replacements) if ours else original
            if functions and self.norms is not None:
                fused = self._fused_form(module, ours)
                self.report.attentions.append(fusion(str(fused), isinstance(fused, FusedForm)))
                if isinstance(fused, FusedForm):
                    forward = fused_forward(original, forward, ours, fused)
            if ours:
                _bind(module, forward)
        if self.report.level == "positions" and self.report.replaced:
            self._remember_positions()

    def _unfused(
        self, function: Callable[..., Any], form: rotation_form.Form, uses: Uses | None
    ) -> Callable[..., Any]:
        """Return the function's replacement. All layers share one by tables; by positions each has its own,
        which notes what it used."""
        if uses is not None:
            return rope_forms.replacement(function, form, uses)
        if id(function) not in self.unfused:
            self.unfused[id(function)] = rope_forms.replacement(function, form, None)
        return self.unfused[id(function)]

    def _forward(
        self, original: types.FunctionType, replacements: dict[str, Callable[..., Any]]
    ) -> types.FunctionType:
        """Return a copy of the forward that calls the replacements. Layers share it, so that torch.compile
        guards its globals once."""
        key = (original, *replacements.items())
        if key not in self.forwards:
            self.forwards[key] = with_globals(original, replacements)
        return self.forwards[key]

    def _fused_form(self, module: torch.nn.Module, rotations: dict[str, Rotation]) -> FusedForm | str:
        """Return the form of a module's attention, or the reason why it has none."""
        assert self.norms is not None
        if not rotations:
            return "its rotation is left"
        try:
            return attention_probe.classify(module, forward_of(module), rotations, self.norms.form)
        except NotKnown as error:
            return str(error)

    def _remember_positions(self) -> None:
        """Make the model's rotary embeddings record the positions of their tables. Add a note to the report
        for each one whose tables do not follow from its configuration."""
        for module in self.model.modules():
            kind = type(module).__name__
            if not kind.endswith("RotaryEmbedding"):
                continue
            if "forward" in module.__dict__:
                notes = [f"{kind}'s tables are used: {_REPLACED}"]
            else:
                forward, notes = remember_positions(module)
                if forward is not None:
                    _bind(module, forward)
            self.report.notes += [note for note in notes if note not in self.report.notes]


def _rotations_of(function: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the name and the value of each global that the function calls and that is named like a rotation.
    The function's decorators are searched as well."""
    for inner in _layers_of(function):
        for name in _names(inner.__code__):
            called = inner.__globals__.get(name)
            if callable(called) and not isinstance(called, type) and NAMES_A_ROTATION.search(name):
                yield name, called


def _layers_of(function: Any) -> Iterator[types.FunctionType]:
    """Yield a function, and the functions inside its decorators (functools.wraps)."""
    while isinstance(function, types.FunctionType):
        yield function
        function = function.__dict__.get("__wrapped__")


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
