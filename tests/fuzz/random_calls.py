"""Draw random calls of rope, rope_qk and rope_set_rows.

A call is drawn from :class:`~choices.Choices` and a :class:`Limits`, the limits of its back end. It is the
same on every machine. ``random_judge.py`` makes its tensors, runs and judges it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from choices import Choices

from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, TABLE_ERROR_HOST, is_device
from npu_rope.testing.chip_types import has_bfloat16
from npu_rope.values import AnglePolicy

DTYPES = ("float32", "float16", "bfloat16", "float64")
OPERATORS = ("rope", "rope_qk", "rope_set_rows")
ARRAYS = ("numpy", "torch") if torch is not None else ("numpy",)
# Upper bound of the drawn frequencies in radians per position, before freq_factors.
FASTEST_DRAWN = 6.4


@dataclass(frozen=True)
class Limits:
    """The limits of a back end, and its precision.

    Attributes:
        dtypes: the dtypes of x.
        position_limit: exclusive bound of the positions' magnitude; -2^31 is also drawn.
        fastest: frequency up to which the bound is guaranteed.
        angles: the policies, the usual one first.
        table_error: largest error of cos and sin.
        elements: approximate largest size of a tensor.
    """

    dtypes: tuple[str, ...]
    position_limit: int
    fastest: float
    angles: tuple[AnglePolicy, ...]
    table_error: float
    elements: int


def limits_of(backend: str) -> Limits:
    """Return the limits of a back end."""
    if not is_device(backend):
        return Limits(DTYPES, 2**31, 64.0, ("exact", "f32", "ggml"), TABLE_ERROR_HOST, 16384)
    dtypes = ("float32", "float16", "bfloat16") if has_bfloat16(backend) else ("float32", "float16")
    return Limits(dtypes, 2**22, 16.0, ("exact",), TABLE_ERROR_DEVICE, 8192)


# ---- parts of a call -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The layout of a ``[B,S,N,D]`` tensor in its buffer.

    Attributes:
        order: the first three axes, outermost first.
        lead, trail: elements of the buffer before and after it, along B, S, N and D.
        step: along B, S, N and D, the distance of the tensor's elements; negative reverses, 0 repeats one.
    """

    order: str = "BSN"
    lead: tuple[int, int, int, int] = (0, 0, 0, 0)
    trail: tuple[int, int, int, int] = (0, 0, 0, 0)
    step: tuple[int, int, int, int] = (1, 1, 1, 1)

    def __str__(self) -> str:
        words = [] if self.order == "BSN" else [f"order {self.order}D"]
        words += [f"{name} {list(n)}" for name, n in (("lead", self.lead), ("trail", self.trail)) if any(n)]
        words += [] if self.step == (1, 1, 1, 1) else [f"step {list(self.step)}"]
        return " ".join(words) or "contiguous"


PLAIN = Layout()


@dataclass(frozen=True)
class RandomCall:
    """One call without the numbers in its tensors, which ``seed`` draws.

    Attributes:
        batch: B; 0 for tensors without that axis.
        heads: N of x, or of q and k.
        layouts: the layout of x, or those of q and k.
        fused: whether k's heads follow q's in one buffer with q's layout.
        out: a new array ("new"), x itself ("in place"), an array with the layout
            ``out_layouts`` ("given"), or one whose heads alternate with those of x ("alternating").
        positions: the shape of the positions, as the documentation names it.
        position_step: the stride of the positions along S, in elements.
        planes_shared: whether all batches and axes share the same S positions, with strides of 0.
        factors: the limits of freq_factors, which are uniform on a logarithmic scale.
        scale: the factor of the values.
        cache: the number of spare rows, the dtype and the dtype of the indices in a call of rope_set_rows.
    """

    seed: int
    op: str
    arrays: Literal["numpy", "torch"]
    dtype: str
    batch: int
    tokens: int
    heads: tuple[int, ...]
    head_size: int
    params: RopeParams
    layouts: tuple[Layout, ...]
    fused: bool = False
    out: Literal["new", "in place", "given", "alternating"] = "new"
    out_layouts: tuple[Layout, ...] = ()
    positions: str = "[S]"
    position_values: Literal["run", "random", "negative", "far", "equal"] = "run"
    position_dtype: str = "int32"
    position_step: int = 1
    planes_shared: bool = False
    factors: tuple[float, float] | None = None
    factor_step: int = 1
    forward: bool = True
    angle: AnglePolicy = "exact"
    scale: float = 1.0
    cache: tuple[int, str, str] = (0, "", "int64")

    @property
    def result_dtype(self) -> str:
        """The dtype of the written tensor."""
        return self.cache[1] or self.dtype

    def __str__(self) -> str:
        shapes = [[*([self.batch] if self.batch else []), self.tokens, n, self.head_size] for n in self.heads]
        words = [f"{self.op} {' and '.join(map(str, shapes))} {self.dtype}, {self.params}"]
        words += [f"layout {layout}" for layout in self.layouts if layout != PLAIN]
        words += ["fused"] if self.fused else []
        words += [f"out {self.out}"] if self.out != "new" else []
        words += [f"out layout {layout}" for layout in self.out_layouts if layout != PLAIN]
        if self.op == "rope_set_rows":
            words.append(f"cache {self.cache[1]} with {self.cache[0]} other rows, rows {self.cache[2]}")
        words.append(f"positions {self.positions} {self.position_dtype} {self.position_values}")
        words += [f"position step {self.position_step}"] if self.position_step != 1 else []
        words += ["shared by all batches and axes"] if self.planes_shared else []
        words += ["freq_factors {:g} to {:g}".format(*self.factors)] if self.factors else []
        words += [] if self.forward else ["backward"]
        words += [f"angle {self.angle}"] if self.angle != "exact" else []
        words += [f"values of size {self.scale:g}"] if self.scale != 1 else []
        return ", ".join([*words, self.arrays])


