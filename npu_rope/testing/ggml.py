"""The real ggml, driven through its C interface: where a prebuilt library is found, and a process
of its own to run it in, because ggml answers what it does not support with ``abort()``.
"""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams

ENVIRONMENT_VARIABLE = "NPU_ROPE_GGML_LIB"
NODE_PACKAGE = Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
HOW_TO_GET = (
    "Get one with 'npm install --prefix .venv/ggml @node-llama-cpp/linux-x64@3.22.1' or"
    " 'pip install --no-deps pywhispercpp==1.5.1', or give --ggml-lib PATH."
)


class GgmlUnavailable(RuntimeError):
    """No ggml library was found, or the one found does not load."""


class GgmlAborted(RuntimeError):
    """ggml ended its process; the message carries its last words."""


def _candidates(given: str | None) -> Iterator[Path]:
    if given:
        path = Path(given)
        yield path.parent if path.is_file() else path
        return
    yield Path(sys.prefix) / "ggml" / NODE_PACKAGE
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield folder / NODE_PACKAGE
    yield from _from_pywhispercpp()


def _from_pywhispercpp() -> Iterator[Path]:
    # The pair under pywhispercpp.libs; the copies beside it load a second libggml-base.
    try:
        files = importlib.metadata.files("pywhispercpp") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.parent.name == "pywhispercpp.libs" and file.name.startswith("libggml-base"):
            yield Path(str(file.locate())).parent


def find_library_dir(given: str | None = None) -> Path:
    """The folder with ``libggml-base*`` and ``libggml-cpu*``: ``given`` (a folder or a library in
    it), else ``NPU_ROPE_GGML_LIB``, else the npm package, else PyPI's pywhispercpp.

    Raises:
        GgmlUnavailable: there is none.
    """
    named = given or os.environ.get(ENVIRONMENT_VARIABLE)
    for folder in _candidates(named):
        if any(folder.glob("libggml-base*")) and any(folder.glob("libggml-cpu*")):
            return folder
    where = named or "neither the npm nor the PyPI package that carries one"
    raise GgmlUnavailable(
        f"[ggml] library must be a folder with libggml-base* and libggml-cpu* but got {where}.\n{HOW_TO_GET}"
    )


@dataclass(frozen=True)
class GgmlInfo:
    """What was loaded."""

    version: str
    commit: str
    cpu_library: str
    has_offset: bool


@dataclass
class GgmlRope:
    """One call. ``parent`` is the whole buffer in memory order ``[B,S,N,D]``; the rope's input is
    the view of ``shape`` that starts ``offset`` elements into it.
    """

    parent: npt.NDArray[Any]
    shape: tuple[int, int, int, int]
    offset: int
    positions: npt.NDArray[np.int32]
    params: RopeParams
    n_ctx_orig: int
    freq_factors: npt.NDArray[np.float32] | None
    forward: bool
    inplace: bool


class GgmlProcess:
    """ggml in a child process. After an abort the next call starts another.

    Use as a context manager. ``rope()`` raises :class:`GgmlAborted` where ggml does.
    """

    def __init__(self, library_dir: str | None = None, threads: int = 1) -> None:
        self.folder = find_library_dir(library_dir)
        self.threads = threads
        self._child: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        try:
            self.info: GgmlInfo = self._call(("info",))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> GgmlProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.communicate()
            self._child = None
        if self._said is not None:
            self._said.close()
            self._said = None

    def rope(self, call: GgmlRope) -> npt.NDArray[Any]:
        """ggml_rope_ext, _inplace or _ext_back; the result ``[B,S,N,D]``, contiguous."""
        result: npt.NDArray[Any] = self._call(("rope", call))
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        if self._said is None:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        environment = dict(os.environ, GGML_NO_BACKTRACE="1")
        return subprocess.Popen(
            [sys.executable, "-m", "npu_rope.testing.ggml_worker", str(self.folder), str(self.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
        )

    def _call(self, request: tuple[Any, ...]) -> Any:
        if self._child is None:
            self._child = self._start()
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            send(child.stdin, request)
            status, answer = receive(child.stdout)
        except (EOFError, BrokenPipeError):
            raise self._death() from None
        if status == "error":
            raise GgmlUnavailable(answer)
        return answer

    def _death(self) -> GgmlAborted:
        assert self._child is not None
        assert self._said is not None
        self._child.stdin.close()  # type: ignore[union-attr]
        self._child.stdout.close()  # type: ignore[union-attr]
        code = self._child.wait()
        self._child = None
        self._said.seek(0)
        words = [w for w in self._said.read().decode(errors="replace").splitlines() if w.strip()]
        self._said.close()
        self._said = None
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return GgmlAborted(f"ggml ended with {how}: {words[-1] if words else 'without a word'}")


def send(pipe: IO[bytes], message: Any) -> None:
    """One pickled message, its length before it."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; EOFError where the other end is gone."""
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    length = struct.unpack("<Q", head)[0]
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)
