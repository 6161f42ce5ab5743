"""Arrays and CPU tensors on an NPU: copied there with the strides they have, and back what was written.
For validation and tests; who has NPU tensors calls the operators on them (``npu_rope/ops/``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_rope.executors.tensors import Array, is_tensor
from npu_rope.optional_torch import torch

DEVICE = "npu"


def to_device(t: Any) -> Any:
    """A tensor of the NPU with an array's or CPU tensor's shape, strides and values."""
    t = t.detach().resolve_neg() if is_tensor(t) else tensor_of(t)
    if t.numel() == 0:
        return torch.empty(t.shape, dtype=t.dtype, device=DEVICE)
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((last + 1,), (1,)).to(DEVICE).as_strided(t.shape, t.stride())


def copy_back(result: Any, out: Any) -> None:
    """What the NPU wrote, into the array or CPU tensor that was asked for."""
    result = result.cpu()
    if is_tensor(out):
        out.copy_(result)
    elif out.dtype.name == "bfloat16":
        out[...] = result.view(torch.int16).numpy().view(out.dtype)
    else:
        out[...] = result.numpy()


def tensor_of(a: Array) -> Any:
    """An array as a tensor of the CPU: on the same memory, or a copy where torch could not see it."""
    if any(s < 0 or s % a.itemsize for s in a.strides) or not a.flags.writeable or not a.dtype.isnative:
        a = np.array(a, a.dtype.newbyteorder("="), order="C")
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)
