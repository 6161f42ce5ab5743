"""The process that runs ggml: it reads calls from its standard input and writes results to its output.

    python -m npu_rope.testing.ggml_worker FOLDER THREADS [DEVICE]

Without a DEVICE the process opens libggml-base and one libggml-cpu. With a DEVICE, libggml's registry loads
every backend in the FOLDER or below it, and the device of this name computes. The process opens libraries
RTLD_LOCAL, so that another ggml cannot bind to their symbols.
"""

from __future__ import annotations

import ctypes as C
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.child import serve
from npu_rope.testing.ggml import (
    HOW_TO_NAME,
    Build,
    GgmlFailed,
    GgmlInfo,
    GgmlRefused,
    GgmlRope,
    GgmlStep,
    GgmlUnavailable,
    StepResult,
)
from npu_rope.testing.ggml_functions import BASE, CPU, DEVICES, ROPES, declare
from npu_rope.testing.ggml_graph import RopeGraph
from npu_rope.testing.ggml_sequence import run_sequence

# The libraries of CANN with which ggml's CANN backend is linked, and the one behind the simulated CANN's.
CANN_LIBRARY = re.compile(r"lib(ascendcl|nnopbase|opapi|acl_op_compiler|ascend_sim_cann)\.so")
DIGITS = "0123456789"
PACKAGE_LIBRARY = "libcust_opapi.so"


def open_base(build: Build) -> C.CDLL:
    """Open libggml-base."""
    return C.CDLL(str(build.base))


def open_cpu(build: Build) -> tuple[C.CDLL, str]:
    """Open and initialise the CPU library with the best score on this machine.

    Builds with a library for each micro-architecture have ``ggml_backend_score()``, which returns 0 if the
    library cannot run here.
    """
    scored = []
    for path in build.named("-cpu"):
        library = C.CDLL(str(path))
        score = library.ggml_backend_score() if hasattr(library, "ggml_backend_score") else 0
        scored.append((score, path.name, library))
    _, name, library = max(scored, key=lambda entry: entry[:2])
    declare(CPU, library)
    library.ggml_cpu_init()
    return library, name


def open_backends(build: Build) -> tuple[list[C.CDLL], dict[str, str]]:
    """Open the libraries of backends. Return them, and the errors of the others, each with a file's name.

    A library does not load if this machine lacks its device. If the registry is linked with some of the
    libraries, its RUNPATH may name another folder; the loader does not search it for libraries that are open.
    """
    opened: list[C.CDLL] = []
    errors: dict[str, str] = {}
    for path in build.named("-"):
        try:
            opened.append(C.CDLL(str(path)))
        except OSError as error:
            errors.setdefault(
                str(error), path.name
            )  # the first of a library's names, such as libggml-cann.so
    return opened, errors


def advice(error: str) -> str:
    """Return a line that says how a library of CANN or of an operator package is found, if the error names
    one; else nothing."""
    if PACKAGE_LIBRARY in error:
        return (
            f"\n{PACKAGE_LIBRARY} is the library of an operator package. npu-rope sim finds npu_rope's "
            "simulated one, and ascend-sim run does not. With an NPU, source the package's set_env.bash."
        )
    if CANN_LIBRARY.search(error):
        return (
            "\nOn a machine without an NPU, run npu-rope sim -- npu-rope validate ... "
            "With an NPU, source CANN's set_env.sh."
        )
    return ""


def mapped_files() -> list[str]:
    """Return the names of the files that the process has in memory, if the system lists them."""
    maps = Path("/proc/self/maps")
    return [line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()] if maps.is_file() else []


def require_own_libraries(build: Build) -> None:
    """Check that every loaded library of ggml is in the folder or below it, where the system lists a
    process's files.

    Raises:
        GgmlUnavailable: one is not.
    """
    own = {path.resolve() for path in build.libraries}
    loaded = {Path(file) for file in mapped_files() if "/libggml" in file}
    for path in sorted(loaded - own):
        raise GgmlUnavailable(
            f"[ggml] libraries must be in {build.folder} or below it but got {path}, which one of them"
            f" loads.\n{HOW_TO_NAME}"
        )


