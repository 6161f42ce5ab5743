"""Make the tensors of random calls (``random_calls.py``), run the calls and judge their results.

Tensors are views of larger buffers. After the call, every result must be within its bound around the
float64 reference (``bounds.py``). Inputs must be unchanged, and so must the bytes of an output's buffer
outside of the output. An element of each reference is compared with the specification's formula in scalar
Python (``spec.py``), where that formula is precise enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from random_calls import Layout, Limits, RandomCall, limits_of

import npu_rope
from npu_rope.executors.npu import tensor_of
from npu_rope.optional_torch import torch
from npu_rope.reference import rope as reference
from npu_rope.testing import spec
from npu_rope.testing.bounds import rotation_bound, worst_ratio
from npu_rope.testing.chip_types import rounded_for
from npu_rope.testing.outcomes import Expectation

Array = npt.NDArray[Any]
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
# Positions up to which scalar Python's float64 angles are precise enough.
SPEC_POSITION_LIMIT = 2**22

# ---- tensors ---------------------------------------------------------------------------------------

GUARD = 16  # elements of a buffer after its tensor; at most as many precede it


@dataclass
class Buffer:
    """The memory of tensors. ``views`` are the parts that the call may write."""

    flat: Array
    before: Array
    views: list[Callable[[Array], Array]] = field(default_factory=list)

    def untouched(self) -> bool:
        """Return whether nothing outside of the views has changed."""
        now = self.flat.copy()
        for view in self.views:
            view(now)[...] = view(self.before)
        return np.array_equal(now.view(np.uint8), self.before.view(np.uint8))


@dataclass
class Data:
    """A call's tensors as arrays. ``x`` and ``out`` have one entry for each side. If an entry of ``out`` is
    None, the call makes that result."""

    x: list[Array]
    out: list[Array | None]
    positions: Array
    factors: Array | None
    rows: Array | None
    buffers: dict[str, Buffer]
    x_before: list[Array]

    @property
    def cache(self) -> Array:
        """The cache that rope_set_rows writes."""
        assert self.out[0] is not None
        return self.out[0]


def _view(flat: Array, start: int, shape: tuple[int, int, int, int], layout: Layout) -> Array:
    """Return a view ``[B,S,N,D]`` of a flat buffer. Its parent is the array that also has the elements of the
    layout's ``lead`` and ``trail``. The parent begins at ``start``."""
    sizes = _parent_sizes(shape, layout)
    axes = [*("BSN".index(axis) for axis in layout.order), 3]
    stride, strides = 1, [0, 0, 0, 1]
    for axis in reversed(axes):
        strides[axis] = stride
        stride *= sizes[axis]
    steps = layout.step
    for axis, (lead, step, size) in enumerate(zip(layout.lead, steps, shape, strict=True)):
        start += strides[axis] * (lead + (size - 1) * max(0, -step))
    item = flat.itemsize
    byte_strides = [stride * step * item for stride, step in zip(strides, steps, strict=True)]
    return np.lib.stride_tricks.as_strided(flat[start:], shape, byte_strides)


def _parent_sizes(shape: tuple[int, int, int, int], layout: Layout) -> list[int]:
    spans = [(size - 1) * abs(step) + 1 for size, step in zip(shape, layout.step, strict=True)]
    return [a + b + c for a, b, c in zip(layout.lead, spans, layout.trail, strict=True)]


