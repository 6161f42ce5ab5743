"""Run random calls of the norms, of rms_norm_rope, qkv_norm_rope_cache or qk_square_sums, and judge each;
see --help.

random_norm_calls.py, random_norm_ropes.py, random_qkv.py and random_square_sums.py draw and judge the calls.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import random_norm_calls
import random_norm_ropes
import random_qkv
import random_square_sums
from random_norm_calls import DTYPES
from random_runs import parse, parser_of, show_failures
from rich.console import Console
from rich.progress import track

HELP = """\
Draw random calls of rms_norm, rms_norm_backward and add_rms_norm. They vary the rank, the axis, the strides,
the stash type and epsilon. The scale has any type and any shape that broadcasts. A row has 1 to 1,000,003
elements, with values from the full range of their type. Each result is compared with an expected value, which
follows the specification in long double and rounds only where the specification rounds.

--op rms_norm_rope draws calls of rms_norm_rope in every mode and window, with and without caches, with and
without intermediate rounding. With intermediate rounding and without a cache, the results must be equal, bit
for bit, to those of rms_norm followed by rope_qk.

--op qkv_norm_rope_cache draws calls with each kind of norm, of tables and of caches, on arrays and tensors.

--op qk_square_sums draws calls with 1 to 400 tokens of up to a million elements, as views of many kinds.
"""
EXAMPLES = """\
examples:

  random_norm.py                      ten thousand calls on cpu
  random_norm.py --only 29            repeat and describe one call
  random_norm.py --op rms_norm_rope
  random_norm.py --backend reference --dtype float16 --count 500 --seed 7

exit status: 0 every result is within its bound; 1 some are not; 2 bad usage.
"""
OPS: dict[str, Any] = {
    "rms_norm": random_norm_calls,
    "rms_norm_rope": random_norm_ropes,
    "qkv_norm_rope_cache": random_qkv,
    "qk_square_sums": random_square_sums,
}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_norm.py", HELP, EXAMPLES, "call", 10_000)
    add = parser.add_argument
    add(
        "--op",
        default="rms_norm",
        choices=OPS,
        help="the operators (rms_norm: also its backward and add_rms_norm)",
    )
    add("--dtype", action="append", choices=DTYPES, help="x of this type only; repeatable")
    add("--backend", default="cpu", metavar="NAME", help="back end of npu_rope (cpu)")
    return parse(parser, given, smallest_count=1)


def supported_calls(
    calls: Any, seed: int, dtypes: tuple[str, ...], backend: str
) -> Iterator[tuple[int, Any]]:
    """Yield calls and their numbers, without those that the back end's device refuses."""
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
            console.print(f"{call.text}\n  {options.backend}: does not support it; runs omit it")
            return 2
        ratio = calls.judge(call, options.backend)
        console.print(f"{call.text}\n  {options.backend}: {ratio:.4g} of the bound")
        return 0 if ratio <= 1 else 1
    began, worst, judged = time.monotonic(), 0.0, Counter[str]()
    failures: list[str] = []
    quiet = not sys.stderr.isatty()
    drawn = supported_calls(calls, options.seed, dtypes, options.backend)
    progress = track(range(options.count), "calls", console=Console(stderr=True), disable=quiet)
    for _, (index, call) in zip(progress, drawn, strict=False):
        try:
            ratio = calls.judge(call, options.backend)
        except (AssertionError, ValueError, TypeError, RuntimeError) as error:
            failures.append(f"--only {index}: {call.text}: {error}")
            continue
        judged[getattr(call, "kind", "forward")] += 1
        worst = max(worst, ratio)
        if not ratio <= 1:
            failures.append(f"--only {index}: {call.text}: {ratio:.4g} of the bound")
    show_failures(failures, console.print)
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(judged.items()))
    console.print(
        f"{'FAIL' if failures else 'OK'}: {options.count} calls on {options.backend} ({counts}) in"
        f" {time.monotonic() - began:.0f} s, seed {options.seed}: {len(failures)} violations,"
        f" largest error / bound {worst:.4f}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
