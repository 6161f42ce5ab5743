"""Suite ``sequences``: calls of rope one after another, as text and as arrays.

A sequence's name is its whole description, so that it can be given to ``--op``:

    rope(shape=[1,3,1,8],pos=1) + rope(shape=[1,3,1,8],pos=1,freq_scale=0.5)

The sign before a call is its place: ``+`` in the same graph, ``;`` in a new graph on the same backend, ``|``
on a new backend. Attributes that are not named have their defaults. ``pos``, ``ff`` and ``x`` are numbers of
contents: calls with equal numbers have equal contents.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from npu_rope.params import RopeParams
from npu_rope.rope_attributes import AXES, RopeMode
from npu_rope.testing.cases import GGML_N_CTX, SHORT, CaseData, RopeCase, parent_shape, rounded, view_of
from npu_rope.testing.ggml import Start

STARTS: dict[str, Start] = {"+": "node", ";": "graph", "|": "backend"}
DTYPES = {SHORT[name]: name for name in ("float32", "float16")}
VIEWS = (0, 1, 2)
MOST_ELEMENTS = 2**22  # of x, and of the buffer of which x is a view
EXAMPLE = "rope(shape=[1,2,1,8]) + rope_back(shape=[1,2,1,8],mode=neox)"
# The first number of the seed from which contents are drawn.
_POSITIONS, _FACTORS, _X = 1, 2, 3


@dataclass(frozen=True)
class Node:
    """One call of rope. ``n_dims`` is 0 for the whole head.

    Attributes:
        pos: the contents of the positions; 0: each token's number.
        ff: the contents of the frequency factors; 0: there are none.
        x: the contents of the input.
        view: as in :class:`RopeCase`.

    Raises:
        ValueError, TypeError: an attribute breaks its rule.
    """

    shape: tuple[int, ...]
    forward: bool = True
    type: str = "f32"
    mode: str = "normal"
    n_dims: int = 0
    n_offs: int = 0
    n_ctx_orig: int = 0
    freq_base: float = 10000.0
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    sections: tuple[int, ...] = (0, 0, 0, 0)
    ff: int = 0
    pos: int = 0
    x: int = 0
    view: int = 0
    inplace: bool = False

    def __post_init__(self) -> None:
        if len(self.shape) != 4 or min(self.shape) < 1 or self.shape[3] % 2:
            raise ValueError("shape must be [B,S,N,D] of positive numbers with an even D")
        if np.prod(parent_shape(self.rope_case), dtype=float) > MOST_ELEMENTS:
            raise ValueError(f"shape and the buffer of its view must have at most {MOST_ELEMENTS} elements")
        if min(self.ff, self.pos, self.x) < 0:
            raise ValueError("ff, pos and x must be at least 0")
        if self.inplace and not self.forward:
            raise ValueError("inplace must be 0 in rope_back: ggml has no function for it")
        params, head = self.params, self.shape[3]
        if params.rope_mode is RopeMode.VISION and 2 * params.n_dims != head:
            raise ValueError("n_dims must be half of the head in mode vision")
        if sum(self.sections) > head:
            raise ValueError("sections must add up to at most the head")
        if params.n_offs + params.n_dims > head:
            raise ValueError("n_offs + n_dims must be at most the head")
        if self.ext_factor and not self.n_ctx_orig and min(self.beta_fast, self.beta_slow) < 0.5:
            # Only with larger betas do contexts of 0 and 1 give the same ramp (see cases.ggml_cases).
            raise ValueError("beta_fast and beta_slow must be at least 0.5 where n_ctx_orig is 0")

    @cached_property
    def params(self) -> RopeParams:
        """The parameters for npu_rope."""
        return RopeParams(
            self.n_dims or self.shape[3] // (2 if self.mode == "vision" else 1),
            self.mode,
            n_ctx_orig=self.n_ctx_orig or int(self.ext_factor != 0),
            freq_base=self.freq_base,
            freq_scale=self.freq_scale,
            ext_factor=self.ext_factor,
            attn_factor=self.attn_factor,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
            sections=self.sections,
            n_offs=self.n_offs,
        )

    @cached_property
    def rope_case(self) -> RopeCase:
        """The call as a case of rope."""
        b, s, n, d = self.shape
        return RopeCase(
            suite="sequences",
            name=str(self),
            dtype=DTYPES[self.type],
            shape=(b, s, n, d),
            params=self.params,
            ggml_n_ctx_orig=self.n_ctx_orig,
            positions="random",
            source="",
            factors="random" if self.ff else None,
            forward=self.forward,
            inplace=self.inplace,
            view=self.view,
        )

    def data(self) -> CaseData:
        """Return the arrays of the call."""
        case = self.rope_case
        generator = np.random.default_rng([_X, self.x])
        parent = rounded(generator.random(parent_shape(case), np.float32) * 2 - 1, case.dtype)
        return CaseData(view_of(parent, case), parent, self.positions(), self.factors())

    def positions(self) -> Any:
        """Return the positions ``[S]``, or ``[4,S]`` in the modes with sections."""
        axes = [self._axis(axis) for axis in range(AXES if self.params.rope_mode.has_sections else 1)]
        return (np.stack(axes) if len(axes) > 1 else axes[0]).astype(np.int32)

    def _axis(self, axis: int) -> Any:
        tokens = self.shape[1]
        if not self.pos:
            return np.arange(tokens)
        return np.random.default_rng([_POSITIONS, self.pos, axis]).integers(0, GGML_N_CTX, tokens)

    def factors(self) -> Any:
        """Return the frequency factors of the pairs, or None for a call without factors."""
        if not self.ff:
            return None
        generator = np.random.default_rng([_FACTORS, self.ff])
        return generator.uniform(0.9, 1.1, self.params.pairs).astype(np.float32)

    def __str__(self) -> str:
        written = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "forward" and (field.default is MISSING or value != field.default):
                written.append(f"{field.name}={_text(value)}")
        return f"{'rope' if self.forward else 'rope_back'}({','.join(written)})"


@dataclass(frozen=True)
class CallSequence:
    """Calls of rope, and the signs before all but the first. ``source`` is empty if a user wrote it."""

    nodes: tuple[Node, ...]
    signs: tuple[str, ...] = ()
    source: str = ""

    suite = "sequences"
    op = "ROPE_SEQUENCE"

    @property
    def name(self) -> str:
        """The description that :func:`parse` reads."""
        return str(self.nodes[0]) + "".join(
            f" {sign} {node}" for sign, node in zip(self.signs, self.nodes[1:], strict=True)
        )

    @property
    def dtype(self) -> str:
        """The last call's dtype."""
        return DTYPES[self.nodes[-1].type]

    @property
    def shape(self) -> tuple[int, ...]:
        """The last call's shape."""
        return self.nodes[-1].shape

    @property
    def starts(self) -> tuple[Start, ...]:
        """The place of every call."""
        return "backend", *(STARTS[sign] for sign in self.signs)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return (
        f"{value:.9g}" if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
    )


