"""Random calls of rotary_position_embedding: padded batches and packed sequences, in every type and scaling,
on arrays and tensors. ``pmx_spec.py`` computes their results in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from choices import Choices
from random_judge import NUMPY_DTYPES, values_of
from random_norm_calls import rounded

from npu_rope.executors.npu import tensor_of
from npu_rope.testing import pmx
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, TABLE_ERROR_HOST, is_device, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.outcomes import unwritten

Array = npt.NDArray[Any]
OP = "rotary_position_embedding"
DTYPES = (*NUMPY_DTYPES, "int8")
HEAD_SIZES = (2, 4, 6, 16, 20, 32, 64, 80, 96, 128, 256)
STARTS = (0, 5, 77, 2040, 9000, 131_071, 4_000_000)
PADDINGS = (0, 0, 1, 3, 30, 2000, 100_000)


@dataclass(frozen=True)
class PmxCall:
    """A call with its arrays."""

    case: pmx.PmxCase
    query: Array
    key: Array
    arrays: str

    @property
    def dtype(self) -> str:
        """The type of query and key."""
        return self.case.dtype

    def __str__(self) -> str:
        strides = [list(a.strides) for a in (self.query, self.key)]
        return f"{OP} {self.case}, strides {strides}, {self.arrays}"


def draw(
    choices: Choices, op: str = OP, dtypes: tuple[str, ...] = DTYPES, kinds: tuple[str, ...] = ("numpy",)
) -> PmxCall:
    """Return one call. kinds: the kinds of arrays to choose from."""
    values, arrays, dtype = choices.numbers(), choices.choice(kinds), choices.choice(dtypes)
    size, heads, key_heads = choices.choice(HEAD_SIZES), *(choices.choice((1, 2, 3, 9)) for _ in range(2))
    width = size - 2 * choices.below(size // 2) if choices.chance(0.3) else size
    # The exponent of dynamic scaling is width / (width - 2).
    kind = choices.choice(("", "", "linear", "dynamic" if width > 2 else ""))
    factor, longest = (choices.choice((2.0, 4.0, 1.5)), choices.choice((2048, 100))) if kind else (1.0, 2048)
    sizes, start = (1, 2, 5, 16), choices.choice(STARTS)
    options: dict[str, Any] = {"start_pos": start}
    if choices.chance(0.4):
        seqlens = tuple(choices.choice((1, 0, 4, 9)) for _ in range(choices.integer(1, 4)))
        lead: tuple[int, ...] = (sum(seqlens),)
        starts = tuple(max(0, start - choices.choice((0, 0, 3, 2000))) for _ in seqlens)
        options = {"seqlens": seqlens, "start_pos": starts}
    else:
        lead = (choices.choice((1, 2, 4)), choices.choice(sizes))
        if choices.chance(0.4):
            options["pad_len"] = tuple(choices.choice(PADDINGS) for _ in range(lead[0]))
    case = pmx.PmxCase(
        "",
        dtype,
        (*lead, heads, size),
        key_heads,
        rotary_dim=0 if width == size else width,
        theta=choices.choice((1e4, 5e5, 1e6)),
        bypass_key=choices.chance(0.15),
        scaling=(kind, factor, longest),
        **options,
    )
    layout = choices.choice(("dense", "fused", "gaps"))
    both = _values(values, (*lead, heads + key_heads, size + (3 if layout == "gaps" else 0)), dtype)
    query, key = both[..., :heads, :size], both[..., heads:, :size]
    if layout == "dense":
        query, key = query.copy(), key.copy()
    return PmxCall(case, query, key, arrays)


def _values(values: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "int8":
        return values.integers(-128, 128, shape, np.int8)
    return rounded(values.standard_normal(shape), dtype)


def refused(call: PmxCall, backend: str) -> bool:
    """Return whether the back end's device lacks the type."""
    return bool(lacks_type(backend, (call.case.dtype,)))


def judge(call: PmxCall, backend: str) -> float:
    """Return the largest error over its bound. Raise AssertionError if an input was written."""
    on_device = is_device(backend)
    # The attributes of a CANN operator are float32, so a device rounds a scaled theta.
    angles = pmx.angles_of(call.case, (lambda value: float(np.float32(value))) if on_device else float)
    table_error = TABLE_ERROR_DEVICE if on_device else TABLE_ERROR_HOST
    expected = pmx.expectation(call.case, call.query, call.key, angles, table_error)
    query, key = (a if call.arrays == "numpy" else tensor_of(a) for a in (call.query, call.key))
    with unwritten([call.query, call.key]):
        results = call.case.call(query, key, backend)
    assert results[1] is key or not call.case.bypass_key, "a key that is bypassed must be returned itself"
    got = np.concatenate([values_of(result) for result in results], -2)
    return worst_ratio(got, expected.value, expected.bound)[0]
