"""rms_norm beside torch's, ONNX Runtime's and transformers' on the same random inputs: all within what
float32 arithmetic and its roundings allow of the specification, and so of each other.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from norm_cases import NUMPY_DTYPES, to_torch, values_of
from onnx import TensorProto, helper

from npu_rope import rms_norm, rms_norm_backward
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import peer_norm_bound, worst_ratio

pytestmark = pytest.mark.peer
WIDTHS = (1, 31, 64, 1000, 4096)


def inputs_of(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, (*shape[:-1], 1))
    return x.astype(NUMPY_DTYPES[dtype]), rng.uniform(-2, 2, shape[-1:]).astype(NUMPY_DTYPES[dtype])


def assert_near(ours, theirs, x, scale, dtype, epsilon):
    """Each within its own bound of the specification."""
    call = norm_spec.NormCall(x.astype(np.float64), scale.astype(np.float64), dtype, dtype, epsilon=epsilon)
    value, bound = norm_spec.rms_norm(call)
    assert worst_ratio(values_of(ours), value, bound)[0] <= 1
    assert worst_ratio(values_of(theirs), value, peer_norm_bound(value, dtype))[0] <= 1


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_s_rms_norm(dtype, epsilon):
    for seed, n in enumerate(WIDTHS):
        x, scale = inputs_of(dtype, (3, 7, n), seed)
        tensors = to_torch(x), to_torch(scale)
        theirs = torch.nn.functional.rms_norm(tensors[0], (n,), tensors[1], epsilon)
        assert_near(rms_norm(*tensors, epsilon=epsilon), theirs, x, scale, dtype, epsilon)


def test_torch_s_gradients():
    for seed, n in enumerate((2, 31, 1000)):
        x, scale = (to_torch(a.astype(np.float64)) for a in inputs_of("float32", (5, n), seed))
        grad, epsilon = torch.randn(5, n, dtype=torch.float64), 2.0**-17  # exact in float32, as ONNX keeps it
        given = x.requires_grad_(), scale.requires_grad_()
        theirs = torch.autograd.grad(torch.nn.functional.rms_norm(x, (n,), scale, epsilon), given, grad)
        ours = rms_norm_backward(grad, x.detach(), scale.detach(), epsilon=epsilon, stash_type=11)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_llama_rms_norm(dtype):
    """Which casts to float32, normalizes, casts back and multiplies: the specification's roundings."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    for seed, n in enumerate(WIDTHS):
        x, scale = inputs_of(dtype, (3, 7, n), seed)
        norm = LlamaRMSNorm(n, eps=1e-6)
        norm.weight.data = to_torch(scale)
        with torch.no_grad():
            theirs = norm(to_torch(x))
        ours = rms_norm(to_torch(x), norm.weight.data, epsilon=1e-6)
        assert_near(ours, theirs, x, scale, dtype, 1e-6)
        if dtype != "float32":
            assert (ours == theirs).float().mean() > 0.99


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_onnx_runtime_s_rms_normalization(dtype, axis):
    import onnxruntime

    element = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[dtype]
    for seed, n in enumerate(WIDTHS):
        x, scale = inputs_of(dtype, (3, 7, n), seed)
        if axis == 1:
            scale = np.tile(scale, (7, 1))
        node = helper.make_node("RMSNormalization", ["X", "S"], ["Y"], axis=axis, epsilon=1e-5)
        infos = [
            helper.make_tensor_value_info(*a) for a in (("X", element, x.shape), ("S", element, scale.shape))
        ]
        y = helper.make_tensor_value_info("Y", element, x.shape)
        graph = helper.make_graph([node], "norm", infos, [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {"X": x, "S": scale})
        ours = rms_norm(x, scale, axis=axis)
        call = norm_spec.NormCall(x.astype(np.float64), scale.astype(np.float64), dtype, dtype, axis=axis)
        value, bound = norm_spec.rms_norm(call)
        assert worst_ratio(values_of(ours), value, bound)[0] <= 1
        assert worst_ratio(values_of(theirs), value, peer_norm_bound(value, dtype))[0] <= 1


def test_torch_s_squares_overflow_where_ours_do_not():
    """The one difference in kind, documented in docs/ops/rms_norm.md."""
    x = torch.full((1, 8), 1e30)
    assert torch.equal(torch.nn.functional.rms_norm(x, (8,), None, 1e-5), torch.zeros(1, 8))
    assert torch.equal(rms_norm(x, torch.ones(8)), torch.ones(1, 8))
