"""Sizes on both sides of 65,536, and tensors with strides beyond 2**31 elements."""

from __future__ import annotations

import numpy as np

BORDERS = (65535, 65536, 65537)
FAR = 2**31 + 64  # elements


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
