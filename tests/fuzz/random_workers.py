"""Processes that draw and judge random calls. One that ends or hangs names the call that it was judging.

The processes are forked, so they must be made before this process computes anything: OpenMP's threads and
torch_npu do not survive a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any, NamedTuple, NoReturn

import random_operators

from npu_rope import backends
from npu_rope.errors import BackendUnavailable
from npu_rope.optional_torch import torch

MOST_SECONDS = 600.0  # of one call
# The run looks at its processes several times a second. A longer step is a pause of the run, as after Ctrl-Z.
MOST_SECONDS_OF_A_STEP = 10.0
MOST_ENDS = 3  # of processes one after another, each before its first call
SECONDS_TO_END = 30.0
NO_RESULT = "no result"
# Two threads for calls that are large enough to be divided. More would only compete with other processes.
THREADS = 2
_FORK = multiprocessing.get_context("fork")


class CannotStart(Exception):
    """No process can judge calls."""


class Job(NamedTuple):
    """Calls of an operator: from ``begin`` to ``end``, or the one that ``given`` chooses."""

    op: str
    begin: int
    end: int
    given: tuple[int, ...] | None = None


@dataclass
class Outcome:
    """The result of a job.

    Attributes:
        kinds: the number of calls of each type of elements.
        worst: the largest error / bound, and the call's index (-1: none).
        failures: for each failing call its index, its problem, the call in words and its choices.
        text: the last call in words; empty if the given choices make no call.
        made: the choices of the last call.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    worst: tuple[float, int] = (0.0, -1)
    failures: list[tuple[int, str, str, list[int]]] = field(default_factory=list)
    seconds: float = 0.0
    text: str = ""
    made: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """The process ended or hung at the call of this index."""

    index: int
    problem: str


def run(job: Job, backend: str, seed: int, at: Any) -> Outcome:
    """Judge the calls of a job; store each call's index in ``at`` before it is drawn."""
    outcome, began = Outcome(), time.monotonic()
    for index in range(job.begin, job.end):
        at.value = index
        try:
            call, made = random_operators.draw(job.op, seed, index, backend, job.given)
        except ValueError:
            if job.given is None:
                raise
            return outcome  # the given choices make no call
        verdict = random_operators.judge(job.op, call, backend)
        if verdict.problem:
            outcome.failures.append((index, verdict.problem, random_operators.text(call), made))
        elif verdict.ratio > outcome.worst[0]:
            outcome.worst = verdict.ratio, index
        outcome.kinds[random_operators.kind(call)] += 1
        if job.given is not None or index == job.end - 1:
            outcome.text, outcome.made = random_operators.text(call), made
    outcome.seconds = time.monotonic() - began
    return outcome


def _serve(pipe: connection.Connection, others: list[Any], backend: str, seed: int, at: Any) -> None:
    """Say that the back end is available, or why not. Then judge each job that arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # inherited ends of pipes would hide the parent's end
        other.close()
    os.environ |= {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "passive"}  # before OpenMP is loaded
    if torch is not None:
        torch.set_num_threads(THREADS)
    try:
        backends.find(backend).require()
        problem = ""
    except (ValueError, BackendUnavailable) as error:
        problem = str(error)
    with contextlib.suppress(ConnectionError):
        pipe.send(problem)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, ConnectionError):  # the parent has closed its end, or ended
            _end()
        outcome = run(job, backend, seed, at)
        with contextlib.suppress(ConnectionError):
            pipe.send(outcome)


def _end() -> NoReturn:
    """End this process as an interpreter does, so that the simulated CANN checks and reports at the end."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(0)
    raise AssertionError("unreachable")


class Worker:
    """A process, and the job that it has."""

    def __init__(self, backend: str, seed: int, all_pipes: list[connection.Connection]) -> None:
        self.arguments = backend, seed
        self.all_pipes = all_pipes
        self.job: Job | None = None
        self._ends = 0  # since the last call
        self._start()

    def _start(self) -> None:
        self.at = _FORK.RawValue("q", -1)
        self.pipe, theirs = _FORK.Pipe()
        self.all_pipes.append(self.pipe)
        arguments = (theirs, list(self.all_pipes), *self.arguments, self.at)
        self.process = _FORK.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.is_ready = False
        self._begin_to_wait()

    def give(self, job: Job) -> None:
        """Start a job. If the process has ended, answer() finds that and replaces it."""
        self.job, self.at.value = job, -1
        self._begin_to_wait()
        with contextlib.suppress(ConnectionError):
            self.pipe.send(job)

    def answer(self) -> Outcome | Ended | None:
        """Return the answer to the job if there is one, and end the job. None: it is not finished.

        After Ended, another process has taken the place of the one that ended. If that one ended before its
        first call, the other process has its job.

        Raises:
            CannotStart: the back end is unavailable or unknown, a process ends before it is ready, or
                MOST_ENDS processes in a row end before their first call.
        """
        try:
            if not self.pipe.poll():
                return self._hang()
            received = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return self._replace(words_of(self.process.exitcode))
        if not self.is_ready:
            if received:
                raise CannotStart(received)
            self.is_ready = True
            return None
        self.job, self._ends = None, 0
        answer: Outcome = received
        return answer

    def _begin_to_wait(self) -> None:
        self._seen, self._waited = (-1, time.monotonic()), 0.0

    def _hang(self) -> Ended | None:
        at, now = self.at.value, time.monotonic()
        is_same_call = self.job is not None and at == self._seen[0]
        step = min(now - self._seen[1], MOST_SECONDS_OF_A_STEP)
        self._waited = self._waited + step if is_same_call else 0.0
        self._seen = at, now
        if self._waited <= MOST_SECONDS:
            return None
        self.process.kill()
        self.process.join()
        return self._replace(f"{NO_RESULT} after {MOST_SECONDS:.0f} seconds")

    def _replace(self, problem: str) -> Ended | None:
        self.close()
        if not self.is_ready:  # another process would not start either
            raise CannotStart(f"{problem} before it was ready for a call")
        job, index, self.job = self.job, self.at.value, None
        assert job is not None
        self._ends = 0 if index >= job.begin else self._ends + 1
        if self._ends == MOST_ENDS:
            raise CannotStart(f"{problem} before a call, {MOST_ENDS} times in a row")
        self._start()
        if self._ends == 0:
            return Ended(index, problem)
        self.give(job)
        return None

    def close(self) -> None:
        """End the process, if it has not been ended. One with a job is killed."""
        if not self.pipe.closed:
            self.all_pipes.remove(self.pipe)
            self.pipe.close()
        if self.job is None:
            self.process.join(SECONDS_TO_END)
        self.process.kill()
        self.process.join()

    def ask(self, job: Job) -> Outcome | Ended:
        """Run a job and wait for its answer."""
        self.give(job)
        while True:
            connection.wait([self.pipe], 1.0)
            if (answer := self.answer()) is not None:
                return answer


def words_of(exit_code: int | None) -> str:
    """Return in words how a process ended."""
    if exit_code is not None and exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name} ended the process"
    return f"the process ended with status {exit_code}"


def problem_of(answer: Outcome | Ended) -> str:
    """Return the problem of a job of one call; empty if there is none."""
    if isinstance(answer, Ended):
        return answer.problem
    return answer.failures[0][1] if answer.failures else ""