# ---- drawing ---------------------------------------------------------------------------------------

HEAD_SIZES = (2, 4, 6, 8, 12, 16, 20, 32, 36, 48, 64, 80, 96, 112, 128)
WIDE_HEAD_SIZES = (160, 192, 256, 320, 512, 576, 1024)


def draw(choices: Choices, op: str, limits: Limits, kinds: Sequence[str] = ("numpy",)) -> RandomCall:
    """Return one call.

    Args:
        choices: determine the call.
        op: one of OPERATORS.
        limits: the limits of the back end.
        kinds: kinds of arrays to choose from (ARRAYS).
    """
    arrays, mode = choices.choice(kinds), choices.choice(list(RopeMode))
    head_size = _head_size(choices, mode)
    batch, tokens, heads = _sizes(choices, op, head_size, limits.elements)
    may_reverse = arrays == "numpy"  # torch has no negative strides
    reverse = -1 if may_reverse else 2
    slow = FASTEST_DRAWN / limits.fastest
    call = RandomCall(
        seed=choices.seed,
        op=op,
        arrays="torch" if arrays == "torch" else "numpy",
        dtype=choices.choice(limits.dtypes),
        batch=batch,
        tokens=tokens,
        heads=heads,
        head_size=head_size,
        params=_params(choices, mode, head_size),
        layouts=tuple(_layout(choices, written=False, may_reverse=may_reverse) for _ in heads),
        positions=choices.choice(_position_shapes(mode, batch)),
        position_values=choices.choice(("run", "random", "negative", "far", "equal")),
        position_dtype=choices.choice(("int32", "int64")),
        position_step=choices.choice((1, 1, 1, 0, 2, reverse)),
        planes_shared=choices.chance(0.15),
        factors=choices.choice((None, None, (0.9, 1.1), (slow, 64.0), (1.0, 3e38))),
        factor_step=choices.choice((1, 1, 3, -1 if may_reverse else 0)),
        forward=not choices.chance(0.3),
        angle=choices.choice(limits.angles) if choices.chance(0.2) else limits.angles[0],
        scale=choices.choice((1.0, 1.0, 1.0, 100.0, 1e-3, 1e-6)),
    )
    if op == "rope_set_rows":
        narrower = [d for d in ("float16", "bfloat16") if call.dtype == "float32" and d in limits.dtypes]
        dtype = choices.choice([call.dtype, *narrower])
        cache = (choices.choice((0, 1, 5)), dtype, choices.choice(("int32", "int64")))
        out_layouts = (_layout(choices, written=True, may_reverse=may_reverse),)
        return replace(call, cache=cache, out="given", out_layouts=out_layouts)
    return _with_out(choices, call, may_reverse)


