"""Failing cases run again: alone, after others, sometimes. A double of the processes says what fails."""

import itertools
from types import SimpleNamespace

import pytest

from npu_rope.testing import rerun
from npu_rope.testing.backend_process import BackendProcess
from npu_rope.testing.ggml import GgmlUnavailable
from npu_rope.testing.outcomes import (
    AFTER,
    ALONE,
    FAIL,
    NOT_ALONE,
    SOMETIMES,
    CaseResult,
    Judgement,
    Occurrence,
)
from npu_rope.testing.rerun import REPEATS, FailedCase, NewProcesses, NotRunError, Reruns
from npu_rope.testing.suites import all_cases


class Runs:
    """A double of new processes: ``fails`` gets the names of the cases that run, and a counter."""

    def __init__(self, fails):
        self.fails = fails
        self.lists = []

    def __call__(self, cases, executor):
        names = [case.name for case in cases]
        self.lists.append(names)
        return bool(self.fails(names, len(self.lists)))


def _case(name):
    return SimpleNamespace(name=name)


def _failure(name, before=(), executor="ggml"):
    judgement = Judgement(executor, FAIL)
    return FailedCase(CaseResult(_case(name), [judgement]), judgement, [_case(other) for other in before])


def _examine(runs, *failures, seconds=60.0, **options):
    reruns = Reruns(runs, seconds, **options)
    advanced = []
    reruns.examine([failures], lambda: advanced.append(1))
    assert len(advanced) == len(failures)


def _names(occurrence):
    return [case.name for case in occurrence.after]


BEFORE = [f"case {i}" for i in range(50)]


def test_a_case_that_fails_in_every_run_fails_alone():
    runs = Runs(lambda names, count: True)
    failure = _failure("x", BEFORE)
    _examine(runs, failure)
    assert failure.judgement.occurrence == Occurrence(ALONE, REPEATS, REPEATS)
    assert runs.lists == [["x"]] * REPEATS


@pytest.mark.parametrize("culprit", BEFORE[::7] + BEFORE[-1:])
def test_the_one_case_that_must_run_before_is_found(culprit):
    runs = Runs(lambda names, count: culprit in names)
    failure = _failure("x", BEFORE)
    _examine(runs, failure)
    found = failure.judgement.occurrence
    assert (found.when, found.failed, found.runs) == (AFTER, REPEATS, REPEATS)
    assert _names(found) == [culprit]
    assert len(runs.lists) < 25


def test_a_case_resets_what_an_earlier_one_left():
    """The last case that changed the state counts: 30 leaves it, 40 resets it, 45 leaves it again."""

    def fails(names, count):
        state = [name for name in names if name in ("case 30", "case 40", "case 45")]
        return state and state[-1] != "case 40"

    failure = _failure("x", BEFORE)
    _examine(Runs(fails), failure)
    assert _names(failure.judgement.occurrence) == ["case 45"]


@pytest.mark.parametrize("needed", [("case 3", "case 40"), ("case 3", "case 4", "case 30", "case 48")])
def test_several_cases_are_found_in_their_order(needed):
    def fails(names, count):
        return all(name in names for name in needed)

    failure = _failure("x", BEFORE)
    _examine(Runs(fails), failure)
    assert failure.judgement.occurrence.when == AFTER
    assert _names(failure.judgement.occurrence) == list(needed)


def test_a_case_that_fails_in_some_runs_fails_sometimes():
    failure = _failure("x", BEFORE)
    runs = Runs(lambda names, count: count == 2)
    _examine(runs, failure)
    assert failure.judgement.occurrence == Occurrence(SOMETIMES, 1, REPEATS)


def test_a_case_that_never_fails_again_fails_sometimes():
    failure = _failure("x", BEFORE)
    runs = Runs(lambda names, count: False)
    _examine(runs, failure)
    found = failure.judgement.occurrence
    assert (found.when, found.failed, found.after) == (SOMETIMES, 1, ())
    assert found.runs == len(runs.lists) + 1
    assert runs.lists[-1] == [*BEFORE, "x"]


@pytest.mark.parametrize("chance", range(REPEATS + 1, REPEATS + 9))
def test_a_failure_by_chance_does_not_accuse_the_cases_before_it(chance):
    failure = _failure("x", BEFORE)
    runs = Runs(lambda names, count: count == chance)
    _examine(runs, failure)
    found = failure.judgement.occurrence
    assert (found.when, found.after) == (SOMETIMES, ())
    assert len(runs.lists) < 15


@pytest.mark.parametrize("chance", range(REPEATS + 1, REPEATS + 20))
def test_a_failure_by_chance_does_not_change_which_case_is_named(chance):
    failure = _failure("x", BEFORE)
    _examine(Runs(lambda names, count: "case 10" in names or count == chance), failure)
    found = failure.judgement.occurrence
    assert (found.when, "case 10" in _names(found)) in [(AFTER, True), (SOMETIMES, False)]


def test_the_first_case_of_a_process_needs_no_others():
    failure = _failure("x", [])
    _examine(Runs(lambda names, count: False), failure)
    assert failure.judgement.occurrence == Occurrence(SOMETIMES, 1, REPEATS + 1)


