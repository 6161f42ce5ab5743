"""torch.onnx.export of models that use npu_rope: standard nodes, with equal results in ONNX Runtime."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch
from peer_bounds import peer_normalized_error

from npu_rope import (
    RopeParams,
    add_rms_norm,
    rms_norm,
    rope,
    rope_,
    rope_qk,
    rotary_embedding,
    rotary_mul,
    rotary_mul_qk,
    rotary_position_embedding,
)
from npu_rope.integrations import onnx_backend, onnx_export
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import UNIT_ROUNDOFF, worst_ratio

pytestmark = pytest.mark.peer


class FunctionModule(torch.nn.Module):
    """Wrap a function in a module that returns 16-bit results as float32: NumPy has no bfloat16."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, *tensors):
        y = self.run(*tensors)
        if isinstance(y, tuple):
            return tuple(t if t.dtype == torch.float64 else t.float() for t in y)
        return y if y.dtype == torch.float64 else y.float()


def export(run, given, **options):
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from torch's exporter
        program = onnx_export.export(FunctionModule(run).eval(), given, verbose=False, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program.model_proto


def by_onnxruntime(model, given):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    return session.run(None, {n: t.numpy() for n, t in zip(names, given, strict=True)})


def op_types(model):
    return [node.op_type for node in model.graph.node]


@dataclass
class ExportCase:
    name: str
    run: object
    given: tuple
    nodes: int = 1  # of RotaryEmbedding
    dtype: str = "float32"

    def __str__(self):
        return self.name


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rope_of(params, **options):
    return lambda x, p: rope(x * 1, p, params, **options)


NEOX, NORMAL = RopeParams(32, "neox"), RopeParams(16, "normal", n_offs=8)
YARN = RopeParams(32, "neox", n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0, attn_factor=1.2)
FAR = torch.arange(5) + 900_000
X, GRID = randn(2, 5, 4, 32), torch.stack([torch.full((5,), 7), torch.arange(5), torch.arange(5) * 3])
BY_HEADS = X.transpose(1, 2).contiguous()
KEYS = randn(2, 5, 1, 32, seed=3)
MROPE = RopeParams(32, "mrope", sections=(6, 5, 5, 0))
TABLES = randn(5, 16, seed=1), randn(5, 16, seed=2)
BATCH_TABLES = randn(2, 5, 1, 16), randn(2, 5, 1, 16, seed=5)
IDS = torch.tensor([[0, 8, 1, 3, 3], [2, 2, 7, 0, 5]])
CACHES = randn(9, 16, seed=1), randn(9, 16, seed=2)

CASES = [
    ExportCase("neox", rope_of(NEOX), (X, FAR)),
    ExportCase("normal-window", rope_of(NORMAL), (X, FAR)),
    ExportCase("yarn", rope_of(YARN), (X, FAR)),
    ExportCase("backward", rope_of(NEOX, forward=False), (X, FAR)),
    ExportCase("by-batch", rope_of(NEOX), (X, torch.stack([FAR, FAR * 2]))),
    ExportCase("no-batch", rope_of(NORMAL), (X[0], FAR)),
    ExportCase("f32-angles", rope_of(NEOX, angle="f32"), (X, torch.arange(5))),
    ExportCase("float16", rope_of(NEOX), (X.half(), FAR), dtype="float16"),
    ExportCase("bfloat16", lambda x, p: rope(x.bfloat16(), p, NORMAL), (X, FAR), dtype="bfloat16"),
    ExportCase("float64", rope_of(NORMAL), (X.double(), FAR), nodes=0),
    ExportCase("float64-halves", rope_of(NEOX), (X.double(), FAR), nodes=0),
    ExportCase("factors", lambda x, p, f: rope(x * 1, p, YARN, f), (X, FAR, torch.linspace(1, 8, 16))),
    ExportCase("mrope-planes", rope_of(MROPE), (X, torch.cat([GRID, GRID[:1]]))),
    ExportCase("mrope-three", rope_of(MROPE), (X, GRID)),
    ExportCase("mrope-flat", rope_of(MROPE), (X, torch.cat([GRID, GRID[:1]]).flatten())),
    ExportCase(
        "imrope-by-batch",
        rope_of(RopeParams(32, "imrope", sections=(6, 5, 5, 0))),
        (X, torch.stack([GRID, GRID + 1], 1)),
    ),
    ExportCase("vision", rope_of(RopeParams(16, "vision", sections=(8, 8, 0, 0))), (X, GRID)),
    ExportCase("in-place", lambda x, p: rope_(x * 2, p, NEOX), (X, FAR)),
    ExportCase("qk", lambda q, k, p: rope_qk(q, k, p, NEOX), (X, KEYS, FAR), nodes=2),
    ExportCase(
        "pmx",
        lambda q, k, s: rotary_position_embedding(q, k, s, rotary_dim=16),
        (X, KEYS, torch.tensor(40)),
        nodes=2,
    ),
    ExportCase("mul", lambda x, c, s: rotary_mul(x, c, s), (X, *TABLES)),
    ExportCase(
        "mul-window",
        lambda x, c, s: rotary_mul(
            x, c[:, None, :8], s[:, None, :8], rotary_dim=16, offset=4, interleaved=True
        ),
        (X[0], *TABLES),
    ),
    ExportCase(
        "mul-by-batch",
        lambda x, c, s: rotary_mul(x, c, s),
        (X, randn(2, 5, 1, 16), randn(2, 5, 1, 16, seed=5)),
    ),
    ExportCase(
        "mul-qk-float16",
        lambda q, k, c, s: rotary_mul_qk(q, k, c, s),
        (X.half(), KEYS.half(), *TABLES),
        nodes=2,
        dtype="float16",
    ),
    ExportCase("embedding", lambda x, c, s, i: rotary_embedding(x, c, s, i), (BY_HEADS, *CACHES, IDS)),
    ExportCase(
        "embedding-flat",
        lambda x, c, s, i: rotary_embedding(
            x, c, s, i.int(), num_heads=4, rotary_embedding_dim=16, interleaved=1
        ),
        (X.flatten(2), *CACHES, IDS),
    ),
    ExportCase(
        "embedding-wide-tables",
        lambda x, c, s, i: rotary_embedding(x, c, s, i),
        (BY_HEADS.half(), *CACHES, IDS),
        dtype="float16",
    ),
    *(
        ExportCase(
            f"embedding-{name}{'-flat' if flat else ''}",
            lambda x, c, s, i, flat=flat: rotary_embedding(x, c, s, i, num_heads=4 if flat else 0),
            ((X.flatten(2) if flat else BY_HEADS).to(dtype), *(c.to(dtype) for c in CACHES), IDS),
            dtype=name,
            nodes=int(name != "float64"),
        )
        for name, dtype in (
            ("float16", torch.float16),
            ("float64", torch.float64),
        )
        for flat in (False, True)
    ),
]


# An export takes half a second; all but these cases are slow tests.
QUICK = ("neox", "normal-window", "bfloat16", "qk", "embedding-flat")
MARKED = [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in CASES]


@pytest.mark.long
@pytest.mark.parametrize("case", MARKED, ids=str)
def test_onnxruntime_gives_the_same_results(case):
    model = export(case.run, case.given)
    kinds = op_types(model)
    assert kinds.count("RotaryEmbedding") == case.nodes
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert next(o.version for o in model.opset_import if not o.domain) >= 23
    expected = FunctionModule(case.run)(*case.given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, y in zip(by_onnxruntime(model, case.given), expected, strict=True):
        assert got.shape == tuple(y.shape)
        # The error of float32 tables, and one unit of the type.
        error = np.abs(got.astype(np.float64) - y.double().numpy())
        allowed = 4e-6 + 2 * UNIT_ROUNDOFF[case.dtype] * np.abs(y.double().numpy())
        assert np.all(error <= allowed), error.max()


@pytest.mark.long
def test_sizes_may_be_dynamic():
    model = export(rope_of(NORMAL), (X, FAR), dynamic_shapes=(({0: "B", 1: "S"}, {0: "S"}),))
    for B, S in ((1, 1), (3, 7), (2, 5)):
        given = randn(B, S, 4, 32), torch.arange(S) + 123_456
        [got] = by_onnxruntime(model, given)
        assert np.abs(got - rope(*given, NORMAL).numpy()).max() < 4e-6


def test_a_model_of_one_rotary_embedding_runs_on_npu_ropes_onnx_backend():
    given = BY_HEADS, *CACHES, IDS
    model = export(rotary_embedding, given)
    assert op_types(model) == ["RotaryEmbedding"]
    [got] = onnx_backend.run_model(model, [t.numpy() for t in given])
    assert np.array_equal(got, rotary_embedding(*given).numpy())


@pytest.mark.long
def test_torchs_exporter_accepts_our_translation_table():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            FunctionModule(rope_of(NEOX)).eval(),
            (X, FAR),
            dynamo=True,
            opset_version=23,
            custom_translation_table=onnx_export.translations(),
            verbose=False,
        )
    assert "RotaryEmbedding" in op_types(program.model_proto)


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "given", "text"),
    [
        (rope_of(NEOX, angle="ggml"), (X, FAR), r"angle must be exact \(0\) or f32 \(1\) but got ggml \(2\)"),
        (rotary_mul, (X, randn(5, 32), randn(5, 32)), "cos must have one entry per pair, W = 16, but got 32"),
    ],
)
def test_a_call_that_no_onnx_node_expresses_is_refused(run, given, text):
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        export(run, given)
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert any(re.search(rf"^\[onnx_export\] {text}", cause) for cause in causes)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opset_version": 20}, r"^\[onnx_export\] opset_version must be at least 23 but got 20\.$"),
        ({"dynamo": False}, r"^\[onnx_export\] dynamo must be True but got False\.$"),
    ],
)
def test_unsupported_options_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        onnx_export.export(FunctionModule(rope_of(NEOX)), (X, FAR), **options)


