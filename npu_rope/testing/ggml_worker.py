"""The process that ggml runs in: reads calls from its standard input, answers on its output.

    python -m npu_rope.testing.ggml_worker FOLDER THREADS

No backend loader is needed: libggml-base and one libggml-cpu are opened and the CPU's graph
compute is called on a context that owns its tensors. Libraries are opened RTLD_LOCAL, so that a
second ggml in one process can never bind to this one's symbols.
"""

from __future__ import annotations

import ctypes as C
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.testing.ggml import GgmlInfo, GgmlRope, receive, send

# enum ggml_type
GGML_TYPES = {"float32": 0, "float16": 1, "int32": 26, "bfloat16": 30}
CONTEXT_OVERHEAD_BYTES = 32 << 20


class InitParams(C.Structure):
    """``ggml_init_params``."""

    _fields_ = [("mem_size", C.c_size_t), ("mem_buffer", C.c_void_p), ("no_alloc", C.c_bool)]


def open_base(folder: Path) -> C.CDLL:
    """libggml-base (the shortest name, where versions lie beside each other)."""
    return C.CDLL(str(min(folder.glob("libggml-base*"), key=lambda p: len(p.name))))


def open_cpu(folder: Path) -> tuple[C.CDLL, str]:
    """The CPU library this machine scores best with: builds with one library a micro-architecture
    answer ``ggml_backend_score()``, 0 meaning it cannot run here."""
    candidates = sorted(folder.glob("libggml-cpu*"))
    if len(candidates) == 1:
        return C.CDLL(str(candidates[0])), candidates[0].name
    scored = []
    for path in candidates:
        library = C.CDLL(str(path))
        score = library.ggml_backend_score() if hasattr(library, "ggml_backend_score") else 0
        scored.append((score, path.name, library))
    _, name, library = max(scored, key=lambda entry: entry[:2])
    return library, name


