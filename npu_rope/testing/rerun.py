"""Run failing cases again in new processes, and find out what the failures depend on.

A case that fails is first run alone, one to three times. If it passes, the cases that ran before it in the
same process are put before it: first the last one, then the last two, four, ... When it fails again, the set
of these cases is reduced to a smallest one, which usually has one case. Each run here is in a new process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from npu_rope.testing import suites
from npu_rope.testing.backend_process import BackendProcess
from npu_rope.testing.ggml import GgmlFailed, GgmlProcess, GgmlUnavailable
from npu_rope.testing.outcomes import (
    AFTER,
    ALONE,
    FAIL,
    NOT_ALONE,
    SOMETIMES,
    UNSUPPORTED,
    AnyCase,
    CaseResult,
    Judgement,
    Occurrence,
)

REPEATS = 3  # runs that must agree
# If this many cases of a group have the same occurrence, and none has another one, the others are run once.
SETTLED = 3


@dataclass(frozen=True)
class FailedCase:
    """A failing judgement, and the cases that ran before it in the executor's process, in order."""

    result: CaseResult
    judgement: Judgement
    before: Sequence[AnyCase]


class Runner(Protocol):
    """Runs cases in a new process."""

    def __call__(self, cases: Sequence[AnyCase], executor: str) -> bool:
        """Run the cases in their order in one new process. Return whether the last one fails.

        Raises:
            NotRunError: the executor does not run the case in a new process.
        """
        ...


class NewProcesses:
    """Runs cases in new processes. ``ggml`` is a process that has the library and the device of the runs."""

    def __init__(self, ggml: GgmlProcess | None) -> None:
        self.ggml = ggml

    def __call__(self, cases: Sequence[AnyCase], executor: str) -> bool:
        """Run the cases in their order in one new process. Return whether the last one fails."""
        if is_ggml(executor):
            assert self.ggml is not None
            try:
                process = self.ggml.new_process()
            except (GgmlUnavailable, GgmlFailed):
                raise NotRunError from None
            with process:
                for case in cases:
                    result = suites.judge(case, [], process)
        else:
            with BackendProcess(executor.removesuffix(":ggml")) as process_of_backend:
                for case in cases:
                    result = process_of_backend.judge(case)
        judgement = result.by(executor) or result.by(executor.removesuffix(":ggml"))
        if judgement is None or judgement.verdict == UNSUPPORTED:
            raise NotRunError
        return judgement.verdict == FAIL


def is_ggml(executor: str) -> bool:
    """Return whether a ggml process, and not this one, runs the executor's cases."""
    return executor.partition(":")[0] == "ggml"


class NotRunError(Exception):
    """The executor does not run in a new process, or does not run the case there."""


class OutOfTimeError(Exception):
    """The time for the runs has ended."""


