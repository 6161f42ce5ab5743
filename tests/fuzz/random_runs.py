"""Run random calls of every operator on one back end and judge each; see --help.

random_operators.py draws and judges the calls, in the processes of random_workers.py.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import random_operators
from choices import simplified
from random_operators import OPERATORS
from random_options import MOST_SHOWN, parse, parser_of
from random_workers import NO_RESULT, CannotStart, Ended, Job, Outcome, Worker, problem_of
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from state_file import BadUsage, StateFile

from npu_rope import backends

HELP = """\
Draw random calls of every operator, run them on one back end and judge each against float64.

A call is drawn from the operator's name, the seed and the call's index. It has any type, mode, window, sizes,
strides, optional tensors, kind of output and attributes that the back end supports. A few calls in a thousand
are large. Every result must be within its derived bound (npu_rope/testing/bounds.py), and the inputs must be
unchanged. For rope, the memory around the outputs must be unchanged.

Processes judge the calls in batches. If a process ends (a crash, kill -9) or hangs, the call that it was
judging is a violation, another process takes its place, and the run goes on. A process that ends between two
calls is replaced without a violation. If three in a row end before their first call, the run ends with status
2.

A violation is simplified: the program looks for a call with smaller sizes, fewer optional tensors, contiguous
tensors and default attributes that fails in the same way.
"""
EXAMPLES = """\
examples:

  random_runs.py                                     a thousand calls of each operator on cpu
  random_runs.py --op rope --op rope_qk --count 20000
  random_runs.py --count 1000000 --state cpu.json    until Ctrl-C; run it again to continue
  random_runs.py --count 1000000 --state cpu.json --minutes 30
  random_runs.py --backend sim:ascend310p --seed 3
  random_runs.py --op rope --seed 3 --only 4711      repeat, describe and simplify one call
  random_runs.py --op rope --only 4711 --choices 0,1  repeat a simplified call

The totals do not depend on --jobs or on interruptions. A state file belongs to a seed, a back end and a
version of the draws (the files in tests/fuzz). It may hold any operators. A larger --count continues it. One
run at a time may use it.

exit status: 0 no violation in this run or an earlier one of the same state file; 1 violations, with lines
that repeat them; 2 bad usage, no call was judged, or the back end is unavailable; 130 interrupted.
"""
VERSION = 2
BATCH = 50  # calls of a job
MOST_JOBS_PER_CORE = 8  # a process needs 200 MB
FAILURE = ("index", "problem", "call", "choices")
SECONDS_BETWEEN_SAVES = 5.0
MOST_DIGITS = 18  # of a choice
MOST_SIMPLIFIED = 3  # violations of an operator
PROGRAMS = (
    "random_runs.py",
    "random_workers.py",
    "random_options.py",
    "random_bits.py",
    "random_onnx.py",
    "state_file.py",
)


# ---- state ---------------------------------------------------------------------------------------------


@dataclass
class Totals:
    """The totals of an operator's calls from index 0 to ``next - 1``.

    Attributes:
        worst, worst_at: the largest error / bound of a correct call, and the call's index (-1: none).
        kinds: the number of calls of each type; NO_RESULT for calls that ended or blocked a process.
        failures: for each violation its index, its problem, the call in words and its choices.
    """

    next: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    worst_at: int = -1
    kinds: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcome: Outcome, end: int) -> list[dict[str, Any]]:
        """Add the calls up to ``end``. Return the new violations."""
        new = [dict(zip(FAILURE, failure, strict=True)) for failure in outcome.failures]
        self.failures += new
        if outcome.worst[0] > self.worst:
            self.worst, self.worst_at = outcome.worst
        for kind, count in outcome.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        self.next, self.seconds = end, self.seconds + outcome.seconds
        return new

    def is_valid(self) -> bool:
        """Return whether these can be totals. A file may have any values."""
        counts = [self.next, self.worst_at + 1, *self.kinds.values()]
        for failure in self.failures:
            index, problem, call, choices = (failure[name] for name in FAILURE)
            if not (isinstance(problem, str) and isinstance(call, str) and 0 <= index < self.next):
                return False
            counts += [index, *choices]
        are_counts = all(type(count) is int and count >= 0 for count in counts)
        are_numbers = all(0 <= number < math.inf for number in (self.worst, self.seconds))
        is_whole = self.next == sum(self.kinds.values()) and self.worst_at < self.next
        return are_counts and are_numbers and is_whole


@dataclass
class State:
    """The progress of a run."""

    settings: dict[str, Any]
    operators: dict[str, Totals] = field(default_factory=dict)

    def text(self) -> str:
        """Return the content of a state file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)


