"""Options of the programs random_*.py, and the list of failures that they print."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

MOST_SHOWN = 20


def parser_of(script: str, text: str, examples: str, noun: str, count: int) -> argparse.ArgumentParser:
    """Return a parser with ``--count``, ``--seed`` and ``--only``. ``noun`` is "call" or "model"."""
    parser = argparse.ArgumentParser(
        prog=script,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--count", type=int, default=count, metavar="N", help=f"{noun}s ({count})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=f"seed of the {noun}s (0)")
    parser.add_argument("--only", type=int, metavar="INDEX", help=f"run and describe this {noun} only")
    return parser


def parse(
    parser: argparse.ArgumentParser, given: Sequence[str] | None, smallest_count: int
) -> argparse.Namespace:
    """Return the options; ``smallest_count`` is the smallest ``--count``."""
    options = parser.parse_args(given)
    if options.count < smallest_count:
        parser.error(f"--count must be at least {smallest_count} but got {options.count}")
    if options.only is not None and options.only < 0:
        parser.error(f"--only must be at least 0 but got {options.only}")
    return options


def show_failures(failures: Sequence[str], show: Callable[[str], None]) -> None:
    """Show the first failures and the number of the others."""
    for line in failures[:MOST_SHOWN]:
        show(line)
    if len(failures) > MOST_SHOWN:
        show(f"... and {len(failures) - MOST_SHOWN} more")
