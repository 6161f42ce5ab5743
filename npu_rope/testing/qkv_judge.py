"""Run and judge the cases of suite ``qkv``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.executors import qk_square_sums, qkv_norm_rope_cache
from npu_rope.qkv_norm_rope_cache_calls import XS
from npu_rope.testing.bits import run_on_bits
from npu_rope.testing.cases import rounded
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import CaseResult, Judgement, compare_all, judge_each, unwritten
from npu_rope.testing.qkv import token_rows
from npu_rope.testing.qkv_cases import QkvCase, SquareSumsCase
from npu_rope.testing.qkv_data import (
    QkvData,
    call_of,
    expectation,
    make_data,
    make_heads,
    sums_call,
    sums_expectation,
    type_of_sums,
)

Array = npt.NDArray[Any]


def judge_qkv(
    case: QkvCase | SquareSumsCase, backends: list[str], ggml: GgmlProcess | None = None
) -> CaseResult:
    """Run and judge one case; ggml has no such operators."""
    if isinstance(case, SquareSumsCase):
        judge = partial(_judge_sums, case, make_heads(case))
        return judge_each(case, backends, lambda backend: lacks_type(backend, (case.dtype,)), judge)
    dtypes = (case.dtype, *case.cache_dtypes.values())
    judge = partial(_judge, case, make_data(case))
    return judge_each(case, backends, lambda backend: lacks_type(backend, dtypes), judge)


def _judge(case: QkvCase, data: QkvData, backend: str) -> Judgement:
    got, expected = _execute(case, data, backend), expectation(case, data, backend)
    return compare_all(backend, got, expected, [f"{name}'s index" for name in XS[: len(got)]])


def _execute(case: QkvCase, data: QkvData, backend: str) -> list[Array]:
    """Run a case. NumPy has no bfloat16, so native code receives bits, and the reference receives float32
    values."""
    memory, others, caches = (
        {name: _copied(array, data.dtypes.get(name), backend) for name, array in part.items()}
        for part in (data.memory, data.others, data.caches)
    )
    call = call_of(case, memory, others, caches, _filled_like)
    heads_before, caches_before = [({n: t.copy() for n, t in part.items()}) for part in (call.xs, call.outs)]
    with unwritten([*memory.values(), *others.values()]):
        results = _run(call, case.attributes(backend), backend)
        types = case.result_dtypes.values()
        values = [_values(result, dtype) for result, dtype in zip(results, types, strict=False)]
        for name in call.in_place:
            call.xs[name][...] = heads_before[name]
    for name in case.cache_dtypes:
        _check_other_rows(caches_before[name], call.outs[name], others["slots"])
    return values


def _copied(array: Array, dtype: str | None, backend: str) -> Array:
    return bfloat16_bits(array) if dtype == "bfloat16" and backend != "reference" else array.copy()


def _filled_like(array: Array) -> Array:
    """Allocate an output. Its contents differ from any earlier result in the same memory."""
    return np.full(array.shape, 7, array.dtype)


def _run(call: CallTensors[Array], attributes: Any, backend: str, results: tuple[Array, ...] = ()) -> Any:
    """Run a call and return its results: ``results``, or new arrays if it has no outputs."""
    executors: Any = qkv_norm_rope_cache if call.op == "qkv_norm_rope_cache" else qk_square_sums
    if backend == "reference":
        return executors.run(backend, call, attributes)
    results = results or tuple(call.outs.values()) or tuple(_filled_like(x) for x in call.xs.values())
    run_on_bits(backend, call, attributes, results)
    return results


def _values(result: Array, dtype: str) -> Array:
    """Return the values of a result; bfloat16's bits and the reference's float32 as bfloat16's values."""
    if result.dtype == np.uint16:
        return bfloat16_values(result)
    return rounded(result, dtype)


def _check_other_rows(before: Array, after: Array, slots: Array) -> None:
    """Raise AssertionError if a cache has changed bits in rows that received no token."""
    is_other = np.ones(before.shape[: before.ndim - 2], bool)
    is_other[token_rows(before, slots)] = False
    if before[is_other].tobytes() != after[is_other].tobytes():
        raise AssertionError("a row of the cache that no token belongs to was written")


def _judge_sums(case: SquareSumsCase, data: QkvData, backend: str) -> Judgement:
    memory = {name: _copied(array, case.dtype, backend) for name, array in data.memory.items()}
    sums = np.full((case.shape[0], 2), 7, type_of_sums(case.dtype))
    with unwritten(memory.values()):
        results = _run(sums_call(case, memory), {}, backend, (sums,))
    return compare_all(backend, results, sums_expectation(case, data, backend), ["(token, q or k)"])
