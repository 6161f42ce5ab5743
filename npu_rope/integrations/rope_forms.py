"""Recognize the rotation that a model's function of cos and sin computes, by calling it, and replace it.

A function takes ``(q, k, cos, sin)`` or ``(x, cos, sin)``: heads ``[B,N,S,D]``, or ``[B,S,N,D]`` and
``[S,N,D]`` in vision towers, and tables ``[B,S,W]`` or ``[S,W]``. Its name does not identify the rotation:
gpt-oss, nanochat and Llama use the same name, and rotate differently.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from npu_rope.errors import bad_type
from npu_rope.integrations.left_to_compiler import is_compiling, is_rotation_left_to_compiler
from npu_rope.integrations.rotation_form import (
    EACH_TWICE,
    FIRST_LANES,
    HALF,
    HEADS_FIRST,
    INTERLEAVED,
    INTERLEAVED_TO_HALVES,
    LAST_LANES,
    ONCE,
    TOKENS_FIRST,
    TWICE,
    Form,
    fit,
    heads_axis,
    tokens_first,
)
from npu_rope.integrations.table_origins import Uses
from npu_rope.ops.calls import records_calls, try_hot_path
from npu_rope.ops.rope import rope
from npu_rope.ops.rope_qk import rope_qk
from npu_rope.ops.rotary import neighbours_to_halves
from npu_rope.ops.rotary_mul import rotary_mul, rotary_mul_qk

OP = "apply_npu_rope"
# A result that differs by more than this share of its largest element comes from another rotation.
SAME_ROTATION = 1e-5
BATCH, HEADS, KEY_HEADS, TOKENS, WIDTH = 2, 4, 2, 5, 16

# The most elements of queries that rotary_mul_qk_to_halves rearranges, on one thread. Torch distributes more
# than 32,768 among its threads.
MOST_REARRANGED = 1 << 17


class NotKnown(ValueError):
    """A function or module has no known form. The message has the reason."""


# ---- recognizing a rotation --------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return the function's parameters, and whether it takes one tensor.

    Raises:
        NotKnown: the function has other parameters than a rotation.
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
        NotKnown: the function is another rotation or raises an exception. The message has the reason.
    """
    form: Form = or_not_known(_classified, function)
    return form


def or_not_known(classify: Callable[[Any], Any], candidate: Any) -> Any:
    """Return classify's result for a function or module; convert every exception to NotKnown."""
    try:
        return classify(candidate)
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
    errors = []
    for has_tokens_first in (False, True):
        found, error = _matches(function, single, has_tokens_first)
        errors.append(error)
        whole_head_keys = [key for key, places in found.items() if "" in places]
        if len(whole_head_keys) == 1:
            (key,) = whole_head_keys
            places = found[key] - {""}
            place = places.pop() if len(places) == 1 else None
            form = _with_promotion(function, Form(*key, place, single, tokens_first=has_tokens_first))
            _require_for_other_sizes(function, form)
            unsqueeze_dim = _signature(function).parameters.get("unsqueeze_dim")
            if unsqueeze_dim is not None:
                form = replace(form, default_unsqueeze_dim=unsqueeze_dim.default)
            form = replace(form, flat_axis=_flat_axis(function, form))
            _require_parameters(function, form)
            return form
    raise NotKnown(errors[0] if all(errors) else "what it computes is no rotation known here")