class Devices:
    """ggml's registry of backends, with every backend of the folder loaded."""

    def __init__(self, build: Build, base: C.CDLL) -> None:
        path = build.registry
        if path is None:
            raise GgmlUnavailable(f"[ggml] library must come with libggml.so but got {build.folder}.")
        self.build = build
        self.backends, self.not_loaded = open_backends(build)
        self.library = C.CDLL(str(path))
        require_own_libraries(build)
        self.file = path.name
        # Some of these functions are in libggml, others in libggml-base: it depends on ggml's version.
        self.call = declare(DEVICES, self.library, base)
        if missing := sorted(set(DEVICES) - set(self.call)):
            raise GgmlUnavailable(f"[ggml] library must have a registry of devices but got no {missing[0]}.")
        for backends_folder in dict.fromkeys(path.parent for path in build.libraries):
            self.call["ggml_backend_load_all_from_path"](str(backends_folder).encode())

    def names(self) -> list[str]:
        """Return the devices' names, in the registry's order."""
        devices = (self.call["ggml_backend_dev_get"](i) for i in range(self.call["ggml_backend_dev_count"]()))
        return [self.call["ggml_backend_dev_name"](device).decode() for device in devices]

    def _how_to_get(self, device: str, names: list[str]) -> str:
        """Return lines that say why the registry has no such device, if this is known."""
        kind = device.rstrip(DIGITS)
        library = f"libggml-{kind.lower()}"
        if kind in [name.rstrip(DIGITS) for name in names]:
            is_simulated = kind == "CANN" and "ASCEND_SIM_SOC" in os.environ
            return "\nnpu-rope sim --devices N simulates N devices." if is_simulated else ""
        errors = [error for error, name in self.not_loaded.items() if name.startswith(library)]
        if errors:
            return "".join(f"\n{library} does not load: {error}.{advice(error)}" for error in errors)
        if not self.build.named(f"-{kind.lower()}"):
            return f"\n{self.build.folder} has no {library}. Name a build with this backend by --ggml-lib."
        return ""

    def start(self, name: str, threads: int) -> tuple[Any, str]:
        """Return a backend on the device, and the device's own description."""
        device = self.call["ggml_backend_dev_by_name"](name.encode())
        if not device:
            names = self.names()
            fault = f"[ggml] device must be one of {', '.join(names) or 'none at all'} but got {name}."
            raise GgmlUnavailable(fault + self._how_to_get(name, names))
        backend = self.call["ggml_backend_dev_init"](device, None)
        if not backend:
            raise GgmlUnavailable(f"[ggml] device {name} must start but ggml_backend_dev_init returned NULL.")
        registry = self.call["ggml_backend_dev_backend_reg"](device)
        set_threads = registry and self.call["ggml_backend_reg_get_proc_address"](
            registry, b"ggml_backend_set_n_threads"
        )
        if set_threads:
            C.CFUNCTYPE(None, C.c_void_p, C.c_int)(set_threads)(backend, threads)
        description = self.call["ggml_backend_dev_description"](device).decode()
        simulated = name.startswith("CANN") and any("libascend_sim_cann" in file for file in mapped_files())
        return backend, f"{description}, simulated" if simulated else description


