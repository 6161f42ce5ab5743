"""Random calls of the operators that rotate by given tables: rotary_mul, rotary_mul_qk, rotary_embedding and
rotary_mul_backward. ``rotary_spec.py`` computes their results in float64.

The draws vary types, layouts of heads and tables, windows, outputs, and the shapes of tables: for each lane
or each pair, by token, by batch, or selected by position_ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from choices import Choices
from random_judge import NUMPY_DTYPES, values_of
from random_norm_calls import rounded

import npu_rope
from npu_rope.executors.npu import tensor_of
from npu_rope.testing import rotary_spec
from npu_rope.testing.bounds import SMALLEST_SUBNORMAL, UNIT_ROUNDOFF, table_bound, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.outcomes import Expectation, unwritten

Array = npt.NDArray[Any]
OPERATORS = ("rotary_mul", "rotary_mul_qk", "rotary_mul_backward", "rotary_embedding")
DTYPES = tuple(NUMPY_DTYPES)
HEAD_SIZES = (2, 4, 6, 16, 30, 32, 34, 64, 66, 80, 96, 128, 192, 200, 256)


@dataclass(frozen=True)
class TableCall:
    """A call with its arrays.

    Attributes:
        tensors: x (or q and k, or grad and x, or X), cos, sin and perhaps position_ids, in the order of the
            Python function.
        outs: the arrays for the results; empty if the call makes them.
        options: the attributes.
    """

    op: str
    text: str
    dtype: str
    tensors: dict[str, Array]
    outs: tuple[Array, ...]
    options: dict[str, Any]
    arrays: str

    @property
    def xs(self) -> list[Array]:
        """The tensors that rotate."""
        return [a for name, a in self.tensors.items() if name not in ("cos", "sin", "position_ids")]

    def run(self, backend: str) -> list[Any]:
        """Run the call and return its results."""
        made: dict[int, Any] = {}

        def in_call_framework(a: Array) -> Any:
            return made.setdefault(id(a), a if self.arrays == "numpy" else tensor_of(a))

        options = dict(self.options)
        if self.outs:
            outs = tuple(in_call_framework(out) for out in self.outs)
            options["out"] = outs if self.op == "rotary_mul_qk" else outs[0]
        given = [in_call_framework(a) for a in self.tensors.values()]
        results = getattr(npu_rope, self.op)(*given, **options, backend=backend)
        return list(results) if isinstance(results, tuple) else [results]


def draw(
    choices: Choices, op: str, dtypes: tuple[str, ...] = DTYPES, kinds: tuple[str, ...] = ("numpy",)
) -> TableCall:
    """Return one call. kinds: the kinds of arrays to choose from."""
    values, arrays, dtype = choices.numbers(), choices.choice(kinds), choices.choice(dtypes)
    table_dtype = choices.choice((dtype, "float32"))
    is_onnx = op == "rotary_embedding"
    batch, tokens = choices.choice((1, 2, 3)), choices.integer(1, choices.choice((1, 2, 5, 33)))
    size = choices.choice(HEAD_SIZES)
    width = size - 2 * choices.below(size // 2) if choices.chance(0.3) else size
    heads = [choices.choice((1, 2, 3, 9)) for _ in range(2 if op == "rotary_mul_qk" else 1)]
    scale = choices.choice((1.0, 1e-3, 100.0))
    has_batch = is_onnx or not choices.chance(0.3)
    lead = (batch, tokens) if has_batch else (tokens,)
    layouts = ("dense", "gaps", "heads first", "non-unit")

    def numbers(shape: tuple[int, ...], kind: str) -> Array:
        return rounded(values.standard_normal(shape) * scale, kind)

    def in_layout(a: Array, layout: str) -> Array:
        if layout == "gaps":
            return np.concatenate((a, a[..., :3]), -1)[..., : a.shape[-1]]
        if layout == "heads first" and a.ndim > 2:
            return a.swapaxes(-2, -3).copy().swapaxes(-2, -3)
        return np.repeat(a, 2, -1)[..., ::2] if layout == "non-unit" else a

    layout = choices.choice(layouts)
    is_flat = is_onnx and choices.chance(0.3)
    shapes = [(*lead, n, size) for n in heads]
    if is_onnx:
        shapes = [(batch, tokens, heads[0] * size) if is_flat else (batch, heads[0], tokens, size)]
    xs = [in_layout(numbers(shape, dtype), layout) for shape in shapes]
    tensors = dict(zip(("q", "k") if len(xs) == 2 else ("x",), xs, strict=True))
    if op == "rotary_mul_backward":
        grad = rounded(values.standard_normal(shapes[0]), dtype)
        tensors = {"grad": in_layout(grad, choices.choice(layouts)), **tensors}
    options: dict[str, Any] = {"interleaved": choices.chance(0.5)}
    lanes = width if not is_onnx and choices.chance(0.5) else width // 2
    table_shape, ids = _table_shape(choices, values, is_onnx, lead)
    table_layout = choices.choice(("dense", "dense", "gaps", "non-unit"))
    for name in ("cos", "sin"):
        table = rounded(values.uniform(-2, 2, (*table_shape, lanes)), table_dtype)
        tensors[name] = in_layout(table, table_layout)
    if ids is not None:
        tensors["position_ids"] = ids
    if is_onnx:
        named = "rotary_embedding_dim"
        options |= {"interleaved": int(options["interleaved"]), "num_heads": heads[0] if is_flat else 0}
    else:
        named = "rotary_dim"
        options["offset"] = 2 * choices.integer(0, (size - width) // 2)
    options[named] = 0 if width == size else width
    out_kind = "new" if op == "rotary_mul_backward" else choices.choice(("new", "given", "gaps", "in place"))
    outs: tuple[Array, ...] = ()
    if out_kind == "in place" and layout != "non-unit":
        outs = tuple(xs)
    elif out_kind != "new":
        kind = "gaps" if out_kind == "gaps" else "dense"
        outs = tuple(in_layout(np.zeros(x.shape, x.dtype), kind) for x in xs)
    by_ids = "" if ids is None else f"position_ids {ids.dtype}, "
    text = (
        f"{op} {dtype} {[list(x.shape) for x in xs]} {layout}, tables {table_dtype}"
        f"{list(tensors['cos'].shape)} {table_layout}, {by_ids}out {out_kind}, {options}, {arrays}"
    )
    return TableCall(op, text, dtype, tensors, outs, options, arrays)


def _table_shape(
    choices: Choices, values: np.random.Generator, is_onnx: bool, lead: tuple[int, ...]
) -> tuple[tuple[int, ...], Array | None]:
    """Return the shape of the tables without their last dimension, and position_ids or None."""
    tokens = lead[-1]
    if is_onnx:
        if choices.chance(0.3):
            return lead, None
        rows = choices.choice((1, 5, 64))
        return (rows,), values.integers(0, rows, lead).astype(choices.choice((np.int64, np.int32)))
    if len(lead) == 1:
        return choices.choice(((tokens,), (tokens, 1))), None
    return choices.choice(((tokens,), lead, (1, tokens), (*lead, 1), (1, tokens, 1))), None


def refused(call: TableCall, backend: str) -> bool:
    """Return whether the back end's device lacks the type."""
    return bool(lacks_type(backend, (call.dtype, call.tensors["cos"].dtype.name)))