_CALL = re.compile(r"(rope|rope_back)\(([^()]*)\)")
_ATTRIBUTE = re.compile(r"(\w+)=(\[[^\]]*\]|[^,\[\]]+)(?:,|$)")
_FIELDS = {field.name: field for field in fields(Node)}


def parse(text: str) -> CallSequence:
    """Return the sequence that a name describes.

    Raises:
        ValueError, TypeError: it describes none.

    >>> parse("rope(shape=[1,2,1,8]) ; rope_back(shape=[1,2,1,8],ff=1)").signs
    (';',)
    """
    words = re.split(r"\s*([+;|])\s*(?=rope)", text.strip())
    return CallSequence(tuple(_parse_node(word) for word in words[::2]), tuple(words[1::2]))


def _parse_node(text: str) -> Node:
    call = _CALL.fullmatch(text)
    if call is None:
        raise ValueError(f"a call must be rope(...) or rope_back(...) but got {text!r}")
    values: dict[str, Any] = {}
    end = 0
    for found in _ATTRIBUTE.finditer(call[2]):
        if found.start() == end:
            end = found.end()
            values[found[1]] = _parse_value(found[1], found[2])
    if end != len(call[2]):
        raise ValueError(f"an attribute must be NAME=VALUE but got {call[2][end:]!r}")
    if "shape" not in values:
        raise ValueError(f"a call must name its shape but got {text!r}")
    return Node(forward=call[1] == "rope", **values)


def _parse_value(name: str, text: str) -> Any:
    if name not in _FIELDS or name == "forward":
        names = ", ".join(field for field in _FIELDS if field != "forward")
        raise ValueError(f"an attribute must be one of {names} but got {name}")
    choices: dict[str, tuple[Any, ...]] = {
        "type": tuple(DTYPES),
        "mode": tuple(mode.name.lower() for mode in RopeMode),
        "view": tuple(map(str, VIEWS)),
        "inplace": ("0", "1"),
    }
    if name in choices and text not in choices[name]:
        raise ValueError(f"{name} must be one of {', '.join(choices[name])} but got {text}")
    try:
        if text.startswith("["):
            if name not in ("shape", "sections"):
                raise ValueError
            return tuple(int(word) for word in text[1:-1].split(","))
        kind: Any = type(_FIELDS[name].default)
        return kind(int(text)) if kind is bool else kind(text)
    except (ValueError, TypeError):
        is_list = name in ("shape", "sections")
        is_integer = isinstance(_FIELDS[name].default, int)
        rule = "a list of integers" if is_list else "an integer" if is_integer else "a number"
        raise ValueError(f"{name} must be {rule} but got {text}") from None
