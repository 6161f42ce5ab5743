"""On every path, forward must be True or False, and angle the name or number of a policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rope_cases import to_torch
from together import together

from npu_rope import RopeParams, backends, rope, rope_, rope_qk, rope_qk_, rope_set_rows
from npu_rope.reference import rope as rope_reference
from npu_rope.reference import rope_qk as rope_qk_reference
from npu_rope.reference import rope_set_rows as rope_set_rows_reference
from npu_rope.testing.bounds import is_device
from npu_rope.values import ANGLE_POLICIES

SHAPE = (1, 3, 2, 8)
POSITIONS, ROWS = np.arange(3), np.array([2, 0, 1])


def values(seed=0):
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def run_rope(convert, params, **options):
    return rope(convert(values()), convert(POSITIONS), params, **options)


def run_rope_inplace(convert, params, **options):
    return rope_(convert(values()), convert(POSITIONS), params, **options)


def run_qk(convert, params, **options):
    return rope_qk(convert(values()), convert(values(1)), convert(POSITIONS), params, **options)[1]


def run_qk_inplace(convert, params, **options):
    return rope_qk_(convert(values()), convert(values(1)), convert(POSITIONS), params, **options)[1]


def run_set_rows(convert, params, **options):
    cache = convert(np.zeros((3, 2, 8), np.float32))
    return rope_set_rows(convert(values()), convert(POSITIONS), convert(ROWS), cache, params, **options)


RUNS = {
    "rope": run_rope,
    "rope_": run_rope_inplace,
    "rope_qk": run_qk,
    "rope_qk_": run_qk_inplace,
    "rope_set_rows": run_set_rows,
}


@pytest.fixture(params=RUNS)
def run(request):
    """Return a function that calls an operator, by default with new parameters, which no call has cached."""

    def call(convert, params=None, **options):
        return RUNS[request.param](convert, params or RopeParams(8), **options)

    return call


@pytest.fixture
def op(request):
    """Return the name of the operator of fixture run, as errors print it."""
    return request.node.callspec.params["run"]


@pytest.fixture(params=["numpy", "torch"])
def framework(request, backend):
    """Return a function that converts arrays, and the argument backend: None for tensors on the CPU."""
    if request.param == "numpy":
        return np.asarray, backend
    return lambda a: to_torch(np.array(a)), None if backend == "cpu" else backend


WRONG = [
    ("no", "'no'"),
    (None, "None"),
    (1, "1"),
    (0, "0"),
    (0.0, "0.0"),
    (np.int64(1), "int64"),
    ([True], "list"),
    (np.array([True, False]), "ndarray"),
    (torch.tensor(True), "Tensor"),
]


@together(("wrong", "printed"), WRONG, ids=[printed for _, printed in WRONG])
def test_forward_is_a_bool(wrong, printed, run, op, framework):
    convert, backend = framework
    for after_a_correct_call in (False, True):
        params = RopeParams(8)
        if after_a_correct_call:
            run(convert, params, backend=backend)
        with pytest.raises(TypeError) as caught:
            run(convert, params, backend=backend, forward=wrong)
        assert str(caught.value) == f"[{op}] forward must be True or False but got {printed}."


@pytest.mark.parametrize("forward", [False, True])
def test_forward_may_be_numpys_bool(forward, run, framework):
    convert, backend = framework
    expected = run(convert, backend=backend, forward=forward)
    got = run(convert, backend=backend, forward=np.bool_(forward))
    assert np.array_equal(np.asarray(got), np.asarray(expected))


def test_forward_and_backward_differ(run, framework):
    convert, backend = framework
    backward, forward = (np.asarray(run(convert, backend=backend, forward=f)) for f in (False, True))
    assert not np.array_equal(backward, forward)


@pytest.mark.parametrize("forward", ["no", None, 1])
def test_the_reference_and_packed_call_refuse_a_forward_that_is_no_bool(forward):
    x, params, text = values(), RopeParams(8), "forward must be True or False but got"
    with pytest.raises(TypeError, match=text):
        rope_reference.rope(x, POSITIONS, params, forward=forward)
    with pytest.raises(TypeError, match=text):
        rope_qk_reference.rope_qk(x, x, POSITIONS, params, forward=forward)
    cache = np.zeros((3, 2, 8), np.float32)
    with pytest.raises(TypeError, match=text):
        rope_set_rows_reference.rope_set_rows(x, POSITIONS, ROWS, cache, params, forward=forward)
    with pytest.raises(TypeError, match=text):
        backends.packed_call(params, forward, "exact")


@pytest.mark.parametrize("wrong", ["no", None, 1])
def test_forward_is_a_bool_under_autograd(wrong):
    x = to_torch(values()).requires_grad_()
    with pytest.raises(TypeError, match=r"^\[rope\] forward must be True or False but got"):
        rope(x, to_torch(POSITIONS), RopeParams(8), forward=wrong)


def test_forward_may_be_numpys_bool_under_compile():
    x, params = to_torch(values()), RopeParams(8)
    compiled = torch.compile(
        lambda x: rope(x, torch.arange(3), params, forward=np.bool_(False)), backend="eager"
    )
    assert torch.equal(compiled(x), rope(x, torch.arange(3), params, forward=False))


# ---- angle -------------------------------------------------------------------------------------------


@together("number", [0, 1, 2, np.int32(0), np.int64(2)])
def test_an_angle_may_be_the_number_of_its_policy(number, run, framework):
    convert, backend = framework
    policy = ANGLE_POLICIES[number]
    if policy != "exact" and backend is not None and is_device(backend):
        with pytest.raises(ValueError, match=rf"angle must be exact \(0\) on an NPU but got {policy}\."):
            run(convert, backend=backend, angle=number)
        return
    expected = run(convert, backend=backend, angle=policy)
    got = run(convert, backend=backend, angle=number)
    assert np.array_equal(np.asarray(got), np.asarray(expected))


def test_the_policies_differ():
    far = np.array([100_003, 5, 6])
    x = np.ones((3, 1, 64), np.float32)
    results = [rope(x, far, RopeParams(64), angle=angle).tobytes() for angle in (0, 1, 2)]
    assert len(set(results)) == 3


def test_params_accept_the_number_of_a_policy():
    p = RopeParams(64)
    for number, policy in enumerate(ANGLE_POLICIES):
        assert np.array_equal(p.frequencies(number), p.frequencies(policy))
        assert p.mscale(number) == p.mscale(policy)


WRONG_ANGLES = [
    (3, "3"),
    (-1, "-1"),
    ("0", "'0'"),
    ("fast", "'fast'"),
    (False, "False"),
    (0.0, "0.0"),
    (None, "None"),
]


@together(("wrong", "printed"), WRONG_ANGLES, ids=[printed for _, printed in WRONG_ANGLES])
def test_any_other_angle_is_refused(wrong, printed, run, op, framework):
    convert, backend = framework
    with pytest.raises(ValueError, match="angle must be") as caught:
        run(convert, backend=backend, angle=wrong)
    assert str(caught.value) == f"[{op}] angle must be exact (0), f32 (1) or ggml (2) but got {printed}."
