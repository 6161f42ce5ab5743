"""Random RotaryEmbedding models, each run by npu_rope, by ONNX Runtime and by ONNX's ReferenceEvaluator, each
judged against the specification's algorithm in float64.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from npu_rope.integrations import onnx_backend
from npu_rope.testing import rotary_spec
from npu_rope.testing.bounds import table_bound, worst_ratio
from npu_rope.testing.random_norms import rounded

Array = npt.NDArray[Any]
ELEMENTS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


@dataclass(frozen=True)
class OnnxCase:
    """A model of one RotaryEmbedding node, and its inputs by name."""

    text: str
    dtype: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    attributes: dict[str, int]

    def expected(self) -> tuple[Array, Array, Array]:
        """Return the specification's result in float64, the bound of npu_rope's error, and the bound for a
        computation in the tensors' own type."""
        named = {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0, **self.attributes}
        value, magnitude = rotary_spec.rotary_embedding(
            self.inputs["X"],
            self.inputs["cos_cache"],
            self.inputs["sin_cache"],
            self.inputs.get("position_ids"),
            interleaved=bool(named["interleaved"]),
            num_heads=named["num_heads"],
            rotary_embedding_dim=named["rotary_embedding_dim"],
        )
        ours = table_bound(magnitude, value, self.dtype)
        return value, ours, table_bound(magnitude, value, self.dtype, compute=self.dtype)


def draw(seed: int, index: int, dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")) -> OnnxCase:
    """Return the case of that number: layouts, windows, heads, caches with or without position_ids, types."""
    rng = random.Random(f"{seed}/{index}")
    dtype = rng.choice(dtypes)
    batch, tokens, heads = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 6)
    head = 2 * rng.choice([rng.randint(1, 8), rng.randint(1, 70), 16, 32, 40, 64])
    width = rng.choice([0, 0, head, 2 * rng.randint(1, head // 2)])
    attributes = {"interleaved": rng.randint(0, 1)} if rng.random() < 0.8 else {}
    flat = rng.random() < 0.5
    if flat or rng.random() < 0.3:  # ignored for four dimensions
        attributes["num_heads"] = heads
    if width:
        attributes["rotary_embedding_dim"] = width
    rows, half = rng.randint(1, 40), (width or head) // 2
    by_row = rng.random() < 0.6
    shapes = {
        "X": (batch, tokens, heads * head) if flat else (batch, heads, tokens, head),
        "cos_cache": (rows, half) if by_row else (batch, tokens, half),
        "sin_cache": (rows, half) if by_row else (batch, tokens, half),
    }
    values = np.random.default_rng(rng.getrandbits(63))
    inputs = {name: rounded(values.uniform(-2, 2, shape), dtype) for name, shape in shapes.items()}
    if by_row:
        inputs["position_ids"] = values.integers(0, rows, (batch, tokens))
    sizes = ", ".join(f"{name} {list(a.shape)}" for name, a in inputs.items())
    text = f"{dtype}: {sizes}, {attributes}"
    return OnnxCase(text, dtype, _model(inputs, dtype, attributes), inputs, attributes)


def _model(inputs: dict[str, Array], dtype: str, attributes: dict[str, int]) -> onnx.ModelProto:
    kinds = dict.fromkeys(inputs, ELEMENTS[dtype]) | {"position_ids": TensorProto.INT64}
    given = [helper.make_tensor_value_info(name, kinds[name], a.shape) for name, a in inputs.items()]
    result = helper.make_tensor_value_info("Y", ELEMENTS[dtype], inputs["X"].shape)
    named: dict[str, Any] = dict(attributes)
    node = helper.make_node("RotaryEmbedding", list(inputs), ["Y"], **named)
    graph = helper.make_graph([node], "random", given, [result])
    # An older IR than onnx's own, which ONNX Runtime may not support yet.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@dataclass
class Outcome:
    """By implementation: the largest error over npu_rope's bound, and over that of arithmetic in the tensors'
    own type; or the reason why it did not compute."""

    ratios: dict[str, float] = field(default_factory=dict)
    own_type_ratios: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


# ONNX Runtime's messages for models that the specification allows, with their known causes.
EXPLAINED = {
    "Updating cos_cache and sin_cache in RotaryEmbedding is not currently supported": (
        "more tokens than rows of the caches, which it takes for a cache to be grown"
    ),
    "Could not find an implementation for": "no kernel for the type",
}


def run(case: OnnxCase, backends: tuple[str, ...]) -> Outcome:
    """Run the case on npu_rope's backends of those names and on both peers."""
    value, bound, own_type = case.expected()
    outcome = Outcome()

    def judge(who: str, y: Array) -> None:
        right = y.shape == value.shape and y.dtype == case.inputs["X"].dtype
        outcome.ratios[who] = worst_ratio(y, value, bound)[0] if right else float("inf")
        outcome.own_type_ratios[who] = worst_ratio(y, value, own_type)[0] if right else float("inf")

    for backend in backends:
        judge(backend, onnx_backend.run_model(case.model, case.inputs, backend=backend)[0])
    judge("ReferenceEvaluator", _by_evaluator(case))
    try:
        judge("onnxruntime", _by_onnxruntime(case))
    except Exception as error:  # ONNX Runtime has many exception classes of its own
        outcome.refusals["onnxruntime"] = str(error)
    return outcome


def _by_evaluator(case: OnnxCase) -> Array:
    results: Any = ReferenceEvaluator(case.model).run(None, case.inputs)
    return np.asarray(results[0])


def _by_onnxruntime(case: OnnxCase) -> Array:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    y: Array = session.run(None, case.inputs)[0]
    return y
