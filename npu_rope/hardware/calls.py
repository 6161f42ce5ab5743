"""The calls that ``npu-rope hardware-report`` checks, times and predicts: about a dozen of every operator.

The tensors, float64 results and bounds of a call come from the cases of ``npu_rope.testing``. The report thus
judges by the same bounds as ``npu-rope validate``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from ascend_sim import Options

import npu_rope
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import qk_square_sums as square_sums_executors
from npu_rope.executors import qkv_norm_rope_cache as qkv_executors
from npu_rope.executors import rms_norm as norm_executors
from npu_rope.executors import rotations
from npu_rope.executors.sim import type_of
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors, scales_of
from npu_rope.rope_calls import RopeCallAttributes, rope_qk_tensors, rope_set_rows_tensors, rope_tensors
from npu_rope.rotary_calls import RotaryAttributes
from npu_rope.testing import cases, judge, norm_ropes, norms, qkv_cases, qkv_data, tables
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, worst_ratio
from npu_rope.testing.cases import SHORT, CaseData, RopeCase
from npu_rope.testing.outcomes import Expectation

Array = npt.NDArray[Any]
FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"
HEAD_SIZE = 128
KEY_HEADS = 8


@dataclass(frozen=True)
class TimedCall:
    """One call of one operator.

    Attributes:
        operator: its name in the namespace ``npu_rope``.
        form: the call's role in a model: ``decode``, ``prefill``, ...
        shape: of x or q.
        options: differences from the operator's plain call; see the ``_*_call`` functions.
        quick: part of ``--quick``.
    """

    operator: str
    form: str
    shape: tuple[int, ...]
    dtype: str
    options: tuple[tuple[str, Any], ...] = ()
    quick: bool = False

    @property
    def id(self) -> str:
        """The unique name, which ``--filter`` searches."""
        sizes = "x".join(map(str, self.shape))
        return f"{self.operator}/{self.form}-{sizes}-{SHORT[self.dtype]}"

    @property
    def kernel(self) -> str:
        """The name of the operator in CANN, under which a profiler lists the launch."""
        return KERNELS[self.operator]


@dataclass(frozen=True)
class PreparedCall:
    """A call's tensors on the CPU, and its expected results.

    Attributes:
        tensors: the operator's tensors, in the form that the executors accept.
        attributes: the operator's other arguments.
        expect: computes the float64 results with their bounds.
        to_values: converts the results from CPU tensors to arrays. It raises AssertionError if a cache row
            without a token has changed.
    """

    tensors: Any
    attributes: Any
    expect: Callable[[], list[Expectation]]
    to_values: Callable[[tuple[Any, ...]], list[Array]]


# ---- the shapes ---------------------------------------------------------------------------------------

# (form, B, S, N, dtype, quick): decode steps of one sequence and of batches, and prefills.
_HEAD_CALLS = (
    ("decode", 1, 1, 32, BFLOAT16, True),
    ("decode", 1, 1, 32, FLOAT16, False),
    ("decode", 1, 1, 32, FLOAT32, False),
    ("batch", 8, 1, 32, BFLOAT16, False),
    ("batch", 64, 1, 32, FLOAT32, True),
    ("prefill", 1, 128, 32, FLOAT16, True),
    ("prefill", 1, 512, 32, BFLOAT16, False),
    ("prefill", 1, 512, 32, FLOAT32, False),
    ("prefill", 1, 1024, 8, BFLOAT16, False),
    ("prefill", 1, 2048, 32, FLOAT16, False),
    ("prefill", 1, 4096, 8, FLOAT32, False),
    ("prefill", 1, 4096, 32, BFLOAT16, False),
)
# (form, rows, elements of a row, dtype, quick): hidden states of models, and heads.
_ROW_CALLS = (
    ("decode", 1, 4096, BFLOAT16, True),
    ("decode", 1, 4096, FLOAT16, False),
    ("decode", 1, 4096, FLOAT32, False),
    ("decode", 1, 8192, BFLOAT16, False),
    ("batch", 8, 4096, BFLOAT16, False),
    ("batch", 64, 4096, FLOAT32, True),
    ("prefill", 128, 2048, FLOAT16, True),
    ("prefill", 512, 4096, BFLOAT16, False),
    ("prefill", 512, 4096, FLOAT32, False),
    ("prefill", 1024, 4096, FLOAT16, False),
    ("prefill", 2048, 4096, BFLOAT16, False),
    ("heads", 32768, 128, BFLOAT16, False),
)
# Calls of single operators: (form, shape, dtype, options).
_EXTRA_CALLS: Mapping[str, tuple[tuple[str, tuple[int, ...], str, dict[str, Any]], ...]] = {
    "rope": (
        ("normal", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"mode": "normal"}),
        ("mrope", (1, 512, 28, HEAD_SIZE), BFLOAT16, {"mode": "mrope", "sections": (16, 24, 24, 0)}),
        ("vision", (1, 1024, 16, 80), FLOAT16, {"mode": "vision", "n_dims": 40, "sections": (20, 20, 0, 0)}),
        ("half-width", (1, 512, 32, HEAD_SIZE), FLOAT32, {"n_dims": 64}),
        ("backward", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"forward": False}),
    ),
    "rope_qk": (("normal", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"mode": "normal"}),),
    "rope_set_rows": (("to-float16", (1, 512, 8, HEAD_SIZE), FLOAT32, {"cache": FLOAT16}),),
    "rotary_mul": (
        ("interleaved", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"interleaved": True}),
        ("float32-tables", (1, 512, 32, HEAD_SIZE), FLOAT16, {"wide": True}),
    ),
    "rotary_embedding": (("interleaved", (1, 32, 512, HEAD_SIZE), FLOAT16, {"interleaved": True}),),
    "rms_norm": (("float32-scale", (512, 4096), BFLOAT16, {"scale_dtype": FLOAT32}),),
    "rms_norm_rope": (
        ("rounded-between", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"intermediate_rounding": True}),
        ("to-cache", (1, 512, 32, HEAD_SIZE), BFLOAT16, {"set_rows": True}),
    ),
    "qkv_norm_rope_cache": (
        ("tables", (512, 32, HEAD_SIZE), BFLOAT16, {"tables": "pairs"}),
        (
            "int8-caches",
            (512, 32, HEAD_SIZE),
            BFLOAT16,
            {"k_cache": "int8", "v_cache": "int8", "quantized": "head"},
        ),
        ("all-heads", (512, 32, HEAD_SIZE), FLOAT16, {"norm": "sums"}),
    ),
}


def timed_calls(operator: str, *, bfloat16: bool = True, quick: bool = False) -> Iterator[TimedCall]:
    """Yield an operator's calls, each once.

    Args:
        bfloat16: whether the chip supports it; else those calls use float16.
        quick: only a few small calls.
    """
    seen: set[str] = set()
    for call in _all_calls(operator):
        if quick and not call.quick:
            continue
        call = call if bfloat16 or call.dtype != BFLOAT16 else replace(call, dtype=FLOAT16)
        if call.id not in seen:
            seen.add(call.id)
            yield call


def _all_calls(operator: str) -> Iterator[TimedCall]:
    if operator in _NORM_OPERATORS:
        for form, rows, n, dtype, quick in _ROW_CALLS:
            yield TimedCall(operator, form, (rows, n), dtype, (), quick)
    else:
        for form, b, s, n, dtype, quick in _HEAD_CALLS:
            shape: tuple[int, ...] = (b, s, n, HEAD_SIZE)
            if operator == "rotary_embedding":
                shape = (b, n, s, HEAD_SIZE)
            elif operator == "rope_set_rows":
                shape = (1, b * s, n, HEAD_SIZE)  # the case's cache has rows for one batch only
            elif operator in _TOKEN_OPERATORS:
                shape = (b * s, n, HEAD_SIZE)
            yield TimedCall(operator, form, shape, dtype, (), quick)
    for form, shape, dtype, options in _EXTRA_CALLS.get(operator, ()):
        yield TimedCall(operator, form, shape, dtype, tuple(options.items()))


# ---- tensors and expected results --------------------------------------------------------------------


def prepare(call: TimedCall) -> PreparedCall:
    """Return the call with its tensors, drawn by a generator that the call's name seeds."""
    return _PREPARE[call.operator](call, dict(call.options))


