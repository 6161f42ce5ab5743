"""rms_norm_rope's cases of ``npu-rope validate --suite norm``.

``norm_rope_spec.py`` computes its specification in long double. The case's name seeds the generator of its
values. A form is a kind of call; each form has a case for each dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.params import RopeParams
from npu_rope.reference import rms_norm_rope as reference
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors
from npu_rope.testing import norm_rope_spec
from npu_rope.testing.bits import run_on_bits
from npu_rope.testing.bounds import (
    TABLE_ERROR_DEVICE,
    TABLE_ERROR_HOST,
    is_device,
    normalized_error_on,
)
from npu_rope.testing.cases import FAR_4M, SHORT, generator_of, rounded
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.norm_spec import FORMATS
from npu_rope.testing.norms import sizes_of
from npu_rope.testing.outcomes import CaseResult, Expectation, Judgement, compare_all, judge_each, unwritten

Array = npt.NDArray[Any]
DTYPES = ("float32", "float16", "bfloat16")
SPARE_ROWS = 5  # a cache has this number of rows more than there are tokens


@dataclass(frozen=True)
class NormRopeCase:
    """One call of rms_norm_rope.

    Attributes:
        name: unique within the suite.
        shape: of q.
        keys: the number of k's heads.
        start: the first token's position.
        values: "heads" of different magnitudes, "zeros" (about half of the heads are zero), "large" or
            "small" (near the largest or the smallest number of the type), "far" (with an infinity and a NaN).
        set_rows: k goes to rows of a cache. Every third token is skipped.
    """

    name: str
    dtype: str
    params: RopeParams
    shape: tuple[int, ...] = (2, 9, 8, 128)
    keys: int = 2
    epsilon: float = 1e-6
    intermediate_rounding: bool = False
    freq_factors: bool = False
    start: int = 0
    values: str = "heads"
    set_rows: bool = False
    suite: ClassVar[str] = "norm"

    op: ClassVar[str] = "RMS_NORM_ROPE"
    source: ClassVar[str] = "ONNX RMSNormalization-23, then ggml rope_ext"

    @property
    def attributes(self) -> RmsNormRopeAttributes:
        """The attributes in the operator's form."""
        return RmsNormRopeAttributes(self.params, self.epsilon, self.intermediate_rounding)


# ---- the cases -----------------------------------------------------------------------------------------

_NEOX = RopeParams(128, "neox")
_YARN = RopeParams(128, "neox", n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0)
# The name of a form, and its differences from the default of NormRopeCase.
_FORMS: dict[str, dict[str, Any]] = {
    "qwen3": {"params": RopeParams(128, "neox", freq_base=1e6), "shape": (1, 7, 32, 128), "keys": 8},
    "qwen3-decode": {
        "params": RopeParams(128, "neox", freq_base=1e6),
        "shape": (4, 1, 32, 128),
        "start": 40_000,
    },
    "gemma3": {
        "params": RopeParams(256, "neox", freq_base=1e6, freq_scale=0.125),
        "shape": (1, 5, 8, 256),
        "keys": 4,
    },
    "glm-4.5": {"params": RopeParams(64, "neox", freq_base=1e6), "shape": (1, 3, 96, 128), "keys": 8},
    "qwen3-vl": {
        "params": RopeParams(128, "imrope", freq_base=5e6, sections=(24, 20, 20, 0)),
        "shape": (1, 9, 32, 128),
        "keys": 8,
    },
    "normal": {"params": RopeParams(128, "normal")},
    "mrope": {"params": RopeParams(128, "mrope", sections=(16, 24, 24, 0))},
    "vision": {"params": RopeParams(64, "vision", sections=(32, 32, 0, 0))},
    "partial": {"params": RopeParams(32, "neox"), "shape": (2, 9, 3, 80)},
    "normal-partial": {"params": RopeParams(48, "normal"), "shape": (2, 9, 3, 80)},
    "offset": {"params": RopeParams(64, "neox", n_offs=64)},
    "middle": {"params": RopeParams(30, "normal", n_offs=26), "shape": (2, 9, 3, 77)},
    "odd-head": {"params": RopeParams(34, "neox"), "shape": (9, 3, 35)},
    "yarn": {"params": _YARN},
    "freq-factors": {"params": _NEOX, "freq_factors": True},
    "no-batch": {"params": _NEOX, "shape": (9, 8, 128)},
    "wide-head": {"params": RopeParams(64, "neox"), "shape": (1, 3, 2, 1024)},
    "far-position": {"params": _NEOX, "start": 1_000_000},
    "farthest-position": {"params": _NEOX, "start": 2**31 - 9},
    "epsilon-0": {"params": _NEOX, "epsilon": 0.0},
    "zeros": {"params": _NEOX, "values": "zeros"},
    "large": {"params": _NEOX, "values": "large"},
    "small": {"params": _NEOX, "values": "small"},
    "small-epsilon-0": {"params": _NEOX, "values": "small", "epsilon": 0.0},
    "far": {"params": _NEOX, "values": "far"},
    "set-rows": {"params": _NEOX, "set_rows": True},
    "set-rows-partial": {"params": RopeParams(48, "normal", n_offs=8), "shape": (9, 3, 80), "set_rows": True},
}
_FLOAT64_FORMS = ("qwen3", "normal-partial", "large", "small-epsilon-0", "set-rows")


