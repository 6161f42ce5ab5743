"""Errors of the functions that write in place name the function and its arguments, not those of the function
with ``out`` that they call.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rope_cases import to_torch

from npu_rope import RopeParams, rope_, rope_qk_, rotary_mul_, rotary_mul_qk_

SHAPE, PARAMS = (3, 2, 8), RopeParams(8)
TABLES = np.ones((3, 8), np.float32), np.zeros((3, 8), np.float32)
# A function's call with the tensors that it writes, and these tensors' names.
CALLS = {
    "rope_": (lambda convert, *xs, **options: rope_(*xs, convert(np.arange(3)), PARAMS, **options), ["x"]),
    "rope_qk_": (
        lambda convert, *xs, **options: rope_qk_(*xs, convert(np.arange(3)), PARAMS, **options),
        ["q", "k"],
    ),
    "rotary_mul_": (
        lambda convert, *xs, **options: rotary_mul_(*xs, *map(convert, TABLES), **options),
        ["x"],
    ),
    "rotary_mul_qk_": (
        lambda convert, *xs, **options: rotary_mul_qk_(*xs, *map(convert, TABLES), **options),
        ["q", "k"],
    ),
}
FRAMEWORKS = {"numpy": np.asarray, "torch": to_torch}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("backend", [None, "reference", "sim"])
@pytest.mark.parametrize("op", CALLS)
def test_an_error_names_the_function_and_its_argument(op, backend, framework):
    call, names = CALLS[op]
    convert = FRAMEWORKS[framework]
    memory = np.ones((1, *SHAPE[1:]), np.float32)
    overlapping = np.lib.stride_tricks.as_strided(memory, SHAPE, (0, *memory.strides[1:]), writeable=True)
    tensors = [np.ones(SHAPE, np.float32) for _ in names]
    for which, name in enumerate(names):
        passed = [overlapping if i == which else x for i, x in enumerate(tensors)]
        if framework == "torch":
            passed = [torch.ones(1, 2, 8).expand(SHAPE) if x is overlapping else convert(x) for x in passed]
        with pytest.raises(ValueError, match=rf"^\[{op}\] {name} must not overlap itself but got strides"):
            call(convert, *passed, backend=backend)
    if len(names) == 2:
        same = convert(tensors[0])
        text = rf"^\[{op}\] q must share no memory with k but got overlapping memory\.$"
        with pytest.raises(ValueError, match=text):
            call(convert, same, same, backend=backend)
    assert np.all(memory == 1)
    assert all(np.all(x == 1) for x in tensors)


@pytest.mark.parametrize("op", CALLS)
def test_an_error_names_a_read_only_array_by_its_argument(op):
    call, names = CALLS[op]
    for which, name in enumerate(names):
        arrays = [np.ones(SHAPE, np.float32) for _ in names]
        arrays[which].flags.writeable = False
        with pytest.raises(
            ValueError, match=rf"^\[{op}\] {name} must be writeable but got a read-only array\.$"
        ) as caught:
            call(np.asarray, *arrays)
        assert (caught.value.op, caught.value.argument) == (op, name)
        assert all(np.all(x == 1) for x in arrays)


def test_an_error_of_another_argument_keeps_its_name():
    x = torch.ones(SHAPE)
    with pytest.raises(
        ValueError, match=r"^\[rope_\] positions must have shape \[S\] = \[3\] but got \[4\]\.$"
    ):
        rope_(x, torch.arange(4), PARAMS)
    with pytest.raises(
        TypeError, match=r"^\[rotary_mul_qk_\] cos must be a torch tensor like q but got ndarray"
    ):
        rotary_mul_qk_(x, x.clone(), *TABLES)
