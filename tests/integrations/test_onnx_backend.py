"""npu_rope as an onnx.backend passes ONNX's node tests of its operators, on every back end."""

from __future__ import annotations

import importlib
import io
import unittest
import warnings

import counts
import numpy as np
import onnx
import onnx.backend.test
import onnx.backend.test.case.node
import onnx.reference
import pytest
from onnx import TensorProto, helper

from npu_rope.integrations import onnx_backend

# The import computes the data of ONNX's tests; importing every operator would take seconds.
for operator in ("rotaryembedding", "rmsnormalization"):
    importlib.import_module(f"onnx.backend.test.case.node.{operator}")
# The "_expanded" tests replace the operators by others, so only the unexpanded tests use ours.
NODE_TESTS = [
    case
    for case in onnx.backend.test.case.node._NodeTestCases
    if case.name.startswith(("test_rotary_embedding", "test_rms_normalization"))
    and not case.name.endswith("_expanded")
]
# Some tests have float64, which no device has.
on_hosts = pytest.mark.parametrize("backend", ["reference", "cpu"])


@pytest.mark.peer
def test_all_of_onnxs_node_tests_are_listed():
    """onnx 1.23 has 8 tests of RotaryEmbedding and 19 of RMSNormalization; a later onnx may have more."""
    for stem, minimum in (("test_rotary_embedding", 8), ("test_rms_normalization", 19)):
        assert sum(case.name.startswith(stem) for case in NODE_TESTS) >= minimum


def node_tests(stem):
    listed = [case for case in NODE_TESTS if case.name.startswith(stem)]
    return pytest.mark.parametrize("case", listed, ids=lambda case: case.name)


@pytest.mark.peer
@node_tests("test_rotary_embedding")
def test_onnx_s_node_test_of_rotary_embedding(case, backend, record_property):
    run_node_test(case, backend)
    record_property(counts.NODE_TEST, f"RotaryEmbedding on {backend}")


@pytest.mark.peer
@node_tests("test_rms_normalization")
def test_onnx_s_node_test_of_rms_normalization(case, backend, record_property):
    run_node_test(case, backend)
    record_property(counts.NODE_TEST, f"RMSNormalization on {backend}")


def run_node_test(case, backend):
    assert onnx_backend.is_compatible(case.model)
    prepared = onnx_backend.prepare(case.model, backend=backend)
    assert case.data_sets
    for inputs, outputs in case.data_sets:
        got = prepared.run(inputs)
        assert len(got) == len(outputs)
        for y, expected in zip(got, outputs, strict=True):
            assert y.dtype == expected.dtype
            assert y.shape == expected.shape
            np.testing.assert_allclose(y, expected, rtol=case.rtol, atol=case.atol)