def norm_rope_cases() -> Iterator[NormRopeCase]:
    """Yield every form in every dtype, some also in float64, without and with intermediate rounding."""
    for rounding in (False, True):
        for form, differences in _FORMS.items():
            for dtype in (*DTYPES, *(("float64",) if form in _FLOAT64_FORMS else ())):
                shape = differences.get("shape", (2, 9, 8, 128))
                sizes = str(list(shape)).replace(" ", "")
                rounding_text = "rounded-between" if rounding else "rounded-once"
                name = f"rms-norm-rope-{form}(type={SHORT.get(dtype, 'f64')},shape={sizes},{rounding_text})"
                yield NormRopeCase(name, dtype, **differences, intermediate_rounding=rounding)


# ---- data ----------------------------------------------------------------------------------------------


@dataclass
class NormRopeData:
    """A case's arrays; bfloat16 as float32 values."""

    xs: list[Array]
    scales: list[Array]
    positions: Array
    freq_factors: Array | None
    rows: Array | None = None
    cache: Array = field(default_factory=lambda: np.zeros(0))


def make_data(case: NormRopeCase) -> NormRopeData:
    """Return the case's values, rounded to its type."""
    generator = generator_of(case)
    *leading_sizes, heads, head = case.shape
    xs = [_heads(case, generator, (*leading_sizes, head_count, head)) for head_count in (heads, case.keys)]
    scales = [rounded(generator.uniform(-2, 2, head), case.dtype) for _ in xs]
    tokens = leading_sizes[-1]
    positions = case.start + np.arange(tokens)
    if case.params.rope_mode.has_sections:
        positions = np.stack([positions, *generator.integers(0, 50, (3, tokens))])
    factors = generator.uniform(0.5, 8, case.params.pairs).astype(np.float32) if case.freq_factors else None
    data = NormRopeData(xs, scales, positions, factors)
    if case.set_rows:
        token_count = int(np.prod(leading_sizes))
        data.rows = generator.permutation(token_count + SPARE_ROWS)[:token_count]
        data.rows[::3] = -1
        data.rows = data.rows.reshape(leading_sizes)
        data.cache = rounded(
            generator.standard_normal((token_count + SPARE_ROWS, case.keys, head)), case.dtype
        )
    return data