def _tensor(values: Array, dtype: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))


def _values(results: tuple[Any, ...]) -> list[Array]:
    """Convert CPU tensors to arrays; bfloat16 to float32, which represents its values exactly."""
    return [(result.float() if result.dtype is torch.bfloat16 else result).numpy() for result in results]


def _rope_case(call: TimedCall, options: dict[str, Any]) -> RopeCase:
    mode, n_dims = options.get("mode", "neox"), options.get("n_dims", HEAD_SIZE)
    params = RopeParams(n_dims, mode, freq_base=500_000.0, sections=options.get("sections", (0, 0, 0, 0)))
    b, s, n, d = call.shape
    cache = options.get("cache", call.dtype) if call.operator == "rope_set_rows" else ""
    return RopeCase(
        suite="models",
        name=call.id,
        dtype=call.dtype,
        shape=(b, s, n, d),
        params=params,
        ggml_n_ctx_orig=0,
        positions="decode" if s == 1 else "prefill",
        source="",
        forward=options.get("forward", True),
        cache_rows=2 * s if cache else 0,
        cache_dtype=cache,
    )


def _rope_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    case = _rope_case(call, options)
    data = cases.make_data(case)
    received = judge.as_received(case, "npu")
    attributes = RopeCallAttributes(case.params, case.forward, "exact")
    x, positions = _tensor(data.x, case.dtype), torch.from_numpy(data.positions)

    def expect() -> list[Expectation]:
        return [judge.exact_expectation(received, data, TABLE_ERROR_DEVICE)]

    if call.operator == "rope":
        return PreparedCall(rope_tensors(x, positions, None, None), attributes, expect, _values)
    if call.operator == "rope_set_rows":
        assert data.rows is not None
        assert data.cache is not None
        rows, cache = torch.from_numpy(data.rows), _tensor(data.cache, case.cache_dtype)
        tensors = rope_set_rows_tensors(x, positions, rows, None, cache)

        def rotated_rows(results: tuple[Any, ...]) -> list[Array]:
            return [judge.rotated_rows(case, data, _values(results)[0])]

        return PreparedCall(tensors, attributes, expect, rotated_rows)
    return _with_keys(case, data, attributes)