def _matches(
    function: Callable[..., Any], single: bool, has_tokens_first: bool
) -> tuple[dict[tuple[str, str], set[str]], str]:
    """Return the rotations that match the function's results: the values of ``Form.place`` by ``Form.pairs``
    and ``Form.tables``. A place "" means that the whole head rotates. Also return the first error if every
    call failed, else "".
    """
    generator = torch.Generator().manual_seed(0)
    found: dict[tuple[str, str], set[str]] = {}
    first_error, succeeded = "", False
    for width, places in ((WIDTH, (None,)), (WIDTH // 2, (FIRST_LANES, LAST_LANES))):
        angles = torch.rand(BATCH, TOKENS, width // 2, generator=generator, dtype=torch.float32) * 6
        for tables, encoded in encodings(angles):
            heads = [
                torch.randn(BATCH, n, TOKENS, WIDTH, generator=generator, dtype=torch.float32)
                for n in (HEADS, KEY_HEADS)
            ]
            heads = heads[:1] if single else heads
            passed = [h.transpose(1, 2) for h in heads] if has_tokens_first else heads
            try:
                results = _called(function, passed, encoded.cos(), encoded.sin())
                if has_tokens_first:  # heads without the batch dimension must give the same results
                    alone = _called(function, [h[0] for h in passed], encoded[0].cos(), encoded[0].sin())
                    if not all(_is_same(a, r[0]) for a, r in zip(alone, results, strict=True)):
                        continue
                    results = [r.transpose(1, 2) for r in results]
            except Exception as error:
                message = f"it takes no heads [B,N,S,D] with tables [B,S,W] ({_first_line(error)})"
                first_error = first_error or message
                continue
            succeeded = True
            for place in places:
                for pairs in (HALF, INTERLEAVED, INTERLEAVED_TO_HALVES):
                    expected = [_rotated(h, angles[:, None], pairs, place) for h in heads]
                    if all(_is_same(r, e) for r, e in zip(results, expected, strict=True)):
                        found.setdefault((pairs, tables), set()).add(place or "")
    return found, "" if succeeded else first_error


def _require_for_other_sizes(function: Callable[..., Any], form: Form) -> None:
    """Require the same rotation for other sizes and for tables that contain an attention factor.

    Raises:
        NotKnown: the function is another rotation, or it overwrites its arguments.
    """
    ours, generator = replacement(function, form), torch.Generator().manual_seed(1)
    for batch, tokens, head, share in ((1, 1, 64, 1), (3, 19, 32, 1), (2, 9, 48, 2), (1, 130, 128, 2)):
        if share != 1 and form.place is None:
            share = 1
        angles = torch.rand(batch, tokens, head // share // 2, generator=generator, dtype=torch.float32) * 6
        encoded = dict(encodings(angles))[form.tables]
        shapes = [(batch, n, tokens, head) for n in (HEADS, 1)][: 1 if form.single else 2]
        heads = [torch.randn(shape, generator=generator, dtype=torch.float32) for shape in shapes]
        heads = [h.transpose(1, 2).contiguous() for h in heads] if form.tokens_first else heads
        tables = encoded.cos() * 1.3, encoded.sin() * 1.3
        before = [t.clone() for t in (*heads, *tables)]
        with torch.no_grad():
            results, expected = (f(*heads, *tables) for f in (function, ours))
        if not all(map(torch.equal, before, (*heads, *tables))):
            raise NotKnown("it overwrites its arguments")
        results, expected = ([r] if form.single else list(r) for r in (results, expected))
        if not all(_is_same(r, e.double()) for r, e in zip(results, expected, strict=True)):
            raise NotKnown("it is a rotation known here for some sizes only")


def _require_parameters(function: Callable[..., Any], form: Form) -> None:
    """Require that unsqueeze_dim selects the tables' axis of heads, and that position_ids has no effect.

    Raises:
        NotKnown: one of them does something else.
    """
    names, _ = parameters_of(function)
    ours, generator = replacement(function, form), torch.Generator().manual_seed(2)
    angles = torch.rand(BATCH, TOKENS, WIDTH // 2, generator=generator, dtype=torch.float32) * 6
    encoded = dict(encodings(angles))[form.tables]
    shapes = [(BATCH, n, TOKENS, WIDTH) for n in (HEADS, KEY_HEADS)][: 1 if form.single else 2]
    heads = [torch.randn(shape, generator=generator, dtype=torch.float32) for shape in shapes]
    tokens_first_heads = [h.transpose(1, 2) for h in heads]

    def differs(heads: list[torch.Tensor], angles: torch.Tensor, **more: Any) -> bool:
        results = _called(function, heads, angles.cos(), angles.sin(), **more)
        try:
            expected = _called(ours, heads, angles.cos(), angles.sin(), **more)
        except ValueError:
            return True
        return not all(_is_same(r, e.double()) for r, e in zip(results, expected, strict=True))

    for dim in (1, 2) if "unsqueeze_dim" in names else ():
        try:
            if not differs(heads if dim == 1 else tokens_first_heads, encoded, unsqueeze_dim=dim):
                continue
        except Exception:  # shapes that do not broadcast
            pass
        raise NotKnown("its unsqueeze_dim does not select the tables' axis of heads")
    ids = torch.arange(TOKENS).flip(0)[None]
    for position_ids in (ids, ids.expand(BATCH, -1)) if "position_ids" in names else ():
        for table in (encoded, encoded[0]):
            try:
                if not differs(
                    tokens_first_heads if form.tokens_first else heads, table, position_ids=position_ids
                ):
                    continue
            except Exception:
                if table is not encoded:  # the function takes no tables without batches
                    continue
            raise NotKnown("its rotation depends on position_ids")


def _flat_axis(function: Callable[..., Any], form: Form) -> int | None:
    """Return ``Form.flat_axis``. Heads with and without batches must give the same results."""
    generator = torch.Generator().manual_seed(3)
    angles = torch.rand(TOKENS, WIDTH // 2, generator=generator, dtype=torch.float32) * 6
    tables = dict(encodings(angles))[form.tables]
    heads = [
        torch.randn(BATCH, n, TOKENS, WIDTH, generator=generator, dtype=torch.float32)
        for n in (HEADS, KEY_HEADS)
    ]
    heads = heads[: 1 if form.single else 2]
    expected = [_rotated(h, angles, form.pairs, None) for h in heads]
    for axis in (HEADS_FIRST, TOKENS_FIRST):
        try:
            passed = heads if axis == HEADS_FIRST else [h.transpose(1, 2) for h in heads]
            batches = _called(function, passed, tables.cos(), tables.sin())
            alone = _called(function, [h[0] for h in passed], tables.cos(), tables.sin())
        except Exception:  # shapes that do not broadcast
            continue
        wanted = expected if axis == HEADS_FIRST else [e.transpose(1, 2) for e in expected]
        if all(_is_same(b, w) and _is_same(a, w[0]) for b, a, w in zip(batches, alone, wanted, strict=True)):
            return axis
    return None


def _with_promotion(function: Callable[..., Any], form: Form) -> Form:
    """Return the form with ``promotes`` set."""
    shape = (1, 2, 1, WIDTH) if form.tokens_first else (1, 1, 2, WIDTH)
    heads = [torch.ones(shape, dtype=torch.bfloat16)] * (1 if form.single else 2)
    angles = torch.ones(1, 2, WIDTH // (2 if form.tables == ONCE else 1), dtype=torch.float32)
    dtype_with_float32 = _called(function, heads, angles.cos(), angles.sin())[0].dtype
    dtype_with_bfloat16 = _called(function, heads, angles.cos().bfloat16(), angles.sin().bfloat16())[0].dtype
    for dtype in (dtype_with_float32, dtype_with_bfloat16):
        if dtype not in (torch.bfloat16, torch.float32) or dtype_with_bfloat16 != torch.bfloat16:
            raise NotKnown(f"bfloat16 heads become {str(dtype).removeprefix('torch.')}")
    return replace(form, promotes=dtype_with_float32 == torch.float32)


def encodings(angles: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every layout of tables, with the angles ``[..., pairs]`` in that layout."""
    yield TWICE, torch.cat((angles, angles), -1)
    yield EACH_TWICE, angles.repeat_interleave(2, -1)
    yield ONCE, angles


def _called(
    function: Callable[..., Any], heads: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, **more: Any
) -> list[torch.Tensor]:
    """Return the function's results, which must be one tensor for each tensor of heads, of its shape."""
    with torch.no_grad():
        results = function(*(h.clone() for h in heads), cos, sin, **more)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    if [getattr(r, "shape", None) for r in results] != [h.shape for h in heads]:
        raise NotKnown("its results do not have the shapes of its heads")
    return results


def _rotated(x: torch.Tensor, angles: torch.Tensor, pairs: str, place: str | None) -> torch.Tensor:
    """Rotate by the definition, in float64."""
    width = 2 * angles.shape[-1]
    begin = x.shape[-1] - width if place == LAST_LANES else 0
    window, cos, sin = x[..., begin : begin + width].double(), angles.double().cos(), angles.double().sin()
    if pairs == HALF:
        first, second = window.chunk(2, -1)
    else:
        first, second = window[..., 0::2], window[..., 1::2]
    rotated = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(rotated, -1).flatten(-2) if pairs == INTERLEAVED else torch.cat(rotated, -1)
    return torch.cat((x[..., :begin].double(), joined, x[..., begin + width :].double()), -1)


def _is_same(given: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((given.double() - expected).abs().max() <= SAME_ROTATION * expected.abs().max())


# ---- replacing a rotation ------------------------------------------------------------------------------


def replacement(function: Callable[..., Any], form: Form, uses: Uses | None = None) -> Callable[..., Any]:
    """Return a function that computes the same rotation by npu_rope, with the same parameters.

    It calls the original function if there are no keys. It also calls it for shapes that the recognition did
    not cover, such as tables narrower than the heads where ``form.place`` is None, and for calls that are
    left to torch.compile (:mod:`~npu_rope.integrations.left_to_compiler`).

    Args:
        function: a model's function.
        form: its rotation.
        uses: None: rotate by the tables, with :func:`npu_rope.rotary_mul_qk`. Otherwise rotate by the
            positions of the tables if these are recorded, with :func:`npu_rope.rope_qk`, and record in
            ``uses`` which of the two was used.
    """
    interleaved, to_halves = form.pairs == INTERLEAVED, form.pairs == INTERLEAVED_TO_HALVES
    halves_tables, in_last_lanes = interleaved and form.tables == TWICE, form.place == LAST_LANES
    promotes, single, key = form.promotes, form.single, (form.pairs, form.tables, form.place)
    default_dim, lanes_of_entry = form.default_unsqueeze_dim, 2 if form.tables == ONCE else 1
    may_be_decode = uses is None and not single and heads_axis(form, default_dim, 3) == HEADS_FIRST
    heads_first = "rotary_mul_qk_to_halves" if to_halves else "rotary_mul_qk_heads_first"

    def rotate_decode(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        """Rotate queries and keys ``[B,N,1,D]`` by tables ``[B,1,W]``, by an operator that reads heads first.
        Return NotImplemented for other calls. :func:`fit` would take a third of the time of a decode-sized
        call, so the operator checks what it sees, and transpositions would take another third."""
        shape, table_shape = q.shape, cos.shape
        if len(table_shape) != 3 or table_shape[1] != 1 or len(shape) != 4 or k is None:
            return NotImplemented
        head, width = shape[3], table_shape[2] * lanes_of_entry
        if width != head and form.place is None:
            return NotImplemented
        if cos.dtype != q.dtype and (promotes or q.dtype == torch.float64):
            return NotImplemented
        if to_halves:
            attributes: tuple[Any, ...] = ()
            if q.numel() > MOST_REARRANGED:
                return NotImplemented
        else:
            attributes = interleaved, width, head - width if in_last_lanes else 0, True
        if halves_tables:
            if sin.shape != table_shape:  # the operator sees only the halves
                return NotImplemented
            cos, sin = cos[..., : width // 2], sin[..., : width // 2]
        return try_hot_path(heads_first, (q, k, cos, sin), attributes)

    def rotate(
        heads: Sequence[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int | None
    ) -> Any:
        if (fitted := fit(form, heads, cos, sin, unsqueeze_dim)) is None:
            return NotImplemented
        axis, width = fitted
        first = heads[0]
        offset = first.shape[-1] - width if in_last_lanes else 0
        if promotes and cos.dtype != first.dtype:
            heads = [h.float() for h in heads]
        found = None if uses is None else uses.find(cos, sin, key)
        if found is None and axis == HEADS_FIRST and not single and not is_compiling():
            pair = rotate_decode(heads[0], heads[1], cos, sin)
            if pair is not NotImplemented:
                return pair
        if to_halves:
            heads = [neighbours_to_halves(h) for h in heads]
        if found is None and halves_tables:
            cos, sin = cos[..., : width // 2], sin[..., : width // 2]
        heads = [tokens_first(h, axis) for h in heads]
        window: Any = {"interleaved": interleaved, "rotary_dim": width, "offset": offset}
        if single:
            y = rope(heads[0], *found) if found else rotary_mul(heads[0], cos, sin, **window)
            return tokens_first(y, axis)
        q, k = heads
        q, k = rope_qk(q, k, *found) if found else rotary_mul_qk(q, k, cos, sin, **window)
        return tokens_first(q, axis), tokens_first(k, axis)

    def rotate_and_record(*given: Any) -> Any:
        results = rotate(*given)
        if results is NotImplemented and uses is not None:
            uses.tables_reason = "the model's own function rotates heads and tables of these shapes and types"
        return results

    return with_parameters(
        rotate if uses is None else rotate_and_record,
        function,
        form,
        leaves_to_compiler=True,
        uses=uses,
        first=rotate_decode if may_be_decode else None,
    )


def with_parameters(
    rotate: Callable[..., Any],
    function: Callable[..., Any],
    form: Form,
    *,
    leaves_to_compiler: bool = False,
    uses: Uses | None = None,
    first: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return ``rotate(heads, cos, sin, unsqueeze_dim)`` with the parameters of a model's function. If rotate
    returns NotImplemented, the model's function is called; with ``leaves_to_compiler`` also for a call that
    is left to torch.compile (:mod:`~npu_rope.integrations.left_to_compiler`), which ``uses`` records, or that
    torch.jit.trace records.
    ``first`` is tried first, with the heads, cos and sin of a call that has nothing else."""
    parameters = _signature(function).parameters
    names = tuple(parameters)
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    positional_count = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
    tensors = names[: 1 if form.single else 2]
    # A short way for models that pass only heads, cos and sin, by position: no arguments have to be bound.
    usual_count = len(tensors) + 2
    may_be_usual = positional_count >= usual_count and all(name in defaults for name in names[usual_count:])
    default_unsqueeze_dim = defaults.get("unsqueeze_dim")

    def with_same_parameters(*given: Any, **named: Any) -> Any:
        # First of all: torch.compile guards all that the lines below read.
        compiles = is_compiling()
        if compiles and leaves_to_compiler and given and is_rotation_left_to_compiler(given[0]):
            if uses is not None:
                uses.note_compiled()
            return function(*given, **named)
        if may_be_usual and len(given) == usual_count and not named:
            if first is not None and not compiles and (results := first(*given)) is not NotImplemented:
                return results
            *heads, cos, sin = given
            dim = default_unsqueeze_dim
        else:
            values = {**defaults, **dict(zip(names, given, strict=False)), **named}
            if len(given) > positional_count or len(values) != len(names):
                got = ", ".join((*names[: len(given)], *named))
                raise bad_type(OP, "a rotation", f"be given {', '.join(names)}", got)
            heads, dim = [values[name] for name in tensors], values.get("unsqueeze_dim")
            cos, sin = values["cos"], values["sin"]
        is_left = leaves_to_compiler and records_calls()
        results = NotImplemented if is_left else rotate(heads, cos, sin, dim)
        return function(*given, **named) if results is NotImplemented else results

    return with_same_parameters
