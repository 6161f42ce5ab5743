"""The process that runs ggml: it reads calls from its standard input and writes results to its output.

    python -m npu_rope.testing.ggml_worker FOLDER THREADS [DEVICE]

Without a DEVICE no backend loader is needed: libggml-base and one libggml-cpu are opened. With one,
libggml's registry loads every backend of the folder, and the device of that name computes. Libraries
are opened RTLD_LOCAL, so that a second ggml in the process cannot bind to this one's symbols.
"""

from __future__ import annotations

import ctypes as C
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.ggml import (
    GgmlFailed,
    GgmlInfo,
    GgmlRefused,
    GgmlRope,
    GgmlUnavailable,
    receive,
    registry_library,
    send,
)

# enum ggml_type
GGML_TYPES = {"float32": 0, "float16": 1, "int32": 26, "int64": 27, "bfloat16": 30}
CONTEXT_BYTES = 4 << 20  # for descriptions of tensors; the data are in the backend's buffer

_P, _I, _F, _Z, _N = C.c_void_p, C.c_int, C.c_float, C.c_size_t, C.c_int64


class InitParams(C.Structure):
    """``ggml_init_params``."""

    _fields_ = [("mem_size", C.c_size_t), ("mem_buffer", C.c_void_p), ("no_alloc", C.c_bool)]


# Result and arguments of each function. Functions of later versions may be missing: see GgmlInfo.missing.
BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_P, [InitParams]),
    "ggml_free": (None, [_P]),
    "ggml_new_tensor_4d": (_P, [_P, _I, _N, _N, _N, _N]),
    "ggml_new_tensor_1d": (_P, [_P, _I, _N]),
    "ggml_view_4d": (_P, [_P, _P, _N, _N, _N, _N, _Z, _Z, _Z, _Z]),
    "ggml_view_2d": (_P, [_P, _P, _N, _N, _Z, _Z]),
    "ggml_op_desc": (C.c_char_p, [_P]),
    "ggml_new_graph": (_P, [_P]),
    "ggml_build_forward_expand": (None, [_P, _P]),
    "ggml_backend_alloc_ctx_tensors": (_P, [_P, _P]),
    "ggml_backend_buffer_free": (None, [_P]),
    "ggml_backend_tensor_set": (None, [_P, _P, _Z, _Z]),
    "ggml_backend_tensor_get": (None, [_P, _P, _Z, _Z]),
    "ggml_backend_supports_op": (C.c_bool, [_P, _P]),
    "ggml_backend_graph_compute": (_I, [_P, _P]),
}
_ROPE = (_P, [_P, _P, _P, _P, _I, _I, _I, _F, _F, _F, _F, _F, _F])
_MULTI = (_P, [_P, _P, _P, _P, _I, _P, _I, _I, _F, _F, _F, _F, _F, _F])
ROPES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_rope_ext": _ROPE,
    "ggml_rope_ext_inplace": _ROPE,
    "ggml_rope_ext_back": _ROPE,
    "ggml_rope_multi": _MULTI,
    "ggml_rope_multi_inplace": _MULTI,
    "ggml_rope_multi_back": _MULTI,
    "ggml_rope_set_offset": (_P, [_P, _I]),
    "ggml_set_rows": (_P, [_P, _P, _P, _P]),
}
_CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_cpu_init": (None, []),
    "ggml_backend_cpu_init": (_P, []),
    "ggml_backend_cpu_set_n_threads": (None, [_P, _I]),
}
_DEVICES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_load_all_from_path": (None, [C.c_char_p]),
    "ggml_backend_dev_count": (_Z, []),
    "ggml_backend_dev_get": (_P, [_Z]),
    "ggml_backend_dev_by_name": (_P, [C.c_char_p]),
    "ggml_backend_dev_name": (C.c_char_p, [_P]),
    "ggml_backend_dev_description": (C.c_char_p, [_P]),
    "ggml_backend_dev_init": (_P, [_P, C.c_char_p]),
    "ggml_backend_dev_backend_reg": (_P, [_P]),
    "ggml_backend_reg_get_proc_address": (_P, [_P, C.c_char_p]),
}


def open_base(folder: Path) -> C.CDLL:
    """Open libggml-base (the shortest name if there are several versions)."""
    return C.CDLL(str(min(folder.glob("libggml-base*"), key=lambda p: len(p.name))))


