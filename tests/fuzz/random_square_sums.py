"""Random calls of qk_square_sums, compared with float64 (``qkv.square_sums_expectation``).

The draws vary types, sizes, views, and magnitudes whose squares leave the range of float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from choices import Choices
from random_calls import ARRAYS
from random_qkv import DTYPES, NUMPY, as_torch

from npu_rope import qk_square_sums
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.qkv import square_sums_expectation

OP = "qk_square_sums"
LONGEST_WHOLE_HEAD = 8192  # elements; an NPU processes longer heads in chunks
LARGEST_EXPONENT = {"float32": 70, "float16": 6, "bfloat16": 70, "float64": 300}


@dataclass
class SquareSumsCase:
    """A call."""

    dtype: str
    layout: str
    q: Any
    k: Any

    @property
    def text(self) -> str:
        """The call in words."""
        sides = " ".join(f"{list(x.shape)} strides {list(x.strides)}" for x in (self.q, self.k))
        return f"{self.dtype} {self.layout} {sides}"


def draw(choices: Choices, op: str = OP, dtypes: tuple[str, ...] = DTYPES) -> SquareSumsCase:
    """Return one call."""
    rng, dtype = choices.numbers(), choices.choice(dtypes)
    tokens = choices.choice((1, 2, 3, 4, 5, 7, 8, 33, 70, 130, 400))
    heads = [choices.choice((1, 0, 2, 3, 8, 12, 40)) for _ in range(2)]
    size = choices.choice((1, 3, 4, 8, 16, 17, 34, 64, 96, 128, 200, 256, 0, 520))
    kind = choices.choice(("usual",) * 176 + ("long token",) * 12 + ("long head",) * 11 + ("huge head",))
    if kind == "long token":  # one that does not fit UB
        tokens, size, heads[choices.below(2)] = choices.integer(1, 6), 128, choices.integer(150, 1199)
    elif kind == "long head":  # one that does not fit UB
        tokens = choices.integer(1, 6)
        size = LONGEST_WHOLE_HEAD + choices.choice((-1, 0, 1, 15, 16, 8192, 8193, 8207, 20000, 60001))
        heads = [choices.integer(0, 3), choices.integer(1, 2)]
    elif kind == "huge head":
        tokens, heads, size = 1, [1, 1], 1_000_003
    elif not choices.chance(0.02):
        tokens = max(1, min(tokens, 20_000 // max(1, sum(heads) * size)))
    layout = choices.choice(("dense", "fused", "head gaps", "token gaps", "head by head", "last stride 2"))
    exponent = choices.choice((0, 1, -1)) * LARGEST_EXPONENT[dtype] if choices.chance(0.3) else 0
    has_special = choices.chance(0.2)
    views = _views(choices, rng, layout, tokens, heads, size, dtype)
    q, k = (_scaled(rng, x, exponent, has_special) for x in views)
    return SquareSumsCase(dtype, layout, q, k)


def _views(choices, rng, layout, tokens, heads, size, dtype):
    """Return q and k, views with random numbers."""

    def numbers(*shape):
        return rng.standard_normal(shape, np.float32).astype(NUMPY[dtype])

    if layout == "fused":
        fused = numbers(tokens, sum(heads) + 1, size)
        return fused[:, : heads[0]], fused[:, heads[0] : sum(heads)]
    if layout == "head gaps":
        gap = choices.integer(1, 19)
        return [numbers(tokens, n, size + gap)[:, :, gap:] for n in heads]
    if layout == "token gaps":
        return [numbers(tokens, n + 2, size)[:, 1 : n + 1] for n in heads]
    if layout == "head by head":
        return [numbers(n, tokens, size).transpose(1, 0, 2) for n in heads]
    if layout == "last stride 2":
        return [numbers(tokens, n, 2 * size)[:, :, ::2] for n in heads]
    return [numbers(tokens, n, size) for n in heads]


def _scaled(rng, x, exponent, has_special):
    """Return x times a power of two for each token, with a special number or without, in the same layout."""
    if exponent == 0 or x.size == 0:
        return x
    powers = rng.integers(exponent - 6, exponent + 7, (x.shape[0], 1, 1)).astype(np.int32)
    with np.errstate(over="ignore", under="ignore"):
        x[...] = np.ldexp(x.astype(np.float64), powers).astype(x.dtype)
    if has_special:
        x[tuple(rng.integers(0, x.shape))] = rng.choice([np.inf, -np.inf, np.nan])
    return x


def refused(call: SquareSumsCase, backend: str) -> bool:
    """Return whether the back end's device lacks the type."""
    return bool(lacks_type(backend, (call.dtype,)))


def ratio_of(call: SquareSumsCase, got: Any, backend: str) -> float:
    """Return the largest ratio of an error to its bound."""
    expected = square_sums_expectation([call.q, call.k], call.dtype, backend)
    assert got.shape == expected.value.shape
    assert str(got.dtype).rpartition(".")[2] == ("float64" if call.dtype == "float64" else "float32")
    return worst_ratio(np.asarray(got), *expected)[0]


def judge(call: SquareSumsCase, backend: str) -> float:
    """Run the call on arrays and on tensors; return the largest ratio of an error to its bound."""
    ratio = ratio_of(call, qk_square_sums(call.q, call.k, backend=backend), backend)
    if backend != "cpu" or "torch" not in ARRAYS:
        return ratio
    got = qk_square_sums(as_torch(call.q), as_torch(call.k))
    return max(ratio, ratio_of(call, got.numpy(), backend))
