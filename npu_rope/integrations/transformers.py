"""Replace the rotations and RMS norms of one instance of a transformers model by npu_rope's, in one line.

>>> import transformers
>>> from npu_rope.integrations.transformers import apply_npu_rope, unpatch
>>> size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 100}
>>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **size))
>>> print(apply_npu_rope(model))
2 rotations and 5 norms replaced, level tables; 0 left
replaced  2 x LlamaAttention: apply_rotary_pos_emb (pairs: halves; tables: one half after the other)
replaced  5 x LlamaRMSNorm (weight; rounded, then times the weight)
>>> unpatch(model)
7
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from npu_rope.errors import bad_type, bad_value
from npu_rope.integrations import norm_forms, rope_forms
from npu_rope.integrations.rope_forms import OP, NotKnown
from npu_rope.ops.rope import rope
from npu_rope.ops.rope_qk import rope_qk
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode

LEVELS = ("tables", "positions")
MARK = "_npu_rope_patch"  # an attribute of the functions that replace a module's forward
_REPLACED = "its forward is not its class's: someone else replaced it"
NAMES_A_ROTATION = re.compile(r"rotary|rope", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """A rotation or norm of a module, replaced or left.

    Attributes:
        module: the module's name in the model.
        kind: the module's class.
        what: the name of the function; empty for the module itself.
        how: the recognized form, or the reason why it was left.
        replaced: whether it was replaced.
        is_norm: whether it is a norm.
    """

    module: str
    kind: str
    what: str
    how: str
    replaced: bool
    is_norm: bool = False

    def told(self) -> str:
        """Return the entry's line in the report."""
        return f"{self.kind}{': ' * bool(self.what)}{self.what} ({self.how})"


@dataclass
class Report:
    """The report of :func:`apply_npu_rope`.

    Attributes:
        level: ``"tables"`` or ``"positions"``, as requested.
        entries: every rotation and every norm that was examined.
        notes: deviations from the request, with their reasons.
    """

    level: str
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def replaced(self) -> list[Entry]:
        """The entries that run on npu_rope now."""
        return [e for e in self.entries if e.replaced]

    @property
    def left(self) -> list[Entry]:
        """The entries that were left unchanged, with the reasons."""
        return [e for e in self.entries if not e.replaced]

    def __str__(self) -> str:
        norms = sum(e.is_norm for e in self.replaced)
        rotations = len(self.replaced) - norms
        lines = [
            f"{rotations} rotations and {norms} norms replaced, level {self.level}; {len(self.left)} left"
        ]
        for word, entries in (("replaced", self.replaced), ("left    ", self.left)):
            lines += [f"{word}  {n} x {told}" for told, n in Counter(e.told() for e in entries).items()]
        return "\n".join(lines + [f"note      {note}" for note in self.notes])


def apply_npu_rope(
    model: torch.nn.Module, rope: bool = True, rms_norm: bool = True, level: str = "tables"
) -> Report:
    """Replace the rotations and RMS norms of this instance of a model by npu_rope's. No other instance, class
    or Python module changes, and neither do parameters, buffers and saved states.

    Each function that a module's forward calls with cos and sin is classified by calling it, not by its name,
    and each norm by calling a copy of it. The report lists those that are not recognized; they stay. Works
    with generate(), training, gradient checkpointing, torch.compile and deepcopy. Pickling and loading a
    model removes the patch: apply it again.

    Args:
        model: a transformers model, or any module that contains one.
        rope: replace the rotations.
        rms_norm: replace the RMS norms.
        level: ``"tables"``: :func:`npu_rope.rotary_mul_qk` rotates by the model's own cos and sin.
            ``"positions"``: the model makes no tables, and :func:`npu_rope.rope_qk` rotates by the positions,
            with the same accuracy at all positions of a long context, also in 16 bits. If the model's angles
            do not follow from its configuration, or change with the length of a sequence, its tables stay and
            the report has a note.

    Returns:
        the entries that were replaced, those that were left, and the reasons.

    Raises:
        TypeError, ValueError: an argument breaks its rule; nothing was changed.
    """
    if not isinstance(model, torch.nn.Module):
        raise bad_type(OP, f"model must be a torch.nn.Module but got {type(model).__name__}.")
    if level not in LEVELS:
        raise bad_value(OP, f"level must be one of {', '.join(LEVELS)} but got {level!r}.")
    for name, value in (("rope", rope), ("rms_norm", rms_norm)):
        if not isinstance(value, bool):
            raise bad_type(OP, f"{name} must be True or False but got {value!r}.")
    if any(p.is_meta for p in model.parameters()):
        raise bad_value(OP, "model must have its weights but got parameters on device meta.")
    unpatch(model)
    report = Report(level)
    try:
        if rope:
            _Rotations(model, report).replace()
        if rms_norm:
            _replace_norms(model, report)
    except BaseException:  # leave no model half replaced
        unpatch(model)
        raise
    return report


