"""Suite ``norm`` of ``npu-rope validate``: rms_norm, rms_norm_backward and add_rms_norm.

``norm_spec.py`` computes RMSNormalization's specification in long double. The case's name seeds the generator
of its values. A form is a kind of call; each form has a case for each operator and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from ascend_sim import Options

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.executors import rms_norm as executors
from npu_rope.reference import rms_norm as reference
from npu_rope.reference.add_rms_norm import add_rms_norm
from npu_rope.rms_norm_calls import (
    RmsNormAttributes,
    add_rms_norm_tensors,
    rms_norm_backward_tensors,
    rms_norm_tensors,
)
from npu_rope.testing import norm_spec
from npu_rope.testing.bits import run_on_bits, tensor_of_bits
from npu_rope.testing.bounds import is_device, normalized_error_on
from npu_rope.testing.cases import SHORT, generator_of, rounded
from npu_rope.testing.chip_types import lacks_type, soc_of
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import CaseResult, Expectation, Judgement, compare_all, judge_each, unwritten

Array = npt.NDArray[Any]
T = TypeVar("T")
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class NormCase:
    """One call of rms_norm, of rms_norm_backward or of add_rms_norm.

    Attributes:
        name: unique within the suite.
        scale: the scale's shape; None: x's last dimension.
        scale_dtype: the scale's type; "": x's.
        values: "rows" of different magnitudes, "zeros" (about half of the rows are zero), "large" or "small"
            (near the largest or the smallest number of x's type), "far" (with an infinity and a NaN).
        backward: the case is rms_norm_backward.
        add: the case is add_rms_norm, which adds a residual to x first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: tuple[int, ...] | None = None
    scale_dtype: str = ""
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1
    values: str = "rows"
    backward: bool = False
    add: bool = False
    suite: ClassVar[str] = "norm"
    source: ClassVar[str] = "ONNX RMSNormalization-23"

    @property
    def op(self) -> str:
        """The operation."""
        return "RMS_NORM_BACK" if self.backward else "ADD_RMS_NORM" if self.add else "RMS_NORM"

    @property
    def scale_type(self) -> str:
        """The scale's type."""
        return self.scale_dtype or self.dtype

    @property
    def attributes(self) -> RmsNormAttributes:
        """The attributes in the operators' form."""
        return RmsNormAttributes(self.axis, self.epsilon, self.stash_type)


# ---- the cases -----------------------------------------------------------------------------------------

# The name of a form, and its differences from a case of shape (2, 9, 1024).
_FORMS: dict[str, dict[str, Any]] = {
    "model": {},
    "decode": {"shape": (1, 1, 4096)},
    "heads": {"shape": (2, 9, 8, 128)},
    "float32-scale": {"scale_dtype": "float32"},
    "bfloat16-scale": {"scale_dtype": "bfloat16"},
    "axis-0": {"shape": (6, 40), "axis": 0, "scale": (6, 40)},
    "axis-1": {"shape": (3, 5, 40), "axis": 1},
    "axis-negative": {"shape": (2, 3, 5, 40), "axis": -3, "scale": (5, 1)},
    "rank-6": {"shape": (2, 3, 1, 2, 3, 33), "axis": 4, "scale": (2, 1, 33)},
    "scale-of-each-token": {"shape": (2, 9, 64), "scale": (9, 1)},
    "scale-of-each-element": {"shape": (2, 9, 64), "scale": (2, 9, 64)},
    "one-scale": {"shape": (2, 9, 64), "scale": ()},
    "one": {"shape": (5, 1)},
    "odd": {"shape": (7, 33)},
    "long": {"shape": (2, 16_384)},
    "epsilon-0": {"epsilon": 0.0},
    "epsilon-1e-6": {"epsilon": 1e-6},
    "stash-float16": {"stash_type": 10, "shape": (5, 300)},
    "stash-float64": {"stash_type": 11, "shape": (5, 300)},
    "stash-bfloat16": {"stash_type": 16, "shape": (5, 300)},
    "zeros": {"values": "zeros"},
    "large": {"values": "large"},
    "small": {"values": "small"},
    "small-epsilon-0": {"values": "small", "epsilon": 0.0},
    "far": {"values": "far"},
}
_GRADIENTS = (
    "model", "heads", "float32-scale", "axis-1", "axis-negative", "scale-of-each-token", "one-scale", "odd",
    "stash-float64", "large",
)  # fmt: skip


# The prefix of a case's name for each operator, and the fields that select the operator.
_OPERATORS: dict[str, dict[str, Any]] = {"": {}, "backward-": {"backward": True}, "add-": {"add": True}}


def norm_cases() -> Iterator[NormCase]:
    """Yield rms_norm of every form in every dtype, then gradients of some forms, then add_rms_norm of all."""
    for prefix, operator_fields in _OPERATORS.items():
        for form, differences in _FORMS.items():
            if "backward" in operator_fields and form not in _GRADIENTS:
                continue
            for dtype in (*DTYPES, *(("float64",) if form.startswith(("stash", "odd")) else ())):
                shape = differences.get("shape", (2, 9, 1024))
                sizes = str(list(shape)).replace(" ", "")
                name = f"{form}(type={SHORT.get(dtype, 'f64')},shape={sizes})"
                yield NormCase(f"{prefix}{name}", dtype, **{"shape": shape, **differences}, **operator_fields)


# ---- data ----------------------------------------------------------------------------------------------


@dataclass
class NormData:
    """A case's arrays; bfloat16 as float32 values."""

    x: Array
    scale: Array
    grad: Array
    residual: Array


def make_data(case: NormCase) -> NormData:
    """Return the case's values, rounded to its types."""
    generator = generator_of(case)
    axis = case.axis % len(case.shape)
    rows = (*case.shape[:axis], *[1] * (len(case.shape) - axis))
    x = generator.standard_normal(case.shape) * sizes_of(case.values, case.dtype, generator, rows)
    if case.values == "far":
        x.flat[0], x.flat[-1] = np.inf, np.nan
    scale = generator.uniform(-2, 2, case.shape[-1:] if case.scale is None else case.scale)
    grad = generator.standard_normal(case.shape)
    scale_arrays = [rounded(array, case.scale_type) for array in (scale, grad)]
    residual = generator.standard_normal(case.shape) * sizes_of(case.values, case.dtype, generator, rows)
    largest = norm_spec.FORMATS[case.dtype][2]
    with np.errstate(over="ignore"):
        x_arrays = [rounded(np.clip(array, -largest, largest), case.dtype) for array in (x, residual)]
    return NormData(x_arrays[0], scale_arrays[0], scale_arrays[1], x_arrays[1])


def sizes_of(values: str, dtype: str, generator: np.random.Generator, rows: tuple[int, ...]) -> Array:
    """Return a factor for each row of a case with these ``values``."""
    _, smallest, largest = norm_spec.FORMATS[dtype]
    if values == "zeros":
        return generator.integers(0, 2, rows).astype(np.float64)
    if values == "large":
        return np.full(rows, largest / 4)
    if values == "small":
        return np.full(rows, 2.0**smallest * 9)
    sizes: Array = 10.0 ** generator.uniform(-2, 2, rows)
    return sizes


def spec_call(case: NormCase, data: NormData) -> norm_spec.NormCall:
    """Return the specification's call; for add_rms_norm, the call on the sum."""
    x = norm_spec.add(data.x, data.residual, case.dtype) if case.add else data.x
    return norm_spec.NormCall(
        x, data.scale, case.dtype, case.scale_type, case.axis, case.epsilon, case.stash_type
    )


def expectation(case: NormCase, data: NormData, backend: str = "cpu") -> list[Expectation]:
    """Return the specification's results, each with the bound of the back end's error."""
    call = spec_call(case, data)
    if case.backward:
        gradients = norm_spec.rms_norm_backward(call, data.grad, backend)
        return [Expectation(*gradient) for gradient in gradients]
    expected = [Expectation(*norm_spec.rms_norm(call, normalized_error_on(backend, call.n)))]
    return [*expected, Expectation(call.x, np.zeros(call.x.shape))] if case.add else expected


# ---- judging -------------------------------------------------------------------------------------------


def judge_norms(case: NormCase, backends: list[str], ggml: GgmlProcess | None = None) -> CaseResult:
    """Run and judge one case, without ggml: its rms_norm has no scale, and takes float32 only."""
    data = make_data(case)
    return judge_each(case, backends, partial(_unsupported_reason, case, data), partial(_judge, case, data))


def _unsupported_reason(case: NormCase, data: NormData, backend: str) -> str:
    """Return in words why the back end does not support the case; empty if it does."""
    reason = lacks_type(backend, (case.dtype, case.scale_type, norm_spec.STASH[case.stash_type]))
    if not reason and case.backward and backend == "npu" and not spec_call(case, data).all_rows_share_scale:
        return "no kernel computes gradients of scales that differ between rows"
    return reason


def _judge(case: NormCase, data: NormData, backend: str) -> Judgement:
    got, expected = _execute(case, data, backend), expectation(case, data, backend)
    return compare_all(backend, got, expected, ["index"] * len(got))


def _execute(case: NormCase, data: NormData, backend: str) -> list[Array]:
    """Run a case. NumPy has no bfloat16, so native code receives bits, and the reference receives float32
    values and the name of their type."""
    if backend == "reference":
        return _on_reference(case, data)
    dtypes = (case.dtype, case.scale_type, case.scale_type, case.dtype)
    inputs = [
        bfloat16_bits(array) if dtype == "bfloat16" else array.copy()
        for array, dtype in zip((data.x, data.scale, data.grad, data.residual), dtypes, strict=True)
    ]
    with unwritten(inputs):
        results = _on_bits(case, backend, *inputs)
    return [bfloat16_values(result) if result.dtype == np.uint16 else result for result in results]


def call_of(case: NormCase, x: T, scale: T, grad: T, residual: T) -> CallTensors[T]:
    """Return the case's call with these tensors."""
    if case.add:
        return add_rms_norm_tensors(x, residual, scale)
    return rms_norm_backward_tensors(grad, x, scale) if case.backward else rms_norm_tensors(x, scale)


def _on_reference(case: NormCase, data: NormData) -> list[Array]:
    dtypes = reference.NormDtypes(case.dtype, case.scale_type)
    axis, attributes = case.axis % len(case.shape), case.attributes
    if case.add:
        result, total = add_rms_norm(data.x, data.residual, data.scale, dtypes, axis, attributes)
        return [rounded(result, case.scale_type), rounded(total, case.dtype)]
    if not case.backward:
        result = reference.rms_norm(data.x, data.scale, dtypes, axis, attributes)
        return [rounded(result, case.scale_type)]
    gradients = reference.rms_norm_backward(data.grad, data.x, data.scale, dtypes, axis, attributes)
    return [rounded(gradients[0], case.dtype), rounded(gradients[1], case.scale_type)]


def _on_bits(
    case: NormCase, backend: str, x: Array, scale: Array, grad: Array, residual: Array
) -> list[Array]:
    """Run the C library, the simulator or an NPU, on bits where the dtype is bfloat16."""
    results: tuple[Array, ...] = (np.empty(x.shape, scale.dtype),)
    if case.backward:
        results = np.empty_like(x), np.empty_like(scale)
    if case.add:
        results += (np.empty_like(x),)
    tensors = call_of(case, x, scale, grad, residual)
    if case.backward and backend == "npu":
        computed = executors.run(backend, tensors.map(tensor_of_bits), case.attributes)
        for result, gradient in zip(results, computed, strict=True):
            tensor_of_bits(result).copy_(gradient)
    elif case.backward and is_device(backend):
        sums, axis = np.zeros(scale.shape, np.float32), case.axis % x.ndim
        gradients = results[0], sums
        executors.differentiate_on_sim(Options(soc_of(backend)), tensors, gradients, case.attributes, axis)
        with np.errstate(over="ignore"):
            results[1][...] = bfloat16_bits(sums) if scale.dtype == np.uint16 else sums
    else:
        outs = dict(zip(("out", "sum"), results, strict=False))
        run_on_bits(backend, replace(tensors, outs=outs), case.attributes)
    return list(results)