class Ggml:
    """The two libraries with the signatures this file uses."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.base = open_base(folder)
        self.cpu, self.cpu_name = open_cpu(folder)
        self.threads = threads
        self._declare()
        self.cpu.ggml_cpu_init()

    def _declare(self) -> None:
        p, i, f, z, n = C.c_void_p, C.c_int, C.c_float, C.c_size_t, C.c_int64
        rope = [p, p, p, p, i, i, i, f, f, f, f, f, f]
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "ggml_init": (p, [InitParams]),
            "ggml_free": (None, [p]),
            "ggml_new_tensor_4d": (p, [p, i, n, n, n, n]),
            "ggml_new_tensor_1d": (p, [p, i, n]),
            "ggml_view_4d": (p, [p, p, n, n, n, n, z, z, z, z]),
            "ggml_get_data": (p, [p]),
            "ggml_new_graph": (p, [p]),
            "ggml_build_forward_expand": (None, [p, p]),
            "ggml_rope_ext": (p, rope),
            "ggml_rope_ext_inplace": (p, rope),
            "ggml_rope_ext_back": (p, rope),
            "ggml_rope_set_offset": (p, [p, i]),
            "ggml_version": (C.c_char_p, []),
            "ggml_commit": (C.c_char_p, []),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.base, name, None)
            if function is not None:
                function.restype, function.argtypes = result, arguments
        compute = self.cpu.ggml_graph_compute_with_ctx
        compute.restype, compute.argtypes = i, [p, p, i]

    def info(self) -> GgmlInfo:
        """Versions of what was loaded."""
        known = hasattr(self.base, "ggml_version")

        def text(name: str) -> str:
            return str((getattr(self.base, name)() or b"?").decode())

        return GgmlInfo(
            text("ggml_version") if known else "?",
            text("ggml_commit") if known else "?",
            self.cpu_name,
            hasattr(self.base, "ggml_rope_set_offset"),
        )

    def rope(self, call: GgmlRope) -> npt.NDArray[Any]:
        """Run one call and read its result back."""
        base = self.base
        bytes_needed = 3 * call.parent.nbytes + call.positions.nbytes + CONTEXT_OVERHEAD_BYTES
        context = base.ggml_init(InitParams(bytes_needed, None, False))
        if not context:
            raise MemoryError(f"ggml_init of {bytes_needed} bytes")
        try:
            parent, view = self._input(context, call)
            result = self._node(context, view, call)
            graph = base.ggml_new_graph(context)
            base.ggml_build_forward_expand(graph, result)
            status = self.cpu.ggml_graph_compute_with_ctx(context, graph, self.threads)
            if status != 0:
                raise RuntimeError(f"ggml_graph_compute_with_ctx returned {status}")
            if call.inplace:
                whole = np.empty_like(call.parent)
                C.memmove(whole.ctypes.data, base.ggml_get_data(parent), whole.nbytes)
                return np.ascontiguousarray(_view(whole, call))
            out = np.empty(call.shape, call.parent.dtype)
            C.memmove(out.ctypes.data, base.ggml_get_data(result), out.nbytes)
            return out
        finally:
            base.ggml_free(context)

    def _input(self, context: Any, call: GgmlRope) -> tuple[Any, Any]:
        base, parent = self.base, np.ascontiguousarray(call.parent)
        b, s, n, d = parent.shape
        tensor = base.ggml_new_tensor_4d(context, GGML_TYPES[parent.dtype.name], d, n, s, b)
        C.memmove(base.ggml_get_data(tensor), parent.ctypes.data, parent.nbytes)
        vb, vs, vn, vd = call.shape
        if (vb, vs, vn, vd) == parent.shape:
            return tensor, tensor
        row, token, batch = parent.strides[2], parent.strides[1], parent.strides[0]
        offset = call.offset * parent.itemsize
        return tensor, base.ggml_view_4d(context, tensor, vd, vn, vs, vb, row, token, batch, offset)

    def _node(self, context: Any, x: Any, call: GgmlRope) -> Any:
        base, p = self.base, call.params
        positions = self._vector(context, call.positions)
        factors = None
        if call.freq_factors is not None:
            # ggml reads head_size/2 factors, past the n_dims/2 it asks for: give it that many.
            padded = np.ones(max(call.shape[3] // 2, len(call.freq_factors)), np.float32)
            padded[: len(call.freq_factors)] = call.freq_factors
            factors = self._vector(context, padded)
        name = "ggml_rope_ext_inplace" if call.inplace else "ggml_rope_ext"
        function = getattr(base, name if call.forward else "ggml_rope_ext_back")
        numbers = (p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow)
        node = function(context, x, positions, factors, p.n_dims, int(p.rope_mode), call.n_ctx_orig, *numbers)
        return base.ggml_rope_set_offset(node, p.n_offs) if p.n_offs else node

    def _vector(self, context: Any, values: npt.NDArray[Any]) -> Any:
        values = np.ascontiguousarray(values)
        tensor = self.base.ggml_new_tensor_1d(context, GGML_TYPES[values.dtype.name], values.size)
        C.memmove(self.base.ggml_get_data(tensor), values.ctypes.data, values.nbytes)
        return tensor


def _view(parent: npt.NDArray[Any], call: GgmlRope) -> npt.NDArray[Any]:
    flat = parent.reshape(-1)[call.offset :]
    return np.lib.stride_tricks.as_strided(flat, call.shape, parent.strides)


def main() -> None:
    """Serve until the input ends."""
    # ggml may print: keep its words off the pipe that the answers go through.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    try:
        ggml = Ggml(Path(sys.argv[1]), int(sys.argv[2]))
    except (OSError, AttributeError) as error:
        receive(requests)
        send(answers, ("error", f"[ggml] library must load but got: {error}"))
        return
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, ("ok", ggml.info() if request[0] == "info" else ggml.rope(request[1])))


if __name__ == "__main__":
    main()
