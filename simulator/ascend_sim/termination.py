"""Requests to end a command are treated like Ctrl+C: SIGTERM, as timeout(1) and schedulers send it, and
SIGHUP, as a terminal sends it when it is closed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["termination_as_interrupt"]


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM or SIGHUP, and ignore further ones: ``timeout`` sends one
    to each process of the group, and ``npu-rope sim`` sends its own on to the command.

    A signal that the process ignores, as SIGHUP under nohup(1), stays ignored. The previous handlers are
    restored, unless a signal came: then the command ends.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in previous:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    requests = (signal.SIGTERM, signal.SIGHUP)
    previous = {
        each: signal.getsignal(each) for each in requests if signal.getsignal(each) is not signal.SIG_IGN
    }
    for each in previous:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in previous.items():
            if signal.getsignal(each) is interrupt:
                signal.signal(each, handler)
