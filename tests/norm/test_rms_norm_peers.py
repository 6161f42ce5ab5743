"""rms_norm and add_rms_norm compared with torch, transformers, ONNX Runtime and ggml on random inputs. Our
results are within their bounds of the specification. The peers' bounds allow any order of the sum of squares,
and have the specification's roundings if the peer has them.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from norm_cases import NUMPY_DTYPES, to_torch, values_of
from onnx import TensorProto, helper
from peer_bounds import peer_normalized_error

from npu_rope import add_rms_norm, rms_norm, rms_norm_backward
from npu_rope.bench.peers_ggml import GgmlGraph, ggml_library
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import peer_norm_bound, worst_ratio
from npu_rope.testing.ggml_functions import GGML_TYPES

pytestmark = pytest.mark.peer
WIDTHS = (1, 31, 64, 1000, 4096)
FLOAT32 = GGML_TYPES["float32"]
RANDOM_SHAPES = 12
EPSILON = 2.0**-17  # exact in float32, ONNX's type of epsilon


def inputs_of(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, (*shape[:-1], 1))
    return x.astype(NUMPY_DTYPES[dtype]), rng.uniform(-2, 2, shape[-1:]).astype(NUMPY_DTYPES[dtype])


def shapes():
    """Yield shapes and seeds: shapes of the widths, then random ones of at most four dimensions."""
    yield from (((3, 7, n), seed) for seed, n in enumerate(WIDTHS))
    rng = np.random.default_rng(7)
    for seed in range(RANDOM_SHAPES):
        outer = rng.integers(1, 6, rng.integers(0, 4))
        yield (*map(int, outer), int(2 ** rng.uniform(0, 11))), 100 + seed


def call_of(x, scale, dtype, **attributes):
    return norm_spec.NormCall(x.astype(np.float64), scale.astype(np.float64), dtype, dtype, **attributes)


def assert_near(ours, theirs, call, *, casts=True):
    """Check both results against the specification. ``casts``: the peer has the specification's roundings."""
    value, bound = norm_spec.rms_norm(call)
    assert worst_ratio(values_of(ours), value, bound)[0] <= 1
    if casts:
        precision = "float64" if call.stash == "float64" else "float32"
        _, peer_bound = norm_spec.rms_norm(call, peer_normalized_error(call.n, precision))
    else:
        peer_bound = peer_norm_bound(value, call.scale_dtype)
    ratio, at = worst_ratio(values_of(theirs), value, peer_bound)
    assert ratio <= 1, f"error of the peer is {ratio:.3g} of its bound at {at} of {call.x.shape}"


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torchs_rms_norm_is_near(dtype, epsilon):
    """torch rounds 16-bit types once, at the end."""
    for shape, seed in shapes():
        x, scale = inputs_of(dtype, shape, seed)
        tensors = to_torch(x), to_torch(scale)
        theirs = torch.nn.functional.rms_norm(tensors[0], shape[-1:], tensors[1], epsilon)
        ours = rms_norm(*tensors, epsilon=epsilon)
        assert_near(ours, theirs, call_of(x, scale, dtype, epsilon=epsilon), casts=dtype == "float32")


def test_torchs_float64_rms_norm_is_near():
    for shape, seed in shapes():
        x, scale = inputs_of("float64", shape, seed)
        tensors = to_torch(x), to_torch(scale)
        theirs = torch.nn.functional.rms_norm(tensors[0], shape[-1:], tensors[1], EPSILON)
        ours = rms_norm(*tensors, epsilon=EPSILON, stash_type=11)
        assert_near(ours, theirs, call_of(x, scale, "float64", epsilon=EPSILON, stash_type=11))