@pytest.mark.long
@pytest.mark.peer
def test_onnxs_test_runner_passes():
    """ONNX's BackendTest class, as other backends use it, passes the same tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from numpy, for the data of other operators' tests
        runner = onnx.backend.test.BackendTest(onnx_backend.NpuRopeBackend, __name__)
    runner.include("^test_rotary_embedding")
    runner.include("^test_rms_normalization")
    runner.exclude("_expanded_")
    suite = runner.test_suite
    result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
    assert result.wasSuccessful(), result.failures + result.errors
    ran = result.testsRun - len(result.skipped)
    assert ran == len(NODE_TESTS)


def model_of(op="RotaryEmbedding", opset=23, domain="", **attributes):
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 2, 3, 4])
    caches = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 2]) for n in ("cos", "sin")]
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 2, 3, 4])
    node = helper.make_node(
        op, ["X", "cos", "sin"] if op == "RotaryEmbedding" else ["X"], ["Y"], domain=domain, **attributes
    )
    graph = helper.make_graph([node], "g", [x, *caches], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def inputs_of():
    rng = np.random.default_rng(0)
    return [rng.random(s, dtype=np.float32) for s in ((1, 2, 3, 4), (1, 3, 2), (1, 3, 2))]


def test_inputs_by_name_and_by_order_give_the_same_result():
    X, cos, sin = inputs_of()
    prepared = onnx_backend.prepare(model_of())
    (a,), (b,) = prepared.run([X, cos, sin]), prepared.run({"sin": sin, "X": X, "cos": cos})
    assert np.array_equal(a, b)
    (c,) = onnx_backend.run_node(model_of().graph.node[0], [X, cos, sin], backend="reference")
    assert np.allclose(a, c, atol=1e-6)


def test_initialisers_may_replace_inputs():
    X, cos, sin = inputs_of()
    model = model_of(interleaved=1)
    (expected,) = onnx_backend.run_model(model, [X, cos, sin])
    for name, value in (("cos", cos), ("sin", sin)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del model.graph.input[1:]
    assert np.array_equal(onnx_backend.run_model(model, [X])[0], expected)


def test_an_input_replaces_its_default_and_unknown_inputs_are_refused():
    X, cos, sin = inputs_of()
    model = model_of()
    # "cos" is also an input, so the initialiser is its default.
    model.graph.initializer.append(onnx.numpy_helper.from_array(cos, "cos"))
    prepared = onnx_backend.prepare(model)
    (own,) = prepared.run({"X": X, "sin": sin, "cos": 2 * cos})
    (default,) = prepared.run([X, sin])
    assert np.array_equal(default, prepared.run({"X": X, "sin": sin})[0])
    assert np.allclose(own, onnx_backend.run_model(model_of(), [X, 2 * cos, sin])[0])
    assert not np.allclose(own, default)
    with pytest.raises(
        ValueError, match=r"^\[onnx_backend\] inputs must be the graph's X, cos, sin but got z\.$"
    ):
        prepared.run({"X": X, "sin": sin, "z": X})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of("Relu"), "or later but got node Y, which is ai.onnx.Relu"),
        (model_of(opset=22), "RotaryEmbedding"),
        (model_of("Relu", opset=22), r"of opset 23 or later but got opset 22\."),
    ],
)
def test_other_models_are_refused(model, message):
    assert not onnx_backend.is_compatible(model)
    with pytest.raises((ValueError, onnx.checker.ValidationError), match=message):
        onnx_backend.prepare(model)


def test_wrong_inputs_are_refused():
    X, cos, sin = inputs_of()
    prepared = onnx_backend.prepare(model_of())
    with pytest.raises(ValueError, match=r"^\[onnx_backend\] inputs must have length 3 but got 2\.$"):
        prepared.run([X, cos])
    with pytest.raises(ValueError, match=r"^\[onnx_backend\] inputs must have sin but got X, cos\.$"):
        prepared.run({"X": X, "cos": cos})
    with pytest.raises(
        ValueError, match=r"^\[onnx_backend\] sin must have shape \[1,3,2\] but got \[1, 3, 1\]\.$"
    ):
        prepared.run([X, cos, sin[..., :1]])
    with pytest.raises(TypeError, match=r"^\[onnx_backend\] sin must be float32 but got float64\.$"):
        prepared.run([X, cos, sin.astype(np.float64)])
    with pytest.raises(
        TypeError, match=r"^\[onnx_backend\] inputs must be a list or a mapping but got an array\.$"
    ):
        prepared.run(X)
    with pytest.raises(
        ValueError,
        match=r"^\[onnx_backend\] node must be RMSNormalization, RotaryEmbedding but got ai\.onnx\.Relu\.$",
    ):
        onnx_backend.run_node(helper.make_node("Relu", ["X"], ["Y"]), [X])
    names = ["X", "cos", "sin"]
    node = helper.make_node("RotaryEmbedding", names, ["Y"])
    with pytest.raises(ValueError, match=r"^\[onnx_backend\] inputs must have length 3 but got 2\.$"):
        onnx_backend.run_node(node, [X, cos])
    for wrong in (
        helper.make_node("RotaryEmbedding", names[:2], ["Y"]),
        helper.make_node("RotaryEmbedding", names, ["Y", "Z"]),
        helper.make_node("RotaryEmbedding", names, ["Y"], foo=3),
    ):
        with pytest.raises(ValueError, match=r"^\[onnx_backend\] node must be one of ONNX but got: "):
            onnx_backend.run_node(wrong, [X, cos, sin][: len(wrong.input)])


def test_nodes_may_name_their_domain_and_leave_out_inputs():
    X, cos, sin = inputs_of()
    (expected,) = onnx_backend.run_node(
        helper.make_node("RotaryEmbedding", ["X", "c", "s"], ["Y"]), [X, cos, sin]
    )
    for names, domain, given in (
        (["X", "c", "s"], "ai.onnx", [X, cos, sin]),
        (["X", "c", "s", ""], "", [X, cos, sin]),
        (["X", "c", "s", ""], "", (each for each in (X, cos, sin, None))),
    ):
        node = helper.make_node("RotaryEmbedding", names, ["Y"], domain=domain)
        assert np.array_equal(onnx_backend.run_node(node, given)[0], expected)


def test_inputs_of_other_kinds_and_of_unknown_sizes_are_taken():
    """An input may be a sequence, and a size may be -1."""
    X, cos, sin = inputs_of()
    model = model_of()
    expected = onnx_backend.run_model(model, [X, cos, sin])[0]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model.graph.input.append(helper.make_tensor_sequence_value_info("q", onnx.TensorProto.FLOAT, [1]))
    assert np.array_equal(onnx_backend.run_model(model, [X, cos, sin, [X]])[0], expected)


def test_cpu_is_the_only_device():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:0")
    with pytest.raises(ValueError, match="device must be CPU"):
        onnx_backend.prepare(model_of(), "CUDA")
    with pytest.raises(ValueError, match="device must be CPU"):
        onnx_backend.run_node(
            helper.make_node("RotaryEmbedding", ["X", "c", "s"], ["Y"]), inputs_of(), "CUDA"
        )


def norm_model(x_type, scale_type, **attributes):
    """Return a model of one RMSNormalization. The result has the type of the scale."""
    x = helper.make_tensor_value_info("X", x_type, [2, 3, 4])
    scale, y = (
        helper.make_tensor_value_info(n, scale_type, shape) for n, shape in (("S", [4]), ("Y", [2, 3, 4]))
    )
    node = helper.make_node("RMSNormalization", ["X", "S"], ["Y"], **attributes)
    graph = helper.make_graph([node], "g", [x, scale], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@on_hosts
def test_attributes_of_a_norm_reach_the_operator(backend):
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    scale = np.arange(4, dtype=np.float32)
    model = norm_model(TensorProto.DOUBLE, TensorProto.FLOAT, axis=-2, epsilon=0.5, stash_type=11)
    (y,) = onnx_backend.run_model(model, [x, scale], backend=backend)
    expected = x / np.sqrt(np.mean(x**2, axis=(1, 2), keepdims=True) + 0.5) * scale
    assert y.dtype == np.float32
    assert np.allclose(y, expected, rtol=1e-6, atol=0)


@pytest.mark.peer
@pytest.mark.parametrize("stash_type", [1, 11])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_a_norm_equals_onnxs_function_body(stash_type, axis):
    """ONNX's ReferenceEvaluator runs ONNX's expansion into other operators, in the stash type."""
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((2, 3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    model = norm_model(TensorProto.FLOAT, TensorProto.FLOAT, axis=axis, stash_type=stash_type)
    schema, node = onnx.defs.get_schema("RMSNormalization", 23), model.graph.node[0]
    types = [helper.make_tensor_type_proto(TensorProto.FLOAT, None).SerializeToString()] * 2
    function = onnx.FunctionProto()
    function.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), types))
    function.domain = node.domain = "expanded"
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("expanded", 1))
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"X": x, "S": scale})
    (y,) = onnx_backend.run_model(
        norm_model(TensorProto.FLOAT, TensorProto.FLOAT, axis=axis, stash_type=stash_type), [x, scale]
    )
    assert np.allclose(y, expected, rtol=1e-6, atol=0)
