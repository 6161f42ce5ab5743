"""Interleaved timing: the contestants of a row run alternately (A B C A B C ...) in small batches.

A batch begins with untimed calls, which bring the caches to the state of repeated calls. The timed calls fill
``BATCH_SECONDS``; there are at least ``LEAST_TIMED_CALLS``. Batches of long calls have fewer calls of both
kinds, at least one of each. In one round every contestant gets one sample: the mean time per call of its
batch.

The memory floor is in every round. In each round, a contestant's sample is divided by the floor's sample,
because a disturbance of the machine slows both. A contestant's ratio is the median of these quotients.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

BATCH_SECONDS = 80e-6
MIN_ROUNDS, MAX_ROUNDS = 7, 400
SETTLE_SECONDS = 0.2  # ONNX Runtime spins for 40 ms, OpenMP for 8 ms
# Tensors may be about as large as the last cache level. A contestant then needs about ten calls until the
# cache contains its own data again instead of the other contestants' data.
LEAST_UNTIMED_CALLS, LEAST_TIMED_CALLS = 10, 4
# A long call is repeated less often: at most as often as this time allows, and at least once.
LONG_CALL_SECONDS = 0.02

Call = Callable[[], object]
Around = Callable[[], contextlib.AbstractContextManager[Any]]


class Unsupported(Exception):
    """A contestant cannot run this row; the text has the reason."""


class NotInstalled(Exception):
    """A contestant's package is missing; the text is the command that installs it."""


@dataclass
class Ready:
    """A contestant that is ready for one row: buffers are made and code is compiled."""

    call: Call
    result: Callable[[], Any]
    """Returns the result of one call on unchanged input, for the check before the timing."""
    around: Around = contextlib.nullcontext
    """Context manager around each batch, outside the timing, such as a thread pool or a torch mode."""
    close: Callable[[], None] = lambda: None


@dataclass
class Contestant:
    """An implementation that a row times. ``kind`` is floor (the memory floor), ours, peer, or call (a call
    that computes nothing, or a copy that is not the floor)."""

    name: str
    kind: str
    prepare: Callable[[], Ready]
    check: Callable[[Any], str | None] = lambda result: None
    """Returns None, or the fault of the result."""


@dataclass
class Figure:
    """The result of one contestant in one row. ``status``: ok, unsupported, not installed, wrong, failed."""

    contestant: str
    kind: str
    status: str = "ok"
    note: str = ""
    seconds: list[float] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)


# ---- statistics ------------------------------------------------------------------------------------


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the 25 %, 50 % and 75 % quantiles, interpolated; for one sample, all three are that sample."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, statistics.median(samples), high


def summarize(samples: Sequence[float], floor: Sequence[float]) -> dict[str, float]:
    """Return the median and the least sample in microseconds, the spread, and both ratios to the floor.

    ``spread`` is the interquartile range divided by the least sample. ``ratio`` is the median of the
    per-round ratios, ``ratio_of_medians`` the ratio of the medians.

    >>> summarize([2e-6, 4e-6, 6e-6], [1e-6, 2e-6, 3e-6])["ratio"]
    2.0
    """
    low, median, high = quartiles(samples)
    numbers = {
        "median_us": median * 1e6,
        "min_us": min(samples) * 1e6,
        "spread": (high - low) / min(samples),
        "samples": float(len(samples)),
    }
    if floor:
        ratios = (sample / floor_sample for sample, floor_sample in zip(samples, floor, strict=True))
        numbers["ratio"] = statistics.median(ratios)
        numbers["ratio_of_medians"] = median / statistics.median(floor)
    return numbers


# ---- the machine's other users ---------------------------------------------------------------------


