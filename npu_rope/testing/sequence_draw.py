"""Draw the sequences of suite ``sequences`` from a seed.

A backend may keep state from one call to the next, and reuse it although the next call differs in a property
that the state should depend on. Most calls therefore differ from their predecessor in one property, and the
difference has an effect on the result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.sequences import CallSequence, Node

DEFAULT_COUNT = 200

MODES = tuple(mode.name.lower() for mode in RopeMode)
WITH_SECTIONS = tuple(mode.name.lower() for mode in RopeMode if mode.has_sections)
BATCHES, TOKENS, HEADS = (1, 1, 1, 2), (1, 2, 3, 5, 8, 17), (1, 2, 3)
HEAD_SIZES = (16, 32, 36, 64, 80, 128)
NUMBERS: dict[str, tuple[Any, ...]] = {
    "freq_base": (10000.0, 500000.0, 1000000.0, 100.0),
    "freq_scale": (1.0, 0.25, 0.5, 1.5),
    "ext_factor": (0.0, 1.0, 0.5),
    "attn_factor": (1.0, 1.25, 0.5),
    "beta_fast": (32.0, 8.0, 1.0),
    "beta_slow": (1.0, 2.0, 0.5),
    "n_ctx_orig": (0, 128, 4096, 32768),
    "ff": (0, 1, 2),
    "pos": (1, 2, 3),
    "x": (0, 1),
    "view": (0, 1, 2),
    "type": ("f32", "f16"),
    "forward": (True, False),
    "inplace": (False, True),
}

# The properties that one change varies, with weights: those from which a table of cos and sin is computed
# are drawn more often than those of the input.
CHANGES: dict[str, int] = {
    "freq_scale": 4, "freq_base": 3, "ext_factor": 5, "attn_factor": 3, "beta_fast": 8, "beta_slow": 9,
    "n_ctx_orig": 5, "ff": 7, "pos": 4, "mode": 4, "sections": 5, "n_dims": 3, "head": 4, "tokens": 4,
    "forward": 2, "inplace": 2, "type": 2, "n_offs": 1, "heads": 1, "batch": 1, "view": 1, "x": 1,
}  # fmt: skip
# Attributes from which the rotation is computed. The others change the input or its place in memory.
ROTATION = (
    "forward", "mode", "n_dims", "n_offs", "n_ctx_orig", "freq_base", "freq_scale", "ext_factor",
    "attn_factor", "beta_fast", "beta_slow", "sections", "ff", "pos",
)  # fmt: skip
# A change must change an element by this, for inputs in [-1, 1]. It is some ten times the largest bound.
LEAST_EFFECT = 0.02
_SHARE_WITH_YARN = 0.5  # of the nodes that are not a change of another one
_MOST_TRIES = 100


def sequence_cases(seed: int = 0, count: int = DEFAULT_COUNT) -> Iterator[CallSequence]:
    """Yield the first sequences of a seed. A longer run begins with those of a shorter one."""
    for index in range(count):
        yield draw(seed, index)


@cache
def draw(seed: int, index: int) -> CallSequence:
    """Return one sequence of a seed: two or three calls."""
    rng = random.Random(f"{seed} {index}")
    nodes = [_any_node(rng)]
    for _ in range(rng.choice((1, 2))):
        if len(nodes) == 2 and rng.random() < 0.3:
            nodes.append(nodes[0])  # a call again, after another one
        else:
            nodes.append(_successor(rng, nodes[-1]))
    signs = rng.choices("+;|", (50, 45, 5), k=len(nodes) - 1)
    return CallSequence(tuple(nodes), tuple(signs), f"sequence {index} of seed {seed}")


def _any_node(rng: random.Random) -> Node:
    mode = rng.choice(MODES)
    head = rng.choice(HEAD_SIZES)
    node = Node(
        (rng.choice(BATCHES), rng.choice(TOKENS), rng.choice(HEADS), head),
        mode=mode,
        sections=_sections(rng, mode, head),
        ff=rng.choice((0, 0, 1, 2)),
        pos=rng.choice(NUMBERS["pos"]),
        type=rng.choice(NUMBERS["type"]),
        freq_base=rng.choice(NUMBERS["freq_base"]),
    )
    if rng.random() < _SHARE_WITH_YARN:
        # Without YaRN, and with freq_scale 1, most attributes of YaRN have no effect.
        node = replace(
            node,
            freq_scale=rng.choice((0.25, 0.5, 1.5)),
            ext_factor=rng.choice((1.0, 0.5)),
            n_ctx_orig=rng.choice((128, 4096, 32768)),
        )
    # At most five further changes: like a model's layers, a call has the defaults of most attributes.
    for name in rng.sample(list(CHANGES), rng.randrange(6)):
        node = _changed(rng, node, name) or node
    return node


def _successor(rng: random.Random, node: Node) -> Node:
    kind = rng.random()
    if kind < 0.12:
        return _any_node(rng)
    count = 1 if kind < 0.85 else 2
    changed, changes = node, 0
    while changes < count:
        name = rng.choices(list(CHANGES), list(CHANGES.values()))[0]
        candidate = _changed(rng, changed, name)
        if candidate is not None and candidate != node and has_effect(node, candidate):
            changed, changes = candidate, changes + 1
    return changed


def _changed(rng: random.Random, node: Node, name: str) -> Node | None:
    """Return the node with another value of one property; None if there is no such node."""
    for _ in range(_MOST_TRIES):
        try:
            changed = _CHANGE.get(name, _number)(rng, node, name)
        except ValueError:
            continue
        if changed != node:
            return changed
    return None


def has_effect(before: Node, after: Node) -> bool:
    """Return whether the second node's result depends on each attribute of the rotation that was changed."""
    for name in ROTATION:
        if getattr(after, name) != getattr(before, name):
            try:
                other = replace(after, **{name: getattr(before, name)})
            except ValueError:
                continue  # the attribute depends on another one that has changed
            if np.abs(_rotated(after) - _rotated(other)).max() < LEAST_EFFECT:
                return False
    return True


