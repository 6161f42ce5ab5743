"""Parts that the suites of tables, norms and their fusions share: run a case on each back end, and compare
all of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.errors import BackendUnavailable
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.judge import (
    FAIL,
    OK,
    UNSUPPORTED,
    AnyCase,
    CaseResult,
    Expectation,
    Judgement,
    Worst,
)

Array = npt.NDArray[Any]


def judge_each(
    case: AnyCase,
    backends: Iterable[str],
    lacks: Callable[[str], str],
    judge: Callable[[str], Judgement],
) -> CaseResult:
    """Judge a case on each back end.

    Args:
        lacks: returns why a back end does not support the case; empty if it does.
        judge: runs the case on a back end. Its errors are failures, except that of an absent back end.
    """
    result = CaseResult(case)
    for backend in backends:
        if missing := lacks(backend):
            result.judgements.append(Judgement(backend, UNSUPPORTED, message=missing))
            continue
        try:
            result.judgements.append(judge(backend))
        except BackendUnavailable as error:
            result.judgements.append(Judgement(backend, UNSUPPORTED, message=error.missing))
        except (ValueError, TypeError, AssertionError, RuntimeError) as error:
            result.judgements.append(Judgement(backend, FAIL, message=str(error)))
    return result


def compare_all(
    executor: str, got: Sequence[Array], expected: Sequence[Expectation], names: Sequence[str]
) -> Judgement:
    """Compare a call's results with their expectations. ``names`` holds the names of the results' indices."""
    ratio, error, worst = 0.0, 0.0, None
    for y, e, name in zip(got, expected, names, strict=True):
        wide, value = np.atleast_1d(y).astype(np.float64), np.atleast_1d(e.value)
        own, at = worst_ratio(wide, value, np.atleast_1d(e.bound))
        with np.errstate(invalid="ignore"):
            error = max(error, float(np.nanmax(np.abs(wide - value), initial=0.0)))
        if at and (worst is None or own > ratio):
            worst = Worst(at, None, float("nan"), float(wide[at]), float(value[at]), names=name)
        ratio = max(ratio, own)
    return Judgement(executor, OK if ratio <= 1 else FAIL, error, ratio, worst)


@contextmanager
def unwritten(inputs: Iterable[Array]) -> Iterator[None]:
    """Raise AssertionError if the block writes one of these arrays."""
    held = list(inputs)
    before = [a.tobytes() for a in held]
    yield
    if before != [a.tobytes() for a in held]:
        raise AssertionError("an input was written")