class _BufferMaker:
    """Draw the buffers of one call."""

    def __init__(self, call: RandomCall) -> None:
        self.call = call
        self.rng = np.random.default_rng(call.seed)
        self.buffers: dict[str, Buffer] = {}

    def make_parent_buffer(
        self, name: str, shape: tuple[int, int, int, int], layout: Layout, dtype: str
    ) -> int:
        """Make a buffer of random numbers for a tensor's parent, and return where the parent begins."""
        start = int(self.rng.integers(0, GUARD + 1))
        size = start + int(np.prod(_parent_sizes(shape, layout))) + GUARD
        numbers = self.rng.standard_normal(size, np.float32) * np.float32(self.call.scale)
        with np.errstate(under="ignore"):
            flat = numbers.astype(NUMPY_DTYPES[dtype])
        self.buffers[name] = Buffer(flat, flat.copy())
        return start

    def tensor(
        self, name: str, shape: tuple[int, int, int, int], layout: Layout, dtype: str, *, written: bool
    ) -> Array:
        """Return a tensor in a separate buffer."""
        start = self.make_parent_buffer(name, shape, layout, dtype)
        return self.part(name, lambda flat: _view(flat, start, shape, layout), written=written)

    def part(self, name: str, view: Callable[[Array], Array], *, written: bool) -> Array:
        """Return a view of a buffer. If the call writes it, add it to the buffer's views."""
        buffer = self.buffers[name]
        if written:
            buffer.views.append(view)
        return view(buffer.flat)

    def values_with_step(
        self, name: str, values: Array, dtype: str, step: int, *, shared: bool = False
    ) -> Array:
        """Return a view that holds the values, in a buffer with guarded ends. Overlapping elements keep one
        value.

        Args:
            name: key of the buffer.
            values: the values in the view's shape.
            dtype: of the view.
            step: stride of the last axis in elements.
            shared: whether the other axes have stride 0.
        """
        *leading, count = values.shape
        size = (count - 1) * abs(step) + 1
        rows = 1 if shared else int(np.prod(leading))
        flat = self.rng.integers(-9, 9, rows * size + 2 * GUARD).astype(dtype)
        strides, stride = [step], size
        for n in reversed(leading):
            strides.insert(0, 0 if shared else stride)
            stride *= n
        first = GUARD + (size - 1 if step < 0 else 0)
        byte_strides = [s * flat.itemsize for s in strides]
        view = np.lib.stride_tricks.as_strided(flat[first:], values.shape, byte_strides)
        view[...] = values
        self.buffers[name] = Buffer(flat, flat.copy())
        return view

    def xs_and_outs(self) -> tuple[list[Array], list[Array | None]]:
        call = self.call
        shapes = [(max(1, call.batch), call.tokens, n, call.head_size) for n in call.heads]
        in_place = call.out == "in place"
        if call.fused:  # one buffer: q's heads, then k's
            (b, s, nq, d), (_, _, nk, _) = shapes
            start = self.make_parent_buffer("q and k", (b, s, nq + nk, d), call.layouts[0], call.dtype)

            def both(flat: Array) -> Array:
                return _view(flat, start, (b, s, nq + nk, d), call.layouts[0])

            x = [
                self.part("q and k", lambda flat: both(flat)[:, :, :nq], written=in_place),
                self.part("q and k", lambda flat: both(flat)[:, :, nq:], written=in_place),
            ]
        elif call.out == "alternating":  # the heads of x and of out in one buffer
            (b, s, n, d), layout = shapes[0], replace(call.layouts[0], step=(*call.layouts[0].step[:2], 1, 1))
            start = self.make_parent_buffer("x and out", (b, s, 2 * n, d), layout, call.dtype)

            def pair(flat: Array) -> Array:
                return _view(flat, start, (b, s, 2 * n, d), layout)

            first = self.part("x and out", lambda flat: pair(flat)[:, :, 0::2], written=False)
            return [first], [self.part("x and out", lambda flat: pair(flat)[:, :, 1::2], written=True)]
        else:
            names = ("q", "k") if len(shapes) == 2 else ("x",)
            x = [
                self.tensor(name, shape, layout, call.dtype, written=in_place)
                for name, shape, layout in zip(names, shapes, call.layouts, strict=True)
            ]
        out: list[Array | None] = [*x] if in_place else [None] * len(x)
        if call.out == "given" and call.op != "rope_set_rows":
            out = [
                self.tensor(f"out {k}", shape, layout, call.dtype, written=True)
                for k, (shape, layout) in enumerate(zip(shapes, call.out_layouts, strict=True))
            ]
        return x, out

    def positions(self, limit: int) -> Array:
        call = self.call
        batch, tokens = max(1, call.batch), call.tokens
        planes = 4 if "4" in call.positions else 3
        shape = [tokens]
        if "B" in call.positions or "1" in call.positions:
            shape = [batch if "B" in call.positions else 1, tokens]
        if call.params.rope_mode.has_sections:
            shape = [planes, *shape]
        values = self.position_values(shape, limit)
        if call.positions == "[4*S]":
            values = values.reshape(-1)
        shared = call.planes_shared
        return self.values_with_step(
            "positions", values, call.position_dtype, call.position_step, shared=shared
        )

    def position_values(self, shape: list[int], limit: int) -> Array:
        kind, tokens, rng = self.call.position_values, shape[-1], self.rng
        if kind == "run":
            starts = rng.integers(0, 5000 if rng.random() < 0.7 else limit - tokens, [*shape[:-1], 1])
            return starts + np.arange(tokens)
        if kind == "equal":
            return np.full(shape, rng.integers(0, 5000))
        if kind == "far":
            far = rng.integers(1 - limit, limit, shape)
            ends = np.array([limit - 1, 1 - limit, -limit if limit == 2**31 else 0])
            return np.where(rng.random(shape) < 0.2, rng.choice(ends, shape), far)
        low, high = (0, 4096) if kind == "random" else (-4096, 0)
        return rng.integers(low, high, shape)

    def factors(self) -> Array | None:
        if self.call.factors is None:
            return None
        low, high = np.log(self.call.factors)
        count = self.call.params.pairs + int(self.rng.integers(0, 3))
        values = np.exp(self.rng.uniform(low, high, count))
        return self.values_with_step("freq_factors", values, "float32", self.call.factor_step)

    def rows_and_cache(self) -> tuple[Array, Array]:
        """Return row indices and the cache. Indices are distinct; with spare rows, each is -1 with
        probability 0.2."""
        call = self.call
        shape = (call.batch, call.tokens) if call.batch else (call.tokens,)
        if call.batch == 1 and self.rng.random() < 0.5:
            shape = (call.tokens,)
        count = int(np.prod(shape))
        spare, dtype, index = call.cache
        rows = self.rng.permutation(count + spare)[:count].reshape(shape)
        rows[self.rng.random(shape) < (0.2 if spare else 0.0)] = -1
        cache_shape = (1, count + spare, call.heads[0], call.head_size)
        cache = self.tensor("cache", cache_shape, call.out_layouts[0], dtype, written=True)[0]
        return self.values_with_step("rows", rows, index, call.position_step or 1), cache


