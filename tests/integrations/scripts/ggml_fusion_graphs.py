"""Graphs of ggml on the simulated device, which run through the adapter as ggml's backend runs them."""

from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np
from ggml_adapter import (
    acl,
    compute,
    compute_fused,
    copy_to_device,
    fetch,
    fields_of,
    functions,
    new_context,
    place_view,
    stream,
    write,
)

from npu_rope import RopeParams
from npu_rope.testing.ggml_functions import GGML_TYPES

FLOAT32 = GGML_TYPES["float32"]
NAMES = {number: name for name, number in GGML_TYPES.items()}
UNWRITTEN = 7.0  # the value of a result's memory before a graph runs
VIEWS = ("VIEW", "RESHAPE")


class Graph:
    """A graph and the memory of its tensors."""

    def __init__(self) -> None:
        self.context = new_context()
        self.graph = functions["ggml_new_graph"](self.context)
        self.memories: dict[int, tuple[Any, int]] = {}  # address and bytes for each tensor that is not a view

    def leaf(self, values: np.ndarray) -> int:
        """Make a tensor with these values. Its dimensions have the reverse order."""
        shape = (1,) * (4 - values.ndim) + values.shape
        tensor = functions["ggml_new_tensor_4d"](self.context, GGML_TYPES[str(values.dtype)], *shape[::-1])
        self.give_memory(tensor, np.ascontiguousarray(values))
        return tensor

    def give_memory(self, tensor: int, values: np.ndarray) -> None:
        self.memories[tensor] = copy_to_device(tensor, values), values.nbytes

    def lanes(self, leaf: int, count: int, first: int) -> int:
        """Return the view of some lanes of a float32 tensor."""
        t = fields_of(leaf)
        return functions["ggml_view_4d"](self.context, leaf, count, *t.ne[1:], *t.nb[1:], 4 * first)

    def rope(self, x: int, p: RopeParams, tokens: int, factors: np.ndarray | None = None) -> tuple[int, Any]:
        """Make a rope node. Return it and its positions in the operator's form."""
        planes = 4 if p.rope_mode.has_sections else 1
        positions = np.random.default_rng(tokens).integers(0, 5000, planes * tokens).astype(np.int32)
        sources = self.leaf(positions), None if factors is None else self.leaf(factors)
        numbers = p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow
        if planes == 1:
            node = functions["ggml_rope_ext"](
                self.context, x, *sources, p.n_dims, int(p.rope_mode), p.n_ctx_orig, *numbers
            )
            return node, positions
        sections = (C.c_int * 4)(*p.sections)
        node = functions["ggml_rope_multi"](
            self.context, x, *sources, p.n_dims, sections, int(p.rope_mode), p.n_ctx_orig, *numbers
        )
        return node, positions.reshape(4, tokens)

    def expand(self, *nodes: int) -> None:
        """Add the nodes and their sources to the graph, and give each result memory."""
        for node in nodes:
            functions["ggml_build_forward_expand"](self.graph, node)
        self.place_all()

    def nodes(self) -> list[int]:
        count = functions["ggml_graph_n_nodes"](self.graph)
        return [functions["ggml_graph_node"](self.graph, i) for i in range(count)]

    def place_all(self) -> None:
        for node in self.nodes():
            t = fields_of(node)
            for source in filter(None, t.src):
                if fields_of(source).view_src and not fields_of(source).data:
                    place_view(source)
            if t.view_src:
                place_view(node)
            elif not t.data:
                self.give_memory(node, np.full(self.shape(node), UNWRITTEN, NAMES[t.type]))

    def place(self, node: int, address: int) -> None:
        """Put a result at an address in the memory of another tensor."""
        fields_of(node).data = address

    @staticmethod
    def shape(tensor: int) -> tuple[int, ...]:
        return tuple(fields_of(tensor).ne[::-1])

    def run(self, synchronize: bool = True) -> list[int]:
        """Run the nodes as ggml's backend does. Return how many nodes each call computed."""
        counts, nodes, index = [], self.nodes(), 0
        while index < len(nodes):
            count, why = compute_fused(self.graph, index)
            assert count >= 0, why
            if count == 0 and functions["ggml_op_desc"](nodes[index]).decode() not in VIEWS:
                status, why = compute(nodes[index])
                assert status == 0, why
                count = 1
            if count:
                counts.append(count)
            index += max(count, 1)
        if synchronize:
            acl("aclrtSynchronizeStream", stream)
        return counts

    def change(self, leaf: int, values: np.ndarray) -> None:
        write(self.memories[leaf][0], values)

    def result(self, tensor: int) -> np.ndarray:
        """Return a tensor's values. A view of lanes has the strides of its source."""
        t = fields_of(tensor)
        dtype = np.dtype(NAMES[t.type])
        extent = dtype.itemsize + sum((n - 1) * stride for n, stride in zip(t.ne, t.nb, strict=True))
        raw = fetch(C.c_void_p(t.data), np.empty(extent, np.uint8))
        return np.ndarray(self.shape(tensor), dtype, raw, strides=tuple(t.nb[::-1])).copy()

    def check_unwritten(self, node: int) -> None:
        """Check that no call wrote a result."""
        assert (self.result(node) == UNWRITTEN).all(), functions["ggml_op_desc"](node)

    def memory(self) -> list[bytes]:
        """Return the contents of all tensors' memory."""
        return [
            fetch(address, np.empty(size, np.uint8)).tobytes() for address, size in self.memories.values()
        ]
