"""Run random RotaryEmbedding models by npu_rope, ONNX Runtime and ONNX's ReferenceEvaluator; see --help.
Each result is judged against the specification's algorithm in float64.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from random_norm_calls import rounded
from random_options import parse, parser_of, show_failures
from rich.console import Console
from rich.progress import track
from rich.table import Table

from npu_rope.integrations import onnx_backend
from npu_rope.testing import rotary_spec
from npu_rope.testing.bounds import table_bound, worst_ratio

HELP = """\
Draw random ONNX models of one RotaryEmbedding node (opset 23), run each by npu_rope's back ends, by ONNX
Runtime and by ONNX's ReferenceEvaluator, and judge every result against the specification's algorithm in
float64.

A model is drawn from the seed and its number: [B,N,S,D] or [B,S,hidden], full or partial window, halves or
interleaved, caches with position_ids or without, float32, float16, bfloat16.

npu_rope must be within the bound of float32 arithmetic that is rounded once. A peer beyond this bound is
listed. An unexplained disagreement is npu_rope beyond this bound, a peer beyond the bound of arithmetic in
the tensors' own type, or a peer that refuses a model for an unknown reason.
"""
EXAMPLES = """\
examples:

  random_onnx.py                      two thousand models
  random_onnx.py --only 29            repeat and describe one model
  random_onnx.py --dtype float16 --count 500 --seed 7

exit status: 0 npu_rope is within its bound and every disagreement is explained; 1 otherwise; 2 bad usage.
"""

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
    """Return one case: layouts, windows, heads, caches with or without position_ids, types."""
    rng = random.Random(f"{seed}/{index}")
    dtype = rng.choice(dtypes)
    batch, tokens, heads = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 6)
    head_size = 2 * rng.choice([rng.randint(1, 8), rng.randint(1, 70), 16, 32, 40, 64])
    width = rng.choice([0, 0, head_size, 2 * rng.randint(1, head_size // 2)])
    attributes = {"interleaved": rng.randint(0, 1)} if rng.random() < 0.8 else {}
    flat = rng.random() < 0.5
    if flat or rng.random() < 0.3:  # ignored for four dimensions
        attributes["num_heads"] = heads
    if width:
        attributes["rotary_embedding_dim"] = width
    rows, half = rng.randint(1, 40), (width or head_size) // 2
    by_row = rng.random() < 0.6
    shapes = {
        "X": (batch, tokens, heads * head_size) if flat else (batch, heads, tokens, head_size),
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
    # An older IR version, because ONNX Runtime may not support onnx's newest one.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@dataclass
class LargestErrors:
    """For each implementation, its largest error over npu_rope's bound, and over the bound of arithmetic in
    the tensors' own type; or its message if it refused the model."""

    ratios: dict[str, float] = field(default_factory=dict)
    own_type_ratios: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


# Known causes of ONNX Runtime's refusals of valid models, by a part of its message.
EXPLAINED = {
    "Updating cos_cache and sin_cache in RotaryEmbedding is not currently supported": (
        "there are more tokens than rows of the caches, so ONNX Runtime would enlarge them"
    ),
    "Could not find an implementation for": "no kernel for the type",
}


def run(case: OnnxCase, backends: tuple[str, ...]) -> LargestErrors:
    """Run the case on npu_rope's back ends and on both peers."""
    value, bound, own_type = case.expected()
    outcome = LargestErrors()

    def judge(name: str, y: Array) -> None:
        matches = y.shape == value.shape and y.dtype == case.inputs["X"].dtype
        outcome.ratios[name] = worst_ratio(y, value, bound)[0] if matches else float("inf")
        outcome.own_type_ratios[name] = worst_ratio(y, value, own_type)[0] if matches else float("inf")

    for backend in backends:
        judge(backend, onnx_backend.run_model(case.model, case.inputs, backend=backend)[0])
    judge("ReferenceEvaluator", _by_evaluator(case))
    try:
        judge("onnxruntime", _by_onnxruntime(case))
    except Exception as error:  # ONNX Runtime has many exception classes
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


# ---- the command -----------------------------------------------------------------------------------


