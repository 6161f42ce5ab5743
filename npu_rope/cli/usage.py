"""The faults of a command's options."""

from __future__ import annotations

import sys

import typer

USAGE_ERROR = 2


def usage_error(text: str) -> typer.Exit:
    """Print the fault of a command, and return the exit that ends it."""
    print(text, file=sys.stderr)
    return typer.Exit(USAGE_ERROR)