# ---- norms ---------------------------------------------------------------------------------------------


@dataclass
class NormExportCase:
    """A call of rms_norm, or of add_rms_norm if there is a residual."""

    name: str
    nodes: tuple[str, ...]
    dtype: str = "float32"
    scale_dtype: str = ""
    shape: tuple[int, ...] = (2, 3, 40)
    scale: tuple[int, ...] = (40,)
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1
    residual: bool = False

    def __str__(self):
        return self.name

    @property
    def attributes(self):
        return {"axis": self.axis, "epsilon": self.epsilon, "stash_type": self.stash_type}

    def inputs(self):
        """Return inputs in float32 or float64, which NumPy has; the model casts them."""
        types = [self.dtype] * (2 if self.residual else 1) + [self.scale_dtype or self.dtype]
        shapes = [self.shape] * (len(types) - 1) + [self.scale]
        tensors = (
            torch.randn(s, generator=torch.Generator().manual_seed(k)).to(getattr(torch, t))
            for k, (s, t) in enumerate(zip(shapes, types, strict=True))
        )
        return tuple(t if t.dtype == torch.float64 else t.float() for t in tensors)

    def run(self, *given):
        *xs, scale = given
        xs = [t.to(getattr(torch, self.dtype)) for t in xs]
        scale = scale.to(getattr(torch, self.scale_dtype or self.dtype))
        operator = add_rms_norm if self.residual else rms_norm
        return operator(*xs, scale, **self.attributes)

    def expected(self, *given):
        """Return the specification's results, and bounds for a runtime that adds squares in any order."""
        *xs, scale = (t.double().numpy() for t in given)
        total = norm_spec.add(*xs, self.dtype) if self.residual else xs[0]
        call = norm_spec.NormCall(total, scale, self.dtype, self.scale_dtype or self.dtype, **self.attributes)
        precision = "float64" if call.stash == "float64" else "float32"
        y = norm_spec.rms_norm(call, peer_normalized_error(call.n, precision))
        return (y, (total, np.zeros(total.shape))) if self.residual else (y,)


