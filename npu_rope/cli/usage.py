"""Values and errors of options, for all commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ascend_sim.cli.application import usage_error
from ascend_sim.files import shared, unwritable

__all__ = ["numbers", "require_writable", "usage_error"]


def require_writable(command: str, read: Sequence[tuple[str, Path]] = (), **files: Path | None) -> None:
    """Raise a usage error for the first option whose file cannot be written, or is another option's file.

    Args:
        command: the command's name in the message.
        read: the files that the command reads, with the names of their options.
        files: the files that it writes.
    """
    for name, path in files.items():
        if path is not None and (reason := unwritable(path)):
            raise usage_error(f"[{command}] {name} {reason}")
    if reason := shared(read, **files):
        raise usage_error(f"[{command}] {reason}")


def numbers(text: str) -> tuple[int, ...]:
    """Return the integers of a text such as ``1,2``; empty if the text has another form."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        return ()
