"""rms_norm beside a copy of the same bytes, torch's, ONNX Runtime's and ggml's.

One row per dtype: 2048 rows of 4096 with a scale of their type, all that prefill gives a norm. Our own, ONNX
Runtime and ggml write into kept buffers; torch makes a new tensor, as its function does.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready, Unsupported
from npu_rope.bench.peers import require, session_call
from npu_rope.bench.peers_ggml import GgmlGraph, ggml_library
from npu_rope.bench.rope_rows import DTYPES, Row
from npu_rope.bench.verify import as_float64
from npu_rope.optional_torch import torch
from npu_rope.testing.bounds import peer_norm_bound, worst_ratio
from npu_rope.testing.ggml_worker import GGML_TYPES
from npu_rope.testing.norm_spec import NormCall, rms_norm

GROUP, MODE = "norm", "rms_norm"
ROWS, WIDTH, EPSILON = 2048, 4096, 1e-5
OUT, NEW = "npu_rope.rms_norm(out=)", "npu_rope.rms_norm, new tensor"
TORCH, ORT = "torch.nn.functional.rms_norm", "ONNX Runtime RMSNormalization-23"
GGML = "ggml CPU rms_norm and mul"
CHECKED = slice(None, None, 64)  # rows that are judged


@dataclass(frozen=True)
class NormRow(Row):
    """A line-up of rms_norm."""

    @property
    def shape(self) -> str:
        """Rows and their width."""
        return f"[{ROWS},{WIDTH}]"


def row(dtype: str, threads: int) -> NormRow:
    """The row of one dtype."""
    return NormRow(GROUP, ((1, ROWS, WIDTH // 128),), dtype, MODE, threads)


@dataclass(frozen=True)
class Inputs:
    """What everybody normalizes."""

    x: Any
    scale: Any
    dtype: str
    threads: int

    def check(self, ours: bool) -> Callable[[Any], str | None]:
        """Some rows against the specification: ours within its bound, a peer within its own arithmetic's."""

        def check(result: Any) -> str | None:
            x, scale = as_float64(self.x[CHECKED]), as_float64(self.scale)
            value, bound = rms_norm(NormCall(x, scale, self.dtype, self.dtype, epsilon=EPSILON))
            bound = bound if ours else peer_norm_bound(value, self.dtype)
            ratio, at = worst_ratio(as_float64(result[CHECKED]), value, bound)
            return None if ratio <= 1 else f"{ratio:.3g} times its bound at {list(at)}"

        return check


def contestants(own: Row, pattern: str | None, ggml_lib: str | None) -> Iterator[Contestant]:
    """The floor, ours, and the peers whose name the pattern finds."""
    generator = torch.Generator().manual_seed(22)
    kind = getattr(torch, DTYPES[own.dtype])
    x, scale = (torch.randn(s, generator=generator).to(kind) for s in ((ROWS, WIDTH), (WIDTH,)))
    inputs, out = Inputs(x, scale, DTYPES[own.dtype], own.threads), torch.empty_like(x)
    copied = torch.empty_like(x)
    yield Contestant(
        "memory floor: torch copy_", "floor", lambda: Ready(partial(copied.copy_, x), lambda: None)
    )
    for name, call in (
        (OUT, partial(npu_rope.rms_norm, x, scale, epsilon=EPSILON, out=out)),
        (NEW, partial(npu_rope.rms_norm, x, scale, epsilon=EPSILON)),
    ):
        yield Contestant(name, "ours", partial(Ready, call, call), inputs.check(ours=True))
    for name, prepare in ((TORCH, _torch), (ORT, _onnxruntime), (GGML, partial(_ggml, given=ggml_lib))):
        if pattern is None or (pattern != "none" and re.search(pattern, name, re.IGNORECASE)):
            yield Contestant(name, "peer", partial(prepare, inputs), inputs.check(ours=False))


def _torch(inputs: Inputs) -> Ready:
    call = partial(torch.nn.functional.rms_norm, inputs.x, (WIDTH,), inputs.scale, EPSILON)
    return Ready(call, call)


def _onnxruntime(inputs: Inputs) -> Ready:
    if inputs.dtype == "bfloat16":
        raise Unsupported("its CPU provider has no bfloat16 kernel")
    require("onnx", "onnxruntime")
    helper: Any = importlib.import_module("onnx.helper")
    kind = {"float32": 1, "float16": 10}[inputs.dtype]  # onnx.TensorProto.DataType
    info = helper.make_tensor_value_info
    node = helper.make_node("RMSNormalization", ["x", "scale"], ["y"], epsilon=EPSILON)
    given = [info("x", kind, (ROWS, WIDTH)), info("scale", kind, (WIDTH,))]
    graph = helper.make_graph([node], "norm", given, [info("y", kind, (ROWS, WIDTH))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    y = torch.empty_like(inputs.x).numpy()
    feeds = {"x": inputs.x.numpy(), "scale": inputs.scale.numpy()}
    call = session_call(model.SerializeToString(), feeds, {"y": y}, inputs.threads)

    def result() -> Any:
        call()
        return torch.from_numpy(y)

    return Ready(call, result)


def _ggml(inputs: Inputs, *, given: str | None) -> Ready:
    if inputs.dtype != "float32":
        raise Unsupported("its CPU rms_norm takes float32 only")
    library = ggml_library(given)

    def build(graph: GgmlGraph) -> None:
        base, kind = library.base, GGML_TYPES["float32"]
        x = graph.source(inputs.x, base.ggml_new_tensor_4d(graph.context, kind, WIDTH, ROWS, 1, 1))
        scale = graph.source(inputs.scale, base.ggml_new_tensor_1d(graph.context, kind, WIDTH))
        normalized = base.ggml_rms_norm(graph.context, x, EPSILON)
        graph.add_result(base.ggml_mul(graph.context, normalized, scale), inputs.x)

    graph = GgmlGraph(library, inputs.threads, build)
    return Ready(graph.call, lambda: graph.result()[0], graph.around, graph.close)
