"""Judgements on the results of cases, and the functions that the judges of all suites share.

The functions run a case on each back end, and compare its results with the expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_rope.errors import BackendUnavailable
from npu_rope.testing.bounds import DEVICE_NEAR_CPU, error_ratios, largest, within_one_ulp

Array = npt.NDArray[Any]
OK, FAIL, UNSUPPORTED = "ok", "FAIL", "unsupported"


class AnyCase(Protocol):
    """The properties of every suite's cases."""

    @property
    def suite(self) -> str:
        """The suite that has the case."""
        ...

    @property
    def name(self) -> str:
        """The name, unique within the suite."""
        ...

    @property
    def op(self) -> str:
        """The operation, by the name that users select."""
        ...

    @property
    def dtype(self) -> str:
        """The elements' dtype."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the judged tensor."""
        ...

    @property
    def source(self) -> str:
        """The origin of the case."""
        ...


@dataclass
class Worst:
    """The element with the largest ratio of error to bound."""

    index: tuple[int, ...]
    position: int | None  # None: the call has tables instead of positions
    angle: float
    got: float
    expected: float
    axis: str = ""  # in the modes with sections: the axis of the position that rotates it
    names: str = "(b, s, n, d)"  # the names of the index's dimensions


@dataclass(frozen=True)
class PositionErrors:
    """The largest error, and the largest ratio of an error to its bound, at the positions ``first`` to
    ``2 * first - 1`` (at position 0 if ``first`` is 0), of both signs."""

    first: int
    max_error: float
    ratio: float


ALONE, AFTER, SOMETIMES, NOT_ALONE = "alone", "after another", "sometimes", "not alone"


@dataclass(frozen=True)
class Occurrence:
    """When a failure occurs, from runs of the case in new processes.

    Attributes:
        when: ``ALONE``: in every run of the case alone. ``AFTER``: in every run after the cases in
            ``after``, and in none alone. ``SOMETIMES``: in some of several equal runs. ``NOT_ALONE``: in no
            run alone; the time ended before the other cases were found.
        failed, runs: the numbers of failures and of runs; for ``SOMETIMES`` with and without other cases.
        after: the cases that must run before it, in their order.
    """

    when: str
    failed: int
    runs: int
    after: tuple[AnyCase, ...] = ()


@dataclass
class Judgement:
    """One executor's result on one case."""

    executor: str  # a back end, "cpu:ggml" (policy ggml), "ggml" or "torch_npu"
    verdict: str
    max_error: float = float("nan")
    ratio: float = float("nan")  # largest error / bound; 1 or less is within
    worst: Worst | None = None
    message: str = ""
    bit_equal: float | None = None  # ggml: share of elements equal to cpu:ggml's; torch_npu: to cpu's
    exact_error: float | None = None  # ggml: max distance from the float64 reference
    # The table with which ggml agrees. With YaRN: "plain", "fused" or "neither"; a device's own: "float32".
    table: str = ""
    nmse: float | None = None  # ggml: normalised mean squared error, as in test-backend-ops
    near_cpu: float | None = None  # sim and npu, 16-bit: share of elements within one ulp of cpu's
    region: str = ""  # the elements beyond their bound
    output: tuple[str, ...] = ()  # the last lines of a process that did not complete the case
    occurrence: Occurrence | None = None  # of a failure that was run again
    by_position: tuple[PositionErrors, ...] = ()  # ascending; empty if the suite does not record them