def test_torchs_gradients_are_near():
    for seed, n in enumerate((2, 31, 1000)):
        x, scale = (to_torch(a.astype(np.float64)) for a in inputs_of("float32", (5, n), seed))
        grad = torch.randn(5, n, dtype=torch.float64)
        given = x.requires_grad_(), scale.requires_grad_()
        theirs = torch.autograd.grad(torch.nn.functional.rms_norm(x, (n,), scale, EPSILON), given, grad)
        ours = rms_norm_backward(grad, x.detach(), scale.detach(), epsilon=EPSILON, stash_type=11)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_llama_rms_norm_is_near(dtype):
    """LlamaRMSNorm casts to float32, normalizes, casts back and multiplies, as the specification does."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    equal, elements = 0, 0
    for shape, seed in shapes():
        x, scale = inputs_of(dtype, shape, seed)
        norm = LlamaRMSNorm(shape[-1], eps=1e-6)
        norm.weight.data = to_torch(scale)
        with torch.no_grad():
            theirs = norm(to_torch(x))
        ours = rms_norm(to_torch(x), norm.weight.data, epsilon=1e-6)
        assert_near(ours, theirs, call_of(x, scale, dtype, epsilon=1e-6))
        equal, elements = equal + int((ours == theirs).sum()), elements + ours.numel()
    if dtype != "float32":
        assert equal / elements > 0.998


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_residual_and_norm_are_near(dtype):
    """The decoder layers add the residual in the tensors' type."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    for shape, seed in shapes():
        x, scale = inputs_of(dtype, shape, seed)
        residual, _ = inputs_of(dtype, shape, seed + 1000)
        norm = LlamaRMSNorm(shape[-1], eps=1e-6)
        norm.weight.data = to_torch(scale)
        with torch.no_grad():
            hidden = to_torch(residual) + to_torch(x)
            theirs = norm(hidden)
        ours, total = add_rms_norm(to_torch(x), to_torch(residual), norm.weight.data, epsilon=1e-6)
        assert torch.equal(total, hidden)
        assert_near(ours, theirs, call_of(values_of(hidden), scale, dtype, epsilon=1e-6))


def by_ggml(x, scale, residual, epsilon):
    """Return ggml's rms_norm of x, or of x + residual, times the scale."""
    library = ggml_library(None)

    def build(graph):
        base, (*outer, width) = library.base, x.shape
        shape = width, int(np.prod(outer, dtype=int)), 1, 1
        rows = [
            graph.source(torch.from_numpy(a), base.ggml_new_tensor_4d(graph.context, FLOAT32, *shape))
            for a in (x, residual)
            if a is not None
        ]
        factors = base.ggml_new_tensor_1d(graph.context, FLOAT32, width)
        total = rows[0] if residual is None else base.ggml_add(graph.context, *rows)
        normalized = base.ggml_rms_norm(graph.context, total, epsilon)
        factors = graph.source(torch.from_numpy(scale), factors)
        graph.add_result(base.ggml_mul(graph.context, normalized, factors), torch.from_numpy(x))

    graph = GgmlGraph(library, 1, build)
    (y,) = graph.result()
    graph.close()
    return y.numpy()


@pytest.mark.parametrize("with_residual", [False, True])
def test_ggmls_rms_norm_and_mul_are_near(with_residual):
    """ggml's CPU back end has rms_norm only for float32."""
    for shape, seed in shapes():
        x, scale = inputs_of("float32", shape, seed)
        residual = inputs_of("float32", shape, seed + 1000)[0] if with_residual else None
        theirs = by_ggml(x, scale, residual, 1e-6)
        if residual is None:
            ours, total = rms_norm(x, scale, epsilon=1e-6), x
        else:
            ours, total = add_rms_norm(x, residual, scale, epsilon=1e-6)
        assert_near(ours, theirs, call_of(total, scale, "float32", epsilon=1e-6))


def by_onnxruntime(x, scale, element, axis):
    import onnxruntime

    node = helper.make_node("RMSNormalization", ["X", "S"], ["Y"], axis=axis, epsilon=EPSILON)
    infos = [
        helper.make_tensor_value_info(*a) for a in (("X", element, x.shape), ("S", element, scale.shape))
    ]
    y = helper.make_tensor_value_info("Y", element, x.shape)
    graph = helper.make_graph([node], "norm", infos, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": x, "S": scale})[0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_onnx_runtimes_rms_normalization_is_near(dtype):
    """ONNX Runtime computes float64 in float64 for every stash_type, and rounds float16 once, at the end."""
    elements = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}
    stash_type = 11 if dtype == "float64" else 1
    rng = np.random.default_rng(3)
    for shape, seed in shapes():
        x, _ = inputs_of(dtype, shape, seed)
        axis = int(rng.integers(0, len(shape)))
        scale = rng.uniform(-2, 2, shape[axis:]).astype(x.dtype)
        theirs = by_onnxruntime(x, scale, elements[dtype], axis)
        ours = rms_norm(x, scale, axis=axis, epsilon=EPSILON, stash_type=stash_type)
        call = call_of(x, scale, dtype, axis=axis, epsilon=EPSILON, stash_type=stash_type)
        assert_near(ours, theirs, call, casts=dtype != "float16")


def test_torchs_squares_overflow_where_ours_do_not():
    """docs/ops/rms_norm.md documents this difference."""
    x = torch.full((1, 8), 1e30)
    assert torch.equal(torch.nn.functional.rms_norm(x, (8,), None, 1e-5), torch.zeros(1, 8))
    assert torch.equal(rms_norm(x, torch.ones(8)), torch.ones(1, 8))
