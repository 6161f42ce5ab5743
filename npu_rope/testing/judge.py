"""Run one case of rope on every requested executor and judge each result.

An executor is a back end, ``cpu:ggml`` (back end cpu with policy ggml) or the real ggml. table_error is the
allowed error of cos and sin (bounds.py). The comparisons:

- ``reference`` and ``cpu``: with the float64 reference, table_error = 2^-23.
- ``sim`` and ``npu``: with the float64 reference, table_error = 2^-20. In 16-bit types, 99.5 % of the
  elements must also be within one unit in the last place of ``cpu``'s.
- The float64 reference itself: some of its elements with the specification's formula in scalar Python
  (spec.py). This detects a mistake that every executor shares.
- ``cpu:ggml`` and the real ggml: with the float64 rotation by ggml's own float32 table (ggml_tables.py),
  table_error = 0. The angles must be ggml's bit for bit, and only the rotation may round.
- ggml with YaRN: its compiler may have fused one multiply-add of the angle. ggml must agree with the table
  with or without this fusion, and the report names the table.
- A device of ggml's registry (``--ggml-device``): if it does not follow that table, with the float64
  reference and the bound of any float32 angle (float32_angle_error in bounds.py).

In a case with a cache, the rows that received tokens are judged like a result of rope. Every other row must
be unchanged. The error of the real ggml against float64 is only reported, because its angles are float32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import npu_rope
from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.params import RopeParams
from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import AXIS_NAMES, RopeMode
from npu_rope.rope_calls import RopeCallAttributes, rope_tensors
from npu_rope.testing import spec
from npu_rope.testing.bits import run_on_bits
from npu_rope.testing.bounds import (
    TABLE_ERROR_DEVICE,
    TABLE_ERROR_HOST,
    TABLE_ERROR_NONE,
    float32_angle_error,
    is_device,
    rotation_bound,
)
from npu_rope.testing.cases import CaseData, RopeCase, make_data, view_of
from npu_rope.testing.chip_types import lacks_type, rounded_for
from npu_rope.testing.ggml import GgmlFailed, GgmlInfo, GgmlProcess, GgmlRefused, GgmlRope
from npu_rope.testing.ggml_tables import ggml_table
from npu_rope.testing.outcomes import (
    FAIL,
    OK,
    UNSUPPORTED,
    CaseResult,
    Expectation,
    Judgement,
    Worst,
    compare_all,
    judge_each,
    require_near_cpu,
)
from npu_rope.values import AnglePolicy

Array = npt.NDArray[Any]


def _rotation_expectation(
    case: RopeCase, data: CaseData, cos: Array, sin: Array, table_error: float | Array
) -> Expectation:
    cos, sin = cos[..., None, :], sin[..., None, :]
    value = reference.rotate(data.x, cos, sin, case.params)
    return Expectation(
        value, rotation_bound(data.x, cos, sin, value, case.params, case.result_dtype, table_error)
    )


def token_positions(case: RopeCase, data: CaseData, b: int, s: int) -> list[int]:
    """Return a token's positions: one, or four in the modes with sections."""
    planes = reference.position_planes(data.positions, case.params)
    planes = planes if case.params.rope_mode.has_sections else planes[None]
    return [int(plane[b, s] if plane.ndim == 2 else plane[s]) for plane in planes]


def _largest_positions(case: RopeCase, data: CaseData) -> Array:
    """Return each token's position ``[B,S]``; in the modes with sections the largest of its four."""
    planes = np.abs(reference.position_planes(data.positions, case.params).astype(np.int64))
    largest: Array = planes.max(axis=0) if case.params.rope_mode.has_sections else planes
    return np.broadcast_to(largest, case.shape[:2])


def _text(positions: list[int]) -> str:
    return str(positions[0] if len(positions) == 1 else positions)


# The number of the reference's elements that are compared with the specification's formula in each case.
SPEC_SAMPLE = 48


