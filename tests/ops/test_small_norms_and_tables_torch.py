"""rotary_mul, rms_norm and add_rms_norm into given memory on small torch tensors: the direct path
(csrc/capi/python.cpp) beside the usual path, through torch's operators."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import npu_rope  # noqa: E402
from npu_rope import backends  # noqa: E402
from npu_rope.ops import calls  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no exchange interface"
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def random(*shape, dtype=torch.float32):
    return torch.from_numpy(np.random.default_rng(3).standard_normal(shape)).to(dtype)


@dataclass
class Operator:
    """A function, the shapes of its inputs, and its options by name."""

    function: Any
    shapes: tuple[tuple[int, ...], ...]
    options: tuple[dict[str, Any], ...]

    def inputs(self, dtype=torch.float32):
        return [random(*shape, dtype=dtype) for shape in self.shapes]

    def __str__(self):
        return self.function.__name__


OPERATORS = (
    Operator(
        npu_rope.rotary_mul,
        ((2, 3, 8), (2, 4), (2, 4)),
        ({}, {"interleaved": True}, {"rotary_dim": 4, "offset": 2}),
    ),
    Operator(
        npu_rope.rms_norm,
        ((3, 2, 8), (8,)),
        ({}, {"axis": 1}, {"epsilon": 1e-3, "stash_type": 10}),
    ),
)
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=str)


@pytest.fixture
def direct(monkeypatch):
    """For each call: whether the direct path ran it."""
    taken = []

    def recorded(op, real=calls.direct_function):
        def run(*arguments):
            taken.append(real(op)(*arguments))
            return taken[-1]

        return run

    monkeypatch.setattr(calls, "direct_function", recorded)
    return taken


def usual(function, inputs, monkeypatch, **options):
    with monkeypatch.context() as without:
        without.setattr(calls, "direct_function", lambda op: lambda *arguments: False)
        return function(*inputs, **options)


def error_of(run):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        run()
    return type(caught.value), str(caught.value)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@each_operator
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_have_the_bits_of_the_usual_path(direct, monkeypatch, operator, dtype):
    for options in operator.options:
        inputs = operator.inputs(dtype)
        expected = usual(operator.function, inputs, monkeypatch, **options)
        out = torch.empty_like(inputs[0])
        assert operator.function(*inputs, **options, out=out) is out
        assert same_bits(out, expected)
        version = inputs[0]._version
        assert operator.function(*inputs, **options, out=inputs[0]) is inputs[0]
        assert same_bits(inputs[0], expected)
        assert inputs[0]._version == version + 1
        assert direct == [True, True]
        direct.clear()


def test_rotary_mul_in_place_is_direct(direct, monkeypatch):
    x, cos, sin = OPERATORS[0].inputs()
    expected = usual(npu_rope.rotary_mul, (x, cos, sin), monkeypatch)
    assert npu_rope.rotary_mul_(x, cos, sin) is x
    assert torch.equal(x, expected)
    assert direct == [True]


def test_a_norm_may_have_a_scale_of_another_type(direct, monkeypatch):
    inputs = random(3, 8, dtype=torch.float16), random(8)
    out = torch.empty(3, 8)
    npu_rope.rms_norm(*inputs, out=out)
    assert direct == [True]
    assert same_bits(out, usual(npu_rope.rms_norm, inputs, monkeypatch))


@each_operator
def test_parameters_without_gradients_are_direct(direct, monkeypatch, operator):
    inputs = operator.inputs()
    expected = usual(operator.function, inputs, monkeypatch)
    with torch.no_grad():
        parameters = [torch.nn.Parameter(tensor) for tensor in inputs]
        out = operator.function(*parameters, out=torch.nn.Parameter(torch.empty_like(inputs[0])))
    assert torch.equal(out, expected)
    assert direct == [True]


@each_operator
@pytest.mark.parametrize("which", [0, 1])
def test_a_gradient_flows_to_the_inputs(direct, operator, which):
    inputs = operator.inputs()
    inputs[which].requires_grad_()
    gradients = []
    for options in ({}, {"out": torch.empty(operator.shapes[0])}):
        operator.function(*inputs, **options).square().sum().backward()
        gradients.append(inputs[which].grad)
        inputs[which].grad = None
    assert torch.equal(*gradients)
    assert not direct


def test_an_output_that_needs_a_gradient_is_no_direct_call(direct, monkeypatch):
    tables, norm = OPERATORS
    leaf = torch.zeros(tables.shapes[0], requires_grad=True)
    out = leaf * 1
    npu_rope.rotary_mul(*tables.inputs(), out=out)
    assert torch.equal(out, usual(npu_rope.rotary_mul, tables.inputs(), monkeypatch))
    out.sum().backward()
    assert not leaf.grad.any()  # out does not depend on what it was
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        npu_rope.rotary_mul(*tables.inputs(), out=leaf)
    assert not leaf.any()
    out = torch.empty(norm.shapes[0], requires_grad=True) * 1
    with pytest.raises(ValueError, match=r"\[rms_norm\] out must not need a gradient"):
        npu_rope.rms_norm(*norm.inputs(), out=out)
    assert not direct


@each_operator
def test_modes_and_profilers_see_the_call(direct, operator):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    inputs, out = operator.inputs(), torch.empty(operator.shapes[0])
    with Mode():
        operator.function(*inputs, out=out)
    assert any(f"npu_rope.{operator}" in name for name in seen)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        operator.function(*inputs, out=out)
    assert any(f"npu_rope::{operator}" in event.key for event in profile.key_averages())
    assert True not in direct


@each_operator
def test_subclasses_and_lazy_negation_are_no_direct_calls(direct, monkeypatch, operator):
    class Subclass(torch.Tensor):
        """A subclass without functions of its own."""

    first, *others = operator.inputs()
    expected = usual(operator.function, (first, *others), monkeypatch)
    for same in (torch._neg_view(-first), first.clone().as_subclass(Subclass)):
        out = torch.empty(first.shape)
        operator.function(same, *others, out=out)
        assert torch.equal(out, expected)
    assert True not in direct


@each_operator
def test_compiled_code_has_the_call(direct, monkeypatch, operator):
    inputs = operator.inputs()
    expected = usual(operator.function, inputs, monkeypatch)
    compiled = torch.compile(
        lambda *given: operator.function(*given, out=torch.empty_like(given[0])), backend="eager"
    )
    assert torch.equal(compiled(*inputs), expected)
    assert not direct


@each_operator
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch.func.jvp
def test_tangents_see_the_call(direct, operator):
    first, *others = operator.inputs()
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(first, first.clone())
        with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
            operator.function(dual, *others, out=torch.empty_like(first))
    assert not direct


@each_operator
def test_another_back_end_runs_the_call(direct, monkeypatch, operator):
    inputs = operator.inputs()
    expected = usual(operator.function, inputs, monkeypatch)
    monkeypatch.setattr(backends, "default_backend", "reference")
    out = torch.empty_like(expected)
    operator.function(*inputs, out=out)
    assert torch.allclose(out, expected, atol=1e-5)
    monkeypatch.setattr(backends, "default_backend", "cpu")
    operator.function(*inputs, out=out)
    assert torch.equal(out, expected)
    assert direct == [True]


@each_operator
@pytest.mark.parametrize("which", [0, 1])
def test_errors_are_those_of_the_usual_path(direct, monkeypatch, operator, which):
    inputs = operator.inputs()
    wrong = [random(5, 7) if k == which else tensor for k, tensor in enumerate(inputs)]
    out = torch.zeros(operator.shapes[0])

    got = error_of(lambda: operator.function(*wrong, out=out))
    assert direct == [False]
    assert got == error_of(lambda: usual(operator.function, wrong, monkeypatch, out=out))
    assert not out.any()


def test_an_axis_of_more_than_64_bits_is_refused(direct):
    x, scale = random(2, 8), random(8)
    with pytest.raises((ValueError, OverflowError, RuntimeError), match="axis"):
        npu_rope.rms_norm(x, scale, axis=2**64 - 1, out=x)
    assert not direct


# ---- add_rms_norm, which has two results -------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_has_the_bits_of_the_usual_path(direct, monkeypatch, dtype):
    x, residual, scale = random(3, 8, dtype=dtype), random(3, 8, dtype=dtype).flip(0), random(8)
    for options in ({}, {"axis": 0}, {"epsilon": 1e-3, "stash_type": 10}):
        expected = usual(npu_rope.add_rms_norm, (x, residual, scale), monkeypatch, **options)
        y, total = torch.empty(3, 8), residual.clone()
        results = npu_rope.add_rms_norm(x, total, scale, **options, out=(y, total))
        assert results[0] is y
        assert results[1] is total
        assert direct == [True]
        direct.clear()
        assert all(map(same_bits, results, expected))
        assert y._version == total._version == 1


def test_add_rms_norm_reports_errors_as_the_usual_path_does(direct, monkeypatch):
    x, scale = random(3, 8), random(8)

    for residual, outs in (
        (random(3, 7), (torch.zeros(3, 8), torch.zeros(3, 8))),
        (random(3, 8), (torch.zeros(3, 8), torch.zeros(2, 8))),
        (random(3, 8), (x[:], torch.zeros(3, 8).half())),
    ):
        before = [out.clone() for out in outs]
        got = error_of(lambda r=residual, o=outs: npu_rope.add_rms_norm(x, r, scale, out=o))
        assert direct == [False]
        direct.clear()
        assert got == error_of(
            lambda r=residual, o=outs: usual(npu_rope.add_rms_norm, (x, r, scale), monkeypatch, out=o)
        )
        assert all(map(torch.equal, outs, before))


@pytest.mark.parametrize("which", range(5))
def test_add_rms_norm_with_a_gradient_is_no_direct_call(direct, which):
    tensors = random(3, 8), random(3, 8), random(8), torch.zeros(3, 8), torch.zeros(3, 8)
    tensors[which].requires_grad_()
    inputs, outs = tensors[:3], tensors[3:]
    if which < 3:
        npu_rope.add_rms_norm(*inputs, out=outs)[0].sum().backward()
        assert tensors[which].grad.any()
    else:
        with pytest.raises(ValueError, match="must not need a gradient"):
            npu_rope.add_rms_norm(*inputs, out=outs)
        assert not any(out.any() for out in outs)
    assert not direct