def make_data(call: RandomCall, limits: Limits) -> Data:
    """Return the call's tensors, drawn from its seed."""
    maker = _BufferMaker(call)
    x, out = maker.xs_and_outs()
    rows: Array | None = None
    if call.op == "rope_set_rows":
        rows, cache = maker.rows_and_cache()
        out = [cache]
    if not call.batch:
        x = [a[0] for a in x]
        out = out if call.op == "rope_set_rows" else [None if a is None else a[0] for a in out]
    if call.out == "in place":
        out = [*x]
    positions, factors = maker.positions(limits.position_limit), maker.factors()
    return Data(x, out, positions, factors, rows, maker.buffers, [a.copy() for a in x])


# ---- execution -------------------------------------------------------------------------------------

Execute = Callable[[RandomCall, Data, str], Sequence[Any]]


def execute(call: RandomCall, data: Data, backend: str) -> Sequence[Any]:
    """Run the call and return its one or two results."""

    def in_call_framework(a: Array | None) -> Any:
        return a if a is None or call.arrays == "numpy" else tensor_of(a)

    x, out = [in_call_framework(a) for a in data.x], [in_call_framework(a) for a in data.out]
    if call.out == "in place":
        out = x
    positions, factors = in_call_framework(data.positions), in_call_framework(data.factors)
    settings: dict[str, Any] = {"backend": backend, "forward": call.forward, "angle": call.angle}
    operator = getattr(npu_rope, call.op)
    if call.op == "rope_set_rows":
        return [
            operator(x[0], positions, in_call_framework(data.rows), out[0], call.params, factors, **settings)
        ]
    if call.op == "rope_qk":
        both = None if out[0] is None else tuple(out)
        results: Sequence[Any] = operator(*x, positions, call.params, factors, out=both, **settings)
        return results
    return [operator(x[0], positions, call.params, factors, out=out[0], **settings)]


def values_of(result: Any) -> npt.NDArray[np.float64]:
    """Return an array or tensor in float64."""
    if not isinstance(result, np.ndarray):
        result = result.to(torch.float64).numpy()
    values: npt.NDArray[np.float64] = result.astype(np.float64)
    return values


# ---- judgement -------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """``problem`` is empty if the call was correct. ``ratio`` is the largest error / bound."""

    problem: str = ""
    ratio: float = 0.0


def judge(call: RandomCall, backend: str, run: Execute = execute) -> Verdict:
    """Run one call; check its results, and that it writes nothing else."""
    limits, call = limits_of(backend), replace(call, params=rounded_for(call.params, backend))
    data = make_data(call, limits)
    expected = [_expectation(call, data, x, limits) for x in data.x_before]
    if problem := _reference_problem(call, data, expected):
        return Verdict(problem)
    try:
        results = run(call, data, backend)
    except Exception as error:
        return Verdict(f"{type(error).__name__}: {error}")
    worst = Verdict()
    for side, (result, want) in enumerate(zip(results, expected, strict=True)):
        verdict = _judge_side(call, data, side, result, want)
        if verdict.problem:
            return verdict
        worst.ratio = max(worst.ratio, verdict.ratio)
    for name, buffer in data.buffers.items():
        if not buffer.untouched():
            what = "memory outside the output" if buffer.views else "an input"
            return Verdict(f"{what} was written: {name}", worst.ratio)
    return worst


