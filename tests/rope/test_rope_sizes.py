"""Each size of a rotation on both sides of 65,536, and strides and sizes beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
from far_sizes import BORDERS, far, far_array, normal_values, refused_head, two_of
from rope_cases import assert_within, try_rope

from npu_rope import RopeParams, rope
from npu_rope.testing.bounds import is_device

# The shape [B, S, N, D] in which one size is at the border.
SHAPES = {
    "B": lambda size: (size, 1, 1, 16),
    "S": lambda size: (1, size, 1, 16),
    "N": lambda size: (1, 1, size, 16),
    "D": lambda size: (1, 2, 1, size),
}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["normal", "neox"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", SHAPES)
def test_each_size_may_be_65536(dimension, dtype, mode, backend):
    for size in BORDERS:
        shape = SHAPES[dimension](size)
        x, params = normal_values(shape, dtype), RopeParams(16, mode)
        positions = np.arange(np.prod(shape[:2])).reshape(shape[:2])
        if dimension == "D" and is_device(backend):
            with pytest.raises(ValueError, match=refused_head(size)):
                rope(x, positions, params, backend=backend)
            continue
        out = try_rope(x, positions, params, backend=backend)
        assert_within(out, x, positions, params, dtype=dtype, backend=backend)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_65536_lanes_are_rotated(dtype):
    for lanes in (65534, 65536):
        x, params = normal_values((1, 2, 1, 65537), dtype), RopeParams(lanes, "neox")
        for backend in ("reference", "cpu"):
            out = rope(x, np.arange(2), params, backend=backend)
            assert_within(out, x, np.arange(2), params, dtype=dtype, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", ["B", "S", "N"])
def test_strides_beyond_2_31_elements(dimension, backend):
    shape = two_of(dimension, "BSN")
    values, far_out = normal_values(shape, "float16"), far_array(shape)
    positions, params = np.arange(shape[1]) + 1000, RopeParams(128, "neox")
    rope(far(values), positions, params, out=far_out, backend=backend)
    assert_within(far_out, values, positions, params, dtype="float16", backend=backend)


@pytest.mark.slow
def test_a_tensor_of_more_than_2_31_elements_is_rotated():
    """In place, 4 GiB."""
    tokens, params = 2**21 + 1, RopeParams(128, "neox")
    x = np.zeros((1, tokens, 8, 128), np.float16)
    chosen = [0, 1, 2**20 - 1, 2**20, 2**21 - 1, 2**21]  # around 2**30 and 2**31 elements
    values = normal_values((1, len(chosen), 8, 128), "float16")
    x[:, chosen] = values
    positions = np.arange(tokens)
    rope(x, positions, params, out=x, backend="cpu")
    assert_within(x[:, chosen], values, positions[chosen], params, dtype="float16")
    assert not x[:, 2:1000].any()
