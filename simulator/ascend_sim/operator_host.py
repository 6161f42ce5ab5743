"""Execute an operator's definition and tiling in a separate process.

The process runs a program that links the operator's host code with ``cann/host/op_sources.cpp``. The process
stays alive for further calls. If the operator's code crashes or exits, the caller gets an error. Two
operators may define the same function names, because each has its own process.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ascend_sim import folders
from ascend_sim.compiler import CompileFailed, compile_once, compiler, end_compilers

_FLAGS = ("-std=c++17", "-O0", "-fPIC", "-fno-strict-aliasing", "-w")
_COMPILE_JOBS = 2


class HostCodeFailed(RuntimeError):
    """The operator's host code ended its process, threw, or cannot serve the call."""


def build_host(
    sources: Sequence[Path], include: Sequence[Path], flags: Sequence[str], folder: Path | None
) -> Path:
    """Compile and link an operator's host code; return the program.

    Raises:
        CompileFailed: a file does not compile, or a function is defined in none of them.
        Unavailable: the simulator is not installed.
    """
    simulator_root = folders.root()
    common = [*shlex.split(compiler()), *_FLAGS, *flags]

    def compile_source(source: Path) -> Path:
        # The last folder holds the simulator's headers that its copies of CANN's headers include.
        cann_include = simulator_root / "cann" / "include"
        include_folders = [cann_include, *include, *_own_folders(source), simulator_root]
        command = [*common, *(f"-I{path}" for path in include_folders)]
        return compile_once(command, source, ["-c"], f"{source.stem}-host", ".o", source, folder)

    with ThreadPoolExecutor(_COMPILE_JOBS) as pool:
        compilations: list[Future[Path]] = []
        try:
            for source in sources:
                compilations.append(pool.submit(compile_source, source))
            left: set[Future[Path]] = set(compilations)
            while left:  # an interrupt that another thread gets wakes this one only at the end of a wait
                done, left = wait(left, timeout=0.1, return_when=FIRST_EXCEPTION)
                for each in done:
                    each.result()  # raises the error of one, which ends the others
            objects = [each.result() for each in compilations]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(each.done() for each in compilations):
                end_compilers()  # a thread may be about to start the next one
                time.sleep(0.01)
            raise
    libraries = [folders.archive(name) for name in ("ascend_sim_op_sources", "ascend_sim_host")]
    link = [*map(str, objects), *map(str, libraries)]
    try:
        return compile_once(common, None, link, f"{sources[0].stem}-host", "", sources[0], folder)
    except CompileFailed as error:
        raise CompileFailed(_explain_undefined(str(error))) from None


def _own_folders(source: Path) -> list[Path]:
    """Return the folders that CANN's build adds for a file of ``op_host`` (ops-nn cmake/func.cmake)."""
    op_host = next((parent for parent in source.parents if parent.name == "op_host"), source.parent)
    return [op_host, op_host.parent.parent]


def _explain_undefined(text: str) -> str:
    """Return the linker's output, after an error that names the functions that no source defines."""
    names = dict.fromkeys(part.split("'")[0] for part in text.split("undefined reference to `")[1:])
    if not names:
        return text
    return f"[sim] tiling must define {', '.join(names)} but no source does. Add the files that do.\n{text}"


class OperatorHost:
    """A running program of :func:`build_host`."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: subprocess.Popen[str] | None = None
        self._log: Any = None
        self._log_start = 0  # of the output of the current request

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request; return the reply. The first request, also after a crash, starts the process.

        Raises:
            HostCodeFailed: the process ended, or the operator's code threw or lacks what the request needs.
        """
        if self._process is None:
            self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
            self._process = subprocess.Popen(
                [str(self._program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                errors="replace",
            )
        process = self._process
        self._log_start = os.fstat(self._log.fileno()).st_size
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        except BaseException:  # after an interrupt the next request would read the reply to this one
            process.kill()
            self._end()
            raise
        if not line:
            raise HostCodeFailed(self._end())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise HostCodeFailed(f"[sim] {reply['error']}.")
        return reply

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._end()

    def _end(self) -> str:
        """Wait for the end of the process; return the message about it."""
        assert self._process is not None
        status = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._log.seek(self._log_start)
        printed = str(self._log.read()).strip()
        self._log.close()
        self._process = None
        cause = f"exit status {status}"
        if status < 0:
            try:
                cause = f"signal {signal.Signals(-status).name}"
            except ValueError:
                cause = f"signal {-status}"
        return f"[sim] tiling must return but ended its process with {cause}." + (printed and "\n" + printed)

    def __del__(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._end()