def _expectation(call: RandomCall, data: Data, x: Array, limits: Limits) -> Expectation:
    params = call.params
    planes = reference.position_planes(data.positions, params)
    c, s = reference.cos_sin(planes, params, data.factors, forward=call.forward, policy=call.angle)
    c, s = c[..., None, :], s[..., None, :]
    wide = x.astype(np.float64)
    value = reference.rotate(wide, c, s, params)
    bound = rotation_bound(wide, c, s, value, params, call.result_dtype, limits.table_error)
    if call.result_dtype != call.dtype:  # the lanes outside the window are rounded also
        copied = np.ones(call.head_size, bool)
        for lanes in params.pair_lanes():
            copied[lanes] = False
        with np.errstate(under="ignore"):
            value[..., copied] = x[..., copied].astype(NUMPY_DTYPES[call.result_dtype]).astype(np.float64)
    return Expectation(value, bound)


def _reference_problem(call: RandomCall, data: Data, expected: list[Expectation]) -> str:
    """Compare one element of each reference with the specification's formula. This needs exact angles,
    positions of at most SPEC_POSITION_LIMIT and results in the type of x."""
    if call.angle != "exact" or np.abs(data.positions.astype(np.int64)).max() > SPEC_POSITION_LIMIT:
        return ""
    rng = random.Random(f"{call.seed}")
    for x, want in zip(data.x_before, expected, strict=True):
        at = tuple(rng.randrange(n) for n in x.shape)
        planes = reference.position_planes(data.positions, call.params)
        planes = planes if call.params.rope_mode.has_sections else planes[None]
        positions = [
            int(plane[at[0] % len(plane), at[1]] if plane.ndim == 2 else plane[at[-3]]) for plane in planes
        ]
        formula = spec.element(call.params, x[at[:-1]], positions, data.factors, at[-1], call.forward)
        if call.result_dtype == call.dtype and not abs(float(want.value[at]) - formula) <= float(
            want.bound[at]
        ):
            return (
                f"the reference gives {want.value[at]:.9g} at {at} where the specification has {formula:.9g}"
            )
    return ""


def _judge_side(call: RandomCall, data: Data, side: int, result: Any, want: Expectation) -> Verdict:
    """Compare one result with its bound; if an array was given, require that the call returns it."""
    given = data.out[side]
    if given is not None:
        same = result.data_ptr() == given.ctypes.data if call.arrays == "torch" else result is given
        if not same:
            return Verdict(f"the call must return the given array but returned another {type(result)}")
        if call.op == "rope_set_rows":
            return _judge_cache(call, data, given, want)
    elif str(result.dtype).removeprefix("torch.") != call.result_dtype:
        return Verdict(f"the result must have dtype {call.result_dtype} but has {result.dtype}")
    elif tuple(result.shape) != want.value.shape:
        return Verdict(f"the result must have shape {want.value.shape} but has {tuple(result.shape)}")
    return _compare(values_of(result if given is None else given), want.value, want.bound)


def _judge_cache(call: RandomCall, data: Data, cache: Array, want: Expectation) -> Verdict:
    """Judge the written rows as a result, and require that the other rows are unchanged."""
    assert data.rows is not None
    rows = data.rows.reshape(-1)
    written = rows >= 0
    before = data.buffers["cache"].views[0](data.buffers["cache"].before)[0]
    others = np.setdiff1d(np.arange(len(cache)), rows[written])
    if not np.array_equal(np.array(cache[others]).view(np.uint8), np.array(before[others]).view(np.uint8)):
        return Verdict("a row of the cache that no index selects was written")
    shape = (len(rows), *want.value.shape[-2:])
    value, bound = (a.reshape(shape)[written] for a in (want.value, want.bound))
    return _compare(values_of(cache[rows[written]]), value, bound)


def _compare(
    got: npt.NDArray[np.float64], value: npt.NDArray[np.float64], bound: npt.NDArray[np.float64]
) -> Verdict:
    ratio, at = worst_ratio(got, value, bound)
    if ratio <= 1:
        return Verdict("", ratio)
    return Verdict(f"{ratio:.3g} times its bound at {at}: {got[at]:.9g} instead of {value[at]:.9g}", ratio)