ONE_NODE = ("RMSNormalization",)
WITH_CASTS = ("Cast", "RMSNormalization", "Mul")
NORMS = [
    NormExportCase("float32", ONE_NODE),
    NormExportCase("axis", ONE_NODE, axis=1, scale=(3, 40), epsilon=0.25),
    NormExportCase("axis-0", ONE_NODE, axis=-3, scale=(2, 3, 40)),
    NormExportCase("float64", ONE_NODE, "float64", stash_type=11),
    NormExportCase("float64-stash-float32", WITH_CASTS, "float64"),
    NormExportCase("float16", WITH_CASTS, "float16"),
    NormExportCase("bfloat16", WITH_CASTS, "bfloat16"),
    NormExportCase("float16-scale-float32", WITH_CASTS, "float16", "float32"),
    NormExportCase("float32-scale-bfloat16", WITH_CASTS, "float32", "bfloat16"),
    NormExportCase("stash-float16", WITH_CASTS, stash_type=10),
    NormExportCase("stash-bfloat16", WITH_CASTS, "float16", stash_type=16, epsilon=1e-3),
    NormExportCase("stash-float64", WITH_CASTS, stash_type=11),
    NormExportCase("scale-of-each-token", ("RMSNormalization", "Mul"), scale=(3, 1)),
    NormExportCase("one-scale", ("RMSNormalization", "Mul"), scale=()),
    NormExportCase("residual", ("Add", "RMSNormalization"), residual=True),
    NormExportCase("residual-float64", ("Add", "RMSNormalization"), "float64", stash_type=11, residual=True),
    NormExportCase("residual-float16", ("Add", *WITH_CASTS), "float16", residual=True),
    NormExportCase("residual-bfloat16", ("Add", *WITH_CASTS), "bfloat16", "float32", residual=True),
    NormExportCase("residual-axis", ("Add", *ONE_NODE), axis=1, scale=(3, 40), residual=True),
]
QUICK_NORMS = ("float32", "float16", "bfloat16", "residual", "residual-bfloat16")