def unpatch(model: torch.nn.Module) -> int:
    """Undo :func:`apply_npu_rope`; return the number of modules that have their class's forward again."""
    if not isinstance(model, torch.nn.Module):
        raise bad_type("unpatch", f"model must be a torch.nn.Module but got {type(model).__name__}.")
    count = 0
    for module in model.modules():
        function = getattr(module.__dict__.get("forward"), "__func__", None)
        if getattr(function, MARK, False):
            del module.__dict__["forward"]
            count += 1
        elif function is not None and function is _forward_of(module):  # restored by pickle
            del module.__dict__["forward"]
    return count


def _forward_of(module: torch.nn.Module) -> types.FunctionType:
    """Return the forward of the module's class."""
    forward: types.FunctionType = type(module).forward  # type: ignore[assignment]
    return forward


def _bind(module: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Set this instance's own forward. pickle and deepcopy can follow a function of that name."""
    setattr(forward, MARK, True)
    module.__dict__["forward"] = types.MethodType(forward, module)


# ---- norms -------------------------------------------------------------------------------------------


def _replace_norms(model: torch.nn.Module, report: Report) -> None:
    forms: dict[Any, norm_forms.NormForm | str] = {}
    for name, module in model.named_modules():
        if not norm_forms.looks_like_norm(module) or isinstance(module, torch.nn.LayerNorm):
            continue
        kind = type(module)
        # Instances with equal attributes have the same form.
        plain = {n: v for n, v in vars(module).items() if v is None or isinstance(v, (bool, int, float, str))}
        parameters = tuple((n, tuple(p.shape)) for n, p in module.named_parameters())
        key = kind, parameters, "forward" in module.__dict__, tuple(sorted(plain.items(), key=str))
        if key not in forms:
            forms[key] = _norm_form(module)
        form = forms[key]
        replaced = isinstance(form, norm_forms.NormForm)
        if isinstance(form, norm_forms.NormForm):
            _bind(module, norm_forms.replacement(form))
        report.entries.append(Entry(name, kind.__name__, "", str(form), replaced, is_norm=True))


def _norm_form(module: torch.nn.Module) -> norm_forms.NormForm | str:
    """Return the module's form, or the reason why it has none."""
    if "forward" in module.__dict__:
        return _REPLACED
    try:
        return norm_forms.classify(module)
    except NotKnown as why:
        return str(why)


# ---- rotations ---------------------------------------------------------------------------------------


@dataclass
class _Caller:
    """A module whose forward calls rotations; ``functions`` has them by their names in its globals."""

    name: str
    module: torch.nn.Module
    functions: dict[str, Callable[..., Any]]


class _Rotations:
    """The functions of cos and sin that a model's modules call."""

    def __init__(self, model: torch.nn.Module, report: Report) -> None:
        self.model, self.report = model, report
        self.forms: dict[int, rope_forms.Form | str] = {}
        self.told: set[str] = set()  # callers whose tables have a note already
        self.by_tables: dict[int, Callable[..., Any]] = {}
        self.callers = [c for name, m in model.named_modules() if (c := self._caller(name, m)) is not None]

    def _caller(self, name: str, module: torch.nn.Module) -> _Caller | None:
        functions = dict(_rotations_of(_forward_of(module)))
        return _Caller(name, module, functions) if functions else None

    def form(self, function: Callable[..., Any]) -> rope_forms.Form | str:
        """Return the function's form, or the reason why it has none."""
        if id(function) not in self.forms:
            try:
                self.forms[id(function)] = rope_forms.classify(function)
            except NotKnown as why:
                self.forms[id(function)] = str(why)
        return self.forms[id(function)]

    def replace(self) -> None:
        by_positions = self._by_positions() if self.report.level == "positions" else {}
        for caller in self.callers:
            if "forward" in caller.module.__dict__:
                why = _REPLACED
                self.report.entries.append(self._entry(caller, ", ".join(caller.functions), why, False))
                continue
            ours = {}
            for name, function in caller.functions.items():
                form = self.form(function)
                positions = by_positions.get((caller.name, name))
                if isinstance(form, rope_forms.Form):
                    ours[name] = positions or self._tables(function, form)
                how = str(form)
                if isinstance(form, rope_forms.Form) and positions:
                    how = f"pairs: {form.pairs}; by positions"
                elif name in ours and self.report.level == "positions" and caller.name not in self.told:
                    kind = type(caller.module).__name__
                    self._note(f"{kind}'s {name} turns by tables: no rotary embedding around it makes them")
                self.report.entries.append(self._entry(caller, name, how, name in ours))
            if ours:
                _bind(caller.module, _with_globals(_forward_of(caller.module), ours))

    def _entry(self, caller: _Caller, what: str, how: str, replaced: bool) -> Entry:
        return Entry(caller.name, type(caller.module).__name__, what, how, replaced)

    def _note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def _tables(self, function: Callable[..., Any], form: rope_forms.Form) -> Callable[..., Any]:
        if id(function) not in self.by_tables:
            self.by_tables[id(function)] = rope_forms.by_tables(function, form)
        return self.by_tables[id(function)]

    # ---- by positions

    def _by_positions(self) -> dict[tuple[str, str], Callable[..., Any]]:
        """Return replacements of the callers' functions that take positions instead of tables."""
        found: dict[tuple[str, str], Callable[..., Any]] = {}
        for name, module in self.model.named_modules():
            if not type(module).__name__.endswith("RotaryEmbedding"):
                continue
            parent = name.rpartition(".")[0]
            inside = [c for c in self.callers if _is_within(c.name, parent)]
            try:
                self._require_all_known(name, parent, inside)
                source = _Positions(module, [_layer_type(c.module) for c in inside])
                made = {}
                for caller in inside:
                    for called, function in caller.functions.items():
                        form = self.form(function)
                        if not isinstance(form, rope_forms.Form):
                            raise NotKnown(
                                f"{type(caller.module).__name__}'s {called} stays, which needs tables"
                            )
                        made[caller.name, called] = source.rotation(
                            function, form, _layer_type(caller.module)
                        )
                if not made:
                    continue
            except Exception as why:  # a foreign model may raise anything
                told = why if isinstance(why, NotKnown) else f"{type(why).__name__} was raised ({why})"
                if inside:
                    self._note(f"{type(module).__name__} keeps making tables: {told}")
                self.told |= {c.name for c in inside}
                continue
            found |= made
            _bind(module, source.forward())
        return found

    def _require_all_known(self, name: str, parent: str, inside: list[_Caller]) -> None:
        """Require that only the modules whose rotations are to be replaced receive the tables.

        Raises:
            NotKnown: another module may receive them.
        """
        known = {c.name for c in inside}
        for other, module in self.model.named_modules():
            kind = type(module).__name__
            if not _is_within(other, parent) or other == name:
                continue
            if kind.endswith("RotaryEmbedding"):
                raise NotKnown(f"{kind} makes others beside it")
            if kind.endswith("Attention") and other not in known:
                raise NotKnown(f"{kind} does not rotate by a function that its forward calls")
            if other in known and "forward" in module.__dict__:
                raise NotKnown(f"someone else replaced {kind}'s forward")


def _is_within(name: str, parent: str) -> bool:
    """Whether a module's name is the parent's own, or that of a module inside it."""
    return not parent or name == parent or name.startswith(f"{parent}.")


def _layer_type(module: torch.nn.Module) -> str | None:
    """Return the layer type, which selects the module's rope among those of the model."""
    said = getattr(module, "layer_type", None) or getattr(module, "attention_type", None)
    if isinstance(said, str):
        return said
    known, at = (
        getattr(getattr(module, "config", None), "layer_types", None),
        getattr(module, "layer_idx", None),
    )
    if isinstance(known, (list, tuple)) and isinstance(at, int) and at < len(known):
        return str(known[at])
    return None


def _rotations_of(function: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that it, or a function it wraps, calls by a global name like that of a rotation."""
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


def _with_globals(function: types.FunctionType, ours: dict[str, Callable[..., Any]]) -> types.FunctionType:
    """Copy the function with ours under these names in its globals; keep its decorators around the copy."""
    shadow = _shadow({**function.__globals__, **ours})
    wrapped = function.__dict__.get("__wrapped__")
    inner = _with_globals(wrapped, ours) if isinstance(wrapped, types.FunctionType) else None
    cells = [
        types.CellType(inner) if inner and _holds(cell, wrapped) else cell
        for cell in function.__closure__ or ()
    ]
    again = types.FunctionType(
        function.__code__,
        shadow.__dict__,
        function.__name__,
        function.__defaults__,
        tuple(cells) if function.__closure__ else None,
    )
    again.__kwdefaults__ = function.__kwdefaults__
    again.__annotations__ = function.__annotations__
    again.__dict__.update(function.__dict__)
    if inner:
        again.__dict__["__wrapped__"] = inner
    weakref.finalize(again, sys.modules.pop, shadow.__name__, None)
    for name in ("__doc__", "__module__", "__qualname__"):
        setattr(again, name, getattr(function, name))
    return again


_count = itertools.count(1)


def _shadow(names: dict[str, Any]) -> types.ModuleType:
    """Register a module of these names under a name of its own: torch.compile looks up a function's globals
    by the name of their module."""
    shadow = types.ModuleType(f"{names['__name__']}_npu_rope_{next(_count)}")
    shadow.__dict__.update(
        {k: v for k, v in names.items() if k not in ("__name__", "__spec__", "__loader__")}
    )
    sys.modules[shadow.__name__] = shadow
    return shadow


def _holds(cell: types.CellType, what: Any) -> bool:
    try:
        return cell.cell_contents is what
    except ValueError:
        return False


# ---- positions instead of tables ------------------------------------------------------------------------

BY_TABLES = 'level="tables" turns as the model does.'
# A model's tables hold cos and sin of angles rounded to float32: at position 31 the error is below 4e-6.
PROBED = 32
SAME_ANGLE = 2e-5
# Relative tolerance of float32 frequencies, which transformers rounds at every step; a frequency below STILL
# rotates nothing.
SAME_FREQUENCY, STILL = 1e-5, 1e-20


class _Carriers:
    """Carry positions in place of a model's cos and sin, and check that the model did not change them.

    Both carriers have the sizes of the model's tables. Their elements are bytes of a dtype that torch does no
    arithmetic with, compiled or not. A model that rotates back by -sin, or scales its tables, therefore gets
    an error instead of a wrong rotation. Each eight lanes hold one position of a token, int64, combined by
    xor with a number that only these lanes have. Operations on any bytes, such as selecting, filling or
    reversing lanes, give bytes that the check detects. Selecting the same tokens of both carriers is valid:
    the result still carries the tokens' positions.

    Args:
        lanes: number of lanes of the model's tables.
        planes: number of positions of a token.
        salt: index of these tables among those that one module makes.

    Raises:
        NotKnown: the tables are too narrow.
    """

    TYPE = torch.bits8

    def __init__(self, lanes: int, planes: int, salt: int) -> None:
        if lanes < 8 * planes:
            raise NotKnown(f"its tables have {lanes} lanes, and positions need {8 * planes}")
        self.lanes, self.planes = lanes, planes
        # Lanes [0, 8 planes) of cos hold the positions themselves; all other lanes look random.
        count = -(-lanes // 8)
        numbers = np.random.default_rng(salt).integers(-(2**63), 2**63 - 1, (2, count), np.int64)
        numbers[0, :planes] = 0
        self.keys = torch.from_numpy(numbers)
        # The last positions, references to their cos and sin, and on a CPU the words of these.
        self._last: tuple[torch.Tensor, tuple[Any, Any], tuple[Any, Any] | None] | None = None

    def made_of(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the carriers, as cos and sin, of positions [B,S] or [planes,B,S]."""
        numbers = positions.to(torch.int64)
        cos, sin = (t.view(self.TYPE) for t in self._bytes(numbers))
        if not torch.compiler.is_compiling():
            words = (_words(cos).clone(), _words(sin).clone()) if cos.is_cpu else None
            self._last = numbers.clone(), (weakref.ref(cos), weakref.ref(sin)), words
        return cos, sin

    def read(self, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return the positions of carriers.

        Raises:
            ValueError: these are tables, or carriers that were changed.
        """
        if cos.dtype != self.TYPE or sin.dtype != self.TYPE:
            raise bad_value(OP, f"cos must be positions but got a table.\n{rope_forms.WHOLE_MODELS}")
        rule = "cos and sin must be as their module made them"
        if cos.shape != sin.shape or cos.shape[-1] != self.lanes:
            raise bad_value(OP, f"{rule} but got others.\n{BY_TABLES}")
        if not torch.compiler.is_compiling() and (known := self._known(cos, sin)) is not None:
            return known
        bits = cos.view(torch.uint8), sin.view(torch.uint8)
        numbers = bits[0][..., : 8 * self.planes].contiguous().view(torch.int64)
        positions = numbers[..., 0] if self.planes == 1 else numbers.movedim(-1, 0)
        if torch.compiler.is_compiling():
            same = torch.stack([(a == b).all() for a, b in zip(bits, self._bytes(positions), strict=True)])
            torch._assert_async(same.all(), f"[{OP}] {rule} but got others.")  # a line of C++: no quotes
        elif not all(map(torch.equal, bits, self._bytes(positions))):
            raise bad_value(OP, f"{rule} but got others.\n{BY_TABLES}")
        return positions

    def _known(self, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor | None:
        """Return the positions if these are the last carriers, else None. The same tensors are recognized by
        identity if nothing was written to them. Other tensors are compared by their words, but not on a
        device, because the comparison would wait for it. Tensors of inference mode are always compared: they
        do not record writes."""
        if self._last is None:
            return None
        positions, made, words = self._last
        if positions.device != cos.device:
            return None
        if cos is made[0]() and sin is made[1]() and not _may_be_written(cos) and not _may_be_written(sin):
            return positions
        if words is None:
            return None
        same = torch.equal(_words(cos), words[0]) and torch.equal(_words(sin), words[1])
        return positions if same else None

    def _bytes(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bytes of cos and of sin, [B,S,lanes], for int64 positions."""
        if self.planes == 1:
            each = positions[..., None]
        else:
            numbers, count = positions.movedim(0, -1), self.keys.shape[1]
            each = numbers.repeat(*[1] * (numbers.ndim - 1), -(-count // self.planes))[..., :count]
        keys = self.keys.to(positions.device)
        cos, sin = ((each ^ keys[k]).view(torch.uint8)[..., : self.lanes].contiguous() for k in (0, 1))
        return cos, sin


def _may_be_written(carrier: torch.Tensor) -> bool:
    return carrier.is_inference() or carrier._version > 0


def _words(carrier: torch.Tensor) -> torch.Tensor:
    """Return the carrier's bytes in the largest dtype that divides its rows, because it compares fastest."""
    if not carrier.is_contiguous():
        carrier = carrier.view(torch.uint8).contiguous()
    return carrier.view(torch.int64 if carrier.shape[-1] % 8 == 0 else torch.uint8)


class _Positions:
    """A model's rotary embedding as rope parameters, which were compared with its tables."""

    def __init__(self, module: torch.nn.Module, layer_types: list[str | None]) -> None:
        self.module = module
        self.carriers: dict[str | None, _Carriers] = {}
        config = getattr(module, "config", None)
        if config is None:
            raise NotKnown("it has no config")
        if "forward" in module.__dict__:
            raise NotKnown(_REPLACED)
        kinds = getattr(module, "rope_type", "default")
        self.nested = isinstance(kinds, dict)
        wanted = sorted({t for t in layer_types if t is not None}) if self.nested else [None]
        self.ropes: dict[str | None, Any] = {}
        for layer_type in wanted:
            if isinstance(kinds, dict) and layer_type not in kinds:
                raise NotKnown(f"it has none for layers of type {layer_type}")
            kind = str(kinds[layer_type] if isinstance(kinds, dict) else kinds)
            if "dynamic" in kind or kind == "longrope":
                raise NotKnown(f"rope_type {kind} changes with the length of the sequence")
            try:
                model = RopeParams.from_hf(config, layer_type)
            except (TypeError, ValueError) as why:
                rule = str(why).splitlines()[0].removeprefix("[rope] ").rstrip(".")
                raise NotKnown(f"no parameters of rope are its configuration's ({rule})") from None
            lanes = self._compare(model, layer_type)
            self.ropes[layer_type] = model
            planes = 3 if model.params.rope_mode.has_sections else 1
            self.carriers[layer_type] = _Carriers(lanes, planes, salt=len(self.carriers))

    def _compare(self, model: Any, layer_type: str | None) -> int:
        """Compare the module's tables for some positions with those of the parameters; return their number of
        lanes.

        Raises:
            NotKnown: they differ.
        """
        theirs = getattr(self.module, f"{layer_type}_inv_freq" if self.nested else "inv_freq", None)
        ours = np.asarray(model.frequencies(), np.float64)
        if theirs is None or tuple(theirs.shape) != ours.shape:
            raise NotKnown("its frequencies are not where transformers has them")
        theirs = theirs.double().cpu().numpy()
        if (np.abs(theirs - ours) > SAME_FREQUENCY * np.abs(ours) + STILL).any():
            raise NotKnown("its frequencies are not those of its configuration")
        sections = model.params.rope_mode.has_sections
        planes = [np.arange(PROBED) * (axis + 1) % PROBED for axis in range(3 if sections else 1)]
        positions = np.stack(planes)
        x = torch.zeros(1, PROBED, 8, device=_device_of(self.module))
        ids = torch.from_numpy(positions).to(x.device)
        more = (layer_type,) if self.nested else ()
        cos, sin = self._tables(x, ids[:, None] if sections else ids, *more)
        angles = model.frequencies()[None] * positions[model.params.axes() % 3 if sections else 0].T.reshape(
            PROBED, -1
        )
        scale, pairs = model.params.mscale(), model.params.pairs
        for given, expected in ((cos, np.cos(angles) * scale), (sin, np.sin(angles) * scale)):
            table = given[0].double().cpu().numpy()
            if table.shape == (PROBED, 2 * pairs):
                halves = table[:, :pairs], table[:, 0::2]
                table = min(halves, key=lambda t: float(np.abs(t - expected).max()))
            if table.shape != expected.shape or np.abs(table - expected).max() > SAME_ANGLE:
                raise NotKnown("its tables are not those of its configuration")
        return cos.shape[-1]

    def _tables(self, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the module's cos and sin.

        Raises:
            NotKnown: its result is something else.
        """
        with torch.no_grad():
            made = _forward_of(self.module)(self.module, *given)
        tables = made if isinstance(made, (tuple, list)) else (made,)
        if len(tables) != 2 or not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in tables):
            what = " and ".join(str(getattr(t, "dtype", type(t).__name__)) for t in tables)
            raise NotKnown(f"they are {what.replace('torch.', '')}, not cos and sin")
        return tables[0], tables[1]

    def rotation(
        self, function: Callable[..., Any], form: rope_forms.Form, layer_type: str | None
    ) -> Callable[..., Any]:
        """Return the function's replacement, which takes carriers of positions as cos and sin.

        Raises:
            NotKnown: rope has no such rotation.
        """
        if self.nested and layer_type is None:
            raise NotKnown("a layer does not say which of its tables turn it")
        model = self.ropes[layer_type if self.nested else None]
        if form.place == rope_forms.TAIL:
            raise NotKnown("it turns the last of the head")
        sections = model.params.rope_mode.has_sections
        pads = model.params.rope_mode is RopeMode.IMROPE
        if sections and form.pairs != rope_forms.HALF:
            raise NotKnown(
                "pairs are neighbours where several positions turn them, which no mode of rope has"
            )
        if not sections:
            # Pair the lanes as this function does; other functions of the model may differ.
            mode = RopeMode.NORMAL if form.pairs == rope_forms.INTERLEAVED else RopeMode.NEOX
            params = _with_mode(model.params, mode)
        else:
            params = model.params
        if form.keys_optional:
            raise NotKnown("it turns queries without keys, too")
        factors = None if model.freq_factors is None else torch.from_numpy(model.freq_factors)
        width = params.n_dims
        carriers = self.carriers[layer_type if self.nested else None]

        def rotate(
            heads: Sequence[torch.Tensor],
            cos: torch.Tensor,
            sin: torch.Tensor,
            unsqueeze_dim: int | None,
        ) -> Any:
            positions = carriers.read(cos, sin)
            if pads:  # pairs that no section covers rotate by time
                positions = torch.cat((positions, positions[:1]))
            got = heads[0].shape[-1]
            if got < width:  # its share of the angles is unknown
                raise bad_value(OP, f"q must have {width} lanes that turn but got {got}.\n{BY_TABLES}")
            tables = (*positions.shape[sections:], width)  # sizes for each plane
            axis = rope_forms.heads_axis(form, unsqueeze_dim, len(tables))
            known = form.place is not None or got == width
            if axis is None or not known or not rope_forms.serves(tables, heads, axis):
                return NotImplemented  # the function's result is then unknown
            on_device = factors if factors is None else factors.to(heads[0].device)
            first = [rope_forms.tokens_first(rope_forms.halved(h, form, width), axis) for h in heads]
            if form.single:
                return rope_forms.tokens_first(rope(first[0], positions, params, on_device), axis)
            q, k = rope_qk(first[0], first[1], positions, params, on_device)
            return rope_forms.tokens_first(q, axis), rope_forms.tokens_first(k, axis)

        return rope_forms.with_parameters(
            rotate, function, form, functools.partial(self._tables_at, layer_type)
        )

    def _tables_at(
        self, layer_type: str | None, cos: torch.Tensor, sin: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the model's own tables for the positions in carriers that :meth:`forward` made."""
        ids = self.carriers[layer_type if self.nested else None].read(cos, sin)
        more = (layer_type,) if self.nested else ()
        cos, sin = _forward_of(self.module)(self.module, x, ids, *more)
        return cos, sin

    def forward(self) -> Callable[..., Any]:
        """Return the module's own forward, which makes :class:`_Carriers` instead of tables. It makes tables
        for a layer type that the model does not have, because some models request these anyway."""
        carriers, nested = self.carriers, self.nested

        def forward(self: Any, x: Any, position_ids: Any, layer_type: Any = None) -> Any:
            if position_ids.is_floating_point():
                kind = str(position_ids.dtype).removeprefix("torch.")
                raise bad_type(OP, f"position_ids must be integers but got {kind}.\n{BY_TABLES}")
            if nested and layer_type not in carriers:
                return _forward_of(self)(self, x, position_ids, layer_type)
            kept = carriers[layer_type if nested else None]
            if kept.planes > 1:
                if position_ids.ndim == 2:
                    position_ids = position_ids[None].expand(kept.planes, -1, -1)
                if position_ids.shape[0] != kept.planes:
                    got = list(position_ids.shape)
                    raise bad_value(OP, f"position_ids must be [{kept.planes},B,S] or [B,S] but got {got}.")
            return kept.made_of(position_ids)

        return forward


def _with_mode(params: RopeParams, mode: RopeMode) -> RopeParams:
    return RopeParams(**{**params.__getstate__(), "mode": mode})


def _device_of(module: torch.nn.Module) -> torch.device:
    return next((b.device for b in module.buffers()), torch.device("cpu"))