class Ggml:
    """The libraries, and the backend that computes."""

    def __init__(self, folder: Path, threads: int, device: str = "") -> None:
        build = Build(folder)
        self.library = open_base(build)
        self.base = declare(BASE, self.library)
        self.ropes = declare(ROPES, self.library)
        self.device, self.description, self.threads = device, "", threads
        if device:
            self.devices = self.open_devices(build)
            self.backend, self.description = self.devices.start(device, threads)
            self.file = self.devices.file
            return
        self.cpu, self.file = open_cpu(build)
        self.backend = self.start()

    def start(self, device: str = "") -> Any:
        """Return a new backend: of this device, else of the requested one, else of the CPU library."""
        if device := device or self.device:
            return self.devices.start(device, self.threads)[0]
        backend = self.cpu.ggml_backend_cpu_init()
        self.cpu.ggml_backend_cpu_set_n_threads(backend, self.threads)
        return backend

    def free(self, backend: Any, device: str = "") -> None:
        """Free a backend that :meth:`start` returned, on the CPU only.

        Another device keeps it until the process ends: ggml's CANN backend resets the whole device, which
        other backends use.
        """
        if (device or self.device) in ("", "CPU"):
            self.base["ggml_backend_free"](backend)

    def open_devices(self, build: Build) -> Devices:
        """Return the registry of the build."""
        return Devices(build, self.library)

    def info(self) -> GgmlInfo:
        """Return the versions of the loaded libraries."""

        def text(name: str) -> str:
            function = getattr(self.library, name, None)
            if function is None:
                return "?"
            function.restype = C.c_char_p
            return str((function() or b"?").decode())

        missing = frozenset(ROPES) - frozenset(self.ropes)
        version, commit = text("ggml_version"), text("ggml_commit")
        return GgmlInfo(version, commit, self.file, missing, self.device, self.description)

    def rope(self, call: GgmlRope) -> npt.NDArray[Any]:
        """Run one call and read its result back."""
        graph = RopeGraph(self, call)
        try:
            if refused := graph.refused():
                raise GgmlRefused(self.describe_refusal(call, refused))
            return graph.run()
        finally:
            graph.close()

    def sequence(self, steps: list[GgmlStep], device: str = "") -> list[StepResult]:
        """Run the steps on new backends of this device, or of the requested one."""
        return run_sequence(self, steps, device)

    def describe_refusal(self, call: GgmlRope, refused: str) -> str:
        """Describe the refused operation, and each single change of the call that makes it supported."""
        accepted = []
        for change, other in _changes(call):
            graph = RopeGraph(self, other)
            if not graph.refused():
                accepted.append(change)
            graph.close()
        text = f"{self.device or 'ggml'} refuses {refused}"
        return f"{text}, but supports the call if it {' or '.join(accepted)}" if accepted else text


def _changes(call: GgmlRope) -> Iterator[tuple[str, GgmlRope]]:
    """Yield copies of the call, each with one property made simpler, and say in words which one."""
    params, (_, tokens, _, head_size) = call.params, call.shape
    if not call.forward:
        yield "is forward", replace(call, forward=True)
    if params.n_offs:
        yield "has n_offs = 0", replace(call, params=replace(params, n_offs=0))
    if call.parent.shape != call.shape:
        yield "is contiguous", replace(call, parent=np.zeros(call.shape, call.parent.dtype), offset=0)
    if call.inplace:
        yield "is not in place", replace(call, inplace=False)
    if params.n_dims != head_size and not params.n_offs and params.rope_mode is not RopeMode.VISION:
        full_params = replace(params, n_dims=head_size)
        factors = None if call.freq_factors is None else np.ones(head_size // 2, np.float32)
        yield f"has n_dims = {head_size}", replace(call, params=full_params, freq_factors=factors)
    if params.rope_mode.has_sections:
        yield (
            "is in mode neox",
            replace(call, params=_neox(params, head_size), positions=call.positions[:tokens]),
        )
    for dtype in ("float32", "float16"):
        if call.cache is not None and call.cache.dtype != dtype:
            yield f"has a {dtype} cache", replace(call, cache=np.zeros(call.cache.shape, dtype))
        elif call.cache is None and call.parent.dtype != dtype:
            yield f"is in {dtype}", replace(call, parent=np.zeros(call.parent.shape, dtype))


def _neox(params: RopeParams, head_size: int) -> RopeParams:
    n_dims = head_size if params.rope_mode is RopeMode.VISION else params.n_dims
    return replace(params, mode=RopeMode.NEOX, sections=(0, 0, 0, 0), n_dims=n_dims)


def answer(ggml: Ggml, request: tuple[Any, ...]) -> tuple[str, Any]:
    """Return the status and the body of the answer to a request."""
    try:
        kind, *rest = request
        answers: dict[str, Callable[..., Any]] = {
            "info": ggml.info,
            "rope": ggml.rope,
            "sequence": ggml.sequence,
        }
        return "ok", answers[kind](*rest)
    except GgmlRefused as refused:
        return "refused", str(refused)
    except GgmlFailed as failed:
        return "failed", str(failed)
    except GgmlUnavailable as unavailable:
        return "error", str(unavailable)


def start() -> Callable[[tuple[Any, ...]], tuple[str, Any]]:
    """Open the libraries. Return the function that answers a request."""
    try:
        ggml = Ggml(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    except (OSError, AttributeError, KeyError) as error:
        message = f"[ggml] library must load but got: {error}{advice(str(error))}"
    except GgmlUnavailable as error:
        message = str(error)
    else:
        return partial(answer, ggml)
    return lambda request: ("error", message)


def main() -> None:
    """Answer requests until the input ends."""
    serve(start)


if __name__ == "__main__":
    main()
