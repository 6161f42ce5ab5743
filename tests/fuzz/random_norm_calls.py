"""Random calls of rms_norm, rms_norm_backward and add_rms_norm, compared with the specification in long
double (``norm_spec.py``): ranks, axes, broadcasts of the scale, strides, types, stash types, epsilons, and
rows of any magnitude of their type.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.dtypes import bfloat16_bits
from npu_rope.executors import rms_norm as executors
from npu_rope.rms_norm_calls import (
    RmsNormAttributes,
    add_rms_norm_tensors,
    rms_norm_backward_tensors,
    rms_norm_tensors,
)
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import normalized_error_on, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.outcomes import unwritten

Array = npt.NDArray[Any]
DTYPES = tuple(norm_spec.FORMATS)
# Lengths of rows around those of vectors, blocks and groups. Large ones are drawn rarely.
SIZES = (1, 2, 3, 31, 33, 64, 127, 129, 511, 513, 1000)
LARGE, HUGE = (4096, 4097, 16384), 1_000_003
HUGE_EVERY = 500
EPSILONS = (1e-5, 1e-6, 1e-12, 0.0, 1.0)
OUTS = ("new", "given", "gaps", "in place")
SUMS = ("new", "x", "residual")


@dataclass(frozen=True)
class NormDraw:
    """A call with its arrays."""

    text: str
    x: Array
    scale: Array
    grad: Array | None
    residual: Array | None
    outs: tuple[Array, ...]
    x_dtype: str
    scale_dtype: str
    attributes: RmsNormAttributes

    @property
    def kind(self) -> str:
        """Forward, backward or add."""
        return "backward" if self.grad is not None else "forward" if self.residual is None else "add"

    def normalized(self) -> npt.NDArray[np.float64]:
        """Return the input of the normalization: x, or its sum with the residual."""
        if self.residual is None:
            return self.x.astype(np.float64)
        return norm_spec.add(self.x, self.residual, self.x_dtype)

    def spec(self) -> norm_spec.NormCall:
        """Return the specification's call."""
        a = self.attributes
        return norm_spec.NormCall(
            self.normalized(),
            self.scale.astype(np.float64),
            self.x_dtype,
            self.scale_dtype,
            a.axis,
            a.epsilon,
            a.stash_type,
        )


def draw(seed: int, index: int, dtypes: tuple[str, ...] = DTYPES) -> NormDraw:
    """Return one call."""
    rng = random.Random(f"{seed}/{index}")
    values = np.random.default_rng(rng.getrandbits(63))
    x_dtype = rng.choice(dtypes)
    scale_dtype = rng.choice((x_dtype, x_dtype, rng.choice(DTYPES)))
    shape = _shape(rng, huge=index % HUGE_EVERY == HUGE_EVERY - 1)
    axis = rng.randrange(len(shape)) if rng.random() < 0.5 else len(shape) - 1
    a = RmsNormAttributes(
        axis - len(shape) if rng.random() < 0.5 else axis,
        rng.choice(EPSILONS),
        rng.choice((1, 1, 1, *norm_spec.STASH)),
    )
    layout = rng.choice(("contiguous", "contiguous", "gaps", "non-unit", "reversed"))
    x = _with_layout(rounded(_numbers(rng, values, shape, axis, x_dtype), x_dtype), layout)
    scale = rounded(values.uniform(-2, 2, _scale_shape(rng, shape)), scale_dtype)
    op = rng.choices(("rms_norm", "rms_norm_backward", "add_rms_norm"), (4, 3, 3))[0]
    grad = residual = None
    outs: tuple[Array, ...] = ()
    out_kind = "new"
    if op == "rms_norm_backward":
        grad = rounded(values.standard_normal(shape), scale_dtype)
    else:
        outs, out_kind = _outs(rng, x, scale, axis)
    if op == "add_rms_norm":
        residual = rounded(_numbers(rng, values, shape, axis, x_dtype), x_dtype)
        if outs:
            total, sum_out = _sum(rng, x, residual, outs[0])
            outs, out_kind = (*outs, total), f"{out_kind}, sum {sum_out}"
    text = (
        f"{op} {x_dtype}{list(shape)} {layout}, scale {scale_dtype}{list(scale.shape)}, out {out_kind}, {a}"
    )
    return NormDraw(text, x, scale, grad, residual, outs, x_dtype, scale_dtype, a)


def _shape(rng: random.Random, *, huge: bool) -> tuple[int, ...]:
    if huge:
        return (1, HUGE)
    last = rng.choice(LARGE) if rng.random() < 0.01 else rng.choice((*SIZES, rng.randint(1, 300)))
    outer = [rng.choice((1, 1, 2, 3, 5)) for _ in range(rng.randint(0, 5))]
    if rng.random() < 0.02:
        outer = [rng.choice((0, 20)), *outer[:1]]
    while int(np.prod(outer)) * last > 20_000 and outer:
        outer.pop()
    return (*outer, last)


