"""Who executes an operator on arrays, one file an operator; here is what they share.

What rope, rope_qk and rope_set_rows share is in ``rope.py``, arrays and tensors are in ``tensors.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_rope import backends, native
from npu_rope.errors import bad_type, bad_value
from npu_rope.optional_torch import torch

# ``const npu_rope_tensor *``
TENSOR = native.TENSOR


def c_entry(op: str, *argument_types: Any) -> Callable[..., None]:
    """The C entry ``npu_rope_<op>``; its status is raised as ValueError, TypeError or RuntimeError."""
    return native.load().checked_entry(f"npu_rope_{op}", *argument_types)


def run(op: str, executors: Mapping[str, Callable[..., Any]], backend: str, x: Any, *rest: Any) -> Any:
    """The executor of that backend on x, an array or a torch tensor in the CPU's memory (through
    which no gradient flows).

    Raises:
        ValueError: there is no such backend, or x is on another device.
        TypeError: x is neither an array nor a tensor.
        BackendUnavailable: the backend is not here, or does not have this operator.
    """
    executor = backends.executor_of(op, executors, backend)
    if torch is not None and isinstance(x, torch.Tensor):
        if x.device.type != "cpu":
            raise bad_value(op, f"x must be on device cpu for backend {backend} but got {x.device}.")
        return torch.from_numpy(executor(x.detach().numpy(), *rest))
    if not isinstance(x, np.ndarray):
        raise bad_type(op, f"x must be a torch tensor or a NumPy array but got {type(x).__name__}.")
    return executor(x, *rest)