def _with_keys(case: RopeCase, data: CaseData, attributes: RopeCallAttributes) -> PreparedCall:
    key_case = replace(case, name=f"{case.name}/k", shape=(*case.shape[:2], KEY_HEADS, case.shape[3]))
    key_data = replace(cases.make_data(key_case), positions=data.positions)
    xs = [_tensor(x, case.dtype) for x in (data.x, key_data.x)]

    def expect() -> list[Expectation]:
        q_case, k_case = (judge.as_received(each, "npu") for each in (case, key_case))
        q = judge.exact_expectation(q_case, data, TABLE_ERROR_DEVICE)
        return [q, judge.exact_expectation(k_case, key_data, TABLE_ERROR_DEVICE)]

    tensors = rope_qk_tensors(xs[0], xs[1], torch.from_numpy(data.positions), None, None)
    return PreparedCall(tensors, attributes, expect, _values)


def _table_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    is_onnx = call.operator == "rotary_embedding"
    case = tables.TableCase(
        name=call.id,
        suite="onnx" if is_onnx else "torch_npu",
        dtype=call.dtype,
        shape=call.shape,
        keys=KEY_HEADS if call.operator == "rotary_mul_qk" else 0,
        table=() if is_onnx else ((call.shape[1],) if call.shape[0] == 1 else (call.shape[0], 1, 1)),
        full=not is_onnx,
        rows=8192 if is_onnx else 0,
        **options,
    )
    data = tables.make_data(case)
    xs = [_tensor(x, case.dtype) for x in data.xs]
    cos, sin = (_tensor(table, FLOAT32 if case.wide else case.dtype) for table in (data.cos, data.sin))
    position_ids = None if data.position_ids is None else torch.from_numpy(data.position_ids)
    tensors: CallTensors[Any] = tables.call_of(case, xs, cos, sin, position_ids, None)
    return PreparedCall(tensors, case.attributes, lambda: tables.expectation(case, data), _values)


