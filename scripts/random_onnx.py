"""Run random RotaryEmbedding models by npu_rope, ONNX Runtime and ONNX's ReferenceEvaluator; see --help.

npu_rope/testing/random_onnx.py draws and judges the models.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from npu_rope.testing.random_onnx import ELEMENTS, EXPLAINED, OnnxCase, Outcome, draw, run
from npu_rope.testing.random_runs import parse, parser_of, show_failures

HELP = """\
Draw random ONNX models of one RotaryEmbedding node (opset 23), run each by npu_rope's backends, by ONNX
Runtime and by ONNX's ReferenceEvaluator, and judge every result against the specification's algorithm in
float64.

A model is drawn from the seed and its number: [B,N,S,D] or [B,S,hidden], whole or partial window, halves or
interleaved, caches with position_ids or without, float32, float16, bfloat16.

Judged: npu_rope must stay within the bound of float32 arithmetic rounded once. A peer beyond it is listed;
beyond the bound of arithmetic in the tensors' own type, or if it refuses a model for an unknown reason, it
counts as an unexplained disagreement.
"""
EXAMPLES = """\
examples:

  random_onnx.py                      two thousand models
  random_onnx.py --only 29            one model again, in words
  random_onnx.py --dtype float16 --count 500 --seed 7

exit status: 0 npu_rope within its bound and every disagreement explained; 1 not so; 2 bad usage.
"""


@dataclass
class Tally:
    """The results of one implementation's models of one type."""

    models: int = 0
    worst: float = 0.0
    beyond: int = 0  # our bound
    refused: Counter[str] = field(default_factory=Counter)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_onnx.py", HELP, EXAMPLES, "model", 2000)
    add = parser.add_argument
    add("--dtype", action="append", choices=tuple(ELEMENTS), help="of this type only; repeatable")
    add("--backend", action="append", metavar="NAME", help="of npu_rope; repeatable (cpu and reference)")
    return parse(parser, given, least=1)


def explanation(refusal: str) -> str | None:
    """The known reason for a peer's refusal, or None."""
    return next((why for words, why in EXPLAINED.items() if words in refusal), None)


def wrong(outcome: Outcome, ours: Sequence[str]) -> list[str]:
    """The unexplained parts of an outcome, in words."""
    found = [f"{who}: {outcome.ratios[who]:.3g} of the bound" for who in ours if not outcome.ratios[who] <= 1]
    for who, ratio in outcome.own_type_ratios.items():
        if who not in ours and not ratio <= 1:
            found.append(f"{who}: {ratio:.3g} of the bound of its own type's arithmetic")
    for who, text in outcome.refusals.items():
        if explanation(text) is None:
            found.append(f"{who} refuses: {text}")
    return found


def show_one(case: OnnxCase, outcome: Outcome, console: Console) -> None:
    console.print(case.text, highlight=False, markup=False)
    for who, ratio in outcome.ratios.items():
        console.print(f"  {who}: {ratio:.3g} of the bound", highlight=False)
    for who, text in outcome.refusals.items():
        console.print(
            f"  {who} refuses: {text}\n    ({explanation(text) or 'not explained'})", highlight=False
        )


def report(tallies: dict[tuple[str, str], Tally], console: Console) -> None:
    table = Table(box=None)
    for name in ("who", "type", "models", "largest error / bound", "beyond it", "refused"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("who", "type") else "right")
    for (who, dtype), t in sorted(tallies.items()):
        worst = f"{t.worst:.4f}" if t.models else "-"
        table.add_row(who, dtype, str(t.models), worst, str(t.beyond), str(t.refused.total()))
    console.print(table)
    for (who, dtype), t in sorted(tallies.items()):
        for why, count in t.refused.items():
            console.print(f"{who} refuses {count} of {dtype}: {why}", highlight=False)
        if t.beyond:
            console.print(
                f"{who} leaves our bound in {t.beyond} of {dtype}: it computes in {dtype}", highlight=False
            )


def main(given: Sequence[str] | None = None) -> int:
    options, console = arguments(given), Console()
    backends = tuple(options.backend or ("cpu", "reference"))
    dtypes = tuple(options.dtype or ELEMENTS)
    if options.only is not None:
        case = draw(options.seed, options.only, dtypes)
        outcome = run(case, backends)
        show_one(case, outcome, console)
        return 1 if wrong(outcome, backends) else 0
    import onnxruntime

    console.print(
        f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, seed {options.seed}",
        highlight=False,
    )
    tallies: dict[tuple[str, str], Tally] = {}
    failures: list[str] = []
    quiet = not sys.stderr.isatty()
    for index in track(range(options.count), "models", console=Console(stderr=True), disable=quiet):
        case = draw(options.seed, index, dtypes)
        outcome = run(case, backends)
        for who, ratio in outcome.ratios.items():
            tally = tallies.setdefault((who, case.dtype), Tally())
            tally.models += 1
            tally.worst = max(tally.worst, ratio)
            tally.beyond += not ratio <= 1
        for who, text in outcome.refusals.items():
            reason = explanation(text) or "not explained"
            tallies.setdefault((who, case.dtype), Tally()).refused[reason] += 1
        failures += [f"--only {index}: {what}" for what in wrong(outcome, backends)]
    report(tallies, console)
    show_failures(failures, partial(console.print, highlight=False, markup=False))
    told = "FAIL" if failures else "OK"
    console.print(
        f"{told}: {options.count} models, {len(failures)} unexplained disagreements", highlight=False
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