def reference_disagrees(case: RopeCase, data: CaseData, expected: Expectation) -> str:
    """Return the first sampled element at which the reference differs from the specification's formula by
    more than the bound; empty if there is none."""
    generator = np.random.default_rng(len(case.name))
    for flat_index in generator.integers(0, data.x.size, SPEC_SAMPLE):
        b, s, n, d = (int(i) for i in np.unravel_index(int(flat_index), data.x.shape))
        position = token_positions(case, data, b, s)
        formula = spec.element(case.params, data.x[b, s, n], position, data.freq_factors, d, case.forward)
        got, bound = float(expected.value[b, s, n, d]), float(expected.bound[b, s, n, d])
        if not abs(got - formula) <= bound:
            return (
                f"the float64 reference must follow the specification but at (b, s, n, d) = {(b, s, n, d)},"
                f" position {_text(position)}, it gives {got:.9g} instead of {formula:.9g}"
            )
    return ""


def exact_expectation(
    case: RopeCase, data: CaseData, table_error: float | Array = TABLE_ERROR_HOST
) -> Expectation:
    """Return the float64 reference and policy exact's bound (the host's, unless another is given)."""
    planes = reference.position_planes(data.positions, case.params)
    cos, sin = reference.cos_sin(planes, case.params, data.freq_factors, forward=case.forward)
    return _rotation_expectation(case, data, cos, sin, table_error)


class RunsRope(Protocol):
    """ggml in a process, or results that it has returned before."""

    info: GgmlInfo

    def rope(self, call: GgmlRope) -> Array:
        """See :meth:`GgmlProcess.rope`."""
        ...

    def too_old_for(self, params: RopeParams, *, inplace: bool, set_rows: bool) -> str:
        """See :meth:`GgmlProcess.too_old_for`."""
        ...


# ---- executors -------------------------------------------------------------------------------------


def as_received(case: RopeCase, backend: str) -> RopeCase:
    """Return the case as the back end receives it. CANN rounds an operator's attributes to float32."""
    return replace(case, params=rounded_for(case.params, backend))


def execute(case: RopeCase, data: CaseData, backend: str, angle: AnglePolicy) -> Array:
    """Run the case on one of npu_rope's back ends. Return the result in the case's layout."""
    if case.cache_rows:
        return _execute_set_rows(case, data, backend, angle)
    if case.dtype == "bfloat16":
        return _execute_bfloat16(case, data, backend, angle)
    parent = data.parent.copy()
    x = view_of(parent, case)
    rotated = npu_rope.rope(
        x,
        data.positions,
        case.params,
        data.freq_factors,
        backend=backend,
        out=x if case.inplace else None,
        forward=case.forward,
        angle=angle,
    )
    result: Array = np.array(rotated)
    view_of(parent, case)[...] = data.x
    if not np.array_equal(parent, data.parent):
        raise AssertionError("memory outside the tensor was written")
    return result


def _execute_set_rows(case: RopeCase, data: CaseData, backend: str, angle: AnglePolicy) -> Array:
    assert data.cache is not None
    cache = data.cache.copy()
    npu_rope.rope_set_rows(
        data.x, data.positions, data.rows, cache, case.params, data.freq_factors, backend=backend, angle=angle
    )
    return rotated_rows(case, data, cache)


def rotated_rows(case: RopeCase, data: CaseData, cache: Array) -> Array:
    """Return the rows that received the tokens, ``[B,S,N,D]``.

    Raises:
        AssertionError: another row has changed.
    """
    assert data.cache is not None
    assert data.rows is not None
    others = np.delete(np.arange(len(cache)), data.rows)
    if not np.array_equal(cache[others], data.cache[others]):
        raise AssertionError("a row of the cache that no token belongs to was written")
    rows: Array = cache[data.rows].reshape(case.shape)
    return rows


