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

from random_calls import ARRAYS, OPERATORS, RandomCall, draw, limits_of
from random_judge import Execute, execute, judge, reduce
from random_runs import MOST_SHOWN, parse, parser_of

from npu_rope import backends
from npu_rope.errors import BackendUnavailable
from npu_rope.optional_torch import torch

HELP = """\
Draw random calls of rope, rope_qk and rope_set_rows, run them on one back end and judge each.

A call is drawn from the seed and its number. It has any operator, mode, sections (empty, too short or too
long), sizes, strides (corners, parts of rows at any offset, transposes, slices of fused projections, shared
batches, reversed axes), element types, the kind of output, window, freq_factors, YaRN, scaling, base,
backward, angle policy, and positions of every shape and of the full range of the back end.

Every result must be within the bounds of npu_rope/testing/bounds.py around the float64 reference (on
simulated cores the device's bounds). Inputs and the memory around the outputs must be unchanged. One element
of most references is compared with the specification's formula.
"""
EXAMPLES = """\
examples:

  random_rope.py                                         a thousand calls on the CPU, two seconds
  random_rope.py --backend sim --count 2000              on the simulated Ascend910B
  random_rope.py --count 100000 --minutes 9 --resume cpu.json
                                                         at most nine minutes; run it again to continue
  random_rope.py --backend sim --seed 3 --only 4711      repeat and describe one call, and the simplest
                                                         similar call that is also wrong

With --resume, the run saves its progress in the file every few seconds and on an interruption. If a call
ends the process, its number is at least the file's "next".

exit status: 0 no violation in this run or an earlier one of the same file; 1 violations, the first
20 with lines that repeat them; 2 bad usage, or the back end is absent; 130 interrupted.
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
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"version": VERSION, **asdict(self)}, indent=1))
        os.replace(temporary, path)


class BadUsage(Exception):
    """An error that ends the script with status 2."""


def load(path: Path | None, settings: dict[str, Any]) -> State:
    """Return the state of an earlier run with the same settings, or a new one."""
    if path is None or not path.exists():
        return State(settings)
    try:
        content = json.loads(path.read_text())
        version, state = content.pop("version"), State(**content)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise BadUsage(f"--resume must be a file of an earlier run but got {path} ({error})") from None
    if version != VERSION or state.settings != settings:
        raise BadUsage(f"--resume must be a file of a run with {settings} but got one with {state.settings}")
    return state


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_rope.py", HELP, EXAMPLES, "call", 1000)
    add = parser.add_argument
    add("--backend", default="cpu", metavar="NAME", help="cpu (default), sim, sim:ascend310p, reference")
    add("--minutes", type=float, metavar="M", help="stop after M minutes")
    add("--resume", type=Path, metavar="FILE", help="continue the run in this file, and keep it up to date")
    add("--op", action="append", choices=OPERATORS, help="calls of this operator only; repeatable")
    add(
        "--arrays",
        choices=("both", *ARRAYS),
        default="both",
        help="NumPy arrays, torch tensors, or both (both)",
    )
    options = parse(parser, given, smallest_count=0)
    if options.only is not None and options.resume is not None:
        parser.error("--only must come without --resume")
    return options


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that determine the calls."""
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
    limits = limits_of(settings["backend"])
    return draw(settings["seed"], index, limits, settings["operators"], settings["arrays"])


def reproducer(settings: dict[str, Any], index: int) -> str:
    """Return the line that repeats one call."""
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
        print(f"correct: largest error {verdict.ratio:.3g} of its bound")
        return 0
    print(f"WRONG: {verdict.problem}")
    simplest = reduce(call, settings["backend"], run)
    print(f"simplest: {simplest}\n          {judge(simplest, settings['backend'], run).problem}")
    return 1


def show(settings: dict[str, Any], failure: dict[str, Any]) -> None:
    print(f"WRONG {failure['index']}: {failure['problem']}\n  {failure['call']}")
    print(f"  {reproducer(settings, failure['index'])}", flush=True)


def run_many(
    state: State, until: int, deadline: float, save: Callable[[], None], run: Execute
) -> Iterator[int]:
    """Judge calls and update the state after each; yield the number of judged calls."""
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
        kind = f"{call.op} {call.params.rope_mode.name.lower()}"
        state.judged[kind] = state.judged.get(kind, 0) + 1
        state.next += 1
        now = time.monotonic()
        state.seconds += now - began
        if now - saved > SECONDS_BETWEEN_SAVES:
            save()
            saved = now
        yield state.next


@contextlib.contextmanager
def progress(state: State, until: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if stderr is a terminal."""
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
    violations = f"{len(state.failures)} violation{'' if len(state.failures) == 1 else 's'}"
    line = f"{state.next:,} calls on {backend} (seed {seed}) in {state.seconds:.0f} s: {violations}"
    if state.worst_at >= 0:
        line += f"; largest error {state.worst:.4f} of its bound, call {state.worst_at}"
    modes: dict[str, list[str]] = {}
    for kind, count in sorted(state.judged.items()):
        op, mode = kind.split()
        modes.setdefault(op, []).append(f"{mode} {count:,}")
    lines = [line, *(f"  {op}: {', '.join(counts)}" for op, counts in modes.items())]
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
        state.save(options.resume)  # an unwritable file ends the run here
    except (BadUsage, OSError) as error:
        print(f"random_rope.py: {error}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    interrupted = False
    try:
        with progress(state, options.count) as advance:
            save = lambda: state.save(options.resume)  # noqa: E731
            for done in run_many(state, options.count, deadline, save, run):
                advance(done)
    except KeyboardInterrupt:
        interrupted = True
    finally:  # also after an error of this script or of its output
        state.save(options.resume)
    if len(state.failures) > MOST_SHOWN:
        print(f"and {len(state.failures) - MOST_SHOWN} more")
    print(summary(state, options.count))
    return 130 if interrupted else 1 if state.failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C, the state is saved
    sys.exit(main())
