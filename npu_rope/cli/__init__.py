"""The command line ``npu-rope``. Each command has a module; this one joins them."""

from __future__ import annotations

import contextlib
import io
import os
import sys

INTERRUPTED = 128 + 2  # as a shell reports SIGINT
CLOSED_PIPE = 128 + 13  # and SIGPIPE


def main() -> None:
    """Entry point of ``npu-rope``."""
    _take_any_letter()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except BaseException as error:
        if _came_from(error, BrokenPipeError):
            _silence()
            raise SystemExit(CLOSED_PIPE) from None
        if _came_from(error, KeyboardInterrupt):
            print("[npu-rope] interrupted.", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        raise


def _take_any_letter() -> None:
    """Print escapes for characters that the terminal cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            with contextlib.suppress(OSError):  # a stream without a position
                stream.reconfigure(errors="backslashreplace")


def _run() -> None:
    try:
        from npu_rope.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            f"[npu-rope] command line must have typer and rich but got {error}.\n"
            "Install them with: pip install typer rich",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()


def _came_from(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether an error of that kind caused this one: typer and rich convert what they catch to SystemExit."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error is not None


def _silence() -> None:
    """Discard buffered output, because Python would report an error about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
