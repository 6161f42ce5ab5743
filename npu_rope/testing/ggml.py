"""The real ggml, called through its C interface.

This module finds a prebuilt library, and runs it in a separate process, because ggml calls ``abort()`` for
unsupported calls.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.child import Child, ChildEnded, module_arguments

ENVIRONMENT_VARIABLE = "NPU_ROPE_GGML_LIB"
NODE_PACKAGE = Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")


def _how_to_get() -> str:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "Give --ggml-lib PATH, the folder of a build of your own: no package has one for this machine."
    environment = Path(sys.prefix)
    if environment.is_relative_to(Path.cwd()):
        environment = environment.relative_to(Path.cwd())
    by_npm = f"npm install --prefix {environment / 'ggml'} @node-llama-cpp/linux-x64@3.22.1"
    by_pip = "pip install --no-deps pywhispercpp==1.5.1"
    first, second = (by_npm, by_pip) if shutil.which("npm") else (by_pip, by_npm)
    return f"Get one with '{first}' or '{second}', or give --ggml-lib PATH."


HOW_TO_GET = _how_to_get()
HOW_TO_NAME = (
    "Name the folder of a build with shared libraries, such as --ggml-lib build. The libraries may be in this"
    " folder or below it. ggml alone has them in build/src, llama.cpp in build/bin."
)
# The names of the library with the registry of backends, such as libggml.so, libggml.so.0 or libggml.dylib.
REGISTRY_NAME = re.compile(r"libggml(-[0-9a-f]{8})?\.(so|dylib|[bv][0-9])")
SHARED_LIBRARY = re.compile(r"\.(so|dylib)")


class GgmlUnavailable(RuntimeError):
    """No ggml library was found, or the one found does not load."""


class GgmlFailed(RuntimeError):
    """ggml accepted a call and did not complete it. ``output`` has the lines that it printed."""

    def __init__(self, message: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.output = output


class GgmlAborted(GgmlFailed):
    """ggml ended its process. The message has the last line that ggml printed; ``output`` has more."""


class GgmlRefused(RuntimeError):
    """The backend refuses a call in advance, by ``ggml_backend_supports_op``."""


def _candidates(given_folder: str | None) -> Iterator[Path]:
    if given_folder:
        path = Path(given_folder)
        yield path.parent if os.path.isfile(path) else path
        return
    yield Path(sys.prefix) / "ggml" / NODE_PACKAGE
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield folder / NODE_PACKAGE
    yield from _from_pywhispercpp()


def _from_pywhispercpp() -> Iterator[Path]:
    # Use the two libraries in pywhispercpp.libs; the copies outside it load a second libggml-base.
    try:
        files = importlib.metadata.files("pywhispercpp") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.parent.name == "pywhispercpp.libs" and file.name.startswith("libggml-base"):
            yield Path(str(file.locate())).parent


class Build:
    """ggml's shared libraries in a folder and in the folders below it, found once.

    The copy of ``libggml-base`` that is nearest to the folder is the one of the build. Folders with another
    copy are those of other builds, and are left out.

    Attributes:
        folder: the folder.
        copies: the folders with a copy of ``libggml-base``, the nearest first.
        libraries: the build's libraries, the nearest first.
    """

    def __init__(self, folder: Path) -> None:
        # Unlike pathlib, os.path raises no error for a name that is too long.
        entries = folder.rglob("libggml*") if os.path.isdir(folder) else ()
        found = [path for path in entries if SHARED_LIBRARY.search(path.name)]
        found.sort(key=lambda path: (len(path.parts), path))
        self.folder = folder
        self.copies = list(
            dict.fromkeys(path.parent for path in found if path.name.startswith("libggml-base"))
        )
        self.libraries = [path for path in found if path.parent not in self.copies[1:]]

    def named(self, name: str) -> list[Path]:
        """Return the libraries whose names begin with ``libggml`` and this text."""
        return [path for path in self.libraries if path.name.startswith(f"libggml{name}")]

    @property
    def base(self) -> Path | None:
        """``libggml-base`` (the shortest name if there are several versions)."""
        return min(self.named("-base"), key=lambda path: len(path.name), default=None)

    @property
    def registry(self) -> Path | None:
        """The library with the registry of backends (the shortest name if there are several versions)."""
        found = [path for path in self.libraries if REGISTRY_NAME.match(path.name)]
        return min(found, key=lambda path: len(path.name), default=None)

    def require_one(self) -> None:
        """Raise GgmlUnavailable if several copies of libggml-base are equally near to the folder."""
        nearest = [str(copy) for copy in self.copies if len(copy.parts) == len(self.copies[0].parts)]
        if len(nearest) > 1:
            raise GgmlUnavailable(
                f"[ggml] library must be a folder with one build but got {self.folder}, which has builds in"
                f" {', '.join(nearest[:-1])} and {nearest[-1]}.\nName one of them with --ggml-lib."
            )


def find_library_dir(given_folder: str | None = None, *, registry: bool = False) -> Path:
    """Return the folder with ``libggml-base*`` and ``libggml-cpu*``, or with ``libggml.so`` instead of the
    second one if ``registry`` is true. The libraries are in the folder or below it (:class:`Build`).

    The folder is ``given_folder``, else ``NPU_ROPE_GGML_LIB``, else that of the npm package, else that of
    PyPI's pywhispercpp. The first two may also name a library in the folder.

    Raises:
        GgmlUnavailable: there is none, or the folder has several builds.
    """
    named_folder = given_folder or os.environ.get(ENVIRONMENT_VARIABLE)
    for folder in _candidates(named_folder):
        build = Build(folder)
        if build.base and (build.registry if registry else build.named("-cpu")):
            build.require_one()
            return folder
    searched = named_folder or "none, and found neither the npm nor the PyPI package of ggml"
    second_library_name = "libggml.so (the registry of devices)" if registry else "libggml-cpu*"
    raise GgmlUnavailable(
        f"[ggml] library must be a folder with libggml-base* and {second_library_name} but got {searched}."
        f"\n{HOW_TO_NAME if named_folder else HOW_TO_GET}"
    )


@dataclass(frozen=True)
class GgmlInfo:
    """Properties of the loaded ggml.

    Attributes:
        version, commit: ggml's own.
        cpu_library: the file name of the CPU library, or of the registry if a device was requested.
        missing: the functions of rope and set_rows that this version does not have yet.
        device: the name of the requested device, empty for the CPU library.
        description: the device's own description.
    """

    version: str
    commit: str
    cpu_library: str
    missing: frozenset[str] = frozenset()
    device: str = ""
    description: str = ""

    @property
    def name(self) -> str:
        """ggml, its version, and the requested device if any."""
        return f"ggml {self.version}" + (f" {self.device}" if self.device else "")


@dataclass
class GgmlRope:
    """One call of ggml's rope.

    Attributes:
        parent: the whole buffer, in memory order ``[B,S,N,D]``.
        shape: the shape of the input, a view of the buffer.
        offset: the first element of the view.
        positions: ``[S]``, or ``[4*S]`` in the modes with sections.
        rows, cache: ``[S]`` and ``[R,N,D]``. If they are given, the call scatters the rotated tokens into
            these rows of the cache.
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
    rows: npt.NDArray[np.integer[Any]] | None = None
    cache: npt.NDArray[Any] | None = None


