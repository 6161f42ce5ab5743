"""Each size of a norm on both sides of 65,536, and strides and sizes beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
from far_sizes import BORDERS, far_array, refused_head
from guarded_memory import GuardedMemory
from norm_cases import NormSetup, assert_within, judge_gradients, run_and_judge
from norm_rope_cases import NormRopeSetup, make_inputs, run_call
from norm_rope_cases import run_and_judge as run_and_judge_heads
from rope_cases import is_device

from npu_rope import add_rms_norm, rms_norm, rms_norm_backward
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import normalized_error_on
from npu_rope.testing.norm_spec import NormCall

pytestmark = pytest.mark.slow  # minutes on the simulated devices

# The shape in which one size is at the border. The last one is that of a row.
SHAPES = {
    "rows": lambda size: (size, 16),
    "first": lambda size: (size, 1, 2, 8),
    "middle": lambda size: (1, size, 1, 16),
    "row": lambda size: (2, size),
}


@pytest.fixture
def guarded():
    return GuardedMemory()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", SHAPES)
def test_each_size_may_be_65536(dimension, dtype, backend, guarded):
    for size in BORDERS:
        assert run_and_judge(NormSetup(dtype, shape=SHAPES[dimension](size)), backend, guarded) is not None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", SHAPES)
def test_gradients_of_each_size(dimension, dtype, backend, guarded):
    for size in BORDERS:
        judge_gradients(NormSetup(dtype, shape=SHAPES[dimension](size)), backend, guarded)


@pytest.mark.parametrize("dimension", SHAPES)
def test_a_residual_of_each_size(dimension, backend):
    for size in BORDERS:
        shape = SHAPES[dimension](size)
        rng = np.random.default_rng(size)
        x, residual = (rng.standard_normal(shape).astype(np.float16) for _ in range(2))
        scale = rng.uniform(-2, 2, shape[-1:]).astype(np.float16)
        y, total = add_rms_norm(x, residual, scale, backend=backend)
        expected = norm_spec.add(x, residual, "float16")
        assert np.array_equal(total, expected.astype(np.float16))
        call = NormCall(expected, scale.astype(np.float64), "float16", "float16")
        assert_within(y, norm_spec.rms_norm(call, normalized_error_on(backend, call.n)), "float16")


HEADS = {
    "B": lambda size: {"sizes": (size, 1, 1, 16)},
    "S": lambda size: {"sizes": (1, size, 1, 16)},
    "N": lambda size: {"sizes": (1, 1, size, 16)},
    "keys": lambda size: {"sizes": (1, 1, 1, 16), "keys": size},
    "D": lambda size: {"sizes": (1, 2, 1, size)},
}


@pytest.mark.parametrize("dimension", HEADS)
def test_normalized_and_rotated_heads_of_each_size(dimension, backend, guarded):
    for size in (65534, 65536) if dimension == "D" else BORDERS:
        call = NormRopeSetup("float16", **HEADS[dimension](size))
        if dimension == "D" and is_device(backend):
            with pytest.raises(ValueError, match=refused_head(size)):
                run_call(call, make_inputs(call, guarded), backend)
            continue
        assert run_and_judge_heads(call, backend, guarded) is not None


@pytest.mark.parametrize("dimension", range(3))
def test_strides_beyond_2_31_elements(dimension, backend):
    shape = (*(2 if k == dimension else 1 for k in range(3)), 128)
    values = np.random.default_rng(dimension).standard_normal(shape).astype(np.float16)
    x, out = far_array(shape), far_array(shape)
    x[...] = values
    scale = np.linspace(-2, 2, 128).astype(np.float16)
    rms_norm(x, scale, out=out, backend=backend)
    call = NormCall(values.astype(np.float64), scale.astype(np.float64), "float16", "float16")
    assert_within(out, norm_spec.rms_norm(call, normalized_error_on(backend, 128)), "float16")


def test_a_tensor_of_more_than_2_31_elements_is_normalized_and_its_gradient_is_found():
    """In place, 4 GiB; the gradient takes as much again."""
    rows = 2**24 + 1
    x, scale = np.zeros((rows, 128), np.float16), np.linspace(-2, 2, 128).astype(np.float16)
    chosen = [0, 1, 2**23 - 1, 2**23, 2**24 - 1, 2**24]  # around 2**30 and 2**31 elements
    values = np.random.default_rng(1).standard_normal((len(chosen), 128)).astype(np.float16)
    call = NormCall(values.astype(np.float64), scale.astype(np.float64), "float16", "float16")
    x[chosen] = values
    dx, _ = rms_norm_backward(x, x, scale, backend="cpu")
    assert_within(
        dx[chosen], norm_spec.rms_norm_backward(call, values.astype(np.float64), "cpu")[0], "float16"
    )
    del dx
    rms_norm(x, scale, out=x, backend="cpu")
    assert_within(x[chosen], norm_spec.rms_norm(call, normalized_error_on("cpu", 128)), "float16")
    assert not x[2:1000].any()
