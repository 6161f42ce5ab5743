"""End the processes of a run that was killed.

    python -I -S watcher.py RUN

The run writes a byte to the standard input of this process when its command has ended. If the input ends
without a byte, the run was killed. This process then ends every process whose environment has
``ASCEND_SIM_RUN=RUN``: first by SIGTERM, at which a launcher such as torchrun ends its own processes, later
by SIGKILL. A process that was started with another environment is not found.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "ASCEND_SIM_RUN"
SECONDS = 5  # between SIGTERM and SIGKILL


def processes_of(run: str) -> list[int]:
    """Return the numbers of the processes that have this run in their environment."""
    entry, found = f"{VARIABLE}={run}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if entry in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


def send(number: int, signal_number: signal.Signals) -> None:
    """Send a signal to a process. Do nothing if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(number, signal_number)


def end_all(run: str) -> None:
    """End all processes of the run."""
    requested: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while running := processes_of(run):
        is_late = time.monotonic() > deadline
        for number in running:
            if is_late:
                send(number, signal.SIGKILL)
            elif number not in requested:
                send(number, signal.SIGTERM)
        requested.update(running)
        time.sleep(0.05)


if __name__ == "__main__":
    if not sys.stdin.buffer.read():
        end_all(sys.argv[1])
