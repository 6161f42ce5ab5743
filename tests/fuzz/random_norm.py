"""Run random calls of the norms, or of rms_norm_rope, and judge each; see --help.

random_norms.py and random_norm_ropes.py draw and judge the calls.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import random_norm_ropes
import random_norms
from random_norms import DTYPES
from random_runs import parse, parser_of, show_failures
from rich.console import Console
from rich.progress import track

HELP = """\
Draw random calls of rms_norm, rms_norm_backward and add_rms_norm: any rank and axis, scales of any broadcast
and type, strides, stash types, epsilons, rows of 1 to 1,000,003 elements and of every size their type has.
Each result is judged against the specification in long double, through the specification's roundings.

--op rms_norm_rope: calls of that one instead, in every mode and window, with caches and both roundings; with
intermediate rounding a result must also have the bits of its parts one after another.
"""
EXAMPLES = """\
examples:

  random_norm.py                      ten thousand calls on cpu
  random_norm.py --only 29            one call again, in words
  random_norm.py --op rms_norm_rope
  random_norm.py --backend reference --dtype float16 --count 500 --seed 7

exit status: 0 every result within its bound; 1 not so; 2 bad usage.
"""
OPS: dict[str, Any] = {"rms_norm": random_norms, "rms_norm_rope": random_norm_ropes}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_norm.py", HELP, EXAMPLES, "call", 10_000)
    add = parser.add_argument
    add("--op", default="rms_norm", choices=OPS, help="which calls (rms_norm, and its backward)")
    add("--dtype", action="append", choices=DTYPES, help="x of this type only; repeatable")
    add("--backend", default="cpu", metavar="NAME", help="of npu_rope (cpu)")
    return parse(parser, given, least=1)


def taken(calls: Any, seed: int, dtypes: tuple[str, ...], backend: str) -> Iterator[tuple[int, Any]]:
    """Calls and their numbers, without those that the backend's device rejects."""
    for index in count():
        call = calls.draw(seed, index, dtypes)
        if not calls.refused(call, backend):
            yield index, call


def main(given: Sequence[str] | None = None) -> int:
    options, console = arguments(given), Console(highlight=False, markup=False, soft_wrap=True)
    dtypes, calls = tuple(options.dtype or DTYPES), OPS[options.op]
    if options.only is not None:
        call = calls.draw(options.seed, options.only, dtypes)
        if calls.refused(call, options.backend):
            console.print(f"{call.text}\n  {options.backend}: does not take it, and runs leave it out")
            return 2
        ratio = calls.judge(call, options.backend)
        console.print(f"{call.text}\n  {options.backend}: {ratio:.4g} of the bound")
        return 0 if ratio <= 1 else 1
    began, worst, seen = time.monotonic(), 0.0, Counter[str]()
    failures: list[str] = []
    quiet = not sys.stderr.isatty()
    drawn = taken(calls, options.seed, dtypes, options.backend)
    progress = track(range(options.count), "calls", console=Console(stderr=True), disable=quiet)
    for _, (index, call) in zip(progress, drawn, strict=False):
        try:
            ratio = calls.judge(call, options.backend)
        except (AssertionError, ValueError, TypeError, RuntimeError) as error:
            failures.append(f"--only {index}: {call.text}: {error}")
            continue
        seen[getattr(call, "kind", "forward")] += 1
        worst = max(worst, ratio)
        if not ratio <= 1:
            failures.append(f"--only {index}: {call.text}: {ratio:.4g} of the bound")
    show_failures(failures, console.print)
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(seen.items()))
    console.print(
        f"{'FAIL' if failures else 'OK'}: {options.count} calls on {options.backend} ({counts}) in"
        f" {time.monotonic() - began:.0f} s, seed {options.seed}: {len(failures)} violations,"
        f" largest error / bound {worst:.4f}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
