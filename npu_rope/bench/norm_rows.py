"""rms_norm and add_rms_norm compared with a copy of the same bytes and with other libraries.

Rows have 4096 elements and a scale of their dtype: 2048 rows as in prefill, 32 rows and one as in decoding.
ONNX Runtime, ggml and npu_rope with out= write into kept buffers; torch and transformers make new tensors, as
their functions do. The peers have no add_rms_norm: they add the residual first.
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
from npu_rope.bench.rope_rows import DTYPES, Row, floor, ready
from npu_rope.bench.verify import as_float64
from npu_rope.optional_torch import torch
from npu_rope.testing.bounds import peer_norm_bound, worst_ratio
from npu_rope.testing.ggml_worker import GGML_TYPES
from npu_rope.testing.norm_spec import NormCall, add, rms_norm

GROUP, MODES = "norm", ("rms_norm", "add_rms_norm")
ROWS, WIDTH, EPSILON = (2048, 32, 1), 4096, 1e-5
# By mode: the name of npu_rope's call into kept buffers, which the targets judge.
OUT = {mode: f"npu_rope.{mode}(out=)" for mode in MODES}
APART = "torch.add(out=), npu_rope.rms_norm(out=)"
TORCH, HF = "torch.nn.functional.rms_norm", "transformers LlamaRMSNorm, eager"
ORT, GGML = "ONNX Runtime RMSNormalization-23", "ggml CPU rms_norm and mul"
MAX_CHECKED = 32  # rows whose results are checked


@dataclass(frozen=True)
class NormRow(Row):
    """A row of the benchmark for rms_norm or add_rms_norm: one tensor size, dtype and number of threads."""

    @property
    def rows(self) -> int:
        """The number of rows of the tensor."""
        return self.heads[0][1]

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
        kind = getattr(torch, self.dtype)
        sizes = (bench_row.rows, WIDTH), (bench_row.rows, WIDTH), (WIDTH,)
        self.x, residual, self.scale = (torch.randn(s, generator=generator).to(kind) for s in sizes)
        self.residual = residual if bench_row.mode == "add_rms_norm" else None
        self.checked = slice(None, None, max(1, bench_row.rows // MAX_CHECKED))

    @property
    def read(self) -> list[Any]:
        """The inputs: x, and the residual if there is one."""
        return [self.x] if self.residual is None else [self.x, self.residual]

    def outs(self) -> list[Any]:
        """Return new memory for the result, and for the sum if there is one."""
        return [torch.empty_like(t) for t in self.read]

    @cached_property
    def _expected(self) -> tuple[Any, Any]:
        """The values to normalize and the specification's call, for the rows that are checked."""
        read = [as_float64(t[self.checked]) for t in self.read]
        x = read[0] if self.residual is None else add(read[0], read[1], self.dtype)
        return x, NormCall(x, as_float64(self.scale), self.dtype, self.dtype, epsilon=EPSILON)

    def check(self, ours: bool) -> Callable[[Any], str | None]:
        """Return a check of some rows by npu_rope's bound if ``ours``, else by a bound for a peer's
        arithmetic. The values of add_rms_norm's sum must be equal to the expected ones."""

        def check(results: Any) -> str | None:
            x, call = self._expected
            result, *sums = results if isinstance(results, (tuple, list)) else (results,)
            value, bound = rms_norm(call)
            bound = bound if ours else peer_norm_bound(value, self.dtype)
            ratio, at = worst_ratio(as_float64(result[self.checked]), value, bound)
            if ratio > 1:
                return f"{ratio:.3g} times its bound at {list(at)}"
            wrong = [s for s in sums if not np.array_equal(as_float64(s[self.checked]), x)]
            return "its sum is wrong" if wrong else None

        return check


def contestants(bench_row: Row, pattern: str | None, ggml_lib: str | None) -> Iterator[Contestant]:
    """Yield the floor, npu_rope's contestants, and the peers whose name matches the pattern."""
    assert isinstance(bench_row, NormRow)
    inputs = NormInputs(bench_row)
    yield floor(inputs.read)
    for name, prepare in _ours(inputs):
        yield Contestant(name, "ours", prepare, inputs.check(ours=True))
    peers = (
        (TORCH, _torch),
        (HF, _transformers),
        (ORT, _onnxruntime),
        (GGML, partial(_ggml, given=ggml_lib)),
    )
    for name, prepare_peer in peers:
        if is_wanted(name, pattern):
            yield Contestant(name, "peer", partial(prepare_peer, inputs), inputs.check(ours=False))


def _ours(inputs: NormInputs) -> Iterator[tuple[str, Callable[[], Ready]]]:
    mode, scale = inputs.row.mode, inputs.scale
    operator = partial(getattr(npu_rope, mode), *inputs.read, scale, epsilon=EPSILON)
    outs = inputs.outs()
    out = outs[0] if inputs.residual is None else tuple(outs)
    call = partial(operator, out=out)
    yield OUT[mode], partial(Ready, call, call)
    yield f"npu_rope.{mode}, new tensors", partial(Ready, operator, operator)
    if inputs.residual is not None:
        yield APART, partial(_separate_calls, inputs)


def _separate_calls(inputs: NormInputs) -> Ready:
    y, total = inputs.outs()
    add_residual = partial(torch.add, *inputs.read, out=total)
    norm = partial(npu_rope.rms_norm, total, inputs.scale, epsilon=EPSILON, out=y)
    return ready([add_residual, norm], lambda: (y, total))


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
    return ready([call], lambda: [torch.from_numpy(out) for out in outs.values()])


def _ggml(inputs: NormInputs, *, given: str | None) -> Ready:
    if inputs.dtype != "float32":
        raise Unsupported("its CPU rms_norm takes float32 only")
    library = ggml_library(given)

    def build(graph: GgmlGraph) -> None:
        base, kind = library.base, GGML_TYPES["float32"]
        shape = WIDTH, inputs.row.rows, 1, 1
        read = [graph.source(t, base.ggml_new_tensor_4d(graph.context, kind, *shape)) for t in inputs.read]
        scale = graph.source(inputs.scale, base.ggml_new_tensor_1d(graph.context, kind, WIDTH))
        x = read[0] if inputs.residual is None else base.ggml_add(graph.context, *read)
        normalized = base.ggml_rms_norm(graph.context, x, EPSILON)
        graph.add_result(base.ggml_mul(graph.context, normalized, scale), inputs.x)
        if inputs.residual is not None:
            graph.add_result(x, inputs.x)

    graph = GgmlGraph(library, inputs.threads, build)
    return Ready(graph.call, graph.result, graph.around, graph.close)