class ForeignCpu:
    """The CPU use of other processes: all busy time minus that of this process, in cores."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """Return the seconds of the clock, of all CPUs' busy time, and of this process's CPU time."""
        try:
            with open("/proc/stat", encoding="ascii") as stat:
                ticks = [int(word) for word in stat.readline().split()[1:9]]
        except OSError:
            return None
        idle, iowait = ticks[3:5]
        busy_seconds = (sum(ticks) - idle - iowait) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy_seconds, time.process_time()

    def cores(self) -> float | None:
        """Return the cores used by others since the construction; None if the system does not report them."""
        now = self._now()
        if now is None or self._start is None:
            return None
        differences = (end - start for start, end in zip(self._start, now, strict=True))
        wall_seconds, busy_seconds, own_seconds = differences
        return max(0.0, busy_seconds - own_seconds) / max(wall_seconds, 1e-3)


def wait_for_quiet(budget_seconds: float, on_wait: Callable[[], None]) -> float:
    """Sleep until other processes use less than 15 % of a core, or for about the budget. Call ``on_wait``
    once if they use more. Return approximately how many seconds it took."""
    start, is_waiting = time.perf_counter(), False
    while (spent := time.perf_counter() - start) < budget_seconds:
        meter = ForeignCpu()
        time.sleep(0.1)
        if (meter.cores() or 0.0) < 0.15:
            break
        if not is_waiting:
            is_waiting = True
            on_wait()
        time.sleep(0.4)
    return spent


def settle() -> None:
    """Wait until no thread of this process is busy. Thread pools spin for a while after their last call."""
    end = time.perf_counter() + SETTLE_SECONDS
    while time.perf_counter() < end:
        wall_seconds, own_seconds = time.perf_counter(), time.process_time()
        time.sleep(0.0005)
        if time.process_time() - own_seconds < 0.3 * (time.perf_counter() - wall_seconds):
            return


# ---- one row ---------------------------------------------------------------------------------------


@dataclass
class _Runner:
    figure: Figure
    ready: Ready
    calls: int = 1
    untimed_calls: int = 1

    def calibrate(self) -> None:
        with self.ready.around():
            self.ready.call()
            call_seconds = min(_timed(self.ready.call, 1) for _ in range(2))
            if call_seconds < BATCH_SECONDS:  # the clock and cold caches dominate a single short call
                call_seconds = _timed(self.ready.call, max(1, int(BATCH_SECONDS / call_seconds / 2)))
        long_calls = int(LONG_CALL_SECONDS / call_seconds)
        self.calls = max(int(BATCH_SECONDS / call_seconds), min(LEAST_TIMED_CALLS, long_calls), 1)
        self.untimed_calls = max(self.calls // 4, min(LEAST_UNTIMED_CALLS, long_calls), 1)

    def batch(self) -> float:
        with self.ready.around():
            for _ in range(self.untimed_calls):
                self.ready.call()
            return _timed(self.ready.call, self.calls)


def _timed(call: Call, count: int) -> float:
    repeats = range(count)
    start = time.perf_counter_ns()
    for _ in repeats:
        call()
    return max(time.perf_counter_ns() - start, 1) / count * 1e-9


def _set_up(contestant: Contestant) -> tuple[Figure, Ready | None]:
    figure = Figure(contestant.name, contestant.kind)
    try:
        ready = contestant.prepare()
    except Unsupported as reason:
        figure.status, figure.note = "unsupported", str(reason)
        return figure, None
    except NotInstalled as remedy:
        figure.status, figure.note = "not installed", str(remedy)
        return figure, None
    except Exception as error:  # a peer may raise anything: report it, measure the others
        figure.status, figure.note = "failed", _short(error)
        return figure, None
    try:
        with ready.around():
            fault = contestant.check(ready.result())
    except Exception as error:
        figure.status, figure.note, fault = "failed", _short(error), None
    if fault is not None:
        figure.status, figure.note = "wrong", fault
    if figure.status != "ok":
        ready.close()
        return figure, None
    return figure, ready


def _short(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}"[:160]


def measure_row(
    contestants: Sequence[Contestant],
    seconds: float,
    *,
    settle_between: bool = False,
    min_rounds: int = MIN_ROUNDS,
    attempts: int = 1,
) -> tuple[list[Figure], float | None]:
    """Set up, verify and time the contestants of one row.

    Args:
        contestants: the ratios refer to the one of kind ``floor``, if any.
        seconds: duration of the rounds; at least ``min_rounds``, at most ``MAX_ROUNDS`` rounds.
        settle_between: wait for spinning threads before each batch (more than one thread).
        attempts: largest number of attempts. Another attempt follows if other processes use 10 % of a core or
            more. The figures are those of the least disturbed attempt.

    Returns:
        The figures in the contestants' order, and the cores that other processes used in the meantime.
    """
    prepared = [_set_up(contestant) for contestant in contestants]
    runners = [_Runner(figure, ready) for figure, ready in prepared if ready is not None]
    try:
        for runner in runners:
            runner.calibrate()
        foreign_cores = _keep_quietest_attempt(runners, seconds, settle_between, min_rounds, attempts)
    finally:
        for runner in runners:
            runner.ready.close()
    floors = (figure.seconds for figure, _ in prepared if figure.kind == "floor" and figure.seconds)
    floor: list[float] = next(floors, [])
    for figure, _ in prepared:
        if figure.seconds:
            figure.numbers = summarize(figure.seconds, floor)
    return [figure for figure, _ in prepared], foreign_cores


def _keep_quietest_attempt(
    runners: list[_Runner], seconds: float, settle_between: bool, min_rounds: int, attempts: int
) -> float | None:
    """Store the samples of the attempt during which others used the least CPU."""
    quietest: tuple[float, list[list[float]]] | None = None
    foreign_cores: float | None = None
    for _ in range(max(1, attempts)):
        foreign_cores = _run_rounds(runners, seconds, settle_between, min_rounds)
        samples = [runner.figure.seconds for runner in runners]
        if foreign_cores is None:
            return None
        if quietest is None or foreign_cores < quietest[0]:
            quietest = (foreign_cores, samples)
        if foreign_cores < 0.1:
            break
    assert quietest is not None
    for runner, quietest_samples in zip(runners, quietest[1], strict=True):
        runner.figure.seconds = quietest_samples
    return quietest[0]


def _run_rounds(
    runners: list[_Runner], seconds: float, settle_between: bool, min_rounds: int
) -> float | None:
    for runner in runners:
        runner.figure.seconds = []
    gc.collect()
    gc_was_enabled = gc.isenabled()
    gc.disable()
    meter = ForeignCpu()
    end = time.perf_counter() + seconds
    rounds_done = 0
    try:
        while rounds_done < min_rounds or (time.perf_counter() < end and rounds_done < MAX_ROUNDS):
            for runner in runners:
                if settle_between:
                    settle()
                runner.figure.seconds.append(runner.batch())
            rounds_done += 1
    finally:
        if gc_was_enabled:
            gc.enable()
    return meter.cores()