class Reruns:
    """Runs failures again, until ``seconds`` have passed."""

    def __init__(self, run: Runner, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._end = clock() + seconds
        self._after: dict[str, tuple[AnyCase, ...]] = {}  # the last predecessors that were found, by executor

    def examine(self, groups: Iterable[Sequence[FailedCase]], advance: Callable[[], None]) -> None:
        """Set the occurrence of the first failure of each group, then that of the second one, and so on. The
        occurrence of a failure that is not run again stays None."""
        queues = [list(group) for group in groups]
        settled = [_Settled() for _ in queues]
        for i in range(max(map(len, queues), default=0)):
            for queue, known in zip(queues, settled, strict=True):
                if i < len(queue):
                    self._examine_one(queue[i], known)
                    advance()

    def _examine_one(self, failure: FailedCase, known: _Settled) -> None:
        with suppress(OutOfTimeError, NotRunError):
            occurrence = self._occurrence(failure, known)
            failure.judgement.occurrence = occurrence
            known.seen.append(occurrence.when)

    def _occurrence(self, failure: FailedCase, known: _Settled) -> Occurrence:
        attempts = _Attempts(self, failure)
        alone = [attempts.fails(()) for _ in range(known.repeats_of(ALONE, AFTER))]
        if any(alone) != known.is_settled(ALONE):  # unlike the other cases of the group
            alone += [attempts.fails(()) for _ in range(REPEATS - len(alone))]
        if all(alone):
            return Occurrence(ALONE, attempts.failed, attempts.runs)
        if any(alone):
            return Occurrence(SOMETIMES, attempts.failed, attempts.runs)
        executor = failure.judgement.executor
        if known.is_settled(SOMETIMES):
            return Occurrence(SOMETIMES, 1, attempts.runs + 1)
        try:
            after = self._predecessors(attempts, failure.before, self._after.get(executor, ()))
            if after:
                confirmed = [attempts.fails(after) for _ in range(known.repeats_of(AFTER))]
                if all(confirmed):
                    self._after[executor] = after
                    return Occurrence(AFTER, len(confirmed), len(confirmed), after)
        except OutOfTimeError:
            return Occurrence(NOT_ALONE, attempts.failed, attempts.runs)
        # The run of all cases counts as well.
        return Occurrence(SOMETIMES, attempts.failed + 1, attempts.runs + 1)

    def _predecessors(
        self, attempts: _Attempts, before: Sequence[AnyCase], hint: tuple[AnyCase, ...]
    ) -> tuple[AnyCase, ...]:
        """Return a smallest set of cases after which the case fails; empty if there is none."""
        if hint and all(case in before for case in hint) and attempts.fails(hint):
            return hint
        passing, failing = 0, min(1, len(before))
        while not failing or not attempts.fails(before[-failing:]):
            if failing == len(before):
                return ()
            passing, failing = failing, min(2 * failing, len(before))
        if not all(attempts.fails(before[-failing:]) for _ in range(REPEATS - 1)):
            return ()  # the failure does not depend on these cases
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if attempts.fails(before[-middle:]):
                failing = middle
            else:
                passing = middle
        return attempts.reduced(tuple(before[-failing:]))

    def fails(self, cases: Sequence[AnyCase], executor: str) -> bool:
        """Run the cases in a new process. Return whether the last one fails."""
        if self._clock() >= self._end:
            raise OutOfTimeError
        return self._run(cases, executor)


class _Settled:
    """The occurrences (``seen``) of a group's failures that were run again."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def repeats_of(self, *expected: str) -> int:
        """Return the number of runs that show one of these occurrences: 1 if the group has settled on it."""
        return 1 if self.is_settled(*expected) else REPEATS

    def is_settled(self, *expected: str) -> bool:
        """Return whether enough failures are known, and all of them have one of these occurrences."""
        return len(self.seen) >= SETTLED and len(set(self.seen)) == 1 and self.seen[0] in expected


class _Attempts:
    """Runs of one case, and their counts."""

    def __init__(self, reruns: Reruns, failure: FailedCase) -> None:
        self.reruns, self.failure = reruns, failure
        self.failed = self.runs = 0

    def fails(self, before: Sequence[AnyCase]) -> bool:
        """Run the case after others in a new process. Return whether it fails."""
        failed = self.reruns.fails([*before, self.failure.result.case], self.failure.judgement.executor)
        self.runs += 1
        self.failed += failed
        return failed

    def reduced(self, after: tuple[AnyCase, ...]) -> tuple[AnyCase, ...]:
        """Return a smallest part of the cases after which the case still fails. The first of them is kept."""
        if len(after) == 1 or self.fails(after[:1]):
            return after[:1]
        first, rest = after[:1], after[1:]
        size = max(1, len(rest) // 2)
        while True:
            shorter = next(
                (
                    part
                    for i in range(0, len(rest), size)
                    if self.fails(first + (part := rest[:i] + rest[i + size :]))
                ),
                None,
            )
            if shorter is not None:
                rest = shorter
                size = max(1, min(size, len(rest)))
            elif size == 1:
                return first + rest
            else:
                size = size // 2