def by_reference_evaluator(model, given):
    names = [i.name for i in model.graph.input]
    evaluator = onnx.reference.ReferenceEvaluator(model)
    return evaluator.run(None, {n: t.numpy() for n, t in zip(names, given, strict=True)})


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.name in QUICK_NORMS else pytest.mark.slow) for c in NORMS], ids=str
)
def test_norms_give_the_specifications_results_in_every_runtime(case):
    """The casts are nodes of the model, so that no runtime omits one."""
    given = case.inputs()
    model = export(case.run, given)
    kinds = [kind for kind in op_types(model) if kind != "Constant"]
    assert set(kinds) == set(case.nodes)
    assert kinds.count("RMSNormalization") == 1
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    expected = case.expected(*given)
    ours = case.run(*given)
    ours = ours if isinstance(ours, tuple) else (ours,)
    results = {
        "onnxruntime": by_onnxruntime(model, given),
        "npu_rope": [t.double().numpy() for t in ours],
    }
    if case.stash_type == 11:
        with pytest.raises(NotImplementedError, match="stash_type=11"):
            by_reference_evaluator(model, given)
    else:
        results["ReferenceEvaluator"] = by_reference_evaluator(model, given)
    for runtime, ys in results.items():
        for y, (value, bound) in zip(ys, expected, strict=True):
            assert y.shape == value.shape
            ratio, at = worst_ratio(y, value, bound)
            assert ratio <= 1, f"{runtime}: {ratio:.3g} of its bound at {at}"


@pytest.mark.long
def test_a_large_float16_is_correct_in_a_runtime_that_ignores_stash_type():
    """onnx's ReferenceEvaluator computes in the input's type, in which 300 squared is infinite."""
    given = (torch.full((1, 8), 300.0), torch.ones(8))
    model = export(lambda x, s: rms_norm(x.half(), s.half()), given)
    for y in (*by_onnxruntime(model, given), *by_reference_evaluator(model, given)):
        assert np.all(y == 1)


@pytest.mark.long
def test_sizes_before_the_norms_axis_may_be_dynamic():
    for case in (NormExportCase("", ONE_NODE), NormExportCase("", WITH_CASTS, "float16", residual=True)):
        given = case.inputs()
        dynamic = tuple({0: "B", 1: "S"} for _ in given[:-1])
        model = export(case.run, given, dynamic_shapes=((*dynamic, None),))
        for shape in ((1, 1, 40), (3, 7, 40)):
            other = [randn(*shape, seed=k) for k in range(len(dynamic))] + [given[-1]]
            other = [t.half().float() if case.dtype == "float16" else t for t in other]
            for y, (value, bound) in zip(by_onnxruntime(model, other), case.expected(*other), strict=True):
                assert worst_ratio(y, value, bound)[0] <= 1


def test_a_model_of_one_norm_runs_on_npu_ropes_onnx_backend():
    given = randn(2, 3, 40), randn(40, seed=1)
    model = export(rms_norm, given)
    assert op_types(model) == ["RMSNormalization"]
    [got] = onnx_backend.run_model(model, [t.numpy() for t in given])
    assert np.array_equal(got, rms_norm(*given).numpy())