def open_cpu(folder: Path) -> tuple[C.CDLL, str]:
    """Open and initialise the CPU library with the best score on this machine: builds with one library per
    micro-architecture have ``ggml_backend_score()``, which returns 0 if the library cannot run here."""
    scored = []
    for path in sorted(folder.glob("libggml-cpu*")):
        library = C.CDLL(str(path))
        score = library.ggml_backend_score() if hasattr(library, "ggml_backend_score") else 0
        scored.append((score, path.name, library))
    _, name, library = max(scored, key=lambda entry: entry[:2])
    declare(_CPU, library)
    library.ggml_cpu_init()
    return library, name


def declare(functions: dict[str, tuple[Any, list[Any]]], *libraries: C.CDLL) -> dict[str, Any]:
    """Return the functions that one of the libraries has, with their signatures declared."""
    found = {}
    for name, (result, arguments) in functions.items():
        function = next((getattr(lib, name) for lib in libraries if hasattr(lib, name)), None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
            found[name] = function
    return found


class Devices:
    """ggml's registry of backends, with every backend of the folder loaded."""

    def __init__(self, folder: Path, base: C.CDLL) -> None:
        path = registry_library(folder)
        if path is None:
            raise GgmlUnavailable(f"[ggml] library must come with libggml.so but got {folder}.")
        self.library = C.CDLL(str(path))
        self.file = path.name
        # Some of these functions are in libggml, others in libggml-base: it depends on ggml's version.
        self.call = declare(_DEVICES, self.library, base)
        if missing := sorted(set(_DEVICES) - set(self.call)):
            raise GgmlUnavailable(f"[ggml] library must have a registry of devices but got no {missing[0]}.")
        self.call["ggml_backend_load_all_from_path"](str(folder).encode())

    def names(self) -> list[str]:
        """Return the devices' names, in the registry's order."""
        devices = (self.call["ggml_backend_dev_get"](i) for i in range(self.call["ggml_backend_dev_count"]()))
        return [self.call["ggml_backend_dev_name"](d).decode() for d in devices]

    def start(self, name: str, threads: int) -> tuple[Any, str]:
        """Return a backend on the device, and the device's own description."""
        device = self.call["ggml_backend_dev_by_name"](name.encode())
        if not device:
            raise GgmlUnavailable(
                f"[ggml] device must be one of {', '.join(self.names()) or 'none at all'} but got {name}."
            )
        backend = self.call["ggml_backend_dev_init"](device, None)
        if not backend:
            raise GgmlUnavailable(f"[ggml] device {name} must start but ggml_backend_dev_init returned NULL.")
        registry = self.call["ggml_backend_dev_backend_reg"](device)
        set_threads = registry and self.call["ggml_backend_reg_get_proc_address"](
            registry, b"ggml_backend_set_n_threads"
        )
        if set_threads:
            C.CFUNCTYPE(None, C.c_void_p, C.c_int)(set_threads)(backend, threads)
        return backend, self.call["ggml_backend_dev_description"](device).decode()


class Ggml:
    """The libraries, and the backend that computes."""

    def __init__(self, folder: Path, threads: int, device: str = "") -> None:
        self.library = open_base(folder)
        self.base = declare(BASE, self.library)
        self.ropes = declare(ROPES, self.library)
        self.device, self.description = device, ""
        if device:
            self.devices = self.open_devices(folder)
            self.backend, self.description = self.devices.start(device, threads)
            self.file = self.devices.file
            return
        self.cpu, self.file = open_cpu(folder)
        self.backend = self.cpu.ggml_backend_cpu_init()
        self.cpu.ggml_backend_cpu_set_n_threads(self.backend, threads)

    def open_devices(self, folder: Path) -> Devices:
        """Return the registry of the folder."""
        return Devices(folder, self.library)

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
                raise GgmlRefused(self._why(call, refused))
            return graph.run()
        finally:
            graph.close()

    def _why(self, call: GgmlRope, refused: str) -> str:
        """Return the refused operation, and each single change that makes the call supported."""
        accepted = []
        for change, other in _changes(call):
            graph = RopeGraph(self, other)
            if not graph.refused():
                accepted.append(change)
            graph.close()
        text = f"{self.device or 'ggml'} refuses {refused}"
        return f"{text}, but takes it {' or '.join(accepted)}" if accepted else text


def _changes(call: GgmlRope) -> Iterator[tuple[str, GgmlRope]]:
    """Yield copies of the call, each with one property made simpler."""
    p, (_, s, _, d) = call.params, call.shape
    if not call.forward:
        yield "forward", replace(call, forward=True)
    if p.n_offs:
        yield "with n_offs = 0", replace(call, params=replace(p, n_offs=0))
    if call.parent.shape != call.shape:
        yield "contiguous", replace(call, parent=np.zeros(call.shape, call.parent.dtype), offset=0)
    if call.inplace:
        yield "not in place", replace(call, inplace=False)
    if p.n_dims != d and not p.n_offs and p.rope_mode is not RopeMode.VISION:
        full = replace(p, n_dims=d)
        factors = None if call.freq_factors is None else np.ones(d // 2, np.float32)
        yield f"with n_dims = {d}", replace(call, params=full, freq_factors=factors)
    if p.rope_mode.has_sections:
        yield "in mode neox", replace(call, params=_neox(p, d), positions=call.positions[:s])
    for dtype in ("float32", "float16"):
        if call.cache is not None and call.cache.dtype != dtype:
            yield f"with a {dtype} cache", replace(call, cache=np.zeros(call.cache.shape, dtype))
        elif call.cache is None and call.parent.dtype != dtype:
            yield f"in {dtype}", replace(call, parent=np.zeros(call.parent.shape, dtype))


def _neox(p: RopeParams, head: int) -> RopeParams:
    n_dims = head if p.rope_mode is RopeMode.VISION else p.n_dims
    return replace(p, mode=RopeMode.NEOX, sections=(0, 0, 0, 0), n_dims=n_dims)


class Graph:
    """One call as a ggml graph, whose operations are in ``nodes``."""

    def __init__(self, ggml: Ggml) -> None:
        self.ggml, self.base = ggml, ggml.base
        self.context = self.base["ggml_init"](InitParams(CONTEXT_BYTES, None, True))
        self.buffer: Any = None
        self.inputs: list[tuple[Any, npt.NDArray[Any]]] = []
        self.nodes: list[Any] = []

    def close(self) -> None:
        """Free everything that ggml has allocated."""
        if self.buffer:
            self.base["ggml_backend_buffer_free"](self.buffer)
        self.base["ggml_free"](self.context)

    def refused(self) -> str:
        """Return the first operation that the backend does not support; empty if it supports all."""
        for node in self.nodes:
            if not self.base["ggml_backend_supports_op"](self.ggml.backend, node):
                return str(self.base["ggml_op_desc"](node).decode())
        return ""

    def compute(self) -> None:
        """Copy the inputs to the backend, and run the graph."""
        base = self.base
        graph = base["ggml_new_graph"](self.context)
        base["ggml_build_forward_expand"](graph, self.nodes[-1])
        self.buffer = base["ggml_backend_alloc_ctx_tensors"](self.context, self.ggml.backend)
        if not self.buffer:
            raise GgmlFailed("ggml_backend_alloc_ctx_tensors returned NULL")
        for tensor, values in self.inputs:
            base["ggml_backend_tensor_set"](tensor, values.ctypes.data, 0, values.nbytes)
        if status := base["ggml_backend_graph_compute"](self.ggml.backend, graph):
            raise GgmlFailed(f"ggml_backend_graph_compute returned {status}")

    def _read(self, tensor: Any, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values = np.empty(like.shape, like.dtype)
        self.base["ggml_backend_tensor_get"](tensor, values.ctypes.data, 0, values.nbytes)
        return values

    def _tensor(self, values: npt.NDArray[Any]) -> Any:
        """Return a tensor ``[B,S,N,D]`` or a vector that receives these values."""
        values, kind = np.ascontiguousarray(values), GGML_TYPES[values.dtype.name]
        if values.ndim == 1:
            tensor = self.base["ggml_new_tensor_1d"](self.context, kind, values.size)
        else:
            tensor = self.base["ggml_new_tensor_4d"](self.context, kind, *reversed(values.shape))
        self.inputs.append((tensor, values))
        return tensor


class RopeGraph(Graph):
    """rope. With a cache also the view that joins a token's heads, and set_rows."""

    def __init__(self, ggml: Ggml, call: GgmlRope) -> None:
        super().__init__(ggml)
        self.call = call
        self.parent, x = self._input()
        self.nodes = [self._rope(x)]
        if call.cache is not None:
            self.nodes += self._set_rows(self.nodes[0])

    def run(self) -> npt.NDArray[Any]:
        """Compute, and read back the result, or the cache if there is one."""
        self.compute()
        call = self.call
        if call.cache is not None:
            return self._read(self.cache, call.cache)
        if call.inplace:
            return self._inside(self._read(self.parent, call.parent))
        return self._read(self.nodes[-1], np.empty(call.shape, call.parent.dtype))

    def _inside(self, parent: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the call's view of its buffer, and require that the other elements are unchanged."""
        result = _view(parent, self.call).copy()
        _view(parent, self.call)[...] = _view(np.ascontiguousarray(self.call.parent), self.call)
        if not np.array_equal(parent, self.call.parent):
            raise GgmlFailed("memory outside the tensor was written")
        return result

    def _input(self) -> tuple[Any, Any]:
        call, parent = self.call, np.ascontiguousarray(self.call.parent)
        tensor = self._tensor(parent)
        if call.shape == parent.shape:
            return tensor, tensor
        b, s, n, d = call.shape
        row, token, batch = parent.strides[2], parent.strides[1], parent.strides[0]
        offset = call.offset * parent.itemsize
        view = self.base["ggml_view_4d"](self.context, tensor, d, n, s, b, row, token, batch, offset)
        return tensor, view

    def _rope(self, x: Any) -> Any:
        call, p = self.call, self.call.params
        positions = self._tensor(call.positions)
        factors = None
        if call.freq_factors is not None:
            # ggml requires n_dims/2 factors but reads head_size/2, so pass head_size/2 of them.
            padded = np.ones(max(call.shape[3] // 2, len(call.freq_factors)), np.float32)
            padded[: len(call.freq_factors)] = call.freq_factors
            factors = self._tensor(padded)
        name = "ggml_rope_multi" if p.rope_mode.has_sections else "ggml_rope_ext"
        name += "" if call.forward else "_back"
        name += "_inplace" if call.inplace else ""
        sections = ((C.c_int * 4)(*p.sections),) if p.rope_mode.has_sections else ()
        numbers = (p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow)
        arguments = (p.n_dims, *sections, int(p.rope_mode), call.n_ctx_orig, *numbers)
        node = self.ggml.ropes[name](self.context, x, positions, factors, *arguments)
        return self.ggml.ropes["ggml_rope_set_offset"](node, p.n_offs) if p.n_offs else node

    def _set_rows(self, rotated: Any) -> list[Any]:
        """Write rows of the cache ``[R, N*D]``: a row is a token's heads in order."""
        base, call = self.base, self.call
        assert call.cache is not None
        assert call.rows is not None
        _, tokens, heads, head = call.shape
        width = heads * head
        token_bytes = width * call.parent.itemsize
        joined = base["ggml_view_2d"](self.context, rotated, width, tokens, token_bytes, 0)
        self.cache = self._tensor(call.cache.reshape(1, 1, -1, width))
        rows = self._tensor(call.rows)
        return [joined, self.ggml.ropes["ggml_set_rows"](self.context, self.cache, joined, rows)]


def _view(parent: npt.NDArray[Any], call: GgmlRope) -> npt.NDArray[Any]:
    flat = parent.reshape(-1)[call.offset :]
    return np.lib.stride_tricks.as_strided(flat, call.shape, parent.strides)


def answer(ggml: Ggml, request: tuple[Any, ...]) -> tuple[str, Any]:
    """Return the status and the body of the answer to a request."""
    try:
        kind, *rest = request
        answers: dict[str, Callable[..., Any]] = {"info": ggml.info, "rope": ggml.rope}
        return "ok", answers[kind](*rest)
    except GgmlRefused as refused:
        return "refused", str(refused)
    except GgmlFailed as failed:
        return "failed", str(failed)


def main() -> None:
    """Answer requests until the input ends."""
    # ggml may print: keep its output off the pipe of the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    try:
        ggml = Ggml(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    except (OSError, AttributeError, KeyError) as error:
        receive(requests)
        send(answers, ("error", f"[ggml] library must load but got: {error}"))
        return
    except GgmlUnavailable as error:
        receive(requests)
        send(answers, ("error", str(error)))
        return
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, answer(ggml, request))


if __name__ == "__main__":
    main()
