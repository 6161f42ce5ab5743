"""Recognize the rotation that a model's function of cos and sin computes, by calling it, and replace it.

A function takes ``(q, k, cos, sin)`` or ``(x, cos, sin)``: heads ``[B,N,S,D]``, or ``[B,S,N,D]`` and
``[S,N,D]`` in vision towers, and tables ``[B,S,W]`` or ``[S,W]``. Its name does not identify the rotation:
gpt-oss, nanochat and Llama use the same name, and rotate differently.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_rope.errors import bad_type
from npu_rope.integrations.table_origins import Uses
from npu_rope.ops.rope import rope
from npu_rope.ops.rope_qk import rope_qk
from npu_rope.ops.rotary_mul import rotary_mul, rotary_mul_qk

OP = "apply_npu_rope"
HALF, INTERLEAVED, TO_HALVES = "halves", "neighbours", "neighbours, written as halves"
TWICE, EACH_TWICE, ONCE = "one half after the other", "each entry twice", "an entry a pair"
HEAD, TAIL = "first", "last"

# A result that differs by more than this share of its largest element comes from another rotation. With a
# wrong sign or pair it differs by the whole element.
SAME_ROTATION = 1e-5
BATCH, HEADS, KEY_HEADS, TOKENS, WIDTH = 2, 4, 2, 5, 16


@dataclass(frozen=True)
class Form:
    """A rotation.

    Attributes:
        pairs: which lanes form a pair, and where they are written.
        tables: how cos and sin hold an entry for each lane, or each pair.
        place: which lanes rotate if the tables are narrower than the head; None: they cannot be narrower.
        single: it takes one tensor, not queries and keys.
        promotes: 16-bit heads with float32 tables become float32.
        tokens_first: heads are ``[B,S,N,D]`` or ``[S,N,D]``.
        flat_axis: where tables ``[S,W]`` get their axis of heads, HEADS_FIRST or TOKENS_FIRST; None: it takes
            no such tables. ``cos[:, None]`` is before the tokens of ``[B,S,W]``, after those of ``[S,W]``.
        usual_dim: the default of unsqueeze_dim.
    """

    pairs: str
    tables: str
    place: str | None
    single: bool = False
    promotes: bool = False
    tokens_first: bool = False
    flat_axis: int | None = None
    usual_dim: int | None = None

    def __str__(self) -> str:
        where = "" if self.place is None else f", the {self.place} of the head"
        return f"pairs: {self.pairs}; tables: {self.tables}{where}"


class NotKnown(ValueError):
    """A function is none of the rotations here; the message has the reason."""


# ---- recognizing a rotation --------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return the function's parameters, and whether it takes one tensor.

    Raises:
        NotKnown: it has other parameters than a rotation.
    """
    names = list(_signature(function).parameters)
    tensors = 1 if names[1:3] == ["cos", "sin"] else 2
    if names[tensors : tensors + 2] != ["cos", "sin"]:
        raise NotKnown(f"it takes ({', '.join(names)}), not q, k, cos and sin")
    if more := [n for n in names[tensors + 2 :] if n not in ("unsqueeze_dim", "position_ids")]:
        raise NotKnown(f"it takes {', '.join(more)} as well")
    return names, tensors == 1


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):
        raise NotKnown("its parameters cannot be read") from None


def classify(function: Callable[..., Any]) -> Form:
    """Return the function's rotation. The function is called with random heads and angles, and its result is
    compared with that of each rotation.

    Raises:
        NotKnown: it is none of those here, or raises any exception; the message has the reason.
    """
    form: Form = tried(_classified, function)
    return form


