"""rms_norm and add_rms_norm compared with a copy of the same bytes and with other libraries.

The tensors have 2048 rows as in prefill, or 32 rows or one row as in decoding. A row has 4096 elements; the
scale has the same dtype. ONNX Runtime, ggml and npu_rope with out= write into preallocated buffers. The
functions of torch and transformers make new tensors. The peers have no add_rms_norm, so they add the residual
first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import npu_rope
from npu_rope.bench.harness import Contestant, Ready, Unsupported
from npu_rope.bench.peers import is_wanted, onnx_model, require, session_call
from npu_rope.bench.peers_ggml import GgmlGraph, ggml_library
from npu_rope.bench.rope_rows import DTYPES, Row, floor, ready_from_writes
from npu_rope.bench.verify import as_float64
from npu_rope.optional_torch import torch
from npu_rope.testing.bounds import peer_norm_bound, worst_ratio
from npu_rope.testing.ggml_functions import GGML_TYPES
from npu_rope.testing.norm_spec import NormCall, add, rms_norm

GROUP, MODES = "norm", ("rms_norm", "add_rms_norm")
ROWS, WIDTH, EPSILON = (2048, 32, 1), 4096, 1e-5
# The name of npu_rope's contestant that writes into preallocated buffers, by mode. The targets judge it.
OUT = {mode: f"npu_rope.{mode}(out=)" for mode in MODES}
SEPARATE_CALLS = "torch.add(out=), npu_rope.rms_norm(out=)"
TORCH, HF = "torch.nn.functional.rms_norm", "transformers LlamaRMSNorm, eager"
ORT, GGML = "ONNX Runtime RMSNormalization-23", "ggml CPU rms_norm and mul"
CHECKED_ROWS = 32  # approximate number of rows whose results are checked


@dataclass(frozen=True)
class NormRow(Row):
    """A row of the benchmark for rms_norm or add_rms_norm, with one size, dtype and number of threads."""

    @property
    def rows(self) -> int:
        """The number of rows of the tensor."""
        return self.sizes_bsn[0][1]

    @property
    def shape(self) -> str:
        """The number of rows and their width."""
        return f"[{self.rows},{WIDTH}]"


def row(dtype: str, threads: int, rows: int = ROWS[0], mode: str = MODES[0]) -> NormRow:
    """Return the row of one dtype, size and operator."""
    return NormRow(GROUP, ((1, rows, WIDTH // 128),), dtype, mode, threads)


def rows(dtypes: Sequence[str], threads: int) -> list[NormRow]:
    """Return every row for one number of threads."""
    return [row(dtype, threads, count, mode) for mode in MODES for count in ROWS for dtype in dtypes]


class NormInputs:
    """The input of all contestants, which share the tensors that they only read."""

    def __init__(self, bench_row: NormRow) -> None:
        generator = torch.Generator().manual_seed(22)
        self.row, self.dtype, self.threads = bench_row, DTYPES[bench_row.dtype], bench_row.threads
        dtype = getattr(torch, self.dtype)
        sizes = (bench_row.rows, WIDTH), (bench_row.rows, WIDTH), (WIDTH,)
        self.x, residual, self.scale = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
        self.residual = residual if bench_row.mode == "add_rms_norm" else None
        self.checked = slice(None, None, max(1, bench_row.rows // CHECKED_ROWS))

    @property
    def read_tensors(self) -> list[Any]:
        """The inputs: x, and the residual if there is one."""
        return [self.x] if self.residual is None else [self.x, self.residual]

    def outs(self) -> list[Any]:
        """Return new memory for the result, and for the sum if there is one."""
        return [torch.empty_like(tensor) for tensor in self.read_tensors]

    @cached_property
    def _expected(self) -> tuple[Any, Any]:
        """The values to normalize and the specification's call, for the rows that are checked."""
        inputs = [as_float64(tensor[self.checked]) for tensor in self.read_tensors]
        x = inputs[0] if self.residual is None else add(inputs[0], inputs[1], self.dtype)
        return x, NormCall(x, as_float64(self.scale), self.dtype, self.dtype, epsilon=EPSILON)

    def check(self, ours: bool) -> Callable[[Any], str | None]:
        """Return a function that checks some rows by npu_rope's bound if ``ours``, else by a peer's bound.
        The sum of add_rms_norm must be equal to the expected one."""

        def check(results: Any) -> str | None:
            x, call = self._expected
            result, *sums = results if isinstance(results, (tuple, list)) else (results,)
            value, bound = rms_norm(call)
            bound = bound if ours else peer_norm_bound(value, self.dtype)
            ratio, worst_index = worst_ratio(as_float64(result[self.checked]), value, bound)
            if ratio > 1:
                return f"{ratio:.3g} times its bound at {list(worst_index)}"
            checked_sums = [as_float64(total[self.checked]) for total in sums]
            return None if all(np.array_equal(total, x) for total in checked_sums) else "its sum is wrong"

        return check