def expectations(call: TableCall) -> Iterator[Expectation]:
    """Yield the expectation for each result."""
    tables = call.tensors["cos"], call.tensors["sin"]
    if call.op == "rotary_mul_backward":
        yield from _gradients(call)
        return
    for x in call.xs:
        if call.op == "rotary_embedding":
            ids, options = call.tensors.get("position_ids"), call.options
            value, magnitude = rotary_spec.rotary_embedding(
                x, *tables, ids, **{**options, "interleaved": bool(options["interleaved"])}
            )
        else:
            value, magnitude = rotary_spec.rotary_mul(x, *tables, **call.options)
        yield _expectation(value, magnitude, call.dtype)


def _expectation(value: Array, magnitude: Array, dtype: str) -> Expectation:
    """Return the expectation of a rotation. The reference of a float64 result is rounded as the result is."""
    bound = table_bound(magnitude, value, dtype)
    return Expectation(value, bound + 2 * UNIT_ROUNDOFF["float64"] * magnitude)


def _gradients(call: TableCall) -> Iterator[Expectation]:
    """Yield the expectations for the gradients of x, cos and sin.

    With R(x) = rotate(x), a result is ``x*cos + R(x)*sin``, and R's transpose is -R. The gradient of x is
    thus ``grad*cos - R(grad*sin)``, that of cos is the sum of ``grad*x``, and that of sin is the sum of
    ``grad*R(x)``, over the elements that a table's entry serves.
    """
    grad, x, cos, sin = (call.tensors[name] for name in ("grad", "x", "cos", "sin"))
    wide, wide_x = grad.astype(np.float64), x.astype(np.float64)
    interleaved, offset = call.options["interleaved"], call.options["offset"]
    width = call.options["rotary_dim"] or x.shape[-1]
    rotate = rotary_spec.rotate_every_two if interleaved else rotary_spec.rotate_half
    lanes = slice(offset, offset + width)
    full = [_for_each_lane(table.astype(np.float64), width, interleaved, x.ndim) for table in (cos, sin)]
    g, part = wide[..., lanes], wide_x[..., lanes]
    value, magnitude = wide.copy(), np.zeros(x.shape)
    value[..., lanes] = g * full[0] - rotate(g * full[1])
    magnitude[..., lanes] = np.abs(g * full[0]) + np.abs(rotate(g * full[1]))
    yield _expectation(value, magnitude, call.dtype)
    # torch tensors up to float32 are summed in float32, in any order; arrays in float64
    u = UNIT_ROUNDOFF["float32" if call.arrays == "torch" and call.dtype != "float64" else "float64"]
    for table, products in zip((cos, sin), (g * part, g * rotate(part)), strict=True):
        entries = _for_each_lane(np.arange(table.size).reshape(table.shape), width, interleaved, x.ndim)
        entries = np.broadcast_to(entries, products.shape).astype(np.int64).ravel()
        total = np.bincount(entries, products.ravel(), table.size)
        size = np.bincount(entries, np.abs(products).ravel(), table.size)
        count = np.bincount(entries, minlength=table.size)
        dtype = table.dtype.name
        bound = (count + 1) * u * size + UNIT_ROUNDOFF[dtype] * np.abs(total) + SMALLEST_SUBNORMAL[dtype]
        yield Expectation(total.reshape(table.shape), bound.reshape(table.shape))


def _for_each_lane(table: Array, width: int, interleaved: bool, rank: int) -> Array:
    """Return a table with an entry for each lane, and an axis of heads."""
    if table.shape[-1] != width:
        table = np.repeat(table, 2, -1) if interleaved else np.concatenate((table, table), -1)
    has_heads_axis = table.ndim == 4 or (table.ndim == rank == 3 and table.shape[1] == 1)
    return table if has_heads_axis else np.expand_dims(table, -2)


def judge(call: TableCall, backend: str) -> float:
    """Return the largest error over its bound. Raise AssertionError if an input was written."""
    expected = list(expectations(call))
    with unwritten([a for a in call.tensors.values() if not any(a is out for out in call.outs)]):
        results = call.run(backend)
    for result, out in zip(results, call.outs, strict=False):
        same = result is out if call.arrays == "numpy" else result.data_ptr() == out.ctypes.data
        assert same, f"the call must return the given array but returned another {type(result)}"
    for result, e in zip(results, expected, strict=True):
        shape = tuple(result.shape)
        assert shape == e.value.shape, f"a result must have the shape {e.value.shape} but has {shape}"
    return max(worst_ratio(values_of(y), e.value, e.bound)[0] for y, e in zip(results, expected, strict=True))
