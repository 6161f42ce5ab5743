"""Several calls of ggml's rope one after another, on one backend and in shared graphs.

All tensors of a backend are allocated once. Calls of a graph share the tensors that hold equal inputs, as
the layers of a model share the positions. Later graphs use the tensors of earlier ones again if type and
shape agree, so their contents change and their addresses do not. Where a graph differs from an earlier one
in its inputs' contents only, its nodes are the earlier graph's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_rope.testing.ggml import GgmlFailed, GgmlRope, GgmlStep, Start, StepResult
from npu_rope.testing.ggml_graph import GgmlFunctions, Graph, RopeGraph

Array = npt.NDArray[Any]


class Device(GgmlFunctions, Protocol):
    """A library that makes backends."""

    def start(self, device: str = "") -> Any:
        """Return a new backend of the device."""
        ...

    def free(self, backend: Any, device: str = "") -> None:
        """Free a backend of the device."""
        ...

    def describe_refusal(self, call: GgmlRope, refused: str) -> str:
        """Return the operation that is refused, and what would make it supported."""
        ...


@dataclass
class _Backend:
    """ggml's functions with the backend of one run."""

    base: dict[str, Any]
    ropes: dict[str, Any]
    backend: Any


def run_sequence(ggml: Device, steps: list[GgmlStep], device: str = "") -> list[StepResult]:
    """Run the calls in order. The device refuses some of them: it runs the others.

    Raises:
        GgmlFailed: a graph was accepted and not completed.
    """
    results: list[StepResult] = []
    for of_one_backend in _split(steps, ("backend",)):
        run = BackendRun(_Backend(ggml.base, ggml.ropes, ggml.start(device)))
        try:
            of_backend = run.run(of_one_backend)
        finally:
            run.close()
            ggml.free(run.ggml.backend, device)
        for step, result in zip(of_one_backend, of_backend, strict=True):
            if result.refused:
                result.refused = ggml.describe_refusal(step.call, result.refused)
        results += of_backend
    return results


def _split(steps: list[GgmlStep], starts: tuple[Start, ...]) -> Iterator[list[GgmlStep]]:
    begin = 0
    for i in range(1, len(steps) + 1):
        if i == len(steps) or steps[i].start in starts:
            yield steps[begin:i]
            begin = i


class _Node(RopeGraph):
    """A call's node among the tensors of a run."""

    def __init__(self, run: BackendRun, call: GgmlRope) -> None:
        self.run_of_backend, self.call = run, call
        self.ggml, self.base, self.context = run.ggml, run.base, run.context
        self.inputs = []
        self.is_exclusive = call.inplace
        self.parent, x = self._input()
        self.is_exclusive = False
        self.nodes = [self._rope(x)]
        self.result = StepResult(refused=self.refused())

    def _tensor(self, values: Array) -> Any:
        values = np.ascontiguousarray(values)
        tensor = self.run_of_backend.take(values, self.is_exclusive)
        self.inputs.append((tensor, values))
        return tensor

    def key(self) -> tuple[Any, ...]:
        """Return what distinguishes the node from others, except the contents of its inputs."""
        call, tensors = self.call, [tensor for tensor, _ in self.inputs]
        return *tensors, call.shape, call.offset, repr(call.params), call.n_ctx_orig, call.forward

    def read(self) -> None:
        """Read the result back, and require that the inputs are unchanged."""
        call = self.call
        inputs = self.inputs[1:] if call.inplace else self.inputs
        if any(self._read(tensor, values).tobytes() != values.tobytes() for tensor, values in inputs):
            self.result.failed = "an input was written"
        if not call.inplace:
            self.result.value = self._read(self.nodes[0], np.empty(call.shape, call.parent.dtype))
            return
        try:
            self.result.value = self._inside(self._read(self.parent, call.parent))
        except GgmlFailed as failed:
            self.result.failed = str(failed)


class BackendRun(Graph):
    """The graphs that run on one backend, with all their tensors."""

    def __init__(self, ggml: GgmlFunctions) -> None:
        super().__init__(ggml)
        self.pool: dict[tuple[Any, ...], list[Any]] = {}
        self.used: dict[tuple[Any, ...], int] = {}  # number of tensors of the pool in the current graph
        self.shared: dict[tuple[Any, ...], Any] = {}  # tensors of the current graph by their contents
        self.earlier: dict[tuple[Any, ...], Any] = {}

    def take(self, values: Array, is_exclusive: bool) -> Any:
        """Return a tensor that holds these values in the current graph; if exclusive, for one node only."""
        kind = values.dtype.name, values.shape
        contents = *kind, values.tobytes()
        if not is_exclusive and contents in self.shared:
            return self.shared[contents]
        pool, number = self.pool.setdefault(kind, []), self.used.get(kind, 0)
        if number == len(pool):
            pool.append(self._tensor(values))
        self.used[kind] = number + 1
        if not is_exclusive:
            self.shared[contents] = pool[number]
        return pool[number]

    def run(self, steps: list[GgmlStep]) -> list[StepResult]:
        """Build all graphs, then compute one after another."""
        graphs = [self._build(of_one_graph) for of_one_graph in _split(steps, ("graph", "backend"))]
        computed = [[node for node in nodes if not node.result.refused] for nodes in graphs]
        if any(computed):
            self._allocate()
        for nodes in computed:
            self._compute(nodes)
        return [node.result for nodes in graphs for node in nodes]

    def _build(self, steps: list[GgmlStep]) -> list[_Node]:
        self.used, self.shared = {}, {}
        nodes: list[_Node] = []
        keys: list[tuple[Any, ...]] = []
        for step in steps:
            node = _Node(self, step.call)
            keys.append((*node.key(), step.call.inplace))
            node.nodes = [self.earlier.setdefault((*keys[-1], keys.count(keys[-1])), node.nodes[0])]
            nodes.append(node)
        return nodes

    def _allocate(self) -> None:
        self.buffer = self.base["ggml_backend_alloc_ctx_tensors"](self.context, self.ggml.backend)
        if not self.buffer:
            raise GgmlFailed("ggml_backend_alloc_ctx_tensors returned NULL")

    def _compute(self, nodes: list[_Node]) -> None:
        if not nodes:
            return
        base = self.base
        graph = base["ggml_new_graph"](self.context)
        for node in nodes:
            call = node.call
            if not call.inplace:  # NaN, so that a result that is not written is found
                junk = np.full(np.prod(call.shape) * call.parent.itemsize, 255, np.uint8)
                base["ggml_backend_tensor_set"](node.nodes[0], junk.ctypes.data, 0, junk.nbytes)
            for tensor, values in node.inputs:
                base["ggml_backend_tensor_set"](tensor, values.ctypes.data, 0, values.nbytes)
            base["ggml_build_forward_expand"](graph, node.nodes[0])
        if status := base["ggml_backend_graph_compute"](self.ggml.backend, graph):
            raise GgmlFailed(f"ggml_backend_graph_compute returned {status}")
        for node in nodes:
            node.read()