@dataclass
class CaseResult:
    """All judgements of one case.

    Attributes:
        note: a remark on how a failing case was found; empty if it needs none.
        cause: the condition under which a sequence fails.
        like: the name of the case that shows the same fault in the simplest way, if it is another one.
        when: when a sequence fails, as in Occurrence: ``ALONE`` if one of its calls fails alone, ``AFTER`` if
            a call fails after others only, ``SOMETIMES`` if it was not seen again; empty if it is not known.
    """

    case: AnyCase
    judgements: list[Judgement] = field(default_factory=list)
    note: str = ""
    cause: str = ""
    like: str = ""
    when: str = ""

    @property
    def verdict(self) -> str:
        """``FAIL`` if any executor fails, ``UNSUPPORTED`` if none of them runs the case."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        if FAIL in verdicts:
            return FAIL
        return OK if OK in verdicts else UNSUPPORTED

    def by(self, executor: str) -> Judgement | None:
        """Return the judgement of one executor."""
        return next((judgement for judgement in self.judgements if judgement.executor == executor), None)


@dataclass
class Expectation:
    """A float64 result and the bound around it."""

    value: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]


def judge_each(
    case: AnyCase,
    backends: Iterable[str],
    unsupported_reason: Callable[[str], str],
    judge: Callable[[str], Judgement],
) -> CaseResult:
    """Judge a case on each back end.

    Args:
        unsupported_reason: returns why a back end does not support the case; empty if it does.
        judge: runs the case on a back end. Its errors are failures, except that of an absent back end.
    """
    result = CaseResult(case)
    for backend in backends:
        if reason := unsupported_reason(backend):
            result.judgements.append(Judgement(backend, UNSUPPORTED, message=reason))
            continue
        try:
            result.judgements.append(judge(backend))
        except BackendUnavailable as error:
            result.judgements.append(Judgement(backend, UNSUPPORTED, message=error.missing))
        except (ValueError, TypeError, AssertionError, RuntimeError) as error:
            result.judgements.append(Judgement(backend, FAIL, message=str(error)))
    return result


def compare_all(
    executor: str,
    got: Sequence[Array],
    expected: Sequence[Expectation],
    names: Sequence[str],
    positions: Array | None = None,
) -> Judgement:
    """Compare a call's results with their expectations.

    Args:
        names: the names of the results' indices.
        positions: the tokens' positions ``[B,S]`` if the results are ``[B,S,N,D]``. The judgement then
            has the errors at each of them.
    """
    ratio, error, worst, region = 0.0, 0.0, None, ""
    by_position: tuple[PositionErrors, ...] = ()
    for result, expectation, name in zip(got, expected, names, strict=True):
        values, expected_values = np.atleast_1d(result).astype(np.float64), np.atleast_1d(expectation.value)
        errors, ratios = error_ratios(values, expected_values, np.atleast_1d(expectation.bound))
        result_ratio, index = largest(ratios)
        if positions is not None:
            by_position = _errors_by_position(errors, ratios, positions)
        with np.errstate(invalid="ignore"):
            error = max(error, float(np.nanmax(np.abs(values - expected_values), initial=0.0)))
        if index and (worst is None or result_ratio > ratio):
            worst = Worst(
                index, None, float("nan"), float(values[index]), float(expected_values[index]), names=name
            )
            bound = np.atleast_1d(expectation.bound)
            region = _region(values, expected_values, bound, name) if result_ratio > 1 else ""
        ratio = max(ratio, result_ratio)
    verdict = OK if ratio <= 1 else FAIL
    return Judgement(executor, verdict, error, ratio, worst, region=region, by_position=by_position)


def _errors_by_position(errors: Array, ratios: Array, positions: Array) -> tuple[PositionErrors, ...]:
    """Return the largest of the errors and ratios ``[B,S,N,D]`` by the positions ``[B,S]`` of the tokens."""
    if not errors.size:
        return ()
    exponents = np.frexp(np.abs(positions.astype(np.float64)))[1].ravel()  # 0, and n for 2^(n-1) .. 2^n - 1
    by_token = [values.max(axis=(2, 3)).ravel() for values in (errors, ratios)]
    found = []
    for exponent in np.unique(exponents):
        error, ratio = (float(values[exponents == exponent].max()) for values in by_token)
        found.append(PositionErrors(int(2 ** (exponent - 1)) if exponent else 0, error, ratio))
    return tuple(found)


def _region(values: Array, expected: Array, bound: Array, names: str) -> str:
    """Return the share of the elements beyond their bound, and the indices between which all of them are."""
    with np.errstate(invalid="ignore"):
        within = (np.abs(values - expected) <= bound) | (values == expected)
    within |= np.isnan(values) & np.isnan(expected)
    wrong = np.argwhere(~within)
    if not len(wrong):
        return ""
    share = len(wrong) / within.size
    text = f"{100 * share:.3g}% of the elements"
    dimensions = names.strip("()").split(", ")
    if len(dimensions) != within.ndim:
        return text
    parts = []
    for name, size, first, last in zip(dimensions, within.shape, wrong.min(0), wrong.max(0), strict=True):
        if (first, last) != (0, size - 1):
            parts.append(f"{name} = {first}" + (f"..{last}" if last > first else ""))
    return f"{text}, all at {', '.join(parts)}" if parts else text


def require_near_cpu(judgement: Judgement, got: Array, on_cpu: Array, dtype: str) -> None:
    """Require that almost all elements of a device's 16-bit result are within an ulp of the CPU's."""
    near = within_one_ulp(got, on_cpu, dtype)
    judgement.near_cpu = near
    if near < DEVICE_NEAR_CPU and judgement.verdict == OK:
        judgement.verdict = FAIL
        judgement.message = (
            f"{DEVICE_NEAR_CPU:.1%} of the elements must be within one ulp of cpu's but {near:.2%} are"
        )


@contextmanager
def unwritten(inputs: Iterable[Array]) -> Iterator[None]:
    """Raise AssertionError if the block writes one of these arrays."""
    arrays = list(inputs)
    before = [array.tobytes() for array in arrays]
    yield
    if before != [array.tobytes() for array in arrays]:
        raise AssertionError("an input was written")