def test_without_time_a_failure_stays_as_it_is():
    failures = [_failure("x"), _failure("y")]
    _examine(Runs(lambda names, count: True), *failures, seconds=0)
    assert [failure.judgement.occurrence for failure in failures] == [None, None]


def test_the_end_of_the_time_in_a_search_leaves_that_the_case_passes_alone():
    seconds = itertools.count()
    failure = _failure("x", BEFORE)
    runs = Runs(lambda names, count: BEFORE[0] in names)
    _examine(runs, failure, seconds=REPEATS + 3, clock=lambda: next(seconds))
    assert failure.judgement.occurrence.when == NOT_ALONE
    assert len(runs.lists) <= REPEATS + 3


def test_an_executor_that_does_not_start_again_leaves_the_failures():
    def not_run(names, count):
        raise NotRunError

    failure = _failure("x")
    _examine(Runs(not_run), failure)
    assert failure.judgement.occurrence is None


def test_the_later_failures_of_a_group_take_one_run_each():
    runs = Runs(lambda names, count: True)
    failures = [_failure(f"x{i}") for i in range(10)]
    _examine(runs, *failures)
    assert len(runs.lists) == 3 * REPEATS + 7
    assert {failure.judgement.occurrence.when for failure in failures} == {ALONE}


def test_a_failure_unlike_its_group_is_run_as_often_as_the_first_ones():
    runs = Runs(lambda names, count: names[-1] != "x5" or "case 9" in names)
    failures = [_failure(f"x{i}", BEFORE) for i in range(10)]
    _examine(runs, *failures)
    assert _names(failures[5].judgement.occurrence) == ["case 9"]
    assert {f.judgement.occurrence.when for f in failures if f is not failures[5]} == {ALONE}


def test_one_passing_run_in_a_group_that_fails_alone_is_repeated():
    runs = Runs(lambda names, count: names[-1] != "x5" or runs.lists.count(["x5"]) != 1)
    failures = [_failure(f"x{i}", BEFORE) for i in range(10)]
    _examine(runs, *failures)
    assert failures[5].judgement.occurrence == Occurrence(SOMETIMES, REPEATS - 1, REPEATS)


def test_the_first_failure_of_each_group_comes_first():
    runs = Runs(lambda names, count: True)
    groups = [[_failure("a0"), _failure("a1")], [_failure("b0")]]
    Reruns(runs, 60).examine(groups, lambda: None)
    assert [names[0] for names in runs.lists[::REPEATS]] == ["a0", "b0", "a1"]


# ---- processes ---------------------------------------------------------------------------------------


@pytest.fixture
def two_cases():
    return all_cases(("ggml",))[:2]


@pytest.mark.parametrize("executor", ["cpu", "cpu:ggml", "sim:ascend310p"])
def test_a_back_end_runs_cases_in_a_process_of_its_own(two_cases, executor):
    assert NewProcesses(None)(two_cases, executor) is False


# A worker whose second case fails, and whose third one ends the process.
WORKER = """
import os, sys
sys.modules["torch"] = None  # its import takes a second
from npu_rope.testing import backend_worker
from npu_rope.testing.outcomes import CaseResult, Judgement
seen = []
def judge(case, backends, ggml):
    seen.append(case)
    if len(seen) == 3:
        print("the library is unhappy")
        os.abort()
    return CaseResult(case, [Judgement(backends[0], "FAIL" if len(seen) == 2 else "ok")])
backend_worker.judge = judge
backend_worker.main()
"""


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(BackendProcess, "worker", ("-c", WORKER))


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_the_last_case_of_a_process_decides(two_cases):
    assert [NewProcesses(None)(two_cases[:1] * count, "cpu") for count in (1, 2, 3, 4)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.native
@pytest.mark.usefixtures("worker")
def test_the_end_of_a_back_ends_process_is_the_failure_of_one_case(two_cases):
    with BackendProcess("cpu") as process:
        verdicts = [process.judge(two_cases[0]).judgements[0].verdict for _ in range(2)]
        assert verdicts == ["ok", FAIL]
        assert process.cases == [two_cases[0]] * 2
        (judgement,) = process.judge(two_cases[1]).judgements
        assert (judgement.executor, judgement.verdict) == ("cpu", FAIL)
        assert judgement.message == "cpu ended with SIGABRT: the library is unhappy"
        assert judgement.output == ("the library is unhappy",)
        assert process.cases == []
        assert process.judge(two_cases[1]).judgements[0].verdict == "ok"
        assert process.cases == [two_cases[1]]


@pytest.mark.long
def test_an_absent_back_end_or_device_is_not_run(two_cases):
    class Absent:
        def new_process(self):
            raise GgmlUnavailable("busy")

    for executor in ("npu", "ggml"):
        with pytest.raises(NotRunError):
            NewProcesses(Absent())(two_cases, executor)


def test_a_ggml_process_runs_the_cases_of_ggml_and_of_its_devices():
    assert [rerun.is_ggml(name) for name in ("ggml", "ggml:CPU", "cpu:ggml", "cpu", "sim:ascend310p")] == [
        True,
        True,
        False,
        False,
        False,
    ]
