"""Requests to end a command: SIGTERM, which timeout(1) and schedulers send, is treated like Ctrl+C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM, and ignore further ones: ``timeout`` sends one to each
    process of the group, and ``npu-rope sim`` sends its own on to the command.

    The previous handler is restored, unless a SIGTERM came: then the command ends.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, previous)