def load_state(file: StateFile, settings: dict[str, Any]) -> State:
    """Return the state of an earlier run with the same settings, or a new one."""
    try:
        text = file.read()
        if not text:
            return State(settings)
        content = json.loads(text)
        found = {**content["settings"], "version": content["version"]}
        totals = {op: Totals(**values) for op, values in content["operators"].items()}
        broken = [op for op, of_op in totals.items() if op not in OPERATORS or not of_op.is_valid()]
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise file.unreadable(error) from None
    if found["version"] == VERSION and broken:
        text = f"the totals of {broken[0]} in {file.path} differ"
        raise BadUsage(f"--state must be a file of an earlier run but {text}")
    for name, value in {"version": VERSION, **settings}.items():
        if found.get(name) != value:
            text = f"{name} {value} but {file.path} has {found.get(name)}"
            raise BadUsage(f"--state must be a file of a run with {text}")
    return State(settings, totals)


def version_of_draws() -> str:
    """Return a hash of the files that determine the calls."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    content = b"".join(file.read_bytes() for file in files if file.name not in PROGRAMS)
    return hashlib.blake2b(content, digest_size=8).hexdigest()


# ---- a run ---------------------------------------------------------------------------------------------


class Run:
    """Judge calls in processes, and keep the state up to date."""

    def __init__(self, options: argparse.Namespace, state: State, file: StateFile, console: Console) -> None:
        self.options, self.state, self.file, self.console = options, state, file, console
        self.ops = options.op or list(OPERATORS)
        for op in self.ops:
            state.operators.setdefault(op, Totals())
        pipes: list[connection.Connection] = []
        calls = (max(0, options.count - state.operators[op].next) for op in self.ops)
        workers = min(options.jobs, max(1, sum(-(-left // BATCH) for left in calls)))
        self.workers = [Worker(options.backend, options.seed, pipes) for _ in range(workers)]
        self.finished: dict[tuple[str, int], tuple[int, Outcome]] = {}
        self.shown = 0

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.close()

    def done(self) -> int:
        """Return the number of judged calls."""
        return sum(self.state.operators[op].next for op in self.ops)

    def total(self) -> int:
        """Return the number of calls at the end of the run."""
        return sum(max(self.options.count, self.state.operators[op].next) for op in self.ops)

    def judge(self, deadline: float) -> None:
        """Judge all calls, or those that are begun before the deadline."""
        again: deque[Job] = deque()  # parts of a job that was cut off
        new = self._new_jobs()
        saved = time.monotonic()
        with progress_bar(self) as show:
            while True:
                for worker in self.workers:
                    if worker.job is None and time.monotonic() < deadline:
                        job = again.popleft() if again else next(new, None)
                        if job is not None:
                            worker.give(job)
                busy = [worker for worker in self.workers if worker.job is not None]
                if not busy:
                    return
                connection.wait([worker.pipe for worker in busy], 0.5)
                for worker in busy:
                    job, answer = worker.job, worker.answer()
                    if job is not None and answer is not None:
                        again.extend(self._take(job, answer))
                show()
                if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                    self.file.save(self.state.text())
                    saved = time.monotonic()

    def _new_jobs(self) -> Iterator[Job]:
        """Yield a batch of each operator in turn."""
        begins = {op: self.state.operators[op].next for op in self.ops}
        while left := [op for op in self.ops if begins[op] < self.options.count]:
            for op in left:
                end = min(begins[op] + BATCH, self.options.count)
                yield Job(op, begins[op], end)
                begins[op] = end

    def _take(self, job: Job, answer: Outcome | Ended) -> list[Job]:
        """Add a job's outcome to the totals. Return the parts of the job that are to be run again."""
        if isinstance(answer, Ended):
            at = answer.index
            text, made = self._describe(job.op, at)
            self.finished[job.op, at] = at + 1, ended_outcome(at, answer.problem, text, made)
            parts = [job._replace(end=at), job._replace(begin=at + 1)]
        else:
            self.finished[job.op, job.begin] = job.end, answer
            parts = []
        self._add_finished(job.op)
        return [part for part in parts if part.begin < part.end]

    def _add_finished(self, op: str) -> None:
        """Add outcomes to the totals in the order of the calls, so that the totals depend on nothing else."""
        totals = self.state.operators[op]
        while (op, totals.next) in self.finished:
            end, outcome = self.finished.pop((op, totals.next))
            for failure in totals.add(outcome, end):
                self.shown += 1
                if self.shown <= MOST_SHOWN:
                    self.console.print(f"WRONG {op} {failure['index']}: {failure['problem']}")
                    self.console.print(f"  {failure['call']}\n  {self.command(op, failure['index'])}")

    def _describe(self, op: str, index: int) -> tuple[str, list[int]]:
        call, made = random_operators.draw(op, self.options.seed, index, self.options.backend)
        return random_operators.text(call), made

    def command(self, op: str, index: int, made: Sequence[int] | None = None) -> str:
        """Return the command that repeats a call."""
        line = f"{backends.simulation()}python tests/fuzz/random_runs.py --op {op}"
        line += f" --backend {self.options.backend} --seed {self.options.seed} --only {index}"
        return line if made is None else f"{line} --choices {','.join(map(str, made)) or '0'}"

    def simplify(self, op: str, index: int, problem: str, made: Sequence[int]) -> None:
        """Find and print the simplest call that fails in the same way."""
        worker = self.workers[0]
        if problem.startswith(NO_RESULT):
            self.console.print("not simplified: each attempt would take as long")
            return

        def fails(given: list[int]) -> list[int] | None:
            answer = worker.ask(Job(op, index, index + 1, tuple(given)))
            if kind_of(problem_of(answer)) != kind_of(problem):
                return None
            return answer.made if isinstance(answer, Outcome) else given

        if fails(list(made)) is None:
            self.console.print("not simplified: alone, the call does not fail; earlier ones may be the cause")
            return
        simplest = simplified(made, fails)
        answer = worker.ask(Job(op, index, index + 1, tuple(simplest)))
        call, _ = random_operators.draw(op, self.options.seed, index, self.options.backend, simplest)
        self.console.print(f"simplest: {random_operators.text(call)}\n  {problem_of(answer)}")
        self.console.print(f"  {self.command(op, index, simplest)}")

    def only(self, op: str, index: int, given: tuple[int, ...] | None) -> int:
        """Judge, describe and simplify one call; return the exit status."""
        answer = self.workers[0].ask(Job(op, index, index + 1, given))
        if isinstance(answer, Outcome) and not answer.text:
            raise BadUsage(f"--choices must make a call that {self.options.backend} supports")
        call, made = random_operators.draw(op, self.options.seed, index, self.options.backend, given)
        self.console.print(random_operators.text(call))
        if problem := problem_of(answer):
            self.console.print(f"WRONG: {problem}")
            self.simplify(op, index, problem, made)
            return 1
        assert isinstance(answer, Outcome)
        self.console.print(f"correct: largest error {answer.worst[0]:.4g} of its bound")
        return 0

    def report(self) -> int:
        """Simplify the first violations and print the totals. Return the number of violations."""
        if self.shown > MOST_SHOWN:
            self.console.print(f"and {self.shown - MOST_SHOWN} more")
        for op in self.ops:
            for failure in self.state.operators[op].failures[:MOST_SIMPLIFIED]:
                self.console.print(f"violation: {op} {failure['index']}: {failure['problem']}")
                self.simplify(op, *(failure[name] for name in ("index", "problem", "choices")))
        return self.print_totals()

    def print_totals(self) -> int:
        """Print a table of the operators. Return the number of violations."""
        table = Table(box=box.MARKDOWN)
        for column in (
            "operator",
            "calls",
            "violations",
            "largest error ÷ bound (call)",
            "seconds",
            "by type",
        ):
            table.add_column(column, no_wrap=True)
        for op in self.ops:
            totals = self.state.operators[op]
            worst = "" if totals.worst_at < 0 else f"{totals.worst:.4f} ({totals.worst_at})"
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(totals.kinds.items()))
            counts = f"{totals.next:,}", str(len(totals.failures))
            table.add_row(op, *counts, worst, f"{totals.seconds:.0f}", kinds)
        Console(file=self.console.file, width=200).print(table)
        violations = sum(len(self.state.operators[op].failures) for op in self.ops)
        left = self.total() - self.done()
        result = "FAIL" if violations else "OK" if self.done() else "NOTHING JUDGED"
        self.console.print(
            f"{result}: {self.done():,} calls on {self.options.backend}, seed"
            f" {self.options.seed}: {violations} violations" + (f"; {left:,} calls are left" if left else "")
        )
        return violations


