"""ggml's CPU backend as a peer. The graph and its buffers are made once; only the computation is timed.

With more than one thread, ggml gets a thread pool for each batch. Between graphs the workers of a pool spin,
which would slow the other contestants.
"""

from __future__ import annotations

import contextlib
import ctypes as C
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from npu_rope.bench.harness import NotInstalled, Ready, Unsupported
from npu_rope.bench.rope_rows import DTYPES, RopeInputs
from npu_rope.optional_torch import torch
from npu_rope.testing.ggml import Build, GgmlUnavailable, find_library_dir
from npu_rope.testing.ggml_functions import BASE, GGML_TYPES, ROPES, InitParams, declare
from npu_rope.testing.ggml_worker import open_base, open_cpu

GGML = "ggml CPU rope_ext"
REMEDY = "pip install --no-deps pywhispercpp (or: npm install @node-llama-cpp/linux-x64)"


class _PoolParams(C.Structure):
    _fields_ = [
        ("cpumask", C.c_bool * 512),
        ("n_threads", C.c_int),
        ("prio", C.c_int),
        ("poll", C.c_uint32),
        ("strict_cpu", C.c_bool),
        ("paused", C.c_bool),
    ]


_POINTER, _INT, _SIZE = C.c_void_p, C.c_int, C.c_size_t
# The types of the result and the arguments of the functions that ggml_functions.py does not declare.
_NORMS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_add": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "ggml_mul": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "ggml_rms_norm": (_POINTER, [_POINTER, _POINTER, C.c_float]),
}
_MEMORY: dict[str, tuple[Any, list[Any]]] = {
    "ggml_get_data": (_POINTER, [_POINTER]),
    "ggml_tensor_overhead": (_SIZE, []),
    "ggml_graph_overhead": (_SIZE, []),
    "ggml_backend_free": (None, [_POINTER]),
}
_POOL: dict[str, tuple[Any, list[Any]]] = {
    "ggml_threadpool_params_default": (_PoolParams, [_INT]),
    "ggml_threadpool_new": (_POINTER, [C.POINTER(_PoolParams)]),
    "ggml_threadpool_free": (None, [_POINTER]),
    "ggml_backend_cpu_set_threadpool": (None, [_POINTER, _POINTER]),
}


class GgmlLibrary:
    """libggml-base and the fastest libggml-cpu that runs here, with declared signatures."""

    def __init__(self, folder: Path) -> None:
        build = Build(folder)
        self.base = open_base(build)
        self.cpu, _ = open_cpu(build)
        declare({**BASE, **ROPES, **_NORMS, **_MEMORY, **_POOL}, self.base, self.cpu)


@lru_cache(maxsize=1)
def load_library(folder: Path) -> GgmlLibrary:
    """Return the library of that folder, loaded once."""
    return GgmlLibrary(folder)


class GgmlGraph:
    """A graph on the CPU backend, with its inputs copied to the backend's memory.

    Args:
        library: ggml.
        threads: number of threads that compute.
        build: makes the tensors by :meth:`source` and :meth:`add_result`.
    """

    def __init__(self, library: GgmlLibrary, threads: int, build: Callable[[GgmlGraph], None]) -> None:
        self.library, self.threads = library, threads
        base, cpu = library.base, library.cpu
        context_bytes = base.ggml_tensor_overhead() * 32 + base.ggml_graph_overhead() + 4096
        self.context = base.ggml_init(InitParams(context_bytes, None, True))
        self.graph = base.ggml_new_graph(self.context)
        self._sources: list[tuple[Any, Any]] = []
        self._results: list[tuple[Any, Any]] = []
        build(self)
        self.backend = cpu.ggml_backend_cpu_init()
        cpu.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.buffer = base.ggml_backend_alloc_ctx_tensors(self.context, self.backend)
        for tensor, data in self._sources:
            C.memmove(base.ggml_get_data(tensor), data.data_ptr(), data.nbytes)
        self.call = partial(base.ggml_backend_graph_compute, self.backend, self.graph)
        self.around = self.pool if threads > 1 else contextlib.nullcontext

    def source(self, data: Any, tensor: Any) -> Any:
        """Add and return a ggml tensor that receives a torch tensor's data."""
        self._sources.append((tensor, data))
        return tensor

    def add_result(self, tensor: Any, like: Any) -> None:
        """Add a tensor to compute; its result has the shape and dtype of the torch tensor ``like``."""
        self.library.base.ggml_build_forward_expand(self.graph, tensor)
        self._results.append((tensor, like))

    @contextlib.contextmanager
    def pool(self) -> Iterator[None]:
        """Provide worker threads for one batch."""
        base, cpu = self.library.base, self.library.cpu
        parameters = base.ggml_threadpool_params_default(self.threads)
        pool = cpu.ggml_threadpool_new(C.byref(parameters))
        cpu.ggml_backend_cpu_set_threadpool(self.backend, pool)
        try:
            yield
        finally:
            cpu.ggml_backend_cpu_set_threadpool(self.backend, None)
            cpu.ggml_threadpool_free(pool)

    def result(self) -> list[Any]:
        """Return copies of one call's outputs."""
        status = self.call()
        if status != 0:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}")
        results = [torch.empty_like(like) for _, like in self._results]
        for (tensor, _), copy in zip(self._results, results, strict=True):
            C.memmove(copy.data_ptr(), self.library.base.ggml_get_data(tensor), copy.nbytes)
        return results

    def close(self) -> None:
        """Free everything that ggml has allocated."""
        base = self.library.base
        base.ggml_backend_free(self.backend)
        base.ggml_backend_buffer_free(self.buffer)
        base.ggml_free(self.context)


def ggml_library(given_folder: str | None) -> GgmlLibrary:
    """Return ggml from the given folder, or else as :func:`npu_rope.testing.ggml.find_library_dir` finds it.

    Raises:
        NotInstalled: no folder was given, and no ggml is installed.
        GgmlUnavailable: the given folder has no ggml.
    """
    try:
        return load_library(find_library_dir(given_folder))
    except GgmlUnavailable:
        if given_folder:
            raise
        raise NotInstalled(REMEDY) from None


def prepare_ggml(inputs: RopeInputs, *, given_folder: str | None) -> Ready:
    """Prepare ggml's rope for one row: one ``rope_ext`` per tensor."""
    if inputs.row.dtype == "bf16":
        raise Unsupported("its CPU rope aborts the process on bfloat16")
    library = ggml_library(given_folder)

    def build(graph: GgmlGraph) -> None:
        base, ggml_type = library.base, GGML_TYPES[DTYPES[inputs.row.dtype]]
        # ggml's positions vary along ne2 only. Therefore decode rows are tokens of one sequence here.
        tokens = inputs.positions.reshape(-1).to(torch.int32).contiguous()
        token_count = len(tokens)
        positions = graph.source(
            tokens, base.ggml_new_tensor_1d(graph.context, GGML_TYPES["int32"], token_count)
        )
        for x in inputs.xs:
            heads, width = x.shape[2], x.shape[3]
            source = graph.source(
                x, base.ggml_new_tensor_4d(graph.context, ggml_type, width, heads, token_count, 1)
            )
            mode = int(inputs.params.rope_mode)
            # n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow
            attributes = (width, mode, 0, inputs.params.freq_base, 1.0, 0.0, 1.0, 32.0, 1.0)
            graph.add_result(base.ggml_rope_ext(graph.context, source, positions, None, *attributes), x)

    graph = GgmlGraph(library, inputs.row.threads, build)
    return Ready(graph.call, graph.result, graph.around, graph.close)
