"""Run workers (``worker.py``). If a worker is lost, start another one for the remaining units."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

WORKER = (sys.executable, "-m", "npu_rope.hardware.worker")
START_SECONDS = 300  # limit until a unit begins; the first unit waits for torch_npu and CANN to load
END_SECONDS = 60  # limit until a process that has sent all results ends
MAX_LOST = 8  # after this number of lost workers, the remaining units are not tried
_END = object()


@dataclass
class Work:
    """Units of one kind.

    Attributes:
        seconds: time limit of one unit.
        on_result: called once for each unit. A unit whose process ended or was stopped
            has the result ``{"lost": reason}``.
        lost: the number of lost workers.
    """

    kind: str
    units: Sequence[str]
    options: dict[str, Any]
    seconds: float
    on_result: Callable[[str, dict[str, Any]], None]
    remaining: list[str] = field(init=False)
    lost: int = 0

    def __post_init__(self) -> None:
        self.remaining = list(self.units)

    def finish(self, unit: str, result: dict[str, Any]) -> None:
        """Report a unit's result."""
        self.remaining.remove(unit)
        self.on_result(unit, result)


def run(work: Work) -> None:
    """Run all units of the work, in as many processes as necessary."""
    while work.remaining:
        _run_one_process(work)
        if work.lost >= MAX_LOST:
            for unit in list(work.remaining):
                work.finish(
                    unit, {"lost": f"not tried: the device or its process was lost {work.lost} times"}
                )


def _run_one_process(work: Work) -> None:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        lines: queue.Queue[Any] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        try:
            _send_request(process, work)
            unit, reason = _receive_results(work, lines)
            if reason is None:
                _wait_for_end(process)
        finally:
            process.kill()
            status = process.wait()
            reader.join(END_SECONDS)  # not forever: a child process may keep the pipe open
        if reason is None:
            return
        work.lost += 1
        reason = reason or _describe_end(status)
        work.finish(unit or work.remaining[0], {"lost": reason, "printed": _last_output(errors)})


def _send_request(process: subprocess.Popen[bytes], work: Work) -> None:
    assert process.stdin is not None
    request = {"kind": work.kind, "units": work.remaining, "options": work.options}
    # _receive_results detects a process that has already ended.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(request).encode())


def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has sent all results, so that it can close its device."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[Any]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(_END)


def _receive_results(work: Work, lines: queue.Queue[Any]) -> tuple[str | None, str | None]:
    """Return the lost unit and the reason. The reason is None if nothing was lost, and empty if the process
    ended."""
    unit: str | None = None
    limit: float = START_SECONDS
    while True:
        try:
            line = lines.get(timeout=limit)
        except queue.Empty:
            return unit, f"stopped after {limit:g} seconds without an answer"
        if line is _END:
            return unit, ""
        try:
            event = json.loads(line)
        except ValueError:
            return unit, "its process ended while it wrote a result"
        if "begin" in event:
            unit, limit = event["begin"], work.seconds
        elif "unit" in event:
            unit, limit = None, START_SECONDS
            work.finish(event["unit"], event["result"])
        else:
            work.lost += "stop" in event  # the device failed; the next process continues
            return None, None


def _describe_end(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"its process was ended by signal {name}"


def _last_output(errors: IO[bytes], characters: int = 2000) -> str:
    """Return the last characters of the output."""
    end = errors.seek(0, 2)
    errors.seek(max(0, end - characters))
    return errors.read().decode(errors="replace").strip()