def _rotated(node: Node) -> Any:
    """Return one head of each token, rotated as in this node. The input depends on the shape only."""
    shape = (1, node.shape[1], 1, node.shape[3])
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    return reference.rope(x, node.positions(), node.params, node.factors(), forward=node.forward)


def _number(rng: random.Random, node: Node, name: str) -> Node:
    return replace(node, **{name: rng.choice(NUMBERS[name])})


def _resized(rng: random.Random, node: Node, name: str) -> Node:
    choices = {"batch": (0, BATCHES), "tokens": (1, TOKENS), "heads": (2, HEADS), "head": (3, HEAD_SIZES)}
    axis, sizes = choices[name]
    shape = list(node.shape)
    shape[axis] = rng.choice(sizes)
    # A window of the whole head keeps its width, or becomes the whole new head. Others keep their width.
    n_dims = node.shape[3] if name == "head" and not node.n_dims and rng.random() < 0.3 else node.n_dims
    return replace(node, shape=tuple(shape), n_dims=n_dims if node.mode != "vision" else 0)


def _of_other_mode(rng: random.Random, node: Node, name: str) -> Node:
    mode = rng.choice(MODES)
    sections = node.sections if mode in WITH_SECTIONS else (0, 0, 0, 0)
    if mode in WITH_SECTIONS and not any(sections):
        sections = _sections(rng, mode, node.shape[3])
    is_vision = mode == "vision"
    return replace(
        node,
        mode=mode,
        sections=sections,
        n_dims=0 if is_vision else node.n_dims,
        n_offs=0 if is_vision else node.n_offs,
    )


def _with_other_sections(rng: random.Random, node: Node, name: str) -> Node:
    return replace(node, sections=_sections(rng, node.mode, node.shape[3]))


def _with_other_window(rng: random.Random, node: Node, name: str) -> Node:
    head = node.shape[3]
    if name == "n_offs":
        return replace(node, n_dims=rng.randrange(2, head, 2), n_offs=rng.randrange(0, head // 2, 2))
    return replace(node, n_dims=rng.choice((0, head // 4 * 2, rng.randrange(2, head, 2))))


_CHANGE: dict[str, Callable[[random.Random, Node, str], Node]] = {
    "mode": _of_other_mode,
    "sections": _with_other_sections,
    "n_dims": _with_other_window,
    "n_offs": _with_other_window,
    **dict.fromkeys(("batch", "tokens", "heads", "head"), _resized),
}


def _sections(rng: random.Random, mode: str, head: int) -> tuple[int, ...]:
    """Return sections for as many pairs as the head has, fewer or more; zeros in a mode without sections."""
    if mode not in WITH_SECTIONS:
        return (0, 0, 0, 0)
    width = max(1, head // 8)
    while True:
        sections = tuple(rng.choice((0, 1, width, width, 2 * width)) for _ in range(4))
        if any(sections[:3]):
            return sections
