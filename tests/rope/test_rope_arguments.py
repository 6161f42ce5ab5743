"""forward is True or False, angle a policy's name or number, on every path; nothing else is taken."""

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


def run_rope(give, params, **how):
    return rope(give(values()), give(POSITIONS), params, **how)


def run_rope_inplace(give, params, **how):
    return rope_(give(values()), give(POSITIONS), params, **how)


def run_qk(give, params, **how):
    return rope_qk(give(values()), give(values(1)), give(POSITIONS), params, **how)[1]


def run_qk_inplace(give, params, **how):
    return rope_qk_(give(values()), give(values(1)), give(POSITIONS), params, **how)[1]


def run_set_rows(give, params, **how):
    cache = give(np.zeros((3, 2, 8), np.float32))
    return rope_set_rows(give(values()), give(POSITIONS), give(ROWS), cache, params, **how)


RUNS = {
    "rope": run_rope,
    "rope_": run_rope_inplace,
    "rope_qk": run_qk,
    "rope_qk_": run_qk_inplace,
    "rope_set_rows": run_set_rows,
}


@pytest.fixture(params=RUNS)
def run(request):
    """run(**how) of each operator, on a new RopeParams: nothing is kept from another call."""
    return lambda give, **how: RUNS[request.param](give, RopeParams(8), **how)


@pytest.fixture
def op(request):
    return request.node.callspec.params["run"].rstrip("_")


@pytest.fixture(params=["numpy", "torch"])
def given(request, backend):
    """How arrays are given, and the backend's argument; a tensor's own back end is not named."""
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


@together(("wrong", "told"), WRONG, ids=[told for _, told in WRONG])
def test_forward_is_a_bool(wrong, told, run, op, given):
    give, backend = given
    for again in (False, True):  # once more where another call of these parameters went well
        if again:
            run(give, backend=backend)
        with pytest.raises(TypeError) as caught:
            run(give, backend=backend, forward=wrong)
        assert str(caught.value) == f"[{op}] forward must be True or False but got {told}."


@pytest.mark.parametrize("kept", [False, True])
def test_1_is_no_forward_even_where_true_was_kept(kept):
    params = RopeParams(8)
    if kept:
        run_rope(to_torch, params)
    with pytest.raises(TypeError, match=r"^\[rope\] forward must be True or False but got 1\.$"):
        run_rope(to_torch, params, forward=1)


@pytest.mark.parametrize("forward", [False, True])
def test_numpys_bool_is_one(forward, run, given):
    give, backend = given
    expected = run(give, backend=backend, forward=forward)
    got = run(give, backend=backend, forward=np.bool_(forward))
    assert np.array_equal(np.asarray(got), np.asarray(expected))


def test_forward_and_backward_differ(run, given):
    give, backend = given
    back, ahead = (np.asarray(run(give, backend=backend, forward=f)) for f in (False, True))
    assert not np.array_equal(back, ahead)


@pytest.mark.parametrize("forward", ["no", None, 1])
def test_the_reference_by_itself_refuses_it_too(forward):
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
def test_forward_is_a_bool_where_a_gradient_or_a_compiler_follows(wrong):
    x, params = to_torch(values()), RopeParams(8)
    with pytest.raises(TypeError, match=r"^\[rope\] forward must be True or False but got"):
        rope(x.clone().requires_grad_(), to_torch(POSITIONS), params, forward=wrong)
    compiled = torch.compile(
        lambda x: rope(x, torch.arange(3), params, forward=np.bool_(False)), backend="eager"
    )
    assert torch.equal(compiled(x), rope(x, torch.arange(3), params, forward=False))


# ---- angle -------------------------------------------------------------------------------------------


@together("number", [0, 1, 2, np.int32(0), np.int64(2)])
def test_an_angle_policy_has_a_number_too(number, run, given):
    give, backend = given
    policy = ANGLE_POLICIES[number]
    if policy != "exact" and backend is not None and is_device(backend):
        named = "npu" if backend == "npu" else "sim"
        with pytest.raises(
            ValueError, match=rf"angle must be exact \(0\) on backend {named} but got {policy}\."
        ):
            run(give, backend=backend, angle=number)
        return
    expected = run(give, backend=backend, angle=policy)
    got = run(give, backend=backend, angle=number)
    assert np.array_equal(np.asarray(got), np.asarray(expected))


def test_the_policies_differ():
    far = np.array([100_003, 5, 6])
    x = np.ones((3, 1, 64), np.float32)
    results = [rope(x, far, RopeParams(64), angle=angle).tobytes() for angle in (0, 1, 2)]
    assert len(set(results)) == 3
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


@together(("wrong", "told"), WRONG_ANGLES, ids=[told for _, told in WRONG_ANGLES])
def test_another_angle_is_refused(wrong, told, run, op, given):
    give, backend = given
    with pytest.raises(ValueError, match="angle must be") as caught:
        run(give, backend=backend, angle=wrong)
    assert str(caught.value) == f"[{op}] angle must be exact (0), f32 (1) or ggml (2) but got {told}."
