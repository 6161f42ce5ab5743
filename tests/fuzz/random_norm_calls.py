"""Random calls of rms_norm, rms_norm_backward and add_rms_norm, compared with the specification in long
double (``norm_spec.py``): ranks, axes, broadcasts of the scale, strides, types, stash types, epsilons, and
rows of any magnitude of their type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from choices import Choices

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
OPERATORS = ("rms_norm", "rms_norm_backward", "add_rms_norm")
# Lengths of rows around those of vectors, blocks and groups. Large ones are drawn rarely.
SIZES = (1, 2, 3, 31, 33, 64, 127, 129, 511, 513, 1000)
LARGE, HUGE = (4096, 4097, 16384), 1_000_003
HUGE_EVERY = 1000
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

    def normalized(self) -> npt.NDArray[np.float64]:
        """Return the input of the normalization: x, or its sum with the residual."""
        if self.residual is None:
            return self.x.astype(np.float64)
        return norm_spec.add(self.x, self.residual, self.x_dtype)

    def tensors(self) -> Any:
        """Return the operator's call on the arrays."""
        if self.grad is not None:
            return rms_norm_backward_tensors(self.grad, self.x, self.scale)
        if self.residual is not None:
            return add_rms_norm_tensors(self.x, self.residual, self.scale, self.outs)
        return rms_norm_tensors(self.x, self.scale, *self.outs)

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


def draw(choices: Choices, op: str, dtypes: tuple[str, ...] = DTYPES) -> NormDraw:
    """Return one call of an operator of OPERATORS."""
    values = choices.numbers()
    x_dtype = choices.choice(dtypes)
    scale_dtype = choices.choice((x_dtype, x_dtype, choices.choice(dtypes)))
    shape = _shape(choices)
    axis = len(shape) - 1 - (choices.below(len(shape)) if choices.chance(0.5) else 0)
    a = RmsNormAttributes(
        axis if choices.chance(0.5) else axis - len(shape),
        choices.choice(EPSILONS),
        choices.choice((1, 1, 1, *norm_spec.STASH)),
    )
    layout = choices.choice(("contiguous", "contiguous", "gaps", "non-unit", "reversed"))
    x = _with_layout(rounded(_numbers(choices, values, shape, axis, x_dtype), x_dtype), layout)
    scale = rounded(values.uniform(-2, 2, _scale_shape(choices, shape)), scale_dtype)
    grad = residual = None
    outs: tuple[Array, ...] = ()
    out_kind = "new"
    if op == "rms_norm_backward":
        grad = rounded(values.standard_normal(shape), scale_dtype)
    else:
        outs, out_kind = _outs(choices, x, scale, axis)
    if op == "add_rms_norm":
        residual = rounded(_numbers(choices, values, shape, axis, x_dtype), x_dtype)
        if outs:
            total, sum_out = _sum(choices, x, residual, outs[0])
            outs, out_kind = (*outs, total), f"{out_kind}, sum {sum_out}"
    text = (
        f"{op} {x_dtype}{list(shape)} {layout}, scale {scale_dtype}{list(scale.shape)}, out {out_kind}, {a}"
    )
    return NormDraw(text, x, scale, grad, residual, outs, x_dtype, scale_dtype, a)


def _shape(choices: Choices) -> tuple[int, ...]:
    if choices.chance(1 / HUGE_EVERY):
        return (1, HUGE)
    if choices.chance(0.01):
        last = choices.choice(LARGE)
    else:
        last = choices.choice((*SIZES, choices.integer(1, 300)))
    outer = [choices.choice((1, 1, 2, 3, 5)) for _ in range(choices.integer(0, 5))]
    if choices.chance(0.02):
        outer = [choices.choice((0, 20)), *outer[:1]]
    while int(np.prod(outer)) * last > 20_000 and outer:
        outer.pop()
    return (*outer, last)


def _scale_shape(choices: Choices, shape: tuple[int, ...]) -> tuple[int, ...]:
    first = len(shape) - 1
    if choices.chance(0.5):
        first = choices.integer(0, len(shape))
    return tuple(1 if choices.chance(0.2) else n for n in shape[first:])


# How the numbers of a row are drawn: around 1 in most draws.
NUMBERS = ("plain",) * 8 + ("integers",) * 3 + ("zero rows",) + ("scaled rows",) * 6 + ("scaled numbers",) * 2


def _numbers(
    choices: Choices, values: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: str
) -> npt.NDArray[np.float64]:
    """Return rows with numbers around 1. Some draws scale each row or each number over the type's range, make
    rows zero, or draw integers (many ties)."""
    rows, kind = (*shape[:axis], *[1] * (len(shape) - axis)), choices.choice(NUMBERS)
    if kind == "integers":
        return values.integers(-9, 10, shape).astype(np.float64)
    x = values.standard_normal(shape)
    if kind == "zero rows":
        return x * values.integers(0, 2, rows)
    if kind == "plain":
        return np.asarray(x * 10.0 ** values.uniform(-2, 2, rows))
    bits, smallest, largest = norm_spec.FORMATS[dtype]
    each = rows if kind == "scaled rows" else shape
    exponents = values.uniform(smallest + bits // 2, np.log2(largest) - 3, each)
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(x * np.exp2(exponents), -largest, largest)


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


def _outs(choices: Choices, x: Array, scale: Array, axis: int) -> tuple[tuple[Array, ...], str]:
    """Return the array for the result, in a tuple that is empty if the call makes it, and its description."""
    out_kind = choices.choice(OUTS)
    last = axis == x.ndim - 1 and x.ndim <= 4
    if out_kind == "in place" and x.dtype == scale.dtype and x.flags.c_contiguous:
        return (x,), out_kind
    if out_kind == "gaps" and last and x.ndim > 1:
        return (_with_layout(np.zeros(x.shape, scale.dtype), "gaps"),), out_kind
    if out_kind == "given":
        return (np.zeros(x.shape, scale.dtype),), out_kind
    return (), "new"


def _sum(choices: Choices, x: Array, residual: Array, out: Array) -> tuple[Array, str]:
    """Return the array for add_rms_norm's sum, which may be an input but not out, and its description."""
    out_kind = choices.choice(SUMS)
    if out_kind == "x" and x.flags.c_contiguous and out is not x:
        return x, out_kind
    return (residual, out_kind) if out_kind == "residual" else (np.zeros(x.shape, x.dtype), "new")


def refused(call: NormDraw, backend: str) -> bool:
    """Return whether the back end's device does not support the call."""
    stash = norm_spec.STASH[call.attributes.stash_type]
    lacks = lacks_type(backend, (call.x_dtype, call.scale_dtype, stash))
    by_torch = backend == "npu" and call.grad is not None and not call.spec().all_rows_share_scale
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
    elif call.residual is not None:
        expected = norm_spec.rms_norm(spec, error), (spec.x, np.zeros(spec.x.shape))
    else:
        expected = (norm_spec.rms_norm(spec, error),)
    with unwritten(inputs):
        results = executors.run(backend, call.tensors(), call.attributes)
    ratios = [
        worst_ratio(np.atleast_1d(y).astype(np.float64), np.atleast_1d(value), np.atleast_1d(bound))[0]
        for y, (value, bound) in zip(results, expected, strict=True)
    ]
    return max(ratios)
