"""Start and end of a program's command line."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = ["main"]

USAGE_ERROR = 2
INTERRUPTED = 128 + 2  # as a shell reports SIGINT
# No space, a quota, or the largest size of a file (ulimit -f).
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED_PIPE = 128 + 13  # as a shell reports SIGPIPE

ErrorKind = TypeVar("ErrorKind", bound=BaseException)


def main(program: str, run: Callable[[], None]) -> None:
    """Run a program's commands.

    After an interrupt or a closed pipe, exit with the status that a shell reports. A full disk, a missing
    folder for temporary files and too little memory are errors. So is a closed standard output: Python has
    no stream for it, and the first file that is opened would get its number.

    Args:
        program: its name, for messages.
        run: imports the commands and runs them. They need typer and rich.
    """
    if sys.stdout is None:
        print(f"[{program}] standard output must be open but got none: use >/dev/null.", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)
    _escape_unencodable_characters()
    try:
        try:
            _run(program, run)
        finally:
            sys.stdout.flush()
    except BaseException as error:
        if _cause_of_kind(error, BrokenPipeError):
            _discard_output()
            raise SystemExit(CLOSED_PIPE) from None
        if _cause_of_kind(error, KeyboardInterrupt):
            print(f"[{program}] interrupted.", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        file_error = _cause_of_kind(error, OSError)
        if file_error is not None and file_error.errno in FULL:
            print(f"[{program}] output must fit on the disk but got: {file_error.strerror}.", file=sys.stderr)
            _discard_output()
            raise SystemExit(USAGE_ERROR) from None
        if file_error is not None and "temporary directory" in str(file_error.strerror):  # of tempfile
            tried = str(file_error.strerror).partition(" in ")[2]
            rule = f"temporary files must have a folder that can be written but got none of {tried}."
            print(f"[{program}] {rule}\nSet TMPDIR to such a folder.", file=sys.stderr)
            raise SystemExit(USAGE_ERROR) from None
        if memory_error := _cause_of_kind(error, MemoryError):
            cause = f": {memory_error}" if str(memory_error) else ""
            print(f"[{program}] memory must suffice for the command but did not{cause}.", file=sys.stderr)
            raise SystemExit(USAGE_ERROR) from None
        raise


def _escape_unencodable_characters() -> None:
    """Print escapes for characters that the terminal cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            with contextlib.suppress(OSError):  # a stream that cannot be reconfigured
                stream.reconfigure(errors="backslashreplace")


def _run(program: str, run: Callable[[], None]) -> None:
    try:
        run()
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            f"[{program}] command line must have typer and rich but got {error}.\n"
            f"Install them with: pip install '{program}[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(USAGE_ERROR) from None


def _cause_of_kind(error: BaseException | None, kind: type[ErrorKind]) -> ErrorKind | None:
    """Return the error of ``kind`` that caused this one: typer and rich convert exceptions to SystemExit."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def _discard_output() -> None:
    """Discard buffered output, because Python would report an error about it at exit."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null_device, stream)