def tried(classify: Callable[[Any], Any], what: Any) -> Any:
    """Return classify's result; convert every exception to NotKnown."""
    try:
        return classify(what)
    except NotKnown:
        raise
    except Exception as error:
        message = _first_line(error)
        name = type(error).__name__
        raise NotKnown(f"when it was tried it raised {name}" + (f": {message}" if message else "")) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _classified(function: Callable[..., Any]) -> Form:
    _, single = parameters_of(function)
    trouble = []
    for tokens_first in (False, True):
        found, reason = _matches(function, single, tokens_first)
        trouble.append(reason)
        whole = [key for key, places in found.items() if "" in places]
        if len(whole) == 1:
            partial = found[whole[0]] - {""}
            place = partial.pop() if len(partial) == 1 else None
            form = _with_promotion(function, Form(*whole[0], place, single, tokens_first=tokens_first))
            _require_everywhere(function, form)
            usual = _signature(function).parameters.get("unsqueeze_dim")
            form = replace(form, usual_dim=usual.default if usual is not None else None)
            form = replace(form, flat_axis=_flat_axis(function, form))
            _require_parameters(function, form)
            return form
    raise NotKnown(trouble[0] if all(trouble) else "what it computes is no rotation known here")


def _matches(
    function: Callable[..., Any], single: bool, tokens_first: bool
) -> tuple[dict[tuple[str, str], set[str]], str]:
    """Return the rotations that the result matches: for each pairs and tables the places, "" for a whole
    head. Also return the first error if every call failed, else "".
    """
    generator = torch.Generator().manual_seed(0)
    found: dict[tuple[str, str], set[str]] = {}
    trouble, gave = "", False
    for width, places in ((WIDTH, (None,)), (WIDTH // 2, (HEAD, TAIL))):
        angles = torch.rand(BATCH, TOKENS, width // 2, generator=generator) * 6
        for tables, encoded in encodings(angles):
            heads = [torch.randn(BATCH, n, TOKENS, WIDTH, generator=generator) for n in (HEADS, KEY_HEADS)]
            heads = heads[:1] if single else heads
            turned = [h.transpose(1, 2) for h in heads] if tokens_first else heads
            try:
                given = _called(function, turned, encoded.cos(), encoded.sin())
                if tokens_first:  # must give the same without batches
                    alone = _called(function, [h[0] for h in turned], encoded[0].cos(), encoded[0].sin())
                    if not all(_is_same(a, g[0]) for a, g in zip(alone, given, strict=True)):
                        continue
                    given = [g.transpose(1, 2) for g in given]
            except Exception as error:
                trouble = trouble or f"it takes no heads [B,N,S,D] with tables [B,S,W] ({_first_line(error)})"
                continue
            gave = True
            for place in places:
                for pairs in (HALF, INTERLEAVED, TO_HALVES):
                    expected = [_rotated(h, angles[:, None], pairs, place) for h in heads]
                    if all(_is_same(g, e) for g, e in zip(given, expected, strict=True)):
                        found.setdefault((pairs, tables), set()).add(place or "")
    return found, "" if gave else trouble


def _require_everywhere(function: Callable[..., Any], form: Form) -> None:
    """Require the same rotation for other sizes and for tables that contain an attention factor.

    Raises:
        NotKnown: it is another rotation, or it overwrites its arguments.
    """
    ours, generator = replacement(function, form), torch.Generator().manual_seed(1)
    for batch, tokens, head, share in ((1, 1, 64, 1), (3, 19, 32, 1), (2, 9, 48, 2), (1, 130, 128, 2)):
        if share != 1 and form.place is None:
            share = 1
        angles = torch.rand(batch, tokens, head // share // 2, generator=generator) * 6
        encoded = dict(encodings(angles))[form.tables]
        shapes = [(batch, n, tokens, head) for n in (HEADS, 1)][: 1 if form.single else 2]
        heads = [torch.randn(shape, generator=generator) for shape in shapes]
        heads = [h.transpose(1, 2).contiguous() for h in heads] if form.tokens_first else heads
        tables = encoded.cos() * 1.3, encoded.sin() * 1.3
        before = [t.clone() for t in (*heads, *tables)]
        with torch.no_grad():
            given, expected = (f(*heads, *tables) for f in (function, ours))
        if not all(map(torch.equal, before, (*heads, *tables))):
            raise NotKnown("it writes over what it was given")
        given, expected = ([r] if form.single else list(r) for r in (given, expected))
        if not all(_is_same(g, e.double()) for g, e in zip(given, expected, strict=True)):
            raise NotKnown("it is a rotation known here for some sizes only")


def _require_parameters(function: Callable[..., Any], form: Form) -> None:
    """Require that unsqueeze_dim selects the tables' axis of heads, and that position_ids has no effect.

    Raises:
        NotKnown: one of them does something else.
    """
    names, _ = parameters_of(function)
    ours, generator = replacement(function, form), torch.Generator().manual_seed(2)
    angles = torch.rand(BATCH, TOKENS, WIDTH // 2, generator=generator) * 6
    encoded = dict(encodings(angles))[form.tables]
    shapes = [(BATCH, n, TOKENS, WIDTH) for n in (HEADS, KEY_HEADS)][: 1 if form.single else 2]
    heads = [torch.randn(shape, generator=generator) for shape in shapes]
    turned = [h.transpose(1, 2) for h in heads]

    def differs(heads: list[torch.Tensor], angles: torch.Tensor, **more: Any) -> bool:
        given = _called(function, heads, angles.cos(), angles.sin(), **more)
        try:
            expected = _called(ours, heads, angles.cos(), angles.sin(), **more)
        except ValueError:
            return True
        return not all(_is_same(g, e.double()) for g, e in zip(given, expected, strict=True))

    for dim in (1, 2) if "unsqueeze_dim" in names else ():
        try:
            if not differs(heads if dim == 1 else turned, encoded, unsqueeze_dim=dim):
                continue
        except Exception:  # shapes that do not broadcast
            pass
        raise NotKnown("it takes unsqueeze_dim, but its tables get their heads' axis elsewhere")
    ids = torch.arange(TOKENS).flip(0)[None]
    for position_ids in (ids, ids.expand(BATCH, -1)) if "position_ids" in names else ():
        for table in (encoded, encoded[0]):
            try:
                if not differs(turned if form.tokens_first else heads, table, position_ids=position_ids):
                    continue
            except Exception:
                if table is not encoded:  # it takes no tables without batches
                    continue
            raise NotKnown("it turns by position_ids, too")


def _flat_axis(function: Callable[..., Any], form: Form) -> int | None:
    """Return the axis of heads of tables without batches, if heads with and without batches agree."""
    generator = torch.Generator().manual_seed(3)
    angles = torch.rand(TOKENS, WIDTH // 2, generator=generator) * 6
    tables = dict(encodings(angles))[form.tables]
    heads = [torch.randn(BATCH, n, TOKENS, WIDTH, generator=generator) for n in (HEADS, KEY_HEADS)]
    heads = heads[: 1 if form.single else 2]
    expected = [_rotated(h, angles, form.pairs, None) for h in heads]
    for axis in (HEADS_FIRST, TOKENS_FIRST):
        try:
            laid = heads if axis == HEADS_FIRST else [h.transpose(1, 2) for h in heads]
            batches = _called(function, laid, tables.cos(), tables.sin())
            alone = _called(function, [h[0] for h in laid], tables.cos(), tables.sin())
        except Exception:  # shapes that do not broadcast
            continue
        wanted = expected if axis == HEADS_FIRST else [e.transpose(1, 2) for e in expected]
        if all(_is_same(b, w) and _is_same(a, w[0]) for b, a, w in zip(batches, alone, wanted, strict=True)):
            return axis
    return None


def _with_promotion(function: Callable[..., Any], form: Form) -> Form:
    shape = (1, 2, 1, WIDTH) if form.tokens_first else (1, 1, 2, WIDTH)
    heads = [torch.ones(shape, dtype=torch.bfloat16)] * (1 if form.single else 2)
    angles = torch.ones(1, 2, WIDTH // (2 if form.tables == ONCE else 1))
    given = _called(function, heads, angles.cos(), angles.sin())[0].dtype
    same = _called(function, heads, angles.cos().bfloat16(), angles.sin().bfloat16())[0].dtype
    for became in (given, same):
        if became not in (torch.bfloat16, torch.float32) or same != torch.bfloat16:
            raise NotKnown(f"bfloat16 heads become {str(became).removeprefix('torch.')}")
    return replace(form, promotes=given == torch.float32)


def encodings(angles: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every layout of tables with its entries for these angles, one a pair."""
    yield TWICE, torch.cat((angles, angles), -1)
    yield EACH_TWICE, angles.repeat_interleave(2, -1)
    yield ONCE, angles


def _called(
    function: Callable[..., Any], heads: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, **more: Any
) -> list[torch.Tensor]:
    """Return the function's results, which must be a tensor for each of its heads."""
    with torch.no_grad():
        given = function(*(h.clone() for h in heads), cos, sin, **more)
    given = [given] if isinstance(given, torch.Tensor) else list(given)
    if [getattr(g, "shape", None) for g in given] != [h.shape for h in heads]:
        raise NotKnown("it does not give a tensor for each of its heads")
    return given


def _rotated(x: torch.Tensor, angles: torch.Tensor, pairs: str, place: str | None) -> torch.Tensor:
    """Rotate by the definition, in float64."""
    width = 2 * angles.shape[-1]
    begin = x.shape[-1] - width if place == TAIL else 0
    turning, cos, sin = x[..., begin : begin + width].double(), angles.double().cos(), angles.double().sin()
    if pairs == HALF:
        first, second = turning.chunk(2, -1)
    else:
        first, second = turning[..., 0::2], turning[..., 1::2]
    turned = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(turned, -1).flatten(-2) if pairs == INTERLEAVED else torch.cat(turned, -1)
    return torch.cat((x[..., :begin].double(), joined, x[..., begin + width :].double()), -1)


def _is_same(given: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((given.double() - expected).abs().max() <= SAME_ROTATION * expected.abs().max())


# ---- replacing a rotation ------------------------------------------------------------------------------


def replacement(function: Callable[..., Any], form: Form, uses: Uses | None = None) -> Callable[..., Any]:
    """Return the same rotation by npu_rope, with the function's parameters. It calls the function itself
    without keys, and for shapes that the recognition did not cover, such as tables that are narrower than
    heads that rotate whole.

    Args:
        function: a model's function.
        form: its rotation.
        uses: None: rotate by the tables, with :func:`npu_rope.rotary_mul_qk`. Otherwise rotate by the
            positions of the tables where these are known, with :func:`npu_rope.rope_qk`, and record here
            which of both was used.
    """
    interleaved = form.pairs == INTERLEAVED
    lanes = 2 if form.tables == ONCE else 1  # rotated by one entry of the tables
    key = form.pairs, form.tables, form.place

    def rotate(
        heads: Sequence[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int | None
    ) -> Any:
        if heads[-1] is None:
            return NotImplemented
        first, tables = heads[0], cos.shape
        axis = heads_axis(form, unsqueeze_dim, len(tables))
        if axis is None or tables != sin.shape or cos.dtype != sin.dtype:
            return NotImplemented
        head, width = first.shape[-1], tables[-1] * lanes
        fits = width == head if form.place is None else width <= head and width % 2 == 0
        if not fits or not serves(tables, heads, axis):
            return NotImplemented
        if cos.dtype != first.dtype:
            if cos.dtype != torch.float32 or first.dtype not in (torch.float16, torch.bfloat16):
                return NotImplemented
            if form.promotes:
                heads = tuple(h.float() for h in heads)
        given = [tokens_first(halved(h, form, width), axis) for h in heads]
        if uses is not None and (found := uses.find(cos, sin, key)) is not None:
            if form.single:
                return tokens_first(rope(given[0], *found), axis)
            q, k = rope_qk(given[0], given[1], *found)
            return tokens_first(q, axis), tokens_first(k, axis)
        offset = head - width if form.place == TAIL else 0
        if interleaved and form.tables == TWICE:
            cos, sin = cos[..., : width // 2], sin[..., : width // 2]
        if form.single:
            y = rotary_mul(given[0], cos, sin, interleaved=interleaved, rotary_dim=width, offset=offset)
            return tokens_first(y, axis)
        q, k = given
        q, k = rotary_mul_qk(q, k, cos, sin, interleaved=interleaved, rotary_dim=width, offset=offset)
        return tokens_first(q, axis), tokens_first(k, axis)

    def rotate_and_record(*given: Any) -> Any:
        made = rotate(*given)
        if made is NotImplemented and uses is not None:
            uses.by_tables = "the model's own function rotates heads and tables of these shapes and types"
        return made

    return with_parameters(rotate if uses is None else rotate_and_record, function, form)


def with_parameters(
    rotate: Callable[..., Any], function: Callable[..., Any], form: Form
) -> Callable[..., Any]:
    """Return ``rotate(heads, cos, sin, unsqueeze_dim)`` with the parameters of a model's function. If rotate
    gives NotImplemented, the function itself is called."""
    parameters = _signature(function).parameters
    names = tuple(parameters)
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    by_position = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
    tensors = names[: 1 if form.single else 2]
    # Models pass heads, cos and sin by position, so that no arguments have to be bound.
    usual = len(tensors) + 2
    may_be_usual = by_position >= usual and all(name in defaults for name in names[usual:])
    usual_dim = defaults.get("unsqueeze_dim")

    def stand_in(*given: Any, **named: Any) -> Any:
        if may_be_usual and len(given) == usual and not named:
            *heads, cos, sin = given
            dim = usual_dim
        else:
            values = {**defaults, **dict(zip(names, given, strict=False)), **named}
            if len(given) > by_position or len(values) != len(names):
                got = ", ".join((*names[: len(given)], *named))
                raise bad_type(OP, "a rotation", f"be given {', '.join(names)}", got)
            heads, dim = [values[name] for name in tensors], values.get("unsqueeze_dim")
            cos, sin = values["cos"], values["sin"]
        made = rotate(heads, cos, sin, dim)
        return function(*given, **named) if made is NotImplemented else made

    return stand_in


HEADS_FIRST, TOKENS_FIRST = -3, -2  # the axis of size 1 in tables that broadcast over [B,N,S,D] or [B,S,N,D]
_UNSQUEEZED = {1: HEADS_FIRST, 2: TOKENS_FIRST}


def heads_axis(form: Form, unsqueeze_dim: int | None, dims: int) -> int | None:
    """Return HEADS_FIRST or TOKENS_FIRST for tables of ``dims`` dimensions that are unsqueezed at
    unsqueeze_dim, or by default where the function does it. None: it is neither."""
    if dims == 2:
        return form.flat_axis if unsqueeze_dim == form.usual_dim else None
    if unsqueeze_dim is None:
        return TOKENS_FIRST if form.tokens_first else HEADS_FIRST
    return _UNSQUEEZED.get(unsqueeze_dim)


def serves(tables: Sequence[int], heads: Sequence[torch.Tensor], axis: int) -> bool:
    """Whether tables of these sizes have a row for each token of all heads, and all heads have one dtype and
    width. Tables [B,S,W] need heads of B batches, or of any number if B is 1; tables [S,W] take heads with or
    without batches."""
    first = heads[0]
    shape, dtype, dims = first.shape, first.dtype, len(tables)
    if dims == 3:
        if len(shape) != 4 or tables[0] not in (1, shape[0]):
            return False
    elif dims != 2 or len(shape) not in (3, 4):
        return False
    tokens = -2 if axis == HEADS_FIRST else -3
    if shape[tokens] != tables[-2]:
        return False
    for other in heads[1:]:
        if other.dtype != dtype or other.ndim != len(shape):
            return False
        sizes = other.shape
        if sizes[-1] != shape[-1] or sizes[tokens] != shape[tokens] or sizes[:-3] != shape[:-3]:
            return False
    return True


def tokens_first(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Transpose [B,N,S,D] to [B,S,N,D], or back; return tokens-first heads unchanged."""
    return x.transpose(-3, -2) if axis == HEADS_FIRST else x


def halved(x: torch.Tensor, form: Form, width: int) -> torch.Tensor:
    """For neighbours written as halves: the first lane of each pair, then the second of each."""
    if form.pairs != TO_HALVES:
        return x
    return x.reshape(*x.shape[:-1], width // 2, 2).transpose(-1, -2).flatten(-2)