def _norm_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    case = norms.NormCase(
        call.id,
        call.dtype,
        call.shape,
        backward=call.operator == "rms_norm_backward",
        add=call.operator == "add_rms_norm",
        **options,
    )
    data = norms.make_data(case)
    x, residual = (_tensor(array, case.dtype) for array in (data.x, data.residual))
    scale, grad = (_tensor(array, case.scale_type) for array in (data.scale, data.grad))
    tensors: CallTensors[Any] = norms.call_of(case, x, scale, grad, residual)
    return PreparedCall(tensors, case.attributes, lambda: norms.expectation(case, data, "npu"), _values)


def _norm_rope_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    params = RopeParams(HEAD_SIZE, "neox", freq_base=1e6)
    case = norm_ropes.NormRopeCase(call.id, call.dtype, params, call.shape, KEY_HEADS, start=1000, **options)
    data = norm_ropes.make_data(case)
    q, k = (_tensor(x, case.dtype) for x in data.xs)
    q_scale, k_scale = (_tensor(s, case.dtype) for s in data.scales)
    positions, rows, outs = torch.from_numpy(data.positions), None, None
    if data.rows is not None:
        rows, outs = torch.from_numpy(data.rows), (torch.empty_like(q), _tensor(data.cache, case.dtype))
    tensors = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, None, outs, rows)
    return PreparedCall(tensors, case.attributes, lambda: norm_ropes.expectation(case, data, "npu"), _values)


def _qkv_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    params = RopeParams(HEAD_SIZE, "neox", freq_base=1e6)
    case = qkv_cases.QkvCase(call.id, call.dtype, params, call.shape, KEY_HEADS, **options)
    data = qkv_data.make_data(case)
    memory, others, caches = (
        {
            name: _tensor(array, data.dtypes[name]) if name in data.dtypes else torch.from_numpy(array)
            for name, array in part.items()
        }
        for part in (data.memory, data.others, data.caches)
    )
    tensors = qkv_data.call_of(case, memory, others, caches, torch.empty_like)
    return PreparedCall(
        tensors, case.attributes("npu"), partial(qkv_data.expectation, case, data, "npu"), _values
    )


def _square_sums_call(call: TimedCall, options: dict[str, Any]) -> PreparedCall:
    case = qkv_cases.SquareSumsCase(call.id, call.dtype, call.shape, KEY_HEADS)
    data = qkv_data.make_heads(case)
    memory = {name: _tensor(array, call.dtype) for name, array in data.memory.items()}
    expect = partial(qkv_data.sums_expectation, case, data, "npu")
    return PreparedCall(qkv_data.sums_call(case, memory), {}, expect, _values)


_TOKEN_OPERATORS = ("qkv_norm_rope_cache", "qk_square_sums")  # of heads [S,N,D]
_NORM_OPERATORS = ("rms_norm", "add_rms_norm", "rms_norm_backward")
_PREPARE: Mapping[str, Callable[[TimedCall, dict[str, Any]], PreparedCall]] = {
    **dict.fromkeys(("rope", "rope_qk", "rope_set_rows"), _rope_call),
    **dict.fromkeys(("rotary_mul", "rotary_mul_qk", "rotary_embedding"), _table_call),
    **dict.fromkeys(_NORM_OPERATORS, _norm_call),
    "rms_norm_rope": _norm_rope_call,
    "qkv_norm_rope_cache": _qkv_call,
    "qk_square_sums": _square_sums_call,
}
OPERATORS = tuple(_PREPARE)
KERNELS: Mapping[str, str] = {
    **{op: type_of(op) for op in OPERATORS},
    "rotary_embedding": type_of("rotary_mul"),  # rotary_embedding launches that kernel
}