# Where a call runs, relative to the call before it: in the same graph, in a new graph, on a new backend.
Start = Literal["node", "graph", "backend"]


@dataclass
class GgmlStep:
    """One call of a sequence. The first one has a new backend, whatever its ``start`` is."""

    call: GgmlRope
    start: Start = "backend"


@dataclass
class StepResult:
    """The result of a step, ``[B,S,N,D]``, or the reason why there is none. If both ``value`` and
    ``failed`` are set, the call also wrote memory outside of its result."""

    value: npt.NDArray[Any] | None = None
    refused: str = ""
    failed: str = ""


# A call that distinguishes imrope from mrope: pair 1 rotates by height in imrope and by time in mrope.
_IMROPE_CALL = GgmlRope(
    np.ones((1, 1, 1, 12), np.float32),
    (1, 1, 1, 12),
    0,
    np.array([0, 1, 0, 0], np.int32),
    RopeParams(12, RopeMode.IMROPE, sections=(2, 2, 2, 0)),
    0,
    None,
    True,
    False,
)


class GgmlProcess:
    """ggml in a child process. After an abort the next call starts another process.

    Use as a context manager. ``rope()`` raises :class:`GgmlAborted` if ggml aborts.

    Args:
        library_dir: as for :func:`find_library_dir`.
        threads: number of threads of the CPU backend.
        device: a name from the registry of backends ("CPU", "CANN0"); empty for libggml-cpu itself.
    """

    # The child's command; a test replaces it.
    worker: tuple[str, ...] = module_arguments("npu_rope.testing.ggml_worker")

    def __init__(self, library_dir: str | None = None, threads: int = 1, device: str = "") -> None:
        self.sequences: list[Any] = []  # sequences of a suite that ran in the current child
        self.backend_count = 0  # backends that the child made for sequences and keeps (Ggml.free)
        self.folder = find_library_dir(library_dir, registry=bool(device))
        self.threads = threads
        self.device = device
        self.cases: list[Any] = []  # cases that ran in the current child, in order
        self._child: Child | None = None
        self._idle: list[Child] = []  # workers whose fork has ended; new_process() shares the list
        self._owns_idle = True
        self._imrope_found: bool | None = None
        try:
            self.info: GgmlInfo = self._call(("info",))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> GgmlProcess:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def end(self) -> None:
        """End the child. The next call starts another one."""
        if self._child is not None:
            self._child.end()
            if self._child.is_open:
                self._idle.append(self._child)
        self._child, self.cases, self.sequences, self.backend_count = None, [], [], 0

    def close(self) -> None:
        """End the child and all idle workers."""
        self.end()
        while self._owns_idle and self._idle:
            self._idle.pop().close()

    def rope(self, call: GgmlRope) -> npt.NDArray[Any]:
        """Run ggml_rope_ext or ggml_rope_multi, _inplace or _back; return ``[B,S,N,D]``, contiguous. For a
        call with a cache, also run ggml_set_rows and return the whole cache ``[R,N,D]``.

        Raises:
            GgmlRefused: the backend does not support the call.
            GgmlFailed: it accepted the call and did not complete it, or its process ended (GgmlAborted).
        """
        result: npt.NDArray[Any] = self._call(("rope", call))
        return result

    def sequence(self, steps: list[GgmlStep], device: str = "") -> list[StepResult]:
        """Run calls one after another, on new backends of ``device`` (default: ``self.device``).

        Raises:
            GgmlFailed: a graph was accepted and not completed, or the process ended (GgmlAborted).
            GgmlUnavailable: the library has no such device.
        """
        if (device or self.device) not in ("", "CPU"):
            self.backend_count += 1 + sum(step.start == "backend" for step in steps[1:])
        results: list[StepResult] = self._call(("sequence", steps, device))
        return results

    def new_process(self) -> GgmlProcess:
        """Return another process with the same library and device."""
        process = copy(self)
        process._child, process._owns_idle = None, False
        process.cases, process.sequences, process.backend_count = [], [], 0
        process._call(("info",))  # raises if the library or the device does not start
        return process

    def too_old_for(self, params: RopeParams, *, inplace: bool, set_rows: bool) -> str:
        """Return a text that names what the call needs and this ggml lacks; empty if it lacks nothing."""
        needed = {
            "ggml_rope_set_offset": bool(params.n_offs),
            "ggml_rope_multi": params.rope_mode.has_sections,
            "ggml_rope_multi_inplace": params.rope_mode.has_sections and inplace,
            "ggml_set_rows": set_rows,
        }
        for function, is_needed in needed.items():
            if is_needed and function in self.info.missing:
                return f"ggml {self.info.version} has no {function}"
        if params.rope_mode is RopeMode.IMROPE and not self._has_imrope():
            return f"ggml {self.info.version} has no mode imrope"
        return ""

    def _has_imrope(self) -> bool:
        # No symbol shows whether the mode exists. An older ggml treats its number, 40, as mrope. Each of the
        # calls has a child of its own, so that no result depends on an earlier call.
        if self._imrope_found is None:
            as_mrope = replace(_IMROPE_CALL.params, mode=RopeMode.MROPE)
            try:
                with self.new_process() as process:
                    got = process.rope(_IMROPE_CALL)
                    process.end()
                    other = process.rope(replace(_IMROPE_CALL, params=as_mrope))
                self._imrope_found = not np.array_equal(got, other)
            except (GgmlRefused, GgmlFailed):
                self._imrope_found = True  # the judge then reports each case that is refused or fails
        return self._imrope_found

    def _call(self, request: tuple[Any, ...]) -> Any:
        if self._child is None and self._idle:
            self._child = self._idle.pop()
        if self._child is None:
            arguments = [*self.worker, str(self.folder), str(self.threads), self.device]
            # CANN prints its log, which is in files by default, and ggml prints no stack.
            prints_log = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
            self._child = Child(arguments, GGML_NO_BACKTRACE="1", ASCEND_SLOG_PRINT_TO_STDOUT=prints_log)
        child = self._child
        try:
            status, answer = child.call(request)
        except ChildEnded as ended:
            self.end()
            raise GgmlAborted(f"ggml ended with {ended}", ended.output) from None
        if status == "failed":
            raise GgmlFailed(answer, child.output_of_call())
        if status != "ok":
            raise {"error": GgmlUnavailable, "refused": GgmlRefused}[status](answer)
        return answer