def contestants(bench_row: Row, pattern: str | None, ggml_lib: str | None) -> Iterator[Contestant]:
    """Yield the floor, npu_rope's contestants, and the peers whose name matches the pattern."""
    assert isinstance(bench_row, NormRow)
    inputs = NormInputs(bench_row)
    yield floor(inputs.read_tensors)
    for name, prepare in _ours(inputs):
        yield Contestant(name, "ours", prepare, inputs.check(ours=True))
    peers = (
        (TORCH, _torch),
        (HF, _transformers),
        (ORT, _onnxruntime),
        (GGML, partial(_ggml, given_folder=ggml_lib)),
    )
    for name, prepare_peer in peers:
        if is_wanted(name, pattern):
            yield Contestant(name, "peer", partial(prepare_peer, inputs), inputs.check(ours=False))


def _ours(inputs: NormInputs) -> Iterator[tuple[str, Callable[[], Ready]]]:
    mode, scale = inputs.row.mode, inputs.scale
    operator = partial(getattr(npu_rope, mode), *inputs.read_tensors, scale, epsilon=EPSILON)
    outs = inputs.outs()
    out = outs[0] if inputs.residual is None else tuple(outs)
    call = partial(operator, out=out)
    yield OUT[mode], partial(Ready, call, call)
    yield f"npu_rope.{mode}, new tensors", partial(Ready, operator, operator)
    if inputs.residual is not None:
        yield SEPARATE_CALLS, partial(_separate_calls, inputs)


def _separate_calls(inputs: NormInputs) -> Ready:
    y, total = inputs.outs()
    add_residual = partial(torch.add, *inputs.read_tensors, out=total)
    norm = partial(npu_rope.rms_norm, total, inputs.scale, epsilon=EPSILON, out=y)
    return ready_from_writes([add_residual, norm], lambda: (y, total))


# ---- peers -----------------------------------------------------------------------------------------------


def _after_residual(inputs: NormInputs, norm: Callable[[Any], Any]) -> Ready:
    """Prepare a call that makes new tensors: the norm of x, or the norm of its sum with the residual."""

    def add_and_norm() -> Any:
        total = inputs.x + inputs.residual
        return norm(total), total

    call = partial(norm, inputs.x) if inputs.residual is None else add_and_norm
    return Ready(call, call)


def _torch(inputs: NormInputs) -> Ready:
    norm = torch.nn.functional.rms_norm
    return _after_residual(inputs, lambda x: norm(x, (WIDTH,), inputs.scale, EPSILON))


def _transformers(inputs: NormInputs) -> Ready:
    require("transformers")
    modeling: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    norm = modeling.LlamaRMSNorm(WIDTH, eps=EPSILON)
    norm.weight.data = inputs.scale
    return _after_residual(inputs, norm)


def _onnxruntime(inputs: NormInputs) -> Ready:
    if inputs.dtype == "bfloat16":
        raise Unsupported("its CPU provider has no bfloat16 kernel")
    require("onnx", "onnxruntime")
    feeds = {"x": inputs.x.numpy(), "scale": inputs.scale.numpy()}
    outs = {"y": inputs.outs()[0].numpy()}
    if inputs.residual is not None:
        feeds["residual"], outs["sum"] = inputs.residual.numpy(), inputs.outs()[1].numpy()
    helper: Any = importlib.import_module("onnx.helper")
    nodes = [] if inputs.residual is None else [helper.make_node("Add", ["x", "residual"], ["sum"])]
    normalized = "sum" if nodes else "x"
    nodes.append(helper.make_node("RMSNormalization", [normalized, "scale"], ["y"], epsilon=EPSILON))
    call = session_call(onnx_model(nodes, feeds, outs), feeds, outs, inputs.threads)
    return ready_from_writes([call], lambda: [torch.from_numpy(out) for out in outs.values()])


def _ggml(inputs: NormInputs, *, given_folder: str | None) -> Ready:
    if inputs.dtype != "float32":
        raise Unsupported("its CPU rms_norm takes float32 only")
    library = ggml_library(given_folder)

    def build(graph: GgmlGraph) -> None:
        base, float32 = library.base, GGML_TYPES["float32"]
        shape = WIDTH, inputs.row.rows, 1, 1
        sources = [
            graph.source(tensor, base.ggml_new_tensor_4d(graph.context, float32, *shape))
            for tensor in inputs.read_tensors
        ]
        scale = graph.source(inputs.scale, base.ggml_new_tensor_1d(graph.context, float32, WIDTH))
        x = sources[0] if inputs.residual is None else base.ggml_add(graph.context, *sources)
        normalized = base.ggml_rms_norm(graph.context, x, EPSILON)
        graph.add_result(base.ggml_mul(graph.context, normalized, scale), inputs.x)
        if inputs.residual is not None:
            graph.add_result(x, inputs.x)

    graph = GgmlGraph(library, inputs.threads, build)
    return Ready(graph.call, graph.result, graph.around, graph.close)
