"""The process that runs ggml: it reads calls from its standard input and writes results to its output.

    python -m npu_rope.testing.ggml_worker FOLDER THREADS [DEVICE]

Without a DEVICE the process opens libggml-base and one libggml-cpu. With a DEVICE, libggml's registry loads
every backend of the folder, and the device of this name computes. The process opens libraries RTLD_LOCAL, so
that another ggml cannot bind to their symbols.
"""

from __future__ import annotations

import ctypes as C
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.child import answer_pipe, receive, send
from npu_rope.testing.ggml import (
    GgmlFailed,
    GgmlInfo,
    GgmlRefused,
    GgmlRope,
    GgmlUnavailable,
    registry_library,
)

# enum ggml_type
GGML_TYPES = {"float32": 0, "float16": 1, "int32": 26, "int64": 27, "bfloat16": 30}
CONTEXT_BYTES = 4 << 20  # for descriptions of tensors; the data are in the backend's buffer

_POINTER, _INT, _FLOAT, _SIZE, _INT64 = C.c_void_p, C.c_int, C.c_float, C.c_size_t, C.c_int64


class InitParams(C.Structure):
    """``ggml_init_params``."""

    _fields_ = [("mem_size", C.c_size_t), ("mem_buffer", C.c_void_p), ("no_alloc", C.c_bool)]


# The types of each function's result and arguments. Older versions lack some functions (GgmlInfo.missing).
BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_POINTER, [InitParams]),
    "ggml_free": (None, [_POINTER]),
    "ggml_new_tensor_4d": (_POINTER, [_POINTER, _INT, _INT64, _INT64, _INT64, _INT64]),
    "ggml_new_tensor_1d": (_POINTER, [_POINTER, _INT, _INT64]),
    "ggml_view_4d": (_POINTER, [_POINTER, _POINTER, *[_INT64] * 4, *[_SIZE] * 4]),
    "ggml_view_2d": (_POINTER, [_POINTER, _POINTER, _INT64, _INT64, _SIZE, _SIZE]),
    "ggml_op_desc": (C.c_char_p, [_POINTER]),
    "ggml_new_graph": (_POINTER, [_POINTER]),
    "ggml_build_forward_expand": (None, [_POINTER, _POINTER]),
    "ggml_backend_alloc_ctx_tensors": (_POINTER, [_POINTER, _POINTER]),
    "ggml_backend_buffer_free": (None, [_POINTER]),
    "ggml_backend_tensor_set": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_tensor_get": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_supports_op": (C.c_bool, [_POINTER, _POINTER]),
    "ggml_backend_graph_compute": (_INT, [_POINTER, _POINTER]),
}
_SCALING = [_FLOAT] * 6  # freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow
# The context, x, the positions, freq_factors; n_dims, mode, n_ctx_orig.
_ROPE = (_POINTER, [*[_POINTER] * 4, _INT, _INT, _INT, *_SCALING])
# Also the sections, after n_dims.
_MULTI = (_POINTER, [*[_POINTER] * 4, _INT, _POINTER, _INT, _INT, *_SCALING])
ROPES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_rope_ext": _ROPE,
    "ggml_rope_ext_inplace": _ROPE,
    "ggml_rope_ext_back": _ROPE,
    "ggml_rope_multi": _MULTI,
    "ggml_rope_multi_inplace": _MULTI,
    "ggml_rope_multi_back": _MULTI,
    "ggml_rope_set_offset": (_POINTER, [_POINTER, _INT]),
    "ggml_set_rows": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER]),
}
_CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_cpu_init": (None, []),
    "ggml_backend_cpu_init": (_POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [_POINTER, _INT]),
}
_DEVICES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_load_all_from_path": (None, [C.c_char_p]),
    "ggml_backend_dev_count": (_SIZE, []),
    "ggml_backend_dev_get": (_POINTER, [_SIZE]),
    "ggml_backend_dev_by_name": (_POINTER, [C.c_char_p]),
    "ggml_backend_dev_name": (C.c_char_p, [_POINTER]),
    "ggml_backend_dev_description": (C.c_char_p, [_POINTER]),
    "ggml_backend_dev_init": (_POINTER, [_POINTER, C.c_char_p]),
    "ggml_backend_dev_backend_reg": (_POINTER, [_POINTER]),
    "ggml_backend_reg_get_proc_address": (_POINTER, [_POINTER, C.c_char_p]),
}


def open_base(folder: Path) -> C.CDLL:
    """Open libggml-base (the shortest name if there are several versions)."""
    return C.CDLL(str(min(folder.glob("libggml-base*"), key=lambda path: len(path.name))))


def open_cpu(folder: Path) -> tuple[C.CDLL, str]:
    """Open and initialise the CPU library with the best score on this machine.

    Builds with a library for each micro-architecture have ``ggml_backend_score()``, which returns 0 if the
    library cannot run here.
    """
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
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
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
        return [self.call["ggml_backend_dev_name"](device).decode() for device in devices]

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
                raise GgmlRefused(self._describe_refusal(call, refused))
            return graph.run()
        finally:
            graph.close()

    def _describe_refusal(self, call: GgmlRope, refused: str) -> str:
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
        values, ggml_type = np.ascontiguousarray(values), GGML_TYPES[values.dtype.name]
        if values.ndim == 1:
            tensor = self.base["ggml_new_tensor_1d"](self.context, ggml_type, values.size)
        else:
            tensor = self.base["ggml_new_tensor_4d"](self.context, ggml_type, *reversed(values.shape))
        self.inputs.append((tensor, values))
        return tensor


class RopeGraph(Graph):
    """The graph of rope. With a cache it also has the view that joins a token's heads, and set_rows."""

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
        strides = parent.strides[2], parent.strides[1], parent.strides[0]  # of a head, a token, a sequence
        offset = call.offset * parent.itemsize
        return tensor, self.base["ggml_view_4d"](self.context, tensor, d, n, s, b, *strides, offset)

    def _rope(self, x: Any) -> Any:
        call, params = self.call, self.call.params
        positions = self._tensor(call.positions)
        factors = None
        if call.freq_factors is not None:
            # ggml requires n_dims/2 factors but reads head_size/2 of them, so pass head_size/2.
            padded = np.ones(max(call.shape[3] // 2, len(call.freq_factors)), np.float32)
            padded[: len(call.freq_factors)] = call.freq_factors
            factors = self._tensor(padded)
        name = "ggml_rope_multi" if params.rope_mode.has_sections else "ggml_rope_ext"
        name += "" if call.forward else "_back"
        name += "_inplace" if call.inplace else ""
        sections = ((C.c_int * 4)(*params.sections),) if params.rope_mode.has_sections else ()
        scaling = params.freq_base, params.freq_scale, params.ext_factor, params.attn_factor
        numbers = *scaling, params.beta_fast, params.beta_slow
        arguments = (params.n_dims, *sections, int(params.rope_mode), call.n_ctx_orig, *numbers)
        node = self.ggml.ropes[name](self.context, x, positions, factors, *arguments)
        return self.ggml.ropes["ggml_rope_set_offset"](node, params.n_offs) if params.n_offs else node

    def _set_rows(self, rotated: Any) -> list[Any]:
        """Write rows of the cache ``[R, N*D]``: a row is a token's heads in order."""
        base, call = self.base, self.call
        assert call.cache is not None
        assert call.rows is not None
        _, tokens, heads, head_size = call.shape
        width = heads * head_size
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
    answers = answer_pipe()
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