def kind_of(problem: str) -> str:
    """Return the kind of a problem: the type of an exception, the end of a process, or a wrong result."""
    first = problem.partition(":")[0]
    is_known = first.isidentifier() or "the process" in problem or not problem
    return first if is_known else "wrong result"


def ended_outcome(index: int, problem: str, text: str, made: list[int]) -> Outcome:
    """Return the outcome of a call that ended or blocked its process."""
    outcome = Outcome(failures=[(index, problem, text, made)])
    outcome.kinds[NO_RESULT] += 1
    return outcome


@contextlib.contextmanager
def progress_bar(run: Run) -> Iterator[Callable[[], None]]:
    """Show a progress bar if stderr is a terminal. It has no thread, because the processes are forked."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(f"random calls on {run.options.backend}", total=run.total())

        def show() -> None:
            violations = sum(len(run.state.operators[op].failures) for op in run.ops)
            words = f"random calls on {run.options.backend}, {violations} violations"
            bar.update(task, completed=run.done(), description=words, refresh=True)

        yield show


# ---- the program ---------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_runs.py", HELP, EXAMPLES, "call", 1000)
    cores = len(os.sched_getaffinity(0))
    add = parser.add_argument
    add("--op", action="append", choices=OPERATORS, help="calls of this operator only; repeatable")
    add("--backend", default="cpu", metavar="NAME", help="cpu (default), sim, sim:<soc>, npu, reference")
    add("--jobs", type=int, default=cores, metavar="N", help=f"processes (the machine's cores: {cores})")
    add("--minutes", type=float, metavar="M", help="begin no call after M minutes")
    add("--state", type=Path, metavar="FILE", help="continue the run in this file, and keep it up to date")
    add("--choices", metavar="LIST", help="with --only: make these choices, as a violation's line has them")
    options = parse(parser, given, smallest_count=0)
    most = MOST_JOBS_PER_CORE * cores
    if not 1 <= options.jobs <= most:
        parser.error(f"--jobs must be in 1..{most} on {cores} cores but got {options.jobs}")
    if options.minutes is not None and not options.minutes >= 0:  # nor nan
        parser.error(f"--minutes must be at least 0 but got {options.minutes:g}")
    if options.only is not None and (options.state is not None or len(options.op or ()) != 1):
        parser.error("--only must come with one --op and without --state")
    if options.choices is not None and options.only is None:
        parser.error("--choices must come with --only")
    if options.choices is not None:
        parts = options.choices.split(",")
        if not all(part.isdecimal() and len(part) <= MOST_DIGITS for part in parts):
            rule = f"numbers with commas, each at least 0 and at most {MOST_DIGITS} digits"
            parser.error(f"--choices must be {rule}, but got {options.choices}")
        options.choices = tuple(map(int, parts))
    return options


def main(given: Sequence[str] | None = None) -> int:
    options, console = arguments(given), Console(highlight=False, markup=False, soft_wrap=True)
    settings = {
        "backend": options.backend,
        "seed": options.seed,
        "arrays": list(random_operators.ARRAYS),
        "draws": version_of_draws(),
    }
    run = None
    file = None
    try:
        file = StateFile(options.state)
        state = load_state(file, settings)
        file.save(state.text())  # an unwritable file ends the run here
        if options.only is not None:
            options.jobs = 1
        run = Run(options, state, file, console)
        if options.only is not None:
            return run.only(options.op[0], options.only, options.choices)
        minutes = float("inf") if options.minutes is None else options.minutes
        try:
            run.judge(time.monotonic() + 60 * minutes)
        finally:  # also after an interruption
            file.save(state.text())
        return 1 if run.report() else 0 if run.done() else 2
    except KeyboardInterrupt:
        if run is not None:
            run.print_totals()
        return 130
    except (BadUsage, CannotStart) as error:
        print(f"random_runs.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        rule = "output must fit on the disk but got" if error.filename is None else str(error.filename)
        print(f"random_runs.py: {rule}: {error.strerror}.", file=sys.stderr)
        return 2
    finally:
        if run is not None:
            run.close()
        if file is not None:
            file.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C, the state is saved
    sys.exit(main())
