"""Find the simplest sequence that fails as a given one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

from npu_rope.testing.sequences import CallSequence, Node

_SMALLEST_SHAPE = (1, 1, 1, 16)
_DEFAULTS = {field.name: field.default for field in fields(Node) if field.default is not MISSING}
_SIMPLER_SIGNS = {";": "+", "|": "+;"}
_FIRST_CONTENTS = ("pos", "ff", "x")  # numbers of contents: 1 is simpler than 2
_SIMPLE_SECTIONS = ((1, 1, 1, 0), (1, 1, 1, 1))


def shrink(sequence: CallSequence, fails: Callable[[CallSequence], bool], most_attempts: int) -> CallSequence:
    """Return a sequence that fails and none of whose simplifications fails, or the simplest one after the
    last attempt.

    Args:
        fails: returns whether a sequence fails as the given one does.
        most_attempts: the largest number of calls of ``fails``.
    """
    tried: set[str] = set()
    progress = True
    while progress:
        progress = False
        for candidate in simplifications(sequence):
            if candidate.name in tried:
                continue
            if len(tried) >= most_attempts:
                return sequence
            tried.add(candidate.name)
            if fails(candidate):
                sequence, progress = candidate, True
                break
    return sequence


def cost(sequence: CallSequence) -> tuple[int, ...]:
    """Return a number for each kind of complexity, the most important first: calls, graphs, attributes that
    are not the default or differ from the call before, and sizes."""
    nodes = sequence.nodes
    pairs = pairwise(nodes)
    written = sum(_complexity(name, getattr(node, name)) for node in nodes for name in _DEFAULTS)
    differing = sum(getattr(a, name) != getattr(b, name) for a, b in pairs for name in (*_DEFAULTS, "shape"))
    graphs = sum("+;|".index(sign) for sign in sequence.signs)
    return len(nodes), graphs, written + differing, sum(sum(node.shape) for node in nodes)


def _complexity(name: str, value: Any) -> int:
    if value == _DEFAULTS[name]:
        return 0
    if name in _FIRST_CONTENTS:
        return 2 * min(int(value), 3)
    return 2 if name == "sections" and value in _SIMPLE_SECTIONS else 3


def simplifications(sequence: CallSequence) -> Iterator[CallSequence]:
    """Yield simpler sequences, those that simplify most first."""
    yield from _shorter(sequence)
    for candidate in (*_with_simpler_signs(sequence), *_with_simpler_nodes(sequence)):
        if cost(candidate) < cost(sequence):
            yield candidate


def _shorter(sequence: CallSequence) -> Iterator[CallSequence]:
    """Yield the sequence without each half of its calls, without each quarter, ..., and without each call."""
    count = len(sequence.nodes)
    size = count // 2
    while size:
        for begin in range(0, count, size):
            end = min(begin + size, count)
            nodes = sequence.nodes[:begin] + sequence.nodes[end:]
            starts = ("|", *sequence.signs)
            # The call behind the removed ones gets the largest of their starts and its own.
            sign = max(starts[begin : end + 1], key="+;|".index)
            signs = (*starts[:begin], *((sign,) if end < count else ()), *starts[end + 1 :])
            yield replace(sequence, nodes=nodes, signs=signs[1:])
        size //= 2


def _with_simpler_signs(sequence: CallSequence) -> Iterator[CallSequence]:
    signs = sequence.signs
    yield replace(sequence, signs=("+",) * len(signs))
    for i, sign in enumerate(signs):
        for simpler in _SIMPLER_SIGNS.get(sign, ""):
            yield replace(sequence, signs=(*signs[:i], simpler, *signs[i + 1 :]))


def _with_simpler_nodes(sequence: CallSequence) -> Iterator[CallSequence]:
    """Yield the sequence with attributes simplified in all calls, then in one call, then taken from the call
    before."""
    changes = list(_changes(sequence))
    for of_which in (range(len(sequence.nodes)), *((i,) for i in range(len(sequence.nodes)))):
        for change in changes:
            nodes = list(sequence.nodes)
            try:
                for i in of_which:
                    nodes[i] = change(nodes[i])
            except ValueError:
                continue
            yield replace(sequence, nodes=tuple(nodes))
    for i in range(1, len(sequence.nodes)):
        for name in (*_DEFAULTS, "shape"):
            value = getattr(sequence.nodes[i - 1], name)
            try:
                node = replace(sequence.nodes[i], **{name: value})
            except ValueError:
                continue
            yield replace(sequence, nodes=(*sequence.nodes[:i], node, *sequence.nodes[i + 1 :]))


def _changes(sequence: CallSequence) -> Iterator[Callable[[Node], Node]]:
    def with_size(axis: int, size: int) -> Callable[[Node], Node]:
        return lambda node: replace(
            node, shape=(*node.shape[:axis], min(node.shape[axis], size), *node.shape[axis + 1 :])
        )

    def with_values(**values: Any) -> Callable[[Node], Node]:
        return lambda node: replace(node, **values)

    def with_values_of(is_meant: Callable[[Node], bool], **values: Any) -> Callable[[Node], Node]:
        return lambda node: replace(node, **values) if is_meant(node) else node

    yield with_values(**{name: value for name, value in _DEFAULTS.items() if name != "pos"})
    yield with_values(mode="normal", sections=_DEFAULTS["sections"])
    for mode in ("neox", "mrope"):
        yield with_values(mode=mode, **({"sections": _DEFAULTS["sections"]} if mode == "neox" else {}))
    yield with_values(n_dims=0, n_offs=0)
    yield with_values(ext_factor=0.0, n_ctx_orig=0, beta_fast=32.0, beta_slow=1.0)
    for name, value in _DEFAULTS.items():
        yield with_values(**{name: value})
    for sections in _SIMPLE_SECTIONS:
        yield with_values_of(lambda node: any(node.sections), sections=sections)
    for name in _FIRST_CONTENTS:
        for number in (1, 2):
            yield with_values_of(partial(_exceeds, name, number), **{name: number})
    # A second token has the position 1.
    yield lambda node: replace(node, shape=(node.shape[0], 2, *node.shape[2:]), pos=0)
    for axis, smallest in enumerate(_SMALLEST_SHAPE):
        for size in sorted({smallest, 2 * smallest, *(node.shape[axis] // 2 for node in sequence.nodes)}):
            if size >= smallest:
                yield with_size(axis, size)


def _exceeds(name: str, number: int, node: Node) -> bool:
    return bool(getattr(node, name) > number)
