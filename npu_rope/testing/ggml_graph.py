"""Calls of rope as graphs of ggml."""

from __future__ import annotations

import ctypes as C
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_rope.testing.ggml import GgmlFailed, GgmlRope
from npu_rope.testing.ggml_functions import CONTEXT_BYTES, GGML_TYPES, InitParams


class GgmlFunctions(Protocol):
    """ggml's functions by name, and the backend that computes."""

    base: dict[str, Any]
    ropes: dict[str, Any]
    backend: Any


class Graph:
    """One call as a ggml graph, whose operations are in ``nodes``."""

    def __init__(self, ggml: GgmlFunctions) -> None:
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

    def __init__(self, ggml: GgmlFunctions, call: GgmlRope) -> None:
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
        result = view(parent, self.call).copy()
        view(parent, self.call)[...] = view(np.ascontiguousarray(self.call.parent), self.call)
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


def view(parent: npt.NDArray[Any], call: GgmlRope) -> npt.NDArray[Any]:
    """Return the call's ``[B,S,N,D]`` view of its buffer."""
    flat = parent.reshape(-1)[call.offset :]
    return np.lib.stride_tricks.as_strided(flat, call.shape, parent.strides)