def _scale_shape(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    dims = shape[rng.randint(0, len(shape)) :] if rng.random() < 0.5 else shape[-1:]
    return tuple(1 if rng.random() < 0.2 else n for n in dims)


def _numbers(
    rng: random.Random, values: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: str
) -> npt.NDArray[np.float64]:
    """Return rows with numbers around 1. Some draws scale each row or each number over the type's range, make
    rows zero, or draw integers (many ties)."""
    rows = (*shape[:axis], *[1] * (len(shape) - axis))
    kind = rng.random()
    if kind < 0.15:
        return values.integers(-9, 10, shape).astype(np.float64)
    x = values.standard_normal(shape)
    if kind < 0.2:
        return x * values.integers(0, 2, rows)
    bits, smallest, largest = norm_spec.FORMATS[dtype]
    if kind < 0.6:
        each = rows if kind < 0.5 else shape
        exponents = values.uniform(smallest + bits // 2, np.log2(largest) - 3, each)
        with np.errstate(over="ignore", under="ignore"):
            return np.clip(x * np.exp2(exponents), -largest, largest)
    return np.asarray(x * 10.0 ** values.uniform(-2, 2, rows))


def rounded(values: npt.NDArray[np.float64], dtype: str) -> Array:
    """Return the values rounded to a type, for bfloat16 that of ml_dtypes."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(dtype)
    import ml_dtypes

    return bfloat16_bits(values).view(ml_dtypes.bfloat16)


def _with_layout(a: Array, layout: str) -> Array:
    """Return the values with other strides."""
    if layout == "gaps" and a.ndim > 1:
        return np.concatenate((a, a[..., :3]), -1)[..., : a.shape[-1]]
    if layout == "non-unit":
        return np.repeat(a, 2, -1)[..., ::2]
    if layout == "reversed" and a.ndim > 1:
        return a[::-1].copy()[::-1]
    return a


def _outs(rng: random.Random, x: Array, scale: Array, axis: int) -> tuple[tuple[Array, ...], str]:
    """Return the array for the result, in a tuple that is empty if the call makes it, and its description."""
    out_kind = rng.choice(OUTS)
    last = axis == x.ndim - 1 and x.ndim <= 4
    if out_kind == "in place" and x.dtype == scale.dtype and x.flags.c_contiguous:
        return (x,), out_kind
    if out_kind == "gaps" and last and x.ndim > 1:
        return (_with_layout(np.zeros(x.shape, scale.dtype), "gaps"),), out_kind
    if out_kind == "given":
        return (np.zeros(x.shape, scale.dtype),), out_kind
    return (), "new"


def _sum(rng: random.Random, x: Array, residual: Array, out: Array) -> tuple[Array, str]:
    """Return the array for add_rms_norm's sum, which may be an input but not out, and its description."""
    out_kind = rng.choice(SUMS)
    if out_kind == "x" and x.flags.c_contiguous and out is not x:
        return x, out_kind
    return (residual, out_kind) if out_kind == "residual" else (np.zeros(x.shape, x.dtype), "new")


def refused(call: NormDraw, backend: str) -> bool:
    """Return whether the back end's device does not support the call."""
    stash = norm_spec.STASH[call.attributes.stash_type]
    lacks = lacks_type(backend, (call.x_dtype, call.scale_dtype, stash))
    by_torch = backend == "npu" and call.kind == "backward" and not call.spec().all_rows_share_scale
    return bool(lacks) or by_torch


def judge(call: NormDraw, backend: str) -> float:
    """Return the largest error over its bound. Raise AssertionError if an input was written."""
    spec, read = call.spec(), (call.x, call.scale, call.grad, call.residual)
    inputs = [a for a in read if a is not None and not any(a is out for out in call.outs)]
    error = normalized_error_on(backend, spec.n)
    expected: tuple[tuple[Array, Array], ...]
    if call.grad is not None:
        grad = call.grad.astype(np.float64)
        expected = norm_spec.rms_norm_backward(spec, grad, backend)
        t = rms_norm_backward_tensors(call.grad, call.x, call.scale)
    elif call.residual is not None:
        expected = norm_spec.rms_norm(spec, error), (spec.x, np.zeros(spec.x.shape))
        t = add_rms_norm_tensors(call.x, call.residual, call.scale, call.outs)
    else:
        expected = (norm_spec.rms_norm(spec, error),)
        t = rms_norm_tensors(call.x, call.scale, *call.outs)
    with unwritten(inputs):
        results = executors.run(backend, t, call.attributes)
    ratios = [
        worst_ratio(np.atleast_1d(y).astype(np.float64), np.atleast_1d(value), np.atleast_1d(bound))[0]
        for y, (value, bound) in zip(results, expected, strict=True)
    ]
    return max(ratios)