@dataclass
class Tally:
    """The results of one implementation's models of one type."""

    models: int = 0
    worst: float = 0.0
    beyond: int = 0  # models beyond our bound
    refused: Counter[str] = field(default_factory=Counter)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_onnx.py", HELP, EXAMPLES, "model", 2000)
    add = parser.add_argument
    add("--dtype", action="append", choices=tuple(ELEMENTS), help="models of this type only; repeatable")
    add(
        "--backend",
        action="append",
        metavar="NAME",
        help="back end of npu_rope; repeatable (cpu and reference)",
    )
    return parse(parser, given, smallest_count=1)


def explanation(refusal: str) -> str | None:
    """Return the known reason for a peer's refusal, or None."""
    return next((why for words, why in EXPLAINED.items() if words in refusal), None)


def disagreements(outcome: LargestErrors, ours: Sequence[str]) -> list[str]:
    """Describe the unexplained parts of an outcome."""
    found = [
        f"{name}: {outcome.ratios[name]:.3g} of the bound" for name in ours if not outcome.ratios[name] <= 1
    ]
    for name, ratio in outcome.own_type_ratios.items():
        if name not in ours and not ratio <= 1:
            found.append(f"{name}: {ratio:.3g} of the bound of its own type's arithmetic")
    for name, text in outcome.refusals.items():
        if explanation(text) is None:
            found.append(f"{name} refuses: {text}")
    return found


def show_one(case: OnnxCase, outcome: LargestErrors, console: Console) -> None:
    console.print(case.text, highlight=False, markup=False)
    for name, ratio in outcome.ratios.items():
        console.print(f"  {name}: {ratio:.3g} of the bound", highlight=False)
    for name, text in outcome.refusals.items():
        console.print(
            f"  {name} refuses: {text}\n    ({explanation(text) or 'not explained'})", highlight=False
        )


def report(tallies: dict[tuple[str, str], Tally], console: Console) -> None:
    table = Table(box=None)
    for title in ("implementation", "type", "models", "largest error / bound", "beyond it", "refused"):
        justify = "left" if title in ("implementation", "type") else "right"
        table.add_column(title, no_wrap=True, justify=justify)
    for (name, dtype), t in sorted(tallies.items()):
        worst = f"{t.worst:.4f}" if t.models else "-"
        table.add_row(name, dtype, str(t.models), worst, str(t.beyond), str(t.refused.total()))
    console.print(table)
    for (name, dtype), t in sorted(tallies.items()):
        for why, count in t.refused.items():
            console.print(f"{name} refuses {count} of {dtype}: {why}", highlight=False)
        if t.beyond:
            console.print(
                f"{name} leaves our bound in {t.beyond} of {dtype}: it computes in {dtype}", highlight=False
            )


def main(given: Sequence[str] | None = None) -> int:
    options, console = arguments(given), Console()
    backends = tuple(options.backend or ("cpu", "reference"))
    dtypes = tuple(options.dtype or ELEMENTS)
    if options.only is not None:
        case = draw(options.seed, options.only, dtypes)
        outcome = run(case, backends)
        show_one(case, outcome, console)
        return 1 if disagreements(outcome, backends) else 0
    import onnxruntime

    console.print(
        f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, seed {options.seed}",
        highlight=False,
    )
    tallies: dict[tuple[str, str], Tally] = {}
    failures: list[str] = []
    quiet = not sys.stderr.isatty()
    for index in track(range(options.count), "models", console=Console(stderr=True), disable=quiet):
        case = draw(options.seed, index, dtypes)
        outcome = run(case, backends)
        for name, ratio in outcome.ratios.items():
            tally = tallies.setdefault((name, case.dtype), Tally())
            tally.models += 1
            tally.worst = max(tally.worst, ratio)
            tally.beyond += not ratio <= 1
        for name, text in outcome.refusals.items():
            reason = explanation(text) or "not explained"
            tallies.setdefault((name, case.dtype), Tally()).refused[reason] += 1
        failures += [f"--only {index}: {what}" for what in disagreements(outcome, backends)]
    report(tallies, console)
    show_failures(failures, partial(console.print, highlight=False, markup=False))
    status = "FAIL" if failures else "OK"
    console.print(
        f"{status}: {options.count} models, {len(failures)} unexplained disagreements", highlight=False
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
