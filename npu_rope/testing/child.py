"""A Python process that answers requests. Its output is kept, so that it can be read if the process ends.

A worker that uses :func:`serve` answers in forks of itself on Linux: the next process after one that ended
needs no new interpreter and no imports, which take several times as long as a fork.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

_UNBUFFERED = 2  # _IONBF of C's stdio.h
# The last part of a process's output that is kept.
OUTPUT_BYTES = 64 << 10
_END = "end"  # the request that ends the process that answers
_FORKS = sys.platform == "linux"  # elsewhere, system libraries do not allow a fork without exec


@dataclass(frozen=True)
class _Ended:
    """The answer of a worker whose fork has ended."""

    exit_code: int


class ChildEnded(RuntimeError):
    """The process ended instead of answering. The message says how, with the last line that it printed since
    the request; ``output`` has its last lines."""

    def __init__(self, exit_code: int, lines_of_call: tuple[str, ...], output: tuple[str, ...]) -> None:
        last_line = lines_of_call[-1] if lines_of_call else "without output"
        super().__init__(f"{end_text(exit_code)}: {last_line}")
        self.output = output


def module_arguments(module: str, *, has_torch: bool = False) -> tuple[str, ...]:
    """Return the arguments with which Python runs a module. The import of torch takes a second."""
    omitted = "" if has_torch else " sys.modules['torch'] = None;"
    return "-c", f"import runpy, sys;{omitted} runpy.run_module({module!r}, run_name='__main__')"


class Child:
    """The process. It reads requests from its standard input and writes answers to its standard output.

    Args:
        arguments: of the Python interpreter.
        environment: variables to add.
    """

    def __init__(self, arguments: Sequence[str], **environment: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._start = 0  # the size of the output when the process that answers began
        self._call_start = -1  # the size of the output at its last request
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env=dict(os.environ, **environment),
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, request: Any) -> Any:
        """Return the answer to a request.

        Raises:
            ChildEnded: the process ended. The object is closed then, unless the worker forks.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._call_start = self._size() if self._call_start >= 0 else self._start
        try:
            send(self._process.stdin, request)
            answer = receive(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise self._closed() from None
        if isinstance(answer, _Ended):
            ended = self._ended(answer.exit_code)
            self._start, self._call_start = self._size(), -1
            raise ended
        return answer

    @property
    def is_open(self) -> bool:
        """Whether the next request has a process that answers it."""
        return not self._output.closed

    def end(self) -> None:
        """End the process that answers. If the worker forks, the next request has another one."""
        if self.is_open and self._call_start >= 0:
            with suppress(ChildEnded):
                self.call(_END)

    def output_of_call(self) -> tuple[str, ...]:
        """Return the lines that the process has printed since the last request."""
        return self._lines(self._call_start)

    def close(self) -> None:
        """End the process."""
        if not self._output.closed:
            self._process.communicate()
            self._output.close()

    def _size(self) -> int:
        return os.fstat(self._output.fileno()).st_size

    def _lines(self, start: int) -> tuple[str, ...]:
        # The child shares the file's position, so do not move it.
        size = self._size()
        start = max(start, size - OUTPUT_BYTES)
        text = os.pread(self._output.fileno(), size - start, start).decode(errors="replace")
        return tuple(line.rstrip() for line in text.splitlines() if line.strip())

    def _closed(self) -> ChildEnded:
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        ended = self._ended(self._process.wait())
        self._output.close()
        return ended

    def _ended(self, exit_code: int) -> ChildEnded:
        return ChildEnded(exit_code, self.output_of_call(), self._lines(self._start))


def end_text(exit_code: int) -> str:
    """Return the name of the signal that ended a process, or its exit status."""
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit status {exit_code}"


def serve(start: Callable[[], Callable[[Any], Any]]) -> None:
    """Answer the requests of a :class:`Child` until it ends the process or the input ends.

    Args:
        start: returns the function that answers a request. It is called in the process that answers.
    """
    answers, requests = answer_pipe(), sys.stdin.buffer
    with suppress(EOFError):
        request = receive(requests)
        while _FORKS and (pid := os.fork()):
            _, status = os.waitpid(pid, 0)
            send(answers, _Ended(os.waitstatus_to_exitcode(status)))
            request = receive(requests)
        answer = start()
        while request != _END:
            send(answers, answer(request))
            request = receive(requests)


def answer_pipe() -> IO[bytes]:
    """Return the pipe that takes a child's answers. Redirect everything else that the child prints to its
    standard error, without C's buffer, which would be lost if a library aborts."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if os.name == "posix":
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, _UNBUFFERED, ctypes.c_size_t(0))
    return answers


def send(pipe: IO[bytes], message: Any) -> None:
    """Send a pickled message, preceded by its length."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Return the next message; raise EOFError if the other end is closed."""
    length_bytes = pipe.read(8)
    if len(length_bytes) < 8:
        raise EOFError
    length = struct.unpack("<Q", length_bytes)[0]
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)
