"""Errors of calls through torch that no rule of an operator covers."""

import re

import pytest

import npu_rope
from npu_rope import RopeParams
from npu_rope.optional_torch import torch

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

TOKENS = 2**44  # of 64 elements: more bytes than a process can address


def endless(*sizes: int):
    """Return a tensor of ones of these sizes in the memory of one element."""
    return torch.ones(1).expand(sizes)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda: npu_rope.rms_norm(endless(TOKENS, 64), torch.ones(64)), [TOKENS, 64]),
        (lambda: torch.ops.npu_rope.rms_norm(endless(TOKENS, 64), torch.ones(64), -1, 1e-5, 1), [TOKENS, 64]),
        (
            lambda: npu_rope.rotary_mul(endless(1, TOKENS, 1, 64), endless(TOKENS, 32), endless(TOKENS, 32)),
            [1, TOKENS, 1, 64],
        ),
        (
            lambda: npu_rope.rope(
                endless(1, TOKENS, 1, 64), torch.zeros(1, dtype=torch.int32).expand(TOKENS), RopeParams(64)
            ),
            [1, TOKENS, 1, 64],
        ),
    ],
    ids=["rms_norm", "torch.ops", "rotary_mul", "rope"],
)
def test_a_result_without_memory_is_an_error_that_says_so(call, shape):
    rule = (
        f"[torch] memory must be enough for a result of shape {shape} but got an error of torch's allocator."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(rule)}$"):
        call()


@pytest.mark.parametrize(
    ("op", "name", "others"),
    [
        ("rms_norm", "x", 1),
        ("add_rms_norm", "x", 2),
        ("rotary_mul", "x", 2),
        ("rotary_mul_", "x", 2),
        ("rotary_mul_qk", "q", 3),
        ("rotary_embedding", "X", 2),
    ],
)
def test_none_instead_of_the_first_tensor_is_refused(op, name, others):
    rule = rf"^\[{op}\] {name} must be a torch tensor or a NumPy array but got NoneType\.$"
    with pytest.raises(TypeError, match=rule):
        getattr(npu_rope, op)(None, *(torch.ones(1, 1, 1, 4) for _ in range(others)))
