"""Sizes on both sides of 65,536, and tensors with strides beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
from rope_cases import NUMPY_DTYPES

from npu_rope.testing.bounds import is_device

BORDERS = (65535, 65536, 65537)
FAR = 2**31 + 64  # elements

# The shapes of q and k in which one size is at the border.
PAIR_SHAPES = {
    "B": lambda size: ((size, 1, 2, 16), (size, 1, 1, 16)),
    "S": lambda size: ((1, size, 2, 16), (1, size, 1, 16)),
    "N": lambda size: ((1, 2, size, 16), (1, 2, 1, 16)),
    "keys": lambda size: ((1, 2, 1, 16), (1, 2, size, 16)),
    "D": lambda size: ((1, 2, 2, size), (1, 2, 1, size)),
}


def far_array(shape):
    """Return zeros of float16 whose last dimension, of at most 128 elements, is contiguous.

    The distance in all others is FAR elements, so only one of them may have two elements. The memory between
    the rows is never touched, so it takes no pages.
    """
    strides = (2 * FAR,) * (len(shape) - 1) + (2,)
    return np.lib.stride_tricks.as_strided(np.zeros(FAR + 128, np.float16), shape, strides)


def refused_head(size):
    """Return the pattern of a device's refusal of so wide a head."""
    return rf"head size of at most 1024 on an NPU but got {size}\."


def normal_values(shape, dtype, seed=0):
    """Return normally distributed values, which depend on the shape and the seed."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(NUMPY_DTYPES[dtype])


def far(values):
    """Return a copy whose strides are those of ``far_array``."""
    array = far_array(values.shape)
    array[...] = values
    return array


def far_ones(arrays, backend):
    """Return copies with far strides; on the simulator, which copies their 4 GiB, only the first has them."""
    return [far(x) if i == 0 or backend != "sim" else x.copy() for i, x in enumerate(arrays)]


def far_runs(*dimensions):
    """Run a test on the back ends of the host with far strides in each of these dimensions.

    On the simulator only in the first one: it compares the memory between the rows for many seconds.
    """
    runs = [(dimension, backend) for backend in ("reference", "cpu") for dimension in dimensions]
    return pytest.mark.parametrize(("dimension", "backend"), [*runs, (dimensions[0], "sim")])


def two_of(dimension, names):
    """Return a shape whose dimension of that name has two elements: only it has a far stride."""
    return (*(2 if name == dimension else 1 for name in names), 128)


def refuses_head(run, op, name, head, backend):
    """Return whether a device has to refuse so wide a head; if so, require its error."""
    if not (is_device(backend) and head > 1024):
        return False
    with pytest.raises(ValueError, match=rf"^\[{op}\] {name} must have a {refused_head(head)}$"):
        run()
    return True


def rows_of(tokens, rows):
    """Return a different row for each token: the first and last rows, some in the middle, and others."""
    chosen = np.random.default_rng(rows).permutation(rows)
    ends = np.array(list(dict.fromkeys([rows - 1, 0, rows - 2, rows - 3, rows // 2, 1])))[: min(tokens, rows)]
    return np.concatenate([ends, chosen[~np.isin(chosen, ends)]])[:tokens]


# Rows of 128 elements around 2**30 and 2**31 elements.
FAR_ROWS = np.array([2**24, 0, 2**23, 2**24 - 1, 2**23 - 1, 2**24 + 1])