# ---- running ------------------------------------------------------------------------------------------


def run(tensors: CallTensors[Any], attributes: Any) -> tuple[Any, ...]:
    """Run the call as one launch on the tensors' device, by npu_rope's Python interface."""
    operator, xs = getattr(npu_rope, tensors.op), tensors.xs.values()
    if isinstance(attributes, RotaryAttributes):
        results = operator(*tensors.inputs().values(), interleaved=attributes.interleaved)
    elif isinstance(attributes, RmsNormAttributes):
        results = operator(*tensors.inputs().values(), epsilon=attributes.epsilon)
    elif isinstance(attributes, RmsNormRopeAttributes):
        rounding = attributes.intermediate_rounding
        options: dict[str, Any] = {"epsilon": attributes.epsilon, "intermediate_rounding": rounding}
        if tensors.scatters:
            options |= {"rows": tensors.other_inputs["rows"], "cache": tensors.outs["cache"]}
        positions = tensors.other_inputs["positions"]
        results = operator(*xs, *scales_of(tensors), positions, attributes.params, **options)
    elif isinstance(attributes, QkvAttributes):
        others, (q_out, k_cache, v_cache) = dict(tensors.other_inputs), tensors.outs.values()
        written = {"out": q_out, "k_cache": k_cache, "v_cache": v_cache}
        numbers = {"epsilon": attributes.epsilon, "ranks": attributes.ranks}
        results = operator(*xs, others.pop("positions"), attributes.params, **others, **written, **numbers)
    elif tensors.op == "qk_square_sums":
        results = operator(*xs)
    else:
        cache = (tensors.other_inputs["rows"], tensors.outs["cache"]) if tensors.scatters else ()
        positions, forward = tensors.other_inputs["positions"], attributes.forward
        results = operator(*xs, positions, *cache, attributes.params, forward=forward)
    return results if isinstance(results, tuple) else (results,)


def simulate(call: PreparedCall, options: Options) -> None:
    """Run the call as one launch on the simulated cores. ``report()`` of :func:`ascend_sim.library.load`
    then describes the launch."""
    executors = _EXECUTORS.get(call.tensors.op, rotations)
    executors.on_sim(options, call.tensors, call.attributes)


_EXECUTORS: Mapping[str, Any] = {
    **dict.fromkeys(_NORM_OPERATORS, norm_executors),
    "qkv_norm_rope_cache": qkv_executors,
    "qk_square_sums": square_sums_executors,
}


# ---- judging -----------------------------------------------------------------------------------------


def compare(results: list[Array], expected: list[Expectation]) -> dict[str, Any]:
    """Return the largest error, the largest ratio of an error to its bound (1 or less is correct), and the
    index of that ratio."""
    error, ratio, worst = 0.0, 0.0, None
    if len(results) != len(expected):
        raise AssertionError(f"a call must return {len(expected)} results but got {len(results)}")
    for number, (got, expectation) in enumerate(zip(results, expected, strict=True)):
        if got.shape != expectation.value.shape:
            raise AssertionError(f"a result must be of shape {expectation.value.shape} but got {got.shape}")
        result_ratio, at = worst_ratio(got, expectation.value, expectation.bound)
        wide = got.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = max(error, float(np.nanmax(np.abs(wide - expectation.value), initial=0.0)))
        if result_ratio > ratio:
            ratio = result_ratio
            worst = {
                "result": number,
                "index": list(at),
                "got": json_number(float(wide[at])),
                "expected": json_number(float(expectation.value[at])),
            }
    return {
        "correct": ratio <= 1,
        "max_error": json_number(error),
        "error_over_bound": json_number(ratio),
        "worst": worst,
    }


def json_number(value: float) -> float | str:
    """Return the value for JSON; infinities and NaN become texts, because JSON lacks them."""
    return value if math.isfinite(value) else str(value)