def _execute_bfloat16(case: RopeCase, data: CaseData, backend: str, angle: AnglePolicy) -> Array:
    """Run a bfloat16 case. NumPy has no bfloat16, so native code receives bits and the reference receives
    float32 values."""
    if backend == "reference":
        wide = reference.rope(
            data.x.astype(np.float32),
            data.positions,
            case.params,
            data.freq_factors,
            forward=case.forward,
            angle=angle,
        )
        return bfloat16_values(bfloat16_bits(wide))
    x = bfloat16_bits(np.ascontiguousarray(data.x))
    out = np.zeros_like(x)
    tensors: CallTensors[Array] = rope_tensors(x, data.positions, data.freq_factors, out)
    run_on_bits(backend, tensors, RopeCallAttributes(case.params, case.forward, angle))
    return bfloat16_values(out)


def ggml_call(case: RopeCase, data: CaseData) -> GgmlRope:
    """Return the case as a call of ggml."""
    b, s, n, d = case.shape
    shape, parent, offset = case.shape, data.parent, 0
    axes = (1,) if case.params.rope_mode.has_sections else ()
    if data.positions.ndim == 2 + len(axes):  # ggml's positions vary along ne2 only
        shape, parent = (1, b * s, n, d), parent.reshape(1, b * s, n, d)
    if case.view == 2:
        offset = d
    return GgmlRope(
        parent,
        shape,
        offset,
        data.positions.reshape(-1),
        case.params,
        case.ggml_n_ctx_orig,
        data.freq_factors,
        case.forward,
        case.inplace,
        data.rows,
        data.cache,
    )


# ---- judging ---------------------------------------------------------------------------------------


def compare(case: RopeCase, data: CaseData, executor: str, got: Array, expected: Expectation) -> Judgement:
    """Compare a result with its expectation."""
    positions = _largest_positions(case, data)
    judgement = compare_all(executor, [got], [expected], ["(b, s, n, d)"], positions)
    if judgement.worst is not None:
        _add_angle(case, data, judgement.worst)
    return judgement


def _add_angle(case: RopeCase, data: CaseData, worst: Worst) -> None:
    """Add the position, its axis and the angle to the description of the worst element."""
    params, index = case.params, worst.index
    positions = token_positions(case, data, *index[:2])
    worst.position, inside = positions[0], index[3] - params.n_offs
    if 0 <= inside < 2 * params.pairs:
        pair = inside // 2 if params.rope_mode is RopeMode.NORMAL else inside % params.pairs
        worst.position = positions[params.axes()[pair]]
        worst.axis = AXIS_NAMES[params.axes()[pair]] if params.rope_mode.has_sections else ""
        worst.angle = float(worst.position * params.frequencies("exact", data.freq_factors)[pair])


def judge(case: RopeCase, backends: list[str], ggml: GgmlProcess | None) -> CaseResult:
    """Run and judge one case."""
    return judge_data(case, make_data(case), backends, ggml)


def judge_data(case: RopeCase, data: CaseData, backends: list[str], ggml: RunsRope | None) -> CaseResult:
    """Run one case on these data and judge it."""
    exact = exact_expectation(case, data)
    judge_exact = partial(_judge_exact, case, data, exact)
    result = judge_each(case, backends, lambda backend: lacks_type(backend, (case.dtype,)), judge_exact)
    if "reference" in backends and (disagreement := reference_disagrees(case, data, exact)):
        judgement = result.by("reference")
        assert judgement is not None
        judgement.verdict, judgement.message = FAIL, disagreement
    if "cpu" not in backends and ggml is None:
        return result
    unfused = _rotation_expectation(case, data, *ggml_table(case, data, fused=False), TABLE_ERROR_NONE)
    cpu_result = None
    if "cpu" in backends:
        try:
            got = execute(case, data, "cpu", "ggml")
            result.judgements.append(compare(case, data, "cpu:ggml", got, unfused))
            cpu_result = got if result.judgements[-1].verdict == OK else None
        except (ValueError, TypeError, AssertionError) as error:
            result.judgements.append(Judgement("cpu:ggml", FAIL, message=str(error)))
    if ggml is not None:
        result.judgements.append(_judge_ggml(case, data, ggml, exact, unfused, cpu_result))
    return result


