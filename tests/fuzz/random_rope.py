"""Run random calls of rope, rope_qk and rope_set_rows and judge each; see --help.

random_calls.py draws the calls; random_judge.py judges them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from random_calls import ARRAYS, OPERATORS, RandomCall, draw, reach_of
from random_judge import Execute, execute, judge, reduce
from random_runs import MOST_SHOWN, parse, parser_of

from npu_rope import backends
from npu_rope.errors import BackendUnavailable
from npu_rope.optional_torch import torch

HELP = """\
Draw random calls of rope, rope_qk and rope_set_rows, run them on one back end and judge each.

A call is drawn from the seed and its number: operator, mode, sections (empty ones, too short or too
long), sizes, strides (corners, parts of rows at any offset, transposes, slices of fused projections, one
batch for all, backwards), element types, where it writes to, window, freq_factors, YaRN, scaling, base,
backward, angle policy, and positions of every shape and of the whole range that the back end takes.

Judged: every result against the float64 reference, within the bounds of npu_rope/testing/bounds.py (the
device's on simulated cores); inputs unchanged; memory beside the outputs unchanged; the reference itself,
in one element a call, against the specification's formula.
"""
EXAMPLES = """\
examples:

  random_rope.py                                         a thousand calls on the CPU, two seconds
  random_rope.py --backend sim --count 2000              on the simulated Ascend910B
  random_rope.py --count 100000 --minutes 9 --resume cpu.json
                                                         two minutes of calls; run it again to continue
  random_rope.py --backend sim --seed 3 --only 4711      one call again, in words, and the simplest similar
                                                         call that is also wrong

With --resume the file holds the progress (written every few seconds, and on an interruption), so that only
the calls since are lost. If a call ends the process, it is one of those after the file's "next".

exit status: 0 no violation, in this run or an earlier one of the same file; 1 some, each shown with the line
that runs it again; 2 bad usage, or the back end is not here; 130 interrupted.
"""
VERSION = 1
SECONDS_BETWEEN_SAVES = 2.0


@dataclass
class State:
    """The progress of a run."""

    settings: dict[str, Any]
    next: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    worst_at: int = -1
    judged: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def save(self, path: Path | None) -> None:
        """Write the file atomically: after an interruption it holds the old or the new state."""
        if path is None:
            return
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(json.dumps({"version": VERSION, **asdict(self)}, indent=1))
        os.replace(beside, path)


class BadUsage(Exception):
    """Ends with status 2."""


def load(path: Path | None, settings: dict[str, Any]) -> State:
    """The state of an earlier run with the same settings, or a new one."""
    if path is None or not path.exists():
        return State(settings)
    try:
        held = json.loads(path.read_text())
        version, state = held.pop("version"), State(**held)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise BadUsage(f"--resume must be a file of an earlier run but got {path} ({error})") from None
    if version != VERSION or state.settings != settings:
        raise BadUsage(f"--resume must be a file of a run with {settings} but got one with {state.settings}")
    return state


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_rope.py", HELP, EXAMPLES, "call", 1000)
    add = parser.add_argument
    add("--backend", default="cpu", metavar="NAME", help="cpu (default), sim, sim:ascend310p, reference")
    add("--minutes", type=float, metavar="M", help="stop after so many")
    add("--resume", type=Path, metavar="FILE", help="continue the run in this file, and keep it up to date")
    add("--op", action="append", choices=OPERATORS, help="of this operator only; repeatable")
    add("--arrays", choices=("both", *ARRAYS), default="both", help="NumPy arrays, torch tensors (both)")
    options = parse(parser, given, least=0)
    if options.only is not None and options.resume is not None:
        parser.error("--only must come without --resume")
    return options


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that determine a call's numbers."""
    if torch is None and options.arrays != "numpy":
        raise BadUsage("--arrays must be numpy where torch is not installed")
    try:
        backends.find(options.backend).require()
    except (ValueError, BackendUnavailable) as error:
        raise BadUsage(str(error)) from None
    return {
        "backend": options.backend,
        "seed": options.seed,
        "operators": list(options.op or OPERATORS),
        "arrays": list(ARRAYS if options.arrays == "both" else (options.arrays,)),
    }


def call_of(settings: dict[str, Any], index: int) -> RandomCall:
    reach = reach_of(settings["backend"])
    return draw(settings["seed"], index, reach, settings["operators"], settings["arrays"])


def reproducer(settings: dict[str, Any], index: int) -> str:
    """The line that runs one call again."""
    line = f"python tests/fuzz/random_rope.py --backend {settings['backend']} --seed {settings['seed']}"
    if settings["operators"] != list(OPERATORS):
        line += "".join(f" --op {op}" for op in settings["operators"])
    if settings["arrays"] != list(ARRAYS):
        line += f" --arrays {settings['arrays'][0]}"
    return f"{line} --only {index}"


def run_one(settings: dict[str, Any], index: int, run: Execute) -> int:
    call = call_of(settings, index)
    print(call)
    verdict = judge(call, settings["backend"], run)
    if not verdict.problem:
        print(f"right: largest error {verdict.ratio:.3g} of its bound")
        return 0
    print(f"WRONG: {verdict.problem}")
    plainest = reduce(call, settings["backend"], run)
    print(f"plainest: {plainest}\n          {judge(plainest, settings['backend'], run).problem}")
    return 1


def show(settings: dict[str, Any], failure: dict[str, Any]) -> None:
    print(f"WRONG {failure['index']}: {failure['problem']}\n  {failure['call']}")
    print(f"  {reproducer(settings, failure['index'])}", flush=True)


def run_many(
    state: State, until: int, deadline: float, keep: Callable[[], None], run: Execute
) -> Iterator[int]:
    """Judge call after call, the state always true; yields how many are done."""
    backend, saved = state.settings["backend"], time.monotonic()
    while state.next < until and time.monotonic() < deadline:
        began = time.monotonic()
        call = call_of(state.settings, state.next)
        verdict = judge(call, backend, run)
        if verdict.problem:
            failure = {"index": state.next, "problem": verdict.problem, "call": str(call)}
            state.failures.append(failure)
            if len(state.failures) <= MOST_SHOWN:
                show(state.settings, failure)
        elif verdict.ratio > state.worst:
            state.worst, state.worst_at = verdict.ratio, state.next
        what = f"{call.op} {call.params.rope_mode.name.lower()}"
        state.judged[what] = state.judged.get(what, 0) + 1
        state.next += 1
        now = time.monotonic()
        state.seconds += now - began
        if now - saved > SECONDS_BETWEEN_SAVES:
            keep()
            saved = now
        yield state.next


@contextlib.contextmanager
def progress(state: State, until: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"random calls on {state.settings['backend']}", total=until, completed=state.next)
        yield lambda done: bar.update(task, completed=done)


def summary(state: State, until: int) -> str:
    backend, seed = state.settings["backend"], state.settings["seed"]
    many = f"{len(state.failures)} violation{'' if len(state.failures) == 1 else 's'}"
    said = f"{state.next:,} calls on {backend} (seed {seed}) in {state.seconds:.0f} s: {many}"
    if state.worst_at >= 0:
        said += f"; largest error {state.worst:.4f} of its bound, call {state.worst_at}"
    modes: dict[str, list[str]] = {}
    for what, count in sorted(state.judged.items()):
        op, mode = what.split()
        modes.setdefault(op, []).append(f"{mode} {count:,}")
    lines = [said, *(f"  {op}: {', '.join(counts)}" for op, counts in modes.items())]
    if state.next < until:
        lines.append(f"  {until - state.next:,} of {until:,} calls are left")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None, run: Execute = execute) -> int:
    options = arguments(given)
    try:
        settings = settings_of(options)
        if options.only is not None:
            return run_one(settings, options.only, run)
        state = load(options.resume, settings)
        state.save(options.resume)  # what cannot be written is found out now
    except (BadUsage, OSError) as error:
        print(f"random_rope.py: {error}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    interrupted = False
    try:
        with progress(state, options.count) as moved:
            keep = lambda: state.save(options.resume)  # noqa: E731
            for done in run_many(state, options.count, deadline, keep, run):
                moved(done)
    except KeyboardInterrupt:
        interrupted = True
    finally:  # whatever ended it, a defect of this script or of what it prints to included
        state.save(options.resume)
    if len(state.failures) > MOST_SHOWN:
        print(f"and {len(state.failures) - MOST_SHOWN} more")
    print(summary(state, options.count))
    return 130 if interrupted else 1 if state.failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: keep the state
    sys.exit(main())
