"""Parts that random_norm.py, random_onnx.py and random_rope.py share: their command lines, and the
list of violations at the end of a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

MOST_SHOWN = 20


def parser_of(script: str, text: str, examples: str, what: str, count: int) -> argparse.ArgumentParser:
    """Return a parser with ``--count``, ``--seed`` and ``--only``; ``what`` is drawn ``count`` times."""
    parser = argparse.ArgumentParser(
        prog=script,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--count", type=int, default=count, metavar="N", help=f"{what}s ({count})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=f"another seed, other {what}s (0)")
    parser.add_argument("--only", type=int, metavar="INDEX", help=f"one {what}, in words")
    return parser


def parse(parser: argparse.ArgumentParser, given: Sequence[str] | None, least: int) -> argparse.Namespace:
    """Return the options; ``least`` is the smallest ``--count``."""
    options = parser.parse_args(given)
    if options.count < least:
        parser.error(f"--count must be at least {least} but got {options.count}")
    if options.only is not None and options.only < 0:
        parser.error(f"--only must be at least 0 but got {options.only}")
    return options


def show_failures(failures: Sequence[str], show: Callable[[str], None]) -> None:
    """Show the first violations, and the number of the others."""
    for line in failures[:MOST_SHOWN]:
        show(line)
    if len(failures) > MOST_SHOWN:
        show(f"... and {len(failures) - MOST_SHOWN} more")