def _heads(case: NormRopeCase, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    sizes, largest = sizes_of(case.values, case.dtype, generator, (*shape[:-1], 1)), FORMATS[case.dtype][2]
    with np.errstate(over="ignore"):
        x = np.clip(generator.standard_normal(shape) * sizes, -largest, largest)
    if case.values == "far":
        x.flat[0], x.flat[-1] = np.inf, np.nan
    return rounded(x, case.dtype)


def expectation(case: NormRopeCase, data: NormRopeData, backend: str = "cpu") -> list[Expectation]:
    """Return the results for q and for k (or the cache), with the bounds of the back end's errors."""
    pairs = zip(data.xs, data.scales, strict=True)
    q, k = expected_heads(pairs, data.positions, data.freq_factors, case.dtype, case.attributes, backend)
    return [q, k if data.rows is None else in_rows(k, data.rows, data.cache)]


def expected_heads(
    heads_and_scales: Iterable[tuple[Array, Array]],
    positions: Array,
    freq_factors: Array | None,
    dtype: str,
    attributes: RmsNormRopeAttributes,
    backend: str,
) -> list[Expectation]:
    """Return the expectation for each tensor of heads."""
    table_error = TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST
    expected = []
    for x, scale in heads_and_scales:
        call = norm_rope_spec.NormRopeCall(
            x,
            scale,
            positions,
            attributes.params,
            dtype,
            freq_factors,
            attributes.epsilon,
            attributes.intermediate_rounding,
            table_error=table_error,
            error=normalized_error_on(backend, x.shape[-1]),
        )
        expected.append(Expectation(*norm_rope_spec.rms_norm_rope(call)))
    return expected


def in_rows(k: Expectation, rows: Array, cache: Array) -> Expectation:
    """Return the expectation of a cache that receives k; its other rows stay unchanged."""
    value, bound = cache.astype(np.float64), np.zeros(cache.shape)
    has_row, flat_shape = rows.ravel() >= 0, (rows.size, *k.value.shape[-2:])
    value[rows.ravel()[has_row]] = k.value.reshape(flat_shape)[has_row]
    bound[rows.ravel()[has_row]] = k.bound.reshape(flat_shape)[has_row]
    return Expectation(value, bound)


# ---- judging -------------------------------------------------------------------------------------------


def judge_norm_ropes(case: NormRopeCase, backends: list[str], ggml: GgmlProcess | None = None) -> CaseResult:
    """Run and judge one case; ggml has no such operator."""
    data = make_data(case)
    return judge_each(case, backends, partial(_unsupported_reason, case, data), partial(_judge, case, data))


def _unsupported_reason(case: NormRopeCase, data: NormRopeData, backend: str) -> str:
    """Return in words why the back end does not support the case; empty if it does."""
    return lacks_type(backend, (case.dtype,)) or _lacks_positions(backend, data.positions)


def _judge(case: NormRopeCase, data: NormRopeData, backend: str) -> Judgement:
    got, expected = _execute(case, data, backend), expectation(case, data, backend)
    return compare_all(backend, got, expected, ["q's index", "k's index"])


def _lacks_positions(backend: str, positions: Array) -> str:
    """Return in words why the back end does not support these positions; empty if it does."""
    if not is_device(backend) or int(np.abs(positions).max(initial=0)) <= FAR_4M:
        return ""
    return "positions must be below 2^22 on the device"


def _execute(case: NormRopeCase, data: NormRopeData, backend: str) -> list[Array]:
    """Run a case. NumPy has no bfloat16, so native code receives bits, and the reference receives float32
    values and the name of their type."""
    as_bits = case.dtype == "bfloat16" and backend != "reference"
    copy_of: Callable[[Array], Array] = bfloat16_bits if as_bits else np.copy
    xs, scales = [copy_of(x) for x in data.xs], [copy_of(scale) for scale in data.scales]
    cache = copy_of(data.cache)
    outs = np.empty_like(xs[0]), np.empty_like(xs[1]) if data.rows is None else cache
    tensors: CallTensors[Array] = rms_norm_rope_tensors(
        xs[0], xs[1], scales[0], scales[1], data.positions, data.freq_factors, outs, data.rows
    )
    if backend == "reference":
        return _on_reference(case, tensors)
    with unwritten([*tensors.xs.values(), *tensors.other_inputs.values()]):
        run_on_bits(backend, tensors, case.attributes)
    return [bfloat16_values(result) if as_bits else result for result in outs]


def _on_reference(case: NormRopeCase, tensors: CallTensors[Array]) -> list[Array]:
    results = reference.rms_norm_rope(tensors, case.dtype, case.attributes)
    q, k = (rounded(result, case.dtype) for result in results)
    if not tensors.scatters:
        return [q, k]
    cache, rows = tensors.outs["cache"], tensors.other_inputs["rows"].ravel()
    cache[rows[rows >= 0]] = k.reshape(rows.size, *k.shape[-2:])[rows >= 0]
    return [q, cache]