def _head_size(choices: Choices, mode: RopeMode) -> int:
    if choices.chance(0.08):
        head_size = choices.choice(WIDE_HEAD_SIZES)
    else:
        head_size = choices.integer(2, 130) if choices.chance(0.3) else choices.choice(HEAD_SIZES)
    return max(4, head_size // 4 * 4) if mode is RopeMode.VISION else head_size


def _sizes(choices: Choices, op: str, head_size: int, most: int) -> tuple[int, int, tuple[int, ...]]:
    """Return B (0: no such axis), S and the heads, with at most ``most`` elements. A few draws have many more
    elements, so that all threads and cores run several rounds."""
    most = most * choices.choice((16, 16, 128)) if choices.chance(0.01) else most // choices.choice((8, 8, 1))
    room = max(1, most // head_size)
    sides = 2 if op == "rope_qk" else 1
    heads = tuple(min(room, choices.choice((1, 1, 2, 3, 4, 7, 8, 16, 64))) for _ in range(sides))
    room = max(1, room // max(heads))
    batch = min(room, choices.choice((0, 1, 1, 2, 3)))
    room = max(1, min(2000, room // max(1, batch)))
    return batch, min(room, choices.integer(1, choices.choice((1, 2, 9, room)))), heads


def _params(choices: Choices, mode: RopeMode, head_size: int) -> RopeParams:
    n_dims, n_offs = head_size // 2, 0
    if mode is not RopeMode.VISION:
        n_dims = head_size // 2 * 2
        if choices.chance(1 / 3):
            n_dims -= 2 * choices.below(head_size // 2)
        n_offs = 2 * choices.integer(0, (head_size - n_dims) // 2)
    pairs = n_dims if mode is RopeMode.VISION else n_dims // 2
    numbers: dict[str, Any] = {"freq_base": choices.choice((1e4, 5e5, 1e6, 1e7, 160.0, 1.5, 0.5))}
    if choices.chance(0.3):
        numbers["freq_scale"] = choices.choice((0.25, 1.4245, 1 / 40))
    if choices.chance(0.3):
        numbers["ext_factor"] = choices.choice((1.0, 0.7465, -0.3))
        numbers["n_ctx_orig"] = choices.choice((1, 512, 4096, 131072))
        betas = ((32.0, 1.0), (1.0, 1.0), (16.0, 2.0), (1.0, 8.0))
        numbers["beta_fast"], numbers["beta_slow"] = choices.choice(betas)
    if choices.chance(0.3):
        numbers["attn_factor"] = choices.choice((1.4245, 0.5, -0.7, 0.0))
    sections = _sections(choices, pairs, head_size) if mode.has_sections else (0, 0, 0, 0)
    return RopeParams(n_dims, mode, sections=sections, n_offs=n_offs, **numbers)


def _sections(choices: Choices, pairs: int, head_size: int) -> tuple[int, int, int, int]:
    """Return the widths of four sections. Together they have as many pairs as the window, fewer or more. Some
    sections are empty, most often the fourth."""
    total = choices.choice((pairs, pairs, choices.integer(1, pairs), choices.integer(1, head_size)))
    cuts = sorted(choices.integer(0, total) for _ in range(3))
    widths = [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], total - cuts[2]]
    if not choices.chance(0.4) or not any(widths[:3]):  # no fourth section, as in most models
        widths[choices.below(3)] += widths[3]
        widths[3] = 0
    if choices.chance(0.3):
        empty = choices.below(3)
        widths[(empty + choices.integer(1, 2)) % 3] += widths[empty]
        widths[empty] = 0
    return (widths[0], widths[1], widths[2], widths[3])


def _layout(choices: Choices, *, written: bool, may_reverse: bool) -> Layout:
    """Return a contiguous layout, or that of a view: transposed, corners, parts of rows at any offset, slices
    of fused projections, every second element, reversed; for inputs also stride 0, and lanes with a step."""
    if not choices.chance(0.6):
        return PLAIN
    order = choices.choice(("BSN", "BSN", "BNS", "SBN", "NSB"))
    kinds = ("transposed", "corner", "part of a row", "fused", "every other", "shared", "reversed")
    kind = choices.choice((*kinds, "not of unit stride"))
    if kind == "corner":
        most = (2, 2, 2, 40)
        b, s, n, d = (choices.integer(0, m) for m in most)
        return Layout(order, trail=(b, s, n, d))
    if kind == "part of a row":
        before, after = choices.choice(
            ((36, 0), (1, 0), (0, 7), (choices.integer(0, 80), choices.integer(0, 9)))
        )
        return Layout(order, (0, 0, 0, before), (0, 0, 0, after))
    if kind == "fused":
        return Layout(order, (0, 0, choices.integer(0, 4), 0), (0, 0, choices.integer(0, 4), 0))
    b, s, n, d = 1, 1, 1, 1
    if kind == "every other":
        b, s, n = choices.choice(((2, 1, 1), (1, 2, 1), (1, 1, 2)))
    elif kind == "shared" and not written:
        b, s, n = choices.choice(((0, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0)))
    elif kind == "not of unit stride" and not written:
        d = choices.choice((2, 2, 3, -1 if may_reverse else 0))
    elif kind == "reversed" and may_reverse:
        b, s, n = (choices.choice((1, -1)) for _ in range(3))
    return Layout(order, step=(b, s, n, d))


def _position_shapes(mode: RopeMode, batch: int) -> list[str]:
    if not mode.has_sections:
        return ["[S]", "[B,S]", "[1,S]"] if batch else ["[S]"]
    by_batch = ["[4,B,S]", "[3,B,S]", "[3,B,S]", "[4,1,S]", "[3,1,S]"]
    return ["[4,S]", "[4*S]", "[3,S]"] + (by_batch if batch else [])


def _with_out(choices: Choices, call: RandomCall, may_reverse: bool) -> RandomCall:
    """Return the call with the output of rope or rope_qk."""
    out = choices.choice(("new", "new", "in place", "given", "alternating"))
    if out == "new":
        return replace(call, fused=call.op == "rope_qk" and choices.chance(0.3))
    written = tuple(_layout(choices, written=True, may_reverse=may_reverse) for _ in call.heads)
    if out == "in place":
        return replace(
            call, out="in place", layouts=written, fused=call.op == "rope_qk" and choices.chance(0.3)
        )
    if out == "given" or call.op != "rope":
        return replace(call, out="given", out_layouts=written)
    every_other = (*written[0].step[:2], 2, 1)
    return replace(call, out="alternating", layouts=(replace(written[0], step=every_other),))
