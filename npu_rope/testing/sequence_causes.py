"""The attributes that make a sequence fail: those in which its calls differ, or those of one call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from npu_rope.testing.sequences import CallSequence, Node

_AXES = ("batch", "tokens", "heads", "head")  # of the shape
_DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in fields(Node) if field.default is not MISSING
}
_NAMES = (*_AXES, *_DEFAULTS)
_CONTENTS = ("pos", "x")  # contents that every call has
_INPUT = "x"
# For an attribute, the others whose rules depend on it.
_LINKED = {
    "mode": ("sections", "n_dims", "n_offs"),
    "forward": ("inplace",),
    "head": ("n_dims", "n_offs", "sections"),
}


@dataclass(frozen=True)
class Cause:
    """The attributes that make a sequence fail.

    Attributes:
        names: the attributes.
        is_alone: True: a call fails alone, and its attributes are not the defaults. False: the calls differ
            in the attributes.
    """

    names: tuple[str, ...]
    is_alone: bool

    @property
    def names_in_words(self) -> str:
        """Return the attributes as text. Without attributes it is "anything" or "equal inputs"."""
        return ", ".join(self.names) or ("anything" if self.is_alone else "equal inputs")

    def __str__(self) -> str:
        if self.is_alone:
            return f"a call with {', '.join(self.names)}" if self.names else "any call"
        return f"calls that differ in {', '.join(self.names)}" if self.names else "equal calls"

    def is_in(self, sequence: CallSequence) -> bool:
        """Return whether a sequence has this cause."""
        nodes = sequence.nodes
        if self.is_alone:
            return all(any(_value(node, name) != _DEFAULTS[name] for node in nodes) for name in self.names)
        return all(_differ(nodes, name) for name in self.names) if self.names else _share_inputs(nodes)

    def removed_from(self, sequence: CallSequence) -> CallSequence | None:
        """Return the sequence without this cause; None if it lacks the cause, or must have it.

        All calls get the attributes' values of the first call or, if these break a rule, of a later one. If
        the cause is that of one call (``is_alone``), all calls get the defaults. Equal calls get inputs of
        their own.
        """
        if not self.is_in(sequence) or (self.is_alone and not self.names):
            return None
        if not self.names:
            return replace(
                sequence, nodes=tuple(replace(node, x=x) for x, node in enumerate(sequence.nodes, 1))
            )
        sources = [Node(sequence.nodes[0].shape)] if self.is_alone else list(dict.fromkeys(sequence.nodes))
        for source in sources:
            for linked in (False, True):
                names = [
                    *self.names,
                    *(other for name in self.names if linked for other in _LINKED.get(name, ())),
                ]
                try:
                    nodes = tuple(_with_values_of(node, source, names) for node in sequence.nodes)
                except ValueError:
                    continue
                return replace(sequence, nodes=nodes)
        return None


EQUAL_CALLS = Cause((), is_alone=False)


def cause_of(simplest: CallSequence, *, has_own_inputs: bool = False) -> Cause:
    """Return the cause of the failure of a sequence that cannot be simplified further.

    Args:
        has_own_inputs: the calls have inputs of their own, because equal inputs cause another fault.
    """
    nodes = simplest.nodes
    if len(nodes) == 1:
        changed = [name for name, default in _DEFAULTS.items() if getattr(nodes[0], name) != default]
        return Cause(tuple(name for name in changed if name not in _CONTENTS), is_alone=True)
    names = [name for name in _NAMES if _differ(nodes, name)]
    if has_own_inputs and len(names) > 1:
        names = [name for name in names if name != _INPUT]
    return Cause(tuple(names), is_alone=False)


def _value(node: Node, name: str) -> Any:
    return node.shape[_AXES.index(name)] if name in _AXES else getattr(node, name)


def _differ(nodes: Iterable[Node], name: str) -> bool:
    return len({_value(node, name) for node in nodes}) > 1


def _share_inputs(nodes: Iterable[Node]) -> bool:
    contents = [node.x for node in nodes]
    return len(set(contents)) < len(contents)


def _with_values_of(node: Node, source: Node, names: Iterable[str]) -> Node:
    values: dict[str, Any] = {}
    shape = list(node.shape)
    for name in names:
        if name in _AXES:
            shape[_AXES.index(name)] = _value(source, name)
        else:
            values[name] = _value(source, name)
    return replace(node, shape=tuple(shape), **values)