def _judge_exact(case: RopeCase, data: CaseData, exact: Expectation, backend: str) -> Judgement:
    """Judge a back end under policy exact; ``exact`` is the host's expectation."""
    on_device = is_device(backend)
    if on_device:
        case = as_received(case, backend)
        exact = exact_expectation(case, data, TABLE_ERROR_DEVICE)
    got = execute(case, data, backend, "exact")
    judgement = compare(case, data, backend, got, exact)
    if on_device and case.result_dtype in ("float16", "bfloat16"):
        require_near_cpu(judgement, got, execute(case, data, "cpu", "exact"), case.result_dtype)
    return judgement


def ggml_cannot(case: RopeCase, ggml: RunsRope) -> str:
    """Return why ggml does not support the case, as far as it is known; empty otherwise. An unsupported call
    would abort ggml's process."""
    if case.dtype not in ("float32", "float16"):
        return f"ggml's CPU backend has no {case.dtype} rope"
    return ggml.too_old_for(case.params, inplace=case.inplace, set_rows=bool(case.cache_rows))


def _run_ggml(case: RopeCase, data: CaseData, ggml: RunsRope) -> Array:
    got = ggml.rope(ggml_call(case, data))
    return rotated_rows(case, data, got) if case.cache_rows else got.reshape(case.shape)


def _judge_ggml(
    case: RopeCase,
    data: CaseData,
    ggml: RunsRope,
    exact: Expectation,
    unfused: Expectation,
    cpu_result: Array | None,
) -> Judgement:
    if reason := ggml_cannot(case, ggml):
        return Judgement("ggml", UNSUPPORTED, message=reason)
    try:
        got = _run_ggml(case, data, ggml)
    except GgmlRefused as refused:
        return Judgement("ggml", UNSUPPORTED, message=str(refused))
    except (GgmlFailed, AssertionError) as failed:
        output = failed.output if isinstance(failed, GgmlFailed) else ()
        return Judgement("ggml", FAIL, message=str(failed), output=output)
    judgement = compare(case, data, "ggml", got, unfused)
    nmse = _nmse(case, got, unfused)
    if case.params.ext_factor != 0:
        judgement.table = "plain" if judgement.verdict == OK else "neither"
        fused = _rotation_expectation(case, data, *ggml_table(case, data, fused=True), TABLE_ERROR_NONE)
        other = compare(case, data, "ggml", got, fused)
        nmse = min(nmse, _nmse(case, got, fused))
        if judgement.verdict == FAIL and other.verdict == OK:
            judgement, judgement.table = other, "fused"
    if judgement.verdict == FAIL and ggml.info.device:
        judgement = _judge_device(case, data, got)
    judgement.nmse = nmse
    judgement.exact_error = float(np.abs(got.astype(np.float64) - exact.value).max(initial=0.0))
    if cpu_result is not None:
        judgement.bit_equal = float((cpu_result.astype(got.dtype) == got).mean()) if got.size else 1.0
    return judgement


def _judge_device(case: RopeCase, data: CaseData, got: Array) -> Judgement:
    """Judge a ggml device, whose float32 angles may differ from those of ggml's CPU."""
    planes = reference.position_planes(data.positions, case.params)
    positions = reference.pair_positions(planes, case.params)
    table_error = float32_angle_error(positions, case.params, data.freq_factors)[..., None, :]
    judgement = compare(case, data, "ggml", got, exact_expectation(case, data, table_error))
    judgement.table = "float32"
    return judgement


def _nmse(case: RopeCase, got: Array, expected: Expectation) -> float:
    """Return the normalised mean squared error against the rounded expectation, as in test-backend-ops."""
    rounded = expected.value.astype(case.result_dtype).astype(np.float64)
    error = float(np.square(got.astype(np.float64) - rounded).sum())
    power = float(np.square(rounded).sum())
    return error / power if power else error
