"""A call whose first argument is an array converts its other inputs. A call whose first argument is a torch
tensor refuses arrays.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from npu_rope import (
    RopeParams,
    add_rms_norm,
    rms_norm,
    rms_norm_rope,
    rope,
    rope_qk,
    rope_set_rows,
    rotary_embedding,
    rotary_mul,
    rotary_mul_qk,
)

PARAMS = RopeParams(8)
X = np.random.default_rng(0).standard_normal((3, 2, 8)).astype(np.float32)
AT, SCALE, TABLE = np.arange(3), np.ones(8, np.float32), np.ones((3, 8), np.float32)
IDS, CACHE = np.arange(3)[None], np.ones((3, 4), np.float32)
# Calls with a function that converts the first tensors, and one for the other inputs. Outputs are like x.
CALLS = {
    "rope": lambda own, other: rope(own(X), other(AT), PARAMS),
    "rope_qk": lambda own, other: rope_qk(own(X), own(X), other(AT), PARAMS),
    "rope_set_rows": lambda own, other: rope_set_rows(
        own(X), other(AT), other(AT), own(np.zeros_like(X)), PARAMS
    ),
    "rotary_mul": lambda own, other: rotary_mul(own(X), other(TABLE), other(TABLE)),
    "rotary_mul_qk": lambda own, other: rotary_mul_qk(own(X), own(X), other(TABLE), other(TABLE)),
    "rotary_embedding": lambda own, other: rotary_embedding(
        own(X.swapaxes(0, 1)[None]), other(CACHE), other(CACHE), other(IDS)
    ),
    "rms_norm": lambda own, other: rms_norm(own(X), other(SCALE)),
    "add_rms_norm": lambda own, other: add_rms_norm(own(X), own(X), other(SCALE)),
    "rms_norm_rope": lambda own, other: rms_norm_rope(
        own(X), own(X), other(SCALE), other(SCALE), other(AT), PARAMS
    ),
}


def as_tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


@pytest.mark.parametrize("op", CALLS)
def test_an_array_takes_other_inputs_as_tensors_and_lists(op):
    expected = CALLS[op](np.asarray, np.asarray)
    for other in (as_tensor, lambda array: array.tolist()) if op in ("rope", "rope_qk") else (as_tensor,):
        results = CALLS[op](np.asarray, other)
        assert type(results) is type(expected)
        for got, wanted in zip(np.atleast_3d(results), np.atleast_3d(expected), strict=True):
            assert np.array_equal(got, wanted)


@pytest.mark.parametrize("op", CALLS)
def test_a_tensor_refuses_arrays(op):
    with pytest.raises(TypeError, match=rf"^\[{op}\] \w+ must be a torch tensor.* but got ndarray\.$"):
        CALLS[op](as_tensor, np.asarray)
